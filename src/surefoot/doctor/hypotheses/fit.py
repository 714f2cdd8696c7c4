"""Numbers of suspects, fitted to surprises by Gauss-Newton:  eps(z + d) = eps + X d,  all X in one batch of simulations.

d = argmin |eps + X d|^2 in the metric of what is left, which is estimated anew in each round.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.doctor.evidence.innovations import Gain, Track, Variant, follow
from surefoot.doctor.evidence.likelihood import Again, Judge, Weighed, weigh
from surefoot.doctor.hypotheses.suspects import Suspect, Suspects
from surefoot.world import World

NEAR = 20.0  # nats: the second of a kind is tried, too, where it promises no less than that below the first
AGAIN, ROUNDS = 3, 2  # kinds whose numbers are fitted again, and how often
WORTH = 20.0  # nats: a suspect that promises less is neither tried nor fitted again


@dataclass(frozen=True, eq=False)
class Fitted:
    suspect: Suspect
    z: np.ndarray
    eps: np.ndarray  # (s, w, c) surprises under z


class Fits:
    def __init__(self, known: Suspects, world: World, at: Track, gain: Gain):
        self.known, self.world, self.at, self.gain, self.params = known, world, at, gain, known.params
        knobs = known.knobs
        turned = [known.variant(at, self.params, {i: k.step}) for i, k in enumerate(knobs)]
        eps = self.follow([Variant(self.params.nominal), *turned])
        self.judge = Judge.of(at, eps[0], np.isfinite(eps).all((0, 3)))
        self.J = [self.judge.rows(eps[1 + i] - eps[0]) / k.step for i, k in enumerate(knobs)]  # (N, c) each

    def follow(self, variants: list[Variant]) -> np.ndarray:
        return follow(self.world, self.at, variants, self.gain)

    def run(self) -> list[Fitted]:
        """The most promising suspects of each kind with their numbers."""
        likely = self._likely()
        found = self._tried([(x.suspect, x.z) for worth, x in likely if worth > WORTH])
        for _ in range(ROUNDS):
            found = self._again(found)
        return [*found, *(x for worth, x in likely if worth <= WORTH)]

    def weighed(self, found: list[Fitted]) -> list[Weighed]:
        return [self._weighed(x) for x in found]

    def _weighed(self, x: Fitted) -> Weighed:
        s = x.suspect
        words = ", ".join(self.known.knobs[i].words(v) for i, v in zip(s.knobs, s.B @ x.z))
        e = None if any(self.known.knobs[i].param is None for i in s.knobs) else self._variant(s, x.z).e
        return weigh(self.judge, s.kind, s.branch, words, x.eps, s.size, e, again=self.again(self._variant(s, x.z)))

    def again(self, variant: Variant) -> Again:
        return lambda gain: follow(self.world, self.at, [variant], gain)[0]

    def _likely(self) -> list[tuple[float, Fitted]]:
        """Of each kind the one or two that promise most, and how much, were the model straight in their numbers."""
        found: dict[str, list[tuple[float, Fitted]]] = {}
        plain = self.judge.rows(self.judge.plain)
        for s in self.known.suspects:
            X = np.stack([self.J[i] for i in s.knobs], -1) @ s.B
            z = self._within(s, self.solve(plain, X))
            eps = self.judge.plain.copy()
            eps[self.judge.good] = plain + X @ z
            found.setdefault(s.kind, []).append((self.judge.evidence(eps, s.size), Fitted(s, z, eps)))
        ranked = [sorted(each, key=lambda x: -x[0]) for each in found.values()]
        return [x for each in ranked for x in each[:2] if x[0] > each[0][0] - NEAR]

    def solve(self, rows: np.ndarray, X: np.ndarray, rounds: int = 3) -> np.ndarray:
        """d of least log det S of rows + X d: (N, c), (N, c, z)."""
        size = X.shape[-1]
        d = np.zeros(size)
        for _ in range(rounds):
            W = np.linalg.inv(np.linalg.cholesky(self.judge.spread(rows + X @ d)))
            A = np.einsum("ij,njz->niz", W, X).reshape(-1, size)
            d = np.linalg.lstsq(A, -(rows @ W.T).ravel(), rcond=1e-9)[0]
        return np.asarray(d)

    def columns(self, found: list[Fitted]) -> list[np.ndarray]:
        """(N, c, z) how surprises move with each one's numbers, from where they are."""
        variants, steps = [], []
        for x in found:
            s = x.suspect
            step = 0.5 * min(self.known.knobs[i].step for i in s.knobs)
            variants += [self._variant(s, x.z + step * (np.arange(s.size) == j)) for j in range(s.size)]
            steps.append(step)
        eps, at, columns = self.follow(variants), 0, []
        for x, step in zip(found, steps):
            own = [self.judge.rows(e - x.eps) / step for e in eps[at : at + x.suspect.size]]
            at += x.suspect.size
            columns.append(np.stack(own, -1))
        return columns

    def _within(self, s: Suspect, z: np.ndarray) -> np.ndarray:
        """z whose knobs stay where they can be."""
        knobs = [self.known.knobs[i] for i in s.knobs]
        theta = s.B @ z
        inside = np.clip(theta, [k.least for k in knobs], [k.most for k in knobs])
        return z if np.allclose(inside, theta) else np.linalg.lstsq(s.B, inside, rcond=None)[0]

    def _variant(self, s: Suspect, z: np.ndarray) -> Variant:
        return self.known.variant(self.at, self.params, dict(zip(s.knobs, (s.B @ z).tolist())))

    def _tried(self, found: list[tuple[Suspect, np.ndarray]]) -> list[Fitted]:
        if not found:
            return []
        eps = self.follow([self._variant(s, z) for s, z in found])
        return [Fitted(s, z, e) for (s, z), e in zip(found, eps)]

    def _again(self, found: list[Fitted]) -> list[Fitted]:
        """The most telling of each kind once more, from where they are: a model is not straight in its numbers."""
        score = lambda k: self.judge.evidence(found[k].eps, found[k].suspect.size)  # noqa: E731
        best: dict[str, int] = {}
        for k in sorted(range(len(found)), key=lambda k: -score(k)):
            best.setdefault(found[k].suspect.kind, k)
        order = [k for k in list(best.values())[:AGAIN] if score(k) > WORTH]
        if not order:
            return found
        better: list[tuple[int, np.ndarray]] = []
        for k, X in zip(order, self.columns([found[k] for k in order])):
            rows = self.judge.rows(found[k].eps)
            if np.isfinite(X).all() and np.isfinite(rows).all():
                d, s = self.solve(rows, X), found[k].suspect
                better += [(k, self._within(s, found[k].z + d)), (k, self._within(s, found[k].z + 0.5 * d))]
        if not better:
            return found
        found = list(found)
        for (k, _), x in zip(better, self._tried([(found[k].suspect, z) for k, z in better])):
            if self.judge.likelihood(self.judge.rows(x.eps)) > self.judge.likelihood(self.judge.rows(found[k].eps)):
                found[k] = x
        return found
