"""What is installed by which extra, and what a machine without the extras is told."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from surefoot.errors import EXTRAS
from surefoot.verbs import VERBS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# as on a machine where only the core's dependencies are: nothing of any extra can be found
CORE = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(set(EXTRAS) - {"onnx", "onnxruntime"})!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def core(code: str, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    job = [sys.executable, "-c", CORE + code, *args]
    return subprocess.run(job, cwd=folder, capture_output=True, text=True, timeout=120)


def verb(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return core("from surefoot.__main__ import entry; entry()", folder, *args)


def required(lines: list[str]) -> dict[str, str]:
    """Packages with their bounds, without the project's own extras."""
    found = [re.match(r"([\w.-]+)(?:\[[\w,]+\])?(.*)", line) for line in lines]
    return {m[1].lower(): m[2] for m in found if m and m[1] != "surefoot"}


def test_the_core_is_small():
    assert set(required(PROJECT["dependencies"])) == {"numpy", "onnx", "onnxruntime", "safetensors", "tyro", "rich"}


def test_every_dependency_has_an_upper_bound():
    extras = PROJECT["optional-dependencies"]
    for lines in (PROJECT["dependencies"], *extras.values()):
        for name, bounds in required(lines).items():
            assert ">=" in bounds and ",<" in bounds, f"{name}{bounds}"
    assert required(extras["train"])["torch"] == ">=2.13,<2.14"
    named = re.fullmatch(r"surefoot\[(.*)\]", extras["all"][0])
    assert named and set(named[1].split(",")) == set(extras) - {
        "all",
        "dev",
        "bench",
        "docs",
        "wandb",
        "cluster",
        "gpu",
        "s3",
    }  # wandb and s3 call out; Ray takes 240 MB, warp 410 MB


def test_constraints_are_names_and_versions_alone_and_are_those_tested_here():
    lines = [x for x in (ROOT / "constraints.txt").read_text().splitlines() if not x.startswith("#")]
    pinned = dict(x.split("==") for x in lines)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", x) for x in lines)
    everything = [
        PROJECT["dependencies"],
        *(v for k, v in PROJECT["optional-dependencies"].items() if k not in ("bench", "docs", "gpu", "wandb", "s3")),
    ]
    same = {re.sub(r"[-_.]+", "-", name).lower(): v for name, v in pinned.items()}
    for name in {name for lines in everything for name in required(lines)}:
        assert version(name).partition("+")[0] == same[re.sub(r"[-_.]+", "-", name)], name
    assert (ROOT / "Makefile").read_text().count("-c constraints.txt -e") == 4


def test_every_extra_that_a_refusal_names_exists():
    assert set(EXTRAS.values()) <= set(PROJECT["optional-dependencies"])


def test_the_core_alone_can_be_asked_for_help(tmp_path):
    done = verb(tmp_path, "--help")
    assert done.returncode == 0 and all(f"  {name} " in done.stdout for name in VERBS) and done.stderr == ""
    assert "List the ready tasks, what counts as success in each, and which have a trained policy." in done.stdout
    for name in ("tasks", "look", "gate", "eval", "log", "export"):
        done = verb(tmp_path, name, "--help")
        assert done.returncode == 0 and done.stdout.startswith(f"surefoot {name}: ") and done.stderr == "", name


def test_the_core_alone_runs_a_policy(tmp_path):
    """Saved with the simulator, loaded and asked without it: the same numbers."""
    import numpy as np

    from surefoot import tasks
    from surefoot.learn.nets import export
    from surefoot.learn.nets.policy_net import linear
    from surefoot.tasks.rollout import contract

    task = tasks.resolve("balance")
    law = linear(contract(task, tasks.env(task, 1).world), {"cart_pole": np.array([[1.0, 2.0, 20.0, 4.0]])})
    export.save(law, tmp_path / "law")
    code = """
import numpy as np
import surefoot, surefoot.deploy
from pathlib import Path
from surefoot.deploy import bundle
from surefoot.onnx_file.runtime import runtime
policy = bundle.load(Path("law"))
print(runtime().__name__, *policy(np.full((1, policy.contract.obs_dim), 0.01, np.float32))[0])
"""
    done = core(code, tmp_path)
    expected = law(np.full((1, law.contract.obs_dim), 0.01, np.float32))[0]
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "onnxruntime" and [float(x) for x in done.stdout.split()[1:]] == pytest.approx(
        expected
    )


ASKED = [
    "tasks", "look balance", "presets", "try balance", "record balance", "explore x.xml", "preflight x.xml y", "replay x.xml y",
    "identify x.xml y", "missing balance y", "delta balance y", "believe balance y", "actuator x.xml y", "cross hover",
    "play zero --task balance", "lab", "eval run", "gate run", "sweep run --over mass", "adapt balance", "doctor run y", "train balance",
]  # fmt: skip


@pytest.mark.parametrize("words", ASKED)
def test_a_verb_whose_extra_is_missing_names_it(words, tmp_path):
    done = verb(tmp_path, *words.split())
    found = re.fullmatch(r"error: .* needs the '(\w+)' extra: pip install 'surefoot\[(\w+)\]'\n", done.stderr)
    assert done.returncode == 2 and found and found[1] in ("sim", "train") and done.stdout == "", done.stderr


def test_a_log_in_plain_text_needs_no_extra(tmp_path):
    (tmp_path / "log.csv").write_text("t,q\n" + "".join(f"{k / 100},{k % 7}\n" for k in range(200)))
    done = verb(tmp_path, "log", "log.csv", "--json")
    assert done.returncode in (0, 1) and done.stdout.startswith("{"), done.stderr


def test_a_package_that_is_no_extra_is_a_defect(tmp_path):
    code = "from surefoot.errors import in_words\nwith in_words('x'):\n    import surefoot.nothing"
    assert "No module named 'surefoot.nothing'" in core(code, tmp_path).stderr
