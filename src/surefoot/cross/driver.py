"""The driver of a crossing: which step comes next, from what is known. Read it, and replace it by your own.

    train -> gate -> robot -> success?  yes: stop
                       ^        no: doctor -> remedy -> train (from the last policy) -> gate -> robot -> ...

A driver is a function Journal -> Step. It sees stages (what was found, rates, costs), never the robot. Remedies are tried
cheapest first: those without robot time before those with, numbers before learned physics.

    randomize   train over the task's own ranges                        no robot time
    widen       a range grows to what the doctor found                  no robot time
    identify    fit all numbers to the logs so far                      no robot time
    actuator    a net of the actuators, where the cause is in them      no robot time
    missing     a net of the force that the model lacks                 no robot time
    explore     play the motion that says most, then identify           robot time
    adapt       a student that infers its world from its history        compute
"""

from collections.abc import Callable
from dataclasses import dataclass

from surefoot.cross.journal import Journal

GOOD = 0.9  # success rate of a robot that was crossed to
SURE = 0.8  # below which its interval may not reach
IN_ACTUATORS = ("stiction", "backlash", "saturation", "gain", "motor time", "friction")


@dataclass(frozen=True)
class Step:
    name: str
    why: str


Driver = Callable[[Journal], Step]


def drive(past: Journal) -> Step:
    """The next step."""
    last = past.stages[-1].name if past.stages else ""
    if not last:
        return Step("train", "a policy for the nominal world")
    if last in ("train", "adapt"):
        return Step("gate", "may it leave the simulator?")
    if last == "gate":
        return Step("robot", "does it work on the robot?")
    if last == "robot":
        return _after_robot(past)
    if last == "doctor":
        return _remedy(past)
    return Step("train", f"go on from the last policy, after {last}")


def _after_robot(past: Journal) -> Step:
    rate = past.stages[-1].robot
    if rate is not None and rate.value >= GOOD and rate.interval[0] >= SURE:
        return Step("stop", f"crossed: the robot succeeds in {rate}")
    if past.spent:
        return Step("stop", f"the budget is spent: {past.spent}")
    return Step("doctor", "why does it fail?")


def _remedy(past: Journal) -> Step:
    for remedy in (_runtime, _randomize, _widen, _identify, _actuator, _missing, _explore, _adapt):
        step = remedy(past)
        if step is not None:
            return step
    return Step("stop", "every remedy was tried")


def _runtime(past: Journal) -> Step | None:
    if past.stages[-1].facts.get("branch") != "contract":
        return None
    return Step("stop", f"the runtime does not follow the contract: {past.stages[-1].found}")


def _randomize(past: Journal) -> Step | None:
    if past.all("randomize"):
        return None
    return Step("randomize", "no number of a model is exact: train over the task's ranges")


def _widen(past: Journal) -> Step | None:
    facts = past.stages[-1].facts
    if (
        not facts.get("param")
        or facts.get("in_range")
        or facts["param"] in [s.facts["param"] for s in past.all("widen")]
    ):
        return None
    return Step("widen", f"{facts['param']} = {facts['value']:.3g} is outside of the training range")


def _identify(past: Journal) -> Step | None:
    """Once a log, of which each robot stage leaves one."""
    if len(past.all("identify")) >= 2 or _tried(past, "identify"):
        return None
    return Step("identify", "fit the numbers of the model to the logs")


def _actuator(past: Journal) -> Step | None:
    if past.stages[-1].facts.get("kind") not in IN_ACTUATORS or past.all("actuator"):
        return None
    return Step("actuator", f"{past.stages[-1].facts['kind']}: learn what the actuators do")


def _missing(past: Journal) -> Step | None:
    if past.all("missing"):
        return None
    return Step("missing", "learn the force that the model lacks")


def _explore(past: Journal) -> Step | None:
    if past.all("explore") or past.robot_seconds + 10 > past.budget.robot:
        return None
    return Step("explore", "record an informative motion, and fit again")


def _adapt(past: Journal) -> Step | None:
    if past.all("adapt"):
        return None
    return Step("adapt", "train a student that infers its world")


def _tried(past: Journal, name: str) -> bool:
    """Since the last robot stage."""
    names = [s.name for s in past.stages]
    since = len(names) - names[::-1].index("robot") if "robot" in names else 0
    return name in names[since:]
