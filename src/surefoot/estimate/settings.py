"""What an invariant filter believes of its sensors: numbers that a contract carries. Standard deviations, in SI units."""

from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from surefoot.errors import SurefootError
from surefoot.typed import record

T = TypeVar("T", bound="Numbers")
LARGEST = 1e6


@dataclass(frozen=True)
class Numbers:
    """Settings that are numbers >= 0, each with a name."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not 0 <= value <= LARGEST:
                raise SurefootError(f"{f.name}: expected a number from 0 to {LARGEST:g}, found {value:g}")

    def to_json(self) -> dict[str, Any]:
        return {k: float(v) for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls: type[T], data: Any, where: str) -> T:
        made: T = record(cls, data, where)
        return made


@dataclass(frozen=True)
class Deviations(Numbers):
    """Of one reading each, and how fast what is constant may change."""

    gyro: float = 0.1
    """rad/s"""
    accel: float = 0.5
    """m/s^2; also what is lost between two readings"""
    gyro_walk: float = 0.001
    """rad/s after 1 s"""
    accel_walk: float = 0.01
    """m/s^2 after 1 s"""
    joint: float = 0.01
    """rad"""
    joint_vel: float = 0.5
    """rad/s"""
    foot: float = 0.004
    """m: a foot's place beside what the joints are wrong by: links that bend, ground that gives way"""
    slip: float = 0.05
    """m/s of a foot that bears, drawn anew each period"""
    free: float = 1.0
    """m/s of a foot whose contact is unsure, times the probability that there is none"""
    position: float = 0.0
    """m of a position fix"""
    attitude: float = 0.0
    """rad of an attitude fix"""


@dataclass(frozen=True)
class Start(Numbers):
    """How far off a beginning may be, which is at rest, level as the accelerometer says, and at the origin."""

    tilt: float = 0.1
    """rad"""
    speed: float = 0.5
    """m/s"""
    gyro_bias: float = 0.05
    """rad/s"""
    accel_bias: float = 0.2
    """m/s^2"""


@dataclass(frozen=True)
class Contact(Numbers):
    """Which feet bear, and whether to believe them. p = 1 / (1 + exp(-(force - least) / width)); a foot bears where p > 1/2."""

    least: float = 5.0
    """N along the vertical, of a touch sensor or worked out from joint torques"""
    width: float = 1.5
    """N"""
    gate: float = 4.0
    """standard deviations by which a foot may be off in any direction; beyond, it has slipped and stands anew"""


@dataclass(frozen=True)
class Delay(Numbers):
    """From motion to reading; the estimate is of now, predicted over the mean."""

    mean: float = 0.0
    """s"""
    sd: float = 0.0
    """s: the part that nobody knows"""
