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


def test_the_reality_bench_measures_each_method_once_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """The smallest size: one robot of balance, 4096 steps; a training, a wrapper, and a fit to the robot's logs."""
    from benchmarks import realities
    from benchmarks.methods import METHODS

    monkeypatch.chdir(tmp_path)
    lot = realities.Lot("balance", 0, 1, quick=True)
    realities.run([lot], ["DR", "MRAC"])
    made = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.json") if p.name != lot.file.name}
    first = lot.results()
    realities.run([lot], ["DR", "MRAC", "engines", "identify"])
    assert all(p.stat().st_mtime_ns == when for p, when in made.items())  # what was there was not made again
    assert {m: lot.results()[m] for m in first} == first
    found = realities.recorded(lot)
    assert list(found) == ["nominal", "DR", "MRAC", "engines", "identify"]  # cheapest first
    (seed,) = {r.seed for results in found.values() for r in results}
    assert all(r.success.n == 8 and r.compute_seconds > 0 for (r,) in found.values())
    assert [found[m][0].robot_seconds > 0 for m in found] == [False] * 4 + [True] and found["identify"][
        0
    ].robot_seconds <= 60
    assert set(found) < set(METHODS)
    b = lot.bench("nominal", seed)
    assert [len(b.before(k).stages) for k in (1, 3)] == [1, 3]  # nominal stays nominal when DR is there, too


def test_the_table_of_the_reality_bench_has_losers_and_what_does_not_apply(tmp_path):
    """Five robots, of which one has no gap and one defeats the oracle; rates that are known."""
    from benchmarks.realities import Lot, Result, markdown, not_taken
    from surefoot.cross import Rate

    lot = Lot("hover", 2000, 10, out=tmp_path)
    rates = {
        "nominal": (0, 10, 90, 40, 0),
        "oracle": (100, 100, 100, 100, 89),
        "DR": (100, 100, 0, 100, 0),
        "identify": (20, 20, 100, 20, 0),
    }
    for method, each in rates.items():
        for k, rate in enumerate(each):
            own = method == "identify"
            lot.keep(method, Result(2000 + k, Rate(rate, 100), 12.0 * own, 30.0, "", own))
    lot.keep("MRAC", Result(2000, None, note="found no actuator that turns a joint"))
    assert not_taken(lot) == [("without a gap", 1, 5), ("not mastered by the oracle", 1, 5)]
    assert markdown(lot).splitlines()[2:] == [
        "| DR | 100 % (100 - 100) | 3 of 3 | none | 30 s |",
        "| oracle | 100 % (100 - 100) | 3 of 3 | none | 30 s |",
        "| identify; refused on 3, and DR stays | 20 % (20 - 20) | 0 of 3 | 12 s | 30 s |",
        "| nominal | 17 % (0 - 40) | 0 of 3 | none | 30 s |",
        "| MRAC | does not apply: found no actuator that turns a joint | | | |",
    ]
