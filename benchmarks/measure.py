"""What every benchmark shares: rows with a spread and a goal, ratios from one interleaved run, tables and records.

A ratio is never taken between two runs: contenders take turns within one process, forwards and then backwards, so that
a machine that slows down or speeds up does so for all. A row gives the median and, as low and high, the least and
largest of its repetitions. A goal holds if the median meets it.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
LIBRARIES = "surefoot mujoco torch numpy gymnasium stable-baselines3 rsl-rl-lib envpool rltools".split()
PAIRS = 7


@dataclass(frozen=True)
class Row:
    name: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    goal: str | None = None
    """such as '>= 0.9'; None where a number is reported without a promise"""
    holds: bool | None = None
    note: str = ""
    """why there is no number, or what to know about it"""


Part = Callable[[bool], Iterable[Row]]
"""quick -> rows"""


def row(
    name: str,
    values: Sequence[float] | np.ndarray | float,
    unit: str,
    at_least: float | None = None,
    at_most: float | None = None,
    note: str = "",
) -> Row:
    """The median of some repetitions with their spread, against a goal where there is one."""
    x = np.atleast_1d(np.asarray(values, float))
    middle = float(np.median(x))
    goal = f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}" if at_most is not None else None
    holds = None if goal is None else middle >= at_least if at_least is not None else middle <= at_most
    finite = [v if np.isfinite(v) else None for v in (middle, float(x.min()), float(x.max()))]
    return Row(name, *finite, unit, goal, None if holds is None else bool(holds), note)


def skipped(name: str, why: str) -> Row:
    return Row(name, None, None, None, "", note=why)


def said(what: str) -> None:
    """A line of progress, for parts that take an hour; on stderr, as tables and JSON have stdout."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(contenders: Mapping[str, Callable[[], float]], rounds: int = PAIRS) -> dict[str, np.ndarray]:
    """Each contender's number in each round; they take turns, and every other round goes backwards."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for k in range(rounds):
        for name in list(contenders)[:: 1 if k % 2 == 0 else -1]:
            found[name].append(contenders[name]())
    return {name: np.array(values) for name, values in found.items()}


def machine() -> dict[str, Any]:
    """Where this was measured, and how busy it was."""
    cpu = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), cpu)
    except OSError:
        pass  # not Linux
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    return {"cpu": cpu, "cores": cores, "system": platform.platform(), "load": round(os.getloadavg()[0], 2)}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def table(title: str, rows: Sequence[Row]) -> Table:
    out = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("", "median", "least .. largest", "unit", "goal", ""):
        out.add_column(name, justify="right" if name in ("median", "least .. largest") else "left", overflow="fold")
    for r in rows:
        spread = "" if r.low == r.high else f"{_short(r.low)} .. {_short(r.high)}"
        mark = {None: "", True: "[green]holds[/]", False: "[red]fails[/]"}[r.holds]
        out.add_row(r.name, _short(r.value), spread, r.unit, r.goal or "", mark)
        if r.note:
            out.add_row(f"  [dim]{r.note}[/]", "", "", "", "", "")
    return out


def _short(x: float | None) -> str:
    if x is None:
        return "-"
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def record(name: str, part: str, rows: Sequence[Row], spent: float, load: float) -> Path:
    """One file a benchmark; a part that is run again replaces its own earlier record and no other's."""
    path = RESULTS / f"{name}.json"
    parts = json.loads(path.read_text())["parts"] if path.exists() else {}
    parts[part] = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "seconds": round(spent, 1),
        "machine": machine() | {"load": load}, "versions": versions(), "rows": [asdict(r) for r in rows],
    }  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps({"benchmark": name, "parts": parts}, indent=1, allow_nan=False) + "\n")
    from benchmarks import recorded  # which reads this file, too

    recorded.write()
    return path


def parser(name: str, about: str, parts: Sequence[str]) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    flags = argparse.ArgumentParser(f"python -m benchmarks.{name}", description=about)
    flags.add_argument("--only", choices=list(parts), action="append", help="run this part (may be repeated)")
    flags.add_argument("--quick", action="store_true", help="a smoke run: do the parts work? Its numbers mean nothing")
    flags.add_argument("--json", action="store_true", help="print a list of rows in place of the tables")
    flags.add_argument("--record", action="store_true", help=f"write benchmarks/results/{name}.json")
    return flags


def parsed(flags: argparse.ArgumentParser) -> argparse.Namespace:
    asked = flags.parse_args()
    if asked.quick and asked.record:
        flags.error("--quick numbers mean nothing: they cannot be recorded")
    return asked


def main(name: str, about: str, parts: Mapping[str, Part], later: Sequence[str] = ()) -> None:
    """Run the parts asked for, all but `later` ones if none is; print a table, or JSON; record if asked."""
    asked = parsed(parser(name, about, list(parts)))
    shown(name, {part: parts[part] for part in asked.only or [p for p in parts if p not in later]}, asked)


def shown(name: str, parts: Mapping[str, Part], asked: argparse.Namespace) -> None:
    """Run these parts, and print and record as the flags say."""
    console, found = Console(stderr=asked.json, width=None if sys.stdout.isatty() else 140), []
    for part, run in parts.items():
        load, began = os.getloadavg()[0], time.perf_counter()
        rows = [replace(r, goal=None, holds=None) if asked.quick else r for r in run(asked.quick)]
        spent = time.perf_counter() - began
        found += rows
        what = " · quick: not a measurement" if asked.quick else ""
        console.print(table(f"\n{name} · {part} ({spent:.0f} s){what}", rows))
        if asked.record:
            console.print(f"recorded in {record(name, part, rows, spent, round(load, 2))}")
    if asked.json:
        print(json.dumps([asdict(r) for r in found], indent=1, allow_nan=False))
