"""physics: what would make the model expect what the machine did?

    L(h) = -N/2 log det S(h),   S = mean eps eps^T + floor^2          eps: surprises of follow.py under hypothesis h
    evidence = L(h) - L(nothing wrong) - p/2 log N                    p fitted numbers, N rows

S is estimated under each hypothesis: every channel counts in its own noise, whatever its unit. Numbers are fitted by
Gauss-Newton in that metric: eps(theta + d) = eps + J d, all J in one batch of simulations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.gate.doctor.cause import Cause
from surefoot.gate.doctor.follow import Gain, Track, Variant, follow, gain_of, track, trusting
from surefoot.gate.doctor.held import held
from surefoot.gate.doctor.suspects import LONGEST, Suspect, Suspects, drags, suspects, wirings
from surefoot.log import Log
from surefoot.sim.engine import Engine, compile_for
from surefoot.sim.gap.build import fitting, world_of
from surefoot.sim.load import load_string
from surefoot.task import Task

PROMISING = 3  # suspects of a kind that are tried in earnest
AGAIN, ROUNDS = 5, 2  # kinds whose numbers are fitted again, and how often
WORTH = 20.0  # nats: a suspect that promises less is not fitted again
FLOOR = 1e-4  # of a channel's spread: smaller surprises tell nothing
STRENGTHS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
INGREDIENTS = {"stiction": ("stiction", STRENGTHS), "backlash": ("backlash", STRENGTHS), "saturation": ("saturation", STRENGTHS)}
Watch = Callable[[str], Any]
Fitted = tuple[Suspect, np.ndarray, np.ndarray]  # with its numbers z, and the surprises (s, w, c) under them


@dataclass(frozen=True, eq=False)
class Judge:
    """The likelihood of surprises (s, w, c)."""

    good: np.ndarray  # (s, w) rows that count
    floor: np.ndarray  # (c,)

    @property
    def n(self) -> int:
        return int(self.good.sum())

    def rows(self, eps: np.ndarray) -> np.ndarray:
        return eps[self.good]

    def spread(self, eps: np.ndarray) -> np.ndarray:
        r = self.rows(eps)
        return np.asarray(r.T @ r / max(len(r), 1) + np.diag(self.floor**2))

    def __call__(self, eps: np.ndarray) -> float:
        if not np.isfinite(self.rows(eps)).all():
            return -np.inf
        return float(-0.5 * self.n * np.linalg.slogdet(self.spread(eps))[1])


def doctored(task: Task, found: Suspects, n: int = 1) -> Engine:
    """The task's world with every suspect's number as an e."""
    model = compile_for(load_string(task.xml, task.name).spec, found.params)
    return Engine(model, found.params, n, task.substeps, 1, (drags(model, found.params),), task.explicit)


@dataclass(frozen=True, eq=False)
class Examined:
    """What physics has to say."""

    causes: tuple[Cause, ...]
    at: Track
    gain: Gain
    judge: Judge
    plain: np.ndarray  # (s, w, c) surprises with nothing wrong
    latency: np.ndarray  # (k, 2) s, and how much better that latency predicts, nats


def examine(task: Task, log: Log, watch: Watch = lambda _: None) -> Examined | None:
    """Causes between controls and signals; None where the log has too little to say."""
    bare = compile_for(load_string(task.xml, task.name).spec, task.params)
    known = suspects(bare)
    world = doctored(task, known)
    at = track(world, log)
    if len(at.rows) == 0 or at.counts.sum() < 3 * at.channels:
        return None
    params = known.params
    watch("following the log")
    nominal = Variant(params.nominal)
    first = follow(world, at, [nominal], trusting(at.model.nv))[0]
    gain = gain_of(first, at.dt)
    return _Search(task, known, world, at, gain, watch).run()


class _Search:
    def __init__(self, task: Task, known: Suspects, world: Engine, at: Track, gain: Gain, watch: Watch):
        self.task, self.known, self.world, self.at, self.gain, self.watch = task, known, world, at, gain, watch
        self.params = known.params

    def follow(self, variants: list[Variant]) -> np.ndarray:
        return follow(self.world, self.at, variants, self.gain)

    def run(self) -> Examined:
        knobs = self.known.knobs
        turn = lambda i, x: self.known.variant(self.at, self.params, {i: x})  # noqa: E731
        self.watch("turning every knob")
        eps = self.follow([Variant(self.params.nominal), *(turn(i, k.step) for i, k in enumerate(knobs))])
        plain = eps[0]
        good = np.isfinite(eps).all((0, 3))
        motion = np.concatenate([self.at.q.std(0)[-self.at.model.nv :], self.at.v.std(0)])
        self.judge = Judge(good, FLOOR * np.maximum(motion, 1e-6))
        self.base = self.judge(plain)
        self.N = self.judge.n
        self.noise = float(np.trace(np.linalg.solve(self.judge.spread(plain), self.judge.spread(plain))))
        J = {i: (eps[1 + i] - plain) / k.step for i, k in enumerate(knobs)}
        self.watch("weighing suspects")
        results = self._tried(self._likely(plain, J))
        for _ in range(ROUNDS):
            results = self._again(results)
        causes = [self._cause(s, z, e, plain) for s, z, e in results]
        late = self._late()
        causes += [self._told("latency", "timing", f"controls act {1e3 * t:.0f} ms late", L - self.base - 0.5 * np.log(self.N), e, plain) for t, L, e in late]
        causes += self._wired(plain)
        causes.append(self._held(plain))
        causes += self._limited(plain)
        causes += self._ingredients(plain)
        ranked = tuple(sorted(causes, key=lambda c: -c.evidence))
        return Examined(ranked, self.at, self.gain, self.judge, plain, np.array([[t, L - self.base] for t, L, _ in late]))

    def _late(self) -> list[tuple[float, float, np.ndarray]]:
        """(s, L, surprises) of latencies: a coarse row of them, and finer ones about the best."""
        tried: list[tuple[float, float, np.ndarray]] = []
        for times in (np.arange(0.01, LONGEST + 1e-9, 0.01), np.array([-0.005, 0.005])):
            at = times if not tried else max(tried, key=lambda x: x[1])[0] + times
            eps = self.follow([self.known.variant(self.at, self.params, {}, float(t)) for t in at])
            tried += [(float(t), self.judge(e), e) for t, e in zip(at, eps)]
        return sorted(tried, key=lambda x: x[0])

    def _likely(self, plain: np.ndarray, J: dict[int, np.ndarray]) -> list[tuple[Suspect, np.ndarray]]:
        """Of each kind the few suspects that promise most, were the model straight in their numbers."""
        found: dict[str, list[tuple[float, Suspect, np.ndarray]]] = {}
        for s in self.known.suspects:
            X = self._columns(s, [J[i] for i in s.knobs])
            z = self._solve(plain, X, s.size)
            left = self.judge.rows(plain) + X @ z
            S = left.T @ left / len(left) + np.diag(self.judge.floor**2)
            score = -0.5 * self.N * np.linalg.slogdet(S)[1] - 0.5 * s.size * np.log(self.N)
            found.setdefault(s.kind, []).append((float(score), s, z))
        return [(s, z) for each in found.values() for _, s, z in sorted(each, key=lambda x: -x[0])[:PROMISING]]

    def _columns(self, s: Suspect, J: list[np.ndarray]) -> np.ndarray:
        """(N, c, z) how surprises move with a suspect's numbers."""
        each = np.stack([self.judge.rows(x) for x in J], -1)
        return each @ s.B

    def _solve(self, eps: np.ndarray, X: np.ndarray, size: int, rounds: int = 3) -> np.ndarray:
        """z of least log det S, by least squares in the metric of what is left."""
        r, z = self.judge.rows(eps), np.zeros(size)
        for _ in range(rounds):
            left = r + X @ z
            S = left.T @ left / len(r) + np.diag(self.judge.floor**2)
            W = np.linalg.inv(np.linalg.cholesky(S))
            A = np.einsum("ij,njz->niz", W, X).reshape(-1, size)
            z = np.linalg.lstsq(A, -(r @ W.T).ravel(), rcond=1e-9)[0]
        return np.asarray(z)

    def _variant(self, s: Suspect, z: np.ndarray) -> Variant:
        return self.known.variant(self.at, self.params, dict(zip(s.knobs, (s.B @ z).tolist())))

    def _tried(self, found: list[tuple[Suspect, np.ndarray]]) -> list[Fitted]:
        eps = self.follow([self._variant(s, z) for s, z in found])
        return [(s, z, e) for (s, z), e in zip(found, eps)]

    def _again(self, results: list[Fitted]) -> list[Fitted]:
        """The most telling of each kind once more, from where they are: a model is not straight in its numbers."""
        best: dict[str, int] = {}
        score = lambda k: self.judge(results[k][2]) - 0.5 * results[k][0].size * np.log(self.N)  # noqa: E731
        for k in sorted(range(len(results)), key=lambda k: -score(k)):
            best.setdefault(results[k][0].kind, k)
        order = [k for k in list(best.values())[:AGAIN] if score(k) > self.base + WORTH]
        variants, plan = [], []
        for k in order:
            s, z, _ = results[k]
            for j in range(s.size):
                step = 0.5 * min(self.known.knobs[i].step for i in s.knobs)
                variants.append(self._variant(s, z + step * (np.arange(s.size) == j)))
                plan.append((k, step))
        if not variants:
            return results
        columns: dict[int, list[np.ndarray]] = {}
        for (k, step), e in zip(plan, self.follow(variants)):
            columns.setdefault(k, []).append((e - results[k][2]) / step)
        better = []
        for k in order:
            s, z, e = results[k]
            X = np.stack([self.judge.rows(x) for x in columns[k]], -1)
            if np.isfinite(X).all() and np.isfinite(self.judge.rows(e)).all():
                d = self._solve(e, X, s.size)
                better += [(k, s, z + d), (k, s, z + 0.5 * d)]
        for (k, _, _), (s, z, e) in zip(better, self._tried([(s, z) for _, s, z in better])):
            if self.judge(e) > self.judge(results[k][2]):
                results[k] = (s, z, e)
        return results

    def _cause(self, s: Suspect, z: np.ndarray, eps: np.ndarray, plain: np.ndarray) -> Cause:
        words = ", ".join(self.known.knobs[i].words(x) for i, x in zip(s.knobs, s.B @ z))
        evidence = self.judge(eps) - self.base - 0.5 * s.size * np.log(self.N)
        return self._told(s.kind, s.branch, words, evidence, eps, plain)

    def _told(self, kind: str, branch: str, words: str, evidence: float, eps: np.ndarray, plain: np.ndarray) -> Cause:
        share = self.share(plain, eps)
        return Cause(kind, words, float(evidence), share, f"{words}: explains {share:.0%} of what the model did not expect", branch)

    def share(self, before: np.ndarray, after: np.ndarray) -> float:
        """Of the squared surprise, each channel in its own noise, what is gone."""
        if not np.isfinite(self.judge.rows(after)).all():
            return 0.0
        W = np.linalg.inv(self.judge.spread(after))
        a, b = (float(np.einsum("ni,ij,nj->", r, W, r)) for r in (self.judge.rows(after), self.judge.rows(before)))
        return 1 - a / b

    def _limited(self, plain: np.ndarray) -> list[Cause]:
        """Motors that give no more than so much: controls cut off at a level, found among the controls themselves."""
        m, u = self.at.model, self.at.u
        if (m.actuator_biasprm[:, 1] < 0).any():
            return []  # servos: their controls are places, not forces
        size = np.abs(u[np.isfinite(u).all(1)])
        low, high = float(np.quantile(size, 0.2)), float(size.max())
        best: tuple[float, float, np.ndarray] = (-np.inf, high, plain)
        for _ in range(2):
            levels = np.linspace(low, high, 10)[:-1]
            eps = self.follow([Variant(self.params.nominal, u=np.clip(u, -x, x)) for x in levels])
            best = max([best, *((self.judge(e), float(x), e) for x, e in zip(levels, eps))], key=lambda x: x[0])
            step = levels[1] - levels[0]
            low, high = best[1] - step, best[1] + step
        L, level, e = best
        words = f"motors give no more than a control of {level:.3g}"
        return [self._told("saturation", "physics", words, L - self.base - 0.5 * np.log(self.N), e, plain)]

    def _held(self, plain: np.ndarray) -> Cause:
        L, p, believed = held(self.world, self.at, self.gain, self.params.nominal, self.judge.good, self.judge.spread(plain), self.judge.floor)
        base = self.base - 0.5 * self.N * self.at.channels  # what a Gaussian's own quadratic form adds
        return self._told("jitter", "timing", f"{p:.0%} of the commands a period late or lost", L - base - 0.5 * np.log(self.N), believed, plain)

    def _ingredients(self, plain: np.ndarray) -> list[Cause]:
        """What has states of its own, which no knob of the model has: worlds of the gap's ingredients."""
        found = []
        for name in fitting(self.task):
            if name not in INGREDIENTS:
                continue
            self.watch(f"trying {name}")
            kind, grid = INGREDIENTS[name]
            tried = []
            for s in grid:
                world = world_of(self.task, {name: s}, 0, len(self.at.rows))
                e = Variant(self.task.params.nominal)
                eps = follow(world, self.at, [e], self.gain)[0]
                tried.append((self.judge(eps), s, eps))
            L, s, eps = max(tried, key=lambda x: x[0])
            words = f"{name.replace('_', ' ')} of strength {s:.2g}"
            found.append(self._told(kind, "physics", words, L - self.base - 0.5 * np.log(self.N), eps, plain))
        return found

    def _wired(self, plain: np.ndarray) -> list[Cause]:
        edits = list(wirings(self.at.model))
        if not edits:
            return []
        eps = self.follow([Variant(self.params.nominal, u=self.at.u[:, order] * sign) for _, order, sign in edits])
        return [
            self._told("wiring", "contract", words, self.judge(e) - self.base, e, plain)
            for (words, _, _), e in zip(edits, eps)
        ]
