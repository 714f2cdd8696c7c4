"""A motion in a robot's own joints, as a Log: base_pos (T, 3) m, base_quat (T, 4) w x y z, joint_pos (T, k) rad, with names.

    .npz    arrays time, base_pos, base_quat, joint_pos and joint_names; or a Log that was saved
    .csv    a header with the joints' names and base_pos_x ... base_quat_z; or no header: position 3, quaternion 4, joints

A table without a header has no clock, no names and no order of the quaternion: the rate is given, the joints are the model's in
their order, and the quaternion is read so that the base stands upright over the motion as a whole.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.log import Log
from surefoot.rotation import unit

BASE = {"base_pos": "xyz", "base_quat": "wxyz"}


def read_motion(path: str | PathLike[str], joints: Sequence[str], rate: float | None = None, beside: str = "") -> Log:
    """The motion in a file; `joints` are the robot's. `rate`: rows a second, where the file has no clock.

    With `beside=__file__`, a relative path starts at the folder of the task file.
    """
    where = Path(beside).absolute().parent / path if beside else Path(path)
    names = _joint_names(where)
    log = _log(where, rate)
    try:
        if list(log.columns) == [str(k) for k in range(len(log.columns))]:
            return _checked(_plain(log, tuple(joints)))
        return _checked(_named(log, tuple(joints), names))
    except SurefootError as error:
        raise SurefootError(f"{where}: {error}") from None


def _log(path: Path, rate: float | None) -> Log:
    try:
        return Log.read(path, rate=rate)
    except SurefootError:
        if rate is not None:
            raise
        Log.read(path, rate=1.0)  # raises again where more than the clock is missing
        raise SurefootError(
            f"{path}: rate: the file has no clock, expected its rows a second, such as --rate 60"
        ) from None


def _joint_names(path: Path) -> tuple[str, ...]:
    """Of an npz that has them as an array of words."""
    if path.suffix != ".npz" or not path.is_file():
        return ()
    from surefoot.formats.readers.arrays import load

    found = load(path).get("joint_names")
    return tuple(map(str, found.tolist())) if found is not None and found.dtype.kind == "U" and found.ndim == 1 else ()


def _plain(log: Log, joints: tuple[str, ...]) -> Log:
    """A table of numbers alone."""
    rows = np.stack(list(log.columns.values()), 1)
    if rows.shape[1] != 7 + len(joints):
        raise SurefootError(
            f"found {rows.shape[1]} columns without names, expected position 3, quaternion 4 and the {len(joints)} joints of the "
            f"model: {', '.join(joints)}; name the columns in a first line where the file has others"
        )
    first, last = rows[:, 3:7], rows[:, [6, 3, 4, 5]]
    xyzw = _upright(last) > _upright(first)
    notes = [f"quaternion read as {'x y z w' if xyzw else 'w x y z'}: so the base stands upright"]
    columns = {"base_pos": rows[:, :3], "base_quat": last if xyzw else first, "joint_pos": rows[:, 7:]}
    return Log(log.time, columns, meta={"names": {"joint_pos": list(joints)}, "notes": notes})


def _upright(quat: np.ndarray) -> float:
    """Mean cosine of the tilt."""
    q = unit(quat)
    return float((1 - 2 * (q[:, 1] ** 2 + q[:, 2] ** 2)).mean())


def _named(log: Log, joints: tuple[str, ...], names: tuple[str, ...]) -> Log:
    found: dict[str, np.ndarray] = {}
    for name, parts in BASE.items():
        split = [f"{name}_{p}" for p in parts]
        if name not in log.columns and all(part in log.columns for part in split):
            found[name] = np.stack([log[part] for part in split], 1)
        else:
            found[name] = log[name]
    if "joint_pos" in log.columns:
        own = names or tuple(log.meta.get("names", {}).get("joint_pos", ()))
        found["joint_pos"] = np.reshape(log["joint_pos"], (len(log), -1))
    else:
        own = tuple(j for j in joints if j in log.columns)
        if not own:
            raise unknown("column", joints[0] if joints else "joint_pos", log.columns)
        found["joint_pos"] = np.stack([log[j] for j in own], 1)
    if len(own) != found["joint_pos"].shape[1]:
        raise SurefootError(f"joint_names: found {len(own)} names, expected one for each of {found['joint_pos'].shape[1]} joints")  # fmt: skip
    for name in own:
        if name not in joints:
            raise unknown("joint", name, joints, "joint_names")
    return Log(log.time, found, meta={"names": {"joint_pos": list(own)}, "notes": []})


def _checked(log: Log) -> Log:
    """Whole numbers of a motion that can be followed."""
    for name, width in (("base_pos", 3), ("base_quat", 4)):
        if log[name].ndim != 2 or log[name].shape[1] != width:
            raise SurefootError(f"{name}: found shape {log[name].shape}, expected ({len(log)}, {width})")
    if len(log) < 3:
        raise SurefootError(f"found {len(log)} rows, expected at least 3")
    for name, column in log.columns.items():
        bad = np.flatnonzero(~np.isfinite(column).all(1))
        if len(bad):
            raise SurefootError(f"{name}: row {bad[0]}: found a number that is not finite")
    size = np.linalg.norm(log["base_quat"], axis=1)
    off = np.flatnonzero(np.abs(size - 1) > 0.05)
    if len(off):
        raise SurefootError(f"base_quat: row {off[0]}: found length {size[off[0]]:.3g}, expected a unit quaternion")
    return log
