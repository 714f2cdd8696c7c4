"""DORAEMON: the widest p(e) at which the policy still succeeds, approached in steps of bounded KL.

p is a product of Beta(a, b) on the target's ranges. After every `episodes` episodes, with e_k drawn from p and s_k their
success, the next p' is

    argmax H(p')   subject to   KL(p || p') <= eps,   mean_k s_k p'(e_k) / p(e_k) >= alpha

and where p itself succeeds too rarely, the p' in that ball with the largest estimated success. Both are smooth in
(ln a, ln b), have exact gradients, and are solved by SLSQP; a, b >= 1, and the uniform law a = b = 1 is the widest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.belief import Belief, Beta
from surefoot.learn.ranges import Ranges

Law = tuple[np.ndarray, np.ndarray]  # (a, b), each (d,)


@dataclass(frozen=True)
class Doraemon:
    """Settings of maximum-entropy randomization under a success constraint."""

    alpha: float = 0.5
    """success that the widened belief must keep"""
    eps: float = 0.1
    """largest KL of a step, nats"""
    episodes: int = 200
    """episodes between steps"""
    sharpness: float = 200.0
    """a + b at the start, of which the mode is the nominal value"""

    def start(self, target: Belief, episode: int) -> "Widest":
        return Widest(self, target, episode)


class Widest(Ranges):
    def __init__(self, settings: Doraemon, target: Belief, episode: int):
        super().__init__(target, episode)
        self.settings, self.since = settings, -1
        z = self.centre[self.free]
        self.a, self.b = 1 + (settings.sharpness - 2) * z, 1 + (settings.sharpness - 2) * (1 - z)
        self.first = entropy(self.a, self.b)[0]
        self.kl, self.rate = 0.0, 0.0  # of the last step
        self.seen_z, self.seen = np.zeros((0, int(self.free.sum()))), np.zeros(0)
        self._set()

    def _set(self) -> None:
        a, b = np.ones(len(self.free)), np.ones(len(self.free))
        a[self.free], b[self.free] = self.a, self.b
        self.belief: Belief = Beta(self.target.params, a, b, self.target.low, self.target.high)

    def judge(self, e: np.ndarray, success: np.ndarray, began: np.ndarray, now: int) -> None:
        """Only episodes drawn from p as it is: the weights p'/p are then right."""
        fresh = began > self.since
        self.seen_z = np.concatenate([self.seen_z, self.target.share(e[fresh])[:, self.free]])
        self.seen = np.concatenate([self.seen, success[fresh]])
        if len(self.seen) < self.settings.episodes:
            return
        before = (self.a, self.b)
        self.a, self.b = step(before, self.seen_z, self.seen, self.settings.alpha, self.settings.eps)
        self.kl, self.rate, self.since = kl(before, self.a, self.b)[0], float(self.seen.mean()), now
        self.seen_z, self.seen = self.seen_z[:0], self.seen[:0]
        self._set()

    def facts(self) -> dict[str, float]:
        h = entropy(self.a, self.b)[0]
        return {"entropy": h / len(self.a), "width": 1 - h / self.first, "step_kl": self.kl, "step_success": self.rate}

    def state(self) -> dict[str, np.ndarray]:
        numbers = np.array([self.kl, self.rate])
        kept = {k: getattr(self, k).copy() for k in ("a", "b", "seen_z", "seen")}
        return kept | {"since": np.array(self.since), "numbers": numbers}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.a, self.b, self.seen_z, self.seen = (state[k].copy() for k in ("a", "b", "seen_z", "seen"))
        self.since, (self.kl, self.rate) = int(state["since"]), map(float, state["numbers"])
        self._set()


def entropy(a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """Nats above the uniform law (so <= 0) of a product of Beta(a, b), and its gradient in (a, b)."""
    from scipy.special import betaln, digamma, polygamma

    h = betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)
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


def success(old: Law, z: np.ndarray, won: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """Estimated success under Beta(a, b) from episodes z (k, d) drawn from old, and its gradient in (a, b)."""
    from scipy.special import betaln, digamma

    a0, b0 = old
    z = np.clip(z, 1e-9, 1 - 1e-9)
    log_z, log_rest = np.log(z), np.log1p(-z)
    weight = np.exp(log_z @ (a - a0) + log_rest @ (b - b0) + (betaln(a0, b0) - betaln(a, b)).sum())
    share = weight * won / len(won)
    both = digamma(a + b)
    return float(share.sum()), np.concatenate(
        [share @ (log_z - digamma(a) + both), share @ (log_rest - digamma(b) + both)]
    )


def step(old: Law, z: np.ndarray, won: np.ndarray, alpha: float, eps: float) -> Law:
    """The next law; never further than eps from the old one, which is returned where no step helps."""
    ball = lambda x: _log(x, lambda a, b: kl(old, a, b))  # noqa: E731
    wins = lambda x: _log(x, lambda a, b: success(old, z, won, a, b))  # noqa: E731
    wide = lambda x: _log(x, entropy)  # noqa: E731
    start = np.log(np.concatenate(old))
    if won.mean() < alpha:
        found = _most(wins, start, [(ball, eps, -1.0)])
        better = wins(found)[0] > won.mean()
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
