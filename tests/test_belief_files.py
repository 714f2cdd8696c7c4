"""Belief files: what is wrong in one is named, and no bit of one that was written can change in silence."""

import json
import random

import pytest

from surefoot import files, tasks
from surefoot.belief import Belief, Box, Gaussian, Particles, Truncated
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.sim.fields import check_op

HOVER = tasks.resolve("hover")
E = Params((Param("mass", "mass", 1.0, 0.5, 2.0, unit="kg"), Param("grip", "friction", 0.6, 0.05, 3.0, log=True)))


def test_a_belief_that_was_written_is_read_back_and_says_its_hash(tmp_path):
    belief = Box(E, [0.7, 0.2], [1.4, 1.8])
    belief.write(tmp_path / "b.json")
    assert Belief.read(tmp_path / "b.json") == belief
    data = json.loads((tmp_path / "b.json").read_text())
    rest = {k: v for k, v in data.items() if k != "sha256"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert data["sha256"] == files.sha256(canonical.encode())


def test_a_belief_written_by_hand_needs_no_hash(tmp_path):
    belief = Box(E, [0.7, 0.2], [1.4, 1.8])
    (tmp_path / "b.json").write_text(json.dumps(belief.to_json()))
    assert Belief.read(tmp_path / "b.json") == belief


BELIEFS = {
    "box": Box(E, [0.7, 0.2], [1.4, 1.8]),
    "gaussian": Gaussian.around(E, [1.1, 0.5], [[0.01, 0.0], [0.0, 0.04]]),
    "truncated": Truncated(E, [1.0, -0.5], [0.1, 0.2], [0.7, 0.2], [1.4, 1.8]),
    "particles": Particles(E, [[1.0, 0.5], [1.1, 0.7]], [1.0, 3.0]),
}


@pytest.mark.parametrize("kind", BELIEFS)
def test_no_single_bit_of_a_belief_file_changes_in_silence(tmp_path, kind):
    path, belief = tmp_path / "b.json", BELIEFS[kind]
    belief.write(path)
    whole, rng = path.read_bytes(), random.Random(0)
    for bit in rng.sample(range(8 * len(whole)), 600):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert Belief.read(path) == belief, f"bit {bit}"  # as 1e-05 and 1E-05 are
        except SurefootError as error:
            assert str(path) in str(error)


def changed(name: str, field: str, value: object) -> dict:
    data = json.loads(json.dumps(HOVER.belief.to_json()))
    next(p for p in data["params"] if p["name"] == name)[field] = value
    return data


MASS = HOVER.params["mass"]


@pytest.mark.parametrize(
    "field, value",
    [
        ("target", "inertia"),
        ("op", "add"),
        ("unit", "lb"),
        ("match", "nothing"),
        ("log", not MASS.log),
        ("low", 1e-9),
        ("high", 1e9),
    ],
)
def test_an_unknown_that_is_not_the_tasks_own_is_refused_by_field(tmp_path, capsys, field, value):
    path = tmp_path / "b.json"
    path.write_text(json.dumps(changed("mass", field, value)))
    assert main(["try", "hover", "--belief", str(path), "--episodes", "1"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{path}: param mass: {field}: found" in said and "expected" in said


def test_bounds_may_be_narrower_than_the_tasks_and_words_may_differ():
    narrow = Param(**{**vars(MASS), "low": MASS.low * 1.01, "high": MASS.high * 0.99, "about": "ours"})
    Params((MASS,)).check_same(Params((narrow,)), "file")
    with pytest.raises(
        SurefootError, match="file: params: expected mass, in this order: missing mass, additional grip"
    ):
        Params((MASS,)).check_same(Params((E["grip"],)), "file")


BAD = {
    "a name twice": (lambda d: d["params"].append(d["params"][0]), "found twice: mass"),
    "a low above its high": (lambda d: d.update(low=[1.5, 0.2]), "box.low[mass]: found 1.5, expected at most high, 1.4"),
    "no mass at all": (lambda d: d.update(low=[0.0, 0.2]), "box.low[mass]: found 0.0, expected at least the physical bound"),
    "an unknown kind": (lambda d: d.update(kind="bx"), "no kind matches 'bx'"),
    "a pattern that is none": (lambda d: d["params"][0].update(match="("), "param mass: match: found '('"),
    "a bound that is not finite": (lambda d: d["params"][0].update(high=float("inf")), "Infinity"),
    "a number that is none": (lambda d: d.update(low=[float("nan"), 0.2]), "NaN"),
    "another hash": (lambda d: d.update(sha256="0" * 64), "edited or damaged"),
    "a hash that is none": (lambda d: d.update(sha256=None), "edited or damaged"),
    "a misspelt field": (lambda d: d.update(hihg=[2.0, 2.0]), "no field matches 'hihg'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_in_a_belief_file_is_named(tmp_path, name):
    spoil, words = BAD[name]
    data = Box(E, [0.7, 0.2], [1.4, 1.8]).to_json()
    data["params"] = list(data["params"])
    spoil(data)
    (tmp_path / "b.json").write_text(json.dumps(data))
    with pytest.raises(SurefootError) as caught:
        Belief.read(tmp_path / "b.json")
    assert words in str(caught.value) and "b.json" in str(caught.value)


@pytest.mark.parametrize(
    "low, high, op", [(0.0, 2.0, "scale"), (1e-9, 1e9, "set"), (0.0, 1.0, "set"), (1.0, 1e4, "scale")]
)
def test_no_robot_has_such_a_mass(low, high, op):
    with pytest.raises(SurefootError, match="param load: low, high: found"):
        check_op(Param("load", "mass", 1.0, low, high, op=op))
    check_op(Param("load", "mass", 0.0, -1.0, 1.0, op="add"))


def test_a_belief_file_gives_the_fitted_values_by_name_and_in_their_units(tmp_path):
    path = tmp_path / "b.json"
    fitted = Gaussian.around(E, [1.1, 0.1], [[0.01, 0.0], [0.0, 9.0]])
    fitted.write(path)
    data = json.loads(path.read_text())
    assert data["estimate"] == {"mass": pytest.approx(1.1), "grip": pytest.approx(0.1)}
    del data["sha256"]
    for wrong, words in (({"mass": 1.1, "grip": 0.2}, "gaussian.estimate.grip: found 0.2, expected 0.1"),
                         ({"mass": 1.1}, "expected a value for each of mass, grip")):  # fmt: skip
        path.write_text(json.dumps(data | {"estimate": wrong}))
        with pytest.raises(SurefootError, match=words):
            Belief.read(path)
