"""surefoot bundle check: everything in a bundle, worked out again."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tyro.conf import Positional

from surefoot.errors import SurefootError
from surefoot.report import Badge, Block, Column, Note, Report, Table, Text, Watch

if TYPE_CHECKING:
    from surefoot.deploy.manifest import Bundle as Read

REFUSED = 1
LINK = "udp://127.0.0.1:9870"


@dataclass(frozen=True)
class Bundle:
    what: Positional[Literal["check"]]
    """check: work everything out again"""
    bundle: Positional[Path]
    """a folder or a .zip that `surefoot export` wrote"""
    key: Path | None = None
    """public ed25519 key (PEM) that its signature must match"""

    def run(self, watch: Watch) -> Report:
        from surefoot.deploy import manifest

        title = f"check of {self.bundle}"
        if not self.bundle.exists():
            raise SurefootError(
                f"{self.bundle}: no such file or folder; expected a bundle: surefoot export RUN writes one"
            )
        if self.bundle.is_dir() and not (self.bundle / manifest.MANIFEST).exists():
            within, hint = self.bundle / "bundle", ""
            if (within / manifest.MANIFEST).exists():
                hint = f"; the bundle of this run is {within}"
            elif (self.bundle / "run.json").exists():
                hint = f"; surefoot export {quote(str(self.bundle))} writes one"
            raise SurefootError(f"{self.bundle}: no bundle: {manifest.MANIFEST} is missing{hint}")
        try:
            found = manifest.read(self.bundle, self.key)
        except SurefootError as error:
            facts = {"bundle": str(self.bundle), "holds": False, "refused": str(error)}
            badge = Badge("FAIL: the bundle differs from what was exported; export it again", False)
            return Report(title, facts, (Text(str(error), "bad"),), badge=badge, code=REFUSED)
        task = _task(found)
        following = f"surefoot robot {quote(task)}" if task else f"surefoot run {quote(str(self.bundle))} --link {LINK}"
        return Report(
            title, _facts(found), _blocks(found), following, Badge("PASS: the runtime computes the same numbers", True)
        )


def _task(b: "Read") -> str:
    """The task by a name or file that `surefoot robot` finds here; empty where there is none, as on a robot's computer."""
    if find_spec("mujoco") is None:
        return ""
    from surefoot.tasks.known import reference_of

    return reference_of(b.policy.contract)


def _facts(b: "Read") -> dict[str, Any]:
    c = b.policy.contract
    return {
        "bundle": str(b.path), "holds": True, "sha256": b.sha256, "task": c.task, "rate": c.rate, "passed_gate": b.passed,
        "golden_rows": len(b.golden.obs), "golden_differences": dict(b.worst), "limits": b.manifest.limits.to_json(),
        "wears": list(b.manifest.wears), "parents": dict(b.manifest.parents), "contract": c.to_json(),
    }  # fmt: skip


def _blocks(b: "Read") -> tuple[Block, ...]:
    c, limits, verdict = b.policy.contract, b.manifest.limits, b.manifest.verdict
    seconds = len(b.golden.obs) / c.rate
    worst = ", ".join(f"{k} {v:.1e}" for k, v in b.worst.items())
    rows = [
        [name, lim[0], lim[1], *(None if np.isinf(x) else float(x) for x in lim[2:])]
        for name, *lim in zip(
            c.action.names, *(getattr(limits, k) for k in ("low", "high", "velocity", "torque", "rate"))
        )
    ]
    number = lambda name, unit="": Column(name, unit, ".4g")  # noqa: E731
    columns = ["actuator", number("low"), number("high"), number("velocity"), number("torque"), number("rate", "1/s")]
    judged = "none" if verdict is None else f"{'PASS' if verdict.holds else 'FAIL'}, {len(verdict.checks)} checks"
    blocks: list[Block] = [
        Text(
            f"{c.task} at {c.rate:g} Hz, {c.obs_dim} numbers in, {len(c.action.names)} out; verdict of the gate: {judged}"
        ),
        Text(f"{seconds:g} s of golden vectors, largest difference: {worst}"),
        Table.of(columns, rows, f"limits ({c.action.unit})"),
    ]
    if b.manifest.wears:
        blocks.insert(1, Text(f"wears safety layers: {', '.join(b.manifest.wears)}"))
    if not b.passed:
        blocks.append(Note("`surefoot run --live` refuses it: no PASS of the gate", True))
    return tuple(blocks)
