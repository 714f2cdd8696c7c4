"""Policies that are learned: one algorithm, one file."""

import os

# Before torch is loaded: its idle threads must sleep, not spin, or a shared machine slows tenfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
