"""The observations that a policy should have had in each row of a log: its contract's terms, computed from the log's readings.

    frame(k) = scale * clip(formula(readings(k)))        observation(k) = `history` frames        (surefoot.observation)

A reading that was lost (nan) repeats the one before it in its episode, as runtimes do. A reading in the frame of a site is its
sensor's where the log has it, and computed from base and joints otherwise. A term whose readings are neither is nan in
every row, and `missing` names it.
"""

from dataclasses import dataclass, replace

import numpy as np

from surefoot.contract import Contract
from surefoot.doctor.evidence.site_readings import site_readings
from surefoot.errors import LogError
from surefoot.fault import PLAIN, Fault, on_columns, on_frames
from surefoot.log import Log
from surefoot.observation import Columns, ObsTerm
from surefoot.real2sim.signals import measured, names_in, slope
from surefoot.rotation import unit
from surefoot.sim.layout import OF_JOINT, model_of, sensor_columns
from surefoot.world import World

STATE = ("joint_pos", "joint_vel", "base_pos", "base_quat", "base_lin_vel", "base_ang_vel")
CHECKED = (*STATE, "action", "control", "command", "observation")
HUGE = 1e15  # in any unit: what a driver writes where it has no number
GAP = 1.5  # control periods between two rows: beyond it an episode ended and another began


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """The rows of a log as its policy should have observed them."""

    contract: Contract
    raw: np.ndarray  # (T, frame) in the terms' units, before clip and scale
    quat: np.ndarray | None  # (T, 4) attitude of the base, where it has one
    begins: np.ndarray  # (T,) the row in which each row's episode begins
    action: np.ndarray  # (T, na) as logged
    missing: tuple[str, ...]  # terms whose readings the log does not have
    lost: np.ndarray  # (T,) bool: a reading was lost and the one before stands for it
    logged: np.ndarray | None = None  # (T, obs_dim) the log's own column `observation`

    def back(self, k: int) -> np.ndarray:
        """(T,) the row k periods before each, within its episode."""
        return np.maximum(np.arange(len(self.raw)) - k, self.begins)

    def observations(self, fault: Fault = PLAIN) -> np.ndarray:
        """(T, obs_dim) float32: what the policy gets if the runtime has this fault."""
        group = self.contract.observation
        spans = self.begins, np.arange(len(self.raw))
        frames = group.finish(on_frames(fault, group, self.raw, spans, self.quat))
        ages = fault.ages or tuple(range(group.history - 1, -1, -1))
        return group.flat(np.stack([frames[self.back(k)] for k in ages], 1)).astype(np.float32)

    def controls(self, fault: Fault = PLAIN) -> np.ndarray:
        """(T, nu) the controls that the logged actions give if the action path has this fault."""
        law, spans = self.contract.action, (self.begins, np.arange(len(self.action)))
        a = on_columns(fault, {"action": self.action}, spans)["action"]
        a = np.clip(a, -law.limit, law.limit) if fault.kind == "scale" else a
        return on_columns(fault, {"control": law.control(a)})["control"]

    def uncertain(self) -> np.ndarray:
        """(T,) bool: rows whose observation has a lost frame in it; the runtime may have had the frame all the same."""
        return np.asarray(np.any([self.lost[self.back(k)] for k in range(self.contract.history)], 0))


def checked(log: Log) -> Log:
    """The log with nan in place of every number that is huge or not finite: nothing was measured there.

    A column part without any number is refused.
    """
    for name in (n for n in CHECKED if n in log.columns):
        column = measured(log, name)
        empty = np.flatnonzero(~(np.abs(column) < HUGE).any(0))
        if len(empty):
            names = log.meta.get("names", {}).get(name) or [f"part {i}" for i in range(column.shape[1])]
            which = ", ".join(str(names[i]) for i in empty)
            raise LogError(f"column {name}: {which}: found no number in {len(log)} rows, expected measurements")
    valid = {k: np.abs(v) < HUGE for k, v in log.columns.items()}
    lost = {k: np.where(valid[k], v, np.nan) for k, v in log.columns.items() if not valid[k].all()}
    return replace(log, columns=log.columns | lost)


def rebuild(contract: Contract, world: World, log: Log) -> Rebuilt:
    """The observations of a log's rows."""
    _check_columns(contract, log)
    begins, motion = episodes(log), _motion(log)
    action = measured(log, "action").astype(float)
    readings = _readings(contract, world, log, motion, begins)
    group = contract.observation
    known = [all(_computable(x, readings) for x in group.sources(t)) for t in group.terms]
    terms = tuple(t if k else replace(t, source=None) for t, k in zip(group.terms, known))
    raw = replace(group, terms=terms).raw(readings, len(log)).astype(float)
    missing = tuple(t.name for t, at in zip(terms, group.columns) if not np.isfinite(raw[:, at]).any())
    quat = unit(readings.values["base_quat"]) if world.layout.base is not None and "base_quat" in motion else None
    lost = ~np.all([np.isfinite(x).all(1) for x in motion.values()], 0) & np.ones(len(log), bool)
    logged = measured(log, "observation") if "observation" in log.columns else None
    return Rebuilt(contract, raw, quat, begins, action, missing, lost, logged)


def _check_columns(contract: Contract, log: Log) -> None:
    for name, what in (("action", "the policy's actions"), ("control", "the controls that were sent")):
        if name not in log.columns:
            raise LogError(f"column {name}: found none among {', '.join(log.columns)}; expected {what}")
    if contract.command_names and "command" not in log.columns:
        raise LogError(f"column command: found none, expected {', '.join(contract.command_names)}")
    names = contract.action.names
    widths = {"action": (len(names), ", ".join(names)), "observation": (contract.obs_dim, "as the contract has them")}
    for name, (width, what) in widths.items():
        if name in log.columns and measured(log, name).shape[1] != width:
            raise LogError(f"column {name}: found {measured(log, name).shape[1]} parts, expected {width}: {what}")


def episodes(log: Log) -> np.ndarray:
    """(T,) the row in which each row's episode begins: after a gap in time, or after a row without controls."""
    step = np.diff(log.time)
    new = np.concatenate([[True], step > GAP * np.median(step)])
    empty = ~np.isfinite(measured(log, "control")).all(1)
    new[1:] |= empty[:-1]
    return np.maximum.accumulate(np.where(new | empty, np.arange(len(log)), 0))


def _motion(log: Log) -> dict[str, np.ndarray]:
    """Positions and velocities of joints and base; a velocity that is not logged is the slope of its position."""
    found = {name: measured(log, name) for name in STATE if name in log.columns}
    for position, velocity in (("joint_pos", "joint_vel"), ("base_pos", "base_lin_vel")):
        if position in found and velocity not in found:
            found[velocity] = slope(log.time, found[position])
    return found


def _readings(contract: Contract, world: World, log: Log, motion: dict[str, np.ndarray], begins: np.ndarray) -> Columns:
    """By name, what a runtime read in each row of the log."""
    rows = np.arange(len(log))
    action, first = measured(log, "action").astype(float), (rows == begins)[:, None]
    own = {
        "action": np.where(first, 0.0, action[np.maximum(rows - 1, 0)]),
        "time": (log.time - log.time[begins])[:, None],
        "gravity": model_of(world).opt.gravity[None],
    }
    names = {"action": contract.action.names}
    for name in (n for n in ("joint_pos", "joint_vel") if n in motion):
        logged = name if name in log.columns else "joint_pos"
        names[name] = tuple(names_in(world.layout, log, logged))
    found = _sensors(world, log, motion, names) | motion
    found |= {"command": measured(log, "command")} if "command" in log.columns else {}
    found |= {reading: found[sensor] for reading, sensor in world.layout.sensors.items() if sensor in found}
    sites = sorted({name for name in contract.observation.needs if "@" in name and name not in found})
    found |= site_readings(model_of(world), world.layout, motion, names.get("joint_pos", ()), sites)
    return Columns({k: _held(v, begins) for k, v in found.items()} | own, names)


def _sensors(
    world: World, log: Log, motion: dict[str, np.ndarray], names: dict[str, tuple[str, ...]]
) -> dict[str, np.ndarray]:
    """Sensors of the model and families of them: as logged, or, for a joint's sensor, the logged joint."""
    model = model_of(world)
    data = np.full((len(log), model.nsensordata), np.nan)
    for i in range(model.nsensor):
        at = slice(model.sensor_adr[i], model.sensor_adr[i] + model.sensor_dim[i])
        name, joint = model.sensor(i).name, OF_JOINT.get(int(model.sensor_type[i]), "")
        if name in log.columns and measured(log, name).shape[1] == model.sensor_dim[i]:
            data[:, at] = measured(log, name)
        elif joint and (which := model.joint(model.sensor_objid[i]).name) in names.get(joint, ()):
            data[:, at] = motion[joint][:, [names[joint].index(which)]]
    found = {name: data[:, a:b] for name, (a, b) in sensor_columns(model).items()}
    return {name: x for name, x in found.items() if np.isfinite(x).any(0).all()}


def _computable(term: ObsTerm, readings: Columns) -> bool:
    f = term.formula
    if f is None or any(name not in readings.values for name in f.needs):
        return False
    return all(set(f.joints) <= set(readings.parts(name)) for name in f.needs if readings.parts(name))


def _held(a: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Rows that were lost repeat the last row of their episode that was not."""
    rows = np.arange(len(a))
    good = np.isfinite(a).all(1)
    last = np.maximum.accumulate(np.where(good, rows, -1))
    return np.asarray(np.where((last >= begins)[:, None], a[np.maximum(last, 0)], a), float)
