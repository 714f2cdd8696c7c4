"""DORAEMON: the widest p(e) at which the policy still succeeds, approached in steps of bounded KL.

p is a product of Beta(a, b) on the target's ranges. After every `episodes` episodes, with e_k drawn from p_k (p as it was
when the episode began) and s_k their success, the next p' is

    argmax H(p')   subject to   KL(p || p') <= eps,   mean_k s_k p'(e_k) / p_k(e_k) >= alpha

and where p itself succeeds too rarely, the p' in that ball with the largest estimated success. Both are smooth in
(ln a, ln b), have exact gradients, and are solved by SLSQP; a, b >= 1, and the uniform law a = b = 1 is the widest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.belief import Belief, Beta
from surefoot.learn.ranges import Ranges
from surefoot.learn.settings import within

Law = tuple[np.ndarray, np.ndarray]  # (a, b), each (d,)
KEPT = ("a", "b", "seen_z", "seen", "since", "laws")  # arrays that are its state


@dataclass(frozen=True)
class Doraemon:
    """Settings of maximum-entropy randomization under a success constraint."""

    alpha: float = 0.5
    """success that the widened belief must keep"""
    eps: float = 0.1
    """largest KL of a step, nats"""
    episodes: int = 100
    """episodes between steps"""
    sharpness: float = 200.0
    """a + b at the start, of which the mode is the nominal value"""

    def __post_init__(self) -> None:
        within(self, "doraemon.", alpha=(0, 1), eps=(1e-6, 10), episodes=(10, 1e9), sharpness=(4, 1e6))

    def start(self, target: Belief, episode: int, training: int) -> "Widest":
        return Widest(self, target, episode)


class Widest(Ranges):
    def __init__(self, settings: Doraemon, target: Belief, episode: int):
        super().__init__(target, episode)
        self.settings = settings
        z = self.centre[self.free]
        self.a, self.b = 1 + (settings.sharpness - 2) * z, 1 + (settings.sharpness - 2) * (1 - z)
        self.kl, self.rate = 0.0, 0.0  # of the last step
        self.seen_z, self.seen = np.zeros((0, len(z))), np.zeros((0, 2))  # rows of seen: (success, log p_k)
        self.since = np.array([-1])  # step at which each law began to be drawn from ...
        self.laws = np.stack([self.a, self.b])[None]  # ... and the law, newest last
        self._set()

    def _set(self) -> None:
        a, b = np.ones(len(self.free)), np.ones(len(self.free))
        a[self.free], b[self.free] = self.a, self.b
        self.belief: Belief = Beta(self.target.params, a, b, self.target.low, self.target.high)

    def judge(self, e: np.ndarray, success: np.ndarray, began: np.ndarray, now: int) -> None:
        z = self.target.share(e)[:, self.free]
        law = self.laws[np.searchsorted(self.since, began) - 1]
        self.seen_z = np.concatenate([self.seen_z, z])
        self.seen = np.concatenate([self.seen, np.stack([success, log_density(z, law[:, 0], law[:, 1])], 1)])
        if len(self.seen) < self.settings.episodes:
            return
        before, (won, own) = (self.a, self.b), self.seen.T
        self.a, self.b = step(before, self.seen_z, won, own, self.settings.alpha, self.settings.eps)
        self.kl, self.rate = kl(before, self.a, self.b)[0], float(won.mean())
        self.seen_z, self.seen = self.seen_z[:0], self.seen[:0]
        self._remember(now)
        self._set()

    def _remember(self, now: int) -> None:
        """Keep every law that an episode still to be judged may have been drawn from."""
        self.since = np.append(self.since, now)
        self.laws = np.concatenate([self.laws, np.stack([self.a, self.b])[None]])
        gone = int((self.since < now - 2 * self.episode).sum()) - 1
        self.since, self.laws = self.since[max(gone, 0) :], self.laws[max(gone, 0) :]

    def facts(self) -> dict[str, float]:
        h = nats(self.a, self.b)
        return {
            "ranges_entropy": float(h.mean()),
            "width": float(np.exp(h).mean()),
            "step_kl": self.kl,
            "step_success": self.rate,
        }

    def state(self) -> dict[str, np.ndarray]:
        numbers = np.array([self.kl, self.rate])
        return {k: getattr(self, k).copy() for k in KEPT} | {"numbers": numbers}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        for k in KEPT:
            setattr(self, k, state[k].copy())
        self.kl, self.rate = map(float, state["numbers"])
        self._set()


def nats(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Nats of each Beta(a, b) above the uniform law, so <= 0."""
    from scipy.special import betaln, digamma

    h = betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)
    return np.asarray(h)


def entropy(a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """Nats above the uniform law of a product of Beta(a, b), and its gradient in (a, b)."""
    from scipy.special import polygamma

    h = nats(a, b)
    both = (a + b - 2) * polygamma(1, a + b)
    return float(h.sum()), np.concatenate([both - (a - 1) * polygamma(1, a), both - (b - 1) * polygamma(1, b)])


def kl(old: Law, a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """KL(old || Beta(a, b)) in nats, and its gradient in (a, b)."""
    from scipy.special import betaln, digamma

    a0, b0 = old
    both = digamma(a0 + b0)
    each = betaln(a, b) - betaln(a0, b0) + (a0 - a) * (digamma(a0) - both) + (b0 - b) * (digamma(b0) - both)
    slope = digamma(a + b)
    return float(each.sum()), np.concatenate(
        [digamma(a) - slope - digamma(a0) + both, digamma(b) - slope - digamma(b0) + both]
    )


def log_density(z: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(k,) log density of rows z (k, d) under products of Beta(a, b); a and b (d,), or a row for each."""
    from scipy.special import betaln

    z = np.clip(z, 1e-9, 1 - 1e-9)
    return np.asarray(((a - 1) * np.log(z) + (b - 1) * np.log1p(-z) - betaln(a, b)).sum(1))


def success(z: np.ndarray, won: np.ndarray, own: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """Estimated success under Beta(a, b), and its gradient in (a, b), from episodes z (k, d) drawn with log density own."""
    from scipy.special import digamma

    share = np.exp(log_density(z, a, b) - own) * won / len(won)
    z = np.clip(z, 1e-9, 1 - 1e-9)
    log_z, log_rest = np.log(z), np.log1p(-z)
    both = digamma(a + b)
    return float(share.sum()), np.concatenate(
        [share @ (log_z - digamma(a) + both), share @ (log_rest - digamma(b) + both)]
    )


def step(old: Law, z: np.ndarray, won: np.ndarray, own: np.ndarray, alpha: float, eps: float) -> Law:
    """The next law; never further than eps from the old one, which is returned where no step helps."""
    ball = lambda x: _log(x, lambda a, b: kl(old, a, b))  # noqa: E731
    wins = lambda x: _log(x, lambda a, b: success(z, won, own, a, b))  # noqa: E731
    wide = lambda x: _log(x, entropy)  # noqa: E731
    start = np.log(np.concatenate(old))
    if wins(start)[0] < alpha:
        found = _most(wins, start, [(ball, eps, -1.0)])
        better = wins(found)[0] > wins(start)[0]
    else:
        found = _most(wide, start, [(ball, eps, -1.0), (wins, alpha, 1.0)])
        better = wide(found)[0] > wide(start)[0]
    a, b = np.split(np.exp(found), 2)
    return (a, b) if better else old


Graded = Callable[[np.ndarray], tuple[float, np.ndarray]]


def _log(x: np.ndarray, f: Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]) -> tuple[float, np.ndarray]:
    """f and its gradient in x = (ln a, ln b)."""
    ab = np.exp(x)
    value, slope = f(*np.split(ab, 2))
    return value, slope * ab


def _most(goal: Graded, start: np.ndarray, limits: list[tuple[Graded, float, float]]) -> np.ndarray:
    """argmax goal(x) with sign (g(x) - bound) >= 0 for each limit; what the solver overshoots is walked back."""
    from scipy.optimize import minimize

    held = [
        {
            "type": "ineq",
            "fun": lambda x, g=g, c=c, s=s: s * (g(x)[0] - c),
            "jac": lambda x, g=g, s=s: s * g(x)[1],
        }
        for g, c, s in limits
    ]
    solved = minimize(
        lambda x: -goal(x)[0], start, jac=lambda x: -goal(x)[1], method="SLSQP", constraints=held,
        bounds=[(0.0, max(float(v), np.log(1e3))) for v in start], options={"maxiter": 200, "ftol": 1e-8},
    )  # fmt: skip
    x = np.maximum(solved.x, 0.0)
    for _ in range(40):
        if np.isfinite(x).all() and all(s * (g(x)[0] - c) >= -1e-3 * c for g, c, s in limits):
            return x
        x = start + 0.7 * (x - start)
    return start
