"""NPZ, ours and others, files of rows that a killed run left, and MATLAB .mat files up to version 7. Declared sizes are checked
before memory is allocated.

for each member of an npz: bytes declared by its npy header <= bytes of the member <= MOST, and no objects
"""

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.formats.raw import LARGEST, Raw, Stream, check_count, from_arrays
from surefoot.formats.raw import MOST as COUNT
from surefoot.log import FORMAT, from_rows, read_header

MOST = 768 << 20  # bytes of arrays in one file


def read_npz(path: Path) -> Raw:
    arrays = load(path)
    if "time" in arrays and FORMAT in str(arrays.get("header", "")):
        return _own(arrays, path)
    return from_arrays(arrays, str(path))


def load(path: Path, data: bytes | None = None, only: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an npz, none of them pickled; `data` is its content, if already read. Arrays not in `only` are not opened."""
    with _opened(path, data) as archive:
        members = _members(path, archive, max(MOST, len(data or b"")))
        named = {m.filename.removesuffix(".npy"): m for m in members}
        return {k: _member(path, archive, m) for k, m in named.items() if only is None or k in only}


def unpacked(path: Path) -> int:
    """Bytes of arrays that an npz declares."""
    with _opened(path) as archive:
        return sum(m.file_size for m in _members(path, archive))


@contextmanager
def _opened(path: Path, data: bytes | None = None) -> Iterator[zipfile.ZipFile]:
    """The archive; errors while it is open become SurefootErrors."""
    try:
        with zipfile.ZipFile(io.BytesIO(files.read_bytes(path, LARGEST) if data is None else data)) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise SurefootError(f"{path}: {error}; expected an npz") from None
    except SurefootError:
        raise
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error, KeyError, struct.error) as e:
        raise SurefootError(f"{path}: {e}; expected an npz of plain numbers") from None


def _own(arrays: dict[str, np.ndarray], path: Path) -> Raw:
    """A log that Log.save wrote, with its units and meta."""
    try:
        header = read_header(arrays)
    except SurefootError as error:
        raise SurefootError(f"{path}: {error}") from None
    columns = {k.removeprefix("columns/"): v for k, v in arrays.items() if k.startswith("columns/")}
    for name, a in ({"time": arrays["time"]} | columns).items():
        most = 1 if name == "time" else 2
        if a.dtype.kind not in "biuf" or not 1 <= a.ndim <= most or len(a) != len(arrays["time"]):
            expected = "numbers (T,)" if most == 1 else "numbers (T,) or (T, k), a row for each time"
            raise SurefootError(f"{path}: {name}: found {a.dtype.name} of shape {a.shape}, expected {expected}")
    return Raw(
        {"": Stream({"time": arrays["time"]} | columns)}, units=header["units"] | {"time": "s"}, meta=header["meta"]
    )


def _members(path: Path, archive: zipfile.ZipFile, most: int = MOST) -> list[zipfile.ZipInfo]:
    members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
    if not members:
        raise SurefootError(f"{path}: found no .npy member, expected an npz")
    check_count("arrays", len(members), str(path), COUNT + 2)  # columns, and a log's time and header
    size = sum(m.file_size for m in members)
    if size > most:
        raise SurefootError(f"{path}: found {size} bytes of arrays, expected at most {most}")
    return members


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    where = f"{path}: {member.filename}"
    with archive.open(member) as file:
        shape, fortran, dtype, head = _npy_header(file, where)
        if dtype.hasobject:
            raise SurefootError(f"{where}: found objects, which could run code; expected plain numbers")
        want = math.prod(shape) * dtype.itemsize
        if want + head != member.file_size:
            raise SurefootError(
                f"{where}: byte {member.header_offset}: found {member.file_size - head} bytes, "
                f"expected {want} for shape {shape} of {dtype}"
            )
        data = file.read(want)
    if len(data) != want:
        raise SurefootError(f"{where}: found {len(data)} bytes, expected {want}")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _npy_header(file: IO[bytes], where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise SurefootError(f"{where}: found npy version {version}, expected 1.0 or 2.0")
    try:
        shape, fortran, dtype = readers[version](file)
    except (SyntaxError, TokenError, TypeError, RecursionError, MemoryError) as error:  # of the Python literal in it
        raise SurefootError(f"{where}: header: {error}") from None
    return tuple(map(int, shape)), fortran, dtype, file.tell()


def read_rows(path: Path) -> Raw:
    """What a run wrote before it was killed."""
    try:
        log = from_rows(files.read_bytes(path, LARGEST))
    except SurefootError as error:
        raise error if str(error).startswith(str(path)) else SurefootError(f"{path}: {error}") from None
    return Raw({"": Stream({"time": log.time} | log.columns)}, units=log.units | {"time": "s"}, meta=log.meta)


def read_mat(path: Path) -> Raw:
    from scipy.io import loadmat

    try:
        found = loadmat(path, variable_names=None, struct_as_record=True)
    except NotImplementedError:
        raise SurefootError(
            f"{path}: found a MATLAB 7.3 file, expected version 7 or less: save it with save(..., '-v7')"
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # scipy raises whatever its readers meet: TypeError, zlib.error, struct.error, ...
        raise SurefootError(f"{path}: {type(error).__name__}: {str(error)[:200]}; expected a MATLAB file") from None
    arrays = {k: np.asarray(v) for k, v in found.items() if not k.startswith("__") and isinstance(v, np.ndarray)}
    return from_arrays(arrays, str(path))
