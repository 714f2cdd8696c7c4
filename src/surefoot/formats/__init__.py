"""Robots' logs, into a Log: CSV, JSON, NPZ, MATLAB, Parquet, MCAP, rosbag2, LeRobot v3.

    file -> Raw (streams of named columns) -> [mapping: our names, SI units] -> one clock -> Log

A file may be broken or hostile: whatever is wrong with it is a SurefootError that names the file.
"""

from pathlib import Path
from typing import Any

from surefoot.errors import SurefootError
from surefoot.log import Log


def read(path: str | Path, mapping: Any = None, rate: float | None = None, episode: int = 0, mend: bool = False) -> Log:
    """The log in a file; see Log.read."""
    from surefoot.formats.align import assemble
    from surefoot.formats.mapping import Mapping
    from surefoot.formats.raw import with_header
    from surefoot.formats.readers import kind, read_raw

    if isinstance(mapping, str | Path):
        mapping = Mapping.read(mapping)
    elif isinstance(mapping, dict):
        mapping = Mapping.from_json(mapping)
    path = Path(path)
    what = kind(path)
    raw = read_raw(path, what, episode)
    try:
        if mapping and mapping.header:
            raw = with_header(raw, mapping.header)
        return assemble(raw, mapping, rate, mend, {"path": path.name, "format": what})
    except SurefootError as error:
        raise SurefootError(f"{path}: {error}") from None
