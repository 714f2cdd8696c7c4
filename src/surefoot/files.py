"""Files that are whole or absent: write beside, flush, rename. And content hashes, by which products name parents."""

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from surefoot.errors import SurefootError


def write(path: Path, data: bytes) -> None:
    """Atomic: after a crash or a full disk at any instant, path holds its old content or all of the new one."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(beside, "wb") as f:
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


def read_bytes(path: Path | str, largest: int) -> bytes:
    """The bytes of a regular file; a pipe or a device, which might never end, is refused, as is one above `largest`."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        raise SurefootError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise SurefootError(f"{path}: cannot read it: {getattr(error, 'strerror', None) or error}") from None
    return read_opened(fd, path, largest)


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


def read_json(path: Path) -> Any:
    """Parsed JSON; NaN and Infinity are refused as any other broken file is."""
    path = Path(path)
    try:
        return json.loads(path.read_bytes(), parse_constant=_no_constant)
    except FileNotFoundError:
        raise SurefootError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise SurefootError(f"{path}: expected a JSON text, found what is no text") from None
    except IsADirectoryError:
        raise SurefootError(f"{path}: expected a JSON file, found a folder") from None
    except OSError as error:
        raise SurefootError(f"{path}: expected JSON; cannot read it: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SurefootError(f"{path}: expected JSON, found what is none: {error}") from error


def seal(value: dict[str, Any]) -> dict[str, Any]:
    """The same with the hash of all the rest of it, `sha256`."""
    rest = {k: v for k, v in value.items() if k != "sha256"}
    told = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return rest | {"sha256": sha256(told.encode())}


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


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
