"""Faults to plant between a policy and a robot: in the runtime that asks the one and drives the other, or in the machine.

A runtime's fault edits what the policy is told, or what it answered, on its way. The log is the runtime's own: raw signals as
measured, `action` as the policy answered, `control` as it was sent. A machine's fault is an ingredient of the reality gap or a
wrong number; the log says nothing of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Params
from surefoot.policy import Policy
from surefoot.rng import stream
from surefoot.sim.realities import Reality
from surefoot.sim.robot import PAUSE, Robot
from surefoot.task import Task
from surefoot.world import Chance, OnAction, OnForce, State, Term

SECONDS = 30.0  # of log, on the robot's clock, pauses and all
NOISE = (
    0.05  # strength of the sensor noise that every machine has: 1 mrad, 25 mrad/s, 1 mm, 5 mm/s, 10 mrad/s of a gyro
)


class Runtime:
    """Asks a policy and drives a robot, by the book; faults override `told` and `sent`."""

    def __init__(self, task: Task, policy: Policy, rng: np.random.Generator):
        self.task, self.policy, self.c, self.rng = task, policy, policy.contract, rng
        self.at = dict(zip((t.name for t in self.c.terms), self.c.observation.columns))
        self.scale = {t.name: t.scale for t in self.c.terms}
        self.frames: list[np.ndarray] = []  # since the episode began
        self.answers: list[np.ndarray] = []
        self.draw()

    def draw(self) -> None: ...

    def begin(self) -> None:
        self.frames, self.answers = [], []

    def frame(self, frame: np.ndarray) -> np.ndarray:
        """One frame, as told."""
        return frame

    def stacked(self, frames: list[np.ndarray]) -> np.ndarray:
        h = self.c.history
        return np.concatenate([frames[max(0, len(frames) - h + i)] for i in range(h)])

    def sent(self, a: np.ndarray) -> np.ndarray:
        return a

    def __call__(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the policy answers, and what is sent."""
        frame = obs[-len(obs) // self.c.history :].copy()
        if "last_action" in self.at:  # a runtime tells a policy what it answered, whatever became of it
            frame[self.at["last_action"]] = self.answers[-1] if self.answers else 0.0
        self.frames.append(self.frame(frame).astype(np.float32))
        a = np.clip(self.policy(self.stacked(self.frames)[None])[0], -self.c.action.limit, self.c.action.limit)
        self.answers.append(a.astype(float))
        return self.answers[-1], self.sent(self.answers[-1])


class Swapped(Runtime):
    """Two columns exchanged: joints of the arm, x and y of the drone, position and angle of the cart."""

    def draw(self) -> None:
        pairs = {"arm": [("joint_pos", "joint_vel")], "hover": [("position_error", "base_lin_vel"), ("base_ang_vel",)],
                 "balance": [("cart_pole",)]}[self.c.task]  # fmt: skip
        self.terms = pairs[self.rng.integers(len(pairs))]
        self.pair = {"arm": (0, 1), "hover": (0, 1), "balance": ((0, 2), (1, 2), (1, 3))[self.rng.integers(3)]}[
            self.c.task
        ]
        if self.c.task == "hover":
            self.terms = (self.terms[self.rng.integers(len(self.terms))],)

    def frame(self, frame: np.ndarray) -> np.ndarray:
        for name in self.terms:
            i, j = (self.at[name].start + k for k in self.pair)
            frame[[i, j]] = frame[[j, i]]
        return frame


class Turned(Runtime):
    """The sign of one joint, axis or column."""

    def draw(self) -> None:
        choice = {"arm": ("joint_pos", "joint_vel"), "hover": ("base_lin_vel", "base_ang_vel", "position_error"),
                  "balance": ("cart_pole",)}[self.c.task]  # fmt: skip
        self.name = choice[self.rng.integers(len(choice))]
        at = self.at[self.name]
        self.column = at.start + int(self.rng.integers(at.stop - at.start))

    def frame(self, frame: np.ndarray) -> np.ndarray:
        frame[self.column] *= -1
        return frame


class WrongFrame(Runtime):
    """A velocity in another frame; the elbow's angle from the ground; the cart's place from another zero."""

    def draw(self) -> None:
        self.which = int(self.rng.integers(3))
        self.zero = float(self.rng.choice([-1, 1]) * self.rng.uniform(0.1, 0.3))

    def frame(self, frame: np.ndarray) -> np.ndarray:
        if self.c.task == "hover":
            R = frame[self.at["rotation"]].reshape(3, 3)
            if self.which == 0:
                frame[self.at["base_lin_vel"]] = R.T @ frame[self.at["base_lin_vel"]]
            elif self.which == 1:
                frame[self.at["base_ang_vel"]] = R @ frame[self.at["base_ang_vel"]]
            else:
                frame[self.at["rotation"]] = R.T.ravel()
        elif self.c.task == "arm":
            for name in ("joint_pos", "joint_vel"):
                frame[self.at[name].start + 1] += frame[self.at[name].start]
        else:
            frame[0] += self.zero
        return frame


class Scaled(Runtime):
    """One term told too large or too small: by a factor of 1.5 to 3, or without its contract's scale."""

    def draw(self) -> None:
        names = [n for n in self.at if n not in ("last_action", "rotation", "command")]
        self.name = names[self.rng.integers(len(names))]
        self.factor = float(self.rng.uniform(1.5, 3.0) ** self.rng.choice([-1, 1]))
        if self.scale[self.name] != 1.0 and self.rng.random() < 0.5:
            self.factor = 1 / self.scale[self.name]

    def frame(self, frame: np.ndarray) -> np.ndarray:
        frame[self.at[self.name]] *= self.factor
        return frame


class Degrees(Runtime):
    """Angles or rates in degrees."""

    def draw(self) -> None:
        choice = {"arm": ("joint_pos", "joint_vel"), "hover": ("base_ang_vel",), "balance": ("cart_pole",)}[self.c.task]
        self.name = choice[self.rng.integers(len(choice))]

    def frame(self, frame: np.ndarray) -> np.ndarray:
        at = self.at[self.name]
        clip = next(t.clip for t in self.c.terms if t.name == self.name)
        columns = np.r_[at] if self.name != "cart_pole" else np.r_[at][2:]
        frame[columns] *= 180 / np.pi
        if clip is not None:
            frame[columns] = np.clip(frame[columns], -clip * self.scale[self.name], clip * self.scale[self.name])
        return frame


class Stale(Runtime):
    """Observations one to three periods old, or, where there is a history, its frames newest first."""

    def draw(self) -> None:
        self.late = int(self.rng.integers(1, 4))
        self.reversed = self.c.history > 1 and self.rng.random() < 0.5

    def stacked(self, frames: list[np.ndarray]) -> np.ndarray:
        h = self.c.history
        if self.reversed:
            return np.concatenate([frames[max(0, len(frames) - h + i)] for i in reversed(range(h))])
        return np.concatenate([frames[max(0, len(frames) - h + i - self.late)] for i in range(h)])


class ActionScaled(Runtime):
    """All answers times 0.4 to 0.7 or 1.4 to 2.2."""

    def draw(self) -> None:
        self.factor = float(self.rng.uniform(0.4, 0.7) if self.rng.random() < 0.5 else self.rng.uniform(1.4, 2.2))

    def sent(self, a: np.ndarray) -> np.ndarray:
        return self.factor * a


class ActionsSwapped(Runtime):
    """Two answers exchanged; where there is one, its sign turned."""

    def draw(self) -> None:
        n = len(self.c.action.names)
        self.pair = self.rng.choice(n, 2, replace=False) if n > 1 else None

    def sent(self, a: np.ndarray) -> np.ndarray:
        a = a.copy()
        if self.pair is None:
            return -a
        a[self.pair] = a[self.pair[::-1]]
        return a


@dataclass(frozen=True)
class Wired(OnAction):
    """Controls as the motors get them, behind the log."""

    order: np.ndarray
    sign: np.ndarray

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return u[:, self.order] * self.sign


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
class Fault:
    """What is planted, and what the doctor should call it."""

    cause: str
    runtime: type[Runtime] = Runtime
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
        if old not in task.xml:
            raise SurefootError(f"{task.name}: found no {old!r} in its model")
        fit = lambda p: replace(p, nominal=value, low=min(p.low, value), high=max(p.high, value))  # noqa: E731
        params = Params(tuple(fit(p) if p.name == param else p for p in task.params))
        return replace(task, xml=task.xml.replace(old, new.format(value, value / 12)), params=params)

    return edit


def exchanged(task: Task, rng: np.random.Generator) -> Wired:
    """Two motors' wires; of a single motor, its poles."""
    n = len(task.action.names)
    order, sign = np.arange(n), np.ones(n)
    if n == 1:
        return Wired(order, -sign)
    pair = rng.choice(n, 2, replace=False)
    order[pair] = pair[::-1]
    return Wired(order, sign)


RUNTIME = {
    "joint swap": Fault("order", Swapped),
    "sign flip": Fault("sign", Turned),
    "wrong frame": Fault("frame", WrongFrame),
    "action scale": Fault("action scale", ActionScaled),
    "action order": Fault("action order", ActionsSwapped),
    "observation scale": Fault("observation scale", Scaled),
    "unit": Fault("unit", Degrees),
    "stale history": Fault("stale", Stale),
    "wiring": Fault("wiring", machine=term(exchanged)),
    "jitter": Fault("jitter", ingredients={"action_jitter": (0.3, 0.8)}),
    "drops": Fault("drops", ingredients={"dropped_packets": (0.2, 0.6)}),
}

# a cart that balances tells only its motor's strength over its mass: `mass` is no fault of its own there
FAULTS: dict[str, dict[str, Fault]] = {
    "arm": RUNTIME | {
        "latency": Fault("latency", ingredients={"action_latency": (0.35, 0.9)}),
        "gain": Fault("gain", ingredients={"gains": (0.4, 0.9)}),
        "mass": Fault("mass", ingredients={"mass": (0.5, 1.0)}),
        "centre of mass": Fault("centre of mass", ingredients={"com": (0.6, 1.0)}),
        "friction": Fault("friction", machine=renumbered('damping="0.3"', 'damping="{:.4f}"', (0.8, 1.6), "shoulder_damping")),
        "saturation": Fault("saturation", ingredients={"saturation": (0.6, 1.0)}),
        "stiction": Fault("stiction", ingredients={"stiction": (0.3, 0.8)}),
        "backlash": Fault("backlash", ingredients={"backlash": (0.4, 0.9)}),
        "drag": Fault("drag", machine=term(lambda t, rng: QuadraticDrag(float(rng.uniform(0.15, 0.4)), slice(0, 2)))),
        "sensor bias": Fault("sensor bias", ingredients={"sensor_bias": (0.5, 1.0)}),
        "encoder offset": Fault("encoder offset", ingredients={"encoder_offset": (0.5, 1.0)}),
        "none": Fault(""),
    },
    "hover": RUNTIME | {
        "latency": Fault("latency", ingredients={"action_latency": (0.2, 0.5)}),
        "gain": Fault("gain", ingredients={"gains": (0.15, 0.4)}),
        "mass": Fault("mass", machine=renumbered('mass="0.027"', 'mass="{:.4f}"', (0.032, 0.040))),
        "centre of mass": Fault("centre of mass", ingredients={"com": (0.1, 0.4)}),
        "motor time": Fault("motor time", machine=renumbered('dynprm=".05"', 'dynprm="{:.4f}"', (0.07, 0.1), "motor_time")),
        "saturation": Fault("saturation", machine=term(lambda t, rng: Limited(0.0, float(rng.uniform(0.075, 0.095))))),
        "imu misalignment": Fault("imu misalignment", ingredients={"imu_misalignment": (0.4, 1.0)}),
        "drag": Fault("drag", machine=term(lambda t, rng: QuadraticDrag(float(rng.uniform(0.02, 0.05)), slice(0, 3)))),
        "sensor bias": Fault("sensor bias", ingredients={"sensor_bias": (0.5, 1.0)}),
        "none": Fault(""),
    },
    "balance": RUNTIME | {
        "wrong frame": Fault("offset", WrongFrame),
        "action order": Fault("action sign", ActionsSwapped),
        "latency": Fault("latency", ingredients={"action_latency": (0.35, 0.9)}),
        "gain": Fault("gain", ingredients={"gains": (0.5, 1.0)}),
        "centre of mass": Fault("centre of mass", machine=renumbered('pos="0 0 .5"', 'pos="0 0 {:.4f}"', (0.7, 0.9))),
        "friction": Fault("friction", machine=renumbered('<joint name="slide" type="slide" axis="1 0 0"/>',
                          '<joint name="slide" type="slide" axis="1 0 0" damping="{:.4f}"/>', (1.5, 3.0), "rail_drag")),
        "saturation": Fault("saturation", machine=term(lambda t, rng: Limited(0.0, float(rng.uniform(0.4, 1.2))))),
        "stiction": Fault("stiction", ingredients={"stiction": (0.3, 0.8)}),
        "backlash": Fault("backlash", ingredients={"backlash": (0.4, 0.9)}),
        "drag": Fault("drag", machine=term(lambda t, rng: QuadraticDrag(float(rng.uniform(5.0, 10.0)), slice(0, 1)))),
        "sensor bias": Fault("sensor bias", ingredients={"sensor_bias": (0.5, 1.0)}),
        "none": Fault(""),
    },
}  # fmt: skip


def deployed(task: Task, policy: Policy, fault: Fault, seed: int, seconds: float = SECONDS) -> Log:
    """The log of a policy on a robot with this fault."""
    rng = stream(seed, f"fault {fault.cause} of {task.name}")
    strengths = {k: float(rng.uniform(*span)) for k, span in fault.ingredients.items()}
    runtime = fault.runtime(task, policy, rng)
    machine = task if fault.machine is None else fault.machine(task, rng)
    robot = Robot(machine, Reality(seed, {"sensor_noise": NOISE} | strengths), seed)
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
