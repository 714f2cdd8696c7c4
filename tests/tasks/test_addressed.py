"""A belief that identify made of a model file trains a task of that robot: its unknowns are found by address."""

import json
from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import Gaussian
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.rng import stream
from surefoot.tasks.addressed import fit_to

MASS = Param("mass:pole", "mass", 0.1, 0.01, 1.0, match="pole", op="set", unit="kg", log=True)
DELAY = Param("action_delay", "action_delay", 0.01, 0.0, 0.04, match=".*", op="set", unit="s")


def fitted(*params):
    """About 0.2 kg and 10 ms, 1 % of it in the mass."""
    values = {"mass:pole": 0.2, "action_delay": 0.01}
    e = np.array([values.get(p.name, p.nominal) for p in params])
    spread = [0.01 if p.log else 0.002 for p in params]
    return Gaussian.around(Params(params), e, np.diag(np.square(spread)))


def test_unknowns_are_matched_by_what_they_move_in_any_order():
    task = tasks.resolve("balance")
    found = fit_to(task, fitted(DELAY, MASS), "belief.json")
    e = dict(zip(task.params.names, found.sample(stream(0, "e"), 4000).T))
    assert e["pole_mass"].mean() == pytest.approx(0.2, rel=1e-3) and e["pole_mass"].std() == pytest.approx(
        2e-3, rel=0.1
    )
    assert e["latency"].mean() == pytest.approx(0.01, rel=0.02) and e["latency"].min() >= 0
    assert found.estimate()[task.params.index("pole_mass")] == pytest.approx(0.2, rel=1e-12)  # as it was fitted
    low, high = task.belief.support()
    i = task.params.index("cart_mass")
    assert e["cart_mass"].min() < low[i] + 0.05 * (high[i] - low[i]) and e["cart_mass"].max() > high[i] - 0.05 * (
        high[i] - low[i]
    )


@pytest.mark.parametrize(
    "params, words",
    [
        ((replace(MASS, match="pole|cart", name="mass"),), "mass: mass .set. of cart, pole: balance has no unknown with this address; its cart_mass"),
        ((replace(MASS, op="scale", unit=""),), "pole_mass is mass .set. of pole"),
        ((Param("armature", "armature", 1e-3, 1e-4, 1e-2, op="set"),), "none of its unknowns is armature"),
        ((MASS, replace(MASS, name="again")), "again: found two params with its address"),
        ((replace(DELAY, name="late", nominal=0.5, high=1.0),), "found about 0.5, expected within the physical bounds of balance's latency"),
    ],
)  # fmt: skip
def test_what_the_task_does_not_have_is_refused_by_name(params, words):
    with pytest.raises(SurefootError, match=words):
        fit_to(tasks.resolve("balance"), fitted(*params), "belief.json")


def test_train_takes_the_belief_of_a_model_file(tmp_path, capsys):
    fitted(DELAY, MASS).write(tmp_path / "b.json")
    small = ["--envs", "8", "--horizon", "8", "--steps", "64", "--out", str(tmp_path / "run")]
    assert main(["train", "balance", "--belief", str(tmp_path / "b.json"), *small]) == 0
    about = json.loads((tmp_path / "run" / "run.json").read_text())["belief"]
    masses = np.array(about["points"])[:, [p["name"] for p in about["params"]].index("pole_mass")]
    assert masses.mean() == pytest.approx(0.2, rel=1e-2)
