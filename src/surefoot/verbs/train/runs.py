"""surefoot runs: what has been trained, which was best, and what may go."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from tyro.conf import Positional

from surefoot.errors import SurefootError
from surefoot.learn.records import runs as records
from surefoot.learn.records.runs import Record
from surefoot.learn.records.store import Store
from surefoot.report import Axis, Block, Column, Note, Plot, Progress, Report, Series, Table, Text, Watch

POINTS = 200  # of a curve, at most
CURVES = 12  # groups that are drawn


@dataclass(frozen=True)
class Runs:
    folder: Positional[Path] = Path("runs")
    """a folder of runs, at any depth"""
    rank: str = "success"
    """the metric to rank by, as metrics.jsonl names it: success, return, judge/success ...; the mean over the last tenth of a run"""
    top: int = 0
    """show only so many, best first; 0: all"""
    compare: bool = False
    """also show in which settings runs differ from the first"""
    clean: Literal["", "checkpoints", "worse"] = ""
    """what to remove: all but the newest checkpoint of finished runs, or all runs but the best --keep. Without --yes it only lists them"""
    keep: int = 3
    """with --clean worse: how many runs stay"""
    yes: bool = False
    """with --clean: remove it"""
    push: str = ""
    """share these runs at an address: a folder, s3://bucket/runs ...; files that are there already are not sent again"""
    also: tuple[Path, ...] = ()
    """with --push: logs, bundles or other files and folders to share beside the runs; --pull brings them into also/NAME"""
    pull: str = ""
    """copy the runs at an address into the folder; runs that are in it already are not changed"""
    out: Path | None = None
    """also write a page with the learning curves"""

    def run(self, watch: Watch) -> Report:
        self._agree()
        if self.pull:
            return self._pulled(watch)
        found, broken = records.found(self.folder)
        order = records.ranked(found, self.rank) if _has(found, self.rank) else found
        shown = order[: self.top] if self.top else order
        facts: dict[str, Any] = {"folder": str(self.folder), "rank": self.rank, "broken": broken}
        facts["runs"] = [r.facts(_metrics(found, self.rank)) for r in shown]
        facts["groups"] = records.groups(found, self.rank)
        blocks = [*_tables(facts), *(Note(f"{k}: {words}", True) for k, words in broken.items())]
        if self.compare and shown:
            facts["differences"] = records.differences(shown)
            blocks.append(_differences(facts["differences"], shown))
        if self.clean:
            facts["removed" if self.yes else "would_remove"], words = self._cleaned(order)
            blocks.append(words)
        if self.push:
            facts["pushed"], words = self._pushed(shown, watch)
            blocks.append(words)
        curves = _curves(shown, self.rank)
        return Report(f"runs in {self.folder}", facts, (*blocks, *curves), self._next(shown), page=self.out)

    def _agree(self) -> None:
        for name in ("top", "keep"):
            if getattr(self, name) < 0:
                raise SurefootError(f"--{name}: expected 0 or more, found {getattr(self, name)}")
        for wrong, words in (
            (self.yes and not self.clean, "--yes: only with --clean"),
            (bool(self.also) and not self.push, "--also: only with --push"),
            (
                len({p.stem for p in self.also}) < len(self.also),
                "--also: expected names that differ before their suffix",
            ),
            (bool(self.push and self.pull), "--push: not together with --pull"),
            (bool(self.pull and self.clean), "--pull: not together with --clean"),
        ):
            if wrong:
                raise SurefootError(words)

    def _cleaned(self, order: Sequence[Record]) -> tuple[list[str], Block]:
        if self.clean == "worse" and not _has(order, self.rank):
            raise SurefootError(f"--clean worse: no run has logged {self.rank}; choose another --rank")
        gone = (
            records.old_checkpoints(order)
            if self.clean == "checkpoints"
            else records.worse(order, self.rank, self.keep)
        )
        if self.yes:
            records.remove(gone)
        size, verb = sum(n for _, n in gone) / 1e6, "removed" if self.yes else "would remove (with --yes)"
        names = ", ".join(str(p) for p, _ in gone[:6]) + (" ..." if len(gone) > 6 else "")
        return [str(p) for p, _ in gone], Text(f"{verb}: {len(gone)} items, {size:.1f} MB{': ' if gone else ''}{names}")

    def _pushed(self, shown: Sequence[Record], watch: Watch) -> tuple[dict[str, Any], Block]:
        store, total = Store(self.push), [0, 0, 0, 0]
        named = [(r.folder, self._name(r)) for r in shown] + [(p, f"also/{p.stem}") for p in self.also]
        for k, (path, name) in enumerate(named):
            watch(Progress(f"sharing {path}", k / len(named)))
            sent = store.put(path, name)
            total = [a + b for a, b in zip(total, (sent.files, sent.bytes, sent.new_files, sent.new_bytes))]
        facts = dict(zip(("files", "bytes", "new_files", "new_bytes"), total)) | {
            "address": self.push,
            "runs": len(shown),
            "also": [str(p) for p in self.also],
        }
        beside = f" and {len(self.also)} more" if self.also else ""
        words = (
            "{runs} runs{beside} at {address}: {files} files, {mb:.1f} MB; new there: {new_files} files, {new:.1f} MB"
        )
        return facts, Text(words.format(**facts, beside=beside, mb=total[1] / 1e6, new=total[3] / 1e6))

    def _name(self, r: Record) -> str:
        inside = r.folder.absolute().relative_to(self.folder.absolute()).as_posix()
        return self.folder.absolute().name if inside == "." else inside

    def _pulled(self, watch: Watch) -> Report:
        store, brought, here = Store(self.pull), [], []
        names = store.names()
        if not names:
            raise SurefootError(f"--pull: {self.pull}: no runs were shared there")
        for k, name in enumerate(names):
            watch(Progress(f"bringing {name}", k / len(names)))
            if (self.folder / name).exists():
                here.append(name)
                continue
            store.get(name, self.folder / name)
            brought.append(name)
        words = f"{len(brought)} runs brought into {self.folder}; {len(here)} are here already"
        facts = {"folder": str(self.folder), "pulled": brought, "here": here}
        return Report(f"runs of {self.pull}", facts, (Text(words),), f"surefoot runs {quote(str(self.folder))}")

    def _next(self, shown: Sequence[Record]) -> str:
        if not shown or not (shown[0].folder / "policy.onnx").exists():
            return "surefoot train hover"
        return f"surefoot eval {quote(str(shown[0].folder))}"


def _has(found: Sequence[Record], metric: str) -> bool:
    """Whether to rank by it: an unknown name is refused, and where nothing is logged yet there is no order."""
    known = records.metrics_of(found)
    return bool(known) and (metric != Runs.rank or metric in known)


def _metrics(found: Sequence[Record], rank: str) -> list[str]:
    known = records.metrics_of(found)
    return list(dict.fromkeys(m for m in (rank, "success", "return", "judge/success") if m in known))


def _tables(facts: dict[str, Any]) -> list[Block]:
    rows, rank = facts["runs"], facts["rank"]
    if not rows:
        return [Text(f"no runs in {facts['folder']}")]
    names = [k for k in rows[0] if k in (rank, "success", "return", "judge/success")]
    head: list[Any] = [
        "run",
        "task",
        "seed",
        "state",
        Column("steps", form="d"),
        *(Column(m, form=".4g") for m in names),
    ]
    head += [Column("size", "MB", ".1f"), "group"]
    cells = [
        [
            r["run"],
            r["task"],
            str(r["seed"]),
            r["state"],
            r["steps"],
            *(r[m] for m in names),
            r["bytes"] / 1e6,
            r["group"],
        ]
        for r in rows
    ]
    found: list[Block] = [Table.of(head, cells, f"by {rank}, best first")]
    several = [g for g in facts["groups"] if g["seeds"] > 1]
    if several:
        form = [Column("mean", form=".4g"), Column("low", form=".4g"), Column("high", form=".4g")]
        cells = [[g[k] for k in ("group", "task", "seeds", "mean", "low", "high")] for g in several]
        title = f"{rank} of runs that differ by their seed alone (mean, 95 % interval over seeds)"
        found.append(Table.of(["group", "task", Column("seeds", form="d"), *form], cells, title))
    return found


def _differences(found: dict[str, dict[str, str]], shown: Sequence[Record]) -> Table:
    rows = [[run, k, words or "other"] for run, fields in found.items() for k, words in fields.items()]
    return Table.of(["run", "field", "what"], rows, f"where runs differ from {shown[0].folder}")


def _curves(shown: Sequence[Record], metric: str) -> list[Plot]:
    series = []
    for r in shown[:CURVES]:
        rows = [
            x for x in r.rows if isinstance(x.get(metric), (int, float)) and isinstance(x.get("steps"), (int, float))
        ]
        rows = rows[:: max(1, len(rows) // POINTS)]
        if rows:
            series.append(Series.of(str(r.folder), [x["steps"] for x in rows], [x[metric] for x in rows]))
    return [Plot(metric, tuple(series), Axis("env steps"), Axis(metric))] if series else []
