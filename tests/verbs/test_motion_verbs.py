"""What `motion` and `retarget` report, and that their next command takes what they wrote."""

import json
from shlex import split

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import _parse
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion import made_person
from surefoot.motion.made import from_poses
from surefoot.motion.robot_motion import kinematic
from surefoot.policy import Zero
from surefoot.report import Picture, unwatched
from surefoot.robot import Robot
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.ready.humanoid_model import JOINTS, stand, xml
from surefoot.tasks.rollout import contract
from surefoot.verbs.model.motion import Motion
from surefoot.verbs.model.new import New
from surefoot.verbs.model.retarget import Retarget
from surefoot.verbs.model.retargeted import read_box
from surefoot.verbs.model.tracked import followed
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


def test_retarget_keeps_a_box_that_the_person_carries_and_makes_variants_of_it(folder):
    person, path = made_person.carrying(rate=10.0)
    clip = person.save(folder / "carry.npz")
    rows = np.column_stack([person.time, path]).tolist()
    (folder / "box.json").write_text(json.dumps({"half": [0.15, 0.17, 0.12], "path": rows}))
    out, model = folder / "carried.npz", str(folder / "humanoid.xml")
    report = Retarget(clip, model, out=out, box=folder / "box.json", variants=2, page=folder / "b.html").run(unwatched)
    facts = report.facts
    assert facts["metrics"]["deepest"] <= 0.01 < facts["plain"]["deepest"] and facts["relaxed"] == 0
    log, other = Log.load(out), Log.load(folder / "carried-1.npz")
    assert log["box_pos"].shape == (len(person), 3) and log.meta["constants"]["box_half"][0] == pytest.approx(
        0.15 * facts["scale"]
    )
    drawn = facts["variants"][1]["change"]
    assert other.meta["constants"]["box_half"][0] == pytest.approx(0.15 * facts["scale"] * drawn["size"])
    assert (
        np.allclose(other["box_pos"] - log["box_pos"], drawn["shift"])
        and facts["variants"][1]["metrics"]["contacts"] > 0.5
    )
    (folder / "bad.json").write_text(json.dumps({"half": [0.1, 0.1], "path": rows}))
    with pytest.raises(SurefootError, match="expected 3 numbers above 0"):
        Retarget(clip, model, out=out, box=folder / "bad.json").run(unwatched)


def test_retarget_leans_on_a_wall_and_steps_up_from_plain_flags(folder):
    leaning, x = made_person.leaning(rate=10.0)
    stepping = made_person.stepping(rate=10.0)
    lean, climb, model = leaning.save(folder / "lean.npz"), stepping.save(folder / "climb.npz"), folder / "humanoid.xml"
    at, long, wide = made_person.STEP_AT
    words = {
        "wall": f"retarget {lean} {model} --wall {x} 0 180 --object-shift -0.05 0 0 --out {folder}/on_wall.npz",
        "step": f"retarget {climb} {model} --step {at} 0 0 {long} {wide} 0.2 --object-size 1.2 --mirror --out {folder}/up.npz --page {folder}/up.html",
    }
    for kind, line in words.items():
        report = _parse(split(line)).run(unwatched)
        assert report.facts["things"][0]["kind"] == kind and report.facts["metrics"]["contacts"] >= 0.95
        assert Log.load(report.facts["out"]).meta["constants"]["things"][0]["kind"] == kind
    film = next(b for b in report.blocks if isinstance(b, Picture))
    assert film.data.count(b"<animate") == 3


def test_flags_of_things_without_a_thing_and_half_a_step_are_refused(folder):
    walk, model = folder / "walk.npz", str(folder / "humanoid.xml")
    with pytest.raises(SurefootError, match="of a --box, --wall or --step: found none"):
        Retarget(walk, model, out=folder / "x.npz", variants=3).run(unwatched)
    with pytest.raises(SurefootError, match="--step: found 5 numbers, expected six"):
        Retarget(walk, model, out=folder / "x.npz", step=(0.5, 0, 0, 0.6, 1.0)).run(unwatched)


def test_a_box_may_turn_and_its_attitudes_are_followed_the_shorter_way(folder):
    half = np.sqrt(0.5)
    rows = [[0.0, 0, 0, 1, 1, 0, 0, 0], [1.0, 0, 0, 1, half, 0, 0, half]]
    (folder / "turning.json").write_text(json.dumps({"half": [0.1, 0.1, 0.1], "path": rows}))
    found = read_box(folder / "turning.json", np.array([0.0, 0.5, 2.0]))
    assert np.allclose(2 * np.arctan2(found.quat[:, 3], found.quat[:, 0]), [0, np.pi / 4, np.pi / 2])
    (folder / "turning.json").write_text(json.dumps({"half": [0.1, 0.1, 0.1], "path": [r[:7] for r in rows]}))
    with pytest.raises(SurefootError, match="rows of t, x, y, z"):
        read_box(folder / "turning.json", np.array([0.0]))


def test_a_policy_that_stands_still_follows_a_motion_of_standing_and_not_another():
    """Actions of zero are the default pose: joints sag by less than 0.05 rad from a motion that keeps it, and it lasts."""
    robot = Robot.text(xml(), "humanoid")
    legs, home = read_legged(robot, "free")[0], {j: stand(j) for j in JOINTS}
    still = from_poses(robot, legs.feet, [(0.0, home), (0.6, home)])
    bent = from_poses(robot, legs.feet, [(0.0, home), (0.6, home | {"left_elbow": 0.5, "right_elbow": 0.5})])
    task = tasks.track(robot, still)
    policy = Zero(contract(task, tasks.env(task, 1).world))
    found = followed(policy, task, still, kinematic(robot), 0, worlds=4)
    assert 0.0 < found.facts["joint_rmse"] < 0.05 and found.facts["survival"] == 1.0
    assert found.facts["survival_low"] == pytest.approx(0.025**0.25)  # Clopper-Pearson: (alpha / 2)^(1 / n)
    with pytest.raises(SurefootError, match="tracks another motion"):
        followed(policy, task, bent, kinematic(robot), 0, worlds=1)
