"""The verbs that learn from a log what a model lacks: a force, or a delta to the actions."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.belief import Belief, point
from surefoot.cli.words import belief_of
from surefoot.console import Answer, Line
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Params
from surefoot.world import World

if TYPE_CHECKING:
    from surefoot.real2sim.explain import Explained


@dataclass
class Missing:
    """Learn from a log the force that a model lacks, such as drag or ground effect, and say how much it explains."""

    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """a log (.npz) with the whole state and `control`"""
    belief: str = "nominal"
    """e of the model: the mean of `nominal`, `task`, or of a belief's JSON file"""
    fixed: bool = False
    """a model file's base was held when the log was made"""
    kp: float | None = None
    """position gain of servos that stand in for a model file's motors, N m/rad"""
    kd: float = 0.0
    """velocity gain of those servos, N m s/rad"""
    seed: int = 0
    """seed of the nets"""
    out: Path | None = None
    """folder of what was learned; <log>-missing unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.residual import missing

        log, line = Log.load(self.log), Line(say)
        world, belief = self._world(log, say)
        found = missing(world, belief, log, seed=self.seed, watch=line.text)
        line.end()
        task = self.model if self.model in tasks.TASKS else "TASK"
        return _answer(found, self.model, self.log, self.out, "missing", f"surefoot train {task} --terms")

    def _world(self, log: Log, say: Console) -> tuple[World, Belief]:
        from surefoot.real2sim.plant import Plant

        if self.model in tasks.TASKS:
            if self.fixed or self.kp is not None:
                raise SurefootError("--fixed, --kp and --kd: only with a model file; a task has its own robot")
            task = tasks.make(self.model)
            return tasks.env(task, 1).world, belief_of(task, self.belief, say)
        if self.belief not in ("nominal", "task"):
            belief = Belief.from_json(files.read_json(Path(self.belief)), self.belief)
            return Plant(self.model, self.fixed, self.kp, self.kd).world(belief.params, log), belief
        none = Params(())
        return Plant(self.model, self.fixed, self.kp, self.kd).world(none, log), point(none, none.nominal)


@dataclass
class Delta:
    """Learn from a log what to add to a task's actions so that its simulator answers as the robot does."""

    task: Positional[str]
    """see `surefoot tasks`"""
    log: Positional[Path]
    """a log (.npz) with the whole state and `control`"""
    by: Literal["inversion", "reinforcement"] = "inversion"
    """the offset that explains each piece of the log, and nets of it; or PPO on episodes that replay the log"""
    belief: str = "nominal"
    """e of the model: the mean of `nominal`, `task`, a preset, or of a belief's JSON file"""
    steps: int = 400_000
    """env steps of learning by reinforcement"""
    seed: int = 0
    """seed of the nets"""
    out: Path | None = None
    """folder of what was learned; <log>-delta unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.delta import SETTINGS, inverted, practised

        task, log, line = tasks.make(self.task), Log.load(self.log), Line(say)
        belief = belief_of(task, self.belief, say)
        if self.by == "inversion":
            found = inverted(tasks.env(task, 1).world, belief, log, seed=self.seed, watch=line.text)
        else:
            from surefoot.learn.ppo import PPO

            settings = PPO(**{**SETTINGS, "steps": self.steps})
            tell = lambda row: line.text(f"{row['steps']:,.0f} of {self.steps:,} steps, reward {row['reward']:.3f}")  # noqa: E731
            found = practised(task, belief, log, settings, seed=self.seed, watch=tell)
        line.end()
        return _answer(found, self.task, self.log, self.out, "delta", f"surefoot train {self.task} --start RUN --terms")


def _answer(found: "Explained", model: str, log: Path, out: Path | None, kind: str, then: str) -> Answer:
    """Write what was learned; say what it is worth."""
    from surefoot.sim.learned import save

    out = out or log.with_name(f"{log.stem}-{kind}")
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
