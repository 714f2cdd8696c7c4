"""PPO on warp's device, here its CPU backend: it learns through the one loop, and goes on with the same bits."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn import envs
from surefoot.learn import train as learn
from surefoot.learn.learner import Learner
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.ranges.ramp import Ramp
from surefoot.learn.run.parents import Parents, spec_of
from surefoot.learn.runspec import RunSpec

pytestmark = pytest.mark.skipif(
    find_spec("mujoco_warp") is None, reason="needs the extra gpu: pip install 'surefoot[gpu]'"
)
SMALL = {"envs": 8, "horizon": 12, "hidden": (8,), "minibatches": 2, "steps": 8 * 12 * 8, "learner_threads": 1}


def spec(name="balance", **changes) -> RunSpec:
    task = tasks.resolve(name)
    return RunSpec(name, task.belief, learn.settings_for(name, SMALL | changes), engines=("warp",))


def built(spec: RunSpec, parents: Parents = Parents()) -> Learner:  # noqa: B008
    class Quiet:
        notes: list[str] = []

    return learn.build(spec, tasks.resolve(spec.task), parents, envs.Place(1), Quiet())


def same(a: Learner, b: Learner) -> bool:
    a, b = (x.save()[0] for x in (a, b))
    return a.keys() == b.keys() and all(np.array_equal(v, b[k]) for k, v in a.items())


def test_a_learner_that_loads_what_another_saved_goes_on_with_the_same_bits():
    one, two = built(spec()), built(spec())
    for _ in range(3):
        one.iterate()
    two.load(*one.save())
    for _ in range(3):
        rows = one.iterate(), two.iterate()
        assert rows[0] == rows[1]
    assert same(one, two) and one.iteration == two.iteration == 6


def test_ranges_that_grow_go_on_with_the_same_bits():
    grows = replace(spec(horizon=48, steps=8 * 48 * 8), ranges=Ramp(0.0, 1.0))
    one, two = built(grows), built(grows)
    facts = [one.iterate() for _ in range(4)]
    assert facts[0]["width"] < facts[-1]["width"]
    two.load(*one.save())
    one.iterate(), two.iterate()
    assert same(one, two) and np.array_equal(one.env.belief.low, two.env.belief.low)
    with pytest.raises(SurefootError, match="engine warp: a belief of kind OnEdges is drawn on the host"):
        built(replace(grows, ranges=ADR()))


def test_a_run_that_is_stopped_ends_with_the_same_policy(tmp_path):
    settings, belief = spec().settings, spec().belief
    how = {"settings": settings, "belief": belief, "engines": ("warp",), "save_every": 0}

    class Enough(Exception):
        pass

    def stop(p):
        if p.metrics and p.metrics["iteration"] == 4:
            raise Enough

    whole = learn.train("balance", tmp_path / "whole", **how)
    with pytest.raises(Enough):
        learn.train("balance", tmp_path / "parts", watch=stop, **how)
    again = learn.resume(tmp_path / "parts")
    assert whole.read_bytes() == again.read_bytes()
    assert spec_of(tmp_path / "parts").engines == ("warp",)


def test_rollouts_stay_on_the_device_and_report_the_same_episodes_as_a_rollout_of_mujoco():
    """Balance without contacts, the same seed and weights: what ended, when and why is the same."""
    task = tasks.resolve("balance")
    found = []
    for engines in ((), ("warp",)):
        learner = built(replace(spec(horizon=64, envs=16), engines=engines))
        batch = learner.collect()
        assert isinstance(batch.reward, torch.Tensor) and batch.critic.shape[:2] == (65, 16)
        found.append((learner, batch))
    (here, a), (there, b) = found
    assert torch.equal(a.final, b.final) and torch.equal(a.valid, b.valid) and a.final.sum() > 4
    assert torch.allclose(a.reward, b.reward, atol=1e-4) and torch.allclose(a.action, b.action, atol=1e-3)
    for x, y in zip(a.episodes, b.episodes, strict=True):
        assert np.array_equal(x.ids, y.ids) and x.reason == y.reason and np.array_equal(x.success, y.success)
        assert np.array_equal(x.began, y.began) and np.array_equal(x.lengths, y.lengths)
        assert np.allclose(x.returns, y.returns, atol=1e-3) and np.allclose(x.e, y.e, rtol=1e-5)
    assert here.collector.terms == pytest.approx(there.collector.terms, rel=1e-3) and task.rewards


@pytest.mark.parametrize("name", ["hover", "arm"])
@pytest.mark.slow
def test_other_tasks_learn_there_too(name):
    learner = built(spec(name))
    for _ in range(3):
        row = learner.iterate()
    assert np.isfinite(row["policy_loss"]) and row["rejected"] == 0 and row["diverged"] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_policy_for_balance_is_learned_there_and_holds_on_mujocos_threads(tmp_path):
    args = ["train", "balance", "--engines", "warp", "--steps", "60000", "--seed", "1", "--out", str(tmp_path / "r")]
    assert main(args) == 0
    from surefoot.learn.nets import export
    from surefoot.tasks.rollout import evaluate

    env = tasks.env(tasks.resolve("balance"), 100, seed=7)
    assert evaluate(export.load_net(tmp_path / "r"), env).rate > 0.9


def test_the_host_reads_a_rollout_once_however_long_it_is(monkeypatch):
    """Its rewards, flags and episodes, at its end; nothing in its steps."""
    read = []
    for name in ("cpu", "numpy", "tolist", "item"):
        own = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda x, own=own, name=name: read.append(name) or own(x))
    counts = []
    for horizon in (4, 16):
        learner = built(spec(activation="elu", horizon=horizon))
        read.clear()
        learner.collect()
        counts.append(sorted(read))
    assert counts[0] == counts[1] and len(counts[0]) < 40


def test_what_needs_the_host_is_refused_by_name():
    with pytest.raises(
        SurefootError, match="engines: warp has a whole batch on its device; expected it alone, found muj"
    ):
        built(replace(spec(), engines=("mujoco", "warp")))
    for flag, parents in (("--terms", Parents(terms=(object(),))), ("--base", Parents(base=object()))):
        with pytest.raises(SurefootError, match=f"{flag}: engine warp has a whole batch on its device"):
            envs.on_device(spec(), parents, tasks.resolve("balance"), envs.Place(), [])
