"""The ground that rewards measure from is the ground that feet stand on."""

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.sim.model.load import load_robot
from surefoot.tasks.build.ground import AMPLITUDE, SIZE, Ground


def test_the_height_under_a_foot_is_where_a_ray_meets_the_ground():
    model = load_robot(tasks.resolve("walk-rough").robot).model
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    rng, met = np.random.default_rng(0), []
    places = rng.uniform(-0.9 * SIZE, 0.9 * SIZE, (50, 2))
    for x, y in places:
        hit = np.zeros(1, np.int32)
        met.append(
            1.0 - mujoco.mj_ray(model, data, np.array([x, y, 1.0]), np.array([0, 0, -1.0]), None, 1, 1, hit, None)
        )
    # between grid points one is bilinear, the other two triangles
    assert np.abs(Ground(rough=True).height(*places.T) - met).max() < 0.02 * AMPLITUDE
