"""Action path: are the logged controls what the contract makes of the logged actions?

    control(k) = offset + scale * clip(a(k), +-limit)        by the contract

Faults of it: another scale, order, sign or offset, an action of an earlier period; or the actions were not sent at all.
Mismatch and evidence as in contract.py.
"""

from collections.abc import Iterator

import numpy as np

from surefoot.doctor.branches.contract import FEWEST, RELATED, STILL, correlation
from surefoot.doctor.cause import Cause
from surefoot.doctor.evidence.observation import Rebuilt
from surefoot.fault import Fault, Plus, Times
from surefoot.fault.observations import of_actions

FLOOR = 0.003  # of a control's spread: what rounding in a log may do
BROKEN = 0.01  # of a control's spread
UNRELATED_CONTROLS = "unrelated controls"


def action_causes(rows: Rebuilt, control: np.ndarray) -> list[Cause]:
    """Causes between policy and motors, best first; none where the controls follow from the actions."""
    law, a = rows.contract.action, rows.action
    good = np.isfinite(control).all(1) & np.isfinite(a).all(1)
    if control.shape[1] != a.shape[1] or good.sum() < FEWEST:
        return []
    compare = _Comparison(
        control, good, np.maximum(control[good].std(0), 1e-9 + 1e-3 * np.abs(law.scale)), law.control(a)
    )
    if np.sqrt(compare.plain) < BROKEN:
        return []
    dead = control[good].std(0) < STILL * (law.scale * a)[good].std(0)
    if dead.any():
        names = ", ".join(n for n, x in zip(law.names, dead) if x)
        about = f"controls of {names} never change although the actions do: the actions were not sent"
        constant = np.where(dead, np.median(control[good], 0), law.control(a))
        causes = [compare.cause(UNRELATED_CONTROLS, about, constant, int(dead.sum()))]
    else:
        faults = _faults(rows, control, good)
        causes = [compare.cause(_kind(f), f.words, rows.controls(f), count) for f, count in faults]
    causes = [x for x in causes if x.share > 0.5]
    near = correlation(law.control(a)[good], control[good])
    if not causes and near < RELATED:
        about = f"the controls are unrelated to the actions (correlation {near:.2f}): another program drove the motors"
        evidence = compare.size * float(np.log(1 + compare.plain / FLOOR**2)) / 4
        return [Cause(UNRELATED_CONTROLS, about, evidence, 0.0, about, "contract")]
    return sorted(causes, key=lambda x: -x.evidence)


class _Comparison:
    """Logged controls against those of a hypothesis."""

    def __init__(self, control: np.ndarray, good: np.ndarray, spread: np.ndarray, expected: np.ndarray):
        self.control, self.good, self.spread = control, good, spread
        self.size = 0.5 * control[good].size
        self.plain = self.mismatch(expected)

    def mismatch(self, expected: np.ndarray) -> float:
        return float(np.square((expected - self.control)[self.good] / self.spread).mean())

    def cause(self, kind: str, about: str, expected: np.ndarray, numbers: int) -> Cause:
        left, plain = self.mismatch(expected), self.plain
        evidence = self.size * np.log((plain + FLOOR**2) / (left + FLOOR**2)) - 0.5 * numbers * np.log(2 * self.size)
        detail = (
            f"{about}: controls then differ by {np.sqrt(left):.2g} of their spread, without it by {np.sqrt(plain):.2g}"
        )
        return Cause(kind, about, float(evidence), 1 - left / plain, detail, "contract")


def _kind(fault: Fault) -> str:
    return "stale" if fault.kind == "delay" else f"action {fault.kind}"


def _faults(rows: Rebuilt, u: np.ndarray, good: np.ndarray) -> Iterator[tuple[Fault, int]]:
    """Each with the count of its fitted numbers."""
    law, names = rows.contract.action, rows.contract.action.names
    yield from ((fault, 0) for fault in of_actions(names))
    x, y, most = (law.scale * rows.action)[good], (u - law.offset)[good], np.abs(law.scale) * law.limit
    large = 0.05 * np.minimum(most, np.abs(x).max(0))  # a limit that no action comes near says nothing of their size
    free = (np.abs(x) > np.maximum(large, 1e-12)) & (np.abs(y) < 0.99 * most)
    listed = lambda values, form: ", ".join(f"{n} {v:{form}}" for n, v in zip(names, values))  # noqa: E731
    if free.any():
        s = float(np.median(y[free] / x[free]))
        yield Fault("scale", f"action scale is {s:.4g} of the contract's", (Times(("action",), by=s),)), 1
        each = tuple(float(np.median(y[f, i] / x[f, i])) if (f := free[:, i]).any() else s for i in range(len(names)))
        words = f"action scales are other multiples of the contract's: {listed(each, '.3g')}"
        yield Fault("scale", words, (Times(("action",), by=each),)), len(names)
    more = np.median(y - x, 0)
    words = f"controls have a constant offset: {listed(more, '+.3g')}"
    yield Fault("offset", words, (Plus(("control",), by=tuple(more)),)), len(names)
