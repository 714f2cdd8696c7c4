"""contract: did the policy get what it was promised, and did the motors get what it answered?

    a(k) = pi(told(k))             told: rebuilt from the raw signals      a policy is deterministic, so this is near exact
    control(k) = offset + scale * clip(a(k), +-limit)

Each suspicion is one edit of what was told, or of what was sent: two columns exchanged, a sign turned, another frame, degrees, a
scale, frames of another age. mismatch m = mean |a - pi(edit(told))|^2 / var(a). An edit that takes m from much to nothing is
the fault. Its weight of evidence in nats is (T na / 2) log((m_0 + f^2) / (m + f^2)), less what its fitted numbers and the
number of its rivals are worth; f is what rounding in a log may do.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from surefoot.doctor.cause import Cause
from surefoot.doctor.evidence.observation import Told
from surefoot.fault import DEGREES, Fault
from surefoot.fault.usual import of_frames
from surefoot.policy import Policy

FLOOR = 0.01  # of an action's spread: what a log's rounding may do to a policy's answers
BROKEN = 0.03  # of an action's spread: from here on the answers are not those to what was logged
EXPLAINS = 0.5  # of the mismatch: an edit that explains less explains nothing
LEFT = 0.5  # of the answers' variance: an edit that leaves more does little better than an answer that never moves
STILL = 0.01  # of the spread of the policy's own answers: one that moves less does not move
RELATED = 0.3  # correlation of answers with the policy's own: below it something else gave them
FEWEST = 10  # rows: fewer say nothing of a policy's answers
ENOUGH = 400  # rows, spread over a log, by which edits are judged
CALLED = {"scale": "observation scale", "delay": "stale", "history": "stale"}


def observed(told: Told, policy: Policy) -> list[Cause]:
    """Causes between sensors and policy, best first; none where the answers are those to what was logged."""
    if told.missing:
        return []
    judge = _Judge(told, policy)
    if len(judge.rows) < FEWEST:
        return []
    still = list(_still(judge))
    if still:
        return still
    plain = judge.mismatch(told.stacked(told.frames(told.raw)))
    if np.sqrt(plain) < BROKEN:
        return list(_another(judge))
    size = np.nanstd(told.raw, 0) + np.abs(np.nanmean(told.raw, 0))
    spread = {name: size[at] for name, at in told.columns.items()}
    faults = of_frames(told.contract.observation, spread, attitude=told.quat is not None)
    tried = [judge.tried(x, plain) for x in faults]
    found = [c for c in tried if c.share > EXPLAINS and (1 - c.share) * plain < LEFT] or [_unexplained(judge, plain)]
    return sorted([*found, *_another(judge)], key=lambda c: -c.evidence)


def mismatch(told: Told, policy: Policy) -> float:
    """How far answers are from those to what was logged, as a share of their spread; nan where that cannot be said."""
    if told.missing:
        return float("nan")
    judge = _Judge(told, policy)
    if not len(judge.rows):
        return float("nan")
    return float(np.sqrt(np.square(judge.own - told.action[judge.rows]).mean() / judge.spread))


def _still(judge: "_Judge") -> Iterator[Cause]:
    """Logged answers that never move, where the policy's to what was logged do: they are not its answers."""
    told = judge.told
    a, mine = told.action[judge.rows], judge.own
    spread = mine.std(0)
    dead = a.std(0) < STILL * spread
    if not dead.any():
        return
    off = np.square((a - mine) / np.maximum(spread, 1e-12)).mean(0)
    names = ", ".join(n for n, x in zip(told.contract.action.names, dead) if x)
    about = f"the logged answers for {names} never move"
    words = f"{about}, this policy's to what was logged do: it was not asked, was told nothing new, or the log is not of its answers"
    share = float(off[dead].sum() / off.sum())
    if share > EXPLAINS:
        evidence = 0.5 * len(a) * np.log(1 + off[dead] / FLOOR**2).sum()
        yield Cause("unasked", about, float(evidence), share, words, "contract")


def _unexplained(judge: "_Judge", plain: float) -> Cause:
    """Answers that are off, where no single edit says why."""
    words = f"answers are off by {np.sqrt(plain):.2g} of their spread from those to what was logged, and no single edit explains it"
    kind, near = "contract", correlation(judge.own, judge.told.action[judge.rows])
    if judge.told.observation is None and near < RELATED:
        kind = "unasked"
        words = (
            f"the logged answers have nothing to do with this policy's to what was logged (correlation {near:.2f}), and "
            "no single edit explains it: something else drove the robot, or another policy"
        )
    return Cause(kind, words, judge.size * float(np.log(1 + plain / FLOOR**2)) / 4, 0.0, words, "contract")


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Of all parts of two signals (T, n) about their means, each part in its own spread; 0 where one never moves."""
    a, b = ((x - x.mean(0)) / np.maximum(x.std(0), 1e-12) for x in (a, b))
    return float((a * b).mean())


def _another(judge: "_Judge") -> Iterator[Cause]:
    """Where the log holds what the policy was told: answers that are not this policy's."""
    told = judge.told
    if told.observation is None:
        return
    off = judge.answers(told.observation[judge.rows].astype(np.float32)) - told.action[judge.rows]
    m = float(np.square(off).mean() / judge.spread)
    if np.sqrt(m) >= BROKEN:
        words = f"to what it was told, this policy answers otherwise, by {np.sqrt(m):.2g} of the answers' spread"
        size = 0.5 * off.size
        yield Cause("policy", words, float(size * np.log(1 + m / FLOOR**2)), 1.0, words, "contract")


class _Judge:
    """Mismatch of answers; or, where the log holds it, of what was told."""

    def __init__(self, told: Told, policy: Policy):
        self.told, self.policy = told, policy
        whole = [told.raw, told.action] + ([] if told.observation is None else [told.observation])
        fine = np.all([np.isfinite(x).all(1) for x in whole], 0)
        sure = fine & ~told.guessed()
        good = np.flatnonzero(sure if sure.sum() >= FEWEST else fine)
        self.rows = good[np.unique(np.linspace(0, len(good) - 1, ENOUGH).astype(int))] if len(good) > ENOUGH else good
        self.limit = np.inf if told.contract.action.choices else told.contract.action.limit
        self.spread = max(float(np.nanvar(told.action, 0).mean()), 1e-12)
        self.size = 0.5 * len(self.rows) * told.action.shape[1]
        if told.observation is not None:
            spread = np.tile(np.nanstd(told.frames(told.raw), 0), told.contract.history)
            self.widths = np.maximum(np.nanstd(told.observation, 0), spread) + 1e-6

    @cached_property
    def own(self) -> np.ndarray:
        """(N, na) the policy's answers to what was logged."""
        return self.answers(self.told.stacked(self.told.frames(self.told.raw))[self.rows])

    def answers(self, obs: np.ndarray) -> np.ndarray:
        a = np.asarray(self.policy(obs), float)
        if self.told.contract.action.choices:
            a = 2.0 * a / (self.told.contract.action.choices - 1) - 1.0
        return np.clip(a, -self.limit, self.limit)

    def mismatch(self, obs: np.ndarray) -> float:
        if self.told.observation is not None:
            return float(np.square((obs[self.rows] - self.told.observation[self.rows]) / self.widths).mean())
        error = (self.answers(obs[self.rows]) - self.told.action[self.rows]) / np.sqrt(self.spread)
        return float(np.square(error).mean())

    def tried(self, edit: Fault, plain: float) -> Cause:
        left, number = self._fitted(edit)
        size = self.size
        evidence = size * np.log((plain + FLOOR**2) / (left + FLOOR**2))
        evidence -= 0.5 * bool(edit.guesses) * np.log(2 * size)
        kind = CALLED.get(edit.kind, edit.kind)
        if edit.kind == "scale" and min(abs(np.log(abs(number) * f)) for f in (DEGREES, 1 / DEGREES)) < 0.02:
            kind = "unit"
        words = edit.at(number).words
        what = "answers are" if self.told.observation is None else "what it was told is"
        told = f"{words}: {what} then off by {np.sqrt(left):.2g} of the usual spread, not {np.sqrt(plain):.2g}"
        return Cause(kind, words, float(evidence), 1 - left / plain, told, "contract")

    def _fitted(self, edit: Fault) -> tuple[float, float]:
        """Least mismatch over an edit's number, by golden section about the best guess on the number's own scale."""
        of = lambda x: self.mismatch(self.told.under(edit.at(x)))  # noqa: E731
        if not edit.guesses:
            return self.mismatch(self.told.under(edit)), 0.0
        values = [of(x) for x in edit.guesses]
        i = int(np.argmin(values))
        best, at = values[i], edit.guesses[i]
        low, high = edit.guesses[max(i - 1, 0)], edit.guesses[min(i + 1, len(edit.guesses) - 1)]
        ratio = (np.sqrt(5) - 1) / 2
        for _ in range(18):
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            fa, fb = of(a), of(b)
            low, high = (low, b) if fa < fb else (a, high)
            best, at = min((best, at), (fa, a), (fb, b))
        return best, at
