"""A run on a robot, on the terminal: its state, its clock and what it sends, drawn in place five times a second."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table as Grid
from rich.text import Text as Styled

from surefoot.report import Progress

WIDE, MOST = 24, 16  # columns of a bar, and targets shown
TONES = {"running": "green", "dry": "cyan", "soft start": "yellow", "checking": "yellow", "damping": "red", "ended": ""}


class Dashboard:
    """Drawn over itself; gone when it ends, for the report follows."""

    def __init__(self, say: Console):
        self.live = Live(console=say, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        self.live.start()
        self.span: dict[int, tuple[float, float]] = {}

    def __call__(self, p: Progress) -> None:
        for k, x in enumerate(p.metrics.get("target", [])[:MOST]):
            low, high = self.span.get(k, (x, x))
            self.span[k] = min(low, x), max(high, x)
        self.live.update(self.drawn(p), refresh=True)

    def drawn(self, p: Progress) -> Panel:
        m = p.metrics
        grid = Grid.grid(padding=(0, 2))
        head = Styled(str(m["state"]), style=f"bold {TONES.get(m['state'], '')}".strip())
        grid.add_row("state", head, _bar(p.share or 0.0), f"{m['seconds']:.1f} s")
        grid.add_row("periods", f"{m['periods']}", f"missed {m['missed']}   limited {m['limited']}", "")
        if "age" in m:
            grid.add_row("timing", *_times(m))
        for k, x in enumerate(m.get("target", [])[:MOST]):
            low, high = self.span[k]
            grid.add_row(f"target {k + 1}", f"{x:8.3f}", _bar((x - low) / (high - low) if high > low else 0.5), "")
        foot = "any key is an emergency stop" if m["live"] else "dry: nothing is sent"
        return Panel(grid, title="surefoot run", subtitle=foot, expand=False)

    def end(self) -> None:
        self.live.stop()


def _times(m: Mapping[str, Any]) -> tuple[str, str, str]:
    ms = {k: f"{1000 * m[k]:.2f} ms" for k in ("compute", "late", "age")}
    return f"compute {ms['compute']}", f"late {ms['late']}", f"readings {ms['age']} old"


def _bar(share: float) -> str:
    full = round(WIDE * min(1.0, max(0.0, share)))
    return "█" * full + "░" * (WIDE - full)
