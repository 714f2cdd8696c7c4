"""`surefoot log`: what a robot recorded, told, drawn and kept in our own form."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files
from surefoot.console import Answer, Line
from surefoot.formats.raw import listed
from surefoot.log import Log


@dataclass
class ReadLog:
    """What is in a robot's log (csv, json, npz, mat, parquet, mcap, rosbag2, LeRobot v3); drawn, resampled, saved."""

    file: Positional[Path]
    """the file, or the folder of a rosbag2 or a LeRobot dataset"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what its columns are; see docs/logs.md"""
    rate: float | None = None
    """Hz of the result: of the rows where the file has no clock, else what it is resampled to"""
    episode: int = 0
    """which one of a dataset"""
    mend: bool = False
    """drop rows whose stamps repeat or go back, and say so, rather than refuse the file"""
    plot: Path | None = None
    """write a picture (.png)"""
    save: Path | None = None
    """write it as a log of our own (.npz), over what had this name; never over the file that is read"""

    def run(self, say: Console) -> Answer:
        from surefoot.formats.about import about, draw

        reads = (self.file, self.mapping)
        if self.save:
            files.check_writable(self.save, "--save", ".npz", reads)
        if self.plot:
            files.check_writable(self.plot, "--plot", ".png", reads)
        line = Line(say)
        line.text(f"reading {self.file}")
        try:
            log = Log.read(self.file, self.mapping, self.rate, self.episode, self.mend)
        finally:
            line.end()
        facts = about(log)
        shown: list[Any] = [_heading(facts), _table(facts), *_remarks(facts)]
        if self.plot:
            facts["plot"] = str(draw(log, self.plot))
            shown.append(f"picture: {self.plot}")
        if self.save:
            facts["saved"] = str(log.save(self.save))
            shown.append(f"saved: {self.save}")
        return Answer(facts, shown, self._next())

    def _next(self) -> str:
        if self.save:
            return f"surefoot log {self.save}"
        told = (f" --map {self.mapping}" if self.mapping else "") + (f" --rate {self.rate:g}" if self.rate else "")
        save = f" --save {self.file.stem}.npz" if self.file.suffix != ".npz" else ""
        return f"surefoot log {self.file}{told} --plot {self.file.stem}.png{save}"


def _heading(f: dict[str, Any]) -> str:
    source = f.get("source", {})
    clock = f"{f['rate']:.6g} Hz, jitter {1e6 * f['jitter']:.1f} us" if f["rate"] else "no rate"
    if f["uneven"]:
        clock = f"{f['mean_rate']:.6g} Hz on average, steps uneven: the usual one is {1e3 / f['rate']:.4g} ms, {f['rate']:.6g} Hz"
    return (
        f"{source.get('path', 'log')} ({source.get('format', 'npz')}): {f['rows']} rows, {f['duration']:.3f} s, {clock}"
    )


def _table(f: dict[str, Any]) -> Table:
    table = Table("column", "parts", "unit", "least", "most", "not measured")
    for name, c in f["columns"].items():
        low, high = (f"{v:.4g}" if v is not None else "-" for v in (c["min"], c["max"]))
        table.add_row(name, str(c["parts"]), c["unit"] or "-", low, high, f"{100 * c['nan']:.1f} %")
    return table


def _remarks(f: dict[str, Any]) -> list[str]:
    said = []
    for word, about in (("constant", "constant"), ("empty", "never measured")):
        for name, c in f["columns"].items():
            if c[word]:
                parts = "" if c["parts"] == 1 else ": all" if len(c[word]) == c["parts"] else f": {listed(c[word])}"
                said.append(f"{about}: {name}{parts}")
    if f["gaps"]:
        first = f"{f['gaps'][0][0]:.3f} to {f['gaps'][0][1]:.3f} s"
        said.append(f"holes: {len(f['gaps'])}, about {f['lost']} samples lost; the first from {first}")
    if len(f.get("streams", {})) > 1:
        said.append("streams: " + ", ".join(f"{s} {x['rows']} rows" for s, x in f["streams"].items()))
    if f.get("constants"):
        said.append("constants: " + ", ".join(f"{k} {v}" for k, v in f["constants"].items()))
    said += [f"mended: {m}" for m in f.get("mended", [])]
    said += [f"note: {m}" for m in f.get("notes", [])[:12]]
    return said
