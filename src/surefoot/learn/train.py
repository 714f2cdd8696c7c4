"""train(task, belief) -> policy: how a run begins, what it stands on, and how it goes on after any stop.

spec, parents = plan(task, ...)  ->  Run  ->  build(spec, parents)  ->  run_training
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, Unpack

from surefoot import tasks
from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError, unknown
from surefoot.learn.build import build
from surefoot.learn.clone.fine_tune import as_cloned
from surefoot.learn.cluster.address import On
from surefoot.learn.envs import Place
from surefoot.learn.learner import Learner, PolicyLearner, Saved
from surefoot.learn.loop import SAVE_EVERY, product_of, run_training
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import PolicyNet, linear
from surefoot.learn.on_policy.settings import FPOSettings
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.learn.residual import NO_BASE, OF_THE_TASK, Residual
from surefoot.learn.run import Run, resuming
from surefoot.learn.run.parents import FOLDERS, Parents, kept, seen, spec_of, start_nets, task_of
from surefoot.learn.runspec import LEARNERS, RANGES, Grows, RunSpec, Settings
from surefoot.learn.settings import DistillSettings, Judging, PPOSettings, tuned
from surefoot.learn.sim2sim import forward
from surefoot.learn.sim2sim.forward import ForwardModel
from surefoot.learn.sim2sim.settings import Easy, Forward, Imitation
from surefoot.learn.sim2sim.support import easy_belief
from surefoot.report import Watch
from surefoot.task import Task
from surefoot.tasks import ObsOverride
from surefoot.tasks.known import remember
from surefoot.tasks.provenance import Provenance, changes, provenance
from surefoot.tasks.registry import Reference, located
from surefoot.tasks.rollout import contract

Located = tuple[str, Task]
"""a reference and the task it leads to"""


class Asked(TypedDict, total=False):
    """What can be asked of a run, beside its task."""

    seed: int
    belief: Belief | None
    """without: the nominal world; for a student the task's own belief"""
    settings: Settings | None
    """without: the task's own"""
    ranges: Grows | None
    """how p(e) grows; None: fixed; without: as the task says"""
    obs: ObsOverride | None
    start: Path | None
    """a run whose nets and normalisers to begin with; its belief may have been another"""
    base: Path | PolicyNet | None
    """a policy that the one to learn adds to, as `residual` says; without: the task's own law, if it has one; Path("none"): none"""
    residual: Residual | None
    teacher: Path | PolicyNet | None
    """a policy to distill; `settings` are then DistillSettings"""
    terms: Sequence[Path]
    """files or folders of learned Terms to put into the world: residual force, delta action, actuator net"""
    judge: Judging | None
    """evaluations while training; the best policy is kept as best.onnx"""
    easy: Easy | None
    """learn in the support world, which is made from the task's own"""
    forward: Forward | None
    """learn a forward model of the kinematics beside the policy"""
    reference: Path | ForwardModel | None
    """a forward model, or the run that learned one, to imitate as `imitation` says"""
    imitation: Imitation | None
    robot: OnRobot | None
    """rows of each batch that come from a robot"""
    engines: Sequence[str]
    """engines that each simulate a share of the batch"""


def settings_for(task: Reference, changes: dict[str, Any] | None = None, learner: str = "ppo") -> Any:
    """The task's tuned settings of a learner (ppo, fasttd3, fastsac, sapg, fpo, fb, or auto: what the task says), with changes."""
    found = located(task)[1]
    kind = learner_kind(found, learner)
    for k in changes or {}:
        if k not in kind.__dataclass_fields__:
            raise unknown("setting", k, kind.__dataclass_fields__)
    return replace(tuned(kind, found), **(changes or {}))


def learner_kind(task: Task, learner: str) -> type[Any]:
    """The settings' type of a learner by name."""
    name = task.learner if learner == "auto" else learner
    known = {k: kind for k, kind in LEARNERS.items() if kind is not DistillSettings}
    if name not in known:
        raise unknown("learner", name, [*known, "auto"], f"task {task.name}")
    return known[name]


def plan(task: Reference, **asked: Unpack[Asked]) -> tuple[RunSpec, Parents]:
    """The spec of what is asked, and what it stands on."""
    return _plan(*located(task), asked)


def _plan(task_name: str, task: Task, asked: Asked) -> tuple[RunSpec, Parents]:
    for k in asked:
        if k not in Asked.__annotations__:
            raise unknown("keyword", k, Asked.__annotations__, "train")
    teacher = _net(asked.get("teacher"))
    reference = asked.get("reference")
    reference = reference if reference is None or isinstance(reference, ForwardModel) else forward.read(reference)
    by_reward = teacher is None or reference is not None
    usual: Settings = tuned(PPOSettings if by_reward else DistillSettings, task)
    belief = asked.get("belief") or (tasks.nominal(task) if by_reward else task.belief)
    world = asked.get("easy")
    belief = belief if world is None else easy_belief(belief, world)
    obs, start = asked.get("obs") or ObsOverride(), asked.get("start")
    ranges = asked["ranges"] if "ranges" in asked else usual_ranges(task, belief, start) if by_reward else None
    settings = asked.get("settings") or usual
    if start is not None and isinstance(settings, FPOSettings):
        settings = as_cloned(start, settings)
    base, residual = _upon(task, asked, isinstance(settings, PPOSettings) and by_reward)
    parents = Parents(base, teacher, tasks.learned(task, asked.get("terms", ())), reference=reference)
    spec = RunSpec(
        task_name, belief, settings, asked.get("seed", 0), ranges, obs,
        residual=residual, judge=asked.get("judge"), easy=world, forward=asked.get("forward"),
        imitation=asked.get("imitation"), robot=asked.get("robot"), engines=tuple(asked.get("engines", ())),
        **parents.hashes(),
    )  # fmt: skip
    if start is None:
        return spec, parents
    nets, origin = start_nets(start, spec, task)
    return replace(spec, start=origin), replace(parents, start=nets)


def usual_ranges(task: Task, belief: Belief, start: Path | None = None) -> Grows | None:
    """How p(e) grows where nobody says: as the task has it, unless nets have learned before or a belief has no width."""
    wide = isinstance(belief, Box) and bool((belief.low < belief.high).any())
    return RANGES[task.ranges]() if task.ranges != "fixed" and wide and start is None else None


def _upon(task: Task, asked: Asked, by_ppo: bool) -> tuple[PolicyNet | None, Residual | None]:
    """What the policy to learn adds to, and how: the base that was asked for, or the task's own law."""
    given, residual = asked.get("base"), asked.get("residual")
    if given is not None:
        return (None if given == NO_BASE else _net(given)), residual
    terms = [t.name for t in seen(task, asked.get("obs") or ObsOverride()).observations["actor"].terms]
    others = any(asked.get(k) for k in ("easy", "forward", "reference")) or "warp" in asked.get("engines", ())
    if not task.law or not by_ppo or others or not set(task.law) <= set(terms) or _bare(asked.get("start")):
        return None, residual
    return linear(contract(task, tasks.env(task, 1).world), task.law), residual or OF_THE_TASK


def _bare(start: Path | None) -> bool:
    """Whether a run to begin with has no base: what goes on from it has none, either. What is no run is refused later."""
    return start is not None and (Path(start) / "run.json").is_file() and not spec_of(start).base


def _net(policy: Path | PolicyNet | None) -> PolicyNet | None:
    return policy if policy is None or isinstance(policy, PolicyNet) else export.load_net(policy)


def train(
    what: Reference | Located | RunSpec,
    out: Path,
    *,
    parents: Parents | None = None,
    threads: int = 0,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
    resume_if_same: bool = False,
    on: On | None = None,
    **asked: Unpack[Asked],
) -> Path:
    """Train a policy; returns its path. `what` is a task, with the rest as keywords, or a spec with its parents.

    The simulations are in this process, or with workers `on` other ones, to the same bits. With `resume_if_same`, resumes
    if `out` holds a run with the same spec: it is one of several that belong together.
    """
    out = Path(out)
    if isinstance(what, RunSpec):
        if asked:
            raise SurefootError(f"train: a spec says all; found {', '.join(asked)} beside it")
        spec, parents = what, parents or Parents()
        parents.check(spec)
        reference, found = spec.task, task_of(spec, "spec", "")
        again: Reference = ""
    else:
        reference, found = what if isinstance(what, tuple) else located(what)
        spec, parents = _plan(reference, found, asked)
        again = reference if isinstance(what, str) else found
    if resume_if_same and (out / "run.json").exists():
        check_same(out, spec)
        return resume(out, threads, watch, save_every, together(out), again, on=on)
    made_for = provenance(found, reference)
    remember(reference, made_for.text_hash)
    run = Run.create(out, spec.to_json() | {"provenance": made_for.to_json()})
    try:
        with rollback_on_error(run):
            parents.keep(run)
            learner = build(spec, found, parents, Place(threads, on, reference), run)
            run.begin()
        if parents.start is not None:
            run.save(*learner.save())  # so that a run that stops early goes on from here, not from nothing
        return _finish(run, learner, watch, save_every, together(out) if resume_if_same else alone(out, spec))
    finally:
        run.close()


def _finish(run: Run, learner: PolicyLearner, watch: Watch | None, save_every: float, advice: str) -> Path:
    run_training(run, learner, watch, save_every, product_of(learner, run), advice)
    return run.folder / export.NAME


def alone(folder: Path, spec: RunSpec) -> str:
    """How to go on with a run by itself."""
    return f"go on with: {resuming(spec.task, folder)}"


def together(folder: Path) -> str:
    """How to go on with a run that is one of several."""
    return f"give the same command again with --out {quote(str(folder.parent))}, and it goes on"


@contextmanager
def rollback_on_error(run: Run) -> Iterator[None]:
    """A run that cannot begin leaves its folder as it was."""
    new = [run.folder / name for name in FOLDERS if not (run.folder / name).exists()]
    try:
        yield
    except BaseException:
        for folder in new:
            shutil.rmtree(folder, ignore_errors=True)
        run.discard()
        raise


def check_same(folder: Path, spec: RunSpec) -> None:
    """Refuse to go on with a run that was begun otherwise."""
    run, about = Run.open(folder)
    run.close()
    for name, which in RunSpec.from_json(about, str(run.folder / "run.json")).differences(spec).items():
        which = f" ({which})" if which else ""
        raise SurefootError(f"{folder}: a run with other {name} is here already{which}; choose another folder (--out)")


def progressive(
    task: Reference,
    out: Path,
    stages: Sequence[Belief],
    *,
    threads: int = 0,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
    on: On | None = None,
    **asked: Unpack[Asked],
) -> list[Path]:
    """Train through a sequence of beliefs, each stage beginning with what the last one learned.

    Stages are runs, out/stage1, out/stage2, ...; asked again, it goes on where it stopped.
    """
    found: list[Path] = []
    for k, belief in enumerate(stages):
        asked |= {"belief": belief, "ranges": None, "start": found[-1].parent if found else asked.get("start")}
        how: Any = {"threads": threads, "watch": watch, "save_every": save_every, "resume_if_same": True, "on": on}
        found.append(train(task, Path(out) / f"stage{k + 1}", **how, **asked))
    return found


def settings_of(run: Path) -> Asked:
    """How a run learned, to train others alike."""
    path = Path(run) / "run.json"
    if not path.exists():
        raise SurefootError(f"{path}: no such file: only a policy with its run can be trained again in other worlds")
    spec = spec_of(run)
    for k in ("teacher", "terms", "reference", "easy", "inputs"):
        if getattr(spec, k):
            raise SurefootError(f"{path}: a run with a {k} cannot be trained again in other worlds yet")
    start = Path(spec.start.run) if spec.start else None
    base = Path(run) / "base" if spec.base else NO_BASE
    return {
        "seed": spec.seed, "settings": spec.settings, "obs": spec.obs, "start": start, "engines": spec.engines,
        "base": base, "residual": spec.residual,
    }  # fmt: skip


def resume(
    folder: Path,
    threads: int = 0,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
    advice: str = "",
    task: Reference = "",
    allow_changes: bool = False,
    on: On | None = None,
) -> Path:
    """Go on from the newest whole checkpoint, to the same bits as if nothing had happened.

    A task that is a file or a module is code: a run that has one goes on only if the caller names it in `task`. A task or
    model that has changed since is refused, unless the caller allows it; the run then has other bits.
    """
    run, about = Run.open(folder)
    try:
        where = str(run.folder / "run.json")
        spec = RunSpec.from_json(about, where)
        if spec.inputs:
            raise SurefootError(f"{where}: it learns from a log: repeat the command that started it, and it continues")
        found = task_of(spec, where, task)
        reference = task if isinstance(task, str) and task else spec.task
        _check_unchanged(run, provenance(found, reference), allow_changes)
        saved, parents = run.newest(), kept(run.folder, spec, found)
        if saved is None and spec.start is not None:
            nets, origin = start_nets(Path(spec.start.run), spec, found)
            if origin.sha256 != spec.start.sha256:
                raise SurefootError(f"{where}: start: {spec.start.run} has gone on since; begin anew")
            parents = replace(parents, start=nets)
        learner = build(spec, found, parents, Place(threads, on, reference), run)
        restore(run, learner, saved)
        return _finish(run, learner, watch, save_every, advice or alone(run.folder, spec))
    finally:
        run.close()


def _check_unchanged(run: Run, now: Provenance, allow: bool) -> None:
    if run.provenance is None:
        run.unsure.append("run.json does not record its task: changes of the task cannot be detected")
        return
    found = changes(run.provenance, now)
    if found and not allow:
        raise SurefootError(
            f"{run.folder}: {'; '.join(found)}; to resume anyway, without identical bits: --allow-changes"
        )
    run.unsure += found


def restore(run: Run, learner: Learner, saved: Saved | None) -> None:
    """Put a learner where the newest whole checkpoint was, and the metrics with it."""
    if saved is None and (run.folder / export.NAME).exists():
        run.notes.append("no complete checkpoint was found: training starts from the beginning")
    if saved is not None:
        try:
            learner.load(*saved)
        except KeyError as error:
            raise SurefootError(f"{run.folder}: its checkpoint lacks {error}: another version wrote it") from None
        except (TypeError, ValueError, RuntimeError, IndexError, OverflowError) as error:
            words = " ".join(str(error).split())[:300]
            raise SurefootError(f"{run.folder}: its checkpoint does not fit its run.json: {words}") from None
    run.rewind()
    differs = run.note_resume(learner.iteration)
    if differs:
        run.notes.append("not bit-exact: since this run began: " + "; ".join(differs))


def run_learner(
    spec: RunSpec, learner: Learner, folder: Path | None, watch: Watch | None = None, save_every: float = SAVE_EVERY
) -> None:
    """Run a learner of something else than a policy to its end; resumes if the folder holds a run with the same spec.

    Without a folder nothing is kept. The caller makes what was learned out of the learner.
    """
    if folder is None:
        with TemporaryDirectory() as scratch:
            return run_learner(spec, learner, Path(scratch), watch, float("inf"))
    begun = (Path(folder) / "run.json").exists()
    if begun:
        check_same(folder, spec)
    run = Run.open(folder)[0] if begun else Run.create(folder, spec.to_json())
    try:
        if begun:
            restore(run, learner, run.newest())
        else:
            run.begin()
        run_training(run, learner, watch, save_every)
    finally:
        run.close()
