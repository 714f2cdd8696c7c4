import numpy as np
from scipy import stats

from surefoot.rng import key, stream


def test_equal_arguments_give_equal_draws_and_any_other_argument_others():
    base = stream(3, "noise", 7).random(100)
    assert np.array_equal(base, stream(3, "noise", 7).random(100))
    for other in (stream(4, "noise", 7), stream(3, "start", 7), stream(3, "noise", 8)):
        assert not np.array_equal(base, other.random(100))


def test_the_first_draws_of_neighbouring_steps_are_uniform_and_uncorrelated():
    first = np.array([stream(0, "x", k).random(2) for k in range(4000)])
    assert stats.kstest(first[:, 0], "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(first[:-1, 0], first[1:, 0])[0, 1]) < 0.06
    assert len({key(s, "x", k) for s in range(50) for k in range(50)}) == 2500


def test_a_row_does_not_depend_on_how_many_rows_are_drawn():
    assert np.array_equal(stream(1, "e").random((4, 3)), stream(1, "e").random((9, 3))[:4])
