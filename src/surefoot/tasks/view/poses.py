"""Where the bodies of a model are, for many states of it at once: what a picture of n robots is drawn from."""

import mujoco
import numpy as np


class Poses:
    """Forward kinematics of one model: x_b, R_b of every body b, from q alone."""

    def __init__(self, model: mujoco.MjModel):
        self.model, self.data = model, mujoco.MjData(model)

    def __call__(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions (n, nbody, 3) and quaternions (n, nbody, 4) of states q (n, nq)."""
        x, r = np.empty((len(q), self.model.nbody, 3)), np.empty((len(q), self.model.nbody, 4))
        for i, row in enumerate(q):
            self.data.qpos[:] = row
            mujoco.mj_kinematics(self.model, self.data)
            x[i], r[i] = self.data.xpos, self.data.xquat
        return x, r

    def extent(self, q: np.ndarray) -> np.ndarray:
        """(2,) m along x and y: the room that the shapes of one robot take up in any of these states, ground left out."""
        m, low, high = self.model, np.full(2, np.inf), np.full(2, -np.inf)
        kinds = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
        solid = ~np.isin(m.geom_type, kinds)
        for row in q:
            self.data.qpos[:] = row
            mujoco.mj_kinematics(m, self.data)
            half = np.abs(self.data.geom_xmat.reshape(-1, 3, 3)) @ m.geom_aabb[:, 3:, None]  # (ngeom, 3, 1)
            at = self.data.geom_xpos[solid, :2]
            low = np.minimum(low, (at - half[solid, :2, 0]).min(0, initial=np.inf))
            high = np.maximum(high, (at + half[solid, :2, 0]).max(0, initial=-np.inf))
        return np.where(np.isfinite(high - low), high - low, 1.0)
