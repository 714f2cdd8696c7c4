"""A page of the lab: what a person sets, what is computed from it, and what there is to see. No browser here.

    set(name, value) -> asked        work() -> numbers, a slice at a time        blocks(), scene() -> what is shown

Every visitor has a page of their own, so two of them never share a state. A page computes in short slices, so that a control
is obeyed within a moment, and every rate it shows has its interval.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, ClassVar

import mujoco
import numpy as np

from surefoot import tasks
from surefoot.errors import SurefootError, unknown
from surefoot.lab.controls import Button, Control
from surefoot.lab.subject import Subject
from surefoot.report import Block
from surefoot.tasks.view.poses import Poses

GREEN, RED, BLUE, YELLOW = (47, 158, 68), (224, 49, 49), (66, 135, 245), (250, 200, 30)  # good, bad, running, chosen
ALONE = 0.2  # of a model's extent
ROOM = 1.25  # of a robot's own extent: the side of its square
SLICE = 0.04  # s of computing before the browser and the controls have their turn


@dataclass(frozen=True)
class Scene:
    """Robots to draw: n states of one model, each at a place of its own."""

    model: mujoco.MjModel
    q: np.ndarray  # (n, nq)
    at: np.ndarray  # (n, 2) m: added to where each stands
    colours: np.ndarray | None = None  # (n, 3) 0 to 255; None: the model's own
    arrows: np.ndarray = field(default_factory=lambda: np.zeros((0, 2, 3)))
    """(k, 2, 3) from, to: contact forces of the first robot"""
    names: tuple[str, ...] = ()
    """of each robot, shown over it; or none"""
    room: float = 0.0
    """m: how far each may be from where it is now, and still in the picture"""
    moved: float = 0.0
    """s, of simulated time: another value means that robots have moved"""


def kept(model: mujoco.MjModel, q: np.ndarray, room: float) -> np.ndarray:
    """(n, 2) m: what keeps robots with a free base within so much of where they are shown; others stay where they are."""
    if not _free(model):
        return np.zeros((len(q), 2))
    far = np.linalg.norm(q[:, :2], axis=1, keepdims=True)
    return np.asarray(-q[:, :2] * np.maximum(0.0, 1 - room / np.maximum(far, 1e-9)))


def _free(model: mujoco.MjModel) -> bool:
    return bool(model.njnt and model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE)


def alone(model: mujoco.MjModel) -> float:
    """m: how far a robot that stands by itself may go before the picture goes with it."""
    return ALONE * float(model.stat.extent) if _free(model) else 0.0


def squares(model: mujoco.MjModel, q: np.ndarray) -> tuple[np.ndarray, float]:
    """(n, 2) m: the middle of a square for each robot, in rows; and the room that there is around one."""
    side = ROOM * Poses(model).extent(q[:16])
    side = np.maximum(side, 0.3 * side.max())  # a square that can be seen, of a robot that is long and thin
    if _free(model):  # which may turn
        side = np.full(2, 0.8 * float(np.hypot(*side)))
    columns = max(1, round(float(np.sqrt(len(q) * side[1] / side[0]))))
    at = np.stack(np.divmod(np.arange(len(q)), columns)[::-1], 1).astype(float)  # (column, row)
    return (at - at.mean(0)) * side, 0.1 * float(side.min())


class Page(ABC):
    """One page for one visitor."""

    key: ClassVar[str]
    """its name in addresses"""
    title: ClassVar[str]
    about: ClassVar[str]
    """what it shows, in a sentence"""
    wide: ClassVar[bool] = False
    """whether its words need more room than its robots"""
    asked: Any
    """a frozen dataclass of what is set: a field for each control that is no button"""

    def __init__(self, subject: Subject):
        self.subject = subject

    @abstractmethod
    def controls(self) -> Mapping[str, Control]:
        """By name, with their values now."""

    @abstractmethod
    def moved(self, name: str) -> None:
        """A control has another value, or a button was pressed."""

    @abstractmethod
    def work(self) -> bool:
        """Compute a slice; whether there is something new to see."""

    @abstractmethod
    def blocks(self) -> Sequence[Block]: ...

    def reports(self) -> tuple[Block, ...]:
        """What stays as it is for long, to unfold: shown apart, so that what was unfolded stays so."""
        return ()

    @abstractmethod
    def command(self) -> str:
        """The command line that does the same."""

    def finish(self) -> None:  # noqa: B027
        """Compute all that the page counts to, for those who do not watch."""

    def scene(self) -> Scene | None:
        return None

    def clicked(self, robot: int, origin: np.ndarray, direction: np.ndarray) -> None:  # noqa: B027
        """A robot was clicked, by a ray from the camera."""

    def close(self) -> None:  # noqa: B027
        """The visitor has gone."""

    def set(self, name: str, value: Any) -> None:
        """What a browser sent; a value that is none of the control's is dropped."""
        control = self._control(name)
        found = control.accept(value)
        if found is None:
            return
        if not isinstance(control, Button):
            self.asked = replace(self.asked, **{name: found})
        self.moved(name)

    def open(self, settings: Mapping[str, str]) -> None:
        """Set what an address says; refused where it says what the page does not have."""
        for name, text in settings.items():
            control = self._control(name)
            value = control.read(text)
            if value is None:
                raise SurefootError(f"page {self.key}: {name}: found {text!r}, expected a value of this control")
            self.set(name, value)

    def link(self) -> str:
        """The address of the page as it is set, after the secret: /KEY&name=value&..."""
        texts = {name: c.text() for name, c in self.controls().items()}
        return "/" + "&".join([self.key, *(f"{name}={text}" for name, text in texts.items() if text)])

    def printed(self) -> str:
        """The command line that computes this page, as it is set, without a browser."""
        s = self.subject
        task = "" if s.run is None or s.reference in tasks.names() else f" --task {quote(s.reference)}"
        seed = "" if s.seed == 1 else f" --seed {s.seed}"
        return f"surefoot lab {quote(s.given)}{task}{seed} --page {quote(self.link()[1:])} --print"

    def _control(self, name: str) -> Control:
        controls = self.controls()
        if name not in controls:
            raise unknown("control", name, controls, f"page {self.key}")
        return controls[name]


class Clock:
    """Simulated time that keeps up with real time: how much of it is due, at most a slice's worth."""

    def __init__(self) -> None:
        self.owed, self.last = 0.0, time.monotonic()

    def due(self, speed: float, most: float = 0.2) -> float:
        """s of simulated time to compute now; time that was missed is not made up for."""
        now = time.monotonic()
        self.owed = min(self.owed + speed * (now - self.last), most * max(speed, 1.0))
        self.last = now
        return self.owed

    def spend(self, seconds: float) -> None:
        self.owed -= seconds

    def periods(self, speed: float, dt: float) -> int:
        """Whole control periods of dt that are due now; they are spent."""
        count = int(self.due(speed) / dt)
        self.spend(count * dt)
        return count


def parsed(address: str) -> tuple[str, dict[str, str]]:
    """A page's key and settings, of what comes after the secret."""
    key, *rest = address.strip("/").split("&")
    return key, dict(part.partition("=")[::2] for part in rest if "=" in part)
