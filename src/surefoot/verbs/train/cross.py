"""surefoot cross: from a model to a policy that works on a robot which is known only through its logs; with a page of evidence."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np
from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.belief import Box
from surefoot.errors import SurefootError
from surefoot.report import Axis, Badge, Block, Column, Picture, Plot, Report, Series, Table, Text, Watch, jsonable
from surefoot.verbs.arguments import belief_of, count, goal, hashes, portrait

if TYPE_CHECKING:
    from surefoot.cross import Crossing, HiddenRobot

FAILED = 1


@dataclass(frozen=True)
class Cross:
    task: Positional[str]
    """a task: its name (see `surefoot tasks`), file.py, or module:function"""
    reality: int = 0
    """seed of the hidden robot: wrong numbers, two of them outside of the task's ranges, and physics that the model lacks"""
    budget: str = "60 s of robot, 10 min of compute"
    """of logs on the robot, and of this computer: it stops when one is spent"""
    seed: int = 0
    """seed of training"""
    episodes: int = 100
    """of each trial on the robot, and of each evaluation in simulation"""
    out: Path | None = None
    """folder of all stages and the page; the same command with it goes on where it stopped; default: runs/cross-<task>-<reality>"""
    belief: str = "task"
    """p(e) to train over: `task`, a preset, or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """a range by hand, in place of the belief's own: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    steps: int | None = None
    """env steps of the first training, of which later ones take half; default: the task's own number"""

    def run(self, watch: Watch) -> Report:
        from surefoot.cross import Budget, HiddenRobot, Question, cross
        from surefoot.sim.realities import hidden
        from surefoot.tasks.known import task_flag

        task = tasks.resolve(self.task)
        belief = belief_of(task, self.belief, watch, ranges=self.range)
        if not isinstance(belief, Box):
            raise SurefootError(f"--belief: cross needs ranges (a box), found {type(belief).__name__}")
        task = replace(task, belief=belief)
        out = self.out or Path("runs") / f"cross-{task.name}-{self.reality}"
        budget, episodes = Budget.parse(self.budget), count(self.episodes)
        files.check_writable(out / "report.html", "--out")
        robot = HiddenRobot(task, hidden(self.reality, task))
        question = Question(task, self.task, out, f"hidden {self.reality}", budget, self.seed, episodes, self.steps)
        done = cross(question, robot, watch)
        page = out / "report.html"
        best = done.policy
        blocks: tuple[Block, ...] = (
            Text(f"Task {task.name}: {task.about}. Success: {goal(task)}."),
            _stages(done), _rates(done), *_films(done, robot), _numbers(done, robot), _lacks(robot),
        )  # fmt: skip
        following = "" if best is None else f"surefoot play {quote(str(best))}{_flag(best, self.task, task_flag)}"
        about = hashes(**({"best policy": best} if best else {})) | {
            "seed": str(self.seed),
            "robot": f"hidden, seed {self.reality}",
        }
        badge = Badge(_verdict(done), done.crossed)
        return Report(f"surefoot cross {task.name}", _facts(done, robot), blocks, following, badge,
                      0 if done.crossed else FAILED, page, portrait(task), about)  # fmt: skip


def _flag(best: Path, reference: str, task_flag: object) -> str:
    from surefoot.deploy import bundle

    return str(task_flag(reference, bundle.load(best).contract))  # type: ignore[operator]


def _verdict(done: "Crossing") -> str:
    before, after = done.before, done.after
    if before is None or after is None:
        return f"not crossed: {done.why}"
    gates = [s.facts.get("passed") for s in done.journal.all("gate")]
    gate = "the gate passes it" if gates and gates[-1] else "the gate does not pass it"
    used = f"{done.journal.robot_seconds:.0f} s of robot, {done.journal.seconds / 60:.1f} min of compute"
    if done.crossed and after == before:
        return f"no gap: the first policy succeeds in {after} on the robot; {gate}; try another --reality"
    words = "crossed" if done.crossed else f"not crossed ({done.why})"
    return f"{words}: {100 * before.value:.0f} % -> {after} success on the robot with {used}; {gate}"


def _facts(done: "Crossing", robot: "HiddenRobot") -> dict[str, object]:
    j = done.journal
    rate = lambda r: None if r is None else {"success": r.value, "low": r.interval[0], "high": r.interval[1], "n": r.n}  # noqa: E731
    return jsonable({
        "task": done.question.task.name, "crossed": done.crossed, "why": done.why, "verdict": _verdict(done),
        "before": rate(done.before), "after": rate(done.after), "robot_seconds": j.robot_seconds, "seconds": j.seconds,
        "policy": None if done.policy is None else str(done.policy), "reality": robot.reveal(),
        "stages": [s.to_json() for s in j.stages],
    })  # fmt: skip


def _stages(done: "Crossing") -> Table:
    rows = [
        [s.name, s.found, "-" if s.sim is None else str(s.sim), "-" if s.robot is None else str(s.robot), s.robot_seconds or None, s.seconds]
        for s in done.journal.stages
    ]  # fmt: skip
    strong = [i for i, s in enumerate(done.journal.stages) if s.robot is not None]
    head = [
        "stage",
        "what was found",
        "in simulation",
        "on the robot",
        Column("robot", "s", ".0f"),
        Column("compute", "s", ".0f"),
    ]
    return Table.of(head, rows, "stages; success with 95 % intervals", strong)


def _rates(done: "Crossing") -> Plot:
    """Success of each policy, in simulation and on the robot."""
    made, names = [s for s in done.journal.stages if s.sim is not None], []
    tried = [s for s in done.journal.stages if s.robot is not None]
    for k, _ in enumerate(made):
        names.append(f"policy {k + 1}")
    series = []
    for k, (name, rates) in enumerate(
        (("in simulation", [s.sim for s in made]), ("on the robot", [s.robot for s in tried]))
    ):
        found = [r for r in rates if r is not None]
        at = np.arange(len(found)) + 0.3 * (k - 0.5)
        low, high = ([100 * r.interval[i] for r in found] for i in (0, 1))
        tone = "good" if k else "quiet"
        series.append(Series.of(name, [100 * r.value for r in found], at, low, high, style="dots", tone=tone))
    caption = "Exact 95 % intervals. In simulation: over what each policy was trained on."
    return Plot(
        "Success", tuple(series), Axis("success", "%", low=0, high=100), Axis(names=tuple(names)), caption=caption
    )


def _numbers(done: "Crossing", robot: "HiddenRobot") -> Table:
    """What was believed and found, against what the robot was, which is revealed only now."""
    task, truth = done.question.task, robot.reality.e
    fitted = next((s.facts["fitted"] for s in reversed(done.journal.stages) if s.facts.get("fitted")), {})
    belief, rows = task.belief, []
    assert isinstance(belief, Box)  # the verb has refused any other
    for i, p in enumerate(task.params):
        if p.name not in truth:
            continue
        value = truth[p.name]
        found = fitted.get(p.name)
        words = "-" if not found or not found[3] else f"{found[1]:.3g} .. {found[2]:.3g}"
        inside = "" if belief.low[i] <= value <= belief.high[i] else "outside"
        rows.append(
            [p.name, p.nominal, f"{belief.low[i]:.3g} .. {belief.high[i]:.3g}", words, value, inside, p.unit or "-"]
        )
    number = lambda name: Column(name, form=".3g")  # noqa: E731
    head = ["unknown", number("model"), "task's range", "identified", number("robot"), "", "unit"]
    return Table.of(head, rows, "What the robot was: no policy observed these numbers")


def _lacks(robot: "HiddenRobot") -> Table:
    rows = [[name, x["about"], x["strength"]] for name, x in robot.reality.to_json()["ingredients"].items()]
    return Table.of(["physics", "what", Column("strength", form=".2f")], rows, "What the model lacks")


def _films(done: "Crossing", robot: "HiddenRobot") -> list[Block]:
    """The first and the best policy on the robot; where nothing can render, the page says so and does without."""
    first = next((Path(s.facts["run"]) for s in done.journal.stages if s.name == "train"), None)
    runs = {"The first policy on the robot": first, "The best policy on the robot": done.policy}
    return [_film(robot, run, caption) for caption, run in runs.items() if run is not None]


def _film(robot: "HiddenRobot", run: Path, caption: str) -> Block:
    from surefoot.deploy import bundle

    try:
        from surefoot.tasks.view.picture import film

        return Picture(film(bundle.load(run), robot.env(1, 0), seconds=3.0, fps=12, size=(320, 240)), "gif", caption)
    except (SurefootError, ImportError) as error:
        return Text(f"{caption}: no film, because {error}", "quiet")
