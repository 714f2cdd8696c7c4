"""`python -m tests.hostile`: surefoot on every hostile file, and a table of what it did by class.

--sample     about 100 files of all classes        --only KIND[/NAME]   some of them       --list   what there is
--json       results for machines                  --jobs N             at the same time   --keep DIR   leave the files there
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # a fork of a process with threads may wait for one that is gone

from . import harness, make  # noqa: E402


def main() -> int:
    say = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    for flag in ("sample", "json", "list"):
        say.add_argument(f"--{flag}", action="store_true")
    say.add_argument("--only", nargs="*", default=[])
    say.add_argument("--jobs", type=int, default=2)
    say.add_argument("--seconds", type=float, default=harness.SECONDS)
    say.add_argument("--keep", type=Path)
    asked = say.parse_args()
    cases = make.sample() if asked.sample else make.everything()
    if asked.only:
        cases = [c for c in cases if c.kind in asked.only or f"{c.kind}/{c.name}" in asked.only]
    if asked.list:
        print("\n".join(f"{c.kind}/{c.name}: {c.want}: surefoot {' '.join(c.argv)}" for c in cases))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        root = (asked.keep or Path(temporary)).absolute()
        harness.prepare(root / "good")
        harness.load_everything()
        told = lambda r: print(f"{r.cpu:6.2f} s  {r.kind}/{r.name}  {dict(r.failed) or ''}", file=sys.stderr, flush=True)  # noqa: E731  # fmt: skip
        found = harness.run(cases, root / "cases", root / "good", asked.jobs, asked.seconds, told)
    print(harness.as_json(found) if asked.json else f"{harness.report(found)}\n\n{harness.table(found)}")
    return int(any(r.failed for r in found))


if __name__ == "__main__":
    sys.exit(main())
