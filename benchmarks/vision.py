"""What bearing many looks is worth to a policy that sees by a camera: trained in one look, and over a belief of looks.

    python -m benchmarks.vision [--only looks|rate] [--quick] [--json] [--record]

One teacher, told the state, learns over the physics of balance-camera. Students told pixels alone learn from it by
DAgger for the same env steps from the same seeds: in the nominal look, or over the task's belief of looks. All are judged
with nominal physics in the same looks, which no training drew. Values are medians over seeds with the least and largest.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from benchmarks import measure
from benchmarks.lessons import JUDGED, learned, taught
from benchmarks.measure import Row, row, seconds
from surefoot import tasks
from surefoot.belief import Box
from surefoot.learn.settings import DistillSettings
from surefoot.rng import stream
from surefoot.tasks.ready.balance_camera import RANGES
from surefoot.tasks.rollout import evaluate

VARIANTS, SEEDS = 40, 3
HOME = 10  # episodes in the nominal look
STEPS, TEACHER = 50_000, 200_000  # of each student, and of their teacher


def looks(quick: bool) -> Iterator[Row]:
    """Students of one look and of many, in looks none of them saw: return and success, mean and worst decile."""
    task = tasks.resolve("balance-camera")
    state = tasks.with_override(
        task, tasks.teachers(task, tasks.ObsOverride())
    )  # told it, over the whole belief; no pixel is drawn
    lesson = replace(DistillSettings(**task.lesson), label="action", steps=2048 if quick else STEPS)
    teacher = learned(state, task.belief, 0, 4096 if quick else TEACHER)[0]
    belief, n = Box.ranges(task.params, RANGES), 4 if quick else VARIANTS
    met = belief.sample(stream(JUDGED, "looks"), n)
    best = evaluate(teacher, tasks.env(state, n, seed=JUDGED), e=met).returns.mean()
    yield row("teacher, told the state: return", best, "return")
    mean: dict[str, list[float]] = {"one look": [], "many looks": []}
    worst, rate, home = ({k: [] for k in mean} for _ in range(3))
    for seed in range(1 if quick else SEEDS):
        for kind, over in (("one look", tasks.nominal(task)), ("many looks", belief)):
            policy = taught(task, over, teacher, seed, lesson)
            found = evaluate(policy, tasks.env(task, n, belief, JUDGED), e=met)
            mean[kind].append(float(found.returns.mean()))
            worst[kind].append(float(np.quantile(found.returns, 0.1)))
            rate[kind].append(found.rate)
            home[kind].append(float(evaluate(policy, tasks.env(task, HOME, seed=JUDGED)).returns.mean()))
    for kind in mean:
        yield row(f"{kind}: mean return over {n} looks", mean[kind], "return")
        yield row(f"{kind}: worst decile", worst[kind], "return")
        yield row(f"{kind}: success over looks", rate[kind], "of episodes")
        yield row(f"{kind}: mean return in the nominal look", home[kind], "return")
    yield row(
        "many / one, mean return over looks", np.array(mean["many looks"]) / mean["one look"], "ratio", at_least=1.3
    )
    better = (np.array(worst["many looks"]) > worst["one look"]).mean()
    yield row("seeds in which many looks have the better worst decile", better, "of seeds", at_least=1.0)


def rate(quick: bool) -> Iterator[Row]:
    """Pictures a second, each with its own look, and what of an env step they leave."""
    task = tasks.resolve("balance-camera")
    n, pixels = 8 if quick else 64, task.observations["actor"].terms[0].source
    envs = {
        "pixels": tasks.env(task, n, task.belief),
        "state": tasks.env(tasks.with_actor_terms(task, ["cart_pole"], 1), n, task.belief),
    }
    for env in envs.values():
        env.reset()
    now, push = envs["pixels"].moment, np.zeros((n, 1))
    pixels(now)
    each = [n / seconds(lambda: pixels(now)) for _ in range(measure.PAIRS)]
    yield row(f"pictures, {n} looks in turn", each, "a second")
    steps = measure.interleaved({k: lambda env=env: n / seconds(lambda: env.step(push)) for k, env in envs.items()})
    for kind, found in steps.items():
        yield row(f"env steps, actor told {kind}", found, "a second")


PARTS = {"rate": rate, "looks": looks}

if __name__ == "__main__":
    measure.main("vision", __doc__.split("\n")[0], PARTS)
