"""The lab: pictures a second, first paint in a browser, and what a training loses by being watched.

    python -m benchmarks.lab [--only updates|paint|watched] [--quick] [--json] [--record]

Pictures are counted where they arrive, at the end of a websocket. First paint is Chromium's own (skipped where there is none);
without a GPU it renders in software, on the same cores. A watched training is `surefoot train` with the page of its run open
and its robot moving; in one training, seconds with the page open and without take turns.
"""

import contextlib
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

import numpy as np
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
TURN, TURNS = 3.0, 24  # s of a training with its page open, and as long without; how many of each
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


def looked(page: LiveRun, child: subprocess.Popen[bytes], looking: threading.Event) -> None:
    """What a session does while its run trains: robots 40 times a second, curves and tables 5 times."""
    come_second()
    words = 0.0
    while child.poll() is None:
        looking.wait(0.1)
        if not looking.is_set():
            continue
        if page.work():
            page.scene()
        if time.monotonic() > words:
            body(page.blocks())
            words = time.monotonic() + WORDS
        time.sleep(FRAME)


@contextlib.contextmanager
def training(home: str, steps: int, looking: threading.Event) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A run, its process, and a page that is open while `looking` is set."""
    page = LiveRun(Subject.of("balance", home=Path(home)))
    page.folder, page.curves = Path(home) / "run", None
    args = ["train", "balance", "--steps", str(steps), "--out", str(page.folder), "--threads", "1", "--json"]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen([sys.executable, "-P", "-m", "surefoot", *args], **silent)
    looker = threading.Thread(target=looked, args=(page, child, looking))
    looker.start()
    try:
        yield page.folder, child
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        child.wait()
        looker.join()


def rate(rows: Path, process: int, seconds: float) -> tuple[float, float]:
    """Of a training under way: iterations a second, from one end of an iteration to another, and iterations a CPU second."""
    ends, size, until = list[tuple[float, float]](), rows.stat().st_size, time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.005)
        if (now := rows.stat().st_size) != size:
            size = now
            ends.append((time.monotonic(), cpu(process)))
    if len(ends) < 2:
        return float("nan"), float("nan")
    (wall, spent), n = np.subtract(ends[-1], ends[0]), len(ends) - 1
    return n / wall, n / max(spent, 0.01)


def cpu(process: int) -> float:
    """s of processor time of all its threads, to 10 ms."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watched(quick: bool) -> Iterator[Row]:
    """One training whose page is open every other turn; and two whole ones, of which the page of one was open."""
    looking, turns, work = threading.Event(), 1 if quick else TURNS, dict[str, list[float]](alone=[], watched=[])

    def turn(how: str) -> float:
        looking.set() if how == "watched" else looking.clear()
        speed, efficiency = rate(rows, child.pid, TURN)
        work[how].append(efficiency)
        return speed

    with tempfile.TemporaryDirectory() as home, training(home, 100_000_000, looking) as (folder, child):
        rows = folder / "metrics.jsonl"
        while not rows.exists() or rows.stat().st_size < 2000:
            time.sleep(0.1)
        found = measure.interleaved({how: (lambda how=how: turn(how)) for how in ("alone", "watched")}, turns)
    for name, rates in found.items():
        yield row(f"training, {name}", rates, "iterations a second")
    less = np.array(work["watched"]) / np.array(work["alone"])
    yield row(
        "iterations a second of CPU, watched / alone",
        less,
        "ratio",
        note="which other work on the machine does not change",
    )
    ratio = found["watched"] / found["alone"]
    yield row("watched / alone", ratio, "ratio", at_least=0.97, note=f"of {turns} turns of {TURN:g} s each")
    hashes = set()
    for how in ("alone", "watched"):
        looking.set() if how == "watched" else looking.clear()
        with (
            tempfile.TemporaryDirectory() as home,
            training(home, 4096 if quick else STEPS, looking) as (folder, child),
        ):
            child.wait()
            hashes.add(files.sha256((folder / "policy.safetensors").read_bytes()))
    yield row("same bits", float(len(hashes) == 1), "1: yes", at_least=1.0)


PARTS = {"updates": updates, "paint": paint, "watched": watched}

if __name__ == "__main__":
    measure.main("lab", __doc__.split("\n")[0], PARTS)
