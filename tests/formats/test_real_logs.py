"""Logs of real robots read to the shapes, rates and values that their makers state."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from surefoot.log import Log

MAPS = Path(__file__).parents[2] / "examples" / "logs"


def test_the_go2_reads_as_twelve_joints_at_200_hz(real_data):
    path = real_data / "go2_in_air" / "first_40s.csv"
    log = Log.read(path, MAPS / "go2_in_air.json")
    assert len(log) == len(path.read_text().splitlines()) - 1 == 8056
    assert log.rate == pytest.approx(200) and log.time[-1] == pytest.approx(8055 / 200)
    row = next(csv.DictReader(path.read_text().splitlines()[:2]))
    assert log["joint_pos"][0].tolist() == [float(row[f"jpos{k}"]) for k in range(12)]
    assert log["control"][0].tolist() == [float(row[f"jpos{k}_des"]) for k in range(12)]
    assert log.meta["names"]["joint_pos"][:4] == ["FL_hip_joint", "FL_thigh_joint", "FL_calf_joint", "FR_hip_joint"]
    assert (
        log.units["joint_vel"] == "rad/s" and log.meta["constants"]["kp"] == 20 and log.meta["constants"]["kd"] == 0.5
    )
    moved = np.gradient(log["joint_pos"], 1 / 200, axis=0)
    for k in range(12):  # the columns are what the mapping says: speeds are the angles' own
        assert np.corrcoef(moved[:, k], log["joint_vel"][:, k])[0, 1] > 0.9


@pytest.mark.parametrize("name", ["raw/kp100_sin_sin", "raw/kp400_lift_and_drop", "resampled/kp800_up_and_down"])
def test_the_xl330_reads_with_its_mass_and_gain(real_data, name):
    path = real_data / "xl330_pendulum" / f"{name}.json"
    log, held = Log.read(path, MAPS / "servo_pendulum.json"), json.loads(path.read_text())
    assert len(log) == len(held["entries"]) and log.time[5] == held["entries"][5]["timestamp"]
    assert log["joint_pos"].shape == (len(log), 1) and log["joint_pos"][7, 0] == held["entries"][7]["position"]
    assert log.meta["constants"]["mass"] == 0.49 and log.meta["constants"]["kp"] == held["kp"]
    assert "gaps" not in log.meta and np.abs(log["load"]).max() < 1000  # a register of 16 bits, 65533 is -3


def test_the_xl330_resampled_here_agrees_with_the_makers_own_resampling(real_data):
    there = Log.read(real_data / "xl330_pendulum/resampled/kp400_up_and_down.json", MAPS / "servo_pendulum.json")
    here = Log.read(real_data / "xl330_pendulum/raw/kp400_up_and_down.json", MAPS / "servo_pendulum.json", rate=200)
    at = [np.interp(there.time[5:-5], log.time, log["joint_pos"][:, 0]) for log in (here, there)]
    assert np.sqrt(np.mean((at[0] - at[1]) ** 2)) < 0.01


def test_the_sts3250_reads_at_about_50_hz(real_data):
    log = Log.read(real_data / "sts3250_pendulum" / "sin_sin.json", MAPS / "servo_pendulum.json")
    assert len(log) == 286 and 45 < log.rate < 55 and log.meta["constants"]["motor"] == "sts3250"


def test_emps_lasts_24_8_seconds_at_1_khz_and_its_force_is_gtau_times_volts(real_data):
    log = Log.read(real_data / "emps" / "DATA_EMPS.mat", MAPS / "emps.json")
    assert len(log) == 24841 and log.time[-1] == pytest.approx(24.84) and log.rate == pytest.approx(1000, rel=1e-4)
    assert np.allclose(log["control"][:, 0], log.meta["constants"]["gtau"] * log["drive_voltage"], rtol=1e-12)
    q, dt = log["joint_pos"][:, 0], 1e-3
    assert log.units["joint_pos"] == "m" and np.abs(np.gradient(q, dt)).max() < 0.2  # the axis moves below 0.2 m/s
    assert log.meta["constants"]["kp"] == pytest.approx(160.18)


def test_the_qdd_pendulum_reads_and_its_late_start_is_a_hole(real_data):
    log = Log.read(real_data / "qdd_pendulum" / "sac_swingup_measured.csv", MAPS / "qdd_measured.json")
    assert len(log) == 8000 and log.rate == pytest.approx(200, rel=1e-3) and log.units["joint_torque"] == "N m"
    assert log.meta["gaps"] == [[0.0, pytest.approx(0.022057, abs=1e-5)]]
    asked = Log.read(real_data / "qdd_pendulum" / "sac_swingup_desired.csv", MAPS / "qdd_desired.json")
    assert asked["control"].shape == (8000, 1) and asked.meta["names"]["control"] == ["motor"]


def test_every_real_file_is_read_without_a_mapping(real_data):
    for path in sorted([*real_data.rglob("*.json"), *real_data.rglob("*.csv")]):
        log = Log.read(path, rate=200 if "go2" in path.parts[-2] else None)
        assert len(log) > 200 and not np.isnan(np.concatenate([c.ravel() for c in log.columns.values()])).any()
