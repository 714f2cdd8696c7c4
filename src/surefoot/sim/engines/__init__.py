"""The engines a task can run in, by name: one table, one line each.

Every engine gets the same model, e, Terms and controls, at the same control period. Where two of them disagree, at least
one is wrong about the robot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mujoco

from surefoot.errors import unknown
from surefoot.params import Params
from surefoot.sim.engine import Engine, Law
from surefoot.sim.engines.bullet import Bullet
from surefoot.sim.engines.warp import Warp
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.integrator import Makes, Steps, shadowed
from surefoot.world import Term, World

INTEGRATOR, SOLVER, CONE = mujoco.mjtIntegrator, mujoco.mjtSolver, mujoco.mjtCone
CONVERGED = {"iterations": 100, "ls_iterations": 50}


@dataclass(frozen=True)
class Kind:
    """An engine and its options."""

    about: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """model options that it overrides"""
    finer: int = 1
    """engine steps per step of the task; the control period stays"""
    mover: Makes | None = None
    """another engine that moves the bodies; None: MuJoCo"""
    stepper: Steps | None = None
    """who steps MuJoCo's law; None: its threads"""


ENGINES: dict[str, Kind] = {
    "mujoco": Kind("MuJoCo with the options of the task's model"),
    "bullet": Kind("PyBullet: articulated bodies, hard contacts", mover=Bullet),
    "bullet:half-step": Kind("PyBullet at half the timestep", finer=2, mover=Bullet),
    "warp": Kind("mujoco-warp: MuJoCo's law in single precision, on a GPU or without one", stepper=Warp),
    "mujoco:euler": Kind("semi-implicit Euler, joint damping implicit", {"integrator": INTEGRATOR.mjINT_EULER}),
    "mujoco:implicit": Kind("implicit in all velocities", {"integrator": INTEGRATOR.mjINT_IMPLICIT}),
    "mujoco:implicitfast": Kind("implicit but for Coriolis", {"integrator": INTEGRATOR.mjINT_IMPLICITFAST}),
    "mujoco:rk4": Kind("Runge-Kutta of fourth order", {"integrator": INTEGRATOR.mjINT_RK4}),
    "mujoco:half-step": Kind("half the timestep", finer=2),
    "mujoco:eighth-step": Kind("an eighth of the timestep: near the limit of small steps", finer=8),
    "mujoco:newton": Kind("Newton's contact forces, converged", {"solver": SOLVER.mjSOL_NEWTON, **CONVERGED}),
    "mujoco:pgs": Kind("contact forces by projected Gauss-Seidel", {"solver": SOLVER.mjSOL_PGS, **CONVERGED}),
    "mujoco:cg": Kind("contact forces by conjugate gradients", {"solver": SOLVER.mjSOL_CG, **CONVERGED}),
    "mujoco:pyramidal": Kind("friction cones with four sides", {"cone": CONE.mjCONE_PYRAMIDAL}),
    "mujoco:elliptic": Kind("round friction cones", {"cone": CONE.mjCONE_ELLIPTIC}),
}
DEFAULT = "mujoco"


def known(name: str, where: str = "") -> Kind:
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES, where)
    return ENGINES[name]


def make(
    name: str,
    spec: mujoco.MjSpec,
    params: Params,
    n: int,
    substeps: int,
    threads: int = 0,
    terms: tuple[Term, ...] = (),
    explicit: bool = False,
) -> World:
    """n simulations of a model in the engine of that name; the spec is edited.

    `explicit` is a task's own integrator: engines with another integrator or timestep ignore it.
    """
    kind = known(name)
    for option, value in kind.options.items():
        setattr(spec.option, option, value)
    spec.option.timestep /= kind.finer
    if kind.mover is not None:
        shadowed(spec)
    own = kind.finer > 1 or "integrator" in kind.options or kind.mover is not None
    model, steps = compile_for(spec, params), substeps * kind.finer
    return Engine(
        model, params, n, steps, threads, terms, Law(explicit and not own, makes=kind.mover, steps=kind.stepper)
    )
