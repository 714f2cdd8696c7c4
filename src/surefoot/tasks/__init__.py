"""Tasks: `resolve` finds one by name, file or module; `env` puts it into a world.

The names are imported when they are first used: who only asks which tasks there are does not wait for the engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.sim.anatomy.feet import Foot
    from surefoot.sim.anatomy.rotors import Rotor
    from surefoot.sim.model.edits import Timing
    from surefoot.tasks.build.hover import Flyer, hover
    from surefoot.tasks.build.legged import Joint, Legged
    from surefoot.tasks.build.reach import Arm, reach
    from surefoot.tasks.build.track import track
    from surefoot.tasks.build.velocity import velocity
    from surefoot.tasks.known import of, task_named
    from surefoot.tasks.make import env, learned, nominal
    from surefoot.tasks.override import (  # fmt: skip
        ObsOverride,
        for_contract,
        privileged,
        teachers,
        with_actor_terms,
        with_override,
        with_unknown,
    )
    from surefoot.tasks.registry import is_reference, named, names, resolve

__all__ = [
    "Arm", "Flyer", "Foot", "Joint", "Legged", "ObsOverride", "Rotor", "Timing", "env", "for_contract", "hover", "is_reference",
    "learned", "named", "names", "nominal", "of", "privileged", "reach", "resolve", "task_named", "teachers", "track",
    "velocity", "with_actor_terms", "with_override", "with_unknown",
]  # fmt: skip

_HOME = {
    "sim.anatomy.feet": ("Foot",),
    "sim.anatomy.rotors": ("Rotor",),
    "sim.model.edits": ("Timing",),
    "tasks.build.hover": ("Flyer", "hover"),
    "tasks.build.legged": ("Joint", "Legged"),
    "tasks.build.reach": ("Arm", "reach"),
    "tasks.build.track": ("track",),
    "tasks.build.velocity": ("velocity",),
    "tasks.make": ("env", "learned", "nominal"),
    "tasks.known": ("of", "task_named"),
    "tasks.override": (
        "ObsOverride", "for_contract", "privileged", "teachers", "with_actor_terms", "with_override", "with_unknown",
    ),
    "tasks.registry": ("is_reference", "named", "names", "resolve"),
}  # fmt: skip
"""module -> names that it has"""


def __getattr__(name: str) -> Any:
    module = next((module for module, has in _HOME.items() if name in has), None)
    if module is None:
        raise AttributeError(f"module 'surefoot.tasks' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"surefoot.{module}"), name)
    return found
