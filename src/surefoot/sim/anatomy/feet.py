"""Legs and feet by geometry: a leg is a chain of at least two joints whose end is among the lowest of the robot.

    lowest(end) <= ground + BAND * (height of the base above the ground),        ground = min over ends

Ends whose paths part low on a limb (toes, rods of a linkage) are one foot: the lowest that collides. Points of a foot within a thin slice above its lowest point are its sole, in the frame of its body:

    balls         where spheres or capsules touch the ground first, as they are
    one ball      of radius (w^2 / 4 + t^2) / 2 t where the slice, t thick and w wide, is small
    four balls    in the corners of the rectangle around the slice
"""

import re
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.sim.anatomy.links import Links
from surefoot.sim.anatomy.shapes import ROUND, collides, lowest, placed

BAND = 0.1
LOW = 0.45  # of the base's height: ends whose paths part below it belong to one foot
NAMED = re.compile("foot|feet|toe|sole|ankle", re.IGNORECASE)
SLICE = 0.04  # of the foot's own size, thickness of the slice that is the sole
EDGE = 0.15  # of a flat sole's width: radius of the balls in its corners
SMALL = 0.12  # of the base's height: a sole that is no longer than this is a ball, not a plate


@dataclass(frozen=True)
class Foot:
    """What a leg stands on: `points` in the frame of `body`, each swept by a ball of `radius`."""

    name: str
    body: str
    points: tuple[tuple[float, float, float], ...]
    radius: float
    geoms: tuple[int, ...] = ()
    """the model's geoms that make it, by number"""
    source: str = ""

    @property
    def centre(self) -> np.ndarray:
        """Middle of the sole, in the frame of the body."""
        return np.mean(self.points, 0) if self.points else np.zeros(3)

    @property
    def normal(self) -> np.ndarray | None:
        """Unit vector across a flat sole, in the frame of the body; None for a foot that is no plate."""
        if len(self.points) < 3:
            return None
        return np.asarray(np.linalg.svd(self.points - self.centre)[2][2])


@dataclass(frozen=True)
class Leg:
    links: tuple[int, ...]
    """from the first that this leg has for itself to the foot"""
    joints: tuple[str, ...]
    foot: Foot


def legs(m: mujoco.MjModel, d: mujoco.MjData, tree: Links) -> tuple[Leg, ...]:
    """Legs of a robot in the pose of d, front left first; none where its base is bolted down."""
    ends = _ground_ends(m, d, tree)
    paths = {end: tree.path(end) for end in ends}
    found = []
    for end, path in paths.items():
        others = {link for other, p in paths.items() if other != end for link in p}
        own = [link for link in path if link not in others and link != tree.base]
        joints = tuple(m.joint(j).name for link in own for j in tree.joints(link))
        found.append(Leg(tuple(own), joints, foot(m, d, tree, end)))
    R, at = d.xmat[tree.base].reshape(3, 3), d.xpos[tree.base]
    where = {leg.foot.name: (_world(m, d, leg.foot) - at) @ R for leg in found}
    return tuple(sorted(found, key=lambda leg: (-round(where[leg.foot.name][0], 2), -where[leg.foot.name][1])))


def _world(m: mujoco.MjModel, d: mujoco.MjData, f: Foot) -> np.ndarray:
    b = m.body(f.body).id
    return np.asarray(d.xpos[b] + d.xmat[b].reshape(3, 3) @ f.centre)


def _ground_ends(m: mujoco.MjModel, d: mujoco.MjData, tree: Links) -> list[int]:
    """Ends of legs: the lowest ends of chains with two joints or more, one for each limb."""
    if not tree.base:
        return []
    chains = [end for end in tree.ends if sum(len(tree.joints(x)) for x in tree.path(end)) >= 2]
    shown = {end: low(m, d, tree, end) for end in chains}
    ground = min(shown.values(), default=np.inf)
    if not np.isfinite(ground):
        return []
    near = [e for e in chains if shown[e] <= ground + BAND * (d.xpos[tree.base][2] - ground)]
    near.sort(key=lambda e: (not _hard(m, tree, e), shown[e]))
    kept: list[int] = []
    for end in near:
        meets = [_meet(tree, end, k) for k in kept]
        if not any(x != tree.base and d.xpos[x][2] - ground < LOW * (d.xpos[tree.base][2] - ground) for x in meets):
            kept.append(end)
    return kept


def _meet(tree: Links, a: int, b: int) -> int:
    """The last link that two paths have in common."""
    return [x for x, y in zip(tree.path(a), tree.path(b)) if x == y][-1]


def _hard(m: mujoco.MjModel, tree: Links, link: int) -> list[int]:
    return [g for g in tree.geoms(link) if collides(m, g)]


def shapes_of(m: mujoco.MjModel, tree: Links, link: int) -> list[int]:
    """Geoms that tell where a link ends: those that collide, or those that are drawn where none does."""
    return _hard(m, tree, link) or tree.geoms(link)


def low(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, link: int) -> float:
    """Lowest point of a link, or of its frame's origin where it has no shape."""
    found = lowest(m, d, shapes_of(m, tree, link))
    return found if np.isfinite(found) else float(d.xpos[link][2])


def foot(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, link: int) -> Foot:
    """The sole of a leg's last link."""
    geoms, ground = shapes_of(m, tree, link), low(m, d, tree, link)
    hard = bool(_hard(m, tree, link))
    swept = {g: placed(m, d, g) for g in geoms}
    own = {g: s for g, s in swept.items() if len(s[0]) and (s[0][:, 2] - s[1]).min() <= ground + _slice(swept)}
    if not own:
        name = str(m.body(link).name)
        return Foot(name, name, ((0.0, 0.0, 0.0),), 0.02, (), "the end of a leg's chain; no shape shows its sole")
    balls = {g: s for g, s in own.items() if m.geom_type[g] in ROUND and (s[0][:, 2] - s[1]).min() <= ground + 0.002}
    own = balls or own
    body = int(m.geom_bodyid[next(iter(own))])
    small = SMALL * float(d.xpos[tree.base][2] - ground)
    points, radius, what = _sole(m, own, ground, d.xmat[tree.base].reshape(3, 3)[:2, :2], small)
    local = (points - d.xpos[body]) @ d.xmat[body].reshape(3, 3)
    kinds = "geoms that collide" if hard else "geoms that are only drawn"
    said = f"{what} at the end of a leg's chain, {kinds}: {', '.join(_called(m, g) for g in own)}"
    return Foot(_name(m, d, link, list(own), points.mean(0)), str(m.body(body).name), tuple(map(tuple, local.round(5).tolist())), round(radius, 5), tuple(own), said)  # fmt: skip


def _slice(swept: dict[int, tuple[np.ndarray, float]]) -> float:
    """Thickness of the slice of a foot that is its sole, m."""
    size = [np.ptp(p, axis=0).max() + 2 * r for p, r in swept.values() if len(p)]
    return float(np.clip(SLICE * max(size, default=0.05), 0.002, 0.01))


def _sole(
    m: mujoco.MjModel, own: dict[int, tuple[np.ndarray, float]], ground: float, R: np.ndarray, small: float
) -> tuple[np.ndarray, float, str]:
    """Points in the world, the radius they are swept by, and a word for it; R: the base's horizontal axes."""
    t = _slice(own)
    if all(m.geom_type[g] in ROUND for g in own):
        balls = np.concatenate([p[p[:, 2] - r <= ground + t] for p, r in own.values()])
        radius = float(np.mean([r for _, r in own.values()]))
        balls = balls if len(balls) <= 4 else _corners(balls, balls[:, 2].min(), R)
        return balls, radius, "a sphere" if len(balls) == 1 else f"{len(balls)} balls"
    flat = np.concatenate([np.column_stack([p[:, :2], p[:, 2] - r]) for p, r in own.values()])
    flat = flat[flat[:, 2] <= ground + t]
    long = float(np.ptp(flat[:, :2] @ R, axis=0).max())
    if long < small:
        radius = float(np.clip(((long / 2) ** 2 + t**2) / (2 * t), 0.005, small / 2))
        return np.array([[*flat[:, :2].mean(0), ground + radius]]), radius, "a rounded end"
    radius = float(np.clip(EDGE * np.ptp(flat[:, :2] @ R, axis=0).min(), 0.002, 0.01))
    return _corners(flat, ground + radius, R, radius), radius, "a flat sole"


def _corners(points: np.ndarray, z: float, R: np.ndarray, inset: float = 0.0) -> np.ndarray:
    """Corners of the rectangle along the base's axes around some points, at height z."""
    along = points[:, :2] @ R
    (a, b), (c, e) = along.min(0) + inset, along.max(0) - inset
    return np.array([[*(R @ corner), z] for corner in ((c, e), (c, b), (a, e), (a, b))])


def _called(m: mujoco.MjModel, g: int) -> str:
    kind = mujoco.mjtGeom(m.geom_type[g]).name.removeprefix("mjGEOM_").lower()
    return str(m.geom(g).name) or f"a {kind} of {m.body(m.geom_bodyid[g]).name}"


def _name(m: mujoco.MjModel, d: mujoco.MjData, link: int, geoms: list[int], at: np.ndarray) -> str:
    """That of the geom, of a site nearby that is called a foot, or of the body."""
    own = str(m.geom(geoms[0]).name) if len(geoms) == 1 else ""
    sites = [s for s in range(m.nsite) if m.body_weldid[m.site_bodyid[s]] == link and NAMED.search(m.site(s).name)]
    sites.sort(key=lambda s: np.linalg.norm(d.site_xpos[s] - at))
    return own or (str(m.site(sites[0]).name) if sites else str(m.body(m.geom_bodyid[geoms[0]]).name))
