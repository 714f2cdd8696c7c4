"""A first mapping of a file, to be corrected by a person: its clock, its columns in groups, and what each may be.

Columns that differ in one number are one group, jpos{0..11}. A group's place in the schema is guessed from the words in its
name; a group without such a word, and the second group of one place, keeps its own name, as a sensor.
"""

import re
from pathlib import Path
from typing import Any

from surefoot.errors import SurefootError
from surefoot.formats.align import CLOCKS, bare_clock
from surefoot.formats.mapping import Mapping
from surefoot.formats.raw import Raw, full
from surefoot.formats.readers import kind, read_raw

WORDS = {  # place in the schema -> words of a name that mean it; the first that fits
    "control": "des desired goal target cmd command ctrl control setpoint ref reference action",
    "base_quat": "quat quaternion orientation attitude",
    "base_ang_vel": "gyro angvel omega",
    "base_lin_vel": "linvel",
    "joint_torque": "torque torques tau effort efforts current load",
    "joint_vel": "vel vels velocity velocities speed speeds dq qd qvel jvel",
    "joint_pos": "pos position positions q qpos jpos angle angles",
}  # fmt: skip
ABOUT = "a stub: correct the columns, add `names` (of the model's joints, or actuators for control), `unit` and `sign`; drop the rest"


def stub(path: Path, episode: int = 0) -> dict[str, Any]:
    """The mapping, as JSON has it."""
    raw = read_raw(path, kind(path), episode)
    time, found = "", dict[str, dict[str, Any]]()
    for s, stream in raw.streams.items():
        clock = next((c for c in stream.columns if bare_clock(c) in CLOCKS and stream.columns[c].ndim == 1), "")
        time = time or clock
        for group, names in _groups([full(s, c) for c in stream.columns if c != clock]).items():
            place = _place(group)
            name = place if place and place not in found else _plain(group, found)
            found[name] = _column(raw, name, group, names)
    return {"about": ABOUT, **({"time": time} if time else {}), "columns": found}


def _column(raw: Raw, name: str, group: str, names: list[str]) -> dict[str, Any]:
    own = next((stream.names[c] for s, stream in raw.streams.items() for c in stream.names if full(s, c) == group), [])
    unit = next((raw.units[n] for n in names if raw.units.get(n)), "")
    found = {"from": group, **({"names": own} if own else {})}
    try:
        Mapping.from_json({"columns": {name: found | {"unit": unit}}})
    except SurefootError:  # a unit that a mapping does not know
        return found
    return found | ({"unit": unit} if unit else {})


def _groups(columns: list[str]) -> dict[str, list[str]]:
    """Pattern -> the columns it stands for: those that differ in one number and count up without a gap."""
    alike: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for name in columns:
        parts = re.fullmatch(r"(.*?)(\d{1,4})(\D*)", name)
        alike.setdefault((parts[1], parts[3]) if parts else (name, ""), []).append(
            (int(parts[2]) if parts else 0, name)
        )
    out: dict[str, list[str]] = {}
    for (head, tail), found in alike.items():
        numbers = [k for k, _ in found]
        whole = len(found) > 1 and numbers == list(range(numbers[0], numbers[0] + len(found)))
        if whole and all(name == f"{head}{k}{tail}" for k, name in found):  # not of 00, 01, ...
            out[f"{head}{{{numbers[0]}..{numbers[-1]}}}{tail}"] = [name for _, name in found]
        else:
            out |= {name: [name] for _, name in found}
    return out


def _place(group: str) -> str:
    words = set(re.sub(r"([a-z])([A-Z])", r"\1 \2", re.sub(r"\{.*?\}", " ", group)).lower().replace("_", " ").split())
    words |= {w for word in words for w in re.split(r"[^a-z]+", word)}
    return next((place for place, known in WORDS.items() if words & set(known.split())), "")


def _plain(group: str, taken: dict[str, Any]) -> str:
    """A name of its own for a group: that of the file without its counter."""
    name = re.sub(r"_+", "_", re.sub(r"\W+", "_", re.sub(r"\{.*?\}", "", group))).strip("_") or "column"
    return name if name not in taken else next(f"{name}_{k}" for k in range(2, 20_000) if f"{name}_{k}" not in taken)
