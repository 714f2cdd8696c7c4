"""`surefoot believe` writes a belief that training can use."""

import json

import numpy as np
import pytest

from surefoot import files, tasks
from surefoot.belief import Belief, Particles, Truncated
from surefoot.cli import main
from surefoot.policy import Random
from surefoot.real2sim.episodes import logged
from surefoot.tasks.rollout import contract


@pytest.fixture
def log(tmp_path):
    task = tasks.resolve("balance")
    env = tasks.env(task, 1)
    policy = Random(contract(task, env.world), 0)
    return logged(policy, env, e=task.params.vector({"cart_mass": 1.6})[None]).save(tmp_path / "log.npz")


def test_dropo_writes_a_belief_of_the_tasks_unknowns(log, capsys):
    small = "--dropo.draws 4 --dropo.rounds 2 --dropo.population 5 --dropo.windows 3 --window 5".split()
    code = main(["believe", "balance", str(log), "--learn", "cart_mass", *small, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert code == (0 if facts["examination"]["holds"] else 1)
    assert {c["name"] for c in facts["examination"]["checks"]} >= {"search has converged", "restarts agree"}
    found = Belief.from_json(files.read_json(log.with_name("log-dropo.json")))
    assert isinstance(found, Truncated) and found.params.names == tasks.resolve("balance").params.names
    assert [u["name"] for u in facts["unknowns"]] == ["cart_mass"] and np.count_nonzero(found.sd() > 1e-12) == 1


def test_sbi_says_when_its_posterior_may_not_be_trusted(log, capsys):
    pytest.importorskip("sbi", reason="needs the sbi extra")
    small = "--npe.simulations 60 --npe.epochs 1 --truths 300 --window 5 --noise joint_pos=0.001".split()
    code = main(["believe", "balance", str(log), "--how", "sbi", "--learn", "cart_mass", *small, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert code == (0 if facts["calibration"]["holds"] else 1)
    assert isinstance(Belief.from_json(files.read_json(log.with_name("log-sbi.json"))), Particles)


@pytest.mark.parametrize(
    "words, why",
    [
        (["--learn", "cart_mas"], "did you mean cart_mass"),
        (["--how", "sbi", "--noise", "joint_pos"], "--noise: found 'joint_pos'"),
    ],
)
def test_wrong_words_are_told(log, capsys, words, why):
    assert main(["believe", "balance", str(log), *words]) == 2
    assert why in capsys.readouterr().err


def test_a_model_that_is_not_there_is_told(log, capsys):
    assert main(["believe", "balanc", str(log)]) == 2
    assert "did you mean balance" in capsys.readouterr().err
