"""Policies that are learned: one algorithm, one file."""

import ctypes
import os
import sys

# Before torch is loaded: its idle threads must sleep, not spin, or a shared machine slows tenfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGEST = -1, -3, 1 << 30  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Freed activations stay with the process: handing them back and faulting them in again is a tenth of a gradient step."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt"):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGEST)
        ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, LARGEST)
