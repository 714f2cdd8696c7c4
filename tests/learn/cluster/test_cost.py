"""The cost of an iteration, in closed form."""

from dataclasses import replace

import pytest

from surefoot.learn.cluster.cost import Cost

COST = Cost(step=1e-4, bytes=600, bandwidth=6e8, asking=1e-3, update=1e-5)


def test_an_iteration_is_the_sum_of_its_parts():
    """1e5 steps with 10 workers: 1 s of collecting, 0.1 s of bytes, 0.01 s of asking, 1 s of learning."""
    assert COST.seconds(100_000, 10, 64) == pytest.approx(1 + 0.1 + 0.01 + 1)
    assert COST.seconds(100_000, 10, 5) == pytest.approx(2 + 0.1 + 0.01 + 1)
    assert COST.rate(100_000, 10, 64, learners=4) == pytest.approx(100_000 / (1 + 0.1 + 0.01 + 0.25))


def test_at_saturation_workers_and_learner_take_as_long():
    w = COST.saturation()
    assert w == pytest.approx(1e-4 / (1e-6 + 1e-5))
    assert 1e5 * COST.step / w == pytest.approx(1e5 * (COST.bytes / COST.bandwidth + COST.update))
    assert COST.rate(10**6, 1000, 1000) < 1.01 / (1e-6 + 1e-5 + 1e-7)  # no number of workers passes the learner


def test_sharing_an_update_takes_the_rows_and_the_gradients():
    """1e5 steps: rows of 300 bytes take 0.05 s more, gradients 0.2 s, and the update a quarter."""
    shared = replace(COST, row=300, sync=0.2)
    assert shared.seconds(100_000, 10, 64) == COST.seconds(100_000, 10, 64)
    assert shared.seconds(100_000, 10, 64, learners=4) == pytest.approx(1 + 0.01 + 0.15 + 0.25 + 0.2)
    assert shared.saturation(10**6) == pytest.approx(1e-4 / (900 / 6e8), rel=1e-3)  # what no number of learners passes
