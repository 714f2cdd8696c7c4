"""The flags of a verb, read off its dataclass: name, type, default, and the text under each field.

One grammar for lists, in every verb: words, commas, or the flag again.

    --hidden 128 128        --hidden 128,128        --hidden 128 --hidden 128
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro import conf


@dataclass(frozen=True)
class Flag:
    """One argument of a verb."""

    name: str
    """as it is typed, without dashes; of a positional one, its field's"""
    kind: Any
    """its type, without None"""
    default: Any
    """MISSING where it must be given"""
    about: str
    positional: bool
    group: str = ""
    """the field that holds it, such as student; empty for the verb's own"""

    @property
    def many(self) -> bool:
        return get_origin(self.kind) is tuple

    @property
    def commas(self) -> bool:
        """Whether a comma separates items: not in paths, which may have one in their names."""
        return self.many and Path not in get_args(self.kind)

    @property
    def words(self) -> str:
        """How it is written: --steps INT."""
        if self.positional:
            return self.name.upper() if self.default is MISSING else f"[{self.name.upper()}]"
        if self.kind is bool:
            return f"--[no-]{self.name}" if self.default is True else f"--{self.name}"
        return f"--{self.name} {_metavar(self.kind)}"

    @property
    def usual(self) -> str:
        """The default, in words; empty where there is none to tell."""
        if self.default in (MISSING, None, "", (), False) or self.positional:
            return ""
        if self.default is True:
            return "yes"
        return " ".join(map(str, self.default)) if self.many else str(self.default)


def flags(verb: type[Any], default: Any = None) -> list[Flag]:
    """All flags of a verb, with the defaults of an instance where one is given."""
    return list(_flags(verb, default, "", ""))


def _flags(kind: type[Any], default: Any, prefix: str, group: str) -> Iterator[Flag]:
    hints, about = get_type_hints(kind, include_extras=True), _texts(kind)
    for f in fields(kind):
        if f.name not in hints or conf.Suppress in _marks(hints[f.name]):
            continue
        inner, marks = _bare(hints[f.name]), _marks(hints[f.name])
        named = next((m.name for m in marks if isinstance(getattr(m, "name", None), str)), f.name)
        value = _default(f) if default is None else getattr(default, f.name)
        if is_dataclass(inner) and isinstance(inner, type):
            below = f"{prefix}{named}." if named else prefix
            yield from _flags(inner, None if value is MISSING else value, below, f.name)
        else:
            name = f"{prefix}{named}".replace("_", "-")
            yield Flag(name, inner, value, about.get(f.name, ""), conf.Positional in marks, group)


def _marks(hint: Any) -> tuple[Any, ...]:
    return tuple(hint.__metadata__) if get_origin(hint) is Annotated else ()


def _bare(hint: Any) -> Any:
    """A type without its marks and without None."""
    if get_origin(hint) is Annotated:
        return _bare(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        rest = [a for a in get_args(hint) if a is not NoneType]
        return _bare(rest[0]) if len(rest) == 1 else hint
    return hint


def _default(f: Field[Any]) -> Any:
    return (
        f.default if f.default is not MISSING else f.default_factory() if f.default_factory is not MISSING else MISSING
    )


def _texts(kind: type[Any]) -> dict[str, str]:
    """The string under each field of a dataclass, as one line."""
    found: dict[str, str] = {}
    for base in (kind, *kind.__mro__[1:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:]):
            said = text.value.value if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) else None
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(said, str):
                found.setdefault(field.target.id, " ".join(said.split()))
    return found


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        each = [a for a in get_args(kind) if a is not Ellipsis]
        return " ".join(map(_metavar, each)) if len(each) > 1 else f"{_metavar(each[0])} ..."
    return {int: "INT", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def with_lists(verb: type[Any], args: Sequence[str]) -> list[str]:
    """The arguments with each list said once, at the end, in words: whichever way it was written."""
    many = {f"--{f.name}": f for f in flags(verb) if f.many and not f.positional}
    rest: list[str] = []
    lists: dict[str, list[str]] = {}
    into = rest
    for word in args:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", "")
        name = flag.replace("_", "-")
        if name in many:
            into = lists.setdefault(name, [])
            into += _items(many[name], value) if equals else []
        elif word.startswith("--"):
            into = rest
            into.append(word)
        else:
            into += [word] if into is rest else _items(many[next(k for k, v in lists.items() if v is into)], word)
    return [*rest, *(w for name, items in lists.items() for w in (name, *items))]


def _items(flag: Flag, word: str) -> list[str]:
    return [w.strip() for w in word.split(",") if w.strip()] if flag.commas else [word]
