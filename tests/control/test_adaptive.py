"""Model-reference adaptive control: its Lyapunov function falls, it finds a load it was not given, and its parameters stay bounded."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.control.adaptive import Adapted, Adaptive, with_mass
from surefoot.control.dynamics import Joints
from surefoot.errors import SurefootError
from surefoot.policy import Driver, Zero
from surefoot.task import quiet
from surefoot.tasks.joint_model import joints_of
from surefoot.tasks.ready import arm
from surefoot.tasks.rollout import contract

INERTIA = np.array([0.5, 2.0])
PLAIN = Joints(("a", "b"), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (500.0, 500.0), tuple(INERTIA))
DT = 1e-3


def pd(q, v, t):
    """What the policy asks for: PD towards two sines."""
    w = np.array([3.0, 5.0])
    return 20 * INERTIA * (np.sin(w * t) - q) + 6 * INERTIA * (w * np.cos(w * t) - v)


def lyapunov(law, theta, steps=3000, noise=0.0):
    """V along a run of two joints with a constant torque and friction that the model does not have."""
    rng, Gamma = np.random.default_rng(0), law.gains[0]
    q, v, s, V, thetas = np.zeros((1, 2)), np.zeros((1, 2)), law.init(1), [], []
    for k in range(steps):
        read = q + noise * rng.standard_normal(q.shape), v + 20 * noise * rng.standard_normal(v.shape)
        e = np.zeros(2) if k == 0 else v[0] - s["reference"][0]
        V.append(0.5 * e @ (INERTIA * e) + 0.5 * ((s["theta"][0] - theta) ** 2 / Gamma).sum())
        u = pd(*read, k * DT)
        s, add = law.step(s, *read, u, DT)
        v = v + DT * (u + add - theta[:2] - theta[2:] * v) / INERTIA
        q = q + DT * v
        thetas.append(s["theta"][0])
    return np.array(V), np.array(thetas)


def test_without_noise_the_lyapunov_function_never_rises_and_the_load_is_found():
    law = Adaptive(PLAIN, gain=(40.0, 4.0, 0.0))
    theta = np.array([2.0, -3.0, 0.4, 0.2])
    V, thetas = lyapunov(law, theta, 8000)
    assert np.diff(V).max() < 1e-3 * V[0]  # a period of 1 ms adds terms of second order
    assert V[-1] < 0.02 * V[0]
    np.testing.assert_allclose(thetas[-1][:2], theta[:2], atol=0.2)


def test_without_a_load_nothing_is_learned():
    _, thetas = lyapunov(Adaptive(PLAIN), np.zeros(4))
    assert np.abs(thetas).max() < 1e-9


def test_parameters_stay_within_their_bounds_whatever_the_noise():
    law = Adaptive(PLAIN, gain=(400.0, 40.0, 0.0), bound=(1.0, 0.3, 0.0))
    _, thetas = lyapunov(law, np.array([2.0, -3.0, 0.4, 0.2]), noise=0.02)
    bound = law.gains[1]
    assert np.isfinite(thetas).all() and (np.abs(thetas) <= bound).all() and (np.abs(thetas).max(0) == bound).any()


def test_adaptation_stops_in_the_dead_zone_and_at_the_actuators_limit():
    load = np.array([2.0, -3.0, 0.0, 0.0])
    assert not lyapunov(Adaptive(PLAIN, dead=100.0), load)[1].any()
    weak = replace(PLAIN, effort=(1e-3, 1e-3))
    assert not lyapunov(Adaptive(weak), load, 500)[1].any()


def test_a_reading_that_is_no_number_adds_no_torque_and_teaches_nothing():
    law = Adaptive(PLAIN)
    s, _ = law.step(law.init(1), np.zeros((1, 2)), np.zeros((1, 2)), np.ones((1, 2)), DT)
    s, add = law.step(s, np.array([[np.nan, 0.0]]), np.array([[np.nan, 0.0]]), np.ones((1, 2)), DT)
    assert np.isfinite(add).all() and np.isfinite(s["theta"]).all()


def test_a_mass_at_the_tip_is_that_of_the_engine():
    model = mujoco.MjModel.from_xml_string(arm.xml())
    light = joints_of(model)
    model.body_mass[arm.HAND] += 0.7
    heavy = joints_of(model)
    made = replace(
        light, links=(light.links[0], with_mass(light.links[1], np.array([arm.UPPER + arm.FORE, 0, 0]), 0.7))
    )
    q, v, a = np.random.default_rng(1).normal(size=(3, 4, 2))
    np.testing.assert_allclose(made.inverse(q, v, a), heavy.inverse(q, v, a), atol=1e-12)


def test_a_servo_policy_that_wears_it_finds_the_payload_and_sags_less():
    """arm with 0.6 kg in the hand that nobody told it of, held in place by its servos at 50 Hz."""
    task, e = quiet(tasks.resolve("arm"))
    e[task.params.index("payload")], e[task.params.index("joint_friction")] = 0.6, 0.0
    joints = joints_of(mujoco.MjModel.from_xml_string(arm.xml()))
    tip = (arm.UPPER + arm.FORE, 0.0, 0.0)
    law = Adaptive(joints, tip, gain=(0.0, 0.0, 20.0), bound=(0.0, 0.0, 2.0), kappa=10.0, substeps=4)
    sag = {}
    for name in ("bare", "worn"):
        env = tasks.env(task, 1, point(task.params, e))
        policy = Zero(contract(task, env.world))
        driver = Driver(policy if name == "bare" else Adapted(policy.contract, policy, law), 1)
        obs = env.reset(3)["actor"]
        for _ in range(150):
            obs = env.step(driver(obs)).obs["actor"]
        free = tasks.env(task, 1, point(task.params, np.where(np.array(task.params.names) == "payload", 0.0, e)))
        free.reset(3)
        for _ in range(150):
            free.step(np.zeros((1, 2)))
        sag[name] = np.abs(env.world.state.q - free.world.state.q).max()
    assert driver.state["adaptive.theta"][0, -1] == pytest.approx(0.6, abs=0.06)
    assert sag["worn"] < 0.15 * sag["bare"] and sag["bare"] > 0.03


def test_a_tip_needs_links():
    with pytest.raises(SurefootError, match="tip: expected 3 numbers, and joints with links"):
        Adaptive(PLAIN, tip=(1.0, 0.0, 0.0))
