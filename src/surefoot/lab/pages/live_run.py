"""A run: its curves as it learns, its robot under your hands, and what gate and logs say of it.

curves    rows of metrics.jsonl, a line for each reward term; reading them changes no bit of the training
robot     x' = f(x, pi(obs) + a push, e): e follows its sliders at once, the policy is read again when it is saved
a push    J(p)^T F at the point p that was clicked, along the camera's ray, for PUSH seconds
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import mujoco
import numpy as np

from surefoot import shipped, tasks
from surefoot.belief import point
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.lab.controls import Button, Choice, Control, Slider, Toggle
from surefoot.lab.jobs import Curves, Job, training
from surefoot.lab.page import Clock, Page, Scene, alone, kept
from surefoot.lab.reports import WORK, Reports
from surefoot.lab.subject import Subject, load
from surefoot.log import Log
from surefoot.policy import Driver, Policy, Zero
from surefoot.real2sim.replay import replay
from surefoot.report import Axis, Block, Note, Plot, Series, Table, Text
from surefoot.sim.engine import Engine
from surefoot.tasks.rollout import contract
from surefoot.world import Chance, OnForce, State

PUSH = 0.1  # s
MOST = 400  # points of a curve that are drawn
SLIDERS = 12  # unknowns with a slider of their own
LONGEST = 0.6  # of the model's extent: the arrow of a contact force of its weight


class Poke(OnForce):
    """A force on the first robot, for a while."""

    def __init__(self) -> None:
        self.force, self.left = np.zeros(0), 0

    def begin(self, force: np.ndarray, periods: int) -> None:
        self.force, self.left = force, max(1, periods)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        out = np.zeros((len(x.q), x.v.shape[1]))
        if self.left:
            out[0], self.left = self.force, self.left - 1
        return out


@dataclass(frozen=True)
class Asked:
    e: tuple[float, ...]
    push: float = 1.0
    curve: str = "reward terms"
    log: str = "none"
    speed: float = 1.0
    play: bool = True
    forces: bool = True


class LiveRun(Page):
    key, title = "run", "A run"
    about = "Watch a training term by term, push its robot with the mouse, and turn its unknowns while it moves."

    def __init__(self, subject: Subject):
        super().__init__(subject)
        self.job: Job | None = None
        self.folder = None if subject.run is None else _folder(subject.run)
        self.said = None if subject.run is None else Reports(subject, subject.run)
        self.curves = None if self.folder is None else Curves(self.folder)
        self.names = subject.unknowns[:SLIDERS]
        p = subject.task.params
        self.asked = Asked(tuple(float(p[name].nominal) for name in self.names))
        self.clock, self.fresh, self.replayed = Clock(), True, list[Block]()
        self.policy_file = 0.0
        self._load()

    def controls(self) -> Mapping[str, Control]:
        a, p = self.asked, self.subject.task.params
        e = {
            f"e_{name}": Slider(f"{name} {p[name].unit}".strip(), p[name].low, p[name].high, value, about=p[name].about)
            for name, value in zip(self.names, a.e)
        }
        return {
            **self._trainer(),
            "curve": Choice("curves", ("reward terms", "success", "return", "learning"), a.curve),
            "play": Toggle("play", a.play),
            "reset": Button("reset", "begin an episode"),
            "speed": Slider("speed", 0.1, 4.0, a.speed, 0.1),
            "push": Slider("push, times its weight", 0.1, 3.0, a.push, 0.1, "of a click on the robot"),
            "poke": Button("push it", "as a click on the middle of the robot would"),
            "forces": Toggle("contact forces", a.forces),
            **({} if self.said is None else self.said.controls(a.log)),
            "log": Choice("log over its replay", ("none", *self._logs()), a.log),
            "nominal": Button("all unknowns as in the model"),
            **e,
        }  # fmt: skip

    def _trainer(self) -> dict[str, Control]:
        if self.job is None or not self.job.running:
            return {"train": Button("train", "surefoot train, into a folder of the lab")}
        pause = Button("go on" if self.job.paused else "pause", "the process waits; its bits stay the same")
        return {"pause": pause, "stop": Button("stop", "saves where it stands")}

    def _logs(self) -> tuple[str, ...]:
        return () if self.said is None else tuple(self.said.logs())

    def set(self, name: str, value: Any) -> None:
        if not name.startswith("e_"):
            super().set(name, value)
            return
        found = self._control(name).accept(value)
        if found is not None:
            i = self.names.index(name.removeprefix("e_"))
            self.asked = replace(self.asked, e=(*self.asked.e[:i], found, *self.asked.e[i + 1 :]))
            self.moved(name)

    def moved(self, name: str) -> None:
        if name.startswith("e_") or name == "nominal":
            if name == "nominal":
                self.asked = replace(
                    self.asked, e=tuple(float(self.subject.task.params[n].nominal) for n in self.names)
                )
            self._turn()
        actions = {"reset": self._reset, "poke": self._poke, "train": self._train, "log": self._replay}
        if name in actions:
            actions[name]()
        if self.said is not None:
            self.said.last = None
            if name in WORK:
                self.said.press(name, self.asked.log)
        if self.job is not None and name in ("pause", "stop"):
            self.job.stop() if name == "stop" else self.job.go_on() if self.job.paused else self.job.pause()
        self.fresh = True

    @property
    def e(self) -> np.ndarray:
        return self.subject.task.params.vector(dict(zip(self.names, self.asked.e)))

    def _turn(self) -> None:
        """The world has another e from now on; the state stays."""
        self.env.world.set_params(np.arange(1), self.e[None])
        self.env.belief = point(self.subject.task.params, self.e)
        self._replay()

    def _load(self) -> None:
        """The robot, driven by the newest policy of the run; by nobody where there is none yet."""
        policy: Policy | None = None
        if self.folder is not None and (self.folder / bundle.NAME).exists():
            self.policy_file = (self.folder / bundle.NAME).stat().st_mtime
            policy = load(self.folder)
        task = self.subject.task if policy is None else tasks.for_contract(self.subject.task, policy.contract)
        self.hand = Poke()
        self.env = tasks.env(task, 1, point(task.params, self.e), self.subject.seed, threads=1, terms=(self.hand,))
        assert isinstance(self.env.world, Engine)
        self.driven = policy is not None
        self.policy: Policy = policy or Zero(contract(task, self.env.world))
        self.model: mujoco.MjModel = self.env.world.batch.get_model(0)
        self.data = mujoco.MjData(self.model)
        self.episodes = list[tuple[int, bool, str]]()
        self._reset()

    def _reset(self) -> None:
        self.obs, self.drive, self.periods = self.env.reset(), Driver(self.policy, 1), 0

    def _train(self) -> None:
        if self.job is None or not self.job.running:
            self.folder = self.subject.folder("live")
            self.job, self.curves = training(self.subject.reference, self.folder), None
            if self.said is not None:
                self.said.close()
            self.said = Reports(self.subject, self.folder)
            self.asked, self.replayed = replace(self.asked, log="none"), []

    def work(self) -> bool:
        if self.folder is not None and self.curves is None and (self.folder / "run.json").exists():
            self.curves = Curves(self.folder)
        if self.curves is not None and self.curves.fresh():
            self.fresh = True
        file = None if self.folder is None else self.folder / bundle.NAME
        if file is not None and file.exists() and file.stat().st_mtime != self.policy_file:
            self._load()
        if self.said is not None and self.said.fresh():
            self.fresh = True
        if self.asked.play:
            self.advance(self.clock.periods(self.asked.speed, self.env.world.dt))
        else:
            self.clock = Clock()
        fresh, self.fresh = self.fresh, False
        return fresh

    def advance(self, periods: int) -> None:
        for _ in range(periods):
            step = self.env.step(self.drive(self.obs["actor"]))
            self.drive.begin(step.final)
            self.obs, self.periods, self.fresh = step.obs, self.periods + 1, True
            if step.episodes is not None and len(step.episodes.ids):
                done = (int(step.episodes.lengths[0]), bool(step.episodes.success[0]), step.episodes.reason[0])
                self.episodes = [*self.episodes[-19:], done]

    def _measured(self) -> mujoco.MjData:
        """The engine's data of the robot, with places and contacts at its state."""
        assert isinstance(self.env.world, Engine)
        self.env.world.batch.get_model(0, self.model)
        self.env.world.batch.get_data(0, self.data)
        mujoco.mj_forward(self.model, self.data)
        return self.data

    def clicked(self, robot: int, origin: np.ndarray, direction: np.ndarray) -> None:
        """Push where the ray meets the robot."""
        data, geom = self._measured(), np.full(1, -1, np.int32)
        shown = kept(self.model, self.env.world.state.q, alone(self.model))[0]
        origin = origin - np.append(shown, 0.0)  # the ray is one of the picture, in which the robot is kept
        ray = direction / np.linalg.norm(direction)
        far = mujoco.mj_ray(self.model, data, origin, ray, None, 0, -1, geom, None)
        if far >= 0 and geom[0] >= 0 and self.model.geom_bodyid[geom[0]] > 0:
            self.push(int(self.model.geom_bodyid[geom[0]]), origin + far * ray, ray)
        else:
            self._poke(ray)

    def _poke(self, ray: np.ndarray | None = None) -> None:
        """Push the body nearest to the centre of mass of the robot."""
        data = self._measured()
        body = 1 + int(np.linalg.norm(data.xipos[1:] - data.subtree_com[0], axis=1).argmin())
        self.push(body, data.xipos[body], np.array([1.0, 0.0, 0.0]) if ray is None else ray)

    def push(self, body: int, at: np.ndarray, way: np.ndarray) -> None:
        """A force of so many times the robot's weight on a body, at a point, for PUSH seconds."""
        data = self._measured()
        jacobian = np.zeros((3, self.model.nv))
        mujoco.mj_jac(self.model, data, jacobian, None, at, body)
        force = self.asked.push * float(self.model.body_subtreemass[0]) * 9.81 * way / np.linalg.norm(way)
        self.hand.begin(jacobian.T @ force, round(PUSH / self.env.world.dt))

    def blocks(self) -> Sequence[Block]:
        out: list[Block] = []
        if self.job is not None:
            share = None if self.curves is None else self.curves.share
            done = "" if share is None or not self.job.running else f"{100 * share:.0f} % · "
            out.append(Text(done + self.job.words(), "bad" if self.job.failed not in ("", "stopped") else "quiet"))
        if self.curves is not None and self.curves.rows:
            out.append(self._curves(self.curves))
        elif self.job is None:
            out.append(Note("no training is here to watch: give the lab a run, or train"))
        return [*out, self._last(), *self.replayed, *([] if self.said is None else self.said.words())]

    def reports(self) -> tuple[Block, ...]:
        """What the gate and the doctor say of it."""
        return () if self.said is None else self.said.blocks()

    def _curves(self, curves: Curves) -> Plot:
        wanted = {"reward terms": curves.names("reward/"), "success": ["success", "judge/success"], "return": ["return"],
                  "learning": ["kl", "value_loss", "entropy"]}[self.asked.curve]  # fmt: skip
        series = []
        for name in wanted:
            x, y = curves.column(name)
            step = max(1, len(x) // MOST)
            low, high = (curves.column(f"judge/{k}")[1] if name == "judge/success" else () for k in ("low", "high"))
            if x:
                ends = (low[::step], high[::step]) if low and len(low) == len(x) == len(high) else ((), ())
                series.append(Series.of(name.removeprefix("reward/"), x[::step], y[::step], *ends))
        return Plot(f"Training: {self.asked.curve}", tuple(series), Axis("env steps"), Axis(""))

    def _last(self) -> Block:
        """What became of the last episodes under your hands."""
        who = "the policy" if self.driven else "nobody: no policy is saved yet"
        rows = [
            [f"{n * self.env.world.dt:.2f} s", "succeeded" if good else why]
            for n, good, why in self.episodes[-3:][::-1]
        ]
        return Table.of(
            ["lasted", "ended"], rows, f"Driven by {who}; episode second {self.periods * self.env.world.dt:.1f}"
        )

    def _replay(self) -> None:
        """The log that is chosen, over the model's replay of its controls under the e of the sliders."""
        self.replayed = []
        if self.asked.log == "none" or self.said is None:
            return
        try:
            log = Log.read(self.said.log(self.asked.log))
            found = replay(tasks.env(self.subject.task, 1, threads=1).world, log, self.e)
        except SurefootError as error:
            self.replayed = [Note(str(error), warning=True)]
            return
        for s in found.scores[:2]:
            step = max(1, len(found.time) // MOST)
            lines = [
                Series.of(f"{name}, component 1", found.time[::step], data[s.signal][::step, 0], style=style)
                for name, data, style in (("log", found.measured, "line"), ("replay", found.predicted, "dashed"))
            ]
            title = f"{self.asked.log}: {s.signal}, error {s.rmse:.3g} {s.unit}, R2 {s.r2:.3f}"
            self.replayed.append(Plot(title, tuple(lines), Axis("time", "s"), Axis(s.signal, s.unit)))

    def arrows(self) -> np.ndarray:
        """(k, 2, 3) contact forces on the robot, as long as they are strong."""
        data, found, force = self._measured(), [], np.zeros(6)
        weight = max(float(self.model.body_subtreemass[0]) * 9.81, 1e-9)
        for i in range(data.ncon):
            mujoco.mj_contactForce(self.model, data, i, force)
            frame, at = data.contact[i].frame.reshape(3, 3), data.contact[i].pos.copy()
            way = frame.T @ force[:3] * LONGEST * float(self.model.stat.extent) / weight
            found.append([at, at + way])
        return np.array(found).reshape(-1, 2, 3)

    def scene(self) -> Scene:
        arrows = self.arrows() if self.asked.forces else np.zeros((0, 2, 3))
        t, q = self.periods * self.env.world.dt, self.env.world.state.q.copy()
        at = kept(self.model, q, alone(self.model))
        return Scene(self.model, q, at, arrows=arrows + np.pad(at, ((0, 0), (0, 1))), room=alone(self.model), moved=t)

    def command(self) -> str:
        last = None if self.said is None else self.said.last
        if last is not None:
            return last.command
        if self.job is not None:
            return self.job.command
        if self.subject.run is None:
            return f"surefoot train {quote(self.subject.reference)} --out {quote(str(self.subject.folder('live')))}"
        if self.said is not None and self.asked.log != "none" and (self.e == self.subject.task.params.nominal).all():
            return f"surefoot replay {quote(self.subject.reference)} {quote(str(self.said.log(self.asked.log)))}"
        p = self.subject.task.params
        moved = [f" --range {n}={v!r}" for n, v in zip(self.names, self.asked.e) if v != p[n].nominal]
        return f"surefoot play {quote(str(self.subject.run))}{self.subject.flag}{''.join(moved)}"

    def close(self) -> None:
        for work in (self.job, self.said):
            if work is not None:
                work.close()


def _folder(run: Path) -> Path:
    path = shipped.located(run)
    return path if path.is_dir() else path.parent
