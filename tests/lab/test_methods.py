"""The map: figures are counted on hidden robots, and a method without a policy has none."""

from pathlib import Path

import numpy as np

from surefoot import files, tasks
from surefoot.deploy import bundle
from surefoot.lab.counting import BATCH, percent
from surefoot.lab.methods import METHODS, RECORDED
from surefoot.lab.pages.map import HIDDEN, Map, kind_of
from surefoot.lab.subject import Subject
from surefoot.report import Plot, Report, Table
from surefoot.sim.realities import reality
from surefoot.tasks.rollout import evaluate
from surefoot.verbs import VERBS
from surefoot.verdict import clopper_pearson
from surefoot.web.page import page as html

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_a_figure_is_the_success_rate_of_evaluate_in_the_hidden_realities(tmp_path: Path) -> None:
    page = Map(Subject.of("balance", home=tmp_path))
    while not page.counting.tallies:
        assert page.counting.step() is not None
    task, policy = tasks.resolve("balance"), bundle.load("balance")
    assert task.belief == page.subject.belief
    e = np.repeat(np.stack([reality(page.subject.belief, k) for k in range(HIDDEN)]), BATCH, 0)
    known = evaluate(policy, tasks.env(task, len(e), tasks.nominal(task), 1, threads=1), e=e)
    tally = page.counting.tallies["shipped"]
    assert tally.good.tolist() == known.success.reshape(HIDDEN, BATCH).sum(1).tolist()
    k, n = int(known.success.sum()), len(e)
    assert tally.rate() == (k / n, *clopper_pearson(k, n))
    rows = {str(r[0]): r for b in page.blocks() if isinstance(b, Table) and b.title == "All methods" for r in b.rows}
    assert f"now {percent(tally.rate())} on 12 hidden robots of balance" in rows["domain randomization"][2]
    assert "now" not in rows["system identification"][2] + rows["training in one world"][2]


def test_the_shipped_policy_was_trained_over_ranges() -> None:
    assert kind_of(Path("balance")) == "randomized"


def test_every_figure_is_the_row_of_its_benchmark() -> None:
    """As it was recorded last; a method without one says so."""
    written = files.read_json(RECORDED)
    for m in METHODS:
        if m.row is None:
            assert m.figure == m.says == ""
            continue
        benchmark, part, name = m.row
        rows = files.read_json(RESULTS / f"{benchmark}.json")["parts"][part]["rows"]
        row = next(r for r in rows if r["name"] == name)
        kept = written["/".join(m.row)]
        assert {k: kept[k] for k in ("value", "low", "high", "unit")} == {
            k: row[k] for k in ("value", "low", "high", "unit")
        }
        assert f"{row['value']:.3g}" in m.figure
    assert len(written) == len({m.row for m in METHODS if m.row})


def test_an_era_is_a_place_on_the_map() -> None:
    """The table of the founding lecture: online on a model, trained in a simulator, in a corrected one, both."""
    assert {(m.model, m.learning): m.era for m in METHODS} == {
        (0, 0): "1.0", (1, 0): "1.0", (1, 1): "2.0", (1, 2): "2.0", (2, 1): "3.0", (2, 2): "4.0",
    }  # fmt: skip


def test_every_command_of_the_map_is_a_verb_and_every_method_is_on_the_map_with_its_name(tmp_path: Path) -> None:
    page = Map(Subject.of("balance", home=tmp_path))
    plot = next(b for b in page.blocks() if isinstance(b, Plot))
    places = [(x, y) for s in plot.series[:-1] for x, y in zip(s.x, s.y)]
    assert len(set(places)) == len(METHODS)  # none covers another
    assert sorted(n for s in plot.series for n in s.labels) == sorted(m.name for m in METHODS)
    drawn = html(Report("", {}, (plot,)))
    assert all(f">{m.name}</span>" in drawn for m in METHODS) and ">corrected by data</span>" in drawn
    for m in METHODS:
        words = m.command.split()
        assert words[0].startswith("surefoot.") or words[1] in VERBS
        page.set("method", m.name)
        assert page.command().startswith("surefoot") and page.chosen is m
        assert not {"TASK", "RUN", "UNKNOWN"} & set(page.command().split())
