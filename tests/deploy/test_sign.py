"""Signatures: RFC 8032's own vector, and every way in which a signed policy is not the one that was signed."""

import numpy as np
import pytest

from surefoot import files, tasks
from surefoot.cli import main
from surefoot.deploy import sign
from surefoot.errors import SurefootError
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import linear
from surefoot.tasks.rollout import contract

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization", reason="needs the sign extra")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519", reason="needs the sign extra")


def keys(folder, name, seed: bytes):
    private = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / f"{name}.pem").write_bytes(pem)
    (folder / f"{name}.pub").write_bytes(public)
    return folder / f"{name}.pem", folder / f"{name}.pub"


@pytest.fixture
def policy(tmp_path):
    task = tasks.named("balance")
    law = linear(contract(task, tasks.env(task, 1).world), {"cart_pole": np.array([[1.0, 2.0, 20.0, 4.0]])})
    return export.save(law, tmp_path / "law")


def test_the_public_key_in_a_signature_is_that_of_rfc_8032(tmp_path, policy):
    """Section 7.1, test 1: the secret key and its public key."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    private, public = keys(tmp_path, "k", seed)
    path = sign.sign(policy, private)
    assert files.read_json(path)["public_key"] == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    sign.verify(policy, public)


def test_another_file_key_or_signature_is_refused(tmp_path, policy):
    private, public = keys(tmp_path, "mine", bytes(range(32)))
    _, other = keys(tmp_path, "other", bytes(32))
    with pytest.raises(SurefootError, match="expected the policy to be signed"):
        sign.verify(policy, public)
    path = sign.sign(policy, private)
    with pytest.raises(SurefootError, match="its signature is not one by"):
        sign.verify(policy, other)
    for key, said in ((policy, "expected a public ed25519 key"), (private, "expected a public ed25519 key")):
        with pytest.raises(SurefootError, match=said):
            sign.verify(policy, key)
    with pytest.raises(SurefootError, match="expected a private ed25519 key"):
        sign.sign(policy, public)
    good = files.read_json(path)
    turned = ("0" if good["signature"][0] != "0" else "1") + good["signature"][1:]
    for change, said in (
        ({"signature": turned}, "its signature is not one by"),
        ({"signature": "zz"}, "expected hexadecimal digits"),
        ({"signature": 5}, "signature: expected text"),
        ({"format": 9}, "format: expected 1"),
        ({"more": 1}, "no field matches 'more'"),
    ):
        files.write_json(path, good | change)
        with pytest.raises(SurefootError, match=said):
            sign.verify(policy, public)
    files.write_json(path, good)
    data = policy.read_bytes()
    for at in range(0, len(data), len(data) // 30):
        policy.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(SurefootError, match="its signature is not one by"):
            sign.verify(policy, public)


def test_export_signs_what_it_writes(tmp_path, policy, capsys):
    private, public = keys(tmp_path, "k", bytes(range(32)))
    out = tmp_path / "shipped.onnx"
    assert main(["export", str(policy), "--out", str(out), "--sign", str(private)]) == 0
    assert "signed" in capsys.readouterr().out
    sign.verify(out, public)
