"""A run's policy as a bundle: golden vectors of its nominal robot, limits of its model, its belief and its verdict."""

from collections.abc import Mapping
from pathlib import Path

from surefoot import files
from surefoot.belief import Belief
from surefoot.control import layers
from surefoot.control.reach_avoid import ReachAvoid
from surefoot.deploy import bundle, manifest
from surefoot.deploy.bundle import Golden, OnnxPolicy
from surefoot.deploy.limits import limits_of
from surefoot.deploy.manifest import Manifest
from surefoot.deploy.runtime.controller import needs
from surefoot.env import Env
from surefoot.gate.training_record import folder_of, run_of
from surefoot.policy import Policy
from surefoot.task import Task
from surefoot.verdict import Verdict

SECONDS, NUMBERS = 4.0, 200_000  # of golden vectors, and numbers of all observations together


def bundled(
    path: Path, policy: OnnxPolicy, task: Task, limits: Mapping[str, float], safety: Path | None = None
) -> tuple[dict[str, bytes], str]:
    """The files of a bundle of the policy at `path`, and why it has no verdict.

    `limits` are in place of the model's, `safety` are the layers that it wears.
    """
    from surefoot import tasks

    env, worn = tasks.env(task, 1), _layers(safety)
    found = limits_of(policy.contract, env.world.layout, task.kind).with_(limits)
    onnx = files.read_bytes(bundle.find(path), bundle.LARGEST)
    verdict, why = _verdict(path, files.sha256(onnx), files.sha256(worn[layers.NAME]) if worn else "")
    belief = run_of(path).get("belief")
    own = {"gate": folder_of(path) / "gate.json", "run": folder_of(path) / "run.json"}
    parents = {k: files.sha256(p.read_bytes()) for k, p in own.items() if p.is_file() and (k != "gate" or verdict)}
    made = Manifest(
        found,
        None if belief is None else Belief.from_json(belief, f"{own['run']}: belief"),
        verdict,
        parents={**policy.contract.parents, **parents},
    )
    driven, _ = manifest.wear(policy, worn, str(safety))
    return manifest.contents(policy, onnx, made, _golden(policy, driven, env), worn), why


def _layers(safety: Path | None) -> dict[str, bytes]:
    """The files of safety layers as they were written, by the names that a bundle has for them."""
    if safety is None:
        return {}
    at = layers.located(safety)
    found = {layers.NAME: files.read_bytes(at, files.LARGEST_JSON)}
    if any(isinstance(x, ReachAvoid) for x in layers.read(at)):
        found[layers.VALUE] = files.read_bytes(at.with_name(layers.VALUE), bundle.LARGEST)
    return found


def _golden(policy: OnnxPolicy, driven: Policy, env: Env) -> Golden:
    """`driven` is the policy in its layers."""
    from surefoot.tasks.golden import recorder

    c = policy.contract
    rows = max(4, round(SECONDS * c.rate))
    recorded = recorder(env.task, env.world)(driven, rows, NUMBERS, needs(c))
    return bundle.golden_with(c, policy.answers(recorded["obs"]), **recorded)


def _verdict(path: Path, policy: str, safety: str) -> tuple[Verdict | None, str]:
    """What the gate said of these very files, by their hashes, or why there is nothing."""
    gate = folder_of(path) / "gate.json"
    if not gate.is_file():
        return None, "the gate has not judged this policy"
    verdict = Verdict.from_json(files.read_json(gate), str(gate))
    if manifest.judged(verdict)[0] != policy:
        return None, f"{gate} is about another policy"
    if manifest.judged(verdict)[1] != safety:
        return None, f"{gate} is about {'other safety layers, or none' if safety else 'the policy in safety layers'}"
    return verdict, "" if verdict.holds else "the gate says FAIL"
