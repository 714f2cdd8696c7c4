"""The door: `surefoot VERB`. Each verb is a thin dataclass over the functions of the rooms; console.py draws."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import tyro
from rich.console import Console
from tyro.conf import FlagConversionOff, Positional

import surefoot
from surefoot import files, tasks
from surefoot.belief import Belief
from surefoot.console import Answer, Line, goal, ready, results, show
from surefoot.errors import SurefootError, unknown
from surefoot.learn.adr import ADR
from surefoot.learn.doraemon import Doraemon
from surefoot.learn.residual import Residual
from surefoot.learn.widen import Widen
from surefoot.policy import Net, Policy, Random, Zero
from surefoot.task import Env, Task
from surefoot.tasks.rollout import Evaluation, contract, evaluate

if TYPE_CHECKING:  # learning takes seconds to import, and few verbs learn
    from surefoot.learn.ppo import PPO
    from surefoot.learn.student import Student

FAILED, BAD_INPUT = 1, 2
Settings = TypeVar("Settings", bound="PPO")
Lesson = TypeVar("Lesson", bound="Student")


@dataclass
class Tasks:
    """List the ready tasks and what counts as success in each."""

    def run(self, say: Console) -> Answer:
        facts = [_facts(tasks.make(name)) for name in tasks.TASKS]
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
    """p(e): `task` (its training ranges), `nominal`, or a belief's JSON file"""

    def run(self, say: Console) -> Answer:
        task = tasks.make(self.task)
        env = tasks.env(task, _count(self.episodes), belief_of(task, self.belief), self.seed)
        c = contract(task, env.world.model)
        kinds: dict[str, Callable[[], Policy]] = {"zero": lambda: Zero(c), "random": lambda: Random(c, self.seed)}
        if self.policy not in kinds:
            raise unknown("policy", self.policy, kinds, "--policy")
        result = _watched(say, kinds[self.policy](), env)
        return Answer(
            {"task": task.name, "policy": self.policy} | result.to_json(),
            [results(task, {self.policy: result})],
            f"surefoot train {self.task}",
        )


@dataclass
class Train(Generic[Settings, Lesson]):
    """Train a policy; Ctrl-C saves and tells how to go on."""

    task: Positional[str] = ""
    """see `surefoot tasks`"""
    resume: Path | None = None
    """go on with the run in this folder, bit for bit"""
    seed: int = 0
    """seed of all that is random in training"""
    belief: str = "task"
    """p(e) to train over: `task` (its own ranges), `nominal` (no randomization), or a belief's JSON file"""
    ranges: Literal["fixed", "widen", "adr", "doraemon"] = "fixed"
    """draw from the belief as it is, or begin at the nominal and grow towards it as the policy learns"""
    start: Path | None = None
    """begin with the nets of this run, such as one over another belief"""
    base: Path | None = None
    """a run or policy that nearly works: keep it as it is, and learn what to add to it"""
    through: tuple[str, ...] = ()
    """beliefs to train through, one after the other, each beginning with what the last one learned"""
    adapt: Literal["none", "rma", "dagger"] = "none"
    """train a teacher that is told e, then a student that works it out from its history: by the teacher's latent (rma),
    or by its actions (dagger)"""
    teacher: Path | None = None
    """a run to be the teacher, in place of training one"""
    sees: tasks.Sees = tasks.Sees()
    widen: Widen = Widen()
    adr: ADR = ADR()
    doraemon: Doraemon = Doraemon()
    residual: Residual = Residual()
    out: Path | None = None
    """folder of the run; runs/<task>/<time> unless told"""
    threads: int = 0
    """threads of the physics; 0: every core. The result has the same bits at any number"""
    save_every: float = 10.0
    """seconds between checkpoints; 0 saves after every iteration"""
    student: Lesson = field(kw_only=True)
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(kw_only=True)

    def run(self, say: Console) -> Answer:
        from surefoot.learn import train as learn

        line = Line(say)
        if self.resume is not None:
            self._only_resumes()
            path = learn.resume(self.resume, self.threads, line, self.save_every)
        elif not self.task:
            raise SurefootError(
                f"train: expected a task, or --resume and a run's folder; tasks are {', '.join(tasks.TASKS)}"
            )
        else:
            path = self._begin(say, line)
        line.end()
        facts = {
            "run": str(path.parent),
            "policy": str(path),
            "sha256": files.sha256(path.read_bytes()),
            "metrics": line.last,
        }
        return Answer(facts, [f"policy: {path}"], f"surefoot eval {path.parent}")

    def _begin(self, say: Console, line: Line) -> Path:
        from surefoot.learn import train as learn

        task, s = tasks.make(self.task), self.settings
        out = self.out or Path("runs") / task.name / time.strftime("%Y-%m-%d_%H-%M-%S")
        self._agree(task)
        base, upon = self._base(task)
        say.print(f"training {task.name} into {out} (TensorBoard: tensorboard --logdir {out})", highlight=False)
        sees = self.sees if self.sees != tasks.Sees() else None
        how = (self.threads, line, self.save_every)
        if self.through:
            stages = [belief_of(task, name) for name in self.through]
            return learn.progressive(self.task, out, stages, self.seed, s, *how, sees, self.start, *base)[-1]
        belief = belief_of(task, self.belief)
        ranges = {k: getattr(self, k) for k in learn.RANGES}.get(self.ranges)
        if self.adapt == "none":
            return learn.train(self.task, out, self.seed, belief, s, *how, ranges, sees, self.start, *base)
        teacher = self.teacher
        if teacher is None:
            also = tuple(dict.fromkeys((*self.sees.also, "e")))
            s = replace(s, encoder="e") if self.adapt == "rma" else s
            teacher = learn.once(out / "teacher", *how, lambda folder: learn.train(
                self.task, folder, self.seed, belief, s, *how, ranges, replace(self.sees, also=also), self.start, *base
            ), {"settings": asdict(s), "seed": self.seed} | upon)  # fmt: skip
        lesson = replace(self.student, label="action" if self.adapt == "dagger" else "latent")
        return learn.once(out / "student", *how, lambda folder: learn.follow(
            self.task, folder, teacher, self.seed, belief, lesson, *how
        ), {"student": asdict(lesson), "seed": self.seed})  # fmt: skip

    def _base(self, task: Task) -> tuple[tuple[Net | None, Residual | None], dict[str, Any]]:
        """What to learn upon and how; and what run.json will say of it, also where that is nothing."""
        from surefoot.deploy import bundle
        from surefoot.learn import train as learn

        if self.base is None:
            return (None, None), {"base": None, "residual": None}
        base, known = bundle.load(self.base), [t.name for t in task.sees["actor"].terms]
        for t in base.contract.observation if self.adapt == "rma" else ():
            if t.name not in known:  # found out by the student, which keeps the base, after the teacher was trained
                raise unknown("observation term", t.name, known, f"--base: {self.base}: what a student is told")
        return (base, self.residual), learn.upon(base, self.residual)

    def _agree(self, task: Task) -> None:
        """Flags that would be ignored, or that would fail after an hour, are refused now."""
        for name, kind in (("widen", Widen), ("adr", ADR), ("doraemon", Doraemon)):
            if getattr(self, name) != kind() and self.ranges != name:
                raise SurefootError(f"--{name}.*: only with --ranges {name}")
        if self.adapt == "none" and (self.teacher is not None or self.student != type(self.student)()):
            raise SurefootError("--teacher and --student.*: only with --adapt rma or --adapt dagger")
        if self.residual != Residual() and self.base is None:
            raise SurefootError("--residual.*: only with --base")
        if self.base is not None and self.teacher is not None:
            raise SurefootError("--base: the teacher to train would stand on it; --teacher names one that is trained")
        if self.adapt == "rma" and self.student.label != "latent":
            raise SurefootError("--student.label: --adapt rma learns the latent; for actions, --adapt dagger")
        least = self.sees.history or task.sees["actor"].history
        if self.adapt != "none" and self.student.history < least:
            raise SurefootError(
                f"--student.history: expected at least the teacher's {least}, found {self.student.history}"
            )
        if self.through and (self.belief != "task" or self.ranges != "fixed" or self.adapt != "none"):
            raise SurefootError(
                "--through: the stages are the beliefs; --belief, --ranges and --adapt do not go with it"
            )

    def _only_resumes(self) -> None:
        """A run goes on as it began: what would be ignored is refused."""
        fresh = Train(
            settings=type(self.settings)(), student=type(self.student)(), resume=self.resume, threads=self.threads,
            save_every=self.save_every,
        )  # fmt: skip
        if self != fresh:
            raise SurefootError(
                "--resume: a run keeps its task, seed, belief and settings; only --threads and --save-every may be given"
            )


@dataclass
class Eval:
    """Success of a policy, with an exact 95 % interval, in its task's world or over a belief."""

    policy: Positional[Path]
    """a run's folder or a policy.safetensors"""
    task: str = ""
    """another task than the one it was trained for"""
    episodes: int = 200
    """how many episodes"""
    seed: int = 1
    """seed of the episodes"""
    belief: str = "task"
    """p(e): `task`, `nominal`, or a belief's JSON file"""
    threads: int = 0
    """threads of the physics; 0: every core"""

    def run(self, say: Console) -> Answer:
        from surefoot.deploy import bundle

        policy = bundle.load(self.policy)
        task = task_for(policy, self.task)
        env = tasks.env(task, _count(self.episodes), belief_of(task, self.belief), self.seed, self.threads)
        result = _watched(say, policy, env)
        facts = {"policy": str(self.policy), "task": task.name, "belief": self.belief} | result.to_json()
        return Answer(facts, [results(task, {str(self.policy): result})], f"surefoot play {self.policy}")


@dataclass
class Play:
    """Watch a policy: in the browser (loopback only), or as a short film written to a file."""

    policy: Positional[str]
    """a run's folder, a policy.safetensors, or `zero` / `random` with --task"""
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
    """p(e): `task` (its training ranges), `nominal`, or a belief's JSON file"""

    def run(self, say: Console) -> Answer:
        policy, task = self._policy()
        env = tasks.env(task, 1, belief_of(task, self.belief), self.seed)
        if self.record is None:
            from surefoot.tasks.viewer import view

            view(policy, env, port=self.port, say=lambda text: say.print(text, highlight=False))
            return Answer({"viewed": self.policy}, [], f"surefoot export {self.policy}")
        from surefoot.tasks.picture import record

        path = record(policy, env, self.record, self.seconds)
        return Answer({"film": str(path)}, [f"film: {path}"], f"surefoot export {self.policy}")

    def _policy(self) -> tuple[Policy, Task]:
        if self.policy in ("zero", "random"):
            task = tasks.make(self.task or "hover")
            c = contract(task, tasks.env(task, 1).world.model)
            return (Zero(c) if self.policy == "zero" else Random(c, self.seed)), task
        from surefoot.deploy import bundle

        policy = bundle.load(Path(self.policy))
        return policy, task_for(policy, self.task)


@dataclass
class Export:
    """Write a policy as one ONNX file with its contract inside, and check it against the net it came from."""

    policy: Positional[Path]
    """a run's folder or a policy.safetensors"""
    out: Path | None = None
    """policy.onnx beside the policy unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.deploy import bundle
        from surefoot.learn.check import onnx_difference

        policy = bundle.load(self.policy)
        out = self.out or bundle.find(self.policy).with_suffix(".onnx")
        bundle.export_onnx(policy, out)
        worst = onnx_difference(policy, out)
        facts = {
            "onnx": str(out),
            "bytes": out.stat().st_size,
            "largest_difference": worst,
            "contract": policy.contract.to_json(),
        }
        return Answer(
            facts,
            [f"{out}: {out.stat().st_size} bytes, differs from torch by at most {worst:.1e} on 1024 observations"],
        )


@dataclass
class Sweep:
    """Success against one unknown, for one policy or several on the same episodes: where each begins to fail."""

    policies: Positional[tuple[Path, ...]]
    """runs' folders or policy.safetensors files, of one task"""
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
    """where the other unknowns come from: `nominal`, `task`, or a belief's JSON file"""
    task: str = ""
    """a task that the policy fits, in place of its own"""
    seed: int = 1
    """seed of the episodes"""
    out: Path | None = None
    """page with the picture; sweep-<unknown>.html beside the first policy unless told"""

    def run(self, say: Console) -> Answer:
        from surefoot.deploy import bundle
        from surefoot.gate.sweep import page, sweep, table, values_over

        if not self.policies:
            raise SurefootError("sweep: expected at least one policy")
        policies = {str(p): bundle.load(p) for p in self.policies}
        task = task_for(next(iter(policies.values())), self.task)
        for policy in policies.values():
            task_for(policy, task.name)
        values = values_over(task, self.over, self.points, self.low, self.high)
        line = Line(say)
        said = lambda k, env: line.text(f"episode second {(k + 1) * env.world.dt:5.1f} of {task.seconds:g}")  # noqa: E731
        facts = sweep(
            policies, task, self.over, values, belief_of(task, self.belief), _count(self.episodes), self.seed, said
        )
        line.end()
        first = bundle.find(self.policies[0]).parent
        out = page(self.out or first / f"sweep-{self.over}.html", facts)
        return Answer(
            facts | {"page": str(out)}, [table(facts), f"picture: {out}"], f"surefoot play {self.policies[0]}"
        )


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
        from surefoot.gate.cross import cross

        tasks.make(self.task)
        _count(self.episodes)
        out = self.out or Path("runs") / f"cross-{self.task}" / time.strftime("%Y-%m-%d_%H-%M-%S")
        line = Line(say)
        facts, shown = cross(
            self.task, out, self.seed, self.reality, self.episodes, self.steps, watch=line, say=line.note
        )
        return Answer(
            facts, shown, f"surefoot play {out / 'belief'}", FAILED if facts["gap"] and not facts["crossed"] else 0
        )


VERBS: dict[str, Any] = {
    "tasks": Tasks,
    "look": Look,
    "try": Try,
    "train": Train,
    "eval": Eval,
    "play": Play,
    "export": Export,
    "sweep": Sweep,
    "cross": Cross,
}


def belief_of(task: Task, name: str) -> Belief:
    if name == "task":
        return task.belief
    if name == "nominal":
        return tasks.nominal(task)
    if not Path(name).exists():
        raise unknown("belief", name, ["task", "nominal", "a JSON file"], "--belief")
    belief = Belief.from_json(files.read_json(Path(name)), name)
    if belief.params.names != task.params.names:
        raise SurefootError(
            f"{name}: params: expected {', '.join(task.params.names)}; found {', '.join(belief.params.names)}"
        )
    return belief


def task_for(policy: Policy, name: str) -> Task:
    """The task a policy was made for, or another whose contract it fits."""
    c = policy.contract
    task = tasks.telling(tasks.make(name or c.task), [t.name for t in c.observation], c.history)
    if task.action.names != c.action_names:
        raise SurefootError(
            f"the policy drives {', '.join(c.action_names)}; {task.name} {', '.join(task.action.names)}"
        )
    return task


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


def _count(episodes: int) -> int:
    if episodes < 1:
        raise SurefootError(f"--episodes: expected at least 1, found {episodes}")
    return episodes


def _watched(say: Console, policy: Policy, env: Env) -> Evaluation:
    line = Line(say)
    result = evaluate(
        policy, env, lambda k, _: line.text(f"episode second {(k + 1) * env.world.dt:5.1f} of {env.task.seconds:g}")
    )
    line.end()
    return result


def _parse(args: list[str]) -> Any:
    """Arguments to a verb."""
    name, *rest = args
    if name == "train":
        return _parse_train(rest)
    return tyro.cli(VERBS[name], args=rest, prog=f"surefoot {name}")


def _parse_train(args: list[str]) -> Any:
    """The learner's settings are arguments too; those tuned for a task are the defaults `train TASK --help` shows."""
    from surefoot.learn.ppo import PPO
    from surefoot.learn.student import Student

    def parsed(name: str) -> Any:
        tuned = PPO(**tasks.make(name).settings) if name in tasks.TASKS else PPO()
        default = Train(settings=tuned, student=Student())
        return tyro.cli(Train[PPO, Student], args=args, prog="surefoot train", default=default)

    guess = next((a for a, before in zip(args, ["", *args]) if a in tasks.TASKS and not before.startswith("-")), "")
    found = parsed(guess)
    return found if found.task in ("", guess) else parsed(found.task)


def usage() -> str:
    rows = "\n".join(f"  {name:8} {(v.__doc__ or '').strip()}" for name, v in VERBS.items())
    return f"""surefoot {surefoot.__version__}: from a robot model to a policy that keeps its footing in the real world

usage: surefoot VERB [...]        surefoot VERB --help tells about a verb

{rows}

Every verb takes --json (facts for machines) and --traceback (where an error came from).
Begin with: surefoot cross hover"""


def main(argv: list[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    as_json = _take(args, "--json")
    traceback = _take(args, "--traceback") or bool(os.environ.get("SUREFOOT_TRACEBACK"))
    if not args or args[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if args[0] in ("--version", "-V"):
        print(surefoot.__version__)
        return 0
    say = Console(stderr=as_json, soft_wrap=False, markup=False)
    try:
        if args[0] not in VERBS:
            raise unknown("verb", args[0], VERBS, "surefoot")
        answer = _parse(args).run(say)
    except SurefootError as error:
        return _fail(error, as_json, traceback)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        stopped = getattr(error, "signum", None)
        if stopped is None:
            raise
        print(f"\n{error}", file=sys.stderr)
        return 128 + int(stopped)
    show(answer, say, as_json)
    return answer.code


def _take(args: list[str], flag: str) -> bool:
    found = flag in args
    while flag in args:
        args.remove(flag)
    return found


def _fail(error: SurefootError, as_json: bool, traceback: bool) -> int:
    if traceback:
        raise error
    if as_json:
        print(json.dumps({"error": str(error)}))
    print(f"error: {error}", file=sys.stderr)
    return BAD_INPUT


def entry() -> None:
    sys.exit(main())
