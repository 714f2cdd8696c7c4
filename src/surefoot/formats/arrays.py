"""NPZ, our own and anybody's, and MATLAB .mat files up to version 7. Declared sizes are checked before memory is taken.

of each member of an npz: bytes declared by its npy header <= bytes of the member <= MOST, and no objects
"""

import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from surefoot.errors import SurefootError
from surefoot.formats.raw import Raw, Stream, from_arrays

MOST = 768 << 20  # bytes of arrays in one file


def read_npz(path: Path) -> Raw:
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {m.filename.removesuffix(".npy"): _member(path, archive, m) for m in _members(path, archive)}
    except zipfile.BadZipFile as error:
        raise SurefootError(f"{path}: {error}; expected an npz") from None
    except (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error, KeyError) as error:
        if isinstance(error, SurefootError):
            raise
        raise SurefootError(f"{path}: {error}; expected an npz of plain numbers") from None
    if "header" in arrays and "time" in arrays:
        ours = _own(arrays)
        if ours:
            return ours
    return from_arrays(arrays, str(path))


def _own(arrays: dict[str, np.ndarray]) -> Raw | None:
    """A log that Log.save wrote, with its units and meta."""
    try:
        header = json.loads(str(arrays["header"]))
        columns = {k.removeprefix("columns/"): v for k, v in arrays.items() if k.startswith("columns/")}
        units = dict(header["units"]) | {"time": "s"}
        return Raw({"": Stream({"time": arrays["time"]} | columns)}, units=units, meta=header["meta"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _members(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
    if not members:
        raise SurefootError(f"{path}: found no .npy member, expected an npz")
    size = sum(m.file_size for m in members)
    if size > MOST:
        raise SurefootError(f"{path}: found {size} bytes of arrays, expected at most {MOST}")
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
    shape, fortran, dtype = readers[version](file)
    return shape, fortran, dtype, file.tell()


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
