"""surefoot play."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from tyro.conf import Positional

from surefoot.policy import Policy, Random, Zero
from surefoot.report import Progress, Report, Text, Watch
from surefoot.task import Task
from surefoot.verbs.arguments import belief_of, chosen, task_for


@dataclass(frozen=True)
class Play:
    policy: Positional[str]
    """a run's folder, a policy.onnx, a task with a shipped policy (see `surefoot tasks`), or `zero` / `random` with --task"""
    best: bool = False
    """use the best policy of the run (kept by --judge-every) instead of the last one"""
    task: str = ""
    """the policy's task file, if it has changed or moved, or another task that the policy fits"""
    record: Path | None = None
    """write a film (.gif or .mp4) instead of opening the viewer"""
    seconds: float = 5.0
    """length of the film"""
    camera: str = ""
    """camera of the film: the name of a camera in the model, or `free`; default: `side` if the model has it, otherwise a camera that follows the robot"""
    port: int = 8080
    """the viewer's port on this computer"""
    seed: int = 1
    """seed of the episodes"""
    belief: str = "nominal"
    """p(e): `task` (its training ranges), `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""

    def run(self, watch: Watch) -> Report:
        if self.best:
            return replace(self, best=False, policy=str(chosen(Path(self.policy)))).run(watch)
        from surefoot import files, tasks
        from surefoot.tasks.known import task_flag

        if self.record is not None:
            files.check_writable(self.record, "--record")
        policy, task = self._policy()
        env = tasks.env(task, 1, belief_of(task, self.belief, watch, ranges=self.range), self.seed)
        following = f"surefoot export {quote(self.policy)}{task_flag(self.task, policy.contract)}"
        if self.record is None:
            from surefoot.tasks.view.viewer import view

            view(policy, env, port=self.port, say=lambda words: watch(Progress(words, stays=True)))
            return Report(self.policy, {"viewed": self.policy}, (), following)
        from surefoot.tasks.view.picture import record

        path = record(policy, env, self.record, self.seconds, camera=self.camera)
        return Report(self.policy, {"film": str(path)}, (Text(f"film: {path}"),), following)

    def _policy(self) -> tuple[Policy, Task]:
        if self.policy in ("zero", "random"):
            from surefoot import tasks
            from surefoot.tasks.rollout import contract

            task = tasks.resolve(self.task or "hover")
            c = contract(task, tasks.env(task, 1).world)
            return (Zero(c) if self.policy == "zero" else Random(c, self.seed)), task
        from surefoot.deploy import bundle

        policy = bundle.load(Path(self.policy))
        return policy, task_for(policy, self.task, self.policy)
