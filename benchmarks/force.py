"""What it is worth to have been pulled at: an arm trained without force, with all of it at once, and with a curriculum.

    python -m benchmarks.force [--only arm|alone] [--quick] [--json] [--record]

Every contender learns for the same env steps with the task's settings, from the same seeds, over the same belief but for
`pull`: none of it, its whole range from the first step, or a range that grows. All are judged on the same worlds, starts
and pulls, which no training saw: the mean distance of the hand from where it should be, over an episode's last second.
Values are medians over seeds with the least and largest.
"""

from collections.abc import Iterator, Mapping
from functools import partial

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
ALONE: dict[str, Grows | None] = {"without": None, "adr, pull alone": ADR(episodes=5, step=0.25, only=("pull",))}
"""the whole belief from the first step but for the pull"""


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
    where, grows = places(task), (GROWS | ALONE)[kind]
    over = where["no pull" if kind == "without" else "over the belief"]
    policy, _, logged = learned(task, over, seed, 4096 if quick else settings_for(task.name).steps, grows)
    judge = lambda belief: evaluate(policy, tasks.env(task, 20 if quick else 500, belief, JUDGED))  # noqa: E731
    error = {place: 1000 * float(judge(belief).error.mean()) for place, belief in where.items()}
    return error, logged[-1]["width"] if grows is not None else 1.0


def _contenders(seed: int, quick: bool, kinds: tuple[str, ...]) -> dict[str, tuple[dict[str, float], float]]:
    task = tasks.resolve("arm")
    return {kind: contender(task, kind, seed, quick) for kind in kinds}


def arm(quick: bool) -> Iterator[Row]:
    """Every range at once, from the first step or growing."""
    yield from compared(quick, GROWS)


def alone(quick: bool) -> Iterator[Row]:
    """The range of the pull alone grows."""
    yield from compared(quick, ALONE)


def compared(quick: bool, kinds: Mapping[str, Grows | None]) -> Iterator[Row]:
    """Errors at home, over the belief and at its largest pull, and their ratios to those of the one trained without."""
    task, seeds = tasks.resolve("arm"), by_seed(partial(_contenders, kinds=tuple(kinds)), 1 if quick else 3, quick)
    found = {kind: [s[kind] for s in seeds] for kind in kinds}
    error = {
        kind: {place: np.array([e[place] for e, _ in runs]) for place in places(task)} for kind, runs in found.items()
    }
    for kind, at in error.items():
        for place, values in at.items():
            yield row(f"{kind}: {place}", values, "mm")
        if kinds[kind] is not None:
            yield row(f"{kind}: width reached", [width for _, width in found[kind]], "of the target's")
    for place in ("largest pull", "over the belief", "at home"):
        for kind in (k for k in kinds if k != "without"):
            goal = 0.5 if place == "largest pull" and kinds[kind] is not None else None
            ratio = error[kind][place] / error["without"][place]
            yield row(f"{kind} / without: {place}", ratio, "ratio", at_most=goal)


if __name__ == "__main__":
    measure.main("force", __doc__.split("\n")[0], {"arm": arm, "alone": alone})
