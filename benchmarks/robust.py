"""What bearing many worlds is worth: randomized against nominal policies, and ranges that grow against fixed ones.

    python -m benchmarks.robust [--only variants|hover|grow|own|wider|brief|half|hard|impossible] [--quick] [--json] [--record]

Every contender of a part learns for the same env steps with the task's settings, from the same seeds, and is judged on
the same worlds and starts, which no training saw. Values are medians over seeds with the least and largest.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.lessons import JUDGED, by_seed, learned, within
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.ranges.doraemon import Doraemon
from surefoot.learn.ranges.ramp import Ramp
from surefoot.learn.ranges.widen import Widen
from surefoot.learn.train import Grows, settings_for
from surefoot.params import Params
from surefoot.policy import Policy
from surefoot.rng import stream
from surefoot.task import Task
from surefoot.tasks.rollout import Evaluation, evaluate

VARIANTS, EACH = 50, 20  # worlds, and episodes in each


def wide(task: Task) -> Box:
    """A belief wider than the task's own, where it has one here."""
    ranges: dict[str, dict[str, tuple[float, float]]] = {
        "balance": {
            "gravity": (8.0, 14.0), "cart_mass": (0.3, 3.0), "pole_mass": (0.05, 0.5), "strength": (0.4, 1.6),
            "rail_drag": (0.0, 2.0), "latency": (0.0, 0.06), "noise": (0.0, 0.1),
        },
        "hover": {"mass": (0.5, 2.0), "motor_time": (0.03, 0.1), "latency": (0.0, 0.02), "strength": (1.0, 1.0)},
    }  # fmt: skip
    return within(task, **ranges.get(task.name, {}))


def towards_all(task: Task, share: float) -> Box:
    """So much of the way from the task's own belief to all that its unknowns allow."""
    own, whole = task.belief, Box.full(task.params)
    assert isinstance(own, Box)
    return Box(task.params, own.low + share * (whole.low - own.low), own.high + share * (whole.high - own.high))


def judged(policy: Policy, task: Task, belief: Belief, worlds: int, each: int) -> Evaluation:
    e = np.repeat(belief.sample(stream(JUDGED, "variants"), worlds), each, 0)
    return evaluate(policy, tasks.env(task, len(e), belief, JUDGED), e=e)


def variants(quick: bool) -> Iterator[Row]:
    """balance in 50 worlds out of all that its unknowns allow: trained at home, and trained over all of them.

    Told the state once, as the task has it; and told five frames, from which a delay and a noise can be made out.
    """
    yield from _variants(quick, "balance, 1 frame", 1.3)
    yield from _variants(quick, "balance, 5 frames", 1.3)


def met(name: str) -> tuple[Task, Belief]:
    """What is trained on 50 variants, and what they are drawn from: "hover", "balance, 5 frames"."""
    task = tasks.resolve(name.split(",")[0])
    if task.name == "hover":
        return task, task.belief
    return tasks.with_override(task, tasks.ObsOverride(history=int(name.split()[1]))), Box.full(task.params)


def _contenders(seed: int, quick: bool, name: str) -> dict[str, dict[str, float]]:
    """Contender -> mean return, worst decile and success over the variants, with one seed."""
    (task, belief), found = met(name), {}
    steps, size = 4096 if quick else settings_for(task.name).steps, (5, 2) if quick else (VARIANTS, EACH)
    for kind, over in (("nominal", tasks.nominal(task)), ("randomized", belief)):
        result = judged(learned(task, over, seed, steps)[0], task, belief, *size)
        returns = result.returns.reshape(size).mean(1)
        found[kind] = {"mean": returns.mean(), "worst": np.quantile(returns, 0.1), "rate": result.rate}
        measure.said(f"{name}, seed {seed}, {kind}: mean return {returns.mean():.4g}")
    return found


def _variants(quick: bool, name: str, goal: float | None) -> Iterator[Row]:
    seeds = by_seed(partial(_contenders, name=name), 1 if quick else 5, quick)
    of = lambda what: {k: np.array([s[k][what] for s in seeds]) for k in seeds[0]}  # noqa: E731
    worst, mean, rates = of("worst"), of("mean"), of("rate")
    for kind in seeds[0]:
        yield row(f"{name}, {kind}: mean return over variants", mean[kind], "return")
        yield row(f"{name}, {kind}: worst decile", worst[kind], "return")
        yield row(f"{name}, {kind}: success over variants", rates[kind], "of episodes")
    yield row(f"{name}: randomized / nominal, mean", mean["randomized"] / mean["nominal"], "ratio", at_least=goal)
    better = (worst["randomized"] > worst["nominal"]).mean()
    yield row(f"{name}: seeds with a better worst decile", better, "of seeds", at_least=1.0 if goal else None)


GROWS: dict[str, Grows | None] = {"fixed": None, "widen": Widen(), "adr": ADR(), "doraemon": Doraemon()}


def contest(name: str) -> tuple[Task, Belief, int, dict[str, Any]]:
    """Task, target, env steps, changed settings: twice hover's and ten times balance's usual steps, as growing takes
    experience, and balance on more envs."""
    task = tasks.resolve(name.split(",")[0])
    if name == "balance":
        return task, wide(task), 2_000_000, {"envs": 256}
    targets = {"hover": task.belief, "hover, wide": wide(task), "hover, hard": towards_all(task, 0.5)}
    fewer = name.endswith(", 2 M steps")
    return task, targets[name.removesuffix(", 2 M steps")], 2_000_000 if fewer else 4_000_000, {}


def grow(quick: bool) -> Iterator[Row]:
    """Ranges as they are, and ranges that grow: success over the whole target after the same env steps."""
    yield from _grow(quick, "balance", at_most=0.05)


def own(quick: bool) -> Iterator[Row]:
    """The same on hover over its own belief, which is learned at once and soon."""
    yield from _grow(quick, "hover", at_most=0.05)


def wider(quick: bool) -> Iterator[Row]:
    """The same on hover of half to twice its mass, which can be learned at once and takes long."""
    yield from _grow(quick, "hover, wide", at_most=0.05)


def brief(quick: bool) -> Iterator[Row]:
    """The same target with a quarter of the steps, one seed: fixed ranges, today's ADR, and a ramp that ends early."""
    task, target, steps, _ = contest("hover, wide")
    rates = {}
    for kind, grows in {"fixed": None, "adr": ADR(), "ramp": Ramp(0.05, 0.4)}.items():
        policy, _, logged = learned(task, target, 0, 4096 if quick else steps // 4, grows)
        rates[kind] = evaluate(policy, tasks.env(task, 20 if quick else 500, target, JUDGED)).rate
        yield row(f"hover, wide, 1 M steps, {kind}: success over the target", rates[kind], "of episodes")
        if grows is not None:
            yield row(f"hover, wide, 1 M steps, {kind}: width reached", logged[-1]["width"], "of the target's")
            lost = rates["fixed"] - rates[kind]
            yield row(f"hover, wide, 1 M steps: fixed - {kind}", lost, "of episodes", at_most=0.05)


def half(quick: bool) -> Iterator[Row]:
    """The same target with half of the steps, 3 seeds: does growing bring successes sooner?"""
    yield from _grow(quick, "hover, wide, 2 M steps", at_most=0.05, kinds=("fixed", "adr", "doraemon"))


def hard(quick: bool) -> Iterator[Row]:
    """The same on a target that is too wide to begin with: a beginner hardly ever meets a world in which it can succeed."""
    yield from _grow(quick, "hover, hard", at_most=0.0)


def _grown(seed: int, quick: bool, name: str, kinds: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Way of growing -> what its last iteration logged, with its success over the target, with one seed."""
    found = {}
    task, target, steps, changes = contest(name)
    for kind in kinds:
        grows = GROWS[kind]
        policy, _, logged = learned(task, target, seed, 4096 if quick else steps, grows, **changes)
        rate = judged(policy, task, target, 10 if quick else 500, 1).rate
        found[kind] = logged[-1] | _promises(kind, logged) | {"rate": rate}
        width = "" if grows is None else f", width {logged[-1]['width']:.3f}"
        measure.said(f"{name}, seed {seed}, {kind}: success {rate:.3f}{width}")
    return found


def _grow(quick: bool, name: str, at_most: float, kinds: tuple[str, ...] = tuple(GROWS)) -> Iterator[Row]:
    seeds = by_seed(partial(_grown, name=name, kinds=kinds), 1 if quick else 3, quick)
    of = lambda kind, what: np.array([x[kind][what] for x in seeds])  # noqa: E731
    for kind in kinds:
        yield row(f"{name}, {kind}: success over the target", of(kind, "rate"), "of episodes")
    for kind in (k for k in kinds if k != "fixed"):
        yield row(f"{name}, {kind}: width reached", of(kind, "width"), "of the target's")
    for kind in ("adr", "doraemon"):
        lost = of("fixed", "rate") - of(kind, "rate")
        yield row(f"{name}: fixed - {kind}", lost, "of episodes", at_most=at_most)
    yield row(f"{name}, doraemon: entropy, of the most", of("doraemon", "gained"), "share", at_least=0.9)
    least, worst, most = Doraemon().alpha - 0.05, of("doraemon", "worst").min(), of("doraemon", "most").max()
    yield row(
        f"{name}, doraemon: least success at a step, once begun, of all seeds", worst, "of episodes", at_least=least
    )
    yield row(f"{name}, doraemon: largest KL of a step, of all seeds", most, "of eps", at_most=1.05)


def _promises(kind: str, logged: list[dict[str, float]]) -> dict[str, float]:
    """Of DORAEMON: how much of the entropy it began without it gained; of its steps, the least success they met after it
    first was enough, and the largest KL."""
    if kind != "doraemon":
        return {}
    enough = [i for i, x in enumerate(logged) if x["step_success"] >= Doraemon().alpha]
    began = enough[0] if enough else len(logged) - 1
    return {
        "gained": 1 - logged[-1]["ranges_entropy"] / logged[0]["ranges_entropy"],
        "worst": min(x["step_success"] for x in logged[began:]),
        "most": max(x["step_kl"] for x in logged) / Doraemon().eps,
    }


def impossible(quick: bool) -> Iterator[Row]:
    """balance with a motor that may be next to nothing, which no policy bears: its edge must stop, the others go on."""
    seeds = by_seed(_impossible, 1 if quick else 3, quick)
    low, others = np.array(seeds).T
    yield row("balance, strength: lower edge, of its range from 0", low, "0: all the way", at_least=0.05)
    yield row("balance, the others: mean width", others, "of the target's", at_least=0.9)


def _impossible(seed: int, quick: bool) -> tuple[float, float]:
    """Where ADR's lower edge of the motor's strength stands in the end, and how wide the others are, with one seed."""
    task = tasks.resolve("balance")
    task = replace(task, params=Params(tuple(replace(p, low=0.0) if p.name == "strength" else p for p in task.params)))
    ranges = {"strength": (0.0, 1.5), "gravity": (8.0, 14.0), "pole_mass": (0.05, 0.6), "cart_mass": (0.5, 4.0)}
    target = Box.ranges(task.params, ranges)
    index, free = task.params.index("strength"), target.low < target.high
    learner = learned(task, target, seed, 4096 if quick else 2_000_000, ADR(), envs=256)[1]
    assert learner.ranges is not None
    edges = learner.ranges.save()["edges"]
    return float(edges[0, index]), float(np.delete(edges[1] - edges[0], index)[np.delete(free, index)].mean())


def hover(quick: bool) -> Iterator[Row]:
    """hover in 50 worlds of its own belief. (walk: benchmarks.adapt, beside a student and a teacher.)"""
    yield from _variants(quick, "hover", None)


PARTS = {
    "variants": variants, "hover": hover, "grow": grow, "own": own, "wider": wider, "brief": brief, "half": half, "hard": hard, "impossible": impossible,
}  # fmt: skip

if __name__ == "__main__":
    measure.main("robust", __doc__.split("\n")[0], PARTS)
