"""The verbs that learn from a log what a model lacks: a force, or a delta to the actions."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.belief import Belief, point
from surefoot.cli.real import Machine, checked, naming, read, told
from surefoot.cli.words import belief_of
from surefoot.console import Answer, Line

if TYPE_CHECKING:
    from surefoot.real2sim.explain import Explained


@dataclass
class Missing:
    """Learn from a log the force that a model lacks, such as drag or ground effect, and say how much it explains."""

    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """what the machine did, with the whole state and `control`: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the log's columns are; see docs/logs.md"""
    belief: str = ""
    """JSON file of a belief whose mean replaces the model's own numbers, such as `surefoot identify --save` writes"""
    machine: Machine = field(default_factory=Machine)
    check: bool = True
    """look first whether the log is what it says it is"""
    seed: int = 0
    """seed of the nets"""
    out: Path | None = None
    """folder of what was learned; <log>-missing unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.residual import missing

        line, out = Line(say), _folder(self.out, self.log, "missing")
        log = read(self.log, self.mapping, line)
        belief = Belief.read(self.belief) if self.belief else None
        world = self.machine.world(self.model, belief.params if belief else None, log)
        e = told(self.belief, world.params)
        if self.check:
            checked(world, log, self.log, line)
        with naming(self.log):
            found = missing(world, point(world.params, e), log, seed=self.seed, watch=line.text)
        line.end()
        task = self.model if self.model in tasks.TASKS else "TASK"
        return _answer(found, self.model, self.log, out, f"surefoot train {task} --terms")


@dataclass
class Delta:
    """Learn from a log what to add to a task's actions so that its simulator answers as the robot does."""

    task: Positional[str]
    """see `surefoot tasks`"""
    log: Positional[Path]
    """what the robot did, with the whole state and `control`: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the log's columns are; see docs/logs.md"""
    by: Literal["inversion", "reinforcement"] = "inversion"
    """the offset that explains each piece of the log, and nets of it; or PPO on episodes that replay the log"""
    belief: str = "nominal"
    """e of the model: the mean of `nominal`, `task`, a preset, or of a belief's JSON file"""
    check: bool = True
    """look first whether the log is what it says it is"""
    steps: int = 400_000
    """env steps of learning by reinforcement"""
    seed: int = 0
    """seed of the nets"""
    out: Path | None = None
    """folder of what was learned; <log>-delta unless told. By reinforcement, its folder `run` resumes after a stop"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.delta import SETTINGS, inverted, practised

        task, line, out = tasks.make(self.task), Line(say), _folder(self.out, self.log, "delta")
        log = read(self.log, self.mapping, line)
        belief, world = belief_of(task, self.belief, say), Machine().world(self.task, None, log)
        if self.check:
            checked(world, log, self.log, line)
        with naming(self.log):
            if self.by == "inversion":
                found = inverted(world, belief, log, seed=self.seed, watch=line.text)
            else:
                from surefoot.learn.ppo import PPOSettings

                settings = PPOSettings(**{**SETTINGS, "steps": self.steps})
                found = practised(task, belief, log, settings, seed=self.seed, watch=line, folder=out / "run")
        line.end()
        return _answer(found, self.task, self.log, out, f"surefoot train {self.task} --start RUN --terms")


def _folder(out: Path | None, log: Path, kind: str) -> Path:
    """Where what is learned goes; refused now where nothing can be written."""
    out = out or log.with_name(f"{log.stem}-{kind}")
    files.check_writable(out / "term.json", "--out")
    return out


def _answer(found: "Explained", model: str, log: Path, out: Path, then: str) -> Answer:
    """Write what was learned; say what it is worth."""
    from surefoot.sim.learned import save

    about = found.facts | {"model": model, "log": files.sha256(log.read_bytes())}
    save(found.term, out, about)
    table = Table("signal", f"error after {found.facts['horizon']:g} s", "with it", "unit")
    for name, e in found.errors.items():
        table.add_row(name, f"{e['without']:.4g}", f"{e['with']:.4g}", e["unit"])
    words = (
        f"explains {100 * found.share:.0f} % of the squared prediction error on the held-out part of the log "
        f"(at least {100 * found.low:.0f} %, 95 % sure): {out}"
    )
    return Answer(about | {"term": str(out)}, [table, words], f"{then} {out}")
