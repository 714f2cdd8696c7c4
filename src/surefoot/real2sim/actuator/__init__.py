"""Actuator nets: learn from a log what real actuators do beyond the model's, and put it into the world.

    tau(k) = model(k) + r(k)      torque over control period k

With torque labels r is regressed: least squares of tau - model on what the net reads. Without labels, r is whatever makes the
world move as the log did (unlabelled.py, matching.py). A net that does not explain the test blocks (dataset.py) is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot.belief import Belief
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.real2sim.actuator.dataset import TEST, TRAIN, VALIDATE, Dataset, Settings, prepare
from surefoot.real2sim.actuator.net import ActuatorModule, UnitNets, exported
from surefoot.real2sim.replay import predict
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import stream
from surefoot.sim.layout import model_of
from surefoot.sim.learned.actuator_net import ActuatorNet
from surefoot.world import World

LEAST = (
    0.1  # of the squared error: a net must remove it on the test blocks, and may add no more to any signal of motion
)
PATIENCE = 40  # epochs without a better validation loss


@dataclass(frozen=True)
class Fitted:
    net: ActuatorNet
    facts: dict[str, Any]


def actuator(world: World, belief: Belief, log: Log, settings: Settings | None = None) -> World:
    """The world with a net of its actuators, learned from a log under the belief's point estimate, among its Terms."""
    net = fit(world, belief, log, settings).net
    return world.with_(world.n, (*world.terms, net))


def fit(
    world: World, belief: Belief, log: Log, settings: Settings | None = None, watch: Watch | None = None,
    folder: Path | None = None, beside: Log | None = None,
) -> Fitted:  # fmt: skip
    """Learn a net, and test it on blocks that were not used. `beside`: a log with torque that is learned from, too, such as a
    simulation's, where the model lacks nothing; `settings.share` says how much.

    Without labels, a folder makes it a run there, which resumes after a stop.
    """
    s, watch = settings or Settings(), watch or unwatched
    labels = "joint_torque" in log.columns if s.labels is None else s.labels
    data = prepare(world, belief.estimate(), log, s, labels)
    torch.set_num_threads(1)  # the nets are small, and so the bits are the same on any number of cores
    if beside is not None and not labels:
        raise SurefootError("actuator: beside: a log is learned from beside another only with torque labels")
    if labels:
        module = regress(data, s, watch, beside)
    else:
        from surefoot.real2sim.actuator.unlabelled import follow_log

        module = follow_log(data, s, watch, folder)
    net = exported(module, data.actuators, model_of(world))
    facts = {"labels": labels, "net": s.net, "dt": world.dt, "blocks": len(data.part)} | evaluate(data, net, s.warm)
    check_improves(facts, labels)
    return Fitted(net, facts)


def regress(data: Dataset, s: Settings, watch: Watch, beside: Log | None = None) -> ActuatorModule:
    """Least squares on the labels, by Adam; the weights with the lowest validation loss on the log."""
    module, rounds = data.untrained(s.seed), s.rounds or (300 if s.net == "mlp" else 100)
    x, y, part = _table(data)
    batch = 4 if s.net == "gru" else int(np.clip(len(part) // 32, 64, 256))
    also = None if beside is None else _table(prepare(data.world, data.e, beside, s, True))
    train, validate = (torch.from_numpy(np.flatnonzero(part == k)) for k in (TRAIN, VALIDATE))
    optimiser = torch.optim.Adam(module.parameters(), 3e-3 if s.net == "mlp" else 1e-2, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, rounds)
    best, kept, since = np.inf, module.state_dict(), 0
    for epoch in range(rounds):
        order = torch.from_numpy(stream(s.seed, "shuffle", epoch).permutation(len(train)))
        drawn = stream(s.seed, "beside", epoch)
        for rows in train[order].split(batch):
            optimiser.zero_grad()
            loss = _loss(module, x[rows], y[rows], s.warm)
            if also is not None:
                more = torch.from_numpy(drawn.integers(0, len(also[0]), len(rows)))
                loss = s.share * loss + (1 - s.share) * _loss(module, also[0][more], also[1][more], s.warm)
            loss.backward()
            optimiser.step()
        schedule.step()
        with torch.no_grad():
            missed = float(_loss(module, x[validate], y[validate], s.warm))
        since = 0 if missed < best else since + 1
        if missed < best:
            best, kept = missed, {k: v.clone() for k, v in module.state_dict().items()}
        if since > PATIENCE:
            break
        watch(Progress(f"epoch {epoch + 1} of {rounds}: unexplained {100 * missed:.2f} %", (epoch + 1) / rounds))
    module.load_state_dict(kept)
    return module


def _table(data: Dataset) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Inputs, r and part of each row: of an MLP a row is a period with its history, of a GRU a block."""
    assert data.label is not None
    f, y, H = data.features.astype(np.float32), (data.label - data.model).astype(np.float32), data.shape.frames
    if data.shape.kind == "gru":
        return torch.from_numpy(f), torch.from_numpy(y), data.part
    count = f.shape[1] - H + 1
    frames = np.stack([f[:, i : i + count] for i in range(H)], 2)  # (b, count, H, 3 J), oldest first
    x, y = frames.reshape(-1, *frames.shape[2:]), y[:, H - 1 :].reshape(-1, y.shape[2])
    return torch.from_numpy(x), torch.from_numpy(y), np.repeat(data.part, count)


def _loss(module: ActuatorModule, x: torch.Tensor, y: torch.Tensor, warm: int) -> torch.Tensor:
    """Mean squared error in units of the spread of what is to be explained."""
    nets = module.nets
    assert isinstance(nets, UnitNets)
    if module.shape.kind == "gru":
        error = (nets.along(x) - y)[:, warm:]
    else:
        error = nets(x, x)[0] - y
    return (error / nets.gain.flatten()).square().mean()


def evaluate(data: Dataset, net: ActuatorNet, warm: int) -> dict[str, Any]:
    """On the test blocks: torque with and without the net, and the motion of the world with and without it."""
    test = data.part == TEST
    facts: dict[str, Any] = {
        "rollout": rollout_errors(data, net, test),
        "seconds": data.features.shape[1] * data.world.dt,
    }
    if data.label is not None:
        r = net.along(data.features[test])[:, warm:]
        model, label = (a[test][:, warm:] for a in (data.model, data.label))
        rmse = lambda x: float(np.sqrt(np.square(x).mean()))  # noqa: E731
        without, with_ = rmse(model - label), rmse(model + r - label)
        spread = float(np.square(label - label.mean((0, 1))).mean())
        each = {
            d.joint: [rmse((model - label)[..., j]), rmse((model + r - label)[..., j])]
            for j, d in enumerate(data.actuators.drives)
        }
        facts["torque"] = {
            "without": without, "with": with_, "r2": 1 - with_**2 / spread, "explained": 1 - (with_ / without) ** 2, "joints": each,
        }  # fmt: skip
    return facts


def rollout_errors(data: Dataset, net: ActuatorNet, which: np.ndarray) -> dict[str, dict[str, float]]:
    """Root mean square error of each signal over free rollouts of some blocks, without and with the net."""
    pieces = data.pieces.some(which)
    found: dict[str, dict[str, float]] = {}
    for name, terms in (("without", data.world.terms), ("with", (*data.world.terms, net))):
        motion = predict(data.world.with_(len(pieces), terms), pieces, data.e[None])
        for signal, error in pieces.errors(motion).items():
            found.setdefault(signal, {})[name] = float(np.sqrt(np.square(error).mean()))
    for both in found.values():
        both["explained"] = 1 - (both["with"] / both["without"]) ** 2
    return found


def degraded(facts: Mapping[str, Any]) -> dict[str, float]:
    """Signals whose free rollout on the test blocks is worse with the net: squared error added, as a fraction."""
    return {name: -x["explained"] for name, x in facts["rollout"].items() if not x["explained"] >= 0}


def check_improves(facts: dict[str, Any], labels: bool) -> None:
    """Refuse a net that explains nothing, or that makes the world diverge from the log.

    It must beat the model's own actuator and, with labels, the labels' mean: against labels that have nothing to do
    with the log, a net that cancels the actuator would do the first alone. And torque that fits along the log may still
    destabilise a free rollout: no signal of motion may get worse by as much as a net must bring.
    """
    found = facts["torque"] if labels else facts["rollout"]["joint_pos"]
    share, what = min(found["explained"], found.get("r2", 1.0)), "torque" if labels else "motion"
    if not share >= LEAST:
        raise SurefootError(
            f"actuator: on the test blocks the net explains {100 * share:.0f} % of the {what}, expected at least "
            f"{100 * LEAST:.0f} %: what the model lacks does not follow from error and velocity (is the log long and lively "
            "enough, its time base right, the model's mass identified?)"
        )
    for name, added in degraded(facts).items():
        if not added <= LEAST:
            x = facts["rollout"][name]
            raise SurefootError(
                f"actuator: on the test blocks {name} of the free rollout gets worse with the net: error "
                f"{x['without']:.4g} becomes {x['with']:.4g}, squared {100 * added:.0f} % more, expected at most "
                f"{100 * LEAST:.0f} % (is the log noisy, or its rate low? identify gains and delay first, or try --no-labels)"
            )
