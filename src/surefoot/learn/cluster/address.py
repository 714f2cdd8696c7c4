"""Where workers run: `local:2`, two processes of this machine; `ray://host:10001`, `host:6379` or `auto`, a Ray cluster."""

import re
from dataclasses import dataclass

from surefoot.errors import SurefootError

MOST, MOST_SHARDS = 10_000, 256  # workers, and processes of an update
FORMS = "local:2 (workers on this machine), ray://HOST:10001, HOST:6379 or auto (a Ray cluster)"


@dataclass(frozen=True)
class On:
    """Workers, by address."""

    address: str
    """of a Ray cluster; empty: this machine alone"""
    workers: int
    """how many; 0: one for each core of the cluster"""
    shards: int = 1
    """processes that share the learner's update"""

    @property
    def local(self) -> bool:
        return not self.address

    @staticmethod
    def parse(text: str, workers: int = 0, shards: int = 1) -> "On | None":
        """What --on, --workers and --shards mean; None for an empty text."""
        if not 1 <= shards <= MOST_SHARDS:
            raise SurefootError(f"--shards: expected 1 to {MOST_SHARDS}, found {shards}")
        if shards > 1 and (not text or text.startswith("ray://")):
            where = "with --on local:N, HOST:6379 or auto: its processes must reach each other"
            raise SurefootError(f"--shards: expected {where}")
        if not 0 <= workers <= MOST:
            raise SurefootError(f"--workers: expected 0 to {MOST}, found {workers}")
        if not text:
            if workers:
                raise SurefootError("--workers: only with --on and the address of a cluster")
            return None
        if found := re.fullmatch(r"local:(\d{1,5})", text):
            if workers:
                raise SurefootError(f"--workers: --on {text} says how many; leave it out")
            return On("", _some(int(found[1])), shards)
        if text == "auto" or (place(text) and not text.startswith("local:")):
            return On(text, workers, shards)
        raise SurefootError(f"--on: expected {FORMS}, found {text}")


def place(address: str) -> tuple[str, int] | None:
    """Host and port of an address; None where it has none."""
    found = re.fullmatch(r"(?:ray://)?([\w.-]+):(\d{1,5})", address)
    return (found[1], int(found[2])) if found and 0 < int(found[2]) < 1 << 16 else None


def _some(workers: int) -> int:
    if not 1 <= workers <= MOST:
        raise SurefootError(f"--on: expected 1 to {MOST} workers, found {workers}")
    return workers
