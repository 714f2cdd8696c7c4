"""Randomization width: the numbers of `surefoot sweep`, batch by batch."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.deploy import bundle
from surefoot.gate.measures.sweep import Points, sweep
from surefoot.lab.counting import BATCH
from surefoot.lab.jobs import Curves, Job
from surefoot.lab.pages.width import POINTS, Width
from surefoot.lab.subject import Subject
from surefoot.report import Plot, Table
from surefoot.sim.realities import OUTER
from surefoot.verdict import clopper_pearson


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Width:
    """Two batches of the shipped policy over the sensors' noise."""
    page = Width(Subject.of("balance", home=tmp_path_factory.mktemp("home")))
    page.set("over", "noise")
    while page.tallies.get("shipped") is None or page.tallies["shipped"].episodes < 2 * BATCH:
        assert page.counting.step() is not None
    return page


def test_every_point_counts_the_episodes_of_surefoot_sweep(counted: Width) -> None:
    task, policy = tasks.resolve("balance"), bundle.load("balance")
    total = np.zeros(POINTS + 1, int)
    for b in range(2):
        known = sweep({"it": policy}, task, Points("noise", counted.values, tasks.nominal(task), BATCH, 1 + b))
        total += [round(BATCH * p["success"]) for p in known["policies"]["it"]]
    assert counted.tallies["shipped"].good.tolist() == total.tolist()
    assert 0 < total.sum() < total.size * 2 * BATCH  # with 0.2 it cannot, with none it can


def test_bands_are_exact_intervals_and_the_range_pools_the_points_inside_it(counted: Width) -> None:
    tally, plot = counted.tallies["shipped"], next(b for b in counted.blocks() if isinstance(b, Plot))
    band = plot.series[0]
    for i in (0, POINTS // 2):
        low, high = clopper_pearson(int(tally.good[i]), tally.episodes)
        assert (band.low[i], band.high[i]) == pytest.approx((100 * low, 100 * high))
    counted.set("range", (0.03, 0.15))
    inside = (counted.values[:-1] >= 0.03) & (counted.values[:-1] <= 0.15)
    k, n = int(tally.good[:-1][inside].sum()), int(inside.sum()) * tally.episodes
    table = next(b for b in counted.blocks() if isinstance(b, Table))
    assert (
        table.rows[0][1]
        == f"{100 * k / n:.1f} % ({100 * clopper_pearson(k, n)[0]:.1f} - {100 * clopper_pearson(k, n)[1]:.1f})"
    )


def test_the_truth_lies_in_the_outer_fifths_and_is_shown_only_when_revealed(counted: Width) -> None:
    high = 0.05  # of the task's range, which begins at the model's 0: reality is on the other side
    for k in range(20):
        counted.asked = counted.asked.__class__(**vars(counted.asked) | {"truth": float(k)})
        assert (1 - OUTER) * high <= counted.truth <= high
    counted.asked = counted.asked.__class__(**vars(counted.asked) | {"truth": 3.0})
    hidden = [b for b in counted.blocks() if isinstance(b, Plot)][0]
    assert all(s.name != "the hidden truth" for s in hidden.series) and f"{counted.truth:.4g}" not in str(
        counted.blocks()
    )
    counted.set("reveal", True)
    shown = [b for b in counted.blocks() if isinstance(b, Plot)][0]
    assert shown.series[-1].x == (counted.truth, counted.truth)
    counted.set("reveal", False)


def test_dragging_the_range_starts_no_count_anew_but_another_unknown_does(counted: Width) -> None:
    other = Width(counted.subject)
    while not other.tallies:
        other.counting.step()
    before = dict(other.tallies)
    other.set("range", (6.0, 8.0))
    assert other.tallies == before and before
    other.set("over", "pole_mass")
    assert other.tallies == {} and other.asked.range == (0.05, 0.3)


def test_a_command_says_the_sweep(counted: Width) -> None:
    expected = "surefoot sweep balance --over noise --points 11 --low 0 --high 0.2 --episodes 8 --batches 12"
    assert counted.command() == expected


def test_curves_read_whole_rows_as_they_come_and_begin_again_when_the_file_shrinks(tmp_path: Path) -> None:
    file, curves = tmp_path / "metrics.jsonl", Curves(tmp_path)
    assert not curves.fresh()
    file.write_text('{"steps": 1, "return": 2.0}\n{"steps": 2, "ret')
    assert curves.fresh() and curves.column("return") == ([1.0], [2.0])
    with open(file, "a") as f:
        f.write('urn": 3.0, "success": null, "word": "<b>", "reward/up": 1}\nnonsense\n')
    assert curves.fresh() and curves.column("return") == ([1.0, 2.0], [2.0, 3.0]) and not curves.fresh()
    assert curves.names("reward/") == ["reward/up"]
    file.write_text('{"steps": 5, "return": 9}\n')
    assert curves.fresh() and curves.column("return") == ([5.0], [9.0])


def test_a_job_is_the_command_and_its_facts_and_its_failure_has_its_words() -> None:
    job = Job(["tasks"])
    assert job.running and job.command == "surefoot tasks"
    job.process.wait(60)
    job.close()
    assert "balance" in json.dumps(job.facts()) and job.failed == ""
    wrong = Job(["look", "balanse"])
    wrong.process.wait(60)
    wrong.close()
    assert "did you mean balance" in wrong.failed


def test_a_job_pauses_goes_on_and_stops(tmp_path: Path) -> None:
    job = Job(["train", "balance", "--steps", "20000000", "--out", str(tmp_path / "run")], tmp_path / "run")
    curves, until = Curves(tmp_path / "run"), time.monotonic() + 90
    while not curves.fresh() and time.monotonic() < until:
        time.sleep(0.1)
    job.pause()
    time.sleep(0.3)
    curves.fresh()
    rows = len(curves.rows)
    time.sleep(0.7)
    assert rows and not curves.fresh() and job.running
    job.go_on()
    while not curves.fresh() and time.monotonic() < until:
        time.sleep(0.05)
    assert len(curves.rows) > rows
    job.close()
    assert job.failed == "stopped" and (tmp_path / "run" / "policy.onnx").exists()  # saved where it stood
