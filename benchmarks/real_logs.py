"""Where the logs of real robots are, and how a fitted model is judged on them: one free prediction of a whole log."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row
from surefoot.log import Log
from surefoot.params import Params
from surefoot.real2sim.identify import Identify
from surefoot.real2sim.identify.laws import Make, compare
from surefoot.real2sim.identify.splits import splits
from surefoot.real2sim.replay import Score, replay
from surefoot.sim.engine import Engine

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("SUREFOOT_REAL_DATA") or ROOT.parent / "shared" / "data")
MODELS, MAPS = ROOT / "examples" / "models", ROOT / "examples" / "logs"
WHOLE = Identify(horizons=(), last=60.0, longest=60.0, starts="known", hold=0.0, rounds=0, iterations=8)
"""one free prediction of the whole log, as it will be judged"""


def read(path: str, mapping: str, rate: float | None = None) -> Log:
    return Log.read(DATA / path, MAPS / mapping, rate=rate)


def scored(w: Engine, log: Log, e: np.ndarray | None = None, resync: int | None = None) -> Score:
    return replay(w, log, e, resync, only=("joint_pos",)).scores[0]


def compared(
    make: Make,
    laws: Mapping[str, Params],
    logs: Sequence[Log],
    how: Identify,
    only: tuple[str, ...],
    scale: float,
    unit: str,
    quick: bool,
) -> Iterator[Row]:
    """Laws on each group of runs that was left out: a row for each law and group, and which law to use."""
    parts = splits(make(min(laws.values(), key=len), logs[0]), logs)
    found = compare(
        make,
        laws,
        logs,
        how,
        only,
        lambda p: measure.said(p.doing) if p.share is not None else None,
        parts[: 1 if quick else None],
    )
    for law in found.laws:
        for split, rmse in zip(found.splits, law.rmse):
            yield row(f"{split.name} unseen, {law.name}: rmse", scale * rmse, unit)
        yield row(f"{law.name}: rmse, unseen", scale * np.array(law.rmse), unit)
        yield row(f"{law.name}: rmse where fitted", scale * law.fitted, unit)
    yield row(f"law to use: {found.chosen}", float(found.chosen == found.best), "is best", note=found.why)
