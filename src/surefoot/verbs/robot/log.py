"""surefoot log: shows a robot's recording, plots it, and saves it as our own log."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from tyro.conf import Positional, arg

from surefoot import files
from surefoot.report import Block, Column, Note, Progress, Report, Table, Text, Watch


@dataclass(frozen=True)
class Log:
    file: Positional[Path]
    """the file, or the folder of a rosbag2 or a LeRobot dataset"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that maps its columns to our schema; see docs/logs.md"""
    rate: float | None = None
    """Hz: rate of the rows if the file has no clock; otherwise the rate to resample to"""
    episode: int = 0
    """which one of a dataset"""
    mend: bool = False
    """drop rows whose time stamps repeat or go back, with a note; otherwise the file is refused"""
    plot: Path | None = None
    """write a plot (.png)"""
    save: Path | None = None
    """write it as our own log (.npz); replaces a file of this name, but never the input"""
    map_stub: Path | None = None
    """write a first mapping of the file's columns (.json), to correct and to give as --map"""

    def run(self, watch: Watch) -> Report:
        from surefoot.formats.summary import draw, summary
        from surefoot.log import Log as Recorded

        reads = (self.file, self.mapping)
        if self.map_stub:
            files.check_writable(self.map_stub, "--map-stub", ".json", reads)
            return self._stub(self.map_stub, watch)
        if self.save:
            files.check_writable(self.save, "--save", ".npz", reads)
        if self.plot:
            files.check_writable(self.plot, "--plot", ".png", reads)
        watch(Progress(f"reading {self.file}"))
        log = Recorded.read(self.file, self.mapping, self.rate, self.episode, self.mend)
        facts = summary(log)
        blocks: list[Block] = [
            Text(_heading(facts)),
            _table(facts),
            *map(Text, _remarks(facts)),
            *map(Note, facts.get("notes", [])[:12]),
        ]
        if self.plot:
            facts["plot"] = str(draw(log, self.plot))
            blocks.append(Text(f"plot: {self.plot}"))
        if self.save:
            facts["saved"] = str(log.save(self.save))
            blocks.append(Text(f"saved: {self.save}"))
        return Report(str(self.file), facts, tuple(blocks), self._next())

    def _stub(self, out: Path, watch: Watch) -> Report:
        """A mapping to correct; a file without a clock needs a rate in it, or --rate."""
        from surefoot.formats.stub import stub

        watch(Progress(f"reading {self.file}"))
        found = stub(self.file, self.episode) | ({"rate": self.rate} if self.rate else {})
        files.write_json(out, found)
        rows = [[name, str(c["from"])] for name, c in found["columns"].items()]
        lacks = "time" not in found and not self.rate
        words = 'no clock found: add "time": "COLUMN" or "rate": HZ to it, or give --rate'
        blocks = [Table.of(["column of the log", "from the file's"], rows), *([Note(words, True)] if lacks else [])]
        blocks.append(Text(f"mapping: {out}; correct it (docs/logs.md), above all what each column is"))
        following = f"surefoot log {quote(str(self.file))} --map {quote(str(out))}{' --rate HZ' if lacks else ''}"
        return Report(str(self.file), {"stub": str(out), "mapping": found}, tuple(blocks), following)

    def _next(self) -> str:
        if self.save:
            return f"surefoot log {quote(str(self.save))}"
        flags = (f" --map {quote(str(self.mapping))}" if self.mapping else "") + (
            f" --rate {self.rate:g}" if self.rate else ""
        )
        save = f" --save {quote(f'{self.file.stem}.npz')}" if self.file.suffix != ".npz" else ""
        return f"surefoot log {quote(str(self.file))}{flags} --plot {quote(f'{self.file.stem}.png')}{save}"


def _heading(f: dict[str, Any]) -> str:
    source = f.get("source", {})
    clock = f"{f['rate']:.6g} Hz, jitter {1e6 * f['jitter']:.1f} us" if f["rate"] else "no rate"
    if f["uneven"]:
        clock = f"{f['mean_rate']:.6g} Hz on average, uneven steps: the median is {1e3 / f['rate']:.4g} ms, {f['rate']:.6g} Hz"
    return (
        f"{source.get('path', 'log')} ({source.get('format', 'npz')}): {f['rows']} rows, {f['duration']:.3f} s, {clock}"
    )


def _table(f: dict[str, Any]) -> Table:
    number = lambda name: Column(name, form=".4g")  # noqa: E731
    rows = [
        [name, c["parts"], c["unit"] or "-", c["min"], c["max"], f"{100 * c['nan']:.1f} %"]
        for name, c in f["columns"].items()
    ]
    head = ["column", Column("parts", form="d"), "unit", number("min"), number("max"), "missing"]
    return Table.of(head, rows)


def _remarks(f: dict[str, Any]) -> list[str]:
    from surefoot.formats.raw import listed

    remarks = []
    for word, heading in (("constant", "constant"), ("empty", "never measured")):
        for name, c in f["columns"].items():
            if c[word]:
                parts = "" if c["parts"] == 1 else ": all" if len(c[word]) == c["parts"] else f": {listed(c[word])}"
                remarks.append(f"{heading}: {name}{parts}")
    if f["gaps"]:
        first = f"{f['gaps'][0][0]:.3f} to {f['gaps'][0][1]:.3f} s"
        remarks.append(f"gaps: {len(f['gaps'])}, about {f['lost']} samples lost; the first from {first}")
    if len(f.get("streams", {})) > 1:
        remarks.append("streams: " + ", ".join(f"{s} {x['rows']} rows" for s, x in f["streams"].items()))
    if f.get("constants"):
        remarks.append("constants: " + ", ".join(f"{k} {v}" for k, v in f["constants"].items()))
    remarks += [f"repaired: {m}" for m in f.get("mended", [])]
    return remarks
