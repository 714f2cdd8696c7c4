"""What a policy has worked out, read from its latent."""

import json

import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.belief import Box
from surefoot.cli import main
from surefoot.deploy import bundle
from surefoot.deploy.bundle import OnnxPolicy
from surefoot.errors import SurefootError
from surefoot.gate.measures.latent import Change, Probe, inferred, settling
from surefoot.learn.nets import Actor, Encoder, export
from surefoot.learn.nets.policy_net import PolicyNet, linear
from surefoot.tasks.rollout import contract

OPEN = {"gravity": (8.0, 12.0), "strength": (0.8, 1.2)}


def knowing(folder, latent: bool = True) -> tuple[OnnxPolicy, Box]:
    """A policy that is told e: it catches the pole by hand-made gains, and its latent is e itself, relu(e) - relu(-e)."""
    task = tasks.with_override(tasks.resolve("balance"), tasks.ObsOverride(also=("e",)))
    d, c = len(task.params), contract(task, tasks.env(task, 1).world)
    net = linear(c, {"cart_pole": [[1.0, 2.0, 20.0, 4.0]]})
    if latent:
        encoder = Encoder("mlp", np.arange(4, 4 + d), 1, d, "relu", torch.Generator(), 2 * d)
        eye, scale = torch.eye(d), net.sd[4:, None]
        body = torch.nn.Linear(4 + d, 1)
        with torch.no_grad():
            encoder.each[0].weight.copy_(torch.cat([eye, -eye]) * scale.T)
            encoder.each[1].weight.copy_(torch.eye(2 * d))
            encoder.out.weight.copy_(torch.cat([eye, -eye], 1))
            for layer in (*encoder.each, encoder.out):
                layer.bias.zero_()
            body.weight.copy_(torch.cat([net.actor.body[0].weight[:, :4], torch.zeros(1, d)], 1))
            body.bias.zero_()
        actor = Actor(torch.nn.Sequential(body), None, encoder, np.arange(4))
        net = PolicyNet(c, actor, (net.mean.numpy(), net.sd.numpy()))
    return bundle.load(export.save(net, folder)), Box.ranges(task.params, OPEN)


def test_a_latent_that_is_e_tells_every_open_unknown_at_once_and_follows_a_change_at_once(tmp_path):
    policy, belief = knowing(tmp_path / "net")
    facts = inferred(policy, tasks.resolve("balance"), belief, Change("gravity", 9.0, 11.5, 2.0), episodes=40)
    assert set(facts["r2"]) == set(OPEN)
    assert all(r[k] > 0.999 for r in facts["r2"].values() for k in ("soon", "end"))
    read, step = np.array(facts["read"]["median"]), 101  # what is seen first of the new world is seen one period on
    assert np.allclose(read[:step], 9.0, atol=0.05) and np.allclose(read[step:], 11.5, atol=0.05)
    assert facts["settles"] == facts["dt"] and facts["at"] == pytest.approx(2.0)


def test_an_exponential_approach_settles_at_tau_log_ten():
    t, tau = 0.01 * np.arange(2000), 0.7
    track = np.where(t < 5.0, 1.0, 3.0 - 2.0 * np.exp(-(t - 5.0) / tau))
    assert settling(track, 500, 0.01, 2.0) == pytest.approx(tau * np.log(10), abs=0.011)
    assert settling(1 + 1e-3 * np.random.default_rng(0).standard_normal(100), 50, 0.01, 2.0) is None


def test_a_probe_reads_a_linear_code_of_log_e_exactly_and_noise_not_at_all():
    rng = np.random.default_rng(0)
    e = np.exp(rng.uniform(-1, 1, (400, 2)))
    z = np.log(e) @ rng.normal(size=(2, 5)) + 0.3
    probe = Probe.fit(z, e, np.array([True, True]))
    assert np.allclose(probe(z), e, rtol=0.02)
    blind = Probe.fit(rng.normal(size=(400, 5)), e, np.array([True, True]))
    assert np.std(blind.y(rng.normal(size=(400, 5)))) < 0.25 * np.std(np.log(e))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"change": Change("gravty")}, "gravity"),
        ({"change": Change(at=10.0)}, "within the episode"),
        ({"change": Change(at=float("nan"))}, "within the episode"),
        ({"change": Change("gravity", -1.0)}, "gravity: expected two values within 5 .. 16"),
        ({"change": Change("gravity", 9.0, 9.0)}, "gravity: expected two different values, found 9 twice"),
        ({"change": Change("noise")}, "the belief fixes noise"),
        ({"episodes": 5}, "at least 20"),
    ],
)
def test_what_cannot_be_shown_is_said(tmp_path, change, words):
    policy, belief = knowing(tmp_path / "net")
    with pytest.raises(SurefootError, match=words):
        inferred(policy, tasks.resolve("balance"), belief, **change)


def test_a_policy_without_a_latent_and_a_belief_without_width_are_refused(tmp_path):
    policy, belief = knowing(tmp_path / "net", latent=False)
    with pytest.raises(SurefootError, match="no latent"):
        inferred(policy, tasks.resolve("balance"), belief)
    with pytest.raises(SurefootError, match="fixes every unknown"):
        inferred(knowing(tmp_path)[0], tasks.resolve("balance"), tasks.nominal(tasks.resolve("balance")))


def test_the_command_writes_a_page_and_tells_which_unknown_is_known_best(tmp_path, capsys):
    _, belief = knowing(tmp_path)
    (tmp_path / "b.json").write_text(json.dumps(belief.to_json()))
    asked = ["adapt", str(tmp_path), "--show", "strength", "--belief", str(tmp_path / "b.json"), "--episodes", "20"]
    assert main([*asked, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (
        facts["unknown"] == "strength"
        and facts["before"] == pytest.approx(0.84)
        and facts["after"] == pytest.approx(1.16)
    )
    page = (tmp_path / "adapt.html").read_text()
    assert "strength" in page and "<svg" in page and "http:" not in page and "https:" not in page
