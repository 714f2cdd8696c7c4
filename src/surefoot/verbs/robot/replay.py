"""surefoot replay: the model's motion under a log's controls, against the robot's."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import Positional, arg

from surefoot import files, tasks
from surefoot.errors import SurefootError
from surefoot.report import Axis, Block, Column, Note, Plot, Progress, Report, Series, Table, Watch, jsonable
from surefoot.verbs.arguments import hashes
from surefoot.verbs.robot.machine import Machine, asked, estimate_of, lacking, naming, params_of, read

if TYPE_CHECKING:
    from surefoot.real2sim.replay import Replay as Replayed

PARTS = 4  # of a signal that are drawn


@dataclass(frozen=True)
class Replay:
    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """the robot's log: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that maps the log's columns to our schema; see docs/logs.md"""
    belief: str = ""
    """JSON file of a belief whose point estimate replaces the model's own numbers, such as `surefoot identify --save` writes"""
    world: tuple[Path, ...] = ()
    """missing physics, added to the model: folders that `surefoot missing` or `surefoot delta` wrote, nets of `surefoot
    actuator`, in the order they act"""
    resync: int | None = None
    """reset the model to the measured state every so many steps; default: never"""
    signals: tuple[str, ...] = ()
    """columns to compare; default: all that the model predicts"""
    machine: Machine = Machine()
    plot: Path | None = None
    """write a page with the curves (.html)"""

    def run(self, watch: Watch) -> Report:
        from surefoot.real2sim.preflight import standing
        from surefoot.real2sim.replay import replay

        if self.plot:
            files.check_writable(self.plot, "--plot", ".html")
        if self.resync is not None and self.resync < 1:
            raise SurefootError(f"resync: expected at least 1, found {self.resync}")
        log = read(self.log, self.mapping, watch)
        plain = self.machine.world(self.model, params_of(self.belief), log)
        world = plain.with_(1, (*plain.terms, *lacking(self.world, plain.model))) if self.world else plain
        watch(Progress("replaying"))
        with naming(self.log):
            found = replay(world, log, estimate_of(self.belief, world.params), self.resync, only=self.signals)
        doubts = [c.evidence for c in standing(plain, log) if not c.holds]
        blocks: list[Block] = [_scores(found)]
        if found.diverged:
            blocks.append(Note(f"{found.diverged} simulations diverged: their errors are invalid", True))
        blocks += [Note(words, True) for words in doubts]
        blocks += [_plot(found, k) for k in range(len(found.scores))] if self.plot else []
        facts = jsonable(found.facts()) | {"doubts": doubts} | ({"page": str(self.plot)} if self.plot else {})
        following = f"surefoot {self._following()} {asked(self.model, self.log, self.mapping, self.machine)}"
        about = hashes(model=Path(self.model), log=self.log)
        return Report(
            f"{self.model} against {self.log}", facts, tuple(blocks), following, page=self.plot, sources=about
        )

    def _following(self) -> str:
        """After a replay of the model, identify; after one with identified numbers, the missing physics of a task."""
        return "missing" if self.belief and tasks.is_reference(self.model) else "identify"


def _scores(found: "Replayed") -> Table:
    rows = []
    for s in found.scores:
        worst, rho = max(s.parts, key=lambda k: s.parts[k]), found.growth[s.signal]
        grows = "-" if np.isnan(rho) else f"{100 * (rho - 1):+.2f} % per step"
        rows.append([s.signal, f"{s.rmse:.4g} {s.unit}", s.mae, s.r2, grows, f"{worst} {s.parts[worst]:.3g}"])
    columns = ["signal", "RMSE", Column("MAE", form=".4g"), Column("R2", form=".3f"), "error grows by", "worst part"]
    return Table.of(columns, rows)


def _plot(found: "Replayed", k: int) -> Plot:
    """One signal, measured and predicted."""
    s = found.scores[k]
    measured, predicted, names = found.measured[s.signal], found.predicted[s.signal], list(s.parts)
    series = []
    for i in range(min(measured.shape[1], PARTS)):
        name = names[i] if i < len(names) else f"part {i}"
        series.append(Series.of(f"{name}, measured", found.time, measured[:, i]))
        series.append(Series.of(f"{name}, predicted", found.time, predicted[:, i], style="dashed"))
    more = f"; the first {PARTS} of {measured.shape[1]} parts" if measured.shape[1] > PARTS else ""
    return Plot(
        s.signal, tuple(series), Axis("time", "s"), Axis(s.signal, s.unit), caption=f"RMSE {s.rmse:.4g} {s.unit}{more}"
    )
