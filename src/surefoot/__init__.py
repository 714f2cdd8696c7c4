"""surefoot takes a robot model to a policy that keeps its footing in the real world. The law is x' = f(x, u, e).

    import surefoot as sf
    task = sf.resolve("hover")
    path = sf.train("hover", "runs/hover", belief=task.belief)
    print(sf.evaluate(sf.load_policy(path), sf.make_env(task, 200, task.belief, seed=1)).rate)

The public names are imported when they are first used: `sf.train` waits for torch, `import surefoot` for nothing. docs/api.md
describes them; both it and the types in __init__.pyi are made from this table by docs/make_api.py.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

PUBLIC = {
    "nouns": {
        "Task": "task:Task", "Robot": "robot:Robot", "Env": "env:Env", "Policy": "policy:Policy", "Contract": "contract:Contract",
        "Log": "log:Log", "Report": "report:Report", "Verdict": "verdict:Verdict", "SurefootError": "errors:SurefootError",
    },
    "unknowns and beliefs": {
        "Param": "params:Param", "Params": "params:Params", "Belief": "belief:Belief", "Box": "belief:Box",
        "Beta": "belief:Beta", "Gaussian": "belief:Gaussian", "Truncated": "belief:Truncated", "Particles": "belief:Particles",
        "point": "belief:point",
    },
    "verbs": {
        "resolve": "tasks.registry:resolve", "make_env": "tasks:env", "train": "learn.train:train",
        "settings_for": "learn.train:settings_for", "PPOSettings": "learn.settings:PPOSettings", "Judging": "learn.settings:Judging", "load_policy": "deploy.bundle:load",
        "evaluate": "tasks.rollout:evaluate", "candidate": "gate.candidate:candidate", "judge": "gate.gate:gate",
        "record": "tasks.record:record", "replay": "real2sim.replay:replay", "identify": "real2sim.identify:identify",
        "diagnose": "doctor.diagnosis:diagnose",
    },
}  # fmt: skip
"""group -> public name -> where it is: module:name. `gate` and `cross` are rooms, so the gate's verb is `judge`"""
_HOME = {name: home for group in PUBLIC.values() for name, home in group.items()}
__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'surefoot' has no attribute '{name}'")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(f"surefoot.{module}"), attribute)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
