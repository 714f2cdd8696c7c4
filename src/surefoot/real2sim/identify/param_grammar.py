"""The words of --learn, and the unknowns they mean in a model.

    armature               one number for every joint            armature:each     one for each joint
    armature:kinds         one for each kind of joint            armature:mirror   one for each left-right pair
    damping:.*_hip_joint   for the joints that match             delay=0..0.04     with a range of its own
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
from surefoot.sim.friction import LAWS
from surefoot.sim.inertia import inertial

SHORT = {"delay": "action_delay", "latency": "action_delay", "coulomb": "frictionloss", "viscous": "damping"}
SHAPE = "shape"
FREE = {  # target -> search range where the model has 0, and unit
    "armature": (1e-4, 0.1, "kg m^2"), "damping": (1e-3, 5.0, "N m s/rad"), "frictionloss": (0.0, 2.0, "N m"),
    "action_delay": (0.0, 0.04, "s"), "friction_load": (0.0, 0.5, ""), "stiction": (0.0, 1.0, "N m"),
    "stribeck": (0.02, 2.0, "rad/s"), "encoder_offset": (-0.2, 0.2, "rad"), "com_x": (-0.1, 0.1, "m"),
    "com_y": (-0.1, 0.1, "m"), "com_z": (-0.1, 0.1, "m"), "stop_low": (-0.2, 0.2, "rad"), "stop_high": (-0.2, 0.2, "rad"), "motor_time": (0.001, 0.1, "s"),
}  # fmt: skip
MULTIPLES = {"armature": (0.1, 10.0), "damping": (0.01, 10.0), "frictionloss": (0.0, 10.0), "gravity": (0.9, 1.1)}
ADDED = ("action_delay", "sensor_delay", "com_x", "com_y", "com_z")  # never as a multiple of the model's value
LOG = {"armature", "damping", "mass", "inertia", "kp", "kd", "strength", "friction", "stribeck", "motor_time"}


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
    target, known = SHORT.get(name, name), {**TARGETS, **dict.fromkeys(LAWS)}
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
    matched = [n for n in names if re.fullmatch(which, n) or which == kind_of(n)]
    if not matched:
        raise unknown(kind, which, names, f"--learn {word}")
    return {which: matched}


def _pair(name: str) -> str:
    """FL_hip and FR_hip are one pair, F*_hip; so are left_knee and right_knee."""
    return re.sub(r"(?<![a-zA-Z])(left|right)(?![a-zA-Z])|(?<=^[FRMHB])[LR](?=_)|^[LRlr](?=_)|(?<=_)[LRlr]$", "*", name)


def _range(span: str, word: str) -> tuple[float, float] | None:
    if not span:
        return None
    low, dots, high = span.partition("..")
    try:
        return float(low), float(high)
    except ValueError:
        raise SurefootError(
            f"--learn {word}: range: found '{span}', expected LOW..HIGH{'' if dots else ' with two dots'}"
        ) from None


def _param(model: mujoco.MjModel, target: str, label: str, names: list[str], span: tuple[float, float] | None) -> Param:
    """A multiple of the model's value where it has one and no span is given; else a value in its unit, within a span."""
    match, called = "|".join(map(re.escape, names)) or ".*", f"{target}:{label}" if label else target
    ops = TARGETS[target].ops if target in TARGETS else OUTSIDE[target][1]
    value = _model_value(model, TARGETS.get(target), names)
    if span is None and "scale" in ops and value is not None and value > 0 and target not in ADDED:
        return Param(called, target, 1.0, *MULTIPLES.get(target, (0.2, 5.0)), match, "scale", "", target in LOG)
    if span is None and target not in FREE:
        raise SurefootError(f"--learn {called}: expected a search range, such as {target}=LOW..HIGH")
    low, high, unit = FREE.get(target, (0.0, 1.0, "")) if span is None else (*span, FREE.get(target, ("", "", ""))[2])
    op: Op = "set" if "set" in ops and not target.startswith("com_") else "add"
    log = target in LOG and low > 0
    middle = np.sqrt(low * high) if log else (low + high) / 2
    nominal = float(np.clip(value if value is not None and op == "set" and low <= value <= high else
                            0.0 if op == "add" else middle, low, high))  # fmt: skip
    return Param(called, target, nominal, float(low), float(high), match, op, unit, log)


def _model_value(model: mujoco.MjModel, target: Target | None, names: list[str]) -> float | None:
    """The median of the model's values, where a target has one for each object."""
    if target is None or not names or len(target.fields) != 1 and target.objects != "body":
        return 1.0 if target is not None and target.objects == "actuator" else None
    field = getattr(model, target.fields[0])
    if target.objects == "joint":
        ids = [int(model.joint(n).dofadr[0]) for n in names]
    else:
        ids = [getattr(model, target.objects)(n).id for n in names]
    part = np.asarray(field)[ids]
    return float(np.median(part if part.ndim == 1 else part[:, 0]))
