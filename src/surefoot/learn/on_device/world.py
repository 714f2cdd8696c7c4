"""A World on mujoco-warp whose arrays are torch tensors: one memory, never copied to the host while it steps.

    x' = f(x, u, e)        x, u and the model's fields of e: tensors that share their memory with warp's arrays

Simulations that begin anew are a mask (n,) in place of numbers, because how many there are is known on the device alone. One
simulation of the same model in MuJoCo knows what fields each unknown has, where readings are, and what a blank state is.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from surefoot.errors import SurefootError
from surefoot.learn.on_device.arrays import ARRAYS as xp
from surefoot.sim.engine import FASTEST, Engine
from surefoot.sim.engines.warp import GIVEN, TAKEN, allocate
from surefoot.sim.events import Pull, Push
from surefoot.sim.fields import inertia
from surefoot.sim.fields.offset import OFFSETS
from surefoot.sim.layout import sensor_columns
from surefoot.world import Chance, Motion, OnBody, OnForce, Sensors, Start, State, Term, World

KNOWN_TERMS = (Push, Pull)  # Terms that compute on a device
FIELDS = (
    "time",
    "qpos",
    "qvel",
    "act",
    "ctrl",
    "xfrc_applied",
    "qfrc_applied",
    "history",
    "qacc_warmstart",
    "sensordata",
)


def rows_of(mask: Tensor, like: Tensor) -> Tensor:
    """The mask, for arrays of this many dimensions."""
    return mask.reshape(-1, *[1] * (like.ndim - 1))


def put(mask: Tensor, array: Tensor, rows: Any) -> None:
    """array[mask] = rows[mask], without asking how many they are."""
    array.copy_(torch.where(rows_of(mask, array), rows, array))


def nobody(mask: Tensor) -> bool:
    """Whether it is known here and now, without waiting for a device, that the mask is empty."""
    return mask.device.type == "cpu" and not bool(mask.any())


class DeviceWorld(World):
    """n simulations like `one`."""

    sense_after_step = False

    def __init__(self, one: Engine, n: int):
        _refuse(one)
        self.one, self.n, self.params, self.terms = one, n, one.params, one.terms
        self.dt, self.substeps, self.layout = one.dt, one.substeps, one.layout
        self.there = there = allocate(one.model, one.fields, n)
        torch_of = there.wp.to_torch
        xp.device = self.device = torch_of(there.data.qpos).device
        if self.device.type == "cuda":  # one stream, so that neither library reads what the other has yet to write
            there.wp.set_stream(there.wp.stream_from_torch(self.device), str(self.device))
        missing = {f: torch.zeros((n, 0), device=self.device) for f in FIELDS if not there.has(f)}
        own = {f: missing[f] if f in missing else torch_of(getattr(there.data, f)) for f in FIELDS}
        self.arrays: dict[str, Tensor] = own
        self.saved = [f for f in dict.fromkeys((*GIVEN, *TAKEN)) if f in own and f not in missing]
        self.fields = {f: self._field(f) for f in one.fields}
        self.writers = [(i, replace(w, ids=xp.asarray(w.ids))) for i, w in one.writers]
        self.readings = torch.zeros_like(own["sensordata"])
        y = Sensors({name: self.readings[:, a:b] for name, (a, b) in sensor_columns(one.model).items()})
        gravity = self.fields.get("opt.gravity", xp.asarray(one.model.opt.gravity[None].copy()))
        e = torch.zeros((n, len(one.params)), device=self.device) + xp.asarray(one.params.nominal)
        time, q, v, u, act = (own[k] for k in ("time", "qpos", "qvel", "ctrl", "act"))
        self.state = State(time, q, v, u, act, y, e, gravity, own["xfrc_applied"])
        self.blank = _blank(one)
        self.held = {t.bodies: xp.asarray(one._bodies(t)) for t in one.terms if isinstance(t, OnBody)}
        self.everyone = torch.ones(n, dtype=torch.bool, device=self.device)

    def _field(self, f: str) -> Tensor:
        """A model field with a row for each simulation."""
        if f.startswith("opt."):
            array = self.there.wp.zeros(self.n, dtype=self.there.wp.vec3)
            setattr(self.there.model.opt, f.removeprefix("opt."), array)
        else:
            array = getattr(self.there.model, f)
        found: Tensor = self.there.wp.to_torch(array).view(self.n, *self.one.nominal[f].shape[1:])
        return found

    # episodes begin

    def reset(self, ids: Any, e: Any, start: Start) -> None:
        """Begin anew where the mask `ids` (n,) is true; e and start have a row for every simulation."""
        if nobody(ids):
            return
        x, own = self.state, self.arrays
        for f, value in self.blank.items():
            put(ids, own[f], xp.asarray(value))
        put(ids, x.e, e)
        self._write_fields(ids)
        for array, rows in ((x.q, start.q), (x.v, start.v), (x.u, start.u), (x.act, start.act)):
            if rows is not None:
                put(ids, array, rows)
        if own["history"].shape[1]:
            self._remember(ids, own["ctrl"], self.one.control_memory)
        if self.readings.shape[1]:
            self._sense(ids)

    def set_params(self, ids: Any, e: Any) -> None:
        put(ids, self.state.e, e)
        self._write_fields(ids)

    def set_state(self, q: Any, v: Any) -> None:
        self.state.q.copy_(q), self.state.v.copy_(v)

    def _write_fields(self, mask: Tensor) -> None:
        """The model's own values, then each Param's op in order, so that ops on one field compose."""
        if not self.fields:
            return
        rows: dict[str, Any] = {
            f: xp.asarray(self.one.nominal[f]).expand(self.n, *[-1] * (there.ndim - 1)).clone()
            for f, there in self.fields.items()
        }
        for i, write in self.writers:
            write(rows, self.state.e[:, i])
        for f, there in self.fields.items():
            put(mask, there, rows[f])
        if self.there.derives:
            self.there.mjw.set_const(self.there.model, self.there.data, restore=False)

    def _remember(self, mask: Tensor, values: Tensor, memory: tuple[np.ndarray, np.ndarray]) -> None:
        """Fill the memory of what is delayed, which a reset leaves at zero."""
        columns, source = (xp.asarray(a) for a in memory)
        if len(columns):
            history = self.arrays["history"].clone()
            history[:, columns] = values[:, source]
            put(mask, self.arrays["history"], history)

    def _sense(self, mask: Tensor) -> None:
        """Sensor readings at the new state, and delayed sensors' memory filled with them; others stay as they are."""
        delay = self.fields.get("sensor_delay")
        kept = {f: self.arrays[f].clone() for f in ("history", "qacc_warmstart")}
        late = None if delay is None else delay.clone()
        if delay is not None:
            delay.zero_()
        self.there.mjw.forward(self.there.model, self.there.data)
        if delay is not None and late is not None:
            delay.copy_(late)
        for f, rows in kept.items():
            self.arrays[f].copy_(rows)
        put(mask, self.readings, self.arrays["sensordata"])
        self._remember(mask, self.arrays["sensordata"], self.one.sensor_memory)

    # a control period

    def begin(self, u: Any, chance: Chance) -> None:
        forces = [term(self.state, u, chance) for term in self.terms if isinstance(term, OnForce)]
        if forces:
            self.arrays["qfrc_applied"].copy_(sum(forces))
        pulls = [(self.held[t.bodies], t(self.state, u, chance)) for t in self.terms if isinstance(t, OnBody)]
        if pulls:
            self.state.wrench.zero_()
            for bodies, wrench in pulls:
                self.state.wrench[:, bodies] += wrench.to(torch.float32)
        self.state.u.copy_(u)
        self.v_before = self.state.v.clone() if self.one.explicit else None

    def advance(self) -> None:
        for _ in range(self.substeps):
            self.there.mjw.step(self.there.model, self.there.data)

    def end(self) -> Any:
        x = self.state
        self.readings.copy_(self.arrays["sensordata"])
        if self.v_before is not None:
            x.q.add_(self.dt * (self.v_before - x.v))
        return ~((x.v.abs() < FASTEST).all(1) & x.q.isfinite().all(1))

    def contain(self, bad: Tensor) -> None:
        """Numbers in place of NaN in simulations that diverged, which are reset before they go on."""
        for rows in (self.state.q, self.state.v):
            put(bad, rows, torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0).clamp(-1e3, 1e3))

    # what else a World has

    def with_(self, n: int, terms: tuple[Term, ...] | None = None) -> "DeviceWorld":
        return DeviceWorld(self.one.with_(1, terms), n)

    def rollout(self, u: Any, chance: Chance) -> Motion:
        raise SurefootError("engine warp: rollouts under given controls are MuJoCo's threads'; expected engine mujoco")

    def replay_record(self, i: int) -> dict[str, np.ndarray]:
        return {name: rows[i].cpu().numpy().copy() for name, rows in self.arrays.items()}

    def delays(self) -> Any:
        shared = xp.asarray(self.one.model.actuator_delay).expand(self.n, -1)
        return self.fields.get("actuator_delay", shared)

    def sense(self) -> None:
        self._sense(self.everyone)

    def actuator_force(self) -> Any:
        self.there.mjw.forward(self.there.model, self.there.data)
        return self.there.wp.to_torch(self.there.data.qfrc_actuator).clone()

    def save(self) -> dict[str, np.ndarray]:
        kept = {f: self.arrays[f] for f in self.saved} | {"e": self.state.e, "readings": self.readings}
        return {f: a.cpu().numpy().copy() for f, a in kept.items()}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        for f in self.saved:
            self.arrays[f].copy_(torch.from_numpy(saved[f]))
        self.state.e.copy_(torch.from_numpy(saved["e"]))
        self.readings.copy_(torch.from_numpy(saved["readings"]))
        self._write_fields(self.everyone)


def _refuse(one: Engine) -> None:
    """What has not been taught to compute on a device."""
    for term in one.terms:
        if not isinstance(term, KNOWN_TERMS):
            raise SurefootError(
                f"engine warp: {type(term).__name__}: a term of the world that computes on the host; expected none but "
                + ", ".join(k.__name__ for k in KNOWN_TERMS)
            )
    for p in one.params:
        if p.target in inertia.NAMES or p.target in OFFSETS or p.target == "constraint":
            raise SurefootError(f"engine warp: param {p.name}: target {p.target} is written on the host alone")
    if one.friction:
        raise SurefootError("engine warp: friction with a law of its own, which is stepped by MuJoCo's threads alone")
    if one.params.names and one.law.writes is False:
        raise SurefootError("engine warp: expected a world that writes e into the model")


def _blank(one: Engine) -> dict[str, np.ndarray]:
    """The state of a reset, a row of each array."""
    one.batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
    names = {"time", "qpos", "qvel", "act", "ctrl", "qfrc_applied", "xfrc_applied", "qacc_warmstart", "history"}
    sizes = {"act": one.model.na, "ctrl": one.model.nu, "history": one.model.nhistory}
    return {f: one.batch.bind(f)[:1].copy() for f in names if sizes.get(f, 1)}
