"""A run of a policy on a robot: check, soft start, drive at absolute deadlines, damp, and leave a log.

    deadline_k = start + k / rate        each period: packets -> sanity -> controller -> limiter -> send, heartbeat, record

In the last moment before each deadline the same computation is rehearsed on the newest readings and its result thrown away: code and
weights that other programs have pushed out of the processor's caches since the last period are back when they are needed. A period in which no
new packet has come does not ask the policy again: the last command is held, and decays.

Any doubt ends in damping, which is sent until the robot acknowledges it: by this process, and by the watchdog's, which does it
alone when this one cannot. A dry run does all but send.
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.control.layers import counted
from surefoot.deploy.links import About, Command, Link, Packet, make
from surefoot.deploy.manifest import Bundle
from surefoot.deploy.runtime.checks import check_robot, check_speed
from surefoot.deploy.runtime.clock import Clock
from surefoot.deploy.runtime.controller import Controller
from surefoot.deploy.runtime.priority import RUNTIME, real_time
from surefoot.deploy.runtime.recorder import Recorder
from surefoot.deploy.runtime.sanity import Sanity
from surefoot.deploy.runtime.states import Event, States
from surefoot.deploy.runtime.surroundings import shown, signals, undisturbed
from surefoot.deploy.runtime.watchdog import Watchdog
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.report import Progress, Watch, unwatched

LISTEN = 0.3  # s of readings before anything is sent
PATIENCE = 1.0  # s for fresh readings
REACHED = 0.5  # rad or m that a joint may be off the policy's first pose after the soft start
SETTLE = 1.0  # s that it may take
FRESH = 1.8  # periods after which readings are stale; 2.8 of a robot that sends less than two packets a period
QUICKEST = 0.01  # s: no stream is called stale before
UNANSWERED = 5.0  # s of damping without an answer
AFTER = 0.3  # of the time between two packets: a deadline this long after one meets the next just as well
WARM = (
    0.0003  # s awake before a deadline, beside rehearsing: a processor that sleeps needs about as long to be fast again
)
SHORTEST = 0.002  # s: packets that come more often are heard together
EVERY = 0.005  # s between two calls for damping
REHEARSED = 10  # rehearsals that must fit into a period, else there is none


@dataclass(frozen=True)
class Settings:
    live: bool = False
    """send commands; else everything but that"""
    seconds: float = 20.0
    command: tuple[float, ...] = ()
    """what is asked of the policy, one number for each of the contract's command_names; empty: zeros"""
    misses: int = 3
    """deadlines in a row, or within a second, that may be missed; 1 % of a second's where that is more"""
    watchdog: float | None = None
    """s of silence after which the watchdog damps; default: three periods, at least 0.05 s"""
    keys: bool = False
    """any key of the terminal is an emergency stop"""
    speed: float = 1.0
    """of the clock, for rehearsals with a robot that runs at the same"""
    journal: Path | None = None
    """file of the log's rows while it runs, which is left where the runtime is killed"""


@dataclass
class Counts:
    """What happened in a run, by number."""

    periods: int = 0
    """in which the policy acted"""
    held: int = 0
    """in which the last command was held, for want of new readings"""
    limited: int = 0
    missed: int = 0
    sent: int = 0
    packets: Counter[str] = field(default_factory=Counter)
    layers: dict[str, int] = field(default_factory=dict)
    """what the policy's safety layers did, in periods"""

    def to_json(self) -> dict[str, Any]:
        return vars(self) | {"packets": dict(self.packets)}


@dataclass(frozen=True)
class Outcome:
    states: States
    counts: Counts
    log: Log | None
    about: About
    acknowledged: bool

    @property
    def good(self) -> bool:
        """It ran for its time and the robot says that it is damped."""
        return self.states.cause.event == "done" and self.acknowledged


class Run:
    """One run on one robot."""

    def __init__(self, bundle: Bundle, address: str, settings: Settings):
        self.bundle, self.address, self.settings = bundle, address, settings
        self.contract, self.limits = bundle.policy.contract, bundle.manifest.limits
        self.period, self.clock = 1 / self.contract.rate, Clock(settings.speed)
        self.states, self.counts = States(), Counts()
        self.recent: deque[float] = deque()  # deadlines missed in the last second
        self.link: Link = make(address)
        self.watchdog: Watchdog | None = None
        self.signal = ""
        self.in_row = 0
        self.heard = self.rehearsal = 0.0  # s that the newest packet took, and the first rehearsal of the last period
        self.used = -1  # packet that the policy has answered
        self.real_time = False
        self.acknowledged = not settings.live

    def __call__(self, watch: Watch = unwatched) -> Outcome:
        self.about = self.link.open()
        self.recorder = Recorder(self.contract, self.about, self.settings.journal)
        try:
            with signals(self._stop), undisturbed(), shown(self.progress, watch), real_time(RUNTIME) as self.real_time:
                self._drive()
        finally:
            self.link.close()
            if self.watchdog is not None and self.states.now == "checking":
                self.watchdog.close()
            if self.recorder.journal is not None:
                self.recorder.journal.close()
        return Outcome(self.states, self.counts, self._log(), self.about, self.acknowledged)

    def _drive(self) -> None:
        self._check()
        try:
            if self.states.now == "soft start":
                self._soft_start()
            if self.states.now in ("running", "dry"):
                self._act()
        except Exception as error:  # a defect, here or in a link: the robot comes first
            self._on("fault", f"{type(error).__name__}: {error}")
        finally:
            if self.states.now in ("soft start", "running"):
                self._on("stop", "interrupted")
            if self.states.now == "damping":
                self._damp()

    def _stop(self, what: str) -> None:
        """An emergency stop, at any instant: damping is asked for at once, and the loop does the rest."""
        self.signal = f"emergency stop: {what}"
        if self.states.now in ("soft start", "running"):
            self.link.damp()

    def progress(self) -> Progress:
        """Where the run is, with the numbers of its last period."""
        c = self.counts
        seconds, state = c.periods / self.contract.rate, self.states.now
        metrics = {"state": state, "live": self.settings.live, "seconds": seconds}
        metrics |= {"periods": c.periods, "missed": c.missed, "limited": c.limited}
        metrics |= self.recorder.newest()
        return Progress(f"{state}  {seconds:6.1f} s", min(1.0, seconds / self.settings.seconds), metrics)

    # ---- checking

    def _check(self) -> None:
        self.controller = Controller(self.bundle.policy, self.limits, self.about.parts)
        often = self.about.rate >= 2 * self.contract.rate * 0.99
        stale = max((FRESH if often else FRESH + 1) * self.period, QUICKEST * self.settings.speed)
        self.sanity = Sanity(self.controller, self.limits, stale, max(0.8 * self.period, 3.5 / self.about.rate))
        self.asked = np.array(self.settings.command or np.zeros(len(self.contract.command_names)), float)
        self._listen(LISTEN)
        assert self.sanity.newest is not None
        check_robot(self.contract, self.about, self.sanity.newest, self.asked)
        check_speed(self.controller, self.sanity.newest, self.asked, self.period / self.settings.speed)
        self.shadow = Controller(self.bundle.policy, self.limits, self.about.parts)
        self.rehearsal = self._rehearse()
        self.recorder.begin(self.sanity.newest, self.asked, self._meta())
        if not self.settings.live:
            self._on("dry", "nothing is sent")
            return
        silence = self.settings.watchdog or max(3 * self.period / self.settings.speed, 0.05)
        self.watchdog = Watchdog(self.address, silence, self.settings.keys)
        self._listen(0.0)  # to start a process takes a while, in which packets queue
        self._on("ready", "all checks hold")

    def _listen(self, seconds: float) -> None:
        """Hear for so long, and until the newest packet is fresh; refused where none is, or one is not sound."""
        until = self.clock.now() + seconds
        while (now := self.clock.now()) < until or self.sanity.age(now) > self.sanity.stale:
            if now > until + PATIENCE * self.settings.speed:
                raise SurefootError(f"robot: no fresh readings within {PATIENCE:g} s; nothing was sent")
            self.clock.sleep_until(now + self.period / 4)
            fault = self._hear()
            if fault:
                raise SurefootError(f"robot: {fault}; nothing was sent")

    # ---- periods

    def _soft_start(self) -> None:
        """Servos move from where they are to the pose in which the policy begins; what is no servo is driven by the policy at once."""
        assert self.sanity.newest is not None
        q, _ = self.controller.measured(self.sanity.newest.readings)
        if not self.contract.kp:
            self.controller.begin(self.controller.start())
            self._on("reached", "no servos to move")
            return
        home = np.clip(np.array(self.contract.first_pose), self.limits.low, self.limits.high)
        begin = np.clip(q, self.limits.low, self.limits.high)
        self.controller.begin(begin)
        steps = max(1, round(self.limits.soft_start * self.contract.rate))

        def act(k: int, packet: Packet, late: float) -> None:
            s = min(1.0, (self.controller.sent + 1) / steps)  # a period that was missed moves nothing
            target = begin + (3 - 2 * s) * s * s * (home - begin)
            command, _, sound = self.controller.towards(target, packet.readings, starting=True)
            self._send(command) if sound else self._on("fault", "a target is not a finite number")
            if s == 1.0 and self.states.now == "soft start":
                self._reached(home, packet, self.controller.sent - steps > SETTLE * self.contract.rate)

        self._periods(act, "soft start")

    def _reached(self, home: np.ndarray, packet: Packet, late: bool) -> None:
        off = np.abs(self.controller.measured(packet.readings)[0] - home)
        i = int(off.argmax())
        if off[i] > REACHED and late:
            what = f"{self.contract.joints[i]} is {off[i]:.2f} off its first pose"
            self._on("fault", f"soft start: {what}, expected within {REACHED:g}")
        elif off[i] <= REACHED:
            sent = self.controller.sent
            self.controller.begin(home)
            self.controller.sent = sent
            self._on("reached", "first pose")

    def _act(self) -> None:
        last = round(self.settings.seconds * self.contract.rate)

        def act(k: int, packet: Packet, late: float) -> None:
            if packet.sequence == self.used:
                self._send(self.controller.hold())
                self.counts.held += 1
            else:
                self._ask(packet, late)
            if k + 1 >= last:
                self._on("done", f"{self.settings.seconds:g} s")

        self._periods(act, self.states.now)

    def _ask(self, packet: Packet, late: float) -> None:
        """One period of the policy, on a packet that is new."""
        t = self.clock.now()
        period = self.controller.step(packet.readings, self.asked)
        if not (period.sound and all(map(isfinite, period.out.tolist()))):
            self._on("fault", "the policy's action is not a finite number")
            return
        spent = self._send(period.command) - t + self.heard
        self.used, age = packet.sequence, self.sanity.age(t)
        self.recorder.add(t - age, packet, period, self.asked, (age, late, spent))
        self.counts.periods += 1
        self.counts.limited += period.limited

    def _periods(self, act: Callable[[int, Packet, float], None], state: str) -> None:
        """Call act(k, newest packet, s after the deadline) at absolute deadlines for as long as the state lasts."""
        start, k = self.sanity.stale_at() - self.sanity.stale + AFTER / self.about.rate, 0
        while self.states.now == state:
            deadline = start + k * self.period
            fault = self._wait(deadline) or self._hear()
            now = self.clock.now()
            fault = fault or self.sanity.alive(now)
            if fault or self._stopped():
                self._on("fault", fault) if fault else None
            elif now >= deadline:
                assert self.sanity.newest is not None
                act(k, self.sanity.newest, now - deadline)
                k += 1 + self._missed(deadline)

    def _wait(self, deadline: float) -> str | None:
        """Until the deadline: hear packets as they come, and rehearse in the last moment. A sentence where the robot must stop."""
        nap, last = max(SHORTEST * self.settings.speed, 1 / self.about.rate), 0.0
        awake = min(AFTER / self.about.rate + self.rehearsal, self.period / 2) + WARM * self.settings.speed
        while (now := self.clock.now()) < deadline:
            if now < deadline - awake:
                self.clock.sleep_until(min(deadline - awake, self.sanity.stale_at(), now + nap))
            elif now + 1.5 * (last or self.rehearsal) < deadline and REHEARSED * self.rehearsal < self.period:
                first, last = not last, self._rehearse()
                self.rehearsal = last if first else self.rehearsal
            fault = self._hear() or self.sanity.alive(self.clock.now())
            if fault or self.signal:
                return fault
        if not last:
            self.rehearsal *= 0.99  # so long ago that it may be shorter now
        return None

    def _rehearse(self) -> float:
        """What a period computes, on the newest readings and for nobody; returns how long it took."""
        began = self.clock.now()
        assert self.sanity.newest is not None
        self.shadow.step(self.sanity.newest.readings, self.asked)
        self.sanity.rehearse()
        return self.clock.now() - began

    def _missed(self, deadline: float) -> int:
        """Periods that are over before they could be used: they are skipped and counted; too many end the run."""
        now = self.clock.now()
        behind = int((now - deadline) / self.period)
        self.counts.missed += behind
        self.in_row = self.in_row + behind if behind else 0
        self.recent.extend([now] * behind)
        while self.recent and self.recent[0] < now - 1.0:
            self.recent.popleft()
        most = max(self.settings.misses, 0.01 * self.contract.rate)
        if self.settings.live and (self.in_row >= self.settings.misses or len(self.recent) > most):
            self._on("fault", f"deadlines missed: {self.in_row} in a row, {len(self.recent)} within a second")
        return behind

    def _hear(self) -> str | None:
        """Take in all packets that have come; a sentence where the robot must stop."""
        began = self.clock.now()
        while (packet := self.link.read()) is not None:
            fault = self.sanity.take(packet, self.clock.now())
            if fault:
                return fault
            now = self.clock.now()
            self.heard, began = now - began, now
        return None

    def _stopped(self) -> bool:
        """Whether somebody pulled the brake: a signal, a key, the watchdog, or the robot itself."""
        alarm = self.watchdog.alarm() if self.watchdog is not None else None
        mode = self.sanity.newest.mode if self.sanity.newest is not None else "held"
        if self.signal or alarm:
            return self._on("stop", self.signal or f"watchdog: {alarm}")
        if mode == "stopped":
            return self._on("stop", "emergency stop of the robot")
        if mode == "damping" and self.settings.live:
            return self._on("fault", "the robot went into damping by itself")
        return False

    # ---- sending

    def _send(self, command: Command) -> float:
        """Returns when it was sent; the heartbeat comes after."""
        if not self.settings.live or self.signal:
            return self.clock.now()
        self.link.send(command)
        at = self.clock.now()
        self.counts.sent += 1
        if self.watchdog is not None:
            self.watchdog.beat()
        return at

    def _damp(self) -> None:
        """Until the robot says so; then the watchdog may go. It goes on alone where the robot does not answer."""
        began = time.monotonic()
        if self.watchdog is not None:
            self.watchdog.damped()
        while time.monotonic() - began < UNANSWERED:
            known: bool | None = False
            with suppress(Exception):  # of a link: try again
                self.link.send(self.controller.damping())
                self.link.damp()
                time.sleep(EVERY)
                while self.link.read() is not None:
                    pass
                known = self.link.acknowledged()
            if known or (known is None and time.monotonic() - began > 1.0):
                self.acknowledged = True
                self._on("acknowledged", "by the robot" if known else "the robot cannot say")
                break
        if self.watchdog is not None:
            self.watchdog.close() if self.acknowledged else self.watchdog.leave()

    def _on(self, event: Event, why: str) -> bool:
        return self.states.on(event, why, self.clock.now())

    def _meta(self) -> dict[str, Any]:
        parents = {**self.bundle.manifest.parents, "manifest": self.bundle.sha256}
        own = {"bundle": self.bundle.sha256, "live": self.settings.live, "real_time": self.real_time}
        return own | {"parents": parents, "facts": dict(self.about.facts)}

    def _log(self) -> Log | None:
        self.counts.packets, self.counts.layers = self.sanity.counts, counted(self.controller.driver.state)
        changes = [vars(c) for c in self.states.changes]
        return self.recorder.log(self._meta() | {"counts": self.counts.to_json(), "states": changes})


def drive(bundle: Bundle, address: str, settings: Settings, watch: Watch = unwatched) -> Outcome:
    """Run a bundle's policy on the robot at this address."""
    return Run(bundle, address, settings)(watch)
