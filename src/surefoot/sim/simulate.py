"""Simulations of a robot's model for scripts: x' = f(x, u, e), n of them side by side."""

import numpy as np

from surefoot.params import Params
from surefoot.robot import Robot
from surefoot.sim.engine import Engine
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.model.load import load_robot
from surefoot.world import Chance, Motion, Start, World


def make_world(robot: Robot, params: Params, n: int, substeps: int = 1, threads: int = 0) -> World:
    """n simulations of a robot's model, each with its own e; a control period has `substeps` steps of the engine."""
    return Engine(compile_for(load_robot(robot).spec, params), params, n, substeps, threads)


def simulate(world: World, e: np.ndarray, q: np.ndarray, v: np.ndarray, u: np.ndarray) -> Motion:
    """The motion of all n simulations of a world from positions q (n, nq) and velocities v (n, nv) under controls u (n, T, nu),
    each in the world that its row of e (n, ne) says."""
    world.reset(np.arange(world.n), e, Start(q, v, u[:, 0]))
    return world.rollout(u, Chance(0, 0, world.dt))
