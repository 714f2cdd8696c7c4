"""actuator: learn from a log what real actuators do beyond the model's, and put it into the world.

    tau(k) = own(k) + r(k)      over period k, from time k to k + 1: means of what stands at its two ends

With torque labels r is regressed: least squares of tau - own on what the net is told. Torque is taken to run straight
from row to row; where it jumps with the command at once, it is read as half a period late. Without labels, r is
whatever makes the world move as the log did (unlabelled.py, matching.py). The log is cut into blocks of time: five of
seven are learned from, one says when to stop, one judges, and no history reaches from one into another. What does not
explain the judge's blocks is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from surefoot.belief import Belief
from surefoot.errors import LogError, SurefootError
from surefoot.log import Log
from surefoot.real2sim.actuator.net import CLIP, TOLD, ActuatorNet, Card, Drive, Kind, drives, response
from surefoot.real2sim.replay import Windows, predict, repeated, windows
from surefoot.real2sim.signals import controls, measured, names_in, starts
from surefoot.report import Progress, Watch, unwatched
from surefoot.rng import key, stream
from surefoot.sim.layout import model_of
from surefoot.world import Start, World

BLOCK = 0.5  # s, where the log is long enough for 28 of them
OF = 7  # blocks in a round: the last but one stops, the last judges
LEAST = 0.1  # share of the squared error: a net must take it away where it is judged, and add it to no signal of motion
SLOW = 0.05  # v_slow, of a joint's usual speed
WARM = 5  # periods before a GRU's word counts
CHUNK = 4096  # simulations asked at once


@dataclass(frozen=True)
class Settings:
    """How a net is learned."""

    net: Kind = "mlp"
    """a history of periods into an MLP, or one period at a time into a GRU"""
    labels: bool | None = None
    """learn from the log's joint_torque, or without; what the log has, unless told"""
    by: Literal["gradient", "es", "ppo"] = "gradient"
    """without labels: gradients through the engine, antithetic evolution of the weights, or reinforcement learning"""
    types: tuple[str, ...] = ()
    """patterns of joints' names, such as .*_hip: those that match one pattern share a net; unless told, each has its own"""
    history: int = 6
    """periods an MLP is told, this one among them"""
    hidden: int = 32
    """width of each layer, or of a GRU's state"""
    rounds: int | None = None
    """epochs with labels (300 for an MLP, 100 for a GRU), updates without (100)"""
    window: float = 0.25
    """without labels: s of each piece of the log that is to be followed"""
    limit: float = 1.0
    """without labels: largest |r|, as a share of the largest force of the model's own actuator in the log"""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("history", "hidden"):
            if getattr(self, name) < 1:
                raise SurefootError(f"actuator: {name}: found {getattr(self, name)}, expected at least 1")
        if self.rounds is not None and self.rounds < 1:
            raise SurefootError(f"actuator: rounds: found {self.rounds}, expected at least 1")
        if not (self.window > 0 and self.limit > 0):
            raise SurefootError(f"actuator: found window {self.window}, limit {self.limit}; expected both above 0")


@dataclass(frozen=True)
class Lesson:
    """A log as a net is told it: b blocks of B periods."""

    world: World  # without the net
    e: np.ndarray  # (ne,)
    blank: ActuatorNet  # says 0; knows places, scales and limits
    pieces: Windows
    features: np.ndarray  # (b, B, U, 3 k)
    own: np.ndarray  # (b, B, J) mean over each period
    label: np.ndarray | None  # (b, B, J) likewise
    part: np.ndarray  # (b,) 0 learned from, 1 stops, 2 judges

    @property
    def warm(self) -> int:
        """The first period of a block in which a net knows all it should."""
        return self.blank.card.history - 1 if self.blank.card.kind == "mlp" else WARM


@dataclass(frozen=True)
class Fitted:
    net: ActuatorNet
    facts: dict[str, Any]


def actuator(world: World, belief: Belief, log: Log, settings: Settings | None = None) -> World:
    """The world with a net of its actuators, learned from a log under the belief's mean, among its Terms."""
    net = fit(world, belief, log, settings).net
    return world.with_(world.n, (*world.terms, net))


def fit(
    world: World, belief: Belief, log: Log, settings: Settings | None = None, watch: Watch | None = None,
    folder: Path | None = None,
) -> Fitted:  # fmt: skip
    """Learn a net, and say how much it explains of what it was not learned from.

    Without labels, a folder makes it a run there, which resumes after a stop.
    """
    s, watch = settings or Settings(), watch or unwatched
    labels = "joint_torque" in log.columns if s.labels is None else s.labels
    lesson = prepared(world, belief.estimate(), log, s, labels)
    if labels:
        net = regressed(lesson, s, watch)
    else:
        from surefoot.real2sim.actuator.unlabelled import followed

        net = followed(lesson, s, watch, folder)
    facts = {"labels": labels, "net": s.net, "dt": world.dt, "blocks": len(lesson.part)} | judged(lesson, net)
    _refuse(facts, labels)
    return Fitted(net, facts)


def prepared(world: World, e: np.ndarray, log: Log, s: Settings, labels: bool) -> Lesson:
    """Cut the log, work out what the model's actuators did in it, and set the scales of the net."""
    what = drives(model_of(world))
    length = max(2 * max(s.history, WARM), min(round(BLOCK / world.dt), len(log) // (4 * OF)))
    length = max(length, round(s.window / world.dt)) if not labels else length
    only = tuple(k for k in ("joint_pos", "joint_vel") if k in log.columns)
    if "joint_pos" not in only:
        raise LogError(f"found columns {', '.join(log.columns)}; expected joint_pos among them")
    pieces, x = windows(world, log, length, length, only), starts(world, log, np.arange(len(log)))
    together = len(what) if s.by == "ppo" and not labels else 1
    every = (1.0,) * len(what)
    card = Card(s.net, world.dt, what, _groups(what, s.types, together), every, every, s.history, s.hidden, together)
    blank = ActuatorNet.on(model_of(world), card, {"w_out": np.zeros((1, 1, 1))})
    slow = np.maximum(SLOW * np.nanstd(x.v[:, blank.v_at], 0), 1e-6)
    blank = replace(blank, card=replace(card, slow=tuple(map(float, slow))))
    u, tau = controls(world, log), _labels(world, log, what) if labels else None
    at = pieces.rows[:, None] + np.arange(length)
    own = own_forces(world, e, log, x, u)[:, blank.v_at]
    label = None if tau is None else (0.5 * (tau[:-1] + tau[1:]))[at]
    whole = np.ones(len(at), bool) if label is None else np.isfinite(label).all((1, 2))
    if whole.sum() < OF:
        raise LogError(
            f"found {int(whole.sum())} whole blocks of {length} periods, expected at least {OF}: too short, or with too many gaps"
        )
    pieces = replace(pieces, rows=pieces.rows[whole], start=_some(pieces.start, whole), u=pieces.u[whole])
    at, label = at[whole], None if label is None else label[whole]
    features = blank.features(x.q, x.v, u)[at]
    part = np.select([np.arange(len(at)) % OF == OF - 2, np.arange(len(at)) % OF == OF - 1], [1, 2], 0)
    lesson = Lesson(world, e, blank, pieces, features, own[at], label, part)
    return replace(lesson, blank=_scales(lesson, s))


def _some(start: Start, rows: np.ndarray) -> Start:
    return Start(start.q[rows], start.v[rows], start.u[rows], None if start.act is None else start.act[rows])


def _groups(what: tuple[Drive, ...], types: tuple[str, ...], together: int) -> tuple[int, ...]:
    """Of each unit, which net it uses."""
    import re

    if together > 1:
        return (0,)
    if not types:
        return tuple(range(len(what)))
    found = []
    for d in what:
        hits = [i for i, pattern in enumerate(types) if re.fullmatch(pattern, d.joint)]
        if len(hits) != 1:
            raise SurefootError(f"types: joint {d.joint}: matches {len(hits)} of {', '.join(types)}, expected one")
        found.append(hits[0])
    used = sorted(set(found))
    return tuple(used.index(i) for i in found)


def _labels(world: World, log: Log, what: tuple[Drive, ...]) -> np.ndarray:
    """(T, J) measured torque, in the order of the drives."""
    if "joint_torque" not in log.columns:
        raise LogError(f"found columns {', '.join(log.columns)}; expected joint_torque, or --no-labels")
    names = names_in(world.layout, log, "joint_torque")
    for d in what:
        if d.joint not in names:
            raise LogError(f"joint_torque: found no part for joint {d.joint}; it has {', '.join(names)}")
    return measured(log, "joint_torque")[:, [names.index(d.joint) for d in what]]


def own_forces(world: World, e: np.ndarray, log: Log, x: Start, u: np.ndarray) -> np.ndarray:
    """(T - 1, nv) what the model's actuators did over each period, had they been where the log says."""
    late = _late(world, e, log, u)
    act = late if world.na == world.nu else None
    ends = []
    for rows in (slice(0, -1), slice(1, None)):
        ends.append(_driven(world, e, Start(x.q[rows], x.v[rows], late[:-1], None if act is None else act[:-1])))
    return 0.5 * (ends[0] + ends[1])


def _late(world: World, e: np.ndarray, log: Log, u: np.ndarray) -> np.ndarray:
    """The controls as they reach actuators that the model delays."""
    one = world.with_(1, ())
    nothing = Start(np.zeros((1, world.nq)), np.zeros((1, world.nv)), u[:1])
    one.reset(np.arange(1), e[None], nothing)
    delay = one.delays()[0]
    return np.stack([np.interp(log.time - delay[i], log.time, u[:, i]) for i in range(u.shape[1])], 1)


def _driven(world: World, e: np.ndarray, at: Start) -> np.ndarray:
    found = []
    good = np.isfinite(at.q).all(1) & np.isfinite(at.v).all(1) & np.isfinite(at.u).all(1)
    for rows in np.array_split(np.arange(len(at.q)), -(-len(at.q) // CHUNK)):
        many, part = world.with_(len(rows), ()), _some(at, rows)
        clean = Start(np.nan_to_num(part.q), np.nan_to_num(part.v), np.nan_to_num(part.u), part.act)
        many.reset(np.arange(len(rows)), np.repeat(e[None], len(rows), 0), clean)
        found.append(many.actuator_force())
    return np.where(good[:, None], np.concatenate(found), np.nan)


def _scales(lesson: Lesson, s: Settings) -> ActuatorNet:
    """A net that says 0, with inputs and outputs scaled to what the blocks to learn from hold."""
    card, learn = lesson.blank.card, lesson.part == 0
    J, k = len(card.drives), card.together
    x = lesson.features[learn].reshape(-1, card.units, TOLD * k)
    y = (lesson.own if lesson.label is None else lesson.label - lesson.own)[learn].reshape(-1, card.units, k)
    frames = card.history if card.kind == "mlp" else 1
    count = max(card.groups) + 1
    arrays = {k_: np.zeros((count, 1, w), np.float32) for k_, w in
              {"shift": frames * TOLD * k, "scale": frames * TOLD * k, "gain": k, "offset": k}.items()}  # fmt: skip
    for g in range(count):
        mine = np.array(card.groups) == g
        xs, ys = x[:, mine].reshape(-1, TOLD * k), y[:, mine].reshape(-1, k)
        arrays["shift"][g, 0] = np.tile(xs.mean(0), frames)
        arrays["scale"][g, 0] = np.tile(np.maximum(xs.std(0), 1e-6), frames)
        arrays["gain"][g, 0] = np.maximum(ys.std(0), 1e-9)
        arrays["offset"][g, 0] = 0.0 if lesson.label is None else ys.mean(0)
    largest = np.abs(y).max(0).reshape(J)
    limit = (s.limit if lesson.label is None else 1.5) * np.maximum(largest, 1e-6)
    arrays["w_out"] = np.zeros((count, s.hidden, k), np.float32)
    return replace(lesson.blank, card=replace(card, limit=tuple(map(float, limit))), arrays=arrays)


def begun(blank: ActuatorNet, hidden: int, seed: int) -> dict[str, torch.Tensor]:
    """Weights to begin with, by name: (G, in, out); the last layer's are 0, so the net says nothing new yet."""
    a, rng = blank.arrays, torch.Generator().manual_seed(key(seed, "actuator net") >> 1)
    count, _, inputs = a["shift"].shape
    sizes = {"w0": (inputs, hidden), "w1": (hidden, hidden)}
    if blank.card.kind == "gru":
        sizes = {"wx": (inputs, 3 * hidden), "wh": (hidden, 3 * hidden)}
    w = {k: torch.randn((count, *size), generator=rng) / size[0] ** 0.5 for k, size in sizes.items()}
    w |= {k.replace("w", "b"): torch.zeros(count, 1, size[1]) for k, size in sizes.items()}
    w |= {
        "w_out": torch.zeros(count, hidden, a["gain"].shape[-1]),
        "b_out": torch.zeros_like(torch.from_numpy(a["gain"])),
    }
    return w


def spread(blank: ActuatorNet, w: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights and scales as `response` takes them: (1, U, in, out)."""
    fixed = {k: torch.from_numpy(blank.arrays[k]) for k in ("shift", "scale", "gain", "offset")}
    return {k: v[list(blank.card.groups)][None] for k, v in {**fixed, **w}.items()}


def with_weights(blank: ActuatorNet, w: Mapping[str, torch.Tensor]) -> ActuatorNet:
    arrays = {k: v.detach().numpy().copy() for k, v in w.items()}
    return replace(blank, arrays={**blank.arrays, **arrays})


def regressed(lesson: Lesson, s: Settings, watch: Watch) -> ActuatorNet:
    """Least squares on the labels, by Adam; the weights that do best on the blocks that stop."""
    blank, rounds = lesson.blank, s.rounds or (300 if s.net == "mlp" else 100)
    x, y = _table(lesson)
    w = begun(blank, s.hidden, s.seed)
    for v in w.values():
        v.requires_grad_(True)
    optimiser = torch.optim.Adam(list(w.values()), 3e-3 if s.net == "mlp" else 1e-2, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, rounds)
    parts = {k: torch.from_numpy(np.flatnonzero(rows)) for k, rows in (("learn", x[2] == 0), ("stop", x[2] == 1))}
    best, kept, since = np.inf, {k: v.detach().clone() for k, v in w.items()}, 0
    for epoch in range(rounds):
        order = torch.from_numpy(stream(s.seed, "shuffle", epoch).permutation(len(parts["learn"])))
        for rows in parts["learn"][order].split(x[1]):
            loss = _loss(blank, w, x[0][:, rows], y[:, rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()
        with torch.no_grad():
            stop = float(_loss(blank, w, x[0][:, parts["stop"]], y[:, parts["stop"]]))
        since = 0 if stop < best else since + 1
        if stop < best:
            best, kept = stop, {k: v.detach().clone() for k, v in w.items()}
        if since > 40:
            break
        watch(Progress(f"epoch {epoch + 1} of {rounds}: unexplained {100 * stop:.2f} %", (epoch + 1) / rounds))
    return with_weights(blank, kept)


def _table(lesson: Lesson) -> tuple[tuple[torch.Tensor, int, np.ndarray], torch.Tensor]:
    """Standardised inputs (U, rows, ..), rows in a batch, part of each row; and what the net is to say (U, rows, ..)."""
    c, f, a = lesson.blank.card, lesson.features, lesson.blank.weights
    assert lesson.label is not None
    y = (lesson.label - lesson.own).reshape(*f.shape[:3], c.together)
    H, B = (c.history, f.shape[1]) if c.kind == "mlp" else (1, f.shape[1])
    frames = np.stack([f[:, H - 1 - i : B - i] for i in range(H)], 3)  # (b, B - H + 1, U, H, 3 k), newest first
    x = (frames.reshape(*frames.shape[:3], -1) - a["shift"][0, :, 0]) / a["scale"][0, :, 0]
    by_unit = lambda v: torch.from_numpy(v.astype(np.float32)).permute(2, 0, 1, 3).contiguous()  # noqa: E731
    x_, y_ = by_unit(np.clip(x, -CLIP, CLIP)), by_unit(y[:, H - 1 :])
    if c.kind == "gru":  # a row is a block
        return (x_, 4, lesson.part), y_
    part = np.repeat(lesson.part, x.shape[1])
    return (x_.flatten(1, 2), int(np.clip(len(part) // 32, 64, 256)), part), y_.flatten(1, 2)


def _loss(blank: ActuatorNet, w: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error in units of what is to be explained."""
    a = spread(blank, w)
    if blank.card.kind == "mlp":
        said = response("mlp", a, x[None], x, torch)[0][0]
        return ((said - y) / a["gain"][0]).square().mean()
    state = torch.stack([_states(a, x[i], i) for i in range(len(x))])  # (U, blocks, B, hidden)
    said = state @ a["w_out"][0][:, None] + a["b_out"][0][:, None]
    return (said - (y - a["offset"][0][:, None]) / a["gain"][0][:, None])[:, :, WARM:].square().mean()


def _states(a: Mapping[str, torch.Tensor], x: torch.Tensor, unit: int) -> torch.Tensor:
    """A GRU's states (rows, B, hidden) along inputs (rows, B, in), as `response` has them one by one."""
    weights = [a["wx"][0, unit].T, a["wh"][0, unit].T, a["bx"][0, unit, 0], a["bh"][0, unit, 0]]
    first = torch.zeros(1, len(x), len(weights[1][0]))
    return torch.gru(x, first, [v.contiguous() for v in weights], True, 1, 0.0, True, False, True)[0]


def judged(lesson: Lesson, net: ActuatorNet) -> dict[str, Any]:
    """On the judge's blocks: torque with and without the net, and where the world goes with and without it."""
    judge = lesson.part == 2
    facts: dict[str, Any] = {
        "rollout": moved(lesson, net, judge),
        "seconds": lesson.features.shape[1] * lesson.world.dt,
    }
    if lesson.label is not None:
        r = net.along(lesson.features[judge])[:, lesson.warm :]
        own, label = (a[judge][:, lesson.warm :] for a in (lesson.own, lesson.label))
        rmse = lambda x: float(np.sqrt(np.square(x).mean()))  # noqa: E731
        without, with_ = rmse(own - label), rmse(own + r - label)
        spread_ = float(np.square(label - label.mean((0, 1))).mean())
        each = {
            d.joint: [rmse((own - label)[..., j]), rmse((own + r - label)[..., j])]
            for j, d in enumerate(net.card.drives)
        }
        facts["torque"] = {
            "without": without, "with": with_, "r2": 1 - with_**2 / spread_, "explained": 1 - (with_ / without) ** 2, "joints": each,
        }  # fmt: skip
    return facts


def moved(lesson: Lesson, net: ActuatorNet, which: np.ndarray) -> dict[str, dict[str, float]]:
    """Root mean square error of each signal over free rollouts of some blocks, without and with the net."""
    p = lesson.pieces
    pieces = replace(p, rows=p.rows[which], start=_some(p.start, which), u=p.u[which])
    found: dict[str, dict[str, float]] = {}
    for name, terms in (("without", lesson.world.terms), ("with", (*lesson.world.terms, net))):
        motion = predict(lesson.world.with_(len(pieces), terms), pieces, lesson.e[None], repeated(pieces.start, 1))
        for signal, error in pieces.errors(motion).items():
            found.setdefault(signal, {})[name] = float(np.sqrt(np.square(error).mean()))
    for both in found.values():
        both["explained"] = 1 - (both["with"] / both["without"]) ** 2
    return found


def worse(facts: Mapping[str, Any]) -> dict[str, float]:
    """Signals whose free rollout is further from the judge's blocks with the net: share of squared error added."""
    return {name: -x["explained"] for name, x in facts["rollout"].items() if not x["explained"] >= 0}


def _refuse(facts: dict[str, Any], labels: bool) -> None:
    """A net that explains nothing, or that leads the world astray, must not look like an answer.

    It must beat the model's own actuator and, with labels, the labels' mean: against labels that have nothing to do
    with the log, a net that cancels the actuator would do the first alone. And torque that fits along the log may still
    shake a world that runs on its own: no signal of the motion may get worse by as much as a net must bring.
    """
    found = facts["torque"] if labels else facts["rollout"]["joint_pos"]
    share, what = min(found["explained"], found.get("r2", 1.0)), "torque" if labels else "motion"
    if not share >= LEAST:
        raise SurefootError(
            f"actuator: on blocks it was not learned from, the net explains {100 * share:.0f} % of the {what}, expected at least "
            f"{100 * LEAST:.0f} %: what the model lacks does not follow from error and velocity (is the log long and lively "
            "enough, its time base right, the model's mass identified?)"
        )
    for name, added in worse(facts).items():
        if not added <= LEAST:
            x = facts["rollout"][name]
            raise SurefootError(
                f"actuator: on blocks it was not learned from, {name} of the free rollout gets worse with the net: error "
                f"{x['without']:.4g} becomes {x['with']:.4g}, squared {100 * added:.0f} % more, expected at most "
                f"{100 * LEAST:.0f} % (is the log noisy, or its rate low? identify gains and delay first, or try --no-labels)"
            )
