"""SimOpt: run the policy on the robot and in simulation, and move p(e) to where both agree; repeat.

    D(e) = mean |d| + mean d^2     d: smoothed difference of robot and simulation, in units of each signal's own spread
    p'   = argmin_p' E_p'[D(e)]    with KL(p' || p) <= kl            p, p' normal in y (log e on log dimensions)

The minimum has weights w_i ~ exp(-D(e_i) / t) on draws e_i ~ p, with the temperature t that minimises the dual
g(t) = t kl + t log mean exp(-D / t) (relative entropy policy search). p' is the normal fitted to the weighted draws,
moved back towards p until its own KL, computed exactly, is within the bound. (Chebotar et al. 2019.)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import brentq

from surefoot import tasks
from surefoot.belief import Belief, Gaussian
from surefoot.env import Env
from surefoot.log import Log
from surefoot.policy import Driver, Policy
from surefoot.real2sim.replay import Windows, predict, repeated, windows
from surefoot.rng import stream
from surefoot.task import Episode, Task
from surefoot.world import Motion, World

FAR = 1e3  # spreads of a signal: the difference that a diverged simulation counts as

Collect = Callable[[Policy], Log]
"""the robot: runs a policy once and returns its log"""
Imitate = Callable[[Policy, Windows, np.ndarray], Motion]
"""the simulation: the same run under every row of e"""


@dataclass(frozen=True)
class SimOpt:
    """Settings of SimOpt."""

    rounds: int = 4
    """rounds of robot runs, simulation and update"""

    rollouts: int = 5
    """robot runs in each round"""
    samples: int = 64
    """draws of e in each round; every robot run is simulated under each"""
    kl: float = 1.0
    """largest KL of one round, nats"""
    smooth: float = 0.02
    """width of the Gaussian filter over the differences, s: removes noise"""
    l1: float = 1.0
    """weight of mean |d|"""
    l2: float = 1.0
    """weight of mean d^2"""


@dataclass(frozen=True)
class Round:
    """The result of one round."""

    number: int
    belief: Gaussian
    """after it"""
    policy: Policy
    logs: tuple[Log, ...]
    discrepancy: float
    """mean D over draws of the belief before it"""
    temperature: float
    kl: float
    """KL(after || before), nats"""


PLAIN = SimOpt()


def simopt(
    world: World,
    belief: Belief,
    collect: Collect,
    train: Callable[[Belief], Policy],
    imitate: Imitate | None = None,
    how: SimOpt = PLAIN,
    seed: int = 0,
    watch: Callable[[Round], None] | None = None,
) -> Gaussian:
    """A belief under which the simulation moves as the robot did, as far as its unknowns allow.

    `train` makes a policy for a belief; to keep one policy, give `lambda belief: policy`. `imitate` is `acted(task)`,
    which runs the policy in simulation, or by default `replayed(world)`, which applies the robot's controls.
    """
    now, imitate = normal(belief, seed), imitate or replayed(world)
    for k in range(how.rounds):
        policy = train(now)
        logs = tuple(collect(policy) for _ in range(how.rollouts))
        e = now.sample(stream(seed, "simopt", k), how.samples)
        cost = np.mean([discrepancy(world, imitate, policy, log, e, how) for log in logs], 0)  # (samples,)
        after, temperature = reps(now, e, cost, how.kl)
        moved = after.kl(now)
        if watch is not None:
            watch(Round(k, after, policy, logs, float(cost.mean()), temperature, moved))
        now = after
    return now


def normal(belief: Belief, seed: int = 0, draws: int = 4096) -> Gaussian:
    """The Gaussian with a belief's mean and covariance in y."""
    if isinstance(belief, Gaussian):
        return belief
    y = belief.params.y(belief.sample(stream(seed, "simopt prior"), draws))
    spread = y - y.mean(0)
    spread[:, np.ptp(y, axis=0) < 1e-12 * (1 + np.abs(y[0]))] = 0.0  # fixed: rounding errors are no variance
    return Gaussian(belief.params, y.mean(0), spread.T @ spread / draws)


def discrepancy(
    world: World, imitate: Imitate, policy: Policy, log: Log, e: np.ndarray, how: SimOpt = PLAIN
) -> np.ndarray:
    """(n,) D of one run under every row of e."""
    pieces = windows(world, log, len(log) - 1)  # from the start, as the policy acts
    errors, parts = pieces.errors(imitate(policy, pieces, e)), []
    for s in pieces.signals:
        x = pieces.target(s)
        spread = np.sqrt(np.nanmean(np.square(s.error(x, np.nanmedian(x, 1, keepdims=True))), (0, 1)))  # (k,)
        d = errors[s.name] / np.maximum(spread, 1e-3 * spread.max() + 1e-9)
        d = np.clip(np.nan_to_num(d, nan=FAR, posinf=FAR, neginf=-FAR), -FAR, FAR)
        parts.append(gaussian_filter1d(d, how.smooth / world.dt, axis=1) if how.smooth > 0 else d)
    d = np.concatenate(parts, 2)  # (n, T, k)
    return how.l1 * np.abs(d).mean((1, 2)) + how.l2 * np.square(d).mean((1, 2))


def reps(belief: Gaussian, e: np.ndarray, cost: np.ndarray, kl: float) -> tuple[Gaussian, float]:
    """The Gaussian of least cost within kl nats of this one, from draws e (n, d) of it; and the temperature."""
    temperature = temperature_of(cost, kl)
    w, y = softmax(cost, temperature), belief.params.y(e)
    mu = w @ y
    cov = (y - mu).T @ ((y - mu) * w[:, None])
    fixed = np.diag(belief.cov) == 0
    mu[fixed], cov[fixed], cov[:, fixed] = belief.mu[fixed], 0.0, 0.0

    def part(a: float) -> Gaussian:
        """A fraction a of the way."""
        return Gaussian(belief.params, belief.mu + a * (mu - belief.mu), belief.cov + a * (cov - belief.cov))

    most = 0.99  # beyond it, few effective draws would leave a singular covariance
    if part(most).kl(belief) <= kl:
        return part(most), temperature
    return part(float(brentq(lambda a: part(a).kl(belief) - 0.999 * kl, 0.0, most, xtol=1e-6))), temperature


def softmax(cost: np.ndarray, temperature: float) -> np.ndarray:
    """w (n,) with w_i ~ exp(-cost_i / temperature), sum 1. At temperature 0 only the best have weight."""
    above = cost - cost.min()
    w = np.exp(-above / temperature) if temperature > 0 else (above == 0).astype(float)
    return w / w.sum()


def divergence(w: np.ndarray) -> float:
    """KL(w | uniform) in nats: 0 for equal weights, log n for a single one."""
    some = w[w > 0]
    return float(some @ np.log(some) + np.log(len(w)))


def temperature_of(cost: np.ndarray, kl: float) -> float:
    """The temperature at which KL(softmax | uniform) = kl; 0 if the KL of the best alone is smaller.

    It minimises the dual of REPS, g(t) = t kl + t log mean exp(-c / t): g'(t) = kl - KL(t) = 0.
    """
    unit = float(np.ptp(cost))
    if unit == 0 or divergence(softmax(cost, 0.0)) <= kl:
        return 0.0
    log_t = brentq(lambda x: divergence(softmax(cost, unit * np.exp(x))) - kl, -30.0, 30.0, xtol=1e-12)
    return float(unit * np.exp(log_t))


def replayed(world: World) -> Imitate:
    """Apply the robot's controls in simulation: for machines that are stable in open loop."""
    return lambda policy, pieces, e: predict(world, pieces, e)


def acted(task: Task) -> Imitate:
    """Run the policy in simulation from the robot's first state, with the commands in the log's column `command`."""

    def imitate(policy: Policy, pieces: Windows, e: np.ndarray) -> Motion:
        steps, x = pieces.length, pieces.start
        own = replace(
            task,
            episode=lambda rng, n: Episode(repeated(x, n)),
            ended={},
            command=None,
            trial=1,
            seconds=(steps + 2) * (1 / pieces.log.rate),
        )
        return _run(policy, tasks.env(own, len(e)), e, pieces.log, steps)

    return imitate


def _run(policy: Policy, env: Env, e: np.ndarray, log: Log, steps: int) -> Motion:
    commands = log.columns.get("command", np.zeros((steps + 1, env.command.shape[1])))
    env.command[:] = commands[0]
    obs, diverged, drive = env.reset(e=e), np.zeros(env.n, bool), Driver(policy, env.n)
    states: list[tuple[np.ndarray, ...]] = []
    readings: list[dict[str, np.ndarray]] = []
    for k in range(steps):
        env.command[:] = commands[k + 1]  # the observation at the end of this period has the next one's command
        step = env.step(drive(obs["actor"]))
        obs, x = step.obs, env.world.state
        diverged |= step.terminated
        states.append((x.q.copy(), x.v.copy(), x.act.copy()))
        readings.append({name: y.copy() for name, y in x.y.items()})
    q, v, act = (np.stack(each, 1) for each in zip(*states))
    q[diverged], v[diverged] = np.nan, np.nan
    return Motion(q, v, act, {name: np.stack([y[name] for y in readings], 1) for name in readings[0]}, diverged)
