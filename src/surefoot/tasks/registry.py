"""From a reference to a Task: a name (ours, or of an installed package), `path/file.py[:function]`, or `module:function`.

A name is safe to look up wherever it comes from. A file or a module is code: it is imported only where the user wrote the
reference (`resolve`), never because a policy, a run or a log names it (`named`).
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any

from surefoot.errors import SurefootError, in_users_code, nearest, unknown, users_line
from surefoot.task import Task
from surefoot.task_check import check_groups, place

GROUP = "surefoot.tasks"  # entry points of installed packages: name -> module:function
Reference = str | Task | Callable[[], Task]
"""how a user gives a task: a name, `file.py[:function]`, `module:function`; in Python also a Task, or a function that makes one"""


@dataclass(frozen=True)
class Ready:
    """A task that comes with the package; its module, which may need the engine, is imported when it is made."""

    name: str
    """of its module in ready/ and of the function there"""
    how: Mapping[str, bool] = field(default_factory=dict)

    @property
    def function(self) -> Callable[..., Task]:
        made: Callable[..., Task] = getattr(importlib.import_module(f"surefoot.tasks.ready.{self.name}"), self.name)
        return made

    def __call__(self) -> Task:
        return self.function(**self.how)


READY: dict[str, Ready] = {
    "arm": Ready("arm"),
    "balance": Ready("balance"),
    "balance-discrete": Ready("balance", {"discrete": True}),
    "balance-camera": Ready("balance_camera"),
    "course": Ready("course"),
    "hover": Ready("hover"),
    "humanoid": Ready("humanoid"),
    "walk": Ready("walk"),
    "walk-estimate": Ready("walk", {"estimate": True}),
    "walk-rough": Ready("walk", {"rough": True}),
}


def names() -> list[str]:
    """Tasks that have a name: ours, then those of installed packages."""
    return [*READY, *(e.name for e in entry_points(group=GROUP) if e.name not in READY)]


def is_reference(text: str) -> bool:
    """Whether a word on a command line means a task, not a model file."""
    path, _, function = text.partition(":")
    module = bool(function) and function.isidentifier() and all(p.isidentifier() for p in path.split("."))
    return text in READY or task_file(text) is not None or module or text in names()


def named(name: str) -> Task:
    """A task by its name alone."""
    if name in READY:
        return READY[name]()
    found = [e for e in entry_points(group=GROUP) if e.name == name]
    if not found and name.endswith((".xml", ".urdf")):
        raise SurefootError(
            f"{name}: a robot's model, expected a task: surefoot new KIND {quote(name)} writes one for it"
        )
    if not found:
        raise unknown("task", name, names())
    return _made(found[0].load, name)


def resolve(reference: str) -> Task:
    """The task that a user's reference means."""
    file = task_file(reference)
    if file is not None:
        path, function = file
        return _called(_imported_file(path), function, reference)
    if ":" in reference:
        module, _, function = reference.partition(":")
        return _called(_imported(module, reference), function, reference)
    return named(reference)


def located(given: Reference) -> tuple[str, Task]:
    """The reference by which a task can be given again, and the task. Of a Task itself it is the name alone."""
    if isinstance(given, str):
        return given, resolve(given)
    if isinstance(given, Task):
        check_groups(given, ("actor",))
        return given.name, given
    if not callable(given):
        raise SurefootError(
            f"task: expected a Task, a function that makes one, or a reference, found {type(given).__name__}"
        )
    name = getattr(given, "__qualname__", "")
    task = _made(lambda: given, name or "task")
    module = getattr(given, "__module__", "")
    home = str(getattr(sys.modules.get(module), "__file__", "") or "") if module == "__main__" else module
    return (f"{home}:{name}" if home and name.isidentifier() else task.name), task


def task_file(reference: str) -> tuple[Path, str] | None:
    """path, function of `file.py` or `file.py:function`; None where it is no such thing."""
    if reference.endswith(".py"):
        return Path(reference), ""
    path, colon, function = reference.rpartition(":")
    return (Path(path), function) if colon and path.endswith(".py") else None


def _imported_file(path: Path) -> ModuleType:
    if not path.is_file():
        near = nearest(path.name, [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else [])
        raise SurefootError(f"{path}: no such file; expected a task file{near}")
    name = f"surefoot_task_{path.stem}_{abs(hash(str(path.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise SurefootError(f"{path}: expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that its dataclasses can be found
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)  # a task file may import its neighbours
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise in_users_code(error, str(path)) from None
    finally:
        sys.path.remove(beside)
    return module


def _imported(module: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            raise SurefootError(f"{reference}: no module {error.name}; expected a name, file.py or module:function{nearest(reference, names())}") from None  # fmt: skip
        raise in_users_code(error, reference) from None
    except Exception as error:
        raise in_users_code(error, reference) from None


def _called(module: ModuleType, function: str, reference: str) -> Task:
    """The function that makes the task; without a name, the only one of the module's own that says it returns a Task."""
    own = {k: f for k, f in vars(module).items() if callable(f) and getattr(f, "__module__", "") == module.__name__}
    if not function:
        tasks = [k for k, f in own.items() if getattr(f, "__annotations__", {}).get("return") in (Task, "Task")]
        tasks = tasks if len(tasks) != 1 and "task" not in own else tasks[:1] or ["task"]
        if len(tasks) != 1:
            found = ", ".join(tasks) or "none"
            raise SurefootError(
                f"{reference}: expected one function that returns a Task, found {found}; name it: {reference}:FUNCTION"
            )
        function = tasks[0]
    if function not in vars(module):
        raise unknown("function", function, own, reference)
    return _made(lambda: vars(module)[function], reference)


def _made(make: Callable[[], Any], reference: str) -> Task:
    try:
        function = make()
        task = function()
    except SurefootError as error:
        if type(error) is not SurefootError or not users_line(error):
            raise
        raise in_users_code(error, reference) from None
    except Exception as error:
        raise in_users_code(error, reference) from None
    if not isinstance(task, Task):
        raise SurefootError(
            f"{reference}{place(function)}: expected a function that returns a Task, found {type(task).__name__}"
        )
    check_groups(task, ("actor",))
    return task
