"""Benchmarks keep up with the code they measure: each imports, and the quick ones run."""

import importlib
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(p.stem for p in (ROOT / "benchmarks").glob("[a-z]*.py"))
NOT_INSTALLED = {"rltools", "envpool"}


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_imports(name):
    try:
        module = importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        if error.name not in NOT_INSTALLED:
            raise
        pytest.skip(f"{error.name} is not installed")
    assert module.__doc__


def test_every_size_of_the_env_step_is_compared_with_the_engine():
    from benchmarks.throughput import GOALS, limit

    ratios = [r.value for r in limit(quick=True) if "engine's limit" in r.name and r.unit == "ratio"]
    assert len(ratios) == len(GOALS) and all(r is not None and r > 0 for r in ratios)


def test_iterations_of_two_checkouts_are_compared_in_turns():
    """This one against itself: the same work on both sides."""
    from benchmarks.iteration import compare

    ratio = compare(ROOT, "balance", 64, rounds=3)[0]
    assert ratio.value is not None and math.isfinite(ratio.value) and ratio.value > 0


@pytest.mark.parametrize("module, part", [("identify", "basin"), ("identify", "speed")])
def test_a_quick_benchmark_yields_finite_rows(module, part):
    rows = list(getattr(importlib.import_module(f"benchmarks.{module}"), part)(True))
    assert rows and all(r.value is not None and math.isfinite(r.value) for r in rows)


def test_twins_of_gymnasium_agree_with_gymnasium():
    """Observations and rewards of HalfCheetah, step by step, to 1e-8."""
    from benchmarks import twins

    assert max(twins.difference("HalfCheetah-v5", 20)) < 1e-8
