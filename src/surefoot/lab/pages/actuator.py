"""Actuator: the torque a servo is asked for, the torque its model gives, and the torque a real motor gives.

    commanded  kp (u - q) - kd q'                      ideal  the same within the model's limits
    real       a current loop's lag, saturation, Stribeck friction (real2sim/actuator/fake_motor.py)
    net        ideal + r, r learned from another log of this motor by `surefoot actuator`

Errors are root mean squares over periods of a log that no net has seen; their intervals are over blocks of half a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.gate.statistics import mean
from surefoot.lab.controls import Button, Choice, Control, Slider, Toggle
from surefoot.lab.jobs import Job
from surefoot.lab.page import Clock, Page, Scene
from surefoot.lab.subject import Subject
from surefoot.log import Log
from surefoot.real2sim.actuator.dataset import model_forces
from surefoot.real2sim.actuator.fake_motor import Motor, model, recorded
from surefoot.real2sim.signals import starts
from surefoot.report import Axis, Block, Note, Plot, Rule, Series, Table, Text
from surefoot.sim.learned import load
from surefoot.sim.learned.actuator_net import ActuatorNet
from surefoot.tasks.ready.arm import JOINTS, KD, KP, xml

SECONDS, LESSON, BLOCK = 6.0, 30.0, 0.5  # s: of the log that is judged on, of the one that is learned from, of a block
SHOWN = 2.0  # s of the log that are drawn
UNSEEN = 1000  # added to the seed: the log that is shown is never the one that was learned from


@dataclass(frozen=True)
class Asked:
    lag: float = 8.0
    limit: float = 1.0
    friction: float = 1.0
    joint: str = JOINTS[0]
    seed: float = 1.0
    net: bool = True
    play: bool = True


@dataclass(frozen=True)
class Torques:
    """Means over each period, (T, 2) N m, at times (T,)."""

    time: np.ndarray
    commanded: np.ndarray
    ideal: np.ndarray
    real: np.ndarray
    net: np.ndarray | None

    def error(self, which: str, joint: int) -> tuple[float, float, float]:
        """Root mean square of what a model lacks, with a 95 % interval over blocks."""
        d = (getattr(self, which) - self.real)[:, joint]
        size = round(BLOCK / (self.time[1] - self.time[0]))
        blocks = np.square(d[: len(d) // size * size]).reshape(-1, size).mean(1)
        it = mean(blocks)
        low, high = (it.value if x is None else max(x, 0.0) for x in (it.low, it.high))
        return float(np.sqrt(it.value)), float(np.sqrt(low)), float(np.sqrt(high))


def motor_of(lag: float, limit: float, friction: float) -> Motor:
    """A motor of so many ms of lag, with multiples of the usual torque limit and friction."""
    usual = Motor()
    scaled = lambda values, k: tuple(k * v for v in values)  # noqa: E731
    return Motor(
        lag=lag / 1000, limit=scaled(usual.limit, limit), coulomb=scaled(usual.coulomb, friction),
        static=scaled(usual.static, friction),
    )  # fmt: skip


def torques(log: Log, net: ActuatorNet | None) -> Torques:
    """What a log's motor did, and what models of it say."""
    world = model()
    x, u, real = starts(world, log, np.arange(len(log))), log["control"], log["joint_torque"]
    ideal = model_forces(world, np.zeros(0), log, x, u)
    ends = [np.array(KP) * (u[:-1] - x.q[rows]) - np.array(KD) * x.v[rows] for rows in (slice(0, -1), slice(1, None))]
    with_net = None if net is None else ideal + net.along(net.features(x.q, x.v, u)[None, :-1])[0]
    keep = slice(1, None)  # before the first period nothing had acted
    commanded, measured = 0.5 * (ends[0] + ends[1]), 0.5 * (real[:-1] + real[1:])
    own = None if with_net is None else with_net[keep]
    return Torques(log.time[1:-1], commanded[keep], ideal[keep], measured[keep], own)


class Actuator(Page):
    key, title = "actuator", "Actuator"
    about = (
        "A servo is commanded a torque, its ideal model gives one, its real motor another: it lags, saturates and rubs. A small "
        "net learns the difference from a log. The motor is simulated; its log is of another motion than the one that is shown."
    )

    def __init__(self, subject: Subject):
        super().__init__(subject)
        self.asked = Asked()
        self.home = subject.home / "actuator"
        self.job: Job | None = None
        self.clock, self.t, self.arm = Clock(), 0.0, model().model
        self.learned = ""  # the motor that the net was learned on
        self.net = self._kept()
        self._record()

    def controls(self) -> Mapping[str, Control]:
        a, busy = self.asked, self.job is not None and self.job.running
        train = {"train": Button("learn the net", f"from {LESSON:g} s of another log of this motor")}
        return {
            "lag": Slider("lag, ms", 4.0, 40.0, a.lag, 1.0, "time constant of the current loop"),
            "limit": Slider("torque limit, multiple", 0.3, 3.0, a.limit, 0.1),
            "friction": Slider("friction, multiple", 0.0, 3.0, a.friction, 0.1),
            "joint": Choice("joint", JOINTS, a.joint),
            "seed": Slider("motion", 0, 99, a.seed, 1),
            "net": Toggle("actuator net", a.net),
            "play": Toggle("play", a.play),
            **({"stop": Button("stop learning")} if busy else train),
        }  # fmt: skip

    def moved(self, name: str) -> None:
        if name in ("lag", "limit", "friction", "seed"):
            self._record()
        if name == "train":
            self._train()
        if name == "stop" and self.job is not None:
            self.job.stop()
        self._torques()

    def _record(self) -> None:
        a = self.asked
        self.motor = motor_of(a.lag, a.limit, a.friction)
        self.log = recorded(UNSEEN + int(a.seed), SECONDS, motor=self.motor, noise=0.0)
        self._torques()

    def _torques(self) -> None:
        self.found, self.fresh = torques(self.log, self.net if self.asked.net else None), True

    @property
    def words(self) -> str:
        a = self.asked
        return f"lag {a.lag:g} ms, torque limit {a.limit:g}, friction {a.friction:g}"

    def _train(self) -> None:
        if self.job is not None and self.job.running:
            return
        names = {k: self.home / k for k in ("arm.xml", "log.npz", "net.onnx", "motor.txt")}
        self.home.mkdir(parents=True, exist_ok=True)
        files.write(names["arm.xml"], xml().encode())
        files.write(names["motor.txt"], self.words.encode())
        recorded(int(self.asked.seed), LESSON, motor=self.motor).save(names["log.npz"])
        args = ["actuator", str(names["arm.xml"]), str(names["log.npz"]), "--out", str(names["net.onnx"])]
        self.job = Job(args, names["net.onnx"])

    def _kept(self) -> ActuatorNet | None:
        """The net that was learned last, in this visit or before."""
        try:
            net = load(self.home / "net.onnx", model().model)
            self.learned = (self.home / "motor.txt").read_text()[:200]
        except (SurefootError, OSError):
            return None
        return net if isinstance(net, ActuatorNet) else None

    def work(self) -> bool:
        if self.job is not None and not self.job.running and self.job.out is not None:
            if not self.job.failed:
                self.net = self._kept()
            self._torques()
            self.job.out = None  # taken in
        if self.asked.play:
            due = self.clock.due(1.0)
            self.clock.spend(due)
            self.t, self.fresh = (self.t + due) % SHOWN, True
        else:
            self.clock = Clock()
        if self.job is not None and self.job.running:
            return True
        fresh, self.fresh = self.fresh, False
        return fresh

    def blocks(self) -> Sequence[Block]:
        out: list[Block] = []
        if self.job is not None:
            out.append(Text(self.job.words(), "bad" if self.job.failed not in ("", "stopped") else "quiet"))
        if self.net is None:
            out.append(Note("no net has been learned yet"))
        elif self.asked.net and self.learned != self.words:
            out.append(Note(f"the net was learned on another motor: {self.learned}", warning=True))
        return [*out, self._table(), self._plot()]

    def _shown(self) -> dict[str, str]:
        names = {"commanded": "commanded", "ideal": "ideal: the model's servo"}
        return names | ({"net": "ideal + net"} if self.found.net is not None else {})

    def _table(self) -> Table:
        cell = lambda r: f"{r[0]:.3f} ({r[1]:.3f} - {r[2]:.3f})"  # noqa: E731
        rows = [
            [label, *(cell(self.found.error(k, j)) for j in range(len(JOINTS)))] for k, label in self._shown().items()
        ]
        return Table.of(["error, N m (95 %)", *JOINTS], rows, "Against the real torque, on motions no net has seen")

    def _plot(self) -> Plot:
        j, series = JOINTS.index(self.asked.joint), []
        window = self.found.time <= SHOWN
        for k, label in {"real": "real", **self._shown()}.items():
            style = "dashed" if k == "commanded" else "line"
            series.append(Series.of(label, self.found.time[window], getattr(self.found, k)[window, j], style=style))
        seen = np.concatenate([s.y for s in series if s.name != "commanded"])  # which may ask for far too much
        low, high = float(seen.min()), float(seen.max())
        pad = 0.15 * (high - low) + 1e-3
        axis, now = Axis("torque", "N m", low=low - pad, high=high + pad), Rule(min(self.t, SHOWN), "x", "now")
        return Plot(f"Torque of the {self.asked.joint}", tuple(series), Axis("time", "s"), axis, (now,))

    def scene(self) -> Scene:
        """The arm, as the log has it."""
        k = int(np.searchsorted(self.log.time, self.t).clip(0, len(self.log) - 1))
        return Scene(self.arm, self.log["joint_pos"][[k]], np.zeros((1, 2)), moved=self.t)

    def command(self) -> str:
        return self.printed()

    def close(self) -> None:
        if self.job is not None:
            self.job.close()
