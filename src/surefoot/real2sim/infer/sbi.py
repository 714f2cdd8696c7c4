"""Simulation-based inference: the posterior of e given a log, learned from simulations instead of a likelihood.

    e_i ~ p(e),  x_i = s(f(start, u, e_i) + noise)        q = argmax_q sum_i log q(e_i | x_i)        p(e | log) ~ q(e | s(log))

s are summary statistics. `moments`, after BayesSim (Ramos et al. 2019): means and variances of the signals' changes dy,
and their correlations with the controls, <dy_i u_j>, and with the previous signals, <dy_i y_j>. `learned`: the motion,
subsampled in time, through an embedding net trained together with q. q is a neural density over logit(share of the
range), which cannot leave the range, by the `sbi` library (neural posterior estimation).

q is amortised: once trained it applies to any log of the same experiment, so hundreds of simulated runs can test it
(calibration.py). It trusts the simulator: noise and unknowns that the simulation lacks are not in the posterior.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from surefoot.belief import Belief, Box, Particles
from surefoot.errors import LogError, MissingExtra, SurefootError, unknown
from surefoot.log import Log
from surefoot.real2sim.infer.calibration import Calibration, calibration
from surefoot.real2sim.infer.dropo import thinned
from surefoot.real2sim.replay import Windows, predict, repeated, windows
from surefoot.real2sim.signals import joints_of, measured
from surefoot.report import Progress, Watch
from surefoot.rng import key, stream
from surefoot.world import Motion, Start, World

CHUNK = 2000  # simulations at once
EDGE = 1e-6  # of the range: logit(share) stays finite
BATCH, RATE = 100, 2e-3  # simulations in a training step, and the first learning rate
FRAMES = 50  # of a motion that enter a learned summary


@dataclass(frozen=True)
class NPE:
    """Settings of neural posterior estimation."""

    simulations: int = 5000
    """draws of e from the prior, each simulated once"""
    statistics: Literal["moments", "learned"] = "moments"
    """summary of a motion: moments after BayesSim, or an embedding net over the motion"""
    density: Literal["mdn", "maf", "nsf", "made"] = "mdn"
    """family of the neural density: a mixture of Gaussians (mdn), or flows, which need more simulations"""
    windows: int = 20
    """largest number of windows of the log, where a window is shorter than the log"""
    epochs: int = 80
    """passes over the simulations"""
    draws: int = 2000
    """draws of the posterior in the belief"""


@dataclass(frozen=True, eq=False)
class Posterior:
    """q(e | log), for any log of one experiment: the same controls, the same start, the same prior."""

    prior: Belief
    experiment: "Experiment"
    net: Any
    """sbi's density over logit(share) given statistics, scaled"""
    gained: float
    """mean gain in log density of the truth over the prior on held-out simulations, nats"""
    middle: np.ndarray  # (k,) median of the simulations' statistics
    unit: np.ndarray  # (k,) and their interquartile range

    def draws(self, x: np.ndarray, n: int, seed: int = 0) -> np.ndarray:
        """(m, n, d) of the posterior for each row of statistics x (m, k)."""
        import torch

        with torch.no_grad(), _seeded(seed, "posterior"):
            given = torch.as_tensor(_scaled(x, self.middle, self.unit))
            z = self.net.sample((n,), condition=given)  # (n, m, free)
        return self.experiment.inverse(np.asarray(z, float).swapaxes(0, 1))

    def belief(self, log: Log, n: int = 2000, seed: int = 0) -> Particles:
        """n draws for a log, as a belief."""
        e = self.draws(self.experiment.of(log)[None], n, seed)[0]
        return Particles(self.prior.params, e, np.ones(n))

    def log_prob(self, e: np.ndarray, log: Log) -> np.ndarray:
        """(n,) log q(e | log) over the free unknowns, in nats, comparable with the prior's."""
        import torch

        z, jacobian = self.experiment.forward(np.atleast_2d(e))
        given = torch.as_tensor(_scaled(self.experiment.of(log)[None], self.middle, self.unit))
        with torch.no_grad():
            found = self.net.log_prob(torch.as_tensor(z[:, None], dtype=torch.float32), condition=given)
        return np.asarray(found, float).reshape(-1) + jacobian


@dataclass(frozen=True, eq=False)
class Experiment:
    """The controls and starts of a log, and the summary statistics of its motion."""

    world: World
    pieces: Windows
    belief: Belief
    noise: Mapping[str, float]
    statistics: str

    @property
    def free(self) -> np.ndarray:
        low, high = self.belief.support()
        return low < high

    def simulate(self, e: np.ndarray, seed: int, watch: Watch | None = None) -> np.ndarray:
        """(n, k) statistics of simulations under each row of e with sensor noise; nan where one diverged."""
        found, count = [], max(1, CHUNK // len(self.pieces))
        world = self.world.with_(count * len(self.pieces))
        for k in range(0, len(e), count):
            chunk = e[k : k + count]
            whole = np.concatenate([chunk, np.repeat(chunk[-1:], count - len(chunk), 0)])
            motion = predict(world, self.pieces, whole, self._starts(count, stream(seed, "starts", k)))
            found.append(self._statistics(motion, stream(seed, "noise", k))[: len(chunk)])
            if watch is not None:
                watch(Progress(f"simulated {k + len(chunk)} of {len(e)}", (k + len(chunk)) / len(e)))
        return np.concatenate(found)

    def _starts(self, count: int, rng: np.random.Generator) -> Start:
        """First states of windows: as measured, plus noise of the joint sensors.

        A single run from the log's first row begins exactly there, mostly at rest.
        """
        start, layout = repeated(self.pieces.start, count), self.world.layout
        for name, into, at in (("joint_pos", start.q, layout.places), ("joint_vel", start.v, layout.speeds)):
            if len(self.pieces) > 1 and self.noise.get(name, 0.0) > 0:
                where = np.array(at, int)[joints_of(layout, self.pieces.log, name)]
                into[:, where] += self.noise[name] * rng.standard_normal((len(into), len(where)))
        return start

    def _statistics(self, motion: Motion, rng: np.random.Generator) -> np.ndarray:
        y = []
        for s in self.pieces.signals:
            found = s.read(motion)
            y.append(found + self.noise.get(s.name, 0.0) * rng.standard_normal(found.shape))
        n = len(motion.q) // len(self.pieces)
        shaped = [x.reshape(n, len(self.pieces), *x.shape[1:]) for x in y]
        x = self._sum_up(shaped)
        x[motion.diverged.reshape(n, -1).any(1)] = np.nan
        return x

    def of(self, log: Log) -> np.ndarray:
        """(k,) statistics of the measurement, in the windows of the experiment."""
        if len(log) <= int(self.pieces.rows.max()) + self.pieces.length:
            raise LogError(f"found {len(log)} rows, expected as many as the experiment has")
        if len(self.pieces) > 1 and log is not self.pieces.log:
            raise LogError("found another log, expected the one whose windows and starts the experiment has")
        pieces = replace(self.pieces, log=log)
        x = self._sum_up([pieces.target(s)[None] for s in pieces.signals])[0]
        if not np.isfinite(x).all():
            raise LogError("found gaps in the rows of the experiment, expected a measurement in each")
        return x

    def _sum_up(self, y: list[np.ndarray]) -> np.ndarray:
        """(n, k) of signals, each (n, windows, T, parts)."""
        began = [measured(self.pieces.log, s.name)[self.pieces.rows] for s in self.pieces.signals]  # (w, parts)
        whole, changed = [], []
        for s, start, x in zip(self.pieces.signals, began, y):
            x = np.concatenate([np.broadcast_to(start[:, None], (*x.shape[:2], 1, x.shape[3])), x], 2)
            changed.append(s.error(x[:, :, 1:], x[:, :, :-1]))  # angles and rotations differ by the short way
            whole.append(s.error(x[:, :, :-1], np.broadcast_to(start[:, None], x[:, :, :-1].shape)))
        dy, before = np.concatenate(changed, -1), np.concatenate(whole, -1)  # (n, w, T, k)
        if self.statistics == "learned":
            at = np.unique(np.linspace(0, dy.shape[2] - 1, FRAMES).round().astype(int))
            return (before + dy)[:, :, at].reshape(len(dy), -1)
        T, u = dy.shape[1] * dy.shape[2], np.broadcast_to(self.pieces.u, (len(dy), *self.pieces.u.shape))
        u = u - self.pieces.u.mean((0, 1))
        pairs = [np.einsum("nwti,nwtj->nij", dy, other).reshape(len(dy), -1) / T for other in (u, before)]
        return np.concatenate([dy.mean((1, 2)), np.log(dy.var((1, 2)) + 1e-12), before.mean((1, 2)), *pairs], 1)

    def forward(self, e: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """logit(share) of the free unknowns (n, r), and the log of its derivative by e (n,)."""
        box = Box(self.belief.params, *self.belief.support())
        p, log = np.clip(box.share(e)[:, self.free], EDGE, 1 - EDGE), self.belief.params.log[self.free]
        width = box._width[self.free]
        jacobian = (
            -np.log(p) - np.log1p(-p) - np.log(width) - np.where(log, np.log(np.where(log, e[:, self.free], 1.0)), 0.0)
        )
        return np.log(p) - np.log1p(-p), jacobian.sum(1)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        """e (..., d) of logit(share) (..., r)."""
        p = np.zeros((*z.shape[:-1], len(self.belief.params)))
        p[..., self.free] = 1 / (1 + np.exp(-z))
        return Box(self.belief.params, *self.belief.support()).at(p)


def experiment(
    world: World,
    belief: Belief,
    log: Log,
    noise: Mapping[str, float],
    length: int | None = None,
    how: NPE | None = None,
) -> Experiment:
    """The experiment of a log: its start and controls. noise: signal -> sd of its sensor, in its unit.

    Without a length the model runs freely from the log's first row; unstable machines need windows of `length` steps.
    """
    how = how or NPE()
    pieces = thinned(windows(world, log, length), how.windows, slice(None))
    names = [s.name for s in pieces.signals]
    for name in noise:
        if name not in names:
            raise unknown("signal", name, names, "noise")
    low, high = belief.support()
    if not (low < high).any():
        raise SurefootError("inference: belief: found every param fixed, expected at least one free")
    return Experiment(world, pieces, belief, dict(noise), how.statistics)


def learn(done: Experiment, how: NPE | None = None, seed: int = 0, watch: Watch | None = None) -> Posterior:
    """Simulate the experiment under draws of the prior, and learn q."""
    how = how or NPE()
    _library()
    e = done.belief.sample(stream(seed, "inference"), how.simulations)
    x = done.simulate(e, seed, watch)
    good = np.isfinite(x).all(1)
    if good.sum() < how.simulations / 2:
        raise SurefootError(
            f"inference: {int((~good).sum())} of {how.simulations} simulations diverged; shorter windows, or a narrower prior"
        )
    e, x = e[good], x[good]
    low, middle, high = np.quantile(x, (0.25, 0.5, 0.75), axis=0)
    unit = np.where(high > low, high - low, np.inf)  # a constant statistic carries no information
    z, jacobian = done.forward(e)
    net, held = _trained(z, _scaled(x, middle, unit), how, seed, watch)
    first = slice(0, max(1, len(z) // 10))
    before = done.belief.log_prob(e[first]) - jacobian[first]  # in z, as q is
    return Posterior(done.belief, done, net, held - float(before.mean()), middle, unit)


def _scaled(x: np.ndarray, middle: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """(n, k) in single precision: linear near the middle, logarithmic far from it, so that outliers stay bounded."""
    return np.arcsinh((x - middle) / unit).astype(np.float32)


def checked(posterior: Posterior, runs: int = 300, draws: int = 99, seed: int = 1) -> Calibration:
    """SBC and TARP of a posterior, on newly simulated truths of the prior."""
    done = posterior.experiment
    e = posterior.prior.sample(stream(seed, "calibration truths"), runs)
    x = done.simulate(e, seed)
    good, free = np.isfinite(x).all(1), done.free
    names = [name for name, is_free in zip(done.belief.params.names, free) if is_free]
    return calibration(e[good][:, free], posterior.draws(x[good], draws, seed)[..., free], names, seed)


def _library() -> Any:
    try:
        import sbi.neural_nets
    except ImportError:
        raise MissingExtra("simulation-based inference", "sbi") from None
    return sbi


def _trained(z: np.ndarray, x: np.ndarray, how: NPE, seed: int, watch: Watch | None) -> tuple[Any, float]:
    """sbi's density of z (n, r) given x (n, k), and its mean log density on held-out simulations.

    The learning rate decays to zero along a cosine: otherwise the last few steps would move a narrow posterior by a good
    part of its width. The weights returned are those of the epoch with the best held-out density.
    """
    import torch
    from sbi.neural_nets import posterior_nn
    from sbi.neural_nets.embedding_nets import FCEmbedding

    theta, given = torch.as_tensor(z, dtype=torch.float32), torch.as_tensor(x)
    held = max(1, len(z) // 10)
    with _seeded(seed, "inference"):
        embed = {"embedding_net": FCEmbedding(x.shape[1], 4 * z.shape[1])} if how.statistics == "learned" else {}
        net = posterior_nn(how.density, z_score_x="none", hidden_features=50, **embed)(theta, given)
        steps = how.epochs * -(-(len(z) - held) // BATCH)
        learner = torch.optim.Adam(net.parameters(), lr=RATE)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(learner, steps)
        best, kept = -np.inf, net.state_dict()
        for epoch in range(how.epochs):
            net.train()
            for rows in (held + torch.randperm(len(z) - held)).split(BATCH):
                learner.zero_grad()
                net.loss(theta[rows], given[rows]).mean().backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                learner.step()
                falling.step()
            net.eval()
            with torch.no_grad():
                found = -float(net.loss(theta[:held], given[:held]).mean())
            if found > best:
                best, kept = found, {name: value.clone() for name, value in net.state_dict().items()}
            if watch is not None:
                words = f"epoch {epoch + 1} of {how.epochs}: held-out log density {found:.3f}"
                watch(Progress(words, (epoch + 1) / how.epochs))
    net.load_state_dict(kept)
    return net.eval(), best


@contextmanager
def _seeded(seed: int, purpose: str) -> Iterator[None]:
    """torch's random state set by the seed inside the block, restored after it."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key(seed, purpose) % 2**63)
        yield
