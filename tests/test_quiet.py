"""Nobody is called: no verb, and no library it imports, opens a connection that was not asked for.

A process with a network of its own, in which there is no way out, counts what would have left: datagrams, and attempts
that found no route. Loopback is there, as the viewer needs it. The kernel counts, so compiled code cannot hide.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALONE = ["unshare", "--map-root-user", "--net"]
NETWORK = """
import fcntl, socket, struct, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: up and running

def left():
    rows = [line.split() for line in open("/proc/net/snmp")]
    table = {head[0]: dict(zip(head[1:], row[1:])) for head, row in zip(rows[::2], rows[1::2])}
    six = dict(line.split() for line in open("/proc/net/snmp6"))
    found = [table["Ip:"]["OutNoRoutes"], table["Udp:"]["OutDatagrams"], six["Ip6OutNoRoutes"], six["Udp6OutDatagrams"]]
    return sum(map(int, found))
"""
CALLS = """
with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
    s.connect_ex(("192.0.2.1", 443))
print(left())
"""
VERBS = """
from pathlib import Path
from surefoot.cli import main

run, small = "run", ["--steps", "256", "--envs", "8", "--threads", "1"]
Path("log.csv").write_text("t,q\\n" + "".join(f"{k / 100},{k % 7}\\n" for k in range(200)))
for args in (
    ["tasks"], ["look", "balance"], ["presets"], ["log", "log.csv"],
    ["train", "balance", "--out", run, *small], ["eval", run, "--episodes", "8", "--threads", "1"],
    ["export", run], ["gate", run, "--episodes", "20", "--threads", "1"],
    ["gate", run + "/policy.onnx", "--episodes", "20", "--threads", "1"],
):
    assert main(args) in (0, 1), args
import matplotlib.pyplot, tensorboard, torch, viser
from surefoot import tasks
from surefoot.policy import Zero
from surefoot.tasks.rollout import contract
from surefoot.tasks.view.viewer import view

env = tasks.env(tasks.resolve("balance"), 1)
view(Zero(contract(env.task, env.world)), env, port=0, steps=20)
time.sleep(15)
print("left:", left())
"""


def alone(code: str, folder: Path) -> str:
    """What a program prints that has a network of its own."""
    env = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [*ALONE, sys.executable, "-c", NETWORK + code], cwd=folder, env=env, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def isolation(tmp_path_factory) -> None:
    """The machine lets a process have a network of its own, and counts what tries to leave it."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("this machine gives no process a network of its own (unshare --net)")
    assert alone(CALLS, tmp_path_factory.mktemp("calls")) == "1"


def test_no_verb_opens_a_connection(isolation, tmp_path) -> None:
    """onnxruntime calls its makers some 10 s after it is imported, from a thread of its own."""
    assert alone(VERBS, tmp_path) == "left: 0"


def test_onnxruntime_is_imported_in_one_place() -> None:
    """Where it is told to be silent before it is loaded."""
    found = set()
    for folder in ("src", "tests", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= {
                path.relative_to(ROOT).as_posix() for node in ast.walk(ast.parse(path.read_text())) if loads(node)
            }
    assert found == {"src/surefoot/onnx_file/runtime.py"}


def loads(node: ast.AST) -> bool:
    """A statement, or a program in a string, that imports onnxruntime."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
        try:
            return any(loads(inner) for inner in ast.walk(ast.parse(node.value)))
        except (SyntaxError, ValueError):  # text that is no program, such as half a character
            return False
    if isinstance(node, ast.Call):
        return any(isinstance(a, ast.Constant) and a.value == "onnxruntime" for a in node.args)
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
    names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return any(name.split(".")[0] == "onnxruntime" for name in names)


def test_who_wants_the_telemetry_may_have_it(monkeypatch) -> None:
    from surefoot.onnx_file.runtime import SILENT, runtime

    monkeypatch.setenv(SILENT, "0")
    runtime()
    assert os.environ[SILENT] == "0"
    monkeypatch.delenv(SILENT)
    runtime()
    assert os.environ[SILENT] == "1"
