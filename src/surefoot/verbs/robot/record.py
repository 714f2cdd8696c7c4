"""surefoot record: a log of a simulated robot whose physics are hidden."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Literal

from tyro.conf import Positional

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.policy import Policy
from surefoot.report import Block, Report, Text, Watch
from surefoot.task import Task
from surefoot.verbs.arguments import belief_of, reality_of, task_for

MOST = 10_000  # episodes


@dataclass(frozen=True)
class Record:
    task: Positional[str]
    """see `surefoot tasks`"""
    reality: int = 0
    """seed of the hidden reality"""
    policy: Path | None = None
    """a run's folder, a policy.onnx, or a task with a shipped policy: what drives the robot"""
    excite: Path | None = None
    """a plan to play: a log with a column `control`"""
    controls: Literal["", "random"] = ""
    """random: new random actions every 0.2 s; the default without --policy and --excite"""
    seconds: float | None = None
    """length of the log; default: one episode, or the whole plan"""
    out: Path = Path("log.npz")
    """the log's file; replaces a file of this name"""
    ingredient: tuple[str, ...] = ()
    """name=strength, from 0 to 1: effects that make up the reality, instead of what its seed draws"""
    seed: int = 0
    """seed of starts, commands and noise"""
    observation: bool = False
    """log the policy's observations, too, as the column `observation`"""
    episodes: int = 0
    """so many episodes of the simulation itself, each in a world of --belief, in place of a hidden robot: `observation` and
    `action` of --policy, for `surefoot clone`"""
    belief: str = "task"
    """of --episodes: task, nominal, a preset, or a JSON file"""
    tell: bool = False
    """print the hidden parameters, which the log does not contain"""

    def run(self, watch: Watch) -> Report:
        from surefoot.sim.realities import realities
        from surefoot.tasks.record import record

        files.check_writable(self.out, "--out", ".npz", (self.excite, self.policy))
        if self.episodes:
            return self._simulated(watch)
        task, how = self._how()
        real = reality_of(self.reality, self.ingredient) if self.ingredient else realities(self.reality, task)
        parents = {k: files.sha256(p.read_bytes()) for k, p in self._files().items()}
        log = record(task, real, how, self.seconds, self.seed, watch, parents, self.observation)
        log.save(self.out)
        facts = {
            "log": str(self.out), "task": task.name, "rows": len(log), "rate": log.meta["rate"], "gaps": log.meta["gaps"],
            "columns": {k: list(v.shape) for k, v in log.columns.items()}, "sha256": files.sha256(self.out.read_bytes()),
        }  # fmt: skip
        blocks: list[Block] = [
            Text(f"{self.out}: {len(log)} rows at {log.meta['rate']:g} Hz, {', '.join(log.columns)}")
        ]
        if self.tell:
            facts["truth"] = real.to_json()
            numbers = real.numbers(task)
            for k, v in facts["truth"]["ingredients"].items():
                found = numbers.get(k, [])  # none of strength 0
                v["numbers"] = [asdict(x) for x in found]
                blocks.append(Text(f"  {k} {v['strength']:.2f}: {v['about']}"))
                blocks += [Text("    " + ", ".join(map(str, found)))] if found else []
        return Report(
            str(self.out), facts, tuple(blocks), f"surefoot preflight {quote(self.task)} {quote(str(self.out))}"
        )

    def _simulated(self, watch: Watch) -> Report:
        """Episodes over a belief, which hides nothing."""
        from surefoot import tasks
        from surefoot.tasks.record import simulated

        if self.policy is None or not 1 <= self.episodes <= MOST:
            raise SurefootError(f"--episodes: expected --policy, and 1 to {MOST} episodes; found {self.episodes}")
        for name in ("reality", "ingredient", "seconds", "tell"):
            if getattr(self, name):
                raise SurefootError(f"--episodes: found --{name}, which is of a hidden robot: expected none")
        task, how = self._how()
        assert isinstance(how, Policy)
        belief = belief_of(task, self.belief, watch)
        log = simulated(how, tasks.env(task, self.episodes, belief, self.seed), watch)
        log = replace(
            log, meta=log.meta | {"parents": {k: files.sha256(p.read_bytes()) for k, p in self._files().items()}}
        )
        log.save(self.out)
        facts = {"log": str(self.out), "task": task.name, "rows": len(log), "episodes": self.episodes,
                 "sha256": files.sha256(self.out.read_bytes())}  # fmt: skip
        text = f"{self.out}: {len(log)} rows of {self.episodes} simulated episodes, observation, action"
        return Report(str(self.out), facts, (Text(text),), f"surefoot clone {quote(self.task)} {quote(str(self.out))}")

    def _files(self) -> dict[str, Path]:
        from surefoot.deploy import bundle

        if self.policy:
            return {"policy": bundle.find(self.policy)}
        return {"plan": self.excite} if self.excite else {}

    def _how(self) -> tuple[Task, Policy | Log | None]:
        from surefoot import tasks

        given = [k for k in ("policy", "excite", "controls") if getattr(self, k)]
        if len(given) > 1:
            raise SurefootError(
                f"record: expected one of --policy, --excite and --controls, found {' and '.join(given)}"
            )
        if self.excite:
            return tasks.resolve(self.task), Log.load(self.excite)
        if not self.policy:
            return tasks.resolve(self.task), None
        from surefoot.deploy import bundle

        policy = bundle.load(self.policy)
        return task_for(policy, self.task), policy
