"""The policies that ship with the package: train, judge, gate, and put a slim run folder into src/surefoot/policies.

    python -m benchmarks.policies [TASK ...]        make policies ONLY=walk

Each task is trained with its own settings over its own belief, seed 0; ten evaluations on the way choose the best policy,
which is then evaluated and gated on episodes of other seeds. A policy that fails the gate ships too, with that verdict. Runs are in
build/policies: one that was stopped goes on, one that is finished is used again. To train anew, remove its folder there.
"""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from surefoot import files, shipped, tasks
from surefoot.cli.terminal import Line, Plain
from surefoot.deploy.bundle import BEST
from surefoot.gate.report import badge
from surefoot.learn.settings import PPOSettings, tuned
from surefoot.verbs.judge.eval import Eval
from surefoot.verbs.judge.gate import Gate
from surefoot.verbs.train.train import Train

TASKS = ("balance", "balance-discrete", "hover", "arm", "walk", "walk-rough", "humanoid")  # quickest first
BUILD = Path(__file__).parents[1] / "build" / "policies"
LARGEST = 350_000  # bytes of a folder


def main(names: list[str]) -> None:
    BUILD.mkdir(parents=True, exist_ok=True)
    os.chdir(BUILD)  # so that records name a policy by its task alone
    watch = Line(Plain())
    for name in names or TASKS:
        train(name, watch)
        folder = slim(name)
        judged(name, folder, watch)
        deliver(name, folder)


def train(name: str, watch: Line) -> None:
    """Into build/policies/<task>, from where it stopped."""
    if (Path(name) / "run.json").exists():
        verb = Train(resume=Path(name))
    else:
        every = -(-tuned(PPOSettings, tasks.resolve(name)).steps // 10)
        verb = replace(Train.tuned(name), task=name, out=Path(name), judge_every=every)
    verb.run(watch)
    watch.end()


def slim(name: str) -> Path:
    """A folder with the best policy, its run's record, and the metrics of each evaluation."""
    run, folder = Path(name), Path("shipped") / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    best = run / BEST
    shutil.copy(best, folder / shipped.POLICY)
    shutil.copy(best.with_suffix(".safetensors"), (folder / shipped.POLICY).with_suffix(".safetensors"))
    shutil.copy(run / "run.json", folder)
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(r for r in rows if "judge/success" in json.loads(r)))
    return folder


def judged(name: str, folder: Path, watch: Line) -> None:
    """Success over the task's belief, and the gate's verdict, beside the policy."""
    os.chdir(folder.parent)
    try:
        found = Eval(Path(name)).run(watch).facts
        files.write_json(Path(name) / "eval.json", found)
        Gate(Path(name)).run(watch)
        watch.end()
    finally:
        os.chdir(BUILD)


def deliver(name: str, folder: Path) -> None:
    """Into the package, in place of the one before."""
    size = sum(p.stat().st_size for p in folder.iterdir())
    if size > LARGEST:
        raise SystemExit(f"{folder}: {size} bytes, expected at most {LARGEST}")
    shutil.rmtree(shipped.HOME / name, ignore_errors=True)
    shutil.copytree(folder, shipped.HOME / name)
    found = shipped.evaluation(name)
    print(f"{name}: {size} bytes, success {found['success']:.1%}, {badge(shipped.verdict(name)).words}")


if __name__ == "__main__":
    main(sys.argv[1:])
