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
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import Any

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.gate import checks, contract_faults, training_record
from surefoot.gate.candidate import Candidate, candidate
from surefoot.gate.checks import Limits
from surefoot.gate.measures import margins
from surefoot.gate.measures.motion import measure
from surefoot.gate.plan import SEARCHED, WORST, Plan
from surefoot.gate.results import BELIEF, NOMINAL, Results, following, why
from surefoot.gate.runs import BATCH, Make, Runs, episodes, separation, until_clear
from surefoot.gate.statistics import Estimate
from surefoot.gate.statistics.rare_failures import search, without_search
from surefoot.gate.statistics.sequential import RateTest, anytime
from surefoot.learn.cluster.jobs import HERE, Job, Jobs
from surefoot.report import Progress, Watch, jsonable, unwatched
from surefoot.sim.engines import DEFAULT
from surefoot.sim.gap.recipe import Plain
from surefoot.sim.layout import model_of
from surefoot.sim.realities import Reality, realities
from surefoot.tasks.registry import task_file
from surefoot.verdict import Check, Verdict

TENTH = 0.1
CLEAR = 20  # episodes of the worst decile before its first look: fewer are of too few worlds
DRAWN = 200  # worlds drawn from the belief, to find the hardest: a tenth of fewer is too few
LOADS, RUNGS = 9, 4  # loads of a margin that are usually tried, and how many with all episodes that is worth
LAST = ("motion", "latency", "push")
Part = tuple[str, str | int]
"""a kind of test, and of which world"""
TO_DECIDE = 4, 1000  # times as many worlds, and how many at most, where the rate of failures is near its limit


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

    What follows the nominal world are `jobs`. `keep` gets the verdict of what is known after each check, as if it ended there: a gate that is killed leaves it behind.
    """
    began, found = time.monotonic(), Results()
    seeds = training_record.unseen(plan.seed, set(who.trained), plan.seeds)
    command = again or f"surefoot gate {quote(who.name)}{who.task_flag}"

    def so_far() -> Verdict:
        meta = _meta(who, plan, limits, found, seeds) | {"seconds": round(time.monotonic() - began, 1)}
        done = len(found.checks)
        ended = Check("completed", done, done + 1, False, "stopped before the end; checks that did not run fail")
        checks_ = (*found.checks, *([ended] if found.interrupted else []))
        return Verdict(checks_, following(who, found, command), f"gate of {who.name}", jsonable(meta))

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
        "skipped": found.skipped, "contract_faults": [asdict(x) for x in found.contract_faults.found], "why": why(who, found), "evidence": found.evidence,
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
        if self.jobs.on is None:
            for part in self._parts():
                yield from self.part(part, runs)
        else:
            yield from self._by_jobs(runs)

    def _parts(self) -> list[Part]:
        """What follows the nominal world: independent of each other."""
        engines = [("engine", x) for x in self.plan.engines if x != DEFAULT]
        return [(BELIEF, ""), *engines, *(("reality", x) for x in self.plan.realities), *((x, "") for x in LAST)]

    def part(self, part: Part, nominal: Runs) -> Iterator[Check]:
        kind, which = part
        if kind == BELIEF:
            yield from self._over_belief()
        elif kind == "engine":
            yield from self._elsewhere(f"engine {which}", self._env(None, str(which)), self.limits.success)
        elif kind == "reality":
            yield from self._reality(int(which))
        elif kind == "motion":
            yield from self._motion()
        else:
            yield self._margin(kind, nominal)

    def _by_jobs(self, nominal: Runs) -> Iterator[Check]:
        """All parts, side by side."""
        who, plan = self.who, replace(self.plan, threads=self.jobs.threads)
        if not who.files:
            raise SurefootError("--on: the policy is no file that a worker could read")
        source = task_file(str(who.files["task"]))
        content = [who.parents, self.belief.to_json(), source[0].read_bytes() if source else b""]
        asked = [
            Job(f"{part[0]} {part[1]}".strip(), (who.files, self.belief, plan, self.limits, part, nominal), content)
            for part in self._parts()
        ]
        for job, answer in zip(asked, self.jobs.each(in_part, asked)):
            yield from self.results.take(answer, job.name)

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
        yield self._rare_failures(runs, decides=found.evidence[BELIEF]["holds"])

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

    def _rare_failures(self, drawn: Runs, decides: bool) -> Check:
        """`decides`: whether the verdict hangs on this rate; then more worlds are drawn where it is too near its limit."""
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
        check = checks.rare_failures(it, drawn, most, plan.level, who.task.params)
        enough = min(TO_DECIDE[0] * plan.episodes, TO_DECIDE[1]) if decides else 0
        while not check.holds and (check.low or 0.0) <= most and len(drawn) < enough:
            self._show(checks.RARE_FAILURES, f"more worlds, to decide: {len(drawn)}", 1.0)
            more = tasks.env(who.task, BATCH, self.belief, plan.seed + len(drawn) // BATCH, plan.threads)
            drawn = drawn + episodes(who.policy, more)
            check = checks.rare_failures(it, drawn, most, plan.level, who.task.params)
        params, names = who.task.params, who.task.params.names
        far = checks.furthest(params, it.worst)
        self.results.separating = self.results.separating or (far[0] if far else names[0])
        self.results.evidence[checks.RARE_FAILURES] = {
            "rate": it.rate.value, "how": it.rate.how, "episodes": it.episodes, "first": it.first,
            "worst": dict(zip(names, it.worst)), "failures": [dict(zip(names, e)) for e in it.failures[:10]],
        }  # fmt: skip
        return check

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

    def _margin(self, name: str, nominal: Runs) -> Check:
        """Of latency, or of a push."""
        who, plan, limits, loads = self.who, self.plan, self.limits, itertools.count()
        of, limit = (margins.latency, limits.latency) if name == "latency" else (margins.push, limits.push)
        show = lambda p: self._show(name, p.doing, next(loads) / LOADS)  # noqa: E731
        how: Any = {"watch": show, "threads": plan.threads, "limit": limit, "unloaded": nominal}
        it = of(margins.Asked(who.policy, who.task, plan.per_load, plan.seed, limits.success, **how))
        self.results.evidence[name] = [r.facts() for r in it.rungs]
        world = tasks.env(who.task, 1, threads=1).world
        if name == "latency":
            return checks.latency(it, limit, world.dt)
        return checks.push(it, limit, Plain(model_of(world)).push_point[2])


def in_part(given: tuple[dict[str, Any], Belief, Plan, Limits, Part, Runs], watch: Watch) -> dict[str, Any]:
    """The job of one part: its checks, and what it adds to the results."""
    which, belief, plan, limits, part, nominal = given
    found = Results()
    return found.answer(list(_Gate(candidate(**which), belief, plan, limits, found, watch).part(part, nominal)))


def _facts(check: Check, runs: Runs) -> dict[str, Any]:
    error = runs.error[np.isfinite(runs.error)]
    return {
        "success": check.value, "holds": check.holds, "low": check.low, "high": check.high, "limit": check.limit, "episodes": len(runs),
        "error": float(error.mean()) if len(error) else None, "ended": dict(runs.reasons),
    }  # fmt: skip
