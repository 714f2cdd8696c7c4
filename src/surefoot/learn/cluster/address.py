"""Where workers run: `local:2`, two processes of this machine; `ray://host:10001`, `host:6379` or `auto`, a Ray cluster."""

import re
from dataclasses import dataclass

from surefoot.errors import SurefootError

MOST = 10_000  # workers
FORMS = "local:2 (workers on this machine), ray://HOST:10001, HOST:6379 or auto (a Ray cluster)"


@dataclass(frozen=True)
class On:
    """Workers, by address."""

    address: str
    """of a Ray cluster; empty: this machine alone"""
    workers: int
    """how many; 0: one for each core of the cluster"""

    @property
    def local(self) -> bool:
        return not self.address

    @staticmethod
    def parse(text: str, workers: int = 0) -> "On | None":
        """What --on and --workers mean; None for an empty text."""
        if not 0 <= workers <= MOST:
            raise SurefootError(f"--workers: expected 0 to {MOST}, found {workers}")
        if not text:
            if workers:
                raise SurefootError("--workers: only with --on and the address of a cluster")
            return None
        if found := re.fullmatch(r"local:(\d{1,5})", text):
            if workers:
                raise SurefootError(f"--workers: --on {text} says how many; leave it out")
            return On("", _some(int(found[1])))
        if text == "auto" or re.fullmatch(r"(ray://)?[\w.-]+:\d{1,5}", text) and not text.startswith("local"):
            return On(text, workers)
        raise SurefootError(f"--on: expected {FORMS}, found {text}")


def _some(workers: int) -> int:
    if not 1 <= workers <= MOST:
        raise SurefootError(f"--on: expected 1 to {MOST} workers, found {workers}")
    return workers
