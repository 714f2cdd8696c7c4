"""`python -m tests.hostile`: surefoot on every hostile file, and a table of what it did by class.

--sample     about 100 files of all classes        --only KIND[/NAME]   some of them       --list   what there is
--json       results for machines                  --jobs N             at the same time   --keep DIR   leave the files there

400 s of one processor for all:

    class        files  refused  accepted  failures        class        files  refused  accepted  failures
    csv             44       34        10         0        deploy          39       38         1         0
    json            31       23         8         0        belief          47       46         1         0
    mapping         30       28         2         0        policy         119      115         4         0
    npz             38       29         9         0        run             87       54        33         0
    mat             19       18         1         0        term            98       96         2         0
    parquet         22       19         3         0        mjcf            56       49         7         0
    lerobot         31       20        11         0        mjcf paths      27       26         1         0
    mcap            31       27         4         0        urdf            22       17         5         0
    rosbag2         32       25         7         0        assets          25       18         7         0
    onnx            26       22         4         0        special         41       38         3         0
    contract        52       49         3         0        shadow          24        0        24         0
    bundle         136      129         7         0        names           50       37        13         0
    safety          73       71         2         0        rows            24       15         9         0
    all           1224     1043       181         0
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
