"""metrics.jsonl of a run: a row an iteration, and a chain over all rows that checkpoints keep,

    h_0 = "",   h_n = sha256(h_{n-1} + row_n)

so that the file is known to be what was logged, or is made so again from the rows that checkpoints hold.
"""

import errno
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.typed import known_fields

LARGEST = 4 << 30  # bytes of metrics.jsonl
KEYS = {"before", "since", "here"}  # of what a checkpoint holds


class Mark(NamedTuple):
    """A place in metrics.jsonl: how many rows are before it, and their chain."""

    rows: int = 0
    chain: str = ""

    def after(self, lines: Iterable[bytes]) -> "Mark":
        rows, chain = self
        for line in lines:
            rows, chain = rows + 1, files.sha256(chain.encode() + line)
        return Mark(rows, chain)


class Metrics:
    """The rows of a run's file; what the user should know goes into `notes`."""

    def __init__(self, path: Path, notes: list[str]):
        self.path, self.notes = path, notes
        self.saved, self.since = Mark(), list[bytes]()  # rows at the last checkpoint, and those logged since
        self.unwritten = b""
        self.lost = ""  # what the file lacks

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row; where the disk refuses, keep it and try again with the next."""
        finite = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in row.items()}
        line = (json.dumps(finite) + "\n").encode()
        self.since.append(line)
        self.unwritten += line
        try:
            size = self.path.stat().st_size if self.path.exists() else 0
            with open(self.path, "ab", buffering=0) as f:
                try:
                    written = f.write(self.unwritten)
                except OSError:
                    written = -1
            if written != len(self.unwritten):  # part of it, or none: a row is there whole or not at all
                os.truncate(self.path, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.unwritten = b""
        except OSError as error:
            self.notes.append(f"metrics.jsonl: {error.strerror}; its rows are kept and written when the disk lets them")

    def card(self) -> dict[str, Any]:
        """What a checkpoint holds of the rows so far, once they last through a power cut."""
        if self.path.exists():
            try:
                with open(self.path, "ab") as f:
                    os.fsync(f.fileno())
            except OSError as error:
                self.notes.append(f"metrics.jsonl: {error.strerror}; the checkpoint has its newest rows")
        here = self.saved.after(self.since)
        return {"before": self.saved, "since": [line.decode() for line in self.since], "here": here}

    def keep_since(self, mark: Mark) -> None:
        """A checkpoint holds the rows up to here."""
        self.saved, self.since = mark, []

    def rewind(self, card: Mapping[str, Any] | None, earlier: Iterable[Mapping[str, Any]]) -> None:
        """Make the file what was logged up to a checkpoint (None: nothing); what came after will be logged again, the same.

        Rows that were cut or edited are written again from this card and earlier ones; rows that none holds are reported
        as missing.
        """
        there = []
        if self.path.is_symlink() or self.path.exists():
            there = [line + b"\n" for line in files.read_bytes(self.path, LARGEST).split(b"\n")]
        self.lost = ""
        kept = [] if card is None else self._logged(there, card, earlier)
        if self.lost:
            self.notes.append(f"metrics.jsonl: {self.lost}; no checkpoint has the others")
        if there or kept:
            files.write(self.path, b"".join(kept))
        self.saved, self.since, self.unwritten = Mark().after(kept), [], b""

    def _logged(self, there: list[bytes], card: Mapping[str, Any], earlier: Iterable[Mapping[str, Any]]) -> list[bytes]:
        """The rows logged up to a checkpoint, of those that are there and those that checkpoints hold."""
        here, before, texts = Mark(*card["here"]), Mark(*card["before"]), list(card["since"])
        for other in earlier:
            if before.rows and Mark(*other["here"]) == before:
                before, texts = Mark(*other["before"]), other["since"] + texts
        since = [line.encode() for line in texts]
        if Mark().after(there[: here.rows]) == here:
            return there[: here.rows]
        if Mark().after(there[: before.rows]) == before:
            self.notes.append(
                f"metrics.jsonl: rows {before.rows + 1} to {here.rows} were cut or edited; they are written again"
            )
            return there[: before.rows] + since
        first = next((i for i, line in enumerate(there) if line in since), len(there))
        kept = [line for line in there[: min(first, before.rows)] if _is_row(line)]
        self.lost = f"rows 1 to {before.rows} are not all as they were logged, {len(kept)} are left"
        return kept + since


def check_card(data: Any, where: str) -> None:
    """Refuse what is no `Metrics.card`."""
    rows = known_fields(data, KEYS, KEYS, where)
    if not all(isinstance(m, list) and [type(x) for x in m] == [int, str] for m in (rows["before"], rows["here"])):
        raise SurefootError(f"{where}: before, here: expected a count of rows and their hash")
    if not isinstance(rows["since"], list) or not all(isinstance(line, str) for line in rows["since"]):
        raise SurefootError(f"{where}: since: expected a list of rows")


def _is_row(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
