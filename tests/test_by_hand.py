"""Ranges that a person writes, on a command line or in a file."""

import json

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import Belief, Box, Gaussian, point
from surefoot.belief.by_hand import from_ranges, with_words
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.params import Param, Params

E = Params((
    Param("mass", "mass", 2.0, 0.5, 8.0, op="set", unit="kg"),
    Param("latency", "action_delay", 0.0, 0.0, 0.05, op="set", unit="s"),
    Param("tilt", "gravity", -4.0, -10.0, 0.0, op="set"),
))  # fmt: skip
BASE = Box(E, [1.0, 0.0, -5.0], [3.0, 0.01, -3.0])


def test_words_change_the_ranges_they_name_and_leave_the_others():
    found = with_words(BASE, ["mass=0.8..1.2x", "latency=0..0.02"], "--range")
    assert found == Box(E, [1.6, 0.0, -5.0], [2.4, 0.02, -3.0])
    assert with_words(BASE, [], "--range") is BASE
    assert with_words(BASE, ["mass=1.5"], "--range") == Box(E, [1.5, 0.0, -5.0], [1.5, 0.01, -3.0])
    assert (
        with_words(BASE, ["tilt=0.5..1.5x"], "--range").low[2] == -6.0
    )  # of a negative nominal the larger is the lower
    assert with_words(BASE, ["mass=1e0..+.3e1", "tilt=-6..-1"], "--range").high.tolist() == [3.0, 0.01, -1.0]


def test_a_file_of_ranges_leaves_the_rest_at_nominal():
    found = from_ranges(E, {"mass": [0.6, 4], "latency": 0.01, "tilt": "1..1x"}, "mine.json")
    assert found == Box(E, [0.6, 0.01, -4.0], [4.0, 0.01, -4.0])
    assert from_ranges(E, {}, "mine.json") == point(E, E.nominal)


@pytest.mark.parametrize("word, said", [
    ("mas=1..2", "--range: no param matches 'mas'; there are mass, latency, tilt; did you mean mass?"),
    ("mass=2..1", "--range: mass: found 2 .. 1, expected the lower number first"),
    ("mass=2..1x", "--range: mass: found 2 .. 1, expected the lower number first"),
    ("mass=0.1..1", "--range: mass: found 0.1 .. 1, expected within the physical bounds 0.5 .. 8 (kg)"),
    ("mass=1..5x", "--range: mass: found 2 .. 10, expected within the physical bounds"),
    ("latency=1..2x", "--range: latency: its nominal value is 0, which has no multiples; give the range in s"),
    ("mass", "--range: found 'mass', expected NAME=LOW..HIGH"),
    ("mass=", "--range: found 'mass=', expected NAME=LOW..HIGH"),
    ("mass=a..b", "--range: mass: found a..b, expected LOW..HIGH"),
    ("mass=1..nan", "expected LOW..HIGH"),
    ("mass=1..inf", "expected LOW..HIGH"),
    ("mass=1..2..3", "expected LOW..HIGH"),
    ("mass=1_0..12", "expected LOW..HIGH"),
])  # fmt: skip
def test_what_is_no_range_is_refused_by_name_with_what_was_expected(word, said):
    with pytest.raises(SurefootError) as refused:
        with_words(BASE, [word], "--range")
    assert said in str(refused.value)


@pytest.mark.parametrize("value", [None, True, "x", [1, 2, 3], [], ["1", 2], {"low": 1}, [1, None], 10**400])
def test_what_is_no_range_in_a_file_is_refused_with_its_place(value):
    with pytest.raises(SurefootError, match=r"^mine.json: mass: found .*, expected LOW\.\.HIGH"):
        from_ranges(E, {"mass": value}, "mine.json")


def test_a_name_of_megabytes_is_refused_in_a_short_line(tmp_path):
    """A search for the nearest name took seconds and hundreds of MB for each of them."""
    path = tmp_path / "belief.json"
    for given in ({"m" * 4_000_000: 1}, {"mass": "1" * 4_000_000 + "z"}):
        path.write_text(json.dumps(given))
        with pytest.raises(SurefootError) as refused:
            Belief.read(path, E)
        assert len(str(refused.value)) < 1000


def test_one_param_has_one_range_and_only_boxes_are_changed():
    with pytest.raises(SurefootError, match="mass: found twice"):
        with_words(BASE, ["mass=1..2", "mass=2..3"], "--range")
    with pytest.raises(SurefootError, match="expected a belief of ranges .a box. to change, found a gaussian"):
        with_words(Gaussian(E, E.nominal, np.zeros((3, 3))), ["mass=1..2"], "--range")
    with pytest.raises(SurefootError, match="mine.json: found list, expected an object of ranges by name"):
        from_ranges(E, [1], "mine.json")


def test_a_belief_file_about_given_params_is_either_kind(tmp_path):
    BASE.write(tmp_path / "written.json")
    (tmp_path / "by_hand.json").write_text('{"mass": [1, 3]}')
    assert Belief.read(tmp_path / "written.json", E) == BASE
    assert Belief.read(tmp_path / "by_hand.json", E) == Box(E, [1.0, 0.0, -4.0], [3.0, 0.0, -4.0])
    with pytest.raises(SurefootError, match="belief.kind: no kind matches"):
        Belief.read(tmp_path / "by_hand.json")
    with pytest.raises(SurefootError, match="params: expected mass, in this order"):
        Belief.read(tmp_path / "written.json", E.only(["mass"]))


def facts(capsys, *args):
    assert main([*map(str, args), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_verb_that_takes_a_belief_takes_ranges(tmp_path, capsys):
    """A file and flags mean the same; and the run, the episodes and the sweep are drawn from them."""
    run, path = tmp_path / "r", tmp_path / "mine.json"
    small = ["--envs", "16", "--horizon", "8", "--steps", "128", "--hidden", "8", "--minibatches", "2"]
    ranges = ["--range", "cart_mass=0.8..1.2x", "--range", "latency=0..0.02"]
    path.write_text('{"cart_mass": [0.8, 1.2], "latency": [0, 0.02]}')
    facts(capsys, "train", "balance", "--out", run, "--belief", "nominal", *ranges, *small)
    belief = Belief.from_json(json.loads((run / "run.json").read_text())["belief"])
    assert belief == Belief.read(path, tasks.resolve("balance").params)
    flags = ["--belief", "nominal", *ranges]
    for verb in (["try", "balance"], ["eval", run], ["sweep", run, "--over", "pole_mass", "--points", "2"]):
        by_flag, by_file = (facts(capsys, *verb, "--episodes", "4", *how) for how in (flags, ["--belief", path]))
        for named in ("belief", "ranges"):  # what was asked, in which they differ
            by_flag.pop(named, None), by_file.pop(named, None)
        assert by_flag == by_file
    film = ["play", run, "--record", tmp_path / "f.gif", "--seconds", "0.1", *flags]
    assert facts(capsys, *film)
    assert main(["gate", str(run), "--range", "cart_mas=1..2", "--out", str(tmp_path)]) == 2
    assert "--range: no param matches 'cart_mas'" in capsys.readouterr().err
