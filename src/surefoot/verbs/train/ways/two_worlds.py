"""surefoot train --support: a teacher in a support world, then a student in the task's own world that moves as the teacher does.

OUT/teacher   PPO in the support world, with a forward model beside it (forward.safetensors)
OUT/student   PPO in the task's own world, whose reward has a term for moving as the forward model says
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot import tasks
from surefoot.errors import unknown
from surefoot.learn.settings import PPOSettings
from surefoot.learn.sim2sim.settings import Easy, Forward, Imitation
from surefoot.task import Task

if TYPE_CHECKING:
    from surefoot.verbs.train.train import Train

EASY = "easy"


def train(asked: "Train", task: Task, out: Path, how: Mapping[str, Any], taught: Mapping[str, Any]) -> Path:
    """Both runs, one after the other; asked again, it goes on where it stopped. Returns the student's policy."""
    from surefoot.learn import train as learn
    from surefoot.learn.sim2sim.support import teachers

    teacher = asked.teacher
    if teacher is None:
        lesson = dict(taught) | {"forward": asked.forward, "start": None, "judge": None, "terms": ()}
        if asked.support_steps:
            lesson["settings"] = replace(taught["settings"], steps=asked.support_steps)
        lesson["obs"] = teachers(task if asked.support == EASY else tasks.resolve(asked.support), asked.obs)
        if asked.support == EASY:
            lesson["easy"] = asked.easy
        else:  # its unknowns are its own, and so is what is believed of them
            lesson["belief"] = tasks.resolve(asked.support).belief
        place = asked.task if asked.support == EASY else asked.support
        teacher = learn.train(place, out / "teacher", resume_if_same=True, **how, **lesson)
    mine = dict(taught) | {"reference": teacher, "imitation": asked.imitation, "obs": None}
    mine["teacher"] = teacher if asked.imitation.prime else None
    if asked.imitation.prime and asked.support == EASY:
        mine["settings"] = softly(taught["settings"], asked.easy.gain)
    return learn.train(asked.task, out / "student", resume_if_same=True, **how, **mine)


def softly(s: PPOSettings, gain: float) -> PPOSettings:
    """Less noise in the actions of stiffer servos, by the root of the gain: what was fitted survives, and there is something to explore."""
    low, start, high = s.spread
    return replace(s, spread=(low, max(1.2 * low, min(1.0, gain) ** 0.5 * start), high))


def disagreements(asked: "Train", task: Task) -> Iterator[tuple[bool, str]]:
    """Whether some flags contradict each other, and the words for it."""
    on = bool(asked.support)
    if on and asked.support != EASY and not tasks.is_reference(asked.support):
        raise unknown("support world", asked.support, [EASY, *tasks.names()], "--support")
    for name, usual in (("easy", Easy()), ("forward", Forward()), ("imitation", Imitation())):
        yield not on and getattr(asked, name) != usual, f"--{name}.*: only with --support"
    yield not on and asked.support_steps != 0, "--support-steps: only with --support"
    yield asked.support_steps < 0, f"--support-steps: expected 0 or more, found {asked.support_steps}"
    yield on and asked.support != EASY and asked.easy != Easy(), "--easy.*: only with --support easy"
    others = {
        "--adapt": asked.adapt != "none",
        "--through": asked.through,
        "--base": asked.base,
        "--start": asked.start,
    }
    for flag, given in others.items():
        yield on and bool(given), f"--support: {flag} does not go with it"
    trained = {
        "--forward.*": asked.forward != Forward(),
        "--easy.*": asked.easy != Easy(),
        "--support-steps": asked.support_steps,
    }
    for flag, given in trained.items():
        words = f"--teacher: that one is trained already, and {flag} would train it"
        yield on and asked.teacher is not None and bool(given), words
    words = "--imitation.prime: actions of another robot's world give other torques; only with --support easy"
    yield on and asked.support != EASY and asked.imitation.prime > 0, words
    words = f"--support: {task.name} chooses among few actions: its motors have no gain to make softer"
    yield on and bool(task.action.choices) and asked.support == EASY, words
