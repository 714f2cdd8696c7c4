"""What it is worth to have been pulled at: an arm trained without force, with all of it at once, and with a curriculum.

    python -m benchmarks.force [--quick] [--json] [--record]

Every contender learns for the same env steps with the task's settings, from the same seeds, over the same belief but for
`pull`: none of it, its whole range from the first step, or a range that grows. All are judged on the same worlds, starts
and pulls, which no training saw: the mean distance of the hand from where it should be, over an episode's last second.
Values are medians over seeds with the least and largest.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row
from benchmarks.robust import JUDGED, learned
from surefoot import tasks
from surefoot.belief import Box
from surefoot.learn.adr import ADR
from surefoot.learn.train import Grows, settings_for
from surefoot.learn.widen import Widen
from surefoot.task import Task
from surefoot.tasks.rollout import evaluate

GROWS: dict[str, Grows | None] = {
    "without": None,
    "fixed": None,
    "widen": Widen(step=0.25),
    "adr": ADR(episodes=5, step=0.25),
}
"""a run of 2000 episodes has time for about six steps of a range that twenty edges share"""


def pulled(task: Task, low: float, high: float) -> Box:
    """The task's belief, with pulls of so many N."""
    assert isinstance(task.belief, Box)
    at = np.arange(len(task.params)) == task.params.index("pull")
    return replace(task.belief, low=np.where(at, low, task.belief.low), high=np.where(at, high, task.belief.high))


def arm(quick: bool) -> Iterator[Row]:
    """Errors at home, over the belief and at its largest pull."""
    task = tasks.make("arm")
    assert isinstance(task.belief, Box)
    most, steps = task.belief.high[task.params.index("pull")], settings_for("arm").steps
    places = {
        "at home": tasks.nominal(task),
        "no pull": pulled(task, 0.0, 0.0),
        "over the belief": task.belief,
        "largest pull": pulled(task, most, most),
    }
    error: dict[tuple[str, str], list[float]] = {(kind, place): [] for kind in GROWS for place in places}
    width: dict[str, list[float]] = {kind: [] for kind, grows in GROWS.items() if grows is not None}
    for seed in range(1 if quick else 3):
        for kind, grows in GROWS.items():
            over = places["no pull" if kind == "without" else "over the belief"]
            policy, _, logged = learned(task, over, seed, 4096 if quick else steps, grows)
            for place, belief in places.items():
                found = evaluate(policy, tasks.env(task, 20 if quick else 500, belief, JUDGED))
                error[kind, place].append(1000 * float(found.error.mean()))
            if kind in width:
                width[kind].append(logged[-1]["width"])
    for (kind, place), values in error.items():
        yield row(f"{kind}: {place}", values, "mm")
    for kind, values in width.items():
        yield row(f"{kind}: width reached", values, "of the target's")
    for place in ("largest pull", "over the belief", "at home"):
        base = np.array(error["without", place])
        for kind in ("fixed", "widen", "adr"):
            goal = 0.5 if place == "largest pull" and kind in width else None
            yield row(f"{kind} / without: {place}", np.array(error[kind, place]) / base, "ratio", at_most=goal)


if __name__ == "__main__":
    measure.main("force", __doc__.split("\n")[0], {"arm": arm})
