"""A run under someone's hands: curves as they were logged, forces of the closed form, e that turns at once."""

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from surefoot import shipped, tasks
from surefoot.doctor import report as doctor
from surefoot.gate import report as gate
from surefoot.lab.jobs import Job
from surefoot.lab.pages.live_run import LONGEST, LiveRun
from surefoot.lab.subject import Subject, load
from surefoot.log import Log
from surefoot.report import Details, Note, Plot, Table
from surefoot.sim.realities import Reality
from surefoot.tasks.record import record


@pytest.fixture
def page() -> LiveRun:
    page = LiveRun(Subject.of("balance"))
    page.set("play", False)
    page.work()
    return page


def test_every_reward_term_has_its_curve_as_it_was_logged(page: LiveRun) -> None:
    rows = [json.loads(x) for x in (shipped.HOME / "balance" / "metrics.jsonl").read_text().splitlines()]
    plot = next(b for b in page.blocks() if isinstance(b, Plot))
    assert [s.name for s in plot.series] == [k.removeprefix("reward/") for k in rows[0] if k.startswith("reward/")]
    assert plot.series[0].x == tuple(float(r["steps"]) for r in rows)
    assert plot.series[0].y == tuple(r["reward/upright"] for r in rows)
    page.set("curve", "success")
    judged = next(b for b in page.blocks() if isinstance(b, Plot)).series[-1]
    assert judged.name == "judge/success" and judged.low == tuple(r["judge/low"] for r in rows)


def test_a_push_is_the_jacobian_transposed_times_the_force(page: LiveRun) -> None:
    """On a pole that stands upright, at a height h: F on the rail and F h on the hinge, for a tenth of a second."""
    page.env.world.state.q[:], page.env.world.state.v[:] = 0.0, 0.0
    page.push(page.model.body("pole").id, np.array([0.0, 0.0, 0.7]), np.array([2.0, 0.0, 0.0]))
    force = 1.1 * 9.81  # N: the weight of cart and pole
    assert page.hand.force == pytest.approx([force, 0.7 * force]) and page.hand.left == 5
    page.advance(1)
    assert page.env.world.applied[0] == pytest.approx([force, 0.7 * force])
    page.advance(5)
    assert page.env.world.applied[0] == pytest.approx([0, 0])


def test_a_click_pushes_the_body_that_the_ray_meets(page: LiveRun) -> None:
    page.env.world.state.q[:] = 0.0
    page.clicked(0, np.array([0.0, -4.0, 0.8]), np.array([0.0, 1.0, 0.0]))
    assert page.hand.left and page.hand.force == pytest.approx([0, 0])  # across the rail: no joint moves that way
    page.clicked(0, np.array([-4.0, 0.0, 0.8]), np.array([1.0, 0.0, 0.0]))
    assert page.hand.force[1] == pytest.approx(0.8 * page.hand.force[0])


def test_a_slider_turns_e_at_once_and_keeps_the_state(page: LiveRun) -> None:
    page.advance(10)
    q, i = page.env.world.state.q.tolist(), page.subject.task.params.index("cart_mass")
    page.set("e_cart_mass", 3.0)
    assert page.env.world.state.e[0, i] == 3.0 and page.env.world.state.q.tolist() == q
    assert page.env.world.batch.get_model(0).body_mass[page.model.body("cart").id] == 3.0
    page.set("reset", True)
    assert page.env.world.state.e[0, i] == 3.0
    assert page.command() == "surefoot play balance --range cart_mass=3.0"
    page.set("nominal", True)
    assert page.env.world.state.e[0].tolist() == page.subject.task.params.nominal.tolist()
    page.set("e_cart_mass", "heavy")
    assert page.env.world.state.e[0, i] == 1.0


def test_contact_forces_of_a_standing_robot_carry_its_weight() -> None:
    page = LiveRun(Subject.of("walk"))
    page.set("play", False)
    for _ in range(100):  # let it settle on its feet
        page.env.world.step(page.env.world.state.u.copy(), page.env.chance)
    arrows = page.arrows()
    lift = (arrows[:, 1] - arrows[:, 0])[:, 2].sum() / (LONGEST * page.model.stat.extent)
    assert len(arrows) >= 3 and lift == pytest.approx(1.0, abs=0.1)


def test_what_the_gate_said_is_there_to_unfold_as_its_own_page_has_it(page: LiveRun) -> None:
    verdict = shipped.verdict("balance")
    (details,) = page.reports()
    assert isinstance(details, Details) and details.title == f"Gate: {gate.badge(verdict).words}"
    assert details.blocks == gate.blocks(verdict) and any(isinstance(b, Plot) for b in details.blocks)


def test_a_gate_that_was_asked_for_shows_its_checks_and_leaves_its_files_beside_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(shipped.HOME / "balance", run)
    (run / "gate.json").unlink()
    page = LiveRun(Subject.of(str(run), home=tmp_path))
    page.set("play", False)
    assert page.reports() == () and page.controls()["gate"].label == "run the gate"
    page.set("gate", True)
    assert page.command() == f"surefoot gate {run}" and page.controls()["gate"].label == "stop the gate"
    assert page.said is not None and page.said.jobs["gate"].process.wait(240) == 0
    (details,) = page.reports()
    assert isinstance(details, Details) and details.title.startswith("Gate: PASS")
    assert (run / "gate.html").exists() and page.controls()["gate"].label == "gate again"
    assert page.said.words() == []
    page.close()


def test_a_report_that_is_no_gates_is_said_and_the_page_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(shipped.HOME / "balance", run)
    data = json.loads((run / "gate.json").read_text())
    (run / "gate.json").write_text(json.dumps(data | {"meta": {}}))
    (run / "doctor.json").write_text("[1, 2]")
    page = LiveRun(Subject.of(str(run), home=tmp_path))
    assert [type(b) for b in page.reports()] == [Note, Note] and page.work()
    assert "gate.json: expected what `surefoot gate` writes" in str(page.reports()[0])


def test_a_log_is_drawn_over_its_replay(tmp_path: Path) -> None:
    shutil.copytree(shipped.HOME / "balance", tmp_path / "run")
    task = tasks.resolve("balance")
    record(task, Reality(0), None, seconds=0.4).save(tmp_path / "run" / "log.npz")
    page = LiveRun(Subject.of(str(tmp_path / "run")))
    page.set("log", "log.npz")
    drawn = [b for b in page.replayed if isinstance(b, Plot)]
    assert drawn and "R2 1.000" in drawn[0].title  # the plain reality is the model itself
    truth = Log.read(tmp_path / "run" / "log.npz")["joint_pos"]
    assert drawn[0].series[0].y[:3] == pytest.approx(tuple(truth[1:4, 0]))
    page.set("log", "../../etc/passwd")
    assert page.asked.log == "log.npz"


def test_the_doctor_is_asked_about_the_log_that_is_chosen(tmp_path: Path) -> None:
    """Of a robot that is 60 ms late: the page says what `surefoot doctor` says."""
    shutil.copytree(shipped.HOME / "balance", tmp_path / "run")
    task, policy = tasks.resolve("balance"), load(tmp_path / "run")
    record(task, Reality(0, e={"latency": 0.06}), policy, seconds=20.0).save(tmp_path / "run" / "log.npz")
    page = LiveRun(Subject.of(str(tmp_path / "run")))
    assert "diagnose" not in page.controls()
    page.set("log", "log.npz")
    page.set("diagnose", True)
    assert page.said is not None and page.said.jobs["diagnose"].process.wait(240) == 1 and page.work()
    details = next(b for b in page.reports() if isinstance(b, Details) and b.title.startswith("Doctor"))
    kept = json.loads((tmp_path / "run" / "doctor-log.json").read_text())
    assert details.title == f"Doctor, log: {kept['words']}" and kept["words"].startswith("FAIL: latency:")
    causes = next(b for b in details.blocks if isinstance(b, Table) and b.title.startswith("causes"))
    assert details.blocks == doctor.blocks(kept) and causes.rows[0][0] == "latency"
    assert LiveRun(page.subject).reports()[-1] == details  # a report that is there needs no doctor
    page.close()


def test_a_log_is_recorded_where_no_robot_has_recorded_one(tmp_path: Path) -> None:
    page = LiveRun(Subject.of("balance", home=tmp_path / "lab"))
    assert page.controls()["log"].options == ("none",)
    page.set("record", True)
    assert page.said is not None and page.said.jobs["record"].process.wait(240) == 0
    out = tmp_path / "shipped-balance" / "reality-0.npz"
    assert page.controls()["log"].options == ("none", out.name) and len(Log.read(out)) == 1000
    page.set("log", out.name)
    assert page.command() == f"surefoot replay balance {out}"
    before = page.replayed
    page.set("e_cart_mass", 2.0)
    assert page.replayed != before  # the replay follows the sliders
    page.close()


def test_a_task_without_a_run_says_so_and_its_robot_falls(tmp_path: Path) -> None:
    page = LiveRun(Subject.of("balance-discrete", home=tmp_path))
    assert any(isinstance(b, Note) for b in page.blocks()) and not page.driven
    page.advance(400)
    assert page.episodes and not any(good for _, good, _ in page.episodes)
    assert page.command() == f"surefoot train balance-discrete --out {tmp_path}/balance-discrete/live"


def test_a_training_that_is_watched_has_the_bits_of_one_that_is_not(tmp_path: Path) -> None:
    found = {}
    for watched in (False, True):
        out = tmp_path / f"watched-{watched}"
        job = Job(["train", "balance", "--steps", "8192", "--threads", "1", "--out", str(out)], out)
        page = LiveRun(Subject.of("balance", home=tmp_path))
        page.folder, page.curves, rows = out, None, 0
        until = time.monotonic() + 120
        while job.running and time.monotonic() < until:
            if watched and page.work():
                page.scene()
                page.blocks()
                rows = max(rows, 0 if page.curves is None else len(page.curves.rows))
            time.sleep(0.01)
        page.close()
        job.close()
        assert job.failed == "" and (rows > 0 or not watched)
        found[watched] = (out / "policy.safetensors").read_bytes()
    assert found[True] == found[False]
