"""The doctor's report: its facts as blocks, whether the doctor has just found them or a file kept them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.doctor.diagnosis import Diagnosis
from surefoot.errors import SurefootError
from surefoot.report import Axis, Badge, Block, Column, Note, Plot, Series, Table, Text

SHOWN, DRAWN = 5, 8  # causes in the table, and in the plot
POINTS = 400  # of the plot of prediction errors, at most
HEALTHY = "healthy"
NEAR = 3.0  # nats: causes that differ by less are not told apart


def read(path: Path) -> tuple[Badge, tuple[Block, ...]]:
    """The badge and the blocks of the facts that the doctor wrote; refused where they are none of its."""
    facts = files.read_json(path)
    try:
        return badge(facts), blocks(facts)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise SurefootError(
            f"{path}: expected what `surefoot doctor` writes: {type(error).__name__}: {error}"
        ) from None


def badge(facts: dict[str, Any]) -> Badge:
    return Badge(str(facts["words"]), facts["verdict"] == HEALTHY)


def blocks(facts: dict[str, Any]) -> tuple[Block, ...]:
    """Each branch with its answer, the causes, what follows from them, and the evidence as plots."""
    notes = (Note(words, True) for words in facts["notes"])
    answers = [[b["question"], b["answer"], b["evidence"]] for b in facts["branches"]]
    return (
        *notes,
        Table.of(["question", "", "evidence"], answers),
        _causes(facts["causes"]),
        *map(Text, facts["said"]),
        *_plots(facts),
    )


def answer(found: Diagnosis, unfit: bool) -> str:
    """healthy, cause or not checked; `unfit`: the policy fails in the nominal world."""
    if found.significant or unfit:
        return "cause"
    return "not checked" if found.unchecked else HEALTHY


def sentence(found: Diagnosis, unfit: bool) -> str:
    """The answer in a sentence."""
    policy = "FAIL: the policy fails in the nominal world; "
    if found.first is None and found.unchecked:
        words = "; ".join(f"{b.name}: {b.evidence}" for b in found.unchecked)
        return f"{policy if unfit else ''}NOT CHECKED: {words}; no cause in what was checked"
    if found.first is None:
        nothing = "the log shows no cause, noise explains it"
        return f"{policy}{nothing}" if unfit else f"PASS: {nothing}"
    first, *rest = found.significant
    near = [c.kind for c in rest if first.evidence - c.evidence < NEAR]
    alike = f"; this log does not separate it from {' or '.join(near)}" if near else ""
    return f"{policy if unfit else 'FAIL: '}{first.kind}: {first.detail}{alike}"


def evidence(found: Diagnosis) -> dict[str, Any]:
    """What the plots show: nats of each latency [ms], and the innovations over their noise, row by row."""
    branches = {"branches": [asdict(b) for b in found.branches()]}
    if found.physics is None:
        return branches | {"latencies": [], "errors": {}, "rows": 1}
    late = {1000 * t: x.cause.evidence for t, x in found.physics.latencies.items() if np.isfinite(x.cause.evidence)}
    likelihood, first = found.physics.likelihood, found.weighed(found.first)
    under = {"nothing wrong": likelihood.plain} | ({first.cause.kind: first.eps} if first else {})
    rows = {name: likelihood.rows(eps) for name, eps in under.items()}
    sd = np.sqrt(np.diag(likelihood.covariance(list(rows.values())[-1])))
    count = -(-max(map(len, rows.values())) // POINTS)
    errors = {name: _together(np.nanmean(np.square(x / sd), 1), count) for name, x in rows.items()}
    return branches | {"latencies": [list(x) for x in late.items()], "errors": errors, "rows": count}


def _together(squares: np.ndarray, count: int) -> list[float]:
    """Root mean square of so many rows each."""
    cuts = np.arange(0, len(squares), count)
    return np.sqrt(np.add.reduceat(squares, cuts) / np.diff([*cuts, len(squares)])).tolist() if len(squares) else []


def _causes(causes: list[dict[str, Any]]) -> Table:
    shown = [c for c in causes[:SHOWN] if c["evidence"] is not None and c["evidence"] > 0]
    share = lambda c: "-" if c["share"] is None else f"{c['share']:.0%}"  # noqa: E731
    rows = [[c["kind"], c["about"], c["evidence"], share(c), c["probability"]] for c in shown]
    columns = ["cause", "details", Column("evidence", "nats", ".1f"), "explains", Column("probability", form=".3f")]
    return Table.of(columns, rows, "causes, most likely first")


def _plots(facts: dict[str, Any]) -> list[Plot]:
    """Evidence of causes and latencies, and prediction errors of the model."""
    top = [c for c in facts["causes"][:DRAWN] if c["evidence"] is not None]
    nats = Axis("evidence", "nats", "symlog")
    bars = Series.of("", [max(c["evidence"], 0.0) for c in top], range(len(top)), style="bars")
    plots = [Plot("Evidence for each cause", (bars,), nats, Axis(names=tuple(c["kind"] for c in top)),
                  caption="against nothing wrong")]  # fmt: skip
    if not facts["errors"]:
        return plots
    late = facts["latencies"]
    line = Series.of("", [t for t, _ in late], [x for _, x in late], style="points")
    plots.append(Plot("Evidence for latency", (line,), Axis("latency", "ms"), Axis("evidence", "nats")))
    count, size = facts["rows"], facts["errors"]
    series = tuple(Series.of(name, [count * k for k in range(len(y))], y) for name, y in size.items())
    each = f" Each point is the root mean square of {count} rows." if count > 1 else ""
    caption = f"Innovation of each row over its noise: with nothing wrong, and with the first cause.{each}"
    errors = Plot("Prediction errors", series, Axis("row"), Axis("error / noise", scale="log"), caption=caption)
    return [*plots, errors]
