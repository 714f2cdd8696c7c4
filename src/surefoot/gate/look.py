"""The card of a robot or task: parts, unknowns with units and ranges, and whether each of them acts."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Column, Table

from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError, nearest
from surefoot.formats import clean
from surefoot.params import Params
from surefoot.rng import stream
from surefoot.sim.audit import SECONDS, Effect, Trace, cost, effects, model_trace, unknowns
from surefoot.sim.card import describe
from surefoot.sim.load import Loaded, load_model, load_string
from surefoot.task import Task

AUDIT_SECONDS = 5.0  # longest audit of a model that nobody has vouched for


def look(name: str, asset_root: Path | None, audit: bool) -> tuple[dict[str, Any], list[Any], str, int]:
    """Facts, things to print, the next command, the exit code: 1 when an unknown turns out to do nothing."""
    if name in tasks.TASKS:
        task = tasks.make(name)
        loaded = load_string(task.xml, task.name)
        params, belief = task.params, task.belief
        found = effects(params, task_trace(task)) if audit else []
        following = f"surefoot try {name}"
    else:
        if not os.path.exists(name):
            raise SurefootError(
                f"{name}: neither a file nor a task{nearest(name, tasks.TASKS)}; tasks are {', '.join(tasks.TASKS)}"
            )
        loaded = load_model(name, asset_root)
        params = unknowns(loaded.model)
        belief = Box.full(params)
        needed = cost(loaded.model, params) if audit else 0.0
        if needed > AUDIT_SECONDS:
            loaded.warnings.append(
                f"what each unknown does was not tried: {SECONDS:g} s of this model take about {needed:.2g} s to "
                f"simulate for all of them, expected at most {AUDIT_SECONDS:g} s"
            )
        found = effects(params, model_trace(loaded.spec, params)) if audit and needed <= AUDIT_SECONDS else []
        following = "surefoot tasks"
    facts = describe(loaded.model) | {
        "hash": loaded.hash,
        "warnings": loaded.warnings,
        "unknowns": params.to_json(),
        "effects": clean({f.param.name: f.change for f in found}),  # what diverges has no number
        "idle": [f.param.name for f in found if not f.acts],
    }
    return facts, _shown(facts, loaded, belief, found), following, 1 if facts["idle"] else 0


def task_trace(task: Task, seconds: float = 4.0, seed: int = 0) -> Trace:
    """What an episode shows under gentle random actions, as a function of e: states, and what the actor is told.

    A row that fails would begin again with another e, so it stands still from there on.
    """

    def trace(e: np.ndarray) -> np.ndarray:
        env = tasks.env(task, len(e), seed=seed)
        env.reset(e=e)
        rng, alive = stream(seed, "audit"), np.ones(env.n, bool)
        seen: list[np.ndarray] = []
        for _ in range(round(min(seconds, task.seconds) / env.world.dt)):
            shape = (env.n, 1 if task.action.choices else len(task.action.names))
            step = env.step(
                rng.integers(0, task.action.choices, shape) if task.action.choices else rng.uniform(-0.3, 0.3, shape)
            )
            now = np.concatenate([env.world.state.q, env.world.state.v, step.obs["actor"]], 1)
            alive &= ~(step.terminated | step.truncated)
            seen.append(np.where(alive[:, None], now, seen[-1] if seen else 0.0))
        return np.concatenate(seen, 1)

    return trace


def _shown(facts: dict[str, Any], loaded: Loaded, belief: Belief, found: list[Effect]) -> list[Any]:
    head = (
        f"{facts['name']}: {facts['mass']:.3g} kg, {_counted(facts['nv'], 'degree')} of freedom, "
        f"{_counted(facts['nu'], 'actuator')}, {_counted(len(facts['sensors']), 'sensor')}, steps of {1000 * facts['timestep']:g} ms ({facts['integrator']})"
    )
    joints = Table(
        "joint", "type", "range", "damping", "armature", "dry friction", title="joints", title_justify="left"
    )
    for j in facts["joints"]:
        span = f"{j['range'][0]:.2f} .. {j['range'][1]:.2f}" if j["range"] else "free"
        joints.add_row(
            j["name"] or "-", j["type"], span, f"{j['damping']:g}", f"{j['armature']:g}", f"{j['frictionloss']:g}"
        )
    motors = Table("actuator", "kind", "drives", "kp", "kd", "force", title="actuators", title_justify="left")
    for a in facts["actuators"]:
        force = f"{a['force_range'][0]:g} .. {a['force_range'][1]:g}" if a["force_range"] else "-"
        motors.add_row(a["name"] or "-", a["kind"], a["target"], _number(a["kp"]), _number(a["kd"]), force)
    return [head, joints, motors, _unknowns(belief, found), *(f"warning: {w}" for w in loaded.warnings)]


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:g}"


def _unknowns(belief: Belief, found: list[Effect]) -> Table:
    params: Params = belief.params
    low, high = (belief.low, belief.high) if isinstance(belief, Box) else belief.interval()
    table = Table(
        Column("unknown", no_wrap=True),
        "nominal",
        "range",
        "unit",
        "how",
        "acts",
        "what",
        title="e: what the model may be wrong about",
        title_justify="left",
    )
    acts = {f.param.name: f"yes ({f.change:.2g})" if f.acts else "NO EFFECT" for f in found}
    for i, p in enumerate(params):
        how = f"{p.op} {p.target}" + (" (log)" if p.log else "")
        table.add_row(
            p.name,
            f"{p.nominal:g}",
            f"{low[i]:.3g} .. {high[i]:.3g}",
            p.unit or "-",
            how,
            acts.get(p.name, "-"),
            p.about,
        )
    return table
