"""The whole pipeline on a robot with a hidden e: how much randomization, adaptation or not, real2sim or not; then deploy.

    p(e)      the task's ranges shrunk to a share s around a centre: the model's numbers, or with real2sim those that
              `surefoot identify` found in a log of this robot (widened to its intervals)
    train     over p(e); with adaptation a teacher that observes e, and a student that infers it
    deploy    episodes of the policy on the hidden robot: k of n succeed, exact 95 % interval

Everything that takes long is a command in a process of its own, and what was trained once is used again.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import join, quote

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.belief import Belief, point
from surefoot.deploy import bundle
from surefoot.env import Env
from surefoot.lab.controls import Button, Choice, Control, Slider, Toggle
from surefoot.lab.counting import Tally, percent
from surefoot.lab.identified import FEW, LAST, RECORD, TOLD, around, command, recorded, touches
from surefoot.lab.jobs import Curves, Job, training
from surefoot.lab.page import BLUE, GREEN, RED, Clock, Page, Scene, kept, squares
from surefoot.lab.subject import Subject, load, narrowed
from surefoot.policy import Policy
from surefoot.report import Axis, Block, Column, Note, Plot, Series, Table, Text
from surefoot.sim.engine import Engine
from surefoot.sim.realities import reality
from surefoot.tasks.rollout import Trials

SHARES = {"none": 0.0, "half": 0.5, "full": 1.0}
ROBOTS, MOST = 36, 8 * 36  # episodes side by side, and in all


@dataclass(frozen=True)
class Asked:
    randomization: str = "none"
    adaptation: bool = False
    real2sim: bool = False
    robot: float = 0.0
    reveal: bool = False


class Pipeline(Page):
    key, title = "pipeline", "The pipeline"
    about = (
        "Train, deploy to a robot whose e is hidden (its masses, friction, delays: what nobody knows exactly), and see what "
        "survives. Randomization makes a policy bear other robots, adaptation infers this one, real2sim measures it."
    )

    def __init__(self, subject: Subject):
        super().__init__(subject)
        self.asked = Asked()
        self.jobs: list[Job] = []
        self.waiting = False
        self.tallies: dict[tuple[Asked, float], Tally] = {}
        self.trials: Trials | None = None
        self.clock, self.fresh = Clock(), True
        self.robots: mujoco.MjModel | None = None
        self.periods = 0  # flown, of all batches

    def controls(self) -> Mapping[str, Control]:
        a = self.asked
        stop = {"stop": Button("stop", "what was trained is kept")}
        return {
            "randomization": Choice("randomization", tuple(SHARES), a.randomization, "share of the task's ranges"),
            "adaptation": Toggle("adaptation", a.adaptation, "teacher and student"),
            "real2sim": Toggle("real2sim", a.real2sim, "identify this robot from a log, and train around what was found"),
            "robot": Slider("hidden robot", 0, 99, a.robot, 1),
            **(stop if self.waiting or self.trials else {"deploy": Button("deploy", "trains what is missing first")}),
            "reveal": Toggle("reveal e", a.reveal),
        }  # fmt: skip

    def moved(self, name: str) -> None:
        if name == "deploy":
            self.waiting = True
        if name != "reveal" and name != "deploy":
            self._halt()
        self.fresh = True

    def _halt(self) -> None:
        self.waiting, self.trials = False, None
        for job in self.jobs[-1:]:
            if job.running:
                job.stop()

    @property
    def e(self) -> np.ndarray:
        """Of the hidden robot."""
        return reality(self.subject.belief, int(self.asked.robot))

    @property
    def label(self) -> str:
        """The folder of the policy that these settings make."""
        a = self.asked
        name = {"none": "narrow", "half": "half", "full": "wide"}[a.randomization]
        return name + ("-adaptive" if a.adaptation else "") + (f"-robot{a.robot:.0f}" if a.real2sim else "")

    def policy(self) -> Path | None:
        """Where that policy is; the one that came with the lab where it was trained alike."""
        out = self.subject.folder(self.label)
        done = out / "student" if self.asked.adaptation else out
        if (done / bundle.NAME).exists() and not (self.jobs and self.jobs[-1].running and self.jobs[-1].out == out):
            return done
        if self.label == "wide":
            return next((p for k, p in self.subject.policies().items() if k in ("shipped", "this run")), None)
        return None

    def needed(self) -> list[str] | None:
        """The next command that these settings need, or None where all is there."""
        if self.policy() is not None:
            return None
        if self.asked.real2sim and not self.identified.exists():
            return command(self.subject, self.identified.with_name("log.npz"), self.identified, self.contacts)
        flags = ["--belief", str(self._belief())] + (["--adapt", "rma"] if self.asked.adaptation else [])
        return ["train", self.subject.reference, *flags, "--out", str(self.subject.folder(self.label))]

    @cached_property
    def contacts(self) -> bool:
        return touches(self.subject)

    @property
    def identified(self) -> Path:
        """What a log of this robot told."""
        return self.subject.folder(f"real2sim-robot{self.asked.robot:.0f}") / "identified.json"

    def _found(self) -> Belief | None:
        wanted = self.asked.real2sim and self.identified.exists()
        return Belief.read(self.identified, self.subject.task.params) if wanted else None

    def _wanted(self) -> Belief:
        """p(e) of these settings."""
        belief, found = narrowed(self.subject.belief, SHARES[self.asked.randomization]), self._found()
        return belief if found is None else around(belief, self.subject.belief, found)

    def _belief(self) -> Path:
        """The belief to train over, written for the command."""
        belief = self._wanted()
        path = self.subject.folder("beliefs") / f"{self.label}.json"
        belief.write(path)
        return path

    def work(self) -> bool:
        if self.waiting and not (self.jobs and self.jobs[-1].running):
            self._next()
        elif self.trials is not None:
            self._fly()
        else:
            self.clock = Clock()
        fresh, self.fresh = self.fresh, False
        return fresh or self.waiting

    def _next(self) -> None:
        """The next step towards deployment."""
        self.fresh = True
        if self.jobs and self.jobs[-1].failed:
            self.waiting = False
            self.jobs[-1].close()
            return
        args = self.needed()
        if args is None:
            self.waiting = False
            self._deploy()
        elif args[0] == "identify":
            log = Path(args[2])
            log.parent.mkdir(parents=True, exist_ok=True)
            recorded(self.subject, self.e, self._driver()).save(log)
            self.jobs.append(Job(args))
        else:
            self.jobs.append(training(args[1], Path(args[-1]), *args[2:-2]))

    def _driver(self) -> Policy | None:
        """Who drives while a log is recorded: any policy that is at hand."""
        path = next(iter(self.subject.policies().values()), None)
        return None if path is None else load(path)

    def _deploy(self, seed: int = 0) -> None:
        """A batch of episodes on the hidden robot."""
        path = self.policy()
        assert path is not None
        policy = load(path)
        task, e = self.subject.own(policy), np.tile(self.e, (ROBOTS, 1))
        env = tasks.env(task, ROBOTS, point(task.params, self.e), self.subject.seed + seed, threads=1)
        self.trials, self.clock = Trials(policy, env, e), Clock()
        self._drawn(env)

    def _fly(self) -> None:
        """Step in real time the first batch, which is watched; as fast as it goes the others."""
        assert self.trials is not None
        dt, first = self.trials.env.world.dt, self.key_now not in self.tallies
        periods = int(self.clock.due(2.0) / dt) if first else 50
        self.clock.spend(periods * dt if first else self.clock.owed)
        self.advance(periods)

    @property
    def key_now(self) -> tuple[Asked, float]:
        return replace(self.asked, reveal=False), self.asked.robot

    def advance(self, periods: int) -> None:
        for _ in range(periods):
            if self.trials is None:
                return
            running, before = ~self.trials.done, self.trials.env.world.state.q.copy()
            self.trials.step()
            now = np.where(self.trials.done[:, None], before, self.trials.env.world.state.q)
            self.q[running] = now[running]
            self.outcome = np.where(self.trials.done, np.where(self.trials.success[-1], 1, -1), 0)
            self.fresh, self.periods = True, self.periods + 1
            if self.trials.over:
                old = self.tallies.get(self.key_now, Tally(np.zeros(1, int), 0))
                good = self.trials.success[-1].sum(keepdims=True)
                tally = self.tallies[self.key_now] = Tally(old.good + good, old.episodes + ROBOTS)
                self.trials = None
                if tally.episodes < MOST:
                    self._deploy(tally.episodes // ROBOTS)
                return

    def blocks(self) -> Sequence[Block]:
        out: list[Block] = []
        for job in self.jobs[-3:]:
            out.append(
                Text(
                    self._progress(job) + job.words() + job.said_last(" · "),
                    "bad" if job.failed not in ("", "stopped") else "quiet",
                )
            )
        if not self.tallies and not self.waiting and self.trials is None:
            out.append(Note("choose how to close the gap, then deploy: what is missing is trained first"))
        return [*out, *self._deployed(), *self._told(), *self._revealed()]

    def _deployed(self) -> list[Block]:
        """What was deployed in this visit, and how many of its episodes succeeded."""
        if not self.tallies:
            return []
        names = [f"{_words(a)}, robot {robot:.0f}" for a, robot in self.tallies]
        rates = np.array([t.rate() for t in self.tallies.values()])
        rows = [[n, percent(t.rate()), t.episodes] for n, t in zip(names, self.tallies.values())]
        now = [i for i, key in enumerate(self.tallies) if key == self.key_now]
        dots = Series.of("success, 95 %", 100 * rates[:, 0], range(len(names)), *100 * rates[:, 1:].T, style="dots")
        axes = Axis("success", "%", low=0, high=100), Axis(names=tuple(names))
        return [
            Plot("What survives", (dots,), *axes),
            Table.of(["randomization", "success on it (95 %)", "episodes"], rows, "", now),
        ]

    def _told(self) -> list[Block]:
        """What the log of this robot says of each unknown."""
        found = self._found()
        if found is None:
            return []
        whole, e = self.subject.belief, found.estimate()
        (low, high), p = (found.params.y(x) for x in found.interval(0.95)), found.params
        wide = TOLD * (p.y(whole.high) - p.y(whole.low))
        rows = []
        for i, q in enumerate(p):
            words = (
                "shows in no log"
                if low[i] == high[i]
                else "not told by this log"
                if high[i] - low[i] >= wide[i]
                else ""
            )
            rows.append([q.name, q.nominal, None if words else float(e[i]), _interval(found, i), words])
        head = ["unknown", Column("model", form=".4g"), Column("identified", form=".4g"), "95 % interval", ""]
        about = "Somebody who pushes or pulls the robot is not there while it is recorded."
        if self.contacts:
            about += f" It has contacts, so for time the fit begins on {FEW:g} s of the log and ends on windows of {LAST:g} s."
        return [Table.of(head, rows, f"Identified from a log of {RECORD:g} s of this robot"), Text(about, "quiet")]

    def _progress(self, job: Job) -> str:
        if not job.running or job.out is None:
            return ""
        parts = []
        for folder in (job.out, job.out / "teacher", job.out / "student"):
            if (folder / "run.json").exists():
                curves = Curves(folder)
                curves.fresh()
                parts.append(f"{100 * (curves.share or 0):.0f} %")
        return ", ".join(parts) + " · " if parts else ""

    def _revealed(self) -> list[Block]:
        """e of the hidden robot beside what was trained over and what was identified."""
        if not self.asked.reveal:
            return []
        p, found = self.subject.task.params, self._found()
        ends = self._wanted().support(0.95)
        rows = []
        for i, q in enumerate(p):
            low, high = (x[i] for x in ends)
            inside = low - 1e-12 <= self.e[i] <= high + 1e-12
            rows.append([q.name, q.nominal, float(self.e[i]), f"{low:.4g} .. {high:.4g}", "yes" if inside else "no",
                         "-" if found is None else _interval(found, i)])  # fmt: skip
        head = [
            "unknown",
            Column("model", form=".4g"),
            Column("this robot", form=".4g"),
            "trained over",
            "inside",
            "identified (95 %)",
        ]
        return [Table.of(head, rows, "What was hidden")]

    def scene(self) -> Scene | None:
        """The robots of the batch that flies, or flew last; before, one that waits in each place."""
        if self.robots is None:
            env = tasks.env(self.subject.task, ROBOTS, tasks.nominal(self.subject.task), self.subject.seed, threads=1)
            self._drawn(env)
        if self.robots is None:
            return None
        colours = np.array([BLUE, GREEN, RED], np.uint8)[self.outcome]
        at, room = self.at
        return Scene(self.robots, self.q, at + kept(self.robots, self.q, room), colours, moved=float(self.periods))

    def _drawn(self, env: Env) -> None:
        """From now on these robots are in the picture."""
        if isinstance(env.world, Engine):
            self.robots = self.robots or env.world.batch.get_model(0)
            self.q, self.outcome = env.world.state.q.copy(), np.zeros(ROBOTS, int)
            self.at = squares(self.robots, self.q)

    def finish(self) -> None:
        """Train what is missing, deploy, and count."""
        self.set("deploy", True)
        while self.waiting or self.trials is not None:
            if self.trials is not None:
                self.advance(100)
            else:
                self.work()
                time.sleep(0.05)

    def command(self) -> str:
        args = self.needed()
        if args is not None and args[0] == "identify":  # of a log that is not there before it is deployed
            return self.printed()
        if args is not None:
            return f"surefoot {join(args)}"
        batches = f"--episodes {ROBOTS} --batches {MOST // ROBOTS}"
        seed = "" if self.subject.seed == 1 else f" --seed {self.subject.seed}"
        return f"surefoot eval {quote(str(self.policy()))}{self.subject.flag} {batches} --belief {self._hidden()}{seed}"

    def _hidden(self) -> Path:
        """The hidden robot, written for the command: a file for those who do not want to see its e."""
        path = self.subject.folder("beliefs") / f"hidden-robot{self.asked.robot:.0f}.json"
        if not path.exists():
            point(self.subject.task.params, self.e).write(path)
        return path

    def close(self) -> None:
        for job in self.jobs:
            job.close()


def _words(asked: Asked) -> str:
    more = [name for name in ("adaptation", "real2sim") if getattr(asked, name)]
    return " + ".join([asked.randomization, *more])


def _interval(found: Belief, i: int) -> str:
    low, high = (x[i] for x in found.interval(0.95))
    return f"{low:.4g} .. {high:.4g}" if low < high else "-"
