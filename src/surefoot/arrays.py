"""Which library computes with an array; and layout of arrays in memory: (n, k) with each column's n numbers together, for code that works column by column.

A row is one of n simulations, a column one quantity. One column of a row-by-row array is spread over the whole array, and
reading it costs several times as much as reading n numbers that lie together.
"""

from typing import Any

import numpy as np

NAMESPACES: dict[type, Any] = {}
"""kind of array, where it is not NumPy's -> its functions, by NumPy's names; learn/on_device/arrays.py has torch's"""


def namespace(a: Any) -> Any:
    """The functions to compute with `a`: NumPy, or what knows arrays on a device."""
    return NAMESPACES.get(type(a), np)


LINE = (
    64  # bytes of a cache line: columns a power of two apart share cache sets, so each is one line longer than it needs
)


def by_column(n: int, k: int, dtype: Any = np.float64) -> np.ndarray:
    """(n, k), not filled."""
    return np.empty((k, n + LINE // np.dtype(dtype).itemsize), dtype)[:, :n].T


def column_copy(a: np.ndarray) -> np.ndarray:
    """A copy of a (n, k), laid out column by column."""
    out = by_column(len(a), a.shape[1], a.dtype)
    out[:] = a
    return out
