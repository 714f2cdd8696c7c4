"""What loads the gears of an XL330: friction by inverse dynamics, against several measures of load.

    L d - b v - I a - (F + k load) sign(v) = T        T = m g l sin(q) + J a: what moves the weight; d: the duty that the servo logs

Each measure of load gets its own L, b, I, F and k, none below 0 (least squares over rows faster than 0.1 rad/s of all nine logs), and is
then judged with each motion left out. No simulation: errors do not add up. benchmarks/real.py runs this part.
"""

from collections.abc import Iterator

import numpy as np
from scipy.optimize import nnls
from scipy.signal import savgol_filter

from benchmarks.measure import Row, row
from benchmarks.real_logs import read
from benchmarks.servos import GAINS, MOTIONS, RATE, WEIGHT

FULL = 885.0  # the load register at full duty
SLOWEST, EDGE = 0.1, 7  # rad/s; rows beside a switch of the motor that are left out


def rows(gain: int, motion: int) -> np.ndarray:
    """(n, 6): motion, angle, speed, acceleration, duty, on; smoothed over 0.13 s."""
    log, dt = (
        read(f"xl330_pendulum/raw/kp{gain}_{MOTIONS[motion]}.json", "servo_pendulum.json", RATE["xl330"]),
        1 / RATE["xl330"],
    )
    on = log["torque_enable"].ravel() > 0.5
    q, v, a = (savgol_filter(log["joint_pos"].ravel(), 13, 3, k, dt) for k in range(3))
    duty = log["load"].ravel() / FULL * on
    switched = np.convolve(np.abs(np.diff(on, prepend=on[0])), np.ones(2 * EDGE + 1), "same") > 0
    keep = ~switched & (np.abs(v) > SLOWEST) & (np.arange(len(q)) >= EDGE) & (np.arange(len(q)) < len(q) - EDGE)
    return np.stack([np.full(len(q), motion), q, v, a, duty, on], 1)[keep]


def gears(quick: bool) -> Iterator[Row]:
    motion, q, v, a, duty, on = np.concatenate([rows(k, m) for k in GAINS for m in range(len(MOTIONS))]).T
    mass, length = WEIGHT["xl330"]
    gravity, s = mass * 9.81 * length * np.sin(q), np.sign(v)
    T = gravity + mass * length**2 * a
    motor = 0.6 * duty  # N m, about; k takes up the rest
    loads = {
        "none": np.zeros_like(q), "motor minus external torque": np.abs(motor + gravity), "external torque": np.abs(gravity),
        "torque that the gears pass on": np.abs(T), "the same, where the weight drives the motor": np.abs(T) * (T * v < 0),
    }  # fmt: skip
    for name, load in loads.items():
        X = np.stack([duty, -v * on, -v, -a, -s, -s * load], 1)
        error = lambda fit, test: float(np.sqrt(np.square(T[test] - X[test] @ nnls(X[fit], T[fit])[0]).mean()))  # noqa: B023, E731
        every = np.ones(len(q), bool)
        k = nnls(X, T)[0][-1]
        yield row(f"{name}: torque error", 1e3 * error(every, every), "mN m", note=f"k {k:.2f}")
        left = [1e3 * error(motion != m, motion == m) for m in range(len(MOTIONS))]
        yield row(
            f"{name}: torque error, motion left out",
            left,
            "mN m",
            note=", ".join(f"{m} {x:.0f}" for m, x in zip(MOTIONS, left)),
        )
