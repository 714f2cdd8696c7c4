"""One hostile file, the verb it goes to, and what must happen.

refuse   exit code 2 and one error in words        accept   exit code 0, or 1 where the answer is no
either   one of the two; never a traceback, a crash, a hang, code run, a file read outside, memory without bound
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SECRET = "SECRET5d1c0ffee"  # stands in every file outside; seen in an output, a file was read that was not given
FORGED = "FORGED-PASS"  # stands after a newline in names; at the start of an error's line, a name forged a line
ESCAPE = "\x1b]0;owned\x07\x1b[2J"  # sets a terminal's title and clears it


@dataclass(frozen=True)
class Place:
    """Where a case is built and run."""

    here: Path
    """its own folder, and the working directory of the verb"""
    outside: Path
    """a folder beside it that nothing in the case may reach; every file in it holds SECRET"""
    canary: Path
    """a file that only code in the input would make"""
    good: Path
    """sound things to spoil: run/, term/, robot.xml, policy.onnx, contract.json, swing.csv ..."""

    @property
    def code(self) -> str:
        """A Python statement that makes the canary."""
        return f"open({str(self.canary)!r}, 'w').write('ran')"

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path


@dataclass(frozen=True)
class Case:
    kind: str
    """class of input"""
    name: str
    build: Callable[[Place], Any]
    argv: tuple[str, ...]
    """of surefoot; {good} stands for the folder of sound things"""
    want: str = "refuse"
    past: str = ""
    """words that are said only once the input was taken; the verb is told to stop there, to save time"""
    fresh: bool = False
    """by the installed command in a new interpreter, for what happens while it starts"""
    heavy: bool = False
    """takes seconds even where all is well: not in the sample"""


def text(
    kind: str, name: str, file: str, content: str | bytes | Callable[[], str | bytes], *argv: str, **more: Any
) -> Case:
    """A case of one file; what is large is made only when the case is built."""
    return Case(kind, name, lambda p: p.write(file, content() if callable(content) else content), argv, **more)


def spoilt(data: bytes, seed: int, bits: int) -> bytes:
    """Bytes with some bits turned, at random but the same each time; with none, cut short at random."""
    rng = np.random.default_rng(seed)
    if not bits:
        return data[: int(rng.integers(1, len(data)))]
    out = bytearray(data)
    for _ in range(bits):
        out[int(rng.integers(0, len(out)))] ^= 1 << int(rng.integers(0, 8))
    return bytes(out)
