"""Presets as a person reads them: what each randomizes and where that is written, and what it comes to on a task."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.table import Column, Table

from surefoot import presets, tasks
from surefoot.errors import SurefootError
from surefoot.presets import Fit, Preset


def listing(name: str, task: str) -> tuple[dict[str, Any], list[Any], str]:
    """Facts, things to print and the next command: of one preset, of those that fit a task, or of all."""
    if name:
        return _one(presets.find(name), task)
    fits = presets.fitting(tasks.resolve(task)) if task else list(presets.PRESETS)
    ready = _ready()
    if not fits:
        raise SurefootError(f"task {task}: no preset fits; try {', '.join(t for ts in ready.values() for t in ts)}")
    table = Table(Column("preset", no_wrap=True), "robot", "for", "randomizes", Column("source", overflow="fold"))
    for p in (presets.PRESETS[k] for k in fits):
        what = ", ".join([*p.ranges, *(["noise"] if p.noise else [])])
        table.add_row(p.name, p.robot, ", ".join(ready[p.kind]), what, p.source.repository)
    facts = [_facts(presets.PRESETS[k]) | {"tasks": ready[presets.PRESETS[k].kind]} for k in fits]
    return {"presets": facts}, [table], f"surefoot presets {fits[0]}"


def _one(p: Preset, task: str) -> tuple[dict[str, Any], list[Any], str]:
    task = task or _ready()[p.kind][0]
    fit = presets.fit(tasks.resolve(task), p.name)
    facts = _facts(p) | {
        "task": task,
        "ranges": [asdict(row) for row in fit.rows],
        "unnamed": list(fit.unnamed),
        "belief": fit.belief.to_json(),
    }
    head = f"{p.name}: {p.robot}, from {p.source.repository}, {p.source.path} ({p.source.version})"
    lost = [f"not in {task}: {what}" for what in fit.unnamed]
    return facts, [head, _table(fit, task), *lost], f"surefoot train {task} --belief {p.name}"


def _table(fit: Fit, task: str) -> Table:
    table = Table("unknown", f"in {task}", "unit", "the source", "note")
    for row in fit.rows:
        p = fit.belief.params[row.name]
        table.add_row(row.name, f"{row.used[0]:.4g} .. {row.used[1]:.4g}", p.unit or "-", row.said, row.note)
    return table


def _facts(p: Preset) -> dict[str, Any]:
    return {"name": p.name, "robot": p.robot, "source": asdict(p.source)} | {
        "says": {k: r.said for k, r in p.ranges.items()},
        "noise_sd": dict(p.noise),
        "others": list(p.others),
    }


def _ready() -> Mapping[str, list[str]]:
    """Kind of robot -> the ready tasks with one, of those that presets are made for."""
    kinds: dict[str, list[str]] = {p.kind: [] for p in presets.PRESETS.values()}
    for name in tasks.names():
        kinds.get(tasks.resolve(name).robot, []).append(name)
    return kinds
