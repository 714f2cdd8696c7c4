"""How a robot and the things about it touch, frame by frame, and in numbers.

hands     m between each hand and the nearest box or wall; below 0: inside
feet      m between each sole and the top of the step that the person stands on
deepest   m of the robot's deepest shape in any thing: below 0
contacts  share of the person's contacts (hand at a thing, foot on a step) that the robot has within NEAR
"""

from collections.abc import Sequence

import mujoco
import numpy as np

from surefoot.motion.retarget.humanoid import SIDES, Humanoid
from surefoot.motion.retarget.interaction import Interacted, geoms, put, shapes
from surefoot.motion.retarget.metrics import metrics
from surefoot.motion.retarget.things import Thing

NEAR = 0.02  # m
DEEP = 0.01  # m


def distances(robot: Humanoid, q: np.ndarray, things: Sequence[Thing]) -> tuple[np.ndarray, np.ndarray]:
    """(T, 2) m between each hand and the nearest box or wall, and (T,) of the deepest shape; below 0: inside."""
    m, d = robot.kin.model, mujoco.MjData(robot.kin.model)
    pairs = [(k, own, g) for k, (own, x) in enumerate(zip(geoms(m), things)) for g in shapes(robot, x)]
    at = [robot.parts[f"{s}_hand"][0] for s in SIDES]
    hands, deepest = np.ones((len(q), 2)), np.zeros(len(q))
    for t, row in enumerate(q):
        d.qpos[:] = row
        put(m, d, things, t)
        mujoco.mj_kinematics(m, d)
        far = [mujoco.mj_geomDistance(m, d, own, g, 1.0, None) for _, own, g in pairs]
        deepest[t] = min(far)
        for i, hand in enumerate(at):
            own = [x for x, (k, _, g) in zip(far, pairs) if m.geom_bodyid[g] == hand and things[k].kind != "step"]
            hands[t, i] = min(own, default=1.0)
    return hands, deepest


def on_steps(found: Interacted, q: np.ndarray) -> np.ndarray:
    """(T, 2) m between each sole and the nearest step; inf where the person's foot does not stand on one."""
    m, d, steps = found.robot.kin.model, mujoco.MjData(found.robot.kin.model), [x.kind == "step" for x in found.things]
    asked, out = found.plain.targets, np.full((len(q), 2), np.inf)
    stands = np.stack([asked.contacts.of(f"{s}_foot") & (asked.ground.person[s] > 0) for s in SIDES], 1)
    feet = [[g for g in range(m.ngeom) if m.geom_bodyid[g] == found.robot.parts[f"{s}_foot"][0]] for s in SIDES]
    for t in np.flatnonzero(stands.any(1)):
        d.qpos[:] = q[t]
        put(m, d, found.things, int(t))
        mujoco.mj_kinematics(m, d)
        for i in np.flatnonzero(stands[t]):
            pairs = [(own, g) for own, step in zip(geoms(m), steps) if step for g in feet[i]]
            out[t, i] = min(mujoco.mj_geomDistance(m, d, own, g, 1.0, None) for own, g in pairs)
    return out


def contact_metrics(found: Interacted, q: np.ndarray | None = None) -> dict[str, float]:
    """Of the result, or of other positions of the same frames; together with those of any motion (metrics.py)."""
    q = found.q if q is None else q
    hands, deepest = distances(found.robot, q, found.things)
    feet = on_steps(found, q)
    on = np.isfinite(feet)
    kept = np.concatenate([np.abs(hands[found.touched]) < NEAR, np.abs(feet[on]) < NEAR])
    return metrics(found.plain, q) | {
        "hands_off": float(np.abs(hands[found.touched]).mean()) if found.touched.any() else 0.0,
        "steps_off": float(np.abs(feet[on]).max()) if on.any() else 0.0,
        "deepest": float(max(0.0, -deepest.min())),
        "inside": float((deepest < -DEEP).mean()),
        "contacts": float(kept.mean()) if len(kept) else 1.0,
    }
