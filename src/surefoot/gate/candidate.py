"""Candidate: a policy to be judged with its task, from a run, a bundle, or an ONNX file of ours or from elsewhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from surefoot import files, tasks
from surefoot.contract import Contract
from surefoot.control import layers
from surefoot.deploy import bundle, foreign, manifest
from surefoot.deploy.bundle import OnnxPolicy
from surefoot.errors import SurefootError
from surefoot.gate.training_record import changed, trained_with
from surefoot.onnx_file import Graph, read
from surefoot.policy import Policy
from surefoot.task import Task
from surefoot.tasks import from_contract
from surefoot.tasks.known import task_flag
from surefoot.tasks.registry import task_file
from surefoot.tasks.rollout import contract

Rewire = Callable[[Contract], tuple[Policy, Task]]


@dataclass(frozen=True)
class Candidate:
    name: str
    policy: Policy
    task: Task
    parents: dict[str, str]
    """content hashes"""
    given: Contract | None = None
    """of a policy from elsewhere"""
    rewire: Rewire | None = None
    """the same net under another contract"""
    notes: tuple[str, ...] = field(default=())
    trained: frozenset[int] = frozenset()
    """known seeds of the trainings behind it"""
    reference: str = ""
    """the task as the user named it; empty where the contract's name says which"""
    files: Mapping[str, Any] = field(default_factory=dict)
    """the arguments of `candidate` that give it again, in another process; empty where they are no files"""

    @property
    def task_flag(self) -> str:
        """With which the next command finds the task, where it needs one."""
        return task_flag(self.reference, self.policy.contract)

    def facts(self) -> dict[str, Any]:
        return {"policy": self.name, "task": self.task.name, "parents": self.parents, "notes": list(self.notes)}


def candidate(
    path: Path,
    task: str | Task = "",
    model: Path | None = None,
    contract_file: Path | None = None,
    command: tuple[float, ...] | None = None,
    seconds: float | None = None,
    safety: Path | None = None,
) -> Candidate:
    """A policy and its task; `model` and a contract for one from elsewhere; `safety`: the layers it wears."""
    found = _bare(path, task, model, contract_file, command, seconds)
    if safety is None and all((Path(path) / name).is_file() for name in (manifest.MANIFEST, layers.NAME)):
        safety = Path(path)  # a bundle is judged as it will run
    found = found if safety is None else _worn(found, safety)
    if isinstance(task, Task):
        return found
    here = {"path": path, "model": model, "contract_file": contract_file, "safety": safety}
    paths = {k: p.absolute() if p is not None and p.exists() else p for k, p in here.items()}
    file = task_file(task)
    task = f"{file[0].absolute()}{':' * bool(file[1])}{file[1]}" if file else task
    return replace(found, files=paths | {"task": task, "command": command, "seconds": seconds})


def _worn(who: Candidate, safety: Path) -> Candidate:
    """The same in its safety layers: every check drives the policy as the robot will have it."""
    worn, at = layers.read(safety), layers.located(safety)
    parents = who.parents | {"safety": files.sha256(files.read_bytes(at, files.LARGEST_JSON))}
    kinds = ", ".join(layers.to_json(x)["kind"] for x in worn)
    rewire, notes = who.rewire, (*who.notes, f"judged with the safety layers of {at}: {kinds}")

    def again(given: Contract) -> tuple[Policy, Task]:
        assert rewire is not None
        policy, task = rewire(given)
        return layers.wear(policy, worn), task

    policy = layers.wear(who.policy, worn)
    return replace(who, policy=policy, parents=parents, notes=notes, rewire=None if rewire is None else again)


def _bare(
    path: Path,
    task: str | Task,
    model: Path | None,
    contract_file: Path | None,
    command: tuple[float, ...] | None,
    seconds: float | None,
) -> Candidate:
    path, given = Path(path), (model, contract_file, command)
    bundle.refuse_torch(path)
    if path.suffix != ".onnx":
        _refuse_foreign(path, given)
        return _ours(path, bundle.load(path), task)
    graph = read(path, *_ports(contract_file))
    if "surefoot" in graph.metadata and contract_file is None:
        _refuse_foreign(path, given)
        return _ours(path, bundle.ours(path, graph), task)
    if model is None:
        raise SurefootError(f"{path}: not trained by surefoot: expected its robot, --model robot.xml")
    return _foreign(path, graph, model, contract_file, command, seconds or from_contract.SECONDS)


def _foreign(
    path: Path, graph: Graph, model: Path, contract_file: Path | None, command: tuple[float, ...] | None, seconds: float
) -> Candidate:
    found = foreign.contract_of(contract_file, graph.metadata, from_contract.motors(model), str(path))
    foreign.check_fits(graph, found.contract, str(path))

    def rewire(given: Contract) -> tuple[Policy, Task]:
        made, _ = from_contract.task_of(model, given, command, seconds)
        own = contract(made, tasks.env(made, 1).world)
        return OnnxPolicy(own, graph, {}), made

    policy, task = rewire(found.contract)
    notes = (*found.notes, *from_contract.differences(model, found.contract))
    sources = {"policy": path, "model": model} | ({} if contract_file is None else {"contract": contract_file})
    parents = {name: files.sha256(source.read_bytes()) for name, source in sources.items()}
    return Candidate(str(path), policy, task, parents, found.contract, rewire, notes)


def _ours(path: Path, policy: OnnxPolicy, given: str | Task) -> Candidate:
    """With the task it was made for, or another that it fits."""
    task = tasks.of(policy.contract, given)
    reference = "" if isinstance(given, Task) else given
    notes = tuple(changed(path, policy, task, reference))
    task = replace(task, observations={"actor": task.observations["actor"]})  # no critic: nothing is trained here
    parents = {"policy": files.sha256(policy.graph.data)}
    return Candidate(
        str(path),
        policy,
        task,
        parents,
        notes=notes,
        trained=frozenset(trained_with(path, policy)),
        reference=reference,
    )


def _ports(contract_file: Path | None) -> tuple[str, str]:
    """Names of the net's input and output, if a contract file gives them."""
    if contract_file is None or contract_file.suffix != ".json":
        return "", ""
    data = files.read_json(contract_file)
    names = [data.get(k, "") if isinstance(data, dict) else "" for k in ("input", "output")]
    return tuple(n if isinstance(n, str) else "" for n in names)  # type: ignore[return-value]


def _refuse_foreign(path: Path, given: tuple[object, ...]) -> None:
    if any(x is not None for x in given):
        raise SurefootError(
            f"{path}: has its own contract; --model, --contract and --command are for policies without one"
        )
