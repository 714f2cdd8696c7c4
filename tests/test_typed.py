"""Values out of JSON: each is what its field says, or is refused by name."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from surefoot.errors import SurefootError
from surefoot.typed import known_fields, real, record, typed, whole


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0


@dataclass(frozen=True)
class Path2:
    name: str
    points: tuple[Point, ...]
    kind: Literal["line", "curve"] = "line"
    file: Path | None = None


def test_a_record_of_records_is_read_field_by_field():
    found = record(Path2, {"name": "a", "points": [{"x": 1}, {"x": 2.5, "y": -1}], "file": "b/c"}, "here")
    assert found == Path2("a", (Point(1.0), Point(2.5, -1.0)), "line", Path("b/c"))
    assert type(found.points[0].x) is float  # a whole number in JSON is a float where a float is meant


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"name": "a"}, "here: points: missing"),
        ({"name": "a", "points": [], "nam": 1}, "did you mean name"),
        ({"name": 3, "points": []}, "here: name: expected text, found 3"),
        ({"name": "a", "points": [{"x": "1"}]}, r"here: points\[0\]: x: expected a number"),
        ({"name": "a", "points": [{"x": True}]}, r"here: points\[0\]: x: expected a number, found true"),
        ({"name": "a", "points": [], "kind": "arc"}, "here: kind: expected line, curve"),
        ([], "here: expected an object, found list"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected(value, words):
    with pytest.raises(SurefootError, match=words):
        record(Path2, value, "here")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e9, True, "1", None])
def test_numbers_that_no_contract_has_are_refused(value):
    with pytest.raises(SurefootError, match="here: expected a finite number"):
        real(value, "here")


@pytest.mark.parametrize(("value", "ok"), [(0, True), (3, True), (4, False), (-1, False), (1.0, False), (True, False)])
def test_whole_numbers_keep_their_bounds(value, ok):
    if ok:
        assert whole(value, 0, 3, "here") == value
    else:
        with pytest.raises(SurefootError, match="from 0 to 3"):
            whole(value, 0, 3, "here")


def test_pairs_have_two_entries_and_lists_any_number():
    assert typed(tuple[float, float], [1, 2], "here") == (1.0, 2.0)
    assert typed(tuple[int, ...], [], "here") == ()
    with pytest.raises(SurefootError, match="expected a list"):
        typed(tuple[float, float], [1, 2, 3], "here")


def test_an_object_is_refused_for_a_field_too_few_and_one_too_many():
    assert known_fields({"a": 1}, {"a", "b"}, {"a"}, "here") == {"a": 1}
    with pytest.raises(SurefootError, match="here: a: found nothing"):
        known_fields({"b": 1}, {"a", "b"}, {"a"}, "here")
    with pytest.raises(SurefootError, match="c"):
        known_fields({"a": 1, "c": 2}, {"a", "b"}, {"a"}, "here")
