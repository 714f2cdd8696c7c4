import numpy as np
from scipy import stats

from surefoot.rng import Normal, Rows, key, stream


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


def test_what_a_row_draws_does_not_depend_on_which_rows_draw_with_it():
    draws = {
        "random": lambda r, n: r.random((n, 3)),
        "uniform": lambda r, n: r.uniform(-1.0, 2.0, (n, 2)),
        "normal": lambda r, n: r.standard_normal((n, 4)),
        "beta": lambda r, n: r.beta(np.array([0.5, 2.0]), np.array([1.0, 3.0]), (n, 2)),
        "integers": lambda r, n: r.integers(3, 9, (n, 5)),
        "one each": lambda r, n: r.random(n),
    }
    everyone, some = np.arange(50), np.array([3, 17, 41])
    for name, draw in draws.items():
        both = [draw(Rows(7, "start", 5, ids), len(ids)) for ids in (everyone, some)]
        assert np.array_equal(both[0][some], both[1]), name
        assert not np.array_equal(both[0], draw(Rows(7, "start", 6, everyone), 50)), name


def test_rows_are_uniform_normal_and_independent_of_each_other_of_columns_and_of_steps():
    u = np.concatenate([Rows(0, "x", k, np.arange(100)).random((100, 4)) for k in range(100)]).reshape(100, 100, 4)
    z = np.concatenate([Rows(0, "z", k, np.arange(100)).standard_normal((100, 4)) for k in range(100)])
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3 and stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    flat = lambda a, b: abs(np.corrcoef(a.ravel(), b.ravel())[0, 1])  # noqa: E731
    assert flat(u[1:], u[:-1]) < 0.02 and flat(u[:, 1:], u[:, :-1]) < 0.02 and flat(u[:, :, 1:], u[:, :, :-1]) < 0.02
    assert len(np.unique(u)) == u.size
    a, b = np.array([0.5, 4.0]), np.array([2.0, 1.0])
    drawn = Rows(0, "b", 0, np.arange(4000)).beta(a, b, (4000, 2))
    assert all(stats.kstest(drawn[:, j], stats.beta(a[j], b[j]).cdf).pvalue > 1e-3 for j in range(2))


def test_noise_is_normal_white_and_its_own_at_each_step():
    z = np.concatenate([Normal(0, 101, 7).draw(0, "noise", k) for k in range(200)])
    assert z.dtype == np.float32 and np.isfinite(z).all() and 4.0 < np.abs(z).max() < 5.8
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    off = np.corrcoef(z.T) - np.eye(7)
    assert np.abs(off).max() < 0.04 and abs(np.corrcoef(z[:-1].ravel(), z[1:].ravel())[0, 1]) < 0.02
    assert np.array_equal(Normal(0, 5, 3).draw(3, "noise", 4), Normal(0, 5, 3).draw(3, "noise", 4))


def test_noise_of_a_row_and_column_does_not_depend_on_which_are_drawn_with_it():
    whole = Normal(0, 50, 7).draw(3, "noise", 4)
    assert np.array_equal(whole[20:35, :4], Normal(20, 15, 4).draw(3, "noise", 4)[:, :4])
    assert len(np.unique(np.abs(whole))) == whole.size
