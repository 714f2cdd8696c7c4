"""The driver of a crossing: which step comes next, from what is known. Read it, and replace it by your own.

    train -> gate -> robot -> success?  yes: stop
                       ^        no: doctor -> remedy -> train (from the last policy) -> gate -> robot -> ...

A driver is a function Journal -> Step. It sees stages (what was found, rates, costs), never the robot. Remedies, cheapest first:

    randomize   train over the task's own ranges: no model is exact               no robot time
    identify    fit all numbers to the logs so far: a failure is data, too        no robot time
    explore     drive with random parts in the actions, then identify             robot time; where a fit did not help
    actuator    a net of the actuators, where the cause is in them                no robot time
    missing     a net of the force that the model lacks                           no robot time
    widen       every range half as wide again: tolerate what was not learned     no robot time
    finetune    train with rows of the robot in every batch                       robot time; where nothing else helped

A success in few episodes says little: three of three happen to a policy of 70 %, too. So the numbers are fitted to the log of that
success as well, and the policy trained over them is tried, too, where there is robot time for it.

A task that is not learned in its own simulation is first learned in a softer one (support), whose motion is then imitated.
A training from the last policy that does not succeed in simulation is begun anew, from nothing, and the better of both policies
goes on: where the robot is far from its model, what was learned before is in the way.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from surefoot.cross.journal import Journal, Stage
from surefoot.errors import SurefootError, unknown

GOOD = 0.9  # success rate of a robot that was crossed to
SHOWN = 0.5  # lower end of the 95 % interval of a success that needs no more evidence, as in 6 of 6 episodes
OPEN = 0.5  # of the numbers that were fitted: if more are open, a log with more motion is worth its robot time
EXPLORING = 10.0  # s that it takes
LEARNED = 0.5  # success in simulation below which a policy has not learned its task
TUNING = 20.0  # s of robot time without which it is not fine-tuned on
NEVER_ANEW = ("support", "finetune")
"""a training after these is not begun anew: it is one from nothing, or has the robot in it"""
NEEDS = {
    "train": "", "support": "", "randomize": "", "gate": "train", "robot": "train", "explore": "train", "anew": "train",
    "finetune": "train", "doctor": "robot", "identify": "robot", "actuator": "robot", "missing": "robot", "delta": "robot",
    "widen": "identify",
}  # fmt: skip
"""a stage -> another, without which it has nothing to work on"""
SKIPPED = tuple(name for name in NEEDS if name not in ("train", "robot", "delta"))
"""that can be left out"""
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
    if last == "train" or last in ("support", "anew") and past.stages[-1].facts.get("refused"):
        return _support(past) or anew(past) or Step("gate", "may it leave the simulator?")
    if last == "gate":
        held = past.stages[-1].facts.get("passed") is False
        return Step("robot", "does it work on the robot?" + " A trial behind the runtime's limits may fail" * held)
    if last == "robot":
        return _after_robot(past)
    if last == "doctor":
        return _remedy(past)
    if last == "explore" and not past.stages[-1].facts.get("refused"):
        return Step("identify", "fit the numbers of the model to this log, too")
    if last == "identify":
        return _after_identify(past)
    if last == "explore":
        return Step("train", "go on from the last policy, over what was identified")
    return _refused(past) or Step("train", f"go on from the last policy, after {last}")


def skipping(names: Collection[str], driver: Driver = drive) -> Driver:
    """A driver without some stages: it decides as if they had been refused."""
    for name in names:
        if name not in SKIPPED:
            raise unknown("stage", name, SKIPPED, "--skip")

    def driving(past: Journal) -> Step:
        step = driver(past)
        while step.name in names:
            past = replace(past, stages=(*past.stages, Stage(step.name, "skipped", {"refused": "skipped"})))
            step = driver(past)
        return step

    return driving


def alone(name: str, past: Journal) -> Driver:
    """A driver for one stage after what there is: nothing is decided."""
    if name not in NEEDS:
        raise unknown("stage", name, NEEDS, "--stage")
    if NEEDS[name] and past.last(NEEDS[name]) is None:
        raise SurefootError(f"--stage {name}: expected a stage {NEEDS[name]} before it, found none in {past.out}")
    done = len(past.stages)
    return lambda now: Step("stop", f"stage {name} alone") if len(now.stages) > done else Step(name, "as asked for")


def _after_robot(past: Journal) -> Step:
    spent = past.spent(past.budget.trying)
    if _succeeded(past):
        if spent or _shown(past.stages[-1]) or sum(map(_good, past.all("robot"))) > 1:
            return Step("stop", _counted(past))
        return Step("identify", f"{_counted(past)}, which says little: fit the numbers to this log, too")
    if spent:
        return Step("stop", f"the budget is spent: {spent}")
    return Step("doctor", "why does it fail?")


def _good(tried: Stage) -> bool:
    return tried.robot is not None and tried.robot.value >= GOOD


def _shown(tried: Stage) -> bool:
    return tried.robot is not None and tried.robot.interval[0] >= SHOWN


def _succeeded(past: Journal) -> bool:
    """When the robot was last tried."""
    tried = past.last("robot")
    return tried is not None and _good(tried)


def _counted(past: Journal) -> str:
    rate = past.all("robot")[-1].robot
    return "" if rate is None else f"the robot succeeds in {rate.k} of {rate.n} episodes"


def _after_identify(past: Journal) -> Step:
    """Train over what was found; look closer at the robot where an earlier fit did not help and much is still open."""
    if _succeeded(past):
        refused = past.stages[-1].facts.get("refused")
        return Step("stop", _counted(past)) if refused else Step("train", "go on from the policy that succeeds")
    affordable = past.robot_seconds + EXPLORING + past.budget.trying <= past.budget.robot
    again = len(past.all("identify")) > 1 and not past.since_robot("explore")
    if again and affordable and _share_open(past.stages[-1]) > OPEN:
        return Step("explore", "the logs leave most numbers open")
    return _refused(past) or Step("train", "go on from the last policy, over what was identified")


def _share_open(found: Stage) -> float:
    fitted = found.facts.get("fitted")
    return found.facts["open"] / len(fitted) if fitted else 1.0


def _refused(past: Journal) -> Step | None:
    """A remedy that its own check refused changes nothing: the next one."""
    return _remedy(past) if past.stages[-1].facts.get("refused") else None


def _remedy(past: Journal) -> Step:
    for remedy in (_runtime, _randomize, _identify, _actuator, _missing, _widen, _finetune):
        step = remedy(past)
        if step is not None:
            return step
    return Step("stop", "every remedy was tried")


def _runtime(past: Journal) -> Step | None:
    cause = past.last("doctor")
    if cause is None or cause.facts.get("branch") != "contract":
        return None
    return Step("stop", f"the runtime does not follow the contract: {cause.found}")


def _identify(past: Journal) -> Step | None:
    """Once for each log of an attempt."""
    return None if past.since_robot("identify") else Step("identify", "fit the numbers of the model to the logs")


def _actuator(past: Journal) -> Step | None:
    cause = past.last("doctor")
    if cause is None or cause.facts.get("kind") not in IN_ACTUATORS or past.all("actuator"):
        return None
    return Step("actuator", f"{cause.facts['kind']}: learn what the actuators do")


def _missing(past: Journal) -> Step | None:
    return None if past.all("missing") else Step("missing", "learn the force that the model lacks")


def _widen(past: Journal) -> Step | None:
    learned = [s for s in past.all("identify") if not s.facts.get("refused")]
    return Step("widen", "tolerate what was not learned") if learned and not past.all("widen") else None


def _randomize(past: Journal) -> Step | None:
    return (
        None
        if past.all("randomize")
        else Step("randomize", "no number of a model is exact: train over the task's ranges")
    )


def _support(past: Journal) -> Step | None:
    """Where the first training failed in its own simulation, a robot has nothing to say yet."""
    sim = past.stages[-1].sim
    if sim is None or sim.value >= LEARNED or len(past.all("train")) > 1 or past.spent():
        return None
    return Step("support", f"{100 * sim.value:.0f} % success in simulation: learn in a softer world first")


def anew(past: Journal) -> Step | None:
    """Where going on from the last policy does not succeed in simulation."""
    last, earlier = past.stages[-1], past.all("train")[:-1]
    if last.sim is None or last.sim.value >= GOOD or last.facts.get("anew"):
        return None
    if not earlier or past.stages[-2].name in NEVER_ANEW or past.spent():
        return None
    return Step("anew", f"{100 * last.sim.value:.0f} % success in simulation: train from nothing")


def _finetune(past: Journal) -> Step | None:
    left = past.budget.robot - past.robot_seconds - past.budget.trying
    if past.all("finetune") or left < TUNING:
        return None
    return Step("finetune", "no model explains it: learn with the robot in every batch")
