"""contract: did the policy get what it was promised, and did the motors get what it answered?

    a(k) = pi(told(k))             told: rebuilt from the raw signals      a policy is deterministic, so this is near exact
    control(k) = offset + scale * clip(a(k), +-limit)

Each suspicion is one edit of what was told, or of what was sent: two columns exchanged, a sign turned, another frame, degrees, a
scale, frames of another age. mismatch m = mean |a - pi(edit(told))|^2 / var(a). An edit that takes m from much to nothing is
the fault. Its weight of evidence in nats is (T na / 2) log((m_0 + f^2) / (m + f^2)), less what its fitted numbers and the
number of its rivals are worth; f is what rounding in a log may do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from surefoot import rotation
from surefoot.gate.doctor.cause import Cause
from surefoot.gate.doctor.told import Told
from surefoot.policy import Policy

FLOOR = 0.01  # of an action's spread: what a log's rounding may do to a policy's answers
BROKEN = 0.03  # of an action's spread: from here on the answers are not those to what was logged
EXPLAINS = 0.5  # of the mismatch: an edit that explains less explains nothing
LEFT = 0.5  # of the answers' variance: an edit that leaves more does little better than an answer that never moves
STILL = 0.01  # of the spread of the policy's own answers: one that moves less does not move
RELATED = 0.3  # correlation of answers with the policy's own: below it something else gave them
FEWEST = 10  # rows: fewer say nothing of a policy's answers
UNIT = 180 / np.pi
ENOUGH = 400  # rows, spread over a log, by which edits are judged
LAGS = 5  # periods: the oldest observation that is suspected
MOST_PAIRS = 300


@dataclass(frozen=True)
class Edit:
    """One thing a runtime may do wrong."""

    kind: str
    about: str
    apply: Callable[[Told, float], np.ndarray]
    """told, number -> observations (T, obs_dim)"""
    guesses: tuple[float, ...] = ()
    """values its number is looked for from; none: it has no number"""


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
    tried = [judge.tried(x, plain) for x in _edits(told)]
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

    def tried(self, edit: Edit, plain: float) -> Cause:
        left, number = self._fitted(edit)
        size = self.size
        evidence = size * np.log((plain + FLOOR**2) / (left + FLOOR**2))
        evidence -= 0.5 * bool(edit.guesses) * np.log(2 * size)
        kind = edit.kind
        if kind == "observation scale" and min(abs(np.log(abs(number) * f)) for f in (UNIT, 1 / UNIT)) < 0.02:
            kind = "unit"
        words = edit.about.format(number)
        what = "answers are" if self.told.observation is None else "what it was told is"
        told = f"{words}: {what} then off by {np.sqrt(left):.2g} of the usual spread, not {np.sqrt(plain):.2g}"
        return Cause(kind, words, float(evidence), 1 - left / plain, told, "contract")

    def _fitted(self, edit: Edit) -> tuple[float, float]:
        """Least mismatch over an edit's number, by golden section about the best guess on the number's own scale."""
        of = lambda x: self.mismatch(edit.apply(self.told, x))  # noqa: E731
        if not edit.guesses:
            return of(0.0), 0.0
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


def _edits(told: Told) -> Iterator[Edit]:
    yield from _orders(told)
    yield from _signs(told)
    yield from _frames(told)
    yield from _numbers(told)
    yield from _ages(told)


def _moved(order: np.ndarray, sign: np.ndarray | None = None) -> Callable[[Told, float], np.ndarray]:
    """Columns of a frame in another order and sign, in the terms' own units."""

    def apply(told: Told, _: float) -> np.ndarray:
        raw = told.raw[:, order]
        return told.stacked(told.frames(raw if sign is None else raw * sign))

    return apply


def _orders(told: Told) -> Iterator[Edit]:
    """Two parts exchanged: in one term, in all terms that have as many parts; and two terms of one length."""
    width, sizes = told.raw.shape[1], {t.name: t.dim for t in told.contract.terms}
    for name, at in told.columns.items():
        if sizes[name] > 1 and name != "rotation":
            for i, j in list(combinations(range(sizes[name]), 2))[:MOST_PAIRS]:
                yield Edit("order", f"parts {i} and {j} of {name} exchanged", _moved(_swap(width, [at], i, j)))
    joints = [n for n in ("joint_pos", "joint_vel", "last_action") if n in sizes]
    groups = [g for k in (2, 3) for g in combinations(joints, k) if len({sizes[n] for n in g}) == 1]
    for group in groups:
        for i, j in list(combinations(range(sizes[group[0]]), 2))[:MOST_PAIRS]:
            order = _swap(width, [told.columns[n] for n in group], i, j)
            yield Edit("order", f"joints {i} and {j} exchanged in {' and '.join(group)}", _moved(order))
    for a, b in combinations(sizes, 2):
        if sizes[a] == sizes[b]:
            order = np.arange(width)
            order[told.columns[a]], order[told.columns[b]] = np.r_[told.columns[b]], np.r_[told.columns[a]]
            yield Edit("order", f"{a} and {b} exchanged", _moved(order))


def _swap(width: int, terms: list[slice], i: int, j: int) -> np.ndarray:
    order = np.arange(width)
    for at in terms:
        order[at.start + i], order[at.start + j] = at.start + j, at.start + i
    return order


def _signs(told: Told) -> Iterator[Edit]:
    """One part, the same part of positions and speeds, or a whole term turned."""
    width, sizes = told.raw.shape[1], {t.name: t.dim for t in told.contract.terms}
    turned = lambda columns: np.where(np.isin(np.arange(width), columns), -1.0, 1.0)  # noqa: E731
    same = np.arange(width)
    for name, at in told.columns.items():
        if sizes[name] > 1:
            if name == "projected_gravity":
                yield Edit("frame", "gravity told as direction up", _moved(same, turned(np.r_[at])))
            else:
                yield Edit("sign", f"sign of all of {name} turned", _moved(same, turned(np.r_[at])))
        for i in range(sizes[name]) if name != "rotation" else ():
            yield Edit("sign", f"sign of part {i} of {name} turned", _moved(same, turned([at.start + i])))
    if "joint_pos" in sizes and sizes.get("joint_vel") == sizes["joint_pos"]:
        for i in range(sizes["joint_pos"]):
            both = [told.columns[n].start + i for n in ("joint_pos", "joint_vel")]
            yield Edit("sign", f"sign of joint {i} turned in joint_pos and joint_vel", _moved(same, turned(both)))


def _frames(told: Told) -> Iterator[Edit]:
    """A vector in the world's frame for the body's or the other way; a rotation the other way; a joint's angle from the
    horizontal for the one from the link before."""
    for t in told.contract.terms:
        if told.quat is not None and t.dim == 3 and t.name not in ("command", "last_action"):
            yield Edit("frame", f"{t.name} told in the world's frame, not the body's", _turned(t.name, False))
            yield Edit("frame", f"{t.name} told in the body's frame, not the world's", _turned(t.name, True))
        if t.dim == 9 and t.name == "rotation":
            at = told.columns[t.name].start
            order = np.arange(told.raw.shape[1])
            order[at : at + 9] = at + np.arange(9).reshape(3, 3).T.ravel()
            yield Edit("frame", f"{t.name} told from world to body", _moved(order))
    terms = [t.name for t in told.contract.terms if t.name in ("joint_pos", "joint_vel")]
    sizes = {t.name: t.dim for t in told.contract.terms}
    for i in range(1, sizes["joint_pos"]) if "joint_pos" in sizes else ():
        for sign, words in ((1.0, "from the ground, not from the link before"), (-1.0, "from the link before, twice")):
            yield Edit("frame", f"joint {i} told as an angle {words}", _added(tuple(terms), i, sign))


def _turned(name: str, to_body: bool) -> Callable[[Told, float], np.ndarray]:
    def apply(told: Told, _: float) -> np.ndarray:
        assert told.quat is not None
        raw, at = told.raw.copy(), told.columns[name]
        raw[:, at] = (rotation.to_body if to_body else rotation.to_world)(told.quat, raw[:, at])
        return told.stacked(told.frames(raw))

    return apply


def _added(names: tuple[str, ...], i: int, sign: float) -> Callable[[Told, float], np.ndarray]:
    def apply(told: Told, _: float) -> np.ndarray:
        raw = told.raw.copy()
        for name in names:
            at = told.columns[name].start
            raw[:, at + i] = raw[:, at + i] + sign * raw[:, at + i - 1]
        return told.stacked(told.frames(raw))

    return apply


SCALES = (1 / UNIT, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 35.0, UNIT)


def _numbers(told: Told) -> Iterator[Edit]:
    """A term, or a part, times a number, or off by one."""
    sizes = {t.name: t.dim for t in told.contract.terms}
    for name, at in told.columns.items():
        groups = [(f"{name}", np.r_[at])]
        if sizes[name] > 1 and name not in ("rotation", "last_action"):
            groups += [(f"part {i} of {name}", np.array([at.start + i])) for i in range(sizes[name])]
        if sizes[name] == 4 and name != "last_action":
            groups.append((f"the second half of {name}", np.r_[at][2:]))
        for words, columns in groups:
            yield Edit("observation scale", words + " told {:.4g} times as large", _scaled(columns), SCALES)
            if len(columns) == 1:
                size = float(np.nanstd(told.raw[:, columns]) + np.abs(np.nanmean(told.raw[:, columns]))) or 1.0
                around = tuple(size * x for x in (-30, -10, -3, -1, -0.3, 0.3, 1, 3, 10, 30))
                yield Edit("offset", words + " told {:.4g} above what it is", _shifted(columns), around)


def _scaled(columns: np.ndarray) -> Callable[[Told, float], np.ndarray]:
    def apply(told: Told, number: float) -> np.ndarray:
        raw = told.raw.copy()
        raw[:, columns] *= number
        return told.stacked(told.frames(raw))

    return apply


def _shifted(columns: np.ndarray) -> Callable[[Told, float], np.ndarray]:
    def apply(told: Told, number: float) -> np.ndarray:
        raw = told.raw.copy()
        raw[:, columns] += number
        return told.stacked(told.frames(raw))

    return apply


def _ages(told: Told) -> Iterator[Edit]:
    """Observations, terms or frames of another age."""
    h = told.contract.history
    right = tuple(range(h - 1, -1, -1))
    for k in range(1, LAGS + 1):
        yield Edit("stale", f"told what was measured {k} periods before", _aged(tuple(i + k for i in right)))
        for t in told.contract.terms:
            if len(told.contract.terms) > 1:
                yield Edit("stale", f"told {t.name} of {k} periods before", _aged_term(t.name, k))
    if h > 1:
        yield Edit("stale", "frames told newest first", _aged(right[::-1]))
        yield Edit("stale", "every frame told is the newest", _aged((0,) * h))
        yield Edit("stale", "every frame told is the oldest", _aged((h - 1,) * h))


def _aged(lags: tuple[int, ...]) -> Callable[[Told, float], np.ndarray]:
    return lambda told, _: told.stacked(told.frames(told.raw), lags)


def _aged_term(name: str, k: int) -> Callable[[Told, float], np.ndarray]:
    def apply(told: Told, _: float) -> np.ndarray:
        raw, at = told.raw.copy(), told.columns[name]
        raw[:, at] = told.raw[told.back(k)][:, at]
        return told.stacked(told.frames(raw))

    return apply
