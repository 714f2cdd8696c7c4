"""Arithmetic over columns is parsed and computed by us: numbers known otherwise, and nothing that is executed."""

import json

import numpy as np
import pytest

from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.formats.expression import DEEPEST, LONGEST, MOST, parse
from surefoot.formats.mapping import Mapping
from surefoot.log import Log


def value(text, **names):
    return parse(text).value(lambda n: np.atleast_2d(np.asarray(names[n], float)), "x")


@pytest.mark.parametrize(
    "text, number",
    [("2 + 3 * 4", 14), ("(2 + 3) * 4", 20), ("2 ^ 3 ^ 2", 512), ("-2 ^ 2", -4), ("2 ** -1", 0.5), ("8 / 4 / 2", 1),
     ("7 - 2 - 1", 4), ("1.5e1", 15), ("-(-3)", 3), ("sqrt(2 ^ 4) * sign(-3) + abs(-1)", -3), ("2*cos(0)", 2)],
)  # fmt: skip
def test_operators_bind_as_in_algebra(text, number):
    assert value(text).item() == pytest.approx(number)


def test_columns_combine_part_by_part():
    assert value("kt * i", kt=[[0.5]], i=[[1.0, 2.0], [3.0, 4.0]]).tolist() == [[0.5, 1.0], [1.5, 2.0]]
    with pytest.raises(SurefootError, match="found 2 parts \\+ 3 parts"):
        value("a + b", a=[[1, 2]], b=[[1, 2, 3]])


@pytest.mark.parametrize(
    "text, words",
    [("2 +", "the end, expected a number, a name"), ("(1", "expected '\\)'"), ("1 2", "expected an operator or the end"),
     ("__import__('os')", "no function matches '__import__'"), ("a; b", "character 2"), ("eval(x)", "no function matches 'eval'"),
     ("x.__class__()", "no function matches"), ("1 if x else 2", "expected an operator"), ("", "expected a number"),
     ("(" * 40 + "1" + ")" * 40, f"more than {DEEPEST} levels"), ("-" * 40 + "1", f"more than {DEEPEST} levels"),
     ("+".join("1" * (MOST // 2 + 1)), f"more than {MOST}"), ("1" * (LONGEST + 1), "characters, expected at most"),
     ("lambda: 0", "expected"), ("1__0", "expected")],
)  # fmt: skip
def test_what_is_no_arithmetic_is_refused(text, words):
    with pytest.raises(SurefootError, match=words):
        parse(text)


def test_a_torque_is_current_times_a_constant_of_the_file_or_of_the_mapping(tmp_path):
    np.savez(tmp_path / "a.npz", time=np.arange(3.0), i=np.arange(6.0).reshape(3, 2), volt=np.full(3, 12.0), kt=0.5)
    columns = {"joint_torque": {"expr": "gear * kt * i", "names": ["hip", "knee"]},
               "power": {"expr": "volt * i[0:1] ^ 2"}, "joint_pos": {"expr": ["i[1]", "'volt' / 2"], "unit": "deg"}}  # fmt: skip
    log = Log.read(tmp_path / "a.npz", {"columns": columns, "constants": {"gear": 4.0}})
    assert log["joint_torque"].tolist() == [[0, 2], [4, 6], [8, 10]] and log.meta["names"]["joint_torque"] == [
        "hip",
        "knee",
    ]
    assert log["power"].tolist() == [0, 48, 192]
    assert log["joint_pos"][1] == pytest.approx(np.radians([3.0, 6.0]))


def test_a_name_that_is_neither_column_nor_constant_is_said_with_the_nearest(tmp_path):
    np.savez(tmp_path / "a.npz", time=np.arange(3.0), current=np.arange(3.0))
    with pytest.raises(
        SurefootError, match="columns: x: expr: no column of the file matches 'curent'.*did you mean current"
    ):
        Log.read(tmp_path / "a.npz", {"columns": {"x": {"expr": "2 * curent"}}})
    for bad, words in (({"expr": "a", "from": "a"}, "`from` beside it"), ({"expr": 3}, "expected an expression"),
                       ({"expr": "a", "signed": 16}, "`signed` beside it")):  # fmt: skip
        with pytest.raises(SurefootError, match=words):
            Mapping.from_json({"columns": {"x": bad}})


def test_patterns_name_parts_too():
    mapping = Mapping.from_json({"columns": {"joint_pos": {"from": "q{0..3}", "names": "{FL,FR}_{hip,calf}"}}})
    assert mapping.columns["joint_pos"].names == ("FL_hip", "FL_calf", "FR_hip", "FR_calf")


def test_a_table_without_a_header_is_named_by_the_mapping(tmp_path):
    (tmp_path / "a.csv").write_text("0,0.1,0.2\n0.01,0.3,0.4\n0.02,0.5,0.6\n")
    columns = {"joint_pos": {"from": "q{0..1}"}}
    log = Log.read(tmp_path / "a.csv", {"header": ["t", "q{0..1}"], "columns": columns})
    assert log["joint_pos"].tolist() == [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]] and log.time[1] == 0.01
    with pytest.raises(SurefootError, match="header: found 2 names for 3 columns"):
        Log.read(tmp_path / "a.csv", {"header": ["t", "q0"], "columns": columns})
    (tmp_path / "b.csv").write_text("t,q0\n0,1\n1,2\n")
    with pytest.raises(SurefootError, match="header: found a file that names its columns"):
        Log.read(tmp_path / "b.csv", {"header": ["t", "x"], "columns": columns})


def test_a_stub_groups_columns_guesses_their_place_and_can_be_read(tmp_path, capsys):
    head = [
        "t_ms",
        *(f"jpos{k}" for k in range(3)),
        *(f"jpos{k}_des" for k in range(3)),
        "jvel_2",
        "jvel_3",
        "volts",
        "my [furlong]",
    ]
    rows = ["\n".join(",".join(str(k + r) for k in range(len(head))) for r in range(3))]
    (tmp_path / "a.csv").write_text("\n".join([",".join(head), *rows]) + "\n")
    assert main(["log", str(tmp_path / "a.csv"), "--map-stub", str(tmp_path / "m.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stub"].endswith("m.json")
    found = json.loads((tmp_path / "m.json").read_text())
    assert found["time"] == "t_ms"
    assert {k: v["from"] for k, v in found["columns"].items()} == {
        "joint_pos": "jpos{0..2}", "control": "jpos{0..2}_des", "joint_vel": "jvel_{2..3}", "volts": "volts", "my_furlong": "my [furlong]",
    }  # fmt: skip
    log = Log.read(tmp_path / "a.csv", tmp_path / "m.json")
    assert log["joint_pos"].shape == (3, 3) and log["control"][0].tolist() == [4, 5, 6]


def test_a_stub_of_a_file_without_a_clock_asks_for_a_rate(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("q,v\n1,2\n3,4\n")
    assert main(["log", str(tmp_path / "a.csv"), "--map-stub", str(tmp_path / "m.json")]) == 0
    assert "no clock found" in capsys.readouterr().out
    assert Log.read(tmp_path / "a.csv", tmp_path / "m.json", rate=100.0)["joint_pos"].tolist() == [[1], [3]]
