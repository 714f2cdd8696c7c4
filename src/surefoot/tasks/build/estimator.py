"""State estimators for robots of a builder: what is measured, kinematics from the model, noise as the sensors of a task have it."""

from collections.abc import Sequence

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.estimate.abstract import Estimator
from surefoot.estimate.invariant import InvariantFilter
from surefoot.estimate.kinds import terms_of
from surefoot.estimate.legs import Leg
from surefoot.estimate.settings import Contact, Delay, Deviations, Start
from surefoot.observation import ObsTerm
from surefoot.sim.anatomy.links import Links, posed
from surefoot.sim.model import edits
from surefoot.sim.model.edits import Timing
from surefoot.tasks.build.legged import Body
from surefoot.tasks.terms import observations as obs

LATE = 0.5  # of a control period: the longest latency of sensors that a belief has


def legged_filter(body: Body, timing: Timing, contacts: str = "foot_force") -> InvariantFilter:
    """Of a robot with legs; `contacts`: what tells which feet bear, foot_force or joint_torque."""
    m, imu = body.model, body.imu
    weight = float(m.body_mass.sum()) * 9.81
    share = weight / len(body.legs.feet)
    return InvariantFilter(
        dt=timing.period,
        inputs=(
            obs.base_ang_vel(imu), obs.base_lin_acc(), obs.joint_pos(body.joints), obs.joint_vel(body.joints),
            obs.foot_force(len(body.legs.feet), 0.01 * weight) if contacts == "foot_force" else obs.joint_torque(body.joints, 0.002 * weight),
        ),
        legs=tuple(_leg(body, foot.name, foot.body, edits.sole(foot), foot.radius) for foot in body.legs.feet),
        contact=Contact(0.15 * share, 0.04 * share),
        delay=_delay(timing),
        base=_base(body, imu),
    )  # fmt: skip


def flight_filter(rates: ObsTerm, at: ObsTerm, turned: ObsTerm, timing: Timing) -> InvariantFilter:
    """Of a multirotor with an IMU in its base's origin, whose place and attitude others measure."""
    sd = Deviations(gyro=rates.noise, accel=0.5, position=at.noise, attitude=turned.noise)
    return InvariantFilter(timing.period, (rates, obs.base_lin_acc(), at, turned), sd=sd, start=Start(speed=1.0))


def with_sensors(spec: mujoco.MjSpec) -> None:
    """What the filter reads beside gyro and encoders."""
    edits.add_accelerometer(spec)
    edits.add_torque_sensors(spec)


def estimated(estimator: Estimator | None, names: Sequence[str]) -> tuple[ObsTerm, ...]:
    """Observation terms of an estimator, by name."""
    known = {} if estimator is None else terms_of(estimator)
    for name in names:
        if name not in known:
            raise unknown("estimate", name, known)
    return tuple(known[name] for name in names)


def _delay(timing: Timing) -> Delay:
    """Sensors tell the state one engine step ago, and any latency up to the belief's longest."""
    longest = LATE * timing.period
    return Delay(timing.timestep + longest / 2, longest / np.sqrt(12))


def _leg(body: Body, name: str, on: str, site: str, radius: float) -> Leg:
    """Joints that the policy moves between base and foot; screws where they are at 0, in the frame of the IMU."""
    m, tree = body.model, Links(body.model)
    q = body.q.copy()
    q[body.joints.q] = 0.0
    d = posed(m, q)
    chain = [j for link in tree.path(int(m.body_weldid[m.body(on).id])) for j in tree.joints(link)]
    own = [j for j in chain if m.joint(j).name in body.joints.names]
    at = d.site(body.imu)
    R, p = at.xmat.reshape(3, 3), at.xpos
    rows = [
        [*(d.xanchor[j] - p) @ R, *d.xaxis[j] @ R, float(m.jnt_type[j] == mujoco.mjtJoint.mjJNT_SLIDE)] for j in own
    ]
    foot = (d.site(site).xpos - p) @ R
    round_ = len([f for f in body.legs.feet if f.name == name and len(f.points) == 1]) == 1
    links = tuple(np.concatenate([*rows, foot]).round(9).tolist())
    return Leg(name, tuple(m.joint(j).name for j in own), links, radius if round_ else 0.0)


def _base(body: Body, imu: str) -> tuple[float, float, float]:
    d = body.data
    at, base = d.site(imu), d.xpos[body.model.body(body.legs.base).id]
    R = at.xmat.reshape(3, 3)
    if not np.allclose(R, d.xmat[body.model.body(body.legs.base).id].reshape(3, 3), atol=1e-6):
        raise SurefootError(f"imu {imu}: expected a site whose axes are those of {body.legs.base}, found it turned")
    x, y, z = ((base - at.xpos) @ R).round(9).tolist()
    return (x, y, z)
