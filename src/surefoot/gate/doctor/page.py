"""The page of a diagnosis: the tree with its evidence, the weights, what was expected and what came."""

from pathlib import Path
from typing import Any

import numpy as np

from surefoot.gate import report
from surefoot.gate.doctor.diagnosis import Diagnosis

SHOWN = 8


def write(
    path: Path,
    title: str,
    found: Diagnosis,
    branches: list[tuple[str, str, str]],
    said: list[str],
    facts: dict[str, Any],
) -> Path:
    parts = [report.paragraph(said[0], "good" if found.healthy else "bad"), *(report.paragraph(x) for x in said[1:])]
    parts += [report.heading("The tree"), report.table(["branch", "", "evidence"], branches)]
    chances = found.chances()
    rows = [(c.kind, c.about, f"{c.evidence:.1f}", c.explains, f"{chances[c.kind]:.3f}") for c in found.causes[:SHOWN]]
    parts += [report.heading("Causes, most telling first"),
              report.table(["cause", "what", "evidence [nats]", "explains", "probability"], rows)]  # fmt: skip
    parts.append(report.plot(lambda ax: _bars(ax, found), "evidence of each cause against nothing being wrong, nats"))
    if found.physics is not None:
        parts.append(report.plot(lambda ax: _latency(ax, found), "evidence of latencies, nats"))
        parts.append(report.plot(lambda ax: _surprise(ax, found), "what the model did not expect, each channel in its noise: with nothing wrong, and under the first cause"))  # fmt: skip
    return report.write(path, title, parts, facts)


def _bars(ax: Any, found: Diagnosis) -> None:
    top = [c for c in found.causes[:SHOWN] if np.isfinite(c.evidence)][::-1]
    ax.barh([c.kind for c in top], [max(c.evidence, 0.0) for c in top])
    ax.set_xscale("symlog", linthresh=10)


def _latency(ax: Any, found: Diagnosis) -> None:
    assert found.physics is not None
    rows = [(1e3 * x.e[0], x.cause.evidence) for x in found.physics.latencies if x.e is not None]
    ax.plot(*zip(*[r for r in rows if np.isfinite(r[1])]), ".-")
    ax.set_xlabel("ms")


def _surprise(ax: Any, found: Diagnosis) -> None:
    assert found.physics is not None
    j, first = found.physics.judge, found.weighed(found.first)
    shown = [(j.plain, "nothing wrong")] + ([(first.eps, first.cause.kind)] if first else [])
    sd = np.sqrt(np.diag(j.spread(j.rows(shown[-1][0]))))
    for eps, name in shown:
        ax.plot(np.sqrt(np.nanmean(np.square(j.rows(eps) / sd), 1)), lw=0.8, label=name)
    ax.set_yscale("log")
    ax.legend()
