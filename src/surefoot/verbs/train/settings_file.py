"""Settings of training from a TOML file: its keys are the flags of `surefoot train`.

    steps = 500_000                 [student]               [range]
    hidden = [128, 128]             history = 30            mass = [0.8, 1.2]     latency = "0..0.02"

Flags win over the file, and the file over the task's own settings. A file may come from a stranger: it names neither code
nor a place to send anything to.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from surefoot import files, tasks
from surefoot.errors import SurefootError, unknown
from surefoot.typed import typed

LARGEST = 64 << 10  # bytes
LONGEST = 1000  # characters of a line: the work for a key of n dots grows with n^2


def read(path: Path) -> dict[str, Any]:
    """The tables of a file."""
    try:
        text = files.read_bytes(Path(path), LARGEST).decode()
        for k, line in enumerate(text.splitlines()):
            if len(line) > LONGEST:
                raise SurefootError(f"{path}: line {k + 1}: found {len(line)} characters, expected at most {LONGEST}")
        table = tomllib.loads(text)
    except UnicodeDecodeError:
        raise SurefootError(f"{path}: expected a TOML file in UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SurefootError(f"{path}: expected TOML: {error}") from None
    _harmless(table, str(path))
    return table


def applied(verb: Any, table: Mapping[str, Any], where: str) -> Any:
    """The arguments of a verb with the values of a file in place of its own; those of `settings` need no table."""
    own = [f.name for f in fields(verb) if f.name not in ("settings", "settings_file")]
    flat = [f.name for f in fields(verb.settings)]
    for key in table:
        if _name(key) not in (*own, *flat):
            raise unknown("setting", key, [*own, *flat], where)
    learner = {k: v for k, v in table.items() if _name(k) in flat}
    rest = {k: v for k, v in table.items() if _name(k) not in flat}
    if isinstance(rest.get("range"), dict):
        rest["range"] = [f"{name}={_range(value)}" for name, value in rest["range"].items()]
    try:
        return replace(_changed(verb, rest, where), settings=_changed(verb.settings, learner, where))
    except SurefootError as error:
        raise SurefootError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def _harmless(table: Mapping[str, Any], where: str) -> None:
    """What only a command line may ask for, and keys that stand there twice, such as save-every and save_every."""
    if isinstance(table.get("task"), str) and table["task"] not in tasks.names():
        known = (
            f"expected one of {', '.join(tasks.names())}; give a file or a module, which is code, on the command line"
        )
        raise SurefootError(f"{where}: task: found {table['task']!r:.80}, {known}")
    if "wandb" in table:
        raise SurefootError(f"{where}: wandb: it sends metrics elsewhere; give --wandb on the command line")
    if "on" in table:
        raise SurefootError(f"{where}: on: other machines run code for it; give --on on the command line")
    names = [_name(k) for k in table]
    if len(set(names)) < len(names):
        twice = next(k for k in names if names.count(k) > 1)
        raise SurefootError(f"{where}: {twice}: found twice, expected each setting once")


def _changed(noun: Any, table: Mapping[str, Any], where: str) -> Any:
    """A dataclass with some fields as a table has them, each of its field's type."""
    hints = get_type_hints(type(noun))
    found: dict[str, Any] = {}
    for key, value in table.items():
        name, at = _name(key), f"{where}: {key}"
        if name not in hints:
            raise unknown("setting", key, hints, where)
        inner = getattr(noun, name)
        if is_dataclass(inner) and not isinstance(value, dict):
            raise SurefootError(f"{at}: expected a table [{key}], found {value!r:.80}")
        found[name] = _changed(inner, value, at) if is_dataclass(inner) else typed(hints[name], value, at)
    return replace(noun, **found)


def _name(key: str) -> str:
    return key.replace("-", "_")


def _range(value: Any) -> str:
    """A value of the table [range], as a flag has it."""
    return "..".join(map(repr, value)) if isinstance(value, list) else str(value)
