"""Fine-tuning with a robot in the batch: what some rows of a robot are worth beside many of simulation, by their share.

    python -m benchmarks.cotrain [--only balance|arm|clone|actuator|residual] [--quick] [--json] [--record]

The robot is a hidden machine (sim/realities.py): wrong numbers, some of them outside of the task's ranges, physics that the model
lacks, noisy sensors; among the first seeds, those on which the policy to start with nearly works, with 10 to 80 % success. That policy was trained in simulation over the task's own
ranges. Every contender with a robot drives it for the same time; its share of a batch decides how many simulated steps go with that:

    robot only  share 1, as many robot steps      simulation only  no robot, as many simulated steps as with 5 %

clone   a clone (`surefoot clone`) of a demonstrator that masters the robot, shown in two episodes there, 5 % of the data, and
        of the simulation's own policy in 38 episodes over the task's ranges. The demonstrator was trained in the robot.

actuator, residual   nets of what the model lacks (`surefoot actuator`, `missing`), with rows of the model itself, which lacks nothing, beside
        those of the robot; "simulation only" is the model as it is. Judged on other motions; a net that is refused cuts nothing.

Success is measured on 100 more episodes on the robot, behind the runtime's limiter. Values are medians over robots and seeds with
the least and largest.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import benchmarks.actuator
from benchmarks import gap, measure
from benchmarks.lessons import JUDGED
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import point
from surefoot.cross.robot import HiddenRobot
from surefoot.deploy import bundle
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.learn.clone.demos import Demos, demos
from surefoot.learn.clone.learner import Clone
from surefoot.learn.clone.settings import CloneSettings
from surefoot.learn.loop import policy_of
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.learn.settings import PPOSettings
from surefoot.learn.train import settings_for, train
from surefoot.log import Log
from surefoot.params import Params
from surefoot.policy import Policy
from surefoot.real2sim.actuator import fake_motor, fit
from surefoot.real2sim.actuator.dataset import Settings
from surefoot.real2sim.residual import residual_force
from surefoot.real2sim.residual.ensemble import FitSettings
from surefoot.real2sim.residual.log_states import log_states
from surefoot.rng import judging
from surefoot.sim.realities import Reality, hidden
from surefoot.task import Task
from surefoot.tasks.ready.arm import JOINTS
from surefoot.tasks.record import simulated
from surefoot.world import Chance, Start

SHARES = (0.02, 0.05, 0.2)
MAIN = 0.05
WORKS, FAILS = 0.1, 0.8  # success of the policy to start with, between which a robot is among those that count
EPISODES = 100


def measured(task: Task, reality: Reality, run: Path, episodes: int) -> float:
    found = HiddenRobot(task, reality).measure(bundle.load(run), episodes, judging(0, "cotrain"))
    assert found is not None
    return found.value


def realities(task: Task, start: Path, count: int, episodes: int) -> list[tuple[int, float]]:
    """Seeds of robots on which the policy to start with works now and then, and its success there."""
    found: list[tuple[int, float]] = []
    for seed in range(100, 300):
        before = measured(task, hidden(seed, task), start, episodes)
        measure.said(f"{task.name}: robot {seed}: {before:.2f} before")
        if WORKS <= before < FAILS:
            found.append((seed, before))
        if len(found) == count:
            break
    return found


def settings_of(usual: PPOSettings, share: float, robot_steps: int) -> PPOSettings:
    """Settings of a contender: the same rows of the robot in each batch, and as many simulations beside them as the share says."""
    rows = max(1, round(MAIN * usual.envs))
    envs = rows if share == 1 else round(rows / share)
    batches = -(-robot_steps // (rows * usual.horizon))
    parts = usual.minibatches if envs * usual.horizon % usual.minibatches == 0 else 1
    return replace(usual, envs=envs, steps=batches * envs * usual.horizon, minibatches=parts, learner_threads=1)


def tuned(task: Task, start: Path, seed: int, share: float, robot: OnRobot | None, steps: int, out: Path) -> Path:
    """A run that goes on from `start`, with the robot or without."""
    s = settings_of(settings_for(task.name), share, steps)
    own: dict[str, object] = {"seed": seed, "belief": task.belief, "settings": s, "ranges": None, "start": start}
    train(task.name, out, threads=1, save_every=1e9, robot=robot, **own)  # type: ignore[arg-type]
    return out


def compared(name: str, seconds: float, robots: int, seeds: int, quick: bool) -> Iterator[Row]:
    task, episodes = tasks.resolve(name), 10 if quick else EPISODES
    with TemporaryDirectory() as folder:
        out = Path(folder)
        own = settings_for(name, {"learner_threads": 1} | ({"steps": 8192} if quick else {}))
        train(name, out / "start", seed=0, belief=task.belief, settings=own, ranges=None, threads=1, save_every=1e9)
        steps = 200 if quick else round(seconds / tasks.env(task, 1).world.dt)
        chosen = realities(task, out / "start", robots, episodes)
        if not chosen:
            yield measure.skipped(
                name, f"on no robot tried does the policy to start with succeed in {WORKS:.0%} to {FAILS:.0%}"
            )
            return
        contenders = {"simulation only": 0.0, **{f"{100 * s:.0f} % robot": s for s in SHARES}, "robot only": 1.0}
        found: dict[str, list[float]] = {k: [] for k in contenders}
        for reality, _ in chosen:
            for seed in range(seeds):
                for label, share in contenders.items():
                    robot = OnRobot.of(hidden(reality, task), share) if share else None
                    place = out / f"{reality}-{seed}-{label}".replace(" ", "-").replace("%", "percent")
                    run = tuned(task, out / "start", seed, share or MAIN, robot, steps, place)
                    found[label].append(measured(task, hidden(reality, task), run, episodes))
                    measure.said(f"{name}: robot {reality}, seed {seed}: {label}: {found[label][-1]:.2f}")
        where = f"robots {', '.join(str(r) for r, _ in chosen)}, {seeds} seeds, {seconds:g} s of robot each"
        yield row("before", [b for _, b in chosen], "of episodes on the robot", note=where)
        for label, values in found.items():
            yield row(label, values, "of episodes on the robot")
        main, none, only = (np.array(found[k]) for k in (f"{100 * MAIN:.0f} % robot", "simulation only", "robot only"))
        yield row("mean gain of 5 % over robot only", main.mean() / max(only.mean(), 1e-9) - 1, "share", at_least=0.2)
        yield row("mean gain of 5 % over simulation only", main.mean() - none.mean(), "of episodes", at_least=0.01)


REAL, SIMULATED = 2, 38  # episodes of demonstrations
OF_MODELS = (0.05, 0.2, 0.5, 0.8)  # shares of the robot's rows in what models of it learn from
MIXED = (0.02, 0.05, 0.2, 0.5)  # shares of a clone's rows that are the robot's
SHOWS = 0.9  # success of a demonstrator


def shown(policy: Policy, env: Env, task: Task) -> Demos:
    log = simulated(policy, env)
    return demos(task, 1 / env.world.dt, {"shown": log}, 1)


def cloned(task: Task, own: Demos, beside: Demos | None, share: float, seed: int, quick: bool) -> Policy:
    s = CloneSettings(by="mse", share=share, updates=50 if quick else 6000, hidden=(128, 128))
    learner = Clone(tasks.env(task, 1, threads=1), s, seed, own, beside)
    while learner.iteration < learner.iterations:
        learner.iterate()
    return policy_of(learner)


Pupil = tuple[HiddenRobot, Policy, Policy, float]
"""a robot, the simulation's policy, and a demonstrator trained in the robot, with its success there"""


def pupils(task: Task, out: Path, quick: bool) -> Iterator[Pupil]:
    """Robots from seed 700 on, on which the simulation's policy works now and then and a demonstrator nearly always."""
    own = settings_for(task.name, {"learner_threads": 1} | ({"steps": 8192} if quick else {}))
    usual: dict[str, Any] = {"seed": 0, "ranges": None, "threads": 1, "save_every": 1e9}
    train(task.name, out / "start", belief=task.belief, settings=own, **usual)
    start, episodes = bundle.load(out / "start"), 10 if quick else EPISODES
    for seed in range(700, 900):
        robot = HiddenRobot(task, hidden(seed, task))
        before = measured(task, robot.reality, out / "start", episodes)
        if not quick and not WORKS <= before < FAILS:
            continue
        at = point(task.params, robot.reality.values(task, task.params.nominal))
        how, lesson = OnRobot.of(robot.reality, 1.0), replace(own, steps=own.steps // 2)
        train(task.name, out / f"{seed}", belief=at, settings=lesson, start=out / "start", robot=how, **usual)
        better = measured(task, robot.reality, out / f"{seed}", episodes)
        measure.said(f"clone: robot {seed}: {before:.2f} before, demonstrator {better:.2f}")
        if quick or better >= SHOWS:
            yield robot, start, bundle.load(out / f"{seed}"), better


def clone(quick: bool) -> Iterator[Row]:
    """Behaviour: an arm's demonstrator on the robot, and the simulation's own policy."""
    task, episodes, robots, seeds = (
        tasks.resolve("arm"),
        10 if quick else EPISODES,
        1 if quick else 4,
        1 if quick else 2,
    )
    labels = {"simulation only": 0.0, **{f"{100 * x:.0f} % robot": x for x in MIXED}, "robot only": 1.0}
    found: dict[str, list[float]] = {k: [] for k in labels}
    experts: list[float] = []
    with TemporaryDirectory() as folder:
        for robot, start, expert, better in islice(pupils(task, Path(folder), quick), robots):
            experts.append(better)
            for seed in range(seeds):
                real = shown(expert, robot.env(REAL, 10 + seed), task)
                sim = shown(start, tasks.env(task, SIMULATED, task.belief, 20 + seed, 1), task)
                for label, share in labels.items():
                    both = (real, sim if share < 1 else None) if share else (sim, None)
                    policy = cloned(task, *both, share if 0 < share < 1 else 0.5, seed, quick)
                    rate = robot.measure(policy, episodes, judging(0, "cotrain"))
                    assert rate is not None
                    found[label].append(rate.value)
                    measure.said(f"clone: seed {seed}: {label}: {rate.value:.2f}")
    where = f"{len(experts)} robots, {seeds} seeds; {REAL} episodes of the robot, {SIMULATED} simulated"
    yield row("clone: demonstrator", experts, "of episodes on the robot", note=where)
    for label, values in found.items():
        yield row(f"clone: {label}", values, "of episodes on the robot")
    main, none, only = (float(np.mean(found[k])) for k in ("5 % robot", "simulation only", "robot only"))
    yield row("clone: mean of 5 % over robot only", main / max(only, 1e-9) - 1, "share", at_least=0.2)
    yield row("clone: mean of 5 % over simulation only", main - none, "of episodes", at_least=0.01)


def chirped(seed: int, seconds: float, dt: float) -> Log:
    """A log of the arm's model, in which its actuators give what they should."""
    w, u, rows = fake_motor.model(dt), fake_motor.chirps(seed, seconds, dt), []
    w.reset(np.arange(1), np.zeros((1, 0)), Start(u[:1], np.zeros((1, 2)), u[:1]))
    for k, now in enumerate(u):
        rows.append(np.concatenate([w.state.q[0], w.state.v[0], w.actuator_force()[0]]))
        w.step(now[None], Chance(0, k, dt))
    q, v, tau = np.split(np.array(rows), 3, 1)
    names = {k: list(JOINTS) for k in ("control", "joint_pos", "joint_vel", "joint_torque")}
    columns = {"control": u, "joint_pos": q, "joint_vel": v, "joint_torque": tau}
    return Log(dt * np.arange(len(u)), columns, meta={"names": names})


def actuator(quick: bool) -> Iterator[Row]:
    """A net of an arm's actuators from 4 s of the robot, beside 76 s of the model: how much of the error on other motions it cuts."""
    world, nothing, dt = (
        fake_motor.model(benchmarks.actuator.DT),
        point(Params(()), np.zeros(0)),
        benchmarks.actuator.DT,
    )
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(1 if quick else 5):
        real, test = fake_motor.recorded(seed, 4.0, dt), fake_motor.recorded(1000 + seed, 20.0, dt, noise=0.0)
        sim = chirped(2000 + seed, 8.0 if quick else 76.0, dt)
        for share in (*OF_MODELS, 1.0):
            s = Settings(share=share if share < 1 else 0.5, rounds=5 if quick else None, seed=seed)
            cut = {"torque": 0.0, "rollout": 0.0}  # of a net that is refused
            with suppress(SurefootError):
                net = fit(world, nothing, real, s, beside=sim if share < 1 else None).net
                cut = benchmarks.actuator.judged(world, net, test)
            for what in ("torque", "rollout"):
                found.setdefault(_label(share), {}).setdefault(what, []).append(cut[what])
        measure.said(f"actuator: seed {seed}: { {k: round(x['torque'][-1], 3) for k, x in found.items()} }")
    for label, x in found.items():
        yield row(f"actuator: {label}: torque error cut", x["torque"], "of the model's")
        yield row(f"actuator: {label}: motion error cut, 2 s free", x["rollout"], "of the model's")


def residual(quick: bool) -> Iterator[Row]:
    """The force that a drone's model lacks, from 20 s of the robot beside 80 s of the model: the same."""
    task = tasks.resolve("hover")
    world, home, found = tasks.env(task, 1).world, tasks.nominal(task), dict[str, list[float]]()
    for seed in range(1 if quick else 3):
        real, sim = gap.flights(task, 2, seed, 10.0), gap.flights(task, 2 if quick else 8, 2000 + seed, 10.0, ())
        at = log_states(world, home, gap.flights(task, 1 if quick else 4, JUDGED + seed, 10.0))
        bare = gap.ends(gap.off(at, 0.5, ()))["base_lin_vel"]
        for share in (*OF_MODELS, 1.0):
            s = FitSettings(share=share if share < 1 else 0.5)
            s = replace(s, spans=(0.1,), rounds=1, updates=100) if quick else s
            cut = 0.0
            with suppress(SurefootError):
                term = residual_force(world, home, real, s, seed, beside=sim if share < 1 else None).term
                cut = 1 - gap.ends(gap.off(at, 0.5, (term,)))["base_lin_vel"] / bare
            found.setdefault(_label(share), []).append(cut)
            measure.said(f"residual: seed {seed}: {_label(share)}: {cut:.3f}")
    for label, x in found.items():
        yield row(f"residual: {label}: velocity error cut, 0.5 s ahead", x, "of the model's")


def _label(share: float) -> str:
    return f"{100 * share:.0f} % robot" if share < 1 else "robot only"


def balance(quick: bool) -> Iterator[Row]:
    """A pole on a cart."""
    yield from compared("balance", 60.0, 1 if quick else 4, 1 if quick else 2, quick)


def arm(quick: bool) -> Iterator[Row]:
    """An arm that holds a pose against pulls."""
    yield from compared("arm", 90.0, 1 if quick else 3, 1 if quick else 2, quick)


PARTS = {"balance": balance, "arm": arm, "clone": clone, "actuator": actuator, "residual": residual}

if __name__ == "__main__":
    measure.main("cotrain", __doc__.split("\n")[0], PARTS, later=("arm",))
