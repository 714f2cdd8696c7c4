"""Randomness is an argument: counter-based streams keyed by (seed, purpose, step).

A stream is made where it is used and discarded, so a resume needs no saved state and nothing depends on the thread count.
Draws of one env never affect another: either a stream draws for all envs and env i is row i, or, where only some envs
draw, they draw from Rows.
"""

import hashlib
import math
from typing import Any

import numpy as np

from surefoot.arrays import namespace
from surefoot.errors import SurefootError

JUDGING = 1 << 52  # seeds of evaluation episodes start here; training uses those below


def key(seed: int, purpose: str, step: int = 0) -> int:
    """64 bits from (seed, purpose, step): the key of a NumPy stream, or a seed for another library's generator."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def stream(seed: int, purpose: str, step: int = 0) -> np.random.Generator:
    """The generator of (seed, purpose, step). Equal arguments give equal draws, other arguments independent ones."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, step)))


def judging(seed: int, purpose: str = "") -> int:
    """The first seed of evaluation episodes: never a training seed, and exact in JSON (below 2^53)."""
    return JUDGING + (key(seed, f"judge {purpose}".strip()) >> 13)


def training(seed: int) -> int:
    """The seed, if training may use it."""
    if not 0 <= seed < JUDGING:
        raise SurefootError(
            f"seed: expected 0 to {JUDGING - 1}, found {seed}; larger seeds are reserved for evaluation"
        )
    return seed


ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: the step of SplitMix64
STEP = int(ODD) - (1 << 64)  # the same bits, signed
Size = int | tuple[int, ...]


def _mix(z: np.ndarray, spare: np.ndarray | None = None) -> np.ndarray:
    """SplitMix64's finaliser, in place: a bijection of 64 bits in which every bit of z moves every bit of the result."""
    z ^= np.right_shift(z, np.uint64(30), out=spare)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= np.right_shift(z, np.uint64(27), out=spare)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= np.right_shift(z, np.uint64(31), out=spare)
    return z


class Normal:
    """Standard normal draws in single precision, within 5.77, for n rows from `first` on: Box-Muller on SplitMix64.

    Draw (i, j) of (seed, purpose, step) depends on row i and column j alone, not on which are drawn with it.
    """

    def __init__(self, first: int, n: int, width: int):
        self.width, pairs = width, np.arange((width + 1) // 2, dtype=np.uint64)
        rows = np.arange(first + 1, first + n + 1, dtype=np.uint64)
        self.at = (rows + (pairs << np.uint64(40))[:, None]) * ODD  # (pairs, n)
        self.z, self.spare = (
            np.empty_like(self.at),
            np.empty_like(self.at),
        )  # used again: new memory costs more than the sums
        self.r = np.empty(self.at.shape, np.float32)

    def draw(self, seed: int, purpose: str, step: int) -> np.ndarray:
        """(n, width) float32, laid out column by column."""
        z, spare, r = self.z, self.spare, self.r
        _mix(np.add(self.at, np.uint64(key(seed, purpose, step)), out=z), spare)
        out = np.empty((len(z), 2, z.shape[1]), np.float32)
        angle, other = out[:, 0], out[:, 1]
        angle[:] = np.bitwise_and(z, np.uint64(0xFFFFFF), out=spare)
        angle *= np.float32(2.0 * np.pi * 2.0**-24)
        r[:] = np.right_shift(z, np.uint64(40), out=spare)
        r *= np.float32(-(2.0**-24))
        r += np.float32(1.0)  # uniform on (0, 1]
        np.log(r, out=r)
        r *= np.float32(-2.0)
        np.sqrt(r, out=r)
        np.sin(angle, out=other)
        other *= r
        np.cos(angle, out=angle)
        angle *= r
        return out.reshape(2 * len(z), -1)[: self.width].T


def _signed(z: int) -> int:
    """The 64-bit number with the same bits."""
    return z - (1 << 64) if z >> 63 else z


def _mix_signed(z: Any) -> Any:
    """_mix of signed 64-bit numbers that wrap around: arrays on a device have no others."""
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return z ^ ((z >> 31) & ((1 << 33) - 1))


class NormalRows:
    """Normal's draws for rows `ids` that are on a device, there."""

    def __init__(self, ids: Any, width: int):
        self.xp, self.width = namespace(ids), width
        pairs = self.xp.arange((width + 1) // 2)
        self.at = (ids + 1 + (pairs << 40)[:, None]) * STEP  # (pairs, n)

    def draw(self, seed: int, purpose: str, step: int) -> Any:
        """(n, width) in single precision."""
        xp, z = self.xp, _mix_signed(self.at + _signed(key(seed, purpose, step)))
        angle = xp.astype(z & 0xFFFFFF, xp.float32) * (2.0 * np.pi * 2.0**-24)
        r = 1.0 - xp.astype((z >> 40) & 0xFFFFFF, xp.float32) * 2.0**-24  # uniform on (0, 1]
        r = xp.sqrt(-2.0 * xp.log(r))
        return xp.stack([xp.cos(angle) * r, xp.sin(angle) * r], 1).reshape(-1, z.shape[1])[: self.width].T


class Rows:
    """Draws for rows `ids` of (seed, purpose, step): those of row i depend on i alone, not on the other rows.

    It has the methods of a NumPy generator that beliefs and starts use. The first entry of a size is the number of rows.
    Draw j of row i is SplitMix64's j-th from a key mixed from the stream's key and i. Rows on a device draw the same there.
    """

    def __init__(self, seed: int, purpose: str, step: int, ids: np.ndarray):
        self.xp, self.drawn = namespace(ids), 0
        if self.xp is np:
            self.keys = _mix(np.uint64(key(seed, purpose, step)) ^ _mix(np.asarray(ids).astype(np.uint64) * ODD + ODD))
        else:
            self.keys = _mix_signed(_mix_signed(ids * STEP + STEP) ^ _signed(key(seed, purpose, step)))

    def random(self, size: Size) -> np.ndarray:
        """Uniform on [0, 1), multiples of 2^-53."""
        shape = (size,) if isinstance(size, int) else size
        width = math.prod(shape[1:])
        if self.xp is not np:
            return self._random_signed(shape, width)
        at = np.arange(self.drawn + 1, self.drawn + width + 1, dtype=np.uint64) * ODD
        self.drawn += width
        return ((_mix(self.keys[:, None] + at) >> np.uint64(11)) * 2.0**-53).reshape(shape)

    def _random_signed(self, shape: tuple[int, ...], width: int) -> Any:
        at = self.xp.arange(self.drawn + 1, self.drawn + width + 1) * STEP
        self.drawn += width
        bits = (_mix_signed(self.keys[:, None] + at) >> 11) & ((1 << 53) - 1)
        return (self.xp.astype(bits, self.xp.float64) * 2.0**-53).reshape(shape)

    def uniform(self, low: float | np.ndarray, high: float | np.ndarray, size: Size) -> np.ndarray:
        low, high = self.xp.asarray(low), self.xp.asarray(high)
        return low + (high - low) * self.random(size)

    def integers(self, low: int, high: int, size: Size) -> np.ndarray:
        return low + self.xp.astype(self.random(size) * (high - low), self.xp.int64)

    def standard_normal(self, size: Size) -> np.ndarray:
        """Box-Muller: sqrt(-2 ln u) cos(2 pi v)."""
        u, v = self.random(size), self.random(size)
        xp = self.xp
        return xp.sqrt(-2.0 * xp.log1p(-u)) * xp.cos(2.0 * np.pi * v)

    def beta(self, a: np.ndarray, b: np.ndarray, size: Size) -> np.ndarray:
        """By a NumPy generator for each row, since rejection sampling takes a varying number of draws."""
        if self.xp is not np:
            raise SurefootError(
                "beta: rows on a device are drawn uniformly or normally; expected ranges that are uniform"
            )
        shape = (size,) if isinstance(size, int) else size
        self.drawn += 1
        seeds = _mix(self.keys + np.uint64(self.drawn) * ODD).tolist()
        draws = [np.random.Generator(np.random.Philox(key=k)).beta(a, b, shape[1:]) for k in seeds]
        return np.stack(draws) if draws else np.zeros(shape)


Draw = np.random.Generator | Rows
