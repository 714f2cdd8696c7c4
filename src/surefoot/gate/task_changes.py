"""What has changed of a policy's task and model since it was trained."""

from pathlib import Path

from surefoot.gate.training_seeds import folder_of, run_of
from surefoot.policy import Policy
from surefoot.task import Task


def changed(path: Path, policy: Policy, task: Task, reference: str) -> list[str]:
    """As its run tells it; where that is not there, as its contract does."""
    from surefoot.tasks.provenance import Provenance, changes, changes_of_hashes, provenance  # needs the simulator

    contract = policy.contract
    if task.name != contract.task:  # another task, on purpose
        return []
    now, kept = provenance(task, reference or contract.task), run_of(path).get("provenance")
    if kept is not None:
        was = Provenance.from_json(kept, f"{folder_of(path) / 'run.json'}: provenance")
        if was.parents().items() <= dict(contract.parents).items():
            return changes(was, now)
    return changes_of_hashes(contract.parents, now)
