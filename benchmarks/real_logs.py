"""Where the logs of real robots are, and how a fitted model is judged on them: one free prediction of a whole log."""

import os
from pathlib import Path

import numpy as np

from surefoot.log import Log
from surefoot.real2sim.identify import Identify
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
