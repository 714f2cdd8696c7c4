"""Three tiny tasks on which learners differ: one where little is found by chance, two with two equally good ways.

    surefoot train benchmarks/toy_tasks.py:swing --learner sapg        (likewise pegs, fork)

swing   a pendulum with a weak motor earns only while it stands upright, and pays for torque: doing nothing is a local optimum
pegs    a slider that cannot see where it is earns at two places alike, and nothing between them
fork    a point goes round a wide disk to a goal behind it: by the left or by the right, never through the middle
"""

import numpy as np

from surefoot.belief import Box
from surefoot.contract import Action
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Start

PENDULUM = """
<mujoco model="swing">
  <option timestep="0.01" integrator="implicitfast"><flag contact="disable"/></option>
  <worldbody><body name="rod">
    <joint name="hinge" type="hinge" axis="0 1 0" damping=".02"/>
    <geom name="rod" type="capsule" fromto="0 0 0 0 0 -1" size=".02" mass=".001"/>
    <geom name="bob" type="sphere" pos="0 0 -1" size=".08" mass="1"/>
  </body></worldbody>
  <actuator><motor name="torque" joint="hinge" ctrlrange="-10 10"/></actuator>
</mujoco>
"""
TORQUE = 5.0  # N m; gravity's is up to 9.81
UPRIGHT = 0.8  # rad from the top within which it earns


def from_top(m: Moment) -> np.ndarray:
    """rad: 0 at the top, pi where it hangs."""
    return np.abs(m.q[:, 0] % (2 * np.pi) - np.pi)


def hanging(rng: Draw, n: int) -> Episode:
    q = rng.uniform(-0.1, 0.1, (n, 1))
    return Episode(Start(q, np.zeros((n, 1)), np.zeros((n, 1))))


def swing() -> Task:
    params = Params((
        Param("mass", "mass", 1.0, 0.8, 1.2, match="rod", op="scale", about="mass of the pendulum, as a multiple"),
    ))  # fmt: skip
    angle = ObsTerm("angle", lambda m: np.concatenate([np.cos(m.q), np.sin(m.q)], 1), 2, "cos, sin")
    seen = ObsGroup((angle, ObsTerm("speed", Formula("joint_vel"), 1, "rad/s")))
    return Task(
        name="swing", about="swing up a pendulum, paid only at the top", robot=Robot.text(PENDULUM, "swing"), params=params,
        belief=Box.ranges(params, {"mass": (0.9, 1.1)}), substeps=20, seconds=5.0,
        action=Action(("torque",), np.zeros(1), np.array([TORQUE]), "N m"),
        observations={"actor": seen, "critic": seen},
        rewards={
            "upright": Reward(4.0, lambda m: (from_top(m) < UPRIGHT).astype(float), "at the top, and nowhere else"),
            "torque": Reward(-0.1, lambda m: np.square(np.clip(m.action[:, 0], -1, 1)), "each torque costs"),
        },
        ended={}, episode=hanging, error=from_top, error_unit="rad", tolerance=UPRIGHT, window=1.0,
        settings={"envs": 96, "horizon": 25, "steps": 150_000, "hidden": (32, 32), "gamma": 0.98, "minibatches": 4, "activation": "tanh", "spread": (0.2, 0.5, 1.0),
                  "learner_threads": 1},
    )  # fmt: skip


SLIDER = """
<mujoco model="pegs">
  <option timestep="0.01" gravity="0 0 0" integrator="implicitfast"><flag contact="disable"/></option>
  <worldbody><body name="slider">
    <joint name="x" type="slide" axis="1 0 0"/><geom name="slider" type="sphere" size=".05" mass="1"/>
  </body></worldbody>
  <actuator><position name="place" joint="x" kp="2500" kv="100" ctrlrange="-1 1"/></actuator>
</mujoco>
"""
PEG = 0.6  # m from the middle, to both sides


def _off(m: Moment) -> np.ndarray:
    """m from the nearer peg."""
    return np.abs(np.abs(m.q[:, 0]) - PEG)


def _middle(rng: Draw, n: int) -> Episode:
    return Episode(Start(np.zeros((n, 1)), np.zeros((n, 1)), np.zeros((n, 1))))


def pegs() -> Task:
    """Its servo is there within a control period, so that each step is a choice of its own."""
    params = Params((Param("mass", "mass", 1.0, 0.8, 1.2, match="slider", op="scale", about="mass of the slider, as a multiple"),))  # fmt: skip
    seen = ObsGroup((ObsTerm("nothing", lambda m: np.zeros((len(m.q), 1)), 1, "always 0"),))
    return Task(
        name="pegs", about="two equally good places", robot=Robot.text(SLIDER, "pegs"), params=params,
        belief=Box.ranges(params, {"mass": (0.9, 1.1)}), substeps=20, seconds=2.0,
        action=Action(("place",), np.zeros(1), np.ones(1), "m"),
        observations={"actor": seen, "critic": seen},
        rewards={"near": Reward(1.0, lambda m: np.exp(-np.square(_off(m) / 0.15)), "at either peg")},
        ended={}, episode=_middle, error=_off, error_unit="m", tolerance=0.2, window=0.2,
        settings={"envs": 64, "horizon": 10, "steps": 50_000, "hidden": (32, 32), "gamma": 0.5, "minibatches": 2, "activation": "tanh",
                  "learner_threads": 1},
    )  # fmt: skip


START, GOAL, DISK, SPEED = np.array([-1.6, 0.0]), np.array([1.3, 0.0]), 0.7, 1.5
POINT = f"""
<mujoco model="fork">
  <option timestep="0.01" gravity="0 0 0" integrator="implicitfast"><flag contact="disable"/></option>
  <worldbody>
    <geom name="disk" type="cylinder" size="{DISK} .02" rgba=".8 .3 .2 1"/>
    <site name="goal" pos="{GOAL[0]} 0 0" size=".1" rgba=".2 .7 .3 1"/>
    <body name="point">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
      <geom name="point" type="sphere" size=".05" mass="1"/>
    </body>
  </worldbody>
  <actuator>
    <velocity name="vx" joint="x" kv="50" ctrlrange="-2 2"/><velocity name="vy" joint="y" kv="50" ctrlrange="-2 2"/>
  </actuator>
</mujoco>
"""


def _to_goal(m: Moment) -> np.ndarray:
    return np.linalg.norm(m.q - GOAL, axis=1)


def fork(jitter: float = 0.0) -> Task:
    """Episodes begin within `jitter` m of one point, from which both ways are equally long."""

    def begin(rng: Draw, n: int) -> Episode:
        q = START + rng.uniform(-jitter, jitter, (n, 2))
        return Episode(Start(q, np.zeros((n, 2)), np.zeros((n, 2))))

    params = Params((Param("mass", "mass", 1.0, 0.8, 1.2, match="point", op="scale", about="mass of the point, as a multiple"),))  # fmt: skip
    seen = ObsGroup((ObsTerm("place", Formula("joint_pos"), 2, "m"),))
    return Task(
        name="fork", about="a point goes round a disk, left or right", robot=Robot.text(POINT, "fork"), params=params,
        belief=Box.ranges(params, {"mass": (0.9, 1.1)}), substeps=20, seconds=5.0,
        action=Action(("vx", "vy"), np.zeros(2), np.full(2, SPEED), "m/s"),
        observations={"actor": seen, "critic": seen},
        rewards={"near": Reward(1.0, lambda m: np.exp(-_to_goal(m)), "the nearer to the goal the more")},
        ended={"hit the disk": lambda m: np.linalg.norm(m.q, axis=1) < DISK},
        episode=begin, error=_to_goal, error_unit="m", tolerance=0.3, window=0.2,
        settings={"envs": 64, "horizon": 30, "steps": 100_000, "hidden": (64, 64), "gamma": 0.97, "minibatches": 4, "activation": "tanh",
                  "learner_threads": 1},
    )  # fmt: skip


def noisy_fork() -> Task:
    """fork, begun within 5 cm of the point."""
    return fork(0.05)
