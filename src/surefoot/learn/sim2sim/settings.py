"""Settings of the two worlds and of what goes from one to the other. Nothing here needs torch."""

from dataclasses import dataclass

from surefoot.errors import SurefootError


@dataclass(frozen=True)
class Easy:
    """The support world, made from the task's own robot."""

    gain: float = 0.25
    """stiffness of each position servo, as a multiple; its damping by the root of it, so that the damping ratio stays"""
    limits: bool = False
    """keep the torque limits"""
    friction: bool = False
    """keep the dry friction of joints"""
    latency: bool = False
    """keep latencies"""

    def __post_init__(self) -> None:
        if not 0 < self.gain < float("inf"):
            raise SurefootError(f"easy.gain: expected a finite number > 0, found {self.gain}")


@dataclass(frozen=True)
class Forward:
    """The forward model psi, learned beside a teacher."""

    hidden: tuple[int, ...] = (128, 128)
    """widths of its hidden layers"""
    lr: float = 1e-3
    """initial learning rate of Adam; falls to a tenth"""
    epochs: int = 2
    """passes over each batch"""
    minibatches: int = 8
    """parts of a batch, one gradient step each"""

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise SurefootError(f"forward.{name}: expected at least 1, found {getattr(self, name)}")
        if not 0 < self.lr < float("inf"):
            raise SurefootError(f"forward.lr: expected a finite number > 0, found {self.lr}")
        if not self.hidden or min(self.hidden) < 1:
            raise SurefootError(f"forward.hidden: expected widths of at least 1, found {self.hidden}")


@dataclass(frozen=True)
class Imitation:
    """How a student is rewarded for moving as the forward model says."""

    weight: float = 0.3
    """w: reward a second of a perfect match, as a multiple of the sum of the task's positive reward weights"""
    width: float = 1.0
    """error at which exp(-1) of it is left, as a multiple of what the teacher moves in a control period"""
    until: float = 1.0
    """share of the steps by which w has fallen to 0, evenly; 1 and more: it stays"""

    prime: float = 0.0
    """share of the steps, at the start, in which the actor is fitted to actions that give the teacher's torque; 0: none"""

    def __post_init__(self) -> None:
        if not 0 <= self.prime < 1:
            raise SurefootError(f"imitation.prime: expected a share from 0 to below 1, found {self.prime}")
        for name in ("weight", "width", "until"):
            if not 0 < getattr(self, name) < float("inf"):
                raise SurefootError(f"imitation.{name}: expected a finite number > 0, found {getattr(self, name)}")
