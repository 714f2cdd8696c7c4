"""Distributions over e from data: does each method find what it should, and is it as sure as it may be?

    python -m benchmarks.distributions [--only dropo|simopt|sbi] [--quick] [--json] [--record]

The robot is a simulation with unknowns that no method is told, and noisy sensors. Values are medians over seeds (other
truths, other noise, other draws) with the least and largest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import Belief, Box, Gaussian, point
from surefoot.contract import Contract
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.policy import Policy, PolicyState
from surefoot.real2sim.episodes import logged
from surefoot.real2sim.infer.dropo import Dropo, dropo
from surefoot.real2sim.infer.sbi import NPE, checked, experiment, learn
from surefoot.real2sim.infer.simopt import Round, SimOpt, acted, discrepancy, simopt
from surefoot.real2sim.plant import world
from surefoot.rng import stream
from surefoot.sim.engine import Engine
from surefoot.tasks.ready.arm import FORE, GRAVITY, KP, MASS, MIDDLE, PARAMS, UPPER, arm, xml
from surefoot.tasks.rollout import contract, evaluate
from surefoot.world import Chance, OnForce, Start, State

SEEDS = 3
MASSES = PARAMS.only(["upper_mass", "fore_mass"])
RANGES = Box.ranges(MASSES, {"upper_mass": (0.75, 3.0), "fore_mass": (0.5, 2.0)})


@dataclass(frozen=True)
class Spring(OnForce):
    """-k q at the shoulder, N m."""

    k: float

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        force = np.zeros_like(x.v)
        force[:, 0] = -self.k * x.q[:, 0]
        return force


def driven(w: Engine, e: np.ndarray, u: np.ndarray, q0: np.ndarray, noise: dict[str, float], seed: int) -> Log:
    """What a world does under controls u (T, nu) from rest at q0, with sensor noise."""
    rng, rest = stream(seed, "sensors"), Start(q0[None], np.zeros((1, w.model.nv)), u[:1])
    w.reset(np.arange(1), e[None], rest)
    did = w.rollout(u[None], Chance(0, 0, w.dt))
    motion = {"joint_pos": (rest.q, did.q[0]), "joint_vel": (rest.v, did.v[0])}
    noisy = {k: np.concatenate([a, b + noise[k] * rng.standard_normal(b.shape)]) for k, (a, b) in motion.items()}
    return Log(w.dt * np.arange(len(u) + 1), noisy | {"control": np.concatenate([u, u[-1:]])})


def arm_log(e: np.ndarray, seed: int, spring: float = 0.0) -> tuple[Engine, Log]:
    """The two-link arm follows sines; its model, without the spring, and the log."""
    make = lambda terms: world(mujoco.MjSpec.from_string(xml()), MASSES, 0.02, 1, terms)  # noqa: E731
    w, rng = make((Spring(spring),) if spring else ()), stream(seed, "sines")
    t = w.dt * np.arange(300)[:, None]
    turns = [(rng.uniform(0.1, 0.35, 2), f, rng.uniform(0, 2 * np.pi, 2)) for f in (0.4, 0.9, 1.7)]
    u = MIDDLE + np.sum([a * np.sin(2 * np.pi * f * t + p) for a, f, p in turns], 0)
    return make(()), driven(w, e, u, u[0], {"joint_pos": 0.001, "joint_vel": 0.02}, seed)


def offline(quick: bool) -> Iterator[Row]:
    """DROPO on an arm of unknown masses, without and with a spring at its shoulder that the model does not have."""
    how = Dropo(draws=8, rounds=3, windows=5) if quick else Dropo(draws=24, rounds=25, windows=16)
    off, ratio, width = [], [], []
    for seed in range(1 if quick else SEEDS):
        truth = RANGES.widen(0.7).sample(stream(seed, "masses"), 1)[0]
        plain = dropo(*_with(RANGES, arm_log(truth, seed)), 8, how, seed)
        sprung = dropo(*_with(RANGES, arm_log(truth, seed, 4.0)), 8, how, seed)
        off.append(100 * float(np.abs(plain.mean() / truth - 1).max()))
        ratio.append(float((sprung.sd() / plain.sd()).max()))
        width.append(100 * float((plain.sd() / truth).max()))
    yield row("dropo, hidden masses: worst error of mu", off, "%", at_most=5.0)
    yield row("dropo, a right model: widest sd", width, "% of the mass")
    yield row("dropo, unmodelled spring of 4 N m/rad: sd with / without", ratio, "ratio", at_least=2.0)


def _with(prior: Box, made: tuple[Engine, Log]) -> tuple[Engine, Box, Log]:
    return made[0], prior, made[1]


@dataclass(frozen=True)
class Holds(Policy):
    """Sends the servos beyond the commanded angles by as much as the weight of the arm it believes in bends them."""

    contract: Contract
    e: dict[str, float]

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        q = np.asarray(obs[:, -4:-2], float)
        hand = self.e["payload"] + MASS["hand"]
        outer = (self.e["fore_mass"] / 2 + hand) * FORE * np.cos(q.sum(1))
        inner = (self.e["upper_mass"] / 2 + self.e["fore_mass"] + hand) * UPPER * np.cos(q[:, 0])
        u = q + GRAVITY * np.stack([inner + outer, outer], 1) / np.array(KP)
        return s, (u - MIDDLE) / np.array([1.8, 1.5])


def rehearsed(seed: int, how: SimOpt) -> tuple[float, list[float], list[float]]:
    """Discrepancy left of the prior's, on a run nothing was fitted to; return on the robot and KL of each round."""
    task = replace(arm(), seconds=2.0, command_every=1.0)
    drawn = stream(seed, "robot").uniform((2.0, 1.3, 0.4), (2.8, 1.8, 0.8))
    true = task.params.vector(dict(zip(("upper_mass", "fore_mass", "payload"), drawn)))
    sd = {"upper_mass": 0.3, "fore_mass": 0.3, "payload": 0.4}
    cov = np.diag([sd.get(name, 0.0) ** 2 for name in task.params.names])
    prior = Gaussian.around(task.params, task.params.vector({"payload": 0.2}), cov)
    env, runs = tasks.env(task, 1, seed=seed), iter(range(10_000))
    collect = lambda policy: logged(policy, env, e=true[None], seed=1000 * seed + next(runs))  # noqa: E731
    world = env.world
    c = contract(task, world)

    def train(belief: Belief) -> Policy:
        return Holds(c, dict(zip(task.params.names, map(float, belief.estimate()))))

    def returned(policy: Policy) -> float:
        judge = tasks.env(task, 64, point(task.params, true), 77)
        return float(evaluate(policy, judge).returns.mean())

    kept: list[Round] = []
    found = simopt(world, prior, collect, train, acted(task), how, seed, kept.append)
    policy = train(prior)
    held = collect(policy)
    score = lambda b: discrepancy(world, acted(task), policy, held, b.sample(stream(seed, "judge"), 64)).mean()  # noqa: E731
    returns = [returned(r.policy) for r in kept] + [returned(train(found))]
    return float(score(found) / score(prior)), returns, [r.kl for r in kept]


def in_the_loop(quick: bool) -> Iterator[Row]:
    """SimOpt on the arm with heavy links and a load: four rounds of five runs; the controller made anew in each."""
    how = SimOpt(rounds=1, rollouts=1, samples=16) if quick else SimOpt()
    found = [rehearsed(seed, how) for seed in range(1 if quick else SEEDS)]
    left, returns, kl = [f[0] for f in found], np.array([f[1] for f in found]), [max(f[2]) for f in found]
    yield row("simopt, 4 rounds x 5 runs: discrepancy cut by", 100 * (1 - np.array(left)), "%", at_least=70.0)
    yield row("simopt: largest KL of a round (bound 1)", kl, "nats", at_most=1.0)
    for k, column in enumerate(returns.T):
        yield row(f"simopt: return on the robot before round {k + 1}", column, "return")
    yield row("simopt: return on the robot, gained", returns[:, -1] - returns[:, 0], "return", at_least=0.0)


PENDULUM = """
<mujoco><compiler angle="radian"/><option timestep="0.01" integrator="RK4"/>
<worldbody><body name="rod"><joint name="hinge" axis="0 1 0" damping=".05"/>
  <inertial pos="0 0 0" mass="1e-6" diaginertia="1e-6 1e-6 1e-6"/>
  <body name="bob" pos="0 0 -.5"><inertial pos="0 0 0" mass="1" diaginertia="1e-4 1e-4 1e-4"/></body></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""
BOB = Params((
    Param("mass", "mass", 1.0, 0.3, 3.0, match="bob", op="set", unit="kg", log=True),
    Param("length", "com_z", 0.0, -0.4, 0.4, match="bob", op="add", unit="m"),
))  # fmt: skip
BEFORE = Box.ranges(BOB, {"mass": (0.5, 2.0), "length": (-0.3, 0.3)})
SENSORS = {"joint_pos": 0.03, "joint_vel": 0.2}


def swung(e: np.ndarray, seed: int) -> tuple[Engine, Log]:
    """A pendulum of unknown mass and length, let go at 0.5 rad under a torque that comes and goes, for 0.8 s."""
    w = world(mujoco.MjSpec.from_string(PENDULUM), BOB, 0.02)
    u = np.sin(4.0 * w.dt * np.arange(40))[:, None]
    return w, driven(w, e, u, np.array([0.5]), SENSORS, seed)


def posteriors(quick: bool) -> Iterator[Row]:
    """NPE on a pendulum (mass, length): what 20 truths gained, and SBC and TARP over 1000 simulated ones."""
    kinds = {"moments": NPE(), "learned": NPE(statistics="learned")}
    for name, how in kinds.items():
        how = replace(how, simulations=200, epochs=2) if quick else how
        won, gained, p, deviation = [], [], [], []
        for seed in range(1 if quick else SEEDS):
            w, log = swung(BOB.nominal, 0)
            posterior = learn(experiment(w, BEFORE, log, SENSORS, how=how), how, seed)
            truths = BEFORE.sample(stream(seed, "truths"), 20)
            more = [
                posterior.log_prob(e, swung(e, 100 * seed + k)[1])[0] - BEFORE.log_prob(e)[0]
                for k, e in enumerate(truths)
            ]
            found = checked(posterior, 50 if quick else 1000, seed=seed + 1)
            won.append(float(sum(m >= 1.0 for m in more)))
            gained.append(float(np.median(more)))
            p.append(float(found.p.min()))
            deviation.append(found.deviation)
        yield row(f"npe, {name}: truths with 1 nat or more over the prior", won, "of 20", at_least=18)
        yield row(f"npe, {name}: log density at the truth over the prior's", gained, "nats")
        yield row(f"npe, {name}: SBC, least p of 2 (Bonferroni), 1000 runs", p, "p", at_least=0.01)
        yield row(f"npe, {name}: TARP, largest deviation", deviation, "of coverage", at_most=0.05)


PARTS: dict[str, Callable[[bool], Iterator[Row]]] = {"dropo": offline, "simopt": in_the_loop, "sbi": posteriors}

if __name__ == "__main__":
    measure.main("distributions", __doc__.split("\n")[0], PARTS)
