"""What working out the world is worth: critics that know more, students of teachers, latents, and memory over episodes.

    python -m benchmarks.adapt [--only hover|cloning|critic|trial|walk] [--quick] [--json] [--record]

Every contender of a part learns for the same env steps from the same seeds (a student's are on top of its teacher's, and
told), and is judged on the same worlds and starts, which no training saw. Values are medians over seeds with the least
and largest.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from benchmarks import measure
from benchmarks.lessons import JUDGED, by_seed, learned, taught, within
from benchmarks.measure import Row, row
from benchmarks.robust import wide
from surefoot import tasks
from surefoot.belief import Belief, Box, point
from surefoot.contract import Action
from surefoot.gate.measures.latent import Change, inferred
from surefoot.learn.loop import policy_of
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import DistillSettings, PPOSettings
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.robot import Robot
from surefoot.task import Episode, Reward, Task
from surefoot.tasks import ObsOverride
from surefoot.tasks.rollout import Evaluation, evaluate, trials
from surefoot.world import Start

SEEDS = 3
JUDGES = 500  # episodes
PATIENCE = 1_500_000  # env steps after which a return was never reached
NOISES = (
    0.0,
    0.01,
    0.03,
)  # m and rad, of what a blind actor is told; a velocity from two frames is off by 70 times that
CRITICS: dict[str, Literal["task", "actor"]] = {"knowing": "task", "blind": "actor"}
POSITIONS = ObsTerm("positions", lambda s: s.q, 2, "m, rad")  # of balance: where things are, and not how fast they move


def judged(policy: PolicyNet, task: Task, belief: Belief, quick: bool) -> Evaluation:
    env = tasks.env(tasks.for_contract(task, policy.contract), 20 if quick else JUDGES, belief, JUDGED)
    return evaluate(policy, env)


def hover(quick: bool) -> Iterator[Row]:
    """A drone of half to twice its mass, motors of 30 to 100 ms: randomized, told e, and three kinds of student."""
    seeds = by_seed(_hover, 1 if quick else SEEDS, quick)
    found = {name: {what: np.array([s[name][what] for s in seeds]) for what in seeds[0][name]} for name in seeds[0]}
    for name in ("randomized", "teacher", "rma", "dagger", "cloned"):
        for what in ("success", "return"):
            yield row(f"hover, {name}: {what}", found[name][what], "of episodes" if what == "success" else "return")
    for what in ("success", "return"):
        plain, oracle, rma = (found[k][what] for k in ("randomized", "teacher", "rma"))
        goal = 0.7 if what == "return" else None
        yield row(
            f"rma: share of the gap recovered, {what}", (rma - plain) / (oracle - plain), "of the gap", at_least=goal
        )
    teacher, dagger, cloned = (100 * found[k]["success"] for k in ("teacher", "dagger", "cloned"))
    yield row("dagger / teacher, success", dagger / teacher, "ratio", at_least=0.95)
    yield row("dagger - cloned, success", dagger - cloned, "points", at_least=10.0)
    yield row("linear probe of the latent: mass after 0.5 s", found["latent"]["r2"], "R2", at_least=0.9)
    window = 50 * 0.02
    yield row("after a sudden change of mass, settles in", found["latent"]["settles"], "s", at_most=window)


def _hover(seed: int, quick: bool) -> dict[str, dict[str, float]]:
    """Contender -> what came of it, with one seed; and what its latent tells of the student by latent."""
    task, found = tasks.resolve("hover"), {}
    belief = wide(task)
    steps, lessons = (8192, 4096) if quick else (3_000_000, 1_500_000)
    teacher = learned(tasks.with_override(task, ObsOverride(also=("e",))), belief, seed, steps, encoder="e")[0]
    lesson = lambda **kw: taught(task, belief, teacher, seed, DistillSettings(steps=lessons, history=50, **kw))  # noqa: E731
    policies = {
        "randomized": learned(task, belief, seed, steps)[0], "teacher": teacher, "rma": lesson(),
        "dagger": lesson(label="action"), "cloned": lesson(label="action", mix=1.0, mix_until=1.0),
    }  # fmt: skip
    for name, policy in policies.items():
        result = judged(policy, task, belief, quick)
        found[name] = {"success": result.rate, "return": float(result.returns.mean())}
        measure.said(f"hover, seed {seed}, {name}: success {result.rate:.3f}")
    facts = inferred(policies["rma"], task, belief, Change("mass"), episodes=40 if quick else 400, seed=JUDGED)
    settles = facts["settles"] if facts["settles"] is not None else np.nan
    found["latent"] = {"r2": facts["r2"]["mass"]["soon"], "settles": settles}
    return found


def blind(task: Task, critic: str) -> Task:
    """balance told where things are, five frames of it, and not how fast they move."""
    actor = ObsGroup((POSITIONS,), 5)
    return replace(
        task, observations={"actor": actor, "critic": task.observations["critic"] if critic == "knowing" else actor}
    )


def cloning(quick: bool) -> Iterator[Row]:
    """balance late and without velocities: students of a teacher that knows all, by DAgger and by cloning, on as many labels."""
    seeds = by_seed(_cloning, 1 if quick else 5, quick)
    teacher, dagger, cloned = (np.array([s[k] for s in seeds]) for k in ("teacher", "dagger", "cloned"))
    for name, values in (("teacher", teacher), ("dagger", dagger), ("cloned", cloned)):
        yield row(f"balance, late and blind, {name}", values, "return of 500")
    yield row("dagger / teacher, return", dagger / teacher, "ratio", at_least=0.95)
    yield row("dagger - cloned, return", 100 * (dagger - cloned) / teacher, "% of the teacher's", at_least=10.0)


def _cloning(seed: int, quick: bool) -> dict[str, float]:
    """Contender -> mean return, with one seed. A student is told what it did, as every robot knows."""
    task = tasks.resolve("balance")
    belief = within(task, noise=(0.0, 0.0))
    told = ObsGroup((POSITIONS, ObsTerm("last_action", lambda s: s.action, 1)))
    room = replace(task, observations={"actor": told, "critic": task.observations["critic"]})
    steps, lessons = (8192, 4096) if quick else (400_000, 500_000)
    teacher = learned(tasks.with_override(task, ObsOverride(also=("e",))), belief, seed, steps)[0]
    lesson = DistillSettings(steps=lessons, label="action")
    policies = {
        "teacher": teacher,
        "dagger": taught(room, belief, teacher, seed, lesson),
        "cloned": taught(room, belief, teacher, seed, replace(lesson, mix=1.0, mix_until=1.0)),
    }
    return {k: float(judged(p, room, belief, quick).returns.mean()) for k, p in policies.items()}


def critic(quick: bool) -> Iterator[Row]:
    """A critic told the whole state and e, and one told no more than its actor, which no velocity is told: env steps to a
    return."""
    for noise in NOISES:
        yield from _critics(
            quick, f"balance without velocities, noise {noise:g}", partial(_on_balance, noise=noise), 15
        )
    yield from _critics(quick, "hover without velocity", _on_hover, 4)


def _critics(quick: bool, name: str, one: Callable[[int, bool], dict[str, float]], seeds: int) -> Iterator[Row]:
    each = by_seed(one, 1 if quick else seeds, quick)
    found = {kind: [s[kind] for s in each] for kind in each[0]}
    for kind, values in found.items():
        never = int(np.isnan(values).sum())
        note = f"{never} of {len(values)} seeds never did within {PATIENCE} steps" if never else ""
        yield row(f"{name}, {kind} critic", np.nan_to_num(values, nan=PATIENCE), "env steps", note=note)
    ratio = np.nan_to_num(found["knowing"], nan=PATIENCE) / np.nan_to_num(found["blind"], nan=PATIENCE)
    note = "a seed that never got there counts as all steps"
    yield row(f"{name}: knowing / blind", ratio, "ratio", at_most=0.7, note=note)


def _on_balance(seed: int, quick: bool, noise: float) -> dict[str, float]:
    """Kind of critic -> env steps to a return of 475 in one world, with one seed; NaN: never."""
    task, found = tasks.resolve("balance"), {}
    world = point(task.params, task.params.vector({"noise": noise}))
    for kind in ("knowing", "blind"):
        found[kind] = _reached(blind(task, kind), world, seed, 475.0, quick)
        measure.said(f"critic, noise {noise:g}, seed {seed}, {kind}: {found[kind]:.0f} steps")
    return found


def _on_hover(seed: int, quick: bool) -> dict[str, float]:
    """Kind of critic -> env steps to a return of 12, a third of the most, over hover's belief, with one seed."""
    hover, found = tasks.resolve("hover"), {}
    told = tuple(t.name for t in hover.observations["actor"].terms if t.name != "base_lin_vel")
    for kind, critic in CRITICS.items():
        task = tasks.with_override(hover, ObsOverride(only=told, history=5, critic=critic))
        found[kind] = _reached(task, task.belief, seed, 12.0, quick, every=4)
        measure.said(f"critic, hover, seed {seed}, {kind}: {found[kind]:.0f} steps")
    return found


def _reached(task: Task, belief: Belief, seed: int, goal: float, quick: bool, every: int = 1) -> float:
    """Env steps until a policy of this task, judged after every so many batches, earns so much in the mean of 100
    episodes."""
    settings = replace(PPOSettings(**task.settings), steps=4096 if quick else PATIENCE, learner_threads=1)
    learner = PPO(tasks.env(task, settings.envs, belief, seed, stagger=True), settings, seed)
    for k in range(1, settings.iterations + 1):
        learner.iterate()
        if k % every == 0 and _earns(policy_of(learner), task, belief) >= goal:
            return float(k * settings.batch)
    return float("nan")


def _earns(policy: PolicyNet, task: Task, belief: Belief) -> float:
    return float(evaluate(policy, tasks.env(task, 100, belief, JUDGED)).returns.mean())


def seek() -> Task:
    """A point that moves in a plane looks for a place it is not shown: only the reward tells how near it is."""
    xml = """<mujoco model="seek"><option timestep="0.1" integrator="Euler"><flag contact="disable" gravity="disable"/></option>
      <worldbody><body name="point"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
        <joint name="x" type="slide" axis="1 0 0" damping="10"/><joint name="y" type="slide" axis="0 1 0" damping="10"/>
        <geom size=".05" mass="0"/></body></worldbody>
      <actuator><motor name="x" joint="x"/><motor name="y" joint="y"/></actuator></mujoco>"""
    params = Params(tuple(Param(f"goal_{k}", "task", 0.0, -1.0, 1.0, op="set", unit="m") for k in "xy"))
    far = lambda s: np.sqrt(np.square(s.q - s.x.e).sum(1))  # noqa: E731
    seen = ObsTerm("place", lambda s: s.q, 2, "m")
    return Task(
        name="seek", about="find a place that only the reward tells of", robot=Robot.text(xml, "seek"), params=params,
        belief=Box.full(params), substeps=1, seconds=1.0,
        action=Action(("x", "y"), np.zeros(2), np.full(2, 40.0), "N"),
        observations={
            "actor": ObsGroup((seen, ObsTerm("last_action", lambda s: s.action, 2))),
            "critic": ObsGroup((seen, ObsTerm("e", lambda s: s.x.e, 2, "m"))),
        },
        rewards={"near": Reward(10.0, lambda s: np.exp(-np.square(far(s) / 0.3)), "close to the place")},
        ended={}, episode=lambda rng, n: Episode(Start(np.zeros((n, 2)), np.zeros((n, 2)), np.zeros((n, 2)))),
        error=far, error_unit="m", tolerance=0.3, window=0.2,
        settings={"envs": 256, "horizon": 30, "gamma": 0.98, "hidden": (64, 64), "activation": "tanh", "lr": 1e-3, "kl": 0.02},
    )  # fmt: skip


def trial(quick: bool) -> Iterator[Row]:
    """Three episodes in one world: a policy that remembers all of them, and one whose memory ends with each."""
    seeds = by_seed(_trial, 1 if quick else SEEDS, quick)
    for what in seeds[0]:
        yield row(f"memory {what} episode", [s[what] for s in seeds], "return of 10")
    third, first = (np.array([s[f"over the trial: {k}"] for s in seeds]) for k in ("third", "first"))
    yield row("memory over the trial: third / first", third / first, "ratio", at_least=2.0)


def _trial(seed: int, quick: bool) -> dict[str, float]:
    """Kind of memory and episode -> mean return, with one seed. Whose memory ends with an episode does alike in all."""
    steps, changes = 16_384 if quick else 800_000, {"encoder": "gru", "latent": 32}
    found = {}
    for kind, sees in {
        "over the trial": ObsOverride(history=30, trial=3),
        "over each episode": ObsOverride(history=10, also=("last_reward", "begun")),
    }.items():
        task = tasks.with_override(seek(), sees)
        policy = learned(task, task.belief, seed, steps, **changes)[0]
        nth = ("first", "second", "third") if task.trial > 1 else ("any",)
        met = trials(policy, tasks.env(task, 20 if quick else JUDGES, task.belief, JUDGED))
        found |= {f"{kind}: {k}": float(x.returns.mean()) for k, x in zip(nth, met)}
        measure.said(f"trial, seed {seed}, " + ", ".join(f"{k} {v:.2f}" for k, v in found.items()))
    return found


def walk(quick: bool) -> Iterator[Row]:
    """Payload of -3 to 3 kg, friction 0.3 to 1.2, motors of 80 to 120 %: tracking of nominal, randomized, rma, teacher."""
    found = by_seed(_walk, 1 if quick else SEEDS, quick)
    units = {"error": "m/s", "upright": "of episodes", "success": "of episodes", "worst decile": "return"}
    for name in found[0]:
        for what, unit in units.items():
            yield row(f"walk, {name}: {what}", [each[name][what] for each in found], unit)


def _walk(seed: int, quick: bool) -> dict[str, dict[str, float]]:
    """Contender -> what came of it, with one seed."""
    task, found = tasks.resolve("walk"), {}
    belief = within(task, payload=(-3.0, 3.0), friction=(0.3, 1.2), strength=(0.8, 1.2))
    steps, lessons = (32_768, 8192) if quick else (4_000_000, 1_000_000)
    teacher = learned(tasks.with_override(task, ObsOverride(also=("e",))), belief, seed, steps, encoder="e")[0]
    policies = {
        "nominal": lambda: learned(task, tasks.nominal(task), seed, steps)[0],
        "randomized": lambda: learned(task, belief, seed, steps)[0],
        "rma": lambda: taught(task, belief, teacher, seed, DistillSettings(steps=lessons, history=50)),
        "teacher": lambda: teacher,
    }
    for name, make in policies.items():
        result = judged(make(), task, belief, quick)
        found[name] = {
            "error": float(np.nanmean(result.error)),
            "upright": result.reasons.get("time", 0) / len(result.success),
            "success": result.rate,
            "worst decile": float(np.quantile(result.returns, 0.1)),
        }
        measure.said(f"walk, seed {seed}, {name}: " + ", ".join(f"{k} {v:.3g}" for k, v in found[name].items()))
    return found


PARTS = {"hover": hover, "cloning": cloning, "critic": critic, "trial": trial, "walk": walk}

if __name__ == "__main__":
    measure.main("adapt", __doc__.split("\n")[0], PARTS, later=("walk",))
