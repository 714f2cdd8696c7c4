"""One visitor: a page of their own, in a thread of its own.

    loop:  what was set or clicked -> page;  page.work();  what is new -> the browser

viser's threads put what the browser sends into a queue; the loop alone touches the page, so a page needs no lock.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from surefoot.errors import SurefootError
from surefoot.lab.controls import Button, Choice, Control, Range, Slider, Toggle
from surefoot.lab.jobs import come_second
from surefoot.lab.page import Page, parsed
from surefoot.lab.pages import FIRST, PAGES, TITLES
from surefoot.lab.subject import Subject
from surefoot.report import Block, Note, plain
from surefoot.web.lab.html import body, foot, head
from surefoot.web.lab.robots import Robots

FRAME = 1 / 40  # s between two pictures of robots
WORDS = 0.2  # s between two pictures of plots and tables
KEYS = "12345678"
NARROW, WIDE = 480, 680  # pixels of the panel


class Session:
    """A page for one client, until that client goes."""

    def __init__(self, client: Any, subject: Subject, address: str, base: str):
        self.client, self.subject, self.base = client, subject, base
        self.events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.alive, self.pictures, self.heard = True, 0, 0
        self.robots: Robots | None = None
        self.handles: dict[str, Any] = {}
        self.controls: Mapping[str, Control] = {}
        self.failed = ""
        gui = client.gui
        titles = {title: key for key, title in TITLES.items()}
        self.chooser = gui.add_dropdown("page", tuple(titles), initial_value=next(iter(titles)), order=1)
        self.chooser.on_update(lambda e: self.events.put(("page", titles.get(e.target.value, ""))))
        for hotkey, (key, title) in zip(KEYS, TITLES.items()):
            command = gui.add_command(title, hotkey=hotkey)
            command.on_trigger(lambda _, k=key: self.events.put(("page", k)))
        self.head = gui.add_html("", order=2)
        self.body, self.under, self.foot = (gui.add_html("", order=k * 1e9) for k in (1, 2, 3))
        self.reports: tuple[Block, ...] = ()
        self.page = self._opened(address)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def _opened(self, address: str) -> Page:
        """The page of an address; the first one where it names none, with words about what is wrong in it."""
        key, settings = parsed(address)
        page = PAGES[key if key in PAGES else FIRST](self.subject)
        try:
            page.open(settings)
        except SurefootError as error:
            self.failed = str(error)
        self.chooser.value = page.title
        return page

    def run(self) -> None:
        come_second()
        stale, due = True, 0.0
        self._guarded(self._rebuild)
        while self.alive:
            began = time.monotonic()
            fresh = bool(self._guarded(self._worked))
            stale = stale or fresh
            words = stale and began >= due
            if self.alive and (fresh or words) and self._guarded(partial(self._draw, words)):
                _show(self.body, body(self._wrong()))
            if words:
                stale, due = False, began + WORDS
            time.sleep(max(0.002, FRAME - (time.monotonic() - began)))
        self.page.close()

    def _guarded(self, part: Callable[[], Any]) -> Any:
        """What goes wrong on one page is said there, and leaves the others running."""
        try:
            return part()
        except SurefootError as error:
            self.failed = str(error)
        except Exception as error:
            self.failed = f"an internal error of surefoot: {type(error).__name__}: {error}"
        return True

    def _worked(self) -> bool:
        """Whether there is something new to see."""
        heard = self._obey()
        return (not self.failed and self.page.work()) or heard

    def _obey(self) -> bool:
        """Hand what was set since last time to the page; of a slider that moved, the last value."""
        latest: dict[str, Any] = {}
        while True:
            try:
                name, value = self.events.get_nowait()
            except queue.Empty:
                break
            latest[name] = value
        for name, value in latest.items():
            self.heard += 1
            if name == "page":
                self._turn(value)
            elif name == "click":
                self._click(*value)
            elif name in self.page.controls():
                control = self.page.controls()[name]
                if isinstance(control, Button) or control.accept(value) != control.value:
                    self.failed = ""
                    self.page.set(name, value)
        return bool(latest)

    def _turn(self, key: str) -> None:
        """Another page."""
        if key in PAGES and key != self.page.key:
            self.page.close()
            self.failed = ""
            self.page = PAGES[key](self.subject)
            self.chooser.value = self.page.title
            self._rebuild()

    def _click(self, robot: int | None, origin: Any, direction: Any) -> None:
        scene = self.page.scene()
        if scene is not None and self.robots is not None:
            near = self.robots.nearest(scene, origin, direction)
            self.page.clicked(near if robot is None else int(robot), origin, direction)

    def _rebuild(self) -> None:
        """Another page: its controls, its head and what it shows."""
        for name in list(self.handles):
            self.handles.pop(name).remove()
        self.controls = {}
        self.head.content = head(self.page.title, self.page.about)
        self.client.gui.main_panel.set_width(WIDE if self.page.wide else NARROW)
        self._draw(words=True)

    def _added(self, name: str, control: Control, order: float) -> Any:
        gui, how = self.client.gui, {"hint": control.about or None, "order": order}
        match control:
            case Slider():
                whole = control.step >= 1
                kind = int if whole else float
                step = control.step or (control.high - control.low) / 100 or 1.0
                handle = gui.add_slider(
                    control.label, kind(control.low), kind(control.high), kind(step), kind(control.value), **how
                )
            case Range():
                step = (control.high - control.low) / 200 or 1.0
                handle = gui.add_multi_slider(
                    control.label, control.low, control.high, step, tuple(control.value), **how
                )
            case Choice():
                handle = gui.add_dropdown(control.label, control.options, initial_value=control.value, **how)
            case Toggle():
                handle = gui.add_checkbox(control.label, control.value, **how)
            case Button():
                handle = gui.add_button(control.label, **how)
                handle.on_click(lambda _: self.events.put((name, True)))
                return handle
            case _:
                raise TypeError(f"no such control: {control!r}")
        handle.on_update(lambda e: self.events.put((name, e.target.value)))
        return handle

    def _synced(self) -> None:
        """Make the controls what the page has now. One that stays is left alone: someone may be moving it.

        Nor is a value overwritten that the browser has sent meanwhile: the page hears it next.
        """
        now, old = self.page.controls(), self.controls
        for name in [n for n in self.handles if n not in now or _shape(now[n]) != _shape(old[n])]:
            self.handles.pop(name).remove()
        for k, (name, control) in enumerate(now.items()):
            if name not in self.handles:
                self.handles[name] = self._added(name, control, 1000.0 + k)
            elif not isinstance(control, Button) and control.value not in (old[name].value, self.handles[name].value):
                self.handles[name].value = control.value
        self.controls = now

    def _draw(self, words: bool) -> None:
        scene = self.page.scene()
        if self.robots is not None and (scene is None or not self.robots.fits(scene)):
            self.robots.remove()
            self.robots = None
        if scene is not None and self.robots is None:
            self.robots = Robots(self.client, scene, lambda *click: self.events.put(("click", click)))
        elif scene is not None and self.robots is not None:
            self.robots.update(scene)
        self.pictures += 1
        if words:
            self._synced()
            _show(self.body, body((*self._wrong(), *self.page.blocks())))
            if (reports := self.page.reports()) != self.reports:
                self.reports = reports
                _show(self.under, body(reports) if reports else "")
            _show(self.foot, foot(self.page.command(), self.base + self.page.link()))

    def _wrong(self) -> tuple[Block, ...]:
        return (Note(plain(self.failed), warning=True),) if self.failed else ()

    def close(self) -> None:
        self.alive = False


def _show(handle: Any, content: str) -> None:
    if handle.content != content:
        handle.content = content


def _shape(control: Control) -> tuple[Any, ...]:
    """What of a control cannot be changed once it is drawn."""
    return (type(control), control.label, *(getattr(control, k, None) for k in ("low", "high", "options")))
