"""surefoot train: its flags, which of them go together, and the settings tuned for a task."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, Suppress, arg

from surefoot import files, tasks
from surefoot.errors import SurefootError, unknown
from surefoot.learn.cluster.address import On
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.off_policy.settings import FastSACSettings, FastTD3Settings
from surefoot.learn.on_policy.settings import FPOSettings, SAPGSettings
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.ranges.doraemon import Doraemon
from surefoot.learn.ranges.ramp import Ramp
from surefoot.learn.ranges.widen import Widen
from surefoot.learn.residual import NO_BASE, Residual
from surefoot.learn.runspec import RANGES, Grows
from surefoot.learn.settings import MOST_THREADS, DistillSettings, Judging, PPOSettings, tuned
from surefoot.learn.sim2sim.settings import Easy, Forward, Imitation
from surefoot.report import Progress, Report, Text, Watch
from surefoot.task import Task
from surefoot.typed import known_fields, real
from surefoot.verbs.arguments import belief_of
from surefoot.verbs.train import settings_file
from surefoot.verbs.train.ways import student, two_worlds, with_robot

if TYPE_CHECKING:  # torch takes seconds to import
    from surefoot.learn.nets.policy_net import PolicyNet

Learned = PPOSettings | FastTD3Settings | FastSACSettings | SAPGSettings | FPOSettings | FBSettings


@dataclass(frozen=True)
class Train:
    task: Positional[str] = ""
    """a task: its name (see `surefoot tasks`), file.py, or module:function"""
    resume: Path | None = None
    """resume the run in this folder, bit for bit"""
    allow_changes: bool = False
    """with --resume: continue although the task or its model has changed; the result is then not bit-identical"""
    learner: Literal["auto", "ppo", "fasttd3", "fastsac", "sapg", "fpo", "fb"] = "auto"
    """algorithm; auto: PPO, unless another one was measured to be quicker on this task (docs/learners.md)"""
    seed: int = 0
    """seed of training"""
    seeds: str = ""
    """several runs that differ only in their seeds, in OUT/seed0, OUT/seed1 ...: 0..9, or 0,3,5; with --on, side by side"""
    belief: str = "task"
    """p(e) to train over: `task` (its own ranges), `nominal` (no randomization), a preset (see `surefoot presets`), or a
    belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    ranges: Literal["task", "fixed", "ramp", "widen", "adr", "doraemon"] = "task"
    """randomization: the whole belief from the start (fixed), ranges that grow from nominal with the steps (ramp) or as the
    policy learns (widen, adr, doraemon), or what the task says: fixed for most, ramp for two legs"""
    start: Path | None = None
    """initialise from the nets of this run, such as one over another belief; with --learner fpo, from a clone by a flow, chunk 1"""
    base: Path | None = None
    """a run or policy that nearly works: keep it fixed and learn a residual on top; none: not even on the law that a task such as `track` has"""
    terms: tuple[Path, ...] = ()
    """folders that `surefoot missing` or `surefoot delta` wrote: missing physics, added to the model"""
    through: tuple[str, ...] = ()
    """curriculum: beliefs to train over one after the other, each initialised from the last"""
    adapt: Literal["none", "rma", "dagger"] = "none"
    """train a teacher that observes e, then a student that infers it from its history: supervised by the teacher's
    latent (rma), or by its actions (dagger)"""
    teacher: Path | None = None
    """a run to use as the teacher, instead of training one"""
    robot_share: float = 0.0
    """fine-tune with a robot: this share of every batch comes from it, behind the runtime's limiter, the rest from simulation (docs/cotrain.md);
    with --start and --reality"""
    reality: int | None = None
    """with --robot-share: seed of the simulated robot, with wrong numbers and missing physics, as of `surefoot cross`"""
    support: str = ""
    """learn in two worlds: first a teacher in a support world, `easy` (this robot with soft servos, without torque limits, dry friction
    and latency) or another task; then a policy in this task's own world, which imitates how the teacher moves (docs/sim2sim.md)"""
    support_steps: int = 0
    """env steps of that teacher; 0: as many as --steps"""
    engines: tuple[str, ...] = ()
    """simulate an equal share of every batch in each of these engines, such as mujoco mujoco:half-step mujoco:elliptic (docs/engines.md);
    warp alone: the whole batch, nets and all, stays on the device of mujoco-warp (docs/scale.md)"""
    settings_file: Annotated[Path | None, arg(name="settings")] = None
    """TOML file with flags (docs/train.md); it overrides the task's own settings, and flags on the command line override it"""
    obs: tasks.ObsOverride = tasks.ObsOverride()
    ramp: Ramp = Ramp()
    widen: Widen = Widen()
    adr: ADR = ADR()
    doraemon: Doraemon = Doraemon()
    residual: Residual = Residual()
    easy: Easy = Easy()
    forward: Forward = Forward()
    imitation: Imitation = Imitation()
    out: Path | None = None
    """folder of the run; default: runs/<task>/<time>"""
    threads: int = 0
    """threads of the physics; 0: every core. The result is bit-identical at any number"""
    on: str = ""
    """workers that hold the simulations, to the same bits: local:2 (processes of this machine), or a Ray cluster's ray://HOST:10001,
    HOST:6379 or auto; needs the extra `cluster`"""
    workers: int = 0
    """how many workers of a cluster; 0: one for each of its cores"""
    shards: int = 1
    """processes that share the learner's update, with --on; the bits are then not those of one process"""
    together: Annotated[bool, Suppress] = False
    """one of several runs that belong together, which goes on if it was begun before"""
    save_every: float = 10.0
    """seconds between checkpoints; 0: after every iteration"""
    judge_every: int = 0
    """evaluate the policy without exploration noise each time this many env steps have passed, and keep the best policy as best.onnx; 0: never"""
    judge_episodes: int = 100
    """episodes of each of these evaluations"""
    wandb: str = ""
    """also log to this project of Weights & Biases; needs the extra `wandb`"""
    student: DistillSettings = DistillSettings()
    fasttd3: FastTD3Settings = FastTD3Settings()
    fastsac: FastSACSettings = FastSACSettings()
    fb: FBSettings = FBSettings()
    sapg: SAPGSettings = SAPGSettings()
    fpo: FPOSettings = FPOSettings()
    settings: Annotated[PPOSettings, arg(name="")] = PPOSettings()

    @staticmethod
    def tuned(task: str, settings: Path | None = None) -> "Train":
        """The defaults for a task: its own settings, and over them those of a file, which may name the task, too."""
        table = settings_file.read(settings) if settings is not None else {}
        task = task or str(table.get("task", ""))
        own = Train()
        if tasks.is_reference(task):
            known = tasks.resolve(task)
            own = Train(
                settings=tuned(PPOSettings, known), student=tuned(DistillSettings, known),
                fasttd3=tuned(FastTD3Settings, known), fastsac=tuned(FastSACSettings, known),
                fb=tuned(FBSettings, known), sapg=tuned(SAPGSettings, known), fpo=tuned(FPOSettings, known),
            )  # fmt: skip
        return settings_file.applied(own, table, str(settings)) if table else own

    def run(self, watch: Watch) -> Report:
        if self.seeds:
            from surefoot.verbs.train.ways.seeds import run_seeds

            return run_seeds(self, watch)
        heard = _Heard(watch)
        if not self.wandb:
            return self._trained(heard)
        from surefoot.learn.run.wandb_log import WandbLog

        heard.watch = log = WandbLog(self.wandb, watch)
        try:
            return self._trained(heard)
        finally:
            log.close()

    def _trained(self, heard: "_Heard") -> Report:
        from surefoot.deploy import bundle
        from surefoot.learn import train as learn
        from surefoot.tasks.known import task_flag

        if self.resume is not None:
            self._only_resumes()
            more: Any = {
                "task": self.task,
                "allow_changes": self.allow_changes,
                "on": On.parse(self.on, self.workers, self.shards),
            }
            path = learn.resume(self.resume, self.threads, heard, self.save_every, **more)
        elif not self.task:
            raise SurefootError(
                "train: expected a task, a task file such as `surefoot new` writes, or --resume and a run's folder; "
                f"tasks are {', '.join(tasks.names())}"
            )
        else:
            path = self._begin(heard)
        facts = {
            "run": str(path.parent), "policy": str(path), "sha256": files.sha256(path.read_bytes()), "metrics": heard.last,
        }  # fmt: skip
        blocks, best = [Text(f"policy: {path}")], best_of(path)
        if best is not None:
            facts["best"] = best
            blocks.append(Text("best: {policy}, {success:.1%} success ({low:.1%} - {high:.1%})".format(**best)))
        following = f"surefoot eval {quote(str(path.parent))}{' --best' if best else ''}{task_flag(self.task, bundle.load(path).contract)}"
        return Report(str(path.parent), facts, tuple(blocks), following)

    def _begin(self, watch: "_Heard") -> Path:
        from surefoot.learn import train as learn

        task = tasks.resolve(self.task)
        for name in ("threads", "save_every"):
            if getattr(self, name) < 0:
                raise SurefootError(f"--{name.replace('_', '-')}: expected 0 or more, found {getattr(self, name):g}")
        if self.threads > MOST_THREADS:
            raise SurefootError(f"--threads: expected at most {MOST_THREADS}, found {self.threads}")
        if self.out is not None and not self.out.name:
            raise SurefootError("--out: expected a new folder for the run, found the current folder")
        on = On.parse(self.on, self.workers, self.shards)
        out = self.out or Path("runs") / task.name / time.strftime("%Y-%m-%d_%H-%M-%S")
        start = self.start.parent if self.start is not None and self.start.is_file() else self.start
        self._agree(task)
        base = self._base(task)
        for words in self._notes(task):
            watch.watch(Progress(f"note: {words}", stays=True))
        watch.head = f"training {task.name} into {out} (TensorBoard: tensorboard --logdir {quote(str(out))})"
        obs = self.obs if self.obs != tasks.ObsOverride() else None
        how: Any = {"threads": self.threads, "watch": watch, "save_every": self.save_every, "on": on}
        judge = Judging(self.judge_every, self.judge_episodes) if self.judge_every else None
        asked: Any = {"seed": self.seed, "terms": self.terms, "judge": judge}
        taught = asked | {"settings": self._learner(task), "obs": obs, "start": start, "base": base}
        upon = base is not None or self.residual != Residual()  # else as it is usual upon the task's law, if it has one
        taught |= {"residual": self.residual if upon and base != NO_BASE else None, "engines": self.engines}
        if self.through:
            stages = [belief_of(task, name, watch.watch, "--through") for name in self.through]
            return learn.progressive(self.task, out, stages, **how, **taught)[-1]
        belief = belief_of(task, self.belief, watch.watch, ranges=self.range)
        ranges = learn.usual_ranges(task, belief, start) if self.ranges == "task" else self._ranges
        taught |= {"belief": belief, "ranges": ranges}
        if self.robot_share:
            taught |= with_robot.keywords(self, task, watch)
        if self.support:
            return two_worlds.train(self, task, out, how, taught)
        if self.adapt == "none":
            return learn.train(self.task, out, resume_if_same=self.together, **how, **taught)
        return student.train(self, task, out, how, taught)

    @property
    def _others(self) -> "dict[str, Learned]":
        """Settings of learners other than PPO, by name."""
        return {"fasttd3": self.fasttd3, "fastsac": self.fastsac, "sapg": self.sapg, "fpo": self.fpo, "fb": self.fb}

    def _learner(self, task: Task) -> "Learned":
        """The settings of the learner that was asked for; with --adapt and what else only PPO can do, auto is PPO."""
        name = task.learner if self.learner == "auto" and not self._needs_ppo(task) else self.learner
        return self._others.get(name, self.settings)

    def _needs_ppo(self, task: Task) -> str:
        """The flag that only goes with PPO; empty where none was given."""
        given = {
            "--robot-share": self.robot_share,
            "--support": self.support,
            "--engines": self.engines,
            "--adapt": self.adapt != "none",
            "--start": self.start if self.learner != "fpo" else None,
            "--base": self.base,
            "--through": self.through,
        }
        usual = tuned(PPOSettings, task)
        changed = {f"--{k.replace('_', '-')}": v != getattr(usual, k) for k, v in vars(self.settings).items()}
        return next((flag for flag, there in (given | changed).items() if there), "")

    @property
    def _ranges(self) -> Grows | None:
        return None if self.ranges == "fixed" else getattr(self, self.ranges)

    def _notes(self, task: Task) -> Iterator[str]:
        """What is not as it was asked for."""
        own, flag = self._learner(task), self._needs_ppo(task)
        if self.learner == "auto" and task.learner != "ppo" and flag:
            yield f"{flag} only goes with PPO: the learner is ppo, not {task.learner}"
        if own.steps != tuned(type(own), task).steps and own.rounding:
            yield own.rounding
        lesson = student.lesson(self, task)
        if self.adapt != "none" and lesson.steps != tuned(DistillSettings, task).steps:
            yield f"student: {lesson.rounding or f'{lesson.steps} steps'}"

    def _base(self, task: Task) -> "PolicyNet | Path | None":
        """What to learn upon."""
        from surefoot.learn.nets.export import load_net

        if self.base is None or self.base == NO_BASE:
            return self.base
        base, known = load_net(self.base), [t.name for t in task.observations["actor"].terms]
        for t in base.contract.terms if self.adapt == "rma" else ():
            if t.name not in known:  # found out by the student, which keeps the base, after the teacher was trained
                raise unknown("observation term", t.name, known, f"--base: {self.base}: the student's terms")
        return base

    def _agree(self, task: Task) -> None:
        """Flags that would be ignored, or that would fail after an hour, are refused now."""
        for wrong, words in self._disagreements(task):
            if wrong:
                raise SurefootError(words)
        if self.student.only:
            tasks.env(tasks.with_actor_terms(task, self.student.only, self.student.history), 1)

    def _disagreements(self, task: Task) -> Iterator[tuple[bool, str]]:
        """Whether some flags contradict each other, and the words for it."""
        usual = tuned(PPOSettings, task)
        yield self.allow_changes, "--allow-changes: only with --resume"
        yield from two_worlds.disagreements(self, task)
        yield from with_robot.disagreements(self)
        for name, kind in RANGES.items():
            yield getattr(self, name) != kind() and self.ranges != name, f"--{name}.*: only with --ranges {name}"
        for name, each in self._others.items():
            unused = each not in (type(each)(), tuned(type(each), task)) and self._learner(task) is not each
            yield unused, f"--{name}.*: only with --learner {name}"
        flag, asked = self._needs_ppo(task), self.learner not in ("auto", "ppo")
        instead = (
            f"; give --{self.learner}.{flag[2:]}"
            if asked and hasattr(self._others[self.learner], flag[2:].replace("-", "_"))
            else ""
        )
        yield asked and bool(flag), f"{flag}: only with --learner ppo, found {self.learner}{instead}"
        yield self.judge_every < 0, f"--judge-every: expected 0 or more env steps, found {self.judge_every}"
        judged = self.judge_episodes != Train.judge_episodes and not self.judge_every
        yield judged, "--judge-episodes: only with --judge-every"
        alone = self.base == NO_BASE or self.base is None and not task.law
        yield (
            self.residual != Residual() and alone,
            "--residual.*: only with --base, or a task that has a law to add to",
        )
        words = "--latent: size of an encoder's output; only with --encoder or --adapt rma"
        yield self.settings.latent != usual.latent and self.adapt != "rma" and self.settings.encoder == "none", words
        yield bool(self.through and self.range), "--range: with --through, give each stage a belief's file"
        words = "--through: the stages are the beliefs; --belief, --ranges and --adapt do not go with it"
        yield bool(self.through) and (self.belief != "task" or self.ranges != "task" or self.adapt != "none"), words
        yield from student.disagreements(self, task)

    def _only_resumes(self) -> None:
        """A run goes on as it began: what would be ignored is refused."""
        kept = {
            k: getattr(self, k)
            for k in ("task", "resume", "allow_changes", "threads", "on", "workers", "shards", "save_every", "wandb")
        }
        if self != replace(Train.tuned(self.task), **kept):
            raise SurefootError(
                "--resume: a run keeps its task, seed, belief and settings; only --threads, --on, --workers, --shards, --save-every, --wandb and --allow-changes may be given"
            )


def best_of(last: Path) -> dict[str, Any] | None:
    """The best policy beside a run's last, and how it was judged; None where the run kept none."""
    from surefoot.deploy import bundle

    path = last.with_name(bundle.BEST)
    if not path.exists():
        return None
    names = {"judged", "iteration"}
    about = known_fields(bundle.load(path).about.get("about"), names, names, f"{path}: about")
    for name in ("success", "low", "high"):
        real(about["judged"].get(name) if isinstance(about["judged"], dict) else None, f"{path}: judged: {name}")
    return {"policy": str(path), "iteration": about["iteration"], **about["judged"]}


class _Heard:
    """Passes progress on: a headline before the first event; the last metrics are kept."""

    def __init__(self, watch: Watch):
        self.watch, self.head, self.last = watch, "", dict[str, Any]()

    def __call__(self, p: Progress) -> None:
        if self.head:
            self.watch(Progress(self.head, stays=True))
            self.head = ""
        self.last = dict(p.metrics) or self.last
        self.watch(p)
