"""A Verdict holds when every check holds, travels as JSON unchanged, and its intervals are exact."""

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from surefoot.errors import SurefootError
from surefoot.verdict import Check, Verdict, clopper_pearson

FELL = Check("falls", 0.02, 0.01, False, "6 of 300 episodes", low=0.0074, high=0.043)
SLEW = Check("torque slew", np.float64(812.5), 1000, np.True_, "max over 300 episodes", unit="Nm/s")


def a_verdict() -> Verdict:
    return Verdict((FELL, SLEW), "surefoot train hover --resume", "gate of hover", {"seed": 3})


def test_a_verdict_holds_when_every_check_holds():
    assert not a_verdict().holds
    assert Verdict((SLEW, SLEW), "").holds


def test_a_verdict_without_checks_does_not_hold():
    assert not Verdict((), "run the gate").holds


def test_a_check_in_words_says_value_limit_interval_and_evidence():
    fell, slew = (c.row() for c in a_verdict().checks)
    assert fell == ["FAIL", "falls", "0.02", "0.01", "0.0074..0.043", "6 of 300 episodes"]
    assert slew == ["PASS", "torque slew", "812.5 Nm/s", "1000 Nm/s", "", "max over 300 episodes"]
    assert Check("a", 1, 2, True, "", low=0.5).row()[4] == "0.5.."


def test_json_round_trip_is_exact_even_for_nan_and_infinity():
    diverged = Check("error", math.inf, 0.1, False, "diverged at step 4", low=-math.inf, high=math.inf)
    verdict = Verdict([*a_verdict().checks, diverged], "stop", "t", {"parents": ["ab"]})
    text = json.dumps(verdict.to_json(), allow_nan=False)
    assert Verdict.from_json(json.loads(text)) == verdict
    lost = Verdict((Check("x", math.nan, 1.0, False, "sensor gone"),), "")
    back = Verdict.from_json(json.loads(json.dumps(lost.to_json(), allow_nan=False)))
    assert math.isnan(back.checks[0].value)


def test_nan_holds_nothing_and_an_interval_is_in_order():
    with pytest.raises(SurefootError, match="check x: .*a check with nan cannot pass"):
        Check("x", math.nan, 1.0, True, "")
    with pytest.raises(SurefootError, match="check x: found low 2.0 above high 1.0"):
        Check("x", 1.5, 1.0, True, "", low=2, high=1)


def bad(path: list, value) -> dict:
    data = copy.deepcopy(a_verdict().to_json())
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    "data, why",
    [
        (bad(["checks", 0, "value"], "high"), r"checks\[0\].value: found 'high', expected a number"),
        (bad(["checks", 0, "value"], 10**400), r"checks\[0\].value: found 1000"),
        (bad(["checks", 0, "value"], True), r"checks\[0\].value: found True"),
        (bad(["checks", 0, "value"], None), r"checks\[0\].value: found None"),
        (bad(["checks", 1, "low"], []), r"checks\[1\].low: found \[\]"),
        (bad(["checks", 1, "holds"], 1), r"checks\[1\].holds: found 1, expected bool"),
        (bad(["checks", 1, "name"], 1), r"checks\[1\].name: found 1, expected str"),
        (bad(["checks", 0, "limmit"], 1), r"checks\[0\]: no field matches 'limmit'.*did you mean limit"),
        (bad(["checks", 0], {"name": "x"}), r"checks\[0\].value: found nothing"),
        (bad(["checks", 0], "x"), r"checks\[0\]: found 'x', expected dict"),
        (bad(["checks"], {}), "checks: found {}, expected list"),
        (bad(["holds"], True), "holds: found True, expected False from the checks"),
        (bad(["next"], ""), "no field matches 'next'.*did you mean next_step"),
        ({"checks": [], "holds": False}, "next_step: found nothing"),
        ([], r"gate.json: found \[\], expected dict"),
    ],
)
def test_a_bad_file_is_an_error_that_names_the_field(data, why):
    with pytest.raises(SurefootError, match=why) as error:
        Verdict.from_json(data, "gate.json")
    assert str(error.value).startswith("gate.json")


@pytest.mark.parametrize(
    "k, n, low, high",
    [
        (0, 10, 0.0, 0.30849710781876083),
        (10, 10, 0.6915028921812392, 1.0),
        (8, 10, 0.4439045376923585, 0.9747892736731666),
    ],
)
def test_clopper_pearson_matches_published_values(k, n, low, high):
    assert clopper_pearson(k, n) == pytest.approx((low, high), abs=1e-14)


def test_299_clean_episodes_bound_the_failure_rate_by_one_percent_and_298_do_not():
    assert clopper_pearson(0, 299, level=0.90)[1] < 0.01 < clopper_pearson(0, 298, level=0.90)[1]
    assert clopper_pearson(0, 299, level=0.90)[1] == pytest.approx(1 - 0.05 ** (1 / 299), rel=1e-12)


def test_no_trials_tell_nothing():
    assert clopper_pearson(0, 0) == (0.0, 1.0)


@given(n=st.integers(1, 3000), share=st.floats(0, 1), level=st.floats(0.5, 0.999))
@settings(max_examples=60, deadline=None)
def test_clopper_pearson_is_the_beta_quantile(n, share, level):
    k = round(share * n)
    tail = (1 - level) / 2
    low = stats.beta.ppf(tail, k, n - k + 1) if k else 0.0
    high = stats.beta.isf(tail, k + 1, n - k) if k < n else 1.0
    assert clopper_pearson(k, n, level) == pytest.approx((low, high), rel=1e-8, abs=1e-14)


def test_clopper_pearson_covers_the_truth_at_least_as_often_as_it_says():
    for p in (0.02, 0.3, 0.5, 0.97):
        intervals = [clopper_pearson(k, 25) for k in range(26)]
        chance = stats.binom.pmf(np.arange(26), 25, p)
        assert sum(c for c, (low, high) in zip(chance, intervals) if low <= p <= high) >= 0.95


@pytest.mark.parametrize("k, n, level", [(3, 2, 0.95), (-1, 2, 0.95), (0.5, 2, 0.95), (1, 2, 1.0), (1, 2, 0.0)])
def test_clopper_pearson_refuses_what_is_not_a_count(k, n, level):
    with pytest.raises(SurefootError, match="clopper_pearson"):
        clopper_pearson(k, n, level)
