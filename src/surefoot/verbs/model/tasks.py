"""surefoot tasks."""

from dataclasses import dataclass
from typing import Any

from surefoot import shipped
from surefoot.errors import SurefootError
from surefoot.gate.report import badge
from surefoot.report import Note, Report, Table, Text, Watch
from surefoot.task import Task
from surefoot.verbs.arguments import goal

WORDS = """lasts, error: an episode succeeds if it lasts this long with an error within this
policy: the gate's verdict on a trained policy that comes with surefoot; use the
        task's name in place of a run: surefoot play TASK, eval TASK, gate TASK"""


@dataclass(frozen=True)
class Tasks:
    def run(self, watch: Watch) -> Report:
        from surefoot import tasks

        found, broken = [], []
        for name in tasks.names():
            try:
                found.append(_facts(name, tasks.resolve(name)))
            except SurefootError as error:  # of an installed package: the others are listed all the same
                broken.append({"name": name, "error": str(error)})
        columns = ["task", "what", "lasts, error", "policy"]
        rows = [[t["name"], t["about"], t["limits"], t["policy"]["verdict"][:4] if t["policy"] else "-"] for t in found]
        notes = (Note(f"{t['name']} does not load: {t['error']}", True) for t in broken)
        facts = {"tasks": found} | ({"broken": broken} if broken else {})
        following = f"surefoot play {shown[0]}" if (shown := shipped.names()) else "surefoot look hover"
        return Report("tasks", facts, (Table.of(columns, rows), Text(WORDS), *notes), following)


def _facts(name: str, task: Task) -> dict[str, Any]:
    from surefoot.sim.model.load import load_robot

    timestep = float(load_robot(task.robot).spec.option.timestep)
    return {
        "name": task.name,
        "about": task.about,
        "success": goal(task),
        "limits": f"{task.seconds:g} s, {task.tolerance:.3g} {task.error_unit}",
        "rate": 1 / (task.substeps * timestep),
        "params": task.params.names,
        "rewards": {k: {"weight": r.weight, "about": r.about} for k, r in task.rewards.items()},
        "policy": _policy(name) if name in shipped.names() else None,
    }


def _policy(name: str) -> dict[str, Any]:
    """What is recorded of a task's shipped policy."""
    rate = shipped.evaluation(name)
    recorded = {k: rate[k] for k in ("episodes", "success", "success_low", "success_high")}
    return {"verdict": badge(shipped.verdict(name)).words} | recorded
