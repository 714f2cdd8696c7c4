"""The verb that turns a log into p(e)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.belief import Belief, Box
from surefoot.cli.real import Machine, checked, naming, read
from surefoot.console import Answer, Line
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.real2sim.dropo import Dropo, dropo, support
from surefoot.real2sim.inference import NPE, experiment, learn
from surefoot.real2sim.inference import checked as tested
from surefoot.real2sim.learnable import learnable
from surefoot.sim.fields import TARGETS
from surefoot.world import World

if TYPE_CHECKING:
    from surefoot.sim.engine import Engine

FAILED = 1


@dataclass
class Believe:
    """p(e) from a log: as wide as the model needs to do what the machine did (dropo), or its posterior (sbi)."""

    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """what the machine did: any file that `surefoot log` reads"""
    how: Literal["dropo", "sbi"] = "dropo"
    """dropo: the width tells of what the model lacks; sbi: of what the log leaves open, if the model lacks nothing"""
    learn: str = ""
    """what to learn, by commas, as in `surefoot identify`; the rest stays as the model has it"""
    noise: str = ""
    """sd of each sensor in its unit, for sbi, such as joint_pos=0.001,joint_vel=0.02"""
    window: int | None = None
    """control periods after which the model is set back to what was measured; 10 for dropo, the whole log for sbi"""
    truths: int = 1000
    """simulated truths that a posterior of sbi is tested on; 0: it is not"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the log's columns are"""
    machine: Machine = field(default_factory=Machine)
    check: bool = True
    """look first whether the log is what it says it is"""
    seed: int = 0
    """seed of all that is random"""
    save: Path | None = None
    """the belief's file, to train over or to replay with; LOG-HOW.json beside the log unless told"""
    dropo: Dropo = Dropo()
    npe: NPE = NPE()

    def run(self, say: Console) -> Answer:
        out = self.save or self.log.with_name(f"{self.log.stem}-{self.how}.json")
        files.check_writable(out, "--save", ".json", (self.log, self.mapping, self.model))
        line = Line(say)
        log = read(self.log, self.mapping, line)
        world, prior = self._prior(log)
        if self.check:
            checked(world, log, self.log, line)
        with naming(self.log):
            found, facts, notes = (self._dropo if self.how == "dropo" else self._sbi)(world, prior, log, line)
        line.end()
        found.write(out)
        facts |= {"belief": str(out), "how": self.how, "unknowns": _facts(prior, found)}
        following = f"surefoot train {self.model} --belief {out}" if tasks.is_reference(self.model) else f"surefoot replay {self.model} {self.log} --belief {out}"  # fmt: skip
        code = FAILED if facts.get("calibration", {}).get("holds") is False else 0
        return Answer(facts, [_table(facts["unknowns"]), *notes, f"belief: {out}"], following, code)

    def _prior(self, log: Log) -> tuple["Engine", Box]:
        """The model in a world, and the ranges of what is to be learned; all else is fixed at its nominal value."""
        words = [w.strip() for w in self.learn.split(",") if w.strip()]
        world = self.machine.world(self.model, None, log)
        if tasks.is_reference(self.model):
            task = tasks.resolve(self.model)
            params = task.params
            low, high = support(task.belief)
            names = words or [p.name for p in params if p.target in TARGETS]
            spans = {n: (low[params.index(n)], high[params.index(n)]) for n in names}
            return world, Box.ranges(params, spans)
        params = learnable(world.model, words or ["armature:kinds", "damping:kinds", "frictionloss:kinds", "delay"])
        return self.machine.world(self.model, params, log), Box.full(params)

    def _dropo(self, world: World, prior: Box, log: Log, line: Line) -> tuple[Belief, dict[str, Any], list[str]]:
        rounds = self.dropo.rounds

        def watch(k: int, fit: float) -> None:
            left = line.left(k + 1, rounds)
            line.text(f"round {k + 1:3} of {rounds}  log likelihood of a window {fit:8.3f}{left}")

        length = 10 if self.window is None else self.window
        return dropo(world, prior, log, length, self.dropo, self.seed, watch=watch), {"window": length}, []

    def _sbi(self, world: World, prior: Box, log: Log, line: Line) -> tuple[Belief, dict[str, Any], list[Any]]:
        done = experiment(world, prior, log, _noise(self.noise), self.window, self.npe)
        posterior = learn(done, self.npe, self.seed, line.text)
        facts: dict[str, Any] = {"window": self.window, "gained": posterior.gained}
        notes: list[Any] = [f"the truth is {posterior.gained:.2g} nats likelier than before, in simulations held out"]
        if self.truths:
            line.text(f"testing on {self.truths} simulated truths", True)
            verdict = tested(posterior, self.truths, seed=self.seed + 1).verdict()
            facts["calibration"] = verdict.to_json()
            head, *rows = verdict.table()
            table = Table(*head, title="is it as sure as it may be?", title_justify="left")
            for row in rows:
                table.add_row(*row)
            notes.append(table)
        return posterior.belief(log, seed=self.seed), facts, notes


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
