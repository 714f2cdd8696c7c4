"""Does a simulator rank policies as a hidden reality does, before it has seen a log of it, and after?

Policies of graded skill are judged in the task's nominal world, in hidden realities (sim/realities), and in the world that
`identify` makes of a log of each: MMRV and Pearson between simulator and reality, with bootstrap intervals.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.measure import Row, row, said, skipped
from surefoot import shipped, tasks
from surefoot.belief import Belief, Box, point
from surefoot.contract import Contract
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.gate.statistics import Estimate
from surefoot.gate.statistics.ranking import Proxy, proxy
from surefoot.learn.nets.policy_net import linear
from surefoot.log import Log
from surefoot.policy import Policy, PolicyState
from surefoot.real2sim.episodes import logged
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.residual import residual_force
from surefoot.real2sim.residual.ensemble import FitSettings
from surefoot.rng import Normal, stream
from surefoot.sim.fields import TARGETS
from surefoot.sim.realities import Reality, realities, reality
from surefoot.task import Task
from surefoot.tasks.rollout import contract, evaluate
from surefoot.world import Term, World

Machine = Callable[[int, int], Env]
"""n, seed -> n episodes of it"""
JUDGED = 2000
REALITIES = 3  # of each kind
MILD = 0.3  # of the strengths that are drawn: on realities 100 to 103 the rates of the pilots spread from 0 to 1
CALM = 6  # of twelve: a calm hand, whose log is identified
STIR = 0.3  # sd of what is added to the actions while the log is made, so that it tells something
HOW = Identify(how="cma", horizons=(0.1, 0.3), longest=0.5, hold=0.0, rounds=0)


@dataclass(frozen=True)
class Shaky(Policy):
    """A policy whose hand shakes: white noise of `sd` on its actions, drawn from what it is told; timid or rash by `gain`."""

    contract: Contract
    policy: Policy
    sd: float
    gain: float = 1.0

    def init(self, n: int) -> PolicyState:
        return self.policy.init(n)

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        s, a = self.policy.step(s, obs)
        key = int(np.abs(np.asarray(obs, np.float64)).sum() * 1e6) % 2**31
        return s, self.gain * a + self.sd * Normal(0, *a.shape).draw(key, "shaky", 0)


def laws(task: Task, quick: bool) -> list[Policy]:
    """Twelve regulators of a pole: gains from timid to rash, hands from calm to shaking."""
    c = contract(task, tasks.env(task, 1).world)
    gains = [linear(c, {"cart_pole": k * np.array([[1.0, 2.0, 20.0, 4.0]])}) for k in (0.45, 0.7, 1.0, 1.6, 2.4, 3.5)]
    return [Shaky(c, g, sd) for g in gains for sd in (0.0, 0.6)]


def nets(task: Task, quick: bool) -> list[Policy]:
    """Ten pilots: trained in the nominal world and over the belief, hands from calm to shaking."""
    from surefoot.deploy import bundle
    from surefoot.learn.train import settings_for, train

    found: list[Policy] = []
    small = {"envs": 32, "horizon": 8, "steps": 512, "hidden": (16,)} if quick else {}
    beliefs: tuple[Belief, ...] = (tasks.nominal(task), task.belief)
    for belief in beliefs:
        with tempfile.TemporaryDirectory() as folder:
            path = train("hover", Path(folder) / "run", belief=belief, settings=settings_for("hover", small))
            net = bundle.load(path)
        found += [Shaky(net.contract, net, sd) for sd in (0.0, 0.15, 0.3, 0.5, 0.8)]
    return found


def pilots() -> list[Policy]:
    """Twelve pilots: the shipped one, timid to rash, hands from calm to shaking."""
    from surefoot.deploy import bundle

    net = bundle.load(shipped.located(Path("hover")))
    return [Shaky(net.contract, net, sd, gain) for gain in (0.5, 0.75, 1.0, 1.5) for sd in (0.0, 0.3, 0.6)]


def ranking(quick: bool) -> Iterator[Row]:
    makers: dict[str, tuple[Callable[[Task, bool], list[Policy]], int, float]] = {
        "balance": (laws, 6, 1.0),
        "hover": (
            nets,
            5,
            0.3,
        ),  # of the strengths that are drawn: at all of them every pilot is lost, and none is ranked
    }
    for name, (make, pilot, mild) in makers.items():
        task = tasks.resolve(name)
        policies = make(task, quick)
        for kind in ("wrong numbers", "missing physics"):
            said(f"{name}, {kind}: {len(policies)} policies")
            machines = [machine(task, kind, seed, mild) for seed in range(1 if quick else REALITIES)]
            yield from _ranked(task, policies, pilot, kind, machines, 10 if quick else 100)


def machine(task: Task, kind: str, seed: int, mild: float) -> Machine:
    """wrong numbers: every unknown of e is off at once. missing physics: 3 to 5 ingredients that no e names."""
    if kind == "wrong numbers":
        assert isinstance(task.belief, Box)
        e = point(task.params, reality(task.belief, seed))
        return lambda n, s: tasks.env(task, n, e, s)
    real = Reality(seed, {k: mild * s for k, s in realities(seed, task).strengths.items()})
    return lambda n, s: Env(task, real.world(task, n, 0), tasks.nominal(task), s)


def _ranked(
    task: Task, policies: list[Policy], pilot: int, kind: str, machines: list[Machine], episodes: int
) -> Iterator[Row]:
    """`pilot` is the one whose log is identified: a calm hand of middle gain, or trained over the belief."""
    home = _judged(policies, lambda n, s: tasks.env(task, n, seed=s), episodes)
    pairs: list[tuple[Proxy, Proxy]] = []
    for seed, real in enumerate(machines):
        there = _judged(policies, real, episodes)
        try:
            fit = identified(task, logged(policies[pilot], real(4, seed), stir=STIR))
            near = _judged(policies, lambda n, s, e=fit.e: tasks.env(task, n, point(task.params, e), s), episodes)
            rates = {"sim": home, "real": there, "after": near}
            said("; ".join([f"{seed}: {fit.words}", *(f"{k} {x.mean(1).round(2).tolist()}" for k, x in rates.items())]))
            before, after = (proxy(sim=s, real=there, rng=stream(seed, "ranking")) for s in (home, near))
            pairs.append((before, after))
        except SurefootError as error:  # nothing lasted long enough to be identified, or all policies are alike
            yield skipped(f"{task.name}, {kind}, reality {seed}", str(error))
    for k, words in enumerate(("before", "after") if pairs else ()):
        name = f"{task.name}, {kind}, {words} identification"
        yield _row(f"{name}: MMRV", [p[k].mmrv for p in pairs], {"at_most": 0.04} if k else {})
        yield _row(f"{name}: Pearson", [p[k].pearson for p in pairs], {"at_least": 0.9} if k else {})


def _row(name: str, estimates: list[Estimate], goal: dict[str, float]) -> Row:
    ends = [f"{e.low:.2f} .. {e.high:.2f}" if e.low is not None else "none" for e in estimates]
    note = f"95 % intervals over policies and episodes, a reality each: {'; '.join(ends)}"
    return row(name, [e.value for e in estimates], f"over {estimates[0].n} policies", note=note, **goal)


def _judged(policies: list[Policy], make: Machine, episodes: int) -> np.ndarray:
    """(policies, episodes) successes, on the same seeds."""
    return np.array([evaluate(p, make(episodes, JUDGED)).success for p in policies])


def bare(task: Task) -> tuple[World, Box]:
    """The task's robot with those of its unknowns that a log can tell, and what is believed of them."""
    assert isinstance(task.belief, Box)
    names = [p.name for p in task.params if p.target in TARGETS]
    params, at = task.params.only(names), [task.params.index(name) for name in names]
    prior = Box(params, task.belief.low[at], task.belief.high[at])
    plain = replace(task, params=params, belief=prior, terms=(), observations={"actor": task.observations["actor"]})
    return tasks.env(plain, 1).world, prior


@dataclass(frozen=True)
class Fit:
    """What identify makes of a log."""

    e: np.ndarray
    """of the task"""
    words: str
    left: float
    """of the prediction error before"""
    white: bool
    """whether it says that no physics is missing"""


def identified(task: Task, log: Log) -> Fit:
    """The best e within the task's belief for a log."""
    world, prior = bare(task)
    found = identify(world, prior, log, HOW)
    told = ", ".join(f"{p.name} {p.value:.3g}{'' if p.determined else '?'}" for p in found.params)
    before, after = np.array([*found.fit.values()]).T
    left = float(np.exp(np.log(np.maximum(after, 1e-12) / np.maximum(before, 1e-12)).mean()))
    return Fit(
        task.params.vector(dict(zip(prior.params.names, found.e))), f"identified {told}", left, bool(found.white)
    )


def lacking(quick: bool) -> Iterator[Row]:
    """Regulators of a pole where physics is missing."""
    task = tasks.resolve("balance")
    yield from _lacking(task, laws(task, quick), 1.0, 10 if quick else 100, quick)


def flown(quick: bool) -> Iterator[Row]:
    """Pilots of a quadrotor where physics is missing."""
    yield from _lacking(tasks.resolve("hover"), pilots(), MILD, 10 if quick else 40, quick)


def _lacking(task: Task, policies: list[Policy], mild: float, n: int, quick: bool) -> Iterator[Row]:
    """Policies ranked by the model, by identified numbers, and by each of them with a residual force.

    How much of the prediction error identification leaves, and whether it says that physics is missing, says which case it
    is before anything is ranked.
    """
    found = defaultdict[str, list[Proxy]](list)
    home = _judged(policies, lambda n, s: tasks.env(task, n, seed=s), n)
    for kind in ("wrong numbers", "missing physics"):
        said(f"{task.name}, {kind}")
        machines = [machine(task, kind, seed, mild) for seed in range(1 if quick else REALITIES)]
        logs = [logged(policies[CALM], real(4, seed), stir=STIR) for seed, real in enumerate(machines)]
        fits = [identified(task, log) for log in logs]
        title = f"{task.name}, {kind}"
        yield row(f"{title}: error that identification leaves", [f.left for f in fits], "of the error before")
        yield row(f"{title}: identify says that physics is missing", sum(not f.white for f in fits), f"of {len(fits)}")
    for seed, (real, log, fit) in enumerate(zip(machines, logs, fits)):
        there, rates = _judged(policies, real, n), {"model": home}
        for name, at, terms in _worlds(task, log, fit.e, quick):
            make = lambda n, s, at=at, terms=terms: tasks.env(task, n, point(task.params, at), s, terms=terms)  # noqa: E731
            rates[name] = _judged(policies, make, n)
        said(f"{seed}: {fit.words}; real {there.mean(1).round(2).tolist()}; " + "; ".join(f"{k} {x.mean(1).round(2).tolist()}" for k, x in rates.items()))  # fmt: skip
        for name, sim in rates.items():
            try:
                found[name].append(proxy(sim=sim, real=there, rng=stream(seed, "ranking")))
            except SurefootError as error:  # all policies are alike
                yield skipped(f"{title}, {name}, reality {seed}", str(error))
    for name, proxies in found.items():
        goal = name.endswith("residual force")
        yield _row(f"{title}, {name}: MMRV", [p.mmrv for p in proxies], {"at_most": 0.04} if goal else {})
        yield _row(f"{title}, {name}: Pearson", [p.pearson for p in proxies], {"at_least": 0.9} if goal else {})


def _worlds(task: Task, log: Log, e: np.ndarray, quick: bool) -> Iterator[tuple[str, np.ndarray, tuple[Term, ...]]]:
    """Name, e and Terms of each world that may rank in place of the model; without those that a log does not support."""
    world, prior = bare(task)
    settings = FitSettings(spans=(0.1,), rounds=1, updates=100) if quick else FitSettings()
    yield "identified", e, ()
    for name, at in (("model", task.params.nominal), ("identified", e)):
        try:
            known = at[[task.params.index(p) for p in prior.params.names]]
            it = residual_force(world, point(prior.params, known), log, settings)
            said(f"{name}: the residual force explains {it.share:.2f} of the squared error of what was left out")
            yield f"{name} and residual force", at, (it.term,)
        except SurefootError as error:
            said(f"{name}: no residual force: {error}")
