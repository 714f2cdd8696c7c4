"""Bullet moves the bodies: Featherstone's articulated bodies and projected Gauss-Seidel for constraints.

    v+ = v + h M^-1 (force - C),   then impulses until no contact closes, no stop is passed, no dry friction is overcome
    q+ = q + h v+

Built from the compiled MjModel and each simulation's parameters, so every unknown that is a model field acts here.
Differences from MuJoCo:

- contacts are hard, MuJoCo's are springs with dampers: solref, solimp and margins are ignored; nothing bounces
- friction stops slip within the friction cone, solved by sweeps; its coefficient with the ground follows MuJoCo's rule
  (priority, or the larger), and between two moving geoms it is the product of both
- dry friction of joints and joint stops are hard constraints
- forces, including damping, are explicit: evaluated at the beginning of a step
- armature is a rotor behind a gear, constrained to its joint by the solver: see multibody.py
- ball joints, tendons, equality constraints, ellipsoids and flexible parts are refused by name
"""

from typing import Any

import mujoco
import numpy as np

from surefoot.sim.engine import FASTEST
from surefoot.sim.engines.bullet_bodies import MOVING, Client, Copies, pybullet
from surefoot.sim.engines.force_sensors import Readers, Touch
from surefoot.sim.engines.multibody import placed, touching, trees
from surefoot.sim.integrator import Mover, Numbers

WORLDS = 64  # largest number of Bullet worlds, of 30 MB each. More simulations share them


class Bullet(Mover):
    """n simulations in Bullet, up to WORLDS of them each in a world of its own.

    Those that share one do not collide, but the solver's order of constraints depends on all of them, which changes the
    fifth digit of results. The same calls give the same bits in any case.
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
        free = model.jnt_type[model.dof_jntid] == int(mujoco.mjtJoint.mjJNT_FREE)
        geared = (model.dof_armature > 0) | (~free & ("dof_armature" in numbers))
        self.copies = [Copies(model, tree, n) for tree in trees(model, geared)]
        self.readers = Readers(model)
        self.clients = [Client(p, model, self.still, self.pairs) for _ in range(-(-n // self.crowd))]
        self.fresh = np.ones(n, bool)  # to be rebuilt
        self.known = np.full((n, model.nq), np.nan), np.full((n, model.nv), np.nan)  # after the last move
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
        """Rebuild simulation i's bodies with its parameters, without any cached contacts."""
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
        """Update dry friction that has changed, and stops that are near."""
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
        x = q, v, change / self.model.opt.timestep
        self.readers(lambda f: self._field(f, i), x, touches, wrench, data)


def _touch(c: tuple[Any, ...], geom: int, other: int, sign: float) -> Touch:
    """One of Bullet's contact points, acting on its first (sign 1) or second (-1) geom."""
    normal = np.array(c[7])  # towards the first
    force = c[9] * normal + c[10] * np.array(c[11]) + c[12] * np.array(c[13])
    return Touch(geom, other, 0.5 * (np.array(c[5]) + np.array(c[6])), sign * force, -sign * normal, float(c[9]))


def _friction(model: mujoco.MjModel, friction: np.ndarray, g: int, pairs: list[tuple[int, int]]) -> list[float]:
    """Sliding, spinning and rolling friction of a geom on the first fixed geom that may touch it.

    MuJoCo's rule: coefficients and condim are those of the geom with priority, or else the larger of both.
    """
    others = [b if a == g else a for a, b in pairs if g in (a, b)]
    x = next((x for x in others if model.body_weldid[model.geom_bodyid[x]] == 0), g)
    both = sorted((g, x), key=lambda k: model.geom_priority[k])
    ruling = both if model.geom_priority[g] == model.geom_priority[x] else both[1:]
    slide, spin, roll = friction[ruling].max(0).tolist()
    dims = int(model.geom_condim[ruling].max())
    return [slide if dims >= 3 else 0.0, spin if dims >= 4 else 0.0, roll if dims >= 6 else 0.0]
