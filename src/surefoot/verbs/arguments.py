"""Beliefs, tasks, runs and counts from the arguments of a command."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from surefoot import files, shipped
from surefoot.belief import Belief
from surefoot.belief.by_hand import with_words
from surefoot.env import Env
from surefoot.errors import SurefootError, nearest
from surefoot.gate.training_record import folder_of, run_of, trained_with
from surefoot.learn.ranges import REACHED
from surefoot.policy import Policy, Zero
from surefoot.report import Column, Note, Picture, Progress, Table, Watch
from surefoot.robot import Robot
from surefoot.task import Task

if TYPE_CHECKING:  # what simulates is an extra, and `--help` needs none
    from surefoot.sim.realities import Reality
    from surefoot.tasks.rollout import Evaluation


def belief_of(task: Task, name: str, watch: Watch, flag: str = "--belief", ranges: tuple[str, ...] = ()) -> Belief:
    """What --belief names, with the ranges of --range in place of its own."""
    return with_words(_named_belief(task, name, watch, flag), ranges, "--range")


def _named_belief(task: Task, name: str, watch: Watch, flag: str) -> Belief:
    """What a flag such as --belief names; parts of a preset that the task cannot have are noted."""
    from surefoot import presets, tasks

    if name == "task":
        return task.belief
    if name == "nominal":
        return tasks.nominal(task)
    if name in presets.PRESETS:
        fit = presets.fit(task, name)
        for note in fit.notes:
            watch(Progress(f"note: {note}", stays=True))
        return fit.belief
    if not Path(name).exists():
        if name.endswith(".json") or "/" in name:
            raise SurefootError(f"{flag}: {name}: no such file")
        there = ", ".join(["task", "nominal", "a JSON file", *presets.fitting(task)])
        near = nearest(name, ["task", "nominal", *presets.PRESETS])
        raise SurefootError(f"{flag}: no belief matches '{name}'; there are {there}{near}")
    return _from_file(task, name)


def _from_file(task: Task, name: str) -> Belief:
    """A belief of the task's own unknowns, or one of a model file's, whose unknowns are found by their address."""
    data = files.read_json(Path(name))
    if isinstance(data, dict) and "params" in data:
        belief = Belief.from_json(data, name)
        if belief.params.names != task.params.names:
            from surefoot.tasks.addressed import fit_to

            return fit_to(task, belief, name)
    return Belief.read(name, task.params)


def met_before(seed: int, policies: Sequence[Path]) -> list[Note]:
    """Warnings where episodes are drawn from the seed of a run's training: its first episodes were the same."""
    return [
        Note(f"{p} was also trained with seed {seed}: it has seen some of these episodes; use another --seed", True)
        for p in policies
        if seed in trained_with(p)
    ]


def trained_over(policy: Path, task: Task) -> Belief | None:
    """The belief a run's policy was trained over; None where no run.json says, or where it is about other unknowns.

    Where its ranges grew, what they reached, which may be less than what they were to grow to.
    """
    about, reached = run_of(policy), folder_of(policy) / REACHED
    if "belief" not in about:
        return None
    grown = "ranges" in about and reached.is_file()
    belief = Belief.read(reached) if grown else Belief.from_json(about["belief"], f"{policy}: run.json")
    return belief if belief.params.names == task.params.names else None


def chosen(run: Path) -> Path:
    """What --best means: the best policy of a run that was judged while it trained."""
    from surefoot.deploy import bundle

    if shipped.is_shipped(run):  # the best of its run is what ships
        return run
    if not run.is_dir():
        raise SurefootError(f"--best: expected a run's folder, found {run}")
    if not (run / bundle.BEST).exists():
        raise SurefootError(f"--best: {run / bundle.BEST}: no such file; `surefoot train --judge-every` keeps the best")
    return run / bundle.BEST


def task_for(policy: Policy, name: str | Task, where: Path | str = "") -> Task:
    """The task a policy was made for, or another whose contract it fits; `where` it is from is said if it does not."""
    from surefoot import tasks

    try:
        return tasks.of(policy.contract, name)
    except SurefootError as error:
        raise SurefootError(f"{where}: {error}" if where else str(error)) from None


def numbers(words: tuple[str, ...], flag: str, example: str) -> dict[str, float]:
    """Words such as stiction=0.5, as names with their numbers."""
    found: dict[str, float] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise SurefootError(f"{flag}: found {word!r}, expected NAME=NUMBER such as {example}") from None
    return found


def reality_of(seed: int, words: tuple[str, ...]) -> "Reality":
    """A reality of the ingredients that words such as stiction=0.5 name."""
    from surefoot.sim.realities import Reality

    return Reality(seed, numbers(words, "--ingredient", "stiction=0.5"))


def count(number: int, flag: str = "--episodes") -> int:
    if number < 1:
        raise SurefootError(f"{flag}: expected at least 1, found {number}")
    return number


def seconds(watch: Watch, task: Task) -> Callable[[int, Env], None]:
    """A hook of rollouts that shows the progress of an evaluation."""
    most = task.seconds * task.trial

    def show(k: int, env: Env) -> None:
        t = (k + 1) * env.world.dt
        watch(Progress(f"episode second {t:5.1f} of {most:g}", t / most))

    return show


def goal(task: Task) -> str:
    """What counts as success, for people."""
    kind = "largest" if task.measure == "max" else "mean"
    limit = f"{task.tolerance:.3g} {task.error_unit}"
    return f"lasts {task.seconds:g} s, {kind} error of the last {task.window:g} s within {limit}"


def results(task: Task, found: "dict[str, Evaluation]") -> Table:
    """Policies side by side in one task."""
    percent = lambda x: f"{100 * x:.1f} %"  # noqa: E731
    rows = []
    for name, r in found.items():
        error = r.error[np.isfinite(r.error)]
        ended = ", ".join(f"{k} {v}" for k, v in sorted(r.reasons.items(), key=lambda kv: -kv[1]))
        low, high = r.interval
        mean = float(error.mean()) if len(error) else None
        rows.append([name, percent(r.rate), f"{100 * low:.1f} - {percent(high)}", float(r.returns.mean()), mean, ended])
    head = ["policy", "success", "95 % interval", Column("return", form=".2f"), Column("error", task.error_unit, ".3f")]
    return Table.of([*head, "ended"], rows)


def hashes(**paths: Path | None) -> dict[str, str]:
    """Content hashes of the files a report was made from, for its page; of a folder, of the policy in it."""
    from surefoot.deploy import bundle

    found = {}
    for name, path in paths.items():
        there = None if path is None else shipped.located(path)
        file = there / bundle.NAME if there is not None and there.is_dir() else there
        if file is not None and file.is_file():
            found[name] = f"{path}, sha256 {files.sha256(file.read_bytes())[:16]}"
    return found


def portrait(task: Task) -> Picture | None:
    """The robot as an episode starts; None where nothing can render."""
    from surefoot import tasks
    from surefoot.tasks.rollout import contract

    try:
        from surefoot.tasks.view.picture import film

        env = tasks.env(task, 1)
        still = film(Zero(contract(task, env.world)), env, seconds=env.world.dt, fps=1 / env.world.dt, size=(320, 240))
        return Picture(still, "gif", task.name)
    except (SurefootError, ImportError):
        return None


def robot_of(reference: str, asset_root: str = "") -> Robot:
    """The robot of a model file, or of a task."""
    from surefoot import tasks

    if tasks.is_reference(reference):
        return tasks.resolve(reference).robot
    if not Path(reference).is_file():
        there = tasks.names()
        raise SurefootError(f"{reference}: neither a file nor a task{nearest(reference, there)}; tasks are {', '.join(there)}")  # fmt: skip
    return Robot.file(reference, asset_root=asset_root)
