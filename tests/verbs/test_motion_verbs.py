"""What `motion` and `retarget` report, and that their next command takes what they wrote."""

import json
from shlex import split

import numpy as np
import pytest

from surefoot.cli import _parse
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion import made_person
from surefoot.report import Picture, unwatched
from surefoot.tasks.ready.humanoid_model import xml
from surefoot.verbs.model.motion import Motion
from surefoot.verbs.model.new import New
from surefoot.verbs.model.retarget import Retarget
from surefoot.web.page import page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    there = tmp_path_factory.mktemp("motion")
    made_person.walking(seconds=1.5).save(there / "walk.npz")
    (there / "humanoid.xml").write_text(xml())
    return there


def test_motion_shows_cuts_resamples_and_saves(folder):
    out = folder / "cut.npz"
    report = Motion(
        folder / "walk.npz", rate=30.0, cut=(0.5, 1.0), mirror=True, save=out, page=folder / "walk.html"
    ).run(unwatched)
    facts = report.facts
    assert facts["kind"] == "person" and facts["frames"] == 16 and facts["rate"] == pytest.approx(30.0)
    assert facts["landmarks"]["left_hip"] == "left_hip" and 0.3 < facts["contacts"]["left_foot"] <= 1.0
    film = next(b for b in report.blocks if isinstance(b, Picture))
    assert film.kind == "svg+xml" and film.data.count(b"<animate") == 1 and b"script" not in film.data
    assert "data:image/svg+xml;base64," in page(report)
    assert len(Log.load(out)) == 16 and type(_parse(split(report.next)[1:])) is Retarget


def test_retarget_writes_what_new_track_takes(folder):
    out, model = folder / "robot.npz", folder / "humanoid.xml"
    report = Retarget(folder / "walk.npz", str(model), out=out, rate=30.0, page=folder / "r.html").run(unwatched)
    facts = report.facts
    assert facts["metrics"]["sliding"] <= 0.2 * facts["plain"]["sliding"] and facts["metrics"]["floating"] < 0.01
    film = next(b for b in report.blocks if isinstance(b, Picture))
    assert film.data.count(b"<animate") == 3  # person, plain inverse kinematics, robot
    assert split(report.next) == ["surefoot", "new", "track", str(model), "--motion", str(out)]
    task = New("track", str(model), out=folder / "task.py", motion=(out, out)).run(unwatched)
    assert "MOTION = (" in (folder / "task.py").read_text() and task.facts["kind"] == "track"
    shown = Motion(out, robot=str(model), mirror=True).run(unwatched).facts
    assert shown["kind"] == "robot" and shown["beyond_limits"] == 0.0 and abs(shown["lowest_sole"]) < 0.01


def test_a_map_of_unknown_landmarks_is_refused(folder):
    (folder / "map.json").write_text(json.dumps({"left_hipp": "left_hip"}))
    with pytest.raises(SurefootError, match="no landmark matches 'left_hipp'.*did you mean left_hip"):
        Motion(folder / "walk.npz", mapping=folder / "map.json").run(unwatched)


def test_a_robot_that_is_neither_file_nor_task_is_refused(folder):
    with pytest.raises(SurefootError, match="neither a file nor a task; tasks are|did you mean humanoid"):
        Retarget(folder / "walk.npz", "humanoit", out=folder / "x.npz").run(unwatched)


def test_a_film_moves_as_the_person_does():
    from surefoot.motion.figure import WIDE, Panel, bones_of, film

    p = made_person.squatting(seconds=1.0)
    data = film([Panel("a < b", p.pos, bones_of(p.parents), np.zeros((len(p), 2)))], p.rate).decode()
    frames = data.split('values="')[1].split('"')[0].split(";")
    heads = [int(f.split("L")[3].split("M")[0].split()[1]) for f in frames]
    assert "a &lt; b" in data and f'viewBox="0 0 {WIDE} ' in data
    assert max(heads) - min(heads) > 40 and len(frames) == 16  # 15 a second


def test_retarget_keeps_a_box_that_the_person_carries(folder):
    person, path = made_person.carrying(rate=10.0)
    clip = person.save(folder / "carry.npz")
    rows = np.column_stack([person.time, path]).tolist()
    (folder / "box.json").write_text(json.dumps({"half": [0.15, 0.17, 0.12], "path": rows}))
    out = folder / "carried.npz"
    report = Retarget(clip, str(folder / "humanoid.xml"), out=out, box=folder / "box.json", page=folder / "b.html").run(
        unwatched
    )
    about = report.facts["box"]
    assert about["deepest"] <= 0.01 < about["plain_deepest"] and about["relaxed"] == 0
    log = Log.load(out)
    assert log["box_pos"].shape == (len(person), 3) and log.meta["constants"]["box_half"][0] == pytest.approx(
        0.15 * report.facts["scale"]
    )
    (folder / "bad.json").write_text(json.dumps({"half": [0.1, 0.1], "path": rows}))
    with pytest.raises(SurefootError, match="expected 3 numbers above 0"):
        Retarget(clip, str(folder / "humanoid.xml"), out=out, box=folder / "bad.json").run(unwatched)
