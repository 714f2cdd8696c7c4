"""Faults to plant between a policy and a robot: in the runtime that asks the one and drives the other, or in the machine.

A runtime's fault edits what the policy is told, or what it answered, on its way. The log is the runtime's own: raw signals as
measured, `action` as the policy answered, `control` as it was sent. A machine's fault is an ingredient of the reality gap or a
wrong number; the log says nothing of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.fault import (
    DEGREES,
    JOINTS,
    PLAIN,
    Chain,
    Edit,
    Fault,
    History,
    Inverse,
    Late,
    Order,
    Plus,
    Times,
    Turn,
    on_columns,
    on_frames,
    swapped,
)  # fmt: skip
from surefoot.log import Log
from surefoot.params import Params
from surefoot.policy import Policy
from surefoot.rng import stream
from surefoot.rotation import from_matrix
from surefoot.sim.realities import Reality
from surefoot.sim.simulated_robot import PAUSE, SimulatedRobot
from surefoot.task import Task
from surefoot.world import Chance, OnAction, OnForce, State, Term

KEPT = 16  # frames: more than any history and delay
SECONDS = 30.0  # of log, on the robot's clock, pauses and all
NOISE = (
    0.05  # strength of the sensor noise that every machine has: 1 mrad, 25 mrad/s, 1 mm, 5 mm/s, 10 mrad/s of a gyro
)


class Runtime:
    """Asks a policy and drives a robot, with a fault on the way."""

    def __init__(self, policy: Policy, fault: Fault):
        self.policy, self.c, self.fault = policy, policy.contract, fault
        self.at = dict(zip((t.name for t in self.c.terms), self.c.observation.columns))
        self.begin()

    def begin(self) -> None:
        self.raw: list[np.ndarray] = []  # since the episode began
        self.answers: list[np.ndarray] = []

    def told(self) -> np.ndarray:
        """(1, obs_dim) the newest frames, as a runtime with this fault tells them."""
        group, raw = self.c.observation, np.array(self.raw)
        turn = self.at.get("rotation")
        quat = None if turn is None else from_matrix(raw[:, turn].reshape(-1, 3, 3))
        frames = group.finish(on_frames(self.fault, group, raw, quat=quat))
        ages = self.fault.ages or tuple(range(group.history - 1, -1, -1))
        return group.flat(frames[[max(0, len(raw) - 1 - k) for k in ages]][None]).astype(np.float32)

    def __call__(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the policy answers, and what is sent."""
        frame = obs[-len(obs) // self.c.history :].copy()
        if "last_action" in self.at:  # a runtime tells a policy what it answered, whatever became of it
            frame[self.at["last_action"]] = self.answers[-1] if self.answers else 0.0
        self.raw = [*self.raw[-KEPT:], frame / self.c.observation.scales]
        a = np.clip(self.policy(self.told())[0], -self.c.action.limit, self.c.action.limit)
        self.answers.append(a.astype(float))
        return self.answers[-1], on_columns(self.fault, {"action": self.answers[-1][None]})["action"][0]


Draw = Callable[[Contract, np.random.Generator], Fault]


def picked(rng: np.random.Generator, choice: Sequence[Any]) -> Any:
    return choice[rng.integers(len(choice))]


def width(c: Contract, name: str) -> int:
    return next(t.dim for t in c.terms if t.name == name)


def swapped_parts(c: Contract, rng: np.random.Generator) -> Fault:
    """Two columns exchanged: joints of the arm, x and y of the drone, position and angle of the cart."""
    names = picked(rng, {"arm": [("joint_pos", "joint_vel")], "hover": [("position_error", "base_lin_vel"), ("base_ang_vel",)],
                         "balance": [("cart_pole",)]}[c.task])  # fmt: skip
    cart = ((0, 2), (1, 2), (1, 3))[rng.integers(3)]
    pair = cart if c.task == "balance" else (0, 1)
    names = (picked(rng, names),) if c.task == "hover" else names
    return Fault("order", "", (Order(names, swapped(width(c, names[0]), *pair)),))


def turned_part(c: Contract, rng: np.random.Generator) -> Fault:
    """The sign of one joint, axis or column."""
    name = picked(rng, {"arm": ("joint_pos", "joint_vel"), "hover": ("base_lin_vel", "base_ang_vel", "position_error"),
                        "balance": ("cart_pole",)}[c.task])  # fmt: skip
    return Fault("sign", "", (Times((name,), (int(rng.integers(width(c, name))),)),))


def wrong_frame(c: Contract, rng: np.random.Generator) -> Fault:
    """A velocity in another frame; the elbow's angle from the ground; the cart's place from another zero."""
    which = int(rng.integers(3))
    zero = float(rng.choice([-1, 1]) * rng.uniform(0.1, 0.3))
    turns = (Turn(("base_lin_vel",), "body"), Turn(("base_ang_vel",), "world"), Inverse(("rotation",)))
    edit: dict[str, Edit] = {"hover": turns[which], "arm": Chain(("joint_pos", "joint_vel"), 1)}
    return Fault("frame", "", (edit.get(c.task, Plus(("cart_pole",), (0,), zero)),))


def scaled_term(c: Contract, rng: np.random.Generator) -> Fault:
    """One term told too large or too small: by a factor of 1.5 to 3, or without its contract's scale."""
    term = picked(rng, [t for t in c.terms if t.name not in ("last_action", "rotation", "command")])
    factor = float(rng.uniform(1.5, 3.0) ** rng.choice([-1, 1]))
    if term.scale != 1.0 and rng.random() < 0.5:
        factor = 1 / term.scale
    return Fault("scale", "", (Times((term.name,), by=factor),))


def degrees(c: Contract, rng: np.random.Generator) -> Fault:
    """Angles or rates in degrees."""
    name = picked(rng, {"arm": JOINTS, "hover": ("base_ang_vel",), "balance": ("cart_pole",)}[c.task])
    return Fault("unit", "", (Times((name,), (2, 3) if name == "cart_pole" else (), DEGREES),))


def stale(c: Contract, rng: np.random.Generator) -> Fault:
    """Observations one to three periods old, or, where there is a history, its frames newest first."""
    late = int(rng.integers(1, 4))
    if c.history > 1 and rng.random() < 0.5:
        return Fault("history", "", (History(tuple(range(c.history))),))
    return Fault("delay", "", (Late(late),))


def scaled_answers(c: Contract, rng: np.random.Generator) -> Fault:
    """All answers times 0.4 to 0.7 or 1.4 to 2.2."""
    by = float(rng.uniform(0.4, 0.7) if rng.random() < 0.5 else rng.uniform(1.4, 2.2))
    return Fault("scale", "", (Times(("action",), by=by),))


def swapped_answers(c: Contract | Task, rng: np.random.Generator, column: str = "action") -> Fault:
    """Two answers, or two motors' wires, exchanged; where there is one, its sign turned."""
    n = len(c.action.names)
    if n == 1:
        return Fault("sign", "", (Times((column,)),))
    return Fault("order", "", (Order((column,), swapped(n, *map(int, rng.choice(n, 2, replace=False)))),))


@dataclass(frozen=True)
class Wired(OnAction):
    """Controls as the motors get them, behind the log."""

    fault: Fault

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return on_columns(self.fault, {"control": u})["control"]


@dataclass(frozen=True)
class QuadraticDrag(OnForce):
    """-c |v| v along the first degrees of freedom."""

    c: float
    dofs: slice

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        force = np.zeros_like(x.v)
        v = x.v[:, self.dofs]
        speed = np.linalg.norm(v, axis=1, keepdims=True) if self.dofs.stop - self.dofs.start == 3 else np.abs(v)
        force[:, self.dofs] = -self.c * speed * v
        return force


@dataclass(frozen=True)
class Limited(OnAction):
    """Controls no further than `most` from their middle."""

    middle: float
    most: float

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return np.clip(u, self.middle - self.most, self.middle + self.most)


Span = tuple[float, float]
Machine = Callable[[Task, np.random.Generator], Task]


@dataclass(frozen=True)
class Planted:
    """What is planted, and what the doctor should call it."""

    cause: str
    runtime: Draw | None = None
    """in the runtime; None: it does what the contract says"""
    ingredients: Mapping[str, Span] = field(default_factory=dict)
    """with the range that their strength is drawn from"""
    machine: Machine | None = None
    """a task whose model is the machine"""


def term(make: Callable[[Task, np.random.Generator], Term]) -> Machine:
    return lambda task, rng: replace(task, terms=(*task.terms, make(task, rng)))


def renumbered(old: str, new: str, span: Span, param: str = "") -> Machine:
    """The model's text with another number, drawn from a span, in place of one it has; a param's nominal follows."""

    def edit(task: Task, rng: np.random.Generator) -> Task:
        value = round(float(rng.uniform(*span)), 4)
        if old not in task.robot.xml:
            raise SurefootError(f"{task.name}: found no {old!r} in its model")
        fit = lambda p: replace(p, nominal=value, low=min(p.low, value), high=max(p.high, value))  # noqa: E731
        text = task.robot.xml.replace(old, new.format(value, value / 12))
        params = Params(tuple(fit(p) if p.name == param else p for p in task.params))
        return replace(task, robot=replace(task.robot, xml=text), params=params)

    return edit


RUNTIME = {
    "joint swap": Planted("order", swapped_parts),
    "sign flip": Planted("sign", turned_part),
    "wrong frame": Planted("frame", wrong_frame),
    "action scale": Planted("action scale", scaled_answers),
    "action order": Planted("action order", swapped_answers),
    "observation scale": Planted("observation scale", scaled_term),
    "unit": Planted("unit", degrees),
    "stale history": Planted("stale", stale),
    "wiring": Planted("wiring", machine=term(lambda t, rng: Wired(swapped_answers(t, rng, "control")))),
    "jitter": Planted("jitter", ingredients={"action_jitter": (0.3, 0.8)}),
    "drops": Planted("drops", ingredients={"dropped_packets": (0.2, 0.6)}),
}

# a cart that balances tells only its motor's strength over its mass: `mass` is no fault of its own there
FAULTS: dict[str, dict[str, Planted]] = {
    "arm": RUNTIME | {
        "latency": Planted("latency", ingredients={"action_latency": (0.35, 0.9)}),
        "gain": Planted("gain", ingredients={"gains": (0.4, 0.9)}),
        "mass": Planted("mass", ingredients={"mass": (0.5, 1.0)}),
        "centre of mass": Planted("centre of mass", ingredients={"com": (0.6, 1.0)}),
        "friction": Planted("friction", machine=renumbered('damping="0.3"', 'damping="{:.4f}"', (0.8, 1.6), "shoulder_damping")),
        "saturation": Planted("saturation", ingredients={"saturation": (0.6, 1.0)}),
        "stiction": Planted("stiction", ingredients={"stiction": (0.3, 0.8)}),
        "backlash": Planted("backlash", ingredients={"backlash": (0.4, 0.9)}),
        "drag": Planted("drag", machine=term(lambda t, rng: QuadraticDrag(float(rng.uniform(0.15, 0.4)), slice(0, 2)))),
        "sensor bias": Planted("sensor bias", ingredients={"sensor_bias": (0.5, 1.0)}),
        "encoder offset": Planted("encoder offset", ingredients={"encoder_offset": (0.5, 1.0)}),
        "none": Planted(""),
    },
    "hover": RUNTIME | {
        "latency": Planted("latency", ingredients={"action_latency": (0.2, 0.5)}),
        "gain": Planted("gain", ingredients={"gains": (0.15, 0.4)}),
        "mass": Planted("mass", machine=renumbered('mass="0.027"', 'mass="{:.4f}"', (0.032, 0.040))),
        "centre of mass": Planted("centre of mass", ingredients={"com": (0.1, 0.4)}),
        "motor time": Planted("motor time", machine=renumbered('dynprm=".05"', 'dynprm="{:.4f}"', (0.07, 0.1), "motor_time")),
        "saturation": Planted("saturation", machine=term(lambda t, rng: Limited(0.0, float(rng.uniform(0.075, 0.095))))),
        "imu misalignment": Planted("imu misalignment", ingredients={"imu_misalignment": (0.4, 1.0)}),
        "drag": Planted("drag", machine=term(lambda t, rng: QuadraticDrag(float(rng.uniform(0.02, 0.05)), slice(0, 3)))),
        "sensor bias": Planted("sensor bias", ingredients={"sensor_bias": (0.5, 1.0)}),
        "none": Planted(""),
    },
    "balance": RUNTIME | {
        "wrong frame": Planted("offset", wrong_frame),
        "action order": Planted("action sign", swapped_answers),
        "latency": Planted("latency", ingredients={"action_latency": (0.35, 0.9)}),
        "gain": Planted("gain", ingredients={"gains": (0.5, 1.0)}),
        "centre of mass": Planted("centre of mass", machine=renumbered('pos="0 0 .5"', 'pos="0 0 {:.4f}"', (0.7, 0.9))),
        "friction": Planted("friction", machine=renumbered('<joint name="slide" type="slide" axis="1 0 0"/>',
                          '<joint name="slide" type="slide" axis="1 0 0" damping="{:.4f}"/>', (1.5, 3.0), "rail_drag")),
        "saturation": Planted("saturation", machine=term(lambda t, rng: Limited(0.0, float(rng.uniform(0.4, 1.2))))),
        "stiction": Planted("stiction", ingredients={"stiction": (0.3, 0.8)}),
        "backlash": Planted("backlash", ingredients={"backlash": (0.4, 0.9)}),
        "drag": Planted("drag", machine=term(lambda t, rng: QuadraticDrag(float(rng.uniform(5.0, 10.0)), slice(0, 1)))),
        "sensor bias": Planted("sensor bias", ingredients={"sensor_bias": (0.5, 1.0)}),
        "none": Planted(""),
    },
}  # fmt: skip


def deployed(task: Task, policy: Policy, fault: Planted, seed: int, seconds: float = SECONDS) -> Log:
    """The log of a policy on a robot with this fault."""
    rng = stream(seed, f"fault {fault.cause} of {task.name}")
    strengths = {k: float(rng.uniform(*span)) for k, span in fault.ingredients.items()}
    runtime = Runtime(policy, PLAIN if fault.runtime is None else fault.runtime(policy.contract, rng))
    machine = task if fault.machine is None else fault.machine(task, rng)
    robot = SimulatedRobot(machine, Reality(seed, {"sensor_noise": NOISE} | strengths), seed)
    told, answers, time = robot.connect(), [], 0.0
    while time < seconds - 1.5 / robot.rate:
        a, u = runtime(told)
        told = robot.act(u)
        answers.append(a)
        time += 1.0 / robot.rate
        if robot.ended:
            runtime.begin()
            time += PAUSE
    log = robot.log()
    kept = {"names": log.meta["names"], "rate": log.meta["rate"]}
    return Log(log.time, log.columns | {"action": np.array(answers)}, log.units, kept)
