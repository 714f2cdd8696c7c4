"""State estimation on the walking quadruped: how far off, how honest, how fast, and what a policy makes of it.

    python -m benchmarks.estimate [--only filter|step|told|policies] [--quick] [--json] [--record]

A policy that walks drives robots drawn from the task's belief: sensor noise, gyro and accelerometer bias, latency, friction,
pushes. Every filter gets the same readings. Errors are those of the base's velocity, half a second into an episode and later.
Policies are trained into runs/estimate (or the folder that SUREFOOT_RUNS names) where they are not there yet; each takes a
quarter of an hour and more. `told` tells one of them the truth and the estimate in turn; `policies` judges four of them in the same worlds, which no training saw.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.lessons import JUDGED
from benchmarks.measure import Row, row, said
from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.deploy import bundle
from surefoot.env import Env
from surefoot.estimate.abstract import Estimate, Estimator, EstimatorState
from surefoot.estimate.invariant import InvariantFilter
from surefoot.estimate.learned import LearnedEstimator
from surefoot.observation import Formula, ObsTerm
from surefoot.policy import Driver, Policy
from surefoot.special import chi2_quantile
from surefoot.task import Task
from surefoot.tasks import ObsOverride
from surefoot.tasks.rollout import evaluate
from surefoot.tasks.terms import quantities

RUNS = Path(os.environ.get("SUREFOOT_RUNS", "runs/estimate"))
STEPS = 2_000_000
SETTLED = 25  # control periods after which an error counts
KINDS: dict[str, dict[str, Any]] = {
    "neither": {"task": "walk"},
    "true": {"task": "walk", "obs": ObsOverride(also=("base_lin_vel",))},
    "estimate": {"task": "walk-estimate"},
    "learned": {"task": "walk", "obs": ObsOverride(history=10), "changes": {"encoder": "conv", "estimate": ("base_lin_vel",)}},
}  # fmt: skip
"""what an actor observes of its velocity: nothing, the truth, the filter's estimate, what its own encoder estimates"""


def policy(kind: str) -> bundle.OnnxPolicy:
    """Trained as KINDS says, unless it is there."""
    folder = RUNS / kind
    if not (folder / bundle.NAME).exists():
        from surefoot.learn import train as learn

        how = KINDS[kind]
        said(f"training {kind}")
        settings = learn.settings_for(how["task"], {"steps": STEPS, "learner_threads": 1, **how.get("changes", {})})
        learn.train(
            how["task"], folder, belief=tasks.resolve(how["task"]).belief, settings=settings, obs=how.get("obs")
        )
    return bundle.load(folder)


@dataclass(frozen=True, eq=False)
class Several(Estimator):
    """Filters side by side, of the same readings; an observation gets what the first one tells."""

    filters: Mapping[str, InvariantFilter]
    inputs: tuple[ObsTerm, ...]
    dt: float

    @property
    def first(self) -> InvariantFilter:
        return next(iter(self.filters.values()))

    @property
    def quantities(self) -> Mapping[str, tuple[int, str]]:
        return self.first.quantities

    def init(self, n: int) -> EstimatorState:
        return {f"{k}.{name}": v for k, f in self.filters.items() for name, v in f.init(n).items()}

    def of(self, s: EstimatorState, k: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(f"{k}."): v for name, v in s.items() if name.startswith(f"{k}.")}

    def step(self, s: EstimatorState, frame: np.ndarray) -> EstimatorState:
        ends = np.cumsum([t.dim for t in self.inputs]).tolist()
        at = {t.name: frame[:, end - t.dim : end] for t, end in zip(self.inputs, ends)}
        made = {
            k: f.step(self.of(s, k), np.concatenate([at[t.name] for t in f.inputs], 1)) for k, f in self.filters.items()
        }
        return {f"{k}.{name}": v for k, own in made.items() for name, v in own.items()}

    def terms(self, s: EstimatorState, names: Sequence[str] = ()) -> dict[str, Estimate]:
        return self.first.terms(self.of(s, next(iter(self.filters))), names)

    def with_inputs(self, inputs: tuple[ObsTerm, ...]) -> "Several":
        return replace(self, inputs=inputs)

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError


def contenders(f: InvariantFilter) -> dict[str, InvariantFilter]:
    torque = ObsTerm("joint_torque", Formula("reading", reading="joint_torque"), 12, "N m", noise=0.25)
    return {
        "filter": f,
        "IMU alone": replace(f, contact=replace(f.contact, least=1e6)),  # no foot ever bears
        "slip not looked for": replace(f, contact=replace(f.contact, gate=1e6), sd=replace(f.sd, joint_vel=1e4)),
        "contacts by torque": replace(f, inputs=(*f.inputs[:-1], torque)),
    }


def watched(task: Task, belief: Belief, drive: Policy, n: int, seconds: float) -> dict[str, np.ndarray]:
    """Errors (rows, 3) and NEES (rows,) of every filter, over all robots and periods that count."""
    assert isinstance(task.estimator, InvariantFilter)
    filters = contenders(task.estimator)
    inputs = {t.name: t for f in filters.values() for t in f.inputs}
    several = Several(filters, tuple(inputs.values()), task.estimator.dt)
    actor = replace(task.observations["actor"], estimator=several)
    task = replace(task, observations={"actor": actor}, estimator=several, symmetry=None)
    env, width = tasks.env(task, n, belief, JUDGED), drive.contract.obs_dim
    known = [t.name for t in drive.contract.terms]
    assert known == [t.name for t in actor.terms][: len(known)]
    found: dict[str, list[np.ndarray]] = {f"{what} {k}": [] for k in filters for what in ("error", "nees")}
    obs, driver = env.reset()["actor"], Driver(drive, n)
    for _ in range(round(seconds / env.world.dt)):
        obs = env.step(driver(obs[:, :width])).obs["actor"]
        note(found, env, several)
    return {k: np.concatenate(v) for k, v in found.items()}


def note(found: dict[str, list[np.ndarray]], env: Env, several: Several) -> None:
    truth, counts = quantities.base_lin_vel(env.moment), env.age > SETTLED
    for k, f in several.filters.items():
        e = f.terms(several.of(env.observer.estimator_state, k), ["base_lin_vel"])["base_lin_vel"]
        found[f"error {k}"].append((e.value - truth)[counts])
        found[f"nees {k}"].append(e.nees(truth)[counts])


def rmse(error: np.ndarray) -> float:
    """m/s, of the whole vector."""
    return float(np.sqrt((error**2).sum(1).mean()))


def filter_(quick: bool) -> Iterator[Row]:
    """Errors and consistency over the belief, and on ice: friction of 0.15 to 0.35 where the belief begins at 0.4."""
    task, drive = tasks.resolve("walk-estimate"), policy("neither")
    low, high = chi2_quantile(0.025, 3), chi2_quantile(0.975, 3)
    assert isinstance(task.belief, Box)
    for place, belief in {"over the belief": task.belief, "on ice": slippery(task.belief)}.items():
        got = watched(task, belief, drive, 8 if quick else 64, 1.0 if quick else 20.0)
        goal = place == "over the belief"
        for k in contenders(task.estimator):  # type: ignore[arg-type]
            own = goal and k == "filter"
            yield row(f"{place}: {k}: velocity RMSE", rmse(got[f"error {k}"]), "m/s", at_most=0.1 if own else None)
            nees = got[f"nees {k}"]
            inside = float(((nees > low) & (nees < high)).mean())
            yield row(f"{place}: {k}: NEES in its 95 % band", inside, "share", at_least=0.9 if own else None,
                      note=f"below {float((nees <= low).mean()):.3f}, above {float((nees >= high).mean()):.3f}, mean {float(nees.mean()):.3g} of 3")  # fmt: skip


def slippery(belief: Box) -> Box:
    low, high, i = belief.low.copy(), belief.high.copy(), belief.params.index("friction")
    low[i], high[i] = 0.15, 0.35
    return Box(belief.params, low, high)


def step(quick: bool) -> Iterator[Row]:
    """One row, as on a robot: a step of the filter, and what an observation reads of it; one thread of BLAS."""
    task = tasks.resolve("walk-estimate")
    f = task.estimator
    assert isinstance(f, InvariantFilter)
    env = tasks.env(task, 1, task.belief, 0, 1)
    env.reset()
    s, steps, reads = f.init(1), [], []
    for k in range(50 if quick else 3000):
        env.step(0.3 * np.sin(0.3 * k + np.arange(12.0))[None])
        frame = np.concatenate(
            [np.asarray(t.formula(env.sensed()), float) for t in f.inputs if t.formula is not None], 1
        )
        began = time.perf_counter()
        s = f.step(s, frame)
        middle = time.perf_counter()
        f.readings(s, ["estimate/base_lin_vel"])
        steps.append(1e6 * (middle - began))
        reads.append(1e6 * (time.perf_counter() - middle))
    for name, spent in (("step", steps), ("velocity and covariance of it", reads)):
        for q, share in (("least", 0), ("median", 50), ("99 %", 99)):
            goal = 50.0 if name == "step" and q == "median" else None
            yield row(f"{name}, one row: {q}", float(np.percentile(spent, share)), "us", at_most=goal)
    yield many(f, quick)


def many(f: InvariantFilter, quick: bool) -> Row:
    """As in training."""
    n = 512
    frame = np.zeros((n, sum(t.dim for t in f.inputs)))
    frame[:, f.at["base_lin_acc"]], frame[:, f.at["foot_force"]] = [0, 0, 9.81], 30.0
    s = f.step(f.init(n), frame)
    spent = []
    for _ in range(2 if quick else 50):
        began = time.process_time()
        s = f.step(s, frame)
        spent.append(1e6 * (time.process_time() - began) / n)
    return row(f"step, {n} rows: each", spent, "us of CPU")


def told(quick: bool) -> Iterator[Row]:
    """One policy that learned with the true velocity, in the same worlds: told the truth, the filter's estimate, and nothing."""
    own, task = policy("true"), tasks.resolve("walk-estimate")
    error: dict[str, float] = {}
    gained: dict[str, float] = {}  # of all episodes: those that fall soon have the smallest errors
    sources = {
        "the truth": quantities.base_lin_vel,
        "the estimate": Formula("estimate", reading="base_lin_vel"),
        "nothing": lambda s: 0.0 * quantities.base_lin_vel(s),
    }
    for name, source in sources.items():
        actor = tasks.for_contract(task, own.contract).observations["actor"]
        terms = tuple(replace(t, source=source) if t.name == "base_lin_vel" else t for t in actor.terms)
        group = replace(actor, terms=terms, estimator=task.estimator if name == "the estimate" else None)
        alone = replace(task, observations={"actor": group}, symmetry=None)
        found = evaluate(own, tasks.env(alone, 8 if quick else 100, task.belief, JUDGED))
        error[name], gained[name] = float(np.nanmean(found.error)), float(found.returns.mean())
        note = f"{found.rate:.2f} succeed; ended: {found.reasons}"
        yield row(f"told {name}: velocity error of episodes that last", error[name], "m/s", note=note)
        yield row(f"told {name}: return", gained[name], "")
    ratio = error["the estimate"] / error["the truth"]
    yield row("the estimate / the truth: velocity error", ratio, "ratio", at_most=1.05)
    yield row("the estimate / the truth: return", gained["the estimate"] / gained["the truth"], "ratio", at_least=0.95)
    yield row("the estimate / nothing: return", gained["the estimate"] / gained["nothing"], "ratio", at_least=1.0)


def policies(quick: bool) -> Iterator[Row]:
    """Policies that are told nothing of their velocity, the truth, the filter's estimate, or learn to estimate it."""
    task = tasks.resolve("walk-estimate")
    error: dict[str, float] = {}
    gained: dict[str, float] = {}
    for kind in KINDS:
        own = policy(kind)
        env = tasks.env(tasks.for_contract(task, own.contract), 8 if quick else 200, task.belief, JUDGED)
        found = evaluate(own, env)
        error[kind], gained[kind] = float(np.nanmean(found.error)), float(found.returns.mean())
        yield row(f"{kind}: velocity error", error[kind], "m/s", note=f"{own.about.get('about', {})}"[:200])
        yield row(f"{kind}: success", found.rate, "share", note="{:.3f} to {:.3f}".format(*found.interval))
        yield row(f"{kind}: return", gained[kind], "")
        if kind == "learned":
            yield from estimated(own, env)
    yield row("estimate / true: velocity error", error["estimate"] / error["true"], "ratio", at_most=1.05)
    yield row("estimate / neither: velocity error", error["estimate"] / error["neither"], "ratio", at_most=1.0)
    yield row("estimate / neither: return", gained["estimate"] / gained["neither"], "ratio", at_least=1.0)
    yield row("learned / true: velocity error", error["learned"] / error["true"], "ratio")


def estimated(own: bundle.OnnxPolicy, env: Env) -> Iterator[Row]:
    """What the policy's encoder estimates, against the truth."""
    e = LearnedEstimator(lambda x: own.graph.run(x, "estimate"), {"base_lin_vel": (3, "m/s")}, env.world.dt)
    obs, errors, nees = env.reset()["actor"], [], []
    for _ in range(500):
        tells = e.terms(e.step(e.init(env.n), obs))["base_lin_vel"]
        truth, counts = quantities.base_lin_vel(env.moment), env.age > SETTLED
        errors.append((tells.value - truth)[counts])
        nees.append(tells.nees(truth)[counts])
        obs = env.step(own(obs)).obs["actor"]
    inside = np.concatenate(nees)
    low, high = chi2_quantile(0.025, 3), chi2_quantile(0.975, 3)
    yield row("learned: velocity RMSE of its estimate", rmse(np.concatenate(errors)), "m/s")
    yield row("learned: NEES in its 95 % band", float(((inside > low) & (inside < high)).mean()), "share")


if __name__ == "__main__":
    measure.main(
        "estimate",
        __doc__.split("\n")[0],
        {"filter": filter_, "step": step, "told": told, "policies": policies},
        ("policies",),
    )
