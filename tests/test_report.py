"""Reports: data, and what a page and a terminal make of them."""

import io
import math
import re
import subprocess
import sys

import numpy as np
import pytest

from surefoot.cli.terminal import Line, Plain, show
from surefoot.report import (
    Axis,
    Badge,
    Checks,
    Column,
    Details,
    Note,
    Picture,
    Plot,
    Progress,
    Report,
    Rule,
    Series,
    Table,
    Text,
    jsonable,
    plain,
)  # fmt: skip
from surefoot.verdict import Check
from surefoot.web.page import page
from surefoot.web.plot import DRAWN, numbers, thinned, ticks

HOSTILE = '<script>alert("x")</script>\x1b[2J\u202eevil'
LINE = Series.of("a", [0, 5, 10], [0, 50, 100], [0, 40, 90], [10, 60, 100])


def drawn(plot):
    return page(Report("t", {}, (plot,)))


def test_a_cell_is_written_in_its_columns_form_and_nothing_as_a_dash():
    table = Table.of(["name", Column("mass", "kg", ".3g")], [["a", 1.23456], ["b", None], ["c", math.nan]])
    assert table.cells() == [["a", "1.23"], ["b", "-"], ["c", "-"]] and table.columns[1].head == "mass [kg]"


def test_what_would_steer_a_terminal_or_turn_text_round_is_written_out():
    assert plain("a\x1b[2J\u202eb\tc\n") == "a\\x1b[2J\\u202eb\tc\n" and plain("Größe °") == "Größe °"


def test_facts_have_no_numpy_and_no_nan():
    facts = {"a": np.arange(2), "b": (np.float64(1.5), math.inf), "c": {"d": np.bool_(True)}}
    assert jsonable(facts) == {"a": [0, 1], "b": [1.5, None], "c": {"d": True}}


def test_foreign_text_is_shown_on_a_page_and_never_obeyed():
    """In every place where a name from a file can stand."""
    axis = Axis(HOSTILE, HOSTILE)
    blocks = (
        Text(HOSTILE), Note(HOSTILE), Table.of([HOSTILE], [[HOSTILE]], HOSTILE), Details(HOSTILE, (Text(HOSTILE),)),
        Checks((Check(HOSTILE, 1, 2, False, HOSTILE, unit=HOSTILE),)), Picture(b"", "png", HOSTILE),
        Plot(HOSTILE, (Series.of(HOSTILE, [1], [0]),), axis, axis, (Rule(0, "y", HOSTILE),), HOSTILE),
        Plot(HOSTILE, (Series.of(HOSTILE, [1], [0], style="bars"),), axis, Axis(names=(HOSTILE,))),
    )  # fmt: skip
    report = Report(
        HOSTILE, {"a": HOSTILE}, blocks, HOSTILE, Badge(HOSTILE), picture=blocks[5], sources={HOSTILE: HOSTILE}
    )
    text = page(report)
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert text.count("&lt;script&gt;") >= 20 and not re.search(r'="[^"]*"x"', text)


def test_a_page_fetches_nothing_and_runs_nothing():
    text = page(Report("t", {}, (Plot("p", (LINE,)), Picture(b"GIF", "gif", "film"))))
    assert not re.search(r"https?://|url\(|@import|<script|<link|\bon\w+=", text)
    assert "default-src 'none'" in text and "prefers-color-scheme:dark" in text and "@media print" in text


def test_a_point_is_drawn_where_its_numbers_say():
    """0, 50 and 100 % of both axes, of which 2 % at each end are left free, in a square of 1000."""
    text = drawn(Plot("p", (LINE,), Axis(low=0, high=10), Axis(low=0, high=100)))
    assert 'd="M20.0 980.0L500.0 500.0L980.0 20.0"' in text
    log = drawn(Plot("p", (Series.of("a", [1, 10, 100], [0, 1, 2]),), Axis(scale="log"), Axis(low=0, high=2)))
    assert 'd="M20.0 980.0L500.0 500.0L980.0 20.0"' in log


def test_a_dashed_line_has_the_colour_of_the_one_before_it():
    series = [Series.of(n, [0, 1], [0, 1], style=k) for n, k in (("a", "line"), ("b", "dashed"), ("c", "line"))]
    assert re.findall(r'<g class="(c\d)"><path class="l[^<]*M20', drawn(Plot("p", tuple(series)))) == ["c0", "c0", "c1"]


def test_what_is_not_a_number_leaves_a_gap_in_its_line():
    text = drawn(Plot("p", (Series.of("a", [0, 1, 2, 3, 4], [0, 1, None, 1, 0]),)))
    assert len(re.findall(r'class="l" d="M', text.split("</ul>")[1])) == 2


def test_a_long_line_keeps_its_spike():
    y = np.zeros(100_000)
    y[54_321] = 1.0
    rows = thinned(y)
    assert 54_321 in rows and len(rows) <= DRAWN + 2 and rows[0] == 0 and rows[-1] == 99_999


@pytest.mark.parametrize(
    "axis, low, high, expected",
    [
        (Axis(), 0, 100, [0, 20, 40, 60, 80, 100]),
        (Axis(), 0.12, 0.37, [0.15, 0.2, 0.25, 0.3, 0.35]),
        (Axis(scale="log"), 0.01, 30, [0.01, 0.1, 1, 10]),
        (Axis(scale="log"), 1, 12, [1, 2, 5, 10]),
        (Axis(scale="symlog"), -20, 2000, [-10, 0, 10, 100, 1000]),
        (Axis(names=("a",)), 0, 1, []),
    ],
)
def test_ticks_are_round(axis, low, high, expected):
    assert ticks(axis, low, high) == pytest.approx(expected)


def test_the_numbers_behind_a_plot_are_all_there():
    rows = numbers(Plot("p", (LINE,))).rows
    assert rows == (("a", 0, 0, 0, 10), ("a", 5, 50, 40, 60), ("a", 10, 100, 90, 100))
    names = numbers(Plot("p", (Series.of("s", [7], [1]),), y=Axis(names=("first", "second")))).rows
    assert names == (("s", 7, "second"),)


@pytest.mark.parametrize("values", [[], [math.nan], [3.0], [0.0, 0.0], [-1.0, 5.0]])
@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
def test_nothing_one_value_and_values_a_scale_has_not_are_drawn_all_the_same(values, scale):
    series = Series.of("a", range(len(values)), values, style="points")
    text = drawn(Plot("p", (series,), y=Axis(scale=scale)))
    assert "<svg" in text and not re.search(r"[ML]\S*nan|nan\w* ", text)


def shown(report, **how):
    say = Plain()
    say.file, say.width = io.StringIO(), 100
    show(report, say, False, **how)
    return say.file.getvalue()


def test_a_terminal_shows_the_evidence_of_what_fails_and_the_next_command_last():
    checks = (Check("fine", 1, 0, True, "50 of 50"), Check("slow", 3, 2, False, "3 of 50 are late"))
    text = shown(Report("t", {}, (Checks(checks), Plot("p", (LINE,))), "surefoot play x", Badge("FAIL: 1 of 2", False)))
    assert "3 of 50 are late" in text and "50 of 50" not in text
    assert text.splitlines()[-2:] == ["FAIL: 1 of 2", "next: surefoot play x"]


def test_a_terminal_is_not_steered_by_names_from_files():
    text = shown(Report("t", {}, (Text(HOSTILE), Table.of([HOSTILE], [[HOSTILE]]), Note(HOSTILE)), HOSTILE))
    assert "\x1b[2J" not in text and "\u202e" not in text


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self):
        return True


def test_a_line_shows_shares_and_keeps_what_stays():
    say = Plain()
    say.file, say.width = Screen(), 100
    line = Line(say)
    line(Progress("working", 0.25))
    line(Progress("note: kept", stays=True))
    line.end()
    assert "working   25 %" in say.file.getvalue() and say.file.getvalue().endswith("\nnote: kept\n")


@pytest.mark.parametrize(
    "line, slow",
    [
        ("import surefoot", ("numpy", "tyro")),
        ("from surefoot.cli import main; main(['--help'])", ("numpy", "tyro", "rich")),
        ("from surefoot.cli import _parse; _parse(['train', 'hover'])", ("torch", "scipy", "matplotlib", "rich")),
        ("from surefoot.cli import _parse; _parse(['gate', 'run'])", ("torch", "scipy", "matplotlib", "rich")),
        ("from surefoot.cli import _parse; _parse(['doctor', 'a', 'b'])", ("torch", "scipy", "matplotlib", "rich")),
    ],
)
def test_nobody_waits_for_what_is_not_used_yet(line, slow):
    script = f"import sys\n{line}\nprint([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
