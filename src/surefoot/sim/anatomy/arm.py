"""The arm of a robot that is bolted down: the longest chain of joints, its end effector, and the gripper beyond the wrist.

A joint begins the gripper where one of these holds, from the end of the chain inwards:

    it is a slide, or coupled to another joint (equality, tendon);  its link has siblings that move;  its name says so;
    the link before it reaches as far as its own link, as a fixed jaw reaches as far as the moving one, and it does not
    roll about the way that its link points: a flange does, a jaw never
"""

import re
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.sim.anatomy.feet import shapes_of
from surefoot.sim.anatomy.links import Links
from surefoot.sim.anatomy.shapes import placed
from surefoot.sim.layout import SLIDE

FINGER = re.compile("grip|finger|jaw|claw|thumb|knuckle|pinch", re.IGNORECASE)
TIP = re.compile(r"(?<![a-z])(ee|eef|tcp|tip|tool0?|grip\w*|grasp\w*|pinch\w*|attach\w*|end_?effector|hand|flange)(?![a-z])", re.IGNORECASE)  # fmt: skip
AS_FAR = 0.8
ROLLS = 0.9  # cosine of the angle between a joint's axis and the way its link points


@dataclass(frozen=True)
class Arm:
    joints: tuple[str, ...]
    """from the base to the wrist"""
    gripper: tuple[str, ...]
    body: str
    """that carries the end effector"""
    point: tuple[float, float, float]
    """the end effector in the body's frame, m"""
    source: str


def arm(m: mujoco.MjModel, d: mujoco.MjData, tree: Links) -> Arm | None:
    """The longest chain of a bolted robot; None where it has fewer than two joints."""
    chains = {end: [x for x in tree.path(end) if tree.joints(x)] for end in tree.ends}
    if tree.base or not chains:
        return None
    reach = lambda end: float(np.linalg.norm(d.xpos[end] - d.xpos[chains[end][0]]))  # noqa: E731
    end = max(chains, key=lambda e: (len(chains[e]), reach(e)))
    links = _without_gripper(m, d, tree, chains[end])
    joints = tuple(str(m.joint(j).name) for x in links for j in tree.joints(x))
    if len(joints) < 2:
        return None
    wrist = links[-1]
    beyond = [x for x in tree.below(wrist) if x != wrist]
    gripper = tuple(str(m.joint(j).name) for x in beyond for j in tree.joints(x))
    body, point, why = _tip(m, d, tree, wrist, beyond)
    local = (point - d.xpos[body]) @ d.xmat[body].reshape(3, 3)
    x, y, z = local.round(5).tolist()
    return Arm(joints, gripper, str(m.body(body).name), (x, y, z), why)


def _without_gripper(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, links: list[int]) -> list[int]:
    kept = list(links)
    first = next((k for k in range(1, len(kept)) if _holds(m, d, tree, kept[k], k == len(kept) - 1)), len(kept))
    return kept[: max(first, 1)]


def _holds(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, link: int, last: bool) -> bool:
    """Whether a link is a finger, not a part of the arm."""
    joints, parent = tree.joints(link), tree.parent(link)
    siblings = [x for x in tree.children[parent] if tree.joints(x)]
    short = max(len([y for y in tree.path(x) if y not in tree.path(link)]) for x in tree.below(link)) <= 3
    if len(siblings) > 1 and short:
        return True
    if any(FINGER.search(m.joint(j).name) for j in joints):
        return True
    if not last:
        return False
    slides = any(m.jnt_type[j] == SLIDE for j in joints)
    return slides or any(_coupled(m, j) for j in joints) or _as_far(m, d, tree, link)


def _coupled(m: mujoco.MjModel, j: int) -> bool:
    equal = int(mujoco.mjtEq.mjEQ_JOINT)
    return any(m.eq_type[i] == equal and j in (m.eq_obj1id[i], m.eq_obj2id[i]) for i in range(m.neq))


def _as_far(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, link: int) -> bool:
    """The parent's shapes reach nearly as far from the joint as the link's own, the same way."""
    own, before = (_cloud(m, d, tree, x) for x in (link, tree.parent(link)))
    if not len(own) or not len(before):
        return False
    anchor = d.xanchor[tree.joints(link)[0]]
    way = own.mean(0) - anchor
    way /= np.linalg.norm(way) or 1.0
    if abs(float(d.xaxis[tree.joints(link)[0]] @ way)) > ROLLS:
        return False
    return bool(((before - anchor) @ way).max() >= AS_FAR * ((own - anchor) @ way).max())


def _cloud(m: mujoco.MjModel, d: mujoco.MjData, tree: Links, link: int) -> np.ndarray:
    parts = [placed(m, d, g)[0] for g in shapes_of(m, tree, link)]
    return np.concatenate([*parts, np.zeros((0, 3))])


def _tip(
    m: mujoco.MjModel, d: mujoco.MjData, tree: Links, wrist: int, beyond: list[int]
) -> tuple[int, np.ndarray, str]:
    """Body, place in the world, and how it was found."""
    sites = [s for s in range(m.nsite) if m.body_weldid[m.site_bodyid[s]] in (wrist, *beyond) and TIP.search(m.site(s).name)]  # fmt: skip
    anchor = d.xanchor[tree.joints(wrist)[-1]]
    if sites:
        s = max(sites, key=lambda s: np.linalg.norm(d.site_xpos[s] - anchor))
        body = int(m.site_bodyid[s]) if m.body_weldid[m.site_bodyid[s]] == wrist else wrist
        return body, d.site_xpos[s], f"site {m.site(s).name}"
    if beyond:
        ends = [_farthest(_cloud(m, d, tree, x), anchor) for x in (wrist, *beyond) if len(_cloud(m, d, tree, x))]
        fingers = ends if len(ends) == 2 else ends[1:] or ends
        if fingers:
            return wrist, np.mean(fingers, 0), "midway between the ends of the gripper's fingers, in the default pose"
    fixed = [b for b in tree.bodies(wrist) if b != wrist and np.linalg.norm(d.xpos[b] - anchor) > 1e-3]
    if fixed:
        b = max(fixed, key=lambda b: np.linalg.norm(d.xpos[b] - anchor))
        return b, d.xpos[b], f"origin of {m.body(b).name}, the last body of the chain"
    cloud = _cloud(m, d, tree, wrist)
    if len(cloud):
        return wrist, _farthest(cloud, anchor), "the point of the last link that is farthest from its joint"
    return wrist, d.xipos[wrist], "centre of mass of the last link, which has no shape"


def _farthest(cloud: np.ndarray, anchor: np.ndarray) -> np.ndarray:
    """Mean of the tenth of the points that is farthest away: one corner would be off to a side."""
    away = np.linalg.norm(cloud - anchor, axis=1)
    return np.asarray(cloud[away >= np.quantile(away, 0.9) - 1e-9].mean(0))
