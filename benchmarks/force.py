"""What it is worth to have been pulled at: an arm trained without force, with all of it at once, and with a curriculum.

    python -m benchmarks.force [--quick] [--json] [--record]

Every contender learns for the same env steps with the task's settings, from the same seeds, over the same belief but for
`pull`: none of it, its whole range from the first step, or a range that grows. All are judged on the same worlds, starts
and pulls, which no training saw: the mean distance of the hand from where it should be, over an episode's last second.
Values are medians over seeds with the least and largest.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks import measure
from benchmarks.lessons import JUDGED, by_seed, learned, within
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.ranges.widen import Widen
from surefoot.learn.train import Grows, settings_for
from surefoot.task import Task
from surefoot.tasks.rollout import evaluate

GROWS: dict[str, Grows | None] = {
    "without": None,
    "fixed": None,
    "widen": Widen(step=0.25),
    "adr": ADR(episodes=5, step=0.25),
}
"""a run of 2000 episodes has time for about six steps of a range that twenty edges share"""


def places(task: Task) -> dict[str, Belief]:
    """Where a policy is judged."""
    assert isinstance(task.belief, Box)
    most = float(task.belief.high[task.params.index("pull")])
    return {
        "at home": tasks.nominal(task),
        "no pull": within(task, pull=(0.0, 0.0)),
        "over the belief": task.belief,
        "largest pull": within(task, pull=(most, most)),
    }


def contender(task: Task, kind: str, seed: int, quick: bool) -> tuple[dict[str, float], float]:
    """Train one: its error at each place, in mm, and how wide its ranges were in the end."""
    where, grows = places(task), GROWS[kind]
    over = where["no pull" if kind == "without" else "over the belief"]
    policy, _, logged = learned(task, over, seed, 4096 if quick else settings_for(task.name).steps, grows)
    judge = lambda belief: evaluate(policy, tasks.env(task, 20 if quick else 500, belief, JUDGED))  # noqa: E731
    error = {place: 1000 * float(judge(belief).error.mean()) for place, belief in where.items()}
    return error, logged[-1]["width"] if grows is not None else 1.0


def _contenders(seed: int, quick: bool) -> dict[str, tuple[dict[str, float], float]]:
    task = tasks.resolve("arm")
    return {kind: contender(task, kind, seed, quick) for kind in GROWS}


def arm(quick: bool) -> Iterator[Row]:
    """Errors at home, over the belief and at its largest pull, and their ratios to those of the one trained without."""
    task, seeds = tasks.resolve("arm"), by_seed(_contenders, 1 if quick else 3, quick)
    found = {kind: [s[kind] for s in seeds] for kind in GROWS}
    error = {
        kind: {place: np.array([e[place] for e, _ in runs]) for place in places(task)} for kind, runs in found.items()
    }
    for kind, at in error.items():
        for place, values in at.items():
            yield row(f"{kind}: {place}", values, "mm")
        if GROWS[kind] is not None:
            yield row(f"{kind}: width reached", [width for _, width in found[kind]], "of the target's")
    for place in ("largest pull", "over the belief", "at home"):
        for kind in ("fixed", "widen", "adr"):
            goal = 0.5 if place == "largest pull" and GROWS[kind] is not None else None
            ratio = error[kind][place] / error["without"][place]
            yield row(f"{kind} / without: {place}", ratio, "ratio", at_most=goal)


if __name__ == "__main__":
    measure.main("force", __doc__.split("\n")[0], {"arm": arm})
