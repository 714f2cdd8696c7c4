"""Seconds on the monotonic clock, and waiting for an instant of it. Rehearsals may run faster than the clock on the wall."""

import time


class Clock:
    """now = speed * (monotonic - start)"""

    def __init__(self, speed: float = 1.0):
        self.speed, self.start = speed, time.monotonic()

    def now(self) -> float:
        return (time.monotonic() - self.start) * self.speed

    def sleep_until(self, t: float) -> None:
        """Returns at t, or at once if it has passed."""
        left = (t - self.now()) / self.speed
        if left > 0:
            time.sleep(left)
