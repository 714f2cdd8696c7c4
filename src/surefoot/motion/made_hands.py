"""Two fingers and a box in a plane, and what a hand should do with it: lift, push, pivot. The references are kinematic:
fingers just touch the box and squeeze nothing, so that replayed as they are they move nothing, or drop it.

    q = (box x, z, angle; left finger x, z; right finger x, z),  u = places that the fingers' servos hold;  m, rad, s, kg
"""

from dataclasses import dataclass

import numpy as np

from surefoot.motion.dynamic import Reference
from surefoot.params import Param, Params
from surefoot.robot import Robot
from surefoot.sim.engine import Engine
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.model.load import load_robot
from surefoot.world import World

HALF, TIP, MASS = 0.05, 0.015, 0.2  # m, half an edge of the box; m, radius of a fingertip; kg
PERIOD, SUBSTEPS = 0.02, 4
PARAMS = Params((
    Param("friction", "friction", 1.0, 0.2, 2.0, "box|.*tip", "scale", about="of box and fingertips"),
    Param("guide", "constraint", 0.0, 0.0, 1.0, ".*", "set", about="virtual contacts"),
))  # fmt: skip
WEIGHTS = np.array([3.0, 3.0, 0.3, 0.1, 0.1, 0.1, 0.1])


def xml(mass: float = MASS) -> str:
    finger = "".join(
        f"""<body name="{s}" pos="{x} 0 {HALF}"><joint name="{s}_x" type="slide" axis="1 0 0" damping="1"/><joint name="{s}_z" type="slide" axis="0 0 1" damping="1"/>
        <geom name="{s}_tip" type="sphere" size="{TIP}" mass=".1"/><site name="{s}_grip" pos="{-TIP * np.sign(x)} 0 0"/></body>"""
        for s, x in (("left", -HALF - TIP), ("right", HALF + TIP))
    )
    servo = "".join(
        f'<position name="{s}_{a}" joint="{s}_{a}" kp="400" kv="20"/>' for s in ("left", "right") for a in "xz"
    )
    return f"""
<mujoco model="two_fingers">
  <option timestep="{PERIOD / SUBSTEPS}" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <default><geom friction=".8 .005 .0001" condim="3" solref="0.01 1"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 .1"/>
    <body name="box" pos="0 0 {HALF}">
      <joint name="box_x" type="slide" axis="1 0 0"/><joint name="box_z" type="slide" axis="0 0 1"/><joint name="box_turn" type="hinge" axis="0 1 0"/>
      <geom name="box" type="box" size="{HALF} {HALF} {HALF}" mass="{mass}"/>
      <site name="box_left" pos="{-HALF} 0 0"/><site name="box_right" pos="{HALF} 0 0"/>
    </body>
    {finger}
  </worldbody>
  <equality><connect name="hold_left" site1="left_grip" site2="box_left" solref="-2500 -100"/><connect name="hold_right" site1="right_grip" site2="box_right" solref="-2500 -100"/></equality>
  <actuator>{servo}</actuator>
</mujoco>"""


@dataclass(frozen=True)
class Hands:
    """n -> n simulations, whose unknowns are friction (as a multiple) and the strength of the virtual contacts."""

    threads: int = 1
    mass: float = MASS
    """kg of the box"""

    def __call__(self, n: int) -> World:
        model = compile_for(load_robot(Robot.text(xml(self.mass), "two_fingers")).spec, PARAMS)
        return Engine(model, PARAMS, n, SUBSTEPS, self.threads)


def _reference(box: np.ndarray, left: np.ndarray, right: np.ndarray) -> Reference:
    """From paths of the box (T, 3) and the fingers (T, 2), all as displacements."""
    return Reference(np.concatenate([box, left, right], 1), np.concatenate([left, right], 1), WEIGHTS)


def _ramp(seconds: float) -> np.ndarray:
    s = np.clip((np.arange(1, round(seconds / PERIOD) + 1) * PERIOD - 0.2) / (seconds - 0.6), 0, 1)
    return s * s * (3 - 2 * s)


def lift(high: float = 0.15, seconds: float = 2.0) -> Reference:
    z = high * _ramp(seconds)
    path = np.stack([0 * z, z], 1)
    return _reference(np.column_stack([path, 0 * z]), path, path)


def push(far: float = 0.15, seconds: float = 2.0) -> Reference:
    """The left finger pushes; the reference's finger lags by a gap, so that replayed as it is the box stays short of the goal."""
    x = far * _ramp(seconds)
    gap = 0.12
    return _reference(
        np.stack([x, 0 * x, 0 * x], 1), np.stack([x - gap * (x > 0), 0 * x], 1), np.stack([x + 0.03, 0 * x], 1)
    )


def pivot(angle: float = 0.5, seconds: float = 2.0) -> Reference:
    """The box turns about its right lower edge: the left finger lifts its side, the right one holds against it."""
    a = angle * _ramp(seconds)
    corner = np.array([HALF, -HALF])
    turn = lambda p: np.stack([np.cos(a) * p[0] + np.sin(a) * p[1], -np.sin(a) * p[0] + np.cos(a) * p[1]], 1)  # noqa: E731
    centre = corner - turn(corner)  # displacement of the box's middle
    grip = lambda p: corner + turn(np.array(p) - corner) - np.array(p)  # noqa: E731
    left, right = grip((-HALF - TIP, 0.0)), grip((HALF + TIP, 0.0))
    return _reference(np.column_stack([centre, a]), left, right)
