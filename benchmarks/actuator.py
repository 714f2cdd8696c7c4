"""What an actuator net is worth: torque and motion of an arm that is not its model, with torque labels and without.

    python -m benchmarks.actuator [--only labels|free] [--quick] [--json] [--record]

The machine: servos with a lag of 8 ms, half the torque the model has, and Stribeck friction. Nets learn from 30 s of
noisy chirps at 200 Hz and are judged on 20 s of other chirps, against the torque the motors really gave and the motion
without noise. "Cut" is 1 - with / without the net; without, the model has its ideal PD servos. The ways that need no
labels simulate equally many control periods. Values are medians over seeds with the least and largest.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row
from surefoot.belief import point
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.actuator import fake_motor, fit
from surefoot.real2sim.actuator.dataset import Settings, prepare
from surefoot.real2sim.replay import predict, windows
from surefoot.sim.learned.actuator_net import ActuatorNet
from surefoot.world import World

SEEDS, DT = 3, 0.005


@lru_cache
def logs(seed: int, quick: bool) -> tuple[Log, Log]:
    """To learn from, and to be judged by."""
    seconds = (6.0, 4.0) if quick else (30.0, 20.0)
    return fake_motor.recorded(seed, seconds[0], DT), fake_motor.recorded(1000 + seed, seconds[1], DT, noise=0.0)


def judged(world: World, net: ActuatorNet, test: Log) -> dict[str, float]:
    """Cuts of the torque's and the motion's error, and how r goes with what the model truly lacks."""
    settings = Settings()
    data = prepare(world, np.zeros(0), test, settings, True)
    assert data.label is not None
    data = replace(data, features=_with_slow(data.features, net.actuators.slow))
    r, lacks = net.along(data.features)[:, settings.warm :], (data.label - data.model)[:, settings.warm :]
    rms = lambda x: float(np.sqrt(np.square(x).mean()))  # noqa: E731
    pieces = windows(world, test, round(2.0 / DT), round(2.0 / DT), ("joint_pos",))
    moved = [
        rms(pieces.errors(predict(world.with_(len(pieces), terms), pieces, np.zeros((1, 0))))["joint_pos"])
        for terms in ((), (net,))
    ]
    together = [float(np.corrcoef(r[..., j].ravel(), lacks[..., j].ravel())[0, 1]) for j in range(lacks.shape[-1])]
    return {
        "torque": 1 - rms(r - lacks) / rms(lacks), "rollout": 1 - moved[1] / moved[0], "without": 1e3 * moved[0],
        "with": 1e3 * moved[1], "correlation": min(together),
    }  # fmt: skip


def _with_slow(features: np.ndarray, slow: tuple[float, ...]) -> np.ndarray:
    """Features of a test log with the net's own v_slow."""
    p, v, _ = np.moveaxis(features.reshape(*features.shape[:2], -1, 3), -1, 0)
    return np.stack([p, v, v / (np.abs(v) + np.array(slow))], -1).reshape(features.shape)


def learned(quick: bool, ways: dict[str, Settings]) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    world, nothing = fake_motor.model(DT), point(Params(()), np.zeros(0))
    for seed in range(1 if quick else SEEDS):
        train, test = logs(seed, quick)
        for name, s in ways.items():
            net = fit(world, nothing, train, s).net
            for what, value in judged(world, net, test).items():
                found[name][what].append(value)
    return found


def labels(quick: bool) -> Iterator[Row]:
    """With measured torque: an MLP on six periods, and a GRU."""
    rounds = 40 if quick else None
    found = learned(quick, {"mlp": Settings(net="mlp", rounds=rounds), "gru": Settings(net="gru", rounds=rounds)})
    yield row("ideal PD: joint position after up to 2 s free", found["mlp"]["without"], "mrad RMSE")
    for name, values in found.items():
        yield row(f"labels, {name}: joint position", values["with"], "mrad RMSE")
        yield row(f"labels, {name}: torque RMSE cut", values["torque"], "of ideal PD's", at_least=0.8)
        yield row(f"labels, {name}: 2 s rollout RMSE cut", values["rollout"], "of ideal PD's", at_least=0.7)


def free(quick: bool) -> Iterator[Row]:
    """Without: slopes through the engine, evolution, and PPO, over equally many simulated periods."""
    rounds = 10 if quick else 100
    ways = {by: Settings(labels=False, by=by, rounds=rounds) for by in ("gradient", "es", "ppo")}  # type: ignore[arg-type]
    found = learned(quick, ways)
    for name, values in found.items():
        yield row(f"no labels, {name}: joint position", values["with"], "mrad RMSE")
        yield row(f"no labels, {name}: 2 s rollout RMSE cut", values["rollout"], "of ideal PD's", at_least=0.6)
        yield row(
            f"no labels, {name}: correlation with the true residual",
            values["correlation"],
            "r, worse joint",
            at_least=0.8,
        )


PARTS = {"labels": labels, "free": free}

if __name__ == "__main__":
    measure.main("actuator", __doc__.split("\n")[0], PARTS)
