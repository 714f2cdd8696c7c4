"""The contract: all that numbers between a robot and a policy mean. What is lost on the way to hardware is seldom the weights
and nearly always this: joint order, scales, frames, units, default pose, rate, gains, history.

    obs     = the observation group's terms, from readings by name (observation.py)
    control = offset + scale * clip(action, +-limit)        torque = kp (control - q) - kd v  where the actuator is a servo

People write contracts by hand, too, for policies that move joints to positions: a short form names terms by the field's
names (short_terms.py) and is expanded here into the same noun.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from surefoot.arrays import namespace
from surefoot.errors import SurefootError, unknown
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.short_terms import Setting, clock_of, short_terms
from surefoot.typed import MOST, known_fields, real, row, text, texts, whole

FORMAT = 2
COMMANDS = ("vx", "vy", "yaw_rate")  # m/s, m/s, rad/s
RATES = (1.0, 1e4)  # Hz
LARGEST = 1e6  # of an action's limit, and of any control


@dataclass(frozen=True, eq=False)
class Action:
    """What the policy's numbers mean: control = offset + scale * a, with a clipped to [-limit, limit]."""

    names: tuple[str, ...]
    offset: np.ndarray
    scale: np.ndarray
    unit: str
    limit: float = 1.0
    choices: int = 0
    """0: continuous; k: the policy picks one of k, mapped to evenly spaced a in [-1, 1]"""

    @property
    def width(self) -> int:
        """Numbers a policy gives back."""
        return 1 if self.choices else len(self.names)

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """-limit and limit as arrays, which numpy need not make of numbers each time."""
        return np.array(-self.limit, float), np.array(self.limit, float)

    def control(self, a: np.ndarray) -> np.ndarray:
        xp = namespace(a)
        return xp.asarray(self.offset) + xp.asarray(self.scale) * a

    def bounded(self, a: np.ndarray) -> np.ndarray:
        if self.choices:
            return 2.0 * namespace(a).asarray(a, float).reshape(-1, 1) / (self.choices - 1) - 1.0
        if (xp := namespace(a)) is not np:
            return xp.clip(a, -self.limit, self.limit)
        low, high = self._ends
        return np.minimum(np.maximum(np.asarray(a, float), low), high)  # np.clip takes 5 us more

    def check(self, where: str) -> None:
        n = len(self.names)
        if not n or len(set(self.names)) != n or not all(isinstance(x, str) and x for x in self.names):
            raise SurefootError(f"{where}: action: names: expected names, each once, found {list(self.names)}")
        for name in ("offset", "scale"):
            numbers(getattr(self, name), (n,), f"{where}: action: {name}", f"{n} numbers, one an action")
        if (self.scale == 0).any():
            raise SurefootError(f"{where}: action: scale: expected numbers other than 0, found 0")
        if not 0 < real(self.limit, f"{where}: action: limit") <= LARGEST:
            raise SurefootError(f"{where}: action: limit: expected a number from 0 to {LARGEST:g}, found {self.limit}")
        if whole(self.choices, 0, MOST, f"{where}: action: choices") == 1:
            raise SurefootError(f"{where}: action: choices: expected 0, or 2 and more to choose from, found 1")

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {"offset": self.offset.tolist(), "scale": self.scale.tolist(), "limit": float(self.limit)}

    @staticmethod
    def from_json(data: Any, where: str) -> "Action":
        body = known_fields(data, {f.name for f in fields(Action)}, {"names", "offset", "scale", "unit"}, where)
        body["names"] = texts(body["names"], f"{where}: names")
        body |= {k: np.array(row(body[k], f"{where}: {k}")) for k in ("offset", "scale")}
        body["unit"] = text(body["unit"], f"{where}: unit")
        return Action(**body)


@dataclass(frozen=True, eq=False)
class Contract:
    """Everything a runtime must know to use a policy."""

    task: str
    rate: float
    """Hz: how often the policy is asked"""
    observation: ObsGroup
    action: Action
    joints: tuple[str, ...] = ()
    """the joint each action moves, in the order of the actions; empty where actions do not move joints"""
    home: tuple[float, ...] = ()
    """default pose of those joints, rad or m"""
    kp: tuple[float, ...] = ()
    """servo stiffness by action, N m/rad, where the actuators are servos"""
    kd: tuple[float, ...] = ()
    """servo damping, N m s/rad"""
    control_low: tuple[float, ...] = ()
    control_high: tuple[float, ...] = ()
    command_names: tuple[str, ...] = ()
    command_ranges: tuple[tuple[float, float], ...] = ()
    """what may be commanded, one range a name; empty where it is not known"""
    latency: float = 0.0
    """s from an action to the motors that is known of the robot"""
    trial: int = 1
    """episodes in one world through which the history runs on; 1: it begins anew with each"""
    ports: tuple[str, str] = ("", "")
    """names of the net's input and output, where it has several"""
    about: str = ""
    """whose policy, from where"""
    parents: Mapping[str, str] = field(default_factory=dict)
    """content hashes and versions of what this came from: model, belief, seed, run"""

    @property
    def obs_dim(self) -> int:
        return self.observation.dim

    @property
    def first_pose(self) -> tuple[float, ...]:
        """Of `joints`, where the policy begins: the default pose; of those that follow a reference motion, its first row."""
        begin: dict[str, float] = {}
        for f in (t.formula for t in self.terms):
            if f is not None and f.kind == "reference_joints":
                begin |= dict(zip(f.joints, f.table))
        return tuple(begin.get(j, at) for j, at in zip(self.joints, self.home))

    @property
    def history(self) -> int:
        return self.observation.history

    @property
    def terms(self) -> tuple[ObsTerm, ...]:
        return self.observation.terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contract) and self.to_json() == other.to_json()

    def differences(self, other: "Contract", but: Sequence[str] = ("parents", "about", "task", "ports")) -> list[str]:
        """Fields in which two contracts differ, each with what is here and there; noise is no part of a contract's meaning."""
        mine, theirs = self.to_json(), other.to_json()
        return [
            f"{k}: {_brief(a)} here, {_brief(b)} there"
            for k, a, b in _unequal(mine, theirs)
            if k.split(".")[0] not in but
        ]

    def with_terms(self, names: Sequence[str], change: Callable[[ObsTerm], ObsTerm]) -> "Contract":
        """The same with some terms of the observation changed."""
        terms = tuple(change(t) if t.name in names else t for t in self.terms)
        return replace(self, observation=replace(self.observation, terms=terms))

    def check(self, where: str) -> None:
        """Lengths agree and numbers make sense; otherwise nothing may be driven with it."""
        n = len(self.action.names)
        for name in ("task", "about"):
            text(getattr(self, name), f"{where}: {name}")
        if not RATES[0] <= real(self.rate, f"{where}: rate") <= RATES[1]:
            raise SurefootError(f"{where}: rate: expected {RATES[0]:g} to {RATES[1]:g} Hz, found {self.rate:g}")
        if not 0 <= real(self.latency, f"{where}: latency") <= 1:
            raise SurefootError(f"{where}: latency: expected 0 to 1 s, found {self.latency:g}")
        whole(self.trial, 1, 1000, f"{where}: trial")
        self.action.check(where)
        self.observation.check(where)
        for name in ("joints", "home", "kp", "kd", "control_low", "control_high"):
            if len(getattr(self, name)) not in (0, n):
                raise SurefootError(f"{where}: {name}: expected one an action, {n}, found {len(getattr(self, name))}")
        for name in ("home", "kp", "kd", "control_low", "control_high"):
            numbers(getattr(self, name), (0, n), f"{where}: {name}", f"{n} numbers, one an action")
        for name in ("kp", "kd"):
            if min(getattr(self, name), default=0.0) < 0:
                raise SurefootError(f"{where}: {name}: expected numbers >= 0, found {min(getattr(self, name)):g}")
        if any(low > high for low, high in zip(self.control_low, self.control_high)):
            raise SurefootError(f"{where}: control_low: expected at most control_high")
        if self.joints and len(set(self.joints)) != n:
            raise SurefootError(f"{where}: joints: expected names, each once, found {', '.join(self.joints)}")
        self._check_commands(where)

    def _check_commands(self, where: str) -> None:
        if len(self.command_ranges) not in (0, len(self.command_names)):
            raise SurefootError(f"{where}: command_ranges: expected one for each of {', '.join(self.command_names)}")
        for name, ends in zip(self.command_names, self.command_ranges):
            numbers(ends, (2,), f"{where}: commands: {name}", "a range: low, high")
            if ends[0] > ends[1]:
                raise SurefootError(f"{where}: commands: {name}: expected low <= high, found {list(ends)}")

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        for k, v in plain.items():
            plain[k] = [list(x) if isinstance(x, tuple) else x for x in v] if isinstance(v, tuple) else v
        made = {
            "observation": self.observation.to_json(),
            "action": self.action.to_json(),
            "parents": dict(self.parents),
        }
        return {"format": FORMAT} | plain | made

    @staticmethod
    def from_json(data: Any, where: str = "contract") -> "Contract":
        """A contract that `to_json` wrote, or the short form that people write by hand."""
        if isinstance(data, Mapping) and "format" not in data:
            return from_short(data, where)
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, Mapping) else type(data).__name__
            raise SurefootError(f"{where}: format: expected {FORMAT}, found {str(found)[:80]}{_older(found)}")
        known = {f.name for f in fields(Contract)}
        body = known_fields({k: v for k, v in data.items() if k != "format"}, known, {"task", "rate", "observation", "action"}, where)  # fmt: skip
        body["observation"] = ObsGroup.from_json(body["observation"], f"{where}: observation")
        body["action"] = Action.from_json(body["action"], f"{where}: action")
        for name in ("joints", "command_names", "ports"):
            if name in body:
                body[name] = texts(body[name], f"{where}: {name}")
        for name in ("home", "kp", "kd", "control_low", "control_high"):
            if name in body:
                body[name] = row(body[name], f"{where}: {name}")
        body["command_ranges"] = _ranges(body.get("command_ranges", []), f"{where}: command_ranges")
        parents = body.get("parents", {})
        if not isinstance(parents, Mapping) or not all(isinstance(v, str) for v in (*parents, *parents.values())):
            raise SurefootError(f"{where}: parents: expected names with hashes, found {str(parents)[:80]}")
        if len(body.get("ports", ("", ""))) != 2:
            raise SurefootError(f"{where}: ports: expected the names of an input and an output")
        contract = Contract(**body)
        contract.check(where)
        return contract


def _brief(value: Any) -> str:
    """In words; a long list by its length and its beginning."""
    if isinstance(value, list | tuple) and len(value) > 64:
        return f"{len(value)} numbers, {', '.join(map(str, value[:4]))}, ..."
    return str(value)


def _older(found: Any) -> str:
    return "; an earlier version of surefoot wrote it: train or export the policy again" if found == 1 else ""


def _unequal(a: Any, b: Any, at: str = "") -> list[tuple[str, Any, Any]]:
    """Places where two JSON values differ; a term's noise and what it is called by its sensor do not count."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        keys = [k for k in {**a, **b} if k not in ("noise", "sensed")]
        return [x for k in keys for x in _unequal(a.get(k), b.get(k), f"{at}.{k}".strip("."))]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and any(isinstance(x, dict) for x in a):
        called = [x.get("name", i) if isinstance(x, dict) else i for i, x in enumerate(a)]
        return [x for name, p, q in zip(called, a, b) for x in _unequal(p, q, f"{at}.{name}")]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        close = [p == q or (isinstance(p, float | int) and isinstance(q, float | int) and abs(p - q) <= 1e-9 * max(1.0, abs(p))) for p, q in zip(a, b)]  # fmt: skip
        return [] if all(close) else [(at, list(a), list(b))]
    same = a == b or (isinstance(a, float) and isinstance(b, int | float) and abs(a - b) <= 1e-9 * max(1.0, abs(a)))
    return [] if same else [(at, a, b)]


SHORT = {
    "joints", "home", "observation", "rate", "action_scale", "action_offset", "action_limit", "frame", "layout", "newest",
    "kp", "kd", "latency", "commands", "phase", "input", "output", "about",
}  # fmt: skip


def from_short(data: Mapping[str, Any], where: str) -> Contract:
    """A policy that moves joints to positions, as people write it down."""
    body = known_fields(data, SHORT, {"joints", "home", "observation", "rate", "action_scale"}, where)
    joints = texts(body["joints"], f"{where}: joints")
    if not joints or len(set(joints)) != len(joints):
        raise SurefootError(f"{where}: joints: expected names, each once, found {', '.join(joints) or 'none'}")
    each = lambda name, value, *sizes: _each(row(value, f"{where}: {name}"), len(joints), sizes, f"{where}: {name}")  # noqa: E731
    home = each("home", body["home"], len(joints))
    offset = each("action_offset", body.get("action_offset", []), 0, len(joints)) or home
    gains = {k: each(k, body.get(k, []), 0, 1, len(joints)) for k in ("kp", "kd")}
    scale = each("action_scale", body["action_scale"], 1, len(joints))
    limit = real(body.get("action_limit", 100.0), f"{where}: action_limit")
    words = {k: text(body.get(k, ""), f"{where}: {k}") for k in ("frame", "input", "output", "about")}
    clock = None if body.get("phase") is None else clock_of(body["phase"], f"{where}: phase")
    terms = short_terms(body["observation"], Setting(joints, home, words["frame"], clock), f"{where}: observation")
    history = max((t.history for t in terms), default=1)
    group = {"layout": body.get("layout", "frames"), "newest": body.get("newest", "last"), "history": history}
    for name, choices in (("layout", ("frames", "terms")), ("newest", ("last", "first"))):
        if group[name] not in choices:
            raise unknown(name, str(group[name]), choices, where)
    commands = _commands(body.get("commands", {}), f"{where}: commands")
    found = Contract(
        "", real(body["rate"], f"{where}: rate"), ObsGroup(terms, **group), Action(joints, np.array(offset), np.array(scale), "rad", limit),
        joints, home, gains["kp"], gains["kd"], command_names=COMMANDS, command_ranges=commands,
        latency=real(body.get("latency", 0.0), f"{where}: latency"), ports=(words["input"], words["output"]), about=words["about"],
    )  # fmt: skip
    found.check(where)
    return found


def _commands(data: Any, where: str) -> tuple[tuple[float, float], ...]:
    if not isinstance(data, Mapping):
        raise SurefootError(f"{where}: expected names with ranges, found {str(data)[:80]!r}")
    for name in data:
        if name not in COMMANDS:
            raise unknown("command", str(name), COMMANDS, where)
    return _ranges([data.get(name, (0.0, 0.0)) for name in COMMANDS], where)


def _ranges(data: Any, where: str) -> tuple[tuple[float, float], ...]:
    if not isinstance(data, list | tuple):
        raise SurefootError(f"{where}: expected a list of ranges, found {str(data)[:80]}")
    found = [row(ends, where) for ends in data]
    for ends in found:
        if len(ends) != 2 or ends[0] > ends[1]:
            raise SurefootError(f"{where}: expected ranges of low <= high, found {list(ends)}")
    return tuple((a, b) for a, b in found)


def _each(values: tuple[float, ...], n: int, sizes: Sequence[int], where: str) -> tuple[float, ...]:
    if len(values) not in sizes:
        raise SurefootError(f"{where}: expected one for each of {n} joints, found {len(values)} numbers")
    return values * n if len(values) == 1 and n > 1 and 1 in sizes else values


def numbers(values: Any, lengths: tuple[int, ...], where: str, how: str) -> None:
    if len(values) not in lengths:
        raise SurefootError(f"{where}: expected {how}, found {len(values)} numbers")
    for v in values:
        real(float(v) if isinstance(v, np.floating) else v, where)


def base_columns(contract: Contract, base: Contract) -> np.ndarray:
    """Columns of a policy's observation that are its base policy's; an error where both do not mean the same.

    The base may have fewer terms and fewer frames, but none that the policy does not have.
    """
    where = f"policy for {contract.task}: base for {base.task}"
    if contract.action.choices or base.action.choices:
        raise SurefootError(f"{where}: choices: expected continuous actions, which can be added; found a choice")
    mine, theirs = contract.to_json(), base.to_json()
    for name in ("rate", "action", "kp", "kd"):
        for at, a, b in _unequal(mine[name], theirs[name], name):
            raise SurefootError(f"{where}: {at}: expected {a}, found {b}")
    if contract.trial > 1 and base.history > 1:
        raise SurefootError(
            f"{where}: history: expected 1 frame under a policy that remembers {contract.trial} episodes, found "
            f"{base.history}: its older ones would be of the episode before"
        )
    if base.history > contract.history:
        raise SurefootError(f"{where}: history: expected at most {contract.history} frames, found {base.history}")
    if contract.observation.taken is not None or base.observation.taken is not None:
        raise SurefootError(f"{where}: layout: expected whole frames, newest last")
    own = {t.name: (t, at) for t, at in zip(contract.terms, contract.observation.columns)}
    for t in base.terms:
        if t.name not in own:
            raise unknown("observation term", t.name, own, where)
        for at, a, b in _unequal(own[t.name][0].to_json(), t.to_json(), t.name):
            raise SurefootError(f"{where}: {at}: expected {a}, found {b}")
        if t.name == "command" and base.command_names != contract.command_names:
            raise SurefootError(
                f"{where}: command_names: expected {contract.command_names}, found {base.command_names}"
            )
    frame = np.concatenate([np.arange(own[t.name][1].start, own[t.name][1].stop) for t in base.terms])
    first = contract.history - base.history
    return np.concatenate([frame + k * contract.observation.frame for k in range(first, contract.history)])
