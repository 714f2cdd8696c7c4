"""The verdict as a page: the table, success by world, both margins, and the worlds it fails in."""

from pathlib import Path
from typing import Any

import numpy as np

from surefoot.gate import report, suspects
from surefoot.verdict import Verdict

GOOD, BAD = "#187a3c", "#b3261e"


def page(path: Path, verdict: Verdict) -> Path:
    meta = verdict.meta
    evidence = meta["evidence"]
    said = "it may leave" if verdict.holds else "held back"
    if meta["interrupted"]:
        said = "stopped by hand: this is what was known"
    head, *rows = verdict.table()
    parts = [
        report.paragraph(f"{meta['policy']} for {meta['task']}: {said}.", "good" if verdict.holds else "bad"),
        report.table(head, rows),
        *(report.paragraph(s, "bad") for s in suspects.sentences(meta["suspects"])),
        *(report.paragraph(f"note: {n}") for n in meta["notes"]),
        *(report.paragraph(f"not checked: {k}: {why}") for k, why in meta["skipped"].items()),
        report.paragraph(meta["seeds"]["said"]),
        report.paragraph(f"next: {verdict.next_step}"),
    ]
    rates = {k: v for k, v in evidence.items() if isinstance(v, dict) and "success" in v}
    if rates:
        caption = "Success with 95 % intervals; a tick is the limit. Columns that stopped early are as sure as they had to be."
        parts += [report.heading("Success"), report.plot(lambda axes: _rates(axes, rates), caption, (8, 0.6 + 0.45 * len(rates)))]  # fmt: skip
    for name, title, unit, factor in (("latency", "Added latency", "ms", 1000.0), ("push", "Push", "N s", 1.0)):
        if name in evidence:
            draw = lambda axes, rungs=evidence[name], unit=unit, f=factor: _rungs(axes, rungs, unit, f)  # noqa: E731
            parts += [report.heading(title), report.plot(draw, f"Success (line, with 95 % intervals) and episodes that last (dashed) against load, {unit}.")]  # fmt: skip
    if "worst decile" in evidence:
        margins = np.array(evidence["worst decile"]["margins"])
        parts += [report.heading("Worlds"), report.plot(lambda axes: _margins(axes, margins), "Margins of episodes over the belief, in order: below 0 it failed, below -1 it fell.")]  # fmt: skip
    failures = evidence.get("rare failures", {}).get("failures")
    if failures:
        names = list(failures[0])
        parts += [report.paragraph("Worlds it fails in, the worst first:"), report.table(names, [[f"{w[n]:.3g}" for n in names] for w in failures])]  # fmt: skip
    return report.write(path, verdict.title, parts, verdict.to_json())


def _rates(axes: Any, rates: dict[str, dict[str, Any]]) -> None:
    for i, (_, r) in enumerate(rates.items()):
        colour = GOOD if r["holds"] else BAD
        axes.plot([100 * r["low"], 100 * r["high"]], [i, i], color=colour, lw=3, solid_capstyle="butt")
        axes.plot(100 * r["success"], i, "o", color=colour)
        axes.plot(100 * r["limit"], i, "|", color="0.4", ms=14)
    axes.set_yticks(range(len(rates)), list(rates))
    axes.set(xlim=(-2, 102), xlabel="success %")
    axes.invert_yaxis()


def _rungs(axes: Any, rungs: list[dict[str, float]], unit: str, factor: float) -> None:
    x = np.array([factor * r["load"] for r in rungs])
    y, low, high, lasted = (100 * np.array([r[k] for r in rungs]) for k in ("success", "low", "high", "lasted"))
    axes.plot(x, y, "o-", color=GOOD, label="success")
    axes.fill_between(x, low, high, color=GOOD, alpha=0.15, lw=0)
    axes.plot(x, lasted, "--", color="0.4", label="lasts")
    axes.set(xlabel=unit, ylabel="% of episodes", ylim=(-3, 103))
    axes.legend()


def _margins(axes: Any, margins: np.ndarray) -> None:
    axes.plot(100 * (np.arange(len(margins)) + 0.5) / len(margins), margins, ".", color=GOOD)
    axes.plot(100 * (np.arange((margins < 0).sum()) + 0.5) / len(margins), margins[margins < 0], ".", color=BAD)
    axes.axhline(0, color="0.5", lw=0.8)
    axes.axvline(10, color="0.5", lw=0.8, ls=":")
    axes.set(xlabel="% of episodes", ylabel="margin", ylim=(-2.1, 1.1))
