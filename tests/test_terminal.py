"""Text of a stranger is shown, never obeyed."""

import io
import json

import numpy as np
import pytest

from surefoot.cli import main
from surefoot.cli.terminal import Line, Plain, show
from surefoot.log import Log
from surefoot.report import Note, Progress, Report, Table, Text, plain

EVIL = "\x1b]0;owned\x07\x1b[2Jq\x9b31m\u202etxt\u2066\r\x00\ud800"
SHOWN = r"\x1b]0;owned\x07\x1b[2Jq\x9b31m\u202etxt\u2066\r\x00\ud800"


def screen() -> Plain:
    say = Plain()
    say.file, say.width = io.StringIO(), 200
    return say


def test_control_characters_are_written_as_escapes_and_letters_stay():
    assert plain(EVIL) == SHOWN
    assert plain("Gelenk größer \u0645\u0641\u0635\u0644 \u65e5\u672c \U0001f600\n\tb") == "Gelenk größer \u0645\u0641\u0635\u0644 \u65e5\u672c \U0001f600\n\tb"  # fmt: skip


def test_tables_lines_and_notes_show_escapes_and_markup_as_text():
    say, table = screen(), Table.of(["column", EVIL], [[EVIL, "[red]r[/red] :smile: [link=http://x]y[/link]"]], EVIL)
    show(Report(EVIL, {}, (table, Note(EVIL), Text("[bold]b")), EVIL), say, as_json=False)
    line = Line(say)
    line.shown = 0.0
    line(Progress(EVIL))
    line(Progress(EVIL, stays=True))
    out = say.file.getvalue()
    assert out.count(SHOWN) == 7 and "[red]r[/red] :smile: [link=http://x]y[/link]" in out and "[bold]b" in out
    assert not set(out) & set(EVIL) - set(SHOWN)


def test_a_newline_in_a_name_begins_no_line_of_a_note_or_of_progress():
    say, forged = screen(), "a\nPASS: 10 of 10 checks"
    show(Report("x", {}, (Note(forged, True), Note(forged))), say, False)
    Line(say)(Progress(f"note: {forged}", stays=True))
    assert "PASS" in say.file.getvalue() and "\nPASS" not in say.file.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
def test_names_in_a_log_and_of_a_file_cannot_reach_the_terminal(tmp_path, capsys, as_json):
    name = "\x1b[31mq\u202e"
    path = Log(np.arange(3.0), {name: np.zeros(3)}, {name: "\x1b[5m"}).save(tmp_path / "a\x1b[2J.npz")
    assert main(["log", str(path), *(["--json"] if as_json else [])]) == 0
    assert main(["log", str(tmp_path / "b\x1b[2J.csv")]) == 2
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err and "\u202e" not in out + err and r"b\x1b[2J.csv: no such file" in err
    if as_json:
        assert json.loads(out)["columns"][name]["unit"] == "\x1b[5m"
    else:
        assert r"\x1b[31mq\u202e" in out


def test_a_newline_in_a_name_begins_no_line_of_an_error(tmp_path, capsys):
    (tmp_path / "a\nPASS.csv").write_text("time,q\n0,x\n1\n")
    assert main(["log", str(tmp_path / "a\nPASS.csv")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error: ") and all(line.startswith("  ") for line in said[1:]) and len(said) > 1


WRONG = {
    "an argument too many": ["look", "robot.xml", EVIL],
    "a flag": ["look", "robot.xml", f"--{EVIL}", "1"],
    "a flag and its value": ["look", "robot.xml", f"--{EVIL}={EVIL}"],
    "a choice": ["train", "balance", "--ranges", EVIL],
    "a number": ["eval", "policy", "--episodes", EVIL],
    "a line of its own": ["look", "robot.xml", "x\nerror: forged"],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_shown_escaped(capsys, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        main(WRONG[name])
    out, err = capsys.readouterr()
    assert stop.value.code == 2 and plain(err) == err and not out
    assert (SHOWN in err or r"x\nerror: forged" in err) and f"surefoot {WRONG[name][0]} --help" in err


def test_arguments_that_are_right_are_taken_as_they_are(capsys):
    """Escapes are for what is shown; a file may be called so."""
    assert main(["log", "b\x1b\n.csv"]) == 2
    assert capsys.readouterr().err.startswith(r"error: b\x1b")


def test_a_run_on_a_robot_is_drawn_with_its_state_clock_and_targets(monkeypatch):
    for name, value in (("TERM", "xterm"), ("FORCE_COLOR", "1"), ("LINES", "40"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    say = Plain()
    say.file = io.StringIO()
    line = Line(say)
    numbers = {"age": 0.004, "late": 0.0001, "compute": 0.00012, "target": [0.25, -1.0]}
    about = {"state": "running", "live": True, "seconds": 3.2, "periods": 160, "missed": 1, "limited": 7}
    line(Progress("running", 0.32, about | numbers))
    line.end()
    out = say.file.getvalue()
    for words in (
        "running",
        "3.2 s",
        "160",
        "missed 1",
        "limited 7",
        "compute 0.12 ms",
        "readings 4.00 ms old",
        "0.250",
        "emergency stop",
    ):
        assert words in out
    assert line.dashboard is None
