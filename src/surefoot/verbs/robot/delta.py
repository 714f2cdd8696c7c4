"""surefoot delta: what to add to a task's actions so that its simulator moves as the robot does."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from surefoot import tasks
from surefoot.report import Report, Watch
from surefoot.verbs.arguments import belief_of
from surefoot.verbs.machine import Machine, checked, naming, read
from surefoot.verbs.robot.missing import explained, folder


@dataclass(frozen=True)
class Delta:
    task: Positional[str]
    """see `surefoot tasks`"""
    log: Positional[Path]
    """the robot's log, with the whole state and `control`: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that maps the log's columns to our schema; see docs/logs.md"""
    by: Literal["inversion", "reinforcement"] = "inversion"
    """inversion: solve for the offset of each piece of the log and fit nets to it; reinforcement: PPO on episodes that
    replay the log"""
    belief: str = "nominal"
    """e of the model: the point estimate of `nominal`, `task`, a preset, or of a belief's JSON file"""
    check: bool = True
    """run preflight on the log first"""
    steps: int = 400_000
    """env steps of reinforcement learning"""
    seed: int = 0
    """seed of the nets"""
    out: Path | None = None
    """folder of the result; default: <log>-delta. By reinforcement, its folder `run` resumes after a stop"""

    def run(self, watch: Watch) -> Report:
        from surefoot.real2sim.residual.delta import SETTINGS, by_inversion, by_reinforcement

        task, out = tasks.resolve(self.task), folder(self.out, self.log, "delta")
        log = read(self.log, self.mapping, watch)
        belief, world = belief_of(task, self.belief, watch), Machine().world(self.task, None, log)
        if self.check:
            checked(world, log, self.log, watch)
        with naming(self.log):
            if self.by == "inversion":
                found = by_inversion(world, belief, log, seed=self.seed, watch=watch)
            else:
                from surefoot.learn.settings import PPOSettings

                settings = PPOSettings(**{**SETTINGS, "steps": self.steps})
                found = by_reinforcement(task, belief, log, settings, seed=self.seed, watch=watch, folder=out / "run")
        return explained(found, self.task, self.log, out, f"surefoot train {quote(self.task)} --start RUN --terms")
