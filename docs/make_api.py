"""Makes docs/api.md and src/surefoot/__init__.pyi from the public names and their docstrings: python docs/make_api.py"""

import inspect
import re
from pathlib import Path
from typing import Any

import surefoot

ROOT = Path(__file__).parents[1]
HEAD = """# API: the public names

`import surefoot as sf` takes no time: each name is imported when it is first used. It works in scripts and in notebooks. Where a
function takes a `watch`, it is called with `Progress` while the work goes on. This page is made from the docstrings by
`python docs/make_api.py`.
"""


def page() -> str:
    """docs/api.md."""
    parts = [HEAD]
    for group, names in surefoot.PUBLIC.items():
        parts.append(f"## {group.capitalize()}\n")
        parts += [_entry(name, getattr(surefoot, name)) for name in names]
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> str:
    doc = inspect.getdoc(thing) or ""
    own = "" if inspect.isclass(thing) else f"```text\n{_signature(name, thing)}\n```\n\n"
    public = _methods(thing) if inspect.isclass(thing) else ""
    return f"### {name}\n\n{own}{doc}\n{public}"


def _signature(name: str, thing: Any) -> str:
    words = re.sub(r"\bsurefoot(\.\w+)+\.|numpy\.|pathlib\.|collections\.abc\.", "", str(inspect.signature(thing)))
    words = words.replace("**asked: *<class 'Asked'>", "**asked")
    return name + re.sub(r"<function (\w+) at 0x\w+>", r"\1", words)


def _methods(kind: type[Any]) -> str:
    """A line for each public method that says what it does."""
    rows = []
    for k, f in vars(kind).items():
        inner = f.__func__ if isinstance(f, staticmethod) else f
        words = inspect.getdoc(getattr(kind, k)) if inspect.isfunction(inner) and not k.startswith("_") else None  # of its contract, too
        if words:
            rows.append(f"- `{k}`: {' '.join(words.split(chr(10) * 2)[0].split())}")
    return "\n" + "\n".join(rows) + "\n" if rows else ""


def stub() -> str:
    """__init__.pyi: the same names, for type checkers and editors."""
    rows = []
    for names in surefoot.PUBLIC.values():
        for name, home in names.items():
            module, _, attribute = home.partition(":")
            rows.append(f"from surefoot.{module} import {attribute} as {name}")
    head = '"""Types of the public names; made by docs/make_api.py."""\n\n'
    return f"{head}{chr(10).join(sorted(rows))}\n\n__version__: str\nPUBLIC: dict[str, dict[str, str]]\n"


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(page())
    (ROOT / "src" / "surefoot" / "__init__.pyi").write_text(stub())
