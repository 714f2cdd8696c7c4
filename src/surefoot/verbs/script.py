"""The verbs for scripts and notebooks: nouns in, nouns out. Defaults are those of the commands.

    run = sf.train(task, "run", steps=100_000)        sf.evaluate(run).rate        sf.judge(run).holds        sf.export(run, "policy.onnx")

A task is a Task, a function that makes one, or a reference: a name, `file.py[:function]`, `module:function`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.cross import Budget, Crossing, HiddenRobot, Question
from surefoot.cross import cross as crossed
from surefoot.deploy import bundle
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import gate as judged
from surefoot.gate.plan import Plan
from surefoot.learn import train as learn
from surefoot.log import Log
from surefoot.policy import Policy
from surefoot.real2sim.residual.delta import by_inversion
from surefoot.real2sim.residual.ensemble import FitSettings
from surefoot.real2sim.residual.force_fit import FitResult
from surefoot.report import Watch, unwatched
from surefoot.sim import learned
from surefoot.sim.realities import hidden
from surefoot.task import Task
from surefoot.tasks import rollout
from surefoot.tasks.registry import Reference, located
from surefoot.verbs.train.export import Export
from surefoot.verbs.train.prompt import Prompt
from surefoot.verdict import Verdict

Where = str | PathLike[str]


@dataclass(frozen=True)
class Run:
    """What `train` returns: a run's folder, and the task it was trained for. It can be given wherever a path is."""

    folder: Path
    task: Task

    def __fspath__(self) -> str:
        return str(self.folder)

    @property
    def policy(self) -> Policy:
        """The trained policy, read from its file."""
        return bundle.load(self.folder)


def train(
    task: Reference,
    out: Where = "run",
    *,
    steps: int | None = None,
    change: Mapping[str, Any] | None = None,
    learner: str = "ppo",
    threads: int = 0,
    watch: Watch | None = None,
    resume_if_same: bool = False,
    **asked: Unpack[learn.Asked],
) -> Run:
    """Train a policy into the folder `out`.

    Without `belief`, over the task's own; without `settings`, with the task's own, of which `steps` and `change` (a mapping of
    names of PPOSettings) replace some. `learner` is ppo, fasttd3, fastsac, sapg, fpo, fb, or auto, which is what the task says. `watch` is called with Progress. After an interruption continue with `resume`, or call it
    again with `resume_if_same`. Further keywords: seed, ranges, obs, start, base, residual, teacher, terms, judge.
    """
    reference, found = located(task)
    if asked.get("settings") is None and asked.get("teacher") is None:
        changes = dict(change or {}) | ({} if steps is None else {"steps": steps})
        asked["settings"] = learn.settings_for(found, changes, learner)
    elif steps is not None or change or learner != "ppo":
        raise SurefootError("train: settings say all; found steps, change or learner beside them")
    if asked.get("belief") is None:
        asked["belief"] = found.belief
    learn.train((reference, found), Path(out), threads=threads, watch=watch, resume_if_same=resume_if_same, **asked)
    return Run(Path(out), found)


def resume(run: Run | Where, task: Reference = "", threads: int = 0, watch: Watch | None = None) -> Run:
    """Go on with a run that was interrupted, bit for bit. Where its task has no name, give it again."""
    given = run.task if isinstance(run, Run) and task == "" else task
    learn.resume(Path(run), threads, watch, task=given)
    spec = learn.spec_of(Path(run))
    return Run(Path(run), learn.task_of(spec, str(run), given))


def evaluate(
    policy: Run | Where | Policy,
    task: Env | Reference = "",
    *,
    belief: Belief | None = None,
    episodes: int = 200,
    seed: int = 1,
    threads: int = 0,
    e: np.ndarray | None = None,
) -> rollout.Evaluation:
    """Success with an exact 95 % interval, one episode in each of `episodes` envs drawn from a belief (the task's own).

    In place of a task, an Env of your own may be given: then it says belief, episodes and seed. `e` are worlds of your own, a
    row for each episode, in place of the belief.
    """
    own = policy if isinstance(policy, Policy) else bundle.load(Path(policy))
    if isinstance(task, Env):
        return rollout.evaluate(own, task, e=e)
    found = tasks.of(own.contract, _given(policy, task))
    n = episodes if e is None else len(e)
    return rollout.evaluate(own, tasks.env(found, n, belief or found.belief, seed, threads), e=e)


def judge(
    policy: Run | Where,
    task: Reference = "",
    *,
    belief: Belief | None = None,
    plan: Plan | None = None,
    limits: Limits | None = None,
    watch: Watch = unwatched,
) -> Verdict:
    """The gate: may this policy leave the simulator? A list of checks, each with its limit and evidence; `verdict.holds` is the answer."""
    who = candidate(Path(policy), _given(policy, task))
    return judged(who, belief or who.task.belief, plan or Plan(), limits or Limits(), watch)


def export(policy: Run | Where, out: Where | None = None, sign: Where | None = None) -> Path:
    """A bundle for a robot's computer (a folder or .zip), or one ONNX file (.onnx), checked against torch; signed with a key."""
    verb = Export(Path(policy), out=None if out is None else Path(out), sign=None if sign is None else Path(sign))
    facts = verb.run(unwatched).facts
    return Path(facts.get("bundle", facts["onnx"]))


def prompt(
    run: Run | Where,
    out: Where,
    *,
    reward: str = "",
    goal: Mapping[str, Sequence[float]] | None = None,
    track: Where = "",
    search: int = 0,
    seed: int = 1,
) -> Path:
    """Ask a run of the learner `fb` for a behaviour, without training: the folder `out` with a policy for a reward in words, a goal
    (observation term -> numbers) or a motion's file. `search`: rounds of search around what was found, by what it earns."""
    words = tuple(f"{k}={','.join(map(repr, map(float, v)))}" for k, v in (goal or {}).items())
    file, task = Path(track) if track else None, run.task if isinstance(run, Run) else ""
    verb = Prompt(Path(run), reward, words, file, search=search, seed=seed, out=Path(out))
    return Path(verb.asked(unwatched, task).facts["policy"]).parent


def rehearse(
    task: Reference,
    out: Where = "crossed",
    *,
    seed: int = 0,
    reality: int = 0,
    episodes: int = 100,
    steps: int | None = None,
    budget: str = "60 s of robot, 10 min of compute",
    watch: Watch = unwatched,
) -> Crossing:
    """Cross: train, try on a hidden robot, diagnose, treat and train again until it works or the budget is spent.

    `crossed`, `before` and `after` (success on the robot), `policy` (the best run) and `journal` (every stage) say what came of it.
    """
    reference, found = located(task)
    robot = HiddenRobot(found, hidden(reality, found))
    asked = Question(found, reference, Path(out), f"hidden {reality}", Budget.parse(budget), seed, episodes, steps)
    return crossed(asked, robot, watch)


def learn_delta(
    task: Reference,
    log: Log,
    out: Where,
    *,
    belief: Belief | None = None,
    change: Mapping[str, Any] | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> FitResult:
    """Learn from a log what to add to a task's actions so that the simulator moves as the robot did: the command `delta`.

    It is a Term in the folder `out`, for `terms` of `train`. `belief` says where the model is (its nominal world); `change` replaces
    settings of the fit by name.
    """
    found = located(task)[1]
    at = belief or tasks.nominal(found)
    settings = replace(FitSettings(), **(change or {}))
    fit = by_inversion(tasks.env(found, 1).world, at, log, settings, seed, watch)
    learned.save(replace(fit.term, about=fit.facts), Path(out))
    return fit


def _given(policy: object, task: Reference) -> str | Task:
    """The task as the caller gives it: by itself, or with the run."""
    if isinstance(task, str) and not task:
        return policy.task if isinstance(policy, Run) else ""
    return located(task)[1]
