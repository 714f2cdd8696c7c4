"""Signatures of policies: who wrote this file, and that it is the one they wrote (ed25519).

    signature = ed25519(private key, "surefoot policy\\0" + sha256(all bytes of policy.onnx))

A seal tells of damage; anyone can seal again. A signature tells who wrote it: without the private key there is no other. Keys
are PEM files as OpenSSL makes them: `openssl genpkey -algorithm ed25519 -out key.pem`, `openssl pkey -in key.pem -pubout -out key.pub`.
"""

from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.deploy import bundle
from surefoot.errors import MissingExtra, SurefootError
from surefoot.typed import known_fields, text

FORMAT = 1
PURPOSE = b"surefoot policy\0"
LARGEST = 2**16  # bytes of a key or a signature's file


def beside(policy: Path) -> Path:
    """Where a policy's signature is."""
    return policy.with_name(policy.name + ".sig")


def sign(policy: Path, key: Path) -> Path:
    """Write the signature of a policy beside it; returns its path."""
    serialization, ed25519, _ = _library()
    try:
        private = serialization.load_pem_private_key(files.read_bytes(key, LARGEST), password=None)
    except (ValueError, TypeError) as error:
        raise SurefootError(f"{key}: expected a private ed25519 key (PEM, no password): {error}") from None
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise SurefootError(f"{key}: expected an ed25519 key, found {type(private).__name__}")
    signature = private.sign(_message(policy))
    public = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    files.write_json(beside(policy), {"format": FORMAT, "public_key": public.hex(), "signature": signature.hex()})
    return beside(policy)


def verify(policy: Path, key: Path) -> None:
    """Refuse a policy that the owner of this public key did not sign."""
    serialization, ed25519, invalid = _library()
    try:
        public = serialization.load_pem_public_key(files.read_bytes(key, LARGEST))
    except (ValueError, TypeError) as error:
        raise SurefootError(f"{key}: expected a public ed25519 key (PEM): {error}") from None
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise SurefootError(f"{key}: expected an ed25519 key, found {type(public).__name__}")
    path = beside(policy)
    if not path.exists():
        raise SurefootError(f"{path}: no such file; expected the policy to be signed: surefoot export --sign KEY")
    body = known_fields(files.read_json(path, LARGEST), {"format", "public_key", "signature"}, {"format", "signature"}, str(path))  # fmt: skip
    if body["format"] != FORMAT:
        raise SurefootError(f"{path}: format: expected {FORMAT}, found {str(body['format'])[:80]}")
    signature = text(body["signature"], f"{path}: signature")
    try:
        public.verify(bytes.fromhex(signature), _message(policy))
    except ValueError:
        raise SurefootError(f"{path}: signature: expected hexadecimal digits") from None
    except invalid:
        raise SurefootError(
            f"{policy}: its signature is not one by {key}: another key, or another file, was signed"
        ) from None


def _message(policy: Path) -> bytes:
    return PURPOSE + bytes.fromhex(files.sha256(files.read_bytes(policy, bundle.LARGEST)))


def _library() -> tuple[Any, Any, Any]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtra("signing a policy", "sign") from None
    return serialization, ed25519, InvalidSignature
