"""Stick figures as a film: one SVG file that moves by itself, without a script; also several side by side.

screen = (right . p, -up . p),   seen from the side and a little from the front; every figure follows its own pelvis
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

FPS = 15.0
FRAMES = 240  # of a film; a longer one is shown in fewer frames a second
WIDE, TALL = 260, 320  # of a panel


@dataclass(frozen=True, eq=False)
class Panel:
    """A figure: places (T, J, 3), the bones between them, and where the camera looks (T, 2)."""

    title: str
    pos: np.ndarray
    bones: Sequence[tuple[int, int]]
    centre: np.ndarray
    boxes: Sequence[np.ndarray] = ()
    """(T, 8, 3) corners of boxes"""


BOX = ((0, 1), (1, 3), (3, 2), (2, 0), (4, 5), (5, 7), (7, 6), (6, 4), (0, 4), (1, 5), (2, 6), (3, 7))


def film(panels: Sequence[Panel], rate: float) -> bytes:
    """The panels side by side, all of the same rate and number of frames."""
    T = min(len(p.pos) for p in panels)
    step = max(1, round(rate / FPS), -(-T // FRAMES))
    rows = np.arange(0, T, step)
    parts = [_panel(p, rows, k, T / rate) for k, p in enumerate(panels)]
    width = WIDE * len(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {TALL}" width="{width}" height="{TALL}">'
        f'<rect width="{width}" height="{TALL}" fill="#fafafa"/>{"".join(parts)}</svg>'
    ).encode()


def _panel(p: Panel, rows: np.ndarray, k: int, seconds: float) -> str:
    high = float(np.quantile(p.pos[rows][..., 2], 0.995)) + 0.1
    scale = (TALL - 70) / max(high, 0.3)
    frames = [_path(p, r, scale, k) for r in rows]
    floor = TALL - 40
    moving = f'<animate attributeName="d" calcMode="discrete" dur="{seconds:.3f}s" repeatCount="indefinite" values="{";".join(frames)}"/>'  # fmt: skip
    return (
        f'<line x1="{k * WIDE + 10}" x2="{(k + 1) * WIDE - 10}" y1="{floor}" y2="{floor}" stroke="#bbb"/>'
        f'<text x="{k * WIDE + WIDE / 2:.0f}" y="{TALL - 14}" text-anchor="middle" font-family="sans-serif" font-size="13" fill="#333">{escape(p.title)}</text>'
        f'<path d="{frames[0]}" fill="none" stroke="#1f5f8b" stroke-width="3" stroke-linecap="round">{moving}</path>'
    )


def _path(p: Panel, row: int, scale: float, k: int) -> str:
    xy = _screen(p.pos[row], p.centre[row], scale, k)
    lines = [f"M{xy[a, 0]:.0f} {xy[a, 1]:.0f}L{xy[b, 0]:.0f} {xy[b, 1]:.0f}" for a, b in p.bones]
    for box in p.boxes:
        c = _screen(box[row], p.centre[row], scale, k)
        lines += [f"M{c[a, 0]:.0f} {c[a, 1]:.0f}L{c[b, 0]:.0f} {c[b, 1]:.0f}" for a, b in BOX]
    return "".join(lines)


def _screen(pos: np.ndarray, centre: np.ndarray, scale: float, k: int) -> np.ndarray:
    """Pixels: x to the right and y a little away from the viewer."""
    x, y, z = (pos - np.array([centre[0], centre[1], 0.0])).T
    return np.stack([k * WIDE + WIDE / 2 + scale * (0.9 * x + 0.35 * y), TALL - 40 - scale * (z + 0.12 * y)], 1)


def bones_of(parents: Sequence[int]) -> list[tuple[int, int]]:
    return [(p, k) for k, p in enumerate(parents) if p >= 0]
