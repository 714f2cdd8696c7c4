"""surefoot believe: p(e) from a log."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, arg

from surefoot import files, tasks
from surefoot.belief import Belief, Box
from surefoot.log import Log
from surefoot.real2sim.identify.param_grammar import learnable
from surefoot.real2sim.infer.dropo import Dropo, examine
from surefoot.real2sim.infer.sbi import NPE, experiment, learn
from surefoot.real2sim.infer.sbi import checked as tested
from surefoot.report import Block, Checks, Column, Progress, Report, Table, Text, Watch
from surefoot.sim.fields import TARGETS
from surefoot.verbs.arguments import numbers
from surefoot.verbs.machine import FAILED, Machine, asked, checked, naming, read
from surefoot.world import World

if TYPE_CHECKING:
    from surefoot.sim.engine import Engine


@dataclass(frozen=True)
class Believe:
    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """the robot's log: any file that `surefoot log` reads"""
    how: Literal["dropo", "sbi"] = "dropo"
    """dropo: as wide as the model's errors need; sbi: the posterior, which assumes that the model is exact"""
    learn: tuple[str, ...] = ()
    """what to learn, as in `surefoot identify`; the rest stays at the model's values"""
    noise: tuple[str, ...] = ()
    """sd of each sensor in its unit, for sbi, such as joint_pos=0.001,joint_vel=0.02"""
    window: int | None = None
    """control periods after which the model is reset to the measured state; default: 10 for dropo, the whole log for sbi"""
    truths: int = 1000
    """sbi: simulated robots with known e that the posterior is tested on; 0: no test"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that says what the log's columns are"""
    machine: Machine = Machine()
    check: bool = True
    """run preflight on the log first"""
    seed: int = 0
    """seed of all that is random"""
    save: Path | None = None
    """the belief's file, to train over or to replay with; default: LOG-HOW.json beside the log"""
    dropo: Dropo = Dropo()
    npe: NPE = NPE()

    def run(self, watch: Watch) -> Report:
        out = self.save or self.log.with_name(f"{self.log.stem}-{self.how}.json")
        files.check_writable(out, "--save", ".json", (self.log, self.mapping, self.model))
        log = read(self.log, self.mapping, watch)
        world, prior = self._prior(log)
        if self.check:
            checked(world, log, self.log, watch)
        with naming(self.log):
            found, facts, notes = (self._dropo if self.how == "dropo" else self._sbi)(world, prior, log, watch)
        found.write(out)
        facts |= {"belief": str(out), "how": self.how, "unknowns": _facts(prior, found)}
        about = asked(self.model, self.log, self.mapping, self.machine)
        verb = f"train {quote(self.model)}" if tasks.is_reference(self.model) else f"replay {about}"
        following = f"surefoot {verb} --belief {quote(str(out))}"
        doubtful = any(facts.get(k, {}).get("holds") is False for k in ("calibration", "examination"))
        code = FAILED if doubtful else 0
        blocks = (_table(facts["unknowns"]), *notes, Text(f"belief: {out}"))
        return Report(f"p(e) of {self.model} from {self.log}", facts, blocks, following, code=code)

    def _prior(self, log: Log) -> tuple["Engine", Box]:
        """The model in a world, and the ranges of what is to be learned; all else is fixed at its nominal value."""
        words = list(self.learn)
        world = self.machine.world(self.model, None, log)
        if tasks.is_reference(self.model):
            task = tasks.resolve(self.model)
            params = task.params
            low, high = task.belief.support()
            names = words or [p.name for p in params if p.target in TARGETS]
            spans = {n: (low[params.index(n)], high[params.index(n)]) for n in names}
            return world, Box.ranges(params, spans)
        params = learnable(world.model, words or ["armature:kinds", "damping:kinds", "frictionloss:kinds", "delay"])
        return self.machine.world(self.model, params, log), Box.full(params)

    def _dropo(self, world: World, prior: Box, log: Log, watch: Watch) -> tuple[Belief, dict[str, Any], list[Block]]:
        length = 10 if self.window is None else self.window
        found = examine(world, prior, log, length, self.dropo, self.seed, watch=watch)
        checks = {"holds": all(c.holds for c in found.checks), "checks": [c.to_json() for c in found.checks]}
        shown = Checks(found.checks, "may its width be trusted?")
        return found.belief, {"window": length, "examination": checks}, [shown]

    def _sbi(self, world: World, prior: Box, log: Log, watch: Watch) -> tuple[Belief, dict[str, Any], list[Block]]:
        noise = numbers(self.noise, "--noise", "joint_pos=0.001")
        done = experiment(world, prior, log, noise, self.window, self.npe)
        posterior = learn(done, self.npe, self.seed, watch)
        facts: dict[str, Any] = {"window": self.window, "gained": posterior.gained}
        notes: list[Block] = [
            Text(f"held-out simulations: the truth gains {posterior.gained:.2g} nats of log density over the prior")
        ]
        if self.truths:
            watch(Progress(f"testing on {self.truths} simulated truths"))
            verdict = tested(posterior, self.truths, seed=self.seed + 1).verdict()
            facts["calibration"] = verdict.to_json()
            notes.append(Checks(verdict.checks, "is the posterior calibrated?"))
        return posterior.belief(log, seed=self.seed), facts, notes


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
    cells = [
        [r["name"], f"{r['from']:.4g} .. {r['to']:.4g}", r["mean"], r["sd"], f"{r['low']:.4g} .. {r['high']:.4g}",
         r["unit"] or "-", f"{r['narrowed']:.3g} x"]
        for r in rows
    ]  # fmt: skip
    mean, sd = Column("mean", form=".4g"), Column("sd", form=".2g")
    return Table.of(["unknown", "before", mean, sd, "95 % within", "unit", "narrowed"], cells)
