"""The command that a page gives to copy runs, and gives the numbers of the page."""

import json
from pathlib import Path
from shlex import split
from typing import Any

import numpy as np
import pytest

from surefoot.cli import main
from surefoot.lab.counting import percent
from surefoot.lab.page import Page, parsed
from surefoot.lab.pages import PAGES
from surefoot.lab.pages.adaptation import Adaptation
from surefoot.lab.pages.pipeline import MOST, Pipeline
from surefoot.lab.pages.width import POINTS, Width
from surefoot.lab.pages.worlds import Worlds
from surefoot.lab.subject import Subject
from surefoot.report import Table, Text


@pytest.fixture(scope="module", autouse=True)
def here(tmp_path_factory: pytest.TempPathFactory):
    """A folder with a narrow and an adaptive policy of balance, as buttons of pages leave them."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small = ["--threads", "1", "--json", "--steps", "16384"]
        assert main(["train", "balance", "--belief", "nominal", "--out", "runs/lab/balance/narrow", *small]) == 0
        small += ["--student.steps", "16384", "--student.envs", "64", "--student.history", "12", "--adapt", "rma"]
        assert main(["train", "balance", "--out", "runs/lab/balance/adaptive", *small]) == 0
        yield folder


def opened(link: str) -> Any:
    """The page of a link, with all that it counts to."""
    key, settings = parsed(link)
    page = PAGES[key](Subject.of("balance"))
    page.open(settings)
    page.finish()
    return page


def facts(page: Page, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What its command says."""
    capsys.readouterr()
    assert main([*split(page.command())[1:], "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("link", ["worlds&robots=16&spread=2&seed=3", "worlds&robots=16&policy=narrow&spread=0.5"])
def test_many_worlds_have_the_success_of_eval(link: str, capsys: pytest.CaptureFixture[str]) -> None:
    page: Worlds = opened(link)
    found, (good, bad, running) = facts(page, capsys), page.counts
    assert running == 0 and round(found["success"] * found["episodes"]) == good and good + bad == 16


def test_bands_are_those_of_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    page: Width = opened("width&over=noise")
    found = facts(page, capsys)["policies"]
    for label, path in page.subject.policies().items():
        tally, points = page.tallies[label], found[str(path)]
        assert [round(96 * p["success"]) for p in points] == tally.good[:POINTS].tolist()
        assert [(p["low"], p["high"]) for p in points] == [tally.rate([i])[1:] for i in range(POINTS)]
        assert 0 < sum(tally.good[:POINTS]) < 96 * POINTS


def test_a_hidden_robot_is_judged_by_eval_without_a_word_of_its_e(capsys: pytest.CaptureFixture[str]) -> None:
    page: Pipeline = opened("pipeline&robot=2")
    tally = page.tallies[page.key_now]
    found = facts(page, capsys)
    assert tally.episodes == found["episodes"] == MOST
    assert (found["success"], found["success_low"], found["success_high"]) == tally.rate()
    assert percent(tally.rate()) in str(page.blocks()) and not any(f"{v:.3g}" in page.command() for v in page.e)
    page.close()


def test_what_a_latent_tells_is_what_adapt_says(capsys: pytest.CaptureFixture[str]) -> None:
    page: Adaptation = opened("adaptation&policy=adaptive")
    assert page.reader is not None
    found = facts(page, capsys)
    best = max(found["r2"], key=lambda k: found["r2"][k]["soon"])
    assert page.asked.unknown == found["unknown"] == best  # nobody chose another
    for when, row in (("soon", page.reader.known[page.reader.soon]), ("end", page.reader.known[-1])):
        said = [np.nan if r[when] is None else r[when] for r in found["r2"].values()]  # where too few episodes last
        assert said == pytest.approx(row.tolist(), nan_ok=True)


@pytest.mark.parametrize("link", ["drift&unknown=strength&value=0.9", "actuator&lag=12&limit=0.5", "map"])
def test_a_page_without_a_verb_of_its_own_is_computed_without_a_browser(
    link: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = opened(link)
    capsys.readouterr()
    assert main([*split(page.printed())[1:], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["words"] == [b.words for b in page.blocks() if isinstance(b, Text)] or link.startswith("actuator")
    tables = [b for b in page.blocks() if isinstance(b, Table)]
    assert [t["rows"] for t in found["tables"]] == [b.cells() for b in tables] and tables


def test_a_link_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert main(["lab", "--page", "drift&unknown=nothing", "--print", "--json"]) == 2
    assert "nothing" in capsys.readouterr().err
    assert main(["lab", "--page", "drifting", "--print", "--json"]) == 2
    assert "did you mean drift" in capsys.readouterr().err
