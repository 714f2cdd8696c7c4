"""A log as states of a model: q, v, u at each row, with the states that the model's slow actuators have reached there."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from surefoot.belief import Belief
from surefoot.errors import LogError
from surefoot.log import Log
from surefoot.real2sim.replay import Windows, encoder_shift, predict, stretches, windows
from surefoot.real2sim.signals import controls, measured, starts
from surefoot.sim.layout import model_of
from surefoot.sim.learned.features import StateFeatures
from surefoot.world import Chance, Start, Term, World


@dataclass(frozen=True, eq=False)
class LogStates:
    world: World
    log: Log
    e: np.ndarray  # (ne,)
    q: np.ndarray  # (T, nq)
    v: np.ndarray  # (T, nv)
    u: np.ndarray  # (T, nu)
    act: np.ndarray  # (T, na)

    def windows(self, seconds: float, stride: int = 1) -> Windows:
        """Windows of so many seconds, whose starts have the actuator states."""
        length = max(1, round(seconds / self.world.dt))
        found = windows(self.world, self.log, length, stride)
        act = self.act[found.rows] if self.world.na else None
        return replace(found, start=replace(found.start, act=act))

    @cached_property
    def noise(self) -> dict[str, float]:
        """Signal -> sd of its noise, from third differences, in which a smooth signal vanishes; at least a hundredth of its
        usual step: a column without noise must not silence the others."""
        found = {}
        for s in windows(self.world, self.log, 1).signals:
            y = measured(self.log, s.name)
            third = s.error(y[3:], y[2:-1]) - 2 * s.error(y[2:-1], y[1:-2]) + s.error(y[1:-2], y[:-3])
            step = np.sqrt(np.nanmean(np.square(s.error(y[1:], y[:-1]))))
            found[s.name] = float(max(np.sqrt(np.nanmean(np.square(third)) / 20), 0.01 * step, 1e-12))
        return found

    def phi(self, rows: np.ndarray) -> np.ndarray:
        return StateFeatures.of(model_of(self.world)).read(self.q[rows], self.v[rows], self.u[rows], self.act[rows])

    def errors(self, pieces: Windows, terms: tuple[Term, ...]) -> dict[str, np.ndarray]:
        """Signal -> prediction errors of windows, with Terms in the world."""
        world = self.world.with_(len(pieces), (*self.world.terms, *terms))
        return pieces.errors(predict(world, pieces, self.e[None]))

    def longest(self, begin: int, end: int) -> int:
        """Control periods of the longest stretch without a gap among rows begin..end - 1."""
        state, given = (np.isfinite(a).all(1) for a in (np.hstack([self.q, self.v]), controls(self.world, self.log)))
        return max(max(0, min(b, end - 1) - max(a, begin)) for a, b in stretches(self.world, self.log, state, given))


def log_states(world: World, belief: Belief, log: Log) -> LogStates:
    """The simulation walks along the log, set to the measured state at every row, to find its actuators' own states."""
    _check_whole(world, log)
    e, rows, one = belief.estimate(), np.arange(len(log)), world.with_(1)
    x, u = starts(world, log, rows), controls(world, log)
    u, at = np.where(np.isfinite(u), u, 0.0), x.q - encoder_shift(world, e[None])
    act = np.zeros((len(log), world.na))
    if world.na or (model_of(world).actuator_history[:, 0] > 0).any():
        q, v = (filled(a) for a in (at, x.v))
        first = None if x.act is None else filled(x.act)[:1]
        one.reset(np.arange(1), e[None], Start(q[:1], v[:1], u[:1], first))
        for k in rows:
            one.set_state(q[k : k + 1], v[k : k + 1])
            act[k] = one.state.act[0]
            one.step(u[k : k + 1], Chance(0, int(k), world.dt))
    return LogStates(world, log, e, at, x.v, u, act)


def filled(a: np.ndarray) -> np.ndarray:
    """Rows that were not measured repeat the last that was: no window begins there, but the walk goes through."""
    good = np.isfinite(a).all(1)
    last = np.maximum.accumulate(np.where(good, np.arange(len(a)), -1))
    return a[np.where(last < 0, np.argmax(good), last)]


def _check_whole(world: World, log: Log) -> None:
    """Refuse a log that lacks a part of the model's state."""
    StateFeatures.of(model_of(world))
    need = ["base_pos", "base_quat", "base_ang_vel"] if world.layout.base is not None else []
    need += ["joint_pos"] if world.layout.joints else []
    for name in (*need, "control"):
        if name not in log.columns:
            raise LogError(
                f"column {name}: found none among {', '.join(log.columns)}; a residual can be fitted only where "
                "all of the state was measured"
            )
