"""What an iteration takes with w workers: a model with four numbers that one machine can measure.

    t(w) = n T c / min(w, cores)  +  n T b / B  +  w L  +  U        seconds of an iteration of n envs and T steps

c   core seconds of an env step: physics, observations, policy        b   bytes that an env step brings to the learner
B   bytes a second that the learner takes in and puts together        L   seconds of asking one worker
U   seconds of the update, which is the learner's own; with g learners side by side U / g plus what their gradients take

The learner saturates where the first term falls below the others: w* = n T c / (n T b / B + U), and more workers than that
wait for it. More envs a worker (a larger n) move it only as far as U and the bytes do not grow with n as well.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    step: float
    """c"""
    bytes: float
    """b"""
    bandwidth: float
    """B"""
    asking: float
    """L"""
    update: float
    """u: seconds of the update for each env step of the batch: U = n T u"""

    def seconds(self, steps: int, workers: int, cores: int, learners: int = 1) -> float:
        """Of an iteration of n T = `steps` env steps."""
        collect = steps * self.step / min(workers, cores)
        return collect + steps * self.bytes / self.bandwidth + workers * self.asking + steps * self.update / learners

    def rate(self, steps: int, workers: int, cores: int, learners: int = 1) -> float:
        """Env steps a second."""
        return steps / self.seconds(steps, workers, cores, learners)

    def saturation(self, learners: int = 1) -> float:
        """w*: workers, each on a core of its own, that keep the learner as busy as themselves."""
        return self.step / (self.bytes / self.bandwidth + self.update / learners)
