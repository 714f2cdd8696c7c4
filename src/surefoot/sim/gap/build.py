"""A task's world with ingredients of the reality gap."""

import math
from collections.abc import Mapping

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.rng import stream
from surefoot.sim.engine import Engine, Law
from surefoot.sim.fields import TARGETS, writer
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.gap.air import AIRS
from surefoot.sim.gap.joints import JOINTS, dc_motors
from surefoot.sim.gap.link import LINKS
from surefoot.sim.gap.numbers import NUMBERS
from surefoot.sim.gap.observed_world import ObservedWorld, on_whole, view
from surefoot.sim.gap.recipe import FASTEST, SLOWEST, Ingredient, Number, Plain, Recipe
from surefoot.sim.model.load import load_robot
from surefoot.task import Task
from surefoot.world import World

INGREDIENTS: dict[str, Ingredient] = {i.name: i for i in (*NUMBERS, *JOINTS, *AIRS, *LINKS)}
"""in the order in which they are added: sensors after what they measure, delays last"""


def fitting(task: Task) -> list[str]:
    """Ingredients that fit the task's model."""
    plain = Plain(_spec(task, torque=False).compile())
    return [name for name, ingredient in INGREDIENTS.items() if ingredient.fits(plain)]


def check(strengths: Mapping[str, float]) -> None:
    for name, s in strengths.items():
        if name not in INGREDIENTS:
            raise unknown("ingredient", name, INGREDIENTS)
        if not 0 <= s <= 1:
            raise SurefootError(f"ingredient {name}: expected a strength from 0 (none) to 1 (severe), found {s}")


def world_of(
    task: Task,
    strengths: Mapping[str, float],
    seed: int,
    n: int = 1,
    threads: int = 1,
    torque: bool = False,
    e: np.ndarray | None = None,
) -> World:
    """n copies of one robot: the task's model at e (nominal), changed by ingredients drawn from a seed.

    `torque` adds a sensor for the force of each joint's motor.
    """
    return _world(task, _mixed(task, strengths, seed, torque), n, threads, e)


def numbers_of(task: Task, strengths: Mapping[str, float], seed: int, torque: bool = False) -> dict[str, list[Number]]:
    """Ingredient -> the parameters it sets in the robot of `world_of`, computed from the plain model's."""
    return _mixed(task, strengths, seed, torque).numbers


def _mixed(task: Task, strengths: Mapping[str, float], seed: int, torque: bool) -> Recipe:
    """The task's model with each ingredient added, each drawn from its own random stream."""
    check(strengths)
    spec = _spec(task, torque)
    recipe = Recipe(spec, Plain(spec.compile()), stream(seed, "ingredient"))
    for name, ingredient in INGREDIENTS.items():
        if strengths.get(name, 0.0) > 0:
            ingredient.check(recipe.plain, f"task {task.name}")
            recipe.rng, recipe.numbers[name] = stream(seed, f"ingredient {name}"), []
            ingredient.add(recipe, float(strengths[name]))
    return recipe


def _spec(task: Task, torque: bool) -> mujoco.MjSpec:
    """The task's model, with a name for everything that is addressed by name."""
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


def _world(task: Task, recipe: Recipe, n: int, threads: int, e: np.ndarray | None) -> World:
    dc_motors(recipe)
    substeps = task.substeps * _refine(recipe)
    _delay(recipe)
    model = compile_for(recipe.spec, task.params)
    _check_nominal(task)
    if e is not None:
        _write(model, task, e)
    for tune in recipe.tunes:
        tune(model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    terms = (*task.terms, *recipe.terms)
    explicit = task.explicit and not recipe.added  # springs need the engine's own integrator
    if not recipe.added and not recipe.motors:
        return Engine(model, task.params, n, substeps, threads, terms, Law(explicit, writes=False))
    how = view(recipe.plain.model, model, recipe.slack)
    terms = tuple(on_whole(term, how) for term in terms)
    engine = Engine(model, task.params, n, substeps, threads, terms, Law(explicit, writes=False))
    return ObservedWorld(engine, recipe.plain.model, how)


def _refine(recipe: Recipe) -> int:
    """Shorten the engine's step for the stiffest spring: h w < 0.4, w^2 = k / m. Returns the factor."""
    if not recipe.added:
        return 1
    model, h = recipe.spec.compile(), recipe.spec.option.timestep
    rates = [np.sqrt(k * model.dof_invweight0[model.joint(j).dofadr[0]]) for j, k in recipe.springs.items()]
    longest = min(SLOWEST, max(FASTEST, 0.4 / max([*rates, 1.0])))
    finer = math.ceil(h / longest - 1e-9)
    recipe.spec.option.timestep = h / finer
    return finer


def _delay(recipe: Recipe) -> None:
    """The engine's own delays, with buffers of sufficient length."""
    h, mute = recipe.spec.option.timestep, int(mujoco.mjtCtrlInput.mjINPUT_NONE)
    driven = [a for a in recipe.spec.actuators if a.ctrlspec != mute]
    for things, more in ((driven, recipe.command_delay), (recipe.spec.sensors, recipe.sensor_delay)):
        for thing in things if more else ():
            thing.delay += more
            thing.nsample = max(thing.nsample, math.ceil(thing.delay / h - 1e-9) + 1)


def _write(model: mujoco.MjModel, task: Task, e: np.ndarray) -> None:
    """e into the model's own fields, once and for all; a delay of e replaces that of an ingredient."""
    for p, value in zip(task.params, e):
        if p.target in TARGETS and value != p.nominal:
            write = writer(model, p)
            rows = {f: _field(model, f)[None].copy() for f in write.target.fields}
            write(rows, np.array([float(value)]))
            for f, row in rows.items():
                _set(model, f, row[0])


def _check_nominal(task: Task) -> None:
    """Nothing writes e while the robot moves, so the model's values must be the nominal ones."""
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
                    f"task {task.name}: param {p.name}: expected the model's own value as nominal, found {p.nominal}"
                )


def _field(model: mujoco.MjModel, name: str) -> np.ndarray:
    owner, _, field = name.rpartition(".")
    return np.atleast_1d(getattr(getattr(model, owner) if owner else model, field))


def _set(model: mujoco.MjModel, name: str, value: np.ndarray) -> None:
    owner, _, field = name.rpartition(".")
    thing = getattr(model, owner) if owner else model
    now = getattr(thing, field)
    if isinstance(now, np.ndarray):
        now[...] = value
    else:
        setattr(thing, field, type(now)(value.item()))
