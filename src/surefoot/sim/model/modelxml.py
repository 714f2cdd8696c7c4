"""Model XML as a safe tree: no DTD, no entities, bounded depth, size and count, a line number per element.

Two parsers may read one text differently: a newline in an attribute is a space to expat and a newline to MuJoCo. So
MuJoCo never reads a model's own text: it gets what `text` writes of the scanned tree.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from surefoot.errors import SurefootError

MAX_XML_BYTES = 32 << 20
MAX_DEPTH = 400  # MuJoCo's own parser stops at 500
MAX_ELEMENTS = 50_000
MAX_ATTRIBUTES = 200  # of one element; MuJoCo's schema has no more than 60
MAX_NAME = 500  # characters

INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # C0 and C1 but for tab and ends of lines
UNPRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # moves the cursor, or reorders text
ONE_LINE = re.compile(r"file.*|.*dir|content_type|name|class|childclass|model|prefix|sep|.*name")  # sep: of replicate


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
        name = shown(self.attrs.get("name") or self.attrs.get("class") or "")
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
        value = shown(self.attrs.get(attr, ""))
        return SurefootError(f'{self.file}:{self.line}: {self.label}: {shown(attr)}="{value}" {why}')

    def numbers(self, attr: str) -> list[float]:
        """The attribute's numbers; empty when it is absent or is not made of numbers."""
        try:
            return [float(t) for t in self.attrs.get(attr, "").replace("_", "?").split()]
        except ValueError:
            return []

    def integer(self, attr: str, default: int = 0) -> int:
        text = self.attrs.get(attr, "")
        return int(text.strip()[:20]) if INTEGER.fullmatch(text) else default


def shown(value: str) -> str:
    """A value of a file as an error shows it: one short line."""
    value = UNPRINTED.sub(lambda found: ascii(found[0])[1:-1], value[:200])
    return value if len(value) <= 80 else value[:77] + "..."


def text(root: Node) -> str:
    """The tree as XML that every parser reads alike; an element stays on its line, which MuJoCo's errors name."""
    parts: list[str] = []
    line, stack = 1, [(root, False)]
    while stack:
        node, ends = stack.pop()
        if ends:
            parts.append(f"</{node.tag}>")
            continue
        if node.file == root.file and node.line > line:
            parts.append("\n" * (node.line - line))
            line = node.line
        attrs = "".join(f' {name}="{value.translate(QUOTED)}"' for name, value in node.attrs.items())
        parts.append(f"<{node.tag}{attrs}" + (">" if node.children else "/>"))
        if node.children:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.children))
    return "".join(parts)


QUOTED = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
)


def parse_xml(data: bytes, file: str) -> Node:
    """The tree of one XML file. Anything that is not plain, bounded XML is a SurefootError naming the file and line."""
    if len(data) > MAX_XML_BYTES:
        raise SurefootError(f"{file}: XML of {len(data)} bytes, expected at most {MAX_XML_BYTES}")
    try:
        data.decode()
    except UnicodeDecodeError as e:
        raise SurefootError(f"{file}: byte {e.start} is not UTF-8, expected XML in UTF-8") from None
    if b"\0" in data:  # expat reads it as UTF-16, whatever the declared encoding
        raise SurefootError(f"{file}: not well-formed XML: byte {data.index(0)} is zero, expected XML in UTF-8")
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
        if len(attrs) > MAX_ATTRIBUTES:
            raise refuse(f"{shown(tag)}: {len(attrs)} attributes, expected at most {MAX_ATTRIBUTES}")
        above = stack[-1] if stack else None
        owner = "" if above is None else above.label if above.attrs.get("name") else above.owner
        node = Node(tag, attrs, file, parser.CurrentLineNumber, owner)
        _check_text(node)
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


def _check_text(node: Node) -> None:
    """No attribute hides control characters; a name or a path is one line, and short."""
    for attr, value in node.attrs.items():
        named = ONE_LINE.fullmatch(attr) is not None
        if (UNPRINTED if named else CONTROL).search(value):
            raise node.refuse(attr, "holds a control character, expected printable text")
        if named and len(value) > MAX_NAME:
            raise node.refuse(attr, f"is of {len(value)} characters, expected at most {MAX_NAME}")
