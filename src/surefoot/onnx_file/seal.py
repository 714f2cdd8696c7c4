"""What a file of ours says of itself: a card in the ONNX metadata, and a seal over all bytes.

metadata `surefoot`: the card, JSON;  `sha256`: of all bytes of the file, with the hash itself written as zeros
"""

import json
from collections.abc import Mapping
from typing import Any

from surefoot import files
from surefoot.errors import MissingExtra, SurefootError
from surefoot.onnx_file import Graph

CARD = "surefoot"
NO_HASH = "0" * 64


def sealed(data: bytes, card: Mapping[str, Any], more: Mapping[str, str] | None = None) -> bytes:
    """An ONNX file with its card, other metadata, and the hash of all of it."""
    try:
        import onnx
    except ImportError:
        raise MissingExtra("writing an ONNX file", "export") from None
    model = onnx.load_model_from_string(data)
    metadata = {CARD: json.dumps(card, allow_nan=False), "sha256": NO_HASH, **(more or {})}
    onnx.helper.set_model_props(model, metadata)
    blank: bytes = model.SerializeToString()
    if blank.count(NO_HASH.encode()) != 1:
        raise SurefootError("ONNX file: expected no other row of 64 zeros in it")
    return blank.replace(NO_HASH.encode(), files.sha256(blank).encode())


def read_card(graph: Graph, where: str) -> Any:
    """The card of a file; refused where the file was changed since it was sealed."""
    check_seal(graph.data, graph.metadata.get("sha256", ""), where)
    card = graph.metadata.get(CARD, "")
    if len(card) > files.LARGEST_JSON:
        raise SurefootError(f"{where}: card: found {len(card)} characters, expected at most {files.LARGEST_JSON}")
    return files.parse_json(card, f"{where}: card")


def check_seal(data: bytes, written: str, where: str) -> None:
    """The bytes are those that were sealed, all of them."""
    if len(written) != 64 or data.count(written.encode()) != 1:
        raise SurefootError(f"{where}: no seal (sha256) in it; expected a file that surefoot wrote")
    if files.sha256(data.replace(written.encode(), NO_HASH.encode())) != written:
        raise SurefootError(f"{where}: changed since it was written (sha256 differs)")
