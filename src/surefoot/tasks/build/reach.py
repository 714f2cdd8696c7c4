"""reach: an arm brings its end effector to a commanded place, or pose, and holds it there, while its hand is heavier or
lighter than the model says.

    d = |tip - commanded place|,   error = d  (or d + ARM * angle between the commanded and the actual attitude)

Commands are places that the arm can reach: forward kinematics of joint angles drawn within the inner part of their ranges,
where no part is below the floor. An action of -1 to 1 sends a servo anywhere in its joint's range.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import mujoco
import numpy as np

from surefoot.arrays import namespace
from surefoot.contract import Action
from surefoot.errors import SurefootError
from surefoot.observation import ObsGroup
from surefoot.rng import Draw, stream
from surefoot.robot import Robot
from surefoot.rotation import between, norm2
from surefoot.sim.anatomy.links import Links, posed
from surefoot.sim.anatomy.shapes import lowest
from surefoot.sim.anatomy.study import Anatomy, study
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.model import edits
from surefoot.sim.model.edits import Servo, Timing
from surefoot.sim.model.load import load_robot
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.tasks.build import unknowns
from surefoot.tasks.build.legged import Joint, joints_of
from surefoot.tasks.terms import observations as obs
from surefoot.tasks.terms import rewards
from surefoot.world import Start

PLACES, INNER = 2048, 0.5  # places drawn; share of each joint's range they are drawn from
ARM = 0.1  # m/rad: an angle counts as the way of a point this far from the axis
WIDEST = 2.5  # rad: joints without a range are drawn within this much of the default pose
FINE = 0.02  # m: what counts as at the goal
TIP = "tip"


@dataclass(frozen=True)
class Arm:
    """What a builder has to know about an arm, read from its model or written out in a task file."""

    joints: Mapping[str, Joint]
    """those the policy moves, from the base to the wrist"""
    body: str
    """that carries the end effector"""
    point: tuple[float, float, float]
    """the end effector in the body's frame, m"""
    held: Mapping[str, Joint] = field(default_factory=dict)
    """those that stay in the default pose, such as a gripper's"""


def read_arm(robot: Robot) -> tuple[Arm, Anatomy]:
    """The arm of a robot's model, and all else that was found in it."""
    spec = load_robot(robot).spec
    edits.name_parts(spec)
    found = study(spec.compile())
    if found.arm is None:
        raise SurefootError(f"robot {robot.name}: arm: found none, expected a base that is bolted down and two joints")
    rows = {d.joint: Joint(found.joint_home[d.joint], d.kp, d.kd, d.limit, armature=d.armature if "armature" in d.assumed else 0.0) for d in found.drives}  # fmt: skip
    own = {j: rows[j] for j in found.arm.joints if j in rows}
    if len(own) < 2:
        raise SurefootError(f"robot {robot.name}: arm: found {len(own)} driven joints, expected at least two")
    return Arm(own, found.arm.body, found.arm.point, {j: r for j, r in rows.items() if j not in own}), found


def reach(
    robot: Robot,
    arm: Arm | None = None,
    pose: bool = False,
    timing: Timing = Timing(steps=4),  # noqa: B008
    ranges: Mapping[str, tuple[float, float]] | None = None,
    tolerance: float = 0.02,
) -> Task:
    """The task of reaching a commanded place, or with `pose` a place and an attitude (quaternion w x y z)."""
    arm = arm or read_arm(robot)[0]
    robot = prepared(robot, arm, timing)
    bolted = Bolted(robot, arm)
    belief = unknowns.belief(_unknowns(bolted, timing), ranges or {})
    actor = (obs.joint_pos(bolted.joints, 0.001), obs.joint_vel(bolted.joints, 0.02, 0.2, 20.0), obs.command(7 if pose else 3, "m in the base's frame" + (", quaternion" if pose else "")), obs.tip_pos(bolted.joints, bolted.links), obs.last_action(len(arm.joints)))  # fmt: skip
    goal = _Goal(pose)
    critic = (*actor, obs.ObsTerm("off", goal.off, goal.width, "m, rad", scale=10.0), obs.unknowns(len(belief.params)))
    return Task(
        name=f"{robot.name}-reach",
        about=f"{robot.name} holds its end effector at a commanded {'pose' if pose else 'place'}",
        robot=robot,
        params=belief.params,
        belief=belief,
        substeps=timing.steps,
        seconds=4.0,
        action=Action(bolted.actuators, (bolted.low + bolted.high) / 2, (bolted.high - bolted.low) / 2, "rad"),
        observations={"actor": ObsGroup(actor, history=3), "critic": ObsGroup(critic)},
        rewards=_rewards(bolted, goal),
        ended={},
        episode=bolted.starts,
        error=lambda s: s.once(goal.error),
        error_unit="m",
        tolerance=tolerance,
        window=1.0,
        measure="mean",
        command=bolted.pose_commands if pose else bolted.commands,
        command_names=("x", "y", "z", "qw", "qx", "qy", "qz")[: 7 if pose else 3],
        command_every=2.0,
        settings={"envs": 256, "steps": 3_500_000, "horizon": 32, "gamma": 0.9, "hidden": (256, 128), "kl": 0.02, "entropy": 0.0, "spread": (0.02, 0.4, 1.0)},
        kind="arm",
    )  # fmt: skip


def prepared(robot: Robot, arm: Arm, timing: Timing) -> Robot:
    """The robot with what training needs; its file stays as it is."""

    def edit(spec: mujoco.MjSpec) -> None:
        changes(spec, arm, timing)

    return robot.edited(edit)


def changes(spec: mujoco.MjSpec, arm: Arm, timing: Timing) -> list[str]:
    """Makes a model ready for training, in place; says what was changed."""
    servos = {name: Servo(j.kp, j.kd, j.limit, j.armature) for name, j in {**arm.joints, **arm.held}.items()}
    steps: list[Callable[[mujoco.MjSpec], str]] = [
        edits.name_parts, edits.without_extras, edits.only_drawn, lambda s: edits.add_servos(s, servos), edits.add_joint_sensors, edits.add_scenery,
        lambda s: edits.add_tip(s, arm.body, arm.point, TIP), lambda s: edits.step(s, timing),
    ]  # fmt: skip
    return [said for said in (change(spec) for change in steps) if said]


class Bolted:
    """A prepared arm's compiled model, where in it everything is, and the places it can reach."""

    def __init__(self, robot: Robot, arm: Arm):
        self.model = m = load_robot(robot).model
        self.arm, self.name = arm, robot.name
        drives = {d.joint: d for d in Plain(m).drives}
        self.joints = joints_of(m, arm.joints)
        self.actuators = tuple(drives[j].actuator for j in arm.joints)
        self.controls = np.array([int(m.actuator_ctrladr[drives[j].number]) for j in arm.joints])
        self.q, self.v, self.u = m.qpos0.copy(), np.zeros(m.nv), np.zeros(m.nu)
        for name, j in {**arm.joints, **arm.held}.items():
            self.q[m.joint(name).qposadr[0]] = j.home
            self.u[m.actuator_ctrladr[drives[name].number]] = j.home

    @property
    def low(self) -> np.ndarray:
        return np.where(np.isfinite(self.joints.low), self.joints.low, self.joints.home - WIDEST)

    @property
    def high(self) -> np.ndarray:
        return np.where(np.isfinite(self.joints.high), self.joints.high, self.joints.home + WIDEST)

    @property
    def links(self) -> tuple[float, ...]:
        """Screws of the joints and the tip where the policy's joints are at 0, as Formula has them."""
        m, q = self.model, self.q.copy()
        q[self.joints.q] = 0.0
        d = posed(m, q)
        ids = [m.joint(j).id for j in self.arm.joints]
        rows = [[*d.xanchor[j], *d.xaxis[j], float(m.jnt_type[j] == mujoco.mjtJoint.mjJNT_SLIDE)] for j in ids]
        return tuple(np.concatenate([*rows, d.site(TIP).xpos]).round(9).tolist())

    @cached_property
    def reachable(self) -> tuple[np.ndarray, np.ndarray]:
        """(PLACES, joints) angles, and (PLACES, 7) place and attitude of the tip at them."""
        rng, m, tree = stream(0, f"reach {self.name}"), self.model, Links(self.model)
        middle, half = (self.low + self.high) / 2, INNER * (self.high - self.low) / 2
        d = posed(m, self.q)
        floor = min(0.0, lowest(m, d, [g for link in tree.robot for g in tree.geoms(link)]))
        found: list[tuple[np.ndarray, np.ndarray]] = []
        below: list[tuple[np.ndarray, np.ndarray]] = []
        for _ in range(10 * PLACES):
            d.qpos[self.joints.q] = middle + half * rng.uniform(-1, 1, len(middle))
            mujoco.mj_kinematics(m, d)
            quat = np.zeros(4)
            mujoco.mju_mat2Quat(quat, d.site(TIP).xmat)
            one = d.qpos[self.joints.q].copy(), np.concatenate([d.site(TIP).xpos, quat])
            if _above(d, tree, floor):
                found.append(one)
            elif len(below) < PLACES:
                below.append(one)
            if len(found) == PLACES:
                break
        angles, places = zip(*(found or below))  # one that hangs below its origin stands on something
        return np.array(angles), np.array(places)

    @property
    def size(self) -> float:
        """m: half of the extent of the places."""
        return float(np.ptp(self.reachable[1][:, :3], axis=0).max() / 2)

    def starts(self, rng: Draw, n: int) -> Episode:
        """At rest in a pose that a command may ask for."""
        at = rng.integers(0, len(self.reachable[0]), n)
        xp = namespace(at)
        angles = xp.asarray(self.reachable[0])[at]
        q, v, u = (xp.tile(xp.asarray(a), (n, 1)) for a in (self.q, self.v, self.u))
        q[:, self.joints.q], u[:, self.controls] = angles, angles
        return Episode(Start(q, v, u))

    def commands(self, rng: Draw, n: int) -> np.ndarray:
        return self.pose_commands(rng, n)[:, :3]

    def pose_commands(self, rng: Draw, n: int) -> np.ndarray:
        at = rng.integers(0, len(self.reachable[1]), n)
        return namespace(at).asarray(self.reachable[1])[at]


def _above(d: mujoco.MjData, tree: Links, floor: float) -> bool:
    """Joints and tip above the lowest part of the robot as it stands."""
    return bool(min(d.xanchor[tree.moved][:, 2].min(), d.site(TIP).xpos[2]) > floor - 1e-9)


@dataclass(frozen=True)
class _Goal:
    pose: bool

    @property
    def width(self) -> int:
        return 6 if self.pose else 3

    def off(self, s: Moment) -> np.ndarray:
        """(n, 3 or 6) from the commanded place to the tip, m, and the rotation vector between, rad."""
        away = s.y["tip_pos"] - s.command[:, :3]
        return s.xp.concatenate([away, between(s.command[:, 3:], s.y["tip_quat"])], 1) if self.pose else away

    def error(self, s: Moment) -> np.ndarray:
        off = s.once(self.off)
        away = s.xp.sqrt(norm2(off[:, :3]))
        return away + ARM * s.xp.sqrt(norm2(off[:, 3:])) if self.pose else away


def _rewards(bolted: Bolted, goal: _Goal) -> dict[str, Reward]:
    size = bolted.size
    return {
        "near": Reward(
            1.5, lambda s: s.xp.exp(-8.0 / size * s.once(goal.error)), "exp(-8 d / reach): close to the goal"
        ),
        "at": Reward(1.5, lambda s: s.xp.exp(-s.once(goal.error) / FINE), f"exp(-d / {FINE:g} m): at the goal"),
        "far": Reward(-2.0, lambda s: s.once(goal.error) / size, "distance to the goal, as a share of the reach"),
        "joint_vel": Reward(-0.02, lambda s: rewards.joint_vel(s, bolted.joints), "joint speeds squared"),
        "action_rate": Reward(-0.5, rewards.action_rate, "change of action squared"),
    }


def _unknowns(bolted: Bolted, timing: Timing) -> list[unknowns.Row]:
    m = bolted.model
    driven = unknowns.Driven(m, bolted.joints.names, bolted.actuators)
    last = m.body(int(m.body_weldid[m.body(bolted.arm.body).id]))
    mass = float(m.body_mass.sum())
    return [*unknowns.payload(last.name, 0.05 * mass), *driven.servos(), *unknowns.wires(timing.period, ""), *unknowns.noise("")]  # fmt: skip
