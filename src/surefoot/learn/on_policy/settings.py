"""Settings of the on-policy learners beside PPO: what a command line parses. Nothing here needs torch."""

from dataclasses import dataclass, fields
from typing import ClassVar

from surefoot.errors import SurefootError
from surefoot.learn.settings import GaussianSettings, OnPolicySettings, within

MOST_BLOCKS = 64
MOST_PAIRS, MOST_FLOW_STEPS, MOST_WAIT = 256, 256, 1_000_000


@dataclass(frozen=True)
class SAPGSettings(GaussianSettings):
    """Settings of SAPG: followers that explore, and a leader that learns from their steps, too."""

    learner: ClassVar[str] = "sapg"
    shares: ClassVar[tuple[str, ...]] = tuple(f.name for f in fields(GaussianSettings) if f.name != "entropy")

    blocks: int = 6
    """equal parts of the simulations: all but one belong to followers, the last to the leader"""
    entropy: float = 0.01
    """weight of the entropy bonus of the first follower; it falls evenly to 0, the leader's"""
    lent: int = 1
    """followers whose steps of a batch the leader learns from, too, drawn for each; 0: none, and nothing is shared but the net"""
    embed: int = 16
    """numbers, learned for each block, that tell the net whose policy it is"""

    def __post_init__(self) -> None:
        self.check_gaussian("sapg.")
        self.check(("embed",), (), "sapg.")
        within(self, "sapg.", blocks=(2, MOST_BLOCKS))
        if not 0 <= self.lent < self.blocks:
            raise SurefootError(f"sapg.lent: expected 0 to {self.blocks - 1}, the followers, found {self.lent}")


@dataclass(frozen=True)
class FPOSettings(OnPolicySettings):
    """Settings of FPO: a flow in place of a normal distribution."""

    learner: ClassVar[str] = "fpo"
    shares: ClassVar[tuple[str, ...]] = ("envs", "steps", "horizon", "gamma", "lam", "hidden", "activation", "minibatches", "symmetric", "learner_threads")  # fmt: skip

    plus: bool = True
    """FPO++: a ratio for each pair, and a square that holds back how far bad actions are pushed away; else FPO"""
    clip: float = 0.2
    """PPO clip range epsilon, of ratios of flow losses, which are in units of their mean"""
    epochs: int = 8
    """passes over each batch"""
    lr: float = 3e-3
    """learning rate of Adam; falls to a tenth"""
    pairs: int = 8
    """pairs of noise and time for each env step, of which its ratio is made"""
    flow_steps: int = 10
    """Euler steps from noise to action"""
    spread: float = 0.5
    """standard deviation of the actions at the start of learning, and the unit in which the flow has them"""
    start: float = 0.0
    """standard deviation of the one start of the exported policy: 0, or a draw that the file keeps, where two ways are equally good"""
    wait: int = 0
    """first iterations, in which only the critic learns; from a clone (--start), at least 5"""

    def __post_init__(self) -> None:
        self.check_shared("fpo.")
        self.check(("pairs", "flow_steps"), ("spread", "start"), "fpo.")
        within(self, "fpo.", pairs=(1, MOST_PAIRS), flow_steps=(1, MOST_FLOW_STEPS), wait=(0, MOST_WAIT))
        if self.spread == 0:
            raise SurefootError("fpo.spread: expected more than 0: nothing would be tried")
