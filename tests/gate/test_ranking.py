"""How well a simulator ranks policies, against tables that others published."""

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.gate.statistics.ranking import mmrv, pearson, proxy

# success in reality and in simulation, and MMRV and Pearson of them, as published with SIMPLER (Li et al. 2024)
PUBLISHED = {
    "pick coke": ((0.907, 0.853, 0.920, 0.760, 0.133, 0.293), (0.787, 0.857, 0.710, 0.567, 0.027, 0.170), 0.0313, 0.9754),
    "move near": ((0.733, 0.633, 0.583, 0.450, 0.017, 0.350), (0.779, 0.442, 0.354, 0.317, 0.050, 0.042), 0.1110, 0.8561),
    "open drawer": ((0.333, 0.815, 0.704, 0.519, 0.0, 0.148), (0.157, 0.601, 0.463, 0.296, 0.0, 0.009), 0.0, 0.9832),
    "close drawer": ((0.630, 0.926, 0.889, 0.741, 0.0, 0.519), (0.343, 0.861, 0.667, 0.891, 0.278, 0.444), 0.1233, 0.7712),
    "apple": ((0.074, 0.185, 0.185, 0.407, 0.0, 0.0), (0.037, 0.065, 0.130, 0.213, 0.0, 0.0), 0.0, 0.9692),
    "spoon": ((0.0, 0.333, 0.417), (0.0, 0.125, 0.472), 0.0, 0.8269),
    "carrot": ((0.0, 0.250, 0.083), (0.042, 0.083, 0.097), 0.1113, 0.5714),
    "stack": ((0.0, 0.0, 0.125), (0.0, 0.0, 0.042), 0.0, 1.0),
    "eggplant": ((0.0, 0.250, 0.400), (0.0, 0.431, 0.569), 0.0, 0.9894),
}  # fmt: skip


@pytest.mark.parametrize("task", PUBLISHED)
def test_published_tables_give_their_published_numbers(task):
    real, sim, violation, r = PUBLISHED[task]
    assert mmrv(sim=sim, real=real) == pytest.approx(violation, abs=6e-5)
    assert pearson(sim=sim, real=real) == pytest.approx(r, abs=6e-5)


def test_a_violation_counts_by_what_it_costs_in_reality():
    real, sim = (0.1, 0.9), (0.5, 0.4)
    assert mmrv(sim=sim, real=real) == pytest.approx(0.8) and mmrv(sim=real, real=sim) == pytest.approx(0.1)
    with pytest.raises(TypeError):
        mmrv(sim, real)


def test_ties_in_reality_never_count():
    assert mmrv(sim=(0.1, 0.5, 0.9), real=(0.4, 0.4, 0.4)) == 0.0


def test_equal_policies_have_no_correlation():
    with pytest.raises(SurefootError, match="real: all 3 policies are at 0.4"):
        pearson(sim=(0.1, 0.5, 0.9), real=(0.4, 0.4, 0.4))
    with pytest.raises(SurefootError, match="sim: all"):
        proxy(sim=(1, 1), real=(0, 1), rng=np.random.default_rng(0))


@pytest.mark.parametrize("bad", [(), (0.5,), (0.5, 1.2), (np.nan, 0.1), ((0.5, 0.5), (0.1, 0.2))])
def test_what_are_no_rates_of_two_policies_is_refused(bad):
    with pytest.raises(SurefootError, match="sim"):
        mmrv(sim=bad, real=(0.1, 0.2))


def test_fewer_than_five_policies_have_no_interval():
    real, sim, *_ = PUBLISHED["spoon"]
    found = proxy(sim=sim, real=real, rng=np.random.default_rng(0))
    assert found.n == 3 and found.pearson.low is None and "it needs 5" in found.mmrv.how


def test_intervals_hold_the_value_and_widen_with_fewer_episodes():
    real, sim, violation, r = PUBLISHED["close drawer"]
    found = proxy(sim=sim, real=real, rng=np.random.default_rng(0))
    assert found.mmrv.low <= violation <= found.mmrv.high and found.pearson.low <= r <= found.pearson.high
    widths = []
    for m in (20, 2000):
        table = [[np.arange(m) < round(p * m) for p in rates] for rates in (sim, real)]
        wide = proxy(sim=np.array(table[0]), real=np.array(table[1]), rng=np.random.default_rng(0)).pearson
        widths.append(wide.high - wide.low)
    assert widths[0] > widths[1]


def test_a_perfect_ranking_of_few_policies_claims_no_interval_of_no_width():
    x = (0.1, 0.3, 0.5, 0.7, 0.9)
    found = proxy(sim=x, real=x, rng=np.random.default_rng(0))
    assert found.mmrv.value == 0.0 and found.mmrv.low is None and found.mmrv.how.startswith("no interval")
