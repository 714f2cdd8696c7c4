"""The verb that records: a log of a simulated robot whose reality is hidden."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from tyro.conf import Positional

from surefoot import files
from surefoot.cli.words import reality_of, task_for
from surefoot.console import Answer, Line
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.policy import Policy
from surefoot.task import Task


@dataclass
class Record:
    """Record a log on a simulated robot whose reality is hidden: play a policy, a plan or random controls on it."""

    task: Positional[str]
    """see `surefoot tasks`"""
    reality: int = 0
    """seed of the hidden reality"""
    policy: Path | None = None
    """a run's folder or a policy.onnx to play"""
    excite: Path | None = None
    """a plan to play: a log with a column `control`"""
    controls: Literal["", "random"] = ""
    """random: actions drawn anew every 0.2 s; so it is without --policy and --excite"""
    seconds: float | None = None
    """length of the log; one episode, or the whole plan, unless told"""
    out: Path = Path("log.npz")
    """where the log goes, over what had this name"""
    ingredient: tuple[str, ...] = ()
    """name=strength, from 0 to 1: what reality is made of, in place of what its seed draws"""
    seed: int = 0
    """seed of starts, commands and noise"""
    observation: bool = False
    """log what a policy was told, too: the column `observation`"""
    tell: bool = False
    """print what reality is made of, in numbers, which the log does not say"""

    def run(self, say: Console) -> Answer:
        from surefoot.sim.realities import realities
        from surefoot.tasks.record import record

        files.check_writable(self.out, "--out", ".npz", (self.excite, self.policy))
        task, how = self._how()
        real = reality_of(self.reality, self.ingredient) if self.ingredient else realities(self.reality, task)
        line = Line(say)
        parents = {k: files.sha256(p.read_bytes()) for k, p in self._files().items()}
        tell = lambda t, end: line.text(f"second {t:5.1f} of {end:g}")  # noqa: E731
        log = record(task, real, how, self.seconds, self.seed, tell, parents, self.observation)
        line.end()
        log.save(self.out)
        facts = {
            "log": str(self.out), "task": task.name, "rows": len(log), "rate": log.meta["rate"], "gaps": log.meta["gaps"],
            "columns": {k: list(v.shape) for k, v in log.columns.items()}, "sha256": files.sha256(self.out.read_bytes()),
        }  # fmt: skip
        shown = [f"{self.out}: {len(log)} rows at {log.meta['rate']:g} Hz, {', '.join(log.columns)}"]
        if self.tell:
            facts["truth"] = real.to_json()
            numbers = real.numbers(task)
            for k, v in facts["truth"]["ingredients"].items():
                found = numbers.get(k, [])  # none of strength 0
                v["numbers"] = [asdict(x) for x in found]
                shown.append(f"  {k} {v['strength']:.2f}: {v['about']}")
                shown += ["    " + ", ".join(map(str, found))] if found else []
        return Answer(facts, shown, f"surefoot preflight {self.task} {self.out}")

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
