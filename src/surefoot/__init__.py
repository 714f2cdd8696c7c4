"""surefoot takes a robot model to a policy that keeps its footing in the real world. The law is x' = f(x, u, e).

The public names are imported when they are first used: `import surefoot as sf; sf.train(...)` waits for torch, `import
surefoot` for nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

PUBLIC = {
    "belief": "Belief Box Gaussian Particles point", "errors": "SurefootError", "log": "Log", "params": "Param Params",
    "contract": "Contract", "env": "Env", "policy": "Policy", "report": "Progress Report Watch", "task": "Task", "verdict": "Check Verdict",
    "deploy.bundle": "load", "gate.candidate": "candidate", "gate.checks": "Limits", "gate.gate": "Plan",
    "learn.settings": "PPOSettings", "learn.train": "train", "real2sim.identify": "identify", "tasks.rollout": "evaluate",
}  # fmt: skip
_HOME = {name: module for module, names in PUBLIC.items() for name in names.split()}
__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'surefoot' has no attribute '{name}'")
    return getattr(import_module(f"surefoot.{_HOME[name]}"), name)
