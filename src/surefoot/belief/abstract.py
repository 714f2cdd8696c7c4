"""p(e): what is believed about the unknowns e. One type for a randomization range, prior, posterior, Fisher covariance.

Every belief is simple in y(e) = log e on dimensions where params.log, e elsewhere, and answers in e-space:

    p(e) = p(y(e)) prod_log 1/e        h(e) = h(y) + sum_log E[y]        KL is the same in both

e is (n, d) in the units of its Params; d may be 0. Row i of a sample never depends on how many rows follow it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError, unknown
from surefoot.params import Params
from surefoot.rng import Draw


@dataclass(frozen=True, eq=False)
class Belief(ABC):
    """A distribution over e that never leaves the physical bounds params.low..params.high."""

    params: Params

    @abstractmethod
    def sample(self, rng: Draw, n: int) -> np.ndarray:
        """(n, d) draws, made row by row, all inside the physical bounds."""

    @abstractmethod
    def log_prob(self, e: np.ndarray) -> np.ndarray:
        """(n,) log density of e in nats, -inf off the support."""

    @abstractmethod
    def entropy(self) -> float:
        """Differential entropy over e in nats; -inf when a dimension is fixed."""

    @abstractmethod
    def kl(self, other: "Belief") -> float:
        """KL(self || other) in nats, exact: inf where other rules out what self allows, an error if no closed form."""

    @abstractmethod
    def widen(self, factor: float) -> "Belief":
        """y - E[y] times `factor`, cut at the physical bounds."""

    @abstractmethod
    def inside(self, e: np.ndarray) -> np.ndarray:
        """(n,) bool: is e in the support?"""

    @abstractmethod
    def support(self, level: float = 0.9999) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), each (d,): the smallest box around every possible e; for a Gaussian, its interval(level)."""

    @abstractmethod
    def estimate(self) -> np.ndarray:
        """(d,) the point estimate: the one e to use where one world is wanted. It lies inside the support.

        It is not the mean: a log-normal with a large variance has its mean far above nearly all of its mass.
        """

    @abstractmethod
    def mean(self) -> np.ndarray:
        """(d,) E[e]."""

    @abstractmethod
    def sd(self) -> np.ndarray:
        """(d,) standard deviation of e."""

    @abstractmethod
    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Marginal equal-tailed (low, high), each (d,), holding `level` of the probability."""

    def normalise(self, e: np.ndarray) -> np.ndarray:
        """e -> [0, 1]: 0 at the physical low, 1 at the physical high, straight in y. Any leading shape."""
        low, high = self.params.y(self.params.low), self.params.y(self.params.high)
        return (self.params.y(e) - low) / (high - low)

    def denormalise(self, z: np.ndarray) -> np.ndarray:
        """The inverse of normalise; z beyond [0, 1] lands on the bound."""
        low, high = self.params.y(self.params.low), self.params.y(self.params.high)
        z = np.clip(z, 0.0, 1.0)
        return self.params.e((1 - z) * low + z * high)

    def to_json(self) -> dict[str, Any]:
        rest = {f.name: getattr(self, f.name).tolist() for f in fields(self)[1:]}
        return {"kind": type(self).__name__.lower(), "params": self.params.to_json(), **rest}

    @staticmethod
    def from_json(data: dict[str, Any], where: str = "") -> "Belief":
        """The belief `to_json` wrote, bit for bit. `where` (a file, a field) opens every error; a seal is checked."""
        if isinstance(data, dict) and "sha256" in data:
            data = files.check_seal(data, where or "belief")
        try:
            return _read(data)
        except SurefootError as error:
            raise SurefootError(f"{where}: {error}" if where else str(error)) from None

    def write(self, path: Path | str) -> None:
        """A sealed JSON file: a later change is detected. It also gives the point estimate by name, for people."""
        estimate = dict(zip(self.params.names, self.estimate().tolist()))
        files.write_json(Path(path), files.seal(self.to_json() | {"estimate": estimate}))

    @staticmethod
    def read(path: Path | str, params: Params | None = None) -> "Belief":
        """The belief of a file: one that `write` wrote, unchanged, or one written by hand, which has no `sha256`.

        About given params, which must then be the file's, it may also be ranges by name: {"mass": [0.8, 1.2]}.
        """
        from surefoot.belief.by_hand import from_ranges  # which makes boxes, so it imports this file

        data = files.read_json(Path(path))
        if params is not None and isinstance(data, dict) and not {"kind", "params"} & data.keys():
            return from_ranges(params, data, str(path))
        belief = Belief.from_json(data, str(path))
        if params is not None:
            params.check_same(belief.params, str(path))
        return belief

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return pairs[0][0] == pairs[0][1] and all(np.array_equal(mine, theirs) for mine, theirs in pairs[1:])

    def __hash__(self) -> int:
        return hash((type(self), self.params))


def _read(data: dict[str, Any]) -> Belief:
    from surefoot.belief import KINDS  # each of them is a Belief, so they import this file

    if not isinstance(data, dict):
        raise SurefootError(f"belief: found {type(data).__name__}, expected an object with a kind")
    where = str(data.get("kind"))
    if where not in KINDS:
        raise unknown("kind", where, KINDS, "belief.kind")
    names = ["kind", *(f.name for f in fields(KINDS[where]))]
    for name in data:
        if name not in (*names, "estimate"):
            raise unknown("field", str(name), [*names, "estimate"], where)
    for name in names:
        if name not in data:
            raise SurefootError(f"{where}.{name}: found nothing, expected a list")
    params = Params.from_json(data["params"], f"{where}.params")
    belief: Belief = KINDS[where](params, **{name: data[name] for name in names[2:]})
    _check_estimate(belief, data.get("estimate"), f"{where}.estimate")
    return belief


def _check_estimate(belief: Belief, given: Any, where: str) -> None:
    """The estimate of a file follows from its other fields; one that does not means that only some were edited."""
    if given is None:
        return
    expected = dict(zip(belief.params.names, belief.estimate().tolist()))
    if not isinstance(given, dict) or given.keys() != expected.keys():
        raise SurefootError(f"{where}: found {given!r:.80}, expected a value for each of {', '.join(expected)}")
    for name, value in expected.items():
        if not isinstance(given[name], (int, float)) or abs(given[name] - value) > 1e-6 * abs(value):
            raise SurefootError(
                f"{where}.{name}: found {given[name]!r:.80}, expected {value:.9g}, as the other fields have it; or leave it out"
            )
