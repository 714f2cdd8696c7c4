"""What a builder has to know about a robot with legs, read from its model or written out in a task file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.robot import Robot
from surefoot.sim.anatomy.feet import Foot
from surefoot.sim.anatomy.links import posed
from surefoot.sim.anatomy.study import Anatomy, study
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import HINGE
from surefoot.sim.model import edits
from surefoot.sim.model.edits import Servo, Timing
from surefoot.sim.model.load import load_robot
from surefoot.task import Turned
from surefoot.tasks.build.ground import Ground
from surefoot.tasks.terms.quantities import Columns, Joints


@dataclass(frozen=True)
class Joint:
    """A driven joint: torque = clip(kp (target - q) - kd v, +-limit); rad, N m."""

    home: float
    """default pose"""
    kp: float
    kd: float
    limit: float
    mirror: str = ""
    """its mirror image; with - before it where the sign changes; empty: none"""
    armature: float = 0.0
    """kg m^2; 0: the model's own"""


@dataclass(frozen=True)
class Legged:
    base: str
    """body with the free joint; one is added where the model has none"""
    height: float
    """m, of the base in the default pose"""
    length: float
    """m, of a leg"""
    joints: Mapping[str, Joint]
    """those the policy moves, in the order of its action"""
    feet: tuple[Foot, ...]
    imu: str = ""
    """site in line with the base; empty: one is added"""
    trunk: tuple[tuple[float, ...], tuple[float, ...]] = ((0.0, 0.0, 0.0), (0.05, 0.05, 0.05))
    """centre and half sizes of the box that collides in the base's place"""
    held: Mapping[str, Joint] = field(default_factory=dict)
    """those that stay in the default pose"""


Upper = Literal["held", "free"]


def read_legged(robot: Robot, upper: Upper = "held") -> tuple[Legged, Anatomy]:
    """The legs of a robot's model, and all else that was found in it."""
    spec = load_robot(robot).spec
    edits.name_parts(spec)
    edits.free_base(spec)
    found = study(spec.compile())
    if not found.legs:
        raise SurefootError(f"robot {robot.name}: legs: found none, expected chains of joints that end at the ground")
    if found.mirror.turned:
        raise SurefootError(
            f"robot {robot.name}: axes: left and right mirror each other at the base's {found.mirror.turned} plane, expected the "
            "xz plane: x must point forward and z up; turn the model"
        )
    return of_anatomy(found, upper), found


def of_anatomy(a: Anatomy, upper: Upper = "held") -> Legged:
    at = {d.joint: a.joint_home[d.joint] for d in a.drives}
    rows = {d.joint: Joint(at[d.joint], d.kp, d.kd, d.limit, _image(a, d.joint), d.armature if "armature" in d.assumed else 0.0) for d in a.drives}  # fmt: skip
    held = a.upper if upper == "held" else ()
    return Legged(
        a.base, round(a.height, 4), round(a.leg_length, 4), {j: r for j, r in rows.items() if j not in held},
        tuple(replace(f, geoms=(), source="") for f in a.feet), a.imu, a.trunk, {j: rows[j] for j in held},
    )  # fmt: skip


def _image(a: Anatomy, joint: str) -> str:
    image, sign = a.mirror.pairs.get(joint, ("", 1.0))
    return f"-{image}" if image and sign < 0 else image


def prepared(robot: Robot, legs: Legged, timing: Timing, ground: Ground) -> Robot:
    """The robot with what training needs; its file stays as it is."""

    def edit(spec: mujoco.MjSpec) -> None:
        changes(spec, legs, timing, ground)

    return robot.edited(edit)


def changes(spec: mujoco.MjSpec, legs: Legged, timing: Timing, ground: Ground) -> list[str]:
    """Makes a model ready for training, in place; says what was changed."""
    servos = {name: Servo(j.kp, j.kd, j.limit, j.armature) for name, j in {**legs.joints, **legs.held}.items()}
    steps: list[Callable[[mujoco.MjSpec], str]] = [
        edits.name_parts, edits.free_base, edits.without_extras, edits.only_drawn, ground.edit,
        lambda s: edits.add_soles(s, legs.feet), lambda s: edits.add_trunk(s, legs.base, legs.trunk),
        lambda s: edits.add_servos(s, servos), lambda s: edits.add_imu(s, legs.base, legs.imu), edits.add_joint_sensors, edits.add_scenery,
        lambda s: edits.step(s, timing),
    ]  # fmt: skip
    return [said for said in (change(spec) for change in steps) if said]


class Body:
    """A prepared robot's compiled model, and where in it everything is."""

    def __init__(self, robot: Robot, legs: Legged):
        self.model = m = load_robot(robot).model
        self.legs = legs
        drives = {d.joint: d for d in Plain(m).drives}
        self.joints = joints_of(m, legs.joints)
        self.actuators = tuple(drives[j].actuator for j in legs.joints)
        self.controls = np.array([int(m.actuator_ctrladr[drives[j].number]) for j in legs.joints])
        self.base = m.jnt_qposadr[Plain(m).free], m.jnt_dofadr[Plain(m).free]
        self.q = m.qpos0.copy()
        self.u = np.zeros(m.nu)
        for name, j in {**legs.joints, **legs.held}.items():
            self.q[m.joint(name).qposadr[0]] = j.home
            self.u[m.actuator_ctrladr[drives[name].number]] = j.home
        self.q[self.base[0] : self.base[0] + 7] = [0, 0, legs.height, 1, 0, 0, 0]
        self.data = posed(m, self.q)

    @property
    def imu(self) -> str:
        return str(self.model.site(self.model.sensor("gyro").objid[0]).name)

    @property
    def carrier(self) -> str:
        """The heaviest body of the base: a URDF's root link often has no mass, and carries the one that has."""
        m = self.model
        whole = np.flatnonzero(m.body_weldid == m.body_weldid[m.body(self.legs.base).id])
        return str(m.body(int(whole[m.body_mass[whole].argmax()])).name)

    def feet(self) -> np.ndarray:
        """(feet, 3) soles in the base's frame."""
        at = self.data.xpos[self.model.body(self.legs.base).id]
        return np.array([self.data.site(edits.sole(f)).xpos - at for f in self.legs.feet])

    def bends(self) -> np.ndarray:
        """Which of the joints turn about a lateral axis."""
        ids = [self.model.joint(j).id for j in self.legs.joints]
        return np.array([self.model.jnt_type[j] == HINGE and abs(self.data.xaxis[j][1]) > 0.9 for j in ids])


def joints_of(m: mujoco.MjModel, rows: Mapping[str, Joint]) -> Joints:
    ids = [m.joint(name).id for name in rows]
    low, high = np.where(m.jnt_limited[ids, None], m.jnt_range[ids], (-np.inf, np.inf)).T
    home = np.array([j.home for j in rows.values()])
    return Joints(tuple(rows), _together(m.jnt_qposadr[ids]), _together(m.jnt_dofadr[ids]), home, low, high)


def _together(at: np.ndarray) -> Columns:
    """Neighbouring columns as a slice, which costs no copy."""
    if len(at) and (np.diff(at) == 1).all():
        return slice(int(at[0]), int(at[-1]) + 1)
    return at.astype(int)


def offsets(feet: np.ndarray) -> tuple[float, ...]:
    """Phases of feet, in strides: neighbours along a side and across the body alternate (a walk of two, a trot of four).

    The k-th foot of its side, counted from the front, has phase (k + [right side]) / 2 modulo 1.
    """
    middle = (feet[:, 1].min() + feet[:, 1].max()) / 2
    right = feet[:, 1] < middle
    found = np.zeros(len(feet))
    for side in (False, True):
        own = np.flatnonzero(right == side)
        ranks = np.argsort(np.argsort(-feet[own, 0], kind="stable"), kind="stable")
        found[own] = (ranks + side) % 2 / 2
    return tuple(found.tolist())


def mirrored_joints(rows: Mapping[str, Joint]) -> Turned | None:
    """(order, sign) of the joints' mirror image; None where one has none."""
    names = list(rows)
    images = [j.mirror.lstrip("-") for j in rows.values()]
    if any(image not in names for image in images):
        return None
    return np.array([names.index(i) for i in images]), np.array([-1.0 if j.mirror.startswith("-") else 1.0 for j in rows.values()])  # fmt: skip


def mirrored_feet(feet: np.ndarray) -> np.ndarray:
    """Which foot is the mirror image of each."""
    middle = (feet[:, 1].min() + feet[:, 1].max()) / 2
    images = feet * (1, -1, 1) + (0, 2 * middle, 0)
    return np.array([int(np.linalg.norm(feet - p, axis=1).argmin()) for p in images])
