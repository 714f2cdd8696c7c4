"""One control period: readings -> observation -> action -> control -> command, by the code that training ran.

obs = group(readings, command, last action, time)      a = policy(obs)      control = offset + scale clip(a)      limiter
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from surefoot.contract import Contract
from surefoot.deploy.limits import Limits
from surefoot.deploy.links import Command
from surefoot.deploy.runtime.limiter import limit
from surefoot.errors import SurefootError, unknown
from surefoot.observation import Columns, Live
from surefoot.policy import Driver, Policy
from surefoot.robot import order

DECAY = 0.8  # of stiffness, or of a control, in each period without new readings
GRAVITY = np.array([[0.0, 0.0, -9.81]])
OWN = ("action", "command", "time", "phase", "gravity")  # readings that the runtime makes itself
NONE, FIRST = np.zeros(0, int), np.zeros(1, int)  # rows that begin an episode


class Period(NamedTuple):
    """What one control period made of its readings."""

    obs: np.ndarray  # (obs_dim,)
    out: np.ndarray  # (outputs,) of the policy, before it is bounded
    action: np.ndarray  # (na,) bounded
    control: np.ndarray  # (na,) as asked
    command: Command  # as limited, in the robot's order
    limited: bool
    sound: bool


class Controller:
    """A policy on one robot. `parts` are the names of the robot's numbers, `control` its actuators in their order."""

    def __init__(self, policy: Policy, limits: Limits, parts: Mapping[str, tuple[str, ...]]):
        self.contract, self.limits = policy.contract, limits
        c = self.contract
        self.driver, self.observe = Driver(policy, 1), Live(c.observation)
        self.gains = np.array([c.kp, c.kd]) if c.kp else np.zeros((2, len(c.action.names)))
        self.needs, self.places = needs(c), _places(c, parts)
        self.robot_order = _robot_order(c, tuple(parts.get("control", ())))
        self.time = np.zeros((1, 1))
        # of one robot, as rows of one; a reference motion begins with the episode
        self.values = {"gravity": GRAVITY, "time": self.time, "phase": self.time}
        self.readings = Columns(self.values, {**parts, "action": c.action.names})
        self.begin(self.start())

    def start(self) -> np.ndarray:
        """The target before the first action: the default pose, or no control."""
        return np.clip(self.contract.action.offset, self.limits.low, self.limits.high)

    def begin(self, target: np.ndarray) -> None:
        """An episode begins; `target` was sent last."""
        self.last, self.periods, self.sent = np.array(target, float), 0, 0
        self.values["action"] = np.zeros((1, len(self.contract.action.names)))
        self.driver.begin(np.ones(1, bool))

    def measured(self, readings: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(na,) position and speed of each action's joint; zeros where actions move no joints."""
        if self.places is None:
            return np.zeros_like(self.last), np.zeros_like(self.last)
        q, v = self.places
        return readings["joint_pos"][q], readings["joint_vel"][v]

    def step(self, readings: Mapping[str, np.ndarray], command: np.ndarray) -> Period:
        """One period of an episode, `command` being what is asked of the policy."""
        c, own = self.contract, self.values
        for name in self.needs:
            own[name] = readings[name][None]
        own["command"] = command[None]
        self.time[0, 0] = self.periods / c.rate
        obs = self.observe(self.readings, NONE if self.periods else FIRST)
        out = self.driver(obs)
        action = c.action.bounded(out)
        control = c.action.control(action)[0]
        sent, limited, sound = self.towards(control, readings)
        if sound:
            own["action"] = action
        self.periods += 1
        return Period(obs[0], np.asarray(out[0], float), action[0], control, sent, limited, sound)

    def towards(
        self, control: np.ndarray, readings: Mapping[str, np.ndarray], starting: bool = False
    ) -> tuple[Command, bool, bool]:
        """The command for these controls, whether a limit was active, and whether all numbers are finite. `starting`: of the soft start."""
        q, v = self.measured(readings)
        made = limit(self.limits, control, q, v, self.last, self.gains, 1 / self.contract.rate)
        self.last = made.target
        self.sent += 1
        at, servo = self.robot_order, bool(self.contract.kp)
        target, kp, kd = (x if at is None else x[at] for x in (made.target, made.kp, made.kd))
        self.command = Command(self.sent, "servo" if servo else "control", target, kp, kd, starting)
        return self.command, bool(made.changed), bool(made.sound)

    def hold(self) -> Command:
        """A period without new readings: the last command again, its stiffness or its torque decayed; time goes on."""
        self.periods += 1
        self.sent += 1
        was, at = self.command, self.robot_order
        if was.mode == "servo":
            self.command = Command(self.sent, "servo", was.target, DECAY * was.kp, was.kd)
        else:
            self.last = np.where(self.limits.gear == 0, 1.0, DECAY) * self.last  # a rotor that carries a robot goes on
            self.command = Command(self.sent, was.mode, self.last if at is None else self.last[at], was.kp, was.kd)
        return self.command

    def damping(self) -> Command:
        """All servos without stiffness."""
        self.sent += 1
        kd = self.limits.damping if self.robot_order is None else self.limits.damping[self.robot_order]
        return Command(self.sent, "damping", np.zeros_like(kd), np.zeros_like(kd), kd)


def needs(contract: Contract) -> list[str]:
    """Readings that a robot must have for a policy; refused where a term follows from no reading."""
    lost = [t.name for t in contract.terms if t.formula is None]
    if lost:
        raise SurefootError(f"observation: {', '.join(lost)}: no robot measures it; expected terms with a formula")
    found = [*contract.observation.needs, *(("joint_pos", "joint_vel") if contract.joints else ())]
    return [n for n in dict.fromkeys(found) if n not in OWN]


def _places(contract: Contract, parts: Mapping[str, tuple[str, ...]]) -> tuple[Any, Any] | None:
    """Where each action's joint is among the joints measured."""
    if not contract.joints:
        return None
    found = [
        order(tuple(parts.get(name, ())), contract.joints, f"robot: {name}") for name in ("joint_pos", "joint_vel")
    ]
    return tuple(slice(None) if at is None else at for at in found)  # type: ignore[return-value]


def _robot_order(contract: Contract, actuators: tuple[str, ...]) -> np.ndarray | None:
    """Which action drives each of the robot's actuators; None where the order is the same."""
    names = contract.action.names
    for name in names:
        if name not in actuators:
            raise unknown("actuator", name, actuators, "robot: control")
    rest = [name for name in actuators if name not in names]
    if rest:
        raise SurefootError(f"robot: control: {', '.join(rest)}: an actuator that the policy does not drive")
    return order(names, actuators, "robot: control")
