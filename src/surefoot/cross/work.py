"""What each step of a crossing does: one function a step, (question, journal, robot, watch) -> Stage.

What is known of the robot is a belief p(e) and learned Terms, both files; `known` finds the newest of each in the journal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files, tasks
from surefoot.belief import Belief, Box, point
from surefoot.cross.beliefs import centred, learned_from, searched, wider
from surefoot.cross.driver import GOOD
from surefoot.cross.journal import Budget, Journal, Stage
from surefoot.cross.robot import HiddenRobot, Plan, Rate, Robot
from surefoot.deploy import bundle, manifest
from surefoot.doctor import diagnose
from surefoot.doctor.consequences import consequences
from surefoot.errors import LogError, SurefootError
from surefoot.gate.bundled import bundled
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import gate
from surefoot.gate.plan import Plan as GatePlan
from surefoot.learn.on_robot.limited import behind_runtime
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.learn.settings import PPOSettings
from surefoot.learn.sim2sim.settings import Easy, Forward
from surefoot.learn.sim2sim.support import teachers
from surefoot.learn.train import settings_for, train
from surefoot.log import Log
from surefoot.policy import Policy
from surefoot.real2sim.identify import MOST_STARTS, Identified, Identify, identify
from surefoot.report import Watch
from surefoot.rng import judging
from surefoot.sim.learned import save
from surefoot.task import Task
from surefoot.tasks.rollout import evaluate
from surefoot.world import World

LATER = 0.5  # of the steps of the first three trainings, for those that follow
TRIED = 30.0  # s of driving, at most, to see whether a policy works
EPISODES = 6  # of them
SHORTEST = 6.0  # s of driving before two failures end an attempt: shorter logs say little
EXPLORED, DITHER = 10.0, 0.3  # s of driving with a random part of the action, and its standard deviation
LONGER = Identify(horizons=(0.06,), last=0.4, starts="estimated", rounds=3, weigh="error")
SHORT = replace(LONGER, last=0.1, starts="known")
"""short windows: what the model lacks, and what is amplified in a fall, does not add up. Where a robot has few joints, first
states of longer windows are unknowns, too, and sensor noise does not distort the fit; else windows begin as measured"""
SHARE = 0.05  # of every batch, where a robot is learned with
ENOUGH, BEGINNING = 10.0, 1.0  # s of logs that are fitted, and of each episode at least


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
    """of each evaluation in simulation, and of what is measured at the end"""
    steps: int | None = None
    """env steps of the first training; default: the task's own"""
    threads: int = 0
    shared: Path | None = None
    """folder for trainings before anything was learned from the robot: crossings to many robots have them in common"""

    def __post_init__(self) -> None:
        whole = max(self.budget.trying, min(self.task.seconds, TRIED))
        object.__setattr__(self, "budget", replace(self.budget, trying=whole))

    def asked(self) -> dict[str, Any]:
        """What may not change on the way; a budget may grow."""
        return {"task": self.task.name, "robot": self.robot, "seed": self.seed, "episodes": self.episodes,
                "steps": self.steps}  # fmt: skip


@dataclass(frozen=True)
class Crossing:
    """A crossing at its end."""

    question: Question
    journal: Journal
    why: str
    """it ended"""
    before: Rate | None = None
    """success of the first policy on the robot, in episodes that the loop did not see; of a real robot, as it was tried"""
    after: Rate | None = None
    """of the policy that it ends with"""

    @property
    def crossed(self) -> bool:
        return self.after is not None and self.after.value >= GOOD

    @property
    def first(self) -> Path | None:
        """The run of the first policy."""
        return next((Path(s.facts["run"]) for s in self.journal.all("train")), None)

    @property
    def policy(self) -> Path | None:
        """The run of the policy that did best when it was tried; of equals, the last."""
        return best(self.journal)


def best(past: Journal) -> Path | None:
    tried = past.all("robot")
    found = max(enumerate(tried), key=lambda x: (x[1].robot.value if x[1].robot else 0.0, x[0]), default=None)
    return None if found is None else Path(found[1].facts["run"])


Work = Callable[[Question, Journal, Robot, Watch], Stage]


def known(question: Question, past: Journal) -> tuple[Belief, tuple[Path, ...]]:
    """The newest belief, nominal at first, and all learned Terms."""
    made = [s.facts for s in past.stages]
    belief = next((Belief.read(f["belief"], question.task.params) for f in reversed(made) if f.get("belief")), None)
    return belief or tasks.nominal(question.task), tuple(Path(f["term"]) for f in made if f.get("term"))


def _train(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    task, settings, more, words = _lesson(q, past, robot)
    alike = q.shared is not None and not learned_of_robot(past) and not {"robot", "reference"} & set(more)
    run = q.shared / f"train-{len(past.all('train'))}" if alike and q.shared else past.place("train")
    sim, used = _learn(q, past, task, settings, run, watch, **more), 0.0
    if "robot" in more:
        used = more["robot"].seconds(settings.iterations * settings.batch, settings.envs, past.stages[-1].facts["dt"])
    return Stage("train", f"trained {words}", {"run": str(run)}, sim=sim, robot_seconds=used)


def _anew(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """The last training again, but from nothing and with all of its steps; the better of the two policies goes on."""
    settings = settings_for(q.task, {} if q.steps is None else {"steps": q.steps})
    task = behind_runtime(q.task) if learned_of_robot(past) else q.task
    run, last = past.place("train"), past.all("train")[-1]
    sim = _learn(q, past, task, settings, run, watch)
    if last.sim is not None and last.sim.value > sim.value:
        return replace(
            last, found=f"trained from nothing: {sim}; the policy before stays", facts={**last.facts, "anew": True}
        )
    return Stage("train", "trained from nothing", {"run": str(run), "anew": True}, sim=sim)


def _learn(q: Question, past: Journal, task: Task, s: PPOSettings, run: Path, watch: Watch, **more: Any) -> Rate:
    """Train over what is known; success in the same worlds."""
    belief, terms = known(q, past)
    train((q.reference, task), run, seed=q.seed, belief=belief, settings=s, ranges=None, terms=terms,
          watch=watch, resume_if_same=True, threads=q.threads, **more)  # fmt: skip
    env = tasks.env(task, q.episodes, belief, judging(q.seed, "cross"), q.threads, terms=tasks.learned(q.task, terms))
    return Rate.of(evaluate(bundle.load(run), env))


def _lesson(q: Question, past: Journal, robot: Robot) -> tuple[Task, PPOSettings, dict[str, Any], str]:
    """What is trained next: the task, settings, what the training stands on, and how to say it."""
    last, before = past.last("train"), past.stages[-1].name if past.stages else ""
    settings = settings_for(q.task, {} if q.steps is None else {"steps": q.steps})
    if len(past.all("train")) > 2:
        settings = replace(settings, steps=max(1, round(LATER * settings.steps)))
    if before == "support":
        more: dict[str, Any] = {"reference": Path(past.stages[-1].facts["teacher"])}
        return q.task, settings, more, "to move as the teacher of the support world does"
    more = {"start": Path(last.facts["run"]) if last is not None else None}
    if before == "finetune" and isinstance(robot, HiddenRobot):
        settings, more["robot"] = _tuning(past.stages[-1], robot, settings)
        return q.task, settings, more, f"with the robot in {100 * SHARE:.0f} % of every batch"
    if learned_of_robot(past):
        return behind_runtime(q.task), settings, more, "over what is believed of the robot"
    return q.task, settings, more, "over the task's ranges" if last else "in the nominal world"


def _tuning(decided: Stage, robot: HiddenRobot, s: PPOSettings) -> tuple[PPOSettings, OnRobot]:
    """Settings of a training with the robot, which lasts no longer than it may be driven."""
    how = OnRobot.of(robot.reality, SHARE)
    most = int(decided.facts["seconds"] / (how.rows(s.envs) * s.horizon * decided.facts["dt"]))  # batches
    return replace(s, steps=max(1, min(most, s.iterations)) * s.batch), how


def _finetune(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """How long the robot may be driven while it is learned with; the training itself is the next step."""
    if not isinstance(robot, HiddenRobot):
        words = "fine-tuning drives a simulated robot only; a robot at an address is not driven by a policy that learns"
        return Stage("finetune", f"refused: {words}", {"refused": words})
    left = q.budget.robot - past.robot_seconds - q.budget.trying
    dt = tasks.env(q.task, 1).world.dt
    return Stage("finetune", f"{left:.0f} s of the robot for learning", {"seconds": left, "dt": dt})


def _support(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """A teacher in the support world, and a forward model of how it moves."""
    settings = settings_for(q.task, {} if q.steps is None else {"steps": q.steps})
    run = past.place("support")
    train((q.reference, q.task), run, seed=q.seed, belief=tasks.nominal(q.task), settings=settings, ranges=None,
          obs=teachers(q.task), easy=Easy(), forward=Forward(), watch=watch, resume_if_same=True, threads=q.threads)  # fmt: skip
    return Stage("support", "a teacher with soft servos, no torque limits and no latency", {"teacher": str(run)})


def learned_of_robot(past: Journal) -> bool:
    """Whether anything was learned from a log yet."""
    return any(not s.facts.get("refused") for s in past.all("identify", "actuator", "missing", "delta"))


def _gate(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """A quick gate around what is believed; its verdict goes into the bundle, and a simulated robot is driven whatever it is."""
    belief, _ = known(q, past)
    run = _run(past)
    task, around = centred(q.task, belief)
    plan = GatePlan(
        episodes=max(40, min(q.episodes, 100)), per_load=20, motion=10, search=(30, 20, 50), threads=q.threads
    )
    verdict = gate(candidate(run, task), around, plan, Limits(), watch)
    files.write_json(run / "gate.json", verdict.to_json())
    bad = [c.name for c in verdict.checks if not c.holds]
    words = f"FAIL: {', '.join(bad)}" if bad else f"PASS: {len(verdict.checks)} of {len(verdict.checks)} checks"
    return Stage("gate", words, {"passed": verdict.holds, "failed": bad, "run": str(run)})


def _run(past: Journal) -> Path:
    made = past.last("train")
    if made is None:
        raise SurefootError("cross: no policy was trained yet; expected a driver that begins with train")
    return Path(made.facts["run"])


def _robot(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """Try the newest policy; its log is what every remedy learns from."""
    left = q.budget.robot - past.robot_seconds
    return _tried(q, past, robot, Plan(EPISODES, min(TRIED, left), least=min(SHORTEST, left)), watch)


def _tried(q: Question, past: Journal, robot: Robot, plan: Plan, watch: Watch) -> Stage:
    run, k = _run(past), len(past.all("robot", "explore"))
    made, _ = bundled(run, bundle.load(run), q.task, {})
    packed = manifest.read(manifest.write(past.place("bundle"), made))
    found = robot.attempt(packed, replace(plan, seed=judging(q.seed, f"cross attempt {k}") % 2**31), watch)
    file = past.place("robot").with_suffix(".npz")
    found.log.save(file)
    ends = ", ".join(f"{why} {count}" for why, count in found.ended.items() if why != "time")
    words = f"{found.rate.k} of {found.rate.n} episodes succeed" + (f" ({ends})" if ends else "")
    facts = {"log": str(file), "run": str(run), "bundle": packed.sha256, "ended": dict(found.ended)}
    return Stage("robot", words, facts, robot=found.rate, robot_seconds=found.seconds)


def _explore(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """The newest policy with a random part in its actions: a robot that hardly moves says little of itself."""
    left = min(EXPLORED, q.budget.robot - past.robot_seconds)
    stage = _tried(q, past, robot, Plan(1, left, failures=99, least=left, dither=DITHER, cut=True), watch)
    return replace(stage, name="explore", found=f"{stage.robot_seconds:.0f} s with random parts", robot=None)


def _doctor(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """The first cause of the newest log, and whether its number is in the training range."""
    policy, log = bundle.load(_run(past)), Log.load(_logs(past)[-1])
    belief, _ = known(q, past)
    try:
        found = diagnose(policy, q.task, log, watch)
    except LogError as error:
        return Stage("doctor", f"no diagnosis: {error}", {"kind": "", "branch": ""})
    first = found.first
    if first is None:
        return Stage("doctor", "no cause: noise explains the log", {"kind": "", "branch": ""})
    weighed = found.weighed(first)
    after = consequences(policy, q.task, belief, weighed.hypothesis if weighed else None)
    facts = {"kind": first.kind, "branch": first.branch, "evidence": first.evidence, "share": first.share,
             "param": after.param, "value": after.value if after.param else None, "in_range": after.in_range,
             "white": found.left.white if found.left else None}  # fmt: skip
    return Stage("doctor", f"{first.kind}: {first.detail}", facts)


def _logs(past: Journal) -> list[Path]:
    return [Path(s.facts["log"]) for s in past.stages if s.facts.get("log")]


def _identify(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """Fit the numbers that are physics to all logs; what they leave open stays wide."""
    world, wide = tasks.env(q.task, 1, threads=q.threads).world, searched(q.task)
    assert LONGER.last is not None
    ways = (LONGER, SHORT) if 2 * world.nv * ENOUGH / LONGER.last <= MOST_STARTS else (SHORT,)
    try:
        found = whole_windows(world, wide, fitted_part(past), ways, watch)
    except SurefootError as error:
        return Stage("identify", f"refused: {error}", {"refused": str(error)})
    if found.fault:
        return Stage("identify", f"refused: {found.fault}", {"refused": found.fault})
    free = wide.low < wide.high
    fitted = {x.name: [x.value, x.low, x.high, x.determined] for x, f in zip(found.params, free) if f}
    sure = [name for name, x in fitted.items() if x[3]]
    words = f"{len(sure)} of {len(fitted)} numbers are determined: {', '.join(sure[:6]) or 'none'}"
    belief = learned_from(q.task, found.belief)
    found.belief.write(past.place("fit").with_suffix(".json"))
    return _believed(
        "identify", past, belief, words, {"fitted": fitted, "white": found.white, "open": len(fitted) - len(sure)}
    )


def whole_windows(world: World, wide: Box, logs: list[Log], ways: Sequence[Identify], watch: Watch) -> Identified:
    """By the first way that the logs allow: where readings are lost or episodes are short, no longer window may be whole."""
    for how in ways[:-1]:
        try:
            return identify(world, wide, logs, how, watch=watch, warn=False)
        except LogError:
            pass
    return identify(world, wide, logs, ways[-1], watch=watch, warn=False)


def fitted_part(past: Journal) -> list[Log]:
    """The beginnings of all episodes: there a robot moves most, and what follows, a fall or rest, says little more."""
    logs = [sent(Log.load(p)) for p in _logs(past)]
    episodes = sum(1 + len(x.meta["gaps"]) for x in logs)
    return [beginnings(x, max(BEGINNING, ENOUGH / episodes)) for x in logs]


def beginnings(log: Log, seconds: float) -> Log:
    """The first seconds of each episode."""
    first = [float(log.time[0]), *(end for _, end in log.meta["gaps"])]
    since = log.time - np.array(first)[np.searchsorted(first, log.time + 1e-6) - 1]
    rows = since < seconds - 1e-6
    return Log(log.time[rows], {k: v[rows] for k, v in log.columns.items()}, log.units, log.meta)


def sent(log: Log) -> Log:
    """The log with the controls that were sent: what was asked for may have been limited."""
    if "target" not in log.columns:
        return log
    names = {**log.meta["names"], "control": log.meta["names"]["target"]}
    return replace(log, columns={**log.columns, "control": log["target"]}, meta={**log.meta, "names": names})


def _believed(name: str, past: Journal, belief: Belief, words: str, facts: Mapping[str, Any] = {}) -> Stage:
    file = past.place("belief").with_suffix(".json")
    belief.write(file)
    return Stage(name, words, {**facts, "belief": str(file)})


def _randomize(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    return _believed("randomize", past, q.task.belief, "the task's own ranges")


def _widen(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    belief, _ = known(q, past)
    return _believed("widen", past, wider(belief), "every range is half as wide again")


def _missing(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    from surefoot.real2sim.residual import residual_force

    return _learned(
        q, past, "missing", lambda world, e, log: residual_force(world, e, log, seed=q.seed, watch=watch).term
    )


def _actuator(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    from surefoot.real2sim.actuator import fit

    return _learned(q, past, "actuator", lambda world, e, log: fit(world, e, log, None, watch).net)


def _delta(q: Question, past: Journal, robot: Robot, watch: Watch) -> Stage:
    """What to add to actions. No remedy of the driver's: a force explains what it does, and more."""
    from surefoot.real2sim.residual.delta import by_inversion

    return _learned(q, past, "delta", lambda world, e, log: by_inversion(world, e, log, None, q.seed, watch).term)


def _learned(q: Question, past: Journal, name: str, fit: Callable[[Any, Belief, Log], Any]) -> Stage:
    """A Term from the newest log, in the world as it is believed; refused where it explains nothing."""
    belief, _ = known(q, past)
    world, log = tasks.env(q.task, 1, threads=q.threads).world, sent(Log.load(_logs(past)[-1]))
    try:
        term = fit(world, point(q.task.params, belief.estimate()), log)
    except SurefootError as error:
        return Stage(name, f"refused: {error}", {"refused": str(error)})
    path = past.place(name).with_suffix(".onnx") if name == "actuator" else past.place(name)
    save(term, path)
    return Stage(name, f"learned from {len(log)} rows", {"term": str(path)})


WORK: Mapping[str, Work] = {
    "train": _train, "anew": _anew, "gate": _gate, "robot": _robot, "doctor": _doctor, "randomize": _randomize, "widen": _widen,
    "identify": _identify, "actuator": _actuator, "missing": _missing, "explore": _explore,
    "support": _support, "finetune": _finetune, "delta": _delta,
}  # fmt: skip


def measured(question: Question, robot: Robot, run: Path | None, past: Journal) -> Rate | None:
    """Success of a run's policy on the robot: in episodes of its own where it can be, else as it was tried."""
    if run is None:
        return None
    policy: Policy = bundle.load(run)
    found = robot.measure(policy, question.episodes, judging(question.seed, "cross measures"))
    tried = [s.robot for s in past.all("robot") if s.facts["run"] == str(run)]
    return found or (tried[-1] if tried else None)
