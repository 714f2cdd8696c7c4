"""What is right and wrong with a retargeted motion, in numbers that can be compared.

sliding       mean horizontal speed of a sole while the person's foot stands, m/s
floating      largest distance of the lowest point of a standing foot from the floor or step under it, m
sunk          how far any foot is below the floor, at most, m
direction     mean angle between the person's and the robot's bones, rad
limit         share of frames with a joint within 1 mrad of an end of its range
outside       share of the frames in which feet stand where the robot presses on the floor more than FAR outside of them (pressure.py)
"""

import numpy as np

from surefoot.motion.retarget.balance import pressed, stride
from surefoot.motion.retarget.humanoid import SIDES
from surefoot.motion.retarget.retarget import Retargeted

FAR = 0.02  # m


def metrics(found: Retargeted, q: np.ndarray | None = None) -> dict[str, float]:
    """Of the result, or of other positions of the same frames, such as the first pass."""
    q = found.q if q is None else q
    robot, asked = found.robot, found.targets
    order = [robot.kin.anatomy.feet.index(robot.feet[s]) for s in SIDES]
    soles = robot.kin.soles(q)[:, order]  # (T, 2, 4)
    dt = np.diff(asked.time)[:, None]
    speed = np.linalg.norm(np.diff(soles[..., :2], axis=0), axis=2) / dt
    stands = np.stack([asked.contacts.of(f"{s}_foot") for s in SIDES], 1)
    under = np.stack([asked.ground.robot[s][:, 2] for s in SIDES], 1)
    still = stands[1:] & stands[:-1]
    marks, angles = robot.landmarks(q), []
    for bone, u in asked.bones.items():
        a, b = bone.split(">")
        v = marks[b] - marks[a]
        angles.append(np.arccos(np.clip((v * u).sum(1) / np.linalg.norm(v, axis=1), -1, 1)).mean())
    joints = q[:, list(robot.kin.layout.places)]
    low, high = np.array(robot.kin.layout.limits).T
    at_end = ((joints < low + 1e-3) | (joints > high - 1e-3)).any(1)
    return {
        "sliding": float(speed[still].mean()) if still.any() else 0.0,
        "floating": float(np.abs(soles[..., 3] - under)[stands].max()) if stands.any() else 0.0,
        "sunk": float(max(0.0, -soles[..., 3].min())),
        "direction": float(np.mean(angles)),
        "limit": float(at_end.mean()),
        "fastest": float((np.abs(np.diff(joints, axis=0)) / dt).max()),
        "standing": float(stands.mean()),
        "outside": _outside(found, q),
    }


def _outside(found: Retargeted, q: np.ndarray) -> float:
    off = pressed(found, q).off() if len(q) > 1 + stride(found) else np.zeros(0)
    return float((off > FAR).mean()) if len(off) else 0.0
