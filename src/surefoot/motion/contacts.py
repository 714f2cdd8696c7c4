"""When feet and hands touch something that stands still, by height and speed.

    touches(t) = height(t) < floor + HIGH L  and  |velocity(t)| < FAST L        floor: of this very landmark, where it is slow

L is the length of a leg, so that children and giants have the same labels. The floor of a foot's landmark is found in the
recording, so no height of a sole is assumed. Short touches and short gaps are smoothed away.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.motion.person import Person

HIGH, FAST = 0.06, 0.45  # of a leg's length; of a leg's length per second
LOW = 0.05  # quantile of heights that is the floor's
SHORT = 0.06  # s
SMOOTH = 0.05  # s over which velocities are taken


@dataclass(frozen=True, eq=False)
class Contacts:
    """names and (T, names) flags."""

    names: tuple[str, ...]
    flags: np.ndarray
    floor: Mapping[str, float]
    """m: height of each landmark when it is on the floor"""

    def of(self, name: str) -> np.ndarray:
        return self.flags[:, self.names.index(name)]


def leg_length(person: Person, marks: Mapping[str, int]) -> float:
    """m from hip to ankle along the bones."""
    mean = lambda a, b: np.median(np.linalg.norm(person.pos[:, marks[a]] - person.pos[:, marks[b]], axis=1))  # noqa: E731
    return float(sum(mean(f"{s}_hip", f"{s}_knee") + mean(f"{s}_knee", f"{s}_ankle") for s in ("left", "right")) / 2)


def speed(time: np.ndarray, pos: np.ndarray) -> np.ndarray:
    """(T,) m/s of a place (T, 3), over SMOOTH seconds."""
    k = max(1, round(SMOOTH / 2 / float(np.median(np.diff(time)))))
    i = np.arange(len(time))
    a, b = np.maximum(i - k, 0), np.minimum(i + k, len(time) - 1)
    return np.asarray(np.linalg.norm(pos[b] - pos[a], axis=1) / np.maximum(time[b] - time[a], 1e-9))


def contacts(person: Person, marks: Mapping[str, int], ground: Mapping[str, np.ndarray] | None = None) -> Contacts:
    """Of the feet with the floor (both ankle and toe where there is a toe); of the hands with anything that is as low as that.

    `ground`: side -> (T,) m, height of what is under a foot, such as a step; without it all is one floor.
    """
    L, dt = leg_length(person, marks), 1 / person.rate
    names, flags, floor = [], [], {}
    for side in ("left", "right"):
        whole = np.ones(len(person), bool)
        for part in ("ankle", "toe"):
            if f"{side}_{part}" not in marks:
                continue
            pos = person.pos[:, marks[f"{side}_{part}"]].copy()
            if ground is not None:
                pos[:, 2] -= ground[side]
            fast = speed(person.time, person.pos[:, marks[f"{side}_{part}"]])
            slow = fast < FAST * L
            low = float(np.quantile(pos[slow, 2] if slow.sum() > 2 else pos[:, 2], LOW))
            floor[f"{side}_{part}"] = low
            whole &= slow & (pos[:, 2] < low + HIGH * L)
        names.append(f"{side}_foot")
        flags.append(smoothed(whole, max(1, round(SHORT / dt))))
    standing = float(np.mean([floor[f"{s}_ankle"] for s in ("left", "right")]))
    for side in ("left", "right"):
        pos = person.pos[:, marks[f"{side}_wrist"]]
        hit = (pos[:, 2] < standing + HIGH * L) & (speed(person.time, pos) < FAST * L)
        names.append(f"{side}_hand")
        flags.append(smoothed(hit, max(1, round(SHORT / dt))))
    return Contacts(tuple(names), np.stack(flags, 1), floor)


def smoothed(flag: np.ndarray, least: int) -> np.ndarray:
    """Without gaps, and then without runs, shorter than `least` rows; gaps and runs at the ends stay."""
    out = flag.copy()
    for value in (False, True):
        for a, b in runs(out == value):
            if b - a < least and a > 0 and b < len(out):
                out[a:b] = not value
    return out


def runs(flag: np.ndarray) -> list[tuple[int, int]]:
    """(first, one after the last) of each stretch that is true."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flag.astype(int), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))
