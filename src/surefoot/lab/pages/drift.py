"""Drift: a plan against what comes of it, without feedback and with it, as the mismatch grows.

    plan      u(k) of the policy in the nominal world, and its states q*(k)
    I         the same u, the same world, the first velocities off by eps: no two runs of a robot are the same
    II        the same u in another world e: a simulator is another robot
    feedback  the policy itself in e

    d(k) = |q(k) - q*(k)| ~ eps rho^k        log rho: slope of log d, where d is beyond its start and still small

The two thought experiments of the founding blog. rho is measured on each of N starts of experiment I; shown are the median
and its interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.belief import point
from surefoot.env import Env
from surefoot.gate.statistics import Estimate, seeds
from surefoot.lab.controls import Button, Choice, Control, Slider, Toggle
from surefoot.lab.page import Clock, Page, Scene, alone, kept
from surefoot.lab.subject import Subject, load
from surefoot.policy import Driver, Policy, Zero
from surefoot.real2sim.replay import sized
from surefoot.report import Axis, Block, Plot, Rule, Series, Table, Text
from surefoot.rng import stream
from surefoot.sim.engine import Engine
from surefoot.tasks.rollout import contract
from surefoot.verdict import clopper_pearson
from surefoot.world import Chance, Start

STARTS, SECONDS = 24, 4.0
LOST = 0.2  # rad or m from the plan: beyond it nothing is left of it
SMALL = 0.05  # rad or m: up to here growth is that of the linear law
CASES = ("plan", "I: same world", "II: another world", "feedback")
COLOURS = np.array([(123, 132, 144), (31, 95, 191), (194, 94, 0), (122, 63, 176)], np.uint8)  # as in the plots


@dataclass(frozen=True)
class Asked:
    policy: str
    unknown: str
    value: float
    offset: float = -4.0
    joint: str = ""
    start: float = 0.0
    play: bool = True


@dataclass(frozen=True)
class Found:
    """States of every case: (N, T + 1, nq), and their distance from the plan (N, T + 1)."""

    q: dict[str, np.ndarray]
    apart: dict[str, np.ndarray]
    dt: float
    rho: Estimate

    def lost(self, case: str) -> np.ndarray:
        """(N,) s until a run has left the plan; inf where it does not."""
        beyond = self.apart[case] > LOST
        return np.where(beyond.any(1), beyond.argmax(1) * self.dt, np.inf)


class Drift(Page):
    key, title = "drift", "Drift"
    about = (
        "Two thought experiments. I: record a robot's actions and play them again on the same robot, where only the first "
        "velocities are a little off. II: play them on another robot, as a simulator's on a real one. Errors do not add, they "
        "multiply: what stays upright needs feedback."
    )

    def __init__(self, subject: Subject):
        super().__init__(subject)
        self.options = (*subject.policies(), "none")
        params = subject.task.params
        usual = next((n for n in ("pole_mass", "mass", *subject.unknowns) if n in params.names), params.names[0])
        self.model: mujoco.MjModel = tasks.env(subject.task, 1, threads=1).world.batch.get_model(0)  # type: ignore[attr-defined]
        self.joints = tuple(self.model.joint(i).name or f"joint {i}" for i in range(self.model.njnt))
        self.asked = Asked(self.options[0], usual, self._near(usual), joint=self.joints[-1])
        self.clock, self.t = Clock(), 0.0
        self._compute()

    def _near(self, name: str) -> float:
        """A value 4 % above the model's; a fiftieth of the range above one that is 0."""
        p = self.subject.task.params[name]
        return float(np.clip(1.04 * p.nominal if p.nominal else p.nominal + 0.02 * (p.high - p.low), p.low, p.high))

    def controls(self) -> Mapping[str, Control]:
        a, p = self.asked, self.subject.task.params[self.asked.unknown]
        return {
            "policy": Choice("policy", self.options, a.policy),
            "unknown": Choice("mismatch in", tuple(self.subject.task.params.names), a.unknown, p.about),
            "value": Slider(f"its value {p.unit}".strip(), p.low, p.high, a.value, about=f"the model has {p.nominal:g}"),
            "offset": Slider("first error, 10^", -6.0, -1.0, a.offset, 0.5, "of the first velocities, rad/s or m/s"),
            "joint": Choice("joint to plot", self.joints, a.joint),
            "start": Slider("start", 0, STARTS - 1, a.start, 1),
            "play": Toggle("play", a.play),
            "nominal": Button("no mismatch", "the model's own value"),
        }  # fmt: skip

    def moved(self, name: str) -> None:
        if name == "unknown":
            self.asked = Asked(**vars(self.asked) | {"value": self._near(self.asked.unknown)})
        if name == "nominal":
            nominal = self.subject.task.params[self.asked.unknown].nominal
            self.asked = Asked(**vars(self.asked) | {"value": nominal})
        if name in ("policy", "unknown", "value", "offset", "nominal"):
            self._compute()
        self.fresh = True

    def _compute(self) -> None:
        a, subject = self.asked, self.subject
        policy = None if a.policy == "none" else load(subject.policies()[a.policy])
        e = subject.task.params.nominal.copy()
        e[subject.task.params.index(a.unknown)] = a.value
        self.found = experiment(subject, policy, e, 10.0**a.offset)
        self.t, self.fresh = 0.0, True

    def work(self) -> bool:
        if self.asked.play:
            due = self.clock.due(1.0)
            self.clock.spend(due)
            self.t = (self.t + due) % (SECONDS + 1.0)
            self.fresh = True
        else:
            self.clock = Clock()
        fresh, self.fresh = self.fresh, False
        return fresh

    def blocks(self) -> Sequence[Block]:
        f = self.found
        step = f"{1000 * f.dt:.0f} ms"
        out: list[Block] = []
        if np.isfinite(f.rho.value):
            ends = "" if f.rho.low is None or f.rho.high is None else f" ({f.rho.low:.4f} - {f.rho.high:.4f})"
            words = f"an error grows by rho = {f.rho.value:.4f}{ends} each step of {step}: {f.rho.value ** (1 / f.dt):.3g}-fold in a second"
            out.append(Text(words, "bad" if f.rho.value > 1 else "good"))
        else:
            out.append(Text("the error does not grow beyond its start: there is no rate to measure", "good"))
        return [*out, self._table(), self._paths(), self._growth()]

    def _table(self) -> Table:
        rows = []
        for case in CASES[1:]:
            times = self.found.lost(case)
            k = int(np.isfinite(times).sum())
            low, high = clopper_pearson(k, STARTS)
            middle = seeds(times) if k == STARTS else None
            when = "-" if middle is None else f"{middle.value:.2f} s"
            if middle is not None and middle.low is not None:
                when += f" ({middle.low:.2f} - {middle.high:.2f})"
            rows.append([case, f"{k} of {STARTS} ({100 * low:.0f} - {100 * high:.0f} %)", when])
        return Table.of(["", f"left the plan within {SECONDS:g} s", "median time"], rows)

    def _paths(self) -> Plot:
        i, j = int(self.asked.start), self.joints.index(self.asked.joint)
        column, t = int(self.model.jnt_qposadr[j]), self.found.dt * np.arange(self.found.q["plan"].shape[1])
        limit = 4 * LOST + np.abs(self.found.q["plan"][i, :, column]).max()
        series = [
            Series.of(case, t, self.found.q[case][i, :, column], **({"style": "dashed", "tone": "quiet"} if case == "plan" else {}))
            for case in (*CASES[1:], CASES[0])
        ]  # fmt: skip
        now = Rule(min(self.t, SECONDS), "x", "now")
        return Plot(
            f"Plan and outcome: {self.asked.joint}",
            tuple(series),
            Axis("time", "s"),
            Axis(self.asked.joint, self._unit(j), low=-limit, high=limit),
            (now,),
            f"Start {i}. Beyond the picture nothing is left of the plan.",
        )

    def _unit(self, joint: int) -> str:
        return "rad" if self.model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE else "m"

    def _growth(self) -> Plot:
        t = self.found.dt * np.arange(self.found.q["plan"].shape[1])
        series = []
        for case in CASES[1:]:
            low, middle, high = np.quantile(np.maximum(self.found.apart[case], 1e-12), (0.1, 0.5, 0.9), axis=0)
            series.append(Series.of(case, t[1:], middle[1:], low[1:], high[1:]))
        first = float(np.median(self.found.apart[CASES[1]][:, 1]))
        if np.isfinite(self.found.rho.value) and first > 0:
            law = np.minimum(first * self.found.rho.value ** np.arange(len(t)), 10 * LOST)
            series.insert(1, Series.of("eps rho^k", t[1:], law[1:], style="dashed", tone="quiet"))
        caption = f"Median and 80 % of {STARTS} starts. The line is where nothing is left of the plan."
        axis = Axis("distance from the plan", "rad or m", "log", low=1e-8, high=10.0)
        return Plot(
            "Errors multiply", tuple(series), Axis("time", "s"), axis, (Rule(LOST, "y", "left the plan"),), caption
        )

    def scene(self) -> Scene:
        k = min(int(self.t / self.found.dt), self.found.q["plan"].shape[1] - 1)
        q = np.stack([self.found.q[case][int(self.asked.start), k] for case in CASES])
        at = np.stack([np.zeros(4), 0.9 * np.arange(4)[::-1]], 1) * max(float(self.model.stat.extent) * 0.3, 0.2)
        at = at + kept(self.model, q, alone(self.model))
        return Scene(self.model, q, at, COLOURS, names=CASES, room=alone(self.model), moved=self.t)

    def command(self) -> str:
        return self.printed()


def experiment(subject: Subject, policy: Policy | None, e: np.ndarray, offset: float) -> Found:
    """The plan, both thought experiments, and feedback in the world e, from STARTS starts."""
    env, start, u, _ = closed_loop(subject, policy, subject.task.params.nominal)
    world = sized(env.world, STARTS)
    assert isinstance(world, Engine)
    q = {"plan": _open(world, subject.task.params.nominal, start, u)}
    push = offset * stream(subject.seed, "drift").standard_normal(start.v.shape)
    near = Start(start.q, start.v + push, start.u, start.act)
    q[CASES[1]] = _open(world, subject.task.params.nominal, near, u)
    q[CASES[2]] = _open(world, e, start, u)
    q[CASES[3]] = closed_loop(subject, policy, e)[3]
    apart = {case: distance(world.model, path, q["plan"]) for case, path in q.items()}
    return Found(q, apart, world.dt, growth(apart[CASES[1]]))


def closed_loop(subject: Subject, policy: Policy | None, e: np.ndarray) -> tuple[Env, Start, np.ndarray, np.ndarray]:
    """The env, where it began, the controls (N, T, nu) and the states (N, T + 1, nq) of a policy in the world e."""
    task = subject.task if policy is None else tasks.for_contract(subject.task, policy.contract)
    env = tasks.env(task, STARTS, point(task.params, e), subject.seed, threads=1)
    obs, x = env.reset(), env.world.state
    start = Start(x.q.copy(), x.v.copy(), x.u.copy(), x.act.copy() if env.world.na else None)
    drive = Driver(policy or Zero(contract(task, env.world)), STARTS)
    path, controls, over = [x.q.copy()], [], np.zeros(STARTS, bool)
    for _ in range(round(min(SECONDS, task.seconds) / env.world.dt)):
        step = env.step(drive(obs["actor"]))
        controls.append(env.control(env.action))
        over |= step.terminated | step.truncated
        path.append(np.where(over[:, None], path[-1], env.world.state.q))  # one that failed stays where it was
        obs = step.obs
    return env, start, np.stack(controls, 1), np.stack(path, 1)


def _open(world: Engine, e: np.ndarray, start: Start, u: np.ndarray) -> np.ndarray:
    """(N, T + 1, nq) under given controls, without feedback."""
    world.reset(np.arange(world.n), np.tile(e, (world.n, 1)), start)
    motion = world.rollout(u, Chance(0, 0, world.dt))
    path = np.concatenate([start.q[:, None], motion.q], 1)
    return np.nan_to_num(path, nan=0.0, posinf=0.0, neginf=0.0)


def distance(model: mujoco.MjModel, q: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(N, T) length of the difference in the joints' own coordinates: m, rad, and rotation vectors for quaternions."""
    out, v = np.empty(q.shape[:2]), np.empty(model.nv)
    for i, k in np.ndindex(*out.shape):
        mujoco.mj_differentiatePos(model, v, 1.0, np.ascontiguousarray(other[i, k]), np.ascontiguousarray(q[i, k]))
        out[i, k] = np.linalg.norm(v)
    return out


def growth(apart: np.ndarray) -> Estimate:
    """rho: the factor by which the distance grows each step, of each start that grows tenfold; the median of them."""
    found = []
    for d in apart:
        first = d[1] if len(d) > 1 else 0.0
        k = np.arange(len(d))
        linear = (d > 10 * first) & (d < SMALL) & (k <= (np.argmax(d >= SMALL) if (d >= SMALL).any() else len(d)))
        if first > 0 and linear.sum() >= 5:
            found.append(float(np.exp(np.polyfit(k[linear], np.log(d[linear]), 1)[0])))
    if not found:
        return Estimate(float("nan"), None, None, 0, 0.95, "no start grows tenfold")
    return seeds(found)
