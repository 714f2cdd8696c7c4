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
