"""Provenance: what a policy was trained for, kept as text, numbers and hashes, so that a later change is named.

    provenance(task, reference) -> run.json and, as hashes, the contract's parents        changes(was, now) -> sentences

A task's code runs only where the user points to it; what is kept here is compared and shown, never imported.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from surefoot.belief import Box
from surefoot.errors import SurefootError
from surefoot.files import sha256
from surefoot.sim.model.load import ENGINE, load_robot
from surefoot.task import Task
from surefoot.tasks.registry import GROUP, READY, task_file
from surefoot.typed import known_fields

LONGEST = 200_000  # characters of a task's text that are kept; of a longer one, its hash alone
MOST_LINES = 5000  # that are compared line by line
SHOWN = 4  # changes of one kind that are named


@dataclass(frozen=True)
class Provenance:
    source: str
    """the task's file, or the module that a name stands for"""
    text: str
    """of that file"""
    text_hash: str
    """empty where a Task was made in a script: there is no file to compare"""
    model: str
    """the robot's name"""
    model_hash: str
    """over all files of the model"""
    compiled_hash: str
    """of the model as it is simulated, after the task's edits"""
    engine: str
    """that compiled it"""
    files: Mapping[str, str] = field(default_factory=dict)
    """file of the model, from the model's folder -> hash of its content"""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """of the task: rates, weights, ranges, by name"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Any, where: str) -> "Provenance":
        names = {f: f in ("files", "numbers") for f in Provenance.__dataclass_fields__}
        found = known_fields(data, set(names), set(names), where)
        for name, many in names.items():
            if not isinstance(found[name], dict if many else str):
                raise SurefootError(f"{where}: {name}: expected {'an object' if many else 'text'}")
        return Provenance(**found)

    def parents(self) -> dict[str, str]:
        """As a policy's contract has it."""
        return {"task": self.text_hash, "model": self.model_hash, "compiled": self.compiled_hash}


def provenance(task: Task, reference: str) -> Provenance:
    """Of the task that a reference means, as it is now."""
    source, text = _source(reference)
    loaded = load_robot(task.robot)
    return Provenance(
        source=source,
        text=text if len(text) <= LONGEST else "",
        text_hash=sha256(text.encode()) if text else "",
        model=os.path.basename(task.robot.path) or task.robot.name,
        model_hash=loaded.hash,
        compiled_hash=loaded.compiled_hash,
        engine=ENGINE,
        files=_files(loaded.sources, task.robot.path),
        numbers=_numbers(task, float(loaded.own[0].opt.timestep)),
    )


def _source(reference: str) -> tuple[str, str]:
    """Name and text of the file that makes a task. Its module has been imported already."""
    file = task_file(reference)
    if file is not None:
        return file[0].name, file[0].read_text(errors="replace")
    if reference in READY:
        module = READY[reference].function.__module__
    else:
        named = [e.module for e in entry_points(group=GROUP) if e.name == reference]
        module = named[0] if named else reference.partition(":")[0]
    path = getattr(sys.modules.get(module), "__file__", None)
    return module, Path(path).read_text(errors="replace") if path else ""


def _files(sources: Mapping[str, str], path: str) -> dict[str, str]:
    folder = os.path.dirname(os.path.realpath(path))
    return {os.path.relpath(p, folder) if path else p: hashed for p, hashed in sources.items()}


def _numbers(task: Task, timestep: float) -> dict[str, Any]:
    """What decides what is learned, and has a name; observations are in the contract."""
    found: dict[str, Any] = {"control rate, Hz": round(1 / (task.substeps * timestep), 9), "substeps": task.substeps}
    found |= {k: getattr(task, k) for k in ("seconds", "tolerance", "window", "measure", "explicit")}
    found |= {k: str(getattr(task, k)) for k in ("reward_floor", "command_every")}  # JSON has no infinity
    found |= {f"weight of reward {k}": float(r.weight) for k, r in task.rewards.items()}
    found |= {"ends when": list(task.ended), "commands": list(task.command_names)}
    found |= {"reference motion": task.clip.about} if task.clip is not None else {}
    found |= {"action scale": task.action.scale.tolist(), "action offset": task.action.offset.tolist()}
    if isinstance(task.belief, Box):
        found |= {f"range of {p.name}": [a, b] for p, a, b in zip(task.belief.params, task.belief.low.tolist(), task.belief.high.tolist())}  # fmt: skip
    return found


def changes(was: Provenance, now: Provenance) -> list[str]:
    """What has changed, a sentence each."""
    found = []
    if _other(was.text_hash, now.text_hash) or dict(was.numbers) != dict(now.numbers):
        found.append(f"the task {now.source} has changed since this policy was trained: {_task(was, now)}")
    if was.model_hash != now.model_hash:
        named = _first([*_differing(was.files, now.files)] or ["its files in another order"])
        found.append(f"the model {now.model} has changed since this policy was trained: {named}")
    elif was.compiled_hash != now.compiled_hash:
        other = (
            f"{now.engine}, was {was.engine}"
            if now.engine != was.engine
            else "the task's edits of it, or another machine"
        )
        found.append(f"the compiled model of {now.model} has changed since this policy was trained: {other}")
    return found


def changes_of_hashes(parents: Mapping[str, str], now: Provenance) -> list[str]:
    """What a policy's contract alone tells: that something has changed, not what."""
    known, own = dict(parents), now.parents()
    names = {"task": f"the task {now.source}", "model": f"the model {now.model}", "compiled": f"the compiled model of {now.model}"}  # fmt: skip
    differ = [k for k in names if k in known and _other(known[k], own[k])]
    if "model" in differ and "compiled" in differ:
        differ.remove("compiled")
    return [f"{names[k]} has changed since this policy was trained" for k in differ]


def _other(was: str, now: str) -> bool:
    """Hashes of two texts that are known."""
    return bool(was and now) and was != now


def _task(was: Provenance, now: Provenance) -> str:
    found = [
        f"{k}: {_value(now.numbers, k)}, was {_value(was.numbers, k)}" for k in _differing(was.numbers, now.numbers)
    ]
    lines = was.text.splitlines(), now.text.splitlines()
    if not found and max(map(len, lines)) <= MOST_LINES:
        found = list(_lines(*lines))
    return _first(found or ["its text"])


def _lines(was: list[str], now: list[str]) -> Iterator[str]:
    for kind, i, i_end, j, j_end in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if kind != "equal":
            old, new = (
                lines[a].strip()[:80] if a < b else "nothing" for lines, a, b in ((was, i, i_end), (now, j, j_end))
            )
            yield f"line {j + 1}: {new}, was {old}"


def _differing(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    return (k for k in {**was, **now} if was.get(k) != now.get(k))


def _value(numbers: Mapping[str, Any], name: str) -> str:
    return str(numbers[name])[:80] if name in numbers else "none"


def _first(words: list[str]) -> str:
    return "; ".join(words[:SHOWN]) + (f"; and {len(words) - SHOWN} more" if len(words) > SHOWN else "")
