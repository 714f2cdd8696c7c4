"""What strangers' URDF files often have wrong, mended so that the robot loads; each change is said.

    inertia: principal moments a <= b <= c of a body satisfy a + b >= c        mended: a, b raised by (c - a - b) / 2

ROS's tools read such files without a word, so they are common: cameras with the inertia of a guess, links without any.
"""

import re
import struct

import numpy as np

from surefoot.sim.model.modelxml import Node

SMALL = 1e-6  # m^2: least principal moment of a mended inertia, for each kg: a point mass of 1 mm
LEAST = 1e-14  # kg m^2: MuJoCo takes nothing smaller
UNLIMITED = ("fixed", "continuous", "floating")  # joints whose limits mean nothing
ENDS = ("lower", "upper")
FAR = 1e6  # rad: a limit beyond this is none
UNREAD = (".dae",)  # meshes that MuJoCo does not read
SIX = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
SHOWN = 3  # links that a sentence names
LARGEST = 16 << 20  # bytes of an STL in text that is read


def mend(root: Node) -> list[str]:
    """Changes a URDF's tree in place; says what was changed."""
    found = [*_inertias(root), *_meshes(root)]
    for joint in (n for n in root.walk() if n.tag == "joint"):
        for limit in (c for c in joint.children if c.tag == "limit"):
            if joint.attrs.get("type") == "revolute" and all(
                abs(x) > FAR for a in ENDS for x in limit.numbers(a) or [0]
            ):
                joint.attrs["type"] = "continuous"
            if joint.attrs.get("type") in UNLIMITED:
                limit.attrs = {k: v for k, v in limit.attrs.items() if k not in ENDS}
    return found


def _inertias(root: Node) -> list[str]:
    links = []
    for link in root.walk():
        for inertial in (c for c in link.children if c.tag == "inertial" and link.tag == "link"):
            parts = {c.tag: c for c in inertial.children}
            mass = ([*parts["mass"].numbers("value"), 0.0] if "mass" in parts else [0.0])[0]
            if "inertia" in parts and np.isfinite(mass) and mass >= 0 and _mended(parts["inertia"], mass):
                links.append(link.attrs.get("name", ""))
    if not links:
        return []
    names = ", ".join(links[:SHOWN]) + (f" and {len(links) - SHOWN} more" if len(links) > SHOWN else "")
    return [f"{root.file}: inertia of {names}: no body can have it; raised to the nearest that one can have"]


def _mended(node: Node, mass: float) -> bool:
    six = [([*node.numbers(a), 0.0])[0] for a in SIX]
    if not np.isfinite(six).all() or (mass == 0 and not any(six)):
        return False
    xx, xy, xz, yy, yz, zz = six
    moments, axes = np.linalg.eigh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    a, b, c = moments
    if a > LEAST and a + b >= c * (1 - 1e-6):
        return False
    a, b, c = np.maximum(moments, max(SMALL * mass, 10 * LEAST))  # also of frames that weigh nothing, as 1e-9 kg
    short = max(c - a - b, 0.0) / 2 * (1 + 1e-9)
    m = axes @ np.diag([a + short, b + short, c]) @ axes.T
    for name, value in zip(SIX, (m[0, 0], m[0, 1], m[0, 2], m[1, 1], m[1, 2], m[2, 2])):
        node.attrs[name] = repr(float(value))
    return True


def _meshes(root: Node) -> list[str]:
    """Shapes whose mesh MuJoCo cannot read are left out."""
    gone = []
    for link in root.walk():
        if link.tag == "link":
            kept = [c for c in link.children if not (c.tag in ("collision", "visual") and _unread(c))]
            gone += [c for c in link.children if c not in kept and c.tag == "collision"]
            link.children = kept
    if not gone:
        return []
    return [f"{root.file}: {len(gone)} shapes left out: MuJoCo reads meshes of .stl, .obj and .msh, not {UNREAD[0]}"]


def _unread(shape: Node) -> bool:
    return any(n.tag == "mesh" and n.attrs.get("filename", "").lower().endswith(UNREAD) for n in shape.walk())


VERTEX = re.compile(rb"vertex\s+(\S+)\s+(\S+)\s+(\S+)")


def binary_stl(data: bytes) -> bytes:
    """An STL in text as the binary one that MuJoCo reads; the same bytes where it is none."""
    if len(data) > LARGEST or not data[:1000].lstrip().startswith(b"solid") or b"facet" not in data[:1000]:
        return data
    try:
        points = np.array(VERTEX.findall(data), dtype="S32").astype(np.float32)
    except ValueError:
        return data
    if not len(points) or len(points) % 3 or not np.isfinite(points).all():
        return data
    rows = np.zeros(len(points) // 3, np.dtype([("normal", "<f4", 3), ("corners", "<f4", 9), ("extra", "<u2")]))
    rows["corners"] = points.reshape(-1, 9)
    return b"\0" * 80 + struct.pack("<I", len(rows)) + rows.tobytes()
