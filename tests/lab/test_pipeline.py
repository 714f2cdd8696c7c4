"""The pipeline: what is deployed is judged on the hidden robot alone, and what was identified moves p(e)."""

from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import Belief, Box, Gaussian, point
from surefoot.deploy import bundle
from surefoot.lab.counting import percent
from surefoot.lab.identified import around, recorded
from surefoot.lab.pages.pipeline import MOST, ROBOTS, Pipeline
from surefoot.lab.subject import Subject, narrowed
from surefoot.real2sim.replay import predict, windows
from surefoot.report import Plot, Table, Text
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
    assert table.rows[0] == ("full, robot 3", percent(tally.rate()), MOST)
    plot = next(b for b in page.blocks() if isinstance(b, Plot))
    assert (plot.series[0].x[0], plot.series[0].low[0], plot.series[0].high[0]) == pytest.approx(
        [100 * v for v in tally.rate()]
    )


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
    assert isinstance(moved, Box)
    width = half.high[i] - half.low[i]
    assert moved.low[i] == pytest.approx(13.0 - width / 2) and moved.high[i] == whole.high[i]
    assert (moved.low[k], moved.high[k]) == (half.low[k], half.high[k])


def test_without_randomization_p_e_is_the_posterior_with_its_correlations() -> None:
    """Mass and strength are known together far better than each: their ratio is what a motion shows."""
    whole = Subject.of("balance").belief
    p, i, k, far = whole.params, *(whole.params.index(n) for n in ("cart_mass", "strength", "noise"))
    sd = (p.y(whole.high) - p.y(whole.low)) / np.sqrt(12)
    cov = np.diag(np.square(0.1 * sd))
    cov[i, k] = cov[k, i] = 0.99 * 0.01 * sd[i] * sd[k]
    cov[far, far] = (10 * sd[far]) ** 2  # of noise the log tells nothing
    found = Gaussian.around(p, p.nominal, cov)
    moved = around(narrowed(whole, 0.0), whole, found)
    assert isinstance(moved, Gaussian) and moved.cov[i, k] == cov[i, k] and moved.cov[i, i] == cov[i, i]
    assert moved.cov[far, far] == 0 and moved.estimate()[far] == p.nominal[far]
    y = p.y(moved.sample(np.random.default_rng(0), 4000))
    assert np.corrcoef(y[:, i], y[:, k])[0, 1] == pytest.approx(0.99, abs=0.01)


def test_a_hidden_robot_is_identified_within_its_intervals_by_the_command_of_the_page(page: Pipeline) -> None:
    page.set("real2sim", True)
    page.set("robot", 3)
    args = page.needed()
    page.set("deploy", True)
    page.work()
    assert args is not None and page.jobs[0].command == f"surefoot {' '.join(args)}"
    assert page.jobs[0].process.wait(240) == 0
    table = next(b for b in page.blocks() if isinstance(b, Table) and b.title.startswith("Identified"))
    low, high = Belief.read(page.identified, page.subject.task.params).interval(0.95)
    free = low < high
    assert free.sum() >= 6 and ((low <= page.e) & (page.e <= high))[free].all()
    assert any(row[2] is not None for row in table.rows)
    page.close()


def test_a_robot_with_contacts_is_identified_on_less_and_the_page_says_so(tmp_path: Path) -> None:
    page = Pipeline(Subject.of("walk", home=tmp_path))
    page.set("real2sim", True)
    args = page.needed()
    assert args is not None and args[-4:] == ["--enough", "2", "--last", "1"]
    p = page.subject.task.params
    Gaussian.around(p, p.nominal, np.zeros((len(p), len(p)))).write(page.identified)
    assert any("the fit begins on 2 s" in b.words for b in page.blocks() if isinstance(b, Text))


def test_what_was_identified_is_shown_with_its_interval_before_anything_is_revealed(page: Pipeline) -> None:
    page.set("real2sim", True)
    p, whole = page.subject.task.params, page.subject.belief
    sd = (p.y(whole.high) - p.y(whole.low)) / np.sqrt(12)
    cov = np.diag(np.square(np.where(np.array(p.names) == "noise", 0.0, 0.1 * sd)))
    Gaussian.around(p, p.nominal, cov).write(page.identified)
    table = next(b for b in page.blocks() if isinstance(b, Table) and b.title.startswith("Identified"))
    rows = {row[0]: row for row in table.rows}
    assert len(rows) == len(p.names) and rows["noise"][3:] == ("-", "shows in no log")
    low, high = Box.read(page.identified, p).interval(0.95)
    i = p.index("gravity")
    assert rows["gravity"][2] == p["gravity"].nominal and rows["gravity"][3] == f"{low[i]:.4g} .. {high[i]:.4g}"


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
    assert not any(n in page.command() for n in numbers) and "gravity" not in str(page.blocks())
    page.set("reveal", True)
    table = page.blocks()[-1]
    assert isinstance(table, Table) and [row[2] for row in table.rows] == page.e.tolist()
    assert all(row[4] == "yes" for row in table.rows)  # the full ranges hold every hidden robot
    page.set("randomization", "none")
    assert all(row[4] == "no" for row in page.blocks()[-1].rows)
