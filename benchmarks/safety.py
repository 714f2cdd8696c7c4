"""Safety layers: a filter that keeps limits, a switch that avoids collisions, an adaptive law that carries a load.

    python -m benchmarks.safety [--only filter|course|adaptive|base|legs] [--quick] [--json] [--record]

filter    The two-link arm of the task `arm`, without sensor noise, driven by full actions that change every 0.3 s, which is
          the worst a policy can do to limits. An episode violates where any joint passes a limit of position or speed at any
          control period. True model: the filter has the robot's numbers. Then masses, damping, friction, rotor inertia and
          servo gains are each drawn within 20 %, and the filter keeps the nominal ones. Return: a policy trained with the
          task's settings, in its nominal world, with and without the filter.
course    A policy trained by PPO on `course`, alone, with its reach-avoid switch, with limits by its rays, and with both, on
          the same unseen episodes over the task's belief. Speed: distance to the goal over the time to it, of episodes that
          arrive in both. An episode counts until it arrives.
adaptive  The same arm with motors at 1 kHz: two sines, a payload of 1 kg that becomes 1.5 kg at t = 2 s.
base      A walking quadruped of benchmarks/estimate.py (SUREFOOT_RUNS) that is not told its velocity, commanded up to 1 m/s: how
          often the base passes 0.5 m/s, 0.25 m/s and 0.5 rad/s over a stride, alone and with limits of its command.
legs      The same robot: how often it falls, with and without a switch that was learned from a few of its episodes.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

import surefoot as sf
from benchmarks import measure
from benchmarks.estimate import policy as walker
from benchmarks.lessons import JUDGED, learned
from benchmarks.measure import Row, row, said
from surefoot import tasks
from surefoot.belief import Belief, Box, point
from surefoot.contract import Contract
from surefoot.control import layers
from surefoot.control.adaptive import Adaptive
from surefoot.control.barrier import BaseLimits, Filter, Filtered, JointLimits
from surefoot.control.reach_avoid import ReachAvoid
from surefoot.deploy import bundle
from surefoot.env import Env
from surefoot.learn.off_policy.reach_avoid import ValueSettings, guard
from surefoot.policy import Driver, Policy, PolicyState
from surefoot.rng import stream
from surefoot.sim.model.load import load_robot
from surefoot.task import Task, quiet
from surefoot.tasks.joint_model import joints_of
from surefoot.tasks.ready import arm as arm_task
from surefoot.tasks.ready import course as course_task
from surefoot.tasks.rollout import contract, evaluate
from surefoot.tasks.terms import quantities
from surefoot.verbs.train.guard import by_command, command_limits
from surefoot.verdict import clopper_pearson

LIMITS = {"low": (-1.2, -0.2), "high": (1.2, 2.2), "speed": (4.0, 5.0)}
HELD = 15  # control periods
RUNS = Path("build/safety")
SEEDS = 3


@dataclass(frozen=True)
class Bang(Policy):
    """Full actions, one way or the other, each held for HELD periods."""

    contract: Contract
    seed: int

    def init(self, n: int) -> PolicyState:
        return {"asked": np.zeros((n, 1), np.int64)}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        rng = stream(self.seed, "bang", int(s["asked"].max()) // HELD)
        return {"asked": s["asked"] + 1}, rng.choice([-1.0, 1.0], (len(obs), self.contract.action.width)).astype(
            np.float32
        )


def _limits(task: Task) -> JointLimits:
    return JointLimits(joints_of(load_robot(task.robot).model), **LIMITS)


def violated(policy: Policy, env: Env, seed: int) -> np.ndarray:
    """(n,) bool: of one episode in each env; starts within the limits."""
    low, high, top = (np.array(LIMITS[k]) for k in ("low", "high", "speed"))
    obs, drive, bad = env.reset(seed)["actor"], Driver(policy, env.n), np.zeros(env.n, bool)
    for _ in range(env.steps - 1):  # the last period ends with a reset
        obs = env.step(drive(obs)).obs["actor"]
        q, v = env.world.state.q, env.world.state.v
        bad |= ((q < low) | (q > high) | (np.abs(v) > top)).any(1)
    return bad


def _episodes(task: Task, belief: Belief, filtered: bool, count: int, seed: int) -> np.ndarray:
    found = []
    for k in range(0, count, 500):
        env = tasks.env(task, min(500, count - k), belief, seed + k, threads=1)
        policy: Policy = Bang(contract(task, env.world), seed + k)
        worn = Filtered(policy.contract, policy, Filter((_limits(task),))) if filtered else policy
        found.append(violated(worn, env, seed + k))
        said(f"{k + env.n} episodes, {sum(map(np.sum, found))} violate")
    return np.concatenate(found)


def filter_(quick: bool) -> Iterator[Row]:
    task, e = quiet(tasks.resolve("arm"))
    true = point(task.params, e)
    bare = _episodes(task, true, False, 20 if quick else 500, JUDGED)
    yield row("unfiltered: episodes that violate", 100 * bare.mean(), "%")
    count = 20 if quick else 10_000
    exact = _episodes(task, true, True, count, JUDGED)
    yield row(f"true model: episodes that violate, of {count}", exact.sum(), "episodes", at_most=0)
    some = {k: (0.8 * v, 1.2 * v) for k, v in zip(task.params.names, e) if v > 0}
    wrong = Box.ranges(task.params, {k: (v, v) for k, v in zip(task.params.names, e)} | some)
    count = 20 if quick else 2000
    off = _episodes(task, wrong, True, count, JUDGED)
    upper = clopper_pearson(int(off.sum()), count)[1]
    yield row(f"parameters within 20 %: episodes that violate, of {count}", off.sum(), "episodes")
    yield row("parameters within 20 %: largest rate, 95 %", 100 * upper, "%", at_most=1)
    yield from _returns(quick)
    yield _cost(task)


def _returns(quick: bool) -> Iterator[Row]:
    """Nominal return of a trained policy in the filter, over that without."""
    task, ratios, changed = tasks.resolve("arm"), [], []
    for seed in range(1 if quick else 3):
        policy, _, _ = learned(task, task.belief, seed, 4096 if quick else task.settings["steps"])
        make = lambda: tasks.env(task, 20 if quick else 200, tasks.nominal(task), JUDGED, threads=1)  # noqa: E731
        bare = evaluate(policy, make())
        worn = Filtered(policy.contract, policy, Filter((_limits(task),)))
        seen = evaluate(worn, make())
        base = float(bare.returns.mean())
        ratios.append(100 * (1 - (base - float(seen.returns.mean())) / abs(base)))
        changed.append(float(seen.rate - bare.rate) * 100)
        said(
            f"seed {seed}: return {base:.3f} alone, {seen.returns.mean():.3f} filtered, success {bare.rate} and {seen.rate}"
        )
    yield row(
        "nominal return with the filter",
        ratios,
        "% of that without",
        at_least=95,
        note="trained policy, 200 episodes a seed",
    )
    yield row("success with the filter, less that without", changed, "points")


def _cost(task: Task) -> Row:
    env = tasks.env(task, 1, None, 1, threads=1)
    policy: Policy = Bang(contract(task, env.world), 1)
    drive, obs, spent = (
        Driver(Filtered(policy.contract, policy, Filter((_limits(task),))), 1),
        env.reset(1)["actor"],
        [],
    )
    for _ in range(1000):
        began = time.perf_counter()
        action = drive(obs)
        spent.append(1e6 * (time.perf_counter() - began))
        obs = env.step(action).obs["actor"]
    return row("one robot, one period, QP each time: p99", np.quantile(spent, 0.99), "us", at_most=1000, note=f"p50 {np.median(spent):.0f} us")  # fmt: skip


@dataclass(frozen=True)
class Journey:
    """What came of one episode in each of n envs: periods until the goal and until a collision, inf where there was none."""

    reached: np.ndarray
    collided: np.ndarray
    recovering: float
    """share of the periods"""


def journey(policy: Policy, n: int, seed: int) -> Journey:
    """Ends of an episode count until the goal is reached; what happens after it is another task."""
    task = tasks.resolve("course")
    env = tasks.env(task, n, task.belief, seed, threads=1)
    obs, drive, lives = env.reset(seed)["actor"], Driver(policy, n), np.ones(n, bool)
    reached, collided, recovering = np.full(n, np.inf), np.full(n, np.inf), 0.0
    for k in range(env.steps - 1):
        before = drive.state.get("reach_avoid.recovering", np.zeros((n, 1)))
        action = drive(obs)
        recovering += float((drive.state.get("reach_avoid.recovering", np.zeros((n, 1))) - before)[lives].sum())
        step = env.step(action)
        drive.begin(step.final)
        obs = step.obs["actor"]
        collided[lives & step.terminated] = k + 1
        lives &= ~(step.terminated | step.truncated)
        there = lives & (course_task.distance(env.moment) <= task.tolerance)
        reached[there] = k + 1
        lives &= ~there
    periods = np.minimum(np.minimum(reached, collided), env.steps - 1).sum()
    return Journey(reached, collided, recovering / periods)


def agile(seed: int, quick: bool) -> Policy:
    """A policy trained with the task's settings; one that an earlier run of this script left in RUNS is used again."""
    task, folder = tasks.resolve("course"), RUNS / f"course-{seed}"
    if quick:
        return learned(task, task.belief, seed, 16384)[0]
    if not (folder / bundle.NAME).exists():
        sf.train("course", folder, seed=seed, change={"learner_threads": 1}, threads=1, resume_if_same=True)
    return bundle.load(folder)


def contenders(policy: Policy, switch: ReachAvoid) -> dict[str, Policy]:
    """The same policy alone, with the switch, with limits of the base by its rays, and with both."""
    rays, drive = tuple(course_task.RAYS.tolist()), tuple(map(tuple, course_task.D.tolist()))
    limits = Filter((BaseLimits(drive, 0.05, 2.0, 14.0, rays, course_task.RADIUS + 0.04, corridor=True, alpha=3.0),))
    worn = {"alone": (), "switch": (switch,), "limits": (limits,), "switch and limits": (switch, limits)}
    return {name: layers.wear(policy, some) for name, some in worn.items()}


def course(quick: bool) -> Iterator[Row]:
    import torch

    torch.set_num_threads(1)
    task, n, found, judged = tasks.resolve("course"), 32 if quick else 300, [], []
    for seed in range(1 if quick else SEEDS):
        policy = agile(seed, quick)
        make = lambda s: tasks.env(task, 64 if quick else 256, task.belief, s, threads=1)  # noqa: E731
        switch, value = guard(policy, make, task.recovery, ValueSettings(), seed)
        said(f"seed {seed}: {value}")
        found.append({name: journey(p, n, JUDGED + 1) for name, p in contenders(policy, switch).items()})
        judged.append(value)
        said(
            f"seed {seed}: collisions { ({k: int(np.isfinite(j.collided).sum()) for k, j in found[-1].items()}) } of {n}"
        )
    for name in found[0]:
        yield from _course_rows([f["alone"] for f in found], [f[name] for f in found], name, n)
    share = lambda k: [100 * getattr(value, k) for value in judged]  # noqa: E731
    yield row("value: right sign, unseen states", share("sign"), "%", at_least=90)
    yield row("value: calls safe what fails, of all states", share("false_safe"), "%", at_most=5)
    yield row("value: of states that fail, called unsafe", share("of_failures"), "%")
    yield row("`always safe` would have the right sign in", share("safe"), "%")


def _course_rows(alone: list[Journey], own: list[Journey], name: str, n: int) -> Iterator[Row]:
    rate = lambda runs: np.array([100 * np.isfinite(j.collided).mean() for j in runs])  # noqa: E731
    yield row(
        f"{name}: collisions",
        rate(own),
        "%",
        note=f"{n} episodes of each of {len(own)} policies" if name == "alone" else "",
    )
    yield row(f"{name}: reaches the goal", [100 * np.isfinite(j.reached).mean() for j in own], "%")
    if name == "alone":
        return
    goal = name == "switch"
    yield row(f"{name}: collisions avoided", 100 * (1 - rate(own) / rate(alone)), "%", at_least=60 if goal else None)
    loss = []
    for a, b in zip(alone, own):
        both = np.isfinite(a.reached) & np.isfinite(b.reached)
        loss.append(100 * (1 - a.reached[both].mean() / b.reached[both].mean()))
    yield row(f"{name}: speed lost", loss, "%", at_most=20 if goal else None)
    if "switch" in name:
        yield row(f"{name}: time in recovery", [100 * j.recovering for j in own], "%")


def arm_with_motors() -> mujoco.MjModel:
    """The arm of the task, 1 kg in its hand, with motors in place of servos, at 1 kHz."""
    spec = mujoco.MjSpec.from_string(arm_task.xml())
    spec.option.timestep = 0.001
    spec.body("hand").mass = 1.0
    for actuator in spec.actuators:
        actuator.set_to_motor()
        actuator.ctrllimited, actuator.ctrlrange = True, actuator.forcerange
    return spec.compile()


def tracked(
    speed: float, law: Adaptive | None, seconds: float = 12.0, noise: float = 0.0
) -> tuple[float, np.ndarray, float]:
    """RMSE of the joints after t = 3 s, rad; parameters (steps, p); and median us a step."""
    model, rng, dt = arm_with_motors(), stream(0, "arm noise"), 0.001
    data, joints = mujoco.MjData(model), joints_of(arm_with_motors())
    w = 2 * np.pi * speed * np.array([0.2, 0.3])
    path = lambda t: (arm_task.MIDDLE + 0.5 * np.sin(w * t), 0.5 * w * np.cos(w * t))  # noqa: E731
    data.qpos[:], data.qvel[:] = path(0.0)
    s, error, theta, spent = law.init(1) if law else {}, [], [], []
    kp, kd = np.array(arm_task.KP), np.array(arm_task.KD)
    for k in range(round(seconds / dt)):
        if k == 2000:
            model.body_mass[arm_task.HAND] = 1.5
        q = data.qpos[None] + noise * rng.standard_normal((1, 2))
        v = data.qvel[None] + 20 * noise * rng.standard_normal((1, 2))
        r, dr = path(k * dt)
        u = joints.gravity_force(q) + kp * (r - q) + kd * (dr - v)
        if law:
            began = time.perf_counter()
            s, add = law.step(s, q, v, u, dt)
            spent.append(1e6 * (time.perf_counter() - began))
            u = u + add
            theta.append(s["theta"][0])
        data.ctrl[:] = u[0]
        mujoco.mj_step(model, data)
        error.append(data.qpos - path((k + 1) * dt)[0])
    late = np.array(error)[3000:]
    return float(np.sqrt((late**2).mean())), np.array(theta), float(np.median(spent)) if spent else 0.0


def adaptive(quick: bool) -> Iterator[Row]:
    law = Adaptive(joints_of(arm_with_motors()), tip=(arm_task.UPPER + arm_task.FORE, 0.0, 0.0))
    seconds = 4.0 if quick else 12.0
    for name, speed, goal in (("0.2 and 0.3 Hz", 1.0, 0.4), ("0.4 and 0.6 Hz", 2.0, None)):
        fixed, own = tracked(speed, None, seconds)[0], tracked(speed, law, seconds)
        yield row(f"{name}: PD with gravity compensation", 1000 * fixed, "mrad")
        yield row(f"{name}: the same with the adaptive law", 1000 * own[0], "mrad")
        yield row(f"{name}: ratio", own[0] / fixed, "ratio", at_most=goal)
        yield row(f"{name}: payload found at the end", own[1][-1, -1], "kg", note="the truth is 0.5")
    yield row("one step of one arm", own[2], "us")
    rmse, theta, _ = tracked(1.0, law, 5.0 if quick else 100.0, noise=0.001)
    bound = law.gains[1]
    yield row(f"{len(theta)} noisy steps: largest parameter over its bound", (np.abs(theta) / bound).max(), "ratio", at_most=1, note="noise of 1 mrad and 20 mrad/s")  # fmt: skip
    yield row("noisy: tracking", 1000 * rmse, "mrad")
    yield row("noisy: payload at the end", theta[-1, -1], "kg", note="the truth is 0.5")


TOP, TILT = (0.5, 0.25, 0.5), 0.6  # m/s, m/s, rad/s, and rad


def speeds(worn: Policy, env: Env, seconds: float) -> np.ndarray:
    """(rows, 3) vx, vy and yaw rate of the base, half a second into an episode and later; means over a stride of 0.5 s."""
    obs, drive, found = env.reset()["actor"], Driver(worn, env.n), []
    span = round(0.5 / env.world.dt)
    for _ in range(round(seconds / env.world.dt)):
        step = env.step(drive(obs))
        drive.begin(step.final)
        obs = step.obs["actor"]
        now = np.column_stack([quantities.base_lin_vel(env.moment)[:, :2], quantities.base_ang_vel(env.moment)[:, 2]])
        found.append(np.where((env.age > 2 * span)[:, None], now, np.nan))
    table = np.array(found)  # (T, n, 3)
    means = np.array([table[k : k + span].mean(0) for k in range(0, len(table) - span, span)]).reshape(-1, 3)
    return means[np.isfinite(means).all(1)]


def base(quick: bool) -> Iterator[Row]:
    own, task = walker("neither"), tasks.resolve("walk")
    limits = command_limits(own.contract, TOP, TILT)
    for name, worn in {"alone": own, "limits of its command": layers.wear(own, (limits,))}.items():
        env = tasks.env(tasks.for_contract(task, own.contract), 4 if quick else 32, task.belief, JUDGED, 1)
        found = speeds(worn, env, 2.0 if quick else 12.0)
        over = np.abs(found) / np.array(TOP)
        for k, what in enumerate(("vx", "vy", "yaw rate")):
            yield row(f"base, {name}: strides with {what} over its limit", 100 * float((over[:, k] > 1).mean()), "%", note=f"largest {over[:, k].max():.2f} of it; {len(found)} strides of 0.5 s")  # fmt: skip


def legs(quick: bool) -> Iterator[Row]:
    own, task = walker("neither"), tasks.resolve("walk")
    make = lambda seed: tasks.env(tasks.for_contract(task, own.contract), 8 if quick else 128, task.belief, seed, 1)  # noqa: E731
    switch, known = guard(own, make, by_command(task, own.contract), ValueSettings(reach=False, episodes=1 if quick else 3), 0)  # fmt: skip
    yield row("switch on legs: value has the right sign", 100 * known.sign, "%", note=f"`always safe` has {100 * known.safe:.1f} %")  # fmt: skip
    yield row("switch on legs: of states that fail, called unsafe", 100 * known.of_failures, "%")
    for name, worn in {"alone": own, "with the switch": layers.wear(own, (switch,))}.items():
        n = 8 if quick else 200
        found = evaluate(worn, tasks.env(tasks.for_contract(task, own.contract), n, task.belief, JUDGED, 1))
        fell = n - found.reasons.get("time", 0)
        low, high = clopper_pearson(fell, n)
        yield row(f"{name}: falls", 100 * fell / n, "%", note=f"{fell} of {n}, {100 * low:.1f} to {100 * high:.1f} %; return {found.returns.mean():.1f}")  # fmt: skip


if __name__ == "__main__":
    parts = {"filter": filter_, "course": course, "adaptive": adaptive, "base": base, "legs": legs}
    measure.main("safety", __doc__.split("\n")[0], parts, ("base", "legs"))
