"""The words of --learn, and the unknowns they mean in a model.

    armature               one number for every joint            armature:each     one for each joint
    armature:kinds         one for each kind of joint            armature:mirror   one for each left-right pair
    damping:.*_hip_joint   for the joints that match             damping:FL_{hip,calf}  for these
    delay=0..0.04          with a range in its unit              inertia=0.3..3x   with a range in multiples of the model's
    shape:trunk            the ten inertial numbers of a body

A kind is a name without its leading leg, arm or side: FL_hip_joint and RR_hip_joint are hip_joint.
"""

import re
from collections.abc import Iterable

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.params import Op, Param, Params
from surefoot.robot import kind_of
from surefoot.sim.fields import OUTSIDE, TARGETS, Target, object_names
from surefoot.sim.fields.friction import LAWS
from surefoot.sim.fields.inertia import inertial
from surefoot.sim.fields.offset import OFFSETS

SHORT = {"delay": "action_delay", "latency": "action_delay", "coulomb": "frictionloss", "viscous": "damping"}
SHAPE = "shape"
FREE = {  # target -> search range where the model has 0, and unit
    "armature": (1e-4, 0.1, "kg m^2"), "damping": (1e-3, 5.0, "N m s/rad"), "frictionloss": (0.0, 2.0, "N m"),
    "action_delay": (0.0, 0.04, "s"), "friction_load": (0.0, 0.5, ""), "friction_back": (0.0, 0.95, ""), "stiction": (0.0, 1.0, "N m"),
    "stribeck": (0.02, 2.0, "rad/s"), "encoder_offset": (-0.2, 0.2, "rad"), "com_x": (-0.1, 0.1, "m"),
    "com_y": (-0.1, 0.1, "m"), "com_z": (-0.1, 0.1, "m"), "stop_low": (-0.2, 0.2, "rad"), "stop_high": (-0.2, 0.2, "rad"), "motor_time": (0.001, 0.1, "s"),
    "torque_offset": (-0.5, 0.5, "N m"),
}  # fmt: skip
UNITS = {
    "mass": "kg",
    "kp": "N m/rad",
    "kd": "N m s/rad",
    "gravity": "m/s^2",
    "torque_constant": "N m/A",
    "air_density": "kg/m^3",
}
MULTIPLES = {"armature": (0.1, 10.0), "damping": (0.01, 10.0), "frictionloss": (0.0, 10.0), "gravity": (0.9, 1.1)}
ADDED = ("action_delay", "sensor_delay", "com_x", "com_y", "com_z")  # never as a multiple of the model's value
LOG = {
    "armature",
    "damping",
    "mass",
    "inertia",
    "kp",
    "kd",
    "strength",
    "friction",
    "stribeck",
    "motor_time",
    "torque_constant",
    "yaw_torque",
}


def learnable(model: mujoco.MjModel, words: Iterable[str]) -> Params:
    """The unknowns that some words mean in a model, with their search ranges."""
    found: list[Param] = []
    for word in words:
        found += _params_of(model, word.strip())
    if not found:
        raise SurefootError("--learn: found nothing, expected unknowns such as armature:kinds,damping,delay")
    return Params(tuple(found))


def _params_of(model: mujoco.MjModel, word: str) -> list[Param]:
    head, _, span = word.partition("=")
    name, _, which = head.partition(":")
    if name == SHAPE:
        bodies = object_names(model, "body")[1:]
        if which not in bodies:
            raise unknown("body", which, bodies, f"--learn {word}")
        return list(inertial(which))
    target, known = SHORT.get(name, name), {**TARGETS, **dict.fromkeys((*LAWS, *OFFSETS))}
    if target not in known:
        raise unknown("target", name, [SHAPE, *SHORT, *known], f"--learn {word}")
    kind = TARGETS[target].objects if target in TARGETS else "joint"
    groups = _groups(object_names(model, kind) if kind else [], which, kind, word)
    return [_param(model, target, label, members, _range(span, word)) for label, members in groups.items()]


def _groups(names: list[str], which: str, kind: str, word: str) -> dict[str, list[str]]:
    """Label -> names of the objects that share one unknown."""
    names = [n for n in names if n and n != "world"]
    if not kind:
        return {"": []}
    if which in ("", "all"):
        return {"": names}
    if which == "each":
        return {n: [n] for n in names}
    if which in ("kinds", "mirror"):
        label = kind_of if which == "kinds" else _pair
        groups: dict[str, list[str]] = {}
        for n in names:
            groups.setdefault(label(n), []).append(n)
        return groups
    pattern = re.sub(r"\{([^{}]*[^{}\d,][^{}]*)\}", _any, which)  # {hip,calf}; {1,2} is a regular expression's
    try:
        matched = [n for n in names if re.fullmatch(pattern, n) or which == kind_of(n)]
    except re.error as error:
        raise SurefootError(f"--learn {word}: found {which!r}, expected names or a pattern: {error}") from None
    if not matched:
        raise unknown(kind, which, names, f"--learn {word}")
    return {which: matched}


def _any(found: re.Match[str]) -> str:
    """{hip,calf} as a regular expression."""
    return f"(?:{'|'.join(re.escape(w.strip()) for w in found[1].split(','))})"


def _pair(name: str) -> str:
    """FL_hip and FR_hip are one pair, F*_hip; so are left_knee and right_knee."""
    return re.sub(r"(?<![a-zA-Z])(left|right)(?![a-zA-Z])|(?<=^[FRMHB])[LR](?=_)|^[LRlr](?=_)|(?<=_)[LRlr]$", "*", name)


Span = tuple[float, float, bool]
"""low, high, and whether they are multiples of the model's value"""


def _range(span: str, word: str) -> Span | None:
    if not span:
        return None
    low, dots, high = span.removesuffix("x").partition("..")
    try:
        ends = float(low), float(high)
    except ValueError:
        raise SurefootError(
            f"--learn {word}: range: found '{span}', expected LOW..HIGH or LOW..HIGHx{'' if dots else ' with two dots'}"
        ) from None
    return *ends, span.endswith("x")


def _param(model: mujoco.MjModel, target: str, label: str, names: list[str], span: Span | None) -> Param:
    """A multiple of the model's value where it has one and no span in its unit is given; else a value within a span."""
    match, called = "|".join(map(re.escape, names)) or ".*", f"{target}:{label}" if label else target
    ops = TARGETS[target].ops if target in TARGETS else OUTSIDE[target][1]
    value = _model_value(model, TARGETS.get(target), names)
    has = "scale" in ops and ("set" not in ops or value is not None and value > 0)
    _check_span(called, target, ops, has, span)
    if span[2] if span else has and target not in ADDED:
        low, high = span[:2] if span else MULTIPLES.get(target, (0.2, 5.0))
        log = target in LOG and low > 0
        nominal = 1.0 if low <= 1 <= high else float(np.sqrt(low * high) if log else (low + high) / 2)
        return Param(called, target, nominal, low, high, match, "scale", "", log)
    low, high, unit = FREE[target] if span is None else (*span[:2], FREE.get(target, (0, 0, UNITS.get(target, "")))[2])
    op: Op = "set" if "set" in ops and not target.startswith("com_") else "add"
    log = target in LOG and low > 0
    middle = np.sqrt(low * high) if log else (low + high) / 2
    nominal = float(np.clip(value if value is not None and op == "set" and low <= value <= high else
                            0.0 if op == "add" or target in OFFSETS else middle, low, high))  # fmt: skip
    return Param(called, target, nominal, float(low), float(high), match, op, unit, log)


def _check_span(called: str, target: str, ops: tuple[str, ...], has: bool, span: Span | None) -> None:
    """Refuse a missing range, multiples of nothing, and values where only multiples make sense."""
    if span is None and target not in FREE and not has:
        raise SurefootError(f"--learn {called}: expected a search range, such as {target}=LOW..HIGH")
    if span is None:
        return
    low, high, multiple = span
    if multiple and not has:
        why = "the model's value is 0, which has no multiples" if "scale" in ops else f"{target} has no multiples"
        raise SurefootError(f"--learn {called}: {why}; give the range in its unit: {target}=LOW..HIGH")
    if not multiple and ops == ("scale",):
        raise SurefootError(f"--learn {called}: expected multiples of the model's value: {target}={low:g}..{high:g}x")
    if not low < high:
        raise SurefootError(f"--learn {called}: range: found {low:g}..{high:g}, expected the lower number first")


def _model_value(model: mujoco.MjModel, target: Target | None, names: list[str]) -> float | None:
    """The median of the model's values, where a target has one for each object."""
    if target is TARGETS["gravity"]:
        return float(np.linalg.norm(model.opt.gravity))
    if target is None or not names or target.ops == ("scale",) or len(target.fields) != 1 and target.objects != "body":
        return 1.0 if target is not None and target.objects == "actuator" else None
    field = getattr(model, target.fields[0])
    if target.objects == "joint":
        ids = [int(model.joint(n).dofadr[0]) for n in names]
    else:
        ids = [getattr(model, target.objects)(n).id for n in names]
    part = np.asarray(field)[ids]
    return float(np.median(part if part.ndim == 1 else part[:, 0]))
