"""The public names: there, documented, typed, and quick to import."""

import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import surefoot as sf

ROOT = Path(__file__).parents[1]
MADE = runpy.run_path(str(ROOT / "docs" / "make_api.py"), run_name="made")


@pytest.mark.parametrize("name", sf.__all__)
def test_a_public_name_is_there_and_documented(name):
    thing = getattr(sf, name)
    assert inspect.isclass(thing) or callable(thing)
    assert inspect.getdoc(thing), f"{name} has no docstring"


def test_the_page_and_the_types_are_those_of_the_docstrings():
    assert (ROOT / "docs" / "api.md").read_text() == MADE["page"](), "run: python docs/make_api.py"
    assert (ROOT / "src" / "surefoot" / "__init__.pyi").read_text() == MADE["stub"](), "run: python docs/make_api.py"


def test_import_waits_for_nothing():
    script = "import sys, surefoot; print({'numpy', 'torch', 'mujoco'} & set(sys.modules), 'train' in dir(surefoot))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set() True"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = sf.trian


def test_a_script_trains_evaluates_and_loads_by_public_names_alone(tmp_path):
    task = sf.resolve("balance")
    small = sf.PPOSettings(envs=16, horizon=8, steps=256, hidden=(8,), minibatches=2)
    mine = sf.Box.ranges(task.params, {"cart_mass": (0.8, 1.2)})
    path = sf.train("balance", tmp_path / "r", belief=mine, settings=small, judge=sf.Judging(128, 4))
    found = sf.evaluate(sf.load_policy(path), sf.make_env(task, 6, mine, seed=1))
    assert len(found.success) == 6 and (found.e[:, task.params.index("cart_mass")] <= 1.2).all()
