"""surefoot export: a policy for a robot's computer, checked against the net it came from: a bundle, or its ONNX file alone."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from surefoot import files, shipped
from surefoot.errors import SurefootError
from surefoot.report import Block, Note, Report, Text, Watch
from surefoot.verbs.arguments import chosen, numbers

if TYPE_CHECKING:
    from surefoot.contract import Contract
    from surefoot.learn.nets.policy_net import PolicyNet
    from surefoot.task import Task


@dataclass(frozen=True)
class Export:
    policy: Positional[Path]
    """a run's folder, a policy.onnx, or a task with a shipped policy (see `surefoot tasks`)"""
    best: bool = False
    """use the best policy of the run (kept by --judge-every) instead of the last one"""
    out: Path | None = None
    """a folder or a .zip for the bundle, or a .onnx for that file alone; default: the folder `bundle` beside the policy; of a
    shipped one, <task>-bundle here"""
    limit: tuple[str, ...] = ()
    """limits of the bundle in place of the model's, for all joints alike: torque=20,velocity=15,rate=10,power=300,tilt=0.8,
    temperature=70,soft_start=3"""
    safety: Path | None = None
    """safety layers around the policy on the robot (docs/safety.md): a safety.json, or the folder that `surefoot guard` wrote"""
    task: str = ""
    """the policy's task file or module, if it has changed or moved; export reports what has changed since training"""
    sign: Path | None = None
    """private ed25519 key (PEM) to sign with: the .onnx, the .zip, or the manifest of a folder"""

    def run(self, watch: Watch) -> Report:
        if self.best:
            return replace(self, best=False, policy=chosen(self.policy)).run(watch)
        from surefoot import tasks
        from surefoot.deploy import bundle
        from surefoot.learn.nets.export import load_net, onnx_difference

        net, own = load_net(self.policy), bundle.find(self.policy)
        worst, unseen, since = onnx_difference(net, own), tasks.privileged(net.contract), self._changed(net)
        out = self.out or self._usual(own, unseen)
        facts: dict[str, Any] = {
            "largest_difference": worst, "privileged": unseen, "signature": None, "contract": net.contract.to_json(),
            "changed": since,
        }  # fmt: skip
        blocks = [*self._bundle(out, facts)] if out.suffix != ".onnx" else [*self._onnx(own, out, facts)]
        blocks.insert(1, Text(f"its outputs differ from torch's by at most {worst:.1e} on 1024 observations"))
        blocks += [Note(words, True) for words in since]
        if unseen:
            blocks.append(Note(f"no robot can run it: it observes {', '.join(unseen)}, which no sensor measures", True))
        passed = facts.get("verdict") == "PASS"
        following = f"surefoot bundle check {quote(str(out))}" if passed else self._gate(net.contract)
        return Report(f"{self.policy}, exported", facts, tuple(blocks), following)

    def _usual(self, own: Path, unseen: list[str]) -> Path:
        """Where it goes if nobody says: what no robot can run stays an ONNX file."""
        if unseen:
            return Path(f"{own.parent.name}.onnx") if shipped.is_shipped(own) else own
        return Path(f"{own.parent.name}-bundle") if shipped.is_shipped(own) else own.parent / "bundle"

    def _onnx(self, own: Path, out: Path, facts: dict[str, Any]) -> list[Block]:
        from surefoot.deploy import bundle, sign

        if self.limit or self.safety:
            flag = "--limit" if self.limit else "--safety"
            raise SurefootError(f"{flag}: only for a bundle; leave out --out FILE.onnx")
        if out != own or self.sign:
            with files.held(out.with_name(f"{out.name}.lock"), f"writing {out.name} here"):
                files.clear_parts(out.parent, out.name + ".*")
                if out != own:
                    files.write(out, files.read_bytes(own, bundle.LARGEST))
                facts["signature"] = str(sign.sign(out, self.sign)) if self.sign else None
        facts |= {"onnx": str(out), "bytes": out.stat().st_size}
        signed: list[Block] = [Text(f"signed: {facts['signature']}")] if self.sign else []
        return [Text(f"{out}: {facts['bytes']} bytes"), *signed]

    def _bundle(self, out: Path, facts: dict[str, Any]) -> list[Block]:
        from surefoot.deploy import bundle, manifest, sign
        from surefoot.gate.bundled import bundled

        if out.suffix == ".zip":
            files.check_writable(out, "--out", ".zip")
        elif out.is_dir() and any(
            p.name not in (*manifest.LARGEST, *manifest.LAYERS, f"{manifest.MANIFEST}.sig") for p in out.iterdir()
        ):
            raise SurefootError(f"--out: {out}: found other files there; expected a new folder, or one with a bundle")
        limits = numbers(self.limit, "--limit", "torque=20")
        policy = bundle.load(self.policy)
        made, why = bundled(self.policy, policy, self._task(policy.contract), limits, self.safety)
        with files.held(out.with_name(f"{out.name}.lock"), f"writing {out.name} here"):
            manifest.write(out, made)
            facts["signature"] = str(sign.sign(manifest.signed_file(out), self.sign)) if self.sign else None
        found = manifest.read(out)
        facts |= {
            "bundle": str(out), "onnx": str(out if out.suffix == ".zip" else out / bundle.NAME),
            "bytes": sum(map(len, made.values())), "golden_seconds": len(found.golden.obs) / policy.contract.rate,
            "golden_differences": dict(found.worst), "limits": found.manifest.limits.to_json(),
            "wears": list(found.manifest.wears), "verdict": "PASS" if found.passed else "none" if found.manifest.verdict is None else "FAIL",
        }  # fmt: skip
        words = f"{out}: {facts['bytes']} bytes, {facts['golden_seconds']:g} s of golden vectors, verdict {facts['verdict']}"
        blocks: list[Block] = [Text(words)]
        blocks += [Text(f"wears safety layers: {', '.join(found.manifest.wears)}")] if self.safety else []
        blocks += [Text(f"signed: {facts['signature']}")] if self.sign else []
        return [*blocks, *([Note(f"{why}: `surefoot run --live` refuses the bundle", True)] if why else [])]

    def _task(self, contract: "Contract") -> "Task":
        from surefoot import tasks

        try:
            return tasks.of(contract, self.task)
        except SurefootError as error:
            raise SurefootError(f"{self.policy}: a bundle has limits of the robot's model: {error}") from None

    def _gate(self, contract: "Contract") -> str:
        from surefoot import tasks
        from surefoot.tasks.known import recall, task_flag

        known = contract.task in tasks.names() or recall(contract.parents)
        # what a stranger's run names is code
        task = task_flag(self.task, contract) or ("" if known else " --task FILE.py")
        return f"surefoot gate {quote(str(self.policy))}{task}"

    def _changed(self, policy: "PolicyNet") -> list[str]:
        """Of its task and model since training; a task that is code is imported only where the user names it."""
        from surefoot import tasks
        from surefoot.gate.training_record import changed
        from surefoot.tasks.known import recall

        reference = self.task or recall(policy.contract.parents) or policy.contract.task
        if reference == policy.contract.task and reference not in tasks.names():
            return [f"whether the task {reference} has changed since training is not checked: name it, --task FILE.py"]
        return changed(self.policy, policy, tasks.resolve(reference), reference)
