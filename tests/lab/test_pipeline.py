"""The pipeline: what is deployed is judged on the hidden robot alone, and what was identified moves p(e)."""

from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import Box, point
from surefoot.deploy import bundle
from surefoot.lab.pages.pipeline import MOST, ROBOTS, Pipeline, around, recorded
from surefoot.lab.subject import Subject, narrowed
from surefoot.real2sim.replay import predict, windows
from surefoot.report import Table
from surefoot.sim.realities import reality
from surefoot.tasks.rollout import evaluate


@pytest.fixture
def page(tmp_path: Path) -> Pipeline:
    return Pipeline(Subject.of("balance", home=tmp_path))


def test_a_policy_that_is_at_hand_is_deployed_without_training_and_counted_on_this_robot(page: Pipeline) -> None:
    page.set("randomization", "full")
    page.set("robot", 3)
    assert page.needed() is None
    page.set("deploy", True)
    page.work()
    assert page.trials is not None and not page.jobs
    while page.trials is not None:
        page.advance(500)
    tally = page.tallies[page.key_now]
    task, e = tasks.resolve("balance"), reality(page.subject.belief, 3)
    known = sum(
        int(
            evaluate(
                bundle.load("balance"), tasks.env(task, ROBOTS, point(task.params, e), 1 + b, threads=1)
            ).success.sum()
        )
        for b in range(MOST // ROBOTS)
    )
    assert (int(tally.good[0]), tally.episodes) == (known, MOST)
    table = next(b for b in page.blocks() if isinstance(b, Table))
    assert table.rows[0][:4] == ("full", "off", "off", "3") and table.rows[0][5] == MOST


def test_what_is_missing_is_asked_for_in_order(page: Pipeline) -> None:
    home = page.subject.home / "balance"
    belief = home / "beliefs" / "narrow.json"
    assert page.needed() == ["train", "balance", "--belief", str(belief), "--out", str(home / "narrow")]
    page.set("adaptation", True)
    assert "--adapt rma" in page.command() and page.command().endswith("narrow-adaptive")
    page.set("real2sim", True)
    assert page.needed()[:3] == ["identify", "balance", str(home / "real2sim-robot0" / "log.npz")]
    found = Box(page.subject.belief.params, page.e, page.e)
    found.write(home / "real2sim-robot0" / "identified.json")
    asked = page.needed()
    assert asked is not None and asked[0] == "train"
    written = Box.read(asked[3], page.subject.task.params)
    assert written.estimate() == pytest.approx(page.e)  # no randomization: the identified numbers alone


def test_a_belief_moves_to_what_was_found_and_stays_inside_the_whole_range() -> None:
    whole = Subject.of("balance").belief
    half, i, k = narrowed(whole, 0.5), whole.params.index("gravity"), whole.params.index("noise")
    low, high = whole.low.copy(), whole.high.copy()  # of noise the log tells nothing
    low[i], high[i] = 12.9, 13.1
    moved = around(half, whole, Box(whole.params, low, high))
    width = half.high[i] - half.low[i]
    assert moved.low[i] == pytest.approx(13.0 - width / 2) and moved.high[i] == whole.high[i]
    assert (moved.low[k], moved.high[k]) == (half.low[k], half.high[k])


def test_a_log_of_the_hidden_robot_is_what_its_own_e_predicts(page: Pipeline) -> None:
    page.set("robot", 3)
    log = recorded(page.subject, page.e, page._driver())
    world = tasks.env(page.subject.task, 1, threads=1).world
    pieces = windows(world, log, 1, 1)
    error = pieces.errors(predict(world, pieces, page.e[None]))["joint_vel"]
    other = pieces.errors(predict(world, pieces, page.subject.task.params.nominal[None]))["joint_vel"]
    assert error.std() == pytest.approx(np.sqrt(2) * 1e-2, rel=0.1)  # noise of the start and of the end, no more
    assert other.std() > 2 * error.std()


def test_what_is_hidden_stays_hidden_until_it_is_revealed(page: Pipeline) -> None:
    page.set("randomization", "full")
    numbers = [f"{v:.4g}" for v in page.e]
    assert not any(n in page.command() for n in numbers) and len(page.blocks()) == 2
    page.set("reveal", True)
    table = page.blocks()[-1]
    assert isinstance(table, Table) and [row[2] for row in table.rows] == page.e.tolist()
    assert all(row[4] == "yes" for row in table.rows)  # the full ranges hold every hidden robot
    page.set("randomization", "none")
    assert all(row[4] == "no" for row in page.blocks()[-1].rows)
