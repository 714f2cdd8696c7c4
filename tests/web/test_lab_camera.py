"""Whatever is drawn is in the picture, and of a phone's picture in the part that no panel covers."""

import numpy as np
import pytest

from surefoot.web.lab.camera import COVERED, MANY, ONE, Frame, placed


def seen(p: np.ndarray, position: np.ndarray, look: np.ndarray, frame: Frame) -> np.ndarray:
    """(k, 2) of points in the picture, -1 to 1, by a pinhole camera."""
    ahead = (look - position) / np.linalg.norm(look - position)
    right = np.cross(ahead, [0, 0, 1.0])
    right /= np.linalg.norm(right)
    off, t = p - position, np.tan(0.5 * frame.fov)
    z = off @ ahead
    assert (z > 0).all()
    return np.stack([off @ right / (z * t * frame.width / frame.height), off @ np.cross(right, ahead) / (z * t)], 1)


@pytest.mark.parametrize("down", [ONE, MANY])
@pytest.mark.parametrize("frame", [Frame(956, 900, 1.31), Frame(390, 844, 1.31), Frame(2000, 700, 0.8)])
def test_every_ball_is_in_the_part_of_the_picture_that_is_seen(frame: Frame, down: float) -> None:
    rng = np.random.default_rng(0)
    for size in ([1, 1, 1], [8, 2, 0.5], [0.1, 6, 3]):
        p, s = rng.uniform(-1, 1, (40, 3)) * size + [5, -3, 1], rng.uniform(0.02, 0.5, 40)
        ways = rng.standard_normal((400, 3))
        surface = (p[:, None] + s[:, None, None] * ways / np.linalg.norm(ways, axis=1, keepdims=True)).reshape(-1, 3)
        at = seen(surface, *placed(p, s, frame, down), frame)
        low = 2 * COVERED - 1 if frame.width < 576 else -1
        assert (np.abs(at[:, 0]) < 1).all() and (at[:, 1] < 1).all() and (at[:, 1] > low).all()
        assert np.ptp(at[:, 0]) > 1.3 or np.ptp(at[:, 1]) > 0.65 * (1 - low), "and it is not far away"
