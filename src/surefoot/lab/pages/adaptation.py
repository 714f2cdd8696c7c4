"""Teacher and student: what an adaptive policy has inferred about its robot, while it flies.

    z(t) = encoder(history up to t),   estimate of e_k = W z + c        (a linear probe, gate/latent.py)

The probe is fitted to half of EPISODES episodes. On the other half the 95 % quantile of |estimate - e_k| at each time since the
episode began is the half width of the interval that is shown: so it covers 95 % of robots, whatever their law. It holds from
the beginning of an episode; while a change is being noticed it does not, and the page says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np

from surefoot import tasks
from surefoot.belief import point
from surefoot.deploy.bundle import OnnxPolicy
from surefoot.errors import SurefootError
from surefoot.gate.measures.latent import SOON, Probe, fitted, latents
from surefoot.lab.controls import Button, Choice, Control, Slider, Toggle
from surefoot.lab.jobs import Curves, Job, training
from surefoot.lab.page import Clock, Page, Scene, alone, kept
from surefoot.lab.subject import Subject, load
from surefoot.policy import Driver
from surefoot.report import Axis, Block, Note, Plot, Rule, Series, Table, Text
from surefoot.rng import stream
from surefoot.sim.engine import Engine

EPISODES, LEVEL = 128, 0.95
HIDDEN = 10_000  # added to a robot's number: a seed that no training has
KEPT = 20.0  # s of the estimate that are drawn


@dataclass(frozen=True)
class Asked:
    policy: str
    unknown: str
    """until somebody chooses one: the one that is read best"""
    robot: float = 0.0
    speed: float = 1.0
    reveal: bool = True
    play: bool = True


@dataclass(frozen=True)
class Reader:
    """A probe of one policy's latent, and how far it is off at each time since an episode began."""

    probe: Probe
    half: np.ndarray  # (T, d) half width of the 95 % interval
    known: np.ndarray  # (T, d) R^2 on the episodes it was not fitted to, as `surefoot adapt` has it
    soon: int
    names: tuple[str, ...]

    @staticmethod
    def fit(subject: Subject, policy: OnnxPolicy) -> "Reader":
        """On episodes of the task's own belief, half to fit and half to measure."""
        task, belief, seed = subject.own(policy), subject.belief, subject.seed
        env = tasks.env(task, EPISODES, belief, seed, threads=1)
        e = belief.sample(stream(seed, "inferred"), EPISODES)
        z = latents(policy, env, e, e, env.steps)  # (T, n, latent)
        free, soon = [task.params.index(name) for name in subject.unknowns], min(round(SOON / env.world.dt), len(z) - 1)
        probe, known = fitted(z, e[:, free], task.params.log[free], soon)
        off = np.abs(probe(z[:, EPISODES // 2 :]) - e[EPISODES // 2 :, free])  # (T, n, d)
        quantile = np.nanquantile(off, LEVEL, axis=1, method="higher")
        return Reader(probe, quantile, known, soon, subject.unknowns)

    @property
    def r2(self) -> np.ndarray:
        """(d,) of each unknown when a policy should know it."""
        return np.asarray(np.nan_to_num(self.known[self.soon], nan=-np.inf))


class Adaptation(Page):
    key, title = "adaptation", "Teacher and student"
    about = (
        "The teacher was told its robot's e (masses, friction, delays). Its student infers e from what it has felt: here is what "
        "its latent says of one unknown. Draw a new robot, or change it in mid-flight, and watch."
    )

    def __init__(self, subject: Subject):
        super().__init__(subject)
        self.job: Job | None = None
        self.curves: Curves | None = None
        self.reader: Reader | None = None
        self.asked = Asked(next(iter(self._adaptive()), "none"), subject.unknowns[0])
        self.clock, self.fresh, self.chosen = Clock(), True, False
        self._load()

    def _adaptive(self) -> dict[str, Path]:
        return {k: p for k, p in self.subject.policies().items() if load(p).adapts}

    def controls(self) -> Mapping[str, Control]:
        a, busy = self.asked, self.job is not None and self.job.running
        options = (*self._adaptive(), "none")
        train = {"train": Button("train teacher and student", "surefoot train --adapt rma")}
        return {
            "policy": Choice("policy", options, a.policy if a.policy in options else "none"),
            "unknown": Choice("unknown", self.subject.unknowns, a.unknown),
            "new": Button("new robot", "draw a hidden e"),
            "change": Button("change it now", "another value of this unknown, in mid-flight"),
            "reveal": Toggle("show the truth", a.reveal),
            "play": Toggle("play", a.play),
            "speed": Slider("speed", 0.1, 4.0, a.speed, 0.1),
            "robot": Slider("robot", 0, 999, a.robot, 1),
            **({"stop": Button("stop training")} if busy else train),
        }  # fmt: skip

    def moved(self, name: str) -> None:
        self.chosen = self.chosen or name == "unknown"
        if name == "new":
            self.asked = Asked(**vars(self.asked) | {"robot": (self.asked.robot + 1) % 1000, "play": True})
        if name in ("policy", "new", "robot"):
            self._load()
        if name == "change" and self.reader is not None:
            self.change()
        if name == "train" and not (self.job is not None and self.job.running):
            out = self.subject.folder("adaptive")
            self.job = training(self.subject.reference, out, "--adapt", "rma")
        if name == "stop" and self.job is not None:
            self.job.stop()
        self.fresh = True

    def _load(self) -> None:
        """A robot of the policy that is chosen, at the beginning of an episode."""
        paths = self._adaptive()
        self.policy: OnnxPolicy | None
        if self.asked.policy not in paths:  # a robot that waits
            task, self.policy, self.periods = self.subject.task, None, 0
            self.env = tasks.env(task, 1, tasks.nominal(task), self.subject.seed, threads=1)
            self._drawn()
            return
        policy = load(paths[self.asked.policy])
        if self.reader is None or policy is not self.policy:
            self.reader = None  # fitted by the next slice of work
        self.policy = policy
        seed = HIDDEN + int(self.asked.robot)
        e = self.subject.belief.sample(stream(seed, "lab robot"), 1)[0]
        self.env = tasks.env(self.subject.own(policy), 1, point(self.subject.task.params, e), seed, threads=1)
        self._drawn()
        self.obs, self.drive = self.env.reset(), Driver(policy, 1)
        self.periods, self.since, self.changed = 0, 0, list[float]()
        self.track: list[tuple[float, np.ndarray, np.ndarray, np.ndarray]] = []  # time, estimates, half widths, e

    def _drawn(self) -> None:
        if not isinstance(self.env.world, Engine):
            raise SurefootError("only a mujoco world can be drawn")
        self.model = self.env.world.batch.get_model(0)

    def work(self) -> bool:
        if self.job is not None and not self.job.running and self.job.out is not None:
            self.job.out, self.fresh = None, True
            found = list(self._adaptive())
            if not self.job.failed and found:
                self.asked = Asked(**vars(self.asked) | {"policy": found[-1]})
                self._load()
        if self.policy is not None and self.reader is None:
            self.reader = Reader.fit(self.subject, self.policy)
            if not self.chosen:
                best = self.reader.names[int(np.argmax(self.reader.r2))]
                self.asked = Asked(**vars(self.asked) | {"unknown": best})
            self.clock, self.fresh = Clock(), True
        if self.policy is not None and self.asked.play:
            self.advance(self.clock.periods(self.asked.speed, self.env.world.dt))
        else:
            self.clock = Clock()
        fresh, self.fresh = self.fresh, False
        return fresh or (self.job is not None and self.job.running)

    def advance(self, periods: int) -> None:
        """Fly on; every control period the latent is read."""
        if self.policy is None or self.reader is None:
            return
        free = [self.subject.task.params.index(name) for name in self.reader.names]
        for _ in range(periods):
            z = self.policy.latent(self.obs["actor"])
            k = min(self.since, len(self.reader.half) - 1)
            e = self.env.world.state.e[0, free].copy()
            self.track.append((self.periods * self.env.world.dt, self.reader.probe(z)[0], self.reader.half[k], e))
            step = self.env.step(self.drive(self.obs["actor"]))
            self.drive.begin(step.final)
            self.obs, self.periods, self.since = step.obs, self.periods + 1, self.since + 1
            if step.terminated[0] or step.truncated[0]:  # the same robot begins another episode
                self.since = 0
            self.fresh = True
        longest = int(KEPT / self.env.world.dt)
        self.track = self.track[-longest:]

    def change(self) -> None:
        """Another value of the unknown that is shown, as far away as its range allows; the state stays."""
        i = self.subject.task.params.index(self.asked.unknown)
        e, belief = self.env.world.state.e[0].copy(), self.subject.belief
        share = belief.share(e)[i]
        e[i] = belief.at(np.full(len(e), 0.9 if share < 0.5 else 0.1))[i]
        self.env.world.set_params(np.arange(1), e[None])
        self.env.belief = point(self.subject.task.params, e)  # of its next episodes
        self.changed.append(self.periods * self.env.world.dt)

    def finish(self) -> None:
        """An episode of the robot that is drawn."""
        self.work()
        if self.policy is not None:
            self.advance(self.env.steps - 1)

    def blocks(self) -> Sequence[Block]:
        out: list[Block] = []
        if self.job is not None:
            tone = "bad" if self.job.failed not in ("", "stopped") else "quiet"
            out.append(Text(self._progress() + self.job.words(), tone))  # type: ignore[arg-type]
        if self.policy is None:
            return [*out, Note("no adaptive policy of this task is here yet: train a teacher and its student")]
        if self.reader is None or not self.track:
            return [*out, Text(f"fitting a probe to {EPISODES} episodes ...", "quiet")]
        return [*out, self._sentence(), self._plot(), self._table()]

    def _progress(self) -> str:
        if self.job is None or not self.job.running or self.job.out is None:
            return ""
        parts = []
        for name in ("teacher", "student"):
            if (self.job.out / name / "run.json").exists():
                curves = Curves(self.job.out / name)
                curves.fresh()
                parts.append(f"{name} {100 * (curves.share or 0):.0f} %")
        return ", ".join(parts) + " · " if parts else ""

    def now(self) -> tuple[float, float, float]:
        """The estimate of the unknown that is shown, its half width, and the truth."""
        assert self.reader is not None
        j = self.reader.names.index(self.asked.unknown)
        _, estimate, half, e = self.track[-1]
        return float(estimate[j]), float(half[j]), float(e[j])

    def _sentence(self) -> Text:
        estimate, half, e = self.now()
        p = self.subject.task.params[self.asked.unknown]
        recent = bool(self.changed) and self.track[-1][0] - self.changed[-1] < 2.0
        truth = f"; it is {e:.4g}" if self.asked.reveal else ""
        sure = "it has just changed: the interval does not hold yet" if recent else "95 % of robots within it"
        return Text(f"{p.name}: {estimate:.4g} ± {half:.2g} {p.unit} ({sure}){truth}".replace("  ", " "))

    def _plot(self) -> Plot:
        assert self.reader is not None
        j, p = self.reader.names.index(self.asked.unknown), self.subject.task.params[self.asked.unknown]
        t = [row[0] for row in self.track]
        y, half, e = np.array([[row[1][j], row[2][j], row[3][j]] for row in self.track]).T
        series = [Series.of("read from the latent", t, y, y - half, y + half)]
        if self.asked.reveal:
            series.append(Series.of("truth", t, e, style="step", tone="bad"))
        rules = tuple(Rule(at, "x", "changed") for at in self.changed if at >= t[0])
        low, high = (
            float(b[self.subject.task.params.index(p.name)])
            for b in (self.subject.belief.low, self.subject.belief.high)
        )
        margin = 0.3 * (high - low)
        return Plot(
            f"{p.name}, inferred",
            tuple(series),
            Axis("time", "s"),
            Axis(p.name, p.unit, low=low - margin, high=high + margin),
            rules,
        )

    def _table(self) -> Table:
        """How much of each unknown the latent tells at all."""
        assert self.reader is not None
        cell = lambda x: f"{x:.2f}" if np.isfinite(x) else "-"  # noqa: E731
        rows = [[n, *map(cell, pair)] for n, *pair in zip(self.reader.names, self.reader.r2, self.reader.known[-1])]
        strong = [self.reader.names.index(self.asked.unknown)]
        title = f"What the latent tells of {EPISODES // 2} robots (R2; 1: everything, 0 or less: nothing)"
        return Table.of(["unknown", f"after {SOON:g} s", "at the end"], rows, title, strong)

    def scene(self) -> Scene:
        t = self.periods * self.env.world.dt
        q = self.env.world.state.q.copy()
        return Scene(self.model, q, kept(self.model, q, alone(self.model)), room=alone(self.model), moved=t)

    def command(self) -> str:
        if self.policy is None:
            return f"surefoot train {quote(self.subject.reference)} --adapt rma --out {quote(str(self.subject.folder('adaptive')))}"
        path = quote(str(self._adaptive()[self.asked.policy]))
        seed = "" if self.subject.seed == 1 else f" --seed {self.subject.seed}"
        return f"surefoot adapt {path}{self.subject.flag} --show {self.asked.unknown} --episodes {EPISODES}{seed}"

    def close(self) -> None:
        if self.job is not None:
            self.job.close()
