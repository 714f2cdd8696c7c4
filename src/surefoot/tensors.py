"""Arrays in safetensors files, whose header is held against the file and against reason before it is parsed."""

import struct

import numpy as np

from surefoot.errors import SurefootError

LONGEST_HEADER = 1 << 20  # bytes; a hundred tensors take ten thousand


def parse_tensors(data: bytes, where: str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    header = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else len(data)
    if header > min(len(data) - 8, LONGEST_HEADER):
        raise SurefootError(
            f"{where}: not a safetensors file of ours: a header of {header} bytes in a file of {len(data)}"
        )
    try:
        return dict(load(data))
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise SurefootError(f"{where}: not a safetensors file: {error}") from error
