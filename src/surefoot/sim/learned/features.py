"""What a learned Term reads of a robot: phi(x, u), free of place and heading, because physics is the same everywhere.

    phi = (height, down, v, omega of a free base, in its own frame; q, q' of each joint; controls u; actuator states act)

An unlimited hinge is read as the sine and cosine of its angle.
"""

from dataclasses import dataclass, fields

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.rotation import to_body, to_world, unit
from surefoot.sim.layout import FREE, HINGE, SCALAR, layout_of
from surefoot.typed import MOST

DOWN = np.array([0.0, 0.0, -1.0])


@dataclass(frozen=True)
class StateFeatures:
    """Where in a model's state the numbers are that a learned Term reads and acts on."""

    base: bool
    joints: tuple[str, ...]
    places: tuple[int, ...]
    """column of q for each joint"""
    speeds: tuple[int, ...]
    """column of v for each joint"""
    turns: tuple[bool, ...]
    """of each joint, whether it may turn without end"""
    controls: tuple[str, ...]
    nv: int
    na: int

    def __post_init__(self) -> None:
        counts = {"nv": (self.nv,), "na": (self.na,), "places": self.places, "speeds": self.speeds}
        for name, values in counts.items():
            if not all(0 <= k <= MOST for k in values):
                raise SurefootError(f"{name}: expected whole numbers from 0 to {MOST}, found {str(values)[:80]}")
        each = [len(x) for x in (self.joints, self.places, self.speeds, self.turns)]
        if len(set(each)) > 1 or max(*each, len(self.controls)) > MOST:
            raise SurefootError(f"places, speeds, turns: expected one for each of {each[0]} joints, found {each[1:]}")

    @staticmethod
    def of(model: mujoco.MjModel) -> "StateFeatures":
        base = bool(model.njnt and model.jnt_type[0] == FREE)
        for j in range(int(base), model.njnt):
            if model.jnt_type[j] not in SCALAR:
                raise SurefootError(
                    f"model: joint {model.joint(j).name}: expected a hinge or a slide beside one free base, found another"
                )
        own = range(int(base), model.njnt)
        turns = tuple(bool(model.jnt_type[j] == HINGE and not model.jnt_limited[j]) for j in own)
        return StateFeatures(
            base,
            tuple(model.joint(j).name for j in own),
            tuple(int(model.jnt_qposadr[j]) for j in own),
            tuple(int(model.jnt_dofadr[j]) for j in own),
            turns,
            layout_of(model).actuators,
            model.nv,
            model.na,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of phi."""
        base = ("height", "down_x", "down_y", "down_z", *(f"{k}_{a}" for k in ("vel", "turn") for a in "xyz"))
        joints = [n for j, t in zip(self.joints, self.turns) for n in ((f"sin {j}", f"cos {j}") if t else (j,))]
        speeds = (f"{j} speed" for j in self.joints)
        reached = (f"act {i}" for i in range(self.na))
        return (*(base if self.base else ()), *joints, *speeds, *(f"control {c}" for c in self.controls), *reached)

    def read(self, q: np.ndarray, v: np.ndarray, u: np.ndarray, act: np.ndarray) -> np.ndarray:
        """(n, len(names)) of states (n, ...)."""
        parts = []
        if self.base:
            quat = unit(q[:, 3:7])
            parts += [q[:, 2:3], to_body(quat, DOWN), to_body(quat, v[:, :3]), v[:, 3:6]]
        for at, turn in zip(self.places, self.turns):
            place = q[:, at : at + 1]
            parts += [np.sin(place), np.cos(place)] if turn else [place]
        return np.concatenate([*parts, v[:, list(self.speeds)], u, act[:, : self.na]], 1)

    def turned(self, q: np.ndarray, force: np.ndarray, back: bool = False) -> np.ndarray:
        """A generalised force (n, nv) whose linear part is in the base frame, with it in the world frame; or back again."""
        if not self.base:
            return force
        force = force.copy()
        force[:, :3] = (to_body if back else to_world)(unit(q[:, 3:7]), force[:, :3])
        return force

    def check_same(self, model: mujoco.MjModel, where: str) -> None:
        """Refuse a model laid out otherwise: the columns would mean other things."""
        other = StateFeatures.of(model)
        for f in fields(StateFeatures):
            a, b = getattr(self, f.name), getattr(other, f.name)
            if a != b:
                raise SurefootError(
                    f"{where}: {f.name}: learned on a model with {str(a)[:200]}, found {str(b)[:200]}: not the same robot"
                )
