"""The verb that turns a log into p(e)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.belief import Belief, Box
from surefoot.console import Answer, Line
from surefoot.errors import SurefootError, nearest
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.dropo import Dropo, dropo
from surefoot.real2sim.inference import NPE, checked, experiment, learn
from surefoot.real2sim.plant import Plant
from surefoot.sim.audit import unknowns
from surefoot.sim.fields import TARGETS
from surefoot.world import World

FAILED = 1


@dataclass
class Believe:
    """p(e) from a log: as wide as the model needs to do what the machine did (dropo), or its posterior (sbi)."""

    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """an npz log, at the task's rate: see the page on distributions"""
    how: Literal["dropo", "sbi"] = "dropo"
    """dropo: the width tells of what the model lacks; sbi: of what the log leaves open, if the model lacks nothing"""
    learn: str = ""
    """unknowns, as `surefoot look` names them, with commas between; the rest stays nominal. All of them unless told"""
    noise: str = ""
    """sd of each sensor in its unit, for sbi, such as joint_pos=0.001,joint_vel=0.02"""
    window: int | None = None
    """control periods after which the model is set back to what was measured; 10 for dropo, the whole log for sbi"""
    check: int = 1000
    """simulated truths that a posterior of sbi is tested on; 0: it is not"""
    fixed: bool = False
    """the base was held: take the model's free joint out"""
    kp: float | None = None
    """position gain of servos in place of the model's motors, N m/rad"""
    kd: float = 0.0
    """and their velocity gain, N m s/rad"""
    seed: int = 0
    """seed of all that is random"""
    out: Path | None = None
    """the belief's JSON file; LOG-HOW.json beside the log unless told"""
    dropo: Dropo = Dropo()
    npe: NPE = NPE()

    def run(self, say: Console) -> Answer:
        log = Log.load(self.log)
        world, prior = self._prior(log)
        line = Line(say)
        found, facts, notes = (self._dropo if self.how == "dropo" else self._sbi)(world, prior, log, line)
        line.end()
        out = self.out or self.log.with_name(f"{self.log.stem}-{self.how}.json")
        files.write_json(out, found.to_json())
        facts |= {"belief": str(out), "how": self.how, "unknowns": _facts(prior, found)}
        following = f"surefoot train {self.model} --belief {out}" if self.model in tasks.TASKS else f"surefoot look {self.model}"  # fmt: skip
        code = FAILED if facts.get("calibration", {}).get("holds") is False else 0
        return Answer(facts, [_table(facts["unknowns"]), *notes, f"belief: {out}"], following, code)

    def _prior(self, log: Log) -> tuple[World, Box]:
        """The model in a world, and the ranges of what is to be learned; all else is fixed at its nominal value."""
        if self.model in tasks.TASKS:
            task = tasks.make(self.model)
            params, belief = task.params, task.belief
            world: World = tasks.env(task, 1).world
        elif Path(self.model).exists():
            plant = Plant(self.model, self.fixed, self.kp, self.kd)
            params = unknowns(plant.spec().compile())
            world, belief = plant.world(params, log), Box.full(params)
        else:
            raise SurefootError(
                f"{self.model}: neither a file nor a task{nearest(self.model, tasks.TASKS)}; tasks are {', '.join(tasks.TASKS)}"
            )
        names = [name.strip() for name in self.learn.split(",") if name.strip()] or _physical(params)
        low, high = belief.interval(1 - 1e-12) if not isinstance(belief, Box) else (belief.low, belief.high)
        return world, Box.ranges(params, {name: (low[params.index(name)], high[params.index(name)]) for name in names})

    def _dropo(self, world: World, prior: Box, log: Log, line: Line) -> tuple[Belief, dict[str, Any], list[str]]:
        rounds = self.dropo.rounds
        watch = lambda k, fit: line.text(f"round {k + 1:3} of {rounds}  log likelihood of a window {fit:8.3f}")  # noqa: E731
        length = min(self.window or 10, len(log) - 1)
        return dropo(world, prior, log, length, self.dropo, self.seed, watch=watch), {"window": length}, []

    def _sbi(self, world: World, prior: Box, log: Log, line: Line) -> tuple[Belief, dict[str, Any], list[Any]]:
        done = experiment(world, prior, log, _noise(self.noise), self.window, self.npe)
        posterior = learn(done, self.npe, self.seed, line.text)
        facts: dict[str, Any] = {"window": self.window, "gained": posterior.gained}
        notes: list[Any] = [f"the truth is {posterior.gained:.2g} nats likelier than before, in simulations held out"]
        if self.check:
            line.text(f"testing on {self.check} simulated truths", True)
            verdict = checked(posterior, self.check, seed=self.seed + 1).verdict()
            facts["calibration"] = verdict.to_json()
            head, *rows = verdict.table()
            table = Table(*head, title="is it as sure as it may be?", title_justify="left")
            for row in rows:
                table.add_row(*row)
            notes.append(table)
        return posterior.belief(log, seed=self.seed), facts, notes


def _physical(params: Params) -> list[str]:
    """The unknowns that the engine itself has: not noise, nor what only a task's Terms do."""
    return [p.name for p in params if p.target in TARGETS]


def _noise(text: str) -> dict[str, float]:
    found = {}
    for word in filter(None, (w.strip() for w in text.split(","))):
        name, _, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise SurefootError(
                f"--noise: found {word!r}, expected a signal and its sd, such as joint_pos=0.001"
            ) from None
    return found


def _facts(prior: Box, found: Belief) -> list[dict[str, Any]]:
    low, high = found.interval()
    mean, sd, before = found.mean(), found.sd(), prior.sd()
    free = np.flatnonzero(prior.low < prior.high)
    return [
        {
            "name": prior.params.names[i], "unit": prior.params[prior.params.names[i]].unit,
            "from": float(prior.low[i]), "to": float(prior.high[i]), "mean": float(mean[i]), "sd": float(sd[i]),
            "low": float(low[i]), "high": float(high[i]), "narrowed": float(before[i] / max(sd[i], 1e-300)),
        }
        for i in free
    ]  # fmt: skip


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table("unknown", "before", "mean", "sd", "95 % within", "unit", "narrowed")
    for r in rows:
        table.add_row(
            r["name"], f"{r['from']:.4g} .. {r['to']:.4g}", f"{r['mean']:.4g}", f"{r['sd']:.2g}",
            f"{r['low']:.4g} .. {r['high']:.4g}", r["unit"] or "-", f"{r['narrowed']:.3g} x",
        )  # fmt: skip
    return table
