"""One thing to do about a cause, and one log that would tell it from the next."""

from dataclasses import dataclass

from surefoot.doctor.branches.physics import Left
from surefoot.doctor.cause import Cause
from surefoot.doctor.consequences import Course
from surefoot.task import Task

SURE = 50.0  # nats between two causes: no log will tell them better


@dataclass(frozen=True)
class Remedy:
    do: str
    """in words"""
    command: str
    """to type next; empty where the next step is on the robot"""


@dataclass(frozen=True)
class Asked:
    """What the doctor was asked of, in the words of a command line."""

    task: Task
    policy: str
    log: str
    """the file, and --map where it has one"""
    steps: int = 0
    """that the policy was trained for; 0 where nobody says"""


def remedy(asked: Asked, cause: Cause | None, after: Course | None = None, left: Left | None = None) -> Remedy:
    """What to do about the first cause: it follows from the tree and from what would become of the policy.

    fails at home -> train;   nothing found -> nothing;   contract -> mend the runtime;   borne -> look further;   else the cause
    """
    if after is not None and after.unfit:
        return _train(asked, cause)
    if cause is None:
        words = "nothing: noise explains what the model did not expect; if the robot failed, record the failure itself"
        return Remedy(words, f"surefoot eval {asked.policy}")
    if cause.branch == "contract":
        return _mend(asked, cause)
    if after is not None and after.harmless:
        return _further(asked, cause, after, left)
    return _cure(asked, cause, after.param if after else "")


def _train(asked: Asked, cause: Cause | None) -> Remedy:
    steps = max(2 * asked.steps, int(asked.task.settings.get("steps", 0)))
    trained = f" (it had {asked.steps:,} steps)" if asked.steps else ""
    then = f"; {cause.kind} comes after that" if cause else ""
    do = f"train until it succeeds at home{trained}, and ask again with a log of the new policy{then}"
    return Remedy(do, f"surefoot train {asked.task.name}" + (f" --steps {steps}" if steps else ""))


def _mend(asked: Asked, cause: Cause) -> Remedy:
    """The next step is on the robot: no command on this log would say anything new."""
    if cause.kind == "policy":
        return Remedy(
            "the robot runs another policy than this file: deploy this one", f"surefoot export {asked.policy}"
        )
    what = (
        "the robot's wires or the driver's order" if cause.kind == "wiring" else "the runtime by the policy's contract"
    )
    return Remedy(f"mend {what}: {cause.about}; then record a new log, and ask again with that", "")


def _further(asked: Asked, cause: Cause, after: Course, left: Left | None) -> Remedy:
    """The policy bears the cause: what there is to do lies elsewhere."""
    why = "was trained over it and bears it" if after.inside else "bears it"
    do = f"nothing about {cause.kind}: the policy {why}; "
    if left is None or left.white:
        return Remedy(f"{do}the rest of this log is noise: if the robot failed, record the failure itself", "")
    if after.param:
        do += f"what is left is not noise: put {after.param} into the model, then learn the rest (surefoot missing, --belief e.json)"
        return Remedy(do, _identify(asked, after.param))
    return Remedy(
        f"{do}what is left is not noise: learn the force that the model lacks",
        f"surefoot missing {asked.task.name} {asked.log}",
    )


def _identify(asked: Asked, param: str) -> str:
    return f"surefoot identify {asked.task.name} {asked.log} --learn {param} --save e.json"


def _cure(asked: Asked, cause: Cause, param: str) -> Remedy:
    on = f"{asked.task.name} {asked.log}"
    if cause.kind in ("jitter", "drops", "rate"):
        return Remedy(f"mend the link or the loop's timing: {cause.about}", f"surefoot log {asked.log}")
    if cause.branch == "sensors":
        return Remedy(
            f"calibrate the sensor, or take it out in the log's mapping: {cause.about}", f"surefoot preflight {on}"
        )
    if param:
        return Remedy(f"identify {param} and train over what the log says of it", _identify(asked, param))
    if cause.kind == "latency":
        return Remedy(f"shorten the delay, or train over it: {cause.about}", f"surefoot train {asked.task.name}")
    if cause.kind in ("stiction", "backlash", "saturation", "gain", "motor time"):
        return Remedy(f"learn what the actuators do beyond the model: {cause.about}", f"surefoot actuator {on}")
    if cause.branch == "numbers":
        return Remedy(f"correct the model: {cause.about}", f"surefoot identify {on} --save e.json")
    return Remedy(f"learn the force that the model lacks: {cause.about}", f"surefoot missing {on}")


def decide(task: Task, first: Cause, second: Cause | None) -> str:
    """A further log that would tell two causes apart, or make the one surer."""
    if second is None:
        return "none is needed: no other cause weighs more than chance in its place"
    gap = first.evidence - second.evidence
    if gap > SURE:
        return f"none is needed: {second.kind}, the next, is {gap:.0f} nats behind; to be surer, {_telling(task, first, second)}"
    return _telling(task, first, second)


def _telling(task: Task, first: Cause, second: Cause) -> str:
    pair = {first.kind, second.kind}
    if first.branch == second.branch == "contract":
        return "one with the column `observation`, what the policy was told: then each term is compared by itself"
    if pair <= {"gain", "mass", "inertia", "gravity"}:
        return "one with a known weight fixed to the robot: it adds to the mass and leaves the motors as they are"
    if pair <= {"friction", "stiction", "drag", "saturation", "backlash"}:
        return "one that passes through all speeds, slow reversals among them: dry friction and gaps show at rest, drag and limits at speed"
    if pair & {"latency", "jitter", "drops", "motor time"}:
        return "one with steps in the command, held for ten periods or more: a delay shifts their begin, a slow motor rounds it, a late command scatters it"
    if pair & {"sensor bias", "encoder offset", "imu misalignment"}:
        return "one at rest in two known poses: what a sensor adds is there in both, what the model lacks is not"
    names = ",".join(p.name for p in task.params if p.target not in ("noise", "bias", "push", "pull", "task"))
    return f"one of a motion that tells much: surefoot explore {task.name} --learn {names}"
