"""An even clock from uneven stamps: lines through lines, arcs through arcs, holes left open, clocks compared."""

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.formats.resample import gaps, mend, resample
from surefoot.formats.skew import _between, _curvature, _smooth, skew
from surefoot.log import Log


def test_a_straight_line_survives_any_jitter():
    t = np.arange(1000) * 0.01 + np.random.default_rng(0).uniform(-0.003, 0.003, 1000)
    log = resample(Log(t, {"x": np.stack([3 * t + 1, -t], axis=1)}), 250)
    assert log.rate == pytest.approx(250) and np.allclose(log["x"], np.stack([3 * log.time + 1, -log.time], axis=1))
    assert log.meta["gaps"] == []


def test_a_turn_at_constant_rate_stays_one():
    """Slerp is exact for it at any step; a straight line between quaternions would be off by 0.3 degrees here."""
    t = np.arange(0, 2, 0.1)
    quat = lambda t: np.stack([np.cos(2 * t), 0 * t, 0 * t, np.sin(2 * t)], axis=1)  # noqa: E731
    signs = np.where(np.arange(len(t)) % 2, -1.0, 1.0)[:, None]  # q and -q are the same
    log = resample(Log(t, {"base_quat": quat(t) * signs}), 77)
    assert np.allclose(np.abs((log["base_quat"] * quat(log.time)).sum(axis=1)), 1, atol=1e-12)


def test_control_and_truths_hold_their_last_value():
    t = np.arange(5) * 0.1
    log = resample(Log(t, {"control": np.arange(5.0), "on": t > 0.15}), 40)
    assert log["control"].tolist() == np.floor(np.arange(17) / 4).tolist()
    assert log["on"][:8].tolist() == [0] * 8 and log["on"][8:].tolist() == [1] * 9


@pytest.mark.parametrize("lost, hole", [(1, False), (2, False), (3, True), (10, True)])
def test_two_lost_samples_are_bridged_and_three_are_not(lost, hole):
    t = np.delete(np.arange(100) * 0.01, slice(40, 40 + lost))
    log = resample(Log(t, {"x": t, "control": t}), 100)
    inside = slice(40, 40 + lost)
    assert np.isnan(log["x"][inside]).all() == hole and np.isnan(log["control"][inside]).all() == hole
    assert np.isfinite(np.delete(log["x"], np.s_[inside])).all()
    assert log.meta["gaps"] == ([[0.39, pytest.approx(0.4 + 0.01 * lost)]] if hole else [])
    assert hole or np.allclose(log["x"], log.time)


def test_a_reading_that_is_missing_for_long_is_a_hole_in_its_column_alone():
    t = np.arange(50) * 0.01
    x = t.copy()
    x[[5, 20, 21, 22, 23]] = np.nan
    log = resample(Log(t, {"x": x, "y": t}), 100)
    assert np.flatnonzero(np.isnan(log["x"])).tolist() == [20, 21, 22, 23] and log["x"][5] == pytest.approx(0.05)
    assert np.isfinite(log["y"]).all()


def test_a_tenth_of_the_samples_lost_leaves_short_holes_bridged_and_long_ones_told():
    rng = np.random.default_rng(3)
    kept = np.sort(rng.choice(5000, 4500, replace=False))
    t = kept * 0.002
    missing = np.diff(kept) - 1
    log = resample(Log(t, {"x": np.sin(t)}), 500)
    assert len(log.meta["gaps"]) == (missing > 2).sum() > 0
    assert np.isnan(log["x"]).sum() == missing[missing > 2].sum()
    there = np.isfinite(log["x"])
    assert np.allclose(log["x"][there], np.sin(log.time[there]), atol=(3 * 0.002) ** 2 / 8)


def test_stamps_that_repeat_or_go_back_are_named_and_mended_only_when_asked():
    time = np.array([*np.arange(20) * 0.1])
    time[7] = time[6]
    with pytest.raises(SurefootError, match=r"t: row 7: found 0\.6 after 0\.6, a duplicate; 1 such of 20 rows"):
        mend(time, "t", False)
    good, said = mend(time, "t", True)
    assert (
        np.flatnonzero(~good).tolist() == [7] and "dropped 1 such of 20 rows, the first of equal stamps kept" in said[0]
    )
    time[7] = 0.3
    with pytest.raises(SurefootError, match=r"row 7: found 0\.3 after 0\.6, going back"):
        mend(time, "t", False)
    with pytest.raises(SurefootError, match="10 such of 20 rows, expected at most 0.1 .*was the clock reset"):
        mend(np.tile(np.arange(10) * 0.1, 2), "t", True)
    with pytest.raises(SurefootError, match="a duplicate; 1 such of 4 rows, expected at most 0.1 of them to drop$"):
        mend(np.array([0.0, 0.01, 0.01, 0.02]), "t", True)


def test_mending_reaches_through_the_reader_and_is_told(tmp_path):
    rows = [(0.01 * k, k) for k in range(50)] + [(0.49, 99), (0.5, 50)]
    (tmp_path / "a.csv").write_text("time,q\n" + "".join(f"{a},{b}\n" for a, b in rows))
    with pytest.raises(SurefootError, match=r"a\.csv: time: row 50: found 0\.49 after 0\.49"):
        Log.read(tmp_path / "a.csv")
    log = Log.read(tmp_path / "a.csv", mend=True)
    assert log["q"].tolist() == list(range(51)) and "row 50" in log.meta["mended"][0]


def test_a_rate_that_asks_for_all_memory_is_refused():
    log = Log([0.0, 1.0, 1e9], {"x": [1.0, 2, 3]})
    with pytest.raises(SurefootError, match="rows; expected at most"):
        resample(log, 1000)
    for rate in (0, -5, np.nan, np.inf):
        with pytest.raises(SurefootError, match="expected a positive number of Hz"):
            resample(log, rate)


def test_holes_are_counted_by_the_median_step():
    assert gaps(np.array([0.0, 0.1, 0.2, 0.5, 0.6])) == [] and gaps(np.array([0.0, 0.1, 0.2, 0.7, 0.8])) == [[0.2, 0.7]]


def wobble(t: np.ndarray) -> np.ndarray:
    """Tones that never repeat together, from 0.3 to 6 Hz."""
    rng = np.random.default_rng(5)
    f, p = rng.uniform(0.3, 6, 12), rng.uniform(0, 2 * np.pi, 12)
    return np.sin(2 * np.pi * np.outer(t, f) + p).sum(axis=1)


@pytest.mark.parametrize("latency", [0.0, 0.0123, -0.0347, 0.1001])
def test_latency_between_streams_is_found_far_below_a_sample(latency):
    t = np.arange(4000) / 200
    noise = np.random.default_rng(1).normal(0, 0.1, (2, len(t)))
    log = Log(t, {"a": wobble(t) + noise[0], "b": 3 + 0.7 * wobble(t - latency) + noise[1]})
    found = skew(log, "a", "b")
    assert found.latency == pytest.approx(latency, abs=0.0003) and found.correlation > 0.98  # a sample is 5 ms
    assert abs(found.drift_ppm) < 40


@pytest.mark.parametrize("ppm", [-300.0, 0.0, 120.0])
def test_a_clock_that_drifts_is_found_to_a_few_ppm(ppm):
    t = np.arange(24000) / 200
    late = 0.02 + ppm * 1e-6 * (t - 60)
    found = skew(Log(t, {"a": wobble(t), "b": wobble(t - late)}), "a", "b")
    assert found.drift_ppm == pytest.approx(ppm, abs=5) and found.latency == pytest.approx(0.02, abs=2e-4)
    assert found.windows == 12


def test_skew_says_when_there_is_nothing_to_compare():
    t = np.arange(1000) / 200
    with pytest.raises(SurefootError, match="b: found a constant"):
        skew(Log(t, {"a": wobble(t), "b": 0 * t}), "a", "b")
    with pytest.raises(SurefootError, match="expected at least 416"):
        skew(Log(t[:300], {"a": wobble(t[:300]), "b": wobble(t[:300])}), "a", "b")


def test_the_spline_and_the_smoothing_of_skew_are_those_of_scipy():
    from scipy.interpolate import CubicSpline
    from scipy.ndimage import gaussian_filter1d

    x, rows = np.random.default_rng(0).standard_normal(200), np.arange(40, 160)
    for s in (-3.0, -0.4, 0.0, 0.37, 2.9):
        np.testing.assert_allclose(
            _between(x, _curvature(x), rows, s), CubicSpline(np.arange(200), x)(rows - s), atol=1e-12
        )
    np.testing.assert_allclose(_smooth(x), gaussian_filter1d(x, 1.5, mode="nearest"), atol=1e-14)
