"""Settings of cloning: what a command line parses. Nothing here needs torch."""

from dataclasses import dataclass
from typing import Literal

from surefoot.errors import SurefootError
from surefoot.learn.settings import Hidden, learns, widths, within

MOST = {
    "chunk": 256,
    "execute": 256,
    "updates": 10_000_000,
    "samples": 1 << 20,
    "sample_steps": 256,
    "learner_threads": 1024,
}


@dataclass(frozen=True)
class CloneSettings:
    """How a policy is cloned."""

    by: Literal["diffusion", "flow", "mse"] = "diffusion"
    """diffusion (DDPM, sampled by DDIM) or flow: keep each way that the logs show; mse: their mean, for one way only"""
    chunk: int = 8
    """actions that are learned together, so that ways do not mix; mse: 1"""
    execute: int = 4
    """actions of a chunk, at most all, that are executed before the next one is planned, whatever happens meanwhile; mse: 1"""
    updates: int = 6000
    """gradient steps"""
    samples: int = 256
    """rows of the logs for each of these"""
    lr: float = 1e-3
    """initial learning rate of AdamW; falls as a cosine to 0"""
    weight_decay: float = 1e-6
    """of AdamW"""
    hidden: Hidden = (256, 256)
    """widths of the hidden layers"""
    activation: Literal["relu", "elu", "tanh"] = "relu"
    """relu (quickest on a CPU), elu or tanh"""
    share: float = 0.2
    """of the rows of each gradient step: how many are of the logs, where others are learned beside them"""
    sample_steps: int = 10
    """steps from noise to action: DDIM's, or Euler's"""
    start: float = 1.0
    """standard deviation of the policy's one start: the first of 16 draws whose answers move little when it is moved; 0: zero, which may be between two ways"""
    learner_threads: int = 1
    """threads of the learner; a setting, because sums split otherwise have other last bits"""

    def __post_init__(self) -> None:
        within(self, "", **{name: (1, most) for name, most in MOST.items()})
        for name in ("lr", "weight_decay", "start"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SurefootError(f"{name}: expected a finite number >= 0, found {getattr(self, name)}")
        if not 0 < self.share < 1:
            raise SurefootError(f"share: expected a number between 0 and 1, found {self.share:g}")
        learns(self, "", "lr")
        widths(self, "", "hidden")
