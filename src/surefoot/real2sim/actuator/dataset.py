"""A log as data for actuator nets: what the net reads, what the model's actuators do, and the measured torque if there is one.

    label(k) - model(k) = r(k)      over period k, from time k to k + 1: means of the values at its two ends

Torque is taken to be linear from row to row; where it jumps with the command, it is read as half a period late. The log is
cut into blocks of time: of seven, five train, one validates, one tests, and no history reaches from one into another.
"""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from surefoot.errors import LogError, SurefootError
from surefoot.log import Log
from surefoot.real2sim.actuator.net import ActuatorModule, Kind, Shape, UnitNets
from surefoot.real2sim.replay import Windows, windows
from surefoot.real2sim.signals import controls, measured, names_in, starts
from surefoot.sim.layout import model_of
from surefoot.sim.learned.actuator_net import FEATURES, Actuators, Drive, DrivenJoints, drives
from surefoot.world import Start, World

BLOCK = 0.5  # s, where the log is long enough for 28 of them
OF = 7  # blocks in a round
TRAIN, VALIDATE, TEST = 0, 1, 2
SLOW = 0.05  # v_slow, of a joint's usual speed
WARM = 5  # periods before a GRU's answers count
CHUNK = 4096  # simulations at once


@dataclass(frozen=True)
class Settings:
    """How a net is learned."""

    net: Kind = "mlp"
    """a history of periods into an MLP, or one period at a time into a GRU"""
    labels: bool | None = None
    """learn from the log's joint_torque, or without; default: as the log has it"""
    by: Literal["gradient", "es", "ppo"] = "gradient"
    """without labels: gradients through the engine, antithetic evolution strategy, or reinforcement learning"""
    types: tuple[str, ...] = ()
    """patterns of joint names, such as .*_hip: joints that match one pattern share a net; default: one net each"""
    history: int = 6
    """control periods in the input of an MLP, this one among them"""
    hidden: int = 32
    """width of each layer, or of a GRU's state"""
    rounds: int | None = None
    """epochs with labels (300 for an MLP, 100 for a GRU), updates without (100)"""
    window: float = 0.25
    """without labels: s of each window of the log that is simulated"""
    limit: float = 1.0
    """without labels: largest |r|, as a fraction of the largest force of the model's own actuator in the log"""
    share: float = 0.5
    """weight of the log's rows, where another log is learned from beside it; that of the other's is the rest"""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("history", "hidden"):
            if getattr(self, name) < 1:
                raise SurefootError(f"actuator: {name}: found {getattr(self, name)}, expected at least 1")
        if self.rounds is not None and self.rounds < 1:
            raise SurefootError(f"actuator: rounds: found {self.rounds}, expected at least 1")
        if not 0 < self.share < 1:
            raise SurefootError(f"actuator: share: expected a number between 0 and 1, found {self.share:g}")
        if not (self.window > 0 and self.limit > 0):
            raise SurefootError(f"actuator: found window {self.window}, limit {self.limit}; expected both above 0")

    @property
    def warm(self) -> int:
        """The first period of a block in which a net has all of its input."""
        return self.history - 1 if self.net == "mlp" else WARM


@dataclass(frozen=True)
class Dataset:
    """b blocks of B control periods."""

    world: World  # without the net
    e: np.ndarray  # (ne,)
    actuators: Actuators
    shape: Shape
    pieces: Windows
    features: np.ndarray  # (b, B, 3 J)
    model: np.ndarray  # (b, B, J) torque of the model's actuators, mean over each period
    label: np.ndarray | None  # (b, B, J) measured torque, likewise
    part: np.ndarray  # (b,) TRAIN, VALIDATE or TEST

    @property
    def joints(self) -> DrivenJoints:
        return DrivenJoints.of(model_of(self.world), self.actuators.drives)

    def untrained(self, seed: int) -> ActuatorModule:
        """A module with inputs and outputs scaled to the training blocks."""
        return ActuatorModule(UnitNets(self.shape, self._scales(), seed), self.shape, self.actuators.limit)

    def _scales(self) -> dict[str, np.ndarray]:
        """Of each unit, over all units of its group."""
        k, groups, train = self.shape.together, np.array(self.shape.groups), self.part == TRAIN
        x = self.features[train].reshape(-1, len(groups), FEATURES * k)
        y = (self.model if self.label is None else self.label - self.model)[train].reshape(-1, len(groups), k)
        found: dict[str, list[np.ndarray]] = {"shift": [], "scale": [], "gain": [], "offset": []}
        for g in groups:
            xs, ys = (a[:, groups == g].reshape(-1, a.shape[2]) for a in (x, y))
            found["shift"].append(np.tile(xs.mean(0), self.shape.frames))
            found["scale"].append(np.tile(np.maximum(xs.std(0), 1e-6), self.shape.frames))
            found["gain"].append(np.maximum(ys.std(0), 1e-9))
            found["offset"].append(np.zeros(k) if self.label is None else ys.mean(0))
        return {name: np.stack(each)[:, None] for name, each in found.items()}


def prepare(world: World, e: np.ndarray, log: Log, s: Settings, labels: bool) -> Dataset:
    """Cut the log into blocks, compute the torque of the model's actuators in it, and set the limits of r."""
    what = drives(model_of(world))
    joints = DrivenJoints.of(model_of(world), what)
    length = max(2 * max(s.history, WARM), min(round(BLOCK / world.dt), len(log) // (4 * OF)))
    length = max(length, round(s.window / world.dt)) if not labels else length
    signals = tuple(k for k in ("joint_pos", "joint_vel") if k in log.columns)
    if "joint_pos" not in signals:
        raise LogError(f"found columns {', '.join(log.columns)}; expected joint_pos among them")
    pieces, x = windows(world, log, length, length, signals), starts(world, log, np.arange(len(log)))
    slow = np.maximum(SLOW * np.nanstd(x.v[:, joints.v_at], 0), 1e-6)
    u, rows = controls(world, log), pieces.rows[:, None] + np.arange(length)
    features = joints.features(x.q, x.v, u, tuple(slow))[rows]
    model = model_forces(world, e, log, x, u)[:, joints.v_at][rows]
    tau = _labels(world, log, what) if labels else None
    label = None if tau is None else (0.5 * (tau[:-1] + tau[1:]))[rows]
    lacks = model if label is None else label - model
    whole = np.isfinite(features).all((1, 2)) & np.isfinite(lacks).all((1, 2))
    if whole.sum() < OF:
        raise LogError(
            f"found {int(whole.sum())} whole blocks of {length} periods, expected at least {OF}: too short, or with too many gaps"
        )
    order = np.arange(int(whole.sum())) % OF
    part = np.select([order == OF - 2, order == OF - 1], [VALIDATE, TEST], TRAIN)
    largest = np.maximum(np.abs(lacks[whole][part == TRAIN]).max((0, 1)), 1e-6)
    limit = (s.limit if label is None else 1.5) * largest
    actuators = Actuators(world.dt, what, tuple(map(float, slow)), tuple(map(float, limit)))
    features, model, label = features[whole], model[whole], None if label is None else label[whole]
    pieces, shape = pieces.some(whole), _shape(what, s, labels)
    return Dataset(world, e, actuators, shape, pieces, features, model, label, part)


def _shape(what: tuple[Drive, ...], s: Settings, labels: bool) -> Shape:
    if s.by == "ppo" and not labels:
        return Shape(s.net, (0,), len(what), s.history, s.hidden)
    return Shape(s.net, _groups(what, s.types), 1, s.history, s.hidden)


def _groups(what: tuple[Drive, ...], types: tuple[str, ...]) -> tuple[int, ...]:
    """Of each joint, which weights it uses."""
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


def model_forces(world: World, e: np.ndarray, log: Log, x: Start, u: np.ndarray) -> np.ndarray:
    """(T - 1, nv) force of the model's actuators over each period, at the states of the log."""
    late = _delayed(world, e, log, u)
    act = late if world.na == world.nu else None
    ends = []
    for rows in (slice(0, -1), slice(1, None)):
        ends.append(_forces(world, e, Start(x.q[rows], x.v[rows], late[:-1], None if act is None else act[:-1])))
    return 0.5 * (ends[0] + ends[1])


def _delayed(world: World, e: np.ndarray, log: Log, u: np.ndarray) -> np.ndarray:
    """The controls as they reach actuators that the model delays."""
    one = world.with_(1, ())
    nothing = Start(np.zeros((1, world.nq)), np.zeros((1, world.nv)), u[:1])
    one.reset(np.arange(1), e[None], nothing)
    delay = one.delays()[0]
    return np.stack([np.interp(log.time - delay[i], log.time, u[:, i]) for i in range(u.shape[1])], 1)


def _forces(world: World, e: np.ndarray, at: Start) -> np.ndarray:
    found = []
    good = np.isfinite(at.q).all(1) & np.isfinite(at.v).all(1) & np.isfinite(at.u).all(1)
    for rows in np.array_split(np.arange(len(at.q)), -(-len(at.q) // CHUNK)):
        many = world.with_(len(rows), ())
        q, v, u = (np.nan_to_num(a[rows]) for a in (at.q, at.v, at.u))
        clean = Start(q, v, u, None if at.act is None else at.act[rows])
        many.reset(np.arange(len(rows)), np.repeat(e[None], len(rows), 0), clean)
        found.append(many.actuator_force())
    return np.where(good[:, None], np.concatenate(found), np.nan)
