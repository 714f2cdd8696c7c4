"""Policies on disk: what is written is what is read, by torch and by onnxruntime, and nothing else is."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import files, tasks
from surefoot.contract import Action, Contract
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn.nets import Actor, Encoder, export, mlp
from surefoot.learn.nets.policy_net import PolicyNet, build
from surefoot.observation import ObsGroup, ObsTerm
from surefoot.policy import Driver, Policy, Random, Zero
from surefoot.task import Mirror


def contract_of(history: int = 1, choices: int = 0) -> Contract:
    terms = ObsGroup((ObsTerm("x", None, 4, "m", clip=10.0),), history)
    return Contract("balance", 50.0, terms, Action(("a", "b"), np.zeros(2), np.ones(2), "N", 1.0, choices))


def net(hidden: int = 5, choices: int = 0, mirrored: bool = False, activation: str = "relu") -> PolicyNet:
    rng, c = torch.Generator().manual_seed(0), contract_of(choices=choices)
    mirror = None
    if mirrored:
        mirror = Mirror(np.array([1, 0, 2, 3]), np.array([1, 1, -1, 1]), np.array([1, 0]), np.ones(2))
    actor = Actor(mlp(4, (hidden,), choices or 2, activation, 1.0, rng), mirror, activation=activation)
    return PolicyNet(c, actor, (np.array([0.1, -0.2, 0.3, 0.0]), np.array([1.0, 2.0, 0.5, 1.0])))


def encoded(kind: str, history: int = 12, activation: str = "tanh") -> PolicyNet:
    """A policy with an encoder as learning makes it, its weights at random."""
    rng, frame = torch.Generator().manual_seed(0), 4
    c = contract_of(history)
    reads = np.arange(2) + (history - 1) * frame if kind == "mlp" else np.arange(history * frame)
    keeps = np.arange((history - 1) * frame + 2, history * frame)
    encoder = Encoder(kind, reads, history, 3, activation, rng, 16)
    actor = Actor(mlp(len(keeps) + 3, (8,), 2, activation, 1.0, rng), None, encoder, keeps, activation)
    torch.nn.init.normal_(encoder.out.weight, generator=rng)
    torch.nn.init.normal_(encoder.out.bias, generator=rng)
    return PolicyNet(c, actor, (np.full(c.obs_dim, 0.3), np.full(c.obs_dim, 1.5)))


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
@pytest.mark.parametrize("history", [1, 3, 12, 25])
@pytest.mark.parametrize("kind", ["mlp", "conv", "gru"])
def test_an_encoder_answers_the_same_in_torch_and_onnx_and_after_reading(tmp_path, kind, history, activation):
    policy = encoded(kind, history, activation)
    obs = np.random.default_rng(1).standard_normal((9, 4 * history)).astype(np.float32)
    path = export.save(policy, tmp_path)
    again = bundle.load(tmp_path)
    assert np.allclose(again(obs), policy(obs), atol=1e-5) and export.onnx_difference(policy, path) < 1e-5
    assert np.array_equal(export.load_net(tmp_path)(obs), policy(obs))
    with torch.no_grad():
        latent = policy.actor.encoder(policy.normalised(torch.from_numpy(obs))).numpy()
    assert again.adapts and np.allclose(again.latent(obs), latent, atol=1e-5)
    moved = obs.copy()
    moved[:, 0 if kind != "mlp" else -4] += 1.0  # the oldest number, or the first the encoder reads
    assert not np.array_equal(again(moved), again(obs))


def test_a_net_whose_layers_do_not_fit_is_refused():
    good = encoded("conv")
    spec, state = good.spec(), good.state_dict()
    for changed, tensors, message in (
        (spec | {"sizes": [7, 8, 2]}, state, "do not fit"),
        (spec | {"activation": "os.system"}, state, "no activation matches"),
        (spec, {k: v for k, v in state.items() if k != "mean"}, "do not fit"),
        (spec, state | {"sd": state["sd"] * np.nan}, "NaN"),
        ({k: v for k, v in spec.items() if k != "encoder"}, state, "do not fit"),
    ):
        with pytest.raises(SurefootError, match=message):
            build(changed, good.contract, tensors, "net")


@pytest.mark.parametrize(
    "policy", [net(), net(choices=3), net(mirrored=True), net(activation="elu"), net(activation="tanh")]
)
def test_a_saved_policy_answers_the_same_and_knows_its_contract(tmp_path, policy):
    path = export.save(policy, tmp_path)
    again = bundle.load(tmp_path)
    obs = np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32)
    assert np.allclose(policy(obs), again(obs), atol=1e-6) and again.contract == policy.contract
    assert export.onnx_difference(policy, path) < 1e-5 and not again.adapts
    assert sorted(p.name for p in tmp_path.iterdir()) == ["policy.onnx", "policy.safetensors"]
    assert export.digest(export.load_net(path)) == export.digest(policy)


def test_a_symmetric_policy_answers_the_mirror_image_by_the_mirrored_answer(tmp_path):
    export.save(net(mirrored=True), tmp_path)
    policy, obs = bundle.load(tmp_path), np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32)
    scales = np.array([0.1, -0.2, 0.3, 0.0]), np.array([1.0, 2.0, 0.5, 1.0])
    z = (obs - scales[0]) / scales[1]
    image = ((z[:, [1, 0, 2, 3]] * [1, 1, -1, 1]) * scales[1] + scales[0]).astype(np.float32)
    assert np.allclose(policy(image), policy(obs)[:, [1, 0]], atol=1e-5)


def test_an_onnx_carries_the_fields_common_keys(tmp_path):
    export.save(net(), tmp_path)
    meta = bundle.load(tmp_path).graph.metadata
    assert meta["joint_names"] == "a,b" and meta["observation_names"] == "x" and meta["action_scale"] == "1.0,1.0"


def test_an_onnx_that_differs_from_its_net_is_refused(tmp_path):
    path, other = export.save(net(), tmp_path), net()
    with torch.no_grad():
        other.actor.body[-1].bias += 0.01
    with pytest.raises(SurefootError, match="not fit to deploy"):
        export.onnx_difference(other, path)


def resealed(folder, change):
    """What someone may write who knows how files are sealed."""
    path = folder / "policy.onnx"
    card = json.loads(bundle.load(path).graph.metadata["surefoot"])
    change(card)
    path.write_bytes(bundle.sealed(export.onnx_bytes(net()), card))


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda c: c.update(format=99), "format: expected 2, found 99"),
        (lambda c: c.pop("golden"), "golden: found nothing"),
        (lambda c: c["golden"]["out"][0].__setitem__(0, 9.0), "answers differently"),
        (lambda c: c["golden"]["control"][0].__setitem__(0, 9.0), "other controls"),
        (lambda c: c["contract"]["action"].update(scale=[-10.0, 1.0]), "other controls"),
        (lambda c: c.update(extra=1), "no field matches 'extra'"),
    ],
)
def test_a_policy_that_does_not_fit_together_is_refused_by_name(tmp_path, change, said):
    export.save(net(), tmp_path)
    resealed(tmp_path, change)
    with pytest.raises(SurefootError, match=said):
        bundle.load(tmp_path)


def test_a_changed_missing_or_older_file_is_refused_in_words(tmp_path):
    path = export.save(net(), tmp_path)
    data = path.read_bytes()
    for at in np.linspace(0, len(data) - 1, 40).astype(int):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(SurefootError):
            bundle.load(tmp_path)
    path.write_bytes(data)
    (tmp_path / "policy.safetensors").write_bytes(b"other")
    assert bundle.load(tmp_path).contract.task == "balance"
    with pytest.raises(SurefootError, match="not the weights policy.onnx was written with"):
        export.load_net(tmp_path)
    path.unlink()
    with pytest.raises(SurefootError, match="no policy here"):
        bundle.load(tmp_path)
    (tmp_path / "policy.json").write_text("{}")
    with pytest.raises(SurefootError, match="an earlier version of surefoot wrote this policy; train it again"):
        bundle.load(tmp_path)


def safetensors_of(header: dict, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95pickle",
        struct.pack("<Q", 2**63) + b"{}",
        safetensors_of({"mean": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, b"0000"),
        safetensors_of(
            {
                "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]},
            },
            b"000000",
        ),
        safetensors_of({"mean": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}}, b"0000"),
        safetensors_of({f"t{k}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for k in range(100_000)}),
        safetensors_of(
            {"mean": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, struct.pack("<f", float("nan"))
        ),
    ],
    ids=["empty", "pickle", "huge header", "shape overflow", "overlap", "beyond the end", "1e5 tensors", "nan"],
)
def test_hostile_weights_are_refused_even_when_their_hash_agrees(tmp_path, data):
    export.save(net(), tmp_path)
    (tmp_path / "policy.safetensors").write_bytes(data)
    resealed(tmp_path, lambda c: c.update(weights=files.sha256(data)))
    with pytest.raises(SurefootError):
        export.load_net(tmp_path)


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    files.write_json(path, {"a": 1})

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(SurefootError, match=r"x.json: could not write .* No space left on device"):
        files.write_json(path, {"a": 2})
    assert files.read_json(path) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == ["x.json"]


class Counter(Policy):
    """Answers how often it was asked in this episode."""

    def __init__(self, contract: Contract):
        self.contract = contract

    def init(self, n):
        return {"count": np.zeros((n, 1))}

    def step(self, s, obs):
        return {"count": s["count"] + 1}, np.repeat(s["count"], 2, 1)


def test_a_driver_keeps_a_policys_state_and_begins_it_anew_where_episodes_do():
    drive, obs = Driver(Counter(contract_of()), 3), np.zeros((3, 4), np.float32)
    assert [drive(obs)[:, 0].tolist() for _ in range(2)] == [[0, 0, 0], [1, 1, 1]]
    drive.begin(np.array([False, True, False]))
    assert drive(obs)[:, 0].tolist() == [2, 0, 2]


def test_zero_and_random_fit_every_task():
    from surefoot.tasks.rollout import contract

    for name in tasks.names():
        task = tasks.resolve(name)
        env = tasks.env(task, 3)
        obs = env.reset()["actor"]
        c = contract(task, env.world)
        c.check(name)
        assert c.obs_dim == obs.shape[1] and c.rate == pytest.approx(50.0)
        shape = (3, 1 if task.action.choices else len(task.action.names))
        assert Zero(c)(obs).shape == shape and Random(c, 1)(obs).shape == shape
        assert np.array_equal(Random(c, 1)(obs), Random(c, 1)(obs)) and not np.array_equal(
            Random(c, 1)(obs), Random(c, 2)(obs)
        )
    assert c.kp == pytest.approx((35.0,) * 12) and c.kd == pytest.approx((0.6,) * 12)
    assert c.joints == c.action.names and c.home == pytest.approx(tuple(c.action.offset))


def test_golden_vectors_go_from_readings_to_controls_for_every_task_a_robot_can_do(tmp_path):
    from surefoot.tasks import golden
    from surefoot.tasks.rollout import contract

    for name in ("balance", "hover", "arm", "walk"):
        task = tasks.resolve(name)
        env = tasks.env(task, 1)
        c = contract(task, env.world)
        policy = Random(c, 3)
        found = golden.recorder(env.task, env.world)(policy)
        assert len(found["obs"]) >= 4 and not found["raw"]
        again = bundle.Golden(
            found["readings"], found["parts"], {}, found["obs"], np.zeros(0), np.zeros(0)
        ).observations(c, name)
        assert np.allclose(again, found["obs"], atol=2e-6), name
        turned = replace(c.observation, terms=tuple(replace(t, scale=-1.0) for t in c.terms))
        other = bundle.Golden(found["readings"], found["parts"], {}, found["obs"], np.zeros(0), np.zeros(0))
        assert not np.allclose(other.observations(replace(c, observation=turned), name), found["obs"], atol=1e-3)


def reweighed(folder, arrays):
    """Other weights, whose hash stands in the sealed card."""
    from safetensors.numpy import save

    data = save(arrays)
    (folder / "policy.safetensors").write_bytes(data)
    resealed(folder, lambda card: card.update(weights=files.sha256(data)))


def test_weights_that_answer_otherwise_than_the_onnx_are_not_learned_upon(tmp_path):
    """Someone who can seal could otherwise have one policy judged and another one learned from."""
    export.save(net(), tmp_path)
    arrays = {k: v.numpy().copy() for k, v in net().state_dict().items()}
    reweighed(tmp_path, arrays)
    assert export.digest(export.load_net(tmp_path)) == export.digest(net())
    for name, value in (("mean", 3.0), ("sd", 0.0)):
        reweighed(tmp_path, arrays | {name: np.full(4, value, np.float32)})
        with pytest.raises(SurefootError, match="policy.safetensors: answers of onnxruntime differ from torch"):
            export.load_net(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [4, 10**9, 10**9, 2]},
        {"sizes": [4] * 100_000},
        {"sizes": []},
        {"encoder": {"kind": "gru", "reads": 4, "frames": 1, "latent": 2, "width": 10**6, "keeps": 4}},
    ],
)
def test_no_net_is_made_that_is_larger_than_its_weights(change):
    state = net().state_dict()
    with pytest.raises(SurefootError, match="its layers do not fit: found layers of"):
        build(net().spec() | change, contract_of(), state, "net")
