"""Who may talk to the viewer: the checks before viser's web server, which makes none of its own.

    request  each header once (400) -> this computer's name (403) -> the page's own origin (403) -> the secret (403) -> / or 404
    frame    bytes of msgpack, at most LARGEST -> {type, ...}: a slider's value, a camera; other messages of viser are dropped,
             anything else closes the connection

The secret is the first part of the path, /SECRET/: the page opens its websocket at the address it was loaded from, so that
has it too, and no cookie is left for other servers on this computer. One file is served, under the names of the pages that
it can show, /SECRET/NAME&control=value; no path names another file.
"""

import asyncio
import contextlib
import contextvars
import importlib
import ipaddress
import logging
import math
import re
import secrets
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from surefoot.errors import SurefootError

LARGEST = 1 << 20  # bytes of a frame from the page
SHORTEST = 16  # characters of a secret
PAGE = ("", "/", "/index.html")
PRIVATE = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY"}
HEARD = {"GuiUpdateMessage", "ViewerCameraMessage"}
CLICKS = {"SceneNodeClickMessage", "CommandTriggerMessage"}
"""what else a page with names may send: a click on a robot, a key"""
SETTINGS = re.compile(r"(?:&[a-z_]{1,40}=[A-Za-z0-9_.,+~-]{0,80}){0,30}")
LONGEST_TEXT = 200  # characters of a choice
asked_page: contextvars.ContextVar[str] = contextvars.ContextVar("asked_page", default="")
"""what of its address comes after the secret, in whatever a connection runs"""
POLICY_VIOLATION = 1008  # RFC 6455, 7.4.1


def loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refusal(path: str, headers: Any, host: str, token: str, pages: Collection[str] = ()) -> tuple[int, str] | None:
    """Why a request is not served, as a status and words; None if it is."""
    sent = [name.lower() for name, _ in headers.raw_items()]
    if len(set(sent)) < len(sent) or "host" not in sent:
        return 400, "expected each header once, and a Host\n"
    asked, origin = headers["Host"], headers.get("Origin")
    if loopback(host) and _hostname(asked) not in (host, "127.0.0.1", "localhost", "::1"):
        return 403, "this viewer is on this computer alone\n"
    if origin is not None and origin not in (f"http://{asked}", f"https://{asked}"):
        return 403, "this viewer is for its own page alone\n"
    given, _, _ = path.partition("?")[0].removeprefix("/").partition("/")
    if not secrets.compare_digest(given.encode(errors="replace"), token.encode()):
        return 403, "expected the whole address that `surefoot` printed: it holds a secret\n"
    rest = _beyond(path, token)
    return None if rest in PAGE or _named(rest, pages) else (404, "there is one page here\n")


def _named(rest: str, pages: Collection[str]) -> bool:
    """Whether it is /NAME of a page, or with settings of its controls /NAME&control=value&..."""
    name, mark, settings = rest.removeprefix("/").partition("&")
    return name in pages and rest.startswith("/") and bool(SETTINGS.fullmatch(mark + settings))


def _beyond(path: str, token: str) -> str:
    """What of a path comes after the secret."""
    return path.partition("?")[0].removeprefix(f"/{token}")


def _hostname(asked: str) -> str | None:
    try:
        return urlsplit(f"//{asked}").hostname
    except ValueError:
        return None


def junk(frame: Any, clicks: bool = False) -> str:
    """What is wrong with a frame, or "". The page sends maps with a type; of a slider or button, its value alone.

    With `clicks`, also short texts and pairs of numbers as values, keys, and clicks on what is drawn.
    """
    import msgspec

    if not isinstance(frame, bytes):
        return "expected bytes"
    try:
        message = msgspec.msgpack.decode(frame)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return "expected msgpack"
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return "expected a message with a type"
    if message["type"] == "GuiUpdateMessage":
        return "" if _update(message, clicks) else "expected the value of a slider, box or button"
    if message["type"] == "ViewerCameraMessage":
        return "" if all(_numbers(v) for k, v in message.items() if k != "type") else "expected a camera's numbers"
    if message["type"] in CLICKS and clicks:
        return "" if all(map(_plain, message.values())) else "expected a click"
    return ""


def _plain(x: Any) -> bool:
    return x is None or _short(x) or _numbers(x)


def _short(x: Any) -> bool:
    return isinstance(x, str) and len(x) <= LONGEST_TEXT


def _update(message: dict[Any, Any], clicks: bool) -> bool:
    """{type, uuid, updates: {value: a finite number or a boolean}}."""
    updates = message.get("updates")
    if set(message) != {"type", "uuid", "updates"} or not isinstance(updates, dict) or set(updates) != {"value"}:
        return False
    value = updates["value"]
    alone = isinstance(value, (bool, int, float)) and _numbers(value)
    return isinstance(message["uuid"], str) and (alone or (clicks and (_short(value) or _numbers(value))))


def _numbers(x: Any) -> bool:
    """A finite number, or a short list of them."""
    if isinstance(x, list):
        return len(x) <= 16 and all(isinstance(v, (int, float)) and _numbers(v) for v in x)
    return isinstance(x, (bool, int, float)) and math.isfinite(x)


def _heard(frame: bytes, clicks: bool) -> bool:
    import msgspec

    return msgspec.msgpack.decode(frame)["type"] in (HEARD | CLICKS if clicks else HEARD)


def _listening(connection: Any, clicks: bool) -> None:
    """Let a connection hand on only what the page has to say."""
    plain = connection.recv

    async def recv(*args: Any, **how: Any) -> Any:
        while True:
            frame = await plain(*args, **how)
            why = junk(frame, clicks)
            if why:
                await connection.close(POLICY_VIOLATION, why)
            elif _heard(frame, clicks):
                return frame

    connection.recv = recv


@contextlib.contextmanager
def guarded(host: str, token: str, pages: Collection[str] = ()) -> Iterator[list[bool]]:
    """While viser starts, put these checks before its web server. Yields a list that is not empty once they are there.

    `pages`: names of pages in addresses; a server that has them also hears clicks and choices.
    """
    if len(token) < SHORTEST:
        raise SurefootError(f"token: expected at least {SHORTEST} characters, found {len(token)}")
    web: Any = importlib.import_module("websockets.asyncio.server")
    plain, took = web.serve, []
    silent = logging.getLogger("surefoot.viewer")  # strangers' broken requests are no news
    silent.setLevel(logging.CRITICAL)

    def serve(handler: Any, *where: Any, process_request: Any, **rest: Any) -> Any:
        async def first(connection: Any, request: Any) -> Any:
            why = refusal(request.path, request.headers, host, token, pages)
            if why is not None:
                return connection.respond(*why)
            if _other_version(request.headers):
                return connection.respond(400, "expected the page that this viewer serves\n")
            answer = process_request(connection, replace(request, path="/"))
            if answer is not None:
                answer.headers.update(PRIVATE)
            return answer

        async def handled(connection: Any) -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, what: silent.error("%s", what))
            _listening(connection, bool(pages))
            asked_page.set(_beyond(connection.request.path, token).removeprefix("/"))
            await handler(connection)

        took.append(True)
        return plain(handled, *where, process_request=first, **rest | {"max_size": LARGEST, "logger": silent})

    web.serve = serve
    try:
        yield took
    finally:
        web.serve = plain


def _other_version(headers: Any) -> bool:
    """A websocket of another viser's page, which would be printed about."""
    import viser

    return "Upgrade" in headers and headers.get("Sec-WebSocket-Protocol") != f"viser-v{viser.__version__}"
