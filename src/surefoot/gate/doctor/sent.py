"""sent: did the motors get what the policy answered?

    control(k) = offset + scale * clip(a(k), +-limit)        by the contract

Edits of it: another scale, an order, a sign, an offset, an answer of an earlier period; or no answer was sent at all. Mismatch
and evidence as in contract.py.
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from surefoot.gate.doctor.cause import Cause
from surefoot.gate.doctor.contract import FEWEST, RELATED, STILL, correlation
from surefoot.gate.doctor.told import Told

FLOOR = 0.003  # of a control's spread: what rounding in a log may do
BROKEN = 0.01  # of a control's spread
LAGS = 5


def sent(told: Told, control: np.ndarray) -> list[Cause]:
    """Causes between policy and motors, best first; none where the controls are what the contract makes of the answers."""
    c = told.contract
    offset, scale = c.action.offset, c.action.scale
    good = np.isfinite(control).all(1) & np.isfinite(told.action).all(1)
    a, u = told.action, control
    if control.shape[1] != a.shape[1] or good.sum() < FEWEST:
        return []
    spread = np.maximum(control[good].std(0), 1e-9 + 1e-3 * np.abs(scale))

    def off(found: np.ndarray) -> float:
        return float(np.square((found - u)[good] / spread).mean())

    plain = off(offset + scale * a)
    if np.sqrt(plain) < BROKEN:
        return []
    size, found = 0.5 * u[good].size, []
    for kind, about, value, count in _edits(told, u, good, offset, scale):
        left = off(value)
        evidence = size * np.log((plain + FLOOR**2) / (left + FLOOR**2)) - 0.5 * count * np.log(2 * size)
        words = f"{about}: controls are then off by {np.sqrt(left):.2g} of their spread, not {np.sqrt(plain):.2g}"
        found.append(Cause(kind, about, float(evidence), 1 - left / plain, words, "contract"))
    found = [x for x in found if x.share > 0.5]
    near = correlation((offset + scale * a)[good], u[good])
    if not found and near < RELATED:
        words = f"the controls have nothing to do with the answers (correlation {near:.2f}): something else drove the motors"
        evidence = size * float(np.log(1 + plain / FLOOR**2)) / 4
        return [Cause("unsent", words, evidence, 0.0, words, "contract")]
    return sorted(found, key=lambda x: -x.evidence)


Tried = tuple[str, str, np.ndarray, int]


def _edits(told: Told, u: np.ndarray, good: np.ndarray, offset: np.ndarray, scale: np.ndarray) -> Iterator[Tried]:
    a, names = told.action, told.contract.action.names
    dead = u[good].std(0) < STILL * (scale * a)[good].std(0)
    if dead.any():
        words = f"controls of {', '.join(n for n, x in zip(names, dead) if x)} never move, the answers do: they were not sent"
        yield "unsent", words, np.where(dead, np.median(u[good], 0), offset + scale * a), int(dead.sum())
        return
    for i, j in combinations(range(len(names)), 2):
        order = np.arange(len(names))
        order[[i, j]] = j, i
        yield "action order", f"answers for {names[i]} and {names[j]} exchanged", offset + scale * a[:, order], 0
    for i, name in enumerate(names):
        sign = np.where(np.arange(len(names)) == i, -1.0, 1.0)
        yield "action sign", f"answer for {name} with its sign turned", offset + scale * sign * a, 0
    yield "action sign", "all answers with their signs turned", offset - scale * a, 0
    for k in range(1, LAGS + 1):
        yield "stale", f"sent what was answered {k} periods before", offset + scale * a[told.back(k)], 0
    x, y, limit = (scale * a)[good], (u - offset)[good], told.contract.action.limit
    free = (np.abs(x) > 0.05 * np.abs(scale) * limit) & (np.abs(y) < 0.99 * np.abs(scale) * limit)
    if free.any():
        s = float(np.median(y[free] / x[free]))
        value = offset + scale * np.clip(s * a, -limit, limit)
        yield "action scale", f"answers scaled by {s:.4g} of what the contract says", value, 1
        each = np.array([np.median(y[f, i] / x[f, i]) if (f := free[:, i]).any() else s for i in range(len(names))])
        words = ", ".join(f"{n} {f:.3g}" for n, f in zip(names, each))
        value = offset + scale * np.clip(each * a, -limit, limit)
        yield "action scale", f"answers scaled by other factors: {words}", value, len(names)
    more = np.median(y - x, 0)
    words = ", ".join(f"{n} {f:+.3g}" for n, f in zip(names, more))
    yield "action offset", f"controls off by a constant: {words}", offset + more + scale * a, len(names)
