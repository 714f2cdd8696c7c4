"""A hostile or broken file costs a refusal in words: no traceback, no code run, no file read outside, no hang, no memory.

The sample runs with the suite; the whole corpus is `python -m tests.hostile`, or make slow.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for needed in ("onnx", "onnxruntime", "yaml", "pyarrow", "mcap", "rosbags"):
    pytest.importorskip(needed, reason="needs the export and logs extras")
if not sys.platform.startswith("linux"):
    pytest.skip("measures by /proc", allow_module_level=True)

ROOT = Path(__file__).parents[2]
KINDS = ("csv", "json", "mapping", "npz", "mat", "parquet", "lerobot", "mcap", "rosbag2", "mjcf", "mjcf paths", "urdf", "assets", "onnx", "contract", "deploy", "belief", "policy", "run", "term", "special", "shadow", "names", "bundle", "safety", "rows")  # fmt: skip


def measured(*flags: str, seconds: float) -> list[dict]:
    job = [sys.executable, "-m", "tests.hostile", "--json", *flags]
    env = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}  # which surefoot's command line sets
    done = subprocess.run(job, cwd=ROOT, env=env, capture_output=True, text=True, timeout=seconds)
    assert done.returncode in (0, 1) and done.stdout, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def sample() -> list[dict]:
    return measured("--sample", seconds=280)


def failures(found: list[dict]) -> dict[str, dict[str, str]]:
    return {f"{r['kind']}/{r['name']}": r["failed"] for r in found if r["failed"]}


def test_the_sample_has_files_of_every_class(sample):
    assert {r["kind"] for r in sample} == set(KINDS) and len(sample) >= 95


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_refused_in_words_or_harmless(sample, kind):
    assert failures([r for r in sample if r["kind"] == kind]) == {}


def test_sound_files_are_taken(sample):
    """Else a tool that refuses everything would pass."""
    assert sum(r["taken"] for r in sample if r["name"].startswith("sound")) >= 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_file_of_the_corpus_is_refused_in_words_or_harmless():
    found = measured(seconds=3500)
    assert len(found) >= 1100 and failures(found) == {}
