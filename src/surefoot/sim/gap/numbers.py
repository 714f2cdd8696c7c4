"""Wrong numbers: the model has the right shape, and quantities that are not the machine's.

A factor is drawn for each object: k^(+-z), 0.5 < z < 1, where k is the ingredient's worst factor to the power s.
"""

import mujoco
import numpy as np

from surefoot.sim.gap.recipe import Ingredient, Making

MASS, INERTIA, FRICTION, GAIN, GRAVITY = 1.5, 1.6, 1.8, 1.5, 1.1  # worst factors
LEVER = 0.3  # of a body's size: how far its centre of mass may be off
SLIPPERY = 8.0  # friction of dry ground over that of ice
SOFT = 4.0  # worst factor of the contact's time constant


def mass(make: Making, s: float) -> None:
    """Each body's mass, its inertia with it."""
    bodies, factor = make.plain.moving, make.off(len(make.plain.moving), MASS**s)
    m = make.plain.model
    for b, f in zip(bodies, factor):
        make.tell(f"mass of {m.body(b).name}", m.body_mass[b] * f, "kg", m.body_mass[b])

    def tune(m: mujoco.MjModel) -> None:
        m.body_mass[bodies] *= factor
        m.body_inertia[bodies] *= factor[:, None]

    make.tunes.append(tune)


def com(make: Making, s: float) -> None:
    """Each body's centre of mass, by a share of the half-widths of the box that has its inertia."""
    m, bodies = make.plain.model, make.plain.moving
    for body in make.spec.bodies:
        body.simple = 0  # the engine's shortcut for bodies whose centre of mass is on the axis
    spread = m.body_inertia[bodies].sum(1, keepdims=True) - 2 * m.body_inertia[bodies]
    half = np.sqrt(np.maximum(1.5 * spread / m.body_mass[bodies][:, None], 0.0))
    way = make.rng.standard_normal((len(bodies), 3))
    shift = s * LEVER * half * way / np.linalg.norm(way, axis=1, keepdims=True)
    for b, by in zip(bodies, shift):
        make.tell(f"centre of mass of {m.body(b).name}", m.body_ipos[b] + by, "m", m.body_ipos[b])

    def tune(m: mujoco.MjModel) -> None:
        m.body_ipos[bodies] += shift

    make.tunes.append(tune)


def inertia(make: Making, s: float) -> None:
    """Each body's inertia at the same mass."""
    bodies, factor = make.plain.moving, make.off(len(make.plain.moving), INERTIA**s)
    m = make.plain.model
    for b, f in zip(bodies, factor):
        make.tell(f"inertia of {m.body(b).name}", m.body_inertia[b] * f, "kg m^2", m.body_inertia[b])

    def tune(m: mujoco.MjModel) -> None:
        m.body_inertia[bodies] *= factor[:, None]

    make.tunes.append(tune)


def contact_friction(make: Making, s: float) -> None:
    """Sliding friction of each geom that may touch the ground, and of the ground."""
    geoms, factor = make.plain.touching, make.off(len(make.plain.touching), FRICTION**s)
    _friction(make, factor)

    def tune(m: mujoco.MjModel) -> None:
        m.geom_friction[geoms, 0] *= factor

    make.tunes.append(tune)


def _friction(make: Making, factor: np.ndarray) -> None:
    own = make.plain.model.geom_friction[:, 0]
    for g, f in zip(make.plain.touching, factor):
        make.tell(f"friction of {make.plain.geom(g)}", own[g] * f, "", own[g])


def slippery_ground(make: Making, s: float) -> None:
    """Sliding friction of all that meets at the ground falls to 8^-s of what it was."""
    geoms = make.plain.touching
    _friction(make, np.full(len(geoms), SLIPPERY**-s))

    def tune(m: mujoco.MjModel) -> None:
        m.geom_friction[geoms, 0] *= SLIPPERY**-s

    make.tunes.append(tune)


def soft_ground(make: Making, s: float) -> None:
    """Contacts give way: their time constant grows to 4^s of what it was, and the depth under a load with its square."""
    geoms = make.plain.touching
    make.tell("factor of contacts' time constant", SOFT**s)

    def tune(m: mujoco.MjModel) -> None:
        for g in geoms:
            if m.geom_solref[g, 0] > 0:
                m.geom_solref[g, 0] *= SOFT**s
            else:  # given as minus stiffness and minus damping
                m.geom_solref[g] *= (SOFT ** (-2 * s), SOFT**-s)

    make.tunes.append(tune)


def gains(make: Making, s: float) -> None:
    """kp and kd of servos, each by itself; the whole force of other actuators."""
    m = make.plain.model
    for i, actuator in enumerate(make.spec.actuators):
        factor, other = make.off(2, GAIN**s)
        kp, kd = m.actuator_gainprm[i, 0], -m.actuator_biasprm[i, 2]
        if m.actuator_biasprm[i, 1] < 0:
            scale = np.array([1.0, factor, other])
            make.tell(f"kp of {actuator.name}", kp * factor, "", kp)
            make.tell(f"kd of {actuator.name}", kd * other, "", kd)
        else:
            scale = np.full(3, factor)
            make.tell(f"gain of {actuator.name}", kp * factor, "", kp)
        gain, bias = np.array(actuator.gainprm), np.array(actuator.biasprm)
        gain[:3] *= factor
        bias[:3] *= scale
        actuator.gainprm, actuator.biasprm = gain, bias


def gravity(make: Making, s: float) -> None:
    """Strength of gravity."""
    factor = float(make.off(1, GRAVITY**s)[0])
    own = make.plain.model.opt.gravity.copy()
    make.tell("gravity", own * factor, "m/s^2", own)

    def tune(m: mujoco.MjModel) -> None:
        m.opt.gravity[:] *= factor

    make.tunes.append(tune)


NUMBERS = (
    Ingredient("mass", "masses of bodies, inertia with them, up to x or / 1.5", "moving bodies", lambda p: len(p.moving) > 0, mass),
    Ingredient("com", "centres of mass, up to 0.3 of a body's half-width off", "moving bodies", lambda p: len(p.moving) > 0, com),
    Ingredient("inertia", "inertia at the same mass, up to x or / 1.6", "moving bodies", lambda p: len(p.moving) > 0, inertia),
    Ingredient("contact_friction", "friction of each surface, up to x or / 1.8", "contact with the ground", lambda p: len(p.touching) > 0, contact_friction),
    Ingredient("gains", "servos' kp and kd, or motors' strength, up to x or / 1.5", "actuators", lambda p: p.model.nu > 0, gains),
    Ingredient("gravity", "strength of gravity, up to x or / 1.1", "gravity", lambda p: bool(np.any(p.model.opt.gravity)), gravity),
    Ingredient("soft_ground", "contacts give way, down to 1/16 of the stiffness", "contact with the ground", lambda p: len(p.touching) > 0, soft_ground),
    Ingredient("slippery_ground", "friction down to an eighth", "contact with the ground", lambda p: len(p.touching) > 0, slippery_ground),
)  # fmt: skip
