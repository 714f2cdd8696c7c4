"""SO-101, a hobby arm of six equal servos: fitted on excitation motions, then other kinds of motion are predicted.

    tau = kp (u - q) - kd v        one kp, kd, armature and friction law for all six servos; their gains are not documented

The log's Pitch and Elbow are zero in the middle of their range, the model's (an SO-100) a quarter turn away: with those offsets the
sag under gravity of Pitch, Elbow and Wrist_Pitch, 0.040, 0.035 and 0.009 rad, has the ratio of the model's torques, 0.52, 0.42 and
0.11 N m. benchmarks/real.py runs this part.
"""

from collections.abc import Iterator
from dataclasses import replace

import mujoco
import numpy as np

from benchmarks import measure, real_logs
from benchmarks.measure import Row, row
from benchmarks.real_logs import WHOLE, scored
from surefoot.belief import Box
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.identify.laws import Law, choose
from surefoot.real2sim.identify.result import Identified
from surefoot.real2sim.identify.splits import Split, joined
from surefoot.real2sim.plant import world
from surefoot.sim.engine import Engine
from surefoot.sim.model.load import load_model

JOINTS = ("Rotation", "Pitch", "Elbow", "Wrist_Pitch", "Wrist_Roll", "Jaw")
ZERO = np.array([0, -np.pi / 2, np.pi / 2, 0, 0, 0])  # model minus log, rad
EXCITATION = ("multisine", "chirp_sweep", "friction_gravity")
OTHERS = ("backlash_detection", "fast_transitions", "hold_under_gravity", "random_waypoints")
PIECES, SECONDS = 6, 2.0  # of each excitation, spread over it
SERVOS = (
    Param("kp", "kp", 0.4, 0.05, 2.0, log=True),
    Param("kd", "kd", 0.3, 0.01, 2.0, log=True),
    Param("armature", "armature", 0.5, 0.02, 5.0, log=True),
    Param("frictionloss", "frictionloss", 0.5, 0.01, 10.0, log=True),
)
FURTHER = {
    "coulomb": (),
    "load": (Param("friction_load", "friction_load", 0.1, 0.0, 0.8, op="set"),),
    "back": (Param("friction_back", "friction_back", 0.1, 0.0, 0.95, op="set"),),
}
LAWS = {name: Params((*SERVOS, *more)) for name, more in FURTHER.items()}
HOW = replace(WHOLE, last=SECONDS, iterations=6)


def arm_log(motion: str) -> Log:
    """Commands and positions of a motion in the model's zero, at 50 Hz."""
    names = {"names": list(JOINTS), "unit": "rad"}
    parts = {}
    for column, file in (("control", "control"), ("joint_pos", "state_motor")):
        mapping = {"time": {"from": "timestamp", "unit": "us"}, "columns": {column: {"from": "positions", **names}}}
        parts[column] = Log.read(real_logs.DATA / "so101" / motion / f"{file}.csv", mapping, rate=50.0)
    rows = min(map(len, parts.values()))
    columns = {name: log[name][:rows] + ZERO for name, log in parts.items()}
    names_ = {name: list(JOINTS) for name in columns}
    return Log(parts["control"].time[:rows], columns, meta={"names": names_, "constants": {"motion": motion}})


def arm(params: Params) -> Engine:
    """The arm's servos without their limits of position: the log's zero is not exactly the model's."""
    spec = load_model(str(real_logs.DATA.parent / "models" / "menagerie" / "trs_so_arm100" / "so_arm100.xml")).spec
    spec.option.timestep, spec.option.integrator = 0.005, int(mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    for joint, actuator in zip(spec.joints, spec.actuators):
        joint.limited, actuator.ctrllimited, actuator.inheritrange = 0, 0, 0.0
    made = world(spec, params, 0.02)
    return Engine(made.model, params, 1, made.substeps, threads=1)


def pieces(log: Log, count: int = PIECES, seconds: float = SECONDS) -> Log:
    """Stretches of a log, spread over it."""
    starts = np.linspace(0.5, log.time[-1] - seconds - 0.5, count)
    return joined([log.slice(t, t + seconds + 1.5 / log.rate) for t in starts])[0]


def late(log: Log, steps: int) -> float:
    """RMSE of the command itself, so many samples later: what any model must beat."""
    q, u = log["joint_pos"], log["control"]
    return float(np.sqrt(np.square(q[steps:] - u[: len(u) - steps]).mean()))


def fitted(law: Params, logs: list[Log], how: Identify) -> Identified:
    return identify(arm(law), Box.full(law), joined(logs)[0], how, only=("joint_pos",), warn=False)


def so101(quick: bool) -> Iterator[Row]:
    logs, how = (
        [pieces(arm_log(m), 2 if quick else PIECES) for m in EXCITATION],
        replace(HOW, iterations=1) if quick else HOW,
    )
    others = {m: arm_log(m).slice(0, 1.0 if quick else np.inf) for m in OTHERS}
    lag = min(range(10), key=lambda k: sum(late(arm_log(m), k) for m in EXCITATION))
    for motion, log in others.items():
        yield row(f"{motion}, the command {lag} samples later: rmse", 1e3 * late(log, lag), "mrad")
        yield row(f"{motion}, model as shipped: rmse", 1e3 * scored(arm(Params()), log).rmse, "mrad")
    laws = []
    for name, params in LAWS.items():
        measure.said(f"law {name}")
        fit, w = fitted(params, logs, how), arm(params)
        values = ", ".join(f"{p.name} {p.value:.3g} {p.unit or 'x model'}" for p in fit.params)
        yield row(f"{name}: rmse where fitted", 1e3 * fit.fit["joint_pos"][1], "mrad", note=values)
        unseen = {motion: scored(w, log, fit.e) for motion, log in others.items()}
        for motion, score in unseen.items():
            each = ", ".join(f"{k} {1e3 * v:.0f}" for k, v in score.parts.items())
            yield row(f"{name}: {motion} free: rmse", 1e3 * score.rmse, "mrad", note=each)
        errors = np.array([x.rmse for x in unseen.values()])
        laws.append(Law(name, params, errors, tuple(errors.tolist()), fit.fit["joint_pos"][1], (fit.e,)))
    best, chosen, why, _ = choose(laws, [Split("motion", m, ()) for m in OTHERS])
    yield row(f"chosen on these four: {chosen}", float(chosen == best), "is best", note=why)
