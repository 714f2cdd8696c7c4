"""One thing to do about a cause, and one log that would tell it from the next."""

from dataclasses import dataclass

from surefoot.gate.doctor.cause import Cause
from surefoot.task import Task

SURE = 50.0  # nats between two causes: no log will tell them better


@dataclass(frozen=True)
class Remedy:
    do: str
    """in words"""
    command: str
    """to type next"""


def remedy(task: Task, policy: str, log: str, cause: Cause | None, param: str = "") -> Remedy:
    """What to do about a cause; `param` is the task's own unknown that it is about, where it has one."""
    again = f"surefoot doctor {policy} {log}"
    if cause is None:
        return Remedy("nothing: noise explains what the model did not expect", f"surefoot eval {policy}")
    if cause.kind == "wiring":
        return Remedy(f"mend the robot's wires or the driver's order: {cause.about}; then record and ask again", again)
    if cause.kind == "policy":
        return Remedy("the robot runs another policy than this file: deploy this one", f"surefoot export {policy}")
    if cause.branch == "contract":
        return Remedy(f"mend the runtime by the policy's contract: {cause.about}; then record and ask again", again)
    if cause.kind in ("jitter", "drops", "rate"):
        return Remedy(f"mend the link or the loop's timing: {cause.about}", f"surefoot log {log}")
    if cause.branch == "sensors":
        return Remedy(
            f"calibrate the sensor, or take it out in the log's mapping: {cause.about}",
            f"surefoot preflight {task.name} {log}",
        )
    if cause.kind == "latency" and not param:
        return Remedy(f"shorten the delay, or train over it: {cause.about}", f"surefoot train {task.name}")
    if param:
        do = f"identify {param} and train over what the log says of it"
        return Remedy(do, f"surefoot identify {task.name} {log} --learn {param} --save e.json")
    if cause.kind in ("stiction", "backlash", "saturation", "gain", "motor time"):
        return Remedy(
            f"learn what the actuators do beyond the model: {cause.about}", f"surefoot actuator {task.name} {log}"
        )
    if cause.branch == "numbers":
        return Remedy(f"correct the model: {cause.about}", f"surefoot identify {task.name} {log} --save e.json")
    return Remedy(f"learn the force that the model lacks: {cause.about}", f"surefoot missing {task.name} {log}")


def decide(task: Task, first: Cause, second: Cause | None) -> str:
    """A further log that would tell two causes apart, or make the one surer."""
    if second is None:
        return "none is needed: no other cause weighs more than chance"
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
