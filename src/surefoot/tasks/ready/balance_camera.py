"""balance-camera: the same cart and pole, observed by a camera alone; what it looks like is unknown, too.

The physics is that of balance, bit for bit. A wall and a floor are added for the camera to see, each with a pattern in
front of it whose opacity is an unknown. A few frames show velocity. A teacher observes the state and trains unrendered.
"""

from dataclasses import replace

from surefoot.belief import Box
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.robot import Robot
from surefoot.task import Reward, Task
from surefoot.tasks.ready.balance import DT, MODEL, balance
from surefoot.tasks.ready.balance import RANGES as PHYSICS
from surefoot.tasks.terms.camera import Camera

SIZE, FINE = (48, 24), 3  # pixels, samples a side of each: 2.6 m of the rail, 1.3 m up, 5.4 cm a pixel

ASSETS = """
    <texture name="squares" type="2d" builtin="checker" rgb1="1 1 1" rgb2=".4 .4 .4" width="64" height="64"/>
    <texture name="stripes" type="2d" builtin="gradient" rgb1="1 1 1" rgb2=".4 .4 .4" width="64" height="64"/>
    <material name="squares" texture="squares" texrepeat="12 8"/>
    <material name="stripes" texture="stripes" texrepeat="9 9"/>"""

SCENERY = """
    <camera name="front" pos="0 -3 .5" xyaxes="1 0 0 0 0 1" fovy="24.5"/>
    <geom name="wall" type="box" pos="0 1.5 0" zaxis="0 -1 0" size="8 5 .01" rgba=".75 .8 .85 1" contype="0" conaffinity="0"/>
    <geom name="wall_pattern" type="box" pos="0 1.45 0" zaxis="0 -1 0" size="8 5 .01" material="squares" rgba=".7 .75 .7 0" contype="0" conaffinity="0"/>
    <geom name="floor" type="box" pos="0 0 -.3" size="8 5 .01" rgba=".6 .55 .5 1" contype="0" conaffinity="0"/>
    <geom name="floor_pattern" type="box" pos="0 0 -.27" size="8 5 .01" material="stripes" rgba=".6 .6 .55 0" contype="0" conaffinity="0"/>"""


def _turn(name: str, target: str, most: float, match: str, about: str, unit: str = "rad") -> Param:
    return Param(name, target, 0.0, -most, most, match=match, op="add", unit=unit, about=about)


LOOKS = (
    Param("light", "light", 1.0, 0.3, 2.0, log=True, about="power of the lights, as a multiple"),
    _turn("light_side", "light_tilt_y", 1.2, ".*", "lamp turned towards one end of the rail"),
    _turn("light_front", "light_tilt_x", 0.8, ".*", "lamp turned from above towards the wall"),
    *(Param(f"{k}_shade", "shade", 1.0, 0.2, 1.6, match=k, log=True, about=f"colour of the {k}, darker or lighter")
      for k in ("cart", "pole", "wall", "floor")),
    *(_turn(f"{k}_hue", "hue", 3.0, k, f"colour of the {k}, turned about the grey axis") for k in ("cart", "pole")),
    *(Param(f"{k}_pattern", "opacity", 0.0, 0.0, 1.0, match=f"{k}_pattern", op="set", about=f"pattern on the {k}, 0: plain")
      for k in ("wall", "floor")),
    _turn("camera_x", "camera_x", 0.3, "front", "camera moved along the rail", "m"),
    _turn("camera_y", "camera_y", 0.3, "front", "camera moved up", "m"),
    _turn("camera_z", "camera_z", 0.5, "front", "camera moved away from the rail", "m"),
    _turn("camera_yaw", "camera_yaw", 0.15, "front", "camera turned towards one end of the rail"),
    _turn("camera_pitch", "camera_pitch", 0.1, "front", "camera turned up"),
    Param("camera_fov", "camera_fov", 1.0, 0.8, 1.25, match="front", log=True, about="field of view, as a multiple"),
)  # fmt: skip

RANGES = {
    "light": (0.7, 1.3), "light_side": (-0.4, 0.4), "light_front": (-0.2, 0.2),
    "cart_shade": (0.7, 1.3), "pole_shade": (0.7, 1.2), "wall_shade": (0.8, 1.15), "floor_shade": (0.7, 1.3),
    "cart_hue": (-0.5, 0.5), "pole_hue": (-0.5, 0.5), "wall_pattern": (0.0, 0.15), "floor_pattern": (0.0, 0.3),
    "camera_x": (-0.03, 0.03), "camera_y": (-0.02, 0.02), "camera_z": (-0.05, 0.05),
    "camera_yaw": (-0.01, 0.01), "camera_pitch": (-0.005, 0.005), "camera_fov": (0.98, 1.02),
}  # fmt: skip

PIXEL_NOISE = (0.0, 0.02)  # of full brightness


def balance_camera() -> Task:
    task = balance()
    params = Params((*task.params, *LOOKS))
    robot = Robot.text(MODEL.format(assets=ASSETS, scenery=SCENERY), "balance-camera")
    eye = Camera(robot, params, "front", SIZE, fine=FINE)
    state, e = task.observations["actor"].terms[0], ObsTerm("e", lambda s: s.x.e, len(params), "mixed", sensed=False)
    return replace(
        task,
        name="balance-camera",
        about="pole on a cart, by camera only",
        robot=robot,
        params=params,
        belief=Box.ranges(params, {**PHYSICS, "noise": PIXEL_NOISE, **RANGES}),
        observations={"actor": ObsGroup((ObsTerm("pixels", eye, eye.dim, "of full brightness"),), history=4),
              "critic": ObsGroup((state, e)), "teacher": ObsGroup((state,))},
        rewards={
            **task.rewards,
            "gentle": Reward(-0.5 / DT, lambda s: s.action[:, 0] ** 2, "force squared: what a camera can follow"),
            "in sight": Reward(-0.5 / DT, lambda s: s.q[:, 0] ** 2, "distance from the middle squared, m^2"),
        },
        settings={**task.settings, "envs": 32, "horizon": 64},
        lesson={
            "history": 4, "envs": 32, "steps": 100_000, "horizon": 32, "keep": 6,
            "epochs": 2, "minibatches": 8, "mix": 0.5, "learner_threads": 1,
        },
    )  # fmt: skip
