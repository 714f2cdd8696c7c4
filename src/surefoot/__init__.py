"""surefoot takes a robot model to a policy that keeps its footing in the real world. The law is x' = f(x, u, e).

    import surefoot as sf
    task = sf.velocity(sf.Robot.file("go2/scene.xml"))
    run = sf.train(task, "run", steps=1_000_000)
    print(sf.evaluate(run).rate, sf.judge(run).holds, sf.export(run))

The public names are imported when they are first used: `sf.train` waits for torch, `import surefoot` for nothing. docs/api.md
describes them; both it and the types in __init__.pyi are made from this table by docs/make_api.py.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

PUBLIC = {
    "nouns": {
        "Robot": "robot:Robot", "Task": "task:Task", "Env": "env:Env", "Policy": "policy:Policy", "Contract": "contract:Contract",
        "Run": "verbs.script:Run", "Verdict": "verdict:Verdict", "Log": "log:Log", "SurefootError": "errors:SurefootError",
    },
    "unknowns and beliefs": {
        "Param": "params:Param", "Params": "params:Params", "Belief": "belief:Belief", "Box": "belief:Box", "point": "belief:point",
    },
    "tasks": {
        "velocity": "tasks:velocity", "reach": "tasks:reach", "hover": "tasks:hover", "track": "tasks:track",
        "read_motion": "motion.read:read_motion", "resolve": "tasks:resolve",
        "make_env": "tasks:env", "make_world": "sim.simulate:make_world", "simulate": "sim.simulate:simulate",
        "audit": "sim.audit:audit",
    },
    "verbs": {
        "train": "verbs.script:train", "resume": "verbs.script:resume", "PPOSettings": "learn.settings:PPOSettings",
        "Judging": "learn.settings:Judging", "evaluate": "verbs.script:evaluate", "judge": "verbs.script:judge",
        "export": "verbs.script:export", "prompt": "verbs.script:prompt", "rehearse": "verbs.script:rehearse", "load_policy": "deploy.bundle:load",
        "record": "tasks.record:record", "replay": "real2sim.replay:replay", "identify": "real2sim.identify:identify",
        "diagnose": "doctor.diagnosis:diagnose", "log_episodes": "real2sim.episodes:logged", "learn_delta": "verbs.script:learn_delta",
    },
}  # fmt: skip
"""group -> public name -> where it is: module:name. `gate` and `cross` are rooms, so their verbs are `judge` and `rehearse`"""
_HOME = {name: home for group in PUBLIC.values() for name, home in group.items()}
__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'surefoot' has no attribute '{name}'")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(f"surefoot.{module}"), attribute)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
