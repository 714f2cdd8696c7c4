"""The limiter: nothing leaves it outside a limit, whatever goes in. Bounds are recomputed here from the law, not by its code."""

import numpy as np
import pytest

from surefoot.deploy.limits import Limits
from surefoot.deploy.runtime.limiter import limit

N, DT = 4, 0.02
KP, KD = np.array([20.0, 40.0, 0.5, 80.0]), np.array([0.5, 1.0, 0.0, 3.0])
ROUND = 1e-9  # relative: s * kp and limit / size are rounded


def limits(power: float = 60.0, gear: float = 0.0) -> Limits:
    return Limits(
        low=np.array([-1.0, -2.0, -0.5, -3.0]), high=np.array([1.0, 0.5, 0.5, 3.0]), velocity=np.array([5.0, 10.0, 2.0, 30.0]),
        torque=np.array([8.0, 20.0, 0.1, 40.0]), rate=np.array([4.0, 50.0, 1.0, 10.0]), gear=np.full(N, gear),
        damping=np.ones(N), power=power,
    )  # fmt: skip


def cases(rows: int, seed: int) -> dict[str, np.ndarray]:
    """Of all sizes from denormal to overflowing, whole turns, and numbers that are none."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.choice([-310, -20, -3, *[0] * 12, 1, 1, 3, 3, 5, 20, 308], (3, rows, N))
    with np.errstate(over="ignore"):
        asked, q, v = size * rng.standard_normal((3, rows, N))
    q += rng.choice([0.0, 0.0, 2 * np.pi, -2 * np.pi], (rows, N))
    for x in (asked, q, v):
        x[rng.random((rows, N)) < 0.01] = rng.choice([np.nan, np.inf, -np.inf])
    own = limits()
    return {"asked": asked, "q": q, "v": v, "last": rng.uniform(own.low, own.high, (rows, N))}


def check_servo(own: Limits, case: dict[str, np.ndarray]) -> None:
    made = limit(own, *case.values(), np.array([KP, KD]), DT)
    sound = np.all([(np.abs(case[k]) < 1e6).all(1) for k in ("asked", "q", "v")], 0)
    assert np.array_equal(made.sound, sound) and 0.05 < sound.mean() < 0.95
    for x in (made.target, made.kp, made.kd):
        assert np.isfinite(x).all()
    assert (made.target >= own.low).all() and (made.target <= own.high).all()
    assert (np.abs(made.target - case["last"]) <= own.rate * DT * (1 + ROUND)).all()
    assert (made.kp >= 0).all() and (made.kp <= KP).all() and (made.kd >= 0).all() and (made.kd <= KD).all()
    assert (made.kp[~sound] == 0).all()
    q, v = case["q"][sound], case["v"][sound]
    torque = made.kp[sound] * (made.target[sound] - q) - made.kd[sound] * v
    assert (np.abs(torque) <= own.torque * (1 + 1e-6)).all()
    assert ((np.abs(torque) * np.abs(v)).sum(1) <= own.power * (1 + 1e-6)).all()
    over = np.abs(v) >= own.velocity
    assert (made.kp[sound][over] == 0).all()


def check_control(own: Limits, case: dict[str, np.ndarray]) -> None:
    made = limit(own, *case.values(), np.zeros((2, N)), DT)
    assert np.isfinite(made.target).all()
    assert (made.target >= own.low).all() and (made.target <= own.high).all()
    nearer = np.abs(made.target) <= np.abs(case["last"]) + own.rate * DT
    assert (nearer | (np.abs(made.target - case["last"]) <= own.rate * DT * (1 + ROUND))).all()
    sound = made.sound
    v, torque = case["v"][sound], own.gear * made.target[sound]
    assert (np.abs(torque) <= own.torque * (1 + 1e-6)).all()
    assert ((np.abs(torque) * np.abs(v)).sum(1) <= own.power * (1 + 1e-6)).all()
    assert (torque[np.abs(v) >= own.velocity] * np.sign(v[np.abs(v) >= own.velocity]) <= 0).all()


@pytest.mark.parametrize("power", [60.0, np.inf])
def test_no_limit_is_ever_exceeded_in_1e5_cases(power):
    check_servo(limits(power), cases(100_000, 0))
    check_control(limits(power, gear=2.0), cases(100_000, 1))


@pytest.mark.slow
def test_no_limit_is_ever_exceeded_in_1e6_cases():
    for seed in range(10):
        check_servo(limits(), cases(100_000, 10 + seed))
        check_control(limits(gear=-3.0), cases(100_000, 30 + seed))


def test_what_is_within_all_limits_passes_unchanged():
    own, q = limits(), np.array([0.1, -0.3, 0.0, 1.0])
    made = limit(own, q + 0.01, q, np.zeros(N), q, np.array([KP, KD]), DT)
    assert np.array_equal(made.target, q + 0.01) and np.array_equal(made.kp, KP) and not made.changed and made.sound


def test_torque_at_its_limit_is_the_limit_exactly():
    """A joint 1 rad off with kp 20 asks for 20 N m where 8 are allowed: its gains shrink to 0.4 of themselves."""
    own, q = limits(np.inf), np.zeros(N)
    last = np.array([1.0, 0.0, 0.0, 0.0])
    made = limit(own, last, q, q, last, np.array([KP, KD]), DT)
    assert made.kp[0] * (made.target[0] - q[0]) == pytest.approx(8.0) and made.kd[0] == pytest.approx(0.4 * KD[0])


def test_power_is_shared_in_proportion():
    """Two joints at 1 rad/s that ask for 4 and 12 W: under 8 W they get 2 and 6."""
    own, q, last = limits(8.0), np.zeros(N), np.array([0.2, 0.3, 0.0, 0.0])
    v = np.array([1.0, 1.0, 0.0, 0.0])
    gains = np.array([KP, np.zeros(N)])
    made = limit(own, last, q, v, last, gains, DT)
    assert (made.kp * last)[:2] == pytest.approx([4.0 * 8 / 16, 12.0 * 8 / 16])


def test_what_is_not_finite_keeps_the_last_target_and_lets_go():
    q = np.zeros(N)
    for bad in (np.nan, np.inf, -np.inf):
        asked = np.array([0.0, bad, 0.0, 0.0])
        made = limit(limits(), asked, q, q, np.full(N, 0.2), np.array([KP, KD]), DT)
        assert np.array_equal(made.target, np.full(N, 0.2)) and not made.kp.any() and not made.sound and made.changed


def test_a_rotor_keeps_its_thrust_when_joints_use_up_the_power():
    own = limits(1.0, gear=2.0)
    own.gear[3] = 0.0
    last, v = np.full(N, 0.2), np.array([2.0, 2.0, 0.0, 0.0])
    made = limit(own, last, np.zeros(N), v, last, np.zeros((2, N)), DT)
    assert made.target[3] == 0.2 and made.target[0] == pytest.approx(
        0.2 / 1.6
    )  # 2 * 0.2 N m * 2 rad/s, twice, under 1 W


@pytest.mark.parametrize("gear", [0.0, 0.1], ids=["servo", "control"])
@pytest.mark.parametrize("power", [60.0, np.inf])
def test_one_robot_is_limited_to_the_bits_of_the_same_robot_among_many(gear, power):
    """Of numbers far outside of every limit, at them, and within them all: arrays and plain numbers decide alike."""
    own, gains = limits(power, gear), np.array([KP, KD]) if gear == 0 else np.zeros((2, N))
    case, rng = cases(3000, 4), np.random.default_rng(5)
    last, asked, q, v = case["last"], *rng.standard_normal((3, 3000, N))
    calm = {"asked": last + 0.008 * asked, "q": last + 0.1 * q, "v": 0.5 * v, "last": last}
    calm["asked"][::2] = np.clip(calm["asked"][::2], own.low, own.high)
    free = 0
    for rows in (case, calm):
        many = limit(own, *rows.values(), gains, DT)
        for i in range(3000):
            one = limit(own, *(x[i] for x in rows.values()), gains, DT)
            for name in ("target", "kp", "kd", "changed", "sound"):
                assert np.array_equal(getattr(one, name), getattr(many, name)[i]), (name, i)
            free += not one.changed
            one.target[:] = 0.0  # it is its own
    assert 300 < free < 4000
