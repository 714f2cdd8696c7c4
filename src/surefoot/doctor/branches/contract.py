"""Contract branch: are the logged actions the policy's answer to what was measured?

    a(k) = pi(obs(k))        obs: rebuilt from raw readings; a policy is deterministic, so both sides agree to rounding

Each usual fault (surefoot.fault) is one edit of the observations: two columns exchanged, a sign, another frame, degrees, a scale,
frames of another age. Its mismatch is m = mean |a - pi(fault(obs))|^2 / var(a). The fault that takes m from large to nothing is
the cause. Its evidence in nats is (T na / 2) log((m_0 + f^2) / (m + f^2)), less the cost of its fitted number; f is what
rounding in a log may do. Where the log has the column `observation`, m compares observations in place of actions.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from surefoot.doctor.cause import Cause
from surefoot.doctor.evidence.observation import Rebuilt
from surefoot.fault import DEGREES, Fault
from surefoot.fault.observations import of_frames
from surefoot.policy import Policy

FLOOR = 0.01  # of an action's spread: what a log's rounding may do to a policy's actions
BROKEN = 0.03  # of an action's spread: from here on the logged actions are not those of the rebuilt observations
EXPLAINS = 0.5  # of the mismatch: a fault that explains less explains nothing
LEFT = 0.5  # of the actions' variance: a fault that leaves more is little better than a constant action
STILL = 0.01  # of the spread of the policy's own actions: an action that moves less does not move
RELATED = 0.3  # correlation of logged with computed actions: below it they have another source
FEWEST = 10  # rows: fewer are no evidence about a policy's actions
ENOUGH = 400  # rows, spread over a log, with which faults are compared
KINDS = {"scale": "observation scale", "delay": "stale", "history": "stale"}
UNRELATED_ACTIONS = "unrelated actions"


def observation_causes(rows: Rebuilt, policy: Policy) -> list[Cause]:
    """Causes between sensors and policy, best first; none where the logged actions follow from the readings."""
    if rows.missing:
        return []
    compare = _Comparison(rows, policy)
    if len(compare.rows) < FEWEST:
        return []
    constant = list(_constant(compare))
    if constant:
        return constant
    plain = compare.mismatch(rows.observations())
    if np.sqrt(plain) < BROKEN:
        return list(_other_policy(compare))
    size = np.nanstd(rows.raw, 0) + np.abs(np.nanmean(rows.raw, 0))
    group = rows.contract.observation
    spread = {t.name: size[at] for t, at in zip(group.terms, group.columns)}
    causes = [compare.cause(x, plain) for x in of_frames(group, spread, attitude=rows.quat is not None)]
    explaining = [c for c in causes if c.share > EXPLAINS and (1 - c.share) * plain < LEFT]
    return sorted([*(explaining or [_unexplained(compare, plain)]), *_other_policy(compare)], key=lambda c: -c.evidence)


def mismatch(rows: Rebuilt, policy: Policy) -> float:
    """Distance of the logged actions from the policy's on rebuilt observations, over their spread; nan if unknown."""
    if rows.missing:
        return float("nan")
    compare = _Comparison(rows, policy)
    if not len(compare.rows):
        return float("nan")
    return float(np.sqrt(np.square(compare.computed - rows.action[compare.rows]).mean() / compare.variance))


def _constant(compare: "_Comparison") -> Iterator[Cause]:
    """Logged actions that never change while the policy's do: they are not its actions."""
    a, own = compare.log.action[compare.rows], compare.computed
    spread = own.std(0)
    dead = a.std(0) < STILL * spread
    if not dead.any():
        return
    off = np.square((a - own) / np.maximum(spread, 1e-12)).mean(0)
    names = ", ".join(n for n, x in zip(compare.log.contract.action.names, dead) if x)
    about = f"the logged actions for {names} never change"
    detail = (
        f"{about}, but this policy's would: it did not run, its observations were frozen, or the log has other actions"
    )
    share = float(off[dead].sum() / off.sum())
    if share > EXPLAINS:
        evidence = 0.5 * len(a) * np.log(1 + off[dead] / FLOOR**2).sum()
        yield Cause(UNRELATED_ACTIONS, about, float(evidence), share, detail, "contract")


def _unexplained(compare: "_Comparison", plain: float) -> Cause:
    """Actions that differ for no single reason."""
    about = f"the logged actions differ from this policy's by {np.sqrt(plain):.2g} of their spread, and no single fault explains it"
    kind, near = "contract", correlation(compare.computed, compare.log.action[compare.rows])
    if compare.log.logged is None and near < RELATED:
        kind = UNRELATED_ACTIONS
        about = (
            f"the logged actions are unrelated to this policy's (correlation {near:.2f}), and no single fault explains it: "
            "another policy or program drove the robot"
        )
    return Cause(kind, about, compare.size * float(np.log(1 + plain / FLOOR**2)) / 4, 0.0, about, "contract")


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Mean over the parts of two signals (T, n); 0 where one never changes."""
    a, b = ((x - x.mean(0)) / np.maximum(x.std(0), 1e-12) for x in (a, b))
    return float((a * b).mean())


def _other_policy(compare: "_Comparison") -> Iterator[Cause]:
    """Where the log has the policy's observations: actions that this policy does not give on them."""
    log = compare.log
    if log.logged is None:
        return
    off = compare.actions(log.logged[compare.rows].astype(np.float32)) - log.action[compare.rows]
    m = float(np.square(off).mean() / compare.variance)
    if np.sqrt(m) >= BROKEN:
        about = f"on the logged observations this policy's actions differ by {np.sqrt(m):.2g} of their spread"
        yield Cause("policy", about, float(0.5 * off.size * np.log(1 + m / FLOOR**2)), 1.0, about, "contract")


class _Comparison:
    """Logged actions, or, where the log has them, observations, against those of a hypothesis."""

    def __init__(self, log: Rebuilt, policy: Policy):
        self.log, self.policy = log, policy
        complete = [log.raw, log.action] + ([] if log.logged is None else [log.logged])
        usable = np.all([np.isfinite(x).all(1) for x in complete], 0)
        certain = usable & ~log.uncertain()
        good = np.flatnonzero(certain if certain.sum() >= FEWEST else usable)
        self.rows = good[np.unique(np.linspace(0, len(good) - 1, ENOUGH).astype(int))] if len(good) > ENOUGH else good
        self.variance = max(float(np.nanvar(log.action, 0).mean()), 1e-12)
        self.size = 0.5 * len(self.rows) * log.action.shape[1]

    @cached_property
    def computed(self) -> np.ndarray:
        """(N, na) the policy's actions on rebuilt observations."""
        return self.actions(self.log.observations()[self.rows])

    @cached_property
    def widths(self) -> np.ndarray:
        """(obs_dim,) spread of each part of the observation."""
        assert self.log.logged is not None
        return np.maximum(np.nanstd(self.log.logged, 0), np.nanstd(self.log.observations(), 0)) + 1e-6

    def actions(self, obs: np.ndarray) -> np.ndarray:
        return self.log.contract.action.bounded(self.policy(obs))

    def mismatch(self, obs: np.ndarray) -> float:
        if self.log.logged is not None:
            return float(np.square((obs[self.rows] - self.log.logged[self.rows]) / self.widths).mean())
        error = (self.actions(obs[self.rows]) - self.log.action[self.rows]) / np.sqrt(self.variance)
        return float(np.square(error).mean())

    def cause(self, fault: Fault, plain: float) -> Cause:
        left, number = self._fitted(fault)
        evidence = self.size * np.log((plain + FLOOR**2) / (left + FLOOR**2))
        evidence -= 0.5 * bool(fault.guesses) * np.log(2 * self.size)
        kind = KINDS.get(fault.kind, fault.kind)
        if fault.kind == "scale" and min(abs(np.log(abs(number) * f)) for f in (DEGREES, 1 / DEGREES)) < 0.02:
            kind = "unit"
        about = fault.at(number).words
        what = "actions" if self.log.logged is None else "observations"
        detail = (
            f"{about}: {what} then differ by {np.sqrt(left):.2g} of their spread, without it by {np.sqrt(plain):.2g}"
        )
        value = number if fault.guesses else None
        return Cause(kind, about, float(evidence), 1 - left / plain, detail, "contract", value)

    def _fitted(self, fault: Fault) -> tuple[float, float]:
        """(least mismatch, the fault's number there), by golden section around the best guess."""
        of = lambda x: self.mismatch(self.log.observations(fault.at(x)))  # noqa: E731
        if not fault.guesses:
            return self.mismatch(self.log.observations(fault)), 0.0
        values = [of(x) for x in fault.guesses]
        i = int(np.argmin(values))
        best, at = values[i], fault.guesses[i]
        low, high = fault.guesses[max(i - 1, 0)], fault.guesses[min(i + 1, len(fault.guesses) - 1)]
        ratio = (np.sqrt(5) - 1) / 2
        for _ in range(18):
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            fa, fb = of(a), of(b)
            low, high = (low, b) if fa < fb else (a, high)
            best, at = min((best, at), (fa, a), (fb, b))
        return best, at
