"""The lab: pictures a second, first paint in a browser, and what a training loses by being watched.

    python -m benchmarks.lab [--only updates|paint|watched] [--quick] [--json] [--record]

Pictures are counted where they arrive, at the end of a websocket. First paint is Chromium's own (skipped where there is none);
without a GPU it renders in software, on the same cores. A watched training is `surefoot train` with the page of its run open
and its robot moving; alone and watched take turns.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import viser
from msgspec import msgpack
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from benchmarks import measure
from benchmarks.measure import Row, row, skipped
from surefoot import files
from surefoot.lab.jobs import come_second
from surefoot.lab.pages import PAGES
from surefoot.lab.pages.live_run import LiveRun
from surefoot.lab.subject import Subject
from surefoot.web.lab.html import body
from surefoot.web.lab.server import Lab, running
from surefoot.web.lab.session import FRAME, WORDS

SECONDS, ROUNDS, STEPS = 5.0, 3, 30_000
SOFTWARE = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
CAMERA = {
    "type": "ViewerCameraMessage", "wxyz": [1.0, 0, 0, 0], "position": [0, -4.0, 1.0], "image_height": 800, "image_width": 1200,
    "fov": 1.0, "near": 0.01, "far": 1000.0, "look_at": [0, 0, 0], "up_direction": [0, 0, 1.0],
}  # fmt: skip


def updates(quick: bool) -> Iterator[Row]:
    """Pictures that reach a visitor each second."""
    home = Path(tempfile.mkdtemp())
    with running(Subject.of("balance", home=home), port=0) as lab:
        for name, address, goal in (("one robot", "run", 20), ("a grid of 64 robots", "worlds&robots=64", 10)):
            rates = [arrived(lab, address, 1.0 if quick else SECONDS) for _ in range(1 if quick else ROUNDS)]
            yield row(f"pictures, {name}", rates, "a second", at_least=goal)


def arrived(lab: Lab, address: str, seconds: float) -> float:
    """Pictures a second that a websocket gets, once the first one is there."""
    where = lab.url.replace("http", "ws") + address
    with connect(where, subprotocols=[f"viser-v{viser.__version__}"], proxy=None, max_size=None) as line:  # type: ignore[list-item]
        line.send(msgpack.encode(CAMERA))
        began, count = 0.0, 0
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                frame = line.recv(timeout=10)
            except (TimeoutError, ConnectionClosed):
                break
            if b"batched_positions" in (frame if isinstance(frame, bytes) else frame.encode()):
                if not began:
                    began, end = time.monotonic(), time.monotonic() + seconds
                count += 1
    return (count - 1) / seconds


def paint(quick: bool) -> Iterator[Row]:
    """From the address to what is seen."""
    chromium = os.environ.get("SUREFOOT_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        yield skipped("first paint", "no Chromium is installed")
        return
    yield row("from the command to its address", [started() for _ in range(1 if quick else ROUNDS)], "s")
    found = [visited(chromium) for _ in range(1 if quick else ROUNDS)]
    yield row("first paint", [f[0] for f in found], "s", at_most=3.0)
    yield row(
        "the page's title and controls", [f[1] for f in found], "s", note="after WebGL has begun, here without a GPU"
    )


def started() -> float:
    """s until `surefoot lab` prints its address."""
    began = time.monotonic()
    command = [sys.executable, "-P", "-m", "surefoot", "lab", "--port", "0"]
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **how) as child:  # type: ignore[call-overload]
        assert child.stdout is not None
        next(line for line in child.stdout if "http://" in line)
        spent = time.monotonic() - began
        child.send_signal(signal.SIGINT)
    return spent


def visited(chromium: str) -> tuple[float, float]:
    from playwright.sync_api import sync_playwright

    PAGES["worlds"]  # as `surefoot lab` does before it prints an address
    with running(Subject.of("balance", home=Path(tempfile.mkdtemp())), port=0) as lab, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=[*SOFTWARE, "--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 800})
        began = time.monotonic()
        tab.goto(lab.url + "worlds")
        tab.wait_for_selector(".surefoot h2", timeout=90_000)
        ready = time.monotonic() - began
        first = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.close()
    return first / 1000, ready


def looked(page: LiveRun, child: subprocess.Popen[bytes]) -> None:
    """What a session does while its run trains: robots 40 times a second, curves and tables 5 times."""
    come_second()
    words = 0.0
    while child.poll() is None:
        if page.work():
            page.scene()
        if time.monotonic() > words:
            body(page.blocks())
            words = time.monotonic() + WORDS
        time.sleep(FRAME)


def watched(quick: bool) -> Iterator[Row]:
    """The same training, alone and with its page open."""
    steps = 4096 if quick else STEPS
    hashes: dict[str, set[str]] = {"alone": set(), "watched": set()}

    def trained(how: str) -> float:
        with tempfile.TemporaryDirectory() as home:
            page = LiveRun(Subject.of("balance", home=Path(home)))
            page.folder = out = Path(home) / "run"
            page.curves = None
            args = ["train", "balance", "--steps", str(steps), "--out", str(out), "--threads", "1", "--json"]
            began = time.monotonic()
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "surefoot", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            looker = threading.Thread(target=looked, args=(page, child))
            if how == "watched":
                looker.start()
            child.wait()
            spent = time.monotonic() - began
            if how == "watched":
                looker.join()
            hashes[how].add(files.sha256((out / "policy.safetensors").read_bytes()))
            return steps / spent

    found = measure.interleaved({k: (lambda k=k: trained(k)) for k in hashes}, 1 if quick else ROUNDS)
    for name, rates in found.items():
        yield row(f"training, {name}", rates, "env steps a second")
    yield row("watched / alone", found["watched"] / found["alone"], "ratio", at_least=0.97)
    same = float(hashes["alone"] == hashes["watched"] and len(hashes["alone"]) == 1)
    yield row("same bits", same, "1: yes", at_least=1.0)


PARTS = {"updates": updates, "paint": paint, "watched": watched}

if __name__ == "__main__":
    measure.main("lab", __doc__.split("\n")[0], PARTS)
