"""How a policy moves a robot: torque at its limit, joint speeds, changes of action, power, cost of transport.

    share at limit = mean over time and actuators of [|force| >= 0.99 limit]     when each action arrives
    change         = sqrt(mean (a_t - a_(t-1))^2), in units of the action, between two control periods
    power          = mean sum_j |tau_j v_j|, W          cost of transport = power time / (m g distance)

An actuator on a joint is at its limit by force; any other (a rotor) by its control at an end of its range. Each number is
that of one episode; the interval is over episodes.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.env import Env
from surefoot.policy import Driver, Policy

NEAR = 0.99  # of a limit
TRAVEL = 0.5  # m: a robot that travels less has no cost of transport


@dataclass(frozen=True)
class Motion:
    """Of n episodes; None where the model does not have it."""

    at_limit: np.ndarray | None
    """(n,) share of time and actuators"""
    busiest: tuple[str, float] | None
    """the actuator most at its limit, and its share of the time"""
    peak: float | None
    """largest force / limit"""
    hinge_speed: np.ndarray | None
    """(n,) rad/s: fastest of the driven hinges"""
    slide_speed: np.ndarray | None
    """(n,) m/s: fastest of the driven slides"""
    change: np.ndarray | None
    power: np.ndarray | None
    transport: np.ndarray | None


class _Gauge:
    """Measures a robot in each control period."""

    def __init__(self, env: Env):
        self.env, layout = env, env.world.layout
        self.drives, hinges = layout.drives, dict(zip(layout.joints, layout.hinges))
        self.dofs = np.array([d.dof for d in self.drives], int)
        self.limits = np.array([np.inf if d.limit is None else d.limit * abs(d.gear) for d in self.drives])
        self.hinge = np.array([hinges[d.joint] for d in self.drives], bool)
        driven = {d.control for d in self.drives}
        ends = np.array(layout.control_limits, float).reshape(-1, 2)
        others = [i for i in range(len(ends)) if i not in driven and np.isfinite(ends[i]).all()]
        self.others, self.ends = np.array(others, int), ends[others]
        self.names = [d.actuator for d in self.drives] + [layout.actuators[i] for i in others]
        self.known = np.concatenate([np.isfinite(self.limits), np.ones(len(others), bool)])
        self.base = None if layout.base is None else layout.base[0]
        self.weight = layout.mass * float(np.linalg.norm(env.world.state.gravity[0]))

    def place(self) -> np.ndarray | None:
        """(n, 2) horizontal position of a free robot."""
        return None if self.base is None else np.array(self.env.world.state.q[:, self.base : self.base + 2])

    def read(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(n, actuators) force / limit under the next control, (n, drives) speed, (n,) power."""
        x = self.env.world.state
        x.u[:] = u
        force, v = self.env.world.actuator_force()[:, self.dofs], np.array(x.v[:, self.dofs])
        share = np.abs(force) / self.limits
        middle, half = self.ends.mean(1), np.maximum(np.ptp(self.ends, axis=1) / 2, 1e-12)
        return np.concatenate([share, np.abs(u[:, self.others] - middle) / half], 1), v, np.abs(force * v).sum(1)


def measure(policy: Policy, env: Env) -> Motion:
    """Motion in the first episode of each env."""
    gauge, n = _Gauge(env), env.n
    obs, alive, drive = env.reset(), np.ones(n, bool), Driver(policy, n)
    steps, power, way = np.zeros(n), np.zeros(n), np.zeros(n)
    at = np.zeros((n, len(gauge.names)))
    peak, fastest, change = np.zeros(len(gauge.names)), np.zeros((n, len(gauge.drives))), np.zeros(n)
    was, place = None, None
    for _ in range(env.steps):
        a = drive(obs["actor"])
        bounded = env.task.action.bounded(a)
        share, v, watts = gauge.read(np.asarray(env.control(bounded), float))
        at += alive[:, None] * (share >= NEAR)
        peak = np.maximum(peak, np.where(alive[:, None], share, 0.0).max(0))
        fastest = np.maximum(fastest, alive[:, None] * np.abs(v))
        power += alive * watts
        if was is not None:
            change += alive * np.square(bounded - was).mean(1)
        was, steps = bounded, steps + alive
        place = gauge.place()
        step = env.step(a)
        obs = step.obs
        alive = alive & ~(step.terminated | step.truncated)
        if place is not None:
            way += alive * np.linalg.norm(gauge.place() - place, axis=1)
        if not alive.any():
            break
    return _motion(gauge, steps, at / steps[:, None], peak, fastest, change, power, way)


def _motion(
    gauge: _Gauge, steps: np.ndarray, at: np.ndarray, peak: np.ndarray, fastest: np.ndarray, change: np.ndarray,
    power: np.ndarray, way: np.ndarray,
) -> Motion:  # fmt: skip
    known, dt = gauge.known, gauge.env.world.dt
    busiest = None
    if known.any():
        i = int(np.argmax(np.where(known, at.mean(0), -1.0)))
        busiest = gauge.names[i], float(at[:, i].mean())
    went = way > TRAVEL
    walks = gauge.base is not None and len(gauge.drives) and bool(went.all()) and gauge.weight > 0
    part = lambda mask: fastest[:, mask].max(1) if mask.any() else None  # noqa: E731
    return Motion(
        at[:, known].mean(1) if known.any() else None,
        busiest,
        float(peak[known].max()) if known.any() else None,
        part(gauge.hinge),
        part(~gauge.hinge),
        None if gauge.env.task.action.choices else np.sqrt(change / np.maximum(steps - 1, 1)),
        power / steps if len(gauge.drives) else None,
        power * dt / (gauge.weight * way) if walks else None,
    )
