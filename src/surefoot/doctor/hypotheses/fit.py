"""Numbers of model errors, fitted to innovations by Gauss-Newton:  eps(z + d) = eps + X d,  all X in one batch of simulations.

d = argmin |eps + X d|^2 in the metric of the remaining innovations, which is estimated again in each round. Where feet meet
the ground, X at 0 says little of a large error: kp x 0.67 looked like kp x 1.03 there. So one number of each quantity is also
searched on a grid, which is then halved around the best.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from surefoot.doctor.evidence.innovations import Gain, Segments, Variant, innovations
from surefoot.doctor.evidence.likelihood import Hypothesis, Likelihood, Weighed, weigh
from surefoot.doctor.hypotheses.by_jobs import ByJobs
from surefoot.doctor.hypotheses.model_errors import ModelError, ModelErrors
from surefoot.world import World

NEAR = 20.0  # nats: the second error of a kind is tried if its linear evidence is no further below the first
REFITTED, ROUNDS = 3, 2  # kinds whose numbers are fitted again, and how often
GRID = (-5.0, -2.5, 2.5, 5.0)  # steps of a deviation: a multiple of 0.6, 0.78, 1.3 and 1.6
HALVINGS = 2
WORTH = 20.0  # nats: an error with less linear evidence is neither simulated nor fitted again


@dataclass(frozen=True, eq=False)
class Fitted:
    error: ModelError
    z: np.ndarray
    eps: np.ndarray  # (s, w, c) innovations under z


class Fit:
    def __init__(self, errors: ModelErrors, world: World, at: Segments, gain: Gain, by: ByJobs | None = None):
        """`by` whom hypotheses are simulated; None: here."""
        self.errors, self.world, self.at, self.gain, self.params = errors, world, at, gain, errors.params
        self.by = by
        numbers = errors.deviations
        eps = self.innovations(
            [errors.variant(at, {}), *(errors.variant(at, {i: x.step}) for i, x in enumerate(numbers))]
        )
        self.likelihood = Likelihood.of(at, eps[0], np.isfinite(eps).all((0, 3)))
        self.J = [self.likelihood.rows(eps[1 + i] - eps[0]) / x.step for i, x in enumerate(numbers)]  # (N, c) each

    def innovations(self, variants: list[Variant]) -> np.ndarray:
        if self.by is not None:
            return self.by.variants(variants, self.gain)
        return innovations(self.world, self.at, variants, self.gain)

    def filtered(self, variant: Variant) -> Callable[[Gain], np.ndarray]:
        """Innovations (s, w, c) of a variant as a function of the gain."""
        return lambda gain: innovations(self.world, self.at, [variant], gain)[0]

    def run(self) -> list[Fitted]:
        """The most likely errors of each kind with their numbers."""
        likely = self._likely()
        found = self._simulated([(x.error, x.z) for worth, x in likely if worth > WORTH])
        for _ in range(ROUNDS):
            found = self._refitted(found)
        return [*found, *(x for worth, x in likely if worth <= WORTH)]

    def searched(self) -> list[Fitted]:
        """The best on a grid of each quantity that is wrong by one number in all its parts, or in the first of them."""
        widest: dict[tuple[str, str], ModelError] = {}
        for s in self.errors.errors:
            param = self.errors.deviations[s.deviations[0]].param
            if s.size == 1 and (s.B > 0).all() and param is not None:
                best = widest.setdefault((s.kind, param.target), s)
                if len(s.deviations) > len(best.deviations):
                    widest[s.kind, param.target] = s
        found = [self._best(s, GRID) for s in widest.values()]
        for k in range(1, HALVINGS + 1):
            half = (GRID[-1] - GRID[-2]) / 2**k
            found = [self._best(x.error, (-half, half), x) if self._worth(x) > WORTH else x for x in found]
        return [x for x in found if self._worth(x) > 0]

    def _worth(self, x: Fitted) -> float:
        return self.likelihood.evidence(x.eps, x.error.size)

    def _best(self, s: ModelError, steps: tuple[float, ...], of: Fitted | None = None) -> Fitted:
        """The most likely of some numbers, in steps away from those of another fit or from 0."""
        step = min(self.errors.deviations[i].step for i in s.deviations)
        start = 0.0 if of is None else of.z
        tried = self._simulated([(s, self._within(s, np.array([start + k * step]).reshape(1))) for k in steps])
        return max([*tried, *([] if of is None else [of])], key=self._worth)

    def weigh(self, x: Fitted) -> Weighed:
        s, variant = x.error, self._variant(x.error, x.z)
        own = [self.errors.deviations[i] for i in s.deviations]
        about = ", ".join(d.words(v) for d, v in zip(own, s.B @ x.z))
        e = None if any(d.param is None for d in own) else variant.e
        h = Hypothesis(s.kind, s.branch, about, s.size, e, innovations=self.filtered(variant))
        return weigh(self.likelihood, h, x.eps)

    def _likely(self) -> list[tuple[float, Fitted]]:
        """Of each kind the best one or two, with their evidence if the model were linear in their numbers."""
        found: dict[str, list[tuple[float, Fitted]]] = {}
        plain = self.likelihood.rows(self.likelihood.plain)
        for s in self.errors.errors:
            X = np.stack([self.J[i] for i in s.deviations], -1) @ s.B
            z = self._within(s, solve(self.likelihood, plain, X))
            eps = self.likelihood.plain.copy()
            eps[self.likelihood.good] = plain + X @ z
            found.setdefault(s.kind, []).append((self.likelihood.evidence(eps, s.size), Fitted(s, z, eps)))
        ranked = [sorted(each, key=lambda x: -x[0]) for each in found.values()]
        return [x for each in ranked for x in each[:2] if x[0] > each[0][0] - NEAR]

    def jacobians(self, found: list[Fitted]) -> list[np.ndarray]:
        """(N, c, z) d eps / d z of each, at its z."""
        variants, steps = [], []
        for x in found:
            s = x.error
            step = 0.5 * min(self.errors.deviations[i].step for i in s.deviations)
            variants += [self._variant(s, x.z + step * (np.arange(s.size) == j)) for j in range(s.size)]
            steps.append(step)
        eps, at, columns = self.innovations(variants), 0, []
        for x, step in zip(found, steps):
            own = [self.likelihood.rows(e - x.eps) / step for e in eps[at : at + x.error.size]]
            at += x.error.size
            columns.append(np.stack(own, -1))
        return columns

    def _within(self, s: ModelError, z: np.ndarray) -> np.ndarray:
        """z with every deviation inside its bounds."""
        own = [self.errors.deviations[i] for i in s.deviations]
        theta = s.B @ z
        inside = np.clip(theta, [d.least for d in own], [d.most for d in own])
        return z if np.allclose(inside, theta) else np.linalg.lstsq(s.B, inside, rcond=None)[0]

    def _variant(self, s: ModelError, z: np.ndarray) -> Variant:
        return self.errors.variant(self.at, dict(zip(s.deviations, (s.B @ z).tolist())))

    def _simulated(self, found: list[tuple[ModelError, np.ndarray]]) -> list[Fitted]:
        if not found:
            return []
        eps = self.innovations([self._variant(s, z) for s, z in found])
        return [Fitted(s, z, e) for (s, z), e in zip(found, eps)]

    def _refitted(self, found: list[Fitted]) -> list[Fitted]:
        """The best of each kind fitted once more from its z, as a model is not linear in its numbers."""
        L = self.likelihood
        score = lambda k: self._worth(found[k])  # noqa: E731
        best: dict[str, int] = {}
        for k in sorted(range(len(found)), key=lambda k: -score(k)):
            best.setdefault(found[k].error.kind, k)
        order = [k for k in list(best.values())[:REFITTED] if score(k) > WORTH]
        if not order:
            return found
        better: list[tuple[int, np.ndarray]] = []
        for k, X in zip(order, self.jacobians([found[k] for k in order])):
            rows = L.rows(found[k].eps)
            if np.isfinite(X).all() and np.isfinite(rows).all():
                d, s = solve(L, rows, X), found[k].error
                better += [(k, self._within(s, found[k].z + d)), (k, self._within(s, found[k].z + 0.5 * d))]
        found = list(found)
        for (k, _), x in zip(better, self._simulated([(found[k].error, z) for k, z in better])):
            if L.log(L.rows(x.eps)) > L.log(L.rows(found[k].eps)):
                found[k] = x
        return found


def solve(likelihood: Likelihood, rows: np.ndarray, X: np.ndarray, rounds: int = 3) -> np.ndarray:
    """d that minimises log det S of rows + X d: (N, c), (N, c, z)."""
    size = X.shape[-1]
    d = np.zeros(size)
    for _ in range(rounds):
        W = np.linalg.inv(np.linalg.cholesky(likelihood.covariance(rows + X @ d)))
        A = np.einsum("ij,njz->niz", W, X).reshape(-1, size)
        d = np.linalg.lstsq(A, -(rows @ W.T).ravel(), rcond=1e-9)[0]
    return np.asarray(d)
