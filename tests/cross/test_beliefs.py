"""What a crossing trains over: what a log determines is narrow, what it leaves open stays as wide as the task has it."""

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief.gaussian import Gaussian
from surefoot.cross.beliefs import BELIEVED, KEPT, TRUSTED, centred, learned_from, physics, prior, searched


@pytest.fixture
def task():
    return tasks.resolve("hover")


def test_a_fit_may_look_outside_of_the_ranges_and_not_at_what_is_no_physics(task):
    box, own, free = searched(task), task.belief, physics(task)
    assert not free[task.params.index("noise")] and (box.low[~free] == box.high[~free]).all()
    assert (box.low[free] <= own.low[free]).all() and (box.high[free] >= own.high[free]).all()
    p = task.params
    assert (box.low[free] == p.low[free]).all() and (
        box.high[free] == p.high[free]
    ).all()  # a robot may be far from its model


def test_what_is_known_exactly_is_trained_over_as_wide_as_what_the_model_lacks(task):
    own = prior(task)
    sure = Gaussian(task.params, own.mu, 1e-12 * own.cov)
    found = np.sqrt(np.diag(learned_from(task, sure).cov) / np.diag(own.cov))
    assert found[physics(task)] == pytest.approx(KEPT, rel=1e-3) and found[~physics(task)] == pytest.approx(1.0)


def test_a_fit_and_the_ranges_combine_by_their_precision(task):
    """One number in closed form: 1/P = 1/(W s)^2 + 1/(B S)^2."""
    own, i = prior(task), task.params.index("drag")
    s2 = own.cov[i, i]
    away = own.mu.copy()
    away[i] += np.sqrt(s2)
    found = learned_from(task, Gaussian(task.params, away, own.cov))
    P = 1 / (1 / TRUSTED**2 + 1 / BELIEVED**2)
    assert found.cov[i, i] == pytest.approx((P + KEPT**2) * s2)
    assert found.mu[i] == pytest.approx(own.mu[i] + P / TRUSTED**2 * np.sqrt(s2))


def test_a_ratio_that_a_log_determines_stays_narrow_where_its_parts_are_open(task):
    own = prior(task)
    m, k = (task.params.index(n) for n in ("mass", "strength"))
    way = np.zeros(len(own.mu))
    way[m], way[k] = 1.0, 1.0  # along which the log says nothing
    found = learned_from(task, Gaussian(task.params, own.mu, 1e-6 * own.cov + 0.25 * np.outer(way, way)))
    across = np.zeros_like(way)
    across[m], across[k] = 1.0, -1.0
    least = KEPT**2 * (own.cov[m, m] + own.cov[k, k])
    assert across @ found.cov @ across == pytest.approx(least, rel=1e-2)
    assert found.cov[m, m] > 2 * least


def test_the_gate_judges_around_what_is_believed(task):
    own = prior(task)
    here, belief = centred(task, own)
    assert here.params.nominal == pytest.approx(task.params.e(own.mu)) and belief.params == here.params
    assert task.params.nominal[task.params.index("drag")] == 0.0  # the task itself is as it was
