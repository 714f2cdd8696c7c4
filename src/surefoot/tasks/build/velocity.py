"""velocity: a robot with legs follows a commanded velocity (vx, vy, yaw rate), blind.

Each joint servo holds its target: torque = kp (target - q) - kd v, target = default pose + scale a. A gait clock gives
every foot a swing and a stance: the policy observes its phase and rewarded for following it, which makes walking quick to
learn. The actor observes what the robot measures: no base velocity, no contacts, no terrain.

Numbers that depend on size are scaled from a quadruped with legs of L0 = 0.426 m by Froude's law: lengths with L / L0,
speeds with sqrt(L / L0), frequencies with sqrt(L0 / L), forces with the mass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from surefoot.arrays import namespace
from surefoot.contract import Action
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.params import Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.sim.events import Push
from surefoot.sim.model.edits import Timing
from surefoot.task import Episode, Reward, Symmetry, Task
from surefoot.tasks.build import unknowns
from surefoot.tasks.build.estimator import estimated, legged_filter, with_sensors
from surefoot.tasks.build.ground import Ground
from surefoot.tasks.build.legged import Body, Legged, mirrored_feet, mirrored_joints, offsets, prepared, read_legged
from surefoot.tasks.terms import observations as obs
from surefoot.tasks.terms import quantities, rewards, terminations
from surefoot.tasks.terms.quantities import Gait
from surefoot.world import Start

L0 = 0.426  # m
LIMIT = 4.0  # of an action
SHOVES = 4.0  # s from one push to the next
LEARN = {"horizon": 24, "gamma": 0.99, "hidden": (128, 128), "lr": 1e-3, "entropy": 0.005, "kl": 0.02}


@dataclass(frozen=True)
class Style:
    """Numbers of a task that depend on how many legs there are, for legs of L0."""

    command: tuple[float, float, float]
    """largest vx, vy and yaw rate, m/s and rad/s"""
    stride: tuple[float, float]
    """Hz, and m that feet are lifted"""
    track: tuple[float, float]
    """m/s, rad/s: an error that costs 63 % of the reward for following the command"""
    weights: tuple[float, float, float]
    """of the rewards for following the commanded vx, vy, the yaw rate, and the clock"""
    off: tuple[float, float]
    """rad, and m/s or rad/s: how far from the default pose at rest an episode begins"""
    settings: Mapping[str, Any]
    ranges: Literal["fixed", "ramp"] = "fixed"
    """how p(e) grows while a policy learns"""


QUADRUPED = Style(
    (1.0, 0.5, 1.0), (2.0, 0.08), (0.25, 0.35), (1.5, 0.75, 1.5), (0.15, 0.3), LEARN | {"envs": 512, "steps": 6_000_000}
)
# Two legs fall first and stand next. Small batches and little noise shorten the one; a reward that reaches far, and a gait
# reward of which standing still earns nothing, the other. In the nominal world both take a quarter of
# the steps that the whole ranges take, and what was learned there bears the ranges soon.
BIPED = Style(
    (0.7, 0.3, 0.7), (1.8, 0.06), (0.45, 0.9), (2.5, 2.0, 3.0), (0.06, 0.12),
    LEARN | {"envs": 256, "steps": 12_000_000, "spread": (0.05, 0.35, 1.0)}, "ramp",
)  # fmt: skip


@dataclass(frozen=True)
class Size:
    """Factors of Froude's law."""

    length: float

    @property
    def speed(self) -> float:
        return float(np.sqrt(self.length))


def velocity(
    robot: Robot,
    legs: Legged | None = None,
    command: tuple[float, float, float] | None = None,
    stride: tuple[float, float] | None = None,
    timing: Timing = Timing(steps=4),  # noqa: B008
    ranges: Mapping[str, tuple[float, float]] | None = None,
    rough: bool = False,
    estimate: Sequence[str] | None = None,
) -> Task:
    """The task of following a commanded velocity. `command`: largest vx, vy, yaw rate; `stride`: Hz and height in m.

    `estimate`: what the actor observes of a state estimator, such as base_lin_vel_estimate; None: the robot has none.
    """
    legs = legs or read_legged(robot)[0]
    fastest, (hz, high) = command or usual(legs)[0], stride or usual(legs)[1]
    size, ground = Size(legs.length / L0), Ground(rough)
    robot = prepared(robot, legs, timing, ground)
    robot = robot if estimate is None else robot.edited(with_sensors)
    body = Body(robot, legs)
    estimator = None if estimate is None else legged_filter(body, timing)
    gait = Gait(hz, high, offsets(body.feet()), tuple(f.radius for f in legs.feet), ground=ground)
    mass = float(body.model.body_mass.sum())
    belief = unknowns.belief(unknown_rows(body, mass, timing, estimate is not None), ranges or {})
    actor, critic = _observations(body, gait, belief.params, estimated(estimator, estimate or ()))
    return Task(
        name=f"{robot.name}-velocity" + ("-rough" if rough else ""),
        about=f"{robot.name} follows a commanded velocity" + (" over rough ground" if rough else ""),
        robot=robot,
        params=belief.params,
        belief=belief,
        substeps=timing.steps,
        seconds=20.0,
        action=Action(body.actuators, body.joints.home, _scale(legs), "rad", limit=LIMIT),
        observations={"actor": ObsGroup(actor, estimator=estimator if estimate else None), "critic": ObsGroup(critic)},
        rewards=_rewards(body, gait, size) | (_biped_rewards(body, gait) if len(legs.feet) == 2 else {}),
        ended={
            "fell": terminations.bad_orientation,
            "base on the ground": partial(terminations.low_base, least=0.4 * legs.height, ground=ground),
        },
        episode=_Starts(body, gait, *style(legs).off),
        error=lambda s: s.once(quantities.lin_vel_error),
        error_unit="m/s",
        tolerance=0.25,
        window=20.0,
        measure="mean",
        command=_Commands(np.array(fastest)),
        command_names=("vx", "vy", "yaw_rate"),
        command_every=5.0,
        reward_floor=0.0,
        symmetry=_symmetry(body, belief.params),
        terms=(Push(slice(body.base[1], body.base[1] + 2), unknowns.SHOVE * mass, unknowns.SHOVED, SHOVES, belief.params),),
        settings=dict(style(legs).settings),
        ranges=style(legs).ranges,
        kind="legged",
        estimator=estimator,
    )  # fmt: skip


def style(legs: Legged) -> Style:
    return BIPED if len(legs.feet) <= 2 else QUADRUPED


def usual(legs: Legged) -> tuple[tuple[float, float, float], tuple[float, float]]:
    """Largest command and stride for legs of this length and number."""
    size = Size(legs.length / L0)
    (vx, vy, yaw), (hz, high) = style(legs).command, style(legs).stride
    command = round(vx * size.speed, 2), round(vy * size.speed, 2), round(yaw / size.speed, 2)
    return command, (round(hz / size.speed, 2), round(high * size.length, 3))


def _scale(legs: Legged) -> np.ndarray:
    """rad for each unit of action: 0.7 of what takes a servo to its limit, 0.1 to 0.5."""
    reach = np.array([j.limit / j.kp if np.isfinite(j.limit) else 1.0 for j in legs.joints.values()])
    return np.clip(0.75 * reach, 0.1, 0.5).round(3)


def unknown_rows(body: Body, mass: float, timing: Timing, imu: bool = False) -> list[unknowns.Row]:
    """What is unknown of a robot with legs; `imu`: it also reads an accelerometer."""
    carrier = body.carrier
    own = float(body.model.body(carrier).mass[0])
    driven = unknowns.Driven(body.model, body.joints.names, body.actuators)
    return [
        *unknowns.base(carrier, mass, own, body.legs.length), *unknowns.ground("sole/.*"), *driven.servos(),
        *unknowns.wires(timing.period, unknowns.PROPRIOCEPTION + ("|accelerometer" if imu else "")), *unknowns.noise(), *unknowns.push(mass),
        *(unknowns.accelerometer() if imu else ()),
    ]  # fmt: skip


def _observations(
    body: Body, gait: Gait, params: Params, estimates: tuple[ObsTerm, ...]
) -> tuple[tuple[ObsTerm, ...], tuple[ObsTerm, ...]]:
    actor = (
        obs.base_ang_vel(body.imu), obs.projected_gravity(body.imu), obs.command(3, "m/s, m/s, rad/s"), obs.joint_pos(body.joints),
        obs.joint_vel(body.joints), obs.last_action(len(body.joints.names)), obs.gait_clock(gait), *estimates,
    )  # fmt: skip
    more = (obs.base_lin_vel(), obs.base_height(gait.ground), obs.clearance(gait), obs.touch(gait), obs.unknowns(len(params)))  # fmt: skip
    return actor, (*actor, *more)


def _rewards(body: Body, gait: Gait, size: Size) -> dict[str, Reward]:
    L, joints, (along, about) = size.length, body.joints, style(body.legs).track
    follow, turn, step = style(body.legs).weights
    standing = rewards.standing_gait(gait.height, 0.03 * L) if len(body.legs.feet) == 2 else 0.0
    return {
        "track_lin_vel_xy": Reward(follow, partial(rewards.track_lin_vel_xy, sigma=along), "follow the commanded vx, vy"),
        "track_ang_vel_z": Reward(turn, partial(rewards.track_ang_vel_z, sigma=about), "follow the commanded yaw rate"),
        "feet_gait": Reward(step, partial(rewards.feet_gait, gait=gait, sigma=0.03 * L, standing=standing), f"feet swing to {gait.height:g} m and stand, as the clock says"),
        "default_pose": Reward(0.4, partial(rewards.default_pose, joints=joints, weight=_prior(body)), "joints near the default pose"),
        "flat_orientation": Reward(-4.0, rewards.flat_orientation, "roll and pitch"),
        "lin_vel_z": Reward(-1.0, rewards.lin_vel_z, "vertical velocity squared"),
        "ang_vel_xy": Reward(-0.05, rewards.ang_vel_xy, "roll and pitch rates squared"),
        "joint_pos_limits": Reward(-2.0, partial(rewards.joint_pos_limits, joints=joints), "joints beyond their range, rad"),
        "action_rate": Reward(-0.02, rewards.action_rate, "change of action squared"),
        "feet_landing": Reward(-0.5, partial(rewards.feet_landing, gait=gait, near=0.02 * L), "downward speed of landing feet squared"),
        "feet_slide": Reward(-0.1, partial(rewards.feet_slide, gait=gait), "speed of feet on the ground squared"),
    }  # fmt: skip


def _biped_rewards(body: Body, gait: Gait) -> dict[str, Reward]:
    """What two legs need besides: with four, falling and crossing them costs the other terms enough."""
    feet, height = body.feet(), 0.94 * body.legs.height
    apart = 0.7 * float(np.ptp(feet[:, 1]))
    normals = [f.normal for f in body.legs.feet]
    more = {
        "alive": Reward(0.25, rewards.alive, "for every step"),
        "feet_placement": Reward(2.0, partial(rewards.feet_placement, gait=gait, feet=feet, sigma=0.15 * body.legs.length), "feet land where the commanded velocity takes them"),
        "feet_near": Reward(-1.0, partial(rewards.feet_near, least=apart), f"feet nearer to each other than {apart:.2f} m sideways"),
        "low_base": Reward(-6.0, partial(rewards.low_base, least=height, ground=gait.ground), f"base lower than {height:.2f} m"),
    }  # fmt: skip
    if apart < 0.01 * body.legs.length:
        del more["feet_near"]  # one behind the other
    if any(n is None for n in normals):
        return more
    return more | {
        "feet_flat": Reward(-0.5, partial(rewards.feet_flat, normals=np.array(normals)), "tilt of the soles")
    }


def _prior(body: Body) -> np.ndarray:
    """Weight of each joint in the pose prior; a biped's legs bend freely and hardly spread or twist."""
    n = len(body.joints.names)
    if len(body.legs.feet) > 2:
        return np.full(n, 12 / n)
    return np.where(body.bends(), 0.5, 4.0) * 12 / n


@dataclass(frozen=True, eq=False)
class _Starts:
    """Anywhere on the ground, any heading, joints and speeds a little off the default pose."""

    body: Body
    gait: Gait
    off: float
    speed: float

    def __call__(self, rng: Draw, n: int) -> Episode:
        m, (at, _) = self.body.model, self.body.base
        xy = self.gait.ground.places(rng, n) if self.gait.ground.rough else None  # draws before the rest
        rest = rng.uniform(-1.0, 1.0, (n, 1 + m.nq + m.nv))
        xp, yaw = namespace(rest), np.pi * rest[:, 0]
        off = xp.concatenate([xp.zeros_like(rest[:, :7]), self.off * rest[:, 8 : 1 + m.nq]], 1)
        q, xy = xp.asarray(self.body.q) + off, xp.zeros_like(rest[:, :2]) if xy is None else xy
        q[:, at : at + 2], q[:, at + 2] = xy, self.body.legs.height + 0.02 + self.gait.ground.top(xy)
        q[:, at + 3 : at + 7] = xp.stack([xp.cos(yaw / 2), 0 * yaw, 0 * yaw, xp.sin(yaw / 2)], 1)
        return Episode(Start(q, self.speed * rest[:, 1 + m.nq :], xp.tile(xp.asarray(self.body.u), (n, 1))))


@dataclass(frozen=True, eq=False)
class _Commands:
    """Uniform within the largest, each part kept with probability 0.7: turning on the spot, straight lines and standing occur."""

    fastest: np.ndarray

    @cached_property
    def _least(self) -> np.ndarray:
        return -self.fastest

    def __call__(self, rng: Draw, n: int) -> np.ndarray:
        command = rng.uniform(self._least, self.fastest, (n, 3))
        return namespace(command).asarray(command * (rng.random((n, 3)) < 0.7))


def _symmetry(body: Body, params: Params) -> Symmetry | None:
    """Left-right: y, roll and yaw change sign, left legs become right legs, the clock shifts by half a stride.

    Of the unknowns, those of one side change sign. A gyro's bias, one number for all its axes, has no mirror image: it
    is taken as it is.
    """
    legs = mirrored_joints(body.legs.joints)
    if legs is None:
        return None
    signs = {
        "base_ang_vel": [-1, 1, -1], "projected_gravity": [1, -1, 1], "command": [1, -1, -1], "gait_clock": [-1, -1],
        "base_lin_vel": [1, -1, 1], "base_lin_vel_estimate": [1, -1, 1], "base_lin_vel_spread": [1, 1, 1], "base_height": [1],
        "projected_gravity_estimate": [1, -1, 1], "projected_gravity_spread": [1, 1, 1], "e": [-1 if p.name in ("com_y", "slope_x") else 1 for p in params],
    }  # fmt: skip
    terms = {name: (np.arange(len(sign)), np.array(sign, float)) for name, sign in signs.items()}
    feet = mirrored_feet(body.feet())
    terms |= dict.fromkeys(("touch", "clearance", "contact_estimate", "contact_spread"), (feet, np.ones(len(feet))))
    return Symmetry(terms | dict.fromkeys(("joint_pos", "joint_vel", "last_action"), legs), legs)
