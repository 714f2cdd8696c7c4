"""Checks that the kinds of belief share: shapes, finite numbers, physical bounds, and arguments of their methods."""

import math
from typing import Any

import numpy as np

from surefoot.belief.abstract import Belief
from surefoot.errors import SurefootError


def rows(belief: Belief, e: np.ndarray) -> np.ndarray:
    e = np.atleast_2d(np.asarray(e, float))
    if e.ndim != 2 or e.shape[1] != len(belief.params):
        raise SurefootError(f"e: found shape {e.shape}, expected (n, {len(belief.params)}), one column per param")
    return e


def within(e: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.all((low <= e) & (e <= high), axis=-1)


def tail(level: float) -> float:
    if not 0 < level < 1:
        raise SurefootError(f"level: found {level}, expected between 0 and 1, for example 0.95")
    return (1 - level) / 2


def positive(factor: float) -> float:
    if not 0 < factor < math.inf:
        raise SurefootError(f"factor: found {factor}, expected a finite number above 0")
    return factor


def comparable(p: Belief, q: Belief) -> None:
    if p.params.names != q.params.names or not np.array_equal(p.params.log, q.params.log):
        raise SurefootError(
            f"kl: found params {q.params.names}, expected {p.params.names}, so ordered and on equal scales"
        )


def no_kl(p: Belief, q: Belief, why: str = "") -> SurefootError:
    return SurefootError(f"kl: no closed form for {type(p).__name__} || {type(q).__name__}{why}")


def freeze(belief: Belief, name: str, shape: tuple[int, ...]) -> None:
    """Replace the field by a read-only float64 copy of that shape, or say why that cannot be."""
    where = f"{type(belief).__name__.lower()}.{name}"
    try:
        array = np.array(getattr(belief, name))
    except ValueError:
        raise SurefootError(f"{where}: found a ragged list, expected shape {shape}") from None
    if array.size == 0 and 0 in shape:
        array = np.empty(shape)
    if array.dtype.kind not in "iuf":
        raise SurefootError(f"{where}: found {array.dtype.name} values, expected numbers")
    if array.shape != shape:
        raise SurefootError(f"{where}: found shape {array.shape}, expected {shape}")
    array = array.astype(np.float64)
    array.setflags(write=False)
    object.__setattr__(belief, name, array)
    require(belief, name, np.isfinite(array), "a finite number")


def require(belief: Belief, name: str, ok: np.ndarray, expected: str, limit: np.ndarray | None = None) -> None:
    """Raise at the first element that is not ok, naming its row and its param."""
    if ok.all():
        return
    index = tuple(np.argwhere(~ok)[0])
    last = str(index[-1]) if name == "weights" else belief.params.names[index[-1]]
    where = f"{type(belief).__name__.lower()}.{name}[{', '.join([*map(str, index[:-1]), last])}]"
    bound = "" if limit is None else f" {np.broadcast_to(limit, ok.shape)[index]}"
    raise SurefootError(f"{where}: found {getattr(belief, name)[index]}, expected {expected}{bound}")


def check_physical(belief: Belief, name: str, low: np.ndarray, high: np.ndarray) -> None:
    require(belief, name, getattr(belief, name) >= low, "at least the physical bound", low)
    require(belief, name, getattr(belief, name) <= high, "at most the physical bound", high)


def check_range(belief: Any) -> None:
    for name in ("low", "high"):
        freeze(belief, name, (len(belief.params),))
        check_physical(belief, name, belief.params.low, belief.params.high)
    require(belief, "low", belief.low <= belief.high, "at most high,", belief.high)
