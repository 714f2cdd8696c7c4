"""surefoot eval."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated

from tyro.conf import Positional, arg

from surefoot.report import Note, Report, Watch
from surefoot.verbs.arguments import belief_of, chosen, count, met_before, results, seconds, task_for


@dataclass(frozen=True)
class Eval:
    policy: Positional[Path]
    """a run's folder, a policy.onnx, or a task with a shipped policy (see `surefoot tasks`)"""
    best: bool = False
    """use the best policy of the run (kept by --judge-every) instead of the last one"""
    task: str = ""
    """the policy's task file, if it has changed or moved, or another task that the policy fits"""
    episodes: int = 200
    """number of episodes"""
    batches: int = 1
    """batches of so many episodes, with seeds `seed`, `seed` + 1, ...; all of them are counted"""
    seed: int = 1
    """seed of the episodes"""
    belief: str = "task"
    """p(e): `task`, `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    threads: int = 0
    """threads of the physics; 0: every core"""
    engine: Annotated[str, arg(name="in")] = "mujoco"
    """the engine: mujoco, mujoco:half-step, mujoco:rk4, ... (an unknown name lists all of them)"""
    safety: Path | None = None
    """safety layers around the policy (docs/safety.md): a safety.json, or the folder that `surefoot guard` wrote"""
    terms: tuple[Path, ...] = ()
    """folders that `surefoot missing` or `surefoot delta` wrote: missing physics, added to the model"""

    def run(self, watch: Watch) -> Report:
        if self.best:
            return replace(self, best=False, policy=chosen(self.policy)).run(watch)
        from surefoot import tasks
        from surefoot.control import layers
        from surefoot.deploy import bundle
        from surefoot.gate.training_record import changed
        from surefoot.sim import engines
        from surefoot.tasks.known import task_flag
        from surefoot.tasks.rollout import joined, trials

        engines.known(self.engine, "--in")
        policy = bundle.load(self.policy)
        task = task_for(policy, self.task, self.policy)
        belief = belief_of(task, self.belief, watch, ranges=self.range)
        inside = tasks.learned(task, self.terms)
        since = changed(self.policy, policy, task, self.task)
        worn = policy if self.safety is None else layers.wear(policy, layers.read(self.safety))
        batches = []
        for b in range(count(self.batches, "--batches")):
            n, seed = count(self.episodes), self.seed + b
            env = tasks.env(task, n, belief, seed, self.threads, terms=inside, engine=self.engine)
            batches.append(trials(worn, env, seconds(watch, task)))
        first, *rest = found = [joined(parts) for parts in zip(*batches)]
        asked = {"policy": str(self.policy), "task": task.name, "belief": self.belief, "engine": self.engine}
        asked |= {} if self.safety is None else {"safety": str(self.safety)}
        facts = asked | ({"ranges": list(self.range)} if self.range else {}) | first.to_json() | {"changed": since}
        if rest:
            facts["trial"] = [x.to_json() for x in found]
        named = {f"{self.policy}, episode {k + 1}" if rest else str(self.policy): x for k, x in enumerate(found)}
        blocks = (results(task, named), *met_before(self.seed, [self.policy]), *(Note(words, True) for words in since))
        return Report(
            f"{self.policy} in {task.name}",
            facts,
            blocks,
            f"surefoot play {quote(str(self.policy))}{task_flag(self.task, policy.contract)}",
        )
