"""What went wrong, in words a user can act on: the place, what was found, what was expected, the nearest valid name."""

import difflib
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

EXTRAS = {
    "mujoco": "sim", "scipy": "sim", "cma": "sim", "matplotlib": "sim", "torch": "train", "tensorboard": "train",
    "onnx": "export", "onnxruntime": "export", "yaml": "export", "viser": "play", "PIL": "play", "msgspec": "play",
    "websockets": "play", "gymnasium": "gym", "sbi": "sbi", "pybullet": "bullet", "rsl_rl": "rsl", "pyarrow": "logs",
    "mcap": "logs", "mcap_ros2": "logs", "rosbags": "logs", "cryptography": "sign", "wandb": "wandb", "daqp": "control",
    "zmq": "zmq", "cyclonedds": "unitree", "ray": "cluster", "ezc3d": "motion",
    "fsspec": "train", "s3fs": "s3", "warp": "gpu", "mujoco_warp": "gpu", "optuna": "tune",
}  # fmt: skip
"""packages that are not always there, and the extra that brings each"""


LONGEST = 200  # characters of a name that an error quotes; a file may hold one of megabytes


class SurefootError(ValueError):
    """Bad input or a broken file. The message is the whole story; the door prints it without a traceback."""

    unknown_name: str = ""
    """the name that nothing has, where that is the error"""


class LearningFailed(SurefootError):
    """A run cannot go on: its numbers are not finite any more, or its simulations diverge."""


class LogError(SurefootError):
    """A log is at fault. Who reads it knows no file; who opened the file says which one, by `named`."""

    def __init__(self, words: str):
        super().__init__(f"log: {words}")
        self.words = words

    def named(self, where: str) -> SurefootError:
        return SurefootError(f"{where}: {self.words}")


class TaskCodeError(SurefootError):
    """The user's own task file failed: the message ends with their line, not with ours."""


HOME = str(Path(__file__).parent)
PYTHON = str(Path(traceback.__file__).parent)  # of the standard library


def in_users_code(error: Exception, where: str) -> TaskCodeError:
    """What went wrong in the user's code, with the innermost line that is theirs."""
    if isinstance(error, SyntaxError):
        at = f"{error.filename}, line {error.lineno}: {(error.text or '').strip()}"
        return TaskCodeError(f"{where}: {type(error).__name__}: {error.msg}\n  {at}")
    kind = "" if isinstance(error, SurefootError) else f"{type(error).__name__}: "
    return TaskCodeError(f"{where}: {kind}{error}{users_line(error)}")


def users_line(error: Exception) -> str:
    """The innermost line of the user's code that the error came through; nothing where there is none."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((HOME, "<frozen", "<string>"))
    ]
    theirs = [f for f in frames if "site-packages" in f.filename or not f.filename.startswith(PYTHON)]
    own = [f for f in theirs if "site-packages" not in f.filename] or theirs  # a task may be an installed package's
    return f"\n  {own[-1].filename}, line {own[-1].lineno}: {own[-1].line}" if own else ""


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
    close = difflib.get_close_matches(name[:LONGEST], list(names), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def unknown(
    kind: str, name: str, names: Iterable[str], where: str = "", error: type[SurefootError] = SurefootError
) -> SurefootError:
    """The error for a name that does not exist: says which ones do."""
    names = list(names)
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") or "none"
    name = name if len(name) <= LONGEST else f"{name[:LONGEST]}..."
    found = error(f"{where + ': ' if where else ''}no {kind} matches '{name}'; there are {shown}{nearest(name, names)}")
    found.unknown_name = name
    return found
