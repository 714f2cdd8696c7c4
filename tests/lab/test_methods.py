"""The map: figures are counted on hidden robots, and a method without a policy has none."""

from pathlib import Path

import numpy as np

from surefoot import tasks
from surefoot.deploy import bundle
from surefoot.lab.counting import BATCH, percent
from surefoot.lab.pages.methods import HIDDEN, METHODS, Map, kind_of
from surefoot.lab.subject import Subject
from surefoot.report import Plot, Table
from surefoot.sim.realities import reality
from surefoot.tasks.rollout import evaluate
from surefoot.verbs import VERBS
from surefoot.verdict import clopper_pearson


def test_a_figure_is_the_success_rate_of_evaluate_in_the_hidden_realities(tmp_path: Path) -> None:
    page = Map(Subject.of("balance", home=tmp_path))
    while not page.counting.tallies:
        assert page.counting.step() is not None
    task, policy = tasks.resolve("balance"), bundle.load("balance")
    assert task.belief == page.subject.belief
    e = np.repeat(np.stack([reality(page.subject.belief, k) for k in range(HIDDEN)]), BATCH, 0)
    known = evaluate(policy, tasks.env(task, len(e), tasks.nominal(task), 1, threads=1), e=e)
    tally = page.counting.tallies["this run"]
    assert tally.good.tolist() == known.success.reshape(HIDDEN, BATCH).sum(1).tolist()
    k, n = int(known.success.sum()), len(e)
    assert tally.rate() == (k / n, *clopper_pearson(k, n))
    rows = {str(r[0]): r for b in page.blocks() if isinstance(b, Table) and b.title == "All methods" for r in b.rows}
    assert rows["domain randomization"][2] == percent(tally.rate())
    assert rows["system identification"][2] == "-" and rows["training without randomization"][2] == "-"


def test_the_shipped_policy_was_trained_over_ranges() -> None:
    assert kind_of(Path("balance")) == "randomized"


def test_every_command_of_the_map_is_a_verb_and_every_method_is_on_the_map(tmp_path: Path) -> None:
    page = Map(Subject.of("balance", home=tmp_path))
    plot = next(b for b in page.blocks() if isinstance(b, Plot))
    assert sum(len(s.x) for s in plot.series) == len(METHODS) + 1
    for m in METHODS:
        words = m.command.split()
        assert words[0].startswith("surefoot.") or words[1] in VERBS
        page.set("method", m.name)
        assert page.command().startswith("surefoot") and page.chosen is m
