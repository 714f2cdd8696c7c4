"""Cloning a real robot's controllers, then improving the clone: `python -m benchmarks.policy_gradient --only robot`.

    surefoot clone benchmarks/robot_demos.py:swing_up LOG.npz --by mse

A pendulum of 0.6 kg on 0.5 m swings up with 0.9 N m, a third of what gravity needs, so it must swing several times. Two controllers of
other people drove it: one learned (SAC, 40 s) and one by its energy (20 s), while somebody knocked it over now and then. Their
logs have positions, speeds and commanded torques; what a policy of the task would have observed follows from them. The model's
mass is identified from a third log, pd_identification, in which nothing swings up. Friction is the model's guess, 0.1 N m: that log
does not determine it, and with the 0.355 that fits best the clones stop where they hang, though the robot swung up. No policy
was tried on the robot: success is that in the model, with a mass within 20 % of the identified one.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cloned, real
from benchmarks.measure import Row, row
from benchmarks.real_logs import MODELS, read
from benchmarks.toy_tasks import from_top, hanging
from surefoot import tasks
from surefoot.belief import Box
from surefoot.contract import Action
from surefoot.doctor.evidence.demonstration import demonstrated
from surefoot.learn.clone.demos import demos
from surefoot.learn.clone.fine_tune import as_cloned, cloned_arrays
from surefoot.learn.clone.learner import Clone
from surefoot.learn.clone.settings import CloneSettings
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.fpo import FPO
from surefoot.learn.on_policy.learner import OnPolicy
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.residual import BasePolicy, Residual, ResidualActor
from surefoot.learn.train import settings_for
from surefoot.log import Log
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.plant import Plant
from surefoot.robot import Robot
from surefoot.task import Reward, Task
from surefoot.tasks.rollout import contract, evaluate

TORQUE, LENGTH, RATE = 0.9, 0.5, 50.0  # N m, m, Hz
DRIVERS = ("sac", "energy_shaping")
MASS, FRICTION = 0.577, 0.355  # kg, N m, as identified() finds
TIP = (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, -LENGTH)  # a point of the axis, the axis, a hinge; then the tip
UP = 0.3  # rad from the top
SEEDS, STEPS = 3, 100_000


def swing_up(friction: float = 0.1) -> Task:
    """The robot's task in its model; its tip tells the angle however often it turned. Friction in N m."""
    params = Params((Param("mass", "mass", 1.0, 0.7, 1.3, match="arm", op="scale", about="mass of the weight, as a multiple"),))  # fmt: skip
    seen = ObsGroup((
        ObsTerm("tip_pos", Formula("tip_pos", ("hinge",), links=TIP), 3, "m"),
        ObsTerm("joint_vel", Formula("joint_vel", ("hinge",)), 1, "rad/s"),
    ))  # fmt: skip
    text = (MODELS / "qdd_pendulum.xml").read_text()
    text = text.replace('mass="0.6"', f'mass="{MASS}"').replace('frictionloss="0.1"', f'frictionloss="{friction}"')
    text = text.replace('joint="hinge"/>', f'joint="hinge" ctrlrange="-{TORQUE} {TORQUE}"/>')
    return Task(
        name="swing_up", about="swing up a pendulum by a third of the torque that gravity needs", robot=Robot.text(text, "qdd pendulum"), params=params,
        belief=Box.ranges(params, {"mass": (0.8, 1.2)}), substeps=8, seconds=10.0,
        action=Action(("motor",), np.zeros(1), np.array([TORQUE]), "N m"),
        observations={"actor": seen, "critic": seen},
        rewards={
            "high": Reward(1.0, lambda m: 0.5 * (1 - np.cos(m.q[:, 0])), "0 where it hangs, 1 at the top"),
            "up": Reward(1.0, lambda m: (from_top(m) < UP).astype(float), "within what counts as up"),
            "effort": Reward(-0.02, lambda m: np.square(np.clip(m.action[:, 0], -1, 1)), "torque heats the motor"),
        },
        ended={}, episode=hanging, error=from_top, error_unit="rad", tolerance=UP, window=1.0,
        settings={"envs": 64, "horizon": 50, "steps": STEPS, "hidden": (64, 64), "gamma": 0.99, "minibatches": 4, "activation": "tanh",
                  "learner_threads": 1},
    )  # fmt: skip


def identified() -> dict[str, float]:
    """The model's unknowns, fitted on pd_identification alone as benchmarks/real.py has it."""
    log = real.qdd_log("pd_identification")
    world = Plant(str(MODELS / "qdd_pendulum.xml")).world(real.PENDULUM, log)
    how = Identify(horizons=(0.3,), last=0.5, starts="known", hold=0.0, rounds=1, iterations=12)
    found = identify(world, Box.full(real.PENDULUM), log, how, only=("joint_pos",), warn=False)
    return {p.name: float(p.value) for p in found.params}


@cache
def driven(name: str) -> Log:
    """What a controller of the robot observed and did, as this task has it."""
    task = swing_up()
    measured = read(f"qdd_pendulum/{name}_swingup_measured.csv", "qdd_measured.json", RATE)
    wanted = read(f"qdd_pendulum/{name}_swingup_desired.csv", "qdd_desired.json")
    torque = np.interp(measured.time, wanted.time, wanted["control"].reshape(-1))
    names = {"joint_pos": ["hinge"], "joint_vel": ["hinge"], "control": ["motor"]}
    columns = {k: measured[k].reshape(len(measured), 1) for k in ("joint_pos", "joint_vel")}
    log = Log(measured.time, columns | {"control": torque[:, None]}, meta={"names": names})
    return demonstrated(task, tasks.env(task, 1, threads=1).world, log)


def clone(seed: int, quick: bool, **how: Any) -> PolicyNet:
    task, logs = swing_up(), {name: driven(name) for name in DRIVERS}
    s = CloneSettings(**{"by": "flow", "chunk": 1, "hidden": (64, 64), "updates": 50 if quick else 3000} | how)  # type: ignore[arg-type]
    learner = Clone(tasks.env(task, 1, threads=1), s, seed, demos(task, RATE, logs, 1))
    while learner.iteration < learner.iterations:
        learner.iterate()
    return policy_of(learner)


def judged(net: PolicyNet, seed: int, quick: bool, friction: float = 0.1) -> dict[str, float]:
    """In worlds of the task's belief, in which all learn, too."""
    task = swing_up(friction)
    found = evaluate(net, tasks.env(task, 8 if quick else 200, task.belief, 1_000_000 + seed, 1))
    return {"success": found.rate, "return": float(found.returns.mean())}


def improved(kind: type[OnPolicy], s: Any, seed: int, **more: Any) -> OnPolicy:
    task = swing_up()
    return kind(tasks.env(task, s.envs, task.belief, seed, 1, stagger=True), s, seed, **more)


def trained(learner: OnPolicy) -> PolicyNet:
    while learner.iteration < learner.iterations:
        learner.iterate()
    return policy_of(learner)


def case(seed: int, quick: bool) -> dict[str, float]:
    """Clones by mean and by flow; PPO upon the first, FPO from the second; the same steps from nothing by both learners."""
    task, steps = swing_up(), {"steps": 1} if quick else {}
    by_mean, by_flow = clone(seed, quick, by="mse"), clone(seed, quick)
    upon = ResidualActor(Residual(), BasePolicy(contract(task, tasks.env(task, 1, threads=1).world), by_mean))
    plain, fresh = settings_for(task, steps, "ppo"), settings_for(task, steps, "fpo")
    nets = {"clone by its mean": by_mean, "PPO upon it": trained(improved(PPO, plain, seed, upon=upon)),
            "PPO alone": trained(improved(PPO, plain, seed)), "clone by flow": by_flow}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        start = export.save(by_flow, Path(folder)).parent
        learner = improved(FPO, as_cloned(start, replace(fresh, lr=1e-3)), seed)
        learner.adopt(cloned_arrays(start, task), str(start))
        nets["FPO from it"] = trained(learner)
    nets["FPO alone"] = trained(improved(FPO, fresh, seed))
    stiff = judged(by_mean, seed, quick, FRICTION)["success"]
    found = {f"{name}: {k}": v for name, net in nets.items() for k, v in judged(net, seed, quick).items()}
    return found | {"clone by its mean, with the fitted friction: success": stiff}


def rows(quick: bool) -> Iterator[Row]:
    """Clones of the robot's controllers, before and after learning in its model, against learning from nothing."""
    fit = {"mass": MASS} if quick else cloned.kept("robot-fit", quick, identified)
    for name, value in fit.items():
        yield row(f"swing_up: fitted {name}", value, "SI")
    found: dict[str, list[float]] = {}
    for seed in range(1 if quick else SEEDS):
        for k, v in cloned.kept(f"robot-{seed}", quick, partial(case, seed, quick)).items():
            found.setdefault(k, []).append(v)
    for k, values in found.items():
        yield row(f"swing_up, {k}", values, "of episodes" if k.endswith("success") else "return")
    alone = np.maximum(found["PPO alone: success"], found["FPO alone: success"])
    gain = 100 * (np.array(found["PPO upon it: success"]) - alone)
    yield row("swing_up: PPO upon the clone above the better of learning from nothing", gain, "points", at_least=20)
