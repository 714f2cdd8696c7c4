"""Model XML as a tree that is safe to look at: no DTD, no entities, bounded depth, size and count, a line per element.

MuJoCo reads the same bytes afterwards, so the reading must agree with its parser: UTF-8 whatever the header claims, and
nothing beyond the five predefined entities.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from surefoot.errors import SurefootError

MAX_XML_BYTES = 32 << 20
MAX_DEPTH = 400  # MuJoCo's own parser stops at 500
MAX_ELEMENTS = 50_000

INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")


@dataclass(slots=True)
class Node:
    """One element; `owner` is the label of the nearest named ancestor."""

    tag: str
    attrs: dict[str, str]
    file: str
    line: int
    owner: str = ""
    children: list["Node"] = field(default_factory=list)

    @property
    def label(self) -> str:
        name = self.attrs.get("name") or self.attrs.get("class")
        if name:
            return f"{self.tag} '{name}'"
        return f"{self.tag} of {self.owner}" if self.owner else self.tag

    def walk(self) -> Iterator["Node"]:
        """This node and all below it, in document order, without recursion."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def refuse(self, attr: str, why: str) -> SurefootError:
        """The error for one attribute: where it is, what was found, what was expected."""
        value = self.attrs.get(attr, "")
        shown = value if len(value) <= 80 else value[:77] + "..."
        return SurefootError(f'{self.file}:{self.line}: {self.label}: {attr}="{shown}" {why}')

    def numbers(self, attr: str) -> list[float]:
        """The attribute's numbers; empty when it is absent or is not made of numbers."""
        try:
            return [float(t) for t in self.attrs.get(attr, "").replace("_", "?").split()]
        except ValueError:
            return []

    def integer(self, attr: str, default: int = 0) -> int:
        text = self.attrs.get(attr, "")
        return int(text.strip()[:20]) if INTEGER.fullmatch(text) else default


def parse_xml(data: bytes, file: str) -> Node:
    """The tree of one XML file. Anything that is not plain, bounded XML is a SurefootError naming the file and line."""
    if len(data) > MAX_XML_BYTES:
        raise SurefootError(f"{file}: XML of {len(data)} bytes, expected at most {MAX_XML_BYTES}")
    try:
        data.decode()
    except UnicodeDecodeError as e:
        raise SurefootError(f"{file}: byte {e.start} is not UTF-8, expected XML in UTF-8") from None
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    top: list[Node] = []
    stack: list[Node] = []
    count = 0

    def refuse(what: str) -> SurefootError:
        return SurefootError(f"{file}:{parser.CurrentLineNumber}: {what}")

    def start(tag: str, attrs: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(stack) >= MAX_DEPTH:
            raise refuse(f"elements nested deeper than {MAX_DEPTH}, expected a flatter model")
        if count > MAX_ELEMENTS:
            raise refuse(f"more than {MAX_ELEMENTS} elements, expected a smaller model")
        above = stack[-1] if stack else None
        owner = "" if above is None else above.label if above.attrs.get("name") else above.owner
        node = Node(tag, attrs, file, parser.CurrentLineNumber, owner)
        (above.children if above else top).append(node)
        stack.append(node)

    def doctype(*_: object) -> None:
        raise refuse(
            "<!DOCTYPE found, expected XML without a document type: entities could read files or grow without end"
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _tag: stack.pop()
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        raise SurefootError(f"{file}:{e.lineno}: not well-formed XML: {expat.ErrorString(e.code)}") from None
    return top[0]
