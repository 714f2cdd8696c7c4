"""A belief about a model's unknowns as one about a task's, matched by address: target, op, and the objects they move.

`identify robot.xml` names its unknowns armature, damping, action_delay; a task of that robot has armature, joint_damping, latency,
in another order, beside others such as contact friction. What both mean is the same if it moves the same numbers of the same joints.
"""

import re

import mujoco
import numpy as np

from surefoot.belief import Belief, Particles
from surefoot.errors import SurefootError
from surefoot.params import Param
from surefoot.rng import stream
from surefoot.sim.fields import TARGETS, object_names
from surefoot.sim.fields.friction import LAWS
from surefoot.sim.fields.offset import OFFSETS
from surefoot.sim.model.load import load_robot
from surefoot.task import Task

DRAWS = 1000
TRIES = 20 * DRAWS  # draws of a belief, of which so many lie within the task's bounds


def fit_to(task: Task, belief: Belief, where: str) -> Belief:
    """Draws of the belief for the unknowns that it is about, and of the task's own belief for the others.

    Refuses an unknown that the task does not have, or has for other objects.
    """
    model = load_robot(task.robot).model
    own = {i: _address(model, p) for i, p in enumerate(task.params)}
    places = [_place(task, own, p, _address(model, p), where) for p in belief.params]
    if len(set(places)) < len(places):
        twice = next(p.name for k, p in enumerate(belief.params) if places[k] in places[:k])
        raise SurefootError(f"{where}: param {twice}: found two params with its address, expected one")
    params, rng = task.params, stream(0, "belief by address")
    low, high = params.low[places], params.high[places]
    tried = belief.sample(rng, TRIES)
    good = tried[((tried >= low) & (tried <= high)).all(1)][:DRAWS]
    if len(good) < DRAWS:
        e = belief.estimate()
        i = int(np.argmax(((tried < low) | (tried > high)).mean(0)))
        bounds = f"{low[i]:.4g} .. {high[i]:.4g}"
        raise SurefootError(
            f"{where}: param {belief.params.names[i]}: found about {e[i]:.4g}, expected within the physical bounds of "
            f"{task.name}'s {params.names[places[i]]}, {bounds}"
        )
    points, weights = task.belief.sample(rng, DRAWS), np.ones(DRAWS)
    points[:, places] = good
    points[0], weights[0] = task.belief.estimate(), 2.0  # the heaviest point is the estimate
    points[0, places] = np.clip(belief.estimate(), low, high)
    return Particles(params, points, weights)


Address = tuple[str, str, frozenset[str]]


def _address(model: mujoco.MjModel, p: Param) -> Address:
    """Target, op, and the names of the objects that a param moves; of joints, those that a motor may drive."""
    kind = TARGETS[p.target].objects if p.target in TARGETS else "joint" if p.target in (*LAWS, *OFFSETS) else ""
    if kind == "joint":
        names = [model.joint(j).name for j in range(model.njnt) if model.jnt_type[j] != mujoco.mjtJoint.mjJNT_FREE]
    else:
        names = object_names(model, kind) if kind else []
    return p.target, p.op, frozenset(n for n in names if n and re.fullmatch(p.match, n))


def _place(task: Task, own: dict[int, Address], p: Param, address: Address, where: str) -> int:
    found = [i for i, other in own.items() if other == address]
    if found:
        return found[0]
    near = [task.params.items[i] for i, other in own.items() if other[0] == address[0]]
    moves = f"{p.target} ({p.op}) of {_listed(address[2])}"
    has = "; ".join(f"{q.name} is {q.target} ({q.op}) of {_listed(own[task.params.index(q.name)][2])}" for q in near)
    raise SurefootError(
        f"{where}: param {p.name}: {moves}: {task.name} has no unknown with this address; "
        + (
            f"its {has}: identify the same, or add the unknown to the task"
            if near
            else f"none of its unknowns is {p.target}"
        )
    )


def _listed(names: frozenset[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "") or "the world"
