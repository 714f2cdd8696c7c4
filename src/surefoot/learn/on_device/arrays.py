"""torch's functions by NumPy's names, for terms that compute by Moment.xp: NumPy's meaning, single precision, one device.

A constant of a task, a NumPy array, goes to the device once; after that `asarray` finds it there.
"""

import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.arrays import NAMESPACES

DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float32}


class _Linalg:
    @staticmethod
    def norm(x: Tensor, axis: int, keepdims: bool = False) -> Tensor:
        return torch.linalg.vector_norm(x, dim=axis, keepdim=keepdims)


class TorchArrays:
    """What NumPy calls its functions, of tensors on one device."""

    int64, float32, float64 = torch.int64, torch.float32, torch.float64
    pi, inf, nan = np.pi, np.inf, np.nan
    linalg = _Linalg

    exp, log, log1p, sqrt, square, sinc = (getattr(torch, k) for k in ("exp", "log", "log1p", "sqrt", "square", "sinc"))
    sin, cos, tan, arctan2, tanh = torch.sin, torch.cos, torch.tan, torch.atan2, torch.tanh
    abs, sign, rint, floor, isfinite, isnan = (
        torch.abs,
        torch.sign,
        torch.round,
        torch.floor,
        torch.isfinite,
        torch.isnan,
    )
    einsum, broadcast_to = staticmethod(torch.einsum), staticmethod(torch.broadcast_to)
    ones_like = torch.ones_like

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._known: dict[int, tuple[weakref.ref[np.ndarray], Tensor]] = {}
        """of constants that have been asked for: id -> itself, and where it is on the device"""

    def asarray(self, x: Any, dtype: type | None = None) -> Any:
        """A constant on the device; a tensor and a number stay as they are."""
        if isinstance(x, np.ndarray):
            x = self._constant(x)
        return x if dtype is None or not isinstance(x, Tensor) else x.to(DTYPES[dtype])

    def _constant(self, x: np.ndarray) -> Tensor:
        kept = self._known.get(id(x))
        if kept is not None and kept[0]() is x and kept[1].device == self.device:
            return kept[1]
        at, single = id(x), torch.from_numpy(np.ascontiguousarray(x).copy())
        found = (single.float() if single.is_floating_point() else single).to(self.device)
        self._known[at] = (weakref.ref(x, lambda _: self._known.pop(at, None)), found)
        return found

    # made anew

    def zeros(self, shape: Any) -> Tensor:
        return torch.zeros(shape, device=self.device)

    def ones(self, shape: Any) -> Tensor:
        return torch.ones(shape, device=self.device)

    def full(self, shape: Any, value: float) -> Tensor:
        return torch.full(shape if isinstance(shape, tuple) else (shape,), float(value), device=self.device)

    def arange(self, *ends: int) -> Tensor:
        return torch.arange(*ends, device=self.device)

    @staticmethod
    def zeros_like(x: Tensor, dtype: type | None = None) -> Tensor:
        return torch.zeros_like(x, dtype=None if dtype is None else DTYPES[dtype])

    # where a number may stand for an array

    @staticmethod
    def where(condition: Tensor, a: Any, b: Any) -> Tensor:
        return torch.where(condition, a, b)

    @staticmethod
    def clip(x: Tensor, low: Any, high: Any) -> Tensor:
        return torch.clamp(x, low, high)

    @staticmethod
    def minimum(a: Any, b: Any) -> Tensor:
        a, b = (a, b) if isinstance(a, Tensor) else (b, a)
        return torch.minimum(a, b) if isinstance(b, Tensor) else torch.clamp(a, max=b)

    @staticmethod
    def maximum(a: Any, b: Any) -> Tensor:
        a, b = (a, b) if isinstance(a, Tensor) else (b, a)
        return torch.maximum(a, b) if isinstance(b, Tensor) else torch.clamp(a, min=b)

    # shapes

    @staticmethod
    def stack(x: Any, axis: int = 0) -> Tensor:
        return torch.stack(tuple(x), axis)

    @staticmethod
    def concatenate(x: Any, axis: int = 0) -> Tensor:
        return torch.cat(tuple(x), axis)

    @staticmethod
    def tile(x: Tensor, times: tuple[int, ...]) -> Tensor:
        return torch.tile(x, times)

    @staticmethod
    def astype(x: Tensor, dtype: Any) -> Tensor:
        return x.to(DTYPES.get(dtype, dtype))

    # sums

    @staticmethod
    def sum(x: Tensor, axis: int) -> Tensor:
        return torch.sum(x, axis)

    @staticmethod
    def mean(x: Tensor, axis: int) -> Tensor:
        return torch.mean(x if x.is_floating_point() else x.float(), axis)

    @staticmethod
    def amax(x: Tensor, axis: int) -> Tensor:
        return torch.amax(x, axis)

    @staticmethod
    def amin(x: Tensor, axis: int) -> Tensor:
        return torch.amin(x, axis)


ARRAYS = NAMESPACES[Tensor] = TorchArrays()
