"""Sensor errors: their standard deviations and biases are those of the task, moved by e, and by nothing else."""

import numpy as np
import pytest

from surefoot.arrays import by_column, column_copy
from surefoot.errors import SurefootError
from surefoot.noise import SensorErrors
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param, Params

N = 20000
GROUP = ObsGroup(
    (
        ObsTerm("gyro", Formula("base_ang_vel"), 3, noise=0.1),
        ObsTerm("gravity", Formula("projected_gravity"), 3, noise=0.02),
        ObsTerm("command", Formula("command"), 2),
    )
)


def errors(params, e, seed=0, step=0, n=N, first=0, ids=None):
    frame = np.zeros((n if ids is None else len(ids), 8), np.float32)
    SensorErrors(params, {"actor": GROUP}, first, n).add(frame, e, ids, (seed, step))
    return frame


def test_noise_has_the_sd_of_each_term_and_leaves_the_others_alone():
    frame = errors(Params(()), np.zeros((N, 0)))
    # sd of a sample sd is sd / sqrt(2 n): four of them
    assert frame[:, :3].std(0) == pytest.approx(0.1, rel=4 / np.sqrt(2 * N))
    assert frame[:, 3:6].std(0) == pytest.approx(0.02, rel=4 / np.sqrt(2 * N))
    assert (frame[:, 6:] == 0).all()
    assert np.abs(frame[:, :6].mean(0)).max() < 4 * 0.1 / np.sqrt(N)


def test_a_multiple_scales_the_noise_of_its_env_and_a_set_replaces_it():
    multiple = Params((Param("noise", "noise", 1.0, 0.0, 5.0),))
    e = np.repeat([[0.0], [3.0]], N // 2, axis=0)
    frame = errors(multiple, e)
    assert (frame[: N // 2] == 0).all()
    assert frame[N // 2 :, 0].std() == pytest.approx(0.3, rel=0.04)
    own = Params((Param("gyro_sd", "noise", 0.1, 0.0, 5.0, "gyro", "set"),))
    frame = errors(own, np.full((N, 1), 0.7))
    assert frame[:, 0].std() == pytest.approx(0.7, rel=0.02)
    assert frame[:, 3].std() == pytest.approx(0.02, rel=0.02)


def test_a_bias_is_added_to_its_term_alone():
    params = Params((Param("bias", "bias", 0.0, -1.0, 1.0, "gravity", "set"),))
    e = np.linspace(-1, 1, N)[:, None]
    silent = ObsGroup(tuple(ObsTerm(t.name, t.formula, t.dim) for t in GROUP.terms))
    frame = np.zeros((N, 8), np.float32)
    SensorErrors(params, {"actor": silent}, 0, N).add(frame, e, None, (0, 0))
    assert np.allclose(frame[:, 3:6], e) and (frame[:, [0, 1, 2, 6, 7]] == 0).all()


def test_an_envs_noise_depends_on_its_number_alone():
    """Whichever others are asked for, and from whichever env on a block begins."""
    none = Params(())
    whole = errors(none, np.zeros((10, 0)), n=10)
    some = errors(none, np.zeros((2, 0)), n=10, ids=np.array([3, 7]))
    block = errors(none, np.zeros((4, 0)), n=4, first=6)
    assert (some == whole[[3, 7]]).all() and (block == whole[6:]).all()
    assert (errors(none, np.zeros((10, 0)), n=10, step=1) != whole)[:, :6].all()
    assert (errors(none, np.zeros((10, 0)), n=10, seed=1) != whole)[:, :6].all()


def test_a_param_of_a_term_that_nobody_has_is_refused_by_name():
    with pytest.raises(SurefootError, match="gyr.*gyro"):
        SensorErrors(Params((Param("b", "bias", 0.0, -1.0, 1.0, "gyr"),)), {"actor": GROUP}, 0, 2)


def test_columns_lie_together_and_a_copy_is_equal():
    a = np.arange(12.0).reshape(4, 3)
    found = column_copy(a)
    assert (found == a).all() and found.strides[0] == a.itemsize and not np.shares_memory(found, a)
    assert by_column(5, 2, np.float32).shape == (5, 2)
