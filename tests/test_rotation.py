"""Quaternions obey the axioms of the group of rotations, and agree with MuJoCo's functions and scipy's."""

import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation, Slerp

from surefoot.rng import stream
from surefoot.rotation import (
    angular_velocity,
    between,
    conjugate,
    cross,
    direction,
    exp,
    from_axis_angle,
    from_matrix,
    log,
    matrix,
    product,
    slerp,
    to_body,
    to_world,
    turned,
    unit,
)

N = 200
ONE = np.array([1.0, 0.0, 0.0, 0.0])


def quats(name: str) -> np.ndarray:
    return unit(stream(1, name).normal(size=(N, 4)))


def vectors(name: str) -> np.ndarray:
    return stream(2, name).normal(size=(N, 3))


def scipy(q: np.ndarray) -> Rotation:
    return Rotation.from_quat(q[..., [1, 2, 3, 0]])


def by_mujoco(function, size: int, *arrays: np.ndarray) -> np.ndarray:
    """A function of MuJoCo row by row: it writes into its first argument."""
    out = np.zeros((N, size))
    for i in range(N):
        function(out[i], *(a[i] for a in arrays))
    return out


def same(a: np.ndarray, b: np.ndarray):
    """One rotation: q or -q."""
    assert np.abs((a * b).sum(-1)) == pytest.approx(1.0, abs=1e-12)


def test_products_are_associative_and_have_inverses():
    a, b, c = quats("a"), quats("b"), quats("c")
    assert product(product(a, b), c) == pytest.approx(product(a, product(b, c)), abs=1e-14)
    assert product(a, conjugate(a)) == pytest.approx(np.tile(ONE, (N, 1)), abs=1e-14)
    assert product(a, ONE) == pytest.approx(a) and product(ONE, a) == pytest.approx(a)
    assert np.linalg.norm(product(a, b), axis=1) == pytest.approx(1.0, abs=1e-14)


def test_a_product_turns_by_the_second_first():
    a, b, v = quats("a"), quats("b"), vectors("v")
    assert to_world(product(a, b), v) == pytest.approx(to_world(a, to_world(b, v)), abs=1e-13)
    assert matrix(product(a, b)) == pytest.approx(matrix(a) @ matrix(b), abs=1e-14)


def test_turning_there_and_back_is_nothing_and_keeps_lengths_and_angles():
    q, v, w = quats("q"), vectors("v"), vectors("w")
    assert to_body(q, to_world(q, v)) == pytest.approx(v, abs=1e-13)
    assert np.linalg.norm(to_world(q, v), axis=1) == pytest.approx(np.linalg.norm(v, axis=1))
    assert to_world(q, cross(v, w)) == pytest.approx(cross(to_world(q, v), to_world(q, w)), abs=1e-12)
    assert to_world(-q, v) == pytest.approx(to_world(q, v), abs=1e-13)


def test_matrices_are_rotations_and_come_back_at_every_angle():
    q = np.concatenate([quats("q"), np.eye(4), exp(np.pi * np.eye(3)), exp((np.pi - 1e-9) * np.eye(3))])
    R = matrix(q)
    assert R @ np.swapaxes(R, 1, 2) == pytest.approx(np.tile(np.eye(3), (len(q), 1, 1)), abs=1e-14)
    assert np.linalg.det(R) == pytest.approx(1.0, abs=1e-13)
    same(from_matrix(R), q)
    assert matrix(conjugate(q)) == pytest.approx(np.swapaxes(R, 1, 2), abs=1e-14)


def test_log_undoes_exp_up_to_half_a_turn_and_takes_the_shorter_way_beyond():
    axis = vectors("axis") / np.linalg.norm(vectors("axis"), axis=1, keepdims=True)
    for angle in (0.0, 1e-12, 1e-6, 0.3, 3.0, np.pi - 1e-6):
        assert log(exp(angle * axis)) == pytest.approx(angle * axis, abs=1e-9)
        assert exp(angle * axis) == pytest.approx(from_axis_angle(axis, np.full(N, angle)), abs=1e-14)
    assert log(exp(4.0 * axis)) == pytest.approx((4.0 - 2 * np.pi) * axis, abs=1e-12)
    assert exp(axis) == pytest.approx(product(exp(0.25 * axis), exp(0.75 * axis)), abs=1e-14)  # one-parameter group


def test_between_is_what_turns_one_into_the_other():
    a, b = quats("a"), quats("b")
    same(turned(a, between(a, b)), b)
    assert between(3 * a, -2 * b) == pytest.approx(between(a, b), abs=1e-12)
    assert between(a, a) == pytest.approx(np.zeros((N, 3)), abs=1e-12)


def test_every_function_agrees_with_mujoco():
    a, b, v = quats("a"), quats("b"), vectors("v")
    assert product(a, b) == pytest.approx(by_mujoco(mujoco.mju_mulQuat, 4, a, b), abs=1e-14)
    assert conjugate(a) == pytest.approx(by_mujoco(mujoco.mju_negQuat, 4, a))
    assert to_world(a, v) == pytest.approx(by_mujoco(mujoco.mju_rotVecQuat, 3, v, a), abs=1e-13)
    assert matrix(a).reshape(-1, 9) == pytest.approx(by_mujoco(mujoco.mju_quat2Mat, 9, a), abs=1e-14)
    same(from_matrix(matrix(a)), by_mujoco(mujoco.mju_mat2Quat, 4, matrix(a).reshape(-1, 9)))
    assert between(b, a) == pytest.approx(by_mujoco(mujoco.mju_subQuat, 3, a, b), abs=1e-12)
    moved = a.copy()
    for i in range(N):
        mujoco.mju_quatIntegrate(moved[i], v[i], 0.7)
    assert turned(a, 0.7 * v) == pytest.approx(moved, abs=1e-14)


def test_every_function_agrees_with_scipy():
    a, b, v = quats("a"), quats("b"), vectors("v")
    assert matrix(a) == pytest.approx(scipy(a).as_matrix(), abs=1e-14)
    same(product(a, b), (scipy(a) * scipy(b)).as_quat()[:, [3, 0, 1, 2]])
    assert to_body(a, v) == pytest.approx(scipy(a).inv().apply(v), abs=1e-13)
    assert log(a) == pytest.approx(scipy(a).as_rotvec(), abs=1e-12)
    same(exp(v), Rotation.from_rotvec(v).as_quat()[:, [3, 0, 1, 2]])
    s = stream(3, "s").uniform(size=N)
    found = slerp(a, b, s)
    for i in range(N):
        same(found[i], Slerp([0, 1], scipy(np.stack([a[i], b[i]])))(s[i]).as_quat()[[3, 0, 1, 2]])


def test_one_rotation_and_grids_of_rotations_are_taken_alike():
    a, b, v = quats("a"), quats("b"), vectors("v")
    grid = lambda x: x.reshape(10, 20, -1)  # noqa: E731
    assert np.array_equal(matrix(grid(a)).reshape(N, 3, 3), matrix(a)) and np.array_equal(matrix(a[0]), matrix(a)[0])
    assert np.array_equal(product(grid(a), grid(b)).reshape(N, 4), product(a, b))
    assert np.array_equal(from_matrix(matrix(grid(a))).reshape(N, 4), from_matrix(matrix(a)))
    assert np.array_equal(to_body(a[0], v), to_body(np.tile(a[0], (N, 1)), v))


def test_a_steady_turn_has_its_rate_at_every_inner_sample():
    time, w = np.cumsum(stream(4, "t").uniform(0.005, 0.02, 50)), np.array([0.3, -1.0, 2.0])
    quat = product(quats("a")[0], exp(time[:, None] * w))
    rate = angular_velocity(time, quat)
    assert rate[1:-1] == pytest.approx(np.tile(w, (48, 1)), abs=1e-9)
    assert np.isnan(rate[[0, -1]]).all()


def test_gravity_of_a_level_base_points_down_whatever_its_size():
    g = np.array([[0.0, 0.0, -9.81]])
    assert direction(exp(np.array([[0.0, 0.0, 1.2]])), g) == pytest.approx(np.array([[0.0, 0.0, -1.0]]))
    assert direction(exp(np.array([[np.pi / 2, 0.0, 0.0]])), g) == pytest.approx(np.array([[0.0, -1.0, 0.0]]))


def test_a_single_row_has_the_bits_of_the_same_row_among_many():
    """A robot's computer works rows out one by one, a simulator thousands at once."""
    rng = np.random.default_rng(0)
    quat, v = unit(rng.standard_normal((500, 4))), rng.standard_normal((500, 3))
    for f in (to_body, to_world, direction):
        many = f(quat, v)
        assert all(np.array_equal(f(quat[k : k + 1], v[k : k + 1])[0], many[k]) for k in range(500)), f.__name__
    many = matrix(quat)
    assert all(np.array_equal(matrix(quat[k : k + 1])[0], many[k]) for k in range(500))
