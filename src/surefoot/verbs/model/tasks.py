"""surefoot tasks."""

from dataclasses import dataclass
from typing import Any

from surefoot.errors import SurefootError
from surefoot.report import Column, Note, Report, Table, Watch
from surefoot.task import Task
from surefoot.verbs.arguments import goal


@dataclass(frozen=True)
class Tasks:
    def run(self, watch: Watch) -> Report:
        from surefoot import tasks

        found, broken = [], []
        for name in tasks.names():
            try:
                found.append(_facts(tasks.resolve(name)))
            except SurefootError as error:  # of an installed package: the others are listed all the same
                broken.append({"name": name, "error": str(error)})
        columns = ["task", "what", "success", Column("unknowns", form="d"), Column("rate", "Hz", ".0f")]
        rows = [[t["name"], t["about"], t["success"], len(t["params"]), t["rate"]] for t in found]
        notes = (Note(f"{t['name']} does not load: {t['error']}", True) for t in broken)
        facts = {"tasks": found} | ({"broken": broken} if broken else {})
        return Report("tasks", facts, (Table.of(columns, rows), *notes), "surefoot look hover")


def _facts(task: Task) -> dict[str, Any]:
    from surefoot.sim.model.load import load_robot

    timestep = float(load_robot(task.robot).spec.option.timestep)
    return {
        "name": task.name,
        "about": task.about,
        "success": goal(task),
        "rate": 1 / (task.substeps * timestep),
        "params": task.params.names,
        "rewards": {k: {"weight": r.weight, "about": r.about} for k, r in task.rewards.items()},
    }
