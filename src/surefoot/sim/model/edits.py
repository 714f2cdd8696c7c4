"""Edits of a model for training, as functions on an MjSpec. Each says in a sentence what it changed, or nothing."""

import mujoco


def free_base(spec: mujoco.MjSpec) -> str:
    """A free joint for the body that carries the robot, where none has one: a URDF's base is bolted to the world."""
    if any(j.type == mujoco.mjtJoint.mjJNT_FREE for j in spec.joints):
        return ""
    roots = [b for b in spec.worldbody.bodies if not b.joints and b.bodies]
    if not roots:
        return ""
    base = max(roots, key=lambda b: len(list(b.find_all("body"))))
    base.add_freejoint()
    return f"{base.name}: a free joint, as the model bolts it to the world"
