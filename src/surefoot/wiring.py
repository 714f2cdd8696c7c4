"""Wiring: which number is which between a robot and a policy that others trained.

    observation = [clip(term, +-clip) * scale, ...] in the order of `observation`, frames of history as `layout` has them
    target_j    = offset_j + scale_j * action_j,    j in the order of `joints`,    torque = kp (target - q) - kd v

Term names are the field's: base_lin_vel, base_ang_vel and projected_gravity in the frame of the site `frame`, joint_pos
(less `home`), joint_vel, last_action, command. What others call them is known, too (ALIASES).
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from surefoot.errors import SurefootError, unknown

COMMANDS = ("vx", "vy", "yaw_rate")  # m/s, m/s, rad/s
WIDTH = {"base_lin_vel": 3, "base_ang_vel": 3, "projected_gravity": 3, "command": 3}
JOINTED = ("joint_pos", "joint_vel", "last_action")  # a column for each joint
ALIASES = {
    "velocity_commands": "command", "base_velocity": "command", "commands": "command", "joint_pos_rel": "joint_pos",
    "joint_vel_rel": "joint_vel", "dof_pos": "joint_pos", "dof_vel": "joint_vel", "actions": "last_action",
    "gyro": "base_ang_vel", "ang_vel": "base_ang_vel", "lin_vel": "base_lin_vel", "gravity": "projected_gravity",
    "gravity_vec": "projected_gravity", "gravity_orientation": "projected_gravity",
}  # fmt: skip
MOST = 4096  # numbers of a list, frames of a history: no policy has more


@dataclass(frozen=True)
class Wire:
    """One term of the observation."""

    name: str
    scale: tuple[float, ...] = (1.0,)
    """one for all of its columns, or one for each"""
    clip: float | None = None
    """largest magnitude, before scaling"""
    history: int = 1
    """frames of it that are told"""
    joints: tuple[str, ...] = ()
    """order of its columns, where that is not the order of the actions"""


@dataclass(frozen=True)
class Wiring:
    joints: tuple[str, ...]
    """joints of the model, in the order of the actions"""
    home: tuple[float, ...]
    """rad: joint_pos is told less this"""
    observation: tuple[Wire, ...]
    rate: float
    """Hz"""
    action_scale: tuple[float, ...]
    """rad for an action of 1: one for all joints, or one for each"""
    action_offset: tuple[float, ...] = ()
    """rad: targets of an action of 0; home unless told"""
    action_limit: float = 100.0
    """largest magnitude of an action, as the runtime clips it"""
    frame: str = ""
    """site whose frame velocities and gravity are told in; the base's own unless told"""
    layout: Literal["frames", "terms"] = "frames"
    """of a history: all terms of a frame together, or all frames of a term together"""
    newest: Literal["last", "first"] = "last"
    kp: tuple[float, ...] = ()
    """servo stiffness, N m/rad, one for all or by joint; the model's own unless told"""
    kd: tuple[float, ...] = ()
    """servo damping, N m s/rad"""
    latency: float = 0.0
    """s from an action to the motors that is known of the robot"""
    commands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """vx, vy, yaw_rate -> range, m/s and rad/s; what is not named is 0"""
    input: str = ""
    """name of the ONNX input; the only one unless told"""
    output: str = ""
    about: str = ""
    """whose policy, from where"""

    def __post_init__(self) -> None:
        self.check("contract")

    def check(self, where: str) -> None:
        n = len(self.joints)
        if not n or len(set(self.joints)) != n:
            raise SurefootError(f"{where}: joints: expected names, each once, found {', '.join(self.joints) or 'none'}")
        for name, most in (("home", (n,)), ("action_scale", (1, n)), ("action_offset", (0, n)), ("kp", (0, 1, n)), ("kd", (0, 1, n))):  # fmt: skip
            _numbers(getattr(self, name), most, f"{where}: {name}", f"one for each of {n} joints")
        for name in ("kp", "kd"):
            if min(getattr(self, name), default=0.0) < 0:
                raise SurefootError(f"{where}: {name}: expected numbers >= 0, found {min(getattr(self, name)):g}")
        if not 1 <= self.rate <= 1e4 or not 0 < self.action_limit < np.inf or not 0 <= self.latency <= 1:
            raise SurefootError(
                f"{where}: expected rate 1..10000 Hz, action_limit > 0 and latency 0..1 s; "
                f"found {self.rate:g}, {self.action_limit:g} and {self.latency:g}"
            )
        if not self.observation:
            raise SurefootError(f"{where}: observation: found no terms, expected some of {', '.join(known())}")
        for wire in self.observation:
            self._check_wire(wire, f"{where}: observation: {wire.name}")
        for name, ends in self.commands.items():
            if name not in COMMANDS:
                raise unknown("command", name, COMMANDS, f"{where}: commands")
            _numbers(ends, (2,), f"{where}: commands: {name}", "a range: low, high")
            if ends[0] > ends[1]:
                raise SurefootError(f"{where}: commands: {name}: expected low <= high, found {list(ends)}")

    def _check_wire(self, wire: Wire, where: str) -> None:
        if wire.name not in known():
            raise unknown("term", wire.name, known(), where)
        _numbers(wire.scale, (1, self.width(wire)), f"{where}: scale", f"one, or {self.width(wire)}")
        if wire.clip is not None and not 0 < wire.clip < np.inf:
            raise SurefootError(f"{where}: clip: expected a number > 0, found {wire.clip}")
        if not 1 <= wire.history <= MOST:
            raise SurefootError(f"{where}: history: expected 1..{MOST} frames, found {wire.history}")
        if wire.joints and sorted(wire.joints) != sorted(self.joints):
            lost = [j for j in wire.joints if j not in self.joints]
            if lost:
                raise unknown("joint", lost[0], self.joints, f"{where}: joints")
            raise SurefootError(f"{where}: joints: expected each of {', '.join(self.joints)} once")

    def width(self, wire: Wire) -> int:
        return len(self.joints) if wire.name in JOINTED else WIDTH[wire.name]

    @property
    def history(self) -> int:
        return max(w.history for w in self.observation)

    @property
    def offset(self) -> tuple[float, ...]:
        return self.action_offset or self.home

    @property
    def obs_dim(self) -> int:
        return sum(self.width(w) * w.history for w in self.observation)

    def columns(self) -> np.ndarray:
        """(obs_dim,) where, among `history` whole frames with the newest last, each number that the net is told is."""
        widths = [self.width(w) for w in self.observation]
        begins, frame = np.cumsum([0, *widths[:-1]]), sum(widths)
        order = range(self.history) if self.newest == "last" else range(self.history - 1, -1, -1)
        spots = [
            (t, i, t * frame + begins[i] + np.arange(widths[i]))
            for t in order
            for i, w in enumerate(self.observation)
            if t >= self.history - w.history
        ]
        if self.layout == "terms":
            spots = sorted(spots, key=lambda spot: spot[1])  # stable: frames of a term stay in their order
        return np.concatenate([columns for _, _, columns in spots])

    def each(self, name: str) -> np.ndarray:
        """kp, kd, action_scale or offset, as one number for each joint."""
        return np.broadcast_to(np.asarray(getattr(self, name), float), (len(self.joints),)).copy()

    def with_terms(self, names: Sequence[str], **changes: Any) -> "Wiring":
        """The same with some terms of the observation changed."""
        terms = (replace(w, **changes) if w.name in names else w for w in self.observation)
        return replace(self, observation=tuple(terms))

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {"observation": [{f.name: getattr(w, f.name) for f in fields(w)} for w in self.observation]}

    @staticmethod
    def from_json(data: Any, where: str = "contract") -> "Wiring":
        """A contract file's content; `where` (the file) opens every error."""
        body = _object(data, Wiring, where)
        for name in ("joints", "frame", "layout", "newest", "input", "output", "about"):
            if name in body:
                body[name] = _text(body[name], f"{where}: {name}", many=name == "joints")
        for name in ("home", "action_scale", "action_offset", "kp", "kd"):
            if name in body:
                body[name] = _row(body[name], f"{where}: {name}")
        for name in ("rate", "action_limit", "latency"):
            if name in body:
                body[name] = _one(body[name], f"{where}: {name}")
        for name, choices in (("layout", ("frames", "terms")), ("newest", ("last", "first"))):
            if body.get(name, choices[0]) not in choices:
                raise unknown(name, body[name], choices, where)
        if not isinstance(body["observation"], list):
            raise SurefootError(f"{where}: observation: expected a list of terms, found {body['observation']!r}")
        body["observation"] = tuple(_wire(w, f"{where}: observation[{i}]") for i, w in enumerate(body["observation"]))
        if not isinstance(body.get("commands", {}), Mapping):
            raise SurefootError(f"{where}: commands: expected names with ranges, found {body['commands']!r}")
        body["commands"] = {k: _row(v, f"{where}: commands: {k}") for k, v in body.get("commands", {}).items()}
        try:
            return Wiring(**body)
        except SurefootError as error:
            raise SurefootError(str(error).replace("contract", where, 1)) from None


def known() -> list[str]:
    return [*WIDTH, *JOINTED]


def _wire(data: Any, where: str) -> Wire:
    """A name alone, or an object with more than that."""
    body = _object({"name": data} if isinstance(data, str) else data, Wire, where)
    name = _text(body["name"], f"{where}: name", many=False)
    body["name"] = ALIASES.get(name, name)
    if "joints" in body:
        body["joints"] = _text(body["joints"], f"{where}: joints", many=True)
    if "scale" in body:
        body["scale"] = _row(body["scale"], f"{where}: scale")
    if body.get("clip") is not None:
        body["clip"] = _one(body["clip"], f"{where}: clip")
    history = body.get("history", 1)
    if isinstance(history, bool) or not isinstance(history, int):
        raise SurefootError(f"{where}: history: expected a whole number of frames, found {history!r}")
    return Wire(**body)


def _object(data: Any, kind: type, where: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise SurefootError(f"{where}: expected an object, found {type(data).__name__}")
    names = {f.name: f for f in fields(kind)}
    for name in data:
        if name not in names:
            raise unknown("field", str(name), names, where)
    for name, f in names.items():
        if f.default is MISSING and f.default_factory is MISSING and name not in data:
            raise SurefootError(f"{where}: {name}: found nothing, expected a value")
    return dict(data)


def _row(value: Any, where: str) -> tuple[float, ...]:
    """A number, or a list of numbers."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) > MOST or not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        raise SurefootError(f"{where}: expected a number or a list of numbers, found {repr(value)[:80]}")
    if not all(abs(v) < 1e9 for v in values):  # also for nan
        raise SurefootError(f"{where}: expected finite numbers, found {str(value)[:80]}")
    return tuple(float(v) for v in values)


def _one(value: Any, where: str) -> float:
    values = _row(value, where)
    if len(values) != 1:
        raise SurefootError(f"{where}: expected one number, found {len(values)}")
    return values[0]


def _text(value: Any, where: str, many: bool) -> Any:
    rows = value if many else [value]
    if not isinstance(rows, (list, tuple)) or len(rows) > MOST or not all(isinstance(v, str) for v in rows):
        raise SurefootError(f"{where}: expected {'a list of names' if many else 'text'}, found {str(value)[:80]}")
    return tuple(rows) if many else value


def _numbers(values: Sequence[float], lengths: tuple[int, ...], where: str, how: str) -> None:
    if len(values) not in lengths:
        raise SurefootError(f"{where}: expected {how}, found {len(values)} numbers")
    if not np.isfinite(np.asarray(values, float)).all():
        raise SurefootError(f"{where}: expected finite numbers, found {list(values)}")
