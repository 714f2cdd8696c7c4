"""A Plot as inline SVG, with its words in HTML around it.

The drawing is stretched to the width there is (a viewBox of 1000 x 1000), strokes keep their width, and all words keep
their size, so that one plot can be read on a phone and on paper. Names stand in a legend above, so they cover nothing.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

import numpy as np

from surefoot.report import Axis, Column, Plot, Series, Table, plain

SIZE = 1000
EDGE = 0.02  # of an axis, left free at both ends, so that a point there is seen whole
COLOURS = 6
MANY = 400  # points of a line from which on single ones have no tooltip
DRAWN = 1500  # of a line, at most
TOLD = 120  # rows of the table behind a plot, at most

Place = Callable[[float], float]


def text(words: object) -> str:
    """Anything as harmless text: names from files are shown, never obeyed."""
    return escape(plain(words))


def figure(plot: Plot, table: Callable[[Table], str]) -> str:
    """The plot with its legend, its words and the numbers behind it."""
    x, y = _span(plot, "x"), _span(plot, "y")
    px, py = _placer(plot.x, *x), _placer(plot.y, *y)
    down = lambda v: SIZE - py(v)  # noqa: E731
    rows = len(plot.y.names)
    words = "".join(_words(plot, px, down))
    height = f' style="height:{1.2 + 1.9 * rows:.1f}rem"' if rows else ' style="height:22rem"' if words else ""
    drawn = "".join([*_grid(plot, x, y, px, down), *_bands(plot, px, down), *_marks(plot, px, down)])
    svg = (
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" role="img" aria-label="{text(plot.title)}"{height}>'
        f"{drawn}</svg>"
    )
    svg = f'<div class="named">{svg}{words}</div>' if words else svg
    ylabel = f'<div class="ylabel">{text(plot.y.head)}</div>' if plot.y.head else ""
    left = (
        '<div class="rows">' + "".join(f"<span>{text(n)}</span>" for n in plot.y.names) + "</div>"
        if rows
        else f'<div class="ys">{"".join(_labels(plot.y, y, py, "bottom"))}</div>'
    )
    below = (
        f'<div class="xs">{"".join(_labels(plot.x, x, px, "left"))}</div><div class="xlabel">{text(plot.x.head)}</div>'
    )
    caption = f"<figcaption>{text(plot.caption)}</figcaption>" if plot.caption else ""
    drawing = f'<div class="plot">{ylabel}{left}{svg}{below}</div>'
    if words:  # which need room, on a phone too
        drawing = f'<div class="scroll">{drawing.replace("plot", "plot wide", 1)}</div>'
    return (
        f"<figure>{_legend(plot)}{drawing}{caption}"
        f"<details><summary>numbers</summary>{table(numbers(plot))}</details></figure>"
    )


def numbers(plot: Plot) -> Table:
    """What is drawn, a row a point; of long series every so many."""
    some = any(s.low for s in plot.series)
    head = ["series", Column(plot.x.label or "x", plot.x.unit, ".5g")]
    head.append("row" if plot.y.names else Column(plot.y.label or "y", plot.y.unit, ".5g"))
    head += [Column("low", form=".5g"), Column("high", form=".5g")] if some else []
    step = max(1, math.ceil(sum(len(s.x) for s in plot.series) / TOLD))
    rows = []
    for s in plot.series:
        for i in range(0, len(s.x), step):
            y = plot.y.names[round(s.y[i])] if plot.y.names else s.y[i]
            ends = ([s.low[i], s.high[i]] if s.low else [None, None]) if some else []
            rows.append([s.name, s.x[i], y, *ends])
    return Table.of(head, rows, f"every {step}th point" if step > 1 else "")


def _span(plot: Plot, which: str) -> tuple[float, float]:
    """The least and the most an axis shows."""
    axis: Axis = getattr(plot, which)
    if axis.names:
        return -0.5, len(axis.names) - 0.5
    ends = lambda s: (*s.low, *s.high) if (which == "x") == bool(plot.y.names) else ()  # noqa: E731
    values = [v for s in plot.series for v in (*getattr(s, which), *ends(s))]
    values += [r.at for r in plot.rules if r.axis == which]
    values += [0.0] if which == "x" and any(s.style == "bars" for s in plot.series) else []
    finite = [v for v in values if math.isfinite(v) and (axis.scale != "log" or v > 0)]
    low, high = (min(finite), max(finite)) if finite else (1.0, 10.0)
    pad = 0.04 * (high - low)
    if axis.scale != "linear":
        pad = 0.0
    low = low - (pad if which == "y" else 0) if axis.low is None else axis.low
    high = high + pad * (which == "y" or bool(plot.y.names)) if axis.high is None else axis.high
    if high > low:
        return low, high
    return (low / 2, high * 2) if axis.scale == "log" else (low - 0.5, high + 0.5)


def _scaled(axis: Axis) -> Place:
    if axis.scale == "log":
        return lambda v: math.log10(v) if v > 0 else math.nan
    if axis.scale == "symlog":  # linear up to 10, logarithmic beyond, smooth between
        return lambda v: math.asinh(v / 10)
    return lambda v: v


def _placer(axis: Axis, low: float, high: float) -> Place:
    """A value to a place from 0 to SIZE; names go downwards."""
    f = _scaled(axis)
    a, b = f(low), f(high)
    if axis.names:
        a, b = b, a
    edge = 0.0 if axis.names else EDGE
    return lambda v: SIZE * (edge + (1 - 2 * edge) * (f(v) - a) / (b - a))


def ticks(axis: Axis, low: float, high: float) -> list[float]:
    """About five round values: 1, 2 or 5 times a power of ten; those that have a name, where some have."""
    if axis.names or axis.marks:
        return [at for at, _ in axis.marks]
    if axis.scale == "log" and high / low > 3:
        found = [
            m * 10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)
        ]
        found = [v for v in found if low <= v <= high]
        return found if len(found) <= 7 else [v for v in found if math.isclose(math.log10(v) % 1, 0, abs_tol=1e-9)]
    if axis.scale == "symlog":
        powers = [10.0**k for k in range(1, 13)]
        return [v for v in (*(-p for p in powers[::-1]), 0.0, *powers) if low <= v <= high]
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = min((m * unit for m in (1, 2, 5, 10)), key=lambda s: abs(s - rough))
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _labels(axis: Axis, span: tuple[float, float], place: Place, side: str) -> Iterator[str]:
    named = dict(axis.marks)
    for v in ticks(axis, *span):
        at = place(v) / SIZE * 100
        edge = "first" if at < 1 else "last" if at > 99 else ""
        yield f'<span class="{edge}" style="{side}:{at:.2f}%">{text(named.get(v, f"{v:.6g}"))}</span>'


def _grid(plot: Plot, x: tuple[float, float], y: tuple[float, float], px: Place, py: Place) -> Iterator[str]:
    for v in ticks(plot.x, *x):
        yield f'<path class="grid" d="M{px(v):.1f} 0V{SIZE}"/>'
    for v in ticks(plot.y, *y) or range(len(plot.y.names)):
        yield f'<path class="grid" d="M0 {py(v):.1f}H{SIZE}"/>'
    for r in plot.rules:
        d = f"M{px(r.at):.1f} 0V{SIZE}" if r.axis == "x" else f"M0 {py(r.at):.1f}H{SIZE}"
        yield f'<path class="rule" d="{d}"><title>{text(r.name)} {r.at:.6g}</title></path>'


def _colour(plot: Plot, k: int) -> str:
    """A series' own tone, or the next colour; what is dashed has that of the series before it."""
    own = sum(not s.tone and s.style != "dashed" for s in plot.series[: k + 1])
    return plot.series[k].tone or f"c{max(own - 1, 0) % COLOURS}"


def _bands(plot: Plot, px: Place, py: Place) -> Iterator[str]:
    for k, s in enumerate(plot.series):
        if s.low and not plot.y.names:
            x, low, high = ([f(v) for v in values] for f, values in ((px, s.x), (py, s.low), (py, s.high)))
            for run in _runs(x, low, high):
                there = [f"{x[i]:.1f} {high[i]:.1f}" for i in run]
                back = [f"{x[i]:.1f} {low[i]:.1f}" for i in run[::-1]]
                yield f'<path class="band {_colour(plot, k)}" d="M{"L".join(there + back)}Z"/>'


def _runs(*columns: Sequence[float]) -> list[list[int]]:
    """Stretches of rows all of whose numbers are finite."""
    ok = np.isfinite(np.array(columns, float)).all(0)
    cuts = np.flatnonzero(np.diff(ok.astype(int))) + 1
    return [list(map(int, part)) for part in np.split(np.arange(len(ok)), cuts) if len(part) and ok[part[0]]]


def thinned(y: np.ndarray, most: int = DRAWN) -> np.ndarray:
    """Rows to draw of a long line: the least and the most of each stretch, so that no spike is lost."""
    if len(y) <= most:
        return np.arange(len(y))
    parts = np.array_split(np.arange(len(y)), most // 2)
    kept = [
        p[f(np.nan_to_num(y[p], nan=empty))] for p in parts for f, empty in ((np.argmin, np.inf), (np.argmax, -np.inf))
    ]
    return np.unique([0, *kept, len(y) - 1])


def _marks(plot: Plot, px: Place, py: Place) -> Iterator[str]:
    for k, s in enumerate(plot.series):
        yield f'<g class="{_colour(plot, k)}">' + "".join(_drawn(plot, s, px, py)) + "</g>"


def _drawn(plot: Plot, s: Series, px: Place, py: Place) -> Iterator[str]:
    if plot.y.names:
        yield from _on_rows(plot, s, px, py)
        return
    x, y = ([f(v) for v in values] for f, values in ((px, s.x), (py, s.y)))
    if s.style in ("line", "dashed", "step", "points"):
        rows = thinned(np.array(s.y))
        kind = "l dashed" if s.style == "dashed" else "l"
        for run in _runs([x[i] for i in rows], [y[i] for i in rows]):
            at = [(x[rows[i]], y[rows[i]]) for i in run]
            if s.style == "step":
                at = [p for a, b in zip(at, at[1:]) for p in (a, (b[0], a[1]))] + at[-1:]
            yield f'<path class="{kind}" d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in at)}"/>'
    if s.style in ("dots", "points") and len(s.x) <= 4 * MANY:
        size = "dot" if s.style == "points" else "small"
        for i in (i for run in _runs(x, y) for i in run):
            tip = _tip(plot, s, i) if len(s.x) <= MANY else ""
            yield f'<path class="{size}" d="M{x[i]:.1f} {y[i]:.1f}h0">{tip}</path>'


def _on_rows(plot: Plot, s: Series, px: Place, py: Place) -> Iterator[str]:
    """Values of named rows: bars from 0, dots with intervals, or ticks."""
    for i, (x, y) in enumerate(zip(s.x, s.y)):
        if not math.isfinite(x):
            continue
        tip, row = _tip(plot, s, i), py(y)
        if s.low and math.isfinite(s.low[i]) and math.isfinite(s.high[i]):
            yield f'<path class="ci" d="M{px(s.low[i]):.1f} {row:.1f}H{px(s.high[i]):.1f}">{tip}</path>'
        if s.style == "bars":
            yield f'<path class="bar" d="M{px(0.0):.1f} {row:.1f}H{px(x):.1f}">{tip}</path>'
        elif s.style == "ticks":
            half = 0.32 * SIZE / len(plot.y.names)
            yield f'<path class="tick" d="M{px(x):.1f} {row - half:.1f}V{row + half:.1f}">{tip}</path>'
        else:
            yield f'<path class="dot" d="M{px(x):.1f} {row:.1f}h0">{tip}</path>'


def _words(plot: Plot, px: Place, py: Place) -> Iterator[str]:
    """What stands beside dots."""
    for k, s in enumerate(plot.series):
        for x, y, label in zip(s.x, s.y, s.labels):
            at = f"left:{px(x) / SIZE:.2%};top:{py(y) / SIZE:.2%}"
            yield f'<span class="{_colour(plot, k)}" style="{at}">{text(label)}</span>'


def _tip(plot: Plot, s: Series, i: int) -> str:
    x = f"{s.x[i]:.5g} {plot.x.unit}".strip()
    y = plot.y.names[round(s.y[i])] if plot.y.names else f"{s.y[i]:.5g} {plot.y.unit}".strip()
    ends = f" ({s.low[i]:.5g} .. {s.high[i]:.5g})" if s.low else ""
    said = f"{y}: {x}{ends}" if plot.y.names else f"{x}: {y}{ends}"
    return f"<title>{text(f'{s.name}, {said}' if s.name else said)}</title>"


SWATCH = {
    "line": '<path class="l" d="M0 8H28"/>', "step": '<path class="l" d="M0 8H28"/>', "dashed": '<path class="l dashed" d="M0 8H28"/>',
    "points": '<path class="l" d="M0 8H28"/><path class="dot" d="M14 8h0"/>', "dots": '<path class="small" d="M14 8h0"/>',
    "bars": '<path class="bar" d="M2 8H26"/>', "ticks": '<path class="tick" d="M14 1V15"/>',
}  # fmt: skip


def _legend(plot: Plot) -> str:
    rows = []
    for k, s in enumerate(plot.series):
        if s.name and s.x:
            ends = (
                '<path class="ci" d="M2 8H26"/><path class="dot" d="M14 8h0"/>'
                if plot.y.names and s.low
                else SWATCH[s.style]
            )
            rows.append((f'<g class="{_colour(plot, k)}">{ends}</g>', s.name))
    rows += [('<path class="rule" d="M0 8H28"/>', r.name) for r in plot.rules if r.name]
    items = "".join(
        f'<li><svg viewBox="0 0 28 16" aria-hidden="true">{mark}</svg>{text(name)}</li>' for mark, name in rows
    )
    return f'<ul class="legend">{items}</ul>' if rows else ""
