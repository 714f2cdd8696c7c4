"""What models identified from other people's robots predict on what they were not fitted to.

    python -m benchmarks.real [--only go2|xl330|emps|qdd] [--quick] [--json] [--record]

go2    a quadruped held in the air: fitted on its first 20 s, predicted free from 20 s to the end.
xl330  a servo that swings a weight, three gains x three motions: fitted on two thirds, predicted on the third left out.
emps   one axis on a ball screw: fitted on the first three quarters, predicted open loop from the first sample to the last.
qdd    a pendulum under six controllers: fitted on one, predicted on the swing-ups of four others.

The logs are no part of the project: $SUREFOOT_REAL_DATA, else ../shared/data; the Go2's model lies beside them in models/.
Every fit sees joint positions (emps: speeds) of its own part alone. docs/real-logs.md says what came out.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
from scipy.signal import butter, filtfilt

from benchmarks import measure
from benchmarks.measure import Row, row, skipped
from surefoot.belief import Box
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.identify.param_grammar import learnable
from surefoot.real2sim.identify.result import Identified
from surefoot.real2sim.plant import Plant, world
from surefoot.real2sim.preflight import preflight
from surefoot.real2sim.replay import Score, replay
from surefoot.sim.engine import Engine

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("SUREFOOT_REAL_DATA") or ROOT.parent / "shared" / "data")
MODELS, MAPS = ROOT / "examples" / "models", ROOT / "examples" / "logs"
WHOLE = Identify(horizons=(), last=60.0, longest=60.0, starts="known", hold=0.0, rounds=0, iterations=8)
"""one free prediction of the whole log, as it will be judged"""


def read(path: str, mapping: str, rate: float | None = None) -> Log:
    return Log.read(DATA / path, MAPS / mapping, rate=rate)


def scored(w: Engine, log: Log, e: np.ndarray | None = None, resync: int | None = None) -> Score:
    return replay(w, log, e, resync, only=("joint_pos",)).scores[0]


def sureness(name: str, found: Identified, where: str) -> Row:
    """Half the width of a 95 % interval, as a factor for what is on a log scale; told whether the log determined it."""
    p = next(p for p in found.params if p.name == name)
    words = f"{p.low:.3g} to {p.high:.3g} {p.unit}, {'determined' if p.determined else 'poorly determined'}"
    return row(f"{where}: {name}", p.value, p.unit or "x model", note=words)


# emps: M a = F - Fv v - Fc sign(v) - M g sin(tilt)

AXIS = Params((
    Param("mass", "mass", 100.0, 50.0, 150.0, match="carriage", op="set", unit="kg", log=True),
    Param("damping", "damping", 200.0, 50.0, 500.0, op="set", unit="N s/m", log=True),
    Param("frictionloss", "frictionloss", 20.0, 5.0, 60.0, op="set", unit="N", log=True),
    Param("tilt", "slope_y", 0.0, -0.02, 0.02, op="set", unit="rad"),
))  # fmt: skip
PUBLISHED = {"mass": 95.1, "damping": 205.9, "frictionloss": 20.2}


def axis_speeds(log: Log) -> Log:
    """The same log with its position freed of noise beyond 50 Hz, and its speed."""
    q = filtfilt(*butter(2, 50 / (log.rate / 2)), log["joint_pos"][:, 0])
    v = np.gradient(q, log.time)
    columns = {"control": log["control"], "joint_pos": q[:, None], "joint_vel": v[:, None]}
    return Log(log.time, columns, meta={**log.meta, "names": {**log.meta["names"], "joint_vel": ["slide"]}})


def axis_fit(log: Log, w: Engine) -> Identified:
    """Windows of 0.1 s from measured states: what force adds to speed, before drift hides it."""
    how = Identify(horizons=(), last=0.1, starts="known", hold=0.0, rounds=0, iterations=8)
    return identify(w, Box.full(AXIS), axis_speeds(log), how, only=("joint_vel",))


def emps(quick: bool) -> Iterator[Row]:
    log = read("emps/DATA_EMPS.mat", "emps.json")
    w, cut = Plant(str(MODELS / "emps.xml")).world(AXIS, log), 4.0 if quick else 0.75 * log.time[-1]
    found = axis_fit(log.slice(0.0, cut), w)
    for p in found.params[:3]:
        off = 100 * abs(p.value / PUBLISHED[p.name] - 1)
        note = f"95 %: {p.low:.4g} to {p.high:.4g}; published {PUBLISHED[p.name]:g}"
        yield row(f"{p.name}, {p.unit}", p.value, p.unit, note=note)
        yield row(f"{p.name}: from the published value", off, "%", at_most=2.0)
    whole, rest = scored(w, log, found.e), scored(w, log.slice(cut, np.inf), found.e)
    yield row(
        "open loop, whole log: R2 of position", whole.r2, "R2", at_least=0.99, note=f"rmse {whole.rmse * 1e3:.2f} mm"
    )
    yield row("open loop, unseen quarter: rmse of position", rest.rmse * 1e3, "mm", note=f"R2 {rest.r2:.4f}")


# go2: 12 joints, servos of kp 20 and kd 0.5; what is shared by a kind of joint is one number

SHARED = ("armature:kinds", "damping:kinds", "frictionloss:kinds", "delay=0..0.02")
STOP = "stop_high:calf_joint"
SDK = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]  # FR FL RR RL


def go2_plant(words: tuple[str, ...], timestep: float = 0.0025) -> Engine:
    """Held in the air, its legs free of each other."""
    spec = Plant(str(DATA.parent / "models" / "unitree_go2.xml"), True, 20.0, 0.5, timestep).spec()
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    return world(spec, learnable(spec.compile(), words) if words else Params(), 0.005)


def go2_log() -> Log:
    return read("go2_in_air/first_40s.csv", "go2_in_air.json")


def in_sdk_order(log: Log) -> Log:
    """The columns taken for those of FR FL RR RL."""
    columns = {k: v[:, SDK] for k, v in log.columns.items()}
    return Log(log.time, columns, log.units, log.meta)


def go2(quick: bool) -> Iterator[Row]:
    log, cut = go2_log(), 1.0 if quick else 20.0
    end = cut + 1 if quick else np.inf
    yield row("as shipped, whole file: rmse", scored(go2_plant(()), log.slice(0, end)).rmse, "rad")
    how = replace(WHOLE, iterations=1) if quick else replace(WHOLE, horizons=(0.3, 1.0))
    for name, words in (("10 shared by kind", SHARED), ("and where the calf's stop is", (*SHARED, STOP))):
        w = go2_plant(words)
        found = identify(w, Box.full(w.params), log.slice(0, cut), how, only=("joint_pos",))
        unseen = scored(w, log.slice(cut, end), found.e)
        goal = 0.027 if name.startswith("and") else None
        parts = ", ".join(f"{k} {v:.3f}" for k, v in unseen.parts.items())
        yield row(f"{name}: rmse where fitted", found.fit["joint_pos"][1], "rad")
        yield row(f"{name}: rmse unseen", unseen.rmse, "rad", at_most=goal, note=parts)
        yield from (sureness(p.name, found, name) for p in found.params)
    if not quick:
        verdict = preflight(go2_plant(()), in_sdk_order(log.slice(0, 20.0)))
        bad = [c for c in verdict.checks if not c.holds]
        yield row(
            "columns in SDK order: caught", float(bool(bad)), "of 1", at_least=1.0, note=bad[0].evidence if bad else ""
        )
        plain = preflight(go2_plant(()), log.slice(0, 20.0))
        yield row("columns as they are: passed", float(plain.holds), "of 1", at_least=1.0)


# xl330: see examples/models/servo_pendulum.xml

SERVO = (
    Param("gain", "strength", 1.0, 0.3, 3.0, match="goal|hold", log=True),
    Param("limit", "tendon_limit", 1.0, 0.3, 3.0, match="wire", log=True),
    Param("back_emf", "strength", 1.0, 0.1, 10.0, match="back_emf", log=True),
    Param("arm", "mass", 0.03, 0.005, 0.1, match="arm", op="set", unit="kg", log=True),
    Param("armature", "armature", 0.0015, 1e-4, 0.02, op="set", unit="kg m^2", log=True),
    Param("damping", "damping", 0.001, 1e-4, 0.2, op="set", unit="N m s/rad", log=True),
    Param("frictionloss", "frictionloss", 0.08, 1e-3, 0.3, op="set", unit="N m", log=True),
)  # fmt: skip
LOAD = (
    Param("friction_load", "friction_load", 0.25, 0.0, 0.8, op="set"),
    Param("stiction", "stiction", 0.005, 0.0, 0.2, op="set", unit="N m"),
)  # fmt: skip
SERVO_RATE = 100.0  # Hz: the goals are slow, and the engine closes the loop at each of its own steps
GAINS, MOTIONS = (100, 400, 800), ("sin_sin", "lift_and_drop", "up_and_down")


def servo_log(path: str) -> Log:
    """What the servo was told, as the model's three controls: kp goal on, kp on, on."""
    log = read(path, "servo_pendulum.json", SERVO_RATE)
    kp, on = log.meta["constants"]["kp"], (log["torque_enable"].ravel() > 0.5).astype(float)
    u = np.stack([kp * log["control"].ravel() * on, kp * on, on], 1)
    names = {"control": ["goal", "hold", "back_emf"], "joint_pos": ["hinge"]}
    return Log(log.time, {"control": u, "joint_pos": log["joint_pos"]}, meta={**log.meta, "names": names})


def servo(params: Params, mass: float = 0.49, length: float = 0.1) -> Engine:
    spec = mujoco.MjSpec.from_file(str(MODELS / "servo_pendulum.xml"))
    spec.geom("weight").mass, spec.body("weight").pos = mass, [0, 0, -length]
    arm = spec.body("arm")
    arm.ipos, arm.inertia = [0, 0, -length / 2], [arm.mass * length**2 / 12] * 2 + [1e-6]
    return world(spec, params, 1 / SERVO_RATE)


def servo_fits(logs: list[Log], how: Identify) -> dict[str, tuple[Engine, np.ndarray]]:
    """Coulomb and viscous friction; and begun with an eighth of that, the rest from what the gears carry and Stribeck's."""
    less = (replace(p, nominal=p.nominal / 8) if p.name == "frictionloss" else p for p in SERVO)
    found = {}
    for name, params in {"Coulomb-viscous": Params(SERVO), "load": Params((*less, *LOAD))}.items():
        w = servo(params)
        found[name] = w, identify(w, Box.full(params), logs, how, only=("joint_pos",)).e
    return found


def xl330(quick: bool) -> Iterator[Row]:
    logs = {(k, m): servo_log(f"xl330_pendulum/raw/kp{k}_{m}.json") for k in GAINS for m in MOTIONS}
    if quick:
        logs = {key: log.slice(0, 0.5) for key, log in logs.items()}
    how = replace(WHOLE, iterations=1) if quick else replace(WHOLE, how="cma")  # what sticks has many minima
    splits = [f"gain {k}" for k in GAINS] + [f"motion {m}" for m in MOTIONS]
    errors: dict[str, list[float]] = {"Coulomb-viscous": [], "load": []}
    for split in splits[:1] if quick else splits:
        out = {key for key in logs if split.split()[1] in map(str, key)}
        for name, (w, e) in servo_fits([log for key, log in logs.items() if key not in out], how).items():
            errors[name].append(1e3 * float(np.mean([scored(w, logs[key], e).mae for key in sorted(out)])))
            yield row(f"{split} unseen, {name}: mean absolute error", errors[name][-1], "mrad")
            measure.said(f"{split} unseen, {name}: {errors[name][-1]:.1f} mrad")
    yield row("Coulomb-viscous: mean absolute error, unseen", errors["Coulomb-viscous"], "mrad")
    yield row("load: mean absolute error, unseen", errors["load"], "mrad", at_most=66.0)
    worst = float(np.max(np.array(errors["load"]) / np.array(errors["Coulomb-viscous"])))
    yield row("load / Coulomb-viscous, worst split", worst, "ratio", at_most=1.0)


# qdd: the measured torque turns a pendulum

PENDULUM = Params((
    Param("mass", "mass", 0.6, 0.3, 1.0, match="arm", op="set", unit="kg", log=True),
    Param("armature", "armature", 0.005, 1e-4, 0.05, op="set", unit="kg m^2", log=True),
    Param("damping", "damping", 0.05, 1e-3, 0.5, op="set", unit="N m s/rad", log=True),
    Param("frictionloss", "frictionloss", 0.1, 1e-3, 0.5, op="set", unit="N m", log=True),
))  # fmt: skip
SWINGS = {"ddp": 6.0, "dircol": 3.5, "energy_shaping": 3.8, "sac": 3.8}  # s until it is up, where feedback takes over


def qdd_log(name: str, rate: float = 200.0) -> Log:
    log = read(f"qdd_pendulum/{name}_measured.csv", "qdd_measured.json", rate)
    names = {"control": ["motor"], "joint_pos": ["hinge"]}
    columns = {"control": log["joint_torque"].reshape(len(log), 1), "joint_pos": log["joint_pos"]}
    return Log(log.time, columns, meta={**log.meta, "names": names})


def qdd(quick: bool) -> Iterator[Row]:
    log = qdd_log("pd_identification")
    w = Plant(str(MODELS / "qdd_pendulum.xml")).world(PENDULUM, log)
    how = Identify(
        horizons=() if quick else (0.3,), last=0.5, starts="known", hold=0.0, rounds=1, iterations=1 if quick else 12
    )
    found = identify(w, Box.full(PENDULUM), log, how, only=("joint_pos",))
    yield from (sureness(p.name, found, "pd_identification") for p in found.params)
    for name, seconds in SWINGS.items():
        unseen = qdd_log(f"{name}_swingup").slice(0.05, seconds)  # sac lost samples at its start
        free, held = scored(w, unseen, found.e), scored(w, unseen, found.e, resync=100)
        yield row(f"{name}, first {seconds:g} s free: rmse", free.rmse, "rad", note=f"R2 {free.r2:.3f}")
        yield row(f"{name}, set back every 0.5 s: rmse", held.rmse, "rad", note=f"R2 {held.r2:.3f}")


def there(part: measure.Part) -> measure.Part:
    """A part, or one row that says what it would need."""
    missing = skipped("real logs", f"neither $SUREFOOT_REAL_DATA nor {DATA}")
    return lambda quick: part(quick) if DATA.is_dir() else [missing]


PARTS = {name: there(part) for name, part in (("go2", go2), ("xl330", xl330), ("emps", emps), ("qdd", qdd))}

if __name__ == "__main__":
    measure.main("real", __doc__.split("\n")[0], PARTS)
