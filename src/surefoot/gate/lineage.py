"""Which seeds a policy was trained with: its own, and those of the runs and policies it was made from.

A policy's contract names its seed, and its base's contract the base's; beside it, run.json names the run's seed and the run it
began with, and folders `teacher` and `base` hold what it learned from. What is missing or unreadable tells nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.policy import Policy
from surefoot.rng import JUDGING, judging

MOST = 100  # runs that began with one another


def folder_of(policy: Path) -> Path:
    return Path(policy) if Path(policy).is_dir() else Path(policy).parent


def run_of(policy: Path) -> dict[str, Any]:
    """What run.json says of the run that a policy's folder or file is of; nothing where there is none."""
    path = folder_of(policy) / "run.json"
    about = files.read_json(path) if path.is_file() else {}
    return files.check_seal(about, str(path)) if isinstance(about, dict) else {}


def trained_with(path: Path, policy: Policy | None = None) -> set[int]:
    """Every seed that is known of the trainings behind a policy."""
    return {int(s) for s in (*_told(policy), *_recorded(folder_of(path))) if str(s).isdecimal() and len(str(s)) < 20}


def _told(policy: Policy | None) -> Iterator[Any]:
    """By a policy's own contract, and by those it stands on."""
    if policy is not None:
        yield policy.contract.parents.get("seed")
        net = policy.about.get("net") if isinstance(policy, bundle.OnnxPolicy) else None
        while isinstance(net, dict) and isinstance(net.get("base_contract"), dict):
            yield net["base_contract"].get("parents", {}).get("seed")
            net = net.get("base")


def _recorded(folder: Path) -> Iterator[Any]:
    """By the run's files, and by those of the runs it began with."""
    for _ in range(MOST):
        for name in ("teacher", "base"):
            if (folder / name / bundle.NAME).is_file():
                try:
                    yield from _told(bundle.load(folder / name))
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
    """Seeds of judging episodes, as many as `count`, none of which is one of training."""
    first = judging(seed)
    found = range(first, first + count)
    met = sorted(s for s in trained if s in found)
    if met:
        raise SurefootError(
            f"--seed: {seed}: the episodes would be those of training with seed {met[0]}; choose another"
        )
    return found


def said(found: range, trained: set[int]) -> str:
    """Which seeds were used, and why no training has met them."""
    known = (
        f"it was trained with {', '.join(map(str, sorted(trained)))}"
        if trained
        else "what it was trained with is not known"
    )
    return (
        f"episodes of seeds {found[0]} to {found[-1]}, unseen: {known}, and training takes seeds below {JUDGING} alone"
    )
