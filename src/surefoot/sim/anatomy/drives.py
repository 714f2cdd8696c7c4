"""What drives each joint, and gains where the model has none.

    torque = clip(kp (target - q) - kd v, +-limit)          limit: of the actuator's force, its control, or the joint

A bare motor, or a joint without an actuator, gets gains by the armature I of its drive (BeyondMimic's rule):

    kp = I w^2,  kd = 2 zeta I w,  w = 2 pi 10 Hz,  zeta = 2        I = 1.5e-4 s^2 * limit where the model has none

Where that I is assumed, kp is at least what a stand needs, at a sole with the share F of the robot's weight:

    kp >= max(|r x F| / SAG, UPRIGHT F h)        r: from the joint to the sole, h: its height above it

the sag of one joint, and the stiffness that keeps an inverted pendulum upright. Joints of a leg yield in series, so that a whole
robot may still tip over with zero actions: these are gains to begin with.

Drives of walking robots have armatures of 1.0e-4 to 2.1e-4 kg m^2 for each N m of peak torque (Unitree G1, Go1, Go2).
"""

from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.sim.anatomy.feet import Leg
from surefoot.sim.anatomy.links import Links
from surefoot.sim.layout import HINGE, ON_JOINT
from surefoot.sim.model.card import actuator_kind

OMEGA, ZETA = 2 * np.pi * 10.0, 2.0
PER_TORQUE = 1.5e-4  # s^2: armature for each N m
MARGIN = 2.0  # of an assumed limit over the weight that a joint carries at its lever
LEAST = 0.02  # m, lever of a weight
ABSURD = 200.0  # times that weight: a limit beyond it is a file's way to say that there is none
SAG = 0.2  # rad
UPRIGHT = 2.0
SOFTEST, STIFFEST = 0.4, 10.0  # 1/rad: softer servos never use their torque, stiffer ones act as switches
G = 9.81


@dataclass(frozen=True)
class Drive:
    """A joint that a policy can move. Numbers at the joint, in N m/rad, N m s/rad, N m, kg m^2, rad (N/m ... of a slide)."""

    joint: str
    kp: float
    kd: float
    limit: float
    armature: float
    low: float
    high: float
    actuator: str = ""
    """the model's; empty where it has none"""
    kind: str = "none"
    """position, motor, ... as card.py names it"""
    source: str = ""
    assumed: tuple[str, ...] = ()
    """kp, kd, limit or armature that the model does not have"""


def drives(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, legs: tuple[Leg, ...]) -> list[Drive]:
    """One for each joint that an actuator moves, in the actuators' order; for every joint where there is no actuator."""
    own = _on_joints(m, tree)
    joints = list(own) or [j for j in tree.moved if not _follows(m, j)]
    return [_drive(m, j, own.get(j), _load(m, d, tree, j, legs), *_stand(m, d, tree, j, legs)) for j in joints]


def _on_joints(m: mujoco.MjModel, tree: Links) -> dict[int, int]:
    """Joint -> the actuator on it."""
    found: dict[int, int] = {}
    for i in range(m.nactuator):
        j = int(m.actuator_trnid[i, 0])
        if m.actuator_trntype[i] in ON_JOINT and j in tree.moved and m.actuator_ctrlnum[i] == 1:
            found.setdefault(j, i)
    return found


def elsewhere(m: mujoco.MjModel) -> tuple[str, ...]:
    """Actuators that are on no joint: on tendons, sites, bodies."""
    there = (i for i in range(m.nactuator) if m.actuator_trntype[i] not in ON_JOINT)
    return tuple(str(m.actuator(i).name) or f"number {i}" for i in there)


def _follows(m: mujoco.MjModel, j: int) -> bool:
    """Coupled to another joint by an equality, as the second finger of a gripper is."""
    coupled = int(mujoco.mjtEq.mjEQ_JOINT)
    return any(m.eq_type[i] == coupled and m.eq_obj1id[i] == j for i in range(m.neq))


def _drive(m: mujoco.MjModel, j: int, i: int | None, load: float, hold: float, stiff: float) -> Drive:
    weight = float(m.body_subtreemass[m.body_rootid[m.jnt_bodyid[j]]]) * G  # at a lever of 1 m
    dof, assumed, said = int(m.jnt_dofadr[j]), [], []
    limit, why = force_limit(m, j, i)
    if not 0 < limit < ABSURD * max(load, weight):
        limit, why = MARGIN * max(load, 2 * hold), "not in the model: twice the weight it carries, at its lever"
        assumed.append("limit")
    armature, damping = float(m.dof_armature[dof]), float(m.dof_damping[dof])
    kind = "none" if i is None else actuator_kind(m, i)
    if i is not None and _is_servo(m, i):
        gear = float(m.actuator_gear[i, 0])
        kp, kd = (float(-m.actuator_biasprm[i, k]) * gear**2 for k in (1, 2))
        said.append(f"gains of its {kind} actuator")
    else:
        inertia = armature
        if armature <= 1e-6:
            armature = inertia = PER_TORQUE * limit
            assumed.append("armature")
        kp = float(np.clip(inertia * OMEGA**2, SOFTEST * limit, STIFFEST * limit))
        raised = max(1.0, min(stiff, STIFFEST * limit) / kp) if "armature" in assumed else 1.0
        kp, kd = kp * raised, max(kp * 2 * ZETA / OMEGA * raised**0.5 - damping, 0.0)
        assumed += ["kp", "kd"]
        of = "its limit's usual armature" if "armature" in assumed else "its armature"
        how = "by the weight that they hold upright" if raised > 1 else f"by {of}, 10 Hz"
        said.append(f"{'no actuator' if i is None else f'a {kind}'}: gains {how}, damping ratio 2")
    low, high = m.jnt_range[j] if m.jnt_limited[j] else (-np.inf, np.inf)
    name = "" if i is None else str(m.actuator(i).name)
    kp, kd, limit, armature, low, high = (float(f"{x:.5g}") + 0.0 for x in (kp, kd, limit, armature, low, high))
    source = "; ".join([*said, f"limit {why}"])
    return Drive(str(m.joint(j).name), kp, kd, limit, armature, low, high, name, kind, source, tuple(assumed))


def _is_servo(m: mujoco.MjModel, i: int) -> bool:
    """Holds a position: F = kp (u - q) - kd v, whatever its name."""
    return bool(m.actuator_biasprm[i, 1] < 0 and np.isclose(m.actuator_biasprm[i, 1], -m.actuator_gainprm[i, 0]))


def force_limit(m: mujoco.MjModel, j: int, i: int | None) -> tuple[float, str]:
    """Largest force at a joint that the model allows, and which of its fields says so; inf where none does."""
    found = []
    if m.jnt_actfrclimited[j]:
        found.append((float(np.abs(m.jnt_actfrcrange[j]).max()), "from the joint's actuatorfrcrange"))
    if i is not None:
        gear, k = abs(float(m.actuator_gear[i, 0])), int(m.actuator_ctrladr[i])
        if m.actuator_forcelimited[i]:
            found.append((gear * float(np.abs(m.actuator_forcerange[i]).max()), "from the actuator's forcerange"))
        if m.actuator_ctrllimited[k] and actuator_kind(m, i) == "motor":
            most = float(np.abs(m.actuator_ctrlrange[k]).max() * abs(m.actuator_gainprm[i, 0]))
            found.append((gear * most, "from the motor's ctrlrange"))
    return min(found, default=(np.inf, ""))


def _stand(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, j: int, legs: tuple[Leg, ...]) -> tuple[float, float]:
    """Torque [N m] and least stiffness [N m/rad] of a leg's hinge while all legs carry the robot; 0 of other joints."""
    link = int(m.body_weldid[m.jnt_bodyid[j]])
    leg = next((x for x in legs if link in x.links), None)
    if leg is None or m.jnt_type[j] != HINGE:
        return 0.0, 0.0
    body = m.body(leg.foot.body).id
    r = d.xpos[body] + d.xmat[body].reshape(3, 3) @ leg.foot.centre - d.xanchor[j]
    F = float(m.body_subtreemass[tree.base] * G) / len(legs)
    hold = float(abs(np.cross(r, (0.0, 0.0, F)) @ d.xaxis[j]))
    level = float(np.linalg.norm(d.xaxis[j][:2]))  # about an upright axis nothing buckles
    return hold, max(hold / SAG, UPRIGHT * F * -float(r[2]) * level)


def _load(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, j: int, legs: tuple[Leg, ...]) -> float:
    """The weight a joint carries at its lever, N m (N for a slide).

    In a leg: the robot's, on half of the legs, at half the height of the joint or half of its foot's reach. Elsewhere:
    what hangs on it, stretched out.
    """
    link = int(m.body_weldid[m.jnt_bodyid[j]])
    leg = next((x for x in legs if link in x.links), None)
    hangs, at = float(m.body_subtreemass[link] * G), d.xanchor[j]
    if leg is not None:
        weight, body = float(m.body_subtreemass[tree.base] * G) / max(1.0, len(legs) / 2), m.body(leg.foot.body).id
        sole = np.array(leg.foot.points) @ d.xmat[body].reshape(3, 3).T + d.xpos[body]
        lever = max(
            LEAST, 0.5 * float(at[2] - sole[:, 2].min()), 0.5 * float(np.linalg.norm((sole - at)[:, :2], axis=1).max())
        )
        return weight * (lever if m.jnt_type[j] == HINGE else 1.0)
    links = tree.below(link)
    beyond = [d.xpos[b] for x in links for b in tree.bodies(x)] + [d.geom_xpos[g] for x in links for g in tree.geoms(x)]
    lever = max([LEAST, *(float(np.linalg.norm(p - at)) for p in beyond)])
    return hangs * (lever if m.jnt_type[j] == HINGE else 1.0)
