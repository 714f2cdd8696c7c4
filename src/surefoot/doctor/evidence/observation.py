"""What a policy should have been told: its observation, rebuilt from the raw signals of a log by the task's own terms.

    raw(k) = (compute_i(moment k))_i       told(k) = scale * clip(raw(k)),  history frames of it, newest last

`raw` (T, frame) is in the terms' units. A packet that got lost (nan) is told again as it was before. A term that reads what
the log has not got is nan throughout, and named in `missing`.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import mujoco
import numpy as np

from surefoot.contract import Contract
from surefoot.errors import LogError
from surefoot.fault import Fault, on_columns, on_frames
from surefoot.log import Log
from surefoot.real2sim.signals import measured, starts
from surefoot.rotation import unit
from surefoot.sim.layout import sensor_columns
from surefoot.task import Moment, Task
from surefoot.world import State, World

READ = ("joint_pos", "joint_vel", "base_pos", "base_quat", "base_lin_vel", "base_ang_vel", "action", "control", "command",
        "observation")  # fmt: skip
HUGE = 1e15  # in any unit: what a driver writes where it has no number
HOLE = 1.5  # control periods between two rows: beyond it an episode ended and another began


@dataclass(frozen=True, eq=False)
class Told:
    """The rows of a log as a policy meets them."""

    contract: Contract
    raw: np.ndarray  # (T, frame)
    quat: np.ndarray | None  # (T, 4) attitude, where there is a base
    begins: np.ndarray  # (T,) the row in which each row's episode begins
    action: np.ndarray  # (T, na) what the policy answered, bounded
    missing: tuple[str, ...]
    lost: np.ndarray  # (T,) bool: not all was measured, and what was before stands for it
    observation: np.ndarray | None = None  # (T, obs_dim) what the log says the policy was told

    @cached_property
    def columns(self) -> dict[str, slice]:
        return {t.name: at for t, at in zip(self.contract.terms, self.contract.observation.columns)}

    def frames(self, raw: np.ndarray) -> np.ndarray:
        """(T, frame) clipped and scaled."""
        return self.contract.observation.finish(raw.copy())

    def back(self, k: int) -> np.ndarray:
        """(T,) the row k periods before each, within its episode."""
        return np.maximum(np.arange(len(self.raw)) - k, self.begins)

    def under(self, fault: Fault) -> np.ndarray:
        """(T, obs_dim) what the policy would have been told under a fault."""
        spans = self.begins, np.arange(len(self.raw))
        raw = on_frames(fault, self.contract.observation, self.raw, spans, self.quat)
        return self.stacked(self.contract.observation.finish(raw), fault.ages or None)

    def sent(self, fault: Fault) -> np.ndarray:
        """(T, nu) the controls that would have been sent under a fault of answers or controls."""
        law, spans = self.contract.action, (self.begins, np.arange(len(self.action)))
        a = on_columns(fault, {"action": self.action}, spans)["action"]
        a = np.clip(a, -law.limit, law.limit) if fault.kind == "scale" else a
        return on_columns(fault, {"control": law.control(a)})["control"]

    def guessed(self) -> np.ndarray:
        """(T,) bool: rows whose observation has a frame in it that was lost. A runtime may have been told it all the same."""
        return np.asarray(np.any([self.lost[self.back(k)] for k in range(self.contract.history)], 0))

    def stacked(self, frames: np.ndarray, lags: tuple[int, ...] | None = None) -> np.ndarray:
        """(T, obs_dim) float32: frames so many periods old; without lags, as the contract has them."""
        lags = tuple(range(self.contract.history - 1, -1, -1)) if lags is None else lags
        return self.contract.observation.told(np.stack([frames[self.back(k)] for k in lags], 1)).astype(np.float32)


def checked(log: Log) -> Log:
    """The log with nan wherever it has nothing finite, or a huge number: nothing was measured there, as in the rest of real2sim.

    A part without any number is refused: nothing could be said of it, and hence of no row.
    """
    for name in (n for n in READ if n in log.columns):
        column = measured(log, name)
        empty = np.flatnonzero(~(np.abs(column) < HUGE).any(0))
        if len(empty):
            names = log.meta.get("names", {}).get(name) or [f"part {i}" for i in range(column.shape[1])]
            which = ", ".join(str(names[i]) for i in empty)
            raise LogError(f"column {name}: {which}: found no number in {len(log)} rows, expected what was measured")
    there = {k: np.abs(v) < HUGE for k, v in log.columns.items()}
    lost = {k: np.where(there[k], v, np.nan) for k, v in log.columns.items() if not there[k].all()}
    return replace(log, columns=log.columns | lost)


def rebuilt(task: Task, contract: Contract, world: World, log: Log) -> Told:
    """The observations of a log's rows, for a task that is told what the contract says."""
    for name in ("action", "control"):
        if name not in log.columns:
            raise LogError(
                f"column {name}: found none among {', '.join(log.columns)}; expected what the policy answered "
                "(`action`) and what was sent (`control`)"
            )
    begins = episodes(log)
    rows = np.arange(len(log))
    x = starts(world, log, rows)
    q, v = (_held(a, begins) for a in (x.q, x.v))
    action = measured(log, "action").astype(float)
    if action.shape[1] != len(contract.action.names):
        raise LogError(
            f"column action: found {action.shape[1]} parts, expected {len(contract.action.names)}: "
            f"{', '.join(contract.action.names)}"
        )
    before = np.maximum(rows - 1, 0)
    first = rows == begins
    last = np.where(first[:, None], 0.0, action[before])
    previous = np.where(first[:, None], 0.0, last[before])
    command = np.zeros((len(log), len(contract.command_names)))
    if contract.command_names:
        if "command" not in log.columns:
            raise LogError(f"column command: found none, expected {', '.join(contract.command_names)}")
        command = _held(measured(log, "command"), begins)
    state = State(
        log.time - log.time[begins], q, v, x.u, np.zeros((len(log), world.model.na)), _readings(world.model, log, q, v, begins),
        np.tile(task.params.nominal, (len(log), 1)), world.model.opt.gravity[None].copy(), np.zeros((len(log), world.model.nbody, 6)),
    )  # fmt: skip
    moment = Moment(
        state,
        last,
        previous,
        command,
        state.time,
        np.full(len(log), np.nan),
        replace(world.layout, actions=contract.action.names),
    )
    raw, missing = _raw(task, moment)
    turn = None
    if world.model.njnt and world.model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE and "base_quat" in log.columns:
        turn = unit(q[:, 3:7])
    lost = ~(np.isfinite(x.q).all(1) & np.isfinite(x.v).all(1))
    return Told(contract, raw, turn, begins, action, missing, lost, _logged(contract, log))


def episodes(log: Log) -> np.ndarray:
    """(T,) the row in which each row's episode begins: after a hole in time, or a row with nothing in it."""
    step = np.diff(log.time)
    new = np.concatenate([[True], step > HOLE * np.median(step)])
    empty = ~np.isfinite(measured(log, "control")).all(1)
    new[1:] |= empty[:-1]
    return np.maximum.accumulate(np.where(new | empty, np.arange(len(log)), 0))


def _raw(task: Task, moment: Moment) -> tuple[np.ndarray, tuple[str, ...]]:
    group, missing = task.observations["actor"], []
    raw = np.full((len(moment.q), group.frame), np.nan)
    for t, at in zip(group.terms, group.columns):
        try:
            raw[:, at] = t.source(moment) if t.source is not None else np.nan
        except (KeyError, ValueError, IndexError):
            pass
        if not np.isfinite(raw[:, at]).any():
            missing.append(t.name)
    return raw, tuple(missing)


def _readings(
    model: mujoco.MjModel, log: Log, q: np.ndarray, v: np.ndarray, begins: np.ndarray
) -> dict[str, np.ndarray]:
    """Sensors of the model, and families of them: as logged, or what a joint's sensor says of a logged joint."""
    data = np.full((len(log), model.nsensordata), np.nan)
    for i in range(model.nsensor):
        at, j = slice(model.sensor_adr[i], model.sensor_adr[i] + model.sensor_dim[i]), model.sensor_objid[i]
        name, kind = model.sensor(i).name, model.sensor_type[i]
        if name in log.columns and measured(log, name).shape[1] == model.sensor_dim[i]:
            data[:, at] = _held(measured(log, name), begins)
        elif kind == mujoco.mjtSensor.mjSENS_JOINTPOS and "joint_pos" in log.columns:
            data[:, at] = q[:, model.jnt_qposadr[j], None]
        elif kind == mujoco.mjtSensor.mjSENS_JOINTVEL and "joint_vel" in log.columns:
            data[:, at] = v[:, model.jnt_dofadr[j], None]
    return {name: data[:, a:b] for name, (a, b) in sensor_columns(model).items()}


def _held(a: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Rows that were lost hold the last of their episode that was not."""
    rows = np.arange(len(a))
    good = np.isfinite(a).all(1)
    last = np.maximum.accumulate(np.where(good, rows, -1))
    return np.asarray(np.where((last >= begins)[:, None], a[np.maximum(last, 0)], a), float)


def _logged(contract: Contract, log: Log) -> np.ndarray | None:
    if "observation" not in log.columns:
        return None
    found = measured(log, "observation")
    if found.shape[1] != contract.obs_dim:
        raise LogError(f"column observation: found {found.shape[1]} numbers a row, expected {contract.obs_dim}")
    return found
