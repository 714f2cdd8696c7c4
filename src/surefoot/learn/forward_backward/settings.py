"""Settings of forward-backward representations: what a command line parses. Nothing here needs torch."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from surefoot.errors import SurefootError
from surefoot.learn.settings import Batched, Hidden

MOST_SAMPLES = 1 << 14  # transitions of a gradient step: every pair of them is compared
MOST_Z = 100  # numbers of z: sqrt(100) is the largest number that a policy's net is shown


@dataclass(frozen=True)
class FBSettings(Batched):
    """Settings of forward-backward representations."""

    learner: ClassVar[str] = "fb"

    envs: int = 64
    """simulations side by side"""
    steps: int = 200_000
    """env steps in all, rounded up to whole batches"""
    horizon: int = 8
    """env steps of each simulation between updates"""
    updates: int = 16
    """gradient steps after each of these"""
    samples: int = 512
    """transitions of a gradient step, drawn from the replay; every pair of them is compared"""
    replay: int = 4096
    """transitions of each simulation that are kept, the newest; checkpoints hold them"""
    warm_up: int = 10_000
    """env steps of random actions before the first gradient step"""
    gamma: float = 0.97
    """discount factor a step: how far ahead all that can be asked for is seen"""
    tau: float = 0.01
    """share by which the target maps follow the maps in a gradient step, and the exported actor the actor"""
    lr: float = 5e-4
    """learning rate of Adam; falls to a tenth"""
    z: int = 32
    """numbers of z, which says what is asked for"""
    goal_terms: tuple[str, ...] = ()
    """terms of the critic's observation that B sees: what rewards, goals and motions can be about; none: all but e, commands,
    clocks and the last action"""
    ortho: float = 10.0
    """weight of the orthonormality of B"""
    goals: float = 0.5
    """share of the z to learn for that mean a state that was met; the others are uniform on the sphere"""
    ask_every: int = 100
    """env steps after which a simulation is asked for something else"""
    wander: float = 0.25
    """share of the simulations that take random actions, held for a while, in place of the policy's"""
    explore: tuple[float, float] = (0.0, 0.3)
    """standard deviation of what is added to the others' actions: drawn between these each time something is asked for"""
    target_noise: float = 0.2
    """standard deviation of what is added to the next action in the targets"""
    target_clip: float = 0.3
    """largest magnitude of that"""
    pessimism: float = 0.5
    """how much of the two forward maps' disagreement the actor takes off their mean; 0.5: it follows the lower one"""
    action_penalty: float = 0.01
    """weight, against the mean size of the values, of the actor's squared outputs before tanh"""
    motions: tuple[str, ...] = ()
    """files of motions, logs with joint_pos: behaviours are kept near to states that these have (FB-CPR)"""
    style: float = 0.2
    """with motions: weight of that, against the mean size of the values"""
    window: int = 8
    """with motions: control periods of a window that a z means"""
    experts: float = 0.3
    """with motions: share of the z to learn for that mean a window of one"""
    slope: float = 10.0
    """with motions: weight of the discriminator's gradient penalty"""
    hidden: Hidden = (128, 128)
    """widths of the hidden layers of the actor"""
    forward_hidden: Hidden = (256, 256)
    """widths of the hidden layers of the two forward maps"""
    backward_hidden: Hidden = (128, 128)
    """widths of the hidden layers of the backward map"""
    activation: Literal["relu", "elu", "tanh"] = "relu"
    """relu (quickest on a CPU), elu or tanh"""
    learner_threads: int = 2
    """threads of the learner; a setting, because sums split otherwise have other last bits"""

    def __post_init__(self) -> None:
        counts = ("envs", "steps", "horizon", "updates", "samples", "replay", "ask_every", "window", "learner_threads")
        finite = (
            "warm_up",
            "gamma",
            "tau",
            "lr",
            "ortho",
            "goals",
            "wander",
            "target_noise",
            "target_clip",
            "pessimism",
        )
        self.check(counts, (*finite, "action_penalty", "style", "experts", "slope"), "fb.")
        for name, least, most in (
            ("gamma", 0, 1), ("tau", 0, 1), ("goals", 0, 1), ("wander", 0, 1), ("experts", 0, 1), ("z", 2, MOST_Z), ("samples", 2, MOST_SAMPLES),
        ):  # fmt: skip
            if not least <= getattr(self, name) <= most:
                raise SurefootError(f"fb.{name}: expected {least} to {most}, found {getattr(self, name):g}")
        for name in ("lr", "tau"):
            if getattr(self, name) == 0:
                raise SurefootError(f"fb.{name}: expected more than 0: nothing would be learned")
        if self.gamma == 1:
            raise SurefootError("fb.gamma: expected less than 1: what is visited would be counted without end")
        if self.replay <= self.horizon:
            raise SurefootError(f"fb.replay: expected more than horizon, found {self.replay}")
        for name in ("hidden", "forward_hidden", "backward_hidden"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise SurefootError(f"fb.{name}: expected widths of at least 1, found {getattr(self, name)}")
        if not 0 <= self.explore[0] <= self.explore[1] < float("inf"):
            raise SurefootError(f"fb.explore: expected 0 <= least <= largest, found {self.explore}")
