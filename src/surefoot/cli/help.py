"""`surefoot VERB --help`: what it does, two examples, the flags most people use; `--help-all` shows every flag, in groups."""

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from surefoot.cli.flags import Flag, flags
from surefoot.verbs import VERBS

INDENT = 26  # columns before a flag's text
OTHERS = "Every verb takes --json (the facts, for machines) and --traceback (where an error came from)."
LISTS = "Write a list with spaces or commas, or repeat the flag: --hidden 64 64 is --hidden 64,64.\n"


def text(name: str, verb: type[Any], default: Any, everything: bool) -> str:
    """The whole page."""
    about, found = VERBS[name], flags(verb, default)
    common = _common(about.common.split(), found)
    rest = [f for f in found if f not in common]
    parts = [f"surefoot {name}: {about.about}", _examples(name, about.examples), _table("flags", common)]
    if rest and everything:
        parts += [_table(title, some) for title, some in _groups(verb, rest)]
    elif rest:
        parts.append(f"{len(rest)} more: surefoot {name} --help-all")
    lists = LISTS if any(f.many and not f.positional for f in found) else ""
    return "\n\n".join(p for p in [*parts, f"{lists}{OTHERS}"] if p)


def _common(names: Sequence[str], found: Sequence[Flag]) -> list[Flag]:
    """The flags most people use, in that order; all of them where none are named."""
    by_name = {f.name: f for f in found}
    return [by_name[k] for k in names] if names else [f for f in found if not f.group] or list(found)


def _examples(name: str, examples: Iterable[str]) -> str:
    return "\n".join(["examples", *(f"  surefoot {name} {words}".rstrip() for words in examples)])


def _groups(verb: type[Any], rest: Sequence[Flag]) -> Iterable[tuple[str, list[Flag]]]:
    """What else there is: the verb's own flags, then those of each of its settings under what these are."""
    yield "more flags", [f for f in rest if not f.group]
    titles = {f.name: _title(f.type) for f in fields(verb)}
    for group in dict.fromkeys(f.group for f in rest if f.group):
        yield titles.get(group, group), [f for f in rest if f.group == group]


def _title(kind: Any) -> str:
    """The first sentence of a settings' docstring."""
    inner = getattr(kind, "__origin__", kind)
    return (inner.__doc__ or "").split(".")[0].split("\n")[0].lower()


def _table(title: str, found: Sequence[Flag]) -> str:
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    rows = [title]
    for f in found:
        usual = f" (default: {f.usual})" if f.usual and "default:" not in f.about else ""
        about = textwrap.wrap(f"{f.about}{usual}", max(width - INDENT, 30)) or [""]
        head = f"  {f.words}"
        rows += [head] if len(head) > INDENT - 2 else []
        first = " " * INDENT if len(head) > INDENT - 2 else f"{head:{INDENT}}"
        rows += [f"{first if k == 0 else ' ' * INDENT}{line}" for k, line in enumerate(about)]
    return "\n".join(rows) if found else ""
