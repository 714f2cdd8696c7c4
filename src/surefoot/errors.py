"""What went wrong, in words a user can act on: the place, what was found, what was expected, the nearest valid name."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

EXTRAS = {
    "mujoco": "sim", "scipy": "sim", "cma": "sim", "matplotlib": "sim", "torch": "train", "tensorboard": "train",
    "onnx": "export", "onnxruntime": "export", "yaml": "export", "viser": "play", "PIL": "play", "msgspec": "play",
    "websockets": "play", "gymnasium": "gym", "sbi": "sbi", "pybullet": "bullet", "rsl_rl": "rsl", "pyarrow": "logs",
    "mcap": "logs", "mcap_ros2": "logs", "rosbags": "logs", "cryptography": "sign", "wandb": "wandb",
}  # fmt: skip
"""packages that are not always there, and the extra that brings each"""


class SurefootError(ValueError):
    """Bad input or a broken file. The message is the whole story; the door prints it without a traceback."""


class LogError(SurefootError):
    """A log is at fault. Who reads it knows no file; who opened the file says which one, by `named`."""

    def __init__(self, words: str):
        super().__init__(f"log: {words}")
        self.words = words

    def named(self, where: str) -> SurefootError:
        return SurefootError(f"{where}: {self.words}")


class MissingExtra(SurefootError, ImportError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str):
        super().__init__(f"{what} needs the '{extra}' extra: pip install 'surefoot[{extra}]'")


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """A package of an extra that cannot be found is said by the extra's name; any other is a defect."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None or isinstance(error, MissingExtra):
            raise
        raise MissingExtra(what, extra) from error


def nearest(name: str, names: Iterable[str], cutoff: float = 0.5) -> str:
    """`; did you mean X?`, or nothing when no valid name is close: as alike as the cutoff, from 0 to 1."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def unknown(
    kind: str, name: str, names: Iterable[str], where: str = "", error: type[SurefootError] = SurefootError
) -> SurefootError:
    """The error for a name that does not exist: says which ones do."""
    names = list(names)
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") or "none"
    return error(f"{where + ': ' if where else ''}no {kind} matches '{name}'; there are {shown}{nearest(name, names)}")
