"""Plan: what a gate tests, with how many episodes, and the seeds that they have."""

from dataclasses import dataclass, replace

from surefoot.errors import SurefootError
from surefoot.gate.runs import BATCH
from surefoot.gate.statistics import needed
from surefoot.sim.engines import DEFAULT, known

SEED = 1000  # from which the seeds of the gate's episodes are made
WORST, SEARCHED = 500, 600  # offsets from the first seed to those of the worst decile and of the search
ALL = tuple(range(10))  # realities


@dataclass(frozen=True)
class Plan:
    """What is tested, with how many episodes."""

    engines: tuple[str, ...] = (DEFAULT,)
    realities: tuple[int, ...] = ()
    episodes: int = 200
    """at most, in each world"""
    claim: float | None = None
    """a success rate to be claimed over the belief"""
    level: float = 0.95
    seed: int = SEED
    """the seeds of its episodes are `rng.judging(seed)` and those after it"""
    per_load: int = 40
    """episodes at each load of a margin"""
    motion: int = 30
    """episodes whose motion is measured"""
    repeats: int = 5
    """new episodes in each world of the worst decile, at most"""
    search: tuple[int, int, int] = (60, 40, 100)
    """episodes to find a failure, to learn where failures are, to estimate their rate"""
    threads: int = 0

    def __post_init__(self) -> None:
        if self.episodes < 20:
            raise SurefootError(f"episodes: found {self.episodes}, expected at least 20: a worst decile has 2 of them")
        for engine in self.engines:
            known(engine, "--in")
        if self.claim is not None:
            if not 0.5 <= self.claim < 1:
                raise SurefootError(f"claim: found {self.claim}, expected a success rate from 0.5 to below 1")
            least = needed(round(1 - self.claim, 12), self.level)
            if self.episodes < least:
                raise SurefootError(
                    f"claim: {self.episodes} episodes cannot support 'at most {100 * (1 - self.claim):g} % fail' at "
                    f"{100 * self.level:g} %, even without a failure: it takes {least}; expected --episodes {least} or more"
                )

    @property
    def seeds(self) -> int:
        """How many seeds it may use: one for each batch, then those of the worst decile and of the search."""
        return max(SEARCHED + sum(self.search), -(-self.episodes // BATCH))

    def thorough(self) -> "Plan":
        """More episodes, and a finer engine and all realities unless others were asked for."""
        engines = self.engines if self.engines != (DEFAULT,) else (DEFAULT, "mujoco:half-step")
        more = replace(self, episodes=max(self.episodes, 1000), per_load=100, motion=100, search=(200, 200, 400))
        return replace(more, engines=engines, realities=self.realities or ALL)
