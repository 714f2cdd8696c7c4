"""Bullet moves the bodies: Featherstone's articulated bodies and projected Gauss-Seidel for what holds them.

    v+ = v + h M^-1 (force - C),   then impulses until no contact closes, no stop is passed, no dry friction is overcome
    q+ = q + h v+

Built from the compiled MjModel and each simulation's own numbers, so every unknown that is a model field acts here. What
Bullet has otherwise, or not at all:

- contacts are hard, MuJoCo's are springs with dampers: solref, solimp and margins are not read; nothing bounces
- friction is the smaller of what the cone bears and what stops the slip, solved by sweeps; its coefficient is that of the
  geom with the ground by MuJoCo's rule (priority, or the larger), and between two moving geoms the product of both
- dry friction of joints and joint stops are hard constraints
- forces, damping among them, are explicit: they act as they were at the beginning of a step
- armature is a rotor behind a gear, held to its joint by the solver: see sim/multibody.py
- ball joints, tendons, equality constraints, ellipsoids and flexible parts are refused by name
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
from surefoot.sim.engines.force_sensors import Readers, Touch
from surefoot.sim.engines.multibody import HERE, RATIO, Placed, Pose, Tree, placed, then, touching, trees
from surefoot.sim.integrator import Mover, Numbers

GEOM, JOINT = mujoco.mjtGeom, mujoco.mjtJoint
WORLDS = 64  # Bullet's own worlds at most: each takes 30 MB. More simulations than that share them
SWEEPS = 25  # of the solver: 16 times as many move walk's joints by 1 mrad in 40 control periods
NEAR = 0.05  # rad or m from a stop, where Bullet is told of it: one out of reach costs as much as one that is met
SOON = 10  # engine steps within which a joint may reach a stop
STILL, MOVING = 1, 2  # groups of shapes: what is fixed touches what moves, and other simulations' shapes never meet


def pybullet() -> Any:
    with _hush():  # its import tells stderr when it was built
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
    """One Bullet world with what never moves in it; simulations that share it do not meet."""

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
        """Where Bullet has a shape's origin in MuJoCo's frame: a height field's halfway between its least and largest."""
        if self.model.geom_type[g] != GEOM.mjGEOM_HFIELD:
            return HERE
        heights = self._heights(g)
        return np.array([0.0, 0.0, 0.5 * (heights.min() + heights.max())]), np.eye(3)


class Copies:
    """One tree of the model, grown once in each of n simulations."""

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
        """Simulation i's tree anew, at its q and v."""
        self.cut(i, client)
        self.uid[i] = uid = self._create(client, has)
        self.centre[i], self.turn[i] = has.root[0], from_matrix(has.root[1])
        # Bullet's own damping and speed limit; a call that sets them of a link would move its other numbers to the root
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
        """Dry friction: a motor that wants no speed and has no more than that force."""
        if self.links:
            forces, mode = loss[self.v].tolist(), client.p.VELOCITY_CONTROL
            client.call("setJointMotorControlArray", int(self.uid[i]), self.links, mode, forces=forces)

    def stop(self, k: int, i: int, client: Client, low: float, high: float) -> None:
        """Tell Bullet of a joint's stops; they stay until the tree is grown anew."""
        low, high = float(low - self.rest[k]), float(high - self.rest[k])
        client.call("changeDynamics", int(self.uid[i]), self.links[k], jointLowerLimit=low, jointUpperLimit=high)
        self.stopped[i, k] = True

    def within_reach(self, q: np.ndarray, v: np.ndarray, stops: np.ndarray, h: float) -> np.ndarray:
        """(simulation, joint) pairs whose stops are near and not yet told."""
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
        """(n, 9) where a root's centre of mass is, and the force there and torque that its free joint's forces are."""
        if not self.tree.root:
            return np.zeros((len(q), 9))
        quat, b = q[:, self.root_q + 3 : self.root_q + 7], self.root_v
        arm, pull = to_world(quat, self.centre), force[:, b : b + 3]
        twist = to_world(quat, force[:, b + 3 : b + 6]) - cross(arm, pull)
        return np.concatenate([q[:, self.root_q : self.root_q + 3] + arm, pull, twist], 1)

    def read(self, rows: np.ndarray, clients: list[Client], q: np.ndarray, v: np.ndarray) -> None:
        """Write where they are into the model's q and v."""
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


class Bullet(Mover):
    """n simulations in Bullet, up to WORLDS of them each in a world of its own.

    Those that share one do not touch, but the solver takes their constraints in an order that depends on all of them: it
    moves the fifth digit of what a simulation does. Same calls, same bits, in any case.
    """

    def __init__(self, model: mujoco.MjModel, numbers: Numbers, n: int):
        p = pybullet()
        self.model, self.numbers, self.n, self.crowd = model, numbers, n, -(-n // WORLDS)
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        self.still = {
            b: (data.xpos[b].copy(), data.xmat[b].reshape(3, 3).copy())
            for b in range(model.nbody)
            if model.body_weldid[b] == 0
        }
        self.pairs = touching(model)
        free = model.jnt_type[model.dof_jntid] == int(JOINT.mjJNT_FREE)
        geared = (model.dof_armature > 0) | (~free & ("dof_armature" in numbers))
        self.copies = [Copies(model, tree, n) for tree in trees(model, geared)]
        self.readers = Readers(model)
        self.clients = [Client(p, model, self.still, self.pairs) for _ in range(-(-n // self.crowd))]
        self.fresh = np.ones(n, bool)  # to be grown anew
        self.known = np.full((n, model.nq), np.nan), np.full((n, model.nv), np.nan)  # as the last move left them
        self.last = (*self.known, self.known[1])  # q and v before it, and the change of v
        self.loss = np.full((n, model.nv), np.nan)

    def __del__(self) -> None:
        for client in getattr(self, "clients", ()):
            client.close()

    def begin(self, ids: np.ndarray) -> None:
        self.fresh[ids] = True

    def _field(self, name: str, i: int) -> np.ndarray:
        if name in self.numbers:
            return self.numbers[name][i]
        return getattr(self.model.opt if name.startswith("opt.") else self.model, name.removeprefix("opt."))

    def move(self, q: np.ndarray, v: np.ndarray, force: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start = q, v
        sound = np.isfinite(q).all(1) & np.isfinite(force).all(1) & (np.abs(v) < FASTEST).all(1)
        elsewhere = (q != self.known[0]).any(1) | (v != self.known[1]).any(1)
        for i in np.flatnonzero(self.fresh | elsewhere | ~sound):
            self._grow(int(i), q[i], v[i]) if sound[i] else self._cut(int(i))
        rows = np.flatnonzero(sound)
        self._hold(rows, q, v)
        for copies in self.copies:
            wrench = copies.wrenches(q, force)
            for i in rows:
                copies.push(int(i), self.clients[i // self.crowd], force[i], wrench[i])
        for client in self.clients:
            client.call("stepSimulation")
        q, v = np.where(sound[:, None], q, np.nan), np.where(sound[:, None], v, np.nan)
        for copies in self.copies:
            copies.read(rows, [self.clients[i // self.crowd] for i in rows], q, v)
        self.fresh[:] = ~sound
        self.last, self.known = (*start, v - start[1]), (q.copy(), v.copy())
        return q, v

    def _cut(self, i: int) -> None:
        for copies in self.copies:
            copies.cut(i, self.clients[i // self.crowd])

    def _grow(self, i: int, q: np.ndarray, v: np.ndarray) -> None:
        """Simulation i's bodies anew, with its own numbers, and nothing that the old ones remembered."""
        client = self.clients[i // self.crowd]
        where: dict[int, tuple[int, int]] = {}  # geom -> body, link
        for copies in self.copies:
            has = placed(self.model, copies.tree, lambda f: self._field(f, i), self.still)
            copies.grow(i, client, has, q, v)
            where |= {x.geom: (int(copies.uid[i]), k) for k, x in enumerate(copies.tree.links) if x.geom >= 0}
        for g, (uid, link) in where.items():
            slide, spin, roll = _friction(self.model, self._field("geom_friction", i), g, self.pairs)
            client.call("changeDynamics", uid, link, lateralFriction=slide, spinningFriction=spin, rollingFriction=roll)
            client.call("setCollisionFilterGroupMask", uid, link, MOVING, 0)
        everything = where | {g: (uid, -1) for g, uid in client.ground.items()}
        for a, b in self.pairs:
            (x, j), (y, k) = everything[a], everything[b]
            client.call("setCollisionFilterPair", x, y, j, k, 1)
        self.loss[i] = np.nan

    def _hold(self, rows: np.ndarray, q: np.ndarray, v: np.ndarray) -> None:
        """Dry friction where it has changed, and stops that have come near."""
        loss, stops = self._rows("dof_frictionloss"), self._rows("jnt_range")
        if self.model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS:
            loss = np.zeros_like(loss)
        for i in rows[(loss[rows] != self.loss[rows]).any(1)]:
            for copies in self.copies:
                copies.hold(i, self.clients[i // self.crowd], loss[i])
            self.loss[i] = loss[i]
        sound = np.isin(np.arange(self.n), rows)
        for copies in self.copies:
            for i, k in copies.within_reach(q, v, stops, self.model.opt.timestep):
                if sound[i]:
                    copies.stop(k, i, self.clients[i // self.crowd], *stops[i, copies.joints[k]])

    def _rows(self, name: str) -> np.ndarray:
        """A field of all simulations."""
        if name in self.numbers:
            return self.numbers[name]
        own = getattr(self.model, name)
        return np.broadcast_to(own, (self.n, *own.shape))

    def read(self, data: np.ndarray, wrench: np.ndarray) -> None:
        if not self.readers.any:
            return
        for client, first in zip(self.clients, range(0, self.n, self.crowd)):
            at = self._owners(first, client)
            felt: dict[int, list[Touch]] = {i: [] for i in range(first, min(first + self.crowd, self.n))}
            for c in client.call("getContactPoints"):
                (i, a), (j, b) = at[c[1], c[3]], at[c[2], c[4]]
                if c[9] > 0:
                    for owner, touch in ((i, _touch(c, a, b, 1.0)), (j, _touch(c, b, a, -1.0))):
                        if owner >= 0:
                            felt[owner].append(touch)
            for i, touches in felt.items():
                if not self.fresh[i]:
                    self._read(i, touches, data[i], wrench[i])

    def _owners(self, first: int, client: Client) -> dict[tuple[int, int], tuple[int, int]]:
        """(body, link) in a client -> simulation (-1: the ground), geom."""
        return {(uid, -1): (-1, g) for g, uid in client.ground.items()} | {
            (int(copies.uid[i]), k): (i, link.geom)
            for copies in self.copies
            for k, link in enumerate(copies.tree.links)
            if link.geom >= 0
            for i in range(first, min(first + self.crowd, self.n))
        }

    def _read(self, i: int, touches: list[Touch], data: np.ndarray, wrench: np.ndarray) -> None:
        q, v, change = (rows[i] for rows in self.last)
        self.readers(lambda f: self._field(f, i), q, v, change / self.model.opt.timestep, touches, wrench, data)


def _touch(c: tuple[Any, ...], geom: int, other: int, sign: float) -> Touch:
    """One of Bullet's contact points, as what it does to the geom that is first (sign 1) or second (-1) in it."""
    normal = np.array(c[7])  # towards the first
    force = c[9] * normal + c[10] * np.array(c[11]) + c[12] * np.array(c[13])
    return Touch(geom, other, 0.5 * (np.array(c[5]) + np.array(c[6])), sign * force, -sign * normal, float(c[9]))


def _friction(model: mujoco.MjModel, friction: np.ndarray, g: int, pairs: list[tuple[int, int]]) -> list[float]:
    """Sliding, spinning and rolling friction of a geom on the first thing that stands still and may touch it.

    MuJoCo's rule: coefficients and condim are those of the geom with priority, or else the larger of both.
    """
    others = [b if a == g else a for a, b in pairs if g in (a, b)]
    x = next((x for x in others if model.body_weldid[model.geom_bodyid[x]] == 0), g)
    both = sorted((g, x), key=lambda k: model.geom_priority[k])
    ruling = both if model.geom_priority[g] == model.geom_priority[x] else both[1:]
    slide, spin, roll = friction[ruling].max(0).tolist()
    dims = int(model.geom_condim[ruling].max())
    return [slide if dims >= 3 else 0.0, spin if dims >= 4 else 0.0, roll if dims >= 6 else 0.0]
