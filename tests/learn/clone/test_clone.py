"""Cloning: rows out of logs, both ways of a fork where a mean has neither, DDIM against what is known, bits, and refusals."""

import math

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.cli import main
from surefoot.deploy import bundle, manifest
from surefoot.errors import SurefootError
from surefoot.learn.clone.demos import Demos, demos
from surefoot.learn.clone.learner import Clone
from surefoot.learn.clone.run import clone
from surefoot.learn.clone.settings import CloneSettings
from surefoot.learn.clone.start import calm_start, unrest
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import export
from surefoot.learn.nets.flow import TIMES, DiffusionActor, FlowActor, kept
from surefoot.learn.nets.policy_net import PolicyNet, build
from surefoot.log import Log
from surefoot.onnx_file import seal
from surefoot.policy import Driver, along

BALANCE = tasks.resolve("balance")
SMALL = {"updates": 150, "samples": 32, "hidden": (16,), "chunk": 3}


def log(rows=20, gap=None, seed=0):
    """Rows of balance at its 50 Hz; with a gap after so many."""
    rng = np.random.default_rng(seed)
    time = 0.02 * np.arange(rows)
    if gap is not None:
        time[gap:] += 1.0
    action = 0.1 * np.arange(rows)[:, None]
    return Log(time, {"observation": rng.standard_normal((rows, 4)), "action": action})


def test_a_chunk_is_the_actions_that_followed_and_never_those_of_another_episode():
    """20 rows with a jump of the clock after 8: the chunk of row 6 is 6 7 7, that of row 8 is 8 9 10, of row 19 19 19 19."""
    found = demos(BALANCE, 50.0, {"a": log(gap=8)}, 3)
    assert found.episodes == 2 and found.obs.shape == (20, 4)
    rows = (found.actions[..., 0] * 10).round().astype(int)
    assert rows[6].tolist() == [6, 7, 7] and rows[8].tolist() == [8, 9, 10] and rows[19].tolist() == [19, 19, 19]


def test_rows_that_were_not_measured_are_left_out():
    one = log()
    action = np.array(one["action"])
    action[5] = np.nan
    found = demos(BALANCE, 50.0, {"a": Log(one.time, {**one.columns, "action": action})}, 2)
    assert found.episodes == 2 and len(found.obs) == 19 and np.isfinite(found.actions).all()


def test_logs_that_do_not_fit_are_refused_by_name():
    one = log()
    with pytest.raises(SurefootError, match="b.npz: column observation: missing; found action.*record --observation"):
        demos(BALANCE, 50.0, {"b.npz": Log(one.time, {"action": one["action"]})}, 1)
    with pytest.raises(SurefootError, match="b: column action: expected 1 numbers a row, the task's, found 2"):
        demos(BALANCE, 50.0, {"b": Log(one.time, {**one.columns, "action": np.zeros((20, 2))})}, 1)
    with pytest.raises(SurefootError, match="b: expected rows at the task's 20 Hz, found 50 Hz"):
        demos(BALANCE, 20.0, {"b": one}, 1)


def two_ways(n=400):
    """The same observation everywhere; actions of +0.5 and -0.5, half and half, each held through its chunk."""
    side = np.where(np.arange(n) % 2, 0.5, -0.5)
    return Demos(np.zeros((n, 4), np.float32), np.tile(side[:, None, None], (1, 3, 1)).astype(np.float32), n)


def learner(by="diffusion", data=None, seed=0, **changes):
    s = CloneSettings(by=by, **{**SMALL, **changes})
    return Clone(tasks.env(BALANCE, 1, threads=1), s, seed, data or two_ways())


def run(lea):
    while lea.iteration < lea.iterations:
        row = lea.iterate()
    return row


@pytest.mark.parametrize("by", ["diffusion", "flow"])
def test_both_ways_are_kept_where_the_mean_is_neither(by):
    """Of samples, at least 30 % are within 0.15 of each way, and 90 % of either; the mean of both is 0."""
    lea = learner(by, updates=1000, samples=64, hidden=(32, 32), lr=3e-3)
    run(lea)
    noise = torch.randn(500, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        x = lea.scale * lea.average.sample(lea.seen[:1].expand(500, 4), noise)[:, 0]
    ways = [float(((x - way).abs() < 0.15).float().mean()) for way in (-0.5, 0.5)]
    assert min(ways) > 0.3 and sum(ways) > 0.9, ways
    mse = learner("mse", updates=300, lr=3e-3)
    run(mse)
    assert abs(float(policy_of(mse)(np.zeros((1, 4), np.float32))[0, 0])) < 0.05


@pytest.mark.parametrize("predicts", ["velocity", "noise"])
def test_ddim_and_ddpm_of_a_normal_distribution_end_at_that_distribution(predicts):
    """For data N(m, s^2) the best eps_hat is known: sqrt(1 - h) (x - sqrt(h) m) / (h s^2 + 1 - h), and from it the best
    w_hat = sqrt(h) eps_hat - sqrt(1 - h) a_hat. From 4000 draws of noise, both end with mean m and standard deviation s in all
    of their steps."""
    m, s = 0.3, 0.2

    class Known(torch.nn.Module):
        def forward(self, rows):
            t = torch.arccos(rows[:, 2:3].clamp(-1, 1)) / math.pi  # the first wave of the clock
            h = torch.tensor([[kept(float(v))] for v in t[:1]])
            x = rows[:, 1:2]
            eps = (1 - h).sqrt() * (x - h.sqrt() * m) / (h * s**2 + 1 - h)
            a = (x - (1 - h).sqrt() * eps) / h.sqrt()
            return eps if predicts == "noise" else h.sqrt() * eps - (1 - h).sqrt() * a

    actor = DiffusionActor(Known(), None, 1, 1, 20, "relu")
    actor.predicts = predicts
    rng = torch.Generator().manual_seed(0)
    noise = torch.randn(4000, 1, generator=rng)
    for chance in (None, rng):
        x = actor.walk(torch.zeros(4000, 1), noise, TIMES, chance)
        assert float(x.mean()) == pytest.approx(m, abs=0.02) and float(x.std()) == pytest.approx(s, abs=0.02)


def test_a_file_from_before_velocities_still_predicts_noise(tmp_path):
    lea = learner()
    lea.actor.predicts = lea.average.predicts = "noise"
    lea.iterate()
    net, obs = policy_of(lea), np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    spec = net.spec()
    del spec["flow"]["predicts"]
    old = build(spec, net.contract, net.state_dict(), "net")
    assert np.array_equal(old(obs), net(obs)) and old.actor.predicts == "noise"
    with pytest.raises(SurefootError, match="no prediction matches 'x0'; there are velocity, noise"):
        build(spec | {"flow": spec["flow"] | {"predicts": "x0"}}, net.contract, net.state_dict(), "net")


class Parting(torch.nn.Module):
    """The field of one step that takes noise z to tanh(20 z): one way below 0, the other above, neither near 0."""

    def forward(self, rows):
        z = rows[:, 1:2]
        return z - torch.tanh(20 * z)


def test_a_clone_starts_where_a_nudge_does_not_decide_between_two_ways():
    """At 0 a nudge of 0.1 moves the answer by tanh(2) = 0.96, at 1 by nothing; the first calm one of 16 draws is a whole way."""
    actor, seen = FlowActor(Parting(), None, 1, 1, 1, "relu"), torch.zeros(20, 1)
    between, away = unrest(actor, seen, torch.tensor([[0.0], [1.0]]), torch.Generator().manual_seed(0)).tolist()
    assert between > 0.1 and away < 1e-6
    for seed in range(20):
        start = calm_start(actor, seen, 1.0, torch.Generator().manual_seed(seed))
        assert actor.sample(seen[:1], start[None]).abs().item() > 0.999


def test_the_schedule_begins_with_the_action_and_ends_with_noise():
    h = [kept(k / TIMES) for k in range(TIMES + 1)]
    assert h[0] == 1.0 and h[-1] == pytest.approx(1e-4) and all(a > b for a, b in zip(h, h[1:]))


@pytest.mark.parametrize("by", ["diffusion", "flow", "mse"])
def test_a_loaded_learner_goes_on_bit_for_bit_and_its_export_answers_as_torch_does(by, tmp_path):
    one, other = learner(by), learner(by)
    one.iterate()
    other.load(*one.save())
    assert one.iterate() == other.iterate()
    a, b = one.state_dict(), other.state_dict()
    assert all(torch.equal(a[k], b[k]) for k in a)
    net, obs = policy_of(one), np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    path = export.save(net, tmp_path)
    assert export.onnx_difference(net, path) < 1e-4
    assert np.allclose(export.load_net(tmp_path)(obs), net(obs), atol=1e-6)
    assert np.allclose(bundle.load(tmp_path)(obs), net(obs), atol=1e-4)


def one_way(action, n):
    """The same observation everywhere, and one action."""
    return Demos(np.zeros((n, 4), np.float32), np.full((n, 1, 1), action, np.float32), n)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_mean_of_two_sources_is_weighed_by_their_share_and_not_by_their_rows(share):
    """10 rows say 1 and 1000 rows beside them 0: least squares over batches with a share p of the former is p."""
    s = CloneSettings(by="mse", share=share, updates=600, samples=100, hidden=(16,), lr=3e-3)
    lea = Clone(tasks.env(BALANCE, 1, threads=1), s, 0, one_way(1.0, 10), one_way(0.0, 1000))
    run(lea)
    assert float(policy_of(lea)(np.zeros((1, 4), np.float32))[0, 0]) == pytest.approx(share, abs=0.02)


def test_a_share_that_is_none_or_has_no_row_of_both_is_refused():
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(SurefootError, match="share: expected a number between 0 and 1"):
            CloneSettings(share=share)
    env, s = tasks.env(BALANCE, 1, threads=1), CloneSettings(by="mse", share=0.001, samples=100)
    with pytest.raises(SurefootError, match="share: 0.001 of 100 rows is 0; expected rows of both"):
        Clone(env, s, 0, one_way(1.0, 10), one_way(0.0, 10))
    assert (
        Clone(env, CloneSettings(by="mse", samples=1), 0, one_way(1.0, 10)).iterate()["rejected"] == 0
    )  # no other rows, no share


def test_a_stopped_run_ends_with_the_same_bits_and_other_logs_are_refused(tmp_path):
    s, logs = CloneSettings(**SMALL), {"a": log(60)}

    def stop(p):
        if p.metrics.get("iteration") == 2:
            raise KeyboardInterrupt

    clone("balance", logs, tmp_path / "straight", s, save_every=0)
    with pytest.raises(KeyboardInterrupt):
        clone("balance", logs, tmp_path / "stopped", s, watch=stop, save_every=0)
    clone("balance", logs, tmp_path / "stopped", s, save_every=0)
    one, two = (export.load_net(tmp_path / k) for k in ("straight", "stopped"))
    assert export.digest(one) == export.digest(two)
    with pytest.raises(SurefootError, match="a run with other inputs is here already"):
        clone("balance", {"a": log(61)}, tmp_path / "stopped", s)


def test_an_update_that_is_not_finite_is_undone():
    lea = learner()
    lea.iterate()
    before = {k: v.clone() for k, v in lea.state_dict().items()}
    lea.x = lea.x * float("nan")
    assert lea.iterate()["rejected"] == 1
    assert all(torch.equal(v, before[k]) for k, v in lea.state_dict().items())


def test_the_verb_clones_a_recorded_policy_and_eval_takes_it(tmp_path, capsys):
    one = log(120)
    one.save(tmp_path / "demo.npz")
    args = [
        "clone",
        "balance",
        str(tmp_path / "demo.npz"),
        "--updates",
        "50",
        "--hidden",
        "8",
        "--out",
        str(tmp_path / "r"),
    ]
    assert main(args) == 0
    assert "cloned from 120 rows of 1 logs by diffusion" in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "r"), "--episodes", "4"]) == 0


@pytest.mark.parametrize("change, said", [
    ({"chunk": 0}, "chunk: expected 1 to 256, found 0"), ({"execute": 0}, "execute: expected 1 to 256, found 0"), ({"lr": 0.0}, "lr: expected more than 0"), ({"hidden": ()}, "hidden: expected widths"),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused_by_name(change, said):
    with pytest.raises(SurefootError, match=said):
        CloneSettings(**change)


def planner(execute=2, **changes):
    """A cloned net that executes some of its 3 actions, its learner stopped after a few steps."""
    rng = np.random.default_rng(3)
    obs, actions = (rng.standard_normal(shape).astype(np.float32) for shape in ((50, 4), (50, 3, 1)))
    lea = learner("flow", Demos(obs, actions, 1), execute=execute, **changes)
    lea.iterate()
    return policy_of(lea)


def test_a_plan_is_executed_to_its_end_and_a_row_that_begins_anew_forgets_its_own():
    """Of rows a, b with plans of 2: a goes on with the second action of its plan whatever it sees; b was reset, and plans anew."""
    net, rng = planner(), np.random.default_rng(0)
    first, second, third = rng.standard_normal((3, 2, 4)).astype(np.float32)
    plans = {k: net.plan(torch.from_numpy(x)).detach().numpy() for k, x in (("1", first), ("2", second), ("3", third))}
    drive = Driver(net, 2)
    assert np.allclose(drive(first), plans["1"][:, :1])
    drive.begin(np.array([False, True]))
    assert np.allclose(drive(second), [plans["1"][0, 1:], plans["2"][1, :1]], atol=1e-6)
    assert np.allclose(drive(third), [plans["3"][0, :1], plans["2"][1, 1:]], atol=1e-6)
    assert not np.allclose(plans["1"][0, 1:], plans["2"][0, :1], atol=1e-3)


def test_a_file_that_plans_drives_as_its_net_does_and_says_how_far(tmp_path):
    net = planner()
    path = export.save(net, tmp_path)
    policy, again = bundle.load(path), export.load_net(path)
    assert policy.execute == again.execute == 2 and policy.graph.outputs == {"actions": 1, "chunk": 2}
    obs = np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32)
    assert np.allclose(along(policy, obs), along(net, obs), atol=1e-4)
    assert np.array_equal(along(net, obs)[[0, 2]], along(again, obs)[[0, 2]])
    assert not np.allclose(along(net, obs)[1], net(obs)[1], atol=1e-3)


def test_a_file_whose_plan_is_not_as_long_as_it_says_is_refused(tmp_path):
    net = planner()
    path = export.save(net, tmp_path)
    policy = bundle.load(path)
    card = seal.read_card(policy.graph, "file")
    card["net"]["flow"]["execute"] = 3
    path.write_bytes(bundle.sealed(export.onnx_bytes(net), card))
    with pytest.raises(SurefootError, match="output chunk: expected 3 actions of 1 numbers, 3, found 2"):
        bundle.load(path)


def test_a_base_that_plans_is_refused():
    base, upon = planner(), planner(1)
    with pytest.raises(SurefootError, match="base: it executes 2 actions of a plan; expected one that is asked"):
        PolicyNet(upon.contract, upon.actor, (np.zeros(4), np.ones(4)), base)


def test_a_bundle_of_a_planner_is_replayed_by_the_runtime(tmp_path, capsys):
    """Its golden vectors are those of one episode, plan after plan; a bundle whose runtime gave others would be refused."""
    log(120).save(tmp_path / "demo.npz")
    how = "--updates 50 --hidden 8 --chunk 4 --execute 3".split()
    assert main(["clone", "balance", str(tmp_path / "demo.npz"), *how, "--out", str(tmp_path / "r")]) == 0
    assert main(["export", str(tmp_path / "r"), "--out", str(tmp_path / "b")]) == 0
    golden = manifest.read(tmp_path / "b").golden
    obs = golden.obs.astype(np.float32)
    net = export.load_net(tmp_path / "r")
    assert np.allclose(golden.out, along(net, obs), atol=1e-4)
    assert not np.allclose(golden.out[1:3], net(obs)[1:3], atol=1e-5)
