"""Are the robot's readings to be believed? Each packet is checked before anything is computed from it.

    fresh      its number is higher than all before; others (twice, out of order) are counted and dropped
    sound      all numbers finite, lengths as they were, unit quaternions, no motor over its temperature
    plausible  joints move no further than their speed allows, and no faster than twice it; the base turns less than TURN
    alive      not older than `stale` seconds, and not the same numbers for `frozen` seconds
    upright    the base is tilted less than its limit

A packet's age is measured on the robot's clock: age = (received - stamp) - the least of that so far, which drifts up by DRIFT, so
that the two clocks need not agree and packets that queue somewhere count as old.
"""

from collections import Counter
from collections.abc import Mapping
from math import isfinite

import numpy as np

from surefoot.deploy.limits import Limits
from surefoot.deploy.links import Packet
from surefoot.deploy.runtime.controller import Controller

DRIFT = 1e-4  # s/s between two clocks
NORM = 0.05  # of a unit quaternion's length
SLACK = 0.1  # rad or m that a joint may jump beyond its speed
TURN = 50.0  # rad/s of the base
OVER = 2.0  # times a joint's speed or torque limit: a reading of this much is wrong, or a reason to stop


class Sanity:
    """Keeps what it needs of earlier packets. `take` gives a sentence where the robot must stop, else None."""

    def __init__(self, controller: Controller, limits: Limits, stale: float, frozen: float):
        self.controller, self.limits, self.stale, self.frozen = controller, limits, stale, frozen
        self.newest: Packet | None = None
        self.flat: list[float] = []  # its numbers
        self.most = (OVER * limits.velocity).tolist()
        self.offset = np.inf
        self.heard = self.changed = 0.0
        self.counts: Counter[str] = Counter()

    def take(self, packet: Packet, now: float) -> str | None:
        """Check a packet that was received at `now`; what is sound becomes the newest."""
        last = self.newest
        self.counts["packets"] += 1
        if last is not None and packet.sequence <= last.sequence:
            self.counts["twice" if packet.sequence == last.sequence else "out of order"] += 1
            return None
        if last is not None:
            self.counts["lost"] += packet.sequence - last.sequence - 1
        flat = _numbers(packet)
        fault = self._sound(packet, last, flat) or (self._plausible(packet, last) if last is not None else None)
        if fault:
            return fault
        gone = 0.0 if last is None else now - self.heard
        self.offset = min(self.offset + DRIFT * gone, now - packet.stamp)
        self.heard = now
        if packet.mode != "driven" or flat != self.flat:
            self.changed = packet.stamp  # on its stand it may measure the same again and again
        self.newest, self.flat = packet, flat
        return self._upright(packet.readings)

    def rehearse(self) -> None:
        """The same computation on the newest packet, for nobody."""
        if self.newest is not None:
            flat = _numbers(self.newest)
            self._sound(self.newest, None, flat)
            self._plausible(self.newest, self.newest)
            _ = flat != self.flat
            self._upright(self.newest.readings)

    def age(self, now: float) -> float:
        """s since the newest packet was measured."""
        return np.inf if self.newest is None else now - self.newest.stamp - self.offset

    def alive(self, now: float) -> str | None:
        """What is wrong with the stream, looked at from `now`."""
        if self.age(now) > self.stale:
            return f"stale readings: the newest is {1000 * self.age(now):.0f} ms old, expected at most {1000 * self.stale:.0f}"
        same = 0.0 if self.newest is None else self.newest.stamp - self.changed
        if same > self.frozen:
            return f"frozen readings: the same numbers for {1000 * same:.0f} ms"
        return None

    def stale_at(self) -> float:
        """The instant at which the stream is stale, if nothing comes."""
        return np.inf if self.newest is None else self.newest.stamp + self.offset + self.stale

    def _sound(self, packet: Packet, last: Packet | None, flat: list[float]) -> str | None:
        if last is not None and not packet.stamp > last.stamp:
            return f"the robot's clock went back: {packet.stamp:.6f} s after {last.stamp:.6f} s"
        if not all(map(isfinite, flat)):
            name = next(k for k, x in packet.readings.items() if not np.isfinite(x).all())
            return f"{name}: found a reading that is not a finite number"
        for name, x in packet.readings.items():
            if name.startswith("base_quat") and not abs(float(x @ x) - 1.0) <= 2 * NORM:
                return f"{name}: found a quaternion of length {float(x @ x) ** 0.5:.3f}, expected 1"
        hot = packet.readings.get("temperature")
        if hot is not None and (hot > self.limits.temperature).any():
            return f"temperature: found {hot.max():.0f} C, expected at most {self.limits.temperature:.0f} C"
        return None

    def _plausible(self, packet: Packet, last: Packet) -> str | None:
        if packet.readings.keys() != last.readings.keys():
            return "readings: found other names than before"
        elapsed = packet.stamp - last.stamp
        if self.controller.places is not None:
            (q, v), (q0, _) = self.controller.measured(packet.readings), self.controller.measured(last.readings)
            for i, (x, speed, x0, most) in enumerate(zip(q.tolist(), v.tolist(), q0.tolist(), self.most)):
                fast = abs(speed) > most
                if fast or abs(x - x0) > most * elapsed + SLACK:
                    joint = self.controller.contract.joints[i]
                    what = f"moves at {speed:.1f}" if fast else f"jumped by {x - x0:.2f} in {1000 * elapsed:.0f} ms"
                    return f"{joint}: {what}, more than {OVER:g} times its speed of {self.limits.velocity[i]:.1f}"
        quat, quat0 = packet.readings.get("base_quat"), last.readings.get("base_quat")
        if quat is not None and quat0 is not None:
            turned = 2 * np.arccos(min(1.0, abs(float(quat @ quat0))))
            if turned > TURN * elapsed + SLACK:
                return f"base_quat: turned by {turned:.2f} rad in {1000 * elapsed:.0f} ms"
        return None

    def _upright(self, readings: Mapping[str, np.ndarray]) -> str | None:
        quat = readings.get("base_quat")
        if quat is None or not np.isfinite(self.limits.tilt):
            return None
        w, x, y, z = (float(k) for k in quat)
        up = (w * w - x * x - y * y + z * z) / (w * w + x * x + y * y + z * z)  # of the base's z axis
        tilt = float(np.arccos(max(-1.0, min(1.0, up))))
        return (
            f"fallen: tilted by {tilt:.2f} rad, expected at most {self.limits.tilt:.2f}"
            if tilt > self.limits.tilt
            else None
        )


def _numbers(packet: Packet) -> list[float]:
    """All of its readings, one after the other; plain numbers, of which one robot has few."""
    return [x for reading in packet.readings.values() for x in reading.tolist()]
