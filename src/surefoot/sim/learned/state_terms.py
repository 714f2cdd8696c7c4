"""Residual force and delta action: what a model lacks as a function of its state and controls.

    M(q) v' + c(q, v) = f(x, u, e) + g(phi)         g: generalised force, N and N m; its linear part in the base frame
    x' = f(x, u + delta(phi), e)                    delta: in the unit of the controls

phi(x, u) is read by StateFeatures; the net is phi (n, inputs) -> (n, nv) or (n, nu), limits included.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import mujoco
import numpy as np

from surefoot.onnx_file import Graph
from surefoot.sim.learned.features import StateFeatures
from surefoot.typed import record
from surefoot.world import Chance, OnAction, OnForce, State


@dataclass(frozen=True)
class _Card:
    """The fields of both Terms on disk."""

    features: StateFeatures


def _read(data: Any, model: mujoco.MjModel, where: str) -> StateFeatures:
    card: _Card = record(_Card, data, where)
    card.features.check_same(model, f"{where}: features")
    return card.features


@dataclass(frozen=True, eq=False)
class ResidualForce(OnForce):
    """g(x, u)."""

    features: StateFeatures
    net: Graph
    about: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "residual force"

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.features.turned(x.q, self.net(self.features.read(x.q, x.v, u, x.act)).astype(float))

    @property
    def shape(self) -> tuple[int, int]:
        """Columns that the net takes and gives."""
        return len(self.features.names), self.features.nv

    def card(self) -> dict[str, Any]:
        return asdict(_Card(self.features))

    @staticmethod
    def from_card(data: Any, net: Graph, model: mujoco.MjModel, where: str) -> "ResidualForce":
        return ResidualForce(_read(data, model, where), net)


@dataclass(frozen=True, eq=False)
class DeltaAction(OnAction):
    """u + delta(x, u): the controls under which the model does what the robot does under u."""

    features: StateFeatures
    net: Graph
    about: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "delta action"

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return u + self.delta(x, u)

    def delta(self, x: State, u: np.ndarray) -> np.ndarray:
        """(n, nu)"""
        return self.net(self.features.read(x.q, x.v, u, x.act))

    @property
    def shape(self) -> tuple[int, int]:
        """Columns that the net takes and gives."""
        return len(self.features.names), len(self.features.controls)

    def card(self) -> dict[str, Any]:
        return asdict(_Card(self.features))

    @staticmethod
    def from_card(data: Any, net: Graph, model: mujoco.MjModel, where: str) -> "DeltaAction":
        return DeltaAction(_read(data, model, where), net)
