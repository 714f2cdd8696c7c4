"""Bullet's worlds and the bodies in them: one Client for what never moves, and Copies of each tree of the model.

Positions and orientations are Bullet's: link frames at joint anchors (multibody.py), the root at its centre of mass.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np

from surefoot.errors import MissingExtra, SurefootError
from surefoot.rotation import conjugate, cross, from_matrix, matrix, product, to_body, to_world
from surefoot.sim.engine import FASTEST
from surefoot.sim.engines.multibody import HERE, RATIO, Placed, Pose, Tree, then

GEOM, JOINT = mujoco.mjtGeom, mujoco.mjtJoint
SWEEPS = 25  # of the solver: 16 times as many move walk's joints by 1 mrad in 40 control periods
NEAR = (
    0.05  # rad or m from a stop at which Bullet gets it as a constraint: one out of reach costs as much as one in use
)
SOON = 10  # engine steps within which a joint may reach a stop
STILL, MOVING = 1, 2  # groups of shapes: fixed ones collide with moving ones, those of two simulations never do


def pybullet() -> Any:
    with _hush():  # its import prints to stderr
        try:
            import pybullet
        except ImportError:
            raise MissingExtra("the engine bullet", "bullet") from None
    return pybullet


@contextlib.contextmanager
def _hush() -> Iterator[None]:
    if "pybullet" in sys.modules:
        yield
        return
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _xyzw(R: np.ndarray) -> list[float]:
    w, x, y, z = from_matrix(R).tolist()
    return [x, y, z, w]


class Client:
    """One Bullet world with its fixed geoms; simulations that share it do not collide."""

    def __init__(self, p: Any, model: mujoco.MjModel, still: dict[int, Pose], pairs: list[tuple[int, int]]):
        self.p, self.model, self.id = p, model, p.connect(p.DIRECT)
        if self.id < 0:
            raise SurefootError("engine bullet: no more clients can be opened in this process")
        p.setPhysicsEngineParameter(
            fixedTimeStep=model.opt.timestep, numSolverIterations=SWEEPS, numSubSteps=1, enableConeFriction=1,
            solverResidualThreshold=0.0, deterministicOverlappingPairs=1, physicsClientId=self.id,
        )  # fmt: skip
        p.setGravity(0, 0, 0, physicsClientId=self.id)
        self.shapes = {g: self._shape(g) for pair in pairs for g in pair}
        self.ground: dict[int, int] = {}  # geom -> body
        for g in self.shapes:
            b = int(model.geom_bodyid[g])
            if model.body_weldid[b] == 0:
                at, R = then(then(still[b], (model.geom_pos[g], matrix(model.geom_quat[g]))), self._middle(g))
                self.ground[g] = self.call("createMultiBody", 0, self.shapes[g], -1, at.tolist(), _xyzw(R))
                self.call("changeDynamics", self.ground[g], -1, lateralFriction=1.0)
                self.call("setCollisionFilterGroupMask", self.ground[g], -1, STILL, MOVING)

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        return getattr(self.p, name)(*args, physicsClientId=self.id, **options)

    def close(self) -> None:
        self.p.disconnect(self.id)

    def _shape(self, g: int) -> int:
        p, m, size = self.p, self.model, self.model.geom_size[g].tolist()
        kind = GEOM(int(m.geom_type[g]))
        if kind == GEOM.mjGEOM_PLANE:
            return self.call("createCollisionShape", p.GEOM_PLANE)
        if kind == GEOM.mjGEOM_SPHERE:
            return self.call("createCollisionShape", p.GEOM_SPHERE, radius=size[0])
        if kind == GEOM.mjGEOM_BOX:
            return self.call("createCollisionShape", p.GEOM_BOX, halfExtents=size)
        if kind in (GEOM.mjGEOM_CAPSULE, GEOM.mjGEOM_CYLINDER):
            shape = p.GEOM_CAPSULE if kind == GEOM.mjGEOM_CAPSULE else p.GEOM_CYLINDER
            return self.call("createCollisionShape", shape, radius=size[0], height=2 * size[1])
        if kind == GEOM.mjGEOM_MESH:
            first = int(m.mesh_vertadr[m.geom_dataid[g]])
            corners = m.mesh_vert[first : first + int(m.mesh_vertnum[m.geom_dataid[g]])]
            return self.call("createCollisionShape", p.GEOM_MESH, vertices=corners.tolist())
        if kind == GEOM.mjGEOM_HFIELD:
            return self._hills(g)
        raise SurefootError(f"engine bullet: geom {m.geom(g).name or g}: it has no {kind.name[7:].lower()}s")

    def _heights(self, g: int) -> np.ndarray:
        m, k = self.model, int(self.model.geom_dataid[g])
        first, count = int(m.hfield_adr[k]), int(m.hfield_nrow[k]) * int(m.hfield_ncol[k])
        return m.hfield_size[k, 2] * m.hfield_data[first : first + count].astype(float)

    def _hills(self, g: int) -> int:
        m, k = self.model, int(self.model.geom_dataid[g])
        rows, cols = int(m.hfield_nrow[k]), int(m.hfield_ncol[k])
        x, y = m.hfield_size[k, :2].tolist()
        return self.call(
            "createCollisionShape", self.p.GEOM_HEIGHTFIELD, heightfieldData=self._heights(g).tolist(),
            numHeightfieldRows=cols, numHeightfieldColumns=rows, meshScale=[2 * x / (cols - 1), 2 * y / (rows - 1), 1.0],
        )  # fmt: skip

    def _middle(self, g: int) -> Pose:
        """Bullet's origin of a shape in MuJoCo's frame: of a height field, halfway between its lowest and highest point."""
        if self.model.geom_type[g] != GEOM.mjGEOM_HFIELD:
            return HERE
        heights = self._heights(g)
        return np.array([0.0, 0.0, 0.5 * (heights.min() + heights.max())]), np.eye(3)


class Copies:
    """One tree of the model in each of n simulations."""

    def __init__(self, model: mujoco.MjModel, tree: Tree, n: int):
        self.model, self.tree = model, tree
        self.links = [i for i, link in enumerate(tree.links) if link.joint >= 0]
        joints = [tree.links[i].joint for i in self.links]
        self.q, self.v = model.jnt_qposadr[joints].astype(int), model.jnt_dofadr[joints].astype(int)
        free = bool(model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_LIMIT)
        self.rest, self.limited = model.qpos0[self.q], model.jnt_limited[joints].astype(bool) & (not free)
        self.joints, self.stopped = joints, np.zeros((n, len(joints)), bool)
        first = int(model.body_jntadr[tree.root]) if tree.root else 0
        self.root_q, self.root_v = int(model.jnt_qposadr[first]), int(model.jnt_dofadr[first])
        place = {joint: k for k, joint in enumerate(joints)}
        self.rotors = [(i, place[link.rotor]) for i, link in enumerate(tree.links) if link.rotor >= 0]
        self.gears: list[list[int]] = [[] for _ in range(n)]
        self.uid = np.full(n, -1)
        self.centre, self.turn = np.zeros((n, 3)), np.zeros((n, 4))  # the root's frame in its body's

    def grow(self, i: int, client: Client, has: Placed, q: np.ndarray, v: np.ndarray) -> None:
        """Rebuild simulation i's tree at its q and v."""
        self.cut(i, client)
        self.uid[i] = uid = self._create(client, has)
        self.centre[i], self.turn[i] = has.root[0], from_matrix(has.root[1])
        # Bullet's damping and speed limit; setting them on a link would reset other values of the root
        client.call("changeDynamics", uid, -1, linearDamping=0.0, angularDamping=0.0, maxJointVelocity=FASTEST)
        masses, inertias = [has.root_mass, *has.masses.tolist()], [has.root_inertia, *has.inertias]
        for k, (mass, inertia) in enumerate(zip(masses, inertias)):
            client.call(
                "changeDynamics", uid, k - 1, mass=mass, localInertiaDiagonal=inertia.tolist(), jointDamping=0.0
            )
        if self.tree.root:
            quat = q[self.root_q + 3 : self.root_q + 7]
            body = q[self.root_q : self.root_q + 3], matrix(quat / np.linalg.norm(quat))
            at, R = then(body, has.root)
            spin = body[1] @ v[self.root_v + 3 : self.root_v + 6]
            speed = v[self.root_v : self.root_v + 3] + np.cross(spin, at - body[0])
            client.call("resetBasePositionAndOrientation", uid, at.tolist(), _xyzw(R))
            client.call("resetBaseVelocity", uid, speed.tolist(), spin.tolist())
        for k, x, speed in zip(self.links, (q[self.q] - self.rest).tolist(), v[self.v].tolist()):
            client.call("resetJointState", uid, k, x, speed)
        for rotor, k in self.rotors:
            client.call("resetJointState", uid, rotor, 0.0, RATIO * float(v[self.v[k]]))
            client.call("setJointMotorControl2", uid, rotor, client.p.VELOCITY_CONTROL, force=0.0)
            ends = uid, self.links[k], uid, rotor
            gear = client.call("createConstraint", *ends, client.p.JOINT_GEAR, [0, 0, 1], [0] * 3, [0] * 3)
            client.call("changeConstraint", gear, gearRatio=-1.0 / RATIO, maxForce=FASTEST)
            self.gears[i].append(gear)

    def _create(self, client: Client, has: Placed) -> int:
        p, links, kind = client.p, self.tree.links, self.model.jnt_type
        kinds = {int(JOINT.mjJNT_HINGE): p.JOINT_REVOLUTE, int(JOINT.mjJNT_SLIDE): p.JOINT_PRISMATIC}
        return client.call(
            "createMultiBody",
            baseMass=has.root_mass,
            linkMasses=has.masses.tolist(),
            linkCollisionShapeIndices=[client.shapes[link.geom] if link.geom >= 0 else -1 for link in links],
            linkVisualShapeIndices=[-1] * len(links),
            linkPositions=[at.tolist() for at, _ in has.poses],
            linkOrientations=[_xyzw(R) for _, R in has.poses],
            linkInertialFramePositions=[at.tolist() for at, _ in has.inertial],
            linkInertialFrameOrientations=[_xyzw(R) for _, R in has.inertial],
            linkParentIndices=[link.parent + 1 for link in links],
            linkJointTypes=[
                kinds[int(kind[x.joint])] if x.joint >= 0 else p.JOINT_REVOLUTE if x.rotor >= 0 else p.JOINT_FIXED
                for x in links
            ],
            linkJointAxis=has.axes.tolist(),
            flags=p.URDF_USE_SELF_COLLISION_INCLUDE_PARENT,
        )

    def cut(self, i: int, client: Client) -> None:
        for gear in self.gears[i]:
            client.call("removeConstraint", gear)
        self.gears[i].clear()
        self.stopped[i] = False
        if self.uid[i] >= 0:
            client.call("removeBody", int(self.uid[i]))
            self.uid[i] = -1

    def hold(self, i: int, client: Client, loss: np.ndarray) -> None:
        """Dry friction: a velocity motor with target 0 and limited force."""
        if self.links:
            forces, mode = loss[self.v].tolist(), client.p.VELOCITY_CONTROL
            client.call("setJointMotorControlArray", int(self.uid[i]), self.links, mode, forces=forces)

    def stop(self, k: int, i: int, client: Client, low: float, high: float) -> None:
        """Add a joint's stops; they stay until the tree is rebuilt."""
        low, high = float(low - self.rest[k]), float(high - self.rest[k])
        client.call("changeDynamics", int(self.uid[i]), self.links[k], jointLowerLimit=low, jointUpperLimit=high)
        self.stopped[i, k] = True

    def within_reach(self, q: np.ndarray, v: np.ndarray, stops: np.ndarray, h: float) -> np.ndarray:
        """(simulation, joint) pairs whose stops are near and not yet added."""
        q, reach = q[:, self.q], NEAR + SOON * h * np.abs(v[:, self.v])
        low, high = stops[:, self.joints, 0], stops[:, self.joints, 1]
        return np.argwhere(self.limited & ~self.stopped & ((q - low < reach) | (high - q < reach)))

    def push(self, i: int, client: Client, force: np.ndarray, wrench: np.ndarray) -> None:
        """Joints' forces, and the root's: (point, force, torque) in the world."""
        uid, p = int(self.uid[i]), client.p
        if self.links:
            client.call("setJointMotorControlArray", uid, self.links, p.TORQUE_CONTROL, forces=force[self.v].tolist())
        if self.tree.root:
            client.call("applyExternalForce", uid, -1, wrench[3:6].tolist(), wrench[:3].tolist(), p.WORLD_FRAME)
            client.call("applyExternalTorque", uid, -1, wrench[6:].tolist(), p.WORLD_FRAME)

    def wrenches(self, q: np.ndarray, force: np.ndarray) -> np.ndarray:
        """(n, 9) position of a root's centre of mass, and its free joint's forces as force and torque there."""
        if not self.tree.root:
            return np.zeros((len(q), 9))
        quat, b = q[:, self.root_q + 3 : self.root_q + 7], self.root_v
        arm, pull = to_world(quat, self.centre), force[:, b : b + 3]
        twist = to_world(quat, force[:, b + 3 : b + 6]) - cross(arm, pull)
        return np.concatenate([q[:, self.root_q : self.root_q + 3] + arm, pull, twist], 1)

    def read(self, rows: np.ndarray, clients: list[Client], q: np.ndarray, v: np.ndarray) -> None:
        """Write their state into the model's q and v."""
        base, joints = np.zeros((len(rows), 13)), np.zeros((len(rows), 2, len(self.links)))
        for k, i in enumerate(rows):
            client, uid = clients[k], int(self.uid[i])
            if self.tree.root:
                at, xyzw = client.call("getBasePositionAndOrientation", uid)
                base[k] = (*at, xyzw[3], *xyzw[:3], *sum(client.call("getBaseVelocity", uid), ()))
            if self.links:
                joints[k] = list(zip(*client.call("getJointStates", uid, self.links)))[:2]
        if self.links:
            q[np.ix_(rows, self.q)], v[np.ix_(rows, self.v)] = joints[:, 0] + self.rest, joints[:, 1]
        if self.tree.root:
            a, b = self.root_q, self.root_v
            quat = product(base[:, 3:7], conjugate(self.turn[rows]))
            quat *= np.where((quat * q[rows, a + 3 : a + 7]).sum(1) < 0, -1.0, 1.0)[:, None]
            arm, spin = to_world(quat, self.centre[rows]), base[:, 10:]
            q[rows, a : a + 3], q[rows, a + 3 : a + 7] = base[:, :3] - arm, quat
            v[rows, b : b + 3] = base[:, 7:10] - cross(spin, arm)
            v[rows, b + 3 : b + 6] = to_body(quat, spin)
