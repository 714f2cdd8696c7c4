"""The flags of a verb, read off its dataclass: name, type, default, and the text under each field.

One grammar for lists, in every verb: words, commas, or the flag again.

    --hidden 128 128        --hidden 128,128        --hidden 128 --hidden 128

A list before a positional argument leaves it what it needs: `gate --in bullet RUN` tests RUN in bullet.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tyro import conf

from surefoot.errors import SurefootError


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
    """The string under each field of a dataclass, as one line; under the field of a base where its own has none."""
    found: dict[str, str] = {}
    for base in kind.__mro__[:-1]:
        for name, text in _texts_of_file(inspect.getfile(base)).get(base.__qualname__, {}).items():
            found.setdefault(name, text)
    return found


@cache
def _texts_of_file(path: str) -> dict[str, dict[str, str]]:
    """Of each class at a file's top: the string under each of its fields."""
    classes = [c for c in ast.parse(Path(path).read_text("utf-8")).body if isinstance(c, ast.ClassDef)]
    return {c.name: dict(_under_fields(c)) for c in classes}


def _under_fields(body: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(body.body, body.body[1:]):
        said = text.value.value if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) else None
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(said, str):
            yield field.target.id, " ".join(said.split())


def _metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        each = [a for a in get_args(kind) if a is not Ellipsis]
        return " ".join(map(_metavar, each)) if len(each) > 1 else f"{_metavar(each[0])} ..."
    return {int: "INT", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


@dataclass
class _Segment:
    """Words after a list's flag."""

    flag: Flag
    at: int
    """how many other words came before it"""
    words: list[str]


def with_lists(verb: type[Any], args: Sequence[str]) -> list[str]:
    """The arguments with each list said once, at the end, in words: whichever way it was written.

    Where a positional argument is missing, it is what a list before it would swallow: `gate --in bullet RUN`.
    """
    found = flags(verb)
    rest, segments, places = _parted({f"--{f.name}": f for f in found if not f.positional}, args)
    _give_back(verb, found, rest, segments, places)
    lists: dict[str, list[str]] = {}
    for s in segments:
        lists.setdefault(f"--{s.flag.name}", []).extend(w for word in s.words for w in _items(s.flag, word))
    return [*rest, *(w for name, items in lists.items() for w in (name, *items))]


def _parted(known: dict[str, Flag], args: Sequence[str]) -> tuple[list[str], list[_Segment], int]:
    """Words that are no list's, lists, and how many of the words are positional arguments."""
    rest: list[str] = []
    segments: list[_Segment] = []
    into: _Segment | None = None
    of: Flag | None = None  # whose value the word to come is
    places = 0
    for word in args:
        name, equals, value = word.partition("=") if word.startswith("--") else ("", "", "")
        flag = known.get(name.replace("_", "-"))
        if flag is not None and flag.many:
            into = _Segment(flag, len(rest), [value] if equals else [])
            segments.append(into)
        elif name:
            into, of = None, flag if flag is not None and flag.kind is not bool and not equals else None
            rest.append(f"{name}={_whole(flag, value)}" if equals else word)
        elif into is not None and _fits(into, word):
            into.words.append(word)
        else:
            rest.append(_whole(of, word))
            places, of, into = places + (of is None), None, None
    return rest, segments, places


def _whole(flag: Flag | None, word: str) -> str:
    """1e5 and 2.5e6 are whole numbers, too; 0.5 is none."""
    if flag is None or flag.kind is not int or not re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d{1,2})?", word):
        return word
    if not _is_number(word) or not float(word).is_integer():
        raise SurefootError(f"--{flag.name}: expected a whole number, found {word}")
    return str(int(float(word)))


def _fits(segment: _Segment, word: str) -> bool:
    """Whether a word can belong to a list: a number to one of numbers, up to as many as it takes."""
    kinds = get_args(segment.flag.kind)
    if ... not in kinds and sum(len(_items(segment.flag, w)) for w in segment.words) >= len(kinds):
        return False
    return kinds[0] not in (int, float) or all(_is_number(w) for w in _items(segment.flag, word))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _give_back(verb: type[Any], found: list[Flag], rest: list[str], segments: list[_Segment], places: int) -> None:
    """Moves positional arguments out of the one list that swallowed them; refused in words where it could be several."""
    wanted = [f for f in found if f.positional and (f.default is MISSING or f.name == "task")]
    if {"--resume", "--settings"} & {w.partition("=")[0] for w in rest}:  # of train: they say the task
        return
    lacks = len(wanted) - places
    long = [s for s in segments if len(s.words) > lacks]
    if lacks <= 0 or not long:
        return
    names = " ".join(f.name.upper() for f in wanted)
    if len(long) > 1 or any(f.many for f in wanted) and len(long[0].words) > lacks + 1:
        flag = f"--{long[0].flag.name}"
        raise SurefootError(
            f"{flag}: a list takes every word after it, and {names} is missing; write {names} first: "
            f"surefoot {verb.__name__.lower()} {names} {flag} {','.join(long[0].words[:1])} ..."
        )
    own = long[0]
    rest[own.at : own.at] = own.words[-lacks:]
    del own.words[-lacks:]


def _items(flag: Flag, word: str) -> list[str]:
    """A comma within braces belongs to a pattern: damping:FL_{hip,calf}."""
    return [w.strip() for w in re.split(r",(?![^{}]*\})", word) if w.strip()] if flag.commas else [word]
