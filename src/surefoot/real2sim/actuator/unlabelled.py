"""Actuator nets without torque labels: r is whatever makes the world move as the log did.

    minimise over w   mean_k ((x(k) - x_log(k)) / sd)^2 + c mean (r / limit)^2,     x(k+1) = F(x(k), u(k), r_w(k))

over windows that begin at measured states. sd: root mean square error of the world without a net. By gradient: the windows are
rolled out, A = dF/dx and B = dF/dr are taken by differences at every point of them, all at once, and

    d x(k+1) = A d x(k) + B d r(k)

carries dw through engine and net to the cost, for as many weights as there are. By es: antithetic evolution strategy,
dw ~ sum_i rank_i n_i, which needs no differences and works for models that have none, at many times the samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surefoot.belief import point
from surefoot.errors import SurefootError
from surefoot.learn.learner import Learner, Saved
from surefoot.learn.nets import adam_state, restore_adam
from surefoot.learn.runspec import RunSpec, content_hash
from surefoot.learn.train import run_learner
from surefoot.real2sim.actuator import rollout_errors
from surefoot.real2sim.actuator.dataset import TRAIN, VALIDATE, Dataset, Settings
from surefoot.real2sim.actuator.net import ActuatorModule, in_torch
from surefoot.real2sim.log_env import AppliedForce
from surefoot.real2sim.replay import Windows, predict
from surefoot.real2sim.signals import joints_of, starts
from surefoot.report import Progress, Watch
from surefoot.rng import stream
from surefoot.sim.layout import model_of
from surefoot.sim.learned.actuator_net import FEATURES, ActuatorNet
from surefoot.sim.model.load import model_hash
from surefoot.world import Chance, Motion, Start

ROUNDS = 100
WINDOWS = 16  # in a round
SMALL = 1e-3  # c
STEP = {"q": 1e-4, "v": 1e-3, "r": 1e-3}  # of differences: rad, rad/s, and of the largest force
EVERY = 10  # rounds from one validation to the next
ES_SD = 0.05  # of the weights' perturbations


@dataclass(frozen=True)
class TrackingCost:
    """The training windows, and the units in which their errors count."""

    data: Dataset
    pieces: Windows
    sd: dict[str, np.ndarray]  # signal -> (size,)
    columns: dict[str, np.ndarray]  # signal -> columns of x = (q, v)

    def batch(self, seed: int, step: int, count: int) -> Windows:
        """A few windows, drawn."""
        return self.pieces.some(stream(seed, "windows", step).permutation(len(self.pieces))[:count])

    def term(self, module: ActuatorModule, weights: Mapping[str, Tensor] | None = None) -> ActuatorNet:
        return in_torch(module, self.data.actuators, model_of(self.data.world), weights)


def budget(data: Dataset, s: Settings) -> int:
    """Control periods simulated in one round, the same whatever the way of learning."""
    return WINDOWS * round(s.window / data.world.dt) * (2 + 3 * data.world.nv)


def tracking_cost(data: Dataset, s: Settings) -> TrackingCost:
    world, log, train = data.world, data.pieces.log, data.part == TRAIN
    length = round(s.window / world.dt)
    firsts = np.arange(data.features.shape[1] // length) * length
    rows = (data.pieces.rows[train][:, None] + firsts).ravel()
    u = np.concatenate([data.pieces.u[train][:, a : a + length] for a in firsts], 1)
    u = u.reshape(-1, length, u.shape[-1])
    pieces = replace(data.pieces, rows=rows, length=length, start=starts(world, log, rows), u=u, before=None)
    errors = pieces.errors(predict(world, pieces, data.e[None]))
    sd = {name: np.maximum(np.sqrt(np.square(e).mean((0, 1))), 1e-9) for name, e in errors.items()}
    layout, columns = world.layout, {}
    for name in errors:
        at = np.array(layout.places) if name == "joint_pos" else world.nq + np.array(layout.speeds)
        columns[name] = at[joints_of(layout, log, name)]
    return TrackingCost(data, pieces, sd, columns)


class Best:
    """The weights with the lowest validation error among those a search passes through."""

    def __init__(self, data: Dataset, module: ActuatorModule):
        self.data, self.module, self.error = data, module, np.inf
        self.weights = {k: v.clone() for k, v in module.state_dict().items()}

    def validate(self) -> float:
        """The fraction of squared error that the module leaves on the validation blocks; the best weights are kept."""
        net = in_torch(self.module, self.data.actuators, model_of(self.data.world))
        found = rollout_errors(self.data, net, self.data.part == VALIDATE)
        error = float(np.mean([(x["with"] / x["without"]) ** 2 for x in found.values()]))
        if error < self.error:
            self.error, self.weights = error, {k: v.clone() for k, v in self.module.state_dict().items()}
        return error

    def restored(self) -> ActuatorModule:
        """The module with the best weights."""
        self.module.load_state_dict(self.weights)
        return self.module

    def save(self) -> dict[str, np.ndarray]:
        return {"error": np.array(self.error)} | {f"best.{k}": v.numpy().copy() for k, v in self.weights.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.error = float(arrays["error"])
        self.weights = {k: torch.from_numpy(arrays[f"best.{k}"].copy()) for k in self.weights}


class WeightSearch(Learner):
    """Adam on the weights, along gradients through the engine or of an evolution strategy."""

    def __init__(self, data: Dataset, s: Settings):
        if s.by == "gradient" and data.world.nq != data.world.nv:
            raise SurefootError(
                "actuator: by gradient: found a free or ball joint; hold the base (--machine.fixed), or --by es"
            )
        torch.set_num_threads(1)
        self.settings, self.cost, self.seed = s, tracking_cost(data, s), s.seed
        self.iterations, self.batch = s.rounds or ROUNDS, budget(data, s)
        self.module = data.untrained(s.seed)
        self.weights = dict(self.module.named_parameters())
        self.optimiser = torch.optim.Adam(self.weights.values(), 5e-3 if s.by == "gradient" else 2e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, self.iterations)
        self.best = Best(data, self.module)

    def iterate(self) -> dict[str, Any]:
        slope = by_gradient if self.settings.by == "gradient" else by_evolution
        for name, g in slope(self.cost, self.settings, self.module, self.iteration).items():
            self.weights[name].grad = g
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        self.optimiser.step()
        self.schedule.step()
        self.iteration += 1
        row: dict[str, Any] = {"steps": self.iteration * self.batch}
        if self.iteration % EVERY == 0 or self.iteration == self.iterations:
            row["left"] = self.best.validate()
        return row

    def save(self) -> Saved:
        state = {f"net.{k}": v for k, v in self.weights.items()} | adam_state(self.optimiser, self.weights)
        arrays = {k: v.detach().numpy().copy() for k, v in state.items()}
        return arrays | self.best.save(), {"iteration": self.iteration, "lr": self.optimiser.param_groups[0]["lr"]}

    @torch.no_grad()
    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        for k, v in self.weights.items():
            v.copy_(torch.from_numpy(arrays[f"net.{k}"].copy()))
        state = {k: torch.from_numpy(v.copy()) for k, v in arrays.items() if k.startswith("adam.")}
        restore_adam(self.optimiser, self.weights, state)
        self.iteration = self.schedule.last_epoch = int(numbers["iteration"])
        self.optimiser.param_groups[0]["lr"] = float(numbers["lr"])
        self.best.load(arrays)


def follow_log(data: Dataset, s: Settings, watch: Watch, folder: Path | None = None) -> ActuatorModule:
    """The module with the lowest validation error; with a folder it is a run there, which resumes after a stop."""
    from surefoot.real2sim.actuator.matching import Matching

    learner = Matching(data, s) if s.by == "ppo" else WeightSearch(data, s)
    world, log = data.world, data.pieces.log
    made_of = {"model": model_hash(model_of(world)), "terms": world.terms, "dt": world.dt, "log": log, "settings": s}
    inputs = {"learns": "actuator", **{k: content_hash(v) for k, v in made_of.items()}}
    spec = RunSpec("actuator", point(world.params, data.e), seed=s.seed, inputs=inputs)

    def watch_rounds(p: Progress) -> None:
        if p.stays:
            watch(p)
        elif "left" in p.metrics:
            k, left = p.metrics["iteration"], 100 * p.metrics["left"]
            watch(Progress(f"round {k} of {learner.iterations}: {left:.1f} % of the squared error is left", p.share))

    run_learner(spec, learner, folder, watch_rounds)
    return learner.best.restored()


def by_gradient(cost: TrackingCost, s: Settings, module: ActuatorModule, k: int) -> dict[str, Tensor]:
    """The gradient of the cost in round k, through the engine."""
    data, pieces = cost.data, cost.batch(s.seed, k, WINDOWS)
    net = cost.term(module)
    motion = predict(data.world.with_(len(pieces), (*data.world.terms, net)), pieces, data.e[None])
    q, v = (
        np.concatenate([a[:, None], b[:, :-1]], 1) for a, b in ((pieces.start.q, motion.q), (pieces.start.v, motion.v))
    )
    features = net.features(q, v, pieces.u)
    slopes = linearised(data, pieces, (q, v, motion.act), net.along(features))
    value = _cost(cost, module, torch.from_numpy(features).float(), slopes, pieces.errors(motion))
    fine = torch.from_numpy(~motion.diverged)
    value = torch.where(fine, value, 0.0).sum() / max(1, int(fine.sum()))
    weights = dict(module.named_parameters())
    return dict(zip(weights, torch.autograd.grad(value, list(weights.values()))))


def _cost(
    cost: TrackingCost, module: ActuatorModule, f: Tensor, slopes: tuple[Tensor, Tensor], errors: Mapping[str, np.ndarray]
) -> Tensor:  # fmt: skip
    """(windows,) the cost as a function of the weights: its value is that of the rollout, its gradient goes through A, B."""
    joints, model, (n, T) = cost.data.joints, cost.data.world, f.shape[:2]
    servo, slow = torch.from_numpy(joints.servo).float(), torch.tensor(cost.data.actuators.slow)
    p, v = f.reshape(n, T, -1, FEATURES)[..., :2].unbind(-1)  # (n, T, J)
    J, (A, B) = len(slow), slopes
    dx, total, memory = torch.zeros(n, model.nq + model.nv), torch.zeros(n), torch.zeros(n, module.memory)
    for t in range(T):
        p_, v_ = p[:, t] - servo * dx[:, joints.q_at], v[:, t] + dx[:, model.nq + joints.v_at]
        now = torch.stack([p_, v_, v_ / (v_.abs() + slow)], -1).flatten(1)
        out = module(torch.cat([now, memory], 1))
        r, memory = out[:, :J], out[:, J:]
        dr = torch.einsum("nij,nj->ni", B[:, t][:, :, joints.v_at], r - r.detach())
        dx = torch.einsum("nij,nj->ni", A[:, t], dx) + dr
        for name, e in errors.items():
            error = torch.from_numpy(e[:, t]).float() + dx[:, cost.columns[name]]
            total = total + (error / torch.from_numpy(cost.sd[name]).float()).square().mean(1) / (T * len(errors))
        total = total + SMALL / T * (r / module.limit).square().mean(1)
    return total


def linearised(
    data: Dataset, pieces: Windows, at: tuple[np.ndarray, np.ndarray, np.ndarray], r: np.ndarray
) -> tuple[Tensor, Tensor]:
    """A (w, T, nx, nx) and B (w, T, nx, nv) at q, v, act (w, T, .) of some rollouts: one period, each direction at once."""
    (q, v, act), m, (w, T) = at, data.world, r.shape[:2]
    largest = STEP["r"] * max(data.actuators.limit)
    steps = np.repeat([STEP["q"], STEP["v"], largest], m.nv)
    force = np.zeros((w * T, m.nv))
    force[:, data.joints.v_at] = r.reshape(w * T, -1)
    x = np.concatenate([q.reshape(w * T, -1), v.reshape(w * T, -1), force], 1)
    points = np.repeat(x[None], 1 + len(steps), 0)  # (1 + 3 nv, w T, 3 nv)
    points[np.arange(len(steps)) + 1, :, np.arange(len(steps))] += steps[:, None]
    points = points.reshape(-1, len(steps))
    before = np.concatenate([pieces.start.u[:, None], pieces.u[:, :-1]], 1)
    copies = lambda a: np.tile(a.reshape(w * T, -1), (1 + len(steps), 1))  # noqa: E731
    many = data.world.with_(len(points), (*data.world.terms, AppliedForce(points[:, 2 * m.nv :])))
    acts = copies(np.concatenate([before[:, :1], act[:, :-1]], 1)) if m.na == m.nu and m.na else None
    begin = Start(points[:, : m.nq], points[:, m.nq : m.nq + m.nv], copies(before), acts)
    many.reset(np.arange(len(points)), np.repeat(data.e[None], len(points), 0), begin)
    many.step(copies(pieces.u), Chance(0, 0, many.dt))
    after = np.concatenate([many.state.q, many.state.v], 1).reshape(1 + len(steps), w, T, -1)
    slopes = (after[1:] - after[0]) / steps[:, None, None, None]
    whole = torch.from_numpy(np.nan_to_num(np.moveaxis(slopes, 0, -1))).float()  # (w, T, nx, 3 nv)
    return whole[..., : 2 * m.nv], whole[..., 2 * m.nv :]


def by_evolution(cost: TrackingCost, s: Settings, module: ActuatorModule, k: int) -> dict[str, Tensor]:
    """The gradient of the cost in round k, estimated by how mirrored pairs of weights rank."""
    data, pieces = cost.data, cost.batch(s.seed, k, WINDOWS // 2)
    pairs = max(4, budget(data, s) // (2 * len(pieces) * pieces.length))
    weights = {name: w.detach() for name, w in module.named_parameters()}
    noise = {
        name: torch.from_numpy(stream(s.seed, f"es {name}", k).standard_normal((pairs, *w.shape))).float()
        for name, w in weights.items()
    }
    both = {name: torch.cat([w + ES_SD * noise[name], w - ES_SD * noise[name]]) for name, w in weights.items()}
    world = data.world.with_(2 * pairs * len(pieces), (*data.world.terms, cost.term(module, both)))
    motion = predict(world, pieces, np.repeat(data.e[None], 2 * pairs, 0))
    rank = np.argsort(np.argsort(_costs(cost, pieces, motion, 2 * pairs))) / (2 * pairs - 1) - 0.5
    weight = torch.from_numpy((rank[:pairs] - rank[pairs:]) / (pairs * ES_SD)).float()
    return {name: torch.tensordot(weight, n, 1) for name, n in noise.items()}


def _costs(cost: TrackingCost, pieces: Windows, motion: Motion, candidates: int) -> np.ndarray:
    """(candidates,) mean over windows; a diverged one costs more than any other."""
    found = np.zeros(len(motion.q))
    for name, error in pieces.errors(motion).items():
        found += np.square(np.nan_to_num(error, nan=1e3) / cost.sd[name]).mean((1, 2))
    return np.where(motion.diverged, 1e6, found).reshape(candidates, -1).mean(1)
