"""surefoot presets: what each randomizes and where that is written, and what it comes to on a task."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from tyro.conf import Positional

from surefoot import presets, tasks
from surefoot.errors import SurefootError
from surefoot.presets import Fit, Preset
from surefoot.report import Note, Report, Table, Text, Watch


@dataclass(frozen=True)
class Presets:
    name: Positional[str] = ""
    """one preset; default: all of them"""
    task: str = ""
    """list the presets that fit this task, or the task to show one on; default: the first it fits"""

    def run(self, watch: Watch) -> Report:
        return _one(presets.find(self.name), self.task) if self.name else _all(self.task)


def _all(task: str) -> Report:
    """Of those that fit a task, or of all."""
    fits = presets.fitting(tasks.resolve(task)) if task else list(presets.PRESETS)
    ready = _ready()
    if not fits:
        raise SurefootError(f"task {task}: no preset fits; try {', '.join(t for ts in ready.values() for t in ts)}")
    some = [presets.PRESETS[k] for k in fits]
    facts = [_facts(p) | {"tasks": ready[p.kind]} for p in some]
    tables = (_list(kind, names, [p for p in some if p.kind == kind]) for kind, names in ready.items())
    source = Text("surefoot presets NAME shows ranges and source: repository, file and version")
    return Report("presets", {"presets": facts}, (*tables, source), f"surefoot presets {fits[0]}")


def _list(kind: str, tasks: list[str], some: list[Preset]) -> Table:
    """The presets for one kind of robot."""
    rows = [[p.name, p.robot, ", ".join(_randomized(p))] for p in some]
    return Table.of(["preset", "robot", "randomizes"], rows, f"{kind}: for {', '.join(tasks)}")


def _randomized(p: Preset) -> Iterator[str]:
    """Names of its unknowns; com_x, com_y and com_z are one word."""
    yield from dict.fromkeys("com" if name.startswith("com_") else name for name in p.ranges)
    if p.noise:
        yield "noise"


def _one(p: Preset, task: str) -> Report:
    ready = _ready()[p.kind]
    task = task or (p.like if p.like in ready else ready[0])
    fit = presets.fit(tasks.resolve(task), p.name)
    facts = _facts(p) | {
        "task": task,
        "ranges": [asdict(row) for row in fit.rows],
        "unnamed": list(fit.unnamed),
        "belief": fit.belief.to_json(),
    }
    head = f"{p.name}: {p.robot}, from {p.source.repository}, {p.source.path} ({p.source.version})"
    lost = (Note(f"not in {task}: {what}") for what in fit.unnamed)
    return Report(p.name, facts, (Text(head), _table(fit, task), *lost), f"surefoot train {task} --belief {p.name}")


def _table(fit: Fit, task: str) -> Table:
    used = lambda row: f"{row.used[0]:.4g} .. {row.used[1]:.4g}"  # noqa: E731
    rows = [[r.name, used(r), fit.belief.params[r.name].unit or "-", r.source, r.note] for r in fit.rows]
    return Table.of(["unknown", f"in {task}", "unit", "the source", "note"], rows)


def _facts(p: Preset) -> dict[str, Any]:
    return {"name": p.name, "robot": p.robot, "source": asdict(p.source)} | {
        "says": {k: r.source for k, r in p.ranges.items()},
        "noise_sd": dict(p.noise),
        "others": list(p.others),
    }


def _ready() -> Mapping[str, list[str]]:
    """Kind of robot -> the ready tasks with one, of those that presets are made for."""
    kinds: dict[str, list[str]] = {p.kind: [] for p in presets.PRESETS.values()}
    for name in tasks.names():
        with suppress(SurefootError):  # `surefoot tasks` says which one does not load
            kinds.get(tasks.resolve(name).kind, []).append(name)
    return kinds
