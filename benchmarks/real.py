"""What models identified from other people's robots predict on what they were not fitted to.

    python -m benchmarks.real [--only go2|xl330|gears|sts3250|emps|qdd|so101] [--quick] [--json] [--record]

go2    a quadruped held in the air: fitted on its first 20 s, predicted free from 20 s to the end.
xl330  a servo that swings a weight, three gains x three motions: friction laws fitted without a gain, a motion or an extreme of
       speed or load, which they then predict (benchmarks/servos.py). sts3250: a larger servo, two motions.
       gears: what loads the XL330's gears, by inverse dynamics (benchmarks/gears.py).
so101  an arm of six equal servos: fitted on excitation motions, predicted on four other kinds (benchmarks/so101.py).
emps   one axis on a ball screw: fitted on the first three quarters, predicted open loop from the first sample to the last.
qdd    a pendulum under six controllers: fitted on one, predicted on the swing-ups of four others.

The logs are no part of the project: $SUREFOOT_REAL_DATA, else ../shared/data; the Go2's model lies beside them in models/.
Every fit sees joint positions (emps: speeds) of its own part alone. docs/real-logs.md says what came out.
"""

from collections.abc import Iterator
from dataclasses import replace

import mujoco
import numpy as np
from scipy.signal import butter, filtfilt

from benchmarks import measure, real_logs
from benchmarks.gears import gears
from benchmarks.measure import Row, row, skipped
from benchmarks.real_logs import MODELS, WHOLE, compared, read, scored
from benchmarks.servos import sts3250, xl330
from benchmarks.so101 import so101
from surefoot.belief import Box
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.identify.param_grammar import learnable
from surefoot.real2sim.identify.result import Identified
from surefoot.real2sim.identify.splits import runs
from surefoot.real2sim.plant import Plant, world
from surefoot.real2sim.preflight import preflight
from surefoot.sim.engine import Engine


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


def axis_laws(quick: bool) -> Iterator[Row]:
    """Friction laws on a sixth of the log, the fastest, slowest, most and least loaded third left out, at 250 Hz."""
    log = axis_speeds(read("emps/DATA_EMPS.mat", "emps.json", 250.0))
    slow = (
        Param("stiction", "stiction", 2.0, 0.0, 30.0, op="set", unit="N"),
        Param("stribeck", "stribeck", 0.01, 1e-3, 0.2, op="set", unit="m/s", log=True),
    )
    laws = {"coulomb": AXIS, "stribeck": Params((*AXIS, *slow))}
    how = Identify(horizons=(), last=0.1, starts="known", iterations=1 if quick else 6)
    make = lambda params, log: Plant(str(MODELS / "emps.xml")).world(params, log)  # noqa: E731
    yield from compared(make, laws, runs([log]), how, ("joint_vel",), 1e3, "mm/s", quick)


def axis_least_squares(log: Log, hz: float = 100.0, order: int = 4) -> dict[str, float]:
    """M, Fv and Fc from F = M a + Fv v + Fc sign(v) + offset, row by row; every term and F pass the same filter.

    The published values are of such a fit. It has no friction at rest; the simulated axis sticks there.
    """
    filtered = lambda x: filtfilt(*butter(order, hz / (log.rate / 2)), x)  # noqa: E731
    v = np.gradient(filtered(log["joint_pos"][:, 0]), log.time)
    terms = [np.gradient(v, log.time), v, filtered(np.sign(v)), np.ones_like(v)]
    inner = slice(round(0.2 * log.rate), -round(0.2 * log.rate))  # the filter's ends
    X, force = np.stack(terms, 1)[inner], filtered(log["control"][:, 0])[inner]
    return dict(zip(PUBLISHED, np.linalg.lstsq(X, force, rcond=None)[0].tolist()))


def emps(quick: bool) -> Iterator[Row]:
    yield from axis_laws(quick)
    log = read("emps/DATA_EMPS.mat", "emps.json")
    w, cut = Plant(str(MODELS / "emps.xml")).world(AXIS, log), 4.0 if quick else 0.75 * log.time[-1]
    found = axis_fit(log.slice(0.0, cut), w)
    for p in found.params[:3]:
        off = 100 * abs(p.value / PUBLISHED[p.name] - 1)
        note = f"95 %: {p.low:.4g} to {p.high:.4g}; published {PUBLISHED[p.name]:g}"
        yield row(f"{p.name}, {p.unit}", p.value, p.unit, note=note)
        yield row(f"{p.name}: from the published value", off, "%", at_most=2.0)
    for name, value in axis_least_squares(log.slice(0.0, cut)).items():
        off = 100 * abs(value / PUBLISHED[name] - 1)
        yield row(f"{name} by least squares of the force: from the published value", off, "%", at_most=2.0, note=f"{value:.4g}")  # fmt: skip
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
    spec = Plant(str(real_logs.DATA.parent / "models" / "unitree_go2.xml"), True, 20.0, 0.5, timestep).spec()
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
    return Log(log.time, columns, meta={**log.meta, "names": names, "constants": {"controller": name}})


def qdd_laws(quick: bool) -> Iterator[Row]:
    """Friction laws with each controller left out, and the extremes of speed and load, in windows of 0.5 s."""
    logs = [qdd_log("pd_identification"), *(qdd_log(f"{name}_swingup").slice(0.05, s) for name, s in SWINGS.items())]
    laws = {"coulomb": PENDULUM}
    laws["load"] = Params((*PENDULUM, Param("friction_load", "friction_load", 0.05, 0.0, 0.5, op="set")))
    laws["back"] = Params((*PENDULUM, Param("friction_back", "friction_back", 0.05, 0.0, 0.9, op="set")))
    how = Identify(horizons=(), last=0.5, starts="known", iterations=1 if quick else 6)
    make = lambda params, log: Plant(str(MODELS / "qdd_pendulum.xml")).world(params, log)  # noqa: E731
    yield from compared(make, laws, logs, how, ("joint_pos",), 1e3, "mrad", quick)


def qdd(quick: bool) -> Iterator[Row]:
    yield from qdd_laws(quick)
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
    missing = skipped("real logs", f"neither $SUREFOOT_REAL_DATA nor {real_logs.DATA}")
    return lambda quick: part(quick) if real_logs.DATA.is_dir() else [missing]


PARTS = {
    name: there(part)
    for name, part in (
        ("go2", go2),
        ("xl330", xl330),
        ("gears", gears),
        ("sts3250", sts3250),
        ("so101", so101),
        ("emps", emps),
        ("qdd", qdd),
    )
}

if __name__ == "__main__":
    measure.main("real", __doc__.split("\n")[0], PARTS)
