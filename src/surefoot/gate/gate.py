"""gate: may this policy leave the simulator? A Verdict, line by line, each with its interval and evidence.

    home    success in the nominal world, and, where that fails, what in the contract would explain it
    worlds  over the belief, in the worst decile of its worlds, by a search for rare failures
    other   in each engine asked for, in each hidden reality
    motion  torque, speed, smoothness, energy        margins  latency, push

Every column meets the same episodes, and stops as soon as its answer is clear. What fails at home is not taken further.
Stopped by hand, what is known stays.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.gate import checks, lineage, margins, suspects
from surefoot.gate.candidate import Candidate
from surefoot.gate.checks import Limits
from surefoot.gate.motion import watched
from surefoot.gate.runs import BATCH, Make, Runs, episodes, until_clear
from surefoot.gate.statistics import needed
from surefoot.gate.statistics.sequential import RateTest
from surefoot.gate.worst import search
from surefoot.report import Progress, Watch, jsonable, unwatched
from surefoot.sim.engines import DEFAULT, known
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import model_of
from surefoot.sim.realities import Reality, realities
from surefoot.verdict import Check, Verdict

JUDGED = 1000  # what the seeds of the gate's episodes are made from
WORST, SEARCHED = 500, 600  # how far after the first seed those of the worst decile and of the search are
TENTH = 0.1
ALL = tuple(range(10))  # realities


@dataclass(frozen=True)
class Plan:
    """What is asked, and how many episodes it may take."""

    engines: tuple[str, ...] = (DEFAULT,)
    realities: tuple[int, ...] = ()
    episodes: int = 200
    """at most, in each column"""
    claim: float | None = None
    """a success rate to be claimed over the belief"""
    level: float = 0.95
    seed: int = JUDGED
    """what the seeds of its episodes are made from: they are `rng.judging(seed)` and those after it"""
    rungs: int = 40
    """episodes at each load of a margin"""
    watched: int = 30
    """episodes whose motion is looked at"""
    again: int = 5
    """fresh episodes in each world of the worst decile"""
    search: tuple[int, int, int] = (60, 40, 100)
    """episodes to find a failure, to learn where they are, to judge how often they come up"""
    threads: int = 0

    def __post_init__(self) -> None:
        if self.episodes < 20:
            raise SurefootError(
                f"episodes: found {self.episodes}, expected at least 20 to watch anything of a tenth of them"
            )
        for engine in self.engines:
            known(engine, "--in")
        if self.claim is not None:
            if not 0.5 <= self.claim < 1:
                raise SurefootError(f"claim: found {self.claim}, expected a success rate from 0.5 to below 1")
            least = needed(round(1 - self.claim, 12), self.level)
            if self.episodes < least:
                raise SurefootError(
                    f"claim: {self.episodes} episodes cannot bear 'at most {100 * (1 - self.claim):g} % fail' at "
                    f"{100 * self.level:g} %, not even without a failure: it takes {least}; expected --episodes {least} or more"
                )

    @property
    def seeds(self) -> int:
        """How many seeds it may use: one a batch, then those of the worst decile and of the search."""
        return max(SEARCHED + sum(self.search), -(-self.episodes // BATCH))

    def thorough(self) -> "Plan":
        """More of everything, in a finer engine and in all realities too, unless others were asked for."""
        engines = self.engines if self.engines != (DEFAULT,) else (DEFAULT, "mujoco:half-step")
        more = replace(self, episodes=max(self.episodes, 1000), rungs=100, watched=100, search=(200, 200, 400))
        return replace(more, engines=engines, realities=self.realities or ALL)


@dataclass
class Found:
    """What is known so far."""

    checks: list[Check] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    suspects: list[dict[str, Any]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    """seeds of realities it fails in"""
    blamed: str = ""
    """the unknown that parts failures from successes over the belief"""
    interrupted: bool = False


def gate(
    who: Candidate, belief: Belief, plan: Plan, limits: Limits, watch: Watch = unwatched, again: str = ""
) -> Verdict:
    """The verdict; where it is stopped by hand, of what was known by then. `again` is the command that asks it."""
    began, found = time.monotonic(), Found()
    seeds = lineage.unseen(plan.seed, set(who.trained), plan.seeds)
    try:
        for check in _lines(who, belief, replace(plan, seed=seeds[0]), limits, found, watch):
            found.checks.append(check)
    except KeyboardInterrupt:
        found.interrupted = True
        asked = len(found.checks)
        found.checks.append(
            Check("asked to the end", asked, asked + 1, False, "stopped by hand; what was not asked does not hold")
        )
    meta = who.facts() | {
        "seconds": round(time.monotonic() - began, 1), "seed": plan.seed,
        "seeds": {"first": seeds[0], "last": seeds[-1], "trained": sorted(who.trained), "said": lineage.said(seeds, set(who.trained))}, "plan": asdict(plan), "limits": asdict(limits),
        "level": plan.level, "interrupted": found.interrupted, "skipped": found.skipped, "suspects": found.suspects,
        "evidence": found.evidence,
    }  # fmt: skip
    return Verdict(
        tuple(found.checks),
        _next(who, found, again or f"surefoot gate {who.name}"),
        f"{who.name} at the gate",
        jsonable(meta),
    )


def _lines(who: Candidate, belief: Belief, plan: Plan, limits: Limits, found: Found, watch: Watch) -> Iterator[Check]:
    unseen = tasks.privileged(who.policy.contract)
    if unseen:
        yield Check("told only what a robot measures", len(unseen), 0, False, f"it must be told {', '.join(unseen)}")
    home = yield from _column(who, "nominal", _place(who, None, DEFAULT, plan), plan, limits.success, found, watch)
    if not found.checks[-1].holds:
        found.suspects = suspects.why(who, home, plan, limits.success, watch)
        found.skipped["everything else"] = "it fails at home, so nothing else could hold"
        return
    yield from _worlds(who, belief, plan, limits, found, watch)
    for engine in plan.engines:
        if engine != DEFAULT:
            place = _place(who, None, engine, plan)
            yield from _other(
                _column(who, f"engine {engine}", place, plan, limits.success, found, watch), engine, limits.success
            )
    for seed in plan.realities:
        real = realities(seed, who.task)
        made = f"; made of {', '.join(real.strengths)}"
        column = _column(who, f"reality {seed}", _machine(who, real, plan), plan, limits.reality, found, watch)
        for check in _other(column, f"reality {seed}", limits.reality):
            found.lost += [] if check.holds else [seed]
            yield replace(check, evidence=check.evidence + made)
    yield from _motion(who, belief, plan, limits, found, watch)
    yield from _margins(who, plan, limits, found, watch)


def _other(column: Iterator[Check], name: str, limit: float) -> Iterator[Check]:
    """A column that was asked for; where that world cannot be had, a check that does not hold, and says why."""
    try:
        yield from column
    except SurefootError as error:
        yield Check(f"success, {name}", float("nan"), limit, False, f"could not be run: {error}")


def _place(who: Candidate, belief: Belief | None, engine: str, plan: Plan) -> Make:
    return lambda n, seed: tasks.env(who.task, n, belief, seed, plan.threads, engine=engine)


def _machine(who: Candidate, real: Reality, plan: Plan) -> Make:
    nominal = tasks.nominal(who.task)
    return lambda n, seed: Env(who.task, real.world(who.task, n, plan.threads), nominal, seed)


def _column(who: Candidate, name: str, make: Make, plan: Plan, limit: float, found: Found, watch: Watch, all_: bool = False) -> Any:  # fmt: skip
    """Success in one kind of world; a generator that yields its check and returns its runs."""
    test = RateTest(limit, level=plan.level, most=plan.episodes)
    tell = lambda share: watch(Progress(f"{name}: at most {plan.episodes} episodes", share))  # noqa: E731
    runs, decision = until_clear(who.policy, make, test, plan.seed, tell, early=not all_)
    check = checks.success(f"success, {name}", runs, decision, limit, plan.level, planned=all_)
    found.evidence[name] = _facts(check, runs)
    yield check
    return runs


def _facts(check: Check, runs: Runs) -> dict[str, Any]:
    error = runs.error[np.isfinite(runs.error)]
    return {
        "success": check.value, "holds": check.holds, "low": check.low, "high": check.high, "limit": check.limit, "episodes": len(runs),
        "error": float(error.mean()) if len(error) else None, "ended": dict(runs.reasons),
    }  # fmt: skip


def _worlds(who: Candidate, belief: Belief, plan: Plan, limits: Limits, found: Found, watch: Watch) -> Iterator[Check]:
    """Over the belief, in its worst decile, and where failures are rare."""
    if not (belief.sd() > 0).any():
        found.skipped["belief"] = "it leaves nothing open: every unknown is fixed"
        return
    place, params = _place(who, belief, DEFAULT, plan), who.task.params
    runs = yield from _column(who, "belief", place, plan, limits.success, found, watch, all_=plan.claim is not None)
    blamed = checks.blamed(runs, params)
    found.blamed = blamed[0] if blamed else ""
    found.evidence["belief"]["fails where"] = checks.where_it_fails(blamed)
    if plan.claim is not None:
        yield checks.claimed(runs, plan.level, plan.claim)
    while len(runs) < min(plan.episodes, 200):  # a tenth of fewer is too few
        b = len(runs) // 50
        watch(Progress(f"more worlds, to find the hardest of them: {len(runs)}"))
        runs = runs + episodes(who.policy, place(50, plan.seed + b))
    tenth = np.argsort(runs.margin, kind="stable")[: max(1, round(TENTH * len(runs)))]
    watch(Progress(f"the hardest {len(tenth)} worlds again"))
    e = np.repeat(runs.e[tenth], plan.again, 0)
    worst = episodes(who.policy, place(len(e), plan.seed + WORST), e)
    found.evidence["worst decile"] = {"margins": np.sort(runs.margin), "worlds": len(tenth)}
    yield checks.worst_decile(worst, len(tenth), limits.worst_decile, params)
    yield _rare(who, belief, runs, plan, limits, found, watch)


def _rare(who: Candidate, belief: Belief, drawn: Runs, plan: Plan, limits: Limits, found: Found, watch: Watch) -> Check:
    done = 0

    def score(e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal done
        watch(Progress("looking for rare failures", done / sum(plan.search)))
        runs = episodes(who.policy, tasks.env(who.task, len(e), belief, plan.seed + SEARCHED + done, plan.threads), e)
        done += len(e)
        return runs.success, runs.margin

    it = search(score, belief, plan.seed, *plan.search, level=(1 + plan.level) / 2)
    names = who.task.params.names
    found.evidence["rare failures"] = {
        "rate": it.rate.value, "how": it.rate.how, "episodes": it.episodes, "first": it.first,
        "worst": dict(zip(names, it.worst)), "failures": [dict(zip(names, e)) for e in it.failures[:10]],
    }  # fmt: skip
    most = round(1 - (plan.claim or limits.success), 12)
    return checks.rare_failures(it, drawn, most, plan.level, who.task.params)


def _motion(who: Candidate, belief: Belief, plan: Plan, limits: Limits, found: Found, watch: Watch) -> Iterator[Check]:
    watch(Progress(f"motion of {plan.watched} episodes"))
    seen = watched(who.policy, tasks.env(who.task, plan.watched, belief, plan.seed, plan.threads))
    made, left = checks.motion(seen, limits)
    found.skipped |= left
    found.evidence["motion"] = {
        "power": None if seen.power is None else float(seen.power.mean()), "busiest": seen.busiest, "peak": seen.peak,
        "action change": seen.change, "at limit": seen.at_limit,
    }  # fmt: skip
    yield from made


def _margins(who: Candidate, plan: Plan, limits: Limits, found: Found, watch: Watch) -> Iterator[Check]:
    env = tasks.env(who.task, 1, threads=1)

    def margin(of: Callable[..., margins.Margin], name: str) -> margins.Margin:
        it = of(who.policy, who.task, plan.rungs, plan.seed, limits.success, watch, plan.threads)
        found.evidence[name] = [r.facts() for r in it.rungs]
        return it

    yield checks.latency(margin(margins.latency, "latency"), limits.latency, env.world.dt)
    yield checks.push(margin(margins.push, "push"), limits.push, Plain(model_of(env.world)).handle[2])


def _next(who: Candidate, found: Found, again: str) -> str:
    """The one next thing to do."""
    failed = {c.name for c in found.checks if not c.holds}
    own, name = who.given is None, who.name
    run = str(Path(name).parent) if name.endswith(".onnx") else name  # where an ONNX file of ours came from
    if found.interrupted:
        return again
    if "success, nominal" in failed:
        return f"surefoot play {run}" if own else again  # when its contract is corrected, as suspects.sentences says
    if not own:
        return f"{again} --limits limits.json" if failed else f"{again} --reality all"
    if failed & {"success, belief", "worst decile", "rare failures"}:
        return f"surefoot sweep {run} --over {_blamed(who, found)}"
    if found.lost:
        return f"surefoot record {who.task.name} --policy {run} --reality {found.lost[0]} --tell"
    if "latency margin" in failed and "latency" in who.task.params.names:
        return f"surefoot sweep {run} --over latency"
    if failed:
        return f"surefoot train {who.task.name}"
    return f"{again} --reality all" if name.endswith(".onnx") else f"surefoot export {name}"


def _blamed(who: Candidate, found: Found) -> str:
    """The unknown that parts failures from successes; else what sets the worst world apart."""
    if found.blamed:
        return found.blamed
    worst = found.evidence.get("rare failures", {}).get("worst", {})
    far = checks.furthest(who.task.params, who.task.params.vector(worst))
    return far[0] if far else who.task.params.names[0]
