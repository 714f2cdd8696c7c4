"""Settings of forward-backward representations: what a command line parses. Nothing here needs torch."""

from dataclasses import dataclass
from typing import ClassVar

from surefoot.errors import SurefootError
from surefoot.learn.off_policy.settings import ReplaySettings
from surefoot.learn.settings import Hidden, widths, within

MOST_SAMPLES = 1 << 14  # transitions of a gradient step: every pair of them is compared
MOST_Z = 100  # numbers of z: sqrt(100) is the largest number that a policy's net is shown


@dataclass(frozen=True)
class FBSettings(ReplaySettings):
    """Settings of forward-backward representations."""

    learner: ClassVar[str] = "fb"

    envs: int = 64
    steps: int = 200_000
    samples: int = 512
    """transitions of a gradient step, drawn from the replay; every pair of them is compared"""
    replay: int = 4096
    warm_up: int = 10_000
    """env steps of random actions before the first gradient step"""
    gamma: float = 0.97
    """discount factor a step: how far ahead all that can be asked for is seen"""
    tau: float = 0.01
    lr: float = 5e-4
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
    forward_hidden: Hidden = (256, 256)
    """widths of the hidden layers of the two forward maps"""
    backward_hidden: Hidden = (128, 128)
    """widths of the hidden layers of the backward map"""

    def __post_init__(self) -> None:
        self.check_replay()
        finite = ("ortho", "target_noise", "target_clip", "pessimism", "action_penalty", "style", "slope")
        self.check(("ask_every", "window"), finite, self.where)
        within(self, self.where, goals=(0, 1), wander=(0, 1), experts=(0, 1), z=(2, MOST_Z), samples=(2, MOST_SAMPLES))
        if self.gamma == 1:
            raise SurefootError("fb.gamma: expected less than 1: what is visited would be counted without end")
        if self.replay <= self.horizon:
            raise SurefootError(f"fb.replay: expected more than horizon, found {self.replay}")
        widths(self, self.where, "forward_hidden", "backward_hidden")
        if not 0 <= self.explore[0] <= self.explore[1] < float("inf"):
            raise SurefootError(f"fb.explore: expected 0 <= least <= largest, found {self.explore}")
