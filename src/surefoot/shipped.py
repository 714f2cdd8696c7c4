"""Policies that ship with the package: a slim run folder for a ready task, which nothing writes to.

    policies/<task>/  policy.onnx · policy.safetensors · run.json · metrics.jsonl (about 20 rows) · eval.json · gate.json

Wherever a run's folder is expected, the name of such a task means this folder, unless the current directory has a file or
folder of that name. `make policies` makes them again.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot import files

if TYPE_CHECKING:  # `surefoot --help` lists names and does not wait for numpy
    from surefoot.verdict import Verdict

HOME = Path(__file__).parent / "policies"
POLICY = "policy.onnx"


def names() -> list[str]:
    """Tasks that have a shipped policy."""
    return sorted(p.parent.name for p in HOME.glob(f"*/{POLICY}"))


def located(given: Path) -> Path:
    """Where a run or a policy is that a user names by its path, or by the name of a task."""
    return HOME / given.name if is_name(given) and not given.exists() else given


def is_name(given: Path | str) -> bool:
    """Whether a path is no more than the name of a task with a shipped policy."""
    return str(given) in names()


def is_shipped(path: Path) -> bool:
    return located(path).resolve().is_relative_to(HOME.resolve())


def products(policy: Path, runs: Path = Path("runs")) -> Path:
    """The folder for what is made of a policy: beside it; of a shipped one, shipped-<task> among the runs."""
    path = located(Path(policy))
    folder = path if path.is_dir() else path.parent
    return runs / f"shipped-{folder.name}" if is_shipped(policy) else folder


def shadows(given: Path | str) -> str:
    """A sentence where a file or folder here is used in place of the shipped policy of the same name; else empty."""
    if not is_name(given) or not Path(given).exists():
        return ""
    return f"{given} is in the current directory and is used, not the policy that ships with surefoot under this name"


def verdict(name: str) -> "Verdict":
    """What the gate said of it."""
    from surefoot.verdict import Verdict

    path = HOME / name / "gate.json"
    return Verdict.from_json(files.read_json(path), str(path))


def evaluation(name: str) -> dict[str, Any]:
    """Facts of `surefoot eval`, as they were when it was made."""
    return dict(files.read_json(HOME / name / "eval.json"))
