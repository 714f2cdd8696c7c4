"""Task files that this user has trained with: a policy finds its own again by the hash of its text.

    $XDG_STATE_HOME/surefoot/tasks.json, in ~/.local/state where that is not set:  {sha256 of the text: file.py:function}

Only training writes it, for a file that the user named. A policy of a stranger names a hash: it can only mean code that
this user ran before, unchanged, where it was.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from surefoot import files
from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.task import Task
from surefoot.tasks.override import for_contract
from surefoot.tasks.registry import named, names, resolve, task_file

MOST = 1000  # files that are remembered, the newest
LARGEST = 1 << 20  # bytes of a task file, and of the list


def remember(reference: str, text_hash: str) -> None:
    """Keep where a task file is; a list that cannot be written costs only the convenience."""
    file = task_file(reference)
    if file is None or not text_hash:
        return
    path, function = file
    known = _known()
    known.pop(text_hash, None)
    known[text_hash] = f"{path.resolve()}:{function}" if function else str(path.resolve())
    try:
        _list().parent.mkdir(parents=True, exist_ok=True)
        files.write_json(_list(), dict(list(known.items())[-MOST:]))
    except (OSError, SurefootError):
        return


def recall(parents: Mapping[str, str]) -> str | None:
    """The reference of the task file that a contract's parents name by its hash, if it is still there and unchanged."""
    text_hash = parents.get("task", "")
    reference = _known().get(text_hash)
    file = task_file(reference) if reference else None
    try:
        text = files.read_bytes(file[0], LARGEST).decode(errors="replace") if file else ""
        same = files.sha256(text.replace("\r\n", "\n").encode()) == text_hash
    except (OSError, SurefootError):
        return None
    return reference if same else None


def lost(parents: Mapping[str, str]) -> str:
    """What became of the task file that a contract's parents name by its hash, in words; empty if this user had none."""
    reference = _known().get(parents.get("task", ""), "")
    file = task_file(reference)
    if file is None:
        return ""
    there = file[0].is_file()
    gives = quote(reference) if there else "FILE.py"
    fate = "has changed since training" if there else "is not there any more"
    return f"{file[0]} {fate}; name that task yourself: --task {gives}"


def reference_of(contract: Contract) -> str:
    """What `resolve` takes for the task that a contract names: a name, or the file that this user trained with; else empty."""
    return contract.task if contract.task in names() else recall(contract.parents) or ""


def task_named(contract: Contract) -> Task:
    """The task that a contract names; a file only if this user trained with it before, and it is unchanged.

    Any other file or module is not imported: a policy may be a stranger's.
    """
    mine = recall(contract.parents) if contract.task not in names() else None
    if mine is not None:
        return resolve(mine)
    if contract.task not in names():
        how = lost(contract.parents) or "name that task yourself: --task FILE.py or MODULE:FUNCTION"
        raise SurefootError(f"the policy is for the task {contract.task!r}; {how}")
    return named(contract.task)


def of(contract: Contract, given: str | Task = "") -> Task:
    """The task a policy with this contract was made for, or the one that is given, which it fits."""
    known = given if isinstance(given, Task) else resolve(given) if given else task_named(contract)
    task = for_contract(known, contract)
    if task.action.names != contract.action.names:
        theirs, own = ", ".join(contract.action.names), ", ".join(task.action.names)
        raise SurefootError(f"the policy drives {theirs}; {task.name} {own}")
    from surefoot.sim.layout import layout_of
    from surefoot.sim.model.load import load_robot
    from surefoot.tasks.rollout import contract_of

    model = load_robot(task.robot).own[0]
    means = contract_of(task, layout_of(model), 1 / (task.substeps * model.opt.timestep))
    differs = means.differences(contract, but=("task", "parents", "about", "ports", "command_ranges"))
    if differs:  # the task computes observations and controls, so another policy would be judged
        raise SurefootError(f"the policy's contract is not that of {task.name}: {'; '.join(differs[:4])}")
    return task


def task_flag(given: str, contract: Contract) -> str:
    """` --task X` for the next command, where a policy does not find by itself the task that the user gave; else empty."""
    if not given or given == contract.task in names() or _same(given, recall(contract.parents)):
        return ""
    return f" --task {quote(given)}"


def _same(given: str, known: str | None) -> bool:
    """Whether both mean one function of one file."""
    one, other = task_file(given), task_file(known or "")
    return one is not None and other is not None and (one[0].resolve(), one[1]) == (other[0], other[1])


def _list() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "surefoot" / "tasks.json"


def _known() -> dict[str, str]:
    try:
        found = files.read_json(_list(), LARGEST)
    except (OSError, SurefootError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
