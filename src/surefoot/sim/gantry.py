"""A gantry: the base of a simulated robot hangs where its episode begins, until it is let go.

weld of base and world while it hangs:   pose of the world seen from the base = inverse of the base's pose at the start
"""

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.robot import Robot
from surefoot.rotation import conjugate, to_body
from surefoot.sim.engine import Engine
from surefoot.world import World

NAME = "gantry"


def with_gantry(robot: Robot) -> Robot:
    """The robot with a weld at its base, which holds nothing yet."""
    return robot.edited(_weld)


def _weld(spec: mujoco.MjSpec) -> None:
    base = next((b for b in spec.bodies for j in b.joints if j.type == mujoco.mjtJoint.mjJNT_FREE), None)
    if base is None:
        raise SurefootError("gantry: expected a robot with a free base, found none")
    spec.add_equality(
        name=NAME, type=mujoco.mjtEq.mjEQ_WELD, objtype=mujoco.mjtObj.mjOBJ_BODY, name1=base.name, name2="world",
        active=False, data=[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0],
    )  # fmt: skip


class Gantry:
    """Of the robots of a world."""

    def __init__(self, world: World):
        if not isinstance(world, Engine) or world.layout.base is None:
            raise SurefootError("gantry: expected a robot with a free base that MuJoCo simulates")
        self.world, self.at, self.row = world, world.layout.base[0], world.model.equality(NAME).id
        self.active, self.data = world.batch.bind("eq_active"), world.batch.expand("eq_data")

    def hang(self) -> None:
        """All bases stay where they are."""
        q = self.world.state.q
        place, turn = q[:, self.at : self.at + 3], q[:, self.at + 3 : self.at + 7]
        self.data[:, self.row, 3:10] = np.concatenate([-to_body(turn, place), conjugate(turn)], 1)
        self.world.state.v[:] = 0.0
        self.active[:, self.row] = 1.0

    def release(self) -> None:
        self.active[:, self.row] = 0.0
