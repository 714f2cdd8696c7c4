"""What a designed motion is worth: errors of identified unknowns, and information, against random motions and chirps.

    python -m benchmarks.explore [--only arm|legs|shapes] [--quick] [--json] [--record]

arm   a two-link arm in a vertical plane, five unknowns of +-35 %, joint angles at 50 Hz with 2 mrad of noise: every motion takes 2 s,
      keeps the same limits, and is given to machines that were drawn from the belief; the same fit reads each log.
shapes  the same arm, other families of motions: predicted errors alone.
legs  a leg of walk's quadruped, its trunk held in the air: what would be told, against the best of many chirps.
"""

from collections.abc import Iterator

import mujoco
import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row
from surefoot import tasks
from surefoot.belief import Box
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.excite.excitation import Limits, Range, Shape, control_range, guard, machine, ramp
from surefoot.real2sim.excite.explore import Explore, Explored, design, explore, meter_for, outside
from surefoot.real2sim.excite.fisher import Meter, information, posterior, slopes
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.plant import Plant
from surefoot.rng import stream
from surefoot.sim.engine import Engine
from surefoot.sim.model.load import load_robot
from surefoot.world import Chance, Start

NOISE = 0.002  # rad
LC = 0.125  # m, from the elbow to the forearm's centre of mass
ARM = Params((
    Param("m2", "mass", 1.0, 0.65, 1.35, match="fore", op="set", unit="kg"),
    Param("lc2", "com_x", LC, 0.65 * LC, 1.35 * LC, match="fore", op="set", unit="m"),
    Param("I2", "inertia", 1.0, 0.65, 1.35, match="fore"),
    Param("b1", "damping", 0.3, 0.195, 0.405, match="shoulder", op="set", unit="N m s/rad"),
    Param("b2", "damping", 0.15, 0.0975, 0.2025, match="elbow", op="set", unit="N m s/rad"),
))  # fmt: skip
LEG = Params((
    Param("thigh_mass", "mass", 1.0, 0.7, 1.4, match="FL_thigh", log=True),
    Param("shank_mass", "mass", 1.0, 0.7, 1.4, match="FL_shank", log=True),
    Param("shank_com", "com_z", 0.0, -0.03, 0.03, match="FL_shank", op="add", unit="m"),
    *(Param(f"armature_{j}", "armature", 1.0, 0.5, 2.0, match=f"FL_{j}", log=True) for j in ("abduction", "hip", "knee")),
    Param("damping", "damping", 1.0, 0.3, 3.0, match="FL_.*", log=True),
    Param("joint_friction", "frictionloss", 1.0, 0.3, 3.0, match="FL_.*", log=True),
))  # fmt: skip


def random_motion(at: Meter, range_: Range, limits: Limits, time: np.ndarray, z: np.ndarray, seed: int) -> np.ndarray:
    """(T + 1, nu) the first motion drawn blindly that keeps the limits at every z."""
    shape, watch = Shape(), guard(at.world.model, limits)
    for k in range(1000):
        x = stream(seed, "random motion", k).random((1, shape.size(float(time[-1])) * len(range_.home)))
        u = shape.controls(x, range_, time)
        if outside(at, watch, u, z)[0] == 0:
            return u[0]
    raise RuntimeError("no random motion keeps the limits")


def played(world: Engine, at: Meter, u: np.ndarray, time: np.ndarray, e: np.ndarray, seed: int) -> Log:
    """What an encoder reads of the machine e while it plays a motion."""
    one = world.with_(1)
    one.reset(np.arange(1), e[None], at.start)
    motion = one.rollout(u[None, :-1], Chance(0, 0, one.dt))
    q = np.concatenate([at.start.q, motion.q[0]]) + NOISE * stream(seed, "encoder").standard_normal((len(time), 2))
    return Log(time, {"control": u, "joint_pos": q}, meta={"names": {"control": list(world.layout.actuators)}})


def fitted(world: Engine, belief: Box, log: Log) -> np.ndarray:
    return identify(world, belief, log, Identify(hold=0.0)).e


LIMITS = {
    "as shipped": Limits(seconds=2.0),  # 8 rad/s, nine tenths of the torque
    "of the motors": Limits(seconds=2.0, speed=25.0, torque=1.0),  # all of the torque; the model says no speed
}
MACHINES, COMPARED = 96, 24  # that play the designed motion; and those that play the others, too


def arm(quick: bool) -> Iterator[Row]:
    for name, limits in LIMITS.items():
        yield from _arm(quick, f"limits {name}", limits)


def _arm(quick: bool, name: str, limits: Limits) -> Iterator[Row]:
    """Every motion has to keep the limits for all that is believed: nobody knows the machine before it has moved."""
    task, belief, noise = tasks.resolve("arm"), Box.full(ARM), {"joint_pos": NOISE}
    world = machine(load_robot(task.robot).spec, ARM, 50.0)
    at = meter_for(world, belief, noise)
    range_ = control_range(world.model, at.start.u[0], limits)
    small = {"iterations": 3, "population": 16} if quick else {"iterations": 48, "population": 40}
    plans = {
        k: explore(design(world, belief, limits, noise, settings=Explore(k, samples=1, **small)))  # type: ignore[arg-type]
        for k in ("logdet", "trace", "a")
    }
    time = plans["logdet"].log.time
    still = meter_and_still(world, belief, limits, range_.home, time)
    truths = belief.sample(stream(7, "machines"), 3 if quick else MACHINES)
    many = at.space.z(belief.sample(stream(0, "verify"), 4 if quick else 32))
    found: dict[str, list[np.ndarray]] = {k: [] for k in ("logdet", "trace", "a", "random")}
    for k, e in enumerate(truths):
        motions = {name: plan.log["control"] for name, plan in plans.items() if k < COMPARED or name == "logdet"}
        if k < COMPARED:
            motions["random"] = random_motion(at, range_, limits, time, many, k)
        for kind, u in motions.items():
            found[kind].append(fitted(world, belief, played(world, at, u, time, e, k)) - e)
    error = {kind: 100 * np.mean(np.abs(x) / truths[: len(x)], 1) for kind, x in found.items()}  # (truths,) %
    for kind, x in error.items():
        yield row(f"{name}, {kind}: mean relative error of five unknowns", x, "%")
    for kind in ("random", "trace", "a"):
        goal = {"at_least": 3.0} if kind == "random" else {}
        ratio = np.median(error[kind]) / np.median(error["logdet"][: len(error[kind])])
        yield row(f"{name}, {kind} / logdet, medians", float(ratio), "ratio", **goal)
    sd = np.array([p.after for p in plans["logdet"].params])
    each = np.square(np.array(found["logdet"]) / sd)  # (machines, 5)
    scatter, unsure = np.sqrt(each.mean()), each.mean(1).std() / np.sqrt(len(each)) / (2 * np.sqrt(each.mean()))
    yield row(f"{name}, realised / predicted sd", float(scatter), "ratio", note=f"root mean square over 5 unknowns of {len(truths)} machines: by chance +-{100 * unsure:.0f} %")  # fmt: skip
    yield row(f"{name}, realised / predicted sd, how far from 1", float(abs(scatter - 1)), "", at_most=0.15)
    yield row(f"{name}, static: unknowns flagged as not determined", len(still.undetermined), "of 5", at_least=1, note=", ".join(still.undetermined))  # fmt: skip


SHAPES = {
    "2 sines": (Shape(), 48), "2 sines, ended when settled": (Shape(), 6), "4 sines": (Shape(count=4), 48),
    "a spline": (Shape("spline"), 48),
}  # fmt: skip
"""families of motions, and the rounds of patience of their search"""


def shapes(quick: bool) -> Iterator[Row]:
    """Whether other families of motions tell more: predicted error, mean of five unknowns, median over machines. No fits."""
    belief, noise = Box.full(ARM), {"joint_pos": NOISE}
    world = machine(load_robot(tasks.resolve("arm").robot).spec, ARM, 50.0)
    at = meter_for(world, belief, noise)
    z, many = (at.space.z(belief.sample(stream(*key), n)) for key, n in (((11, "judges"), 12), ((0, "verify"), 32)))
    small = {"iterations": 3, "population": 16} if quick else {"iterations": 48, "population": 40}
    for name, limits in LIMITS.items():
        range_, time = control_range(world.model, at.start.u[0], limits), world.dt * np.arange(101)
        blind = [random_motion(at, range_, limits, time, many, k) for k in range(2 if quick else 16)]
        random = [relative(at, u, z) for u in blind]
        yield row(f"limits {name}, random: predicted error", random, "%")
        for kind, (shape, patience) in SHAPES.items():
            measure.said(f"limits {name}: {kind}")
            how = Explore("logdet", samples=1, patience=patience, **small)
            plan = explore(design(world, belief, limits, noise, shape, how))
            error = relative(at, plan.log["control"], z)
            rounds = f"{len(plan.history)} rounds"
            yield row(f"limits {name}, {kind}: predicted error", error, "%", note=rounds)
            yield row(f"limits {name}, random / {kind}", float(np.median(random)) / error, "ratio", at_least=3.0)


def relative(at: Meter, u: np.ndarray, z: np.ndarray) -> float:
    """Mean absolute error of normal errors with the predicted sds, in % of each unknown; mean of unknowns, median over z."""
    F = information(at, u[None, :-1], z, starts=True)[0]
    e = at.space.e(z)
    sd = np.sqrt(np.diagonal(posterior(at, F), axis1=-2, axis2=-1)) * slopes(at.space, e)
    return float(np.median(100 * np.sqrt(2 / np.pi) * (sd / e[:, at.space.free]).mean(1)))


def meter_and_still(world: Engine, belief: Box, limits: Limits, home: np.ndarray, time: np.ndarray) -> Explored:
    """What holding still would tell."""
    from surefoot.real2sim.excite.explore import explored

    to = design(world, belief, limits, {"joint_pos": NOISE})
    z = to.meter.space.z(belief.sample(stream(0, "verify"), 32))
    return explored(to, np.repeat(home[None], len(time), 0), z, {})


def leg_spec() -> mujoco.MjSpec:
    """The front left leg, its trunk held; the others are its mirror images, and by a held trunk they never meet."""
    spec = Plant("walk", fixed=True).spec()
    for leg in ("FR", "RL", "RR"):
        spec.delete(spec.body(f"{leg}_hip_link"))
    return spec


def chirps(range_: Range, time: np.ndarray) -> Iterator[np.ndarray]:
    """0.1 Hz up to 2, 5 or 10 Hz, joints together or a third of a turn apart, of many sizes; linear in time."""
    middle, half = (range_.low + range_.high) / 2, (range_.high - range_.low) / 2
    nu, t = len(middle), time - time[0]
    for top in (1.0, 2.0, 3.0, 5.0, 10.0):
        turns = 0.1 * t + (top - 0.1) * t**2 / (2 * t[-1])
        for apart in (0.0, 1 / 3):
            wave = np.sin(2 * np.pi * (turns[:, None] + apart * np.arange(nu)))
            for size in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0):
                for centre in (middle, range_.home):
                    room = np.minimum(range_.high - centre, centre - range_.low)
                    yield range_.home + ramp(time)[:, None] * (
                        centre - range_.home + size * np.minimum(half, room) * wave
                    )


def legs(quick: bool) -> Iterator[Row]:
    belief, noise, limits = Box.full(LEG), {"joint_pos": NOISE}, Limits(seconds=3.0, speed=12.0)
    world = machine(leg_spec(), LEG, 50.0)
    stand = np.array([0.0, 0.8, -1.6])
    start = Start(stand[None], np.zeros((1, 3)), stand[None])
    at = meter_for(world, belief, noise, start)
    range_, watch = control_range(world.model, at.start.u[0], limits), guard(world.model, limits)
    small = {"iterations": 3, "population": 16} if quick else {"iterations": 16, "population": 40}
    z = at.space.z(belief.sample(stream(3, "judges"), 4 if quick else 16))
    few, traces = at.space.z(belief.sample(stream(0, "explore"), 2)), {}
    for name in ("logdet", "a", "trace"):
        plan = explore(design(world, belief, limits, noise, settings=Explore(name, samples=1, **small), start=start))  # type: ignore[arg-type]
        time = plan.log.time
        traces[name] = bound(at, plan.log["control"], z)
    every = np.array(list(chirps(range_, time)))
    fine = every[outside(at, watch, every, few) == 0]
    rough = np.array([np.trace(np.linalg.pinv(F).mean(0)) for F in information(at, fine[:, :-1], few, central=False)])
    best = fine[np.argsort(rough)[:5]]
    chirp = min((bound(at, u, z) for u in best), key=lambda b: float(np.median(b)))
    for name, b in (*traces.items(), ("best chirp", chirp)):
        yield row(f"{name}: root of the CRLB's trace", np.sqrt(b), "of the ranges")
    yield row("best chirp / a, CRLB trace", chirp / traces["a"], "ratio", at_least=2.0, note=f"of {len(fine)} chirps that keep the limits")  # fmt: skip
    yield row("best chirp / logdet, CRLB trace", chirp / traces["logdet"], "ratio")
    yield row("best chirp / trace objective, CRLB trace", chirp / traces["trace"], "ratio")


def bound(at: Meter, u: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(m,) trace of the Cramer-Rao bound on z at each z: the state a log begins in is estimated, too, and nothing is believed."""
    F = information(at, u[None, :-1], z, starts=True)[0]
    return np.trace(np.linalg.inv(F + 1e-9 * np.eye(at.d)), axis1=-2, axis2=-1)


PARTS = {"arm": arm, "legs": legs, "shapes": shapes}

if __name__ == "__main__":
    measure.main("explore", __doc__.split("\n")[0], PARTS)
