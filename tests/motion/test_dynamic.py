"""Controls that physics follows: what the search finds replays open loop, and kinematics alone drops the box."""

import numpy as np
import pytest

from surefoot.control.sampling import Softmax, begin
from surefoot.errors import SurefootError
from surefoot.motion.dynamic import Plan, Reference, _controls, _shifted, errors, feasible, replayed
from surefoot.motion.made_hands import HALF, PERIOD, Hands, lift, pivot
from surefoot.params import Params
from surefoot.robot import Robot
from surefoot.sim.simulate import make_world

NOMINAL = np.array([[1.0, 0.0]])
CART = """<mujoco><option timestep="0.01" integrator="implicitfast"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/><geom size=".1" mass="1"/></body></worldbody>
<actuator><motor name="force" joint="x"/></actuator></mujoco>"""


def test_softmax_weighs_the_best_and_shrinks_its_noise():
    search = begin(Softmax(rounds=4, final=0.1, top=0.5), np.zeros(2), 1.0)
    X = np.array([[0.0, 0], [1, 0], [2, 0], [3, 0]])
    after = search.tell(X, np.array([3.0, 2.0, 0.0, 0.0]))
    assert np.allclose(after.mean, [2.5, 0]) and np.allclose(after.spread, 0.1 ** (1 / 4))
    for _ in range(6):
        after = after.tell(X, np.array([3.0, 2.0, 0.0, 0.0]))
    assert np.allclose(after.spread, 0.1)  # not below the final one
    asked = search.ask(100, np.random.default_rng(0))
    assert np.array_equal(asked[0], [0, 0]) and np.abs(asked[-5:]).max() < 0.05 < np.abs(asked[1:95]).max()


def test_knots_are_joined_by_lines_and_shift_with_time():
    ref = Reference(np.zeros((9, 1)), np.full((9, 1), 5.0), np.ones(1))
    U = np.array([[[0.0], [2.0], [4.0]]])
    assert np.allclose(_controls(ref, 0, 9, U, 4)[0, :, 0], 5 + np.arange(9) / 2)
    assert np.allclose(_shifted(U[0], 0.5)[:, 0], [1, 3, 4])


def test_a_cart_is_brought_where_the_reference_is():
    """x'' = u: a reference that accelerates at 1 m/s^2 for half a second and brakes, whose controls say nothing about it."""
    t = np.arange(1, 51) * 0.02
    x = np.where(t < 0.5, t**2 / 2, 0.25 - (1 - t) ** 2 / 2)
    ref = Reference(x[:, None], np.zeros((50, 1)), np.ones(1))
    make = lambda n: make_world(Robot.text(CART, "cart"), Params(()), n, 2, 1)  # noqa: E731
    none = np.zeros((1, 0))
    log = feasible(make, ref, none, Plan(noise=1.0, samples=64, rounds=8, horizon=0.4, knot=0.1, apply=0.1))
    path = replayed(make, log["control"], np.zeros(1), none)[0, :, 0]
    assert np.abs(path - x).max() < 0.02 < 0.2 < np.abs(x).max()
    again = feasible(make, ref, none, Plan(noise=1.0, samples=64, rounds=8, horizon=0.4, knot=0.1, apply=0.1))
    assert np.array_equal(again["control"], log["control"])  # same seed, same bits
    assert len(log) == 50 and log.time[-1] == pytest.approx(1.0)


def test_errors_weigh_positions():
    make = Hands()
    q = np.zeros((2, 3, 7))
    q[1, :, 0] = 0.1
    assert np.allclose(
        errors(make(1), q, np.zeros((3, 7)), np.array([3.0, 1, 1, 1, 1, 1, 1])), [[0, 0, 0], [0.3, 0.3, 0.3]]
    )


def test_a_kinematic_replay_drops_the_box_and_virtual_contacts_hold_it():
    ref = lift()
    q = replayed(Hands(), ref.u, ref.q[0], NOMINAL)
    assert np.abs(q[0, :, 1] - ref.q[:, 1]).max() > 0.1  # it stays on the floor
    world = Hands()(1)
    from surefoot.sim.simulate import simulate

    held = simulate(world, np.array([[1.0, 0.9]]), ref.q[:1], np.zeros((1, 7)), ref.u[None]).q
    assert np.abs(held[0, -1, 1] - ref.q[-1, 1]) < 0.03


def test_the_pivots_reference_turns_about_its_edge():
    ref = pivot(0.5)
    x, z, a = ref.q[-1, :3]
    corner = np.array([x, z + HALF]) + [np.cos(a) * HALF - np.sin(a) * HALF, -np.sin(a) * HALF - np.cos(a) * HALF]
    assert a == pytest.approx(0.5) and np.allclose(corner, [HALF, 0], atol=1e-9)


def test_a_plan_whose_knots_do_not_fit_is_refused():
    with pytest.raises(SurefootError, match="within the horizon"):
        Plan(horizon=0.2, knot=0.4)


@pytest.mark.slow
def test_a_box_is_lifted_open_loop_by_controls_found_in_simulation():
    ref = lift()
    worst = []
    for seed in range(3):
        log = feasible(Hands(), ref, NOMINAL, Plan(), seed=seed)
        q = replayed(Hands(), log["control"], ref.q[0], NOMINAL)
        worst.append(np.linalg.norm(q[0, :, :2] - ref.q[:, :2], axis=1).max())
    assert np.median(worst) <= 0.02 and len(log) * PERIOD == pytest.approx(2.0)
