"""Wrong parameters: the model has the right structure and wrong values.

A factor is drawn for each object: k^(+-z), 0.5 < z < 1, where k is the ingredient's worst factor to the power s.
"""

import mujoco
import numpy as np

from surefoot.sim.gap.recipe import Ingredient, Recipe

MASS, INERTIA, FRICTION, GAIN, GRAVITY = 1.5, 1.6, 1.8, 1.5, 1.1  # worst factors
LEVER = 0.3  # of a body's size: largest error of its centre of mass
SLIPPERY = 8.0  # friction of dry ground divided by that of ice
SOFT = 4.0  # worst factor of the contact's time constant


def _scale(
    recipe: Recipe, what: str, unit: str, fields: tuple[str, ...], rows: np.ndarray, factors: np.ndarray
) -> None:
    """Multiply rows of model fields by their factors; record the first field under the names of its bodies."""
    m, own = recipe.plain.model, getattr(recipe.plain.model, fields[0])
    for i, f in zip(rows, factors):
        recipe.record(f"{what} of {m.body(i).name}", own[i] * f, unit, own[i])

    def tune(m: mujoco.MjModel) -> None:
        for field in fields:
            values = getattr(m, field)
            values[rows] *= factors.reshape(-1, *[1] * (values.ndim - 1))

    recipe.tunes.append(tune)


def mass(recipe: Recipe, s: float) -> None:
    """Each body's mass, its inertia with it."""
    bodies = recipe.plain.moving
    _scale(recipe, "mass", "kg", ("body_mass", "body_inertia"), bodies, recipe.factors(len(bodies), MASS**s))


def inertia(recipe: Recipe, s: float) -> None:
    """Each body's inertia at the same mass."""
    bodies = recipe.plain.moving
    _scale(recipe, "inertia", "kg m^2", ("body_inertia",), bodies, recipe.factors(len(bodies), INERTIA**s))


def com(recipe: Recipe, s: float) -> None:
    """Each body's centre of mass, by a fraction of the half-widths of the box with its inertia."""
    m, bodies = recipe.plain.model, recipe.plain.moving
    for body in recipe.spec.bodies:
        body.simple = 0  # the engine's shortcut for bodies whose centre of mass is on the axis
    spread = m.body_inertia[bodies].sum(1, keepdims=True) - 2 * m.body_inertia[bodies]
    half = np.sqrt(np.maximum(1.5 * spread / m.body_mass[bodies][:, None], 0.0))
    direction = recipe.rng.standard_normal((len(bodies), 3))
    shift = s * LEVER * half * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    for b, by in zip(bodies, shift):
        recipe.record(f"centre of mass of {m.body(b).name}", m.body_ipos[b] + by, "m", m.body_ipos[b])

    def tune(m: mujoco.MjModel) -> None:
        m.body_ipos[bodies] += shift

    recipe.tunes.append(tune)


def contact_friction(recipe: Recipe, s: float) -> None:
    """Sliding friction of each geom that may touch the ground, and of the ground."""
    _friction(recipe, recipe.factors(len(recipe.plain.touching), FRICTION**s))


def slippery_ground(recipe: Recipe, s: float) -> None:
    """Sliding friction of the same geoms falls to 8^-s of its value."""
    _friction(recipe, np.full(len(recipe.plain.touching), SLIPPERY**-s))


def _friction(recipe: Recipe, factors: np.ndarray) -> None:
    """A contact pair has its own friction, with the factor of its geom that moves."""
    plain, geoms = recipe.plain, recipe.plain.touching
    of, paired = dict(zip(geoms.tolist(), factors)), {g: p for p, g in plain.ground_pairs.items()}
    own = {g: float(plain.model.pair_friction[paired[g], 0] if g in paired else plain.model.geom_friction[g, 0]) for g in of}  # fmt: skip
    for g, f in of.items():
        recipe.record(f"friction of {plain.geom(g)}", own[g] * f, "", own[g])

    def tune(m: mujoco.MjModel) -> None:
        m.geom_friction[geoms, 0] *= factors
        for p, g in plain.ground_pairs.items():
            m.pair_friction[p, :2] *= of[g]

    recipe.tunes.append(tune)


def soft_ground(recipe: Recipe, s: float) -> None:
    """Contacts yield: their time constant grows by 4^s, and the depth under a load by its square."""
    geoms, pairs = recipe.plain.touching, recipe.plain.ground_pairs
    recipe.record("factor of contacts' time constant", SOFT**s)

    def tune(m: mujoco.MjModel) -> None:
        for field, which in ((m.geom_solref, geoms), (m.pair_solref, pairs)):
            for i in which:
                if field[i, 0] > 0:
                    field[i, 0] *= SOFT**s
                else:  # solref is minus stiffness and minus damping
                    field[i] *= (SOFT ** (-2 * s), SOFT**-s)

    recipe.tunes.append(tune)


def gains(recipe: Recipe, s: float) -> None:
    """kp and kd of servos, drawn separately; the gain of other actuators."""
    m = recipe.plain.model
    for i, actuator in enumerate(recipe.spec.actuators):
        factor, other = recipe.factors(2, GAIN**s)
        kp, kd = m.actuator_gainprm[i, 0], -m.actuator_biasprm[i, 2]
        if m.actuator_biasprm[i, 1] < 0:
            scale = np.array([1.0, factor, other])
            recipe.record(f"kp of {actuator.name}", kp * factor, "", kp)
            recipe.record(f"kd of {actuator.name}", kd * other, "", kd)
        else:
            scale = np.full(3, factor)
            recipe.record(f"gain of {actuator.name}", kp * factor, "", kp)
        gain, bias = np.array(actuator.gainprm), np.array(actuator.biasprm)
        gain[:3] *= factor
        bias[:3] *= scale
        actuator.gainprm, actuator.biasprm = gain, bias


def gravity(recipe: Recipe, s: float) -> None:
    """Strength of gravity."""
    factor = float(recipe.factors(1, GRAVITY**s)[0])
    own = recipe.plain.model.opt.gravity.copy()
    recipe.record("gravity", own * factor, "m/s^2", own)

    def tune(m: mujoco.MjModel) -> None:
        m.opt.gravity[:] *= factor

    recipe.tunes.append(tune)


NUMBERS = (
    Ingredient("mass", "masses of bodies, inertia with them, up to x or / 1.5", "moving bodies", lambda p: len(p.moving) > 0, mass),
    Ingredient("com", "centres of mass, up to 0.3 of a body's half-width off", "moving bodies", lambda p: len(p.moving) > 0, com),
    Ingredient("inertia", "inertia at the same mass, up to x or / 1.6", "moving bodies", lambda p: len(p.moving) > 0, inertia),
    Ingredient("contact_friction", "friction of each surface, up to x or / 1.8", "contact with the ground", lambda p: len(p.touching) > 0, contact_friction),
    Ingredient("gains", "servos' kp and kd, or motors' strength, up to x or / 1.5", "actuators", lambda p: p.model.nu > 0, gains),
    Ingredient("gravity", "strength of gravity, up to x or / 1.1", "gravity", lambda p: bool(np.any(p.model.opt.gravity)), gravity),
    Ingredient("soft_ground", "contacts are softer, down to 1/16 of the stiffness", "contact with the ground", lambda p: len(p.touching) > 0, soft_ground),
    Ingredient("slippery_ground", "friction down to an eighth", "contact with the ground", lambda p: len(p.touching) > 0, slippery_ground),
)  # fmt: skip
