"""A log as an MCAP file, for viewers that read it (Foxglove, PlotJuggler): one JSON message a row on the topic /run.

The npz is the whole log; this is a copy of its columns. Needs the extra `logs`.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files
from surefoot.errors import MissingExtra
from surefoot.log import Log

TOPIC, NANO = "/run", 1_000_000_000


def write(log: Log, path: Path) -> Path:
    """Write it atomically; times begin at 0."""
    try:
        from mcap.writer import Writer
    except ImportError:
        raise MissingExtra("writing an MCAP file", "logs") from None
    out = io.BytesIO()
    writer = Writer(out)
    writer.start("", "surefoot")
    schema = writer.register_schema("run", "jsonschema", json.dumps(_schema(log)).encode())
    channel = writer.register_channel(TOPIC, "json", schema)
    for k, t in enumerate(log.time):
        row = {"time": float(t)} | {name: _plain(x[k]) for name, x in log.columns.items()}
        at = round(float(t) * NANO)
        writer.add_message(channel, at, json.dumps(row, allow_nan=False).encode(), at, sequence=k)
    writer.finish()
    files.write(path, out.getvalue())
    return path


def _plain(x: Any) -> Any:
    """A number or a list of them; null where nothing was measured."""
    values = [None if isinstance(v, float) and not np.isfinite(v) else v for v in np.atleast_1d(x).tolist()]
    return values if np.ndim(x) else values[0]


def _schema(log: Log) -> dict[str, Any]:
    number: dict[str, Any] = {"type": ["number", "null"]}
    many: dict[str, Any] = {"type": "array", "items": number}
    kinds = {
        name: many if x.ndim == 2 else {"type": "boolean"} if x.dtype == bool else number
        for name, x in log.columns.items()
    }
    return {"type": "object", "properties": {"time": {"type": "number"}} | kinds}
