"""AMASS and SMPL npz: rotation vectors of joints. The lengths of bones are in a licensed body model, which is not here.

    poses (T, 3 K) rad, or root_orient (T, 3) and pose_body (T, 63)        trans (T, 3) m        mocap_framerate

    R_j = R_parent exp(r_j),  p_j = p_parent + R_parent offset_j

Offsets come from `offsets` (K, 3) in the file, from a table that the user gives (JSON, joint -> [parent, [x, y, z]]), or are
those of an average person of 1.7 m (Drillis and Contini's fractions of the stature). z is up in AMASS, y within the body.
"""

import json
from pathlib import Path

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.formats.readers.arrays import load
from surefoot.motion.readers import CELLS, Skeletal
from surefoot.rotation import exp, product, to_world

NAMES = (
    "pelvis", "left_hip", "right_hip", "spine1", "left_knee", "right_knee", "spine2", "left_ankle", "right_ankle", "spine3", "left_foot",
    "right_foot", "neck", "left_collar", "right_collar", "head", "left_shoulder", "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist",
)  # fmt: skip
PARENTS = (-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19)
TALL = 1.7  # m
# of the stature; x to the left, y up, z forward, in a T-pose. Left side, then the middle
SIDE = {
    "hip": (0.053, -0.02, 0.0), "knee": (0.0, -0.245, 0.0), "ankle": (0.0, -0.246, 0.0), "foot": (0.0, -0.03, 0.08),
    "collar": (0.03, 0.09, 0.0), "shoulder": (0.099, 0.0, 0.0), "elbow": (0.186, 0.0, 0.0), "wrist": (0.146, 0.0, 0.0),
}  # fmt: skip
MIDDLE = {"spine1": (0, 0.06, 0), "spine2": (0, 0.07, 0), "spine3": (0, 0.04, 0), "neck": (0, 0.12, 0), "head": (0, 0.05, 0)}  # fmt: skip
KEYS = {"poses", "root_orient", "pose_body", "trans", "mocap_framerate", "mocap_frame_rate", "fps", "offsets"}


def read_smpl(path: Path, table: str = "") -> Skeletal:
    arrays = load(path, only=KEYS)
    for name, a in arrays.items():
        if a.dtype.kind not in "fiu" or a.size > CELLS:
            raise SurefootError(f"{name}: found {a.dtype.name} of shape {a.shape}, expected numbers")
    r, rate = _rotations(arrays), _rate(arrays)
    trans = arrays.get("trans", np.zeros((len(r), 3)))
    if trans.shape != (len(r), 3):
        raise SurefootError(f"trans: found shape {trans.shape}, expected ({len(r)}, 3)")
    offsets, said = _offsets(arrays, table)
    pos, quat = np.zeros((len(r), len(NAMES), 3)), np.zeros((len(r), len(NAMES), 4))
    zero = np.zeros((len(NAMES), 3))
    turns = exp(r.astype(float))
    for j, p in enumerate(PARENTS):
        if p < 0:
            pos[:, j], quat[:, j] = trans + offsets[j], turns[:, j]
            continue
        pos[:, j] = pos[:, p] + to_world(quat[:, p], np.broadcast_to(offsets[j], (len(r), 3)))
        quat[:, j] = product(quat[:, p], turns[:, j])
        zero[j] = zero[p] + offsets[j]
    # the body's own y is up in its zero pose, the recording's axis may be another: said by the places, which decide the up axis
    return Skeletal(rate, NAMES, PARENTS, pos, quat, zero, "m", (said,))


def _rotations(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """(T, 22, 3) rad."""
    if "poses" in arrays:
        poses = arrays["poses"]
    elif "root_orient" in arrays and "pose_body" in arrays:
        poses = np.concatenate([arrays["root_orient"], arrays["pose_body"]], 1)
    else:
        raise SurefootError("found neither poses nor root_orient and pose_body; expected an npz of AMASS or SMPL, or a person saved by surefoot")  # fmt: skip
    if poses.ndim != 2 or poses.shape[1] < 66 or len(poses) < 3 or not np.isfinite(poses).all():
        raise SurefootError(f"poses: found shape {poses.shape}, expected (T, 66 or more) finite numbers")
    return np.asarray(poses[:, :66]).reshape(len(poses), 22, 3)


def _rate(arrays: dict[str, np.ndarray]) -> float:
    for name in ("mocap_framerate", "mocap_frame_rate", "fps"):
        if name in arrays and arrays[name].size == 1:
            return float(arrays[name].reshape(()))
    raise SurefootError("found no mocap_framerate, expected the frames a second")


def _offsets(arrays: dict[str, np.ndarray], table: str) -> tuple[np.ndarray, str]:
    """(22, 3) m from each joint's parent, and where they are from."""
    if table:
        return _table(table), "lengths of bones: the table that was given"
    if "offsets" in arrays:
        own = np.asarray(arrays["offsets"], float)
        if own.ndim != 2 or len(own) < 22 or own.shape[1] != 3:
            raise SurefootError(f"offsets: found shape {own.shape}, expected (22, 3)")
        return own[:22], "lengths of bones: offsets in the file"
    return (
        average(),
        f"lengths of bones: an average person of {TALL} m; a table of this person's is better (--skeleton)",
    )


def _table(text: str) -> np.ndarray:
    try:
        rows = json.loads(text)
        found = {str(k): (str(v[0]), np.array(v[1], float)) for k, v in rows.items()}
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, RecursionError):
        raise SurefootError(
            'skeleton: expected JSON such as {"left_hip": ["pelvis", [0.07, -0.08, 0.0]], ...}'
        ) from None
    out = np.zeros((len(NAMES), 3))
    for j, name in enumerate(NAMES):
        if PARENTS[j] < 0:
            continue
        if name not in found:
            raise unknown("joint", name, found, "skeleton")
        if found[name][1].shape != (3,) or found[name][0] != NAMES[PARENTS[j]]:
            raise SurefootError(f"skeleton: {name}: expected its parent {NAMES[PARENTS[j]]} and three numbers in m")
        out[j] = found[name][1]
    return out


def average() -> np.ndarray:
    """(22, 3) m: offsets of an average person."""
    out = np.zeros((len(NAMES), 3))
    for j, name in enumerate(NAMES):
        side, _, part = name.partition("_")
        if part:
            out[j] = np.array(SIDE[part]) * (1 if side == "left" else -1, 1, 1)
        elif name in MIDDLE:
            out[j] = MIDDLE[name]
    return TALL * out
