"""surefoot train --adapt: a teacher that observes e, then a student that infers it from its history.

OUT/teacher   PPO with e among its terms, unless --teacher gives a run
OUT/student   supervised by the teacher's latent (rma), or by its actions (dagger)
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot import tasks
from surefoot.belief import Box
from surefoot.learn.settings import DistillSettings, PPOSettings, tuned
from surefoot.report import Progress
from surefoot.task import Task
from surefoot.verbs.arguments import trained_over

if TYPE_CHECKING:
    from surefoot.verbs.train.train import Train


def train(asked: "Train", task: Task, out: Path, how: Mapping[str, Any], taught: Mapping[str, Any]) -> Path:
    """Both runs, one after the other; asked again, it goes on where it stopped. Returns the student's policy."""
    from surefoot.learn import train as learn

    teacher, belief = asked.teacher, taught["belief"]
    if teacher is None:
        s = replace(asked.settings, encoder="e") if asked.adapt == "rma" else asked.settings
        own = dict(taught) | {"settings": s, "obs": tasks.teachers(task, asked.obs)}
        teacher = learn.train(asked.task, out / "teacher", resume_if_same=True, **how, **own)
    if taught["ranges"] is not None:  # where the teacher has never been, it has nothing to teach
        belief = trained_over(teacher, task) or belief
        if isinstance(belief, Box) and (belief.low == belief.high).all():
            words = "note: the teacher's ranges have not grown: its student learns in one world; train for longer"
            how["watch"](Progress(words, stays=True))
    mine = {k: taught[k] for k in ("seed", "terms", "judge")} | {"teacher": teacher, "belief": belief}
    mine["settings"] = replace(lesson(asked, task), label="action" if asked.adapt == "dagger" else "latent")
    return learn.train(asked.task, out / "student", resume_if_same=True, **how, **mine)


def lesson(asked: "Train", task: Task) -> DistillSettings:
    """The student's settings; where --steps was given and --student.steps was not, its steps change in proportion."""
    usual, own = tuned(PPOSettings, task), tuned(DistillSettings, task)
    if asked.teacher is not None or asked.student.steps != own.steps or asked.settings.steps == usual.steps:
        return asked.student
    return replace(asked.student, steps=max(1, round(own.steps * asked.settings.steps / usual.steps)))


def disagreements(asked: "Train", task: Task) -> Iterator[tuple[bool, str]]:
    """Whether some flags contradict each other, and the words for it."""
    s, obs, on, rma = asked.student, asked.obs, asked.adapt != "none", asked.adapt == "rma"
    own, alone = tuned(DistillSettings, task), asked.teacher is not None and not asked.support
    yield not on and (alone or s != own), "--teacher and --student.*: only with --adapt rma or --adapt dagger"
    yield on and obs.trial > 1, "--obs.trial: not supported with --adapt yet; leave one of them out"
    words = "--adapt rma: a student has the task's own terms and keeps the teacher's body; --obs.only, --obs.also and --encoder do not go with it"  # fmt: skip
    yield rma and bool(obs.only or obs.also or asked.settings.encoder not in ("none", "e")), words
    words = f"--adapt rma: {task.name}'s teacher has other terms than its actor; use --adapt dagger"
    yield rma and "teacher" in task.observations, words
    words = "--obs.only: with --adapt, the terms of the teacher; name those of its student by --student.only"
    yield asked.adapt == "dagger" and bool(obs.only) and not s.only and "teacher" not in task.observations, words
    words = "--student.only: with --adapt rma the student keeps the teacher's terms; use --adapt dagger"
    yield rma and bool(s.only), words
    words = f"--adapt: {task.name} has discrete actions, which no student supports yet"
    yield on and bool(task.action.choices), words
    words = "--student.latent, --student.hidden: with --adapt rma the student has the teacher's sizes; give --latent and --hidden"
    yield rma and (s.latent, s.hidden) != (own.latent, own.hidden), words
    least = tasks.teachers(task, obs).history or task.observations["actor"].history
    words = f"--student.history: expected at least the teacher's {least}, found {s.history}"
    yield on and s.history < least, words
    given = _trains(asked, task) if alone else []
    words = f"--teacher: that one is trained already, and {', '.join(given)} would train it; what a student learns with is --student.*"
    yield bool(given), words


def _trains(asked: "Train", task: Task) -> list[str]:
    """The flags that say how a teacher is trained: nothing for one that is there already."""
    usual = tuned(PPOSettings, task)
    given = [f"--{k.replace('_', '-')}" for k, v in vars(asked.settings).items() if v != getattr(usual, k)]
    given += ["--obs.*"] if asked.obs != tasks.ObsOverride() else []
    return given + [
        f"--{k}" for k, v in (("ranges", "task"), ("start", None), ("base", None)) if getattr(asked, k) != v
    ]
