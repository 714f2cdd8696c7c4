"""A World on mujoco.batch: n simulations of one model on a thread pool, each with its own e written into engine fields.

x' = f(x, u, e):  rows of Batch state stepped `substeps` times under held u;  e drawn anew at each reset of each row.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from surefoot.arrays import column_copy
from surefoot.errors import SurefootError, unknown
from surefoot.params import Params
from surefoot.sim.fields import TARGETS, Rows, check_op, friction, object_names, writer
from surefoot.sim.fields.friction import Rubbing
from surefoot.sim.fields.offset import Offset
from surefoot.sim.integrator import Makes, Steps
from surefoot.sim.layout import force_columns, layout_of, memory_columns, sensor_columns
from surefoot.sim.recent import Recent
from surefoot.world import Chance, Motion, OnAction, OnBody, OnForce, Remembers, Sensors, Start, State, Term, World

DIVERGED = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{k}")) for k in ("QPOS", "QVEL", "QACC")]
FIRST, END = min(DIVERGED), max(DIVERGED) + 1  # neighbours, so that counting them needs no copy
FASTEST = 1e6  # rad/s or m/s: beyond it a simulation has diverged, whatever the engine says


def _counted(message: str) -> None:
    """A warning of the engine, which step() finds in its counters."""


def silence() -> None:
    """Without a listener MuJoCo prints a line and writes a file for each warning. One is set where there is none, and stays:
    setting it back and forth around each step would not be safe for two threads."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_counted)


@dataclass(frozen=True)
class Law:
    """How an engine moves a model, where that is not MuJoCo's own way with e in the model's fields."""

    explicit: bool = False
    """q' = q + h v as textbooks' Euler, where the engine has q' = q + h v'"""
    writes: bool = True
    """False: the model is already what it is, and e is there for Terms and critics that read it"""
    makes: Makes | None = None
    """who moves the bodies, if not MuJoCo"""
    steps: Steps | None = None
    """who steps all simulations, if not MuJoCo's threads"""


PLAIN = Law()


class Engine(World):
    """n simulations of a model. threads=0 uses every core; results have the same bits at any thread count."""

    def __init__(
        self,
        model: mujoco.MjModel,
        params: Params,
        n: int,
        substeps: int,
        threads: int = 0,
        terms: tuple[Term, ...] = (),
        law: Law = PLAIN,
    ):
        self.model, self.params, self.n, self.substeps, self.terms = model, params, n, substeps, terms
        self.threads, self.law, self.explicit = threads, law, law.explicit
        self.dt, self.layout = substeps * model.opt.timestep, layout_of(model)
        silence()
        self.batch = Batch(model, n, threads)
        self.counters = self.batch.warning[:, FIRST:END, 1]  # of each kind of divergence, for each simulation
        for p in params:
            check_op(p)
        self.writers = [(i, writer(model, p)) for i, p in enumerate(params) if law.writes and p.target in TARGETS]
        names = {f for _, w in self.writers for f in w.target.fields}
        self.friction, self.offset = friction.law(model, params), Offset(model, params)
        if self.friction:
            names.add("dof_frictionloss")
        if (model.sensor_history[:, 0] > 0).any():
            names.add("sensor_delay")  # set aside while a reset reads its first values
        self.fields: Rows = {f: self.batch.expand(f) for f in sorted(names)}
        self.nominal: Rows = {f: rows[:1].copy() for f, rows in self.fields.items()}
        self.rubbing = Rubbing(self.friction, self.batch, self.fields, model.dof_armature) if self.friction else None
        self.derives = bool(names & set(mujoco.MjModel._setconst_inputs)) or any(f.startswith("opt.") for f in names)
        self.mover = law.makes(model, self.fields, n) if law.makes else None
        if law.steps and self.friction:
            raise SurefootError("friction with a law of its own, which is stepped by MuJoCo's threads alone")
        self.stepper = law.steps(model, self.batch, self.fields) if law.steps else None
        self.senses = model.nsensor > 0
        self.raw = self.batch.bind("sensordata") if self.senses else np.zeros((n, 0))  # from now on kept up to date
        self.readings = column_copy(np.zeros((n, model.nsensordata)))  # those, corrected by who moves the bodies
        self.felt = force_columns(model)
        self.remembers = model.nhistory > 0
        self.history = self.batch.bind("history") if self.remembers else np.zeros((n, 0))  # of what is delayed
        self.control_memory = memory_columns(
            model.actuator_history, model.actuator_historyadr, model.actuator_ctrladr, model.actuator_ctrlnum
        )
        self.sensor_memory = memory_columns(
            model.sensor_history, model.sensor_historyadr, model.sensor_adr, model.sensor_dim
        )
        self.batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
        self.blank = self.batch.state[0].copy()
        self.awake: np.ndarray | None = None  # simulations to advance; None: all
        self.warned, self.stopped, self.diverged = np.zeros(n, np.int64), np.zeros(n, bool), np.zeros(n, bool)
        self.state = self._views()
        self.held: dict[tuple[str, ...], np.ndarray] = {}  # names of bodies -> the model's numbers of them
        for term in terms:
            if isinstance(term, OnBody):
                self._bodies(term)
        self.applied = self.batch.bind("qfrc_applied")
        self.recent = Recent(self.batch.state, self.state.u, self.applied)

    def _views(self) -> State:
        bind, m = self.batch.bind, self.model
        y = Sensors({name: self.readings[:, first:end] for name, (first, end) in sensor_columns(m).items()})
        gravity = self.fields.get("opt.gravity", m.opt.gravity[None].copy())
        e = column_copy(np.tile(self.params.nominal, (self.n, 1)))
        wrench = bind("xfrc_applied")
        memory: dict[Remembers, np.ndarray] = {}
        for term in self.terms:
            if isinstance(term, Remembers):
                term.fits(self.dt)
                memory[term] = np.zeros((self.n, term.width))
        return State(bind("time"), bind("qpos"), bind("qvel"), bind("ctrl"), bind("act"), y, e, gravity, wrench, memory)

    def _bodies(self, term: OnBody) -> np.ndarray:
        """The bodies a Term holds, as the model numbers them."""
        if term.bodies not in self.held:
            names = object_names(self.model, "body")
            for name in term.bodies:
                if name not in names[1:]:
                    raise unknown("body", name, names[1:], f"term {type(term).__name__}")
            self.held[term.bodies] = np.array([names.index(name) for name in term.bodies], int)
        return self.held[term.bodies]

    def reset(self, ids: np.ndarray, e: np.ndarray, start: Start) -> None:
        ids = np.asarray(ids)
        if not len(ids):
            return
        self._clear(ids)
        self.state.e[ids] = e
        self._write_fields(ids)
        x = self.state
        x.q[ids], x.v[ids], x.u[ids] = start.q, start.v, start.u
        if start.act is not None:
            x.act[ids] = start.act
        if self.offset:
            self.applied[ids] = self.offset(x.e[ids])
        if self.remembers:
            self._remember_controls(ids)
        if self.senses:
            self._sense(ids)
        if self.rubbing:
            self.rubbing.begin(x.e, x.v, ids)
        self._begin_others(ids)
        if self.senses:
            self.readings[ids] = self.raw[ids]
        self.recent.begin(ids)

    def set_params(self, ids: np.ndarray, e: np.ndarray) -> None:
        self.state.e[ids] = e
        self._write_fields(ids)
        if self.offset:
            self.applied[ids] = self.offset(self.state.e[ids])
        self._begin_others(ids)
        self.recent.begin(ids)

    def _begin_others(self, ids: np.ndarray) -> None:
        for other in (self.mover, self.stepper):
            if other is not None:
                other.begin(ids)

    def set_state(self, q: np.ndarray, v: np.ndarray) -> None:
        self.state.q[:], self.state.v[:] = q, v
        if self.rubbing:
            self.rubbing.begin(self.state.e, self.state.v, np.arange(self.n))
        self.recent.restart()

    def _clear(self, ids: np.ndarray) -> None:
        """The state of a reset; by the engine's own hand only where it has stopped, which costs more than a copy."""
        stopped = ids[self.stopped[ids]]
        if len(stopped):
            self.batch.reset(stopped, stage=mujoco.mjtStage.mjSTAGE_NONE)
            self.warned[stopped], self.stopped[stopped] = 0, False
        self.batch.state[ids] = self.blank
        for memory in self.state.memory.values():
            memory[ids] = 0.0

    def _write_fields(self, ids: np.ndarray) -> None:
        """The model's own values, then each Param's op in order, so that ops on one field compose."""
        if not self.fields:
            return
        rows = {f: np.repeat(nominal, len(ids), 0) for f, nominal in self.nominal.items()}
        for i, write in self.writers:
            write(rows, self.state.e[ids, i])
        for f, value in rows.items():
            self.fields[f][ids] = value
        if self.rubbing:
            self.rubbing.loss0[ids] = self.fields["dof_frictionloss"][ids]
        if self.derives:
            self.batch.set_const(ids)

    def _remember_controls(self, ids: np.ndarray) -> None:
        """Fill delayed actuators' memory with the starting control: a reset leaves zeros, which a servo would obey."""
        columns, source = self.control_memory
        if len(columns):
            self.history[ids[:, None], columns] = self.state.u[ids][:, source]

    def _sense(self, ids: np.ndarray) -> None:
        """Sensor readings at the new state, and delayed sensors' memory filled with them."""
        delay = self.fields.get("sensor_delay")
        if delay is None:
            self.batch.forward(ids)
            return
        kept = delay[ids]
        delay[ids] = 0
        self.batch.forward(ids)
        delay[ids] = kept
        columns, source = self.sensor_memory
        self.history[ids[:, None], columns] = self.raw[ids][:, source]

    def begin(self, u: np.ndarray, chance: Chance) -> None:
        for term in self.terms:
            if isinstance(term, OnAction):
                u = term(self.state, u, chance)
        forces = [term(self.state, u, chance) for term in self.terms if isinstance(term, OnForce)]
        if forces:
            self.applied[:] = forces[0] if len(forces) == 1 else sum(forces)
            if self.offset:
                self.applied[:] += self.offset(self.state.e)
        held = self._hold(u, chance)
        self.state.u[:] = u
        self.recent.keep(self.state.wrench if held else None)
        self.v_before = self.state.v.copy() if self.explicit else None

    def rest(self, ids: np.ndarray) -> None:
        self.awake = np.setdiff1d(np.arange(self.n), ids) if len(ids) else None

    def advance(self) -> None:
        """One control period, by MuJoCo or by who moves the bodies in its place; marks whom MuJoCo gave up."""
        self.diverged = np.zeros(self.n, bool)
        if self.stepper is not None:
            self.stepper.step(self.substeps)
            return
        if self.mover is None:
            self._mujoco(self.substeps)
            return
        smooth, bias, lift = (self.batch.bind(f"qfrc_{k}") for k in ("smooth", "bias", "gravcomp"))
        for _ in range(self.substeps):
            q, v = self.state.q.copy(), self.state.v.copy()
            self._mujoco(1)
            force = smooth + bias - 2 * lift  # all but Coriolis; gravity is -lift, and MuJoCo had added lift
            self.state.q[:], self.state.v[:] = self.mover.move(q, v, force)

    def end(self) -> np.ndarray:
        diverged, v = self.diverged, self.state.v
        if self.stepper is None:
            self._read()
        elif self.senses:
            self.readings[:] = self.stepper.sensordata
        if self.senses and self.mover is not None:
            self.mover.read(self.readings, self.state.wrench)
        if self.counters.sum() != self.warned.sum():
            warned = self.counters.sum(1)
            diverged |= warned != self.warned
            self.warned[:] = warned
        if self.v_before is not None:
            self.state.q[:] += self.dt * (self.v_before - v)
        if not np.einsum("ij,ij->", v, v) < FASTEST**2:  # also for NaN; many small ones are not fast
            diverged |= ~(np.abs(v) < FASTEST).all(1)
        self.stopped |= diverged
        if self.sense_after_step:
            self.sense()
        return diverged

    def _read(self) -> None:
        if self.senses:
            self.readings[:] = self.raw

    def _mujoco(self, steps: int) -> None:
        count = steps if self.rubbing is None else 1
        for _ in range(steps // count):
            if self.rubbing:
                self.rubbing.write(self.state.e, self.state.v)
            try:
                self.batch.step(self.awake, nstep=count)
            except SimulationError as error:  # the others ran on
                self.diverged[error.ids] = True
            if self.rubbing:
                self.rubbing.read(self.state.v)

    def with_(self, n: int, terms: tuple[Term, ...] | None = None) -> "Engine":
        terms = self.terms if terms is None else terms
        return Engine(self.model, self.params, n, self.substeps, self.threads, terms, self.law)

    def rollout(self, u: np.ndarray, chance: Chance) -> Motion:
        """In one call of the engine where nothing acts between its steps, which for small models is tenfold faster."""
        if self.terms or self.explicit or self.friction or self.mover or self.stepper:
            return self._step_by_step(u, chance)
        m, count = self.model, u.shape[1]
        record = ["qpos", "qvel"] + ["act"] * (m.na > 0) + ["sensordata"] * self.senses
        each = self.batch.rollout(count * self.substeps, np.repeat(u, self.substeps, 1), record=record)
        ends = {k: a[:, self.substeps - 1 :: self.substeps] for k, a in each.items()}
        warned = self.counters.sum(1)
        diverged = (warned != self.warned) | ~(np.abs(ends["qvel"]) < FASTEST).all((1, 2))
        self.warned[:] = warned
        self.stopped |= diverged
        data = np.zeros((self.n, count, 0))
        if self.senses:  # places and speeds at a period's end are read by the step that begins the next
            self._read()
            self.sense()
            data = ends["sensordata"].copy()
            data[:, :-1] = each["sensordata"][:, self.substeps :: self.substeps]
            data[:, -1] = self.readings
            data[..., self.felt] = ends["sensordata"][..., self.felt]
        self.recent.restart()
        y = {name: data[..., a:b] for name, (a, b) in sensor_columns(m).items()}
        return Motion(ends["qpos"], ends["qvel"], ends.get("act", np.zeros((self.n, count, 0))), y, diverged)

    def delays(self) -> np.ndarray:
        shared = np.tile(self.model.actuator_delay, (self.n, 1))
        return np.array(self.fields.get("actuator_delay", shared))

    def sense(self) -> None:
        if self.senses and self.mover is None:
            felt = self.readings[:, self.felt]
            self.batch.forward()
            self._read()
            self.readings[:, self.felt] = felt

    def actuator_force(self) -> np.ndarray:
        force = self.batch.bind("qfrc_actuator")
        self.batch.forward()
        return force.copy()

    def _step_by_step(self, u: np.ndarray, chance: Chance) -> Motion:
        x, count, m = self.state, u.shape[1], self.model
        q, v, act = (np.empty((self.n, count, k)) for k in (m.nq, m.nv, m.na))
        y = {name: np.empty((self.n, count, a.shape[1])) for name, a in x.y.items()}
        diverged = np.zeros(self.n, bool)
        for k in range(count):
            diverged |= self.step(u[:, k], Chance(chance.seed, chance.step + k, chance.dt))
            self.sense()
            q[:, k], v[:, k], act[:, k] = x.q, x.v, x.act
            for name, a in x.y.items():
                y[name][:, k] = a
        return Motion(q, v, act, y, diverged)

    def _hold(self, u: np.ndarray, chance: Chance) -> bool:
        """Put the Terms' wrenches on their bodies, where there are such Terms; those on one body add up."""
        terms = [term for term in self.terms if isinstance(term, OnBody)]
        if terms:
            found = [term(self.state, u, chance) for term in terms]
            self.state.wrench[:] = 0.0
            for term, wrench in zip(terms, found):
                self.state.wrench[:, self._bodies(term)] += wrench
        return bool(terms)

    def save(self) -> dict[str, np.ndarray]:
        if self.mover is not None:
            self.mover.begin(np.arange(self.n))  # what it remembers of its contacts is not kept, so it must not count
        memory = {f"memory{k}": a.copy() for k, a in enumerate(self.state.memory.values())}
        if self.rubbing:
            memory |= {"gear": self.rubbing.gear.copy(), "toward": self.rubbing.toward.copy()}
        return {"state": self.batch.state.copy(), "e": self.state.e.copy()} | memory

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        everyone = np.arange(self.n)
        self.batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
        self.warned[:], self.stopped[:] = 0, False
        self.state.e[:] = saved["e"]
        self._write_fields(everyone)
        self.batch.state[:] = saved["state"]
        for k, memory in enumerate(self.state.memory.values()):
            memory[:] = saved[f"memory{k}"]
        if self.rubbing:
            self.rubbing.gear[:], self.rubbing.toward[:] = saved["gear"], saved["toward"]
        self._begin_others(everyone)
        self.recent.restart()

    def replay_record(self, i: int) -> dict[str, np.ndarray]:
        return self.recent.record(i) | {"e": self.state.e[i].copy()}
