"""An estimator that a net has learned beside its policy: observation -> values and standard deviations, independent of each other.

The net is in the policy's ONNX file, as its output `estimate`: the policy's own history is its memory, so it has no state
but the last answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.errors import SurefootError
from surefoot.estimate.abstract import Estimate, Estimator, EstimatorState
from surefoot.observation import ObsTerm


@dataclass(frozen=True, eq=False)
class LearnedEstimator(Estimator):
    """What a net says of the named quantities; a frame is the policy's whole observation, as its contract makes it."""

    net: Callable[[np.ndarray], np.ndarray]
    """observations (n, dim) float32 -> (n, 2 k): k values, then their standard deviations"""
    named: Mapping[str, tuple[int, str]]
    """quantity -> how many numbers, and their unit, in the order of the net's answer"""
    dt: float
    inputs: tuple[ObsTerm, ...] = ()

    @property
    def width(self) -> int:
        return sum(dim for dim, _ in self.named.values())

    @property
    def quantities(self) -> Mapping[str, tuple[int, str]]:
        return self.named

    def init(self, n: int) -> EstimatorState:
        return {"answer": np.zeros((n, 2 * self.width))}

    def step(self, s: EstimatorState, frame: np.ndarray) -> EstimatorState:
        answer = np.asarray(self.net(np.ascontiguousarray(frame, np.float32)), float)
        if answer.shape != s["answer"].shape:
            raise SurefootError(f"estimate: expected {s['answer'].shape} numbers of the net, found {answer.shape}")
        return {"answer": answer}

    def terms(self, s: EstimatorState, names: Sequence[str] = ()) -> dict[str, Estimate]:
        value, sd = np.split(s["answer"], 2, 1)
        ends = np.cumsum([dim for dim, _ in self.named.values()]).tolist()
        at = {name: slice(end - dim, end) for (name, (dim, _)), end in zip(self.named.items(), ends)}
        each = lambda x: x[..., None] ** 2 * np.eye(x.shape[1])  # noqa: E731
        return {name: Estimate(value[:, at[name]], each(sd[:, at[name]])) for name in names or self.named}

    def with_inputs(self, inputs: tuple[ObsTerm, ...]) -> "LearnedEstimator":
        return replace(self, inputs=inputs)

    def to_json(self) -> dict[str, Any]:
        raise SurefootError("estimate: a learned estimator is part of its policy's ONNX file, and no contract names it")
