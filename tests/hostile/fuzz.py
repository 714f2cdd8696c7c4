"""`python -m tests.hostile.fuzz [--seconds 600] [--only NAME ...]`: random changes of sound input, one target a parser.

A parser answers, or refuses in words (SurefootError). Anything else is a defect, and so is an answer that takes SLOW seconds. Half
of the changes are of bytes, half of values in JSON: what is syntactically right reaches further.
"""

import argparse
import copy
import json
import random
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.errors import SurefootError

SLOW = 5.0  # s, of one input
ODD: list[Any] = [
    None, True, 0, -1, 1e-300, 1e300, -0.0, 10**18, 9**420, "", "abc", "nan", "../x", "a\0b", "\x1b[2J", "x" * 5000, [], [[]], [[[0]]], {}, {"a": 1}, [None], [1.5] * 300,
]  # fmt: skip


@dataclass(frozen=True)
class Target:
    name: str
    seeds: tuple[bytes, ...]
    parse: Callable[[bytes], Any]


@dataclass(frozen=True)
class Defect:
    target: str
    what: str
    data: bytes


def changed(seed: bytes, rng: random.Random) -> bytes:
    """The seed with a few things wrong."""
    if rng.random() < 0.5:
        try:
            value = json.loads(seed)
        except ValueError:
            return _bytes(seed, rng)
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            value = _value(value, rng)
        return json.dumps(value).encode("utf-8", "surrogatepass")
    return _bytes(seed, rng)


def _bytes(seed: bytes, rng: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, how = rng.randrange(len(data) + 1), rng.randrange(5)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif how == 1:
            del data[at:]
        elif how == 2:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif how == 3:
            del data[at : at + rng.randrange(1, 20)]
        else:
            end = rng.randrange(len(data) + 1)
            data[at:at] = data[min(at, end) : min(max(at, end), min(at, end) + 200)]
    return bytes(data)


def _value(value: Any, rng: random.Random) -> Any:
    """One entry somewhere in it, deep ones as often as others, is another, gone, or there twice."""
    spots = list(_spots(value))
    if not spots:
        return rng.choice(ODD)
    inside, key = rng.choice(spots)
    how = rng.randrange(6)
    if how == 0:
        inside.pop(key)
    elif how == 1 and isinstance(inside, list):
        inside.insert(key, copy.deepcopy(inside[key]))
    elif how == 2 and isinstance(inside, dict):
        inside[rng.choice(("x", key + "x", "_target_"))] = inside.pop(key)
    elif how == 3 and type(inside[key]) in (int, float) and abs(inside[key]) < 1e300:
        inside[key] = rng.choice((-1, 0, 1e-9, 1e9, 1e308)) * inside[key] + rng.choice((0, 0.5))
    else:
        inside[key] = copy.deepcopy(rng.choice(ODD))
    return value


def _spots(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _spots(value[key])


def fuzz(target: Target, seconds: float, seed: int = 0) -> tuple[int, list[Defect]]:
    """How many inputs were tried, and what went wrong; at most ten of one kind."""
    rng, found, tried = random.Random(f"{target.name} {seed}"), [], 0
    kinds: set[str] = set()
    until = time.monotonic() + seconds
    while time.monotonic() < until or tried < 20:
        data, began, what = changed(rng.choice(target.seeds), rng), time.process_time(), ""
        try:
            target.parse(data)
        except SurefootError:
            pass
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {str(error)[:120]}"
        if time.process_time() - began > SLOW:
            what = f"took {time.process_time() - began:.1f} s"
        if what and what not in kinds and len(found) < 10:
            kinds.add(what)
            found.append(Defect(target.name, what, data))
        tried += 1
    return tried, found


def main() -> int:
    from .fuzz_targets import targets

    say = argparse.ArgumentParser(description=__doc__)
    say.add_argument("--seconds", type=float, default=600.0)
    say.add_argument("--seed", type=int, default=0)
    say.add_argument("--only", nargs="*", default=[])
    asked = say.parse_args()
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        some = [t for t in targets(Path(folder)) if not asked.only or t.name in asked.only]
        bad = 0
        for target in some:
            tried, found = fuzz(target, asked.seconds / len(some), asked.seed)
            bad += len(found)
            print(f"{target.name:16} {tried:8} inputs, {len(found)} defects", flush=True)
            for d in found:
                print(f"    {d.what}\n    {zlib.crc32(d.data):08x} {d.data[:200]!r}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
