"""surefoot cross: from a model to a policy that works on a robot which is known only through its logs; with a page of evidence."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.belief import Box
from surefoot.errors import SurefootError
from surefoot.report import (
    Axis,
    Badge,
    Block,
    Column,
    Picture,
    Plot,
    Progress,
    Report,
    Series,
    Table,
    Text,
    Watch,
    jsonable,
)
from surefoot.verbs.arguments import belief_of, count, goal, hashes, portrait
from surefoot.verbs.train.cross_evidence import evidence_blocks

if TYPE_CHECKING:
    from surefoot.cross import Crossing, HiddenRobot, Rate, Robot
    from surefoot.cross.journal import Stage

FAILED = 1


@dataclass(frozen=True)
class Cross:
    task: Positional[str]
    """a task: its name (see `surefoot tasks`), file.py, or module:function"""
    reality: int = 0
    """seed of the hidden robot: wrong numbers, some of them outside of the task's ranges, and physics that the model lacks"""
    robot: str = ""
    """address of a robot to drive instead, such as udp://127.0.0.1:9870 of `surefoot robot`"""
    budget: str = "60 s of robot, 10 min of compute"
    """time on the robot, and of computing: the loop stops when one of them is used up"""
    seed: int = 0
    """seed of training"""
    episodes: int = 100
    """episodes of each evaluation in simulation, and of the final measurement on the hidden robot"""
    out: Path | None = None
    """folder of all stages and the page; the same command continues where it stopped; default: runs/cross-<task>-<reality>"""
    belief: str = "task"
    """p(e) to begin with: `task`, a preset, or a belief's JSON file"""
    range: tuple[str, ...] = ()
    """your own range for an unknown, instead of the belief's: mass=0.8..1.2x (multiples of nominal), latency=0..0.02 (in its unit)"""
    steps: int | None = None
    """env steps of each of the first three trainings; later ones take half of that; default: the task's own number"""
    skip: tuple[str, ...] = ()
    """stages to leave out, such as gate doctor; the loop decides as if each had been refused"""
    stage: str = ""
    """one stage to carry out now, alone, after those that --out holds; without it, the loop decides"""
    threads: int = 0
    """threads of the physics; 0: every core"""

    def run(self, watch: Watch) -> Report:
        from surefoot.cross import Budget, HiddenRobot, Journal, LinkedRobot, Question, cross
        from surefoot.cross.driver import alone, skipping
        from surefoot.sim.realities import hidden

        task = tasks.resolve(self.task)
        belief = belief_of(task, self.belief, watch, ranges=self.range)
        if not isinstance(belief, Box):
            raise SurefootError(f"--belief: cross needs ranges (a box), found {type(belief).__name__}")
        task = replace(task, belief=belief)
        out = self.out or Path("runs") / f"cross-{task.name}-{'robot' if self.robot else self.reality}"
        budget, episodes = Budget.parse(self.budget), count(self.episodes)
        files.check_writable(out / "report.html", "--out")
        robot: Robot = LinkedRobot(task, self.robot) if self.robot else HiddenRobot(task, hidden(self.reality, task))
        name = f"at {self.robot}" if self.robot else f"hidden, seed {self.reality}"
        question = Question(task, self.task, out, name, budget, self.seed, episodes, self.steps, self.threads)
        driver = skipping(self.skip)
        if self.stage:
            driver = alone(self.stage, Journal.open(out, question.asked(), question.budget))
        return self._report(cross(question, robot, watch, driver), robot, name, watch)

    def _given(self) -> str:
        """The same question as it is typed, without a stage."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        rest = {k: v for k, v in given.items() if k not in ("task", "stage")}
        words = [w for k, v in rest.items() for w in (f"--{k}", *(map(str, v) if isinstance(v, tuple) else (str(v),)))]
        return " ".join(map(quote, [self.task, *words]))

    def _report(self, done: "Crossing", robot: "Robot", name: str, watch: Watch) -> Report:
        from surefoot.cross import HiddenRobot
        from surefoot.cross.evidence import gather

        task, best = done.question.task, done.policy
        blocks: list[Block] = [Text(f"Task {task.name}: {task.about}. Success: {goal(task)}."), _stages(done)]
        blocks += [_gap(done), _rates(done)]
        if isinstance(robot, HiddenRobot):
            blocks += [*_films(done, robot), _numbers(done, robot), _lacks(robot)]
        watch(Progress("the page: predictions of the first log, and success against each unknown"))
        found = gather(done, robot)
        blocks += evidence_blocks(found, robot.reveal().get("e", {}))
        following = "" if best is None else f"surefoot play {quote(str(best))}{_flag(best, self.task)}"
        if self.stage:
            following = f"surefoot cross {self._given()}  # the loop goes on from here"
        about = hashes(**({"policy": best} if best else {})) | {"seed": str(self.seed), "robot": name}
        about |= {"bundle": _bundle(done)} if _bundle(done) else {}
        badge = Badge(_verdict(done), done.crossed)
        return Report(f"surefoot cross {task.name}", _facts(done, robot) | jsonable(found.facts()), tuple(blocks), following, badge,
                      0 if done.crossed else FAILED, done.question.out / "report.html", portrait(task), about)  # fmt: skip


def _flag(best: Path, reference: str) -> str:
    from surefoot.deploy import bundle
    from surefoot.tasks.known import task_flag

    return task_flag(reference, bundle.load(best).contract)


def _tried(done: "Crossing") -> "Stage | None":
    """The attempt with the policy that is shown."""
    found = [s for s in done.journal.all("robot") if s.facts["run"] == str(done.policy)]
    return found[-1] if found else None


def _bundle(done: "Crossing") -> str:
    tried = _tried(done)
    return "" if tried is None else str(tried.facts["bundle"])


def _gate_of(done: "Crossing") -> str:
    """What the gate says of the policy that is shown."""
    found = [s for s in done.journal.all("gate") if s.facts["run"] == str(done.policy)]
    return f"gate: {found[-1].found}" if found else "the gate has not judged it"


def _verdict(done: "Crossing") -> str:
    before, after, j = done.before, done.after, done.journal
    if before is None or after is None:
        return f"not crossed: {done.why}"
    used = f"{j.robot_seconds:.0f} s of robot, {j.seconds / 60:.1f} min of compute"
    if done.crossed and done.first == done.policy:
        return f"no gap: the first policy succeeds in {after} on the robot; {_gate_of(done)}; try another --reality"
    words = "crossed" if done.crossed else f"not crossed ({done.why})"
    return f"{words}: {100 * before.value:.0f} % -> {after} success on the robot with {used}; {_gate_of(done)}"


def _rate(r: "Rate | None") -> dict[str, Any] | None:
    return None if r is None else {"success": r.value, "low": r.interval[0], "high": r.interval[1], "n": r.n}


def _facts(done: "Crossing", robot: "Robot") -> dict[str, object]:
    j = done.journal
    return jsonable({
        "task": done.question.task.name, "crossed": done.crossed, "why": done.why, "verdict": _verdict(done),
        "before": _rate(done.before), "after": _rate(done.after), "robot_seconds": j.robot_seconds, "seconds": j.seconds,
        "policy": None if done.policy is None else str(done.policy), "bundle": _bundle(done), "gate": _gate_of(done),
        "reality": robot.reveal(), "stages": [s.to_json() for s in j.stages],
    })  # fmt: skip


def _stages(done: "Crossing") -> Table:
    rows = [
        [s.name, s.found, "-" if s.sim is None else str(s.sim), "-" if s.robot is None else str(s.robot), s.robot_seconds or None, s.seconds]
        for s in done.journal.stages
    ]  # fmt: skip
    strong = [i for i, s in enumerate(done.journal.stages) if s.robot is not None]
    head = ["stage", "what was found", "in simulation", "on the robot"]
    times = [Column("robot", "s", ".0f"), Column("compute", "s", ".0f")]
    return Table.of(
        [*head, *times], rows, "stages, in the order of their decisions; success with 95 % intervals", strong
    )


def _gap(done: "Crossing") -> Table:
    """Success of the first and the last policy, as it was measured at the end."""
    rows: list[list[Any]] = []
    for name, run, rate in (
        ("the first policy", done.first, done.before),
        ("the policy shown", done.policy, done.after),
    ):
        sim = next((s.sim for s in done.journal.all("train") if s.facts["run"] == str(run)), None)
        rows.append([name, "-" if sim is None else str(sim), "-" if rate is None else str(rate)])
    words = f"The gap before and after; {_gate_of(done)}"
    return Table.of(["policy", "where it was trained", "on the robot"], rows, words, [1])


def _rates(done: "Crossing") -> Plot:
    """Success of each policy, in simulation and on the robot."""
    made = [s for s in done.journal.stages if s.sim is not None]
    tried = [s for s in done.journal.stages if s.robot is not None]
    series = []
    both = (("in simulation", [s.sim for s in made]), ("on the robot", [s.robot for s in tried]))
    for k, (name, rates) in enumerate(both):
        found = [r for r in rates if r is not None]
        at = np.arange(len(found)) + 0.3 * (k - 0.5)
        low, high = ([100 * r.interval[i] for r in found] for i in (0, 1))
        tone = "good" if k else "quiet"
        series.append(Series.of(name, [100 * r.value for r in found], at, low, high, style="dots", tone=tone))
    caption = "Exact 95 % intervals. In simulation: over what each policy was trained on. On the robot: the loop's own attempts."
    names = tuple(f"policy {k + 1}" for k in range(len(made)))
    return Plot("Success", tuple(series), Axis("success", "%", low=0, high=100), Axis(names=names), caption=caption)


def _numbers(done: "Crossing", robot: "HiddenRobot") -> Table:
    """What was believed and found, against what the robot was, which is revealed only now."""
    task, truth = done.question.task, robot.reality.e
    fitted: dict[str, Any] = next(
        (s.facts["fitted"] for s in reversed(done.journal.stages) if s.facts.get("fitted")), {}
    )
    belief, rows = task.belief, []
    assert isinstance(belief, Box)  # the verb has refused any other
    for i, p in enumerate(task.params):
        if p.name not in truth:
            continue
        value, found = truth[p.name], fitted.get(p.name)
        words = "-" if not found else f"{found[0]:.3g} ({found[1]:.3g} .. {found[2]:.3g})"
        inside = "" if belief.low[i] <= value <= belief.high[i] else "outside"
        span = f"{belief.low[i]:.3g} .. {belief.high[i]:.3g}"
        rows.append([p.name, p.nominal, span, words, value, inside, p.unit or "-"])
    number = lambda name: Column(name, form=".3g")  # noqa: E731
    head = ["unknown", number("model"), "task's range", "identified (95 %)", number("robot"), "", "unit"]
    return Table.of(head, rows, "What the robot was: no policy observed these numbers")


def _lacks(robot: "HiddenRobot") -> Table:
    rows = [[name, x["about"], x["strength"]] for name, x in robot.reality.to_json()["ingredients"].items()]
    return Table.of(["physics", "what", Column("strength", form=".2f")], rows, "What the model lacks")


def _films(done: "Crossing", robot: "HiddenRobot") -> list[Block]:
    """The first and the best policy on the robot; where nothing can render, the page says so and does without."""
    runs = {"The first policy on the robot": done.first, "The policy shown, on the robot": done.policy}
    return [_film(robot, run, caption) for caption, run in runs.items() if run is not None]


def _film(robot: "HiddenRobot", run: Path, caption: str) -> Block:
    from surefoot.deploy import bundle

    try:
        from surefoot.tasks.view.picture import film

        policy = bundle.load(run)
        made = film(policy, robot.env(1, 0), seconds=3.0, fps=12, size=(320, 240))
        return Picture(made, "gif", caption)
    except (SurefootError, ImportError) as error:
        return Text(f"{caption}: no film, because {error}", "quiet")
