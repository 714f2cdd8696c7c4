"""A robot's log as a demonstration: against what its policy observed and did, which the log also has."""

import json

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.doctor.evidence.demonstration import demonstrated
from surefoot.errors import LogError
from surefoot.log import Log
from surefoot.sim.realities import Reality
from surefoot.tasks.record import record

ARM = tasks.resolve("arm")
NOISE = {"sensor_noise": 0.05}


@pytest.fixture(scope="module")
def log():
    return record(ARM, Reality(2, NOISE), seconds=4.0, observation=True)


def as_a_driver_writes_it(log):
    """Without what only our runtime logs."""
    return Log(log.time, {k: v for k, v in log.columns.items() if k not in ("action", "observation")}, meta=log.meta)


def world():
    return tasks.env(ARM, 1, threads=1).world


def test_observations_and_actions_follow_from_a_robots_readings_and_controls(log):
    found = demonstrated(ARM, world(), as_a_driver_writes_it(log))
    assert np.allclose(found["action"], np.clip(log["action"], -1, 1), atol=1e-6)
    assert np.allclose(found["observation"], log["observation"], atol=1e-4)


def test_a_control_beyond_the_tasks_limits_is_the_limit(log):
    raw = as_a_driver_writes_it(log)
    far = Log(raw.time, raw.columns | {"control": raw["control"] + 100.0}, meta=raw.meta)
    assert (demonstrated(ARM, world(), far)["action"] == ARM.action.limit).all()


def test_readings_that_the_log_does_not_have_are_named(log):
    raw = as_a_driver_writes_it(log)
    columns = {k: v for k, v in raw.columns.items() if k != "command"}
    with pytest.raises(LogError, match="column command: found none"):
        demonstrated(ARM, world(), Log(raw.time, columns, meta=raw.meta))


def test_the_verb_clones_a_log_without_observations_at_the_tasks_rate(log, tmp_path, capsys):
    raw = as_a_driver_writes_it(log)
    raw.save(tmp_path / "robot.npz")
    small = "--by mse --updates 50 --samples 32 --hidden 8".split()
    assert main(["clone", "arm", str(tmp_path / "robot.npz"), *small, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == len(raw)
