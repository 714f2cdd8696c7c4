"""Shared by verbs about a real robot: how it was mounted, its log, its belief, and the model in a world at the log's rate."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot import files, tasks
from surefoot.belief import Belief
from surefoot.errors import LogError, SurefootError
from surefoot.formats.raw import listed
from surefoot.log import Log
from surefoot.params import Params
from surefoot.report import Progress, Watch

if TYPE_CHECKING:
    from surefoot.sim.engine import Engine
    from surefoot.world import Term

FAILED, INTERRUPTED = 1, 130


@dataclass(frozen=True)
class Machine:
    """How the robot was mounted and driven when the log was made."""

    fixed: bool = False
    """the base was fixed: removes the model's free joint"""
    kp: float | None = None
    """position gain of the servos, N m/rad, if the model has bare motors; a model with servos has its own"""
    kd: float = 0.0
    """velocity gain of the servos, N m s/rad"""
    timestep: float | None = None
    """longest step of the engine, s; default: the model's own"""
    net: str | None = None
    """a net of the actuators, as `surefoot actuator` writes"""

    def world(self, model: str, params: Params | None, log: Log) -> "Engine":
        """A World of one simulation at the log's rate: of a task, or of a model as it was mounted."""
        from surefoot.real2sim.plant import Plant

        self._check()
        if tasks.is_reference(model) and self == Machine():
            made: Engine = tasks.env(tasks.resolve(model), 1).world  # type: ignore[assignment]
        else:
            made = Plant(model, self.fixed, self.kp, self.kd, self.timestep, self.net).world(params or Params(), log)
        _same_robot(made, model, log)
        return made

    def _check(self) -> None:
        for name, value, least in (("kp", self.kp, 0.0), ("kd", self.kd, 0.0), ("timestep", self.timestep, 1e-6)):
            if value is not None and not least <= value < math.inf:
                raise SurefootError(f"--machine.{name}: found {value:g}, expected a number of at least {least:g}")
        if self.kd and self.kp is None:
            raise SurefootError("--machine.kd: found without --machine.kp, which replaces motors by servos; give both")

    def words(self) -> str:
        """The flags of what is not the default."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return "".join(f" --machine.{k}" if v is True else f" --machine.{k} {quote(str(v))}" for k, v in found.items())


def _same_robot(world: "Engine", model: str, log: Log) -> None:
    """Refuses a log that has no joint of the model: it is another robot's."""
    has = list(world.layout.joints)
    given = log.meta.get("names", {})
    names = [str(n) for column in ("joint_pos", "joint_vel") for n in given.get(column, []) if column in log.columns]
    if names and not set(names) & set(has):
        source = log.meta.get("source", {}).get("path", "log")
        raise SurefootError(
            f"{source}: found the joints {listed(dict.fromkeys(names))}; {model} has {', '.join(has) or 'no joints'}: "
            "is it a log of another robot? A mapping's `names` set the joints (docs/logs.md)"
        )


def asked(model: str, logs: Path | tuple[Path, ...], mapping: Path | None, machine: Machine) -> str:
    """A model and a log, or several, as arguments of a command."""
    more = f" --map {quote(str(mapping))}" if mapping else ""
    files_ = " ".join(quote(str(x)) for x in (logs if isinstance(logs, tuple) else (logs,)))
    return f"{quote(model)} {files_}{more}{machine.words()}"


def lacking(paths: tuple[Path, ...], model: Any) -> tuple["Term", ...]:
    """Terms that `surefoot missing`, `delta` and `actuator` wrote for this model; those of another robot are refused."""
    from surefoot.sim import learned

    try:
        return tuple(learned.load(path, model) for path in paths)
    except SurefootError as error:
        raise SurefootError(f"--world: {error}") from None


@contextmanager
def naming(*logs: Path) -> Iterator[None]:
    """An error about a log names its file."""
    try:
        yield
    except LogError as error:
        raise error.named(", ".join(map(str, logs))) from error


def read(file: Path, mapping: Path | None, watch: Watch) -> Log:
    watch(Progress(f"reading {file}"))
    return Log.read(file, mapping)


def checked(world: "Engine", log: Log, file: Path, watch: Watch) -> None:
    """Refuses a log that fails preflight before anything is learned from it; gaps are allowed."""
    from surefoot.real2sim.preflight import preflight

    watch(Progress(f"preflight of {file}"))
    with naming(file):
        checks = preflight(world, log, watch).checks
    bad = [c for c in checks if not c.holds and c.name != "gaps"]
    if bad:
        raise SurefootError(
            f"{file}: {bad[0].name}: {bad[0].evidence}; a fit would hide this fault: correct the mapping, or use --no-check"
        )


def params_of(belief: str) -> Params:
    """The unknowns of a belief's file; none without one, and none of ranges by name, which are about a task's unknowns."""
    data = files.read_json(Path(belief)) if belief else {}
    return Params() if isinstance(data, dict) and "params" not in data else Belief.from_json(data, belief).params


def estimate_of(belief: str, params: Params) -> np.ndarray:
    """The point estimate of a belief's file about these params."""
    return Belief.read(belief, params).estimate() if belief else params.nominal
