"""train(task, belief) -> policy: how a run begins, is told what it learns from, and goes on after any stop."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from surefoot import files, tasks
from surefoot.belief import Belief
from surefoot.env import Env
from surefoot.errors import SurefootError, unknown
from surefoot.learn import export
from surefoot.learn.adr import ADR
from surefoot.learn.doraemon import Doraemon
from surefoot.learn.loop import go
from surefoot.learn.policy_net import PolicyNet
from surefoot.learn.ppo import PPO, Learner
from surefoot.learn.ranges import Ranges
from surefoot.learn.residual import BasePolicy, Residual, ResidualActor
from surefoot.learn.run import Run, check_about
from surefoot.learn.student import Apprentice, Student, classroom
from surefoot.learn.widen import Widen
from surefoot.report import Watch
from surefoot.rng import training
from surefoot.sim import learned
from surefoot.task import Task
from surefoot.tasks import ObsOverride
from surefoot.tasks.rollout import contract

SAVE_EVERY = 10.0  # s between checkpoints
Grows = ADR | Doraemon | Widen
S = TypeVar("S")
RANGES: dict[str, type[Grows]] = {"adr": ADR, "doraemon": Doraemon, "widen": Widen}


def settings_for(task_name: str, changes: dict[str, Any] | None = None) -> PPO:
    """The task's tuned settings, with changes."""
    known = PPO.__dataclass_fields__
    for k in changes or {}:
        if k not in known:
            raise unknown("setting", k, known)
    return PPO(**{**tasks.resolve(task_name).settings, **(changes or {})})


def train(
    task_name: str,
    out: Path,
    seed: int = 0,
    belief: Belief | None = None,
    settings: PPO | None = None,
    threads: int = 0,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
    ranges: Grows | None = None,
    obs: ObsOverride | None = None,
    start: Path | None = None,
    base: Path | PolicyNet | None = None,
    residual: Residual | None = None,
    again: bool = False,
    terms: Sequence[Path] = (),
) -> Path:
    """Train over a belief (None: the nominal world), or growing towards it; returns the policy's path.

    `start` is a run whose nets and normalisers to begin with; its belief may have been another. `base` is a policy that
    the one to learn adds to, as `residual` says; the run keeps its files. With `again`, a run that was begun alike in
    `out` goes on: it is one of several that belong together. `terms` are folders of learned Terms, such as a missing force
    or a delta to the actions, to put into the world; the run keeps their files.
    """
    settings = settings or settings_for(task_name)
    belief = belief or tasks.nominal(tasks.resolve(task_name))
    about = {"task": task_name, "seed": training(seed), "belief": belief.to_json(), "settings": asdict(settings)}
    if ranges is not None:
        kind = next(name for name, known in RANGES.items() if isinstance(ranges, known))
        about["ranges"] = {"kind": kind, **asdict(ranges)}
    if obs is not None:
        about["obs"] = asdict(obs)
    below = None if base is None else base if isinstance(base, PolicyNet) else export.load_net(base)
    about |= upon(below, residual)
    inside = tasks.learned(tasks.resolve(task_name), terms)
    about |= _inside(inside)
    given = None if start is None else _nets(start, about)
    if start is not None and given is not None:
        about["start"] = {"run": str(Path(start).absolute()), "sha256": given[1]}
    if again and (Path(out) / "run.json").exists():
        return _go_on(Path(out), about, threads, watch, save_every)
    run = Run.create(out, about)
    try:
        with _or_nothing(run):
            if below is not None:
                _keep_policy(run, "base", below)
            _keep_terms(run, inside)
            learner = _learner(run, about, threads)
            if given is not None and isinstance(learner, Learner):
                learner.adopt(given[0], _kin(str(start)))
            run.begin()
        if given is not None:
            run.save(*learner.save())  # so that a run that stops early goes on from here, not from nothing
        return go(run, learner, watch, save_every, again)
    finally:
        run.close()


def _inside(terms: Sequence[Any]) -> dict[str, Any]:
    """What a run is told of the learned Terms in its world."""
    return {"terms": [files.sha256(learned.weights(term)) for term in terms]} if terms else {}


def _keep_terms(run: Run, terms: Sequence[Any]) -> None:
    for k, term in enumerate(terms):
        learned.save(term, run.folder / "terms" / str(k))


def _terms(run: Run, about: dict[str, Any]) -> tuple[Any, ...]:
    """The learned Terms a run keeps."""
    found = []
    for k, wanted in enumerate(about.get("terms", [])):
        term = learned.load(run.folder / "terms" / str(k))
        if files.sha256(learned.weights(term)) != wanted:
            raise SurefootError(f"{run.folder / 'terms' / str(k)}: not the Term this run began with (its hash differs)")
        found.append(term)
    return tuple(found)


def upon(base: PolicyNet | None, residual: Residual | None) -> dict[str, Any]:
    """What a run is told of its base: which one, and how it is learned upon."""
    if base is None:
        if residual is not None:
            raise SurefootError("residual: expected a base to learn upon, found none")
        return {}
    return {"base": export.digest(base), "residual": asdict(residual or Residual())}


@contextmanager
def _or_nothing(run: Run) -> Iterator[None]:
    """A run that cannot begin leaves its folder as it was."""
    new = [run.folder / name for name in ("teacher", "base", "terms") if not (run.folder / name).exists()]
    try:
        yield
    except BaseException:
        for folder in new:
            shutil.rmtree(folder, ignore_errors=True)
        run.discard()
        raise


def _keep_policy(run: Run, name: str, policy: PolicyNet) -> None:
    """What a run stands on, among its own files."""
    folder = run.folder / name
    if not (folder / "policy.onnx").exists():  # it commits both files: one without was killed while it was written
        export.save(policy, folder)
    elif export.digest(export.load_net(folder)) != export.digest(policy):
        raise SurefootError(f"{folder}: another policy is here already; choose another --out")


def _nets(start: Path, about: dict[str, Any]) -> tuple[dict[str, np.ndarray], str]:
    """The newest checkpoint of a run, and its hash; what it learned must mean the same here."""
    run, there = Run.open(start)
    try:
        saved = run.newest()
    finally:
        run.close()
    if saved is None:
        raise SurefootError(f"{start}: no whole checkpoint to begin with")
    if "student" in there:
        raise SurefootError(
            f"{start}: start: a student's run, which has no critic; expected one that learned by reward"
        )
    mine, theirs = ((a.get("base"), a.get("residual", {}).get("scale")) for a in (about, there))
    if mine != theirs:
        hint = f"upon another base or scale; expected --base {Path(start) / 'base'} --residual.scale {theirs[1]}"
        raise SurefootError(
            f"{start}: start: its nets were learned {hint if theirs[0] else 'without a base; leave --base or --start out'}"
        )
    _same_meaning(str(start), about, there)
    return saved[0], files.sha256(
        b"".join(k.encode() + np.ascontiguousarray(v).tobytes() for k, v in sorted(saved[0].items()))
    )


def _same_meaning(start: str, about: dict[str, Any], there: dict[str, Any]) -> None:
    """Nets of one shape may still mean other things: what they are told, in which order, and how they answer."""
    where, mine = f"{start}, a run of {there.get('task')}", json.loads(json.dumps(about))
    for k in ("activation", "encoder", "spread", "symmetric"):
        now, was = mine["settings"][k], there["settings"].get(k, mine["settings"][k])
        if was != now:
            raise SurefootError(f"{where}: its nets were learned with {k} {was}; expected {now}, as asked for here")
    for group in ("actor", "critic"):
        told = [_told(tasks.resolve(a["task"]), a.get("obs"), start).observations[group].terms for a in (there, mine)]
        was, now = (", ".join(t.name for t in terms) for terms in told)
        if was != now:
            raise SurefootError(f"{where}: its {group} is told {was}; here it would be told {now}")


def _kin(start: str) -> str:
    return f"{start}, a run of {_about(Path(start) / 'run.json').get('task')}"


def _about(path: Path) -> dict[str, Any]:
    """What run.json says; refused if it was edited."""
    return check_about(files.check_seal(files.read_json(path), str(path)), str(path))


def _same_nets(about: dict[str, Any], where: str) -> dict[str, np.ndarray]:
    """The nets a run was to begin with, if they are still the same."""
    start = about["start"]
    arrays, found = _nets(Path(start["run"]), about)
    if found != start["sha256"]:
        raise SurefootError(f"{where}: start: {start['run']} has gone on since; begin anew")
    return arrays


SAME = (
    "task",
    "seed",
    "belief",
    "settings",
    "ranges",
    "obs",
    "start",
    "base",
    "residual",
    "student",
    "teacher",
    "terms",
)


def _go_on(folder: Path, about: dict[str, Any], threads: int, watch: Watch | None, save_every: float) -> Path:
    """Go on with a run that was begun as `about` says; refused if it was begun otherwise."""
    run, there = Run.open(folder)
    run.close()
    mine = json.loads(json.dumps(about))
    for k in SAME:
        was, now = there.get(k), mine.get(k)
        if was != now:
            raise SurefootError(
                f"{folder}: a run with other {k} is here already{_which(was, now)}; choose another folder (--out)"
            )
    return resume(folder, threads, watch, save_every, again=True)


def _which(was: Any, now: Any) -> str:
    """The first entry in which two tables of settings differ, in words."""
    if not isinstance(was, dict) or not isinstance(now, dict):
        return ""
    k = next(k for k in {**was, **now} if was.get(k) != now.get(k))
    return f" ({k}: {was.get(k)}, not {now.get(k)})" if len(str(was.get(k)) + str(now.get(k))) < 80 else f" ({k})"


def settings_of(run: Path) -> tuple[PPO, ObsOverride, int, Path | None]:
    """How a run learns and what it observes, its seed, and the run it began with, to train others alike."""
    path = Path(run) / "run.json"
    if not path.exists():
        raise SurefootError(f"{path}: no such file: only a policy of a run can be trained alike in other worlds")
    about = _about(path)
    for k in ("base", "student", "terms"):
        if k in about:
            raise SurefootError(f"{path}: a run with a {k} cannot be trained alike in other worlds yet")
    settings, obs = (
        _settings(PPO, about["settings"], str(path)),
        _settings(ObsOverride, about.get("obs") or {}, str(path)),
    )
    return settings, obs, int(about["seed"]), Path(about["start"]["run"]) if "start" in about else None


def progressive(
    task_name: str,
    out: Path,
    stages: Sequence[Belief],
    seed: int = 0,
    settings: PPO | None = None,
    threads: int = 0,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
    obs: ObsOverride | None = None,
    start: Path | None = None,
    base: Path | PolicyNet | None = None,
    residual: Residual | None = None,
    terms: Sequence[Path] = (),
) -> list[Path]:
    """Train through a sequence of beliefs, each stage beginning with what the last one learned.

    Stages are runs, out/stage1, out/stage2, ...; asked again, it goes on where it stopped.
    """
    found, how = [], (threads, watch, save_every)
    for k, belief in enumerate(stages):
        folder = Path(out) / f"stage{k + 1}"
        path = train(task_name, folder, seed, belief, settings, *how, None, obs, start, base, residual, True, terms)
        found.append(path)
        start = found[-1].parent
    return found


def follow(
    task_name: str,
    out: Path,
    teacher: Path,
    seed: int = 0,
    belief: Belief | None = None,
    settings: Student | None = None,
    threads: int = 0,
    watch: Watch | None = None,
    save_every: float = SAVE_EVERY,
    again: bool = False,
    terms: Sequence[Path] = (),
) -> Path:
    """Train a student of a teacher over a belief; returns the path of its policy. The run keeps the teacher's files.

    With `again`, a run that was begun alike in `out` goes on. `terms` are learned Terms to put into the student's world.
    """
    task = tasks.resolve(task_name)
    settings, belief = settings or Student(**task.lesson), belief or task.belief
    master = export.load_net(teacher)
    about = {
        "task": task_name, "seed": training(seed), "belief": belief.to_json(), "student": asdict(settings),
        "teacher": export.digest(master),
    }  # fmt: skip
    inside = tasks.learned(task, terms)
    about |= _inside(inside)
    if again and (Path(out) / "run.json").exists():
        return _go_on(Path(out), about, threads, watch, save_every)
    run = Run.create(out, about)
    try:
        with _or_nothing(run):
            _keep_policy(run, "teacher", master)
            _keep_terms(run, inside)
            learner = _learner(run, about, threads)
            run.begin()
        return go(run, learner, watch, save_every, again)
    finally:
        run.close()


def resume(
    folder: Path, threads: int = 0, watch: Watch | None = None, save_every: float = SAVE_EVERY, again: bool = False
) -> Path:
    """Go on from the newest whole checkpoint, to the same bits as if nothing had happened."""
    run, about = Run.open(folder)
    try:
        learner = _learner(run, about, threads)
        saved = run.newest()
        if saved is None and (run.folder / "policy.onnx").exists():
            run.said.append("no whole checkpoint is left: learning begins again, from the start")
        if saved is not None:
            try:
                learner.load(*saved)
            except KeyError as error:
                raise SurefootError(f"{folder}: its checkpoint lacks {error}: another version wrote it") from None
            except (TypeError, ValueError, RuntimeError, IndexError, OverflowError) as error:
                words = " ".join(str(error).split())[:300]
                raise SurefootError(f"{folder}: its checkpoint does not fit its run.json: {words}") from None
        elif "start" in about and isinstance(learner, Learner):
            learner.adopt(_same_nets(about, str(run.folder / "run.json")), _kin(about["start"]["run"]))
        run.rewind(learner.iteration)
        differs = run.note_resume(learner.iteration)
        if differs:
            run.said.append("not bit-exact: since this run began: " + "; ".join(differs))
        return go(run, learner, watch, save_every, again)
    finally:
        run.close()


def _learner(run: Run, about: dict[str, Any], threads: int) -> Learner | Apprentice:
    seed, where = int(about["seed"]), str(run.folder / "run.json")
    task, belief = tasks.resolve(about["task"]), Belief.from_json(about["belief"], where)
    if "student" in about:
        lesson, teacher = _settings(Student, about["student"], where), export.load_net(run.folder / "teacher")
        if export.digest(teacher) != about["teacher"]:
            raise SurefootError(f"{run.folder / 'teacher'}: not the teacher this run began with (its hash differs)")
        room = classroom(task, teacher, lesson.history, lesson.only)
        env = tasks.env(room, lesson.envs, belief, seed, threads, stagger=True, terms=_terms(run, about))
        env.on_divergence = lambda i, why: _keep(run, env, i)
        return Apprentice(env, lesson, seed, teacher)
    task, settings = _told(task, about.get("obs"), where), _settings(PPO, about["settings"], where)
    env = tasks.env(task, settings.envs, belief, seed, threads, stagger=True, terms=_terms(run, about))
    env.on_divergence = lambda i, why: _keep(run, env, i)
    if settings.symmetric and task.symmetry is not None and task.symmetry.of(task.observations["actor"]) is None:
        run.said.append(f"{task.name}'s symmetry is not used: not all the actor is told has a mirror image")
    return Learner(env, settings, seed, _ranges(about.get("ranges"), env, where), _upon(run, about, env))


def _upon(run: Run, about: dict[str, Any], env: Env) -> ResidualActor | None:
    """The base a run keeps, under its env's policy; None where it has none."""
    if "base" not in about:
        return None
    base, where = export.load_net(run.folder / "base"), str(run.folder / "run.json")
    if export.digest(base) != about["base"]:
        raise SurefootError(f"{run.folder / 'base'}: not the base this run began with (its hash differs)")
    settings = _settings(Residual, about["residual"], where)
    return ResidualActor(settings, BasePolicy(contract(env.task, env.world.model), base))


def _settings(kind: type[S], told: dict[str, Any], where: str) -> S:
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in told.items()}
    usual = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]
    for name, value in values.items():
        if name not in usual:
            raise unknown("setting", name, usual, where)
        if not _alike(value, usual[name]):
            raise SurefootError(f"{where}: {name}: found {str(value)[:80]!r}, expected such as {usual[name]!r}")
    try:
        return kind(**values)
    except TypeError as error:
        raise SurefootError(f"{where}: {error}") from error


def _alike(value: Any, usual: Any) -> bool:
    """Whether a value is of the type of the usual one: whole numbers are numbers, truths are not."""
    kinds: dict[type, Any] = {bool: bool, int: int, float: int | float, str: str, tuple: tuple}
    if isinstance(value, bool) or type(usual) not in kinds:
        return isinstance(usual, bool) or type(usual) not in kinds
    if isinstance(value, tuple) and isinstance(usual, tuple) and usual:
        return all(_alike(v, usual[0]) for v in value)
    return isinstance(value, kinds[type(usual)])


def _told(task: Task, about: dict[str, Any] | None, where: str) -> Task:
    """The task as its actor and critic are to see it, as run.json tells."""
    if about is None:
        return task
    return tasks.with_override(task, _settings(ObsOverride, about, where))


def _ranges(about: dict[str, Any] | None, env: Env, where: str) -> Ranges | None:
    """How the belief grows, as run.json tells; None where it does not."""
    if about is None:
        return None
    told = dict(about)
    kind = told.pop("kind", "")
    if kind not in RANGES:
        raise unknown("ranges", str(kind), RANGES, where)
    grows: Grows = _settings(RANGES[kind], told, f"{where}: ranges")
    return grows.start(env.belief, env.steps)


def _keep(run: Run, env: Env, i: int) -> None:
    """What led a simulation to diverge, and the task to replay it in."""
    arrays = env.world.bundle(i) | {
        "env": np.array(i),
        "step": np.array(env.counter),
        "task": np.array(env.task.name),
        "seed": np.array(env.seed),
    }
    run.bundle(f"step{env.counter:08d}_env{i:05d}", arrays)
