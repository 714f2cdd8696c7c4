"""hover: a multirotor that is thrown comes to rest at the goal and stays there.

    m v' = R f(u) - m g,   J w' = tau(u) - w x J w,   (f, tau) = B u        u = hover + scale a

How hard it is thrown follows from what its controls can do: the tilt and the turn rates that its weakest axis, roll or
pitch, undoes within RIGHTED seconds at full torque, at most 90 degrees and 1 rad/s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import mujoco
import numpy as np

from surefoot.arrays import namespace
from surefoot.contract import Action
from surefoot.errors import SurefootError
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.rotation import from_axis_angle, norm2
from surefoot.sim.anatomy.rotors import Rotor
from surefoot.sim.anatomy.study import Anatomy, study
from surefoot.sim.model import edits
from surefoot.sim.model.edits import Timing
from surefoot.sim.model.load import load_robot
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.tasks.build import unknowns
from surefoot.tasks.build.estimator import accelerometer_at, estimated, flight_filter
from surefoot.tasks.terms import observations as obs
from surefoot.tasks.terms import quantities as of
from surefoot.tasks.terms import rewards
from surefoot.world import Start

RIGHTED = 0.7  # s
FAR = 2.0  # m from the goal, where an episode ends
STRONGEST = 1.25  # times the hover control: what an action of 1 adds to a thrust
# RLtools' recipe of small nets, critics before the actor and n-step returns; a short replay, since what a bad policy did is soon of no use
OFF_POLICY = {
    "envs": 256, "steps": 400_000, "horizon": 4, "updates": 12, "samples": 512, "replay": 400, "warm_up": 16_000, "actor_after": 20_000,
    "n_step": 8, "gamma": 0.98, "tau": 0.02, "lr": 2e-3, "action_penalty": 0.1, "value": "mean", "hidden": (64, 64), "critic_hidden": (64, 64),
}  # fmt: skip
SOFT = {"action_penalty": 0.3, "alpha": 0.003, "target_entropy": -1.0, "log_sd": (-4.0, -1.2)}


@dataclass(frozen=True)
class Flyer:
    """What a builder has to know about a multirotor, read from its model or written out in a task file."""

    base: str
    rotors: tuple[Rotor, ...]


def read_flyer(robot: Robot) -> tuple[Flyer, Anatomy]:
    """The rotors of a robot's model, and all else that was found in it."""
    spec = load_robot(robot).spec
    edits.name_parts(spec)
    found = study(spec.compile())
    if not found.rotors:
        raise SurefootError(
            f"robot {robot.name}: rotors: found none, expected actuators at sites of a free body that can lift it"
        )
    return Flyer(found.base, found.rotors), found


def hover(
    robot: Robot,
    flyer: Flyer | None = None,
    timing: Timing = Timing(steps=4),  # noqa: B008
    ranges: Mapping[str, tuple[float, float]] | None = None,
    estimate: Sequence[str] | None = None,
) -> Task:
    """The task of coming to rest at the goal, 1 m above where the model begins.

    `estimate`: what the actor observes of a state estimator in place of a measured velocity, such as
    base_lin_vel_world_estimate; None: the robot has none.
    """
    flyer = flyer or read_flyer(robot)[0]
    robot = prepared(robot, timing)
    robot = robot if estimate is None else robot.edited(accelerometer_at(flyer.base))
    thrown = Thrown(robot, flyer)
    belief = unknowns.belief(_unknowns(thrown, timing), ranges or {})
    n = len(flyer.rotors)
    at, turned = (
        ObsTerm("position_error", Formula("base_pos"), 3, "m, world frame", noise=0.002, clip=3.0),
        ObsTerm("rotation", Formula("rotation"), 9, "body to world, row by row", noise=0.002),
    )
    speed = ObsTerm("base_lin_vel", Formula("base_lin_vel", frame="world"), 3, "m/s, world frame", 0.01, 0.5, 10.0)
    rates = ObsTerm("base_ang_vel", Formula("base_ang_vel"), 3, "rad/s, body frame", 0.02, 0.1, 40.0)
    estimator = None if estimate is None else flight_filter(rates, at, turned, timing)
    actor = (at, turned, *(estimated(estimator, estimate) if estimate else (speed,)), rates, obs.last_action(n))
    critic = (*actor, *((speed,) if estimate else ()), *thrown.lags(), obs.unknowns(len(belief.params)))
    return Task(
        name=f"{robot.name}-hover",
        about=f"{robot.name}, thrown, comes to rest at the goal",
        robot=robot,
        params=belief.params,
        belief=belief,
        substeps=timing.steps,
        seconds=5.0,
        action=Action(tuple(r.actuator for r in flyer.rotors), thrown.hover, thrown.scale, "control"),
        observations={"actor": ObsGroup(actor, history=3, estimator=estimator if estimate else None), "critic": ObsGroup(critic)},
        rewards=_rewards(),
        ended={"flew away": lambda s: s.once(distance) > FAR},
        episode=thrown.starts,
        error=lambda s: s.once(distance),
        error_unit="m",
        tolerance=0.1,
        window=1.0,
        settings={"envs": 512, "steps": 2_000_000, "horizon": 16, "gamma": 0.98, "hidden": (64, 64), "activation": "tanh", "kl": 0.02, "spread": (0.1, 0.5, 1.0)},
        learners={"fasttd3": OFF_POLICY | {"explore": (0.03, 0.3), "target_noise": 0.05}, "fastsac": OFF_POLICY | SOFT},
        kind="quadrotor",
        estimator=estimator,
    )  # fmt: skip


def prepared(robot: Robot, timing: Timing) -> Robot:
    """The robot with what training needs; its file stays as it is."""

    def edit(spec: mujoco.MjSpec) -> None:
        changes(spec, timing)

    return robot.edited(edit)


def changes(spec: mujoco.MjSpec, timing: Timing) -> list[str]:
    """Makes a model ready for training, in place; says what was changed."""
    said = [
        edits.name_parts(spec),
        edits.without_extras(spec),
        edits.only_drawn(spec),
        edits.add_scenery(spec),
        edits.step(spec, timing),
    ]
    return [x for x in said if x]


def distance(s: Moment) -> np.ndarray:
    """(n,) m from the goal, the origin."""
    return s.xp.sqrt(norm2(of.base_pos(s)))


class Thrown:
    """A prepared multirotor's compiled model, and how hard it may be thrown."""

    def __init__(self, robot: Robot, flyer: Flyer):
        self.model, self.flyer = load_robot(robot).model, flyer
        self.hover = np.array([r.hover for r in flyer.rotors])
        high = np.array([r.high for r in flyer.rotors]) - self.hover
        self.scale = np.where(
            self.hover > 0, np.minimum(STRONGEST * self.hover, np.maximum(high, 0.2 * self.hover)), high
        )
        self.controls = np.array(
            [int(self.model.actuator_ctrladr[self.model.actuator(r.actuator).id]) for r in flyer.rotors]
        )

    def control(self, values: np.ndarray) -> np.ndarray:
        """(nu,) those of the rotors, 0 elsewhere."""
        u = np.zeros(self.model.nu)
        u[self.controls] = values
        return u

    @property
    def lagged(self) -> bool:
        return all(r.time_constant > 0 for r in self.flyer.rotors)

    def lags(self) -> tuple[ObsTerm, ...]:
        """What the rotors do now, for a critic, where that is not what was commanded."""
        n, per = len(self.hover), 1 / max(float(np.abs(self.hover).max()), 1e-9)
        return (ObsTerm("rotor_thrust", lambda s: s.x.act, n, "control", scale=0.6 * per),) if self.lagged else ()

    @property
    def torque(self) -> float:
        """N m: what the controls can do about the weaker of roll and pitch."""
        each = np.array([np.array(r.torque)[:2] * s for r, s in zip(self.flyer.rotors, self.scale)])
        return float(np.abs(each).sum(0).min() / 2)

    @property
    def acceleration(self) -> float:
        """rad/s^2: what that torque gives."""
        inertia = self.model.body_inertia[self.model.body(self.flyer.base).id]
        return self.torque / max(float(inertia.max()), 1e-12)

    @property
    def tilt(self) -> float:
        return float(min(np.pi / 2, self.acceleration * RIGHTED**2 / 4))

    def starts(self, rng: Draw, n: int) -> Episode:
        """Up to 0.2 m away, tilted about any axis, moving and turning."""
        hard = min(1.0, self.tilt / (np.pi / 2))
        axis, rest = rng.standard_normal((n, 3)), rng.uniform(-1.0, 1.0, (n, 10))
        xp = namespace(axis)
        axis /= xp.linalg.norm(axis, axis=1, keepdims=True)
        quat = from_axis_angle(axis, rest[:, 0] * self.tilt)
        q, v, u = (xp.tile(xp.asarray(a), (n, 1)) for a in self._rest)
        q[:, :3], q[:, 3:7] = 0.2 * rest[:, 1:4], quat
        v[:, :3], v[:, 3:6] = max(hard, 0.2) * rest[:, 4:7], hard * rest[:, 7:]
        return Episode(Start(q, v, u, xp.tile(xp.asarray(self.hover), (n, 1)) if self.lagged else None))

    @cached_property
    def _rest(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the model begins, at rest, and the controls that hold it there."""
        return self.model.qpos0.copy(), np.zeros(self.model.nv), self.control(self.hover)


def _rewards() -> dict[str, Reward]:
    return {
        "alive": Reward(2.0, rewards.alive, "for each second in the air near the goal"),
        "near": Reward(5.0, lambda s: s.xp.exp(-10.0 * s.once(distance)), "exp(-10 d): close to the goal"),
        "upright": Reward(1.5, rewards.upright, "cosine of the tilt"),
        "far": Reward(-2.0, lambda s: s.once(distance), "distance to the goal, m"),
        "lost": Reward(-200.0, lambda s: 1.0 * (s.once(distance) > FAR), "flying away, once"),
        "lin_vel": Reward(-0.05, lambda s: norm2(of.base_lin_vel_world(s)), "speed squared"),
        "ang_vel": Reward(-0.005, lambda s: norm2(of.base_ang_vel(s)), "turn rate squared"),
        "action_rate": Reward(-0.05, rewards.action_rate, "change of action squared"),
    }


def _unknowns(thrown: Thrown, timing: Timing) -> list[unknowns.Row]:
    m, base, rotors = thrown.model, thrown.flyer.base, thrown.flyer.rotors
    arm = max([float(np.abs(r.torque[:2]).max() / max(abs(r.force[2]), 1e-12)) for r in rotors if r.force[2]] + [0.02])
    match, motors = unknowns.any_of([base]), unknowns.any_of(r.actuator for r in rotors)
    free = str(m.joint(int(m.body(base).jntadr[0])).name)
    lag = rotors[0].time_constant
    off = min(
        0.025 * arm, 0.2 * thrown.torque / float(np.abs(m.opt.gravity[2]) * m.body_mass.sum())
    )  # m that a fifth of the torque holds
    drag = 0.1 * float(m.body_mass.sum())  # N s/m: a tenth of the weight at 10 m/s
    rows: list[tuple[Param, tuple[float, float], bool]] = [
        (Param("mass", "mass", 1.0, 0.5, 2.0, match, log=True, about="mass and inertia, as a multiple"), (0.85, 1.2), True),
        (Param("com_x", "com_x", 0.0, -0.36 * arm, 0.36 * arm, match, "add", "m", about="centre of mass, forward"), (-off, off), True),
        (Param("com_y", "com_y", 0.0, -0.36 * arm, 0.36 * arm, match, "add", "m", about="centre of mass, left"), (-off, off), True),
        (Param("strength", "strength", 1.0, 0.5, 1.5, motors, about="thrust of every rotor, as a multiple (battery, propeller wear)"), (0.88, 1.12), True),
        (Param("rotor_1", "strength", 1.0, 0.7, 1.3, unknowns.any_of([rotors[0].actuator]), about="thrust of one rotor against the others"), (0.96, 1.04), len(rotors) > 1),
        (Param("motor_time", "motor_time", lag or 0.05, 0.4 * (lag or 0.05), 4 * (lag or 0.05), motors, "set", "s", log=True, about="time constant of the motors"), (0.8 * lag, 1.3 * lag), thrown.lagged),
        (Param("drag", "drag", 0.0, 0.0, 70 * drag, unknowns.any_of([free]), "set", "N s/m", about="linear air drag"), (0.0, 7 * drag), True),
    ]  # fmt: skip
    return [*((p, ends) for p, ends, there in rows if there), *unknowns.wires(timing.period, ""), *unknowns.noise("")]
