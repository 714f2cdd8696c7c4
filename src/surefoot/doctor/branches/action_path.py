"""sent: did the motors get what the policy answered?

    control(k) = offset + scale * clip(a(k), +-limit)        by the contract

Edits of it: another scale, an order, a sign, an offset, an answer of an earlier period; or no answer was sent at all. Mismatch
and evidence as in contract.py.
"""

from collections.abc import Iterator

import numpy as np

from surefoot.doctor.branches.contract import FEWEST, RELATED, STILL, correlation
from surefoot.doctor.cause import Cause
from surefoot.doctor.evidence.observation import Told
from surefoot.fault import Fault, Plus, Times
from surefoot.fault.usual import of_answers

FLOOR = 0.003  # of a control's spread: what rounding in a log may do
BROKEN = 0.01  # of a control's spread


def sent(told: Told, control: np.ndarray) -> list[Cause]:
    """Causes between policy and motors, best first; none where the controls are what the contract makes of the answers."""
    c = told.contract
    scale = c.action.scale
    good = np.isfinite(control).all(1) & np.isfinite(told.action).all(1)
    a, u = told.action, control
    if control.shape[1] != a.shape[1] or good.sum() < FEWEST:
        return []
    spread = np.maximum(control[good].std(0), 1e-9 + 1e-3 * np.abs(scale))

    def off(found: np.ndarray) -> float:
        return float(np.square((found - u)[good] / spread).mean())

    plain = off(c.action.control(a))
    if np.sqrt(plain) < BROKEN:
        return []
    size = 0.5 * u[good].size

    def tried(kind: str, about: str, value: np.ndarray, count: int) -> Cause:
        left = off(value)
        evidence = size * np.log((plain + FLOOR**2) / (left + FLOOR**2)) - 0.5 * count * np.log(2 * size)
        words = f"{about}: controls are then off by {np.sqrt(left):.2g} of their spread, not {np.sqrt(plain):.2g}"
        return Cause(kind, about, float(evidence), 1 - left / plain, words, "contract")

    dead = u[good].std(0) < STILL * (scale * a)[good].std(0)
    if dead.any():
        names = ", ".join(n for n, x in zip(c.action.names, dead) if x)
        words = f"controls of {names} never move, the answers do: they were not sent"
        still = np.where(dead, np.median(u[good], 0), c.action.control(a))
        found = [tried("unsent", words, still, int(dead.sum()))]
    else:
        found = [tried(_called(f), f.words, told.sent(f), count) for f, count in _faults(told, u, good)]
    found = [x for x in found if x.share > 0.5]
    near = correlation(c.action.control(a)[good], u[good])
    if not found and near < RELATED:
        words = f"the controls have nothing to do with the answers (correlation {near:.2f}): something else drove the motors"
        evidence = size * float(np.log(1 + plain / FLOOR**2)) / 4
        return [Cause("unsent", words, evidence, 0.0, words, "contract")]
    return sorted(found, key=lambda x: -x.evidence)


def _called(fault: Fault) -> str:
    return "stale" if fault.kind == "delay" else f"action {fault.kind}"


def _faults(told: Told, u: np.ndarray, good: np.ndarray) -> Iterator[tuple[Fault, int]]:
    """Each with how many numbers of it are fitted."""
    law, names = told.contract.action, told.contract.action.names
    yield from ((fault, 0) for fault in of_answers(names))
    x, y, most = (law.scale * told.action)[good], (u - law.offset)[good], np.abs(law.scale) * law.limit
    free = (np.abs(x) > 0.05 * most) & (np.abs(y) < 0.99 * most)
    said = lambda values, form: ", ".join(f"{n} {v:{form}}" for n, v in zip(names, values))  # noqa: E731
    if free.any():
        s = float(np.median(y[free] / x[free]))
        words = f"answers scaled by {s:.4g} of what the contract says"
        yield Fault("scale", words, (Times(("action",), by=s),)), 1
        each = tuple(float(np.median(y[f, i] / x[f, i])) if (f := free[:, i]).any() else s for i in range(len(names)))
        words = f"answers scaled by other factors: {said(each, '.3g')}"
        yield Fault("scale", words, (Times(("action",), by=each),)), len(names)
    more = np.median(y - x, 0)
    words = f"controls off by a constant: {said(more, '+.3g')}"
    yield Fault("offset", words, (Plus(("control",), by=tuple(more)),)), len(names)
