"""A compiled MjModel as trees of links with one joint each, the form of reduced-coordinate engines.

A body with k joints is a chain of k links, the last of which has its mass; a body without joints is fixed to its
parent. Each colliding geom is a massless link, so that friction and contact forces are known by geom. A free body is
the root of its tree; other trees are rooted in the world, by a link that is fixed to it.

Armature a is what a rotor behind a gear of ratio r has as inertia a / r^2: a link of its own on what carries the motor,
turning r times as fast as the joint. Its kinetic energy, a (w + w_carrier / r)^2 / 2, is MuJoCo's a w^2 / 2 for large r. A
joint on the world needs no rotor: there the same inertia, or mass, of the link is the same physics.

Poses are (position, rotation matrix). A link's frame, relative to its MuJoCo body at rest, has the joint's anchor as
origin and the body's axes, so the joint's axis passes through the origin.
"""

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.rotation import matrix

JOINT = mujoco.mjtJoint
Pose = tuple[np.ndarray, np.ndarray]
Field = Callable[[str], np.ndarray]
"""name of a model field -> its value in one simulation"""

RATIO = 100.0
LIGHT = 1e-12  # kg m^2: of a rotor without armature

HERE: Pose = (np.zeros(3), np.eye(3))


def then(a: Pose, b: Pose) -> Pose:
    return a[0] + a[1] @ b[0], a[1] @ b[1]


def back(a: Pose) -> Pose:
    return -a[1].T @ a[0], a[1].T


@dataclass(frozen=True)
class Link:
    parent: int
    """its link in the tree, -1 for the root"""
    body: int
    joint: int = -1
    """-1: fixed to its parent"""
    geom: int = -1
    """-1: touches nothing"""
    heavy: bool = False
    """has the body's mass"""
    rotor: int = -1
    """joint whose rotor this is"""


@dataclass(frozen=True)
class Tree:
    root: int
    """the body with a free joint, or 0: the world"""
    links: tuple[Link, ...]
    """each followed by all that hangs on it"""


def touching(model: mujoco.MjModel) -> list[tuple[int, int]]:
    """Pairs of geoms that may touch, one of them at least on something that moves."""
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT:
        return []
    weld, parent, barred = model.body_weldid, model.body_weldid[model.body_parentid], set(model.exclude_signature)
    ours, pairs = np.flatnonzero(model.geom_contype | model.geom_conaffinity), []
    for i, a in enumerate(ours):
        for b in ours[i + 1 :]:
            x, y = sorted((int(model.geom_bodyid[a]), int(model.geom_bodyid[b])))
            wx, wy = int(weld[x]), int(weld[y])
            family = wx and wy and (parent[wx] == wy or parent[wy] == wx)
            meet = (model.geom_contype[a] & model.geom_conaffinity[b]) | (
                model.geom_contype[b] & model.geom_conaffinity[a]
            )
            if meet and wx != wy and not family and ((x << 16) + y) not in barred:
                pairs.append((int(a), int(b)))
    return pairs + [(int(a), int(b)) for a, b in zip(model.pair_geom1, model.pair_geom2) if (a, b) not in pairs]


def trees(model: mujoco.MjModel, geared: np.ndarray) -> tuple[Tree, ...]:
    """The model's trees; refuses parts that only MuJoCo has. `geared`: (nv,) bool, may have armature."""
    _check(model, geared)
    shaped = {g for pair in touching(model) for g in pair}
    found: dict[int, tuple[int, list[Link]]] = {}  # body at the top -> root, links
    at: dict[int, int] = {}  # body -> its link in its tree
    for b in range(1, model.nbody):
        if model.body_weldid[b] == 0:
            continue
        joints = [int(model.body_jntadr[b]) + k for k in range(model.body_jntnum[b])]
        free = bool(joints) and model.jnt_type[joints[0]] == JOINT.mjJNT_FREE
        root, links = found.setdefault(_top(model, b), (b, []) if free else (0, [Link(-1, 0)]))
        parent = at.get(int(model.body_parentid[b]), -1 if root else 0)
        chain = [-1] if free or not joints else joints
        for k, joint in enumerate(() if free else chain):
            if (parent > 0 or root) and joint >= 0 and geared[model.jnt_dofadr[joint]]:
                links.append(Link(parent, b, rotor=joint))
            links.append(Link(parent, b, joint, heavy=k == len(chain) - 1))
            parent = len(links) - 1
        at[b] = parent
        for g in range(int(model.body_geomadr[b]), int(model.body_geomadr[b]) + int(model.body_geomnum[b])):
            if g in shaped:
                links.append(Link(parent, b, geom=g))
    return tuple(Tree(root, tuple(links)) for root, links in found.values())


def _top(model: mujoco.MjModel, b: int) -> int:
    """The first moving body on the way from the world to b."""
    while model.body_weldid[model.body_parentid[b]] != 0:
        b = int(model.body_parentid[b])
    return b


def _check(model: mujoco.MjModel, geared: np.ndarray) -> None:
    refused = {"tendon": model.ntendon, "equality constraint": model.neq, "flexible part": model.nflex}
    refused["body moved by mocap"] = model.nmocap
    for what, count in refused.items():
        if count:
            raise SurefootError(f"the model has {count} {what}{'s' * (count > 1)}, which only MuJoCo has")
    for j in range(model.njnt):
        kind, name = JOINT(int(model.jnt_type[j])), model.joint(j).name
        dofs = np.flatnonzero(model.dof_jntid == j)
        if kind == JOINT.mjJNT_BALL:
            raise SurefootError(f"joint {name}: a ball joint, which only MuJoCo has here; three hinges will do")
        if kind == JOINT.mjJNT_FREE and geared[dofs].any():
            raise SurefootError(f"joint {name}: armature of a free joint, which only MuJoCo has")
        if kind == JOINT.mjJNT_FREE and model.dof_frictionloss[dofs].any():
            raise SurefootError(f"joint {name}: dry friction of a free joint, which only MuJoCo has")


@dataclass(frozen=True)
class Placed:
    """A tree's parameters in one simulation, in the order of its links."""

    root: Pose
    """frame of the root in its body's: its centre of mass and principal axes; the world's own for the world"""
    root_mass: float
    root_inertia: np.ndarray
    poses: list[Pose]
    """in the parent link's frame"""
    masses: np.ndarray
    inertias: np.ndarray  # (links, 3) principal
    inertial: list[Pose]
    """principal frame in the link's"""
    axes: np.ndarray  # (links, 3)


def placed(model: mujoco.MjModel, tree: Tree, field: Field, still: dict[int, Pose]) -> Placed:
    """A tree's parameters in one simulation. `still`: world poses of bodies that never move."""
    root, root_mass, root_inertia = HERE, 0.0, np.zeros(3)
    if tree.root:
        root, root_inertia = _principal(field, tree.root)
        root_mass = float(field("body_mass")[tree.root])
    k = len(tree.links)
    frames: list[Pose] = []  # of each link in its body's
    poses, inertial, masses, inertias, axes = [], [HERE] * k, np.zeros(k), np.zeros((k, 3)), np.zeros((k, 3))
    for i, link in enumerate(tree.links):
        frame = _frame(model, link, field)
        frames.append(frame)
        before, body = (frames[link.parent], tree.links[link.parent].body) if link.parent >= 0 else (root, tree.root)
        way = HERE if body == link.body else _between(model, link.body, body, still)
        poses.append(then(back(before), then(way, frame)))
        if link.heavy:
            inside, inertias[i] = _principal(field, link.body)
            inertial[i], masses[i] = then(back(frame), inside), field("body_mass")[link.body]
        joint = max(link.joint, link.rotor)
        axes[i] = model.jnt_axis[joint] if joint >= 0 else (0.0, 0.0, 1.0)
        a = float(field("dof_armature")[model.jnt_dofadr[joint]]) if joint >= 0 else 0.0
        if link.rotor >= 0:
            inertial[i], inertias[i] = (np.zeros(3), _along(axes[i])), (0.0, 0.0, max(a / RATIO**2, LIGHT))
        elif a and link.parent == 0 and not tree.root:
            _on_the_world(model, joint, a, i, masses, inertias, inertial)
    return Placed(root, root_mass, root_inertia, poses, masses, inertias, inertial, axes)


def _on_the_world(
    model: mujoco.MjModel, joint: int, a: float, i: int, masses: np.ndarray, inertias: np.ndarray, inertial: list[Pose]
) -> None:
    """Armature of a joint that the world carries: inertia about its axis, or mass along it, of its link."""
    if model.jnt_type[joint] == JOINT.mjJNT_SLIDE:
        masses[i] += a
        return
    at, R = inertial[i]
    s = model.jnt_axis[joint]
    inertias[i], axes = np.linalg.eigh(R @ np.diag(inertias[i]) @ R.T + a * np.outer(s, s))
    inertial[i] = at, axes * np.linalg.det(axes)


def _along(axis: np.ndarray) -> np.ndarray:
    """A rotation that takes z to an axis."""
    quat = np.zeros(4)
    mujoco.mju_quatZ2Vec(quat, axis)
    return matrix(quat)


def _frame(model: mujoco.MjModel, link: Link, field: Field) -> Pose:
    joint = max(link.joint, link.rotor)
    if joint >= 0:
        return model.jnt_pos[joint].copy(), np.eye(3)
    if link.geom >= 0:
        return field("geom_pos")[link.geom].copy(), matrix(field("geom_quat")[link.geom])
    return HERE


def _between(model: mujoco.MjModel, b: int, parent: int, still: dict[int, Pose]) -> Pose:
    """A body's frame at rest in that of the body its tree hangs it on, which for roots in the world is the world."""
    own = model.body_pos[b].copy(), matrix(model.body_quat[b])
    above = int(model.body_parentid[b])
    return own if above == parent else then(still[above], own)


def _principal(field: Field, b: int) -> tuple[Pose, np.ndarray]:
    """Centre of mass and principal axes of a body in its frame, and its principal inertias."""
    return (field("body_ipos")[b].copy(), matrix(field("body_iquat")[b])), field("body_inertia")[b].copy()
