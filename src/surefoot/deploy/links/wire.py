"""What goes over a wire that carries bytes (UDP, ZeroMQ): bounded messages, read without trust.

    message = "SFT1" kind session sequence body          all little-endian
    ABOUT   JSON: what the robot is, and `layout`, the names and lengths of a packet's readings
    PACKET  stamp mode, then the readings as float64, in the order of the layout
    COMMAND mode, n, then target, kp and kd as float64; the mode `start` is servo, of the soft start
    HELLO, LISTEN, DAMP: no body

A message that does not fit is dropped (None): whoever listens on a network hears strangers, too.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from surefoot import files
from surefoot.deploy.links import MODES, About, Command, Packet
from surefoot.errors import SurefootError
from surefoot.typed import known_fields, real, text

HELLO, ABOUT, LISTEN, PACKET, COMMAND, DAMP = range(1, 7)
HEAD, FRAME, ORDER = struct.Struct("<4sBQQ"), struct.Struct("<dB"), struct.Struct("<BH")
MAGIC, NUMBER = b"SFT1", np.dtype("<f8")
LONGEST = 60_000  # bytes: what one datagram can hold
MOST = 1000  # numbers of a command, names of a layout
COMMANDS = ("servo", "control", "damping", "start")


class Message(NamedTuple):
    kind: int
    session: int
    """drawn by whoever opened the link"""
    sequence: int
    body: bytes


def message(kind: int, session: int, sequence: int = 0, body: bytes = b"") -> bytes:
    return HEAD.pack(MAGIC, kind, session, sequence) + body


def parse(data: bytes) -> Message | None:
    if not HEAD.size <= len(data) <= LONGEST:
        return None
    magic, kind, session, sequence = HEAD.unpack_from(data)
    return Message(kind, session, sequence, data[HEAD.size :]) if magic == MAGIC else None


class Layout(NamedTuple):
    """Names and lengths of a packet's readings."""

    names: tuple[str, ...]
    widths: tuple[int, ...]

    @staticmethod
    def of(readings: Mapping[str, np.ndarray]) -> "Layout":
        return Layout(tuple(readings), tuple(len(x) for x in readings.values()))


def about_body(about: About, layout: Layout) -> bytes:
    parts = {k: list(v) for k, v in about.parts.items()}
    body = {"parts": parts, "rate": about.rate, "name": about.name, "facts": dict(about.facts), "layout": [list(x) for x in zip(*layout)]}  # fmt: skip
    data = json.dumps(body).encode()
    if len(data) + HEAD.size > LONGEST:
        raise SurefootError(f"robot: its names take {len(data)} bytes, expected at most {LONGEST}")
    return data


def parse_about(body: bytes, where: str) -> tuple[About, Layout]:
    """Refused in words: nobody drives a robot that cannot say what it is."""
    fields = {"parts", "rate", "name", "facts", "layout"}
    data = known_fields(files.parse_json(body, where), fields, fields, where)
    for name in ("parts", "facts"):
        if not isinstance(data[name], dict):
            raise SurefootError(f"{where}: {name}: expected an object, found {str(data[name])[:80]}")
    parts = {k: _names(v, f"{where}: parts: {k}") for k, v in data["parts"].items()}
    facts = {k: text(v, f"{where}: facts: {k}") for k, v in data["facts"].items()}
    layout = _layout(data["layout"], f"{where}: layout")
    return About(parts, real(data["rate"], f"{where}: rate"), text(data["name"], f"{where}: name"), facts), layout


def _names(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST:
        raise SurefootError(f"{where}: expected a list of at most {MOST} names")
    return tuple(text(v, where) for v in value)


def _layout(value: Any, where: str) -> Layout:
    rows = value if isinstance(value, list) and len(value) <= MOST else None
    if rows is None or any(not isinstance(r, list) or len(r) != 2 or not isinstance(r[1], int) or not 0 < r[1] <= MOST for r in rows):  # fmt: skip
        raise SurefootError(f"{where}: expected a list of [name, length], found {str(value)[:80]}")
    return Layout(tuple(text(r[0], where) for r in rows), tuple(r[1] for r in rows))


def packet_body(packet: Packet) -> bytes:
    numbers = np.concatenate([*packet.readings.values()]) if packet.readings else np.zeros(0)
    return FRAME.pack(packet.stamp, MODES.index(packet.mode)) + numbers.astype(NUMBER).tobytes()


def parse_packet(m: Message, layout: Layout) -> Packet | None:
    if len(m.body) != FRAME.size + 8 * sum(layout.widths):
        return None
    stamp, mode = FRAME.unpack_from(m.body)
    if mode >= len(MODES):
        return None
    numbers = np.frombuffer(m.body, NUMBER, offset=FRAME.size)
    readings, at = {}, 0
    for name, width in zip(layout.names, layout.widths):
        readings[name] = numbers[at : at + width]
        at += width
    return Packet(m.sequence, stamp, readings, MODES[mode])


def command_body(c: Command) -> bytes:
    rows = b"".join([np.asarray(x, NUMBER).tobytes() for x in (c.target, c.kp, c.kd)])
    return ORDER.pack(COMMANDS.index("start" if c.starting else c.mode), len(c.target)) + rows


def parse_command(m: Message) -> Command | None:
    if len(m.body) < ORDER.size:
        return None
    mode, n = ORDER.unpack_from(m.body)
    if mode >= len(COMMANDS) or n > MOST or len(m.body) != ORDER.size + 24 * n:
        return None
    rows = np.frombuffer(m.body, NUMBER, offset=ORDER.size).reshape(3, n)
    starting = COMMANDS[mode] == "start"
    return Command(m.sequence, "servo" if starting else COMMANDS[mode], *rows, starting=starting)  # type: ignore[arg-type,misc]
