"""Gymnasium's Ant-v5, Humanoid-v5 and HalfCheetah-v5 as surefoot Tasks, on Gymnasium's own model files.

Same frame skip, observation, reward, termination, time limit and start. Gymnasium measures a step's motion from the
position before it, which a Moment does not hold: a Term on the action socket keeps it. `python -m benchmarks.twins`
steps both from the same states with the same actions and prints how far they differ.

One thing is not the same number, though it is the same function and no less work. Contact forces, cfrc_ext, need
mj_rnePostConstraint. Gymnasium calls it once, after the step, where the data of an RK4 model are those of the last
inner stage of the last substep. A Batch calls it in every substep, at the substep's own state, for a model with a
sensor of acceleration, so one is added. The comparison therefore takes contact forces from Gymnasium's data there.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import mujoco
import numpy as np

from surefoot.belief import point
from surefoot.contract import Action
from surefoot.env import Env
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.params import Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.sim.engine import Engine
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Chance, OnAction, Start, State

NOTHING = Params(())
EPISODE, SKIP = 1000, 5


@dataclass(frozen=True)
class Twin:
    """What tells one robot from another."""

    file: str
    hidden: int
    """leading positions that are not observed"""
    place: Callable[[Moment, mujoco.MjModel], np.ndarray]
    """forward position whose change is rewarded"""
    seen: tuple[tuple[str, int, float], ...]
    """engine fields observed beside q and v: name, leading rows left out, clip"""
    forward: float
    control: float
    alive: float
    contact: Callable[[Moment], np.ndarray] | None
    """cost of contact"""
    height: tuple[float, float]
    """of the torso, in which it lives on"""
    noise: tuple[float, str]
    """of the start: positions uniform within this, velocities by this law"""


def _centre(s: Moment, m: mujoco.MjModel) -> np.ndarray:
    return s.y["xipos"][:, :, 0] @ m.body_mass / m.body_mass.sum()


def _rows(name: str, first: int) -> Callable[[Moment], np.ndarray]:
    return lambda s: s.y[name][:, first:].reshape(len(s.q), -1)


def _ant_contact(s: Moment) -> np.ndarray:
    return 5e-4 * np.square(np.clip(s.y["cfrc_ext"], -1, 1)).sum((1, 2))


def _humanoid_contact(s: Moment) -> np.ndarray:
    return np.minimum(5e-7 * np.square(s.y["cfrc_ext"]).sum((1, 2)), 10.0)


TWINS = {
    "HalfCheetah-v5": Twin(
        "half_cheetah.xml", 1, lambda s, m: s.q[:, 0].copy(), seen=(),
        forward=1.0, control=0.1, alive=0.0, contact=None, height=(-np.inf, np.inf), noise=(0.1, "normal"),
    ),
    "Ant-v5": Twin(
        "ant.xml", 2, lambda s, m: s.y["xpos"][:, 1, 0].copy(), seen=(("cfrc_ext", 1, 1.0),),
        forward=1.0, control=0.5, alive=1.0, contact=_ant_contact, height=(0.2, 1.0), noise=(0.1, "normal"),
    ),
    "Humanoid-v5": Twin(
        "humanoid.xml", 2, _centre,
        seen=(("cinert", 1, np.inf), ("cvel", 1, np.inf), ("qfrc_actuator", 6, np.inf), ("cfrc_ext", 1, np.inf)),
        forward=1.25, control=0.1, alive=5.0, contact=_humanoid_contact, height=(1.0, 2.0), noise=(0.01, "uniform"),
    ),
}  # fmt: skip
PLACES = {"Ant-v5": "xpos", "Humanoid-v5": "xipos"}  # engine fields that tell the forward position


class Before(OnAction):
    """Keeps the forward position from before the step; passes the action on."""

    def __init__(self, place: Callable[[Moment, mujoco.MjModel], np.ndarray], model: mujoco.MjModel):
        self.place, self.model = place, model
        self.at: np.ndarray | None = None  # before the first step there is none, and no speed

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        self.at = self.place(Moment(x, u, u, u, x.time, x.time), self.model)
        return u

    def speed(self, s: Moment, dt: float) -> np.ndarray:
        here = self.place(s, self.model)
        return (here - (here if self.at is None else self.at)) / dt


@contextmanager
def quiet() -> Iterator[None]:
    """Without MuJoCo's warnings, and the file it writes them to: HalfCheetah's model uses a deprecated attribute."""
    heard = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        mujoco.set_mju_user_warning(heard)


def model(twin: Twin) -> mujoco.MjModel:
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / twin.file
    spec = mujoco.MjSpec.from_file(str(path))
    for k, actuator in enumerate(spec.actuators):
        actuator.name = f"u{k}"
    if twin.contact is not None:
        torso = spec.worldbody.first_body().name
        spec.add_sensor(
            name="a", type=mujoco.mjtSensor.mjSENS_FRAMELINACC, objtype=mujoco.mjtObj.mjOBJ_BODY, objname=torso
        )
    with quiet():
        return spec.compile()


def task(name: str, m: mujoco.MjModel, before: Before) -> Task:
    t, dt = TWINS[name], SKIP * m.opt.timestep
    low, high = t.height
    width, law = t.noise

    def healthy(s: Moment) -> np.ndarray:
        return (s.q[:, 2] >= low) & (s.q[:, 2] <= high) & np.isfinite(s.q).all(1) & np.isfinite(s.v).all(1)

    def episode(rng: Draw, n: int) -> Episode:
        q = m.qpos0 + rng.uniform(-width, width, (n, m.nq))
        v = width * rng.standard_normal((n, m.nv)) if law == "normal" else rng.uniform(-width, width, (n, m.nv))
        return Episode(Start(q, v, np.zeros((len(q), m.nu))))

    return Task(
        name=name, about=f"Gymnasium's {name}", robot=Robot(""), params=NOTHING, belief=point(NOTHING, NOTHING.nominal),
        substeps=SKIP, seconds=EPISODE * dt, observations={"actor": ObsGroup(_seen(t, m))},
        action=Action(tuple(f"u{i}" for i in range(m.nu)), np.zeros(m.nu), np.ones(m.nu), "", limit=np.inf),
        rewards=_rewards(t, before, healthy, dt), ended={"unhealthy": lambda s: ~healthy(s)} if t.alive else {},
        episode=episode, error=lambda s: np.zeros(len(s.q)), error_unit="", tolerance=0.0, window=dt,
    )  # fmt: skip


def _seen(t: Twin, m: mujoco.MjModel) -> tuple[ObsTerm, ...]:
    q = ObsTerm("q", lambda s: s.q[:, t.hidden :], m.nq - t.hidden, clip=np.inf)
    v = ObsTerm("v", lambda s: s.v, m.nv, clip=np.inf)
    data = mujoco.MjData(m)
    return q, v, *(ObsTerm(k, _rows(k, first), getattr(data, k)[first:].size, clip=clip) for k, first, clip in t.seen)


def _rewards(t: Twin, before: Before, healthy: Callable[[Moment], np.ndarray], dt: float) -> dict[str, Reward]:
    """As Gymnasium weighs them; an Env multiplies by dt, so weights are divided by it."""
    rewards = {
        "forward": Reward(t.forward / dt, lambda s: before.speed(s, dt), "speed"),
        "control": Reward(-t.control / dt, lambda s: np.square(s.action).sum(1), "effort"),
    }
    if t.alive:
        rewards["alive"] = Reward(t.alive / dt, lambda s: healthy(s).astype(float), "not fallen")
    if t.contact is not None:
        rewards["contact"] = Reward(-1 / dt, t.contact, "contact forces")
    return rewards


def env(name: str, n: int, seed: int = 0) -> Env:
    """n episodes of a twin, with the engine's fields it needs bound beside the sensors."""
    m = model(TWINS[name])
    before = Before(TWINS[name].place, m)
    world = Engine(m, NOTHING, n, SKIP, terms=(before,))
    for field in {k for k, _, _ in TWINS[name].seen} | ({PLACES[name]} if name in PLACES else set()):
        world.state.y[field] = world.batch.bind(field)  # type: ignore[index]
    twin = task(name, m, before)
    return Env(twin, world, twin.belief, seed)


def difference(name: str, steps: int = 200) -> tuple[float, float]:
    """Largest differences (observation, reward) from Gymnasium's own, relative to 1 or to the value if larger."""
    with quiet():
        theirs, ours = gymnasium.make(name).unwrapped, env(name, 1)
    aside = _watch_contacts(theirs)
    rng, worst, done = np.random.default_rng(0), np.zeros(2), True
    for k in range(steps):
        if done:
            theirs.reset(seed=k)
            ours.reset()
            q, v = theirs.data.qpos.copy()[None], theirs.data.qvel.copy()[None]
            ours.world.reset(np.arange(1), np.zeros((1, 0)), Start(q, v, np.zeros((1, theirs.model.nu))))
        action = rng.uniform(theirs.action_space.low, theirs.action_space.high)
        ours.previous, ours.action = ours.action, action[None]
        ours.world.step(action[None], Chance(0, 0, ours.world.dt))
        _, _, done, _, info = theirs.step(action)
        now = ours.moment
        reward = sum(ours.world.dt * r.weight * r.compute(now) for r in ours.task.rewards.values())
        if TWINS[name].contact is not None:
            theirs.data.cfrc_ext[:] = aside.cfrc_ext
        expected = theirs._get_obs(), theirs._get_rew(info["x_velocity"], action)[0]
        for i, (found, right) in enumerate(zip((_exact(ours), reward[0]), expected)):
            worst[i] = max(worst[i], float(np.max(np.abs(found - right) / np.maximum(1.0, np.abs(right)))))
    return float(worst[0]), float(worst[1])


def _exact(ours: Env) -> np.ndarray:
    """What the first env is told, before it is rounded to single precision."""
    now = ours.moment
    return np.concatenate([np.clip(t.source(now)[0], -t.clip, t.clip) for t in ours.task.observations["actor"].terms])


def _watch_contacts(theirs: gymnasium.Env) -> mujoco.MjData:
    """Have a Gymnasium env leave, in the data returned, the contact forces where its last substep starts."""
    m, d, aside = theirs.model, theirs.data, mujoco.MjData(theirs.model)

    def simulate(ctrl: np.ndarray, n: int) -> None:
        d.ctrl[:] = ctrl
        mujoco.mj_step(m, d, nstep=n - 1)
        now = copy.copy(d)
        mujoco.mj_forward(m, now)
        mujoco.mj_rnePostConstraint(m, now)
        aside.cfrc_ext[:] = now.cfrc_ext
        mujoco.mj_step(m, d)
        mujoco.mj_rnePostConstraint(m, d)

    theirs._step_mujoco_simulation = simulate
    return aside


if __name__ == "__main__":
    for each in TWINS:
        print(
            each,
            "largest relative difference from Gymnasium: observation {:.1e}, reward {:.1e}".format(*difference(each)),
        )
