"""One robot's step is the textbook's, and that of n rows, whatever it stands on; and it keeps nothing from one call to the next.

The textbook: e = X_hat X^-1 = exp(xi), K = P H^T (H P H^T + N)^-1, P <- (I - K H) P (I - K H)^T + K N K^T (Joseph's form).
"""

import threading
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import block_diag, expm

from surefoot import tasks
from surefoot.estimate import lie
from surefoot.estimate.invariant import G, InvariantFilter
from surefoot.estimate.legs import Leg
from surefoot.observation import Formula, ObsTerm
from surefoot.rng import stream
from tests.estimate.test_invariant import DT, FLYER, INPUTS, WALKER, Truth, noisy, run

TORQUE = replace(WALKER, inputs=(*INPUTS[:4], ObsTerm("joint_torque", Formula("reading", reading="joint_torque"), 12)))
QUADRUPED = tasks.resolve("walk-estimate").estimator
JOINTS = ("b", "a", "d", "c")
HEXAPOD = InvariantFilter(
    DT,
    (*INPUTS[:2], ObsTerm("joint_pos", Formula("joint_pos", JOINTS, offset=(0.1, -0.2, 0.3, 0.0)), 4),
     ObsTerm("joint_vel", Formula("joint_vel", JOINTS), 4), ObsTerm("foot_force", Formula("reading", reading="touch"), 6)),
    tuple(Leg(str(i), (j,), (0.1 * i, 0, 0, 0, 1, 0, 0, 0.1 * i, 0.2, -0.3), 0.02) for i, j in enumerate("abcdab")),
)  # fmt: skip


def read(f, T, seed=0):
    """Frames (T, width) of no robot in particular: joints that move, forces that come and go, an IMU near rest."""
    rng, at = stream(seed, "read"), f.at
    t = DT * np.arange(T)[:, None]
    frames = 0.3 * np.sin(5 * rng.uniform(0.5, 2, f_width(f)) * t + 6 * rng.uniform(size=f_width(f)))
    frames[:, at["base_lin_acc"]] += [0, 0, 9.81]
    if "foot_force" in at:
        feet = at["foot_force"].stop - at["foot_force"].start
        frames[:, at["foot_force"]] = 5.0 + 30.0 * np.sin(rng.uniform(4, 12, feet) * t + 6 * rng.uniform(size=feet))
    if "joint_torque" in at:
        frames[:, at["joint_torque"]] *= 60.0
    return frames


def f_width(f):
    return sum(t.dim for t in f.inputs)


def states(f):
    """Frames, and the state before each of them."""
    if f is WALKER:
        frames = noisy(Truth(1, 300).walked(), f, 3)[:, 0]
    elif f is FLYER:
        frames = noisy(Truth(1, 300).flown(), f, 3)[:, 0]
    else:
        frames = read(f, 300)
    return frames[1:], run(f, frames[:-1, None])


ALL = {"walker": WALKER, "torques": TORQUE, "flyer": FLYER, "drag": replace(FLYER, drag=0.4), "quadruped": QUADRUPED, "hexapod": HEXAPOD}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_a_step_of_one_robot_is_that_of_n_rows(name):
    f = ALL[name]
    for frame, s in zip(*states(f)):
        alone, two = (
            f.step(s, frame[None]),
            f.step({k: np.repeat(v, 2, 0) for k, v in s.items()}, np.tile(frame, (2, 1))),
        )
        for k, v in two.items():
            assert np.allclose(alone[k][0], v[0], rtol=1e-10, atol=1e-12), (name, k)
        assert np.array_equal(alone["contact"] > 0.5, two["contact"][:1] > 0.5)


def test_feet_of_these_robots_stand_in_every_way():
    """What the comparison sees of the quadruped: most sets of feet, landings, and slips beyond the gate."""
    _, found = states(QUADRUPED)
    assert len({tuple((s["contact"][0] > 0.5).tolist()) for s in found}) > 8
    assert len(QUADRUPED.single.row.feet.stands) > 8


def textbook(f, s, frame):
    """A period of a robot whose feet all stood and stand, do not roll, and are inside the gate."""
    k, (M, N), dt, at = len(f.legs), f.size, f.dt, f.at
    R, x, b, P = (s[name][0] for name in ("R", "x", "b", "P"))
    u = frame[:6]
    w = 0.5 * (s["u"][0] + u) - b
    mid, new = R @ lie.rotation(0.5 * dt * w[None, :3])[0], R @ lie.rotation(dt * w[None, :3])[0]
    F = np.eye(N)
    A = np.zeros((9, 9))
    A[3:6, :3], A[6:9, 3:6] = lie.skew(G), np.eye(3)
    F[:9, :9] = expm(A * dt)
    B = np.zeros((M, 6))
    B[:3, :3], B[3:6, 3:], B[6:9, 3:] = -dt * mid, -dt * mid, -0.5 * dt**2 * mid
    for i in range(2 + k):
        B[3 + 3 * i : 6 + 3 * i, :3] = -dt * lie.skew(x[i]) @ mid
    F[:M, M:] = B
    Q = block_diag(B @ np.diag(np.repeat([f.sd.gyro**2, f.sd.accel**2], 3)) @ B.T, np.diag(f.walk[M:]))
    f_ = mid @ w[3:] + G
    x = np.vstack([x[0] + dt * f_, x[1] + dt * x[0] + 0.5 * dt**2 * f_, x[2:]])
    P = F @ P @ F.T + Q
    h, both = f.feet(frame[None, at["joint_pos"]] + f.home)
    h, J = h[0] @ new.T, both[0, :, :, :3] @ new.T
    qv, turn = frame[at["joint_vel"]][f.feet.order], new @ w[:3]
    c = 1.0 / (1.0 + np.exp(-(frame[at["foot_force"]] - f.contact.least) / f.contact.width))
    rows, noise, r = np.zeros((3 * k, N)), [], []
    for i in range(k):
        N_i = f.sd.joint**2 * J[i].T @ J[i]
        v = J[i].T @ qv[i] + np.cross(turn, h[i]) + x[0]
        slip = max(v @ v - 4 * (f.sd.joint_vel / f.sd.joint) ** 2 * np.trace(N_i), 0.0)
        d = slice(9 + 3 * i, 12 + 3 * i)
        P[d, d] += dt**2 * (f.sd.slip**2 + f.sd.free**2 * (1 - c[i]) + slip / 3) * np.eye(3)
        rows[3 * i : 3 * i + 3, d], rows[3 * i : 3 * i + 3, 6:9] = np.eye(3), -np.eye(3)
        noise.append(N_i + f.sd.foot**2 * np.eye(3))
        r.append(x[2 + i] - x[1] - h[i])
    H, noise, r = rows, block_diag(*noise), np.concatenate(r)
    K = P @ H.T @ np.linalg.inv(H @ P @ H.T + noise)
    xi, left = -K @ r, np.eye(N) - K @ H
    algebra = np.zeros((5 + k, 5 + k))
    algebra[:3, :3], algebra[:3, 3:] = lie.skew(xi[:3]), xi[3:M].reshape(-1, 3).T
    group = np.eye(5 + k)
    group[:3, :3], group[:3, 3:] = new, x.T
    group = expm(algebra) @ group
    return group[:3, :3], group[:3, 3:].T, b + xi[M:], left @ P @ left.T + K @ noise @ K.T


def test_a_step_is_the_textbooks():
    f = replace(WALKER, sd=replace(WALKER.sd, joint_vel=0.05))
    frames = noisy(Truth(1, 120).walked(period=10_000), f, 5)
    before = run(f, frames[:-1])
    for frame, s in list(zip(frames[1:], before))[5:]:
        found, wanted = f.step(s, frame), textbook(f, s, frame[0])
        for name, value in zip(("R", "x", "b", "P"), wanted):
            assert np.allclose(found[name][0], value, rtol=1e-9, atol=1e-10), name


def test_states_stay_as_they_were_and_other_robots_change_nothing():
    frames, found = states(QUADRUPED)
    kept = [{k: v.copy() for k, v in s.items()} for s in found]
    again, own = QUADRUPED.init(1), read(QUADRUPED, 300)
    for k in range(100):
        again = QUADRUPED.step(again, own[k : k + 1])
        QUADRUPED.step(found[-1], frames[k, None])
        assert all(np.array_equal(again[name], kept[k][name]) for name in again)
    assert all(np.array_equal(a[name], b[name]) for a, b in zip(found, kept) for name in a)


def test_threads_do_not_share_what_is_worked_out():
    frames = [read(QUADRUPED, 400, seed) for seed in range(4)]
    wanted = [run(QUADRUPED, own[:, None])[-1] for own in frames]
    found = {}
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: run(QUADRUPED, frames[i][:, None])[-1]})) for i in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, w in enumerate(wanted):
        assert all(np.array_equal(found[i][k], v) for k, v in w.items())


def test_a_covariance_stays_symmetric_over_many_steps():
    s = QUADRUPED.init(1)
    for frame in np.tile(read(QUADRUPED, 1000), (4, 1)):
        s = QUADRUPED.step(s, frame[None])
    P = s["P"][0]
    scale = np.sqrt(np.outer(np.diag(P), np.diag(P)))
    assert (np.abs(P - P.T) / scale).max() < 1e-11 and np.linalg.eigvalsh(0.5 * (P + P.T)).min() > 0
