"""Ranges that a person writes: `mass=0.8..1.2x` on a command line, {"mass": [0.8, 1.2]} in a file.

LOW..HIGH    in the param's own unit        LOW..HIGHx    as multiples of its nominal value
VALUE        fixed at it                    [LOW, HIGH]   the same as LOW..HIGH, in JSON and TOML
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.belief.abstract import Belief
from surefoot.belief.box import Box, point
from surefoot.errors import SurefootError, unknown
from surefoot.params import Param, Params

FORM = "NAME=LOW..HIGH, such as mass=0.8..1.2x (multiples of nominal) or latency=0..0.02 (in its unit)"


def with_words(belief: Belief, words: Sequence[str], where: str) -> Belief:
    """The belief with the ranges of words such as `mass=0.8..1.2x` in place of its own."""
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value:
            raise SurefootError(f"{where}: found {word!r}, expected {FORM}")
        if name in given:
            raise SurefootError(f"{where}: {name}: found twice, expected one range for each param")
        given[name] = value
    return with_ranges(belief, given, where) if given else belief


def with_ranges(belief: Belief, given: Mapping[str, Any], where: str) -> Box:
    """The belief with these ranges in place of its own: each a number, (low, high), or text as on a command line."""
    if not isinstance(belief, Box):
        kind = type(belief).__name__.lower()
        raise SurefootError(f"{where}: expected a belief of ranges (a box) to change, found a {kind}")
    params, low, high = belief.params, belief.low.copy(), belief.high.copy()
    for name, value in given.items():
        if name not in params.names:
            raise unknown("param", name, params.names, where)
        i = params.index(name)
        low[i], high[i] = _range(params[name], value, f"{where}: {name}")
    return Box(params, low, high)


def from_ranges(params: Params, given: Any, where: str) -> Box:
    """Ranges by name; what is not named stays at its nominal value."""
    if not isinstance(given, Mapping):
        raise SurefootError(f"{where}: found {type(given).__name__}, expected an object of ranges by name")
    return with_ranges(point(params, params.nominal), given, where)


def _range(param: Param, value: Any, where: str) -> tuple[float, float]:
    """(low, high) in the param's unit, inside its physical bounds."""
    low, high, multiple = _parsed(value, where)
    if multiple and param.nominal == 0:
        unit = f"in {param.unit}" if param.unit else "as numbers"
        raise SurefootError(f"{where}: its nominal value is 0, which has no multiples; give the range {unit}")
    if multiple:
        low, high = sorted((low * param.nominal, high * param.nominal)) if low <= high else (low, high)
    found = f"found {low:g} .. {high:g}"
    if low > high:
        raise SurefootError(f"{where}: {found}, expected the lower number first")
    if low < param.low or high > param.high:
        bounds = f"{param.low:g} .. {param.high:g}"
        raise SurefootError(f"{where}: {found}, expected within the physical bounds {bounds} ({_unit(param)})")
    return low, high


def _unit(param: Param) -> str:
    return param.unit or ("multiples of the model's value" if param.op == "scale" else "no unit")


def _parsed(value: Any, where: str) -> tuple[float, float, bool]:
    """Two numbers, and whether they are multiples of the nominal value."""
    if isinstance(value, str):
        words = value.removesuffix("x").split("..", 1)
        ends, multiple = [_number(w) for w in words], value.endswith("x")
    else:
        ends, multiple = [_plain(v) for v in (value if isinstance(value, (list, tuple)) else [value])], False
    if len(ends) not in (1, 2) or None in ends:
        shown = (value if isinstance(value, str) else json.dumps(value, default=str))[:80]
        raise SurefootError(f"{where}: found {shown}, expected LOW..HIGH, LOW..HIGHx, [LOW, HIGH] or one number")
    return ends[0], ends[-1], multiple  # type: ignore[return-value]


def _number(word: str) -> float | None:
    try:
        return _plain(float(word)) if "_" not in word else None
    except ValueError:
        return None


def _plain(value: Any) -> float | None:
    """A finite number, or None."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and abs(value) < 2.0**1000 and math.isfinite(value) else None
