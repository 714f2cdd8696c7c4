"""The page's evidence, on robots of which it is known what is wrong with them."""

from pathlib import Path

import numpy as np
import pytest

from surefoot import shipped, tasks
from surefoot.cross.beliefs import searched
from surefoot.cross.evidence import VALUES, curves, gather, sources, tolerated
from surefoot.cross.journal import Budget, Journal, Stage
from surefoot.cross.robot import HiddenRobot, Plan
from surefoot.cross.work import Crossing, Question
from surefoot.deploy import bundle, manifest
from surefoot.gate.bundled import bundled
from surefoot.sim.realities import Reality
from surefoot.verbs.train.cross_evidence import evidence_blocks

RUN = shipped.located(Path("balance"))


@pytest.fixture(scope="module")
def crossing(tmp_path_factory):
    """A robot -> the crossing that has tried the shipped policy of balance on it, once."""
    task = tasks.resolve("balance")
    made, _ = bundled(RUN, bundle.load(RUN), task, {})
    packed = manifest.read(manifest.write(tmp_path_factory.mktemp("bundle") / "b", made))

    def tried(robot: HiddenRobot, *more: Stage) -> Crossing:
        out = tmp_path_factory.mktemp("cross")
        log = robot.attempt(packed, Plan(2, 20.0)).log
        log.save(out / "log.npz")
        stage = Stage("robot", "", {"log": str(out / "log.npz"), "run": str(RUN)})
        return Crossing(Question(task, "balance", out, "hidden"), Journal(out, Budget(), (stage, *more)), "")

    return tried


def robot(strengths=(), **e) -> HiddenRobot:
    return HiddenRobot(tasks.resolve("balance"), Reality(0, dict(strengths), e))


def test_of_a_robot_with_other_numbers_and_nothing_else_wrong_numbers_are_the_whole_error(crossing):
    heavy = robot(cart_mass=1.6)
    found = sources(crossing(heavy), heavy)
    assert (found.numbers, found.physics, found.noise) == pytest.approx((1.0, 0.0, 0.0), abs=1e-6)
    assert found.identified == pytest.approx(1.0)  # nothing was learned


def test_of_a_robot_with_the_models_numbers_missing_physics_is_the_whole_error(crossing):
    dragged = robot({"cable_drag": 0.6})  # a force of what is measured
    found = sources(crossing(dragged), dragged)
    assert (found.numbers, found.physics, found.noise) == pytest.approx((0.0, 1.0, 0.0), abs=1e-6)


def test_of_a_robot_as_its_model_with_noisy_sensors_noise_is_the_whole_error(crossing):
    noisy = robot({"sensor_noise": 0.3})
    found = sources(crossing(noisy), noisy)
    assert (found.numbers, found.physics, found.noise) == pytest.approx((0.0, 0.0, 1.0), abs=1e-9)


def test_numbers_that_were_identified_predict_what_the_model_does_not(crossing, tmp_path):
    heavy, task = robot(cart_mass=1.6), tasks.resolve("balance")
    from surefoot.belief import point

    point(task.params, heavy.reality.values(task, task.params.nominal)).write(tmp_path / "belief.json")
    done = crossing(heavy, Stage("identify", "", {"belief": str(tmp_path / "belief.json")}))
    assert sources(done, heavy).identified == pytest.approx(0.0, abs=1e-6)
    for c in curves(done):
        assert np.abs(c.identified - c.measured).max() < 1e-6 < np.abs(c.model - c.measured).max()
        assert len(c.time) == len(c.model) and c.time[-1] <= 2.0


def test_the_page_shows_what_the_facts_say(crossing):
    heavy = robot(cart_mass=1.6)
    found = gather(crossing(heavy), heavy)
    table, _, *plots, swept = evidence_blocks(found, heavy.reality.e)
    assert [row[1] for row in table.rows] == pytest.approx([100.0, 0.0, 0.0], abs=1e-4)
    assert found.facts()["error_budget"]["numbers"] == pytest.approx(1.0, abs=1e-6)
    assert [p.title for p in plots] == [f"{c.signal}: {c.part}" for c in found.curves]
    mass = next(p for p in swept.blocks if p.title == "cart_mass")
    assert [r.at for r in mass.rules] == [1.0, 1.6] and len(found.facts()["tolerated"]["cart_mass"]) == VALUES


def test_success_is_swept_over_every_number_of_the_machine(crossing):
    task, plain = tasks.resolve("balance"), robot()
    found = {facts["over"]: facts["policies"]["shown"] for facts in tolerated(crossing(plain))}
    assert set(found) == set(task.params.names) - {"noise", "push"}
    wide, i = searched(task), task.params.index("latency")
    values = [p["value"] for p in found["latency"]]
    assert (values[0], values[-1]) == (wide.low[i], wide.high[i])
    assert found["latency"][0]["success"] == 1.0 and found["latency"][0]["low"] == pytest.approx(
        0.884, abs=1e-3
    )  # 30 of 30
