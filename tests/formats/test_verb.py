"""surefoot log: told, drawn, saved, and an error in words."""

import json

import makers
import numpy as np
import pytest

from surefoot.cli import main
from surefoot.log import Log


def test_log_tells_draws_and_saves(tmp_path, capsys):
    t = np.delete(np.arange(200) * 0.01, slice(50, 60))
    rows = "".join(f"{a},{90 * a},{int(a > 1)}\n" for a in t)
    (tmp_path / "run.csv").write_text("time,angle,mode\n" + rows)
    spec = {"columns": {"joint_pos": {"from": "angle", "unit": "deg", "names": ["hinge"]}}}
    (tmp_path / "map.json").write_text(json.dumps(spec))
    args = ["log", tmp_path / "run.csv", "--map", tmp_path / "map.json", "--rate", 100]
    args += ["--plot", tmp_path / "run.png", "--save", tmp_path / "run.npz"]
    assert main([*map(str, args), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] == 200 and facts["rate"] == pytest.approx(100) and facts["lost"] == 10
    assert facts["gaps"] == [[pytest.approx(0.49), pytest.approx(0.6)]]
    joint = facts["columns"]["joint_pos"]
    assert (
        joint["unit"] == "rad"
        and joint["max"] == pytest.approx(np.pi / 2 * 1.99)
        and joint["nan"] == pytest.approx(0.05)
    )
    assert (tmp_path / "run.png").read_bytes()[:4] == b"\x89PNG"
    log = Log.load(tmp_path / "run.npz")
    assert np.isnan(log["joint_pos"][50:60]).all() and log.meta["names"]["joint_pos"] == ["hinge"]
    assert main(["log", str(tmp_path / "run.npz")]) == 0
    text = capsys.readouterr().out
    assert "200 rows, 1.990 s, 100 Hz" in text and "gaps: 1, about 10 samples lost" in text and "joint_pos" in text


def test_log_ends_with_the_next_command_and_says_what_is_wrong(tmp_path, capsys):
    path = makers.csv_file(tmp_path / "a.csv")
    assert main(["log", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: surefoot log {path} --plot a.png --save a.npz"
    assert main(["log", str(tmp_path / "gone.csv")]) == 2
    assert "gone.csv: no such file" in capsys.readouterr().err
    assert main(["log", str(path), "--plot", str(tmp_path / "a.jpeg")]) == 2
    assert "expected a name that ends in .png" in capsys.readouterr().err


def test_infinities_were_not_measured_either(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("t,q\n0,inf\n0.01,nan\n0.02,-inf\n0.03,1\n")
    assert main(["log", str(tmp_path / "a.csv"), "--json"]) == 0
    q = json.loads(capsys.readouterr().out)["columns"]["q"]
    assert q["nan"] == 0.75
    assert main(["log", str(tmp_path / "a.csv")]) == 0
    text = capsys.readouterr().out
    assert "missing" in text and "75.0 %" in text


def test_a_name_of_another_kind_is_refused_and_a_new_folder_is_made(tmp_path, capsys):
    path = makers.csv_file(tmp_path / "a.csv")
    assert main(["log", str(path), "--save", str(tmp_path / "b.csv")]) == 2
    assert "b.csv: expected a name that ends in .npz" in capsys.readouterr().err
    assert main(["log", str(path), "--save", str(tmp_path / "new" / "b.npz")]) == 0
    assert len(Log.load(tmp_path / "new" / "b.npz"))


def test_a_joint_that_never_moves_and_one_that_was_never_measured_are_named(tmp_path, capsys):
    q = np.sin(np.arange(100)[:, None] * np.arange(1, 5) / 10)
    q[:, 1], q[:, 2], q[5:, 0] = 0.7, np.nan, np.nan
    names = ["hip", "thigh", "calf", "foot"]
    columns = {"joint_pos": q, "mode": np.ones(100), "flags": np.zeros((100, 2))}
    Log(np.arange(100) / 50, columns, meta={"names": {"joint_pos": names}}).save(tmp_path / "a.npz")
    assert main(["log", str(tmp_path / "a.npz"), "--json"]) == 0
    joint = json.loads(capsys.readouterr().out)["columns"]["joint_pos"]
    assert joint["constant"] == ["thigh"] and joint["empty"] == ["calf"]
    assert main(["log", str(tmp_path / "a.npz")]) == 0
    said = capsys.readouterr().out
    assert "constant: joint_pos: thigh\nconstant: mode\nconstant: flags: all\nnever measured: joint_pos: calf" in said


def test_uneven_steps_are_said_with_the_mean_rate(tmp_path, capsys):
    steps = np.where(np.arange(1500) % 3 < 2, 0.0035, 0.005)  # two of three at 286 Hz; 1500 rows in 6 s are 250
    Log(np.cumsum(steps), {"q": np.sin(np.arange(1500))}).save(tmp_path / "a.npz")
    assert main(["log", str(tmp_path / "a.npz"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (
        facts["uneven"]
        and facts["mean_rate"] == pytest.approx(250, rel=1e-3)
        and facts["rate"] == pytest.approx(1 / 0.0035)
    )
    assert main(["log", str(tmp_path / "a.npz")]) == 0
    assert "249.979 Hz on average, uneven steps: the median is 3.5 ms, 285.714 Hz" in capsys.readouterr().out
