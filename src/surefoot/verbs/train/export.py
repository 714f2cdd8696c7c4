"""surefoot export: a policy's ONNX file, checked against the net it came from."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from tyro.conf import Positional

from surefoot import files, shipped
from surefoot.report import Block, Note, Report, Text, Watch
from surefoot.verbs.arguments import chosen

if TYPE_CHECKING:
    from surefoot.learn.nets.policy_net import PolicyNet


@dataclass(frozen=True)
class Export:
    policy: Positional[Path]
    """a run's folder, a policy.onnx, or a task with a shipped policy (see `surefoot tasks`)"""
    best: bool = False
    """of a run's policies, the best that --judge-every kept, not the last"""
    out: Path | None = None
    """the file; default: policy.onnx beside the policy; of a shipped one, <task>.onnx here"""
    task: str = ""
    """its task, where that is a file or a module: to say what has changed since training"""
    sign: Path | None = None
    """private ed25519 key (PEM) to sign the file with"""

    def run(self, watch: Watch) -> Report:
        if self.best:
            return replace(self, best=False, policy=chosen(self.policy)).run(watch)
        from surefoot import tasks
        from surefoot.deploy import bundle, sign
        from surefoot.learn.nets.export import load_net, onnx_difference
        from surefoot.tasks.known import recall, task_flag

        net, own = load_net(self.policy), bundle.find(self.policy)
        worst, unseen = onnx_difference(net, own), tasks.privileged(net.contract)
        usual = Path(f"{own.parent.name}.onnx") if shipped.is_shipped(own) else own
        out, signature = self.out or usual, None
        if out != own or self.sign:
            with files.held(out.with_name(f"{out.name}.lock"), f"writing {out.name} here"):
                files.clear_parts(out.parent, out.name + ".*")
                if out != own:
                    files.write(out, files.read_bytes(own, bundle.LARGEST))
                signature = sign.sign(out, self.sign) if self.sign else None
        size, since = out.stat().st_size, self._changed(net)
        facts = {
            "onnx": str(out), "bytes": size, "largest_difference": worst, "privileged": unseen,
            "signature": str(signature) if signature else None, "contract": net.contract.to_json(), "changed": since,
        }  # fmt: skip
        blocks: list[Block] = [
            Text(f"{out}: {size} bytes, differs from torch by at most {worst:.1e} on 1024 observations")
        ]
        if signature:
            blocks.append(Text(f"signed: {signature}"))
        blocks += [Note(words, True) for words in since]
        if unseen:
            blocks.append(Note(f"no robot can run it: it observes {', '.join(unseen)}, which no sensor measures", True))
        known = net.contract.task in tasks.names() or recall(net.contract.parents)
        task = task_flag(self.task, net.contract) or (
            "" if known else " --task FILE.py"
        )  # what a stranger's run names is code
        following = f"surefoot gate {quote(str(self.policy))}{task}"
        return Report(f"{self.policy} as ONNX", facts, tuple(blocks), following)

    def _changed(self, policy: "PolicyNet") -> list[str]:
        """Of its task and model since training; a task that is code is imported only where the user names it."""
        from surefoot import tasks
        from surefoot.gate.training_record import changed
        from surefoot.tasks.known import recall

        reference = self.task or recall(policy.contract.parents) or policy.contract.task
        if reference == policy.contract.task and reference not in tasks.names():
            return [f"whether the task {reference} has changed since training is not checked: name it, --task FILE.py"]
        return changed(self.policy, policy, tasks.resolve(reference), reference)
