"""The invariant filter on a robot whose motion is known in closed form: legs of three slides, feet that stay where they are put.

The truth is integrated as the filter integrates, from the mean of two readings, so that without noise they are equal.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from surefoot.errors import SurefootError
from surefoot.estimate import lie
from surefoot.estimate.abstract import begun, stepped
from surefoot.estimate.invariant import G, InvariantFilter
from surefoot.estimate.kinds import from_json, terms_of
from surefoot.estimate.legs import Leg
from surefoot.estimate.settings import Contact, Delay, Deviations, Start
from surefoot.observation import Formula, ObsTerm
from surefoot.rng import stream

DT, FEET = 0.02, 4
CORNERS = np.array([[0.2, 0.15, -0.3], [0.2, -0.15, -0.3], [-0.2, 0.15, -0.3], [-0.2, -0.15, -0.3]])
NAMES = tuple(f"{foot}{axis}" for foot in range(FEET) for axis in "xyz")
LEGS = tuple(
    Leg(
        str(i),
        NAMES[3 * i : 3 * i + 3],
        tuple([*np.hstack([np.zeros((3, 3)), np.eye(3), np.ones((3, 1))]).ravel(), *c]),
    )
    for i, c in enumerate(CORNERS)
)
INPUTS = (
    ObsTerm("base_ang_vel", Formula("base_ang_vel"), 3), ObsTerm("base_lin_acc", Formula("reading", reading="accelerometer"), 3),
    ObsTerm("joint_pos", Formula("joint_pos", NAMES), 12), ObsTerm("joint_vel", Formula("joint_vel", NAMES), 12),
    ObsTerm("foot_force", Formula("reading", reading="touch"), FEET),
)  # fmt: skip
FIXES = (ObsTerm("position_error", Formula("base_pos"), 3), ObsTerm("rotation", Formula("rotation"), 9))
WALKER = InvariantFilter(
    DT,
    INPUTS,
    LEGS,
    Deviations(gyro=0.02, accel=0.1, joint=0.002, foot=0.0, slip=0.005, gyro_walk=1e-5, accel_walk=1e-5),
)
FLYER = InvariantFilter(
    DT,
    (*INPUTS[:2], *FIXES),
    sd=Deviations(gyro=0.02, accel=0.1, position=0.005, attitude=0.01, gyro_walk=1e-5, accel_walk=1e-5),
)


class Truth:
    """n robots over T periods: state (R, v, p) at each, and what their sensors read."""

    def __init__(self, n, T, seed=0, lively=1.0, start=None):
        t, rng = DT * np.arange(T)[:, None, None], stream(seed, "truth")
        a, b, phase = rng.uniform(0.5, 1.5, (3, n, 3))
        self.gyro = lively * 0.5 * np.sin(2 * a * t + 6 * phase)
        tilt, acc = np.array([1.0, 1.0, 0.3]), lively * 0.6 * np.sin(3 * b * t + 6 * phase)
        R, v, p = (np.tile(np.eye(3), (n, 1, 1)), np.zeros((n, 3)), np.zeros((n, 3))) if start is None else start
        self.R, self.v, self.p = np.empty((T, n, 3, 3)), np.empty((T, n, 3)), np.empty((T, n, 3))
        self.acc = np.empty((T, n, 3))
        for k in range(T):
            if k:
                half = lie.rotation(0.25 * DT * (self.gyro[k - 1] + self.gyro[k]))
                # a reading that makes the body shake about rest: read, then integrated as the filter does
                self.acc[k] = turned(R @ half @ half, tilt * acc[k] - G - 1.0 * v)
                f = np.einsum("nij,nj->ni", R @ half, 0.5 * (self.acc[k - 1] + self.acc[k])) + G
                R, p, v = R @ half @ half, p + DT * v + 0.5 * DT**2 * f, v + DT * f
            else:
                self.acc[k] = turned(R, tilt * acc[k] - G)
            self.R[k], self.v[k], self.p[k] = R, v, p

    @property
    def body(self):
        return np.einsum("tnji,tnj->tni", self.R, self.v)

    def walked(self, period=25):
        """Frames of a walker whose feet stand by turns: two of four stand anew every `period`."""
        T, n = self.v.shape[:2]
        d, joints, force = np.zeros((n, FEET, 3)), np.empty((T, n, 12)), np.zeros((T, n, FEET))
        for k in range(T):
            here = self.p[k][:, None] + np.einsum("nij,fj->nfi", self.R[k], CORNERS)
            swings = (k // period + np.arange(FEET) % 2) % 2 == 0
            d = here if k == 0 else np.where((swings & (k % period < 5))[:, None], here, d)
            force[k] = np.where(swings & (k % period < 5) & (k > 0), 0.0, 30.0)
            joints[k] = (np.einsum("nji,nfj->nfi", self.R[k], d - self.p[k][:, None]) - CORNERS).reshape(n, 12)
        speed = np.gradient(joints, DT, axis=0)
        return np.concatenate([self.gyro, self.acc, joints, speed, force], 2)

    def flown(self):
        return np.concatenate([self.gyro, self.acc, self.p, self.R.reshape(*self.p.shape[:2], 9)], 2)


def turned(R, x):
    return np.einsum("nji,nj->ni", R, x)


def run(f, frames, s=None):
    """States after each frame."""
    s, found = s or f.init(frames.shape[1]), []
    for frame in frames:
        s = f.step(s, frame)
        found.append(s)
    return found


def known(f, truth, frames):
    """The state after the first frame, with the true R, v, p, and feet where they are."""
    s = {k: v.copy() for k, v in f.step(f.init(frames.shape[1]), frames[0]).items()}
    R, v, p = truth.R[0], truth.v[0], truth.p[0]
    s["x"][:, 2:] = (
        np.einsum("nij,nfj->nfi", R @ s["R"].transpose(0, 2, 1), s["x"][:, 2:] - s["x"][:, 1:2]) + p[:, None]
    )
    s["R"], s["x"][:, 0], s["x"][:, 1] = R.copy(), v, p
    return s


def values(f, states, name):
    return np.array([f.terms(s, [name])[name].value for s in states])


@pytest.mark.parametrize("f, made", [(WALKER, Truth.walked), (FLYER, Truth.flown)], ids=["feet", "fixes"])
def test_without_noise_an_estimate_from_the_truth_stays_the_truth(f, made):
    truth = Truth(3, 400)
    frames = made(truth)
    states = run(f, frames[1:], known(f, truth, frames))
    for name, wanted in (("base_lin_vel", truth.body), ("base_lin_vel_world", truth.v), ("base_pos", truth.p)):
        assert np.abs(values(f, states, name) - wanted[1:]).max() < 1e-9
    assert np.abs(values(f, states, "projected_gravity") + truth.R[1:, :, 2]).max() < 1e-9
    assert np.abs(values(f, states, "gyro_bias")).max() < 1e-9


def test_an_estimate_from_a_wrong_start_finds_velocity_tilt_and_biases():
    """It begins level, at rest, without biases; the robot moves at 0.4 m/s, and its IMU is off."""
    n, T = 8, 1500
    v = stream(1, "start").uniform(-0.4, 0.4, (n, 3))
    truth = Truth(
        n, T, start=(lie.exp(0.08 * stream(1, "tilt").normal(size=(n, 3)) * [1, 1, 0])[0], v, np.zeros((n, 3)))
    )
    frames = truth.walked()
    bias = stream(1, "bias").uniform(-1, 1, (n, 6)) * [0.04, 0.04, 0.04, 0.1, 0.1, 0.1]
    frames[:, :, :6] += bias
    states = run(WALKER, frames)
    error = np.linalg.norm(values(WALKER, states, "base_lin_vel") - truth.body, axis=-1)
    assert error[0].max() > 0.3 and error[-300:].max() < 0.02
    assert np.abs(values(WALKER, states[-1:], "projected_gravity") + truth.R[-1:, :, 2]).max() < 0.02
    assert np.abs(values(WALKER, states[-1:], "gyro_bias") - bias[:, :3]).max() < 0.01


def test_the_error_of_a_prediction_is_linear_however_large_and_whatever_the_motion():
    """log(X_hat X^-1) after k periods is exp(k A dt) times that before, for errors of 1 rad and 1 m/s: no bias, no feet."""
    f, n, T = replace(FLYER, inputs=INPUTS[:2]), 6, 50
    truth = Truth(n, T, lively=3.0)
    frames = np.concatenate([truth.gyro, truth.acc], 2)
    xi = stream(2, "error").normal(size=(n, 9)) * 0.6
    s = known(f, truth, frames)
    s["R"], s["x"] = lie.moved(s["R"], s["x"], xi[:, :3], xi[:, 3:].reshape(n, 2, 3))
    last = run(f, frames[1:], s)[-1]
    eta = last["R"] @ truth.R[-1].transpose(0, 2, 1)
    r = lie.log(eta)
    moved = last["x"] - np.stack([truth.v[-1], truth.p[-1]], 1) @ eta.transpose(0, 2, 1)
    y = np.linalg.solve(lie.exp(r)[1][:, None], moved[..., None])[..., 0]
    wanted = np.linalg.matrix_power(f.drift[0, :9, :9], T - 1) @ xi[..., None]
    assert np.allclose(np.concatenate([r, y.reshape(n, 6)], 1), wanted[..., 0], atol=1e-10)


def test_errors_are_the_same_from_any_heading_and_place():
    """The same wrong start, turned about the vertical and carried away with the robot: the same error in the body's frame."""
    n, T = 5, 300
    turn = lie.exp(np.outer(np.linspace(0, 3, n), [0, 0, 1.0]))[0]
    far = np.outer(np.arange(n), [5.0, -3.0, 0.0])
    truth = Truth(1, T, lively=2.0)
    frames = np.repeat(truth.walked(), n, 1)
    f = replace(WALKER, start=Start(gyro_bias=0.0, accel_bias=0.0), sd=replace(WALKER.sd, gyro_walk=0, accel_walk=0))
    s = {k: v.copy() for k, v in f.step(f.init(n), frames[0]).items()}
    xi = np.tile([0.3, -0.2, 0.4, 0.5, 0.2, -0.3], (n, 1))
    s["R"], s["x"][:, :1] = lie.moved(s["R"], s["x"][:, :1], xi[:, :3], xi[:, None, 3:])
    s["R"], s["x"] = turn @ s["R"], s["x"] @ turn.transpose(0, 2, 1)
    Ad = np.zeros((n, *s["P"].shape[1:]))
    for i in range(0, f.size[0], 3):
        Ad[:, i : i + 3, i : i + 3] = turn
        Ad[:, i : i + 3, :3] += lie.skew(far) @ turn if i >= 6 else 0.0
    Ad[:, f.size[0] :, f.size[0] :] = np.eye(6)
    s["x"][:, 1:] += far[:, None]
    s["P"] = Ad @ s["P"] @ Ad.transpose(0, 2, 1)
    states = run(f, frames[1:], s)
    for name in ("base_lin_vel", "projected_gravity"):
        found = values(f, states, name)
        assert np.abs(found - found[:, :1]).max() < 1e-8
    assert np.abs(values(f, states, "base_lin_vel")[-1] - truth.body[-1]).max() < 0.02


def test_jacobians_of_biases_are_those_of_finite_differences_to_second_order():
    """Of one period: what is left is about g dt^2, and falls by 4 when the period is halved."""
    n, rng, off = 30, stream(5, "jacobian"), []
    w, zeta = rng.normal(size=(n, 6)), np.eye(6)
    R, x = lie.exp(rng.normal(size=(n, 3)))[0], rng.normal(size=(n, 2, 3))
    for dt in (0.02, 0.01):
        f = replace(FLYER, dt=dt)
        s = {"R": R, "x": x, "P": np.zeros((n, 15, 15))}
        R0, x0, _ = f._predict(s, w)
        B = np.empty((n, 9, 6))
        for i in range(6):  # an estimate whose bias is too large by zeta
            R1, x1, _ = f._predict(s, w - 1e-6 * zeta[i])
            eta = R1 @ R0.transpose(0, 2, 1)
            B[:, :, i] = np.concatenate([lie.log(eta), (x1 - x0 @ eta.transpose(0, 2, 1)).reshape(n, 6)], 1) / 1e-6
        P = np.zeros((n, 15, 15))
        P[:, range(9, 15), range(9, 15)] = 1.0
        quiet = replace(f, sd=replace(f.sd, gyro=0, accel=0, gyro_walk=0, accel_walk=0))
        found = quiet._predict(s | {"P": P}, w)[2][:, :9, 9:]
        off.append(np.abs(found - B).max())
    assert off[0] < 12 * 0.02**2 and off[1] < off[0] / 3.5


@pytest.mark.parametrize("name", ["base_pos", "rotation", "drag"])
def test_jacobians_of_measurements_are_those_of_finite_differences(name):
    f, n, rng = replace(FLYER, drag=0.4), 20, stream(5, name)
    R, x, b = lie.exp(rng.normal(size=(n, 3)))[0], rng.normal(size=(n, 2, 3)), 0.1 * rng.normal(size=(n, 6))
    acc = turned(R, -0.4 * x[:, 0]) * [1, 1, 0] + b[:, 3:]
    frame = np.concatenate([rng.normal(size=(n, 3)), acc, x[:, 1], R.reshape(n, 9)], 1)
    H, r, _ = f.measured(name, R, x, b, frame)
    assert np.abs(r).max() < 1e-12
    for i in range(15):
        d = 1e-6 * np.eye(15)[i] * np.ones((n, 1))
        R1, x1 = lie.moved(R, x, d[:, :3], d[:, 3:9].reshape(n, 2, 3))
        slope = f.measured(name, R1, x1, b + d[:, 9:], frame)[1] / 1e-6
        assert np.allclose(H[:, :, i], slope, atol=1e-5)


def noisy(frames, f, seed):
    rng, sd = stream(seed, "noise"), np.zeros(frames.shape[2])
    sd[:3], sd[3:6] = f.sd.gyro, f.sd.accel
    if f.legs:
        sd[6:18] = f.sd.joint
    else:
        sd[6:9] = f.sd.position
        turn = lie.exp(f.sd.attitude * rng.normal(size=(frames[..., 0].size, 3)))[0]
        frames[..., 9:] = (frames[..., 9:].reshape(-1, 3, 3) @ turn).reshape(*frames.shape[:2], 9)
    return frames + sd * rng.normal(size=frames.shape)


@pytest.mark.parametrize("f, made", [(WALKER, Truth.walked), (FLYER, Truth.flown)], ids=["feet", "fixes"])
def test_errors_are_as_large_as_the_covariance_says(f, made):
    """NEES of velocity and of tilt, averaged over 400 robots that begin as the filter believes, is chi-squared."""
    n, T, start, rng = 400, 200, f.start, stream(6, "start")
    f = replace(f, sd=replace(f.sd, slip=1e-4))
    tilt = lie.exp(rng.normal(size=(n, 3)) * [start.tilt, start.tilt, 0] * (0.0 if not f.legs else 1.0))[0]
    v = rng.normal(size=(n, 3)) * start.speed
    truth = Truth(n, T, start=(tilt, v, np.zeros((n, 3))))
    frames = noisy(made(truth), f, 7)
    bias = rng.normal(size=(n, 6)) * np.repeat([start.gyro_bias, start.accel_bias], 3)
    frames[:, :, :6] += bias
    s = {k: a.copy() for k, a in f.step(f.init(n), frames[0]).items()}
    if f.legs:  # level by definition, whatever the accelerometer of a moving robot reads
        s["x"][:, 2:] = s["x"][:, 2:] @ s["R"]
        s["R"][:] = np.eye(3)
    last = run(f, frames[1:], s)[-1]
    found = f.terms(last)
    for name, wanted in (("base_lin_vel", truth.body[-1]), ("gyro_bias", bias[:, :3]), ("accel_bias", bias[:, 3:])):
        mean = found[name].nees(wanted).mean()
        low, high = chi2.ppf([0.0005, 0.9995], 3 * n) / n
        assert low - 0.3 < mean < high + 0.3, (name, mean)  # 10 % for what is not linear and for noise read twice


def test_only_heading_and_place_become_unsure_with_time():
    truth = Truth(2, 3000)
    states = run(WALKER, noisy(truth.walked(), WALKER, 8))
    early, late = (WALKER.terms(states[k]) for k in (600, -1))
    for name, least in (("yaw", 1.5), ("base_pos", 1.5)):
        assert (late[name].sd > least * early[name].sd).all()
    for name in ("base_lin_vel", "projected_gravity", "gyro_bias", "accel_bias"):
        assert late[name].sd.max() < 1.1 * early[name].sd.max()
    error = np.abs(late["base_pos"].value - truth.p[-1]) / late["base_pos"].sd
    assert error.max() < 5


def test_a_foot_that_slips_is_put_down_anew_and_hardly_misleads():
    """One of four feet slides at 0.5 m/s from 4 s on, with full load. Without gate and inflation it drags the estimate along."""
    truth = Truth(1, 400, lively=0.3)
    frames = truth.walked(period=10_000)
    slid = np.maximum(np.arange(400) - 200, 0)[:, None] * DT * 0.5
    frames[:, 0, 6:9] += np.einsum("tji,j->ti", truth.R[:, 0], [1.0, 0, 0]) * slid
    frames[200:, 0, 18:21] += np.einsum("tji,j->ti", truth.R[200:, 0], [0.5, 0, 0])
    wide = replace(WALKER, contact=replace(WALKER.contact, gate=1e6), sd=replace(WALKER.sd, joint_vel=1e3))
    off = [np.abs(values(f, run(f, frames), "base_lin_vel") - truth.body)[200:].max() for f in (WALKER, wide)]
    assert off[0] < 0.02 and off[1] > 5 * off[0]


def test_a_ball_foot_that_rolls_is_followed():
    """A leg that turns about its foot at w moves a base of height l at w l less what the ball rolls back: the known speed."""
    leg = Leg("a", ("pitch",), (0.0, 0, 0, 0, 1, 0, 0, 0, 0, -0.3), radius=0.05)
    f = InvariantFilter(
        DT, (*INPUTS[:2], ObsTerm("joint_pos", Formula("joint_pos", ("pitch",)), 1), ObsTerm("joint_vel", Formula("joint_vel", ("pitch",)), 1),
             ObsTerm("foot_force", Formula("reading", reading="touch"), 1)), (leg,), Deviations(slip=1e-3, joint=1e-3, foot=1e-3), delay=Delay(),
    )  # fmt: skip
    t, rate = DT * np.arange(40), 0.5
    q = rate * (t - 0.4)  # the leg swings back under a base that stays level: hip = ball + 0.3 (sin q, cos q)
    frames = np.zeros((40, 1, 9))
    # the ball's middle goes forward at rate x radius; the hip at that and 0.3 d(sin q)/dt
    vx = rate * (0.05 + 0.3 * np.cos(q))
    vz = -rate * 0.3 * np.sin(q)
    frames[:, 0, 3], frames[:, 0, 5] = np.gradient(vx, DT), 9.81 + np.gradient(vz, DT)
    frames[:, 0, 6], frames[:, 0, 7], frames[:, 0, 8] = q, rate, 50.0
    found = values(f, run(f, frames), "base_lin_vel")[-1, 0]
    assert np.allclose(found, [vx[-1], 0, vz[-1]], atol=0.005)
    still = replace(f, legs=(replace(leg, radius=0.0),))
    assert values(still, run(still, frames), "base_lin_vel")[-1, 0, 0] < vx[-1] - 0.015  # 0.5 x 0.05 m/s less


def test_contacts_follow_from_joint_torques():
    """Legs of slides: a force up on a foot is the force that its vertical slide holds, with the other sign."""
    inputs = (*INPUTS[:4], ObsTerm("joint_torque", Formula("reading", reading="joint_torque"), 12))
    f, frame = replace(WALKER, inputs=inputs, contact=Contact(5.0, 1.0)), np.zeros((1, 42))
    frame[:, 5], frame[:, 30 + 2 :: 3] = 9.81, [-20.0, 0.0, -5.0, 3.0]
    p = f.terms(f.step(f.init(1), frame), ["contact"])["contact"].value[0]
    assert p[0] > 0.999 and p[1] < 0.01 and np.isclose(p[2], 0.5, atol=1e-5) and p[3] < 0.001


def test_the_estimate_is_of_now_where_readings_are_late():
    """Constant acceleration of 1 m/s^2 along x, readings 10 ms late: 1 cm/s more, and as unsure as the delay is."""
    f = replace(FLYER, delay=Delay(0.01, 0.003))
    s = {k: v.copy() for k, v in FLYER.step(FLYER.init(1), Truth(1, 1).flown()[0]).items()}
    s["u"][:] = [0, 0, 0, 1.0, 0, 9.81]
    plain, late = (x.terms(s, ["base_lin_vel"])["base_lin_vel"] for x in (FLYER, f))
    assert np.allclose(late.value - plain.value, [[0.01, 0, 0]], atol=1e-12)
    assert np.allclose(late.cov - plain.cov, np.diag([0.003**2, 0, 0]), atol=1e-12)


def test_many_rows_are_as_one_each_and_begin_by_themselves():
    frames = noisy(Truth(4, 60).walked(), WALKER, 9)
    together = WALKER.init(4)
    alone = [WALKER.init(1) for _ in range(4)]
    for k, frame in enumerate(frames):
        if k == 30:
            together, alone[2] = begun(together, np.array([2])), WALKER.init(1)
        together = WALKER.step(together, frame)
        alone = [WALKER.step(s, frame[i : i + 1]) for i, s in enumerate(alone)]
    for k, v in together.items():
        assert np.allclose(v, np.concatenate([s[k] for s in alone]), atol=1e-10), k


def test_a_lost_reading_changes_nothing_and_stays_nowhere():
    frames = Truth(3, 20).walked()
    s = run(WALKER, frames[:10])[-1]
    frames[10, 1, 4] = np.nan
    lost = stepped(WALKER, s, frames[10])
    for k, v in lost.items():
        assert np.array_equal(v[1], s[k][1]) and np.isfinite(v).all()
    assert (lost["age"] == [11, 10, 11]).all()
    assert np.array_equal(lost["P"][0], WALKER.step(s, np.nan_to_num(frames[10]))["P"][0])


def test_it_is_the_same_out_of_json_and_refused_where_it_cannot_be():
    again = from_json(WALKER.to_json(), "estimator")
    assert again.to_json() == WALKER.to_json() and isinstance(again, InvariantFilter)
    frames = Truth(2, 30).walked()
    assert np.array_equal(run(again, frames)[-1]["P"], run(WALKER, frames)[-1]["P"])
    plain = WALKER.to_json()
    for change, said in (
        ({"kind": "particle"}, "kind"), ({"dt": 0}, "dt: expected 0 to 1 s"), ({"sd": {"gyro": -1}}, "gyro: expected a number from 0"),
        ({"sd": {"gyr": 1}}, "gyr"), ({"inputs": plain["inputs"][1:]}, "base_ang_vel"), ({"base": [1, 2]}, "base: expected 3 numbers"),
        ({"inputs": plain["inputs"][:-1]}, "foot_force or joint_torque"), ({"legs": 4}, "legs: expected a list"),
    ):  # fmt: skip
        with pytest.raises(SurefootError, match=said):
            from_json(plain | change, "estimator")


def test_its_terms_have_names_and_widths():
    found = terms_of(WALKER)
    assert found["base_lin_vel_estimate"].dim == 3 and found["contact_spread"].dim == 4
    s = run(WALKER, Truth(2, 3).walked())[-1]
    for name, (dim, _) in WALKER.quantities.items():
        e = WALKER.terms(s, [name])[name]
        assert e.value.shape == (2, dim) and e.cov.shape == (2, dim, dim) and (e.sd >= 0).all()
    with pytest.raises(SurefootError, match="did you mean base_lin_vel"):
        WALKER.readings(s, ["estimate/base_lin_vle"])
