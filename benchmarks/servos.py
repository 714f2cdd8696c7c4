"""Two hobby servos that swing a weight: friction laws compared on gains, motions, speeds and loads that were left out.

    tau = L clip(c kp (goal - q), -1, 1) - b v  while on, 0 while off          examples/models/servo_pendulum.xml

benchmarks/real.py runs these parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import mujoco
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row
from benchmarks.real_logs import MODELS, WHOLE, read, scored
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.identify.laws import Comparison, compare
from surefoot.real2sim.identify.splits import Split, splits
from surefoot.real2sim.plant import world
from surefoot.sim.engine import Engine

RATE = {
    "xl330": 100.0,
    "sts3250": 50.0,
}  # Hz: the goals are slow, and the engine closes the loop at each of its own steps
GAINS, MOTIONS = (100, 400, 800), ("sin_sin", "lift_and_drop", "up_and_down")
WEIGHT = {"xl330": (0.49, 0.1), "sts3250": (1.13, 0.12)}  # kg, m
FURTHER = {
    "coulomb": (),
    "load": (Param("friction_load", "friction_load", 0.1, 0.0, 0.8, op="set"),),
    "back": (Param("friction_back", "friction_back", 0.1, 0.0, 0.95, op="set"),),
}
HOW = replace(WHOLE, horizons=(0.2, 1.0), last=5.9, enough=20.0, iterations=6)
"""short windows first: a free prediction of 6 s has many local minima"""


def unknowns(motor: str) -> tuple[Param, ...]:
    """What is unknown of a servo beside its friction law. Ranges are wide: the same for both up to the size of the motor."""
    size = 1.0 if motor == "xl330" else 10.0  # torque at full duty: about 0.5 and 5 N m
    gain = size if motor == "xl330" else 200.0  # its kp has another unit
    return (
        Param("gain", "strength", gain, 0.2 * gain, 5 * gain, match="goal|hold", log=True),
        Param("limit", "tendon_limit", size, 0.2 * size, 5 * size, match="wire", log=True),
        Param("back_emf", "strength", size, 0.1 * size, 20 * size, match="back_emf", log=True),
        Param("arm", "mass", 0.03, 0.005, 0.1 * size, match="arm", op="set", unit="kg", log=True),
        Param("armature", "armature", 1e-3 * size, 1e-4, 0.02 * size, op="set", unit="kg m^2", log=True),
        Param("damping", "damping", 0.005 * size, 1e-4, 0.2 * size, op="set", unit="N m s/rad", log=True),
        Param("frictionloss", "frictionloss", 0.02 * size, 1e-3, 0.3 * size, op="set", unit="N m", log=True),
    )


def servo_log(path: str, motor: str = "xl330") -> Log:
    """What the servo was told, as the model's three controls: kp goal on, kp on, on."""
    log = read(path, "servo_pendulum.json", RATE[motor])
    kp, on = log.meta["constants"]["kp"], (log["torque_enable"].ravel() > 0.5).astype(float)
    u = np.stack([kp * log["control"].ravel() * on, kp * on, on], 1)
    names = {"control": ["goal", "hold", "back_emf"], "joint_pos": ["hinge"]}
    return Log(log.time, {"control": u, "joint_pos": log["joint_pos"]}, meta={**log.meta, "names": names})


def servo(params: Params, motor: str = "xl330") -> Engine:
    spec = mujoco.MjSpec.from_file(str(MODELS / "servo_pendulum.xml"))
    mass, length = WEIGHT[motor]
    spec.geom("weight").mass, spec.body("weight").pos = mass, [0, 0, -length]
    arm = spec.body("arm")
    arm.ipos, arm.inertia = [0, 0, -length / 2], [arm.mass * length**2 / 12] * 2 + [1e-6]
    made = world(spec, params, 1 / RATE[motor])
    return Engine(made.model, params, 1, made.substeps, threads=1)  # one joint: threads would wait for each other


def laws(motor: str) -> dict[str, Params]:
    return {name: Params((*unknowns(motor), *more)) for name, more in FURTHER.items()}


def compared(motor: str, logs: Sequence[Log], parts: Sequence[Split], quick: bool) -> Iterator[Row]:
    how = replace(HOW, horizons=(), iterations=1, last=0.4) if quick else HOW
    make = lambda params, _: servo(params, motor)  # noqa: E731
    found = compare(make, laws(motor), logs, how, ("joint_pos",), lambda p: measure.said(p.doing), parts)
    errors: dict[str, list[float]] = {law.name: [] for law in found.laws}
    for k, split in enumerate(found.splits):
        for law in found.laws:
            w = servo(law.params, motor)
            errors[law.name].append(1e3 * float(np.mean([scored(w, logs[i], law.fits[k]).mae for i in split.out])))
            yield row(f"{split.name} unseen, {law.name}: mean absolute error", errors[law.name][-1], "mrad")
    yield from summary(found, errors)


def summary(found: Comparison, errors: dict[str, list[float]]) -> Iterator[Row]:
    for law in found.laws:
        goal = 66.0 if law.name == found.chosen and len(found.splits) > 2 else None
        yield row(f"{law.name}: mean absolute error, unseen", errors[law.name], "mrad", at_most=goal)
        yield row(f"{law.name}: rmse where fitted", 1e3 * law.fitted, "mrad")
    yield row(f"chosen: {found.chosen}", float(found.chosen == found.best), "is best", note=found.why)


def xl330(quick: bool) -> Iterator[Row]:
    logs = [servo_log(f"xl330_pendulum/raw/kp{k}_{m}.json") for k in GAINS for m in MOTIONS]
    if quick:
        logs = [log.slice(0, 0.5) for log in logs]
    parts = splits(servo(laws("xl330")["coulomb"]), logs)
    yield from compared("xl330", logs, parts[:1] if quick else parts, quick)


def sts3250(quick: bool) -> Iterator[Row]:
    logs = [servo_log(f"sts3250_pendulum/{m}.json", "sts3250") for m in MOTIONS[:2]]
    if quick:
        logs = [log.slice(0, 1.0) for log in logs]
    parts = [Split("trajectory", m, (i,)) for i, m in enumerate(MOTIONS[:2])]
    yield from compared("sts3250", logs, parts[:1] if quick else parts, quick)
