"""What each step of a crossing does: one function a step, (question, journal, robot, watch) -> Stage.

What is known of the robot is a belief p(e) and learned Terms, both files; `known` finds the newest of each in the journal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import tasks
from surefoot.belief import Belief, Box, point
from surefoot.cross.driver import GOOD
from surefoot.cross.journal import Budget, Journal, Stage
from surefoot.cross.robot import Rate, Robot
from surefoot.deploy import bundle
from surefoot.doctor import diagnose
from surefoot.doctor.consequences import consequences
from surefoot.errors import LogError, SurefootError
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import Plan, gate
from surefoot.learn.settings import DistillSettings, tuned
from surefoot.learn.train import settings_for, train
from surefoot.log import Log
from surefoot.params import Params
from surefoot.policy import Policy
from surefoot.real2sim.identify import identify
from surefoot.report import Watch
from surefoot.rng import judging
from surefoot.sim.learned import save
from surefoot.task import Task
from surefoot.tasks.rollout import evaluate

LATER = 0.5  # of the task's steps, for trainings that begin with the last policy
MARGIN = 0.15  # of a range, on each side of a number that the doctor found
KEPT = 0.35  # of a range, on each side of a number that was identified: what the model lacks is in it, too
WIDEST = 1.5  # times the interval of an identified number
LOGGED = 10.0  # s of each robot stage's log
PLAYED = 10.0  # s of an informative motion


@dataclass(frozen=True)
class Question:
    """What is asked of a crossing."""

    task: Task
    reference: str
    """as the user named the task"""
    out: Path
    robot: str
    """which robot, in words that name it"""
    budget: Budget = Budget()
    seed: int = 0
    episodes: int = 100
    """of each trial on the robot, and of each evaluation in simulation"""
    steps: int | None = None
    """env steps of the first training; default: the task's own"""

    def asked(self) -> dict[str, Any]:
        """What may not change on the way; a budget may grow."""
        return {"task": self.task.name, "robot": self.robot, "seed": self.seed, "episodes": self.episodes,
                "steps": self.steps}  # fmt: skip

    @property
    def located(self) -> tuple[str, Task]:
        return self.reference, self.task


@dataclass(frozen=True)
class Crossing:
    """A crossing at its end."""

    question: Question
    journal: Journal
    why: str
    """it ended"""

    @property
    def before(self) -> Rate | None:
        """On the robot, of the first policy."""
        return next((s.robot for s in self.journal.stages if s.robot is not None), None)

    @property
    def after(self) -> Rate | None:
        """On the robot, of the best policy."""
        return max((s.robot for s in self.journal.stages if s.robot is not None), key=lambda r: r.value, default=None)

    @property
    def crossed(self) -> bool:
        return self.after is not None and self.after.value >= GOOD

    @property
    def policy(self) -> Path | None:
        """The run of the best policy on the robot."""
        best, run, found = -1.0, None, None
        for s in self.journal.stages:
            run = Path(s.facts["run"]) if s.name == "train" else run
            if s.robot is not None and s.robot.value > best:
                best, found = s.robot.value, run
        return found


Work = Callable[[Question, Journal, Robot, Watch], Stage]


def known(question: Question, past: Journal) -> tuple[Belief, tuple[Path, ...]]:
    """The newest belief, nominal at first, and all learned Terms."""
    made = [s.facts for s in past.stages]
    belief = next((Belief.read(f["belief"], question.task.params) for f in reversed(made) if f.get("belief")), None)
    return belief or tasks.nominal(question.task), tuple(Path(f["term"]) for f in made if f.get("term"))


def _train(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    belief, terms = known(q, past)
    first = past.last("train")
    settings = settings_for(q.task, {} if q.steps is None else {"steps": q.steps})
    if first is not None:
        settings = replace(settings, steps=max(1, round(LATER * settings.steps)))
    start = Path(first.facts["run"]) if first is not None else None
    run = past.place("train")
    train(q.located, run, seed=q.seed, belief=belief, settings=settings, ranges=None, start=start, terms=terms,
          watch=watch, resume_if_same=True)  # fmt: skip
    sim = _simulated(bundle.load(run), q, belief, terms)
    where = "in the nominal world" if not past.last("train") else f"over {_width(q.task, belief)}"
    return Stage("train", f"trained {where}: {sim} there", {"run": str(run)}, sim=sim)


def _simulated(policy: Policy, q: Question, belief: Belief, terms: tuple[Path, ...]) -> Rate:
    own = tasks.learned(q.task, terms)
    return Rate.of(evaluate(policy, tasks.env(q.task, q.episodes, belief, judging(q.seed, "cross"), terms=own)))


def _width(task: Task, belief: Belief) -> str:
    low, high = belief.support(0.95)
    return f"{int((low < high).sum())} ranges"


def _gate(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """A quick gate; its verdict is shown, and a simulated robot is driven whatever it is."""
    belief, _ = known(q, past)
    run, (task, belief) = _run(past), _centred(q.task, belief)
    plan = Plan(episodes=max(40, min(q.episodes, 100)), per_load=20, motion=10, search=(30, 20, 50))
    verdict = gate(candidate(run, task), belief, plan, Limits(), watch)
    bad = [c.name for c in verdict.checks if not c.holds]
    words = f"FAIL: {', '.join(bad)}" if bad else f"PASS: {len(verdict.checks)} of {len(verdict.checks)} checks"
    return Stage("gate", words, {"passed": verdict.holds, "failed": bad})


def _centred(task: Task, belief: Belief) -> tuple[Task, Belief]:
    """The task whose nominal world is what is believed of the robot, not what its model says."""
    low, high = belief.support(0.99)
    e = belief.estimate()
    params = Params(tuple(replace(p, nominal=float(np.clip(x, p.low, p.high))) for p, x in zip(task.params, e)))
    ranges = Box(params, np.maximum(low, params.low), np.minimum(high, params.high))
    return replace(task, params=params, belief=ranges), ranges


def _run(past: Journal) -> Path:
    made = past.last("train", "adapt")
    if made is None:
        raise SurefootError("cross: no policy was trained yet; expected a driver that begins with train")
    return Path(made.facts["run"])


def _robot(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    policy, k = bundle.load(_run(past)), len(past.all("robot"))
    seconds = min(LOGGED, max(5.0, q.budget.robot - past.robot_seconds))
    file = past.place("robot").with_suffix(".npz")
    robot.log(policy, seconds, judging(q.seed, f"cross log {k}") % 2**31, watch).save(file)
    rate = robot.trial(policy, q.episodes, judging(q.seed, f"cross trial {k}"))
    return Stage("robot", f"{rate} of {rate.n} episodes succeed on the robot", {"log": str(file)}, robot=rate,
                 robot_seconds=seconds)  # fmt: skip


def _doctor(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """The first cause of the newest log, and whether its number is in the training range."""
    policy, log = bundle.load(_run(past)), Log.load(_logs(past)[-1])
    belief, _ = known(q, past)
    try:
        found = diagnose(policy, q.task, log, watch)
    except LogError as error:
        return Stage("doctor", f"no diagnosis: {error}", {"kind": "", "branch": ""})
    first, weighed = found.first, found.weighed(found.first)
    after = consequences(policy, q.task, belief, weighed.hypothesis if weighed else None)
    if first is None:
        return Stage("doctor", "no cause: noise explains the log", {"kind": "", "branch": ""})
    facts = {"kind": first.kind, "branch": first.branch, "evidence": first.evidence, "share": first.share,
             "param": after.param, "value": after.value, "in_range": after.in_range,
             "white": found.left.white if found.left else None}  # fmt: skip
    return Stage("doctor", f"{first.kind}: {first.detail}", facts)


def _logs(past: Journal) -> list[Path]:
    return [Path(s.facts["log"]) for s in past.stages if s.facts.get("log")]


def _randomize(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """The task's own ranges, with what the doctor has found in them."""
    return _believed(q, past, _with_cause(q.task, q.task.belief, past.last("doctor")), "the task's ranges")


def _widen(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    belief, _ = known(q, past)
    cause = past.last("doctor")
    assert cause is not None
    name, value = cause.facts["param"], cause.facts["value"]
    stage = _believed(q, past, _with_cause(q.task, belief, cause), f"the range of {name} reaches {value:.3g}")
    return replace(stage, facts={**stage.facts, "param": name})


def _with_cause(task: Task, belief: Belief, cause: Stage | None) -> Belief:
    """The belief as ranges that contain the number a doctor found."""
    low, high = (np.array(x) for x in belief.support(0.99))
    if cause is not None and cause.facts.get("param"):
        i, value = task.params.index(cause.facts["param"]), float(cause.facts["value"])
        margin = MARGIN * max(high[i] - low[i], 0.1 * abs(value))
        low[i], high[i] = min(low[i], value - margin), max(high[i], value + margin)
    return Box(task.params, np.maximum(low, task.params.low), np.minimum(high, task.params.high))


def _believed(q: Question, past: Journal, belief: Belief, words: str) -> Stage:
    file = past.place("belief").with_suffix(".json")
    belief.write(file)
    return Stage("believe", words, {"belief": str(file)})


def _identify(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """Fit the numbers that are physics to all logs; what they do not determine keeps its range."""
    logs = [Log.load(p) for p in _logs(past)]
    world, wide = tasks.env(q.task, 1).world, _prior(q.task)
    try:
        found = identify(world, wide, logs, watch=watch, warn=False)
    except SurefootError as error:
        return Stage("identify", f"refused: {error}", {"refused": str(error)})
    if found.fault:
        return Stage("identify", f"refused: {found.fault}", {"refused": found.fault})
    belief = _around(q.task, found.params, _with_cause(q.task, q.task.belief, None))
    stage = _believed(q, past, belief, "")
    names = [x.name for x in found.params if x.determined]
    fitted = {x.name: [x.value, x.low, x.high, x.determined] for x in found.params}
    words = f"{len(names)} of {len(fitted)} numbers are determined: {', '.join(names[:6]) or 'none'}"
    return replace(stage, found=words, facts={**stage.facts, "fitted": fitted, "white": found.white})


def _prior(task: Task) -> Belief:
    """Physical bounds for unknowns that are physics; the others stay nominal."""
    from surefoot.sim.realities import NOT_PHYSICS

    fixed = np.array([p.target in NOT_PHYSICS for p in task.params])
    nominal = task.params.nominal
    return Box(task.params, np.where(fixed, nominal, task.params.low), np.where(fixed, nominal, task.params.high))


def _around(task: Task, learned: Any, own: Belief) -> Belief:
    """Ranges around what was identified, at least KEPT of the task's own wide; the task's where a log says nothing."""
    low, high = (np.array(x) for x in own.support())
    for i, x in enumerate(learned):
        if not x.determined:
            continue
        half = max(WIDEST * (x.high - x.low) / 2, KEPT * (high[i] - low[i]))
        middle = x.value
        low[i], high[i] = middle - half, middle + half
    return Box(
        task.params, np.clip(low, task.params.low, task.params.high), np.clip(high, task.params.low, task.params.high)
    )


def _missing(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    from surefoot.real2sim.residual import residual_force

    return _learned(
        q, past, "missing", lambda world, e, log: residual_force(world, e, log, seed=q.seed, watch=watch).term
    )


def _actuator(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    from surefoot.real2sim.actuator import fit

    return _learned(q, past, "actuator", lambda world, e, log: fit(world, e, log, None, watch).net)


def _learned(q: Question, past: Journal, name: str, fit: Callable[[Any, Belief, Log], Any]) -> Stage:
    """A Term from the newest log, in the world as it is believed; refused where it explains nothing."""
    belief, _ = known(q, past)
    world, log = tasks.env(q.task, 1).world, Log.load(_logs(past)[-1])
    try:
        term = fit(world, point(q.task.params, belief.estimate()), log)
    except SurefootError as error:
        return Stage(name, f"refused: {error}", {"refused": str(error)})
    path = past.place(name)
    save(term, path if name == "missing" else path.with_suffix(".onnx"))
    return Stage(
        name, f"learned from {len(log)} rows", {"term": str(path if name == "missing" else path.with_suffix(".onnx"))}
    )


def _explore(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """Play random controls, which say more of the physics than a policy that hardly moves, and fit again."""
    file = past.place("explore").with_suffix(".npz")
    robot.log(None, PLAYED, judging(q.seed, "cross motion") % 2**31, watch).save(file)
    again = Stage("explore", "", {"log": str(file)})
    stage = _identify(q, replace(past, stages=(*past.stages, again)), robot, watch)
    return replace(stage, facts={**stage.facts, "log": str(file)}, robot_seconds=PLAYED)


def _adapt(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """RMA: a teacher that observes e, and a student that infers its latent from the history."""
    belief, terms = known(q, past)
    out, alike = past.place("adapt"), {"seed": q.seed, "belief": belief, "terms": terms}
    settings = settings_for(q.task, {"encoder": "e"} | ({} if q.steps is None else {"steps": q.steps}))
    lesson = replace(tuned(DistillSettings, q.task), label="latent")
    how: Any = {"watch": watch, "resume_if_same": True, **alike}
    obs = tasks.teachers(q.task, tasks.ObsOverride())
    teacher = train(q.located, out / "teacher", settings=settings, ranges=None, obs=obs, **how)
    run = train(q.located, out / "student", settings=lesson, teacher=teacher, **how).parent
    sim = _simulated(bundle.load(run), q, belief, terms)
    return Stage("adapt", f"a student over {_width(q.task, belief)}: {sim} there", {"run": str(run)}, sim=sim)


WORK: Mapping[str, Work] = {
    "train": _train, "gate": _gate, "robot": _robot, "doctor": _doctor, "randomize": _randomize, "widen": _widen,
    "identify": _identify, "actuator": _actuator, "missing": _missing, "explore": _explore, "adapt": _adapt,
}  # fmt: skip
