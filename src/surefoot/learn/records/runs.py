"""What runs say of themselves: run.json, metrics.jsonl and the names of their files.

A run's score in a metric is its mean over the last tenth of its rows. Runs that differ by their seed alone are one group:

    group's score = mean over seeds,   interval: Student's t with n - 1 degrees of freedom, 95 %
"""

import json
import math
import os
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.errors import SurefootError, unknown
from surefoot.learn.runspec import RunSpec, content_hash

LARGEST = 1 << 30  # bytes of metrics.jsonl
DEEP = 4  # folders below the one that is asked about
TAIL = 0.1
KEPT = ("checkpoints", "run.json", "metrics.jsonl", "policy.onnx")


@dataclass(frozen=True)
class Record:
    """One run."""

    folder: Path
    spec: RunSpec
    rows: tuple[dict[str, Any], ...] = field(repr=False)
    state: str
    """finished, stopped or running"""
    bytes: int

    @property
    def steps(self) -> int:
        return int(self.rows[-1].get("steps") or 0) if self.rows else 0

    @property
    def group(self) -> str:
        """Of all runs that differ by their seed alone."""
        return content_hash({k: v for k, v in self.spec.to_json().items() if k != "seed"})[:8]

    def score(self, metric: str) -> float | None:
        """The mean over the last tenth of the rows that have it."""
        found = [r[metric] for r in self.rows if isinstance(r.get(metric), (int, float))]
        tail = found[-max(1, math.ceil(TAIL * len(found))) :]
        return sum(tail) / len(tail) if tail else None

    def facts(self, metrics: Sequence[str]) -> dict[str, Any]:
        return {
            "run": str(self.folder), "task": self.spec.task, "seed": self.spec.seed, "group": self.group, "state": self.state,
            "iterations": len(self.rows), "steps": self.steps, "bytes": self.bytes, **{m: self.score(m) for m in metrics},
        }  # fmt: skip


def found(folder: Path) -> tuple[list[Record], dict[str, str]]:
    """The runs in a folder and below, by name; and those that cannot be read, with the reason."""
    if not Path(folder).is_dir():
        raise SurefootError(f"{folder}: no such folder; expected one with runs, as `surefoot train` makes them")
    good, bad = [], {}
    for path in sorted(_folders(Path(folder), DEEP)):
        try:
            good.append(read(path))
        except SurefootError as error:
            bad[str(path)] = str(error)
    return good, bad


def _folders(folder: Path, deep: int) -> Iterator[Path]:
    if (folder / "run.json").is_file():
        yield folder
    if deep:
        for below in folder.iterdir():
            part = below.name.startswith(".") and below.name.endswith(".part")  # a run that is on its way here
            if below.is_dir() and not below.is_symlink() and below.name not in KEPT and not part:
                yield from _folders(below, deep - 1)


def read(folder: Path) -> Record:
    path = folder / "run.json"
    spec = RunSpec.from_json(files.check_seal(files.read_json(path), str(path)), str(path))
    rows = tuple(_rows(folder / "metrics.jsonl"))
    total = spec.settings.iterations if spec.settings is not None else None
    done = total is not None and len(rows) >= total
    state = "running" if _held(folder) else "finished" if done else "stopped"
    return Record(folder, spec, rows, state, sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Whole rows; a last one that is being written is not there yet."""
    if not path.is_file():
        return
    for line in files.read_bytes(path, LARGEST).splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def _held(folder: Path) -> bool:
    """Whether a process writes it: one of this machine that is alive, or one of another machine."""
    lock = folder / "run.lock"
    if not lock.is_file():
        return False
    who = re.fullmatch(r"process (\d{1,9}) on (\S+)", lock.read_text(errors="replace")[:300].strip())
    if who is None or who[2] != socket.gethostname():
        return True
    try:
        os.kill(int(who[1]), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def metrics_of(records: Sequence[Record]) -> list[str]:
    """Names of what the runs logged."""
    return sorted({k for r in records for row in r.rows[-1:] for k, v in row.items() if isinstance(v, (int, float))})


def ranked(records: Sequence[Record], metric: str) -> list[Record]:
    """Best first; those without the metric are last."""
    known = metrics_of(records)
    if records and metric not in known:
        raise unknown("metric", metric, known, "--rank")
    score = lambda r: -math.inf if (x := r.score(metric)) is None else x  # noqa: E731
    return sorted(records, key=score, reverse=True)


def groups(records: Sequence[Record], metric: str) -> list[dict[str, Any]]:
    """Runs that differ by their seed alone: how many, and the mean score with its interval over seeds; best first.

    Runs of one seed are the same run, or copies of it: together they are one sample.
    """
    alike: dict[str, list[Record]] = {}
    for r in records:
        alike.setdefault(r.group, []).append(r)
    rows = []
    for key, some in alike.items():
        scores: dict[int, list[float]] = {}
        for r in some:
            if (x := r.score(metric)) is not None:
                scores.setdefault(r.spec.seed, []).append(x)
        own = [sum(x) / len(x) for x in scores.values()]
        about = {"group": key, "task": some[0].spec.task, "runs": len(some), "seeds": len(own)}
        rows.append({**about, **_mean(own)})
    return sorted(rows, key=lambda r: -math.inf if r["mean"] is None else r["mean"], reverse=True)


def _mean(scores: Sequence[float]) -> dict[str, float | None]:
    n = len(scores)
    if n < 2:
        return {"mean": scores[0] if n else None, "low": None, "high": None}
    from scipy.stats import t

    mean = sum(scores) / n
    sd = math.sqrt(sum((x - mean) ** 2 for x in scores) / (n - 1))
    half = float(t.ppf(0.975, n - 1)) * sd / math.sqrt(n)
    return {"mean": mean, "low": mean - half, "high": mean + half}


def differences(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    """For each run, the fields in which its spec differs from the first one's."""
    return {str(r.folder): records[0].spec.differences(r.spec) for r in records[1:]}


# what may be removed

Removal = tuple[Path, int]
"""a file or folder, and its bytes"""


def old_checkpoints(records: Sequence[Record]) -> list[Removal]:
    """Of finished runs, all checkpoints but the newest: it is what another run can start from."""
    gone = []
    for r in records:
        names = sorted({p.stem for p in (r.folder / "checkpoints").glob("*.json") if re.fullmatch(r"\d{8,}", p.stem)})
        for name in names[:-1] if r.state == "finished" else []:
            parts = (r.folder / "checkpoints" / f"{name}{s}" for s in (".json", ".safetensors"))
            gone += [(p, p.stat().st_size) for p in parts if p.is_file()]
    return gone


def worse(records: Sequence[Record], metric: str, keep: int) -> list[Removal]:
    """Whole runs, all but the best; never one that is running, or that holds another run in its folder."""
    last = ranked(records, metric)[keep:]
    holds = {parent for r in records for parent in r.folder.parents}
    return [(r.folder, r.bytes) for r in last if r.state != "running" and r.folder not in holds]


def remove(what: Sequence[Removal]) -> None:
    for path, _ in what:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
