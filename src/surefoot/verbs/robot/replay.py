"""surefoot replay: the model's motion under a log's controls, against the robot's."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import Positional, arg

from surefoot import files, tasks
from surefoot.errors import SurefootError
from surefoot.report import Axis, Block, Column, Note, Plot, Progress, Report, Series, Table, Watch, jsonable
from surefoot.verbs.arguments import hashes
from surefoot.verbs.machine import Machine, asked, estimate_of, lacking, naming, params_of, read

if TYPE_CHECKING:
    from surefoot.real2sim.replay import Ahead, Score
    from surefoot.real2sim.replay import Replay as Replayed

PARTS = 4  # of a signal that are drawn, those with the largest errors
DRAWN = 6.0  # s of a longer log that are drawn, where the error is largest: more would hide one curve behind the other


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
    horizon: int | None = None
    """also give the error after so many steps, from many starts of the log"""
    inverse: bool = False
    """predict joint_torque from the motion by inverse dynamics, in place of the motion from the controls"""
    signals: tuple[str, ...] = ()
    """columns to compare; default: all that the model predicts"""
    machine: Machine = Machine()
    plot: Path | None = None
    """write a page with the curves (.html)"""

    def run(self, watch: Watch) -> Report:
        from surefoot.real2sim.inverse import inverse
        from surefoot.real2sim.preflight import standing
        from surefoot.real2sim.replay import ahead, replay

        if self.plot:
            files.check_writable(self.plot, "--plot", ".html")
        for name, steps in (("resync", self.resync), ("horizon", self.horizon)):
            if steps is not None and steps < 1:
                raise SurefootError(f"--{name}: expected at least 1, found {steps}")
            if steps is not None and self.inverse:
                raise SurefootError(f"--inverse: rows are computed independently of each other; leave --{name} out")
        log = read(self.log, self.mapping, watch)
        plain = self.machine.world(self.model, params_of(self.belief), log)
        world = plain.with_(1, (*plain.terms, *lacking(self.world, plain.model))) if self.world else plain
        watch(Progress("replaying"))
        with naming(self.log):
            e = estimate_of(self.belief, world.params)
            found = inverse(world, log, e) if self.inverse else replay(world, log, e, self.resync, only=self.signals)
            far = ahead(world, log, e, self.horizon, self.signals) if self.horizon else ()
        doubts = [c.evidence for c in standing(plain, log) if not c.holds]
        blocks: list[Block] = [_scores(found), *([_ahead(far, self.horizon)] if far else [])]
        if found.diverged:
            blocks.append(Note(f"{found.diverged} simulations diverged: their errors are invalid", True))
        blocks += [Note(words, True) for words in doubts]
        blocks += [plot for s in found.scores for plot in _plots(found, s)] if self.plot else []
        facts = (
            jsonable(found.facts())
            | {"doubts": doubts, "horizon": jsonable([vars(x) for x in far])}
            | ({"page": str(self.plot)} if self.plot else {})
        )
        about = hashes(model=Path(self.model), log=self.log)
        return Report(
            f"{self.model} against {self.log}", facts, tuple(blocks), self._following(), page=self.plot, sources=about
        )

    def _following(self) -> str:
        """After a replay of the model, identify; after one with identified numbers, what is missing; then, training with it."""
        about = asked(self.model, self.log, self.mapping, self.machine)
        if self.world:
            terms = " ".join(quote(str(w)) for w in self.world)
            own = tasks.is_reference(self.model)
            return (
                f"surefoot train {quote(self.model)} --terms {terms}" if own else f"surefoot look {quote(self.model)}"
            )
        return (
            f"surefoot missing {about} --belief {quote(self.belief)}" if self.belief else f"surefoot identify {about}"
        )


def _scores(found: "Replayed") -> Table:
    rows = []
    for s in found.scores:
        worst, rho = max(s.parts, key=lambda k: s.parts[k]), found.growth[s.signal]
        grows = "-" if np.isnan(rho) else f"{100 * (rho - 1):+.2f} % per step"
        rows.append([s.signal, f"{s.rmse:.4g} {s.unit}", s.mae, s.r2, grows, f"{worst} {s.parts[worst]:.3g}"])
    columns = ["signal", "RMSE", Column("MAE", form=".4g"), Column("R2", form=".3f"), "error grows by", "worst part"]
    return Table.of(columns, rows)


def _ahead(far: "tuple[Ahead, ...]", steps: int | None) -> Table:
    rows = [[x.signal, f"{x.rmse:.4g} {x.unit}", f"{x.still:.4g} {x.unit}", x.starts] for x in far]
    head = ["signal", f"RMSE after {steps} steps", "of a constant prediction", Column("starts", form="d")]
    return Table.of(head, rows)


def _plots(found: "Replayed", s: "Score") -> list[Plot]:
    """The parts of one signal with the largest errors, measured and predicted, each by itself."""
    measured, predicted, names = found.measured[s.signal], found.predicted[s.signal], list(s.parts)
    size = min(len(names), measured.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.nan_to_num(np.square(predicted - measured)[:, :size], posinf=1e300)
    plots = []
    for i in sorted(range(size), key=lambda i: -s.parts[names[i]])[:PARTS]:
        rows = _worst(found.time, error[:, i])
        drawn = [
            Series.of("measured", found.time[rows], measured[rows, i]),
            Series.of("predicted", found.time[rows], predicted[rows, i]),
        ]
        part = "" if rows.stop - rows.start == len(error) else f"; the {DRAWN:g} s with the largest error are drawn"
        caption = f"RMSE {s.parts[names[i]]:.4g} {s.unit}{part}"
        plots.append(
            Plot(f"{s.signal}: {names[i]}", tuple(drawn), Axis("time", "s"), Axis(names[i], s.unit), caption=caption)
        )
    left = size - len(plots)
    return (
        [*plots[:-1], replace(plots[-1], caption=f"{plots[-1].caption}; {left} parts with smaller errors are left out")]
        if left
        else plots
    )


def _worst(time: np.ndarray, error: np.ndarray) -> slice:
    """The rows of DRAWN seconds in which the sum of errors is largest."""
    ends = np.searchsorted(time, time + DRAWN, "right")
    if not len(time) or ends[0] >= len(time):
        return slice(0, len(time))
    total = np.concatenate([[0.0], np.cumsum(error)])
    first = np.flatnonzero(time + DRAWN <= time[-1] + 1e-9)
    at = int(first[np.argmax(total[ends[first]] - total[first])])
    return slice(at, int(ends[at]))
