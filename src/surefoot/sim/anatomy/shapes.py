"""Every shape as points swept by a ball: the geom is the convex hull of p_i + r b, |b| <= 1, exactly or nearly.

    sphere {0}, r    capsule {-h z, h z}, r    box 8 corners, 0    cylinder two rims of 16, 0    mesh its vertices, 0

Lowest point of a geom: min_i z_i - r.
"""

import mujoco
import numpy as np

G = mujoco.mjtGeom
RIM = np.stack([np.cos(np.arange(16) * np.pi / 8), np.sin(np.arange(16) * np.pi / 8)], 1)
CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
ROUND = (int(G.mjGEOM_SPHERE), int(G.mjGEOM_CAPSULE))


def swept(m: mujoco.MjModel, g: int) -> tuple[np.ndarray, float]:
    """(k, 3) points in the geom's frame, and r; no points for planes, height fields and signed distance fields."""
    kind, (a, b, c) = int(m.geom_type[g]), m.geom_size[g]
    if kind == G.mjGEOM_SPHERE:
        return np.zeros((1, 3)), float(a)
    if kind == G.mjGEOM_CAPSULE:
        return np.array([[0, 0, -b], [0, 0, b]]), float(a)
    if kind == G.mjGEOM_BOX:
        return CORNERS * (a, b, c), 0.0
    if kind == G.mjGEOM_CYLINDER:
        return np.concatenate([np.insert(RIM * a, 2, z, axis=1) for z in (-b, b)]), 0.0
    if kind == G.mjGEOM_ELLIPSOID:
        away = CORNERS / np.sqrt(3)
        return np.concatenate([away, np.eye(3), -np.eye(3)]) * (a, b, c), 0.0
    if kind == G.mjGEOM_MESH:
        mesh = int(m.geom_dataid[g])
        first = int(m.mesh_vertadr[mesh])
        return m.mesh_vert[first : first + m.mesh_vertnum[mesh]].astype(float), 0.0
    return np.zeros((0, 3)), 0.0


def placed(m: mujoco.MjModel, d: mujoco.MjData, g: int) -> tuple[np.ndarray, float]:
    """(k, 3) points in the world, and r."""
    points, r = swept(m, g)
    return points @ d.geom_xmat[g].reshape(3, 3).T + d.geom_xpos[g], r


def lowest(m: mujoco.MjModel, d: mujoco.MjData, geoms: list[int]) -> float:
    """Height of the lowest point of some geoms, m; inf where they have none."""
    found = [(points[:, 2] - r).min() for points, r in (placed(m, d, g) for g in geoms) if len(points)]
    return float(min(found, default=np.inf))


def collides(m: mujoco.MjModel, g: int) -> bool:
    """May touch something: by its masks, or in a contact pair of its own."""
    paired = g in m.pair_geom1[: m.npair] or g in m.pair_geom2[: m.npair]
    return bool(m.geom_contype[g] or m.geom_conaffinity[g] or paired)
