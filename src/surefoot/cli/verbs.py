"""The verbs that look, judge and show: thin dataclasses over the functions of the rooms."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from rich.console import Console
from tyro.conf import FlagConversionOff, Positional, arg

from surefoot import files
from surefoot.belief import Belief
from surefoot.cli.words import belief_of, count, met_before, seconds, task_for
from surefoot.console import Answer, Line, goal, ready, results
from surefoot.errors import SurefootError, unknown
from surefoot.policy import Policy, Random, Zero
from surefoot.task import Task

if (
    TYPE_CHECKING
):  # rooms are opened by the verb that is asked for: learning takes seconds to import, and extras may be missing
    from surefoot.gate.sweep import Each

FAILED = 1


@dataclass
class Tasks:
    """List the ready tasks and what counts as success in each."""

    def run(self, say: Console) -> Answer:
        from surefoot import tasks

        facts = [_facts(tasks.resolve(name)) for name in tasks.names()]
        return Answer({"tasks": facts}, [ready(facts)], "surefoot look hover")


@dataclass
class Look:
    """A card of a robot or task: its parts, its unknowns e with units and ranges, and what looks wrong in the model."""

    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    asset_root: Path | None = None
    """folder that meshes and includes may come from, when they lie outside the model's own"""
    audit: FlagConversionOff[bool] = True
    """prove that each unknown changes what the model does"""

    def run(self, say: Console) -> Answer:
        from surefoot.gate.look import look

        return Answer(*look(self.model, self.asset_root, self.audit))


@dataclass
class Presets:
    """Ranges that others randomize over, with their sources; given a name, what it comes to on a task."""

    name: Positional[str] = ""
    """one preset; all of them unless told"""
    task: str = ""
    """only those that fit this task, or the task to show one on; the first it fits unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.gate.presets import listing

        return Answer(*listing(self.name, self.task))


@dataclass
class Try:
    """Run a policy that needs no training, to see that a task makes sense before any."""

    task: Positional[str]
    """see `surefoot tasks`"""
    policy: str = "zero"
    """zero, or random"""
    episodes: int = 64
    """how many episodes"""
    seed: int = 0
    """seed of the episodes"""
    belief: str = "task"
    """p(e): `task` (its training ranges), `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""

    def run(self, say: Console) -> Answer:
        from surefoot import tasks
        from surefoot.tasks.rollout import contract, evaluate

        task = tasks.resolve(self.task)
        env = tasks.env(task, count(self.episodes), belief_of(task, self.belief, say), self.seed)
        c = contract(task, env.world.model)
        kinds: dict[str, Callable[[], Policy]] = {"zero": lambda: Zero(c), "random": lambda: Random(c, self.seed)}
        if self.policy not in kinds:
            raise unknown("policy", self.policy, kinds, "--policy")
        line = Line(say)
        result = evaluate(kinds[self.policy](), env, seconds(line, task))
        line.end()
        return Answer(
            {"task": task.name, "policy": self.policy} | result.to_json(),
            [results(task, {self.policy: result})],
            f"surefoot train {self.task}",
        )


@dataclass
class Eval:
    """Success of a policy, with an exact 95 % interval, in its task's world or over a belief."""

    policy: Positional[Path]
    """a run's folder or a policy.onnx"""
    task: str = ""
    """another task than the one it was trained for"""
    episodes: int = 200
    """how many episodes"""
    seed: int = 1
    """seed of the episodes"""
    belief: str = "task"
    """p(e): `task`, `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""
    threads: int = 0
    """threads of the physics; 0: every core"""
    engine: Annotated[str, arg(name="in")] = "mujoco"
    """the engine: mujoco, mujoco:half-step, mujoco:rk4, ... (an unknown name is answered with all of them)"""
    terms: tuple[Path, ...] = ()
    """folders that `surefoot missing` or `surefoot delta` wrote: what the model lacked, put into it"""

    def run(self, say: Console) -> Answer:
        from surefoot import tasks
        from surefoot.deploy import bundle
        from surefoot.sim import engines
        from surefoot.tasks.rollout import trials

        engines.known(self.engine, "--in")
        policy = bundle.load(self.policy)
        task = task_for(policy, self.task, self.policy)
        belief = belief_of(task, self.belief, say)
        inside = tasks.learned(task, self.terms)
        env = tasks.env(task, count(self.episodes), belief, self.seed, self.threads, terms=inside, engine=self.engine)
        line = Line(say)
        first, *rest = found = trials(policy, env, seconds(line, task))
        line.end()
        asked = {"policy": str(self.policy), "task": task.name, "belief": self.belief, "engine": self.engine}
        facts = asked | first.to_json()
        if rest:
            facts["trial"] = [x.to_json() for x in found]
        named = {f"{self.policy}, episode {k + 1}" if rest else str(self.policy): x for k, x in enumerate(found)}
        shown = [results(task, named), *met_before(self.seed, [self.policy])]
        return Answer(facts, shown, f"surefoot play {self.policy}")


@dataclass
class Play:
    """Watch a policy: in the browser (loopback only), or as a short film written to a file."""

    policy: Positional[str]
    """a run's folder, a policy.onnx, or `zero` / `random` with --task"""
    task: str = ""
    """a task that the policy fits, in place of its own"""
    record: Path | None = None
    """write a film (.gif or .mp4) instead of opening the viewer"""
    seconds: float = 5.0
    """length of the film"""
    port: int = 8080
    """the viewer's port on this computer"""
    seed: int = 1
    """seed of the episodes"""
    belief: str = "nominal"
    """p(e): `task` (its training ranges), `nominal`, a preset (see `surefoot presets`), or a belief's JSON file"""

    def run(self, say: Console) -> Answer:
        from surefoot import tasks

        policy, task = self._policy()
        env = tasks.env(task, 1, belief_of(task, self.belief, say), self.seed)
        if self.record is None:
            from surefoot.tasks.viewer import view

            view(policy, env, port=self.port, say=lambda text: say.print(text, highlight=False))
            return Answer({"viewed": self.policy}, [], f"surefoot export {self.policy}")
        from surefoot.tasks.picture import record

        path = record(policy, env, self.record, self.seconds)
        return Answer({"film": str(path)}, [f"film: {path}"], f"surefoot export {self.policy}")

    def _policy(self) -> tuple[Policy, Task]:
        if self.policy in ("zero", "random"):
            from surefoot import tasks
            from surefoot.tasks.rollout import contract

            task = tasks.resolve(self.task or "hover")
            c = contract(task, tasks.env(task, 1).world.model)
            return (Zero(c) if self.policy == "zero" else Random(c, self.seed)), task
        from surefoot.deploy import bundle

        policy = bundle.load(Path(self.policy))
        return policy, task_for(policy, self.task, self.policy)


@dataclass
class Export:
    """Write a policy as one ONNX file with its contract inside, and check it against the net it came from."""

    policy: Positional[Path]
    """a run's folder or a policy.onnx"""
    out: Path | None = None
    """policy.onnx beside the policy unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot import tasks
        from surefoot.deploy import bundle
        from surefoot.learn.export import load_net, onnx_difference

        net, own = load_net(self.policy), bundle.find(self.policy)
        worst, unseen = onnx_difference(net, own), tasks.privileged(net.contract)
        out = self.out or own
        if out != own:
            with files.held(out.with_name(f"{out.name}.lock"), f"writing {out.name} here"):
                files.clear_parts(out.parent, out.name + ".*")
                files.write(out, files.read_bytes(own, bundle.LARGEST))
        facts = {
            "onnx": str(out),
            "bytes": out.stat().st_size,
            "largest_difference": worst,
            "privileged": unseen,
            "contract": net.contract.to_json(),
        }
        shown = [f"{out}: {out.stat().st_size} bytes, differs from torch by at most {worst:.1e} on 1024 observations"]
        if unseen:
            shown.append(f"no robot can run it: it must be told {', '.join(unseen)}, which none measures")
        return Answer(facts, shown, f"surefoot gate {self.policy}")


@dataclass
class Sweep:
    """Success against one unknown, for one policy or several on the same episodes: where each begins to fail."""

    policies: Positional[tuple[Path, ...]]
    """runs' folders or policy.onnx files, of one task"""
    over: str
    """the unknown, as `surefoot look TASK` names it"""
    points: int = 9
    """how many values"""
    low: float | None = None
    """first value; the least that is physically possible unless told"""
    high: float | None = None
    """last value; the most that is physically possible unless told"""
    episodes: int = 100
    """at each point"""
    belief: str = "nominal"
    """where the other unknowns come from: `nominal`, `task`, a preset (see `surefoot presets`), or a belief's JSON file"""
    task: str = ""
    """a task that the policy fits, in place of its own"""
    specialists: bool = False
    """train one policy at each value, as the first run was trained, and tell what robustness costs against them"""
    seed: int = 1
    """seed of the episodes"""
    out: Path | None = None
    """page with the picture; sweep-<unknown>.html beside the first policy unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.deploy import bundle
        from surefoot.gate.sweep import page, price, sentences, sweep, table, values_over

        if not self.policies:
            raise SurefootError("sweep: expected at least one policy")
        policies = {str(p): bundle.load(p) for p in self.policies}
        task = task_for(next(iter(policies.values())), self.task, self.policies[0])
        for label, policy in policies.items():
            task_for(policy, task.name, label)
        values = values_over(task, self.over, self.points, self.low, self.high)
        line, others = Line(say), belief_of(task, self.belief, say)
        first = bundle.find(self.policies[0]).parent
        path = self.out or first / f"sweep-{self.over}.html"
        files.check_writable(path, "--out")
        best = self._specialists(task.name, values, others, first, line) if self.specialists else None
        facts = sweep(policies, task, self.over, values, others, count(self.episodes), self.seed, seconds(line, task))
        if best is not None:
            facts = price(facts, best, task, others)
        line.end()
        out = page(path, facts)
        shown = [table(facts), *sentences(facts), *met_before(self.seed, self.policies), f"picture: {out}"]
        return Answer(facts | {"page": str(out)}, shown, f"surefoot play {self.policies[0]}")

    def _specialists(self, task: str, values: np.ndarray, others: Belief, first: Path, line: Line) -> "Each":
        from surefoot import tasks
        from surefoot.gate.sweep import specialists

        if self.episodes < 2:
            raise SurefootError(f"--specialists: expected at least 2 --episodes at each point, found {self.episodes}")
        return specialists(
            tasks.resolve(task), self.over, values, others, first, first / "specialists", line, line.note
        )


@dataclass
class Adapt:
    """What a policy that adapts has worked out: unknowns read from its latent, and how it follows a sudden change."""

    policy: Positional[Path]
    """a run's folder or a policy.onnx, with an encoder: of --adapt rma, or of --encoder conv or gru"""
    show: str = ""
    """the unknown to follow; the one that the latent tells best unless told"""
    before: float | None = None
    """its value at first; its belief's 10 % quantile unless told"""
    after: float | None = None
    """its value after the change; its belief's 90 % quantile unless told"""
    at: float | None = None
    """seconds into the episode; the middle unless told"""
    episodes: int = 256
    """half to fit the linear probe, half to test it"""
    belief: str = "task"
    """p(e) of all unknowns: `task`, a preset (see `surefoot presets`), or a belief's JSON file"""
    task: str = ""
    """a task that the policy fits, in place of its own"""
    seed: int = 1
    """seed of the episodes"""
    out: Path | None = None
    """page with the pictures; adapt.html beside the policy unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.deploy import bundle
        from surefoot.gate.inferred import inferred, page, sentence, table

        policy = bundle.load(self.policy)
        task, line = task_for(policy, self.task, self.policy), Line(say)
        path = self.out or bundle.find(self.policy).parent / "adapt.html"
        files.check_writable(path, "--out")
        facts = inferred(
            policy, task, belief_of(task, self.belief, say), self.show, (self.before, self.after), self.at,
            self.episodes, self.seed, seconds(line, task),
        )  # fmt: skip
        line.end()
        out = page(path, facts)
        return Answer(
            facts | {"page": str(out)}, [table(facts), sentence(facts), f"pictures: {out}"], f"surefoot sweep {self.policy} --over {facts['unknown']}"
        )  # fmt: skip


@dataclass
class Cross:
    """The whole story: train, meet a hidden reality and fail, train over a belief and succeed; a page of evidence."""

    task: Positional[str]
    """see `surefoot tasks`"""
    seed: int = 0
    """seed of all that is random in training"""
    reality: int = 0
    """seed of the hidden reality"""
    episodes: int = 200
    """how many episodes"""
    out: Path | None = None
    """runs/cross-<task>/<time> unless told"""
    steps: int | None = None
    """env steps of each training; the task's own number unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot import tasks
        from surefoot.gate.cross import cross

        tasks.resolve(self.task)
        count(self.episodes)
        out = self.out or Path("runs") / f"cross-{self.task}" / time.strftime("%Y-%m-%d_%H-%M-%S")
        line = Line(say)
        facts, shown = cross(
            self.task, out, self.seed, self.reality, self.episodes, self.steps, watch=line, say=line.note
        )
        return Answer(
            facts, shown, f"surefoot play {out / 'belief'}", FAILED if facts["gap"] and not facts["crossed"] else 0
        )


def _facts(task: Task) -> dict[str, Any]:
    from surefoot.sim.load import load_string

    timestep = float(load_string(task.xml, task.name).spec.option.timestep)
    return {
        "name": task.name,
        "about": task.about,
        "success": goal(task),
        "rate": 1 / (task.substeps * timestep),
        "params": task.params.names,
        "rewards": {k: {"weight": r.weight, "about": r.about} for k, r in task.rewards.items()},
    }
