"""Model-reference adaptive control: what a policy asks for, plus the torque that makes the robot answer as its model would.

    plant        M(q) q'' + c(q, q') + Phi(q, q', q'') theta = tau           theta (p,): a load, friction, a bias; unknown
    control      tau = tau_policy + Phi theta^                              tau_policy = G u - Kp q - Kd q' of a servo, G u of a motor
    reference    v^+ = v_model(x, tau_policy) + rho (v^ - v),    rho = exp(-kappa dt)        the model, driven by the policy alone
    adaptation   theta^+ = Proj(theta^ - dt Gamma Phi' e),       e = v - v^

Then e' = -kappa e + M^-1 Phi (theta^ - theta), and V = e' M e / 2 + |theta^ - theta|^2 / (2 Gamma) falls: V' = -kappa e' M e,
where M is constant. The reference is the robot that the policy was made for, so any policy can wear this. Proj keeps each
parameter within its bounds whatever the noise; adaptation stops while an actuator is at its limit, and inside a dead zone of e.

Phi has, for each joint, a constant torque and viscous friction, and one column for a mass at the tip where that is given.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from surefoot.contract import Contract
from surefoot.control.dynamics import Affine, Joints, Link, ahead, check_substeps, times
from surefoot.control.observed import Observed, ordered, parted, prefixed
from surefoot.errors import SurefootError
from surefoot.policy import Policy, PolicyState
from surefoot.robot import order

OWN = "adaptive."  # names of its own in a policy's state


@dataclass(frozen=True)
class Adaptive:
    """The adaptive law of some joints, at any rate: 1 kHz where torques are sent, or the policy's own through a servo."""

    joints: Joints
    tip: tuple[float, ...] = ()
    """m: where on the last link a mass may be, world frame at the zero pose; empty: none is expected"""
    gain: tuple[float, float, float] = (20.0, 2.0, 20.0)
    """Gamma of constant torques, of viscous friction and of the mass"""
    bound: tuple[float, float, float] = (5.0, 1.0, 5.0)
    """largest constant torque N m, friction N m s/rad and mass kg"""
    kappa: float = 20.0
    """1/s: how quickly the reference returns to the robot"""
    dead: float = 0.0
    """rad/s: errors below it teach nothing; above the noise of the speeds"""
    substeps: int = 1
    """steps of the model in one period"""

    def __post_init__(self) -> None:
        if self.tip and (len(self.tip) != 3 or not self.joints.links):
            raise SurefootError("adaptive: tip: expected 3 numbers, and joints with links")
        check_substeps(self.substeps, "adaptive")
        if min(*self.gain, *self.bound, self.dead) < 0 or not self.kappa > 0:
            raise SurefootError("adaptive: expected gain, bound and dead >= 0 and kappa > 0")

    @cached_property
    def loaded(self) -> Joints:
        """The same joints with 1 kg at the tip."""
        last = self.joints.links[-1]
        return replace(self.joints, links=(*self.joints.links[:-1], with_mass(last, np.array(self.tip), 1.0)))

    @property
    def width(self) -> int:
        return 2 * len(self.joints.names) + bool(self.tip)

    @cached_property
    def gains(self) -> tuple[np.ndarray, np.ndarray]:
        """Gamma and bound, (p,) each."""
        n = len(self.joints.names)
        counts = [n, n, int(bool(self.tip))]
        return np.repeat(self.gain, counts), np.repeat(self.bound, counts)

    def init(self, n: int) -> PolicyState:
        """Nothing is known of the load; the reference begins at the first reading."""
        return {"theta": np.zeros((n, self.width)), "reference": np.full((n, len(self.joints.names)), np.nan)}

    def features(self, q: np.ndarray, v: np.ndarray, a: np.ndarray, x: Affine) -> np.ndarray:
        """Phi (k, n, p) at accelerations a."""
        k, n = q.shape
        Phi = np.zeros((k, n, self.width))
        at = np.arange(n)
        Phi[:, at, at], Phi[:, at, n + at] = 1.0, v
        if self.tip:
            Phi[:, :, -1] = self.loaded.inverse(q, v, a) - times(x.M - self.joints.rotor, a) - x.c
        return Phi

    def step(
        self, s: PolicyState, q: np.ndarray, v: np.ndarray, u: np.ndarray, dt: float
    ) -> tuple[PolicyState, np.ndarray]:
        """One period: state, and (k, n) torques to add to those that the controls u (k, n) of the policy give."""
        J, theta = self.joints, s["theta"]
        G, Kp, Kd, effort = J.arrays
        e = np.where(np.isnan(s["reference"]), 0.0, v - s["reference"])
        full = G * u - Kp * q - Kd * v
        asked = np.clip(full, -effort, effort)  # what the actuator gives of it
        x = ahead(J, q, v, dt, self.substeps)
        model = x.v0 + times(x.vu, u + (asked - full) / G)
        Phi = self.features(q, v, (model - v) / dt, x)
        learns = (np.abs(asked + times(Phi, theta)) < effort).all(1) & (np.abs(e).max(1) > self.dead)
        Gamma, bound = self.gains
        moved = theta - dt * Gamma * times(np.swapaxes(Phi, 1, 2), e)
        learns &= np.isfinite(moved).all(1)
        theta = np.where(learns[:, None], np.clip(moved, -bound, bound), theta)
        add = np.clip(times(Phi, theta), -effort - asked, effort - asked)
        add = np.where(np.isfinite(add), add, 0.0)
        return {"theta": theta, "reference": model - np.exp(-self.kappa * dt) * e}, add


def with_mass(link: Link, at: np.ndarray, mass: float) -> Link:
    """The link with a point mass fixed to it."""
    total = link.mass + mass
    com = (link.mass * np.array(link.com) + mass * at) / total
    tensor = link.tensor
    for m, r in ((link.mass, np.array(link.com) - com), (mass, at - com)):
        tensor = tensor + m * (r @ r * np.eye(3) - np.outer(r, r))
    six = (*np.diag(tensor).tolist(), tensor[0, 1].item(), tensor[0, 2].item(), tensor[1, 2].item())
    return replace(link, mass=total, com=tuple(com.tolist()), inertia=six)


@dataclass(frozen=True)
class Adapted(Policy):
    """A policy that wears the adaptive law: its controls are moved by what gives the torque, du = tau / G."""

    contract: Contract
    policy: Policy
    law: Adaptive

    def __post_init__(self) -> None:
        Observed(self.contract).check(("joint_pos", "joint_vel"), "adaptive")
        order(self.law.joints.names, self._names, "adaptive")
        if self.contract.action.choices:
            raise SurefootError("adaptive: expected continuous actions, found choices")

    @property
    def _names(self) -> tuple[str, ...]:
        return self.contract.joints or self.contract.action.names

    @cached_property
    def observed(self) -> Observed:
        return Observed(self.contract)

    def init(self, n: int) -> PolicyState:
        return {**self.policy.init(n), **prefixed(OWN, self.law.init(n))}

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        own, rest = parted(OWN, s)
        inner, action = self.policy.step(rest, obs)
        law, joints, readings = self.contract.action, self.law.joints, self.observed(obs)
        q, v = (ordered(readings, name, joints.names) for name in ("joint_pos", "joint_vel"))
        at, back = order(self._names, joints.names), order(joints.names, self._names)
        control = law.control(law.bounded(action))
        u = control if at is None else control[:, at]
        own, add = self.law.step(own, q, v, u, 1 / self.contract.rate)
        du = add / np.array(joints.gain)
        out = law.bounded((control + (du if back is None else du[:, back]) - law.offset) / law.scale)
        return {**inner, **prefixed(OWN, own)}, out.astype(np.float32)
