"""Settings of the off-policy learners: what a command line parses. Nothing here needs torch, which takes seconds to import."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from surefoot.errors import SurefootError
from surefoot.learn.settings import Batched, Hidden, learns, widths, within

MOST_SAMPLES = 1 << 20  # transitions of a gradient step
MOST_ATOMS = 4096


@dataclass(frozen=True)
class ReplaySettings(Batched):
    """What the learners with a replay share."""

    learner: ClassVar[str]

    envs: int = 128
    steps: int = 500_000
    horizon: int = 8
    updates: int = 16
    """gradient steps, of the critics, after each of these"""
    samples: int = 1024
    """transitions of a gradient step, drawn from the replay"""
    replay: int = 2048
    """transitions of each simulation that are kept, the newest; checkpoints hold them"""
    warm_up: int = 10_000
    """env steps before the first gradient step"""
    gamma: float = 0.99
    """discount factor a step"""
    tau: float = 0.05
    """share by which targets follow what is learned in a gradient step, and the exported actor the actor"""
    lr: float = 1e-3
    """learning rate of Adam; falls to a tenth"""
    hidden: Hidden = (128, 128)
    """widths of the hidden layers of the actor"""
    activation: Literal["relu", "elu", "tanh"] = "relu"
    """relu (quickest on a CPU), elu or tanh"""

    @property
    def where(self) -> str:
        """What its flags begin with."""
        return f"{self.learner}."

    def check_replay(self) -> None:
        self.check(("updates", "samples", "replay"), ("warm_up", "lr"), self.where)
        within(self, self.where, gamma=(0, 1), tau=(0, 1))
        learns(self, self.where, "lr", "tau")
        widths(self, self.where, "hidden")


@dataclass(frozen=True)
class OffPolicySettings(ReplaySettings):
    """What the learners with critics of the task's reward share."""

    n_step: int = 3
    """steps of reward before the critic's own value takes over"""
    weight_decay: float = 0.001
    """of AdamW"""
    actor_after: int = 20_000
    """env steps before the first gradient step of the actor: critics that know little lead it astray"""
    actor_every: int = 2
    """gradient steps of the critics for one of the actor"""
    action_penalty: float = 0.05
    """weight, against the mean size of the values, of the actor's squared outputs before tanh, falling to 0 at half of the
    steps: without it an actor that follows critics which know little ends where tanh is flat"""
    value: Literal["c51", "two_hot", "mean"] = "c51"
    """what the critics learn of the return: its distribution on atoms whose range is found by itself, or its mean, by
    cross-entropy on symlog atoms (two_hot) or by its error (mean, the quickest on a CPU)"""
    atoms: int = 51
    """atoms of a distribution"""
    critic_hidden: Hidden = (256, 128)
    """widths of the hidden layers of the critics"""
    layer_norm: bool = True
    """normalise the critics' hidden layers"""
    symmetric: bool = True
    """use the task's left-right symmetry where it has one"""

    def check_shared(self) -> None:
        self.check_replay()
        self.check(("n_step", "actor_every"), ("actor_after", "weight_decay", "action_penalty"), self.where)
        within(self, self.where, samples=(1, MOST_SAMPLES), atoms=(2, MOST_ATOMS))
        if self.replay <= max(self.n_step, self.horizon):
            raise SurefootError(f"{self.where}replay: expected more than n_step and horizon, found {self.replay}")
        widths(self, self.where, "critic_hidden")


@dataclass(frozen=True)
class FastTD3Settings(OffPolicySettings):
    """Settings of FastTD3: a deterministic actor, twin critics, exploration of its own in each simulation."""

    learner: ClassVar[str] = "fasttd3"

    explore: tuple[float, float] = (0.05, 0.4)
    """standard deviation of what is added to actions, as a share of their limit: drawn between these for each episode"""
    target_noise: float = 0.2
    """standard deviation of what is added to the next action in the critics' targets"""
    target_clip: float = 0.5
    """largest magnitude of that"""

    def __post_init__(self) -> None:
        self.check_shared()
        self.check((), ("target_noise", "target_clip"), "fasttd3.")
        if not 0 <= self.explore[0] <= self.explore[1] < float("inf"):
            raise SurefootError(f"fasttd3.explore: expected 0 <= least <= largest, found {self.explore}")


@dataclass(frozen=True)
class FastSACSettings(OffPolicySettings):
    """Settings of FastSAC: a stochastic actor whose entropy is held, twin critics whose mean it follows."""

    learner: ClassVar[str] = "fastsac"

    alpha: float = 0.01
    """weight of the entropy at the start; it is then learned"""
    target_entropy: float = -0.5
    """entropy of an action that alpha is learned for, in nats for each of its numbers, of limit 1"""
    log_sd: tuple[float, float] = (-5.0, 0.0)
    """least and largest logarithm of the actions' standard deviation, before they are squashed"""

    def __post_init__(self) -> None:
        self.check_shared()
        self.check((), ("alpha",), "fastsac.")
        if self.alpha == 0:
            raise SurefootError("fastsac.alpha: expected more than 0")
        if not -20 <= self.log_sd[0] < self.log_sd[1] <= 2:
            raise SurefootError(f"fastsac.log_sd: expected -20 <= least < largest <= 2, found {self.log_sd}")
        if not abs(self.target_entropy) < 100:
            raise SurefootError(f"fastsac.target_entropy: expected -100 to 100, found {self.target_entropy:g}")
