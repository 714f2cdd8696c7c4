"""The tutorial on sim-to-real that the project was founded on: its worlds as it gives them, its steps with numbers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.real2sim.episodes import logged

PATH = Path(__file__).parents[2] / "examples" / "04_the_founding_tutorial.py"
SOLVED = 475.0  # of 500: where CartPole-v1 counts as solved


@pytest.fixture(scope="module")
def tutorial():
    spec = importlib.util.spec_from_file_location("tutorial", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_worlds_are_those_of_the_tutorial(tutorial):
    params = tutorial.TASK.params
    home = dict(zip(params.names, tutorial.HOME.sample(np.random.default_rng(0), 1)[0]))
    assert (home["gravity"], home["cart_mass"], home["pole_mass"], home["noise"]) == (9.8, 1.0, 0.1, 0.0)
    real = dict(zip(params.names, tutorial.world(tutorial.REAL).sample(np.random.default_rng(0), 1)[0]))
    assert (real["gravity"], real["cart_mass"], real["pole_mass"], real["noise"]) == (12.0, 1.5, 0.2, 0.05)
    drawn = tutorial.uniform(tutorial.RANDOMIZED).sample(np.random.default_rng(0), 4000)
    for name, low, high in (
        ("gravity", 8.0, 14.0),
        ("cart_mass", 0.5, 2.0),
        ("pole_mass", 0.05, 0.3),
        ("noise", 0.0, 0.1),
    ):
        x = drawn[:, params.names.index(name)]
        assert low <= x.min() and x.max() <= high
        assert x.mean() == pytest.approx((low + high) / 2, abs=4 * (high - low) / np.sqrt(12 * len(x))), name
    others = [k for k in range(len(params)) if params.names[k] not in tutorial.RANDOMIZED]
    assert np.ptp(drawn[:, others], axis=0).max() == 0, "nothing else is randomized"


def test_its_variations_are_twenty_and_wider_than_any_training(tutorial):
    worlds = tutorial.variations()
    assert worlds.shape == (20, len(tutorial.TASK.params))
    for name, (low, high) in tutorial.RANDOMIZED.items():
        x = worlds[:, tutorial.TASK.params.names.index(name)]
        least, largest = tutorial.VARIATIONS[name]
        assert least <= x.min() and x.max() <= largest
        assert least <= low and high < largest
    known = [tutorial.TASK.params.names.index(k) for k in tutorial.RANDOMIZED]
    low, high = np.array(list(tutorial.RANDOMIZED.values())).T
    outside = ((worlds[:, known] < low) | (worlds[:, known] > high)).any(1)
    assert outside.sum() > 10


def test_its_grid_finds_a_world_that_is_on_it_where_nothing_is_noisy(tutorial):
    truth = {"gravity": 12.0, "cart_mass": 0.5 + 2.0 * 4 / 9}
    env = tasks.env(tutorial.TASK, 5, tutorial.world(truth), seed=0)
    found = tutorial.by_grid(logged(tutorial.Coin(0), env))
    assert found == pytest.approx(truth)


@pytest.mark.slow
def test_a_few_falls_tell_the_cart_and_less_of_gravity(tutorial):
    """Identified from five falls: nearer than the grid of the tutorial, with intervals that say which is known how well."""
    found = [tutorial.identification(seed) for seed in range(4)]
    off = lambda what, truth: np.median([abs(x[what] / truth - 1) for x in found])  # noqa: E731
    assert off("cart_mass, identified", 1.5) < off("cart_mass, by grid", 1.5)
    for x in found:
        assert x["gravity, most"] / x["gravity, least"] > x["cart_mass, most"] / x["cart_mass, least"]


@pytest.mark.slow
def test_what_it_claims_holds_where_it_does(tutorial, tmp_path):
    """Medians of three seeds: randomization costs nothing at home and helps in the variations; stages arrive, as one go does."""
    runs = [tutorial.steps(tmp_path, seed) for seed in range(3)]
    assert {name: x.shape for name, x in runs[0][1].items()} == {"standard": (20,), "randomized": (20,)}
    found = {name: np.median([each[name] for each, _ in runs]) for name in runs[0][0]}
    assert found["standard, at home"] > SOLVED
    assert found["randomized, at home"] > SOLVED
    assert found["randomized, in the real world"] > SOLVED
    assert found["randomized, mean of 20 variations"] > found["standard, mean of 20 variations"] + 20
    assert found["randomized, worst of 20 variations"] > found["standard, worst of 20 variations"]
    assert found["after the stages, in the real world"] > SOLVED
    assert found["straight to it for as long, in the real world"] > SOLVED
