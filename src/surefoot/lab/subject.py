"""What the lab is about: a task, and the policy of a run where there is one. The same for every visitor; nothing changes it."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from shlex import quote

import numpy as np

from surefoot import shipped, tasks
from surefoot.belief import Box
from surefoot.deploy import bundle
from surefoot.deploy.bundle import OnnxPolicy
from surefoot.errors import SurefootError
from surefoot.task import Task

HOME = "runs/lab"  # where policies go that are trained for a page


@dataclass(frozen=True)
class Subject:
    given: str
    """as on the command line: a run, or a task"""
    task: Task
    reference: str
    """the task as commands name it"""
    policy: OnnxPolicy | None = None
    run: Path | None = None
    """the run, as it was given"""
    home: Path = Path(HOME)
    seed: int = 1

    @staticmethod
    def of(given: str, task: str = "", seed: int = 1, home: Path = Path(HOME)) -> "Subject":
        """A run's folder or policy, else a task: its name, file or module."""
        if bundle.is_one(Path(given)):
            policy = bundle.load(given)
            found = tasks.of(policy.contract, task)
            return Subject(given, found, task or found.name, policy, Path(given), home, seed)
        if Path(given).is_dir() and (Path(given) / "run.json").exists():  # a run that has not saved a policy yet
            from surefoot.learn.run.parents import spec_of

            reference = task or spec_of(Path(given)).task
            return Subject(given, tasks.resolve(reference), reference, None, Path(given), home, seed)
        return Subject(given, tasks.resolve(given), given, None, None, home, seed)

    @property
    def belief(self) -> Box:
        """The task's own ranges."""
        belief = self.task.belief
        if not isinstance(belief, Box):
            raise SurefootError(
                f"task {self.task.name}: the lab expects a belief of ranges, found {type(belief).__name__}"
            )
        return belief

    @property
    def unknowns(self) -> tuple[str, ...]:
        """Those whose range has a width."""
        free = np.flatnonzero(self.belief.low < self.belief.high)
        return tuple(self.task.params.names[i] for i in free)

    def folder(self, label: str) -> Path:
        """Where a policy is that is trained for a page."""
        return self.home / self.task.name / label

    @property
    def flag(self) -> str:
        """What follows a policy on a command line, so that its task is found."""
        return "" if self.reference in tasks.names() else f" --task {quote(self.reference)}"

    def own(self, policy: OnnxPolicy) -> Task:
        """The task with the terms and frames of a policy."""
        return tasks.for_contract(self.task, policy.contract)

    def policies(self) -> dict[str, Path]:
        """Label -> folder of every policy there is for this task: the run's, the shipped one, and those trained for pages."""
        there = self.task.name in shipped.names()
        own = self.run if self.policy is not None else None
        found = {} if own is None or (there and shipped.is_shipped(own)) else {"this run": own}
        found |= {"shipped": Path(self.task.name)} if there else {}
        for path in sorted((self.home / self.task.name).glob(f"*/{bundle.NAME}")):
            found[path.parent.name] = path.parent
        for path in sorted((self.home / self.task.name).glob(f"*/student/{bundle.NAME}")):
            found[path.parent.parent.name] = path.parent
        return found


def narrowed(belief: Box, share: float) -> Box:
    """The belief with every range shrunk towards nominal: 0 is the nominal world, 1 the belief itself, bit for bit; beyond
    it every range that has a width grows, to 2: as far as the task's parameters go."""
    p = belief.params
    if share == 1:
        return belief
    if share > 1:
        grown = lambda e, most: np.where(belief.low < belief.high, p.e(p.y(e) + (share - 1) * (p.y(most) - p.y(e))), e)  # noqa: E731
        least, most = (np.array([getattr(q, end) for q in p]) for end in ("low", "high"))
        return Box(p, grown(belief.low, least), grown(belief.high, most))
    middle = p.y(np.clip(p.nominal, belief.low, belief.high))
    end = lambda e: np.clip(p.e(middle + share * (p.y(e) - middle)), belief.low, belief.high)  # noqa: E731
    return Box(p, end(belief.low), end(belief.high)) if share > 0 else Box(p, p.e(middle), p.e(middle))


def flags(task: Task, belief: Box) -> str:
    """The flags that say this belief on a command line."""
    if belief == task.belief:
        return ""
    if (belief.low == belief.high).all() and np.allclose(belief.low, task.params.nominal):
        return " --belief nominal"
    own, words = task.belief, ""
    for name, low, high in zip(belief.params.names, belief.low, belief.high):
        i = belief.params.index(name)
        if not isinstance(own, Box) or (low, high) != (own.low[i], own.high[i]):
            words += (
                f" --range {name}={float(low)!r}..{float(high)!r}" if low < high else f" --range {name}={float(low)!r}"
            )
    return words


@lru_cache(maxsize=16)
def _loaded(path: Path, changed: float) -> OnnxPolicy:
    return bundle.load(path)


def load(path: Path) -> OnnxPolicy:
    """A policy, read again only when its file has changed."""
    file = bundle.find(path)
    return _loaded(file, file.stat().st_mtime)
