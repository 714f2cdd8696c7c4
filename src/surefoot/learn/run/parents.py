"""What a run stands on: a base, a teacher, learned Terms, a forward model to imitate, nets to start with. The spec has their hashes, the run's folder the
files of all but the last, so that a run needs nothing but its folder to go on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from surefoot import files, tasks
from surefoot.errors import SurefootError
from surefoot.learn.clone.fine_tune import cloned_arrays
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import PolicyNet
from surefoot.learn.on_policy.settings import FPOSettings
from surefoot.learn.run import Run, is_code
from surefoot.learn.runspec import Origin, RunSpec
from surefoot.learn.settings import PPOSettings
from surefoot.learn.sim2sim import forward
from surefoot.learn.sim2sim.forward import ForwardModel
from surefoot.sim import learned
from surefoot.sim.learned import LearnedTerm
from surefoot.task import Task
from surefoot.tasks import ObsOverride
from surefoot.tasks.registry import Reference, located

FOLDERS = ("teacher", "base", "terms", "reference")  # of a run


@dataclass(frozen=True)
class Parents:
    base: PolicyNet | None = None
    teacher: PolicyNet | None = None
    terms: tuple[LearnedTerm, ...] = ()
    start: Mapping[str, np.ndarray] | None = None
    """arrays of another run's checkpoint"""
    reference: ForwardModel | None = None
    """what a student imitates"""

    def hashes(self) -> dict[str, Any]:
        """As a spec has them."""
        net = lambda policy: "" if policy is None else export.digest(policy)  # noqa: E731
        terms = tuple(map(learned.digest, self.terms))
        reference = "" if self.reference is None else forward.digest(self.reference)
        return {"base": net(self.base), "teacher": net(self.teacher), "terms": terms, "reference": reference}

    def check(self, spec: RunSpec) -> None:
        """Refuse others than those the spec names."""
        for name, found in self.hashes().items():
            if found != getattr(spec, name):
                raise SurefootError(f"{name}: not what the spec names: expected {getattr(spec, name)}, found {found}")
        found = None if self.start is None else nets_hash(self.start)
        if found != (spec.start and spec.start.sha256):
            raise SurefootError("start: not the nets that the spec names (their hash differs)")

    def keep(self, run: Run) -> None:
        """Among the run's own files."""
        for name, policy in (("base", self.base), ("teacher", self.teacher)):
            folder = run.folder / name
            if policy is None:
                continue
            if not (folder / "policy.onnx").exists():  # it commits both files: one without was killed while written
                export.save(policy, folder)
            elif export.digest(export.load_net(folder)) != export.digest(policy):
                raise SurefootError(f"{folder}: another policy is here already; choose another --out")
        if self.reference is not None:
            files.write(run.folder / "reference" / forward.NAME, forward.to_bytes(self.reference))
        for k, term in enumerate(self.terms):
            learned.save(term, run.folder / "terms" / str(k))


def kept(folder: Path, spec: RunSpec, task: Task) -> Parents:
    """What a run's folder holds, each the one that the run began with."""
    found: dict[str, PolicyNet] = {}
    for name in ("base", "teacher"):
        if getattr(spec, name):
            found[name] = export.load_net(folder / name)
            if export.digest(found[name]) != getattr(spec, name):
                raise SurefootError(f"{folder / name}: not the {name} this run began with (its hash differs)")
    folders = [folder / "terms" / str(k) for k in range(len(spec.terms))]
    terms = tasks.learned(task, folders)
    for there, term, wanted in zip(folders, terms, spec.terms):
        if learned.digest(term) != wanted:
            raise SurefootError(f"{there}: not the Term this run began with (its hash differs)")
    reference = forward.read(folder / "reference") if spec.reference else None
    if reference is not None and forward.digest(reference) != spec.reference:
        raise SurefootError(f"{folder / 'reference'}: not the forward model this run began with (its hash differs)")
    return Parents(found.get("base"), found.get("teacher"), terms, reference=reference)


def nets_hash(arrays: Mapping[str, np.ndarray]) -> str:
    return files.sha256(b"".join(k.encode() + np.ascontiguousarray(v).tobytes() for k, v in sorted(arrays.items())))


def start_nets(start: Path, spec: RunSpec, task: Task) -> tuple[dict[str, np.ndarray], Origin]:
    """The newest checkpoint of a run; what it learned must mean the same in a run of this spec and task. FPO's start is a clone."""
    if isinstance(spec.settings, FPOSettings):
        nets = cloned_arrays(start, seen(task, spec.obs))
        return nets, Origin(str(Path(start).absolute()), nets_hash(nets))
    run, about = Run.open(start)
    try:
        there, saved = RunSpec.from_json(about, str(run.folder / "run.json")), run.newest()
    finally:
        run.close()
    if saved is None:
        raise SurefootError(f"{start}: no whole checkpoint to begin with")
    if there.teacher:
        raise SurefootError(f"{start}: start: a student's run has no critic; expected one that learned by reward")
    if not isinstance(there.settings, PPOSettings) and not there.inputs:
        raise SurefootError(f"{start}: start: expected a run of PPO, found one of another learner")
    if there.inputs:
        raise SurefootError(f"{start}: start: what it learned from a log is no policy; expected a run of train")
    scale = there.residual and there.residual.scale
    if (spec.base, spec.residual and spec.residual.scale) != (there.base, scale):
        hint = f"upon another base or scale; expected --base {Path(start) / 'base'} --residual.scale {scale}"
        raise SurefootError(
            f"{start}: start: its nets were learned {hint if there.base else 'without a base; leave --base or --start out'}"
        )
    theirs = task if same_task(there.task, spec.task) else task_of(there, str(Path(start) / "run.json"))
    _same_meaning(str(start), (there, theirs), (spec, task))
    return saved[0], Origin(str(Path(start).absolute()), nets_hash(saved[0]))


def _same_meaning(start: str, was_: tuple[RunSpec, Task], now_: tuple[RunSpec, Task]) -> None:
    """Nets of one shape may still mean other things: their observation terms, the order of these, and their outputs."""
    (there, theirs), (spec, task) = was_, now_
    where = f"{start}, a run of {there.task}"
    assert isinstance(there.settings, PPOSettings)
    if not isinstance(spec.settings, PPOSettings):
        raise SurefootError(f"{where}: start: only with --learner ppo")
    for k in ("activation", "encoder", "spread", "symmetric"):
        was, now = getattr(there.settings, k), getattr(spec.settings, k)
        if was != now:
            raise SurefootError(f"{where}: its nets were learned with {k} {was}; expected {now}, as asked for here")
    for group in ("actor", "critic"):
        groups = (seen(t, s.obs).observations[group].terms for s, t in ((there, theirs), (spec, task)))
        was, now = (", ".join(t.name for t in terms) for terms in groups)
        if was != now:
            raise SurefootError(f"{where}: its {group} observes {was}; here it would observe {now}")


def task_of(spec: RunSpec, where: str, given: Reference = "") -> Task:
    """The task of a spec: by its name, or as the user gives it again. No file of a run makes code run."""
    unnamed = not is_code(spec.task) and spec.task not in tasks.names()
    if given != "":
        reference = given if isinstance(given, str) else ""
        found = located(given)[1] if unnamed or not reference or same_task(reference, spec.task) else None
        if found is None or unnamed and found.name != spec.task:
            name = reference or (found.name if found else "")
            raise SurefootError(f"{where}: task: a run of {spec.task}, and it keeps its task; found {name}")
        return found
    if unnamed:
        raise SurefootError(
            f"{where}: task: {spec.task} was made in a script, and no name leads to it: give the file or function that makes it: "
            "surefoot train FILE.py --resume RUN (in Python: task=)"
        )
    if is_code(spec.task):
        raise SurefootError(
            f"{where}: task: {spec.task} is code, which runs only where you name it yourself: "
            f"surefoot train {quote(spec.task)} --resume RUN (in Python: task=)"
        )
    return tasks.named(spec.task)


def same_task(one: str, other: str) -> bool:
    """Whether references mean one task; a file may have moved to another folder."""
    return Path(one).name == Path(other).name


def seen(task: Task, obs: ObsOverride) -> Task:
    """The task as its actor and critic are to see it."""
    return task if obs == ObsOverride() else tasks.with_override(task, obs)


def spec_of(folder: str | Path) -> RunSpec:
    """The spec of the run in a folder; refused if it was edited."""
    path = Path(folder) / "run.json"
    return RunSpec.from_json(files.check_seal(files.read_json(path), str(path)), str(path))


def describe_run(folder: str | Path) -> str:
    """`runs/x, a run of balance`."""
    return f"{folder}, a run of {spec_of(folder).task}"
