"""Random changes of sound input never break a parser: it answers, or refuses in words. Ten minutes of it in make slow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

for needed in ("onnx", "onnxruntime", "yaml"):
    pytest.importorskip(needed, reason="needs the export extra")

ROOT = Path(__file__).parents[2]
TARGETS = ("contract", "belief", "verdict", "run", "manifest", "limits", "golden", "layers", "deploy.yaml", "holosoma", "mjlab", "settings", "rows", "npz", "csv", "json log", "mapping", "packets", "about", "robot's end")  # fmt: skip


def fuzzed(seconds: float, seed: int) -> str:
    job = [sys.executable, "-m", "tests.hostile.fuzz", "--seconds", f"{seconds:g}", "--seed", str(seed)]
    done = subprocess.run(
        job,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=10 * seconds + 250,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


def test_a_moment_of_random_changes_breaks_no_parser():
    said = fuzzed(5.0, 0)
    tried = {line[:16].strip(): int(line[16:25]) for line in said.splitlines()}
    assert set(TARGETS) <= set(tried) and min(tried.values()) >= 20


def test_a_parser_that_breaks_is_found(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from tests.hostile.fuzz import Target, fuzz

    tried, found = fuzz(Target("weak", (b'{"a": 1}',), lambda data: data.decode()), 0.3)
    assert tried >= 20 and any("UnicodeDecodeError" in d.what for d in found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_minutes_of_random_changes_break_no_parser():
    fuzzed(600.0, 1)
