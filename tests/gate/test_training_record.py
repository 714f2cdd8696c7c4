"""Judged on what training has not met: whatever seed it had, and whatever seed the judge is given."""

import json
from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.gate import runs as gate_runs
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import gate
from surefoot.gate.plan import Plan
from surefoot.gate.training_record import trained_with, unseen
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import PolicyNet, linear
from surefoot.learn.train import train
from surefoot.rng import JUDGING, judging
from surefoot.tasks.rollout import contract

QUICK = Plan(threads=1, episodes=20, per_load=4, motion=2, repeats=1, search=(8, 4, 8))


def law(folder, seed="", base=None):
    """A law by hand that balances the pole, as if trained with a seed."""
    task = tasks.resolve("balance")
    c = contract(task, tasks.env(task, 1).world, {"seed": seed} if seed else {})
    net = linear(c, {"cart_pole": np.array([[1.0, 2.0, 20.0, 4.0]])})
    if base is not None:
        net = PolicyNet(c, net.actor, (net.mean.numpy(), net.sd.numpy()), base)
    export.save(net, folder)
    return folder


@pytest.fixture
def met(monkeypatch):
    """Seeds of all episodes that are run."""
    found = set()
    plain = Env.__init__

    def counted(self, task, world, belief, seed=0, *more, **how):
        found.add(seed)
        plain(self, task, world, belief, seed, *more, **how)

    monkeypatch.setattr(Env, "__init__", counted)
    return found


def judged(folder, plan=QUICK):
    who = candidate(folder)
    who = replace(who, task=replace(who.task, seconds=2.0, window=2.0))
    return gate(who, who.task.belief, plan, Limits())


@pytest.mark.parametrize("seed", [1000, 1003])
def test_no_episode_that_judges_has_the_seed_of_training(seed, met, tmp_path):
    """A run trained with the gate's own seed, or one a batch further on, was judged on the episodes it had learned from."""
    folder = law(tmp_path / "run", str(seed))
    met.clear()
    verdict = judged(folder, replace(QUICK, seed=seed))
    seeds = verdict.meta["seeds"]
    used = {s for s in met if s != 0}  # 0: worlds that are made to read their model, and run no episode
    assert seed not in met and used and min(used) >= JUDGING
    assert seeds["first"] == min(used) and max(used) <= seeds["last"]
    assert seeds["trained"] == [seed] and f"unseen: trained with {seed}," in seeds["sentence"]
    assert json.loads(json.dumps(seeds["last"])) == int(float(seeds["last"]))  # exact where numbers are floats


def test_the_verdict_its_page_and_the_command_say_which_seeds_were_used(tmp_path, capsys):
    folder = law(tmp_path / "run")
    assert main(["gate", str(folder), "--episodes", "20", "--threads", "1"]) in (0, 1)
    words = f"episodes of seeds {judging(1000)} to"
    out = " ".join(capsys.readouterr().out.split())
    assert words in out and "training seeds unknown" in out
    assert words in (folder / "gate.html").read_text()
    assert json.loads((folder / "gate.json").read_text())["meta"]["seeds"]["first"] == judging(1000)


def test_seeds_of_the_base_the_teacher_and_the_runs_before_count_as_its_own(tmp_path):
    base = export.load_net(law(tmp_path / "lower", "3"))
    folder = law(tmp_path / "run", "4", base)
    law(folder / "teacher", "5")
    law(tmp_path / "first", "6")
    (tmp_path / "first" / "run.json").write_text(json.dumps({"seed": 7, "start": {"run": str(folder)}}))  # a circle
    (folder / "run.json").write_text(json.dumps({"seed": 4, "start": {"run": str(tmp_path / "first")}}))
    assert trained_with(folder, bundle.load(folder)) == {3, 4, 5, 7}


@pytest.mark.parametrize("seed", ["9" * 5000, "-1", "x", "", "1e3"])
def test_what_is_no_seed_tells_nothing(seed, tmp_path):
    folder = law(tmp_path / "run", seed)
    (folder / "run.json").write_text(json.dumps({"seed": [1], "start": {"run": 5}}))
    assert trained_with(folder, bundle.load(folder)) == set()


@pytest.mark.parametrize("odd", [{"parents": []}, {"parents": {"seed": []}}, {}])
def test_a_base_whose_contract_is_odd_tells_nothing(odd, tmp_path):
    policy = bundle.load(law(tmp_path / "run", "4"))
    policy = replace(policy, about={"net": {"base_contract": odd, "base": 5}})
    assert trained_with(tmp_path / "run", policy) == {4}


def test_a_judge_whose_episodes_training_has_met_is_refused():
    first = judging(1000)
    assert unseen(1000, {0, first - 1, first + 10}, 10) == range(first, first + 10)
    with pytest.raises(SurefootError, match=f"--seed: 1000: training used its seed {first + 9}; choose another"):
        unseen(1000, {0, first + 9}, 10)


def test_every_seed_has_episodes_of_its_own_to_judge_with():
    found = [judging(s) for s in range(2000)]
    assert min(found) >= JUDGING and max(found) < 2**53
    assert np.diff(sorted(found)).min() > 10_000  # more than any plan uses


@pytest.mark.parametrize("seed", [-1, JUDGING, judging(1000)])
def test_training_cannot_have_a_seed_that_is_for_judging(seed, tmp_path):
    with pytest.raises(SurefootError, match="reserved for evaluation"):
        train("balance", tmp_path / "run", seed=seed)
    assert not (tmp_path / "run").exists()


def test_a_plan_never_uses_more_seeds_than_it_says():
    assert QUICK.seeds == 620 and Plan(episodes=100_000).seeds == 100_000 // gate_runs.BATCH
