"""e has names, an order and bounds that cannot be wrong."""

import json

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.params import Param, Params

MASS = Param("mass", "mass", 1.0, 0.5, 2.0, match="trunk", unit="kg", about="payload")
FRICTION = Param("friction", "friction", 0.6, 0.05, 3.0, log=True, op="set")
E = Params((MASS, FRICTION))


def test_arrays_follow_the_order_of_the_items():
    assert E.names == ["mass", "friction"] and len(E) == 2 and list(E) == [MASS, FRICTION]
    assert E.nominal.tolist() == [1.0, 0.6] and E.log.tolist() == [False, True]
    assert E.low.tolist() == [0.5, 0.05] and E.high.tolist() == [2.0, 3.0]


def test_no_params_are_arrays_of_length_zero():
    none = Params()
    assert len(none) == 0
    for array in (none.nominal, none.low, none.high, none.log, none.vector({})):
        assert array.shape == (0,)
    assert none.log.dtype == bool and none.low.dtype == np.float64
    assert Params.from_json(none.to_json()) == none


def test_a_param_is_found_by_name_and_a_wrong_name_says_the_nearest():
    assert E["friction"] is FRICTION and E.index("friction") == 1
    with pytest.raises(
        SurefootError, match="no param matches 'fricton'; there are mass, friction; did you mean friction?"
    ):
        E["fricton"]


def test_only_keeps_the_named_in_the_named_order():
    assert E.only(["friction", "mass"]).names == ["friction", "mass"]
    assert E.only([]) == Params()


def test_vector_is_nominal_where_nothing_is_said_and_leaves_nominal_alone():
    assert E.vector({"friction": 0.9}).tolist() == [1.0, 0.9]
    assert E.nominal.tolist() == [1.0, 0.6]
    with pytest.raises(SurefootError, match="did you mean mass"):
        E.vector({"mas": 1.0})


def test_json_round_trip_is_exact():
    assert Params.from_json(json.loads(json.dumps(E.to_json()))) == E


def test_an_unknown_field_names_the_param_and_the_nearest_field():
    rows = E.to_json()
    rows[1]["nominall"] = 1.0
    with pytest.raises(
        SurefootError, match="prior.json: param friction: no field matches 'nominall'.*did you mean nominal"
    ):
        Params.from_json(rows, "prior.json")


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"name": 7}, "param 7: name: found 7, expected text"),
        ({"target": None}, "param mass: target: found None, expected text"),
        ({"match": ["trunk"]}, "param mass: match: found ['trunk'], expected text"),
        ({"op": 1}, "param mass: op: found 1, expected text"),
        ({"unit": 0.5}, "param mass: unit: found 0.5, expected text"),
        ({"about": {}}, "param mass: about: found {}, expected text"),
        ({"nominal": True}, "param mass: nominal: found True, expected a finite number"),
        ({"low": "0.5"}, "param mass: low: found '0.5', expected a finite number"),
        ({"high": [2.0]}, "param mass: high: found [2.0], expected a finite number"),
        ({"high": None}, "param mass: high: found None, expected a finite number"),
        ({"high": 10**400}, "expected a finite number"),
        ({"high": float("nan")}, "param mass: high: found nan, expected a finite number"),
        ({"log": 1}, "param mass: log: found 1, expected true or false"),
        ({"low": 1.5}, "param mass: expected low <= nominal <= high"),
        ({"op": "scal"}, "param mass: no op matches 'scal'"),
    ],
)
def test_a_field_of_another_type_is_an_error_that_names_file_param_and_field(changes, why):
    with pytest.raises(SurefootError, match=r"^prior.json: ") as error:
        Params.from_json([MASS.__dict__ | changes], "prior.json")
    assert why in str(error.value)


@pytest.mark.parametrize("name", ["name", "target", "nominal", "low", "high"])
def test_a_field_that_is_missing_is_named_and_the_others_have_defaults(name):
    row = {"name": "mass", "target": "mass", "nominal": 1.0, "low": 0.5, "high": 2.0}
    assert Params.from_json([row])["mass"] == Param(**row)
    del row[name]
    with pytest.raises(SurefootError, match=f"prior.json: param (mass|0): {name}: found nothing, expected a value"):
        Params.from_json([row], "prior.json")


@pytest.mark.parametrize(
    "rows, why", [({}, "found dict, expected a list"), ([3], r"\[0\]: found int, expected an object")]
)
def test_what_is_not_a_list_of_objects_is_an_error(rows, why):
    with pytest.raises(SurefootError, match=f"prior.json.*{why}"):
        Params.from_json(rows, "prior.json")


def test_whole_numbers_are_numbers_and_never_make_an_array_of_whole_numbers():
    row = {"name": "mass", "target": "mass", "nominal": 1, "low": 0, "high": 2}
    for params in (Params.from_json([row]), Params((Param("mass", "mass", 1, 0, 2),))):
        assert params.low.dtype == params.high.dtype == np.float64
        assert params.vector({"mass": 0.5}).tolist() == [0.5]


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"nominal": 3.0}, "low <= nominal <= high"),
        ({"low": 2.5}, "low <= nominal <= high"),
        ({"low": 1.0, "high": 1.0}, "low < high"),
        ({"low": float("nan")}, "finite"),
        ({"high": float("inf")}, "finite"),
        ({"low": 0.0, "log": True}, "log scale needs low > 0"),
        ({"op": "scal"}, "no op matches 'scal'.*did you mean scale"),
    ],
)
def test_a_param_that_cannot_be_is_an_error_that_names_it(changes, why):
    with pytest.raises(SurefootError, match=rf"param mass.*{why}"):
        Param(**{"name": "mass", "target": "mass", "nominal": 1.0, "low": 0.5, "high": 2.0} | changes)


def test_a_name_may_stand_once():
    with pytest.raises(SurefootError, match="found twice: mass"):
        Params((MASS, FRICTION, MASS))


@pytest.mark.parametrize("match", ["(a|a)*b", "(a+)+", "(x){9}", ".*.*.*.*b"])
def test_a_pattern_of_a_file_that_takes_for_ever_on_a_name_is_refused(match):
    """(a|a)*b tries 2^n ways to match n letters."""
    row = {"name": "m", "target": "mass", "nominal": 1.0, "low": 0.5, "high": 2.0, "match": match}
    with pytest.raises(SurefootError, match="param m: match: found .* expected a pattern with at most 3"):
        Params.from_json([row])


@pytest.mark.parametrize("match", [".*", "(FL|FR)_(hip|thigh)", ".*_hip.*", r"a\+\*\{\+b", "arm(ature)?"])
def test_a_plain_pattern_of_a_file_is_taken(match):
    row = {"name": "m", "target": "mass", "nominal": 1.0, "low": 0.5, "high": 2.0, "match": match}
    assert Params.from_json([row])["m"].match == match


def test_a_file_of_very_many_params_is_refused_at_once():
    row = {"target": "mass", "nominal": 1.0, "low": 0.5, "high": 2.0}
    with pytest.raises(SurefootError, match="found 100000 params, expected at most 4096"):
        Params.from_json([{"name": str(k), **row} for k in range(100_000)])
