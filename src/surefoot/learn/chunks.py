"""Sums over rows of a batch in chunks, each worked out on a thread of its own.

    sum_i f(x_i) = sum_k sum_{i in chunk k} f(x_i)        chunks by the settings alone, added in their order

Torch's own threads split each operation and wait after each; these wait once, and what a chunk needs stays in a core's cache.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TypeVar

import torch
from torch import Tensor

LEAST, MOST = 512, 8192  # rows of a chunk; with fewer, the calls cost more than the sums

T = TypeVar("T")
X = TypeVar("X")


class Chunks:
    """`threads` threads that work on chunks; torch's own are set to one."""

    def __init__(self, threads: int):
        torch.set_num_threads(1)
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads, "learner") if threads > 1 else None

    def count(self, rows: int) -> int:
        """How many chunks a batch has."""
        return max(-(-rows // MOST), min(self.threads, rows // LEAST), 1)

    def each(self, f: Callable[[X], T], chunks: Sequence[X]) -> list[T]:
        """f of each chunk, in their order."""
        if self.pool is None or len(chunks) == 1:
            return [f(x) for x in chunks]
        return list(self.pool.map(f, chunks))


def added(parts: Iterable[Sequence[Tensor | None]]) -> list[Tensor | None]:
    """The sum over chunks of what each found, entry by entry, in their order; None where there is nothing to add."""
    return [None if x[0] is None else reduce(torch.add, x) for x in zip(*parts)]  # type: ignore[arg-type]
