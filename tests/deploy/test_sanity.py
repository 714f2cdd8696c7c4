"""Readings that are not to be believed are noticed, each by its own name, and sound ones never are."""

import numpy as np
import pytest
from fake_robot import SHORT, Legs, limits

from surefoot.contract import Contract
from surefoot.deploy.links import Packet
from surefoot.deploy.runtime.controller import Controller
from surefoot.deploy.runtime.sanity import Sanity
from surefoot.policy import Zero

DT = 0.005


def sanity(**changes) -> Sanity:
    own = limits(**changes)
    return Sanity(Controller(Zero(Contract.from_json(SHORT)), own, Legs().about().parts), own, 0.036, 0.02)


def packet(k: int, mode: str = "driven", stamp: float | None = None, **readings) -> Packet:
    found = Legs().readings() or {}
    found["joint_pos"] = found["joint_pos"] + 1e-4 * k
    return Packet(k, 100.0 + DT * k if stamp is None else stamp, found | readings, mode)


def fed(s: Sanity, n: int = 10) -> Sanity:
    for k in range(n):
        assert s.take(packet(k), DT * k) is None
    return s


@pytest.mark.parametrize(
    "readings, words",
    [
        ({"joint_pos": np.array([np.nan, 0.0])}, "joint_pos: found a reading that is not a finite number"),
        ({"base_ang_vel": np.array([0.0, np.inf, 0.0])}, "base_ang_vel: found a reading"),
        ({"base_quat": np.zeros(4)}, "quaternion of length 0.000, expected 1"),
        ({"base_quat": np.array([1.2, 0.0, 0.0, 0.0])}, "quaternion of length 1.200"),
        ({"joint_pos": np.array([2.0, 0.5])}, "hip: jumped by 2.40 in 5 ms"),
        ({"joint_vel": np.array([0.0, -41.0])}, "knee: moves at -41.0, more than 2 times its speed of 20.0"),
        ({"temperature": np.array([20.0, 81.0])}, "temperature: found 81 C, expected at most 80 C"),
        ({"base_quat": np.array([0.0, 1.0, 0.0, 0.0])}, "base_quat: turned by 3.14 rad in 5 ms"),
    ],
)  # fmt: skip
def test_a_bad_reading_is_named_at_once(readings, words):
    s = fed(sanity())
    assert words in (s.take(packet(10, **readings), 10 * DT) or "")


def test_a_bad_reading_is_not_used():
    s = fed(sanity())
    s.take(packet(10, joint_pos=np.array([np.nan, 0.0])), 10 * DT)
    assert s.newest is not None and s.newest.sequence == 9


def test_packets_that_come_twice_or_out_of_order_are_counted_and_not_used():
    s = fed(sanity())
    for k in (9, 9, 4, 12):
        assert s.take(packet(k), 0.06) is None
    assert s.newest is not None and s.newest.sequence == 12
    assert (s.counts["twice"], s.counts["out of order"], s.counts["lost"]) == (2, 1, 2)


def test_a_clock_that_goes_back_is_noticed():
    assert "went back" in (fed(sanity()).take(packet(10, stamp=100.0), 10 * DT) or "")


def test_a_stream_is_stale_when_its_newest_packet_is_older_than_allowed_and_not_before():
    s = fed(sanity())
    last = 9 * DT
    assert (
        s.alive(last + 0.035) is None
        and "stale" in (s.alive(last + 0.037) or "")
        and s.stale_at() == pytest.approx(last + 0.036, abs=1e-5)
    )


def test_packets_that_queue_on_the_way_are_old_though_they_come_regularly():
    """From packet 10 on each arrives 50 ms after it was measured: fresh by its arrival, stale by the robot's clock."""
    s = fed(sanity())
    for k in range(10, 30):
        s.take(packet(k), DT * k + 0.05)
    assert "stale" in (s.alive(DT * 29 + 0.05) or "")


def test_a_clock_that_drifts_by_50_ppm_for_an_hour_is_not_called_stale():
    s, ppm = sanity(), 50e-6
    for k in range(0, 3600 * 2):
        t = k / 2
        assert s.take(packet(k, stamp=t * (1 + ppm), joint_pos=np.array([1e-6 * (k % 7), 0.0])), t) is None
        assert s.alive(t) is None


def test_the_same_numbers_again_are_frozen_only_while_the_robot_is_driven():
    for mode, frozen in (("driven", True), ("held", False)):
        s = sanity()
        for k in range(12):
            s.take(
                packet(0, mode, 100.0 + DT * k) if k == 0 else Packet(k, 100.0 + DT * k, packet(0).readings, mode),
                DT * k,
            )  # type: ignore[arg-type]
        assert ("frozen" in (s.alive(DT * 11) or "")) == frozen


def test_a_fall_is_a_tilt_beyond_the_limit():
    for angle, fallen in ((0.9, False), (1.1, True)):
        quat = np.array([np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0])
        found = sanity(tilt=1.0).take(packet(0, base_quat=quat), 0.0)
        assert (found is not None and "fallen" in found) == fallen
