"""Settings of training from a TOML file: its keys are the flags of `surefoot train`.

    steps = 500_000                 [student]               [range]
    hidden = [128, 128]             history = 30            mass = [0.8, 1.2]     latency = "0..0.02"

Flags win over the file, and the file over the task's own settings.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from surefoot import files
from surefoot.errors import SurefootError, unknown
from surefoot.typed import typed

LARGEST = 1 << 20  # bytes


def read(path: Path) -> dict[str, Any]:
    """The tables of a file."""
    try:
        return tomllib.loads(files.read_bytes(Path(path), LARGEST).decode())
    except UnicodeDecodeError:
        raise SurefootError(f"{path}: expected a TOML file in UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SurefootError(f"{path}: expected TOML: {error}") from None


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
