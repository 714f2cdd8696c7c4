"""The default pose: the model's keyframe, or a stand that is computed.

A stand puts each foot under its leg's first pitch joint at a share STRETCH of the leg's length, the sole level, by damped
least squares within the joints' ranges:

    min |J dq - (target - x)|^2 + lambda |dq|^2,      x = (foot's place, L * sole's tilt)

The base is then lifted until the lowest sole touches the floor.
"""

import re

import mujoco
import numpy as np

from surefoot.sim.anatomy.feet import Foot, Leg
from surefoot.sim.anatomy.links import Links, posed
from surefoot.sim.layout import HINGE

STANDS = ("home", "stand", "standing", "default", "nominal", "init", "ready", "hover")
STRETCH = {2: 0.95}  # of a biped's leg; others bend theirs more
BENT = 0.75
MISSED = 0.05  # of a leg's length: a foot that is farther from where it should be has not reached it
UNREACHED = "legs as they are: no pose has the feet under the hips"
INSIDE = 0.02  # of a joint's range: a pose keeps this far from the ends


def keyframe(m: mujoco.MjModel) -> tuple[int, str] | None:
    """The keyframe that is called home, stand, ..., or the first one."""
    names = [m.key(i).name for i in range(m.nkey)]
    for word in STANDS:
        for i, name in enumerate(names):
            if re.search(rf"(?<![a-z]){word}(?![a-z])", name.lower()):
                return i, f"keyframe {name}"
    return (0, f"the first keyframe, {names[0] or 'without a name'}") if names else None


def start(m: mujoco.MjModel, tree: Links) -> tuple[np.ndarray, str]:
    """q of the keyframe, or as the model begins, with joints inside their ranges."""
    key = keyframe(m)
    if key is not None:
        return m.key_qpos[key[0]].copy(), key[1]
    q, moved = m.qpos0.copy(), 0
    for j in tree.moved:
        at = int(m.jnt_qposadr[j])
        low, high = m.jnt_range[j]
        edge = INSIDE * (high - low)
        if m.jnt_limited[j] and not low + edge <= q[at] <= high - edge:
            inside = float(np.clip(q[at], low, high)) if tree.base else (low + high) / 2  # an arm moves both ways
            moved += inside != q[at]
            q[at] = inside
    beyond = f"; {moved} joints at an end of their range, or beyond, are moved into it" if moved else ""
    return q, f"no keyframe: the model's zero pose{beyond}"


def standing(m: mujoco.MjModel, tree: Links, legs: tuple[Leg, ...], q: np.ndarray) -> tuple[np.ndarray, str]:
    """q with legs bent as a robot stands, where they are not."""
    d, want = posed(m, q), STRETCH.get(len(legs), BENT)
    if all(_stands(m, d, leg, want) for leg in legs):
        return q, ""
    bent = q
    for leg in legs:
        bent, left = _bend(m, leg, bent, want)
        if left > MISSED:
            return q, UNREACHED
    return bent, f"legs bent to {want:g} of their length, feet under the hips"


def grounded(m: mujoco.MjModel, tree: Links, feet: list[Foot], q: np.ndarray, floor: float) -> np.ndarray:
    """q with the base lifted or lowered until the lowest sole touches the floor."""
    d, q = posed(m, q), q.copy()
    lowest = min(float(corner[2]) - f.radius for f in feet for corner in _points(m, d, f))
    q[int(m.jnt_qposadr[tree.free]) + 2] += floor - lowest
    return q


def _points(m: mujoco.MjModel, d: mujoco.MjData, f: Foot) -> np.ndarray:
    b = m.body(f.body).id
    return np.asarray(np.array(f.points) @ d.xmat[b].reshape(3, 3).T + d.xpos[b])


def _pitches(m: mujoco.MjModel, d: mujoco.MjData, leg: Leg) -> list[int]:
    """Hinges about a lateral axis, of which a leg bends; all of its hinges where there are fewer than two."""
    ids = [m.joint(name).id for name in leg.joints if m.joint(name).type[0] == HINGE]
    found = [j for j in ids if abs(d.xaxis[j][1]) > 0.9]
    return found if len(found) >= 2 else ids


def length(m: mujoco.MjModel, d: mujoco.MjData, leg: Leg) -> float:
    """From the first joint that bends the leg along the others to the sole, m."""
    at = [d.xanchor[j] for j in _pitches(m, d, leg)] + [_points(m, d, leg.foot).mean(0)]
    return float(sum(np.linalg.norm(b - a) for a, b in zip(at, at[1:])))


def _stands(m: mujoco.MjModel, d: mujoco.MjData, leg: Leg, want: float) -> bool:
    """Bent about as far as wanted, the foot not far from under the hip."""
    away = (_points(m, d, leg.foot).mean(0) - d.xanchor[_pitches(m, d, leg)[0]]) / length(m, d, leg)
    return bool(0.5 <= -away[2] <= want + 0.01 and abs(away[0]) < 0.2)


def _bend(m: mujoco.MjModel, leg: Leg, q: np.ndarray, share: float) -> tuple[np.ndarray, float]:
    """q with one leg's foot under its hip, and what is left, as a share of its length; of several the one that moves least."""
    d = posed(m, q)
    hip, last = (d.xanchor[_pitches(m, d, leg)[k]] for k in (0, -1))
    goal = np.array([hip[0], last[1], hip[2] - share * length(m, d, leg)])
    ids = [m.joint(name).id for name in leg.joints]
    at = m.jnt_qposadr[ids]
    low, high = np.where(m.jnt_limited[ids, None], m.jnt_range[ids], (-np.pi, np.pi)).T
    edge = INSIDE * (high - low)
    found = []
    pitch = np.isin(ids, _pitches(m, d, leg))
    for knee in (0.6, -0.6):
        tried = q.copy()
        wave = np.zeros(len(ids))
        wave[np.flatnonzero(pitch)] = [knee * (-1) ** k * (1 if k == 0 else 2) for k in range(pitch.sum())]
        tried[at] = np.clip(q[at] + wave, low + edge, high - edge)
        left = _solve(m, leg, tried, ids, goal, (low + edge, high - edge))
        found.append((round(left, 2), float(np.abs(tried[at] - q[at]).sum()), knee, tried))
    best = min(found, key=lambda x: x[:3])
    return best[3], best[0]


def _solve(
    m: mujoco.MjModel, leg: Leg, q: np.ndarray, ids: list[int], goal: np.ndarray, ends: tuple[np.ndarray, np.ndarray]
) -> float:
    """Moves the joints in q towards the goal, in place; returns what is left, as a share of the leg's length."""
    at, dofs, body = m.jnt_qposadr[ids], m.jnt_dofadr[ids], m.body(leg.foot.body).id
    flat, size = len(leg.foot.points) > 2, 0.0
    left = np.inf
    for _ in range(100):
        d = posed(m, q)
        size = size or length(m, d, leg)
        place, turn = np.zeros((3, m.nv)), np.zeros((3, m.nv))
        mujoco.mj_jac(m, d, place, turn, _points(m, d, leg.foot).mean(0), body)
        e, J = goal - _points(m, d, leg.foot).mean(0), place[:, dofs]
        if flat:
            p = _points(m, d, leg.foot)
            normal = np.cross(p[1] - p[0], p[2] - p[0])
            normal /= np.linalg.norm(normal) * (np.sign(normal[2]) or 1.0)
            tilt = np.cross(normal, (0.0, 0.0, 1.0))
            e, J = np.concatenate([e, size * tilt[:2]]), np.concatenate([J, size * turn[:2, dofs]])
        left = float(np.linalg.norm(e) / size)
        step = np.linalg.solve(J.T @ J + 1e-4 * size**2 * np.eye(len(ids)), J.T @ e)
        q[at] = np.clip(q[at] + np.clip(step, -0.2, 0.2), *ends)
        if left < 1e-4:
            break
    return left
