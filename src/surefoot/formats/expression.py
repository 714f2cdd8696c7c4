"""Arithmetic over a file's columns, for mappings: parsed here, never executed as code.

    sum   = term { (+ | -) term }        term  = unary { (* | /) unary }        unary = - unary | power
    power = atom [ ^ unary ]             atom  = NUMBER | NAME | 'any name' | FUNCTION ( sum ) | ( sum )

A name is a column of the file, a pattern of several such as tau{0..5}, parts of a wide column such as x[3:7], or a constant.
Operands of k parts combine with others of k parts or of one, as arrays (T, k) do.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from surefoot.errors import SurefootError, unknown

LONGEST, MOST, DEEPEST = 2000, 400, 32  # characters, operations and names, levels of parentheses
TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)"
    r"|'(?P<quoted>[^']+)'"
    r"|(?P<name>(?:[A-Za-z_]|\{[^{}']*\})(?:[\w.]|\{[^{}']*\})*(?:\[\d+(?::\d+)?\])?)"
    r"|(?P<sign>\*\*|[-+*/^()]))"
)
FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs, "sign": np.sign, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "exp": np.exp,
}  # fmt: skip
PAIRS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "^": np.power,
}  # fmt: skip


@dataclass(frozen=True)
class Expression:
    """A number, a name, or an operation on others."""

    kind: str
    """number, name, negative, a function's name, or one of + - * / ^"""
    parts: tuple["Expression", ...] = ()
    name: str = ""
    number: float = 0.0

    def names(self) -> Iterator[str]:
        """The names in it, as they are written, in order."""
        if self.kind == "name":
            yield self.name
        for part in self.parts:
            yield from part.names()

    def value(self, look: Callable[[str], np.ndarray], where: str) -> np.ndarray:
        """(T, k), or (1, 1) of constants alone; `look` gives the array of a name."""
        if self.kind == "name":
            return look(self.name)
        if self.kind == "number":
            return np.full((1, 1), self.number)
        each = [part.value(look, where) for part in self.parts]
        with np.errstate(all="ignore"):  # a log has nan where nothing finite was computed
            if len(each) == 1:
                return -each[0] if self.kind == "negative" else FUNCTIONS[self.kind](each[0])
            left, right = (x.shape[1] for x in each)
            if left != right and 1 not in (left, right):
                raise SurefootError(
                    f"{where}: expr: found {left} parts {self.kind} {right} parts, expected as many, or one"
                )
            return PAIRS[self.kind](*each)


def parse(text: str, where: str = "expr") -> Expression:
    """The expression that a text is; anything else is refused with the place where it stops being one."""
    if len(text) > LONGEST:
        raise SurefootError(f"{where}: found {len(text)} characters, expected at most {LONGEST}")
    reader = _Reader(text, where, list(_tokens(text, where)))
    found = reader.sum(0)
    if reader.peek():
        raise reader.refused("an operator or the end")
    return found


def _tokens(text: str, where: str) -> Iterator[tuple[str, str, int]]:
    """Kind, word and place of each token."""
    at, end = 0, len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if not found:
            raise SurefootError(
                f"{where}: character {at + 1} of {text[:80]!r}: found {text[at : at + 8].strip()!r}, expected a number, a "
                "name, + - * / ^ or parentheses; other names stand in single quotes"
            )
        kind = found.lastgroup or ""
        yield (
            "name" if kind == "quoted" else kind,
            found[kind].replace("**", "^") if kind == "sign" else found[kind],
            at,
        )
        at = found.end()


@dataclass
class _Reader:
    """Recursive descent over tokens, with bounds on depth and size."""

    text: str
    where: str
    tokens: list[tuple[str, str, int]]
    at: int = 0
    made: int = field(default=0)

    def peek(self) -> str:
        """The next sign, `?` before a number or a name, nothing at the end."""
        if self.at == len(self.tokens):
            return ""
        kind, word, _ = self.tokens[self.at]
        return word if kind == "sign" else "?"

    def refused(self, expected: str) -> SurefootError:
        place = self.tokens[self.at][2] + 1 if self.at < len(self.tokens) else len(self.text)
        found = repr(self.tokens[self.at][1]) if self.at < len(self.tokens) else "the end"
        return SurefootError(
            f"{self.where}: character {place} of {self.text[:80]!r}: found {found}, expected {expected}"
        )

    def node(self, kind: str, *parts: Expression, name: str = "", number: float = 0.0) -> Expression:
        self.made += 1
        if self.made > MOST:
            raise SurefootError(
                f"{self.where}: found more than {MOST} names and operations, expected a shorter expression"
            )
        return Expression(kind, parts, name, number)

    def sum(self, depth: int) -> Expression:
        found = self.term(depth)
        while self.peek() in ("+", "-"):
            sign = self.take()
            found = self.node(sign, found, self.term(depth))
        return found

    def term(self, depth: int) -> Expression:
        found = self.unary(depth)
        while self.peek() in ("*", "/"):
            sign = self.take()
            found = self.node(sign, found, self.unary(depth))
        return found

    def unary(self, depth: int) -> Expression:
        if depth > DEEPEST:
            raise SurefootError(f"{self.where}: found more than {DEEPEST} levels, expected a flatter expression")
        if self.peek() == "-":
            self.take()
            return self.node("negative", self.unary(depth + 1))
        base = self.atom(depth)
        if self.peek() != "^":
            return base
        self.take()
        return self.node("^", base, self.unary(depth + 1))

    def atom(self, depth: int) -> Expression:
        if self.peek() == "(":
            self.take()
            return self._closed(depth)
        if self.peek() != "?":
            raise self.refused("a number, a name or '('")
        kind, word, _ = self.tokens[self.at]
        self.take()
        if kind == "number":
            return self.node("number", number=float(word))
        if self.peek() != "(":
            return self.node("name", name=word)
        if word not in FUNCTIONS:
            raise unknown("function", word, FUNCTIONS, self.where)
        self.take()
        return self.node(word, self._closed(depth))

    def _closed(self, depth: int) -> Expression:
        found = self.sum(depth + 1)
        if self.peek() != ")":
            raise self.refused("')'")
        self.take()
        return found

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][1]
