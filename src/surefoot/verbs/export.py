"""surefoot export."""

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from surefoot.report import Block, Note, Report, Text, Watch


@dataclass(frozen=True)
class Export:
    policy: Positional[Path]
    """a run's folder or a policy.safetensors"""
    out: Path | None = None
    """the file; default: policy.onnx beside the policy"""

    def run(self, watch: Watch) -> Report:
        from surefoot import tasks
        from surefoot.deploy import bundle
        from surefoot.learn.check import onnx_difference

        policy = bundle.load(self.policy)
        out = self.out or bundle.find(self.policy).with_suffix(".onnx")
        bundle.export_onnx(policy, out)
        worst, unseen = onnx_difference(policy, out), tasks.privileged(policy.contract)
        size = out.stat().st_size
        facts = {
            "onnx": str(out), "bytes": size, "largest_difference": worst, "privileged": unseen,
            "contract": policy.contract.to_json(),
        }  # fmt: skip
        blocks: list[Block] = [
            Text(f"{out}: {size} bytes, differs from torch by at most {worst:.1e} on 1024 observations")
        ]
        if unseen:
            blocks.append(Note(f"no robot can run it: it observes {', '.join(unseen)}, which no sensor measures", True))
        return Report(f"{self.policy} as ONNX", facts, tuple(blocks), f"surefoot gate {self.policy}")
