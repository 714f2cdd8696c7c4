"""Air: drag and wind are the engine's fluid model; ground effect is a Term.

drag of a body's inertia box along its axis i:  -2 rho r_j r_k |v_i| v_i,   v: velocity against the wind
ground effect (Cheeseman and Bennett):  T / T_free = 1 / (1 - (R / 4z)^2),   z: height of the rotor, R: its radius
"""

from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.rotation import matrix
from surefoot.sim.gap.recipe import Ingredient, Recipe
from surefoot.world import Chance, OnBody, State

AIR, BLUFF = 1.2, 10.0  # kg/m^3; a hull and its rotors have up to ten times the drag of their inertia box
WIND = 8.0  # m/s at s = 1
CUSHION = 0.15  # of the thrust, where the flyer rests, at s = 1
LOWEST = 0.5  # radii: the law is not valid below


def air_drag(recipe: Recipe, s: float) -> None:
    own = recipe.plain.model.opt.density
    recipe.record("density of the air", max(own, s * BLUFF * AIR), "kg/m^3", own)

    def tune(m: mujoco.MjModel) -> None:
        m.opt.density = max(m.opt.density, s * BLUFF * AIR)

    recipe.tunes.append(tune)


def wind(recipe: Recipe, s: float) -> None:
    """A steady horizontal wind; the air needs a density for it."""
    way = recipe.rng.uniform(-np.pi, np.pi)
    recipe.record("wind along x and y", [s * WIND * np.cos(way), s * WIND * np.sin(way)], "m/s")

    def tune(m: mujoco.MjModel) -> None:
        m.opt.density = max(m.opt.density, AIR)
        m.opt.wind[:2] += s * WIND * np.array([np.cos(way), np.sin(way)])

    recipe.tunes.append(tune)


def ground_effect(recipe: Recipe, s: float) -> None:
    """The ground is so close below the flyer's start that thrust is 1 + 0.15 s there."""
    plain = recipe.plain
    m, d, rotors = plain.model, plain.data, plain.rotors
    sites = m.actuator_trnid[rotors, 0]
    arms = m.site_pos[sites]  # in the body's frame, from its origin
    radius = float(np.linalg.norm(arms[:, :2], axis=1).max() + m.site_size[sites, 0].max())
    below = radius / 4 / np.sqrt(1 - 1 / (1 + CUSHION * s))
    body = int(m.site_bodyid[sites[0]])
    ground = float(d.site_xpos[sites, 2].mean() - below)
    recipe.record("height of the ground", ground, "m")
    gain = m.actuator_gainprm[rotors, 0] * m.actuator_gear[rotors, 2]
    term = GroundEffect(m.body(body).name, int(m.jnt_qposadr[plain.free or 0]), arms, m.body_ipos[body].copy(), radius, ground,
                   gain, m.actuator_actadr[rotors].copy(), m.actuator_ctrladr[rotors].copy())  # fmt: skip
    recipe.terms.append(term)


def ratio(z: np.ndarray, radius: float) -> np.ndarray:
    """T / T_free at heights z."""
    return 1.0 / (1.0 - np.square(radius / (4.0 * np.maximum(z, LOWEST * radius))))


@dataclass(frozen=True)
class GroundEffect(OnBody):
    """The thrust that ground effect adds to each rotor, along the flyer's own z."""

    body: str
    address: int  # of the free joint in q
    arms: np.ndarray  # (rotors, 3) m
    com: np.ndarray  # (3,) m
    radius: float  # m, of the whole flyer: its rotors act as one
    ground: float  # m
    gain: np.ndarray  # (rotors,) N for each unit of state or control
    states: np.ndarray  # (rotors,) address of a rotor's state, -1 without one
    controls: np.ndarray

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.body,)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        q = x.q[:, self.address : self.address + 7]
        turn = matrix(q[:, 3:])  # (n, 3, 3) body to world
        heights = q[:, None, 2] + np.einsum("nj,rj->nr", turn[:, 2], self.arms) - self.ground
        drive = np.stack([x.act[:, a] if a >= 0 else u[:, c] for a, c in zip(self.states, self.controls)], 1)
        more = (ratio(heights, self.radius) - 1.0) * self.gain * drive  # (n, rotors) N
        force = np.zeros((len(q), len(self.arms), 3))
        force[:, :, 2] = more
        torque = np.cross(self.arms - self.com, force).sum(1)
        parts = np.stack([force.sum(1), torque], 1)  # (n, 2, 3) body frame
        return np.einsum("nij,nkj->nki", turn, parts).reshape(len(q), 1, 6)


AIRS = (
    Ingredient("air_drag", "air of 12 kg/m^3, ten times the drag of a smooth box", "moving bodies", lambda p: len(p.moving) > 0, air_drag),
    Ingredient("wind", "a steady wind of up to 8 m/s", "moving bodies", lambda p: len(p.moving) > 0, wind),
    Ingredient("ground_effect", "ground so close that thrust is up to 1.15 times that in free air", "a free flyer with rotors", lambda p: bool(p.rotors), ground_effect),
)  # fmt: skip
