"""What is recorded of a policy's training: the seeds it has seen, and the task and model it was trained for.

A policy's contract has its seed, and its base's contract the base's; beside it, run.json has the run's seed and the run it
started from, and the folders `teacher` and `base` have those policies. Files that are missing or unreadable are skipped.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot import files, shipped
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.policy import Policy
from surefoot.rng import JUDGING, judging
from surefoot.task import Task

MOST = 100  # runs, each started from the one before


def folder_of(policy: Path) -> Path:
    path = shipped.located(Path(policy))
    return path if path.is_dir() else path.parent


def run_of(policy: Path) -> dict[str, Any]:
    """The run.json of a policy's folder or file; empty where there is none."""
    path = folder_of(policy) / "run.json"
    about = files.read_json(path) if path.is_file() else {}
    return files.check_seal(about, str(path)) if isinstance(about, dict) else {}


def trained_with(path: Path, policy: Policy | None = None) -> set[int]:
    """Every known seed of the trainings behind a policy."""
    return {
        int(s) for s in (*_in_contract(policy), *_recorded(folder_of(path))) if str(s).isdecimal() and len(str(s)) < 20
    }


def _in_contract(policy: Policy | None) -> Iterator[Any]:
    """In a policy's own contract, and in those of its bases."""
    if policy is not None:
        yield policy.contract.parents.get("seed")
        net = policy.about.get("net") if isinstance(policy, bundle.OnnxPolicy) else None
        while isinstance(net, dict) and isinstance(net.get("base_contract"), dict):
            parents = net["base_contract"].get("parents")
            yield parents.get("seed") if isinstance(parents, dict) else None
            net = net.get("base")


def _recorded(folder: Path) -> Iterator[Any]:
    """In the run's files, and in those of the runs it started from."""
    for _ in range(MOST):
        for name in ("teacher", "base"):
            if (folder / name / bundle.NAME).is_file():
                try:
                    yield from _in_contract(bundle.load(folder / name))
                except SurefootError:
                    pass
        about = run_of(folder)
        yield about.get("seed")
        if isinstance(about.get("judge"), dict) and isinstance(about.get("seed"), int):
            yield judging(about["seed"], "training")  # its best policy was chosen by these episodes
        start = about.get("start")
        if not isinstance(start, dict) or not isinstance(start.get("run"), str):
            return
        folder = Path(start["run"])


def unseen(seed: int, trained: set[int], count: int) -> range:
    """`count` seeds of judging episodes, none of which was used in training."""
    first = judging(seed)
    found = range(first, first + count)
    used = sorted(s for s in trained if s in found)
    if used:
        raise SurefootError(f"--seed: {seed}: training used its seed {used[0]}; choose another")
    return found


def sentence(used: range, trained: set[int]) -> str:
    """Which seeds were used, and why no training has seen them."""
    known = f"trained with {', '.join(map(str, sorted(trained)))}" if trained else "training seeds unknown"
    return f"episodes of seeds {used[0]} to {used[-1]}, unseen: {known}, and training has only seeds below {JUDGING}"


def changed(path: Path, policy: Policy, task: Task, reference: str) -> list[str]:
    """What has changed of the task and its model since training: by the run's record, or by the contract's hashes."""
    from surefoot.tasks.provenance import Provenance, changes, changes_of_hashes, provenance  # needs the simulator

    contract = policy.contract
    if task.name != contract.task:  # another task, on purpose
        return []
    now, kept = provenance(task, reference or contract.task), run_of(path).get("provenance")
    if kept is not None:
        was = Provenance.from_json(kept, f"{folder_of(path) / 'run.json'}: provenance")
        if shipped.is_shipped(path):  # tests compare its numbers; other words in our own module are no change
            now = replace(now, text_hash="", text="")
        if was.parents().items() <= dict(contract.parents).items():
            return changes(was, now)
    return changes_of_hashes(contract.parents, now)
