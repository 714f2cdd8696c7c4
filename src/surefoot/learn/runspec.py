"""RunSpec: all that determines a run. Runs with equal specs have equal bits on equal machines.

    run.json = spec.to_json() + provenance + versions + resumed, sealed        RunSpec.from_json(spec.to_json()) == spec

What a run stands on (a base, a teacher, learned Terms, nets to start with, a log) is in the spec by content hash; parents.py
holds the content.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from surefoot import files
from surefoot.belief import Belief
from surefoot.errors import SurefootError, unknown
from surefoot.learn.forward_backward.settings import FBSettings
from surefoot.learn.off_policy.settings import FastSACSettings, FastTD3Settings, OffPolicySettings
from surefoot.learn.on_policy.settings import FPOSettings, SAPGSettings
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.ranges.doraemon import Doraemon
from surefoot.learn.ranges.ramp import Ramp
from surefoot.learn.ranges.widen import Widen
from surefoot.learn.residual import Residual
from surefoot.learn.settings import DistillSettings, Judging, PPOSettings
from surefoot.learn.sim2sim.settings import Easy, Forward, Imitation
from surefoot.rng import training
from surefoot.tasks import ObsOverride
from surefoot.typed import record

Settings = PPOSettings | FastTD3Settings | FastSACSettings | SAPGSettings | FPOSettings | FBSettings | DistillSettings
Others = OffPolicySettings | SAPGSettings | FPOSettings | FBSettings  # than PPO
Grows = ADR | Doraemon | Ramp | Widen
LEARNERS: dict[str, type[Settings]] = {
    "ppo": PPOSettings, "fasttd3": FastTD3Settings, "fastsac": FastSACSettings, "sapg": SAPGSettings, "fpo": FPOSettings,
    "fb": FBSettings, "distill": DistillSettings,
}  # fmt: skip
RANGES: dict[str, type[Grows]] = {"adr": ADR, "doraemon": Doraemon, "ramp": Ramp, "widen": Widen}
BESIDE = ("versions", "resumed", "provenance")  # of run.json: when and where it ran, and the task as it was then


@dataclass(frozen=True)
class Origin:
    """The run whose nets another one starts with."""

    run: str
    """its folder"""
    sha256: str
    """of the nets"""


@dataclass(frozen=True)
class RunSpec:
    """What a run is asked to learn, from what, and how."""

    task: str
    belief: Belief
    settings: Settings | None = None
    """of the learner; None where `inputs` has them"""
    seed: int = 0
    ranges: Grows | None = None
    """how p(e) grows towards the belief; None: it is the belief from the start"""
    obs: ObsOverride = ObsOverride()
    start: Origin | None = None
    base: str = ""
    """hash of the policy that the one to learn adds to"""
    residual: Residual | None = None
    """how it adds; Residual() with a base"""
    teacher: str = ""
    """hash of the policy to distill"""
    terms: tuple[str, ...] = ()
    """hashes of the learned Terms in the world"""
    judge: Judging | None = None
    """evaluations while training, which keep the best policy; None: only the last is kept"""
    easy: Easy | None = None
    """the support world in which a teacher learns; None: the task's own"""
    forward: Forward | None = None
    """a forward model of the kinematics, learned beside the policy"""
    reference: str = ""
    """hash of the forward model that is imitated"""
    imitation: Imitation | None = None
    """how; Imitation() with a reference"""
    robot: OnRobot | None = None
    """rows of each batch that come from a robot; None: all are simulated"""
    engines: tuple[str, ...] = ()
    """engines that each simulate a share of the batch; empty: MuJoCo as the model asks for it"""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """what else decides, where it is no policy that is learned: hashes of logs and models, settings"""

    def __post_init__(self) -> None:
        training(self.seed)
        if self.settings is None and not self.inputs:
            raise SurefootError("settings: missing")
        student = isinstance(self.settings, DistillSettings)
        if student and not self.teacher:
            raise SurefootError("teacher: distillation needs one to learn from, found none (--teacher)")
        if self.teacher and not student and not self.reference:
            raise SurefootError("teacher: only with settings of distillation (--adapt rma or --adapt dagger)")
        extra = {"ranges": self.ranges, "start": self.start, "base": self.base, "obs": self.obs != ObsOverride()}
        if student and any(extra.values()):
            names = ", ".join(k for k, v in extra.items() if v)
            raise SurefootError(f"{names}: not with a teacher, which decides what its student learns")
        start = self.start if not isinstance(self.settings, FPOSettings) else None  # which may begin with a clone
        if isinstance(self.settings, Others) and (start or self.base):
            name = "start" if start else "base"
            raise SurefootError(f"{name}: only with --learner ppo, found {self.settings.learner}")
        if self.base and self.residual is None:
            object.__setattr__(self, "residual", Residual())
        if self.residual is not None and not self.base:
            raise SurefootError("residual: expected a base to learn upon, found none (--base)")
        self._check_worlds()
        self._check_robot()
        self._check_engines()
        if isinstance(self.settings, DistillSettings) and self.settings.label == "latent" and self.settings.only:
            raise SurefootError("student.only: a student by latent keeps its teacher's body; --adapt dagger")

    def _check_worlds(self) -> None:
        """What two worlds need."""
        if self.reference and self.imitation is None:
            object.__setattr__(self, "imitation", Imitation())
        if self.imitation is not None and not self.reference:
            raise SurefootError("imitation: expected a forward model to imitate, found none (--support)")
        if self.reference and self.forward is not None:
            raise SurefootError(
                "forward: a student imitates a forward model; expected that only its teacher learns one"
            )
        if bool(self.teacher) != bool(self.imitation and self.imitation.prime) and self.reference:
            raise SurefootError("imitation.prime: expected a teacher whose torque to give, and only then")
        if self.easy is not None and self.terms:
            raise SurefootError("easy: learned Terms belong to the robot's own world; expected none in a support world")
        used = {"easy": self.easy, "forward": self.forward, "reference": self.reference}
        for name, value in used.items():
            if value and not isinstance(self.settings, PPOSettings):
                raise SurefootError(f"{name}: only with --learner ppo and without --adapt")

    def _check_robot(self) -> None:
        """What a robot among the simulations allows."""
        if self.robot is None:
            return
        if not isinstance(self.settings, PPOSettings):
            raise SurefootError("robot: only with --learner ppo and without --adapt")
        if self.ranges is not None:
            raise SurefootError("robot: ranges grow as simulations succeed; expected fixed ranges (--ranges fixed)")
        if self.easy is not None:
            raise SurefootError("robot: no robot is in a support world; expected one without the other")

    def _check_engines(self) -> None:
        """What simulations in several engines allow."""
        if not self.engines:
            return
        if not isinstance(self.settings, PPOSettings):
            raise SurefootError("engines: only with --learner ppo and without --adapt")
        if self.ranges is not None and self.engines != ("warp",):
            raise SurefootError("engines: expected fixed ranges (--ranges fixed)")
        if self.robot is not None:
            raise SurefootError("engines: no robot is in another engine; expected one without the other")

    def to_json(self) -> dict[str, Any]:
        """What is as usual is left out."""
        own = {f.name: getattr(self, f.name) for f in fields(self)} | {"belief": self.belief.to_json()}
        for k in ("settings", "ranges", "obs", "start", "residual", "judge", "easy", "forward", "imitation", "robot"):
            own[k] = None if own[k] in (None, ObsOverride()) else asdict(own[k])
        own["learner"] = next((k for k, kind in LEARNERS.items() if type(self.settings) is kind), None)
        if self.ranges is not None:
            own["ranges"]["kind"] = next(k for k, kind in RANGES.items() if type(self.ranges) is kind)
        unusual = {k: v for k, v in own.items() if k == "seed" or v not in (None, "", (), {})}
        return dict(json.loads(json.dumps(unusual)))

    @staticmethod
    def from_json(data: Any, where: str = "run") -> "RunSpec":
        """The spec in run.json; refused by field where it cannot be one."""
        if not isinstance(data, dict):
            raise SurefootError(f"{where}: expected an object, found {type(data).__name__}")
        body = {k: v for k, v in data.items() if k not in BESIDE}
        kinds: dict[str, Any] = dict(obs=ObsOverride, start=Origin, residual=Residual, ranges=Widen, judge=Judging)
        kinds |= {"easy": Easy, "forward": Forward, "imitation": Imitation, "robot": OnRobot}
        kinds["settings"] = _kind(LEARNERS, body.pop("learner", "ppo"), f"{where}: learner")
        if isinstance(body.get("ranges"), dict):
            kinds["ranges"] = _kind(RANGES, body["ranges"].get("kind"), f"{where}: ranges")
            body["ranges"] = {k: v for k, v in body["ranges"].items() if k != "kind"}
        spec: RunSpec = record(RunSpec, body, where, kinds, {Belief: Belief.from_json})
        return spec

    def differences(self, other: "RunSpec") -> dict[str, str]:
        """The fields in which another spec differs, and where it can be said in a line, its entry: `lr: 0.1, not 0.2`."""
        mine, theirs = self.to_json(), other.to_json()
        return {k: _which(mine.get(k), theirs.get(k)) for k in {**mine, **theirs} if mine.get(k) != theirs.get(k)}


def content_hash(value: Any) -> str:
    """Of arrays, dataclasses, mappings, lists and plain values, for `inputs`."""
    return files.sha256(_content(value))


def _content(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes()
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__.encode() + _content({f.name: getattr(value, f.name) for f in fields(value)})
    if isinstance(value, Mapping):
        return b"{%s}" % b",".join(str(k).encode() + b":" + _content(value[k]) for k in sorted(value, key=str))
    if isinstance(value, (list, tuple)):
        return b"[%s]" % b",".join(map(_content, value))
    return value if isinstance(value, bytes) else re.sub(r" at 0x\w+", "", repr(value)).encode()


def _kind(kinds: Mapping[str, Any], name: Any, where: str) -> Any:
    if not isinstance(name, str) or name not in kinds:
        raise unknown("kind", str(name), kinds, where)
    return kinds[name]


def _which(was: Any, now: Any) -> str:
    if not isinstance(was, dict) or not isinstance(now, dict):
        return ""
    k = next(k for k in {**was, **now} if was.get(k) != now.get(k))
    return f"{k}: {was.get(k)}, not {now.get(k)}" if len(str(was.get(k)) + str(now.get(k))) < 80 else k
