"""Where a camera stands so that all of some balls are in its picture.

ball: centre p, radius s, about the middle m of all balls;  r, u, c: right, up, and back towards the camera, at distance d of m

    t = tan(half of the vertical field of view), w = width / height;  m is shown at height y t of the picture, y from -1 to 1
    within a plane that is an angle a from the axis, upwards:   d (sin a - y t cos a) >= p.u cos a + p.c sin a + s
    sideways, b = atan(t w):                                    d sin b >= |p.r| cos b + p.c sin b + s
"""

from dataclasses import dataclass

import numpy as np

ONE, MANY = 24.0, 38.0  # degrees from which one robot is looked down at, and many
TURN = 8.5  # degrees from the side
PHONE = 576  # pixels of a window below which viser puts its panel over the lower part of the picture
COVERED = 0.6  # of the height, there
MARGIN = 0.93  # of the picture is used


@dataclass(frozen=True)
class Frame:
    """What of a picture is to be seen."""

    width: int
    height: int
    fov: float

    @property
    def low(self) -> float:
        """-1 where all of it is; the height up to which it is covered."""
        return 2 * COVERED - 1 if self.width < PHONE else -1.0


def placed(p: np.ndarray, s: np.ndarray, frame: Frame, down: float = ONE) -> tuple[np.ndarray, np.ndarray]:
    """Position of the camera, and what it looks at, for balls p (k, 3) of radii s (k,)."""
    m = 0.5 * ((p - s[:, None]).min(0) + (p + s[:, None]).max(0))
    t, y = np.tan(0.5 * frame.fov), 0.5 * (1 + frame.low)
    steep, turn = (
        np.radians(down) + np.arctan(y * t),
        np.radians(TURN),
    )  # what is above the axis is seen less from above
    c = np.array([np.sin(turn) * np.cos(steep), -np.cos(turn) * np.cos(steep), np.sin(steep)])
    r = np.cross(-c, [0, 0, 1.0])
    r /= np.linalg.norm(r)
    u, off = np.cross(r, -c), p - m
    half = MARGIN * 0.5 * (1 - frame.low)
    above, below = np.arctan(t * (y + half)), np.arctan(t * (y - half))
    side = np.arctan(MARGIN * t * frame.width / max(frame.height, 1))
    ahead = off @ c
    needs = (
        (off @ u * np.cos(above) + ahead * np.sin(above) + s) / (np.sin(above) - y * t * np.cos(above)),
        (-off @ u * np.cos(below) - ahead * np.sin(below) + s) / (y * t * np.cos(below) - np.sin(below)),
        (np.abs(off @ r) * np.cos(side) + ahead * np.sin(side) + s) / np.sin(side),
    )
    d = float(np.max(needs))
    look = m - y * t * d * u
    return look + d * c, look
