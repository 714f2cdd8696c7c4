"""Randomness is an argument: counter-based streams keyed by (seed, purpose, step).

A stream is made where it is used and thrown away, so nothing has to be saved to resume, and nothing depends on thread
count. Env i is row i of what a stream draws for all envs at that step, so what happens in one never moves another.
"""

import hashlib

import numpy as np


def key(seed: int, purpose: str, step: int = 0) -> int:
    """64 bits from (seed, purpose, step): the key of a NumPy stream, or a seed for another library's generator."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def stream(seed: int, purpose: str, step: int = 0) -> np.random.Generator:
    """The generator of (seed, purpose, step). Equal arguments give equal draws, any other argument independent ones."""
    return np.random.Generator(np.random.Philox(key=key(seed, purpose, step)))
