"""surefoot guard: learn where a policy will fail, and write the safety layers that it wears."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np
from tyro.conf import Positional

from surefoot import files, shipped
from surefoot.errors import SurefootError
from surefoot.report import Note, Report, Table, Text, Watch
from surefoot.verbs.arguments import belief_of, chosen, count, task_for

if TYPE_CHECKING:
    from surefoot.contract import Contract
    from surefoot.control.command_limits import CommandLimits
    from surefoot.control.layers import Layer
    from surefoot.control.reach_avoid import Recovery
    from surefoot.task import Task

POINTS = {1: 21, 2: 11, 3: 7}  # of the grid of commands, along each, by how many there are


@dataclass(frozen=True)
class Guard:
    policy: Positional[Path]
    """a run's folder, a policy.onnx, or a task with a shipped policy (see `surefoot tasks`)"""
    best: bool = False
    """use the best policy of the run (kept by --judge-every) instead of the last one"""
    task: str = ""
    """its task, where that is a file or a module"""
    reach: bool = False
    """also count as failure what does not come within the task's tolerance in time; else only what ends an episode early"""
    threshold: float = -0.4
    """value in [-1, 1] above which the recovery takes over"""
    speed: float | None = None
    """also keep the joints within the model's ranges and below this speed, rad/s or m/s"""
    base: tuple[float, ...] = ()
    """also limit the base of a robot that follows a command: largest speed for each number of the command, m/s and rad/s"""
    tilt: float = 0.0
    """with --base: rad from upright at which nothing more is asked of the policy; 0: no limit"""
    episodes: int = 4
    """episodes of each simulation to learn from"""
    envs: int = 256
    """simulations side by side"""
    belief: str = "task"
    """p(e): `task`, `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    seed: int = 0
    """seed of the episodes and of the net"""
    out: Path | None = None
    """folder for safety.json and value.onnx; default: beside the policy"""
    threads: int = 0
    """threads of the physics; 0: every core"""

    def run(self, watch: Watch) -> Report:
        if self.best:
            return replace(self, best=False, policy=chosen(self.policy)).run(watch)
        from surefoot import tasks
        from surefoot.control import layers
        from surefoot.deploy import bundle
        from surefoot.learn.off_policy.reach_avoid import ValueSettings, guard
        from surefoot.tasks.known import task_flag

        policy = bundle.load(self.policy)
        task, out = task_for(policy, self.task, self.policy), self.out or shipped.products(self.policy)
        files.check_writable(out / layers.NAME, "--out")
        belief = belief_of(task, self.belief, watch, ranges=self.range)
        recovery = task.recovery or by_command(task, policy.contract)
        settings = ValueSettings(reach=self.reach, episodes=count(self.episodes))
        make = lambda seed: tasks.env(task, count(self.envs), belief, seed, self.threads)  # noqa: E731
        switch, found = guard(policy, make, recovery, settings, self.seed, watch)
        own = self._base(policy.contract)
        worn = (replace(switch, threshold=self.threshold), *own, *self._limits(task, policy.contract))
        layers.wear(policy, worn)
        path = layers.write(out, worn)
        rows = [[words, f"{100 * getattr(found, k):.1f} %"] for k, words in SHOWN.items()]
        blocks = [Text(f"safety layers: {path}"), Table.of(["unseen states of the policy", ""], rows)]
        if found.sign < found.safe + 0.02:
            blocks.append(Note("the value learned little: the policy fails too seldom", True))
        facts = {"safety": str(path), "layers": [layers.to_json(x)["kind"] for x in worn], "accuracy": asdict(found)}
        flag = task_flag(self.task, policy.contract)
        return Report(f"{self.policy}, guarded", facts, tuple(blocks), f"surefoot eval {quote(str(self.policy))}{flag} --safety {quote(str(path))}")  # fmt: skip

    def _base(self, contract: "Contract") -> "tuple[Layer, ...]":
        if not self.base:
            return ()
        return (command_limits(contract, self.base, self.tilt),)

    def _limits(self, task: "Task", contract: "Contract") -> "tuple[Layer, ...]":
        if self.speed is None:
            return ()
        from surefoot.control.barrier import Filter
        from surefoot.tasks.joint_model import limits_of

        return (Filter((limits_of(task, contract, self.speed),)),)


SHOWN = {
    "sign": "value has the right sign",
    "of_failures": "of states that fail, called unsafe",
    "false_safe": "called safe, and fail",
    "safe": "do not fail",
}


def command_limits(contract: "Contract", top: tuple[float, ...], tilt: float = 0.0) -> "CommandLimits":
    """Limits of the base's speeds and tilt, by what the policy observes: its command, an estimate of its velocity, its gyro."""
    from surefoot.control.command_limits import CommandLimits

    kinds = {t.formula.kind: t.name for t in contract.terms if t.formula is not None}
    estimates = {t.formula.reading: t.name for t in contract.terms if t.formula is not None and t.formula.estimate}
    term = next((t for t in contract.terms if t.name == kinds.get("command")), None)
    if term is None or len(top) != term.dim:
        raise SurefootError(f"--base: expected {term.dim if term else 'a policy that observes a command, and'} numbers")
    own = (t.name for t in contract.terms if t.formula is not None and t.formula.kind == "base_lin_vel" and t.formula.frame == "base")  # fmt: skip
    lin, gyro = estimates.get("base_lin_vel") or next(own, None), kinds.get("base_ang_vel")
    if tilt and not (gyro and "projected_gravity" in kinds):
        raise SurefootError("--tilt: expected a policy that observes projected_gravity and base_ang_vel")
    known = [(lin, 0) if lin else None, (lin, 1) if lin else None, (gyro, 2) if gyro else None]
    measured = tuple(known) if term.dim == 3 else (None,) * term.dim
    places = tuple((term.name, k) for k in range(term.dim))
    return CommandLimits(places, top, measured, tilt, kinds.get("projected_gravity", ""), gyro or "")


def by_command(task: "Task", contract: "Contract") -> "Recovery":
    """Another command, anywhere in the range that the task draws from."""
    from surefoot.control.reach_avoid import Recovery
    from surefoot.rng import stream

    term = next((t for t in contract.terms if t.formula is not None and t.formula.kind == "command"), None)
    if term is None or task.command is None or term.dim not in POINTS:
        raise SurefootError(
            f"task {task.name}: no recovery: expected Task.recovery, or a policy that observes a command of 1 to 3 numbers"
        )
    drawn = np.asarray(task.command(stream(0, "commands"), 2000))
    low, high = (tuple(x.tolist()) for x in (drawn.min(0), drawn.max(0)))
    columns = tuple((term.name, k) for k in range(term.dim))
    return Recovery(columns, low, high, (POINTS[term.dim],) * term.dim)
