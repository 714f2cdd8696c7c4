"""Splines: a plan of k knots expanded to T rows of controls. (n, k, nu) -> (n, T, nu).

    u(s) = sum_j W_j(s) p_j,   0 <= s <= k - 1,   u(j) = p_j

    zero    constant between knots
    linear  p_j + (s - j) (p_{j+1} - p_j)
    cubic   Hermite with slopes m_j = (p_{j+1} - p_{j-1}) / 2, and at the ends those of the line to the neighbour; `rest`
            sets the slopes at the ends to 0, so that a motion starts and stops smoothly

Each is linear in the knots, so a plan is one product with W (T, k). A knot affects only the rows near it.
"""

from typing import Literal

import numpy as np

from surefoot.errors import SurefootError, unknown

Kind = Literal["zero", "linear", "cubic"]
KINDS = ("zero", "linear", "cubic")


def expand(knots: np.ndarray, rows: int, kind: Kind = "cubic", rest: bool = False) -> np.ndarray:
    """(..., k, nu) -> (..., rows, nu), evenly from the first knot to the last; with `zero` each knot lasts equally long."""
    k = knots.shape[-2]
    s = np.arange(rows) * k / rows if kind == "zero" else np.linspace(0.0, k - 1.0, rows)
    return weights(k, s, kind, rest) @ knots


def shift(knots: np.ndarray, by: float, kind: Kind = "linear") -> np.ndarray:
    """The same plan `by` knots later, its end repeated: a warm start for the next step."""
    k = knots.shape[-2]
    return weights(k, np.minimum(np.arange(k) + by, k - 1.0), kind) @ knots


def weights(k: int, s: np.ndarray, kind: Kind = "cubic", rest: bool = False, derivative: int = 0) -> np.ndarray:
    """W (T, k) at positions s, in knots, or its first or second derivative by s."""
    if kind not in KINDS:
        raise unknown("kind of spline", kind, KINDS)
    if k < 2 and kind != "zero":
        raise SurefootError(f"spline: found {k} knots, expected at least 2 for kind {kind}")
    s = np.clip(np.asarray(s, float), 0.0, k - 1e-9 if kind == "zero" else k - 1.0)
    if kind == "zero":
        return np.eye(k)[np.floor(s + 1e-9).astype(int)] * (derivative == 0)
    j = np.minimum(np.floor(s).astype(int), k - 2)
    (a, b, c, d), I = _hermite(s - j, derivative), np.eye(k)  # of p_j, m_j, p_{j+1}, m_{j+1}
    if kind == "linear":
        t = s - j
        a, c = {0: (1 - t, t), 1: (-np.ones_like(t), np.ones_like(t))}.get(derivative, (0 * t, 0 * t))
        return a[:, None] * I[j] + c[:, None] * I[j + 1]
    M = _slopes(k, rest)
    return a[:, None] * I[j] + b[:, None] * M[j] + c[:, None] * I[j + 1] + d[:, None] * M[j + 1]


def _slopes(k: int, rest: bool) -> np.ndarray:
    """M (k, k): m = M p."""
    M = (np.eye(k, k, 1) - np.eye(k, k, -1)) / 2
    M[0], M[-1] = 0.0, 0.0
    if not rest:
        M[0, :2] = M[-1, -2:] = -1.0, 1.0
    return M


def _hermite(t: np.ndarray, derivative: int) -> tuple[np.ndarray, ...]:
    """The four cubics on 0 <= t <= 1 that are 1 in one of (value at 0, slope at 0, value at 1, slope at 1)."""
    cubics = ((2, -3, 0, 1), (1, -2, 1, 0), (-2, 3, 0, 0), (1, -1, 0, 0))
    return tuple(np.polyval(np.polyder(np.array(c, float), derivative), t) for c in cubics)
