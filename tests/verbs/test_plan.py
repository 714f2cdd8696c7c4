"""What `plan` finds and reports: controls that replay open loop, in each world, and a next command that runs."""

from shlex import split

import numpy as np
import pytest

from surefoot.cli import _parse
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion.dynamic import replayed
from surefoot.motion.made import from_poses
from surefoot.motion.read import read_motion
from surefoot.report import Picture, Plot, Progress, unwatched
from surefoot.robot import Robot
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.ready.humanoid_model import JOINTS, stand, xml
from surefoot.verbs.model.new import New
from surefoot.verbs.model.plan import Plan
from surefoot.verbs.model.planned import MADE, made

FEW = {"samples": 12, "rounds": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A humanoid, and 0.4 s in which it bends its elbows."""
    there = tmp_path_factory.mktemp("plan")
    (there / "humanoid.xml").write_text(xml())
    robot, home = Robot.text(xml(), "humanoid"), {j: stand(j) for j in JOINTS}
    bent = home | {"left_elbow": 0.4, "right_elbow": 0.4}
    from_poses(robot, read_legged(robot, "free")[0].feet, [(0.0, home), (0.4, bent)]).save(there / "bend.npz")
    return there


def test_a_plan_lifts_a_box_that_kinematics_leaves_on_the_floor(tmp_path):
    out = tmp_path / "plan.npz"
    seen = list[Progress]()
    report = Plan("lift", out=out, worlds=2, page=tmp_path / "p.html", **FEW).run(seen.append)
    nominal, slippery = report.facts["worlds"]
    assert nominal["kinematic_largest"] > 0.14 > nominal["largest"]  # it stays; it rises
    assert (
        nominal["e"]["friction"] == 1.0 and slippery["e"]["friction"] == 0.45 and slippery["world"] == "friction 0.45"
    )
    shares = [p.share for p in seen if p.doing == "planning"]
    assert (
        shares[0] == 0.0 and shares == sorted(shares) and len(shares) == 10
    )  # the terminal tells the time left from them
    assert [type(b) for b in report.blocks].count(Plot) == 1
    assert (
        split(report.next) == ["surefoot", "log", str(out)] and _parse(split(report.next)[1:]).run(unwatched).code == 0
    )


def test_the_saved_controls_replay_to_what_was_reported_to_the_bit(tmp_path):
    out = tmp_path / "plan.npz"
    facts = Plan("pivot", out=out, seed=3, **FEW).run(unwatched).facts
    log, case = Log.load(out), made("pivot")
    q = replayed(case.make, log["control"], np.array(log.meta["constants"]["start"]), case.e)
    assert np.array_equal(q[0], log["q"]) and case.off(q).max() == facts["worlds"][0]["largest"]
    assert log.meta["plan"]["samples"] == 12 and log.meta["plan"]["horizon"] == 0.8


def test_ctrl_c_keeps_what_is_planned(tmp_path):
    def stopped(event):
        if (event.share or 0.0) >= 0.5:
            raise KeyboardInterrupt

    out = tmp_path / "plan.npz"
    report = Plan("lift", out=out, **FEW).run(stopped)
    whole = Plan("lift", out=tmp_path / "whole.npz", **FEW).run(unwatched)
    assert report.code == 130 and report.facts["interrupted"] and "1 of 2 s" in report.badge.words
    assert whole.code == 0 and whole.badge is None
    assert np.array_equal(Log.load(out)["control"], Log.load(tmp_path / "whole.npz")["control"][:50])
    with pytest.raises(KeyboardInterrupt):  # before anything is planned
        Plan("lift", out=out, **FEW).run(lambda e: stopped(Progress("", 1.0)))


def test_a_humanoids_plan_is_a_motion_that_a_policy_can_track(folder):
    out, model = folder / "plan.npz", str(folder / "humanoid.xml")
    report = Plan(str(folder / "bend.npz"), model, out=out, worlds=2, page=folder / "p.html", samples=6, rounds=1).run(
        unwatched
    )
    facts = report.facts
    assert facts["part"] == "base" and facts["worlds"][0]["largest"] < 0.1 and facts["joint_rmse"] < 0.2
    assert facts["worlds"][1]["world"] == "drawn, 1" and facts["worlds"][1]["e"] != facts["worlds"][0]["e"]
    assert next(b for b in report.blocks if isinstance(b, Picture)).data.count(b"<animate") == 3
    assert split(report.next) == ["surefoot", "new", "track", model, "--motion", str(out)]
    task = New("track", model, out=folder / "task.py", motion=(out,)).run(unwatched)
    assert task.facts["kind"] == "track"
    assert len(read_motion(out, JOINTS)) == len(Log.load(out)) == 21
    again = Plan(str(out), str(folder / "task.py"), out=folder / "again.npz", cut=(0.0, 0.2), samples=6, rounds=1)
    assert again.run(unwatched).next == f"surefoot motion {folder / 'again.npz'} --robot {folder / 'task.py'}"


@pytest.mark.parametrize("name", MADE)
def test_on_its_reference_an_example_is_off_by_nothing(name):
    case = made(name, worlds=3)
    assert case.off(case.reference.q[None]).max() < 1e-6 and case.e[:, 0].tolist() == [1.0, 0.725, 0.45]


def test_a_turn_is_measured_as_an_angle():
    case = made("hand-turn")
    assert case.off(case.reference.q[None, :1].repeat(len(case.reference.q), 1)).max() == pytest.approx(0.8)


def test_what_does_not_fit_is_refused_before_any_work(folder):
    bend, model = str(folder / "bend.npz"), str(folder / "humanoid.xml")
    for given, said in (
        ({"motion": "lft"}, "did you mean lift"),
        ({"motion": bend}, "expected a robot after it: surefoot plan"),
        ({"motion": bend, "robot": model, "guide": 0.1}, "--guide: only lift, push and pivot"),
        ({"motion": "lift", "cut": (0.0, 1.0)}, "of a motion file"),
        ({"motion": "lift", "worlds": 0}, "--worlds: found 0"),
        ({"motion": "lift", "out": folder / "plan.txt"}, "ends in .npz"),
        ({"motion": "lift", "knot": 2.0}, "within the horizon"),
    ):
        with pytest.raises(SurefootError, match=said):
            Plan(**{"out": folder / "x.npz"} | given).run(unwatched)
