"""surefoot presets: what each randomizes and where that is written, and what it comes to on a task."""

from collections.abc import Mapping
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
    what = lambda p: ", ".join([*p.ranges, *(["noise"] if p.noise else [])])  # noqa: E731
    rows = [[p.name, p.robot, ", ".join(ready[p.kind]), what(p), p.source.repository] for p in some]
    facts = [_facts(p) | {"tasks": ready[p.kind]} for p in some]
    table = Table.of(["preset", "robot", "for", "randomizes", "source"], rows)
    return Report("presets", {"presets": facts}, (table,), f"surefoot presets {fits[0]}")


def _one(p: Preset, task: str) -> Report:
    task = task or _ready()[p.kind][0]
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
