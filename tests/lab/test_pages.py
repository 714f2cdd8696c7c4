"""Laws of every page: its controls, its link, its command and its blocks belong together."""

import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.lab.controls import Button, Choice, Slider, Toggle
from surefoot.lab.page import parsed
from surefoot.lab.pages import FIRST, PAGES, TITLES
from surefoot.lab.subject import Subject
from surefoot.report import Report
from surefoot.verbs import VERBS, load
from surefoot.web.page import page as html


@pytest.fixture(params=list(PAGES))
def page(request: pytest.FixtureRequest, tmp_path: Path):
    made = PAGES[request.param](Subject.of("balance", home=tmp_path))
    yield made
    made.close()


def test_a_page_shows_its_blocks_and_its_command_is_a_verb(page) -> None:
    page.work()
    text = html(Report(page.title, {}, tuple(page.blocks())))
    assert "<svg" in text or "<table" in text or "note" in text
    verb = page.command().split()[1]
    assert page.command().startswith("surefoot ") and verb in VERBS and load(verb)


def test_every_control_moves_and_an_address_brings_it_back(page, tmp_path: Path) -> None:
    for name, control in list(page.controls().items()):
        if isinstance(control, Slider):
            page.set(name, control.low + 0.75 * (control.high - control.low))
        elif isinstance(control, Choice) and len(control.options) > 1:
            page.set(name, control.options[-1])
        elif isinstance(control, Toggle):
            page.set(name, not control.value)
        if name in page.controls() and not isinstance(control, Button) and len(getattr(control, "options", "12")) > 1:
            assert page.controls()[name].value != control.value or isinstance(control, Choice), name
    again = type(page)(page.subject)
    key, settings = parsed(page.link())
    again.open(settings)
    assert key == page.key and again.link() == page.link()
    again.close()


def test_pages_have_the_key_and_title_under_which_they_are_found() -> None:
    assert {key: page.title for key, page in PAGES.items()} == TITLES
    assert [page.key for page in PAGES.values()] == list(PAGES) and FIRST in PAGES and "nothing" not in PAGES


def test_the_first_page_needs_no_torch() -> None:
    """Whose import takes twice as long as all else before the first paint."""
    words = (
        "import sys; from surefoot.lab.pages import FIRST, PAGES; from surefoot.lab.subject import Subject; "
        "import surefoot.web.lab.server; page = PAGES[FIRST](Subject.of('balance')); page.work(); page.scene(); "
        "page.blocks(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", words], timeout=120, check=False).returncode == 0
