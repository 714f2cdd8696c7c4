"""Policies and their contracts: what is written is what is read, and nothing else is."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

from surefoot import files, tasks
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.policy import Contract, Net, Random, Told, Zero


def net(hidden=5, choices=0, mirrored=False, activation="relu") -> Net:
    rng = np.random.default_rng(0)
    f = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    c = Contract(
        "balance", 50.0, (Told("x", 4, "m", 1.0, 10.0),), 1, ("a", "b"), "N", (0.0, 0.0), (1.0, 1.0), 1.0, choices
    )
    arrays = {
        "w0": f(hidden, 4),
        "b0": f(hidden),
        "w1": f(choices or 2, hidden),
        "b1": f(choices or 2),
        "mean": f(4),
        "sd": np.ones(4, np.float32),
    }
    if mirrored:
        arrays |= {"obs_order": np.array([1, 0, 2, 3]), "obs_sign": np.array([1, 1, -1, 1], np.float32)}
        arrays |= {"action_order": np.array([1, 0]), "action_sign": np.array([1, 1], np.float32)}
    return Net(c, arrays, activation)


def encoded(kind: str, history: int = 12, activation: str = "tanh") -> Net:
    """A policy with an encoder as learning makes it, its weights at random."""
    import torch

    from surefoot.learn.nets import Actor, Encoder, mlp

    rng, frame = torch.Generator().manual_seed(0), 4
    c = replace(net().contract, history=history)
    reads = np.arange(2) + (history - 1) * frame if kind == "mlp" else np.arange(history * frame)
    keeps = np.arange((history - 1) * frame + 2, history * frame)
    encoder = Encoder(kind, reads, history, 3, activation, rng, 16)
    actor = Actor(mlp(len(keeps) + 3, (8,), 2, activation, 1.0, rng), None, encoder, keeps)
    torch.nn.init.normal_(actor.encoder.out.bias, generator=rng)
    scale = {"mean": np.full(c.obs_dim, 0.3, np.float32), "sd": np.full(c.obs_dim, 1.5, np.float32)}
    return Net(c, actor.arrays() | scale, activation, kind)


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
@pytest.mark.parametrize("history", [1, 3, 12, 25])
@pytest.mark.parametrize("kind", ["mlp", "conv", "gru"])
def test_an_encoder_answers_the_same_in_torch_numpy_on_disk_and_in_onnx(tmp_path, kind, history, activation):
    import onnx
    import torch
    from surefoot.learn.check import as_torch, onnx_difference

    policy = encoded(kind, history, activation)
    obs = np.random.default_rng(1).standard_normal((9, 4 * history)).astype(np.float32)
    with torch.no_grad():
        expected = as_torch(policy)(torch.from_numpy(policy.normalised(obs))).numpy()
    assert np.allclose(policy(obs), expected, atol=1e-5)
    bundle.save(policy, tmp_path)
    assert np.array_equal(bundle.load(tmp_path)(obs), policy(obs))
    bundle.export_onnx(policy, tmp_path / "p.onnx")
    assert onnx_difference(policy, tmp_path / "p.onnx") < 1e-5
    graph = onnx.load(tmp_path / "p.onnx").graph
    assert {c.name for c in graph.initializer} <= {name for n in graph.node for name in n.input}  # nothing unused
    moved = obs.copy()
    moved[:, 0 if kind != "mlp" else -4] += 1.0  # the oldest number, or the first the encoder reads
    assert not np.array_equal(policy(moved), policy(obs))


def test_an_encoder_that_does_not_fit_is_refused():
    good = encoded("conv")
    for change, message in (
        ({"reads": np.arange(47)}, "47 columns are no 12 frames"),
        ({"keeps": np.array([48])}, "expected columns below 48"),
        ({"latent_w": good.arrays["latent_w"][:, :-1]}, "do not fit"),
        ({"enc_b0": good.arrays["enc_b0"] * np.nan}, "NaN"),
    ):
        with pytest.raises(SurefootError, match=message):
            replace(good, arrays=dict(good.arrays) | change)
    with pytest.raises(SurefootError, match="encoder matches 'cnv'"):
        replace(good, encoder="cnv")


@pytest.mark.parametrize(
    "policy", [net(), net(choices=3), net(mirrored=True), net(activation="elu"), net(activation="tanh")]
)
def test_a_saved_policy_answers_the_same_and_so_does_its_onnx(tmp_path, policy):
    from surefoot.learn.check import onnx_difference

    bundle.save(policy, tmp_path)
    again = bundle.load(tmp_path)
    obs = np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32)
    assert np.array_equal(policy(obs), again(obs)) and again.contract == policy.contract
    bundle.export_onnx(again, tmp_path / "p.onnx")
    assert onnx_difference(again, tmp_path / "p.onnx") < 1e-5
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "p.onnx",
        "policy.json",
        "policy.safetensors",
    ]  # one file, no .data


def test_an_onnx_carries_the_contract_whole_and_the_fields_common_keys(tmp_path):
    import onnx

    bundle.export_onnx(net(), tmp_path / "p.onnx")
    meta = {p.key: p.value for p in onnx.load(tmp_path / "p.onnx").metadata_props}
    assert Contract.from_json(json.loads(meta["surefoot"])) == net().contract
    assert meta["joint_names"] == "a,b" and meta["observation_names"] == "x"


def test_an_onnx_that_differs_from_its_net_is_refused(tmp_path):
    from surefoot.learn.check import onnx_difference

    bundle.export_onnx(net(), tmp_path / "p.onnx")
    other = replace(net(), arrays=dict(net().arrays, b1=net().arrays["b1"] + 0.01))
    with pytest.raises(SurefootError, match="not fit to deploy"):
        onnx_difference(other, tmp_path / "p.onnx")


def broken(tmp_path, change):
    bundle.save(net(), tmp_path)
    change(tmp_path)
    with pytest.raises(SurefootError) as caught:
        bundle.load(tmp_path)
    return str(caught.value)


def edit(change):
    def do(folder):
        card = files.read_json(folder / "policy.json")
        change(card)
        files.write_json(folder / "policy.json", card)

    return do


@pytest.mark.parametrize(
    "change, said",
    [
        (edit(lambda c: c["contract"].pop("rate")), "rate"),
        (edit(lambda c: c["contract"].update(rat=1)), "no field matches 'rat'.*did you mean rate"),
        (edit(lambda c: c["contract"].update(format=99)), "format: expected 1, found 99"),
        (edit(lambda c: c["contract"].update(action_scale=[1.0])), "action_scale: expected 2 numbers"),
        (edit(lambda c: c["contract"].update(rate=-5)), "rate: expected a frequency"),
        (edit(lambda c: c.update(sha256="0")), "not the weights"),
        (edit(lambda c: c.update(activation="os.system")), "no activation matches"),
        (edit(lambda c: c["golden"]["out"][0].__setitem__(0, 9.0)), "answers differently"),
        (edit(lambda c: c.pop("golden")), "golden"),
        (lambda f: (f / "policy.json").write_text("{"), "expected JSON"),
        (lambda f: (f / "policy.json").write_text('{"contract": NaN}'), "expected JSON"),
        (lambda f: (f / "policy.json").unlink(), "no such file"),
        (lambda f: (f / "policy.safetensors").unlink(), "no policy here"),
    ],
)  # fmt: skip
def test_a_policy_that_does_not_fit_together_is_refused_by_name(tmp_path, change, said):
    import re

    assert re.search(said, broken(tmp_path, change))


def safetensors_of(header: dict, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95pickle",
        struct.pack("<Q", 2**63) + b"{}",
        safetensors_of({"w0": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, b"0000"),
        safetensors_of(
            {
                "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]},
            },
            b"000000",
        ),
        safetensors_of({"w0": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}}, b"0000"),
        safetensors_of({f"t{k}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for k in range(100_000)}),
        safetensors_of({"w0": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, struct.pack("<f", float("nan"))),
    ],
    ids=["empty", "pickle", "huge header", "shape overflow", "overlap", "beyond the end", "1e5 tensors", "nan"],
)
def test_hostile_weights_are_refused_even_when_their_hash_agrees(tmp_path, data):
    bundle.save(net(), tmp_path)
    (tmp_path / "policy.safetensors").write_bytes(data)
    edit(lambda c: c.update(sha256=files.sha256(data)))(tmp_path)
    with pytest.raises(SurefootError):
        bundle.load(tmp_path)


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    files.write_json(path, {"a": 1})

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(SurefootError, match=r"x.json: could not write .* No space left on device"):
        files.write_json(path, {"a": 2})
    assert files.read_json(path) == {"a": 1} and [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_zero_and_random_fit_every_task():
    from surefoot.tasks.rollout import contract

    for name in tasks.TASKS:
        task = tasks.make(name)
        env = tasks.env(task, 3)
        obs = env.reset()["actor"]
        c = contract(task, env.world.model)
        c.check(name)
        assert c.obs_dim == obs.shape[1] and c.rate == pytest.approx(50.0)
        shape = (3, 1 if task.action.choices else len(task.action.names))
        assert Zero(c)(obs).shape == shape and Random(c, 1)(obs).shape == shape
        assert np.array_equal(Random(c, 1)(obs), Random(c, 1)(obs)) and not np.array_equal(
            Random(c, 1)(obs), Random(c, 2)(obs)
        )
    assert c.kp == pytest.approx((35.0,) * 12) and c.kd == pytest.approx((0.6,) * 12)
