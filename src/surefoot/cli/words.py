"""What the words of a command line mean: beliefs, tasks and counts by the names a user gives them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from surefoot.belief import Belief
from surefoot.console import Line
from surefoot.env import Env
from surefoot.errors import SurefootError, nearest
from surefoot.gate.lineage import folder_of, run_of, trained_with
from surefoot.learn.ranges import REACHED
from surefoot.policy import Policy
from surefoot.task import Task

if TYPE_CHECKING:
    from surefoot.sim.realities import Reality


def belief_of(task: Task, name: str, say: Console, flag: str = "--belief") -> Belief:
    """What a flag such as --belief names; what of a preset the task cannot have is said."""
    from surefoot import presets, tasks

    if name == "task":
        return task.belief
    if name == "nominal":
        return tasks.nominal(task)
    if name in presets.PRESETS:
        fit = presets.fit(task, name)
        for note in fit.notes:
            say.print(f"note: {note}", highlight=False, soft_wrap=True)
        return fit.belief
    if not Path(name).exists():
        if name.endswith(".json") or "/" in name:
            raise SurefootError(f"{flag}: {name}: no such file")
        there = ", ".join(["task", "nominal", "a JSON file", *presets.fitting(task)])
        near = nearest(name, ["task", "nominal", *presets.PRESETS])
        raise SurefootError(f"{flag}: no belief matches '{name}'; there are {there}{near}")
    belief = Belief.read(name)
    task.params.check_same(belief.params, name)
    return belief


def described(verb: type) -> str:
    """What `--help` says of a verb, and of what every verb takes."""
    return f"{(verb.__doc__ or '').strip()}\n\nTakes --json (facts for machines) and --traceback, too."


def met_before(seed: int, policies: Sequence[Path]) -> list[str]:
    """What to say where episodes are drawn from the seed of a run's training, whose first ones they then are."""
    return [
        f"{p} was trained with seed {seed}, too: it has met some of these episodes; judge it with another --seed"
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


def task_for(policy: Policy, name: str, where: Path | str = "") -> Task:
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


def count(episodes: int) -> int:
    if episodes < 1:
        raise SurefootError(f"--episodes: expected at least 1, found {episodes}")
    return episodes


def seconds(line: Line, task: Task) -> Callable[[int, Env], None]:
    """Tells how far into its episodes an evaluation is."""
    most = task.seconds * task.trial
    return lambda k, env: line.text(f"episode second {(k + 1) * env.world.dt:5.1f} of {most:g}")
