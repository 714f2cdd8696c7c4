"""Settings of fitting a residual force or a delta action to a log."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FitSettings:
    spans: tuple[float, ...] = (0.02, 0.06, 0.15)
    """s: window lengths over which a label is constant; the one whose nets predict best is kept"""
    rounds: int = 2
    """how often labels are computed again, about the Term fitted so far"""
    horizon: float = 0.5
    """s: length of the predictions by which nets are selected and tested"""
    members: int = 5
    """nets in the ensemble"""
    hidden: tuple[int, ...] = (32, 32)
    """widths of their layers"""
    updates: int = 1500
    """gradient steps of each fit"""
    batch: int = 256
    """windows in each"""
    rate: float = 0.01
    """largest step size"""
    decay: float = 0.01
    """weight decay: of two nets that fit alike, the flatter"""
    prior: float = 0.5
    """size of the random part of each net, relative to that of the labels: off the data the members differ by as much"""
    select: float = 0.16
    """fraction of the log, before its last part, that selects the span and the round"""
    held_out: float = 0.2
    """fraction of the log, its last part, that tests the result and is used for nothing else"""
