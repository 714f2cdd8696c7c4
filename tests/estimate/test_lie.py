"""Rotations as matrices agree with quaternions and obey the axioms of SE_m(3)."""

import numpy as np
import pytest

from surefoot import rotation
from surefoot.estimate import lie
from surefoot.rng import stream


def vectors(name, n=50, size=1.0):
    return size * stream(3, name).normal(size=(n, 3))


def test_skew_is_the_cross_product():
    a, b = vectors("a"), vectors("b")
    assert np.allclose((lie.skew(a) @ b[..., None])[..., 0], np.cross(a, b))


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-3, 0.5, 1.0])
def test_exp_is_that_of_quaternions_at_every_size(size):
    r = vectors("r", size=size)
    assert np.allclose(lie.exp(r)[0], rotation.matrix(rotation.exp(r)), atol=1e-14)
    assert np.allclose(lie.rotation(r), lie.exp(r)[0], atol=1e-14)
    small = r / np.maximum(1.0, np.linalg.norm(r, axis=1, keepdims=True) / 3.0)
    assert np.allclose(lie.log(lie.exp(small)[0]), small, atol=1e-12)


@pytest.mark.parametrize("size", [1e-6, 0.01, 2.0])
def test_the_left_jacobian_is_the_mean_rotation_on_the_way(size):
    """L(r) = integral of exp(s r) ds over [0, 1], here by Gauss-Legendre."""
    r = vectors("r", size=size)
    at, weight = np.polynomial.legendre.leggauss(30)
    mean = sum(0.5 * w * lie.exp(0.5 * (1 + s) * r)[0] for s, w in zip(at, weight))
    assert np.allclose(lie.exp(r)[1], mean, atol=1e-12)


def test_two_moves_along_one_line_are_one_move():
    R, x = lie.exp(vectors("R"))[0], stream(3, "x").normal(size=(50, 4, 3))
    r, y = vectors("r"), stream(3, "y").normal(size=(50, 4, 3))
    once = lie.moved(*lie.moved(R, x, 0.3 * r, 0.3 * y), 0.7 * r, 0.7 * y)
    for a, b in zip(once, lie.moved(R, x, r, y)):
        assert np.allclose(a, b, atol=1e-12)


def test_upright_has_no_heading_and_the_given_down():
    down = vectors("down")
    down /= np.linalg.norm(down, axis=1, keepdims=True)
    down = np.concatenate([down, [[1.0, 0, 0], [-1.0, 0, 0], [0, 0, -1.0]]])
    R = lie.upright(down)
    assert np.allclose(R @ R.transpose(0, 2, 1), np.eye(3), atol=1e-12) and np.allclose(np.linalg.det(R), 1)
    assert np.allclose((R @ down[..., None])[..., 0], [0, 0, -1], atol=1e-12)
    assert np.allclose(R[:50, 1, 0], 0, atol=1e-12) and np.allclose(R[-1], np.eye(3))


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-3, 0.02, 1.0, 3.0])
def test_one_rotation_in_plain_numbers_is_that_of_many(size):
    r = stream(4, "one").normal(size=(5, 3))
    r *= size / np.linalg.norm(r, axis=1, keepdims=True)
    E, L = lie.exp(r)
    for i in range(5):
        S, left = lie.step(*r[i].tolist())
        assert np.allclose(lie.turn(*r[i].tolist()), E[i], atol=1e-15)
        assert np.allclose(S.T, lie.skew(r[i])) and np.allclose(left.T, L[i], atol=1e-15)
        assert np.allclose(np.eye(3) + left.T @ S.T, E[i], atol=1e-14)
