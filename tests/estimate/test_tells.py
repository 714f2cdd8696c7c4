"""What the filter tells of its state: each covariance is H P H^T, with H the finite differences of the value by the error.

X_hat = exp(xi) X,   b_hat = b + zeta
"""

from dataclasses import replace

import numpy as np
import pytest

from surefoot.estimate import lie
from surefoot.estimate.settings import Delay
from surefoot.estimate.tells import TELLS, G
from surefoot.rng import stream
from tests.estimate.test_invariant import FLYER

N, STEP = 20, 1e-6
NOW = replace(FLYER, delay=Delay(0.0, 0.0))


def state() -> dict[str, np.ndarray]:
    """n states in any attitude, with a full covariance."""
    rng = stream(4, "tells")
    A = 0.1 * rng.normal(size=(N, 15, 15))
    return {
        "R": lie.exp(rng.normal(size=(N, 3)))[0], "x": rng.normal(size=(N, 2, 3)), "b": 0.1 * rng.normal(size=(N, 6)),
        "u": rng.normal(size=(N, 6)), "P": A @ A.transpose(0, 2, 1), "contact": rng.uniform(size=(N, 4)),
    }  # fmt: skip


def moved(s: dict[str, np.ndarray], i: int, by: float) -> dict[str, np.ndarray]:
    d = by * np.eye(15)[i] * np.ones((N, 1))
    R, x = lie.moved(s["R"], s["x"], d[:, :3], d[:, 3:9].reshape(N, 2, 3))
    return s | {"R": R, "x": x, "b": s["b"] + d[:, 9:]}


@pytest.mark.parametrize("name", sorted(TELLS.keys() - {"contact"}))
def test_a_covariance_is_that_of_the_values_own_derivatives(name):
    s, tell = state(), TELLS[name]
    H = np.stack(
        [(tell(NOW, moved(s, i, STEP)).value - tell(NOW, moved(s, i, -STEP)).value) / (2 * STEP) for i in range(15)], -1
    )
    assert np.allclose(tell(NOW, s).cov, H @ s["P"] @ H.transpose(0, 2, 1), atol=1e-7)


def test_a_place_of_the_base_beside_the_imu_turns_with_it():
    f, s = replace(NOW, base=(0.3, -0.2, 0.5)), state()
    found = TELLS["base_pos"](f, s)
    assert np.allclose(found.value - s["x"][:, 1], s["R"] @ np.array(f.base))
    H = np.stack([(TELLS["base_pos"](f, moved(s, i, STEP)).value - found.value) / STEP for i in range(15)], -1)
    assert np.allclose(found.cov, H @ s["P"] @ H.transpose(0, 2, 1), atol=1e-4)


def test_a_late_reading_is_carried_on_by_the_motion_and_an_unsure_lateness_adds_along_it():
    """The velocity in the body's frame a little later, integrated: R' = R w^, v' = R a + g."""
    s, h, sd = state(), 1e-5, 0.01
    w, a = (s["u"] - s["b"])[:, :3], (s["u"] - s["b"])[:, 3:]
    R = s["R"] @ lie.exp(h * w)[0]
    v = s["x"][:, 0] + h * ((s["R"] @ a[..., None])[..., 0] + G)
    own = TELLS["base_lin_vel"](NOW, s)
    late = TELLS["base_lin_vel"](replace(FLYER, delay=Delay(h, 0.0)), s)
    rate = ((R.transpose(0, 2, 1) @ v[..., None])[..., 0] - own.value) / h
    assert np.allclose((late.value - own.value) / h, rate, atol=1e-3)
    unsure = TELLS["base_lin_vel"](replace(FLYER, delay=Delay(0.0, sd)), s)
    assert np.allclose(unsure.cov - own.cov, sd**2 * rate[:, :, None] * rate[:, None], atol=1e-5)


def test_a_contact_is_a_coin():
    s = state()
    found = TELLS["contact"](NOW, s)
    assert np.allclose(found.sd**2, s["contact"] * (1 - s["contact"])) and np.array_equal(found.value, s["contact"])
    assert np.count_nonzero(found.cov) == 4 * N
