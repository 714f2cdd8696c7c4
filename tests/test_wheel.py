"""The wheel: built from the sources, installed into a bare environment outside the clone, and used there."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

from surefoot.tasks.ready import walk

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "surefoot"
DEPENDENCIES = Path(numpy.__file__).parents[1]
FEW = ["--steps", "512", "--envs", "16", "--horizon", "16", "--hidden", "8", "--minibatches", "2"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built offline by the project's own backend, from a copy: nothing is left behind in the clone."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(SOURCES, copy / "src" / "surefoot", ignore=shutil.ignore_patterns("__pycache__"))
    job = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", job], cwd=copy, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return copy / "dist" / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory) -> Path:
    """A folder with an environment `env` in it. Of this one it has the dependencies, not surefoot: that is the wheel's."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True, timeout=300)
    install = ["-m", "pip", "--python", str(folder / "env" / "bin" / "python"), "install", "--no-deps", "--no-index"]
    done = subprocess.run([sys.executable, *install, str(wheel)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    packages = next((folder / "env" / "lib").glob("python*/site-packages"))
    (packages / "dependencies.pth").write_text(f"{DEPENDENCIES}\n")
    return folder


def run(folder: Path, *words: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    job = [str(folder / "env" / "bin" / words[0]), *words[1:]]
    done = subprocess.run(job, cwd=folder, capture_output=True, text=True, timeout=900, env=clean)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_every_file_of_the_package_is_in_the_wheel(wheel):
    inside = {n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("surefoot/")}
    here = {p.relative_to(SOURCES.parent).as_posix() for p in SOURCES.rglob("*") if p.is_file()}
    assert inside == {n for n in here if "__pycache__" not in n}


@pytest.mark.slow
def test_the_wheel_works_outside_the_clone(bare):
    """From help to an evaluated policy for a robot in a file, by the installed commands alone."""
    assert str(bare) in run(bare, "python", "-c", "import surefoot; print(surefoot.__file__)")
    assert run(bare, "surefoot", "cross", "balance", "--help").startswith("surefoot cross: ")
    assert "balance" in run(bare, "surefoot", "tasks")
    assert '"success"' in run(bare, "surefoot", "eval", "balance", "--episodes", "4", "--json")
    (bare / "robot.xml").write_text(walk.xml())
    assert "next: surefoot train task.py" in run(bare, "surefoot", "new", "velocity", "robot.xml", "--out", "task.py")
    assert "policy: run/policy.onnx" in run(bare, "surefoot", "train", "task.py", "--out", "run", *FEW)
    assert '"episodes": 4' in run(bare, "surefoot", "eval", "run", "--task", "task.py", "--episodes", "4", "--json")
