"""Published randomization ranges with their sources: presets of p(e).

A preset has the ranges of its source's configuration, in a task's names and units where a number means the same on any
robot, and in physical units where it does not. Four conversions, each in one place below:

    friction   PhysX averages the two surfaces by default: mu = (mu_robot + mu_ground) / 2
    latency    n control steps of period T last n T
    noise      uniform within +-w has the standard deviation w / sqrt(3); a task's noise is a multiple k of its terms' noise
    push       a velocity step dv of a robot of mass m is an impulse m dv; a task's push is a multiple k of F t

The multiple k depends on the task's m, F, t and noise, so that dv is preserved and not the force. A source that pushes
with vx and vy within +-v pushes with up to sqrt(2) v. Ranges are cut at a param's physical bounds. A range that the
source draws for each joint or link is drawn once for all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from surefoot.belief import Box
from surefoot.errors import SurefootError, unknown
from surefoot.params import Param
from surefoot.sim.events import Push
from surefoot.sim.model.load import load_robot
from surefoot.task import Task

Unit = Literal["own", "kg", "m/s"]


@dataclass(frozen=True)
class Range:
    """low..high in `unit`: the param's own, kg of the whole robot, or m/s of velocity that a push adds."""

    low: float
    high: float
    source: str
    """the range as in the source"""
    unit: Unit = "own"


@dataclass(frozen=True)
class Source:
    repository: str
    path: str
    version: str
    """commit or year, and the fork it was read in, if any"""


@dataclass(frozen=True)
class Preset:
    name: str
    robot: str
    kind: str
    """kind of robot, as Task.kind has it"""
    source: Source
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """a param's name -> its range"""
    noise: Mapping[str, float] = field(default_factory=dict)
    """an observation term's name -> standard deviation of its noise, in the term's unit"""
    others: tuple[str, ...] = ()
    """what the source randomizes and no task here has an unknown for"""

    @property
    def like(self) -> str:
        """The ready task whose robot is most like its own, of several of one kind."""
        return "humanoid" if self.robot in HUMANOIDS else "walk"


def averaged(low: float, high: float, ground: float = 1.0) -> Range:
    """Friction of a robot's shapes in Isaac Gym, where PhysX averages it with the ground's."""
    mix = f"{low:g} .. {high:g} on the robot, averaged with the ground's {ground:g}"
    return Range((low + ground) / 2, (high + ground) / 2, mix)


def steps(low: int, high: int, period: float) -> Range:
    """A delay in whole steps of `period` seconds."""
    return Range(low * period, high * period, f"{low} .. {high} steps of {period:g} s")


def multiple(low: float, high: float, nominal: float, unit: str) -> Range:
    """A value in physical units, as a multiple of the source's own nominal one."""
    return Range(low / nominal, high / nominal, f"{low:g} .. {high:g} {unit}, nominal {nominal:g}")


def sideways(speed: float, every: str) -> Range:
    """Pushes that change vx and vy by up to `speed` each."""
    return Range(0.0, math.sqrt(2) * speed, f"vx, vy within +-{speed:g} m/s, every {every}", "m/s")


def scaled(low: float, high: float) -> Range:
    return Range(low, high, f"x{low:g} .. x{high:g}")


def added(low: float, high: float, unit: str) -> Range:
    return Range(low, high, f"{low:+g} .. {high:+g} {unit}")


def uniform(**widths: float) -> dict[str, float]:
    """Standard deviations of noise that is uniform within +- each width."""
    return {term: width / math.sqrt(3) for term, width in widths.items()}


# Target (sim/fields/) and op that a param of each name must have for a preset's range to apply.
MEANS = {
    "payload": ("mass", "add"), "mass": ("mass", "scale"), "com_x": ("com_x", "add"), "com_y": ("com_y", "add"),
    "com_z": ("com_z", "add"), "friction": ("friction", "set"), "strength": ("strength", "scale"), "kp": ("kp", "scale"),
    "kd": ("kd", "scale"), "armature": ("armature", "scale"), "joint_friction": ("frictionloss", "scale"),
    "motor_time": ("motor_time", "set"), "latency": ("action_delay", "set"), "push": ("push", "set"),
    "noise": ("noise", "scale"),
}  # fmt: skip

HUMANOIDS = ("Unitree G1", "Unitree H1")
GYM_NOISE = uniform(base_ang_vel=0.2, projected_gravity=0.05, joint_pos=0.01, joint_vel=1.5)
GYM_NOISE_SPEED = GYM_NOISE | uniform(base_lin_vel=0.1)  # of actors that observe the base's velocity
PLAYGROUND_NOISE = GYM_NOISE_SPEED | uniform(joint_pos=0.03)
PLAYGROUND = "google-deepmind/mujoco_playground"
VELOCITY = "source/isaaclab_tasks/isaaclab_tasks/manager_based/locomotion/velocity"
ISAACLAB_FRICTION = Range(0.6, 0.8, "static 0.8, dynamic 0.6, fixed")

_HUMANOID = {"friction": averaged(0.1, 1.25), "payload": added(-1.0, 3.0, "kg"), "push": sideways(1.5, "5 s")}

_ALL = (
    Preset(
        "legged-gym-a1", "Unitree A1", "legged",
        Source("leggedrobotics/legged_gym", "legged_gym/envs/base/legged_robot_config.py", "0548121"),
        {"friction": averaged(0.5, 1.25), "push": sideways(1.0, "15 s")}, GYM_NOISE_SPEED,
    ),
    Preset(
        "legged-gym-anymal-c", "ANYmal C", "legged",
        Source("leggedrobotics/legged_gym", "legged_gym/envs/anymal_c/mixed_terrains/anymal_c_rough_config.py", "4c345d0"),
        {"friction": averaged(0.5, 1.25), "payload": added(-5.0, 5.0, "kg"), "push": sideways(1.0, "15 s")}, GYM_NOISE_SPEED,
    ),
    Preset(
        "unitree-go2", "Unitree Go2", "legged",
        Source("unitreerobotics/unitree_rl_gym", "legged_gym/envs/base/legged_robot_config.py", "d816fe1"),
        {"friction": averaged(0.5, 1.25), "push": sideways(1.0, "15 s")}, GYM_NOISE_SPEED,
    ),
    Preset(
        "unitree-g1", "Unitree G1", "legged",
        Source("unitreerobotics/unitree_rl_gym", "legged_gym/envs/g1/g1_config.py", "bd00c6a"), _HUMANOID, GYM_NOISE,
    ),
    Preset(
        "unitree-h1", "Unitree H1", "legged",
        Source("unitreerobotics/unitree_rl_gym", "legged_gym/envs/h1/h1_config.py", "bd00c6a"), _HUMANOID, GYM_NOISE,
    ),
    Preset(
        "walk-these-ways-go1", "Unitree Go1", "legged",
        Source("Improbable-AI/walk-these-ways", "scripts/train.py", "728058d"),
        {
            "friction": averaged(0.1, 3.0), "payload": added(-1.0, 3.0, "kg"), "strength": scaled(0.9, 1.1),
            "latency": steps(6, 6, 0.005),
        },
        GYM_NOISE,
        ("restitution 0 .. 0.4", "gravity +-1 m/s^2 along each axis, anew every 8 s", "joint angle offset +-0.02 rad"),
    ),
    Preset(
        "abs-go1", "Unitree Go1", "legged",
        Source("LeCAR-Lab/ABS", "training/legged_gym/legged_gym/envs/go1/go1_pos_config.py", "713c3cc"),
        {"friction": averaged(-0.2, 1.25), "payload": added(-1.5, 1.5, "kg")}, GYM_NOISE,
        ("joint angle offset +-0.08 rad", "random torque on every joint, up to 7/9 N m at each level of the curriculum"),
    ),
    Preset(
        "cross-modal-a1", "Unitree A1", "legged",
        Source("antonilo/rl_locomotion", "raisimGymTorch/env/envs/rsg_a1_task/Environment.hpp", "2023, 6a4e882"),
        {
            "friction": Range(0.5, 1.8, "one of 0.5, 0.7, 0.9, 1.2, 1.5, 1.8"),
            "payload": Range(0.0, 2.0, "trunk of 6 .. 8 kg, taken as 0 .. 2 kg on the lightest"),
            "com_x": added(-0.1, 0.1, "m"), "com_y": added(-0.05, 0.05, "m"), "strength": scaled(0.9, 1.1),
            "kp": multiple(40.0, 50.0, 45.0, "N m/rad"), "kd": multiple(0.4, 0.8, 0.6, "N m s/rad"),
        },
    ),
    Preset(
        "playground-go1", "Unitree Go1", "legged",
        Source(PLAYGROUND, "mujoco_playground/_src/locomotion/go1/randomize.py", "2025, read in the fork yursds, 87a4bf9"),
        {
            "friction": Range(0.4, 1.0, "0.4 .. 1 of the floor, whose word counts"), "payload": added(-1.0, 1.0, "kg"),
            "com_x": added(-0.05, 0.05, "m"), "com_y": added(-0.05, 0.05, "m"), "com_z": added(-0.05, 0.05, "m"),
            "joint_friction": scaled(0.9, 1.1), "armature": scaled(1.0, 1.05),
        },
        PLAYGROUND_NOISE, ("mass of every link x0.9 .. x1.1", "joint angle offset +-0.05 rad"),
    ),
    Preset(
        "playground-g1", "Unitree G1", "legged",
        Source(PLAYGROUND, "mujoco_playground/_src/locomotion/g1/randomize.py", "2025, read in the fork yursds, 7f2783a"),
        {
            "friction": Range(0.4, 1.0, "0.4 .. 1 between foot and floor"), "payload": added(-1.0, 1.0, "kg"),
            "joint_friction": scaled(0.5, 2.0), "armature": scaled(1.0, 1.05),
            "push": Range(0.1, 2.0, "0.1 .. 2 m/s, any way, every 5 .. 10 s", "m/s"),
        },
        PLAYGROUND_NOISE, ("mass of every link x0.9 .. x1.1", "joint angle offset +-0.05 rad"),
    ),
    Preset(
        "isaaclab-velocity", "any legged", "legged",
        Source("isaac-sim/IsaacLab", f"{VELOCITY}/velocity_env_cfg.py", "2025, a60b949"),
        {
            "friction": ISAACLAB_FRICTION, "payload": added(-5.0, 5.0, "kg"), "com_x": added(-0.05, 0.05, "m"),
            "com_y": added(-0.05, 0.05, "m"), "com_z": added(-0.01, 0.01, "m"), "push": sideways(0.5, "10 .. 15 s"),
        },
        GYM_NOISE_SPEED,
    ),
    Preset(
        "isaaclab-go2", "Unitree Go2", "legged",
        Source("isaac-sim/IsaacLab", f"{VELOCITY}/config/go2/rough_env_cfg.py", "2026, 17ad46e"),
        {"friction": ISAACLAB_FRICTION, "payload": added(-1.0, 3.0, "kg")}, GYM_NOISE_SPEED,
    ),
    Preset(
        "beyondmimic-g1", "Unitree G1", "legged",
        Source(
            "HybridRobotics/whole_body_tracking",
            "source/whole_body_tracking/whole_body_tracking/tasks/tracking/tracking_env_cfg.py",
            "2025, read in the fork linjiw, 7ffdefe",
        ),
        {
            "friction": Range(0.3, 1.6, "static 0.3 .. 1.6, dynamic 0.3 .. 1.2"), "com_x": added(-0.025, 0.025, "m"),
            "com_y": added(-0.05, 0.05, "m"), "com_z": added(-0.05, 0.05, "m"), "push": sideways(0.5, "1 .. 3 s"),
        },
        uniform(base_ang_vel=0.2, joint_pos=0.01, joint_vel=0.5, base_lin_vel=0.5),
        (
            "restitution 0 .. 0.5", "joint angle offset +-0.01 rad",
            "pushes up or down +-0.2 m/s, and turns: roll, pitch +-0.52 rad/s, yaw +-0.78 rad/s",
        ),
    ),
    Preset(
        "falcon-g1", "Unitree G1", "legged",
        Source("LeCAR-Lab/FALCON", "humanoidverse/config/domain_rand/domain_rand_rl_gym.yaml", "2025, read in the fork cotap, 112c48f"),
        {
            "friction": averaged(0.25, 1.25), "payload": added(-1.0, 3.0, "kg"), "kp": scaled(0.9, 1.1),
            "kd": scaled(0.9, 1.1), "latency": steps(0, 1, 0.02),
        },
        others=("mass of every link x0.9 .. x1.2", "forces on the hands: 40 N sideways, 50 N down"),
    ),
    Preset(
        "bfm-zero-g1", "Unitree G1", "legged",
        Source("LeCAR-Lab/BFM-Zero", "humanoidverse/config/domain_rand/domain_rand.yaml", "2025, read in the fork alubawzk, 37e1336"),
        {
            "friction": Range(-0.5, 1.25, "-0.5 .. 1.25, times the ground's"), "com_x": added(-0.02, 0.02, "m"),
            "com_y": added(-0.02, 0.02, "m"), "com_z": added(-0.02, 0.02, "m"), "push": sideways(0.5, "1 .. 3 s"),
        },
        others=("mass of every link x0.95 .. x1.05", "joint angle offset +-0.02 rad", "turns of +-0.5 rad/s with each push"),
    ),
    Preset(
        "learning-to-fly", "Crazyflie 2", "quadrotor",
        Source("arplaboratory/learning-to-fly", "src/parameters_dynamics.h", "2023, 2094794"),
        noise={"position_error": 0.001, "rotation": 0.001, "base_lin_vel": 0.002, "base_ang_vel": 0.002},
        others=(
            "force constant over an episode, standard deviation m g / 20 along each axis",
            "torque constant over an episode, standard deviation m g / 10000 m about each axis",
        ),
    ),
    Preset(
        "rotorpy-crazyflie", "Crazyflie 2", "quadrotor",
        Source("spencerfolk/rotorpy", "rotorpy/learning/learning_utils.py", "2025, 7b857d9"),
        {
            "mass": Range(0.02, 0.035, "0.02 .. 0.035 kg", "kg"),
            "strength": multiple(2.3e-8, 7.0e-8, 2.3e-8, "N/(rad/s)^2"),
            "motor_time": Range(0.004, 0.006, "0.004 .. 0.006 s"),
        },
    ),
    Preset(
        "safe-control-gym", "Crazyflie 2", "quadrotor",
        Source("utiasDSL/safe-control-gym", "safe_control_gym/envs/gym_pybullet_drones/quadrotor.py", "0404607"),
        {"mass": Range(0.022, 0.032, "0.022 .. 0.032 kg", "kg")},
        others=("inertia x0.93 .. x1.07, drawn apart from the mass",),
    ),
)  # fmt: skip

PRESETS: Mapping[str, Preset] = {p.name: p for p in _ALL}


@dataclass(frozen=True)
class Row:
    """One range of a preset in the task's unit: as in the source, and as the task uses it."""

    name: str
    source: str
    wanted: tuple[float, float]
    used: tuple[float, float]
    note: str
    """what was cut, and whether the nominal value lies outside; or empty"""


@dataclass(frozen=True)
class Fit:
    """A preset on a task."""

    preset: Preset
    belief: Box
    rows: tuple[Row, ...]
    unnamed: tuple[str, ...]
    """what of the preset the task has no unknown for"""

    @property
    def notes(self) -> list[str]:
        """Differences between the preset and its use in the task."""
        notes = [f"{self.preset.name}: {row.name} {row.note}" for row in self.rows if row.note]
        return notes + ([f"{self.preset.name}: not in this task: {'; '.join(self.unnamed)}"] if self.unnamed else [])


def fitting(task: Task) -> list[str]:
    """Names of the presets made for the task's kind of robot."""
    return [p.name for p in PRESETS.values() if p.kind == task.kind]


def find(name: str) -> Preset:
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def fit(task: Task, name: str) -> Fit:
    """The preset in this task, row by row, and what the task does not have."""
    preset = find(name)
    if preset.kind != task.kind:
        has = f"{task.kind} robot" if task.kind else "robot of a kind without presets"
        fits = fitting(task)
        raise SurefootError(
            f"preset {name}: made for a {preset.kind} robot, {task.name} has a {has}; "
            + (f"presets that fit: {', '.join(fits)}" if fits else "no preset fits")
        )
    named = {p.name for p in task.params if MEANS.get(p.name) == (p.target, p.op)}
    ranges = {k: _own(task, r) for k, r in preset.ranges.items() if k in named}
    unnamed = [f"{k} ({r.source})" for k, r in preset.ranges.items() if k not in named]
    own = {t.name: t.noise for t in task.observations["actor"].terms if t.noise}
    noisy = {term: sd for term, sd in preset.noise.items() if term in own and "noise" in named}
    if noisy:
        ranges["noise"] = _noise(noisy, own)
    unnamed += [f"noise of {term} (sd {sd:.2g})" for term, sd in preset.noise.items() if term not in noisy]
    rows = tuple(_row(task.params[k], r) for k, r in ranges.items())
    box = Box.ranges(task.params, {row.name: row.used for row in rows})
    return Fit(preset, box, rows, (*unnamed, *preset.others))


def _own(task: Task, r: Range) -> Range:
    """The range in the unit of the task's param."""
    if r.unit == "own":
        return r
    mass = float(load_robot(task.robot).model.body_mass.sum())
    if r.unit == "kg":
        per = 1 / mass
    else:
        push = next((t for t in task.terms if isinstance(t, Push)), None)
        if push is None:
            raise SurefootError(f"task {task.name}: terms: a param scales pushes, expected a Push, found none")
        per = mass / (push.force * push.seconds)
    return Range(per * r.low, per * r.high, r.source)


def _noise(sd: Mapping[str, float], own: Mapping[str, float]) -> Range:
    """One multiple scales all terms, so the range spans what each of them needs."""
    ratio = [sd[term] / own[term] for term in sd]
    return Range(min(ratio), max(ratio), "sd " + ", ".join(f"{term} {value:.2g}" for term, value in sd.items()))


def _row(p: Param, r: Range) -> Row:
    """The range within the param's bounds. One that lies outside them is not used."""
    low, high = (float(np.clip(x, p.low, p.high)) for x in (r.low, r.high))
    bounds = f"the bounds {p.low:g} .. {p.high:g}"
    if r.low > p.high or r.high < p.low:
        note = f"{r.low:.3g} .. {r.high:.3g} lies outside {bounds}; kept at {p.nominal:g}"
        return Row(p.name, r.source, (r.low, r.high), (p.nominal, p.nominal), note)
    notes = []
    if (low, high) != (r.low, r.high):
        notes.append(f"{r.low:.3g} .. {r.high:.3g} cut at {bounds}")
    if not low <= p.nominal <= high:
        notes.append(f"{low:.3g} .. {high:.3g} excludes the nominal {p.nominal:g}")
    return Row(p.name, r.source, (r.low, r.high), (low, high), "; ".join(notes))
