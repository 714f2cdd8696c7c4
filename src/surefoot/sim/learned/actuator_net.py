"""Actuator net: what a real actuator does beyond the model's own.

    tau_j = model_j(q, v, u) + r_j,    r, s' = net(p_j, v_j, w_j of all joints j; s),    |r_j| <= limit_j

model: the torque of the model's actuator, which the engine goes on computing step by step; r: learned, constant over a control
period dt; s: the net's memory (earlier periods, or the state of a GRU), 0 where an episode begins. p = u - q is a servo's error
in rad (a motor's p is its command u), v in rad/s, tau in N m; w = v / (|v| + v_slow) resolves v near 0, where friction acts.
A net has its dt and actuators on its card and fits no other world: at another rate its memory would mean something else.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.onnx_file import Graph
from surefoot.sim.layout import ON_JOINT, SCALAR
from surefoot.typed import MOST, record
from surefoot.world import Chance, OnForce, Remembers, State

SAME = 1e-6  # relative: how far a period, gain or limit may be from that of the model the net was learned on
MOST_MEMORY = 1 << 16  # columns
FEATURES = 3  # of each joint: p, v, w


@dataclass(frozen=True)
class Drive:
    """An actuator on a joint, as the model has it."""

    actuator: str
    joint: str
    gain: float
    position: float
    """the actuator's force by its length, N m/rad: minus a servo's kp; 0: not a servo"""
    velocity: float
    gear: float
    low: float | None
    high: float | None


def drives(model: mujoco.MjModel) -> tuple[Drive, ...]:
    """The model's actuators; refused where one does not drive one joint of one degree of freedom."""
    found = []
    for i in range(model.nactuator):
        name, joint = model.actuator(i).name, int(model.actuator_trnid[i, 0])
        if model.actuator_trntype[i] not in ON_JOINT or model.jnt_type[joint] not in SCALAR:
            raise SurefootError(f"actuator {name}: expected one that drives a hinge or slide joint")
        if model.actuator_ctrlnum[i] != 1:
            raise SurefootError(f"actuator {name}: takes {model.actuator_ctrlnum[i]} controls, expected one")
        gain, bias = float(model.actuator_gainprm[i, 0]), model.actuator_biasprm[i]
        limited = bool(model.actuator_forcelimited[i])
        low, high = (float(v) for v in model.actuator_forcerange[i])
        found.append(Drive(
            name, model.joint(joint).name, gain, float(bias[1]), float(bias[2]), float(model.actuator_gear[i, 0]),
            low if limited else None, high if limited else None,
        ))  # fmt: skip
    if not found:
        raise SurefootError("model: found no actuator to learn")
    doubled = {d.joint for d in found if sum(x.joint == d.joint for x in found) > 1}
    if doubled:
        raise SurefootError(f"model: joint {sorted(doubled)[0]}: found several actuators, expected one on each joint")
    return tuple(found)


@dataclass(frozen=True)
class Actuators:
    """The card of a net: which actuators it adds to, at which period, within which limits."""

    dt: float
    """s: control period of the log it was learned from, and of every world it may be used in"""
    drives: tuple[Drive, ...]
    slow: tuple[float, ...]
    """of each joint, v_slow in rad/s or m/s"""
    limit: tuple[float, ...]
    """of each joint, largest |r| in N m or N"""

    def __post_init__(self) -> None:
        if not 0 < self.dt < 1:
            raise SurefootError(f"dt: expected a period above 0 and below 1 s, found {self.dt}")
        if not 0 < len(self.drives) <= MOST:
            raise SurefootError(f"drives: expected 1 to {MOST}, found {len(self.drives)}")
        for name, values in (("slow", self.slow), ("limit", self.limit)):
            if len(values) != len(self.drives) or not all(0 < v < np.inf for v in values):
                raise SurefootError(
                    f"{name}: expected {len(self.drives)} numbers above 0, one a drive, found {str(values)[:80]}"
                )


@dataclass(frozen=True, eq=False)
class DrivenJoints:
    """Where a model's state has the joints that a net reads and drives, in the order of its drives."""

    servo: np.ndarray
    """(J,) by how much p falls as the joint moves on"""
    u_at: np.ndarray
    q_at: np.ndarray
    v_at: np.ndarray

    @staticmethod
    def of(model: mujoco.MjModel, wanted: tuple[Drive, ...], where: str = "actuator net") -> "DrivenJoints":
        """By names; refused where the model's actuators are not those the net was learned on."""
        have = {d.actuator: (i, d) for i, d in enumerate(drives(model))}
        places = []
        for d in wanted:
            if d.actuator not in have:
                raise unknown("actuator", d.actuator, have, where)
            i, mine = have[d.actuator]
            _check_same(d, mine, where)
            j = model.joint(d.joint).id
            places.append((i, int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])))
        return DrivenJoints(np.array([d.gear if d.position else 0.0 for d in wanted]), *np.array(places).T)

    def features(self, q: np.ndarray, v: np.ndarray, u: np.ndarray, slow: tuple[float, ...]) -> np.ndarray:
        """(..., 3 J) p, v and w of each joint, from whole states and controls."""
        v = v[..., self.v_at]
        p = u[..., self.u_at] - self.servo * q[..., self.q_at]
        f = np.stack([p, v, v / (np.abs(v) + np.array(slow))], -1)
        return f.reshape(*f.shape[:-2], -1)


def _check_same(was: Drive, now: Drive, where: str) -> None:
    """A net adds to what the model's actuator does: under other gains the sum would be another one."""
    for name, a in asdict(was).items():
        b = getattr(now, name)
        alike = a == b if isinstance(a, str) or a is None or b is None else abs(a - b) <= SAME * max(abs(a), abs(b))
        if not alike:
            raise SurefootError(
                f"{where}: actuator {was.actuator}: {name}: found {b} in this model, expected {a}, on which the net was learned"
            )


Net = Callable[[np.ndarray], np.ndarray]
"""(n, 3 J + memory) features and memory -> (n, J + memory) r and the memory of the next period, float32"""


@dataclass(frozen=True, eq=False)
class ActuatorNet(OnForce, Remembers):
    """A learned r in worlds of one model."""

    actuators: Actuators
    joints: DrivenJoints
    net: Net
    """a Graph; while it is trained, any function of this shape"""
    memory: int
    """columns of s"""
    about: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "actuator net"

    @property
    def width(self) -> int:
        return self.memory

    @property
    def shape(self) -> tuple[int, int]:
        """Columns that the net takes and gives."""
        return FEATURES * len(self.actuators.drives) + self.memory, len(self.actuators.drives) + self.memory

    def fits(self, dt: float) -> None:
        if abs(dt - self.actuators.dt) > SAME * self.actuators.dt:
            raise SurefootError(
                f"actuator net: period: found a world of {dt:.6g} s, expected {self.actuators.dt:.6g} s, at which it was "
                "learned; its memory would mean something else: make the world at that rate, or learn it again"
            )

    def features(self, q: np.ndarray, v: np.ndarray, u: np.ndarray) -> np.ndarray:
        """(..., 3 J)"""
        return self.joints.features(q, v, u, self.actuators.slow)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        self.fits(chance.dt)
        memory, force = x.memory[self], np.zeros_like(x.v)
        force[:, self.joints.v_at], memory[:] = self.answer(self.features(x.q, x.v, u), memory)
        return force

    def answer(self, features: np.ndarray, memory: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """r (n, J) and the next memory."""
        out = self.net(np.concatenate([features, memory], 1, dtype=np.float32))
        return out[:, : len(self.actuators.drives)], out[:, len(self.actuators.drives) :]

    def along(self, features: np.ndarray) -> np.ndarray:
        """r (b, T, J) along b recordings of features (b, T, 3 J), each from an empty memory."""
        memory, r = np.zeros((len(features), self.memory)), []
        for now in np.moveaxis(features, 1, 0):
            each, memory = self.answer(now, memory)
            r.append(each.astype(float))
        return np.stack(r, 1)

    def card(self) -> dict[str, Any]:
        return asdict(self.actuators)

    @staticmethod
    def from_card(data: Any, net: Graph, model: mujoco.MjModel, where: str) -> "ActuatorNet":
        actuators: Actuators = record(Actuators, data, where)
        joints = DrivenJoints.of(model, actuators.drives, where)
        memory = net.wide - len(actuators.drives)
        if not 0 <= memory <= MOST_MEMORY:
            raise SurefootError(f"{where}: expected a memory of 0 to {MOST_MEMORY} numbers, found {memory}")
        return ActuatorNet(actuators, joints, net, memory)
