"""surefoot log: what a robot recorded, shown, drawn and kept in our own form."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from surefoot import files
from surefoot.report import Block, Column, Note, Progress, Report, Table, Text, Watch


@dataclass(frozen=True)
class Log:
    file: Positional[Path]
    """the file, or the folder of a rosbag2 or a LeRobot dataset"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that says what its columns are; see docs/logs.md"""
    rate: float | None = None
    """Hz of the result: of the rows if the file has no clock, else what it is resampled to"""
    episode: int = 0
    """which one of a dataset"""
    mend: bool = False
    """drop rows whose stamps repeat or go back, and say so, rather than refuse the file"""
    plot: Path | None = None
    """write a picture (.png)"""
    save: Path | None = None
    """write it as a log of our own (.npz); replaces a file of this name, never the file that is read"""

    def run(self, watch: Watch) -> Report:
        from surefoot.formats.about import about, draw
        from surefoot.log import Log as Recorded

        reads = (self.file, self.mapping)
        if self.save:
            files.check_writable(self.save, "--save", ".npz", reads)
        if self.plot:
            files.check_writable(self.plot, "--plot", ".png", reads)
        watch(Progress(f"reading {self.file}"))
        log = Recorded.read(self.file, self.mapping, self.rate, self.episode, self.mend)
        facts = about(log)
        blocks: list[Block] = [
            Text(_heading(facts)),
            _table(facts),
            *map(Text, _remarks(facts)),
            *map(Note, facts.get("notes", [])[:12]),
        ]
        if self.plot:
            facts["plot"] = str(draw(log, self.plot))
            blocks.append(Text(f"picture: {self.plot}"))
        if self.save:
            facts["saved"] = str(log.save(self.save))
            blocks.append(Text(f"saved: {self.save}"))
        return Report(str(self.file), facts, tuple(blocks), self._next())

    def _next(self) -> str:
        if self.save:
            return f"surefoot log {self.save}"
        flags = (f" --map {self.mapping}" if self.mapping else "") + (f" --rate {self.rate:g}" if self.rate else "")
        save = f" --save {self.file.stem}.npz" if self.file.suffix != ".npz" else ""
        return f"surefoot log {self.file}{flags} --plot {self.file.stem}.png{save}"


def _heading(f: dict[str, Any]) -> str:
    source = f.get("source", {})
    clock = f"{f['rate']:.6g} Hz, jitter {1e6 * f['jitter']:.1f} us" if f["rate"] else "no rate"
    if f["uneven"]:
        clock = f"{f['mean_rate']:.6g} Hz on average, steps uneven: the usual one is {1e3 / f['rate']:.4g} ms, {f['rate']:.6g} Hz"
    return (
        f"{source.get('path', 'log')} ({source.get('format', 'npz')}): {f['rows']} rows, {f['duration']:.3f} s, {clock}"
    )


def _table(f: dict[str, Any]) -> Table:
    number = lambda name: Column(name, form=".4g")  # noqa: E731
    rows = [
        [name, c["parts"], c["unit"] or "-", c["min"], c["max"], f"{100 * c['nan']:.1f} %"]
        for name, c in f["columns"].items()
    ]
    head = ["column", Column("parts", form="d"), "unit", number("least"), number("most"), "not measured"]
    return Table.of(head, rows)


def _remarks(f: dict[str, Any]) -> list[str]:
    from surefoot.formats.raw import listed

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
    return said
