"""surefoot tasks."""

from dataclasses import dataclass
from typing import Any

from surefoot.report import Column, Report, Table, Watch
from surefoot.task import Task
from surefoot.verbs.arguments import goal


@dataclass(frozen=True)
class Tasks:
    def run(self, watch: Watch) -> Report:
        from surefoot import tasks

        found = [_facts(tasks.resolve(name)) for name in tasks.names()]
        columns = ["task", "what", "success", Column("unknowns", form="d"), Column("rate", "Hz", ".0f")]
        rows = [[t["name"], t["about"], t["success"], len(t["params"]), t["rate"]] for t in found]
        return Report("tasks", {"tasks": found}, (Table.of(columns, rows),), "surefoot look hover")


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
