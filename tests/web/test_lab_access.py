"""Who may use the lab: this computer, the whole address, its own page; and no address does anything but show."""

import http.client
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import viser
from msgspec import msgpack
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from surefoot.lab.pages import PAGES
from surefoot.lab.subject import Subject
from surefoot.report import Note, Series, Text
from surefoot.report import Plot as PlotBlock
from surefoot.web.lab.html import body, foot, head
from surefoot.web.lab.server import Lab, running
from surefoot.web.lab.session import Session

LOOPBACK = "0100007F"  # 127.0.0.1 as /proc/net/tcp writes it
CAMERA = {
    "type": "ViewerCameraMessage", "wxyz": [1.0, 0, 0, 0], "position": [0, -4.0, 1.0], "image_height": 800, "image_width": 1200,
    "fov": 1.0, "near": 0.01, "far": 1000.0, "look_at": [0, 0, 0], "up_direction": [0, 0, 1.0],
}  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(Subject.of("balance", home=tmp_path_factory.mktemp("home")), port=0) as lab:
        yield lab


def get(lab: Lab, path: str, **headers: str) -> tuple[int, bytes]:
    line = http.client.HTTPConnection("127.0.0.1", lab.server.get_port(), timeout=10)
    try:
        line.putrequest("GET", path, skip_host="Host" in headers)
        for name, value in headers.items():
            line.putheader(name, value)
        line.endheaders()
        answer = line.getresponse()
        return answer.status, answer.read()
    finally:
        line.close()


def talk(lab: Lab, address: str, **how) -> ClientConnection:
    known = {"subprotocols": [f"viser-v{viser.__version__}"], "proxy": None, "max_size": None} | how
    return connect(f"ws://127.0.0.1:{lab.server.get_port()}{address}", **known)


def until(holds, what: str = "") -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="reads Linux's table of open ports")
def test_the_lab_listens_on_loopback_alone(lab: Lab) -> None:
    rows = [row.split() for table in ("tcp", "tcp6") for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
    at = {
        row[1].split(":")[0]
        for row in rows
        if row[3] == "0A" and int(row[1].split(":")[1], 16) == lab.server.get_port()
    }
    assert at == {LOOPBACK}


@pytest.mark.parametrize("key", list(PAGES))
def test_every_page_has_an_address_which_the_secret_opens_and_nothing_else(lab: Lab, key: str) -> None:
    port = lab.server.get_port()
    assert get(lab, f"/{lab.token}/{key}")[0] == 200
    assert get(lab, f"/{lab.token}/{key}&speed=2")[0] == 200
    assert get(lab, f"/{key}")[0] == 403 and get(lab, f"/{lab.token[:-1]}x/{key}")[0] == 403
    assert get(lab, f"/{lab.token}/{key}", Host="evil.example")[0] == 403
    assert get(lab, f"/{lab.token}/{key}", Origin="http://evil.example")[0] == 403
    assert get(lab, f"/{lab.token}/{key}", Origin=f"http://127.0.0.1:{port + 1}")[0] == 403
    for address, how in ((f"/{key}", {}), (f"/{lab.token}/{key}", {"origin": "http://evil.example"})):
        with pytest.raises(InvalidStatus, match="403"):
            talk(lab, address, **how)


BEYOND = [
    "/nothing", "/worlds/", "/worlds/x", "/worlds/../../etc/passwd", "/worlds%2f..%2fetc", "/%2e%2e/worlds", "/%252e%252e/worlds",
    "/..\\worlds", "//worlds", "/worlds%00", "/worlds&a=../../etc/passwd", "/worlds&a=%2e%2e", "/worlds&<script>=1", "/worlds&a=" + "b" * 200,
    "/worlds" + "&a=1" * 40, "/worlds&run=/etc/passwd", "/worlds_evil", "/WORLDS", "/worlds&", "/worlds&a",
]  # fmt: skip


@pytest.mark.parametrize("path", BEYOND)
def test_no_other_path_is_served(lab: Lab, path: str) -> None:
    with socket.create_connection(("127.0.0.1", lab.server.get_port()), timeout=15) as line:
        line.sendall(f"GET /{lab.token}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404") and b"<html" not in answer


def test_no_request_reads_a_file_or_comes_in_by_another_name(lab: Lab, tmp_path: Path) -> None:
    """A canary beside the lab's folders: every method, place of a file, host and origin; 0 leaks."""
    canary = tmp_path / "canary.txt"
    canary.write_text("CANARY")
    runs, evil = lab.subject.home, Path(f"{lab.subject.home}_evil")
    evil.mkdir()
    (evil / "canary.txt").write_text("CANARY")
    (runs / "link").symlink_to(canary)
    t, up = lab.token, str(canary).lstrip("/")
    paths = [
        f"/{t}/{canary}", f"/{t}//{canary}", f"{canary}", f"/{t}/%00{canary}", f"/{t}/file://{canary}", f"/{t}/link", f"/{t}/{runs.name}/link",
        f"/{t}/../{evil.name}/canary.txt", f"/{t}_evil/worlds", f"/{t}.", f"/{t}%00/worlds", "/", "/index.html",
        *(f"/{t}/{dots * 12}{up}" for dots in ("../", "%2e%2e%2f", "%252e%252e%252f", "..\\", "..%5c")),
    ]  # fmt: skip
    leaks, port = [], lab.server.get_port()
    for path in paths:
        for method in ("GET", "POST", "OPTIONS"):
            for host in (f"127.0.0.1:{port}", "127.0.0.1.evil.example"):
                for origin in ("", "Origin: http://evil.example\r\n"):
                    with socket.create_connection(("127.0.0.1", port), timeout=15) as line:
                        words = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{origin}Connection: close\r\n\r\n"
                        line.sendall(words.encode())
                        answer = b"".join(iter(lambda: line.recv(65536), b""))
                    if b"CANARY" in answer or b"<html" in answer or answer.startswith(b"HTTP/1.1 200"):
                        leaks.append((method, path, host, origin))
    assert leaks == []
    with socket.create_connection(
        ("127.0.0.1", port), timeout=15
    ) as line:  # a form of another site, to a page that exists
        words = (
            f"POST /{t}/worlds HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n"
        )
        line.sendall(words.encode())
        assert not line.recv(64).startswith(b"HTTP/1.1 200")


def session_of(lab: Lab, line: ClientConnection) -> Session:
    before = set(lab.sessions)
    line.send(msgpack.encode(CAMERA))
    until(lambda: set(lab.sessions) - before, "a session")
    return lab.sessions[next(iter(set(lab.sessions) - before))]


def test_an_address_sets_controls_and_presses_no_button(lab: Lab) -> None:
    with talk(lab, f"/{lab.token}/width&over=noise&truth=7") as line:
        page = session_of(lab, line).page
        assert (page.key, page.asked.over, page.asked.truth) == ("width", "noise", 7.0)
    with talk(lab, f"/{lab.token}/run&train=on") as line:
        session = session_of(lab, line)
        until(lambda: session.failed, "words")
        assert "train: found 'on'" in session.failed and session.page.job is None


def test_a_visitor_who_leaves_ends_the_session_and_what_it_does(lab: Lab) -> None:
    with talk(lab, f"/{lab.token}/worlds&robots=16") as line:
        session = session_of(lab, line)
        until(lambda: session.pictures > 3, "pictures")
    until(lambda: not session.thread.is_alive(), "the end of its thread")
    assert session not in lab.sessions.values()


def test_junk_closes_its_connection_alone_and_sets_nothing(lab: Lab) -> None:
    with talk(lab, f"/{lab.token}/worlds&robots=16") as line:
        session = session_of(lab, line)
        until(lambda: "spread" in session.handles, "controls")
        uuid, before = session.handles["spread"]._impl.uuid, session.page.asked
        update = lambda **u: msgpack.encode({"type": "GuiUpdateMessage", "uuid": uuid, "updates": u})  # noqa: E731
        junk = [b"\xc1", "text", update(value="x" * 300), update(value=float("nan")), update(value={"a": 1}), update(props=1),
                msgpack.encode({"type": "SceneNodeClickMessage", "name": {"a": 1}}), update(value=[1.0] * 50)]  # fmt: skip
        for frame in junk:
            with talk(lab, f"/{lab.token}/worlds&robots=16") as other:
                other.send(frame)
                with pytest.raises(ConnectionClosed):
                    while True:
                        other.recv(timeout=20)
        line.send(update(value=0.5))
        until(lambda: session.page.asked.spread == 0.5, "its own slider")
        assert session.page.asked == before.__class__(**vars(before) | {"spread": 0.5})


SCRIPT = "<script>alert(1)</script>"


def test_names_are_shown_as_they_are_and_never_obeyed() -> None:
    plot = PlotBlock(SCRIPT, (Series.of(SCRIPT, [0, 1], [0, 1]),))
    quoted = f'"{SCRIPT}\' onmouseover="alert(1)'
    for text in (
        body((Text(SCRIPT), Note(quoted), plot)),
        foot(f"surefoot play {quoted}", f"/x/{quoted}"),
        head(SCRIPT, quoted),
    ):
        assert "<script" not in text and 'onmouseover="alert' not in text
