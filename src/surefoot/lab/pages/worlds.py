"""Many worlds: one policy, n robots, each with its own e drawn from p(e), stepped side by side.

    e_i ~ p(e),   x_i' = f(x_i, pi(obs_i), e_i)        success rate: k of n first episodes, exact 95 % interval

Every robot has one episode, as in `surefoot eval`, and the same draws: a robot that has ended stays where it was. Failures end
early, so while some still run the rate is only bounded: k / n <= rate <= (k + running) / n.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.errors import SurefootError
from surefoot.gate.runs import Runs, separation
from surefoot.lab.controls import Button, Choice, Control, Slider, Toggle
from surefoot.lab.page import BLUE, GREEN, RED, SLICE, YELLOW, Clock, Page, Scene, kept, squares
from surefoot.lab.subject import Subject, flags, load, narrowed
from surefoot.policy import Policy, Zero
from surefoot.report import Axis, Block, Column, Plot, Series, Table, Text
from surefoot.sim.engine import Engine
from surefoot.tasks.rollout import Trials, contract
from surefoot.verdict import clopper_pearson

COUNTS = ("16", "36", "64", "100")
OUTCOME = "outcome"


@dataclass(frozen=True)
class Asked:
    policy: str
    robots: str = "64"
    spread: float = 1.0
    seed: float = 1.0
    speed: float = 1.0
    colour: str = OUTCOME
    robot: float = 0.0
    follow: bool = False
    play: bool = True


class Worlds(Page):
    key, title = "worlds", "Many worlds"
    about = (
        "One policy drives many robots at once. Each has an e of its own (its masses, friction, delays), drawn from p(e). Green: "
        "it succeeded; red: it failed; blue: it still runs. Click one to see its e."
    )

    def __init__(self, subject: Subject):
        super().__init__(subject)
        self.options = ("none", *subject.policies())
        self.asked = Asked(self.options[-1] if len(self.options) == 1 else self.options[1], seed=float(subject.seed))
        self.clock = Clock()
        self._begin()

    def controls(self) -> Mapping[str, Control]:
        a, n = self.asked, int(self.asked.robots)
        return {
            "policy": Choice("policy", self.options, a.policy, "none: nobody drives"),
            "robots": Choice("robots", COUNTS, a.robots),
            "spread": Slider("spread of e", 0.0, 2.0, a.spread, 0.05, "0: all as the model; 1: the task's own ranges; 2: as far as parameters go"),
            "speed": Slider("speed", 0.1, 4.0, a.speed, 0.1),
            "play": Toggle("play", a.play),
            "step": Button("one step", "advance every robot by one control period"),
            "again": Button("new worlds", "draw other e, from the next seed"),
            "colour": Choice("colour by", (OUTCOME, *self.subject.unknowns), a.colour),
            "robot": Slider("robot", 0, n - 1, min(a.robot, n - 1), 1),
            "follow": Toggle("follow it", a.follow),
            "seed": Slider("seed", 0, 9999, a.seed, 1),
        }  # fmt: skip

    def moved(self, name: str) -> None:
        if name == "again":
            self.asked = Asked(**vars(self.asked) | {"seed": (self.asked.seed + 1) % 10000, "play": True})
        if name == "step":
            self.advance(1)
        if name in ("policy", "robots", "spread", "seed", "again"):
            self._begin()
        self.fresh = True

    def _begin(self) -> None:
        a, subject = self.asked, self.subject
        policy: Policy | None = None
        if a.policy != "none":
            policy = load(subject.policies()[a.policy])
        task = subject.task if policy is None else tasks.for_contract(subject.task, policy.contract)
        self.belief = narrowed(subject.belief, a.spread)
        self.env = tasks.env(task, int(a.robots), self.belief, int(a.seed), threads=1)
        if not isinstance(self.env.world, Engine):
            raise SurefootError("only a mujoco world can be drawn")
        self.model: mujoco.MjModel = self.env.world.batch.get_model(0)
        self.trials = Trials(policy or Zero(contract(task, self.env.world)), self.env)
        self.q = self.env.world.state.q.copy()
        (self.at, self.room), self.fresh = squares(self.model, self.q), True

    def advance(self, periods: int) -> None:
        """Step every robot that has not ended."""
        for _ in range(periods):
            if self.trials.over:
                return
            running = ~self.trials.done
            before = self.env.world.state.q.copy()
            self.trials.step()
            now = np.where(self.trials.done[:, None], before, self.env.world.state.q)
            self.q[running] = now[running]  # of one that has just ended: its last moment, before the reset
            self.fresh = True

    def work(self) -> bool:
        dt, a = self.env.world.dt, self.asked
        if a.play and not self.trials.over:
            self.advance(min(self.clock.periods(a.speed, dt), max(1, int(SLICE * 25 / dt))))
        else:
            self.clock = Clock()
        fresh, self.fresh = self.fresh, False
        return fresh

    def finish(self) -> None:
        self.advance(self.env.steps)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Robots that succeeded, failed, and still run."""
        done, good = self.trials.done, self.trials.success[-1]
        return int((done & good).sum()), int((done & ~good).sum()), int((~done).sum())

    def blocks(self) -> Sequence[Block]:
        good, bad, running = self.counts
        n, t = self.env.n, self.trials.periods * self.env.world.dt
        out: list[Block] = [Text(f"t = {t:.2f} s: {good} succeeded, {bad} failed, {running} running")]
        if running:
            words = f"success rate: at least {100 * good / n:.1f} %, at most {100 * (good + running) / n:.1f} %"
            out.append(Text(words, "quiet"))
        else:
            low, high = clopper_pearson(good, n)
            words = f"success {100 * good / n:.1f} % ({100 * low:.1f} - {100 * high:.1f}, exact 95 %)"
            out.append(Text(words, "good" if good > bad else "bad"))
            found = separation(Runs.of(self.trials.evaluations()[-1], self.env), self.subject.task.params.names)
            out += [Text(found.sentence(self.subject.task.params))] if found else []
        return [*out, self._plot(), self._table()]

    def _plot(self) -> Plot:
        """Robots by two unknowns, coloured by what became of them."""
        names = self.subject.unknowns or self.subject.task.params.names[:2]
        first = self.asked.colour if self.asked.colour in names else names[0]
        second = next((n for n in names if n != first), first)
        p, e = self.subject.task.params, self.trials.e
        x, y = (e[:, p.index(k)] for k in (first, second))
        done, success = self.trials.done, self.trials.success[-1]
        groups = {
            "succeeded": (done & success, "good"),
            "failed": (done & ~success, "bad"),
            "running": (~done, "quiet"),
        }
        series = [Series.of(k, x[m], y[m], style="dots", tone=tone) for k, (m, tone) in groups.items() if m.any()]
        i = int(self.asked.robot)
        series.append(Series.of(f"robot {i}", x[i : i + 1], y[i : i + 1], style="points"))
        return Plot("Where they fail", tuple(series), self._axis(first), self._axis(second))

    def _axis(self, name: str) -> Axis:
        i, spans = self.subject.task.params.index(name), (self.subject.belief, self.belief)
        low, high = min(float(b.low[i]) for b in spans), max(float(b.high[i]) for b in spans)
        return Axis(name, self.subject.task.params[name].unit, low=low, high=high)

    def _table(self) -> Table:
        """e of the robot that was picked."""
        i, p = int(self.asked.robot), self.subject.task.params
        done, word = self.trials.done[i], "succeeded" if self.trials.success[-1][i] else "failed"
        share = self.subject.belief.share(self.trials.e[i])
        rows = [
            [q.name, float(v), q.unit, q.nominal, f"{100 * s:.0f} %"] for q, v, s in zip(p, self.trials.e[i], share)
        ]
        head = ["unknown", Column("e", form=".4g"), "unit", Column("model", form=".4g"), "of its range"]
        return Table.of(head, rows, f"Robot {i}: {word if done else 'running'}")

    def scene(self) -> Scene:
        i = int(self.asked.robot)
        at = self.at - (self.at[i] if self.asked.follow else 0.0)
        at = at + kept(self.model, self.q, self.room)  # robots that walk stay in their squares
        return Scene(self.model, self.q, at, self._colours(), moved=self.trials.periods * self.env.world.dt)

    def _colours(self) -> np.ndarray:
        done, success = self.trials.done, self.trials.success[-1]
        if self.asked.colour == OUTCOME:
            out = np.where(done[:, None], np.where(success[:, None], GREEN, RED), BLUE).astype(float)
        else:
            share = self.subject.belief.share(self.trials.e)[:, [self.subject.task.params.index(self.asked.colour)]]
            out = (1 - share) * np.array(BLUE) + share * np.array((245, 130, 30))
        out[int(self.asked.robot)] = YELLOW
        return out.astype(np.uint8)

    def clicked(self, robot: int, origin: np.ndarray, direction: np.ndarray) -> None:
        self.set("robot", robot)

    def command(self) -> str:
        a = self.asked
        if a.policy == "none":
            return f"surefoot try {quote(self.subject.reference)} --policy zero --episodes {a.robots}"
        run = quote(str(self.subject.policies()[a.policy]))
        seed = "" if a.seed == 1 else f" --seed {a.seed:.0f}"
        return (
            f"surefoot eval {run}{self.subject.flag} --episodes {a.robots}{flags(self.subject.task, self.belief)}{seed}"
        )
