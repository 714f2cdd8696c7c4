"""What it is worth to learn from a log what the model lacks: a missing force, and a delta to the actions.

    python -m benchmarks.gap [--only residual|delta] [--quick] [--json] [--record]

The "robot" is a simulation with something hidden in it that the model has no parameter set to. Logs of it have sensor noise.
All is judged on flights and episodes that nothing was learned from. Values are medians over seeds with the least and largest.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from benchmarks import measure
from benchmarks.lessons import JUDGED
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import Belief, Box, point
from surefoot.contract import Contract
from surefoot.learn.loop import policy_of
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import PPOSettings
from surefoot.log import Log
from surefoot.policy import Policy, PolicyState
from surefoot.real2sim.episodes import logged
from surefoot.real2sim.residual import residual_force
from surefoot.real2sim.residual.delta import SETTINGS, ReinforcementSettings, by_inversion, by_reinforcement
from surefoot.real2sim.residual.ensemble import FitSettings
from surefoot.real2sim.residual.log_states import LogStates, log_states
from surefoot.rng import Draw, stream
from surefoot.rotation import matrix, unit
from surefoot.sim.learned import DeltaAction
from surefoot.task import Episode, Task
from surefoot.tasks.ready.hover import ARM, GRAVITY, HOVER, MASS, ROTORS, TORQUE
from surefoot.tasks.rollout import contract, evaluate
from surefoot.world import Chance, OnForce, State, Term

SEEDS = 3
AIR = {"base_pos": 0.002, "base_quat": 0.002, "base_lin_vel": 0.01, "base_ang_vel": 0.02}
JOINTS = {"joint_pos": 0.001, "joint_vel": 0.02}  # rad, rad/s: sd of the sensors' noise
KP = 0.65  # the arm's servos, as a multiple of what the model says
INERTIA = np.array([3.85e-6, 3.85e-6, 5.97e-6])


class Air(OnForce):
    """Drag, linear and quadratic, and the cushion near the ground 0.8 m below: F = -(c + k |v|) v + lift z_body,

    lift = 0.25 sum f_i / (1 + (h / 0.5 m)^2). At the goal a twentieth of the thrust, at the lowest an eighth.
    """

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        force, v = np.zeros_like(x.v), x.v[:, :3]
        lift = 0.25 * x.act.sum(1) / (1 + np.square((x.q[:, 2] + 0.8) / 0.5))
        force[:, :3] = -(0.015 + 0.02 * np.linalg.norm(v, axis=1, keepdims=True)) * v
        force[:, :3] += matrix(unit(x.q[:, 3:7]))[:, :, 2] * lift[:, None]
        return force


class Pilot(Policy):
    """Flies about: each drone follows its own sum of three sines on each axis, within 0.45 m of the goal."""

    def __init__(self, contract: Contract, n: int, seed: int):
        self.contract, rng = contract, stream(seed, "pilot")
        self.w, self.phase = rng.uniform(0.6, 2.5, (n, 3, 3)), rng.uniform(0, 2 * np.pi, (n, 3, 3))
        self.size = 0.45 * rng.dirichlet(np.ones(3), (n, 3))
        a = ARM / np.sqrt(2)
        self.mix = np.array([[y / (4 * a), -x / (4 * a), s / (4 * TORQUE)] for x, y, s in ROTORS.values()])

    def init(self, n: int) -> PolicyState:
        return {"asked": np.zeros((n, 1), np.int64)}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        newest = obs[:, -obs.shape[1] // self.contract.history :].astype(float)
        p, r, v, w = newest[:, :3], newest[:, 3:12].reshape(-1, 3, 3), newest[:, 12:15] / 0.5, newest[:, 15:18] / 0.1
        wanted = (self.size * np.sin(self.w * s["asked"][:, :, None] / self.contract.rate + self.phase)).sum(2)
        a = -6 * (p - wanted) - 4 * v + np.array([0, 0, GRAVITY])
        tilt = np.einsum("nji,nj->ni", r, np.cross(r[:, :, 2], a / np.linalg.norm(a, axis=1, keepdims=True)))
        thrust = MASS * (a * r[:, :, 2]).sum(1)
        f = thrust[:, None] / 4 + (INERTIA * (80 * tilt - 14 * w)) @ self.mix.T
        return {"asked": s["asked"] + 1}, ((f - HOVER) / (1.25 * HOVER)).astype(np.float32)


def flights(task: Task, n: int, seed: int, seconds: float, terms: tuple[Term, ...] = (Air(),)) -> Log:
    """n flights from the goal in the air that is hidden; without terms, in that of the model."""
    level = np.array([0.0, 0, 0, 1, 0, 0, 0])

    def still(rng: Draw, k: int) -> Episode:
        return Episode(replace(task.episode(rng, k).start, q=np.tile(level, (k, 1)), v=np.zeros((k, 6))))

    flown = replace(task, episode=still, seconds=seconds, ended={})
    env = tasks.env(flown, n, seed=seed, terms=terms)
    return logged(Pilot(contract(task, env.world), n, seed), env, AIR, stir=0.05)


def off(at: LogStates, seconds: float, terms: tuple[Term, ...]) -> dict[str, np.ndarray]:
    """Signal -> (w, T, k) errors of predictions so long, from many rows of a log."""
    return at.errors(at.windows(seconds, max(1, round(seconds / at.world.dt / 3))), terms)


def ends(errors: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {k: float(np.sqrt(np.square(x[:, -1]).mean())) for k, x in errors.items()}


def residual(quick: bool) -> Iterator[Row]:
    """hover with hidden drag and ground effect: error of 0.5 s predictions without and with the learned force."""
    task, found = tasks.resolve("hover"), defaultdict(list)
    settings = FitSettings(spans=(0.1,), rounds=1, updates=100) if quick else FitSettings()
    world, home = tasks.env(task, 1).world, tasks.nominal(task)
    for seed in range(1 if quick else SEEDS):
        learned = residual_force(world, home, flights(task, 2 if quick else 8, seed, 10.0), settings, seed)
        at = log_states(world, home, flights(task, 1 if quick else 4, JUDGED + seed, 10.0))
        bare, less = (ends(off(at, 0.5, terms)) for terms in ((), (learned.term,)))
        floor = ends(off(at, 0.5, (Air(),)))
        found["explained"].append(learned.share)
        for name in ("base_pos", "base_lin_vel"):
            found[name].append(1 - less[name] / bare[name])
            found[f"{name} floor"].append(1 - floor[name] / bare[name])
    yield row("hover, what it says it explains of the squared error", found["explained"], "of it")
    for name, what in {"base_pos": "position", "base_lin_vel": "velocity"}.items():
        yield row(f"hover, 0.5 s ahead: error of {what} less", found[name], "of it", at_least=0.6)
        yield row(
            f"  the same with the hidden force itself, {what}", found[f"{name} floor"], "of it", note="noise is left"
        )


def trained(task: Task, belief: Belief, seed: int, steps: int, start: PPO | None = None) -> tuple[PolicyNet, PPO]:
    settings = replace(PPOSettings(**task.settings), steps=steps)
    learner = PPO(tasks.env(task, settings.envs, belief, seed, stagger=True), settings, seed)
    if start is not None:
        learner.adopt(start.save()[0], "start")
    for _ in range(settings.iterations):
        learner.iterate()
    return policy_of(learner), learner


def agrees(term: DeltaAction, at: LogStates) -> float:
    """R2 of delta against -0.35 (u - q), which makes servos of kp of servos of 0.65 kp; of the worse joint."""
    good = np.isfinite(at.q).all(1) & np.isfinite(at.v).all(1) & (np.abs(at.u).sum(1) > 0)
    q, v, u, act = at.q[good], at.v[good], at.u[good], at.act[good]
    found, true = term.net(term.features.read(q, v, u, act)), -(1 - KP) * (u - q)
    return float((1 - np.square(found - true).mean(0) / true.var(0)).min())


def delta(quick: bool) -> Iterator[Row]:
    """arm whose servos have 0.65 of their stiffness: the whole loop, by inversion and by reinforcement."""
    task, found = tasks.resolve("arm"), defaultdict(list)
    first, more, practice = (8192, 4096, 24576) if quick else (300_000, 100_000, 300_000)
    home, real = tasks.nominal(task), point(task.params, task.params.vector({"kp": KP}))
    nominal = {p.name: (p.nominal, p.nominal) for p in task.params}
    broad = Box.ranges(task.params, nominal | {"kp": (0.5, 1.5)})
    world = tasks.env(task, 1).world
    settings = PPOSettings(**{**SETTINGS, "steps": practice})
    fitting = FitSettings(spans=(0.1,), rounds=1, updates=100) if quick else FitSettings()
    judge = lambda policy: float(evaluate(policy, tasks.env(task, 20 if quick else 500, real, JUDGED)).error.mean())  # noqa: E731
    for seed in range(1 if quick else SEEDS):
        untuned, learner = trained(task, home, seed, first)
        log = logged(untuned, tasks.env(task, 4 if quick else 16, real, seed), JOINTS, stir=0.1)
        at = log_states(
            world, home, logged(untuned, tasks.env(task, 2 if quick else 8, real, JUDGED + seed), JOINTS, stir=0.1)
        )
        terms = {
            "inversion": by_inversion(world, home, log, fitting, seed).term,
            "reinforcement": by_reinforcement(task, home, log, settings, ReinforcementSettings(fit=fitting), seed).term,
        }
        bare = off(at, 1.0, ())["joint_pos"]
        found["untuned"].append(judge(untuned))
        for how, term in terms.items():
            now = off(at, 1.0, (term,))["joint_pos"]
            found[f"{how} replay"].append(1 - np.sqrt(np.square(now).mean() / np.square(bare).mean()))
            found[f"{how} r2"].append(agrees(term, at))
            inside = replace(task, terms=(*task.terms, term))
            found[how].append(judge(trained(inside, home, seed, more, learner)[0]))
        found["randomized"].append(judge(trained(task, broad, seed, first + more)[0]))
    yield from _delta_rows({k: np.array(v) for k, v in found.items()})


def _delta_rows(found: Mapping[str, np.ndarray]) -> Iterator[Row]:
    yield row("arm, kp x 0.65, untuned policy: error", 1000 * found["untuned"], "mm")
    yield row("randomized over kp x 0.5 to 1.5 for as long: error", 1000 * found["randomized"], "mm")
    for how in ("inversion", "reinforcement"):
        yield row(f"delta by {how}: error of replay for 1 s less", found[f"{how} replay"], "of it", at_least=0.6)
        yield row(f"delta by {how}: against -0.35 (u - q), worse joint", found[f"{how} r2"], "R2", at_least=0.8)
        yield row(f"tuned in {how}'s delta: error", 1000 * found[how], "mm")
        yield row(f"tuned in {how}'s delta / untuned", found[how] / found["untuned"], "ratio", at_most=0.7)
        yield row(f"tuned in {how}'s delta / randomized", found[how] / found["randomized"], "ratio", at_most=1.0)


PARTS = {"residual": residual, "delta": delta}

if __name__ == "__main__":
    measure.main("gap", __doc__.split("\n")[0], PARTS)
