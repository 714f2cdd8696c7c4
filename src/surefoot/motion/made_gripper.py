"""A hand with three fingers and a can, in space, and what the hand should do with it: lift it, or turn it about its axis.

Each finger hangs from the palm's rim by two hinges; the palm rises and turns. As in made_hands.py the references are kinematic: fingertips
just touch the can, so that replayed as they are the can stays where it is.

    q = (can x, y, z, w, x, y, z; palm height, palm turn; near, far of three fingers),  u = what the nine servos hold;  m, rad, s, kg

    A finger, in its plane:  rim + near cos-sin(a) + far cos-sin(a + b) = the tip's middle, beside the can
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

CAN, TALL, MASS = 0.03, 0.1, 0.2  # m, radius; m, height; kg
RIM, FIRST, SECOND, TIP = 0.06, 0.06, 0.05, 0.012  # m: where fingers hang, their links, radius of a tip
NEAR = 0.15  # rad: the first link leans out
FAR = -NEAR - np.arcsin(
    (RIM + FIRST * np.sin(NEAR) - CAN - TIP) / SECOND
)  # and the second one in, so that the tip touches
GRIP = 0.055  # m above the floor
PALM = GRIP + FIRST * np.cos(NEAR) + SECOND * np.cos(NEAR + FAR)
PERIOD, SUBSTEPS = 0.02, 4
PARAMS = Params((Param("friction", "friction", 1.0, 0.2, 2.0, "can|.*tip", "scale", about="of can and fingertips"),))
WEIGHTS = np.array([3.0, 3.0, 3.0, 0.3, 0.3, 0.3, 0.1, 0.1, *[0.003] * 6])
REACH = np.array([1.0, 5.0, *[5.0] * 6])  # of the noise: 0.03 m, 0.15 rad


def xml() -> str:
    fingers = "".join(
        f"""<body name="{n}" pos="{RIM * np.cos(a):.6f} {RIM * np.sin(a):.6f} 0" euler="0 0 {a:.6f}" gravcomp="1">
          <joint name="{n}_near" axis="0 -1 0" range="-1 1"/><geom type="capsule" size=".008" fromto="0 0 0 0 0 {-FIRST}" mass=".03" contype="0" conaffinity="0"/>
          <body pos="0 0 {-FIRST}" gravcomp="1"><joint name="{n}_far" axis="0 -1 0" range="-1.6 .5"/><geom type="capsule" size=".007" fromto="0 0 0 0 0 {-SECOND}" mass=".02" contype="0" conaffinity="0"/>
            <geom name="{n}_tip" size="{TIP}" pos="0 0 {-SECOND}" mass=".01"/></body></body>"""
        for n, a in zip(("thumb", "index", "ring"), 2 * np.pi / 3 * np.arange(3))
    )
    servos = "".join(f'<position joint="{n}_{j}" kp="4" kv=".1"/>' for n in ("thumb", "index", "ring") for j in ("near", "far"))  # fmt: skip
    return f"""
<mujoco model="three_fingers">
  <compiler angle="radian"/>
  <option timestep="{PERIOD / SUBSTEPS}" integrator="implicitfast" cone="elliptic" impratio="10"/>
  <default><geom friction=".8 .005 .0001" condim="4" solref="0.01 1"/><joint damping=".02" armature=".0005"/></default>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 .1"/>
    <body name="can" pos="0 0 {TALL / 2}"><freejoint/><geom name="can" type="cylinder" size="{CAN} {TALL / 2}" mass="{MASS}"/></body>
    <body name="palm" pos="0 0 {PALM:.6f}" gravcomp="1">
      <joint name="palm_z" type="slide" axis="0 0 1" damping="20"/><joint name="palm_turn" axis="0 0 1" damping=".1"/>
      <geom type="cylinder" size="{RIM} .008" pos="0 0 .012" mass=".4" contype="0" conaffinity="0"/>{fingers}
    </body>
  </worldbody>
  <actuator><position joint="palm_z" kp="2000" kv="60"/><position joint="palm_turn" kp="20" kv=".5"/>{servos}</actuator>
</mujoco>"""


@dataclass(frozen=True)
class ThreeFingers:
    """n -> n simulations, whose unknown is friction (as a multiple)."""

    threads: int = 1

    def __call__(self, n: int) -> World:
        model = compile_for(load_robot(Robot.text(xml(), "three_fingers")).spec, PARAMS)
        return Engine(model, PARAMS, n, SUBSTEPS, self.threads)


def _reference(up: np.ndarray, turn: np.ndarray) -> Reference:
    zero, fingers = 0 * up, np.tile([NEAR, FAR] * 3, (len(up), 1))
    can = np.column_stack([zero, zero, TALL / 2 + up, np.cos(turn / 2), zero, zero, np.sin(turn / 2)])
    hand = np.column_stack([up, turn, fingers])
    return Reference(np.concatenate([can, hand], 1), hand, WEIGHTS, REACH)


def _ramp(seconds: float) -> np.ndarray:
    s = np.clip((np.arange(1, round(seconds / PERIOD) + 1) * PERIOD - 0.2) / (seconds - 0.6), 0, 1)
    return s * s * (3 - 2 * s)


def lift(high: float = 0.12, seconds: float = 2.0) -> Reference:
    return _reference(high * _ramp(seconds), 0 * _ramp(seconds))


def turn(angle: float = 0.8, seconds: float = 2.0) -> Reference:
    """The can turns about its axis where it stands, as a lid is unscrewed."""
    return _reference(0 * _ramp(seconds), angle * _ramp(seconds))
