"""Observation terms as people write them in a contract: by the field's names, alone or with scale, clip, history, joints.

The terms `phase`, `sin_phase` and `cos_phase` are of one gait clock, which the contract describes once:

    phase_i(t) = 2 pi frequency t + feet_i        phase = (wave(phase_1), wave(phase_2), ...) for each wave, sin and cos
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.observation import Formula, ObsTerm
from surefoot.typed import MOST, known_fields, real, row, text, texts, whole

WIDTHS = {
    "base_lin_vel": 3, "base_ang_vel": 3, "projected_gravity": 3, "command": 3, "command_lin_vel": 2, "command_ang_vel": 1,
}  # fmt: skip
JOINTED = ("joint_pos", "joint_vel", "last_action")  # a column for each joint
PARTS = {"command_lin_vel": (0, 1), "command_ang_vel": (2,)}  # of a command
PHASES: dict[str, tuple[str, ...]] = {"phase": (), "sin_phase": ("sin",), "cos_phase": ("cos",)}  # their waves
ASKED = ("last_action", "command", *PARTS, *PHASES)  # read by no sensor
UNITS = {"base_lin_vel": "m/s", "base_ang_vel": "rad/s", "projected_gravity": "unit vector", "joint_pos": "rad", "joint_vel": "rad/s"}  # fmt: skip
ALIASES = {
    "velocity_commands": "command", "base_velocity": "command", "commands": "command", "joint_pos_rel": "joint_pos",
    "joint_vel_rel": "joint_vel", "dof_pos": "joint_pos", "dof_vel": "joint_vel", "actions": "last_action",
    "gyro": "base_ang_vel", "ang_vel": "base_ang_vel", "lin_vel": "base_lin_vel", "gravity": "projected_gravity",
    "gravity_vec": "projected_gravity", "gravity_orientation": "projected_gravity", "gait_phase": "phase", "clock": "phase",
    "gait_clock": "phase",
}  # fmt: skip
CLOCK = {"frequency", "period", "feet", "waves", "still", "stand"}


def short_names() -> list[str]:
    return [*WIDTHS, *JOINTED, *PHASES]


@dataclass(frozen=True)
class Setting:
    """What the terms of one contract share."""

    joints: tuple[str, ...]
    home: tuple[float, ...]
    frame: str
    clock: Formula | None
    """of the gait; None where the contract describes none"""


def clock_of(data: Any, where: str) -> Formula:
    """A contract's field `phase`: the gait clock."""
    body = known_fields(data, CLOCK, set(), where)
    if ("frequency" in body) == ("period" in body):
        raise SurefootError(f"{where}: expected either frequency [Hz] or period [s], found {sorted(body)}")
    name = "frequency" if "frequency" in body else "period"
    number = real(body[name], f"{where}: {name}")
    if not 1e-3 <= number <= 1e3:
        raise SurefootError(f"{where}: {name}: expected 0.001 to 1000, found {number:g}")
    feet = row(body.get("feet", 0.0), f"{where}: feet")
    stand = row(body["stand"], f"{where}: stand") if body.get("stand") is not None else ()
    if stand and "still" not in body:
        raise SurefootError(f"{where}: still: found nothing, expected the command below which the clock stands")
    try:
        return Formula(
            "clock", frequency=number if name == "frequency" else 1 / number, still=real(body.get("still", -1.0), f"{where}: still"),
            phases=feet, waves=texts(body.get("waves", ("sin", "cos")), f"{where}: waves"),
            stand=stand * len(feet) if len(stand) == 1 else stand,
        )  # fmt: skip
    except SurefootError as error:
        raise SurefootError(f"{where}: {error}") from None


def short_terms(data: Any, setting: Setting, where: str) -> tuple[ObsTerm, ...]:
    if not isinstance(data, list) or not data or len(data) > MOST:
        raise SurefootError(
            f"{where}: expected a list of terms, some of {', '.join(short_names())}; found {str(data)[:80]}"
        )
    return tuple(_term(x, setting, f"{where}[{i}]") for i, x in enumerate(data))


def _term(data: Any, setting: Setting, where: str) -> ObsTerm:
    """A name alone, or an object with more than that."""
    body = {"name": data} if isinstance(data, str) else data
    body = known_fields(body, {"name", "scale", "clip", "history", "joints"}, {"name"}, where)
    name = ALIASES.get(text(body["name"], f"{where}: name"), body["name"])
    if name not in short_names():
        raise unknown("term", name, short_names(), where)
    where = f"{where}: {name}"
    scale = row(body.get("scale", 1.0), f"{where}: scale")
    clip = np.inf if body.get("clip") is None else real(body["clip"], f"{where}: clip")
    history = whole(body.get("history", 1), 1, MOST, f"{where}: history")
    formula, dim = _formula(name, body, setting, where)
    one = scale[0] if len(scale) == 1 else scale
    return ObsTerm(name, formula, dim, UNITS.get(name, ""), 0.0, one, clip, name not in ASKED, history)


def _formula(name: str, body: Mapping[str, Any], setting: Setting, where: str) -> tuple[Formula, int]:
    own = _own_joints(body, setting.joints, where)
    if name in JOINTED:
        offset = tuple(setting.home[setting.joints.index(j)] for j in own) if name == "joint_pos" else ()
        return Formula(name, own, offset), len(own)
    if name in PHASES:
        clock = setting.clock
        if clock is None:
            raise SurefootError(
                f"{where}: found no gait clock, expected the contract's field phase, such as "
                '{"frequency": 1.25, "feet": [0, 3.14159]}'
            )
        waves = PHASES[name] or clock.waves
        return Formula(
            "clock", frequency=clock.frequency, still=clock.still, phases=clock.phases, waves=waves, stand=clock.stand
        ), len(waves) * len(clock.phases)
    frame = setting.frame
    frames = {"base_lin_vel": frame or "base", "base_ang_vel": frame, "projected_gravity": frame}
    if name in PARTS:
        return Formula("command", parts=PARTS[name]), WIDTHS[name]
    return Formula(name, frame=frames.get(name, "")), WIDTHS[name]


def _own_joints(body: Mapping[str, Any], joints: tuple[str, ...], where: str) -> tuple[str, ...]:
    """In the term's own order, where it has one."""
    own = texts(body.get("joints", []), f"{where}: joints") or joints
    if sorted(own) != sorted(joints):
        lost = [j for j in own if j not in joints]
        if lost:
            raise unknown("joint", lost[0], joints, f"{where}: joints")
        raise SurefootError(f"{where}: joints: expected each of {', '.join(joints)} once")
    return own
