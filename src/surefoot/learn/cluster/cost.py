"""What an iteration takes with w workers and g learners: a model whose numbers one machine can measure.

    t(w, g) = n T c / min(w, cores)  +  n T b / B  +  w L  +  U / g  +  [g > 1] (n T r / B + k S)

c   core seconds of an env step: physics, observations, policy        b   bytes that an env step brings to the learner
B   bytes a second that the learner takes in and puts together        L   seconds of asking one worker
U   seconds of the update, n T u
r   bytes of a row that a learner sends to those who share its update        k   gradient steps of an iteration
S   seconds to add up gradients and send parameters, once for each gradient step; it grows with the net, not with n T

The learner saturates where the first term falls below those that grow with n T: w* = c / (b / B + u / g [+ r / B]), and
more workers than that wait for it. More envs a worker (a larger n) move it only as far as U and the bytes do not grow
with n as well. Rows and rollouts pass through one process: b / B, and r / B where g > 1, are what no sharing removes.
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

    row: float = 0.0
    """r"""
    sync: float = 0.0
    """k S"""

    def seconds(self, steps: int, workers: int, cores: int, learners: int = 1) -> float:
        """Of an iteration of n T = `steps` env steps."""
        collect = steps * self.step / min(workers, cores) + workers * self.asking
        return collect + steps * self._own(learners) + (self.sync if learners > 1 else 0.0)

    def rate(self, steps: int, workers: int, cores: int, learners: int = 1) -> float:
        """Env steps a second."""
        return steps / self.seconds(steps, workers, cores, learners)

    def saturation(self, learners: int = 1) -> float:
        """w*: workers, each on a core of its own, that keep the learner as busy as themselves."""
        return self.step / self._own(learners)

    def _own(self, learners: int) -> float:
        """Seconds of the learner for each env step."""
        sent = self.bytes + (self.row if learners > 1 else 0.0)
        return sent / self.bandwidth + self.update / learners
