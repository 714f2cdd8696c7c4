"""Every method of this package on the two axes of the map, each with the figure that was recorded of it.

    model     0 reduced or nominal · 1 a full simulator · 2 corrected by real data
    learning  0 online alone: nothing is trained · 1 offline · 2 offline, then online

Sim2Real 1.0 reasons online on a model; 2.0 trains in a full simulator; 3.0 trains in one that data has corrected; 4.0 does both,
online on top of offline, on such a model, or on one that generates worlds. Nothing here generates worlds.

A figure is a row of benchmarks/results: `python -m benchmarks.recorded` copies those that METHODS names to recorded.json.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from surefoot import files

RECORDED = Path(__file__).parent / "recorded.json"
MODELS = ("nominal", "simulated", "corrected by data")
LEARNING = ("online", "offline", "offline, then online")


@dataclass(frozen=True)
class Method:
    name: str
    model: int
    learning: int
    command: str
    """what does it here; TASK, RUN and LOG are the user's"""
    about: str
    row: tuple[str, str, str] | None = None
    """benchmark, part and row of its figure; None: none is recorded"""
    says: str = ""
    """the figure in words; {} is its value"""
    kind: str = ""
    """of the policies it makes: nominal, randomized or adaptive; empty: it makes none"""

    @property
    def era(self) -> str:
        if self.learning == 0:
            return "1.0"
        return {1: "2.0", 2: "4.0" if self.learning == 2 else "3.0"}.get(self.model, "1.0")

    @property
    def figure(self) -> str:
        """As it was measured, with the least and the largest of its repetitions where they differ; "" where none is."""
        if self.row is None:
            return ""
        found = recorded()["/".join(self.row)]
        value, low, high = (found[k] for k in ("value", "low", "high"))
        ends = f" ({low:.3g} - {high:.3g})" if low is not None and low != high else ""
        return self.says.format(f"{value:.3g}{ends}")


@cache
def recorded() -> dict[str, dict[str, Any]]:
    return dict(files.read_json(RECORDED))


METHODS = (
    Method("adaptive control", 0, 0, "surefoot.control.adaptive", "estimates the load while it tracks; nothing is trained",
           ("safety", "adaptive", "0.2 and 0.3 Hz: ratio"), "tracking error of an arm with a hidden load: {} of that without"),
    Method("safety filter", 0, 0, "surefoot guard RUN", "a small QP at every step keeps limits",
           ("safety", "filter", "parameters within 20 %: largest rate, 95 %"), "episodes that violate a limit, model 20 % off: at most {} %"),
    Method("planning through physics", 1, 0, "surefoot plan MOTION MODEL", "finds controls by simulating many; nothing is trained",
           ("motion", "spider", "lift, annealed: largest error, open loop"), "largest error of a lift, open loop: {} cm"),
    Method("training in one world", 1, 1, "surefoot train TASK --belief nominal", "no randomization",
           ("robust", "hover", "hover, nominal: success over variants"), "success of hover over other worlds: {}", "nominal"),
    Method("domain randomization", 1, 1, "surefoot train TASK", "one policy that bears every e of a range",
           ("robust", "hover", "hover, randomized: success over variants"), "success of hover over other worlds: {}", "randomized"),
    Method("ranges that grow", 1, 1, "surefoot train TASK --ranges adr", "wider as the policy gets better: adr, doraemon, widen, ramp",
           ("robust", "hard", "hover, hard, adr: success over the target"), "success where fixed ranges learn nothing: {}"),
    Method("motion retargeting", 1, 1, "surefoot retarget MOTION MODEL", "a person's motion, for a policy to track",
           ("motion", "feet", "humanoid: feet slide, of plain IK's 49 mm/s"), "feet slide: {} of what plain inverse kinematics has"),
    Method("teacher and student", 1, 2, "surefoot train TASK --adapt rma", "infers e from its history while it acts",
           ("adapt", "hover", "hover, rma: success"), "success of hover: {}", "adaptive"),
    Method("promptable policy", 1, 2, "surefoot train TASK --learner fb", "trained without a task, asked for one later",
           ("prompt", "rewards", "a pose: return / TD3's"), "return on a reward given afterwards: {} of TD3's"),
    Method("residual policy", 1, 1, "surefoot train TASK --base RUN", "learns on top of a policy that nearly works",
           ("residual", "arm", "gravity and load / scratch: steps"), "env steps until 95 % succeed: {} of those from scratch"),
    Method("two worlds", 1, 1, "surefoot train TASK --support easy", "a teacher of an easy world, imitated in the real one",
           ("sim2sim", "arm", "imitation, primed / direct"), "env steps, of those of learning directly: {}"),
    Method("system identification", 2, 1, "surefoot identify TASK LOG", "numbers of the model, with intervals",
           ("real", "go2", "10 shared by kind: rmse unseen"), "error of a real Go2's joints on a motion it was not fitted to: {} rad"),
    Method("active exploration", 2, 1, "surefoot explore TASK --over UNKNOWN", "the motion that tells most about e",
           ("explore", "legs", "best chirp / a, CRLB trace"), "less variance than the best chirp, by a factor of {}"),
    Method("posterior over e", 2, 1, "surefoot believe TASK LOG", "a log turned into p(e)",
           ("distributions", "dropo", "dropo, hidden masses: worst error of mu"), "worst error of a hidden mass: {} %"),
    Method("delta action", 2, 1, "surefoot delta TASK LOG", "what to add to actions so that the simulator moves as the robot",
           ("gap", "delta", "tuned in inversion's delta / untuned"), "error after tuning in it: {} of that before"),
    Method("missing forces", 2, 1, "surefoot missing TASK LOG", "a learned force that the model lacks",
           ("gap", "residual", "hover, 0.5 s ahead: error of position less"), "of the error 0.5 s ahead it removes {}"),
    Method("actuator net", 2, 1, "surefoot actuator TASK LOG", "a learned motor inside the simulator",
           ("actuator", "labels", "labels, mlp: 2 s rollout RMSE cut"), "of the error of 2 s of motion it removes {}"),
    Method("diagnosis", 2, 1, "surefoot doctor RUN LOG", "why a policy failed on its robot, ranked",
           ("doctor", "arm", "arm, 22 kinds: true cause first"), "of 110 logs it names the true cause first in a share of {}"),
    Method("the whole loop", 2, 1, "surefoot cross TASK", "train, fail, learn from the log, train again",
           ("realities", "hover", "hover: cross: robots crossed"), "of ten hidden drones on which training in the model fails, it crosses to a share of {}"),
    Method("adaptation around a log", 2, 2, "surefoot train TASK --adapt rma --belief IDENTIFIED", "infers what a log did not tell: see the pipeline"),
    Method("learning with the robot", 2, 2, "surefoot train TASK --start RUN --robot-share 0.2 --reality 1", "a share of every batch is the robot's",
           ("cotrain", "balance", "mean gain of 5 % over simulation only"), "success with 5 % robot, less that of simulation alone: {}"),
)  # fmt: skip
