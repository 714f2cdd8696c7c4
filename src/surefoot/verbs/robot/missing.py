"""surefoot missing: learns the missing forces of a model from a log."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from surefoot import files, tasks
from surefoot.belief import point
from surefoot.report import Column, Report, Table, Text, Watch
from surefoot.verbs.machine import Machine, checked, estimate_of, naming, params_of, read

if TYPE_CHECKING:
    from surefoot.real2sim.residual.force_fit import FitResult


@dataclass(frozen=True)
class Missing:
    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """the robot's log, with the whole state and `control`: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that maps the log's columns to our schema; see docs/logs.md"""
    belief: str = ""
    """JSON file of a belief whose point estimate replaces the model's own numbers, such as `surefoot identify --save` writes"""
    machine: Machine = Machine()
    check: bool = True
    """run preflight on the log first"""
    seed: int = 0
    """seed of the nets"""
    out: Path | None = None
    """folder of the result; default: <log>-missing"""

    def run(self, watch: Watch) -> Report:
        from surefoot.real2sim.residual import residual_force

        out = folder(self.out, self.log, "missing")
        log = read(self.log, self.mapping, watch)
        world = self.machine.world(self.model, params_of(self.belief) if self.belief else None, log)
        e = estimate_of(self.belief, world.params)
        if self.check:
            checked(world, log, self.log, watch)
        with naming(self.log):
            found = residual_force(world, point(world.params, e), log, seed=self.seed, watch=watch)
        task = self.model if tasks.is_reference(self.model) else "TASK"
        return explained(found, self.model, self.log, out, f"surefoot train {quote(task)} --terms")


def folder(out: Path | None, log: Path, kind: str) -> Path:
    """Folder of the result; refused now if it cannot be written."""
    from surefoot.sim.learned import NAME

    out = out or log.with_name(f"{log.stem}-{kind}")
    files.check_writable(out / NAME, "--out")
    return out


def explained(found: "FitResult", model: str, log: Path, out: Path, then: str) -> Report:
    """Writes the learned Term, and reports how much it explains."""
    from surefoot.sim.learned import save

    about = found.facts | {"model": model, "log": files.sha256(log.read_bytes())}
    save(replace(found.term, about=about), out)
    number = lambda name: Column(name, form=".4g")  # noqa: E731
    columns = ["signal", number(f"error after {found.facts['horizon']:g} s"), number("with it"), "unit"]
    rows = [[name, e["without"], e["with"], e["unit"]] for name, e in found.errors.items()]
    words = (
        f"explains {100 * found.share:.0f} % of the squared prediction error on the held-out part of the log "
        f"(at least {100 * found.low:.0f} %, 95 % sure): {out}"
    )
    title = f"missing forces of {model}, from {log}"
    return Report(
        title, about | {"term": str(out)}, (Table.of(columns, rows), Text(words)), f"{then} {quote(str(out))}"
    )
