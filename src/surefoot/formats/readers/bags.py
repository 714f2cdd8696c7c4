"""MCAP files and rosbag2 folders: a stream for each topic, ordered by the recorder's clock `log_time` [ns].

    record: opcode 1 byte, length 8 bytes, content; chunks hold compressed records and their CRC

CRCs are checked. Messages in JSON and in ROS 2's CDR are read; a definition in the file is parsed, never run.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from surefoot import files
from surefoot.errors import SurefootError, nearest
from surefoot.formats.raw import WIDEST, Raw, Stream, from_records, listed

CHUNK = 256 << 20  # bytes of a chunk when unpacked; writers use a few MiB

Decode = Callable[[bytes], dict[str, Any]]


class Bounded:
    """A file whose read() beyond its end is an error."""

    def __init__(self, file: IO[bytes], size: int):
        self.file, self.size = file, size

    def read(self, n: int) -> bytes:
        at = self.file.tell()
        if n > self.size - at:
            raise SurefootError(f"found the end at byte {self.size}, expected {n} more bytes after byte {at}")
        return self.file.read(n)


class Topics:
    """Messages gathered by topic."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.notes: list[str] = []

    def add(self, topic: str, stamp: int, message: dict[str, Any]) -> None:
        if not 0 <= stamp < 2**63:
            raise SurefootError(f"{topic}: log_time: found {stamp} ns, expected less than 2^63")
        self.rows.setdefault(topic, []).append({"log_time": stamp} | message)

    def raw(self, where: Path) -> Raw:
        streams: dict[str, Stream] = {}
        units: dict[str, str] = {}
        for topic, rows in self.rows.items():
            rows.sort(key=lambda r: r["log_time"])  # a recorder may write messages out of order
            stream, notes = from_records(rows, f"{where}: {topic}")
            if len(stream.columns) > 1:
                streams[topic] = stream
                units |= {
                    f"{topic}.{c}": "ns" for c in stream.columns if c == "log_time" or c.split(".")[-1] == "stamp"
                }
            self.notes += [f"{topic}.{n}" for n in notes]
        if not streams:
            raise SurefootError(f"{where}: found no topic with numbers; {listed(self.notes)}")
        return Raw(streams, units=units, notes=self.notes)


def read_mcap(path: Path) -> Raw:
    topics = Topics()
    _mcap_into(path, topics)
    return topics.raw(path)


def _mcap_into(path: Path, topics: Topics) -> None:
    from mcap.exceptions import McapError
    from mcap.stream_reader import StreamReader

    size, offset = path.stat().st_size, 0
    with open(files.open_regular(path), "rb") as file:
        bounded: Any = Bounded(file, size)
        records = StreamReader(bounded, emit_chunks=True, validate_crcs=True, record_size_limit=size).records
        channels = Channels(topics)
        try:
            for record in records:
                channels.take(record)
                offset = file.tell()
        except (McapError, ValueError, struct.error, LookupError, TypeError, RecursionError) as error:
            kind = "" if isinstance(error, SurefootError) else f"{type(error).__name__}: "
            raise SurefootError(f"{path}: record at byte {offset}: {kind}{str(error)[:300]}") from None


class Channels:
    """Schemas and channels as they are read, and the decoder of each."""

    def __init__(self, topics: Topics):
        self.topics = topics
        self.schemas: dict[int, Any] = {}
        self.channels: dict[int, tuple[str, Decode | None]] = {}

    def take(self, record: Any) -> None:
        from mcap import records as r
        from mcap.stream_reader import breakup_chunk

        if isinstance(record, r.Chunk):
            for inner in breakup_chunk(_unpacked(record), validate_crc=True):
                self.take(inner)
        elif isinstance(record, r.Schema):
            self.schemas[record.id] = record
        elif isinstance(record, r.Channel):
            if record.id not in self.channels:
                self.channels[record.id] = (record.topic, self._decoder(record))
        elif isinstance(record, r.Message):
            if record.channel_id not in self.channels:
                raise SurefootError(f"found a message of channel {record.channel_id}, which no record describes")
            topic, decode = self.channels[record.channel_id]
            if decode:
                self.topics.add(topic, record.log_time, decode(record.data))

    def _decoder(self, channel: Any) -> Decode | None:
        schema = self.schemas.get(channel.schema_id)
        if channel.message_encoding == "json":
            return _from_json
        if channel.message_encoding == "cdr" and schema is not None and schema.encoding == "ros2msg":
            return ros2(schema.name, schema.data.decode())
        kind = f"{channel.message_encoding} messages with a {schema.encoding if schema else 'missing'} schema"
        self.topics.notes.append(f"{channel.topic}: {kind} are not read")
        return None


def _unpacked(chunk: Any) -> Any:
    """The chunk without compression, at most as large as it declares."""
    size = chunk.uncompressed_size
    if size > CHUNK:
        raise SurefootError(f"chunk: found {size} bytes declared, expected at most {CHUNK}")
    if chunk.compression == "lz4":
        import lz4.frame

        try:
            data = lz4.frame.LZ4FrameDecompressor().decompress(chunk.data, max_length=size + 1)
        except RuntimeError as error:
            raise SurefootError(f"chunk: {error}") from None
    elif chunk.compression == "zstd":
        import zstandard

        try:
            with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(chunk.data) as stream:
                data = stream.read(size + 1)
        except zstandard.ZstdError as error:
            raise SurefootError(f"chunk: {error}") from None
    elif chunk.compression == "":
        data = chunk.data
    else:
        known = ("lz4", "zstd")
        raise SurefootError(f"chunk: found compression {chunk.compression!r}{nearest(chunk.compression, known)}")
    if len(data) != size:
        raise SurefootError(f"chunk: found {len(data)} bytes or more after decompression, expected {size}")
    return replace(chunk, compression="", data=data)


def _from_json(data: bytes) -> dict[str, Any]:
    message = files.parse_json(data, "message", nan=True)
    if not isinstance(message, dict):
        raise SurefootError(f"found the message {str(message)[:40]!r}, expected an object")
    return _joined(message)


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    """A message with stamps {sec, nanosec} as integer nanoseconds."""
    out: dict[str, Any] = {}
    for key, value in message.items():
        if isinstance(value, dict) and set(value) in ({"sec", "nanosec"}, {"sec", "nsec"}):
            sec, nano = value.values() if next(iter(value)) == "sec" else reversed(list(value.values()))
            out[key] = int(sec) * 10**9 + int(nano)
        else:
            out[key] = _joined(value) if isinstance(value, dict) else value
    return out


def ros2(name: str, definition: str) -> Decode:
    """A decoder of one ROS 2 message type from its definition's text."""
    from mcap_ros2._dynamic import generate_dynamic

    found = generate_dynamic(name, definition)
    if name not in found:
        raise SurefootError(f"schema {name}: found no definition of that type in its text")
    decode = found[name]
    return lambda data: _joined(_plain(decode(data)))


def _plain(message: Any) -> dict[str, Any]:
    return {k: _value(getattr(message, k)) for k in type(message).__slots__}


def _value(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, SimpleNamespace):
        return _plain(value)
    if len(value) > WIDEST:
        return None  # an image or a point cloud
    return [_value(v) for v in value]


def read_rosbag2(folder: Path) -> Raw:
    topics = Topics()
    parts = sorted(folder.glob("*.mcap"))
    for part in parts:
        _mcap_into(part, topics)
    if not parts:
        for topic, stamp, message in _sqlite(folder, topics):
            topics.add(topic, stamp, message)
    return topics.raw(folder)


def _sqlite(path: Path, topics: Topics) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Messages of a folder of .db3 files. rosbags reads the storage; its own decoder, which executes generated code, is not used."""
    import sqlite3

    from rosbags.rosbag2 import Reader

    count, topic = 0, ""
    try:
        with Reader(path) as bag:
            decoders = {c.id: _definition(c, topics) for c in bag.connections}
            for connection, stamp, data in bag.messages():
                topic, decode = connection.topic, decoders[connection.id]
                if decode:
                    yield topic, stamp, decode(bytes(data))
                count += 1
    except (SurefootError, MemoryError):
        raise
    except (Exception, sqlite3.Error) as error:  # rosbags and the decoder raise many kinds
        at = f"message {count} {topic}".strip()
        raise SurefootError(f"{path}: {at}: {type(error).__name__}: {str(error)[:300]}") from None


def _definition(connection: Any, topics: Topics) -> Decode | None:
    """The decoder of a topic: its definition in the bag, or ROS 2's own for common types."""
    from rosbags.interfaces import MessageDefinitionFormat
    from rosbags.typesys import Stores, get_typestore

    short = connection.msgtype.replace("/msg/", "/")
    if connection.msgdef.format == MessageDefinitionFormat.MSG:
        return ros2(short, connection.msgdef.data)
    store = get_typestore(Stores.LATEST)
    if connection.msgtype not in store.fielddefs:
        topics.notes.append(f"{connection.topic}: {connection.msgtype}: the bag has no definition of it")
        return None
    return ros2(short, store.generate_msgdef(connection.msgtype, ros_version=2)[0])
