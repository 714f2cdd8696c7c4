"""The gate's report: a verdict as blocks, whether the gate has just made it or a gate.json kept it."""

from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.report import Axis, Badge, Block, Checks, Column, Details, Note, Plot, Rule, Series, Table, Text
from surefoot.verdict import Verdict

NAME = "gate.json"
INTERVAL = "a rate passes when a one-sided test proves it at 5 % error; the interval shown is two-sided, so it may reach past the limit"
ROWS = ("success", "low", "high", "limit")


def read(path: Path) -> tuple[Badge, tuple[Block, ...]]:
    """The badge and the blocks of a gate.json; refused where it is no gate's."""
    verdict = Verdict.from_json(files.read_json(path), str(path))
    try:
        return badge(verdict), blocks(verdict)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise SurefootError(f"{path}: expected what `surefoot gate` writes: {type(error).__name__}: {error}") from None


def badge(verdict: Verdict) -> Badge:
    failed, n = [c.name for c in verdict.checks if not c.holds], len(verdict.checks)
    if verdict.meta["interrupted"]:
        return Badge(f"FAIL: interrupted after {n - 1} checks, {len(failed) - 1} of them fail", False)
    if failed:
        return Badge(f"FAIL: {len(failed)} of {n} checks: {', '.join(failed)}", False)
    return Badge(f"PASS: {n} of {n} checks", True)


def blocks(verdict: Verdict) -> tuple[Block, ...]:
    """The checks, the explanation of a failure, and the evidence as plots."""
    meta, evidence = verdict.meta, verdict.meta["evidence"]
    shown: list[Block] = [*(Note(words, True) for words in meta["notes"]), Checks(verdict.checks)]
    if any(c.holds and c.low is not None and c.low < c.limit < c.value for c in verdict.checks):
        shown.append(Text(INTERVAL, "quiet"))
    shown += [Text(words, "bad") for words in meta["why"]]
    shown += [Text(f"not checked: {k}: {why}", "quiet") for k, why in meta["skipped"].items()]
    shown.append(Text(meta["seeds"]["sentence"], "quiet"))
    rates = {k: v for k, v in evidence.items() if isinstance(v, dict) and "success" in v}
    shown += [_rates(rates)] if rates else []
    if "latency" in evidence:
        shown.append(_margin("Added latency", evidence["latency"], 1000.0, "ms", meta["limits"]["success"]))
    if "push" in evidence:
        shown.append(_margin("Push", evidence["push"], 1.0, "N s", meta["limits"]["success"]))
    if "worst decile" in evidence:
        shown.append(_worlds(np.array(evidence["worst decile"]["margins"])))
    return (*shown, *_failures(evidence.get("rare failures", {}).get("failures")))


def _rates(rates: dict[str, dict[str, Any]]) -> Plot:
    """Success in each world, with its limit."""
    rows = [dict(r, at=i) | {k: 100 * r[k] for k in ROWS} for i, r in enumerate(rates.values())]
    series = []
    for name, good, tone in (("passes", True, "good"), ("fails", False, "bad")):
        x, at, low, high = ([r[k] for r in rows if r["holds"] is good] for k in ("success", "at", "low", "high"))
        series += [Series.of(name, x, at, low, high, style="dots", tone=tone)] if x else []
    series.append(Series.of("limit", [r["limit"] for r in rows], range(len(rows)), style="ticks", tone="quiet"))
    percent, worlds = Axis("success", "%", low=0, high=100), Axis(names=tuple(rates))
    caption = "95 % intervals. A world that was clear early has fewer episodes and a wider interval."
    return Plot("Success", tuple(series), percent, worlds, caption=caption)


def _margin(title: str, rungs: list[dict[str, float]], factor: float, unit: str, limit: float) -> Plot:
    """Success and survival against load."""
    x = [factor * r["load"] for r in rungs]
    y, low, high, lasted = ([100 * r[k] for r in rungs] for k in ("success", "low", "high", "lasted"))
    series = (
        Series.of("success", x, y, low, high, style="points", tone="good"),
        Series.of("lasts to the end", x, lasted, style="dashed", tone="quiet"),
    )
    rules = (Rule(100 * limit, "y", "limit"),)
    percent = Axis("episodes", "%", low=0, high=100)
    return Plot(title, series, Axis(title.lower(), unit), percent, rules, "The band is the 95 % interval.")


def _worlds(margins: np.ndarray) -> Plot:
    """Margins of episodes over the belief, in order."""
    x, bad = 100 * (np.arange(len(margins)) + 0.5) / len(margins), margins < 0
    series = (
        Series.of("success", x[~bad], margins[~bad], style="dots", tone="good"),
        Series.of("failure", x[bad], margins[bad], style="dots", tone="bad"),
    )
    caption = "Episodes over the belief, by margin (1 - error / tolerance): failures are below 0, falls below -1."
    rules = (Rule(0, "y"), Rule(10, "x", "worst decile"))
    return Plot("Worlds", series, Axis("episodes", "%", low=0, high=100), Axis("margin"), rules, caption)


def _failures(failures: list[dict[str, float]] | None) -> tuple[Block, ...]:
    if not failures:
        return ()
    columns = [Column(name, form=".3g") for name in failures[0]]
    rows = [list(world.values()) for world in failures]
    return (Details("Worlds in which it fails, worst first", (Table.of(columns, rows),)),)
