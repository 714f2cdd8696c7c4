"""surefoot look: parts of a robot, its unknowns with units and ranges, and whether each of them acts."""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import FlagConversionOff, Positional

from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError, nearest
from surefoot.params import Params
from surefoot.report import Block, Column, Note, Report, Table, Text, Watch, jsonable
from surefoot.rng import stream
from surefoot.robot import Robot
from surefoot.task import Task

if TYPE_CHECKING:  # what simulates is an extra, and `--help` needs none
    import mujoco

    from surefoot.sim.audit import Effect, Trace
    from surefoot.sim.model.load import Loaded

AUDIT_SECONDS = 5.0  # longest audit of a model file


@dataclass(frozen=True)
class Look:
    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    asset_root: Path | None = None
    """one more folder from which meshes and includes may be read, besides the folder of the model"""
    audit: FlagConversionOff[bool] = True
    """check that each unknown changes the simulation"""

    def run(self, watch: Watch) -> Report:
        """Exit code 1 if an unknown of a task has no effect."""
        from surefoot import tasks
        from surefoot.sim.model.card import describe

        known = tasks.is_reference(self.model)
        loaded, belief, found = self._task() if known else self._file()
        facts = with_force_limits(describe(loaded.model), loaded.model) | {
            "hash": loaded.hash, "warnings": loaded.warnings, "unknowns": belief.params.to_json(),
            "effects": jsonable({f.param.name: f.change for f in found}),  # what diverges has no number
            "idle": [f.param.name for f in found if not f.acts],
        }  # fmt: skip
        blocks = (*_parts(facts), _unknowns(belief, found), *(Note(w, True) for w in loaded.warnings))
        following = f"surefoot try {quote(self.model)}" if known else _task_for(self.model, self.asset_root)
        code = 1 if known and facts["idle"] else 0  # a model file's unknowns are those of any model
        return Report(self.model, facts, blocks, following, code=code, sources={"model": loaded.hash})

    def _task(self) -> tuple["Loaded", Belief, list["Effect"]]:
        from surefoot import tasks
        from surefoot.sim.audit import effects
        from surefoot.sim.model.load import load_robot
        from surefoot.sim.model.vet import scene_warnings

        task = tasks.resolve(self.model)
        found = effects(task.params, task_trace(task)) if self.audit else []
        loaded = load_robot(task.robot)
        loaded.warnings[:] = [w for w in loaded.warnings if w not in scene_warnings(loaded.model)]
        return loaded, task.belief, found

    def _file(self) -> tuple["Loaded", Belief, list["Effect"]]:
        from surefoot import tasks
        from surefoot.sim.audit import unknowns
        from surefoot.sim.model.load import load_model

        if not os.path.exists(self.model):
            there = tasks.names()
            near = nearest(self.model, there)
            raise SurefootError(f"{self.model}: neither a file nor a task{near}; tasks are {', '.join(there)}")
        loaded = load_model(self.model, self.asset_root)
        params = unknowns(loaded.model)
        return loaded, Box.full(params), _effects(loaded, params) if self.audit else []


def _task_for(model: str, asset_root: Path | None) -> str:
    """The command that makes a task for this robot; a URDF with legs fits arms, too, since its base is not free."""
    from surefoot.tasks.build.source import kinds_of

    fits: list[str] = []
    with suppress(SurefootError):  # it cannot be told what kind of robot it is
        fits = kinds_of(Robot.file(model, asset_root=str(asset_root or "")))
    kind = next((k for k in ("velocity", "hover", "reach") if k in fits), "blank")
    more = f" --asset-root {quote(str(asset_root))}" if asset_root else ""
    return f"surefoot new {kind} {quote(model)}{more}"


def _effects(loaded: "Loaded", params: Params) -> list["Effect"]:
    """What each unknown of a model does; none, with a warning, where it would take long to find out."""
    from surefoot.sim.audit import SECONDS, cost, effects, model_trace

    needed = cost(loaded.model, params)
    if needed <= AUDIT_SECONDS:
        return effects(params, model_trace(loaded.spec, params))
    loaded.warnings.append(
        f"the effect of the unknowns was not checked: {SECONDS:g} s of this model take about {needed:.2g} s to "
        f"simulate for all of them, expected at most {AUDIT_SECONDS:g} s"
    )
    return []


def task_trace(task: Task, seconds: float = 4.0, seed: int = 0) -> "Trace":
    """States and the actor's observations of an episode under random actions, small at first and then large, as a function of e.

    Nothing ends an episode: a robot that falls at once lies there, and what happens later, such as pushes, still acts on it.
    A row that diverges would begin again with another e, so it stands still from there on.
    """

    from surefoot import tasks

    def trace(e: np.ndarray) -> np.ndarray:
        env = tasks.env(replace(task, ended={}), len(e), seed=seed)
        env.reset(e=e)
        rng, alive = stream(seed, "audit"), np.ones(env.n, bool)
        seen: list[np.ndarray] = []
        steps = round(min(seconds, task.seconds) / env.world.dt)
        for t in range(steps):
            shape = (env.n, 1 if task.action.choices else len(task.action.names))
            size = 0.3 if 2 * t < steps else 1.0  # a limit of torque acts where much is asked for
            step = env.step(
                rng.integers(0, task.action.choices, shape) if task.action.choices else rng.uniform(-size, size, shape)
            )
            now = np.concatenate([env.world.state.q, env.world.state.v, step.obs["actor"]], 1)
            alive &= ~(step.terminated | step.truncated)
            seen.append(np.where(alive[:, None], now, seen[-1] if seen else 0.0))
        return np.concatenate(seen, 1)

    return trace


def _parts(facts: dict[str, Any]) -> tuple[Block, ...]:
    head = (
        f"{facts['name']}: {facts['mass']:.3g} kg, {_counted(facts['nv'], 'degree')} of freedom, "
        f"{_counted(facts['nu'], 'actuator')}, {_counted(len(facts['sensors']), 'sensor')}, "
        f"steps of {1000 * facts['timestep']:g} ms ({facts['integrator']})"
    )
    span = lambda x, form, none: f"{x[0]:{form}} .. {x[1]:{form}}" if x else none  # noqa: E731
    g = lambda name: Column(name, form="g")  # noqa: E731
    joints = [
        [j["name"] or "-", j["type"], span(j["range"], ".2f", "free"), j["damping"], j["armature"], j["frictionloss"]]
        for j in facts["joints"]
    ]
    motors = [
        [a["name"] or "-", a["kind"], a["target"], a["kp"], a["kd"], a["force_limit"], a["force_limit_from"] or "-"]
        for a in facts["actuators"]
    ]
    return (
        Text(head),
        Table.of(["joint", "type", "range", g("damping"), g("armature"), g("dry friction")], joints, "joints"),
        Table.of(["actuator", "kind", "drives", g("kp"), g("kd"), g("largest force"), "from"], motors, "actuators"),
    )


def with_force_limits(facts: dict[str, Any], m: "mujoco.MjModel") -> dict[str, Any]:
    """The card with each actuator's largest force at its joint, and which field of the model says so."""
    from surefoot.sim.anatomy.drives import force_limit

    for i, card in enumerate(facts["actuators"]):
        limit, why = np.inf, ""
        if card["joint"] is not None:
            limit, why = force_limit(m, int(m.actuator_trnid[i, 0]), i)
        elif card["force_range"] is not None:
            limit, why = float(np.abs(card["force_range"]).max()), "forcerange"
        elif card["ctrl_range"] is not None and card["kind"] == "motor":
            limit, why = float(np.abs(card["ctrl_range"]).max() * abs(m.actuator_gainprm[i, 0])), "ctrlrange"
        card["force_limit"] = limit if np.isfinite(limit) else None
        card["force_limit_from"] = why.split()[-1] if why else None
    return facts


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")


def _unknowns(belief: Belief, found: "list[Effect]") -> Table:
    low, high = belief.support(0.95)
    acts = {f.param.name: f"yes ({f.change:.2g})" if f.acts else "NO EFFECT" for f in found}
    rows = [
        [p.name, p.nominal, f"{low[i]:.3g} .. {high[i]:.3g}", p.unit or "-", f"{p.op} {p.target}" + " (log)" * p.log,
         acts.get(p.name, "-"), p.about]
        for i, p in enumerate(belief.params)
    ]  # fmt: skip
    head = ["unknown", Column("nominal", form="g"), "range", "unit", "how", "acts", "what"]
    return Table.of(head, rows, "e: what the model may be wrong about", [i for i, f in enumerate(found) if not f.acts])
