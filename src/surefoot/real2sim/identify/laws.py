"""Which structure of a model to use: several are fitted, and the one is chosen that predicts motions it was not fitted to.

    err(l, s): rms error on the runs that split s leaves out, of law l fitted to the others, in spreads of each signal
    best = argmin_l mean_s log err(l, s)

A simpler law is used in place of the best if the mean difference of log err is within 2 %, or one standard error over the splits. It
is also used if the best has more than 1.25 times its error on some split, and nowhere gains as much: a law that fails on one
kind of motion it has not seen fails on others. The error where a law was fitted says little: more unknowns always lower it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.belief import Box
from surefoot.errors import SurefootError, unknown
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.identify.fit import Case, scales
from surefoot.real2sim.identify.result import Identified, refitted
from surefoot.real2sim.identify.splits import Split, joined, splits
from surefoot.real2sim.replay import longest_window, stable_length, windows
from surefoot.report import Progress, Watch, jsonable, unwatched
from surefoot.sim.engine import Engine

if TYPE_CHECKING:
    from surefoot.learn.cluster.jobs import Jobs

MARGIN = 0.02  # of the error: less of a difference is none, however sure it is
UNSAFE = 1.25  # times a simpler law's error on some split
FIRST = 0.1  # of its range: where a further unknown starts from when the others start from a simpler law's fit
FRICTION = {
    "viscous": ("damping",),
    "coulomb": ("damping", "frictionloss"),
    "stribeck": ("damping", "frictionloss", "stiction", "stribeck"),
    "load": ("damping", "frictionloss", "friction_load"),
    "back": ("damping", "frictionloss", "friction_back"),
}
"""friction laws by name, simplest first, as words of --learn (docs/identify.md)"""

Make = Callable[[Params, Log], Engine]
"""the model with some unknowns, at a log's rate"""


@dataclass(frozen=True)
class Law:
    """One structure, and how it predicts."""

    name: str
    params: Params
    errors: np.ndarray  # (S,) on each split, in spreads of each signal
    rmse: tuple[float, ...]
    """(S,) of the first signal, in its unit"""
    fitted: float
    """rmse of the first signal where it was fitted, mean over the splits"""
    fits: tuple[np.ndarray, ...] = ()
    """(S,) of e (ne,)"""


@dataclass(frozen=True)
class Comparison:
    """Laws on the same splits, and which to use."""

    laws: tuple[Law, ...]
    splits: tuple[Split, ...]
    signal: str
    best: str
    """least mean log error on what was left out"""
    chosen: str
    why: str
    alike: tuple[str, ...] = field(default=())
    """laws that the data do not tell apart from the best"""

    def facts(self) -> dict[str, Any]:
        laws = [
            {"name": x.name, "unknowns": len(x.params), "fitted": x.fitted, "left_out": float(np.exp(np.log(x.errors).mean())),
             "splits": dict(zip((s.name for s in self.splits), x.rmse))}
            for x in self.laws
        ]  # fmt: skip
        return {"laws": laws, "best": self.best, "chosen": self.chosen, "alike": list(self.alike), "why": self.why}


def words_of(law: str) -> tuple[str, ...]:
    """The words of --learn that a law means: a name, with which joints share a number (coulomb:kinds), or words joined by +."""
    if "+" in law or law.partition("=")[0].partition(":")[0] not in FRICTION:
        words = tuple(w.strip() for w in law.split("+") if w.strip())
        if len(words) < 2:
            raise unknown("law", law, [*FRICTION, "words of --learn joined by +"], "--laws")
        return words
    name, colon, which = law.partition(":")
    return tuple(f"{word}{colon}{which}" for word in FRICTION[name])


def compare(
    make: Make,
    laws: Mapping[str, Params],
    logs: Sequence[Log],
    settings: Identify | None = None,
    only: tuple[str, ...] = (),
    watch: Watch = unwatched,
    left_out: Sequence[Split] | None = None,
    jobs: "Jobs | None" = None,
) -> Comparison:
    """Fit each law to what each split leaves in, and predict what it leaves out; laws in any order, at least two.

    With `jobs`, each split is one; a worker must then be able to have `make`.
    """
    if len(laws) < 2:
        raise SurefootError(f"laws: found {', '.join(laws) or 'none'}, expected at least two to compare")
    if len(logs) < 2:
        raise SurefootError("laws: found one run, expected at least two: one to fit, one to predict")
    s = replace(settings or Identify(), hold=0.0, rounds=0)
    order = {name: laws[name] for name in sorted(laws, key=lambda name: len(laws[name]))}
    rows: list[dict[str, Prediction]] = []
    parts = tuple(left_out) if left_out is not None else splits(make(next(iter(order.values())), logs[0]), logs)
    if jobs is not None:
        rows = _by_jobs(jobs, [(make, order, tuple(logs), split, (s, only)) for split in parts])
    for i, split in enumerate(parts if jobs is None else ()):
        share = lambda j: (i + j / len(order)) / len(parts)  # noqa: B023, E731
        show = lambda name, j: watch(Progress(f"law {name} without {split.name}", share(j)))  # noqa: B023, E731
        rows.append(_without(make, order, logs, split, (s, only), show))
    each = [_law(name, order[name], [row[name] for row in rows]) for name in order]
    return Comparison(tuple(each), parts, next(iter(rows[0].values())).signal, *choose(each, parts))


@dataclass(frozen=True)
class Prediction:
    """Of one law on one split."""

    error: float
    """in spreads of each signal"""
    rmse: float
    signal: str
    fitted: float
    e: np.ndarray


def _without(
    make: Make,
    laws: Mapping[str, Params],
    logs: Sequence[Log],
    split: Split,
    how: tuple[Identify, tuple[str, ...]],
    show: Callable[[str, int], None],
) -> dict[str, Prediction]:
    """Each law fitted to what a split leaves in, and judged on what it leaves out."""
    fits: dict[str, tuple[Params, np.ndarray]] = {}
    found: dict[str, Prediction] = {}
    inside, out = joined([x for k, x in enumerate(logs) if k not in split.out]), joined([logs[k] for k in split.out])
    for j, (name, params) in enumerate(laws.items()):
        show(name, j)
        fit = _fit(make, _started(params, fits), inside, *how)
        fits[name] = params, fit.e
        error, rmse, signal = _predicted([make(params, log) for log in joined(logs)], logs, out, fit.e, *how)
        found[name] = Prediction(error, rmse, signal, fit.fit[signal][1], fit.e)
    return found


Given = tuple[Make, Mapping[str, Params], Sequence[Log], Split, tuple[Identify, tuple[str, ...]]]


def _by_jobs(jobs: "Jobs", given: Sequence[Given]) -> list[dict[str, Prediction]]:
    from surefoot.learn.cluster.jobs import Job

    answers = jobs.each(without, [Job(f"laws without {x[3].name}", x) for x in given])
    far = lambda value: float("inf") if value is None else value  # noqa: E731
    return [
        {
            name: Prediction(**x | {k: far(x[k]) for k in ("error", "rmse", "fitted")} | {"e": np.array(x["e"])})
            for name, x in answer.items()
        }
        for answer in answers
    ]


def without(given: Given, watch: Watch) -> dict[str, Any]:
    """The job of one split."""
    found = _without(*given, show=lambda name, j: watch(Progress(f"law {name} without {given[3].name}", 0.0)))
    return {name: jsonable(asdict(x)) for name, x in found.items()}


def _law(name: str, params: Params, each: list[Prediction]) -> Law:
    errors, fitted = np.array([x.error for x in each]), float(np.mean([x.fitted for x in each]))
    return Law(name, params, errors, tuple(x.rmse for x in each), fitted, tuple(x.e for x in each))


def _fit(make: Make, params: Params, logs: list[Log], s: Identify, only: tuple[str, ...]) -> Identified:
    return identify([make(params, log) for log in logs], Box.full(params), logs, s, only, warn=False)


def _started(params: Params, fits: Mapping[str, tuple[Params, np.ndarray]]) -> Params:
    """The unknowns at the fit of the richest law that they extend: a richer law then begins no worse than a simpler one."""
    inner = [(known, e) for known, e in fits.values() if set(known.names) < set(params.names)]
    if not inner:
        return params
    known, e = max(inner, key=lambda x: len(x[0]))
    first = Box.full(params).at(np.full(len(params), FIRST))

    def start(i: int, p: Param) -> float:
        return float(e[known.index(p.name)]) if p.name in known.names else float(first[i])

    return Params(tuple(replace(p, nominal=start(i, p)) for i, p in enumerate(params)))


def _predicted(
    worlds: list[Engine], logs: Sequence[Log], out: list[Log], e: np.ndarray, s: Identify, only: tuple[str, ...]
) -> tuple[float, float, str]:
    """Error on logs that were left out: in spreads of each channel over all logs, and of the first signal in its unit."""
    pairs = list(zip(worlds, joined(logs)))
    total, squares, size = [], 0.0, 0
    for log in out:
        world, every = min(pairs, key=lambda pair: abs(pair[0].dt * log.rate - 1))  # noqa: B023
        case = Case(world, windows(world, log, _length(world, log, e, s, only), only=only), s.starts == "estimated")
        spread = scales(Case(world, windows(world, every, 1, only=only), False)).s
        errors, first = refitted(case, e), case.pieces.signals[0]
        with np.errstate(over="ignore", invalid="ignore"):
            total.append(np.square(errors / spread).mean())
            squares, size = squares + np.square(errors[..., : first.size]).sum(), size + errors[..., : first.size].size
    error, rmse = float(np.sqrt(np.mean(total))), float(np.sqrt(squares / size))
    return (error, rmse, first.name) if np.isfinite(error) else (1e6, float("inf"), first.name)


def _length(world: Engine, log: Log, e: np.ndarray, s: Identify, only: tuple[str, ...]) -> int:
    """Steps of the windows that are predicted: as in the last stage of a fit."""
    most = longest_window(world, log, only)
    seconds = s.last if s.last is not None else min(s.longest, stable_length(world, log, e, s.longest, only))
    return int(np.clip(round(seconds / world.dt), 1, most)) if np.isfinite(seconds) else most


def choose(laws: Sequence[Law], parts: Sequence[Split]) -> tuple[str, str, str, tuple[str, ...]]:
    """(best, chosen, why, alike) of laws from the simplest to the richest."""
    logs, names = np.log([x.errors for x in laws]), [x.name for x in laws]  # (L, S)
    best = at = int(np.argmin(logs.mean(1)))
    alike = [k for k in range(len(laws)) if k != best and _alike(logs[k] - logs[best])]
    why = ["it predicts what was left out best"]
    sizes = [len(x.params) for x in laws]
    fewer = lambda: (k for k in range(len(laws)) if sizes[k] < sizes[at])  # noqa: E731
    while simpler := next(((k, words) for k in fewer() if (words := _instead(logs, names, at, k, parts))), None):
        at = simpler[0]
        why.append(simpler[1])
    rest = [names[k] for k in alike if at == best]
    if rest:
        why.append(f"the data do not tell it and {', '.join(rest)} apart")
    return names[best], names[at], "; ".join(why[1:] or why), tuple(names[k] for k in alike)


def _alike(more: np.ndarray) -> bool:
    """Whether a law's log error exceeds another's by no more than 2 %, or one standard error over the splits (S,)."""
    return len(more) < 2 or bool(more.mean() <= max(MARGIN, more.std(ddof=1) / np.sqrt(len(more))))


def _instead(logs: np.ndarray, names: list[str], at: int, k: int, parts: Sequence[Split]) -> str:
    """Why to use the simpler law k in place of another, or nothing."""
    more = logs[k] - logs[at]
    if _alike(more):
        return f"the data do not tell {names[k]} and {names[at]} apart, and {names[k]} is simpler"
    worst = int(np.argmin(more))
    if np.exp(-more[worst]) > UNSAFE and -more[worst] > more.max():
        times = f"{np.exp(-more[worst]):.2g} times the error of {names[k]}"
        return f"{names[at]} predicts better in the mean, but with {parts[worst].name} left out it has {times}"
    return ""
