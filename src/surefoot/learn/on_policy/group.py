"""Processes that make one update together: each has some rows of the batch, and what they find is added up."""

from collections.abc import Sequence

from torch import Tensor


class Group:
    """Processes that make one update together. This one: a process alone."""

    rank, size = 0, 1

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sum over all ranks."""
        return list(numbers)

    def summed(self, gradients: Sequence[Tensor | None], losses: Tensor) -> tuple[Sequence[Tensor | None], Tensor]:
        """The sums over all ranks, at rank 0."""
        return gradients, losses

    def follow(self, learned: Sequence[Tensor]) -> None:
        """Every rank has rank 0's parameters."""


ALONE = Group()
