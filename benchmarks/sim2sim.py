"""Two worlds: env steps in the robot's own, hard world until a task is learned, directly and by way of a soft one.

    python -m benchmarks.sim2sim [--only arm|scale|walk] [--quick] [--json] [--record]

arm    the validation world: servos 4 times as stiff, two control periods of latency, the torque limits of the motors. The support world: the
       usual gains, no latency, no torque limit, no dry friction. Contenders learn with the same settings from the same seeds:
       direct           PPO in the validation world; `softly` with as little noise as the primed student
       imitation        the student of docs/sim2sim.md, whose reward has a term for moving as the forward model says
       imitation, primed  the same, whose actor is fitted to the teacher's torque in the first tenth of the steps
       The target is the success that `direct` ends with; 90 % of it have to be reached. Teachers' steps are not validation steps.
scale  the arm 1, 1.5 and 2 times as long: masses grow with its cube, gains with m l^2, motors' torque with the cube.
walk   as arm, for the quadruped, with fewer seeds.

Policies are judged without exploration on the same episodes. Values are medians over seeds with the least and largest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import mujoco
import numpy as np
import torch

from benchmarks import measure
from benchmarks.lessons import JUDGED
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.learn.loop import policy_of
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.settings import PPOSettings
from surefoot.learn.sim2sim.forward import ForwardLearner, ForwardModel, seen_by
from surefoot.learn.sim2sim.imitate import Imitating
from surefoot.learn.sim2sim.prime import TEACHER, Primer, SameTorque
from surefoot.learn.sim2sim.settings import Easy, Forward, Imitation
from surefoot.learn.sim2sim.support import KINEMATIC, easy, easy_belief, stiffened, teachers, with_kinematics
from surefoot.learn.train import settings_for
from surefoot.params import Params
from surefoot.sim.events import Pull
from surefoot.task import Task
from surefoot.tasks.rollout import contract, evaluate
from surefoot.verbs.train.ways.two_worlds import softly

STIFF, LATE = 4.0, 2  # times the gains; control periods of latency
NEAR = 0.9  # of the target
PRIME = 0.1


@dataclass(frozen=True)
class Worlds:
    """The two worlds of a task, and how it is learned."""

    task: Task
    belief: Belief
    settings: PPOSettings
    episodes: int
    every: int
    """iterations from one judgement to the next"""
    soft: Easy = Easy(1 / STIFF)  # noqa: RUF009

    @property
    def softly(self) -> PPOSettings:
        """With less noise, as `--imitation.prime` has it."""
        return softly(self.settings, self.soft.gain)


def hard(task: Task, gain: float = STIFF) -> tuple[Task, Belief]:
    """The validation world of a task."""
    dt, own = tasks.env(task, 1).world.dt, task.belief
    assert isinstance(own, Box)
    at = [p.target for p in task.params].index("action_delay")
    low, high = own.low.copy(), own.high.copy()
    low[at] = high[at] = LATE * dt
    return replace(task, robot=task.robot.edited(partial(stiffened, gain=gain))), Box(task.params, low, high)


Curve = list[tuple[int, float]]


def learned(
    w: Worlds,
    task: Task,
    belief: Belief,
    settings: PPOSettings,
    seed: int,
    beside: object = None,
    until: float = np.inf,
) -> tuple[PPO, Curve]:
    """A learner at its end, or where it first reaches a success rate; and success after so many env steps on the way."""
    env = tasks.env(task, settings.envs, belief, seed, 1, stagger=True)
    learner, curve = PPO(env, settings, seed, beside=beside(env) if callable(beside) else None), []
    for k in range(1, settings.iterations + 1):
        learner.iterate()
        if k % w.every == 0 or k == settings.iterations:
            found = evaluate(policy_of(learner), tasks.env(task, w.episodes, belief, JUDGED, 1))
            curve.append((k * settings.batch, found.rate))
            if found.rate >= until:
                break
    return learner, curve


def teacher(w: Worlds, seed: int) -> tuple[PolicyNet, ForwardModel, float]:
    """A teacher of the support world, its forward model, and that one's error of joint positions, driven by the teacher, rad."""
    seen = tasks.with_override(easy(w.task, w.soft), teachers(w.task))
    task, belief = with_kinematics(seen), easy_belief(w.belief, w.soft)
    learner, _ = learned(
        replace(w, every=10**9), task, belief, w.settings, seed, lambda env: ForwardLearner(task, Forward(), seed)
    )
    assert isinstance(learner.beside, ForwardLearner)
    policy, model = policy_of(learner), learner.beside.model
    return policy, model, one_step(task, belief, policy, model, w.episodes)


@torch.no_grad()
def one_step(task: Task, belief: Belief, policy: PolicyNet, model: ForwardModel, episodes: int) -> float:
    """Mean |error| of the joints one period ahead, over episodes that nothing was learned from."""
    env = tasks.env(task, episodes, belief, JUDGED, 1)
    obs, off = env.reset(), []
    for _ in range(env.steps - 1):
        said = model(torch.from_numpy(obs["actor"])).numpy()
        step = env.step(policy(obs["actor"]))
        going = ~(step.terminated | step.truncated)
        off.append(np.abs(said - step.obs[KINEMATIC])[going][:, model.meaning.columns["joint_pos"]])
        obs = step.obs
    return float(np.concatenate(off).mean())


def student(
    w: Worlds, policy: PolicyNet, model: ForwardModel, seed: int, how: Imitation, until: float = np.inf
) -> Curve:
    own = with_kinematics(w.task)
    task = replace(own, observations={**own.observations, TEACHER: seen_by(own, model.meaning)})

    def beside(env: object) -> Imitating:
        world = env.world  # type: ignore[attr-defined]
        law = (
            SameTorque(policy, contract(task, world), world.layout.joints, model.meaning.columns) if how.prime else None
        )
        return Imitating(task, model, how, world.dt, None if law is None else Primer(law, how.prime, seed))

    return learned(w, task, w.belief, w.softly if how.prime else w.settings, seed, beside, until)[1]


def reached(curve: Curve, target: float) -> float:
    return next((float(steps) for steps, rate in curve if rate >= target), np.inf)


def compared(w: Worlds, seeds: int, name: str) -> Iterator[Row]:
    """Steps to 90 % of what PPO reaches directly, of each contender."""
    goal = f"steps to {100 * NEAR:.0f} % of the target"
    found: dict[str, list[float]] = {"direct": [], "direct, softly": [], "imitation": [], "imitation, primed": []}
    ends, errors = [], []
    for seed in range(seeds):
        curves = {"direct": learned(w, w.task, w.belief, w.settings, seed)[1]}
        ends.append(curves["direct"][-1][1])
        target = NEAR * ends[-1]
        measure.said(f"{name}: seed {seed}: direct {curves['direct']}")
        curves["direct, softly"] = learned(w, w.task, w.belief, w.softly, seed, None, target)[1]
        measure.said(f"{name}: seed {seed}: softly {curves['direct, softly']}")
        policy, model, error = teacher(w, seed)
        errors.append(error)
        curves["imitation"] = student(w, policy, model, seed, Imitation(), target)
        measure.said(f"{name}: seed {seed}: imitation {curves['imitation']}, forward {error:.4f} rad")
        curves["imitation, primed"] = student(w, policy, model, seed, Imitation(prime=PRIME), target)
        measure.said(f"{name}: seed {seed}: primed {curves['imitation, primed']}")
        for k, curve in curves.items():
            found[k].append(reached(curve, target))
    yield row("target: success of direct PPO at its end", ends, "of episodes")
    yield row("forward model: joints one period ahead", errors, "rad, mean", at_most=0.02)
    for k, steps in found.items():
        yield row(f"{k}: {goal}", steps, "env steps", note=f"of {w.settings.steps:,}")
    with np.errstate(invalid="ignore"):
        for k in list(found)[1:]:
            ratio = np.array(found[k]) / np.array(found["direct"])
            yield row(f"{k} / direct", ratio, "ratio", at_most=0.5 if k == "imitation, primed" else None)


def worlds(name: str, steps: int, quick: bool, gain: float = STIFF) -> Worlds:
    task, belief = hard(tasks.resolve(name), gain)
    own = settings_for(name)
    steps = 2 * own.batch if quick else steps
    return Worlds(task, belief, replace(own, steps=steps, learner_threads=1), 10 if quick else 40, 1 if quick else 3)


def arm(quick: bool) -> Iterator[Row]:
    """The arm with stiff servos."""
    yield from compared(worlds("arm", 196_608, quick), 1 if quick else 3, "arm")


def walk(quick: bool) -> Iterator[Row]:
    """The quadruped with stiff servos."""
    yield from compared(replace(worlds("walk", 2_000_000, quick), every=10), 1, "walk")


def grown(spec: mujoco.MjSpec, a: float) -> None:
    """A robot a times as long of the same stuff: m ~ a^3, inertia ~ a^5, gains ~ m l^2 ~ a^5, what motors give ~ a^3."""
    for b in spec.bodies:
        b.pos, b.ipos = np.array(b.pos) * a, np.array(b.ipos) * a
        b.mass, b.inertia = b.mass * a**3, np.array(b.inertia) * a**5
    for j in spec.joints:
        j.armature, j.frictionloss = j.armature * a**5, j.frictionloss * a**3
        j.damping = np.array(j.damping) * a**4.5
    for g in spec.geoms:
        g.pos, g.size, g.fromto = np.array(g.pos) * a, np.array(g.size) * a, np.array(g.fromto) * a
    for m in spec.actuators:
        m.gainprm[0] *= a**5
        m.biasprm[1], m.biasprm[2] = m.biasprm[1] * a**5, m.biasprm[2] * a**4.5
        m.forcerange = np.array(m.forcerange) * a**3


def grown_task(task: Task, a: float) -> Task:
    """The task of a grown robot: numbers that its unknowns set grow as the model's own; its distances are counted in its own lengths."""
    by = {"mass": a**3, "damping": a**4.5, "pull": a**3}
    own = task.belief
    assert isinstance(own, Box)
    factor = np.array([by.get(p.target, 1.0) if p.op != "scale" else 1.0 for p in task.params])
    rows = zip(task.params, factor)
    params = Params(tuple(replace(p, nominal=f * p.nominal, low=f * p.low, high=f * p.high) for p, f in rows))
    belief = Box(params, factor * own.low, factor * own.high)
    robot = task.robot.edited(partial(grown, a=a))
    terms = tuple(replace(t, params=params) if isinstance(t, Pull) else t for t in task.terms)
    return replace(task, robot=robot, params=params, belief=belief, terms=terms)


def scale(quick: bool) -> Iterator[Row]:
    """How many steps it takes as the robot grows, directly and by two worlds; distances of the task grow with it."""
    for a in (1.0,) if quick else (1.0, 1.5, 2.0):
        base = worlds("arm", 196_608, quick)
        task, belief = hard(grown_task(tasks.resolve("arm"), a))
        w = replace(base, task=task, belief=belief)
        direct = learned(w, task, w.belief, w.settings, 0)[1]
        measure.said(f"scale {a:g}: direct {direct}")
        policy, model, _ = teacher(w, 0)
        two = student(w, policy, model, 0, Imitation(prime=PRIME))
        measure.said(f"scale {a:g}: two worlds {two}")
        target = NEAR * max(direct[-1][1], two[-1][1])
        for label, curve in (("direct", direct), ("two worlds", two)):
            yield row(f"{a:g} x: {label}: steps to 90 % of the better", reached(curve, target), "env steps")


PARTS = {"arm": arm, "scale": scale, "walk": walk}

if __name__ == "__main__":
    measure.main("sim2sim", __doc__.split("\n")[0], PARTS, later=("scale", "walk"))
