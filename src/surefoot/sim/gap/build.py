"""A task's world with ingredients of the reality gap mixed in."""

import math
from collections.abc import Mapping

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.rng import stream
from surefoot.sim.engine import Engine, Law, compile_for
from surefoot.sim.fields import TARGETS, writer
from surefoot.sim.gap.air import AIRS
from surefoot.sim.gap.joints import JOINTS, dc_motors
from surefoot.sim.gap.link import LINKS
from surefoot.sim.gap.numbers import NUMBERS
from surefoot.sim.gap.observed_world import Shown, through, view
from surefoot.sim.gap.recipe import FASTEST, SLOWEST, Ingredient, Making, Number, Plain
from surefoot.sim.model.load import load_robot
from surefoot.task import Task
from surefoot.world import World

INGREDIENTS: dict[str, Ingredient] = {i.name: i for i in (*NUMBERS, *JOINTS, *AIRS, *LINKS)}
"""in the order in which they are mixed: sensors after what they sense, delays after what they delay"""


def fitting(task: Task) -> list[str]:
    """Ingredients that the task's model can have."""
    plain = Plain(_spec(task, torque=False).compile())
    return [name for name, ingredient in INGREDIENTS.items() if ingredient.fits(plain)]


def check(strengths: Mapping[str, float]) -> None:
    for name, s in strengths.items():
        if name not in INGREDIENTS:
            raise unknown("ingredient", name, INGREDIENTS)
        if not 0 <= s <= 1:
            raise SurefootError(f"ingredient {name}: expected a strength from 0 (none) to 1 (severe), found {s}")


def world_of(
    task: Task, strengths: Mapping[str, float], seed: int, n: int = 1, threads: int = 1, torque: bool = False
) -> World:
    """n copies of one machine: the task's model at its nominal e, made wrong by ingredients drawn from a seed.

    `torque` adds a sensor for the force of each joint's motor.
    """
    return _world(task, _mixed(task, strengths, seed, torque), n, threads)


def numbers_of(task: Task, strengths: Mapping[str, float], seed: int, torque: bool = False) -> dict[str, list[Number]]:
    """Ingredient -> the numbers it gives the machine that `world_of` makes: what it alone makes of the model's."""
    return _mixed(task, strengths, seed, torque).numbers


def _mixed(task: Task, strengths: Mapping[str, float], seed: int, torque: bool) -> Making:
    """The task's model with each ingredient added, each drawn from a stream of its own."""
    check(strengths)
    spec = _spec(task, torque)
    make = Making(spec, Plain(spec.compile()), stream(seed, "ingredient"))
    for name, ingredient in INGREDIENTS.items():
        if strengths.get(name, 0.0) > 0:
            ingredient.check(make.plain, f"task {task.name}")
            make.rng, make.numbers[name] = stream(seed, f"ingredient {name}"), []
            ingredient.add(make, float(strengths[name]))
    return make


def _spec(task: Task, torque: bool) -> mujoco.MjSpec:
    """The task's model, with a name for everything that ingredients address by name."""
    spec = load_robot(task.robot).spec
    for kind in (spec.bodies, spec.joints, spec.actuators, spec.sensors, spec.sites):
        for i, thing in enumerate(kind):
            thing.name = thing.name or f"unnamed {i}"
    known = {s.name for s in spec.sensors}
    for d in Plain(spec.compile()).drives if torque else ():
        if f"joint_torque/{d.joint}" not in known:
            sensor = spec.add_sensor(name=f"joint_torque/{d.joint}", type=mujoco.mjtSensor.mjSENS_ACTUATORFRC)
            sensor.objtype, sensor.objname = mujoco.mjtObj.mjOBJ_ACTUATOR, d.actuator
    return spec


def _world(task: Task, make: Making, n: int, threads: int) -> World:
    dc_motors(make)
    substeps = task.substeps * _refine(make)
    _delay(make)
    model = compile_for(make.spec, task.params)
    _check_nominal(task)
    for tune in make.tunes:
        tune(model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    terms = (*task.terms, *make.terms)
    explicit = task.explicit and not make.added  # springs want the engine's own integrator
    if not make.added and not make.motors:
        return Engine(model, task.params, n, substeps, threads, terms, Law(explicit, writes=False))
    how = view(make.plain.model, model, make.slack)
    terms = tuple(through(term, how) for term in terms)
    engine = Engine(model, task.params, n, substeps, threads, terms, Law(explicit, writes=False))
    return Shown(engine, make.plain.model, how)


def _refine(make: Making) -> int:
    """Shorten the engine's step for the stiffest spring: h w < 0.4, w^2 = k / m. Returns by how much."""
    if not make.added:
        return 1
    model, h = make.spec.compile(), make.spec.option.timestep
    rates = [np.sqrt(k * model.dof_invweight0[model.joint(j).dofadr[0]]) for j, k in make.springs.items()]
    longest = min(SLOWEST, max(FASTEST, 0.4 / max([*rates, 1.0])))
    finer = math.ceil(h / longest - 1e-9)
    make.spec.option.timestep = h / finer
    return finer


def _delay(make: Making) -> None:
    """The engine's own delays, with buffers that are long enough."""
    h, mute = make.spec.option.timestep, int(mujoco.mjtCtrlInput.mjINPUT_NONE)
    told = [a for a in make.spec.actuators if a.ctrlspec != mute]
    for things, more in ((told, make.sending), (make.spec.sensors, make.reading)):
        for thing in things if more else ():
            thing.delay += more
            thing.nsample = max(thing.nsample, math.ceil(thing.delay / h - 1e-9) + 1)


def _check_nominal(task: Task) -> None:
    """Nothing writes e here, so the model's own numbers have to be the nominal ones."""
    model = compile_for(load_robot(task.robot).spec, task.params)
    for p in task.params:
        if p.target not in TARGETS:
            continue
        write = writer(model, p)
        rows = {f: _field(model, f)[None].copy() for f in write.target.fields}
        write(rows, np.array([p.nominal]))
        for f, value in rows.items():
            if not np.allclose(value[0], _field(model, f), rtol=1e-9, atol=1e-12):
                raise SurefootError(
                    f"task {task.name}: param {p.name}: expected the model's own number as nominal, found {p.nominal}"
                )


def _field(model: mujoco.MjModel, name: str) -> np.ndarray:
    owner, _, field = name.rpartition(".")
    return np.atleast_1d(getattr(getattr(model, owner) if owner else model, field))
