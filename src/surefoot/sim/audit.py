"""Evidence that each named unknown acts: step the same world with and without it, and compare.

    effect_i = max |x(T; e_i at a bound) - x(T; nominal)|  over positions, velocities, readings; same start and controls

Randomization without effect is a common defect: a friction masked by the other surface's, the gain of an unused actuator,
wind without air density. An audit finds it before training is wasted.
"""

import copy
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot.params import Param, Params
from surefoot.rng import stream
from surefoot.robot import Robot
from surefoot.sim.engine import Engine, silence
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.model.load import load_robot
from surefoot.world import Chance, Start

SECONDS = 0.5  # simulated time of an audit
ACTS = 1e-9  # smallest difference that counts; the engine is bit-exact, so any difference is due to the parameter


@dataclass(frozen=True)
class Effect:
    param: Param
    value: float
    """the value that was tried"""
    change: float
    """largest change of any position, velocity or reading"""

    @property
    def acts(self) -> bool:
        return self.change > ACTS


Trace = Callable[[np.ndarray], np.ndarray]  # e (n, ne) -> (n, k) positions, velocities, readings


def effects(params: Params, trace: Trace) -> list[Effect]:
    """Set one parameter at a time to each of its bounds, and compare with nominal rows."""
    if not len(params):
        return []
    moved = np.tile(params.nominal, (2 * len(params), 1))
    for i, p in enumerate(params):
        moved[2 * i, i], moved[2 * i + 1, i] = p.low, p.high
    difference = np.abs(trace(moved) - trace(np.tile(params.nominal, (len(moved), 1))))
    change = np.where(np.isnan(difference), math.inf, difference).max(1, initial=0.0)
    found = []
    for i, p in enumerate(params):
        best = max(2 * i, 2 * i + 1, key=lambda r: change[r])
        found.append(Effect(p, float(moved[best, i]), float(change[best])))
    return found


def audit(robot: Robot, params: Params) -> list[Effect]:
    """Which unknowns act: the largest change of the robot's motion when each is at a bound, alone, and the rest at nominal."""
    return effects(params, model_trace(load_robot(robot).spec, params))


def model_trace(spec: mujoco.MjSpec, params: Params) -> Trace:
    """The motion of a model under random controls from its first keyframe (or default pose), as a function of e."""
    model = compile_for(spec, params)
    substeps = max(1, round(0.02 / model.opt.timestep))

    def trace(e: np.ndarray) -> np.ndarray:
        world = Engine(model, params, len(e), substeps)
        world.reset(np.arange(len(e)), e, start_of(model, len(e)))
        low, high = control_range(model)
        seen = []
        for k in range(round(SECONDS / world.dt)):
            u = stream(0, "audit", k // 5).uniform(low, high, model.nu)
            world.step(np.tile(u, (len(e), 1)), Chance(0, k, world.dt))
            seen += [world.state.q.copy(), world.state.v.copy(), *(y.copy() for y in world.state.y.values())]
        return np.concatenate(seen, 1)

    return trace


def cost(model: mujoco.MjModel, params: Params) -> float:
    """Approximate duration of an audit, s on one core: from the time of a step and of mj_setConst."""
    start, data, own = start_of(model, 1), mujoco.MjData(model), copy.copy(model)
    data.qpos[:], data.qvel[:] = start.q[0], start.v[0]
    silence()
    mujoco.mj_step(model, data)  # the first step touches its memory
    step = _timed(lambda: mujoco.mj_step(model, data))
    derive = _timed(lambda: mujoco.mj_setConst(own, data))
    return 4 * len(params) * (step * SECONDS / model.opt.timestep + derive)


def _timed(act: Callable[[], None]) -> float:
    """CPU seconds of one call, the mean over 10 ms."""
    began, n = time.process_time(), 0
    while n == 0 or time.process_time() - began < 0.01:
        act()
        n += 1
    return (time.process_time() - began) / n


def start_of(model: mujoco.MjModel, n: int) -> Start:
    """The first keyframe or default pose with a small velocity, the same in every row."""
    q = (model.key_qpos[0] if model.nkey else model.qpos0).copy()
    v = stream(0, "audit start").uniform(-0.5, 0.5, model.nv)
    u = model.key_ctrl[0].copy() if model.nkey else np.zeros(model.nu)
    return Start(np.tile(q, (n, 1)), np.tile(v, (n, 1)), np.tile(u, (n, 1)))


def control_range(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    limited = model.actuator_ctrllimited.astype(bool)
    low, high = model.actuator_ctrlrange.T
    return np.where(limited, low, -1.0), np.where(limited, high, 1.0)


def unknowns(model: mujoco.MjModel) -> Params:
    """The unknowns of any robot with initial ranges: what usually differs between model and robot."""
    joints = [j for j in range(model.njnt) if model.jnt_type[j] != mujoco.mjtJoint.mjJNT_FREE]
    dofs = [int(model.jnt_dofadr[j]) for j in joints]
    names = "|".join(re.escape(model.joint(j).name) for j in joints if model.joint(j).name)
    bodies = [i for i in range(1, model.nbody) if model.body_mass[i] > 0 and model.body(i).name]
    rows = []
    if np.linalg.norm(model.opt.gravity) > 0:
        rows.append(Param("gravity", "gravity", 1.0, 0.97, 1.03, about="strength of gravity, as a multiple"))
    if bodies:
        everybody = "|".join(re.escape(model.body(i).name) for i in bodies)
        big = max(bodies, key=lambda i: float(model.body_mass[i]))
        heaviest, size = model.body(big).name, float(np.sqrt(model.body_inertia[big].sum() / 2 / model.body_mass[big]))
        rows += [
            Param("mass", "mass", 1.0, 0.8, 1.25, match=everybody, log=True, about="every body's mass, as a multiple"),
            Param("com_x", "com_x", 0.0, -0.2 * size, 0.2 * size, match=re.escape(heaviest), op="add", unit="m",
                  about=f"centre of mass of {heaviest}"),
        ]  # fmt: skip
    if names:
        rows += _joint_unknowns(model, names, dofs)
    if model.nu:
        rows.append(Param("strength", "strength", 1.0, 0.8, 1.2, about="every actuator's force, as a multiple"))
    if model.nu and all(model.actuator(i).name for i in range(model.nactuator)):
        rows.append(Param("latency", "action_delay", 0.0, 0.0, 0.04, op="set", unit="s", about="from command to motor"))
    paired = np.isin(np.arange(model.ngeom), [*model.pair_geom1, *model.pair_geom2])
    touching = [model.geom(i).name for i in np.flatnonzero(model.geom_contype | model.geom_conaffinity | paired)]
    surfaces, about = "|".join(re.escape(n) for n in touching if n), "every surface's sliding friction, as a multiple"
    if surfaces:
        rows.append(Param("friction", "friction", 1.0, 0.4, 1.5, surfaces, log=True, about=about))
    return Params(tuple(rows))


def _joint_unknowns(model: mujoco.MjModel, names: str, dofs: list[int]) -> list[Param]:
    reflected = float(np.median(model.dof_M0[dofs]))
    rows = []
    for target, field, share in (
        ("armature", model.dof_armature, 0.1),
        ("damping", model.dof_damping, 1.0),
        ("frictionloss", model.dof_frictionloss, 1.0),
    ):
        if field[dofs].any():
            about = f"every joint's {target}, as a multiple"
            rows.append(Param(target, target, 1.0, 0.5, 2.0, names, log=True, about=about))
        else:
            most, about = max(share * reflected, 1e-4), f"{target} that the model lacks"
            rows.append(Param(target, target, 0.0, 0.0, most, names, "add", about=about))
    return rows
