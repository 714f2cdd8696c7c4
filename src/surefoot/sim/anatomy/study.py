"""What a task needs to know about a robot, worked out from its compiled model; each answer says where it came from.

    base, mass, legs and feet, left and right, default pose, drives with gains and limits, arm and gripper, rotors, IMU, floor

`sources` has a sentence for each; `missing` names what the model does not tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import mujoco
import numpy as np

from surefoot.sim.anatomy import pose
from surefoot.sim.anatomy.arm import Arm, arm
from surefoot.sim.anatomy.drives import Drive, drives, elsewhere
from surefoot.sim.anatomy.feet import Foot, Leg, legs, shapes_of
from surefoot.sim.anatomy.links import Links, posed
from surefoot.sim.anatomy.mirror import Mirrored, mirrored
from surefoot.sim.anatomy.rotors import Rotor, rotors
from surefoot.sim.anatomy.shapes import placed

S = mujoco.mjtSensor


@dataclass(frozen=True)
class Anatomy:
    """A robot's parts. Names are the model's own."""

    kind: str
    """legged, arm, multirotor, or other"""
    base: str
    """body with the free joint; empty where the robot is bolted down"""
    mass: float
    """kg, of the robot without what lies about"""
    height: float
    """m, of the base in the default pose above the floor"""
    legs: tuple[Leg, ...]
    leg_length: float
    """m, mean from the first joint that bends a leg along the others to the sole"""
    upper: tuple[str, ...]
    """driven joints that no leg has: waist, arms, head"""
    arm: Arm | None
    rotors: tuple[Rotor, ...]
    home: np.ndarray
    """q of the default pose, feet on the floor"""
    joint_home: Mapping[str, float]
    """joint -> its default position, rad or m"""
    drives: tuple[Drive, ...]
    unused: tuple[str, ...]
    """actuators on no joint: on tendons, sites, bodies; those of rotors are used"""
    mirror: Mirrored
    imu: str
    """site of the IMU, in line with the base; empty: the model has none"""
    floor: str
    """geom of the ground; empty: the model has none"""
    trunk: tuple[tuple[float, ...], tuple[float, ...]] = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    """centre and half sizes of a box around the base's shapes, in its frame, m"""
    sources: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def doubts(self) -> list[str]:
        """What a person should look at, in sentences."""
        found = []
        if self.legs and pose.UNREACHED in self.sources["home"]:
            found.append(f"default pose: {pose.UNREACHED}; the base is {self.height:.2f} m high")
        if self.unused:
            few = ", ".join(self.unused[:4]) + (", ..." if len(self.unused) > 4 else "")
            found.append(f"actuators that are on no joint are not used: {few}")
        return found

    @property
    def feet(self) -> tuple[Foot, ...]:
        return tuple(leg.foot for leg in self.legs)


def study(m: mujoco.MjModel) -> Anatomy:
    """The anatomy of a compiled model."""
    tree = Links(m)
    q, said = pose.start(m, tree)
    walks = legs(m, posed(m, q), tree)
    if walks and not m.nkey:
        q, bent = pose.standing(m, tree, walks, q)
        walks, said = legs(m, posed(m, q), tree), "; ".join(filter(None, [said, bent]))
    floor, height = _floor(m)
    if walks:
        q = pose.grounded(m, tree, [leg.foot for leg in walks], q, height)
        said += "; base at the height at which the lowest sole touches the floor"
    d = posed(m, q)
    flies = rotors(m, d, tree)
    walks = () if flies else walks
    driven = tuple(drives(m, d, tree, walks))
    imu, where = _imu(m, d, tree)
    found = Anatomy(
        kind="multirotor" if flies else "legged" if walks else "arm" if not tree.base and len(tree.moved) > 1 else "other",
        base=str(m.body(tree.base).name) if tree.base else "",
        mass=float(sum(m.body_mass[b] for x in (tree.robot or [tree.base]) for b in tree.bodies(x))),
        height=float(d.xpos[tree.base][2] - height) if tree.base else 0.0,
        legs=walks,
        leg_length=float(np.mean([pose.length(m, d, leg) for leg in walks])) if walks else 0.0,
        upper=tuple(x.joint for x in driven if not any(x.joint in leg.joints for leg in walks)) if walks else (),
        arm=arm(m, d, tree),
        rotors=flies,
        home=q,
        joint_home={str(m.joint(j).name): round(float(q[m.jnt_qposadr[j]]), 4) for j in tree.moved},
        drives=driven,
        unused=() if flies else elsewhere(m),
        mirror=mirrored(m, tree, [m.qpos0, q]) if walks else Mirrored({}),
        imu=imu,
        floor=floor,
        trunk=_box(m, d, tree),
        sources={"home": said, "imu": where, "base": "body with the free joint" if tree.base else "no free joint"},
    )  # fmt: skip
    return _with_missing(found)


def _with_missing(a: Anatomy) -> Anatomy:
    missing = {}
    if not a.floor:
        missing["floor"] = "no plane, height field or other shape of the world that collides"
    if a.base and not a.imu:
        missing["imu"] = a.sources["imu"]
    if a.mirror.missing:
        missing["mirror"] = f"no joint is the mirror image of {', '.join(a.mirror.missing)}"
    for what in ("limit", "armature", "kp"):
        lacks = [x.joint for x in a.drives if what in x.assumed]
        if lacks:
            whom = f"all {len(lacks)} joints" if len(lacks) == len(a.drives) and len(lacks) > 3 else ", ".join(lacks)
            missing[what] = f"of {whom}"
    if a.kind == "other":
        missing["kind"] = "neither legs that stand, nor rotors that lift, nor an arm on a base that is bolted down"
    return Anatomy(**vars(a) | {"missing": missing})


def _box(m: mujoco.MjModel, d: mujoco.MjData, tree: Links) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Centre and half sizes of a box around a free base, in its frame; a small one where it has no shape."""
    R, at, corners = d.xmat[tree.base].reshape(3, 3), d.xpos[tree.base], [np.full((2, 3), -0.01), np.full((2, 3), 0.01)]
    for g in shapes_of(m, tree, tree.base) if tree.base else ():
        points, r = placed(m, d, g)
        if len(points):
            local = (points - at) @ R
            corners += [local.min(0)[None] - r, local.max(0)[None] + r]
    cloud = np.concatenate(corners)
    low, high = cloud.min(0), cloud.max(0)
    return tuple(((low + high) / 2).round(4).tolist()), tuple(((high - low) / 2).round(4).tolist())


def _floor(m: mujoco.MjModel) -> tuple[str, float]:
    """The ground and its height: a plane first, then a height field, then any shape of the world that collides."""
    kinds = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)
    fixed = [g for g in range(m.ngeom) if m.body_weldid[m.geom_bodyid[g]] == 0]
    for kind in kinds:
        for g in fixed:
            if m.geom_type[g] == kind:
                return str(m.geom(g).name) or "floor", float(m.geom_pos[g][2])
    return "", 0.0


def _imu(m: mujoco.MjModel, d: mujoco.MjData, tree: Links) -> tuple[str, str]:
    """A site of the base with a gyro, or that is called imu, whose frame is the base's."""
    own = [s for s in range(m.nsite) if tree.base and m.body_weldid[m.site_bodyid[s]] == tree.base]
    gyros = {int(m.sensor_objid[i]) for i in range(m.nsensor) if m.sensor_type[i] == S.mjSENS_GYRO}
    sites = [s for s in own if s in gyros] + [s for s in own if "imu" in m.site(s).name.lower() and s not in gyros]
    if not sites:
        return "", "no site of the base has a gyro or is called imu"
    R = d.xmat[tree.base].reshape(3, 3).T
    for s in sites:
        if np.allclose(R @ d.site_xmat[s].reshape(3, 3), np.eye(3), atol=1e-3):
            return str(m.site(s).name), f"site {m.site(s).name}, {'with a gyro' if s in gyros else 'by its name'}"
    return "", f"site {m.site(sites[0]).name} is turned against the base"
