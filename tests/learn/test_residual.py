"""Residual policies: they begin as their base, add to it, and carry it with them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.belief import Box
from surefoot.cli import main
from surefoot.contract import Contract
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.loop import policy_of
from surefoot.learn.nets import Actor, export, mlp
from surefoot.learn.nets.policy_net import PolicyNet, linear
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.residual import BasePolicy, Residual, ResidualActor
from surefoot.policy import Policy, Zero
from surefoot.tasks.rollout import contract, evaluate

SMALL = {"envs": 32, "horizon": 8, "hidden": (16,), "minibatches": 2, "steps": 32 * 8 * 4, "learner_threads": 1}
FLAGS = [w for k, v in SMALL.items() for w in (f"--{k}", *(str(x) for x in (v if isinstance(v, tuple) else (v,))))]
K = [[0.0, 1.0, 40.0, 8.0]]  # N for m, m/s, rad, rad/s


def contract_of(name: str, history: int = 0, **changes) -> Contract:
    task = tasks.with_override(tasks.resolve(name), tasks.ObsOverride(history=history))
    return replace(contract(task, tasks.env(task, 1).world), **changes)


def law(**changes) -> PolicyNet:
    return linear(contract_of("balance", **changes), {"cart_pole": K})


def learner(base: Policy, residual: Residual, steps: int = 2048) -> PPO:
    task, settings = tasks.resolve("balance"), learn.settings_for("balance", {"steps": steps})
    env = tasks.env(task, settings.envs, tasks.nominal(task), 0, stagger=True)
    return PPO(env, settings, 0, upon=upon(residual, base, contract(task, env.world)))


def upon(residual: Residual, base: Policy, c: Contract) -> ResidualActor:
    return ResidualActor(residual, BasePolicy(c, base))


def stacked(seed: int = 0, base: PolicyNet | None = None, activation: str = "tanh") -> PolicyNet:
    """A residual told three frames, at random, on a law told one."""
    rng = torch.Generator().manual_seed(seed)
    actor = Actor(mlp(12, (5,), 1, activation, 1.0, rng), None, activation=activation)
    scales = (np.linspace(-1.0, 1.0, 12), np.ones(12))
    return PolicyNet(contract_of("balance", history=3), actor, scales, base or law(), 0.5)


def test_a_linear_law_is_the_one_written_down_in_units_of_controls_and_sensors():
    obs = np.random.default_rng(0).uniform(-3, 3, (50, 4)).astype(np.float32)
    force = obs.astype(float) @ np.array(K).T  # N, of which 10 are an action of 1
    assert np.allclose(10 * law()(obs), force, rtol=1e-5, atol=1e-5)
    far = np.array([[1e3, 0, 0, 0]], np.float32)  # far beyond ten standard deviations of anything
    assert linear(contract_of("balance"), {"cart_pole": [[1, 0, 0, 0]]})(far)[0, 0] == pytest.approx(100.0)


def test_a_linear_law_reads_the_newest_frame_and_undoes_scales_and_offsets():
    c = contract_of("hover")
    gain = np.arange(12.0).reshape(4, 3) * 1e-3  # N / (m/s)
    obs = np.random.default_rng(0).uniform(-1, 1, (20, 3, 22)).astype(np.float32)
    v = obs[:, -1, 12:15] / 0.5  # m/s: base_lin_vel is told halved
    expected = np.array([0.01, 0.02, 0.03, 0.04]) + v @ gain.T
    found = linear(c, {"base_lin_vel": gain}, [0.01, 0.02, 0.03, 0.04])(obs.reshape(20, -1))
    assert np.allclose(c.action.offset + c.action.scale * found, expected, atol=1e-6)


def test_learning_begins_at_the_base_exactly_and_stays_there_while_only_the_critic_learns():
    base = law()
    mine = learner(base, Residual(burn_in=0.5), 4 * 2048)
    obs = np.random.default_rng(0).normal(0, 0.1, (100, 4)).astype(np.float32)
    held = np.clip(base(obs), -1, 1)
    critic = [p.detach().clone() for p in mine.critic.parameters()]
    for waits in (True, True, False):
        assert np.array_equal(policy_of(mine)(obs), held) and mine.waits == waits
        sd = float(mine.head.log_sd.detach().exp())
        mine.iterate()
    assert any(not torch.equal(a, b) for a, b in zip(critic, mine.critic.parameters()))
    assert not np.array_equal(policy_of(mine)(obs), held) and sd == pytest.approx(0.5, abs=1e-6)


def test_what_drives_the_robot_in_training_is_what_the_written_policy_answers():
    """base + c f, with f as the learner says it, and the policy that is written."""
    mine = learner(law(), Residual(scale=0.7, burn_in=0.0))
    mine.iterate()
    obs = mine.obs["actor"]
    with torch.no_grad():
        f = mine.actor(mine.see_actor(torch.from_numpy(obs))).numpy()
    assert np.abs(f).max() > 1e-3
    assert np.allclose(mine.upon(obs, f), np.clip(law()(obs), -1, 1) + 0.7 * f, atol=1e-6)
    assert np.allclose(policy_of(mine)(obs), mine.upon(obs, f), atol=1e-5)


def test_a_base_is_told_its_own_terms_and_newest_frames_and_held_to_the_limit():
    whole, obs = stacked(), np.random.default_rng(1).normal(0, 1, (30, 12)).astype(np.float32)
    newest = law()(obs[:, 8:])
    assert np.abs(newest).max() > 1
    with torch.no_grad():
        own = 0.5 * whole.actor(whole.normalised(torch.from_numpy(obs))).numpy()
    assert np.allclose(whole(obs) - own, np.clip(newest, -1, 1), atol=1e-6)


@pytest.mark.parametrize("policy", [stacked(), stacked(1, stacked(), "relu")])
def test_torch_disk_and_onnx_agree_also_on_a_base_of_a_base(tmp_path, policy):
    obs = np.random.default_rng(1).normal(0, 1, (30, 12)).astype(np.float32)
    path = export.save(policy, tmp_path)
    again = export.load_net(tmp_path)
    assert np.array_equal(again(obs), policy(obs)) and export.digest(again) == export.digest(policy)
    assert np.allclose(bundle.load(tmp_path)(obs), policy(obs), atol=1e-5)
    assert export.onnx_difference(policy, path) < 1e-5
    alone = PolicyNet(policy.contract, policy.actor, (policy.mean.numpy(), policy.sd.numpy()), None, 0.5)
    with pytest.raises(SurefootError, match="differ from torch"):
        export.onnx_difference(policy, export.save(alone, tmp_path / "alone"))


def test_a_base_that_was_changed_on_disk_is_refused(tmp_path):
    path = export.save(stacked(), tmp_path)
    weights = tmp_path / "policy.safetensors"
    whole = weights.read_bytes()
    at = whole.find(stacked().base.actor.body[0].weight.detach().numpy().tobytes())
    weights.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(SurefootError, match="sha256 differs"):
        export.load_net(path)
    weights.write_bytes(whole)
    card = json.loads(bundle.load(path).graph.metadata["surefoot"])
    other = json.loads(json.dumps(card["net"]))
    other["base_contract"]["observation"]["terms"][0]["scale"] = 2.0
    for net, message in (
        ({k: v for k, v in card["net"].items() if k != "base"}, "do not fit"),
        (card["net"] | {"base": {}}, "do not fit"),
        (other, "cart_pole.scale: expected"),
        (card["net"] | {"base": card["net"]["base"] | {"activation": "rlu"}}, "activation matches 'rlu'"),
    ):
        path.write_bytes(bundle.sealed(export.onnx_bytes(stacked()), card | {"net": net}))
        with pytest.raises(SurefootError, match=message):
            export.load_net(path)


def test_a_base_that_means_something_else_is_refused():
    c, plain = stacked().contract, contract_of("balance")
    term = plain.terms[0]
    told = lambda **changes: replace(plain.observation, **changes)  # noqa: E731
    for changes, message in (
        ({"observation": told(terms=(replace(term, name="cart"),))}, "no observation term matches 'cart'"),
        ({"observation": told(terms=(replace(term, unit="ft"),))}, "cart_pole.unit: expected"),
        ({"observation": told(history=4)}, "at most 3 frames, found 4"),
        ({"rate": 100.0}, "rate: expected 50"),
        ({"action": replace(plain.action, scale=np.array([5.0]))}, "action.scale"),
        ({"action": replace(plain.action, names=("pull",))}, "action.names"),
        ({"action": replace(plain.action, choices=2)}, "continuous actions"),
    ):
        with pytest.raises(SurefootError, match=message):
            BasePolicy(c, Zero(replace(plain, **changes)))
    for change, message in (({"pole": K}, "no observation term matches 'pole'"), ({"cart_pole": [1, 2]}, "shape")):
        with pytest.raises(SurefootError, match=message):
            linear(c, change)
    for bad in ({"scale": 0.0}, {"scale": np.inf}, {"burn_in": 1.0}):
        with pytest.raises(SurefootError, match=f"residual.{next(iter(bad))}"):
            Residual(**bad)


@pytest.mark.parametrize("at, changes", [(1, {}), (3, {"history": 10, "encoder": "gru"}), (3, {"ranges": ADR()})])
def test_a_run_upon_a_base_goes_on_with_the_same_bits_without_the_original(tmp_path, at, changes):
    """Stopped while only the critic learns, and after; with more frames than the base is told; with growing ranges."""
    export.save(linear(contract_of("hover"), {"base_ang_vel": -1e-3 * np.eye(4)[:, :3]}), tmp_path / "law")
    encoder = {"encoder": changes["encoder"]} if "encoder" in changes else {}
    about = dict(
        seed=3, belief=tasks.resolve("hover").belief, settings=learn.settings_for("hover", {**SMALL, **encoder}),
        save_every=0, obs=tasks.ObsOverride(history=changes.get("history", 0)), base=tmp_path / "law",
        residual=Residual(0.2, 0.5), ranges=changes.get("ranges"),
    )  # fmt: skip
    stop = lambda p: (_ for _ in ()).throw(KeyboardInterrupt) if p.metrics.get("iteration") == at else None  # noqa: E731
    learn.train("hover", tmp_path / "whole", **about)
    with pytest.raises(KeyboardInterrupt):
        learn.train("hover", tmp_path / "cut", watch=stop, **about)
    for path in (tmp_path / "law").iterdir():
        path.unlink()
    learn.resume(tmp_path / "cut", save_every=0)
    for name in ("policy.safetensors", "policy.onnx", "metrics.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    policy = export.load_net(tmp_path / "whole")
    assert policy.contract.parents["base"] == export.digest(policy.base)
    assert policy.actor.body[-1].weight.abs().max() > 0


def test_a_kept_base_that_was_replaced_stops_a_resume(tmp_path):
    learn.train("balance", tmp_path / "r", settings=learn.settings_for("balance", SMALL), base=law(), save_every=0)
    export.save(linear(contract_of("balance"), {"cart_pole": [[0, 0, 1, 0]]}), tmp_path / "r" / "base")
    with pytest.raises(SurefootError, match="not the base this run began with"):
        learn.resume(tmp_path / "r")


def test_what_does_not_go_together_is_refused_and_nothing_is_written(tmp_path, capsys):
    export.save(law(), tmp_path / "law")
    base = ["--base", str(tmp_path / "law")]
    told_e = linear(contract_of("balance", observation=tasks_told("e")), {})
    export.save(told_e, tmp_path / "knows")
    for words, message in (
        (["train", "hover", *base], "action.names"),
        (["train", "balance-discrete", *base], "continuous actions"),
        (["train", "balance", "--residual.scale", "0.5"], "only with --base"),
        (["train", "balance", "--base", str(tmp_path / "none")], "no policy here"),
        (["train", "balance", "--base", str(tmp_path / "knows")], "no observation term matches 'e'"),
        (
            ["train", "balance", "--base", str(tmp_path / "knows"), "--adapt", "rma"],
            "the student's terms: no observation term",
        ),
        (
            ["train", "balance", *base, "--adapt", "rma", "--teacher", str(tmp_path / "law")],
            "that one is trained already",
        ),
    ):
        assert main([*words, *FLAGS, "--out", str(tmp_path / "out")]) == 2
        assert message in capsys.readouterr().err and not (tmp_path / "out").exists()
    (tmp_path / "taken").mkdir()
    export.save(told_e, tmp_path / "taken" / "base")
    assert main(["train", "balance", *base, *FLAGS, "--out", str(tmp_path / "taken")]) == 2
    assert "another policy is here already" in capsys.readouterr().err
    assert export.digest(export.load_net(tmp_path / "taken" / "base")) == export.digest(told_e)


def tasks_told(*names: str):
    task = tasks.with_actor_terms(tasks.resolve("balance"), names, 1)
    return contract(task, tasks.env(task, 1).world).observation


def test_nets_learned_upon_one_base_do_not_begin_a_run_upon_another(tmp_path):
    small = learn.settings_for("balance", SMALL)
    learn.train("balance", tmp_path / "plain", settings=small)
    learn.train("balance", tmp_path / "upon", settings=small, base=law())
    other = linear(contract_of("balance"), {"cart_pole": [[0, 0, 30, 6]]})
    for start, more in (
        ("plain", {"base": law()}),
        ("upon", {}),
        ("upon", {"base": other}),
        ("upon", {"base": law(), "residual": Residual(0.9)}),
    ):
        with pytest.raises(SurefootError, match="learned (upon another base or scale|without a base)"):
            learn.train("balance", tmp_path / "x", settings=small, start=tmp_path / start, **more)
        assert not (tmp_path / "x").exists()
    path = learn.train("balance", tmp_path / "x", settings=small, start=tmp_path / "upon", base=tmp_path / "upon/base")
    assert export.load_net(path).base is not None


@pytest.mark.parametrize("adapt", ["rma", "dagger"])
def test_a_student_of_a_teacher_upon_a_base_keeps_the_base_or_imitates_the_sum(tmp_path, adapt):
    export.save(linear(contract_of("hover"), {"base_ang_vel": -1e-3 * np.eye(4)[:, :3]}), tmp_path / "law")
    lesson = [
        "--student.envs",
        "32",
        "--student.steps",
        "1024",
        "--student.learner_threads",
        "1",
        "--student.history",
        "6",
    ]
    words = ["train", "hover", "--adapt", adapt, "--base", str(tmp_path / "law"), "--out", str(tmp_path / "r")]
    assert main([*words, *FLAGS, *lesson]) == 0
    student = export.load_net(tmp_path / "r" / "student")
    assert (student.base is not None) == (adapt == "rma")
    assert main(["eval", str(tmp_path / "r" / "student"), "--episodes", "4"]) == 0
    assert main(["export", str(tmp_path / "r" / "student")]) == 0


def test_a_residual_improves_on_a_law_with_too_little_gain():
    """Thirty iterations, of which the first five teach only the critic; three seeds; in the same worlds, on the same episodes."""
    task = tasks.resolve("balance")
    ranges = {"cart_mass": (1.0, 2.0), "pole_mass": (0.1, 0.3), "strength": (0.7, 1.0), "rail_drag": (0.0, 1.0)}
    belief = Box.ranges(task.params, {**ranges, "latency": (0.02, 0.04), "noise": (0.02, 0.05)})
    base = linear(contract_of("balance"), {"cart_pole": [[1.7, 2.6, 24.3, 6.1]]})
    rate = lambda policy: evaluate(policy, tasks.env(task, 150, belief, 99, 1)).rate  # noqa: E731
    before, after = rate(base), []
    for seed in range(3):
        settings = learn.settings_for("balance", {"lr": 4e-3})
        env = tasks.env(task, settings.envs, belief, seed, 1, stagger=True)
        mine = PPO(env, settings, seed, upon=upon(Residual(), base, base.contract))
        for _ in range(30):
            mine.iterate()
        after.append(rate(policy_of(mine)))
    assert before < 0.4 and np.median(after) > before + 0.15


def test_a_base_with_a_history_is_refused_under_a_memory_of_several_episodes():
    """The frames before an episode's first are of the episode before: to such a base they would be its own."""
    task = tasks.with_override(tasks.resolve("balance"), tasks.ObsOverride(history=3, trial=2))
    upper = contract(task, tasks.env(task, 1).world)
    BasePolicy(upper, law())
    with pytest.raises(
        SurefootError, match="history: expected 1 frame under a policy that remembers 2 episodes, found 2"
    ):
        BasePolicy(upper, law(history=2))
