"""The methods of the reality bench: how a policy for a robot is made. Each is a short function from a Bench to a policy.

    b.before(k)           the trainings before a robot is known: the nominal policy (1), and DR after it (3 stages)
    b.trained(name, ...)  a training of a method's own that no robot decides: made once for a task
    b.after(step, ...)    steps of `cross` after the first logs, which all methods with robot data have in common

The first logs of a robot are those of its nominal and of its DR policy, as `cross` tries them. All that is made is kept in
folders: whoever asks for it again gets what is there. A method raises SurefootError where it does not apply to a task.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import said
from surefoot import files, tasks
from surefoot.belief import Box, point
from surefoot.belief.gaussian import Gaussian
from surefoot.control.adaptive import Adapted, Adaptive
from surefoot.control.dynamics import Joints
from surefoot.cross import HiddenRobot, Journal, Question, Stage, Step, carry_out, cross
from surefoot.cross.beliefs import learned_from, ranges
from surefoot.cross.driver import EXPLORING, GOOD, TUNING, anew, skipping
from surefoot.cross.work import LATER
from surefoot.deploy import bundle
from surefoot.learn.joined.engines import MIXED
from surefoot.learn.on_robot.limited import behind_runtime
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.settings import DistillSettings, tuned
from surefoot.learn.train import settings_for, train
from surefoot.policy import Policy
from surefoot.report import Progress, Watch
from surefoot.rng import judging
from surefoot.sim.layout import model_of
from surefoot.sim.realities import hidden
from surefoot.task import Task
from surefoot.tasks import ObsOverride
from surefoot.tasks.joint_model import joints_of

BEFORE = ("train", "randomize", "train")
EVERY = 5.0  # s between two notes of what was spent: a benchmark that is killed loses no more
NEEDS = {
    "explore": EXPLORING,
    "finetune": TUNING,
}  # s of robot time that must be left for a step, as the driver has it
FARTHEST = 3.0  # times the task's ranges: how far those of ADR may grow
SURE = 1e-8  # variance of a number that is known
SLOW = (
    "walk",
)  # tasks whose robots are too slow to train in: with backlash the engine has twice the joints, and takes 15 times as long
DEAD = 0.2  # rad/s or m/s: errors of the speed that teach the adaptive law nothing, above the noise of the readings


@dataclass(frozen=True)
class Made:
    """What a method made."""

    policy: Path | Policy
    """a run's folder, or a policy with a wrapper"""
    robot_seconds: float = 0.0
    note: str = ""
    """why it ended"""
    refused: bool = False
    """whether its own check refused what was learned, so that it is the DR policy"""


class Meter:
    """CPU seconds of this process, in a file beside what they were spent on; those of a part that was stopped count, too."""

    def __init__(self) -> None:
        self.files: dict[Path, None] = {}

    @contextmanager
    def on(self, file: Path) -> Iterator[Watch]:
        self.files[file] = None
        before, began = spent(file), time.process_time()
        noted = time.monotonic()

        def note() -> None:
            files.write_json(file, before + time.process_time() - began)

        def watch(p: Progress) -> None:
            nonlocal noted
            if p.stays:
                said(p.doing)
            if time.monotonic() - noted > EVERY:
                note()
                noted = time.monotonic()

        try:
            yield watch
        finally:
            note()

    @property
    def seconds(self) -> float:
        """Of all that was used, whenever it was made."""
        return sum(map(spent, self.files))


def spent(file: Path) -> float:
    return float(files.read_json(file)) if file.exists() else 0.0


@dataclass(frozen=True)
class Bench:
    """One robot, and what is kept of a task."""

    question: Question
    """its `out` is the method's own folder for this robot; `shared` that of the task"""
    robot: HiddenRobot
    first: Path
    """folder of the first logs"""
    meter: Meter

    @property
    def task(self) -> Task:
        return self.question.task

    @property
    def shared(self) -> Path:
        assert self.question.shared is not None
        return self.question.shared

    def before(self, stages: int = len(BEFORE)) -> Journal:
        """The first of the trainings before a robot is known."""
        nobody = HiddenRobot(self.task, hidden(0, self.task))
        q = replace(self.question, out=self.shared / "trainings", robot="none")
        return followed(q, BEFORE[:stages], nobody, self.meter)

    def first_logs(self) -> Journal:
        """The nominal and the DR policy, each tried on the robot."""
        nominal, *more = self.before().stages
        q = replace(self.question, out=self.first)
        return followed(q, (nominal, "robot", *more, "robot"), self.robot, self.meter)

    def after(self, *steps: str) -> Made:
        """The policy after some steps that follow the first logs; where the last one was refused, the DR policy."""
        plan = (*self.first_logs().stages, *steps)
        past = followed(self.question, plan, self.robot, self.meter)
        if anew(past) is not None:
            past = followed(self.question, (*plan, "anew"), self.robot, self.meter)
        refused = str(past.stages[-1].facts.get("refused", ""))
        return Made(last_run(past), past.robot_seconds, refused, bool(refused))

    def trained(self, name: str, stages: float = 1, **asked: Any) -> Path:
        """A run of the task for as many steps as a stage of the shared trainings has, or a multiple; made once."""
        folder = self.shared / name
        done, bill, run = folder / "done.json", folder / "spent.json", folder / "run"
        self.meter.files[bill] = None
        if not done.exists():
            with self.meter.on(bill) as watch:
                self._train(run, stages, watch, asked)
            files.write_json(done, {"run": str(run)})
        return run

    def _train(self, run: Path, stages: float, watch: Watch, asked: Mapping[str, Any]) -> None:
        q = self.question
        own = settings_for(q.task, {} if q.steps is None else {"steps": q.steps})
        changes = asked.get("changes", {}) | {"steps": round(stages * own.steps)}
        usual = {"seed": q.seed, "settings": replace(own, **changes), "belief": q.task.belief, "ranges": None}
        more = {k: v for k, v in asked.items() if k not in ("changes", "task")}
        task = asked.get("task", q.task)
        train((q.reference, task), run, watch=watch, resume_if_same=True, threads=q.threads, **(usual | more))


def followed(q: Question, plan: Sequence[Stage | str], robot: HiddenRobot, meter: Meter) -> Journal:
    """A journal of these stages: those that are given are copied, steps are carried out; a step that was refused is the last."""
    past, k = Journal.open(q.out, q.asked(), q.budget), -1
    for k, step in enumerate(plan):
        if isinstance(step, Stage):
            past = past if k < len(past.stages) else past.add(replace(step, seconds=0.0))
            continue
        bill = q.out / "spent" / f"{k:02d}-{step}.json"
        meter.files[bill] = None
        if k >= len(past.stages):
            past = _step(step, q, past, robot, meter, bill)
        if past.stages[k].facts.get("refused"):
            break
    return replace(past, stages=past.stages[: k + 1])  # the folder may have more by now


def _step(step: str, q: Question, past: Journal, robot: HiddenRobot, meter: Meter, bill: Path) -> Journal:
    left = q.budget.robot - past.robot_seconds - q.budget.trying * (step == "finetune")
    if left < NEEDS.get(step, 0.0):
        words = f"{left:.0f} s of the robot are left, expected {NEEDS[step]:.0f}"
        return past.add(Stage(step, words, {"refused": words}))
    with meter.on(bill) as watch:
        return carry_out(Step(step, q.robot), q, past, robot, watch)


def last_run(past: Journal) -> Path:
    return Path(past.all("train")[-1].facts["run"])


# --- without data of the robot --------------------------------------------------------------------


def nominal(b: Bench) -> Made:
    return Made(last_run(b.before(1)))


def randomized(b: Bench) -> Made:
    return Made(last_run(b.before()))


def critic(b: Bench) -> Made:
    """As DR, but the critic sees no more than the actor: DR itself has an asymmetric critic."""
    blind = ObsOverride(critic="actor")
    first = b.trained("critic-nominal", belief=tasks.nominal(b.task), obs=blind)
    return Made(b.trained("critic", start=first, obs=blind))


def engines(b: Bench) -> Made:
    """As DR, but each of several engines simulates a share of every batch."""
    return Made(b.trained("engines", start=last_run(b.before(1)), engines=MIXED))


def adr(b: Bench) -> Made:
    """From the nominal policy on, each edge of each range as far as it can be borne, up to three times the task's ranges."""
    far, p = ranges(b.task).widen(FARTHEST), b.task.params
    target = Box(p, np.maximum(far.low, p.low), np.minimum(far.high, p.high))
    return Made(b.trained("adr", start=last_run(b.before(1)), belief=target, ranges=ADR()))


def dagger(b: Bench) -> Made:
    teacher = b.trained("dagger-teacher", 2, obs=tasks.teachers(b.task, ObsOverride()))
    return Made(b.trained("dagger", teacher=teacher, settings=_lesson(b, "action")))


def rma(b: Bench) -> Made:
    knowing = tasks.teachers(b.task, ObsOverride())
    teacher = b.trained("rma-teacher", 2, obs=knowing, changes={"encoder": "e"})
    return Made(b.trained("rma", teacher=teacher, settings=_lesson(b, "latent")))


def _lesson(b: Bench, label: str) -> DistillSettings:
    """Half as many steps as its teacher had."""
    own: DistillSettings = tuned(DistillSettings, b.task)
    steps = b.question.steps
    return replace(own, label=label, steps=own.steps if steps is None else steps)  # type: ignore[arg-type]


def two_worlds(b: Bench) -> Made:
    """A teacher in the support world, a student that moves as it does, then DR."""
    q = replace(b.question, out=b.shared / "sim2sim", shared=None, robot="none")
    return Made(last_run(followed(q, ("support", *BEFORE), b.robot, b.meter)))


def adaptive(b: Bench) -> Made:
    """The DR policy, wearing the adaptive law of the model's joints."""
    joints = driven(b.task)
    policy = bundle.load(last_run(b.before()))
    return Made(Adapted(policy.contract, policy, Adaptive(joints, dead=DEAD, substeps=b.task.substeps)))


def driven(task: Task) -> Joints:
    """The joints that actions move; refused where there are none, as on a drone."""
    return joints_of(model_of(tasks.env(task, 1).world), task.action.names)


def oracle(b: Bench) -> Made:
    """Over the robot's own numbers, which nobody knows: after DR, else from nothing, else in the robot itself; the first that works.
    Where a robot is too slow to be trained in: after DR, and on from there for twice as long."""
    own, how = b.robot.reality, OnRobot.of(b.robot.reality, 1.0)
    e = own.values(b.task, b.task.params.nominal)
    known = learned_from(b.task, Gaussian(b.task.params, b.task.params.y(e), SURE * np.eye(len(e))))
    alone = replace(b, question=replace(b.question, shared=b.question.out))
    numbers = {"belief": known, "task": behind_runtime(b.task)}
    after = last_run(b.before())
    ways: dict[str, dict[str, Any]] = {"after": {"stages": LATER, "start": after, **numbers}}
    if b.task.name in SLOW:
        ways["further"] = {"start": alone.shared / "after" / "run", **numbers}
    else:
        ways["anew"] = numbers
        ways["robot"] = {"start": after, "belief": point(b.task.params, e), "robot": how}
    tried: dict[Path, float] = {}
    for name, asked in ways.items():
        run = alone.trained(name, **asked)
        found = b.robot.measure(bundle.load(run), b.question.episodes, judging(b.question.seed, "an oracle asks"))
        assert found is not None
        tried[run] = found.value
        if found.value >= GOOD:
            break
    return Made(max(tried, key=lambda x: tried[x]))


# --- after the first logs -------------------------------------------------------------------------


def identified(b: Bench) -> Made:
    return b.after("identify", "train")


def explored(b: Bench) -> Made:
    return b.after("explore", "identify", "train")


def residual(b: Bench) -> Made:
    return b.after("missing", "train")


def delta(b: Bench) -> Made:
    return b.after("delta", "train")


def actuator(b: Bench) -> Made:
    driven(b.task)
    return b.after("actuator", "train")


def finetuned(b: Bench) -> Made:
    """With all of the robot time that is left: the step keeps some for trying the policy, which nobody does here."""
    b.first_logs()
    budget = replace(b.question.budget, robot=b.question.budget.robot + b.question.budget.trying)
    return replace(b, question=replace(b.question, budget=budget)).after("finetune", "train")


def whole_loop(b: Bench) -> Made:
    """`cross` from the first logs on, with what is left of its budget. Without gate and doctor, whose time would be most of the
    benchmark's; so it never chooses an actuator net.
    """
    followed(b.question, b.first_logs().stages, b.robot, b.meter)
    with b.meter.on(b.question.out / "spent" / "cross.json") as watch:
        done = cross(b.question, b.robot, watch, skipping(("gate", "doctor")))
    assert done.policy is not None
    return Made(done.policy, done.journal.robot_seconds, done.why)


Method = Callable[[Bench], Made]
METHODS: dict[str, tuple[Method, str]] = {
    "nominal": (nominal, "trained in the model as it is"),
    "DR": (randomized, "then over the task's ranges, with an asymmetric critic"),
    "oracle": (oracle, "over the robot's own numbers, then in the robot itself: which robots can be crossed to"),
    "MRAC": (adaptive, "DR, and an adaptive law around it"),
    "symmetric-critic": (critic, "DR, but the critic sees only what the actor sees"),
    "engines": (engines, "DR in five engines at once"),
    "ADR": (adr, "ranges that grow as far as they can be borne"),
    "sim2sim2real": (two_worlds, "DR after a support world"),
    "DAgger": (dagger, "a student of a teacher that knows e, by its actions"),
    "RMA": (rma, "a student of a teacher that knows e, by its latent"),
    "identify": (identified, "DR, then over what the first logs say of the numbers"),
    "residual": (residual, "DR, then with the force that the model lacks"),
    "delta": (delta, "DR, then with what has to be added to the actions"),
    "actuator-net": (actuator, "DR, then with a net of the actuators"),
    "explore+identify": (explored, "as identify, with a log of random actions besides"),
    "fine-tune": (finetuned, "DR, then with rows of the robot in every batch"),
    "cross": (whole_loop, "all of the loop, from the first logs on"),
}
"""cheapest first: what takes long is made when everything cheaper is there"""
