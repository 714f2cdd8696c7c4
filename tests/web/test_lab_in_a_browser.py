"""The lab in a real browser: every page, every control, and what is drawn. Skipped where no Chromium is installed."""

import io
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.lab.controls import Button, Choice, Range, Slider, Toggle
from surefoot.lab.counting import percent
from surefoot.lab.pages import PAGES
from surefoot.lab.reports import WORK
from surefoot.lab.subject import Subject
from surefoot.web.lab.server import Lab, running
from surefoot.web.lab.session import Session

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = os.environ.get("SUREFOOT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="needs Chromium: apt install chromium, or name it in SUREFOOT_CHROMIUM"),
    pytest.mark.timeout(900),
]
SOFTWARE = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
PATIENCE = 90.0  # s: a browser that renders without a GPU is slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(Subject.of("balance", home=tmp_path_factory.mktemp("home")), port=0) as lab:
        yield lab


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=[*SOFTWARE, "--no-sandbox"])
        yield chromium
        chromium.close()


class Visitor:
    """A tab of the browser, and the session that it has."""

    def __init__(self, browser: Any, lab: Lab, address: str = "", width: int = 1200, height: int = 800, **how: Any):
        before = set(lab.sessions)
        self.asked: list[str] = []
        self.tab = browser.new_page(viewport={"width": width, "height": height}, **how)
        self.tab.on("request", lambda r: self.asked.append(r.url))
        self.tab.goto(lab.url + address)
        self.tab.wait_for_selector(".surefoot h2", timeout=1000 * PATIENCE, state="attached")
        self.session: Session = lab.sessions[next(iter(set(lab.sessions) - before))]

    def element(self, name: str) -> Any:
        return self.tab.locator(f'[id="{self.session.handles[name]._impl.uuid}"]')

    def until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, what
            self.tab.wait_for_timeout(50)

    def turn(self, key: str) -> None:
        """To another page, by its key on the keyboard."""
        self.tab.evaluate("document.activeElement.blur()")  # a digit typed into a box is that box's
        self.tab.locator("body").press(str(1 + list(PAGES).index(key)))
        self.until(lambda: self.session.page.key == key, f"page {key}")
        self.until(lambda: self.tab.locator(".surefoot h2").first.inner_text() == PAGES[key].title, f"title of {key}")

    def words(self) -> str:
        return str(self.tab.locator(".surefoot").all_inner_texts())

    def picture(self, x: int = 0, y: int = 200, width: int = 700, height: int = 600) -> np.ndarray:
        """(height, width, 3) of the scene, left of the panel."""
        from PIL import Image

        shot = self.tab.screenshot(clip={"x": x, "y": y, "width": width, "height": height})
        return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)


@pytest.fixture(scope="module")
def visitor(browser: Any, lab: Lab) -> Visitor:
    return Visitor(browser, lab, "worlds&robots=16&speed=4")


def test_nothing_is_fetched_from_anywhere_else(visitor: Visitor, lab: Lab) -> None:
    outside = [u for u in visitor.asked if not u.startswith((lab.url, "data:", "blob:"))]
    assert visitor.asked and not outside


def test_robots_are_drawn_and_turn_green_when_they_succeed(visitor: Visitor) -> None:
    page = visitor.session.page
    assert page.asked.robots == "16" and page.asked.speed == 4.0  # as the address said
    visitor.until(lambda: page.counts[2] == 0, "all episodes to end")

    def green() -> int:
        r, g, b = visitor.picture().transpose(2, 0, 1)
        return int(((g > r + 25) & (g > b + 25)).sum())

    visitor.until(lambda: green() > 50, "green robots")
    assert f"{page.counts[0]} succeeded" in visitor.words()


def test_a_click_on_a_robot_shows_its_e(visitor: Visitor) -> None:
    page, tab = visitor.session.page, visitor.tab
    before = page.asked.robot
    r, g, b = visitor.picture().transpose(2, 0, 1)
    spots = np.argwhere((g > r + 25) & (g > b + 25))
    for y, x in spots[:: max(1, len(spots) // 12)]:
        tab.mouse.click(int(x), int(y) + 200)
        tab.wait_for_timeout(700)
        if page.asked.robot != before:
            break
    assert page.asked.robot != before
    visitor.until(lambda: f"Robot {page.asked.robot:.0f}:" in visitor.words(), "the table of that robot")


@pytest.mark.parametrize("key", list(PAGES))
def test_every_control_of_every_page_does_what_it_says(visitor: Visitor, key: str) -> None:
    visitor.turn(key)
    session = visitor.session
    for name in list(session.page.controls()):
        if name in session.page.controls() and name in session.handles:
            operate(visitor, name)
            assert "an internal error of surefoot" not in session.failed, (name, session.failed)
    stop(visitor)
    assert session.failed == "" and session.page.key == key
    if folder := os.environ.get("SUREFOOT_SHOTS"):
        visitor.tab.screenshot(path=Path(folder) / f"lab_{key}.png")


def operate(visitor: Visitor, name: str) -> None:
    """Use one control as a person would, and wait until the page has heard it."""
    session, tab = visitor.session, visitor.tab
    tab.wait_for_timeout(400)  # a page redraws its controls five times a second
    visitor.until(lambda: visitor.element(name).count() == 1, f"{name} to be drawn")
    control, element = session.page.controls()[name], visitor.element(name)
    heard = lambda: name not in session.page.controls() or session.page.controls()[name].value != control.value  # noqa: E731
    if isinstance(control, Button):
        count = session.heard
        element.click()
        visitor.until(lambda: session.heard > count, f"{name} to be heard")
        if name in ("train", "narrow", "wide", "own", "deploy"):
            stop(visitor)
        if name in WORK:
            jobs = session.page.said.jobs
            visitor.until(lambda: name in jobs and not jobs[name].running, f"{name} to end")
        return
    if isinstance(control, Toggle):
        element.click()
    elif isinstance(control, Slider):
        way = "ArrowLeft" if control.value >= control.high else "ArrowRight"
        element.get_by_role("slider").press(way)
    elif isinstance(control, Range):
        box = element.bounding_box()
        tab.mouse.move(box["x"] + box["width"] * _share(control, 1), box["y"] + box["height"] / 3)
        tab.mouse.down()
        tab.mouse.move(box["x"] + box["width"] * (_share(control, 1) - 0.2), box["y"] + box["height"] / 3, steps=4)
        tab.mouse.up()
    elif isinstance(control, Choice):
        if len(control.options) < 2:
            return
        element.click()
        other = next(o for o in control.options if o != control.value)
        tab.get_by_role("option", name=other, exact=True).click()
    visitor.until(heard, f"{name} of {session.page.key} to be heard")


def _share(control: Range, i: int) -> float:
    return (control.value[i] - control.low) / (control.high - control.low)


def stop(visitor: Visitor) -> None:
    """End what a button began."""
    page = visitor.session.page
    for job in [getattr(page, "job", None), *getattr(page, "jobs", [])]:
        if job is not None and job.running:
            job.close()
    visitor.tab.wait_for_timeout(300)


def test_a_run_is_gated_and_its_log_diagnosed_on_its_own_page(visitor: Visitor) -> None:
    """Reports stay unfolded while the robot beside them moves."""
    visitor.turn("drift")
    visitor.turn("run")  # a page of its own, which no other test has turned
    session, tab = visitor.session, visitor.tab
    page = session.page
    if not page.said.logs():
        operate(visitor, "record")
    operate(visitor, "log")
    visitor.until(lambda: "diagnose" in session.handles, "the button of the doctor")
    operate(visitor, "diagnose")
    operate(visitor, "gate")
    visitor.until(lambda: len(page.reports()) == 2, "reports of gate and doctor")
    assert [b.title.split(":")[0] for b in page.reports()] == ["Gate", "Doctor, reality-0"]
    summary = tab.locator(".surefoot summary", has_text="Gate: PASS")
    visitor.until(lambda: summary.count() == 1, f"the gate's report; {session.failed}")
    summary.click()
    before, unfolded = page.periods, tab.locator(".surefoot details[open]", has_text="Gate: PASS")
    if not page.asked.play:
        operate(visitor, "play")
    visitor.until(lambda: page.periods != before, "the robot to move")
    tab.wait_for_timeout(1000)
    assert unfolded.count() == 1 and unfolded.locator("svg").count() >= 3
    assert page.controls()["gate"].label == "gate again"


def test_plots_are_drawn_from_the_numbers_of_the_page(visitor: Visitor) -> None:
    visitor.turn("drift")
    visitor.until(lambda: visitor.tab.locator(".surefoot svg path.l").count() >= 7, "lines of both plots")
    rho = visitor.session.page.found.rho.value
    visitor.until(lambda: f"rho = {rho:.4f}" in visitor.words(), "the growth rate")
    assert rho > 1 and visitor.tab.locator(".surefoot figure").count() == 2  # errors grow, in both plots


def test_the_command_and_the_link_are_there_to_copy(visitor: Visitor) -> None:
    buttons = visitor.tab.locator(".surefoot .said button")
    commands = [b.get_attribute("data-words") for b in buttons.all()]
    assert commands[0] == visitor.session.page.command()
    assert str(commands[1]).startswith("/") and "/drift&" in str(commands[1])


def test_two_tabs_do_not_disturb_each_other(visitor: Visitor, browser: Any, lab: Lab) -> None:
    visitor.turn("worlds")
    operate(visitor, "play")
    mine, shown = visitor.session.page, visitor.session.page.asked
    periods = mine.trials.periods
    other = Visitor(browser, lab, "worlds&robots=36&spread=0.5")
    assert other.session is not visitor.session and len(lab.sessions) >= 2
    operate(other, "seed")
    operate(other, "policy")
    assert (mine.asked, mine.trials.periods) == (shown, periods) and other.session.page.env.n == 36
    other.tab.close()
    visitor.until(lambda: other.session not in lab.sessions.values(), "the other session to end")
    assert visitor.session.thread.is_alive() and not other.session.alive


def test_a_phone_shows_page_and_controls_without_scrolling_sideways(browser: Any, lab: Lab) -> None:
    phone = Visitor(browser, lab, "drift", width=390, height=844)
    wide = phone.tab.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    if folder := os.environ.get("SUREFOOT_SHOTS"):
        phone.tab.screenshot(path=Path(folder) / "lab_phone.png")
    phone.tab.close()


def test_a_phone_has_its_panel_from_edge_to_edge_its_robots_above_it_and_obeys_a_finger(browser: Any, lab: Lab) -> None:
    phone = Visitor(browser, lab, "worlds&robots=16&play=off", width=390, height=844, has_touch=True, is_mobile=True)
    panel = phone.tab.locator(".mantine-Paper-root:has(.surefoot)").first.bounding_box()
    assert panel["x"] <= 1 and panel["width"] >= 388 and panel["y"] > 250
    blue = lambda p: int((p[..., 2] > p[..., 0] + 25).sum())  # noqa: E731
    phone.until(lambda: blue(phone.picture(0, 150, 390, int(panel["y"]) - 150)) > 30, "blue robots above the panel")
    phone.element("play").tap()
    phone.until(lambda: phone.session.page.asked.play, "the finger to be heard")
    phone.tab.close()


def test_a_training_is_drawn_term_by_term_waits_goes_on_and_is_saved(visitor: Visitor) -> None:
    visitor.turn("drift")
    visitor.turn("run")
    page, tab = visitor.session.page, visitor.tab
    press(visitor, "train")
    visitor.until(lambda: page.curves is not None and len(page.curves.rows) >= 2, "curves")
    visitor.until(lambda: tab.locator(".surefoot figure svg path.l").count() > 0, "lines of the curves")
    assert set(page.curves.names("reward/")) and "Training: reward terms" in visitor.words()
    press(visitor, "pause")
    tab.wait_for_timeout(500)
    page.curves.fresh()
    rows = len(page.curves.rows)
    tab.wait_for_timeout(1500)
    assert len(page.curves.rows) == rows and page.job.running and "paused" in visitor.words()
    press(visitor, "pause")
    visitor.until(lambda: len(page.curves.rows) > rows, "it to go on")
    press(visitor, "stop")
    visitor.until(lambda: not page.job.running, "it to end")
    assert (page.folder / "policy.onnx").exists() and page.job.failed in ("", "stopped")


def press(visitor: Visitor, name: str) -> None:
    """A button, once it is drawn."""
    visitor.until(lambda: name in visitor.session.handles and visitor.element(name).count() == 1, f"{name} to be drawn")
    heard = visitor.session.heard
    visitor.element(name).click()
    visitor.until(lambda: visitor.session.heard > heard, f"{name} to be heard")


def test_the_robot_is_pushed_by_the_mouse(visitor: Visitor) -> None:
    visitor.turn("drift")
    visitor.turn("run")
    page = visitor.session.page
    visitor.tab.wait_for_timeout(2500)
    picture = visitor.picture()
    b, r = picture[..., 2], picture[..., 0]
    y, x = np.argwhere(b > r + 60).mean(0)  # the cart is blue
    before = page.hand.force

    def pushed() -> bool:
        visitor.tab.mouse.click(x, y + 200)
        return page.hand.force is not before

    visitor.until(pushed, "the push")
    assert np.abs(page.hand.force).max() > 0


def test_the_pipeline_trains_what_is_missing_and_shows_what_survives(visitor: Visitor) -> None:
    visitor.turn("drift")
    visitor.turn("pipeline")
    page = visitor.session.page
    press(visitor, "deploy")
    visitor.until(lambda: bool(page.tallies), "a training of one world, and episodes of the hidden robot")
    tally = page.tallies[page.key_now]
    assert page.policy() == page.subject.folder("narrow") and tally.episodes >= 36
    visitor.until(
        lambda: percent(tally.rate()) in visitor.words() or page.tallies[page.key_now] is not tally, "its rate"
    )
    name = page.subject.unknowns[0]
    assert f"{name}\t" not in visitor.words()
    operate(visitor, "reveal")
    visitor.until(lambda: "What was hidden" in visitor.words() and f"{page.e[0]:.4g}" in visitor.words(), "its e")


def test_a_copied_command_is_what_is_shown(browser: Any, lab: Lab) -> None:
    other = Visitor(browser, lab, "worlds&robots=16&play=off", permissions=["clipboard-read", "clipboard-write"])
    for button, words in (("copy as command", other.session.page.command()), ("copy link", "&robots=16&")):
        other.tab.get_by_role("button", name=button).click()
        copied = other.tab.evaluate("navigator.clipboard.readText()")
        assert words in copied and (button == "copy as command" or copied.startswith(lab.url))
    again = Visitor(browser, lab, copied.removeprefix(lab.url))
    assert again.session.page.asked == other.session.page.asked
    other.tab.close()
    again.tab.close()
