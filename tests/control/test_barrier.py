"""The safety filter: closed forms of single and double integrators, known QPs, and what it does where nothing is safe."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from surefoot.contract import Action, Contract
from surefoot.control.barrier import BaseLimits, Filter, Filtered, JointLimits, solve
from surefoot.control.dynamics import Joints
from surefoot.errors import SurefootError
from surefoot.observation import Columns, Formula, ObsGroup, ObsTerm
from surefoot.policy import Driver, Policy, Random

INF = np.full(2, np.inf)


def test_known_quadratic_programs():
    I, none = np.eye(2), (np.zeros((0, 2)), np.zeros(0))
    one = np.ones(2)
    np.testing.assert_allclose(solve(I, -one, np.array([[-1.0, -1.0]]), np.array([-1.0]), (-INF, INF)), [0.5, 0.5])
    np.testing.assert_allclose(solve(I, -one, *none, (-INF, np.array([0.3, 9.0]))), [0.3, 1.0])
    # min u1^2 + 2 u2^2 with u1 + u2 >= 3: u1 = 2 u2
    np.testing.assert_allclose(
        solve(np.diag([2.0, 4.0]), 0 * one, np.ones((1, 2)), np.array([3.0]), (-INF, INF)), [2, 1]
    )
    assert solve(I, -one, np.array([[1.0, 0], [-1, 0]]), np.array([1.0, 0.0]), (-INF, INF)) is None
    assert solve(I, -one, *none, (one, -one)) is None


def wheels(rate=50.0):
    terms = (
        ObsTerm("velocity", Formula("reading", reading="velocity"), 3),
        ObsTerm("gyro", Formula("reading", reading="gyro"), 3),
        ObsTerm("ray", Formula("reading", reading="ray"), 1),
    )
    return Contract("cart", rate, ObsGroup(terms), Action(("v", "w"), np.zeros(2), np.ones(2), "m/s", limit=100.0))


def seen(v, w, d):
    return Columns({"velocity": np.array([[v, 0, 0]]), "gyro": np.array([[0, 0, w]]), "ray": np.array([[d]])}, {})


CART = BaseLimits(((1.0, 0.0), (0.0, 1.0)), 0.0, 10.0, 10.0, (0.0,), clearance=0.2, alpha=2.0, gamma=0.5)


def test_a_single_integrator_is_slowed_to_its_closed_form():
    """b = alpha (d - r) - v:  v* = (alpha h - (1 - gamma)(alpha h - v)) / (1 + alpha dt)"""
    c, filter = wheels(), Filter((CART,))
    s, a = filter.step(filter.init(1, c), seen(0.4, 0.0, 1.0), np.array([[5.0, 0.3]]), c)
    h = 2.0 * (1.0 - 0.2)
    np.testing.assert_allclose(a[0], [(h - 0.5 * (h - 0.4)) / (1 + 2.0 * 0.02), 0.3], atol=1e-9)
    assert s["done"].tolist() == [[0, 1, 0, 0]]


def test_a_single_integrator_never_reaches_the_wall_and_comes_close():
    c, filter = wheels(), Filter((CART,))
    s, d, v, closest = filter.init(1, c), 3.0, 0.0, []
    for _ in range(400):
        s, a = filter.step(s, seen(v, 0.0, d), np.array([[4.0, 0.0]]), c)
        v = a[0, 0]
        d -= 0.02 * v
        closest.append(d - 0.2)
    assert min(closest) > 0 and closest[-1] < 0.01
    assert np.all(np.diff(closest) <= 1e-12)


def test_what_is_safe_passes_as_it_is():
    c, filter = wheels(), Filter((CART,))
    asked = np.array([[0.1234567, -0.7]])
    s, a = filter.step(filter.init(1, c), seen(0.1, 0.0, 3.0), asked, c)
    assert np.array_equal(a, asked) and s["done"].tolist() == [[1, 0, 0, 0]]


def sliders(names=("a", "b"), effort=20.0, rate=50.0):
    joints = Joints(names, (1.0, 1.0), (0.0, 0.0), (0.0, 0.0), (effort, effort), (1.0, 2.0))
    return JointLimits(joints, (-1.0, -0.5), (1.0, 0.5), (2.0, 1.0), alpha=4.0, gamma=0.5, margin=0.0, substeps=1)


def motors(names=("a", "b"), offset=()):
    terms = (
        ObsTerm("joint_pos", Formula("joint_pos", names, offset), 2, scale=0.5),
        ObsTerm("joint_vel", Formula("joint_vel", names), 2, scale=(0.1, 0.2)),
    )
    law = Action(names, np.zeros(2), np.full(2, 20.0), "N")
    return Contract("sliders", 50.0, ObsGroup(terms, history=2), law, joints=names)


@dataclass(frozen=True)
class Bang(Policy):
    """Full force, one way or the other, changed every ten periods."""

    contract: Contract

    def init(self, n):
        return {"asked": np.zeros((n, 1), np.int64)}

    def step(self, s, obs):
        rng = np.random.default_rng(int(s["asked"][0, 0]) // 10)
        return {"asked": s["asked"] + 1}, rng.choice([-1.0, 1.0], (len(obs), 2)).astype(np.float32)


def observe(contract, q, v):
    frame = contract.observation.finish(np.concatenate([q - np.array(contract.terms[0].formula.offset or 0), v], 1).astype(np.float32))  # fmt: skip
    return np.concatenate([np.full_like(frame, np.nan), frame], 1)  # the older frame is not read


def drive(policy, steps=400, n=20, mass=(1.0, 2.0)):
    """Double integrators m q'' = u; the least of q - low, high - q, speed -+ v over all."""
    limit, c = sliders(), policy.contract
    q, v, driver = np.zeros((n, 2)), np.zeros((n, 2)), Driver(policy, n)
    least = np.inf
    for _ in range(steps):
        u = c.action.control(driver(observe(c, q, v)))
        v = v + 0.02 * u / mass
        q = q + 0.02 * v
        high, low, top = np.array(limit.high), np.array(limit.low), np.array(limit.speed)
        least = min(least, *(x.min() for x in (high - q, q - low, top - v, top + v)))
    return least, driver.state


def test_double_integrators_driven_at_full_force_stay_within_limits_that_they_break_alone():
    c = motors()
    assert drive(Bang(c))[0] < -1.0
    least, s = drive(Filtered(c, Bang(c), Filter((sliders(),))))
    assert least > -1e-6 and s["barrier.done"][:, 1].min() > 0 and not s["barrier.done"][:, 2:].any()


@pytest.mark.parametrize("mass", [(0.8, 1.6), (1.2, 2.4)])
def test_the_observer_holds_the_limits_of_masses_that_are_20_percent_off(mass):
    c, limits = motors(), replace(sliders(), margin=0.2)
    assert drive(Filtered(c, Bang(c), Filter((limits,))), mass=mass)[0] > 0


def test_a_joint_approaches_its_limit_as_the_exponential():
    """gamma = 1 and full force: b = 0 after the first periods, so that h+ = h / (1 + alpha dt)."""
    c = motors()
    limits = replace(sliders(), gamma=1.0, speed=(100.0, 100.0))
    filter, s = Filter((limits,)), Filter((limits,)).init(1, c)
    q, v, h = np.zeros((1, 2)), np.zeros((1, 2)), []
    for _ in range(120):
        r = Columns({"joint_pos": q, "joint_vel": v}, {"joint_pos": ("a", "b"), "joint_vel": ("a", "b")})
        s, a = filter.step(s, r, np.array([[1.0, 0.0]]), c)
        v = v + 0.02 * c.action.control(a) / np.array([1.0, 2.0])
        q = q + 0.02 * v
        h.append(1.0 - q[0, 0])
    ratio = np.array(h[60:]) / np.array(h[59:-1])
    np.testing.assert_allclose(ratio, 1 / (1 + 4.0 * 0.02), atol=1e-6)


def test_where_nothing_is_safe_it_brakes_and_does_not_pass_through():
    """Beyond every limit with 1 N: full force against the motion, whatever is asked."""
    c = motors()
    weak = sliders(effort=1.0)
    r = Columns({"joint_pos": np.array([[0.99, 0.0]]), "joint_vel": np.array([[5.0, 0.0]])}, {k: ("a", "b") for k in ("joint_pos", "joint_vel")})  # fmt: skip
    filter = Filter((weak,))
    s, a = filter.step(filter.init(1, c), r, np.array([[1.0, 0.0]]), c)
    np.testing.assert_allclose(c.action.control(a), [[-1.0, 0.0]], atol=1e-3)
    assert s["done"].tolist() == [[0, 0, 1, 0]]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reading_that_is_no_number_holds_the_last_safe_action(bad):
    c = motors()
    policy = Filtered(c, Bang(c), Filter((sliders(),)))
    q, v = np.zeros((2, 2)), np.zeros((2, 2))
    s, first = policy.step(policy.init(2), observe(c, q, v))
    q[1, 0] = bad
    s, second = policy.step(s, observe(c, q, v))
    assert np.array_equal(second[1], first[1]) and np.isfinite(second).all()
    assert s["barrier.done"][1].tolist() == [1, 0, 0, 1] and s["barrier.done"][0, 3] == 0


def test_readings_come_back_through_scale_offset_and_history():
    c = motors(offset=(0.3, -0.2))
    from surefoot.control.observed import Observed

    q, v = np.array([[0.5, -0.1]]), np.array([[1.5, -2.5]])
    r = Observed(c)(observe(c, q, v))
    np.testing.assert_allclose(r.reading("joint_pos"), q, atol=1e-6)
    np.testing.assert_allclose(r.reading("joint_vel"), v, atol=1e-6)
    assert r.parts("joint_vel") == ("a", "b") and Observed(c).names == ("joint_pos", "joint_vel")


def test_the_order_of_a_contracts_joints_does_not_matter():
    q, v, asked = np.array([[0.9, 0.4]]), np.array([[0.5, 0.9]]), np.array([[1.0, 1.0]])
    there = lambda names, at: Columns({"joint_pos": q[:, at], "joint_vel": v[:, at]}, {k: names for k in ("joint_pos", "joint_vel")})  # noqa: E731  # fmt: skip
    filter = Filter((sliders(),))
    plain, turned = motors(), motors(("b", "a"))
    _, a = filter.step(filter.init(1, plain), there(("a", "b"), [0, 1]), asked, plain)
    _, b = filter.step(filter.init(1, turned), there(("b", "a"), [1, 0]), asked[:, ::-1], turned)
    np.testing.assert_allclose(a[:, ::-1], b, atol=1e-9)
    assert not np.allclose(a, asked)


def test_a_policy_without_the_readings_is_refused_with_those_it_has():
    with pytest.raises(SurefootError, match="no reading matches 'joint_pos'.*velocity, gyro, ray"):
        Filtered(wheels(), Random(wheels()), Filter((sliders(),)))
    with pytest.raises(SurefootError, match="no joint matches 'a'; there are x, y"):
        Filtered(motors(), Random(motors()), Filter((sliders(("x", "y")),)))


@pytest.mark.parametrize("change, words", [
    ({"gamma": 0.0}, "0 < gamma <= 1"), ({"alpha": -1.0}, "alpha > 0"), ({"margin": 1.0}, "margin: expected 0 to below 1"),
    ({"high": (0.0,)}, "high: expected 2 numbers, found 1"), ({"high": (-2.0, 1.0)}, "low < high"),
])  # fmt: skip
def test_limits_that_cannot_be_are_refused(change, words):
    with pytest.raises(SurefootError, match=words):
        replace(sliders(), **change)
