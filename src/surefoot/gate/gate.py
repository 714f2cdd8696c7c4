"""gate: may this policy leave the simulator? A Verdict of checks, each with its interval and evidence.

    nominal   success in the nominal world; where that fails, the fault of the contract that would explain it
    belief    success over the belief, in the worst decile of its worlds, and by a search for rare failures
    worlds    success in each engine asked for, in each hidden reality
    motion    torque, speed, smoothness, energy        margins   latency, push

Every world has the same episodes, and stops as soon as its answer is clear. A policy that fails in the nominal world is not
tested further. After Ctrl-C the verdict has the checks that are done.
"""

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.gate import checks, contract_faults, margins, training_record
from surefoot.gate.candidate import Candidate, candidate
from surefoot.gate.checks import Limits
from surefoot.gate.contract_faults import Explained
from surefoot.gate.motion import measure
from surefoot.gate.runs import BATCH, Make, Runs, Separation, episodes, separation, until_clear
from surefoot.gate.statistics import Estimate, needed
from surefoot.gate.statistics.rare_failures import search, without_search
from surefoot.gate.statistics.sequential import RateTest, anytime
from surefoot.learn.cluster.jobs import HERE, Job, Jobs
from surefoot.report import Progress, Watch, jsonable, unwatched
from surefoot.sim.engines import DEFAULT, known
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import model_of
from surefoot.sim.realities import Reality, realities
from surefoot.verdict import Check, Verdict

SEED = 1000  # from which the seeds of the gate's episodes are made
WORST, SEARCHED = 500, 600  # offsets from the first seed to those of the worst decile and of the search
TENTH = 0.1
CLEAR = 20  # episodes of the worst decile before its first look: fewer are of too few worlds
DRAWN = 200  # worlds drawn from the belief, to find the hardest: a tenth of fewer is too few
LOADS, RUNGS = 9, 4  # loads of a margin that are usually tried, and how many with all episodes that is worth
ALL = tuple(range(10))  # realities
NOMINAL, BELIEF = "nominal", "belief"
IN_BELIEF = {checks.success_name(BELIEF), checks.WORST_DECILE, checks.RARE_FAILURES}


@dataclass(frozen=True)
class Plan:
    """What is tested, with how many episodes."""

    engines: tuple[str, ...] = (DEFAULT,)
    realities: tuple[int, ...] = ()
    episodes: int = 200
    """at most, in each world"""
    claim: float | None = None
    """a success rate to be claimed over the belief"""
    level: float = 0.95
    seed: int = SEED
    """the seeds of its episodes are `rng.judging(seed)` and those after it"""
    per_load: int = 40
    """episodes at each load of a margin"""
    motion: int = 30
    """episodes whose motion is measured"""
    repeats: int = 5
    """new episodes in each world of the worst decile, at most"""
    search: tuple[int, int, int] = (60, 40, 100)
    """episodes to find a failure, to learn where failures are, to estimate their rate"""
    threads: int = 0

    def __post_init__(self) -> None:
        if self.episodes < 20:
            raise SurefootError(f"episodes: found {self.episodes}, expected at least 20: a worst decile has 2 of them")
        for engine in self.engines:
            known(engine, "--in")
        if self.claim is not None:
            if not 0.5 <= self.claim < 1:
                raise SurefootError(f"claim: found {self.claim}, expected a success rate from 0.5 to below 1")
            least = needed(round(1 - self.claim, 12), self.level)
            if self.episodes < least:
                raise SurefootError(
                    f"claim: {self.episodes} episodes cannot support 'at most {100 * (1 - self.claim):g} % fail' at "
                    f"{100 * self.level:g} %, even without a failure: it takes {least}; expected --episodes {least} or more"
                )

    @property
    def seeds(self) -> int:
        """How many seeds it may use: one for each batch, then those of the worst decile and of the search."""
        return max(SEARCHED + sum(self.search), -(-self.episodes // BATCH))

    def thorough(self) -> "Plan":
        """More episodes, and a finer engine and all realities unless others were asked for."""
        engines = self.engines if self.engines != (DEFAULT,) else (DEFAULT, "mujoco:half-step")
        more = replace(self, episodes=max(self.episodes, 1000), per_load=100, motion=100, search=(200, 200, 400))
        return replace(more, engines=engines, realities=self.realities or ALL)


@dataclass
class Results:
    """What is known so far."""

    checks: list[Check] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    contract_faults: Explained = Explained()
    failed_realities: list[int] = field(default_factory=list)
    """seeds"""
    separation: Separation | None = None
    """of failures from successes over the belief"""
    separating: str = ""
    """the unknown that separates failures from successes over the belief, else the one furthest from nominal in the worst world"""
    interrupted: bool = False


def gate(
    who: Candidate,
    belief: Belief,
    plan: Plan,
    limits: Limits,
    watch: Watch = unwatched,
    again: str = "",
    keep: Callable[[Verdict], None] | None = None,
    jobs: Jobs = HERE,
) -> Verdict:
    """The verdict; after Ctrl-C, of the checks that are done. `again` is the command that runs it once more.

    Realities are `jobs`. `keep` gets the verdict of what is known after each check, as if it ended there: a gate that is killed leaves it behind.
    """
    began, found = time.monotonic(), Results()
    seeds = training_record.unseen(plan.seed, set(who.trained), plan.seeds)
    command = again or f"surefoot gate {quote(who.name)}{who.task_flag}"

    def so_far() -> Verdict:
        meta = _meta(who, plan, limits, found, seeds) | {"seconds": round(time.monotonic() - began, 1)}
        done = len(found.checks)
        ended = Check("completed", done, done + 1, False, "stopped before the end; checks that did not run fail")
        checks_ = (*found.checks, *([ended] if found.interrupted else []))
        return Verdict(checks_, _next(who, found, command), f"gate of {who.name}", jsonable(meta))

    found.interrupted = True  # until it is over
    try:
        for check in _Gate(who, belief, replace(plan, seed=seeds[0]), limits, found, watch, jobs).checks():
            found.checks.append(check)
            if keep is not None:
                keep(so_far())
        found.interrupted = False
    except KeyboardInterrupt:
        pass
    return so_far()


def _meta(who: Candidate, plan: Plan, limits: Limits, found: Results, seeds: range) -> dict[str, Any]:
    used = training_record.sentence(seeds, set(who.trained))
    return who.facts() | {
        "seed": plan.seed, "seeds": {"first": seeds[0], "last": seeds[-1], "trained": sorted(who.trained), "sentence": used},
        "plan": asdict(plan), "limits": asdict(limits), "level": plan.level, "interrupted": found.interrupted,
        "skipped": found.skipped, "contract_faults": [asdict(x) for x in found.contract_faults.found], "why": _why(who, found), "evidence": found.evidence,
    }  # fmt: skip


@dataclass(frozen=True)
class _Gate:
    who: Candidate
    belief: Belief
    plan: Plan
    limits: Limits
    results: Results
    watch: Watch
    jobs: Jobs = HERE

    def checks(self) -> Iterator[Check]:
        who, plan, limits = self.who, self.plan, self.limits
        hidden = tasks.privileged(who.policy.contract)
        if hidden:
            words = f"no robot measures {', '.join(hidden)}"
            yield Check("observations a robot has", len(hidden), 0, False, words)
        runs = yield from self._success(NOMINAL, self._env(None, DEFAULT), limits.success)
        if not self.results.checks[-1].holds:
            self.results.contract_faults = contract_faults.explain(who, runs, plan, limits.success, self.watch)
            self.results.skipped["all other checks"] = "the policy fails in the nominal world"
            return
        yield from self._over_belief()
        for engine in plan.engines:
            if engine != DEFAULT:
                yield from self._elsewhere(f"engine {engine}", self._env(None, engine), limits.success)
        if self.jobs.on is None:
            for seed in plan.realities:
                yield from self._reality(seed)
        else:
            yield from self._realities()
        yield from self._motion()
        yield from self._margins(runs)

    def _show(self, stage: str, words: str, share: float = 0.0) -> None:
        """Progress of the whole gate, by the episodes that its stages usually take."""
        plan, drawn = self.plan, min(self.plan.episodes, DRAWN)
        stages = {NOMINAL: BATCH, BELIEF: drawn, checks.WORST_DECILE: round(TENTH * drawn)}
        stages |= {checks.RARE_FAILURES: plan.search[0]}
        stages |= {f"engine {x}": BATCH for x in plan.engines if x != DEFAULT}
        stages |= {f"reality {x}": BATCH for x in plan.realities}
        stages |= {"motion": plan.motion, "latency": RUNGS * plan.per_load, "push": RUNGS * plan.per_load}
        if not (self.belief.sd() > 0).any():
            stages |= dict.fromkeys((BELIEF, checks.WORST_DECILE, checks.RARE_FAILURES), 0)
        names, sizes = list(stages), np.cumsum([0, *stages.values()])
        at = names.index(stage)
        self.watch(Progress(words, float((sizes[at] + min(share, 1.0) * (sizes[at + 1] - sizes[at])) / sizes[-1])))

    def _env(self, belief: Belief | None, engine: str) -> Make:
        return lambda n, seed: tasks.env(self.who.task, n, belief, seed, self.plan.threads, engine=engine)

    def _real(self, real: Reality) -> Make:
        task = self.who.task
        nominal = tasks.nominal(task)
        return lambda n, seed: Env(task, real.world(task, n, self.plan.threads), nominal, seed)

    def _success(self, world: str, make: Make, limit: float, early: bool = True) -> Generator[Check, None, Runs]:
        """Success in one kind of world: yields its check and returns its runs."""
        plan, name = self.plan, checks.success_name(world)
        test = RateTest(limit, level=plan.level, most=plan.episodes)
        most = plan.episodes / (DRAWN if world == BELIEF else BATCH)
        show = lambda share: self._show(world, f"{name}: at most {plan.episodes} episodes", share * most)  # noqa: E731
        runs, decision = until_clear(self.who.policy, make, test, plan.seed, show, early=early)
        check = checks.success(name, runs, decision, limit, plan.level, planned=not early)
        self.results.evidence[world] = _facts(check, runs)
        yield check
        return runs

    def _elsewhere(self, world: str, make: Make, limit: float) -> Iterator[Check]:
        """A world that was asked for; if it cannot be simulated, a check that fails and says why."""
        try:
            yield from self._success(world, make, limit)
        except SurefootError as error:
            yield Check(checks.success_name(world), float("nan"), limit, False, f"could not be simulated: {error}")

    def _reality(self, seed: int) -> Iterator[Check]:
        real = realities(seed, self.who.task)
        for check in self._elsewhere(f"reality {seed}", self._real(real), self.limits.reality):
            self.results.failed_realities += [] if check.holds else [seed]
            yield replace(check, evidence=f"{check.evidence}; ingredients: {', '.join(real.strengths)}")

    def _realities(self) -> Iterator[Check]:
        """All realities, side by side."""
        who, plan = self.who, replace(self.plan, threads=self.jobs.threads)
        if not who.files:
            raise SurefootError("--on: the policy is no file that a worker could read")
        alone = [replace(plan, realities=(seed,)) for seed in plan.realities]
        asked = [Job(f"reality {p.realities[0]}", (who.files, self.belief, p, self.limits)) for p in alone]
        for seed, (found, facts) in zip(plan.realities, self.jobs.each(in_reality, asked)):
            self.results.evidence |= facts
            for check in (Check.from_json(row, f"reality {seed}") for row in found):
                self.results.failed_realities += [] if check.holds else [seed]
                yield check

    def _over_belief(self) -> Iterator[Check]:
        """Over the belief, in its worst decile, and where failures are rare."""
        plan, found, params = self.plan, self.results, self.who.task.params
        if not (self.belief.sd() > 0).any():
            found.skipped["belief"] = "the belief fixes every unknown"
            return
        make = self._env(self.belief, DEFAULT)
        runs = yield from self._success(BELIEF, make, self.limits.success, early=plan.claim is None)
        by = separation(runs, params.names)
        found.separation, found.separating = by, by.unknown if by else ""
        found.evidence[BELIEF]["separation"] = asdict(by) if by else None
        if plan.claim is not None:
            yield checks.claimed(runs, plan.level, plan.claim)
        while len(runs) < min(plan.episodes, DRAWN):
            self._show(BELIEF, f"more worlds, to find the hardest: {len(runs)}", len(runs) / DRAWN)
            runs = runs + episodes(self.who.policy, make(BATCH, plan.seed + len(runs) // BATCH))
        yield self._worst_decile(runs, make)
        yield self._rare_failures(runs)

    def _worst_decile(self, runs: Runs, make: Make) -> Check:
        """New episodes in the worlds that looked hardest, one more in each until it is clear."""
        plan, limit = self.plan, self.limits.worst_decile
        tenth = np.argsort(runs.margin, kind="stable")[: max(1, round(TENTH * len(runs)))]
        e, one = runs.e[tenth], make(1, plan.seed + WORST)
        most = plan.repeats * len(e)
        test = RateTest(limit, level=(1 + plan.level) / 2, most=most)
        again = lambda done: episodes(self.who.policy, one.like(len(e), done), e)  # noqa: E731
        self._show(checks.WORST_DECILE, f"the hardest {len(e)} worlds again")
        worst = again(0)
        while len(worst) < most and (len(worst) < CLEAR or test.look(*worst.won) == "undecided"):
            worst = worst + again(len(worst))
        self.results.evidence[checks.WORST_DECILE] = {"margins": np.sort(runs.margin), "worlds": len(e)}
        return checks.worst_decile(worst, test.look(*worst.won), len(e), limit, plan.level, self.who.task.params)

    def _rare_failures(self, drawn: Runs) -> Check:
        who, plan, done = self.who, self.plan, 0

        def score(e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            nonlocal done
            self._show(checks.RARE_FAILURES, "searching for rare failures", done / sum(plan.search))
            seed = plan.seed + SEARCHED + done
            runs = episodes(who.policy, tasks.env(who.task, len(e), self.belief, seed, plan.threads), e)
            done += len(e)
            return runs.success, runs.margin

        known, level = (drawn.e, drawn.success, drawn.margin), (1 + plan.level) / 2
        most, k, n = round(1 - (plan.claim or self.limits.success), 12), int((~drawn.success).sum()), len(drawn)
        low, high = anytime(k, n, level)
        if low > most:  # no search is needed to find failures
            how = f"drawn from the belief, {k} failures in {n} episodes"
            it = without_search(known, Estimate(k / n, low, high, n, level, how))
        else:
            it = search(score, self.belief, plan.seed, *plan.search, level=level, drawn=known)
        params, names = who.task.params, who.task.params.names
        far = checks.furthest(params, it.worst)
        self.results.separating = self.results.separating or (far[0] if far else names[0])
        self.results.evidence[checks.RARE_FAILURES] = {
            "rate": it.rate.value, "how": it.rate.how, "episodes": it.episodes, "first": it.first,
            "worst": dict(zip(names, it.worst)), "failures": [dict(zip(names, e)) for e in it.failures[:10]],
        }  # fmt: skip
        return checks.rare_failures(it, drawn, most, plan.level, params)

    def _motion(self) -> Iterator[Check]:
        plan, found = self.plan, self.results
        self._show("motion", f"motion of {plan.motion} episodes")
        it = measure(self.who.policy, tasks.env(self.who.task, plan.motion, self.belief, plan.seed, plan.threads))
        made, skipped = checks.motion(it, self.limits)
        found.skipped |= skipped
        found.evidence["motion"] = {
            "power": None if it.power is None else float(it.power.mean()), "busiest": it.busiest, "peak": it.peak,
            "action change": it.change, "at limit": it.at_limit,
        }  # fmt: skip
        yield from made

    def _margins(self, nominal: Runs) -> Iterator[Check]:
        who, plan, limits = self.who, self.plan, self.limits
        env = tasks.env(who.task, 1, threads=1)

        asked = margins.Asked(
            who.policy, who.task, plan.per_load, plan.seed, limits.success, threads=plan.threads, unloaded=nominal
        )

        def margin(of: Callable[[margins.Asked], margins.Margin], name: str, limit: float) -> margins.Margin:
            loads = itertools.count()
            show = lambda p: self._show(name, p.doing, next(loads) / LOADS)  # noqa: E731
            it = of(replace(asked, limit=limit, watch=show))
            self.results.evidence[name] = [r.facts() for r in it.rungs]
            return it

        yield checks.latency(margin(margins.latency, "latency", limits.latency), limits.latency, env.world.dt)
        mass = Plain(model_of(env.world)).push_point[2]
        yield checks.push(margin(margins.push, "push", limits.push), limits.push, mass)


def in_reality(
    given: tuple[dict[str, Any], Belief, Plan, Limits], watch: Watch
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The job of one reality: its checks and their evidence."""
    which, belief, plan, limits = given
    found = Results()
    checks_ = _Gate(candidate(**which), belief, plan, limits, found, watch)._reality(plan.realities[0])
    return [check.to_json() for check in checks_], jsonable(found.evidence)


def _why(who: Candidate, found: Results) -> list[str]:
    """Why it fails, in sentences: a fault of the contract where the nominal world fails, an unknown where only the belief does."""
    failed = [c.name for c in found.checks if not c.holds and c.name in IN_BELIEF]
    if not failed:
        return found.contract_faults.sentences()
    if found.separation is None:
        return [
            f"{failed[0]}: no single unknown separates failures from successes; the worlds in which it fails are on the page"
        ]
    return [f"{failed[0]}: {found.separation.sentence(who.task.params)}"]


def _facts(check: Check, runs: Runs) -> dict[str, Any]:
    error = runs.error[np.isfinite(runs.error)]
    return {
        "success": check.value, "holds": check.holds, "low": check.low, "high": check.high, "limit": check.limit, "episodes": len(runs),
        "error": float(error.mean()) if len(error) else None, "ended": dict(runs.reasons),
    }  # fmt: skip


def _next(who: Candidate, found: Results, again: str) -> str:
    """The next command."""
    failed = {c.name for c in found.checks if not c.holds}
    own, name = who.given is None, who.name
    run = quote(str(Path(name).parent) if name.endswith(".onnx") else name)  # the run of an ONNX file of ours
    task = quote(who.reference or who.task.name)
    if found.interrupted:
        return again
    if checks.success_name(NOMINAL) in failed:
        return (
            f"surefoot play {run}{who.task_flag}" if own else again
        )  # once the contract is corrected as the report says
    if not own:
        return f"{again} --limits limits.json" if failed else f"{again} --reality all"
    if failed & IN_BELIEF:
        return f"surefoot sweep {run} --over {quote(found.separating)}{who.task_flag}"
    if found.failed_realities:
        return f"surefoot record {task} --policy {run} --reality {found.failed_realities[0]} --tell"
    if checks.LATENCY in failed and "latency" in who.task.params.names:
        return f"surefoot sweep {run} --over latency{who.task_flag}"
    if failed:
        return f"surefoot train {task}"
    return f"{again} --reality all" if name.endswith(".onnx") else f"surefoot export {run}{who.task_flag}"
