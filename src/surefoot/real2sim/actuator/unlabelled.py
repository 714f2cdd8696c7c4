"""Actuator nets without torque labels: the net's forces are whatever makes the world move as the log did.

    minimise over w   mean_k ((x(k) - x_log(k)) / sd)^2 + c mean (r / gain)^2,     x(k+1) = F(x(k), u(k), r_w(k))

over windows that begin at measured states. sd: how far the world strays without a net. By gradient: the windows are
rolled out, A = dF/dx and B = dF/dr are taken by differences at every point of them, all at once, and

    d x(k+1) = A d x(k) + B d r(k)

carries dw through engine and net to the cost, for as many weights as there are. By es: antithetic evolution,
dw ~ sum_i rank_i n_i, which needs no differences and bears models that have none, at many times the samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot.belief import point
from surefoot.errors import SurefootError
from surefoot.learn.learner import Learner, Saved
from surefoot.learn.nets import adam_state, restore_adam
from surefoot.learn.runspec import RunSpec, content_hash
from surefoot.learn.train import run_learner
from surefoot.real2sim.actuator import Lesson, Settings, _some, begun, moved, spread, with_weights
from surefoot.real2sim.actuator.net import CLIP, TOLD, ActuatorNet, response
from surefoot.real2sim.replay import Windows, predict
from surefoot.real2sim.signals import joints_of, starts
from surefoot.report import Progress, Watch
from surefoot.rng import stream
from surefoot.sim.layout import model_of
from surefoot.sim.model.load import model_hash
from surefoot.world import Chance, OnForce, Start, State

ROUNDS = 100
WINDOWS = 16  # in a round
SMALL = 1e-3  # c
STEP = {"q": 1e-4, "v": 1e-3, "r": 1e-3}  # of differences: rad, rad/s, and of the largest force
EVERY = 10  # rounds from one look at the blocks that stop to the next


@dataclass(frozen=True, eq=False)
class Held(OnForce):
    """A force that is given, (n, nv)."""

    force: np.ndarray

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.force


@dataclass(frozen=True)
class Course:
    """The windows that are to be followed, and how errors weigh."""

    lesson: Lesson
    pieces: Windows
    sd: dict[str, np.ndarray]  # signal -> (size,)
    reads: dict[str, np.ndarray]  # signal -> columns of x = (q, v)

    def some(self, seed: int, step: int, count: int) -> Windows:
        """A few windows, drawn."""
        p = self.pieces
        rows = stream(seed, "windows", step).permutation(len(p))[:count]
        return replace(p, rows=p.rows[rows], start=_some(p.start, rows), u=p.u[rows])


def budget(lesson: Lesson, s: Settings) -> int:
    """Control periods simulated in one round, the same whatever the way of learning."""
    return WINDOWS * round(s.window / lesson.world.dt) * (2 + 3 * lesson.world.nv)


def course(lesson: Lesson, s: Settings) -> Course:
    world, log = lesson.world, lesson.pieces.log
    length = round(s.window / world.dt)
    firsts = np.arange(lesson.features.shape[1] // length) * length
    rows = (lesson.pieces.rows[lesson.part == 0][:, None] + firsts).ravel()
    u = np.concatenate([lesson.pieces.u[lesson.part == 0][:, a : a + length] for a in firsts], 1)
    u = u.reshape(-1, length, u.shape[-1])
    pieces = replace(lesson.pieces, rows=rows, length=length, start=starts(world, log, rows), u=u, before=None)
    errors = pieces.errors(predict(world, pieces, lesson.e[None]))
    sd = {name: np.maximum(np.sqrt(np.square(e).mean((0, 1))), 1e-9) for name, e in errors.items()}
    layout, reads = world.layout, {}
    for name in errors:
        at = np.array(layout.places) if name == "joint_pos" else world.nq + np.array(layout.speeds)
        reads[name] = at[joints_of(layout, log, name)]
    return Course(lesson, pieces, sd, reads)


class Best:
    """The net that does best on the blocks that stop, among those a search passes through."""

    def __init__(self, lesson: Lesson, net: ActuatorNet):
        self.lesson, self.net, self.cost = lesson, net, np.inf

    def look(self, net: ActuatorNet) -> float:
        """The share of squared error that a net leaves there; the best one is kept."""
        found = moved(self.lesson, net, self.lesson.part == 1)
        cost = float(np.mean([(x["with"] / x["without"]) ** 2 for x in found.values()]))
        if cost < self.cost:
            self.cost, self.net = cost, net
        return cost

    def save(self) -> dict[str, np.ndarray]:
        return {"cost": np.array(self.cost)} | {f"best.{k}": v.copy() for k, v in self.net.arrays.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        kept = {k.removeprefix("best."): v.copy() for k, v in arrays.items() if k.startswith("best.")}
        self.cost, self.net = float(arrays["cost"]), replace(self.net, arrays=kept)


class Search(Learner):
    """Adam on the weights, along slopes through the engine or of evolution."""

    def __init__(self, lesson: Lesson, s: Settings):
        if s.by == "gradient" and lesson.world.nq != lesson.world.nv:
            raise SurefootError(
                "actuator: by gradient: found a free or ball joint; hold the base (--machine.fixed), or --by es"
            )
        self.settings, self.way, self.seed = s, course(lesson, s), s.seed
        self.iterations, self.batch = s.rounds or ROUNDS, budget(lesson, s)
        self.w = begun(lesson.blank, s.hidden, s.seed)
        self.optimiser = torch.optim.Adam(list(self.w.values()), 5e-3 if s.by == "gradient" else 2e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, self.iterations)
        self.best = Best(lesson, with_weights(lesson.blank, self.w))

    def iterate(self) -> dict[str, Any]:
        slope = by_gradient if self.settings.by == "gradient" else by_evolution
        for name, g in slope(self.way, self.settings, self.w, self.iteration).items():
            self.w[name].grad = g
        torch.nn.utils.clip_grad_norm_(list(self.w.values()), 1.0)
        self.optimiser.step()
        self.schedule.step()
        self.iteration += 1
        row: dict[str, Any] = {"steps": self.iteration * self.batch}
        if self.iteration % EVERY == 0 or self.iteration == self.iterations:
            row["left"] = self.best.look(with_weights(self.way.lesson.blank, self.w))
        return row

    def save(self) -> Saved:
        state = {f"net.{k}": v for k, v in self.w.items()} | adam_state(self.optimiser, self.w)
        arrays = {k: v.detach().numpy().copy() for k, v in state.items()}
        return arrays | self.best.save(), {"iteration": self.iteration, "lr": self.optimiser.param_groups[0]["lr"]}

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        for k, v in self.w.items():
            v.copy_(torch.from_numpy(arrays[f"net.{k}"].copy()))
        state = {k: torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith("adam.")}
        restore_adam(self.optimiser, self.w, state)
        self.iteration = self.schedule.last_epoch = int(numbers["iteration"])
        self.optimiser.param_groups[0]["lr"] = float(numbers["lr"])
        self.best.load(arrays)


def followed(lesson: Lesson, s: Settings, watch: Watch, folder: Path | None = None) -> ActuatorNet:
    """The net that does best on the blocks that stop; with a folder it is a run there, which resumes after a stop."""
    from surefoot.real2sim.actuator.matching import Matching

    learner = Matching(lesson, s) if s.by == "ppo" else Search(lesson, s)
    world, log = lesson.world, lesson.pieces.log
    made_of = {"model": model_hash(model_of(world)), "terms": world.terms, "dt": world.dt, "log": log, "settings": s}
    inputs = {"learns": "actuator", **{k: content_hash(v) for k, v in made_of.items()}}
    spec = RunSpec("actuator", point(world.params, lesson.e), seed=s.seed, inputs=inputs)

    def tell(p: Progress) -> None:
        if p.stays:
            watch(p)
        elif "left" in p.metrics:
            k, left = p.metrics["iteration"], 100 * p.metrics["left"]
            watch(Progress(f"round {k} of {learner.iterations}: {left:.1f} % of the squared error is left", p.share))

    run_learner(spec, learner, folder, tell)
    return learner.best.net


def by_gradient(way: Course, s: Settings, w: Mapping[str, torch.Tensor], k: int) -> dict[str, torch.Tensor]:
    """The cost's slope, through the engine."""
    lesson, pieces = way.lesson, way.some(s.seed, k, WINDOWS)
    net = with_weights(lesson.blank, w)
    world = lesson.world.with_(len(pieces), (*lesson.world.terms, net))
    motion = predict(world, pieces, lesson.e[None])
    q, v = (
        np.concatenate([a[:, None], b[:, :-1]], 1) for a, b in ((pieces.start.q, motion.q), (pieces.start.v, motion.v))
    )
    features = net.features(q, v, pieces.u)
    A, B = linearised(lesson, pieces, q, v, motion.act, net.along(features))
    errors = {name: torch.from_numpy(e).float() for name, e in pieces.errors(motion).items()}
    fine = torch.from_numpy(~motion.diverged)
    free = {name: t.detach().clone().requires_grad_(True) for name, t in w.items()}
    cost = _cost(way, net, free, torch.from_numpy(features).float(), A, B, errors)
    cost = torch.where(fine, cost, 0.0).sum() / max(1, int(fine.sum()))
    return dict(zip(free, torch.autograd.grad(cost, list(free.values()))))


def _cost(
    way: Course, net: ActuatorNet, w: Mapping[str, torch.Tensor], f: torch.Tensor, A: torch.Tensor, B: torch.Tensor,
    errors: Mapping[str, torch.Tensor],
) -> torch.Tensor:  # fmt: skip
    """(windows,) the cost as a function of the weights: its value is that of the rollout, its slope goes through A, B."""
    c, a, model = net.card, spread(net, w), way.lesson.world
    servo, slow, (n, T) = torch.from_numpy(c.servo).float(), torch.tensor(c.slow), f.shape[:2]
    p, v = f.reshape(n, T, -1, TOLD)[..., :2].unbind(-1)  # (n, T, J)
    dx, cost = torch.zeros(n, model.nq + model.nv), torch.zeros(n)
    past: list[torch.Tensor] = []
    h, limit = torch.zeros(1, c.units, n, c.hidden), torch.tensor(c.limit)
    for t in range(T):
        p_, v_ = p[:, t] - servo * dx[:, net.q_at], v[:, t] + dx[:, model.nq + net.v_at]
        now = torch.stack([p_, v_, v_ / (v_.abs() + slow)], -1).reshape(f[:, t].shape)
        past = [now, *(past or [now] * c.history)][: c.history if c.kind == "mlp" else 1]
        z = torch.stack(past, 2).flatten(2).transpose(0, 1)[None]  # (1, U, n, in)
        said, h = response(c.kind, a, ((z - a["shift"]) / a["scale"]).clamp(-CLIP, CLIP), h, torch)
        r = torch.clamp(said[0].transpose(0, 1).reshape(n, -1), -limit, limit)
        dx = torch.einsum("nij,nj->ni", A[:, t], dx) + torch.einsum(
            "nij,nj->ni", B[:, t][:, :, net.v_at], r - r.detach()
        )
        for name, e in errors.items():
            scale = torch.from_numpy(way.sd[name]).float()
            cost = cost + ((e[:, t] + dx[:, way.reads[name]]) / scale).square().mean(1) / (T * len(errors))
        cost = cost + SMALL / T * (r / limit).square().mean(1)
    return cost


def linearised(
    lesson: Lesson, pieces: Windows, q: np.ndarray, v: np.ndarray, act: np.ndarray, r: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """A (w, T, nx, nx) and B (w, T, nx, nv) at every point of some rollouts: one period, each direction at once."""
    m, (w, T), at = lesson.world, q.shape[:2], lesson.blank.v_at
    steps = np.concatenate(
        [np.full(m.nv, STEP["q"]), np.full(m.nv, STEP["v"]), np.full(m.nv, STEP["r"] * max(lesson.blank.card.limit))]
    )
    force = np.zeros((w * T, m.nv))
    force[:, at] = r.reshape(w * T, -1)
    x = np.concatenate([q.reshape(w * T, -1), v.reshape(w * T, -1), force], 1)
    points = np.repeat(x[None], 1 + len(steps), 0)  # (1 + 3 nv, w T, 3 nv)
    points[np.arange(len(steps)) + 1, :, np.arange(len(steps))] += steps[:, None]
    points = points.reshape(-1, len(steps))
    before = np.concatenate([pieces.start.u[:, None], pieces.u[:, :-1]], 1)
    copies = lambda a: np.tile(a.reshape(w * T, -1), (1 + len(steps), 1))  # noqa: E731
    held = points[:, 2 * m.nv :]
    many = lesson.world.with_(len(points), (*lesson.world.terms, Held(held)))
    acts = copies(np.concatenate([before[:, :1], act[:, :-1]], 1)) if m.na == m.nu and m.na else None
    begin = Start(points[:, : m.nq], points[:, m.nq : m.nq + m.nv], copies(before), acts)
    many.reset(np.arange(len(points)), np.repeat(lesson.e[None], len(points), 0), begin)
    many.step(copies(pieces.u), Chance(0, 0, many.dt))
    after = np.concatenate([many.state.q, many.state.v], 1).reshape(1 + len(steps), w, T, -1)
    slopes = (after[1:] - after[0]) / steps[:, None, None, None]
    whole = torch.from_numpy(np.nan_to_num(np.moveaxis(slopes, 0, -1))).float()  # (w, T, nx, 3 nv)
    return whole[..., : 2 * m.nv], whole[..., 2 * m.nv :]


def by_evolution(
    way: Course, s: Settings, w: Mapping[str, torch.Tensor], k: int, sd: float = 0.05
) -> dict[str, torch.Tensor]:
    """The cost's slope, from how mirrored pairs of weights rank."""
    lesson, pieces = way.lesson, way.some(s.seed, k, WINDOWS // 2)
    pairs = max(4, budget(lesson, s) // (2 * len(pieces) * pieces.length))
    noise = {name: stream(s.seed, f"es {name}", k).standard_normal((pairs, *t.shape)) for name, t in w.items()}
    arrays = {
        name: np.concatenate([t.numpy() + sd * noise[name], t.numpy() - sd * noise[name]]) for name, t in w.items()
    }
    fixed = {name: np.repeat(a[None], 2 * pairs, 0) for name, a in lesson.blank.arrays.items() if name not in w}
    nets = replace(lesson.blank, arrays={**fixed, **{name: a.astype(np.float32) for name, a in arrays.items()}})
    world = lesson.world.with_(2 * pairs * len(pieces), (*lesson.world.terms, nets))
    motion = predict(world, pieces, np.repeat(lesson.e[None], 2 * pairs, 0))
    cost = np.zeros(len(motion.q))
    for name, error in pieces.errors(motion).items():
        cost += np.square(np.nan_to_num(error, nan=1e3) / way.sd[name]).mean((1, 2))
    cost = np.where(motion.diverged, 1e6, cost).reshape(2 * pairs, -1).mean(1)
    rank = np.argsort(np.argsort(cost)) / (2 * pairs - 1) - 0.5
    weight = (rank[:pairs] - rank[pairs:]) / (pairs * sd)
    return {name: torch.from_numpy(np.tensordot(weight, n, 1)).float() for name, n in noise.items()}
