"""Prescription: one thing to do about a cause, and the log that would separate it from the next cause."""

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

from surefoot.doctor.branches.physics import Remainder
from surefoot.doctor.cause import Branch, Cause
from surefoot.doctor.consequences import Consequences
from surefoot.task import Task

SURE = 50.0  # nats between two causes: no further log is needed


@dataclass(frozen=True)
class Prescription:
    do: str
    """for people"""
    command: str
    """to type next; empty where the next step is on the robot"""


@dataclass(frozen=True)
class Case:
    """The arguments of the command line, as the next command needs them."""

    task: Task
    policy: str
    log: str
    """the file, and --map where it has one"""
    steps: int = 0
    """that the policy was trained for; 0: unknown"""
    reference: str = ""
    """the task as the user named it, or the model of a policy from elsewhere; empty: by the task's name"""
    gate: str = ""
    """of a policy from elsewhere: the command that judges it"""

    @property
    def name(self) -> str:
        """Of the task or model, in a command."""
        return quote(self.reference or self.task.name)

    def learn(self, param: str) -> str:
        """An unknown of the task as the word of --learn; of a model file, by its target."""
        p = self.task.params[param]
        if not self.gate:
            return param
        return quote(f"{p.target}:{p.match}") if p.target in ("mass", "com_x", "com_y") else p.target


def prescribe(
    case: Case,
    cause: Cause | None,
    after: Consequences | None = None,
    left: Remainder | None = None,
    unchecked: Sequence[Branch] = (),
) -> Prescription:
    """What to do about the first cause:

    fails in the nominal world -> train;   no cause -> nothing;   contract -> fix the runtime;   tolerated -> look elsewhere;   else by cause
    """
    if after is not None and after.fails_nominal:
        return _train(case, cause)
    if cause is None and unchecked:
        return Prescription(f"log what is missing, and run the doctor on the new log: {unchecked[0].evidence}", "")
    if cause is None:
        words = "nothing: noise explains the prediction errors; if the robot failed, record the failure itself"
        return Prescription(words, case.gate or f"surefoot eval {case.policy}")
    if cause.branch == "contract":
        return _fix(case, cause)
    if after is not None and after.harmless:
        return _look_elsewhere(case, cause, after, left)
    return _treat(case, cause, after.param if after else "")


def _train(case: Case, cause: Cause | None) -> Prescription:
    if case.gate:
        return Prescription("correct the policy's contract or its model: the gate tries usual mistakes", case.gate)
    steps = max(2 * case.steps, int(case.task.settings.get("steps", 0)))
    trained = f" (it had {case.steps:,} steps)" if case.steps else ""
    then = f"; then look at {cause.kind}" if cause else ""
    do = f"train until it succeeds in the nominal world{trained}, and record a log of the new policy{then}"
    return Prescription(do, f"surefoot train {case.name}" + (f" --steps {steps}" if steps else ""))


def _fix(case: Case, cause: Cause) -> Prescription:
    """The next step is on the robot: no command on this log gives anything new."""
    if cause.kind == "policy":
        command = "" if case.gate else f"surefoot export {case.policy}"
        return Prescription("the robot runs another policy: deploy this one", command)
    what = "the robot's wiring or the driver's order" if cause.kind == "wiring" else "the runtime, as the contract says"
    return Prescription(f"fix {what}: {cause.about}; then record a new log and run the doctor on it", "")


def _look_elsewhere(case: Case, cause: Cause, after: Consequences, left: Remainder | None) -> Prescription:
    """The policy tolerates the cause."""
    why = "was trained over it and tolerates it" if after.in_range else "tolerates it"
    do = f"nothing about {cause.kind}: the policy {why}; "
    if left is None or left.white:
        return Prescription(f"{do}the rest of this log is noise: if the robot failed, record the failure itself", "")
    do += "the rest of this log is not noise: "
    if after.param:
        do += f"put {after.param} into the model, then learn the rest (surefoot missing, --belief e.json)"
        return Prescription(do, _identify(case, after.param))
    return Prescription(f"{do}learn the missing force", f"surefoot missing {case.name} {case.log}")


def _identify(case: Case, param: str) -> str:
    return f"surefoot identify {case.name} {case.log} --learn {case.learn(param)} --save e.json"


def _treat(case: Case, cause: Cause, param: str) -> Prescription:
    on, what = f"{case.name} {case.log}", cause.about
    if cause.kind in ("jitter", "drops", "rate"):
        return Prescription(f"fix the link or the timing of the control loop: {what}", f"surefoot log {case.log}")
    if cause.branch == "sensors":
        do = f"calibrate the sensor, or correct it in the log's mapping: {what}"
        return Prescription(do, f"surefoot preflight {on}")
    if param:
        return Prescription(f"identify {param} and train over the identified range", _identify(case, param))
    if cause.kind == "latency":
        command = "" if case.gate else f"surefoot train {case.name}"
        return Prescription(f"shorten the delay, or train over it: {what}", command)
    if cause.kind in ("stiction", "backlash", "saturation", "gain", "motor time"):
        return Prescription(f"learn an actuator model: {what}", f"surefoot actuator {on}")
    if cause.branch == "numbers":
        return Prescription(f"correct the model: {what}", f"surefoot identify {on} --save e.json")
    return Prescription(f"learn the missing force: {what}", f"surefoot missing {on}")


def further_log(case: Case, first: Cause, second: Cause | None) -> str:
    """A log that would separate two causes, or confirm the first."""
    if second is None:
        return "not needed: no other cause has more evidence than chance"
    gap = first.evidence - second.evidence
    if gap > SURE:
        return f"not needed: {second.kind}, the next cause, is {gap:.0f} nats behind; to confirm, {_separating(case, first, second)}"
    return _separating(case, first, second)


def _separating(case: Case, first: Cause, second: Cause) -> str:
    pair = {first.kind, second.kind}
    if first.branch == second.branch == "contract":
        return "record the column `observation` (the policy's input): then each term is compared by itself"
    if pair <= {"gain", "mass", "inertia", "gravity"}:
        return "record with a known weight fixed to the robot: it changes the mass and not the motors"
    if pair <= {"friction", "stiction", "drag", "saturation", "backlash"}:
        return (
            "record all speeds and slow reversals: stiction and backlash show near rest, drag and saturation at speed"
        )
    if pair & {"latency", "jitter", "drops", "motor time"}:
        return "record steps in the command, each ten periods or longer: a delay shifts them, a slow motor rounds them, late commands scatter them"
    if pair & {"sensor bias", "encoder offset", "imu misalignment"}:
        return "record two known poses at rest: a sensor's error is the same in both, a model's error is not"
    names = ",".join(p.name for p in case.task.params if p.target not in ("noise", "bias", "push", "pull", "task"))
    return f"record an informative motion: surefoot explore {case.name} --learn {names}"
