"""BVH: a tree of joints with offsets and channels, then a line of numbers for each frame.

R_j = R_parent (R_c1 R_c2 R_c3), angles in degrees, in the order of the channels        p_j = p_parent + R_parent (offset or channels)
"""

import numpy as np

from surefoot.errors import SurefootError
from surefoot.motion.readers import CELLS, Skeletal
from surefoot.rotation import product, to_world

JOINTS = 1000
DEEP = 200


class _Words:
    """The words of the hierarchy, one after the other; errors name the line."""

    def __init__(self, text: str):
        self.lines = text.splitlines()
        self.at, self.row = 0, list[str]()
        self.place = 0

    def next(self) -> str:
        while self.place >= len(self.row):
            if self.at >= len(self.lines):
                raise SurefootError(f"line {self.at}: found the end of the file within the hierarchy")
            self.row, self.place, self.at = self.lines[self.at].split(), 0, self.at + 1
        self.place += 1
        return self.row[self.place - 1]

    def expect(self, word: str) -> None:
        found = self.next()
        if found.upper() != word:
            raise SurefootError(f"line {self.at}: found {found[:40]!r}, expected {word}")

    def number(self) -> float:
        word = self.next()
        try:
            x = float(word)
        except ValueError:
            raise SurefootError(f"line {self.at}: found {word[:40]!r}, expected a number") from None
        if not abs(x) < 1e9:
            raise SurefootError(f"line {self.at}: found {word[:40]}, expected a finite number")
        return x


class _Tree:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.parents: list[int] = []
        self.offsets: list[list[float]] = []
        self.channels: list[list[str]] = []

    def read(self, words: _Words, parent: int, depth: int) -> None:
        """A joint, from its name to its closing brace."""
        if depth > DEEP or len(self.names) >= JOINTS:
            raise SurefootError(f"line {words.at}: found more than {JOINTS} joints or {DEEP} in a chain")
        own = len(self.names)
        self.names.append(" ".join(words.row[words.place :]) or words.next())
        words.place = len(words.row)
        self.parents.append(parent)
        words.expect("{")
        words.expect("OFFSET")
        self.offsets.append([words.number() for _ in range(3)])
        self.channels.append([])
        while (word := words.next().upper()) != "}":
            if word == "CHANNELS":
                self.channels[own] = [_channel(words) for _ in range(_count(words))]
            elif word == "JOINT":
                self.read(words, own, depth + 1)
            elif word == "END":
                self._end(words, own)
            else:
                raise SurefootError(f"line {words.at}: found {word[:40]!r}, expected CHANNELS, JOINT, End Site or }}")

    def _end(self, words: _Words, parent: int) -> None:
        """An end site: a joint without channels."""
        words.place = len(words.row)
        words.expect("{")
        words.expect("OFFSET")
        self.names.append(f"{self.names[parent]}_end")
        self.parents.append(parent)
        self.offsets.append([words.number() for _ in range(3)])
        self.channels.append([])
        words.expect("}")


def _count(words: _Words) -> int:
    n = words.number()
    if n not in (0, 1, 2, 3, 4, 5, 6):
        raise SurefootError(f"line {words.at}: CHANNELS: found {n:g}, expected 0 to 6")
    return int(n)


def _channel(words: _Words) -> str:
    word = words.next().lower()
    if word[:1] not in ("x", "y", "z") or word[1:] not in ("position", "rotation"):
        raise SurefootError(
            f"line {words.at}: found the channel {word[:40]!r}, expected such as Xposition or Zrotation"
        )
    return word


def read_bvh(text: str) -> Skeletal:
    words, tree = _Words(text), _Tree()
    words.expect("HIERARCHY")
    words.expect("ROOT")
    tree.read(words, -1, 0)
    words.expect("MOTION")
    rows, step = _frames(words, sum(map(len, tree.channels)))
    if not 0 < step < 10:
        raise SurefootError(f"Frame Time: found {step:g} s, expected more than 0")
    pos, quat = _pose(tree, rows)
    zero, _ = _pose(tree, np.zeros((1, rows.shape[1])))
    return Skeletal(1 / step, tuple(tree.names), tuple(tree.parents), pos, quat, zero[0])


def _frames(words: _Words, width: int) -> tuple[np.ndarray, float]:
    words.expect("FRAMES:")
    n = words.number()
    if n != int(n) or not 3 <= n or n * max(width, 1) > CELLS:
        raise SurefootError(f"line {words.at}: Frames: found {n:g}, expected 3 or more, at most {CELLS} numbers in all")
    words.expect("FRAME")
    words.expect("TIME:")
    step = words.number()
    body = " ".join(words.lines[words.at :])
    try:
        values = np.array(body.split(), float)
    except ValueError as error:
        raise SurefootError(f"MOTION: {str(error)[:80]}; expected numbers") from None
    if len(values) != int(n) * width:
        raise SurefootError(f"MOTION: found {len(values)} numbers, expected {int(n)} frames of {width}")
    if not np.isfinite(values).all():
        raise SurefootError("MOTION: found a number that is not finite")
    return values.reshape(int(n), width), step


def _pose(tree: _Tree, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(T, J, 3) and (T, J, 4) of frames."""
    T, J = len(rows), len(tree.names)
    pos, quat, at = np.zeros((T, J, 3)), np.zeros((T, J, 4)), 0
    for j, parent in enumerate(tree.parents):
        offset, turn = np.tile(tree.offsets[j], (T, 1)), np.tile([1.0, 0, 0, 0], (T, 1))
        own = rows[:, at : at + len(tree.channels[j])]
        at += len(tree.channels[j])
        for name, value in zip(tree.channels[j], own.T):
            axis = "xyz".index(name[0])
            if name.endswith("position"):
                offset[:, axis] = value
            else:
                half = np.zeros((T, 4))
                half[:, 0], half[:, 1 + axis] = np.cos(np.radians(value) / 2), np.sin(np.radians(value) / 2)
                turn = product(turn, half)
        if parent < 0:
            pos[:, j], quat[:, j] = offset, turn
        else:
            pos[:, j] = pos[:, parent] + to_world(quat[:, parent], offset)
            quat[:, j] = product(quat[:, parent], turn)
    return pos, quat
