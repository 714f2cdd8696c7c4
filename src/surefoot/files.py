"""Files that are whole or absent: write beside, flush, rename. Content hashes, by which products name their parents;
seals, by which an edited JSON file is noticed; and locks, so that one process at a time writes a folder.

What a stranger wrote is read by read_bytes, a regular file of bounded size, and JSON in it by parse_json.
"""

import fcntl
import hashlib
import json
import math
import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from surefoot.errors import SurefootError

LARGEST_JSON = 64 << 20  # bytes
HEADROOM = 300  # calls: what nests as deep as Python allows could be parsed, and then be neither shown nor hashed
DIGITS = 400  # a double has 17 digits and ends at 1e308: a longer number is no measurement


def write(path: Path, data: bytes) -> None:
    """Atomic: after a crash or a full disk at any instant, path holds its old content or all of the new one."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_new(beside) as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise SurefootError(f"{path}: could not write {len(data)} bytes: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # gone where all went well; otherwise, also after Ctrl-C, no litter
            beside.unlink(missing_ok=True)
    _sync_folder(path.parent)


def open_new(path: Path) -> IO[bytes]:
    """A file that was not there before: one that was, or a link that somebody laid there, is not written through."""
    try:
        return open(path, "xb")
    except FileExistsError:
        path.unlink()
        return open(path, "xb")


def clear_parts(folder: Path, names: str = "*") -> None:
    """Remove what `write` left beside files of these names when its process was killed; call it while nobody writes here."""
    for part in Path(folder).glob(f".{names}.part"):
        pid = re.fullmatch(r"\..+\.([1-9]\d{0,9})\.part", part.name)
        if pid and part.is_file() and not part.is_symlink() and not _runs(int(pid[1])):
            with suppress(OSError):
                part.unlink()


def _runs(pid: int) -> bool:
    """Whether another process with this id is alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return pid != os.getpid()


class Lock:
    """One process at a time: holds a lock file until close(), or until the process ends, however it ends."""

    def __init__(self, path: Path, doing: str):
        self.path = Path(path)
        try:
            while not self._take(doing):
                pass
        except OSError as error:
            raise SurefootError(f"{self.path.parent}: cannot write here: {error.strerror or error}") from error

    def _take(self, doing: str) -> bool:
        self._file = open(self.path, "a+", opener=_open_own)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise SurefootError(f"{self.path.parent}: {holder} is {doing}; wait for it or stop it") from None
        if not self._is_there():
            self._file.close()
            return False
        with suppress(OSError):  # a full disk: the lock holds, without a name
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            self._file.flush()
        return True

    def _is_there(self) -> bool:
        """Whether the file held is still the one under its name: its last holder may have removed it meanwhile."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if not self._file.closed:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
            with suppress(OSError):
                self._file.close()


def _open_own(path: str, flags: int) -> int:
    """A lock is emptied and written: never what a link leads to, nor a file that has another name, too."""
    try:
        fd = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)
    except OSError as error:
        if not os.path.islink(path):
            raise
        raise SurefootError(f"{path}: found a link, expected a lock or nothing: remove it") from error
    about = os.fstat(fd)
    if stat.S_ISREG(about.st_mode) and about.st_nlink <= 1:  # 0: its holder has removed it just now
        return fd
    os.close(fd)
    raise SurefootError(f"{path}: found a pipe, a device or a file of two names, expected a lock or nothing: remove it")


@contextmanager
def held(path: Path, doing: str) -> Iterator[None]:
    """A Lock for as long as a block of code takes; its folder is made."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SurefootError(f"{Path(path).parent}: cannot make this folder: {error.strerror or error}") from error
    lock = Lock(path, doing)
    try:
        yield
    finally:
        lock.close()


def check_writable(path: Path, flag: str, suffix: str = "", reads: Iterable[Path | str | None] = ()) -> None:
    """Refuse now, not after minutes of work, to write where nothing can be written; `flag` is where the path was given.

    With a suffix, also a name with another one: a file must not look like what it is not. And any of the files that the
    command reads: a log of a robot is not recorded twice.
    """
    if path.exists() and any(x and Path(x).exists() and path.samefile(x) for x in reads):
        raise SurefootError(f"{flag}: {path} is read by this command, expected another file to write")
    if suffix and path.suffix != suffix:
        raise SurefootError(f"{flag}: {path}: expected a name that ends in {suffix}")
    if path.is_dir():
        raise SurefootError(f"{flag}: {path} is a folder, expected a file to write")
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise SurefootError(f"{flag}: {path}: expected a folder that can be written to; {folder} cannot")


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where the system lets a folder be synced."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems refuse; the rename itself is still atomic
    finally:
        os.close(fd)


def read_opened(fd: int, path: Path | str, largest: int) -> bytes:
    """All that an open file holds; closes it. `path` is its name in errors."""
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        os.close(fd)
        raise SurefootError(f"{path}: found a folder, a pipe or a device, expected a regular file")
    with open(fd, "rb") as f:
        data = f.read(largest + 1) if about.st_size <= largest else b""
    if max(about.st_size, len(data)) > largest:
        raise SurefootError(f"{path}: a file of {max(about.st_size, len(data))} bytes, expected at most {largest}")
    return data


def write_json(path: Path, value: Any) -> None:
    write(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def open_regular(path: Path) -> int:
    """A descriptor of a regular file, open for reading: neither a pipe nor a device can hang or feed its reader."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        raise SurefootError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise SurefootError(f"{path}: cannot read it: {getattr(error, 'strerror', None) or error}") from None
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    found = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
    raise SurefootError(f"{path}: found {found}, expected a file")


def read_head(path: Path | str, most: int) -> bytes:
    """The first bytes of a regular file."""
    with open(open_regular(Path(path)), "rb") as file:
        return _read(file, most, path)


def _read(file: IO[bytes], most: int, path: Path | str) -> bytes:
    try:
        return file.read(most)
    except OSError as error:  # such as /proc/self/mem, a regular file of which little can be read
        raise SurefootError(f"{path}: cannot read it: {error.strerror or error}") from None


def read_bytes(path: Path | str, largest: int) -> bytes:
    """All of a regular file of at most `largest` bytes; the size is looked at before anything is read."""
    with open(open_regular(Path(path)), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise SurefootError(f"{path}: found {size} bytes, expected at most {largest}")
        data = _read(file, size + 1, path)
    if len(data) > size:
        raise SurefootError(f"{path}: found more than the {size} bytes it had a moment ago; it is being written")
    return data


def read_json(path: Path | str, largest: int = LARGEST_JSON) -> Any:
    """Parsed JSON; NaN and Infinity are refused as any other broken file is."""
    return parse_json(read_bytes(path, largest), str(path))


def parse_json(data: bytes | str, where: str, nan: bool = False) -> Any:
    """JSON whose keys stand once in each object, whose numbers are within 1e308 and whose text can be written.

    With `nan`, NaN and Infinity are numbers.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")
        constant = float if nan else _no_constant
        how: Any = {"object_pairs_hook": _object, "parse_constant": constant, "parse_int": _int, "parse_float": _float}
        value = _below(HEADROOM, lambda: json.loads(text, **how))
        if re.search(r"\\u[dD][89a-fA-F]", text):  # half of a pair is no character: it breaks whoever prints it
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        at = f"byte {error.pos}, line {error.lineno}"
        raise SurefootError(f"{where}: {at}: {error.msg}; expected JSON") from None
    except UnicodeDecodeError:
        raise SurefootError(f"{where}: expected a JSON text, found what is no text") from None
    except UnicodeEncodeError:
        raise SurefootError(
            f"{where}: found half a character (\\ud800 to \\udfff), expected JSON of whole ones"
        ) from None
    except RecursionError:
        raise SurefootError(f"{where}: found too many levels of nesting, expected JSON of fewer") from None
    except ValueError as error:
        raise SurefootError(f"{where}: {error}; expected JSON") from None


def _below(calls: int, parse: Callable[[], Any]) -> Any:
    """What a function answers that many calls further down, where Python allows fewer levels of nesting."""
    return parse() if not calls else _below(calls - 1, parse)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise ValueError(f"found the key {twice[:80]!r} twice in one object, expected each once")
    return found


def seal(value: dict[str, Any]) -> dict[str, Any]:
    """The same with the hash of all the rest of it, `sha256`."""
    rest = {k: v for k, v in value.items() if k != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return rest | {"sha256": sha256(text.encode())}


def check_seal(value: dict[str, Any], where: str) -> dict[str, Any]:
    """What was sealed, without its seal; refused if it was edited since. What has no seal is taken as it is."""
    if not isinstance(value, dict):
        raise SurefootError(f"{where}: expected an object, found {type(value).__name__}")
    rest = {k: v for k, v in value.items() if k != "sha256"}
    try:
        right = seal(rest)["sha256"]
    except (ValueError, RecursionError) as error:
        right = f"none ({error})"
    if value.get("sha256", right) != right:
        raise SurefootError(
            f"{where}: edited or damaged since it was written: sha256: expected {right}, found {value['sha256']}"
        )
    return rest


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number JSON allows")


def _int(text: str) -> int:
    if len(text) > 308:
        raise ValueError(f"found a number of {len(text)} digits, expected one within 1e308")
    return int(text)


def _float(text: str) -> float:
    value = float(text) if len(text) <= DIGITS else math.inf
    if math.isinf(value):
        raise ValueError(f"found the number {text[:20]}, expected one within 1e308")
    return value


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
