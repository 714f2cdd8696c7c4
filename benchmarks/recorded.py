"""Copy the figures of the lab's map from benchmarks/results into the package.

    python -m benchmarks.recorded

`measure.record` does it whenever a part is recorded, so the map shows what was measured last.
"""

import json
from typing import Any

from benchmarks import measure
from surefoot import files
from surefoot.lab.methods import METHODS, RECORDED


def figures() -> dict[str, dict[str, Any]]:
    """Each row that the map shows, with its date and machine."""
    found = {}
    for method in METHODS:
        if method.row is None:
            continue
        benchmark, part, name = method.row
        run = json.loads((measure.RESULTS / f"{benchmark}.json").read_text())["parts"][part]
        row = next(r for r in run["rows"] if r["name"] == name)
        kept = {k: row[k] for k in ("value", "low", "high", "unit")}
        found["/".join(method.row)] = kept | {"date": run["date"][:10], "cpu": run["machine"]["cpu"]}
    return found


def write() -> None:
    files.write(RECORDED, (json.dumps(figures(), indent=1) + "\n").encode())


if __name__ == "__main__":
    write()
