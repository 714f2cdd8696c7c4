"""The verbs between a real machine's log and its model: replay, preflight, identify."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files, tasks
from surefoot.belief import Belief, Box
from surefoot.console import Answer, Line
from surefoot.errors import SurefootError, unknown
from surefoot.formats import clean
from surefoot.formats.raw import listed
from surefoot.log import Log
from surefoot.params import Params

if TYPE_CHECKING:
    from surefoot.real2sim.identified import Identified
    from surefoot.real2sim.replay import Replay as Replayed
    from surefoot.sim.engine import Engine
    from surefoot.world import Term

FAILED = 1


@dataclass
class Machine:
    """How the machine stood, and how it was driven, when the log was made."""

    fixed: bool = False
    """its base was held: the model's free joint is taken out"""
    kp: float | None = None
    """position gain of its servos, N m/rad, in place of the model's bare motors; a model with servos has its own"""
    kd: float = 0.0
    """their velocity gain, N m s/rad"""
    timestep: float | None = None
    """longest step of the engine, s; the model's own unless told"""
    net: str | None = None
    """a net of its actuators, such as `surefoot actuator` writes"""

    def world(self, model: str, params: Params | None, log: Log) -> "Engine":
        """A World of one simulation at the log's rate: of a task as it is, or of a model as it stood."""
        from surefoot.real2sim.plant import Plant

        if tasks.is_reference(model) and self == Machine():
            made: Engine = tasks.env(tasks.resolve(model), 1).world  # type: ignore[assignment]
        else:
            made = Plant(model, self.fixed, self.kp, self.kd, self.timestep, self.net).world(params or Params(), log)
        _same_robot(made, model, log)
        return made

    def words(self) -> str:
        """As flags, what is not the default."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        return "".join(f" --machine.{k}" if v is True else f" --machine.{k} {quote(str(v))}" for k, v in found.items())


def _same_robot(world: "Engine", model: str, log: Log) -> None:
    """Refuse a log none of whose joints the model has: it is another robot's."""
    from surefoot.real2sim.signals import movable

    has = [world.model.joint(j).name for j in movable(world.model)]
    told = log.meta.get("names", {})
    names = [str(n) for column in ("joint_pos", "joint_vel") for n in told.get(column, []) if column in log.columns]
    if names and not set(names) & set(has):
        source = log.meta.get("source", {}).get("path", "log")
        raise SurefootError(
            f"{source}: found the joints {listed(dict.fromkeys(names))}; {model} has {', '.join(has) or 'no joints'}: "
            "is it a log of another robot? A mapping's `names` say which joint is which (docs/logs.md)"
        )


def asked(model: str, log: Path, mapping: Path | None, machine: Machine) -> str:
    """A model and a log, as a command is told them."""
    more = f" --map {quote(str(mapping))}" if mapping else ""
    return f"{quote(model)} {quote(str(log))}{more}{machine.words()}"


def lacking(paths: tuple[Path, ...], model: Any) -> tuple["Term", ...]:
    """Terms that `surefoot missing`, `delta` and `actuator` wrote, for a model; refused where it is another robot's."""
    from surefoot.real2sim import actuator_net
    from surefoot.sim import learned

    found: list[Term] = []
    for path in paths:
        folder = path.parent if path.name == "term.json" else path
        if (folder / "term.json").is_file():
            found.append(learned.load(folder, model))
        elif path.suffix == ".json" and path.is_file():
            found.append(actuator_net.load(path, model))
        else:
            what = "a folder without term.json" if path.is_dir() else "another file" if path.exists() else "nothing"
            raise SurefootError(
                f"--world: {path}: found {what}, expected the folder that `surefoot missing` or `surefoot delta` wrote, "
                "or the JSON file of `surefoot actuator`"
            )
    return tuple(found)


@contextmanager
def naming(*logs: Path) -> Iterator[None]:
    """An error about a log names its file."""
    try:
        yield
    except SurefootError as error:
        words = str(error)
        if not words.startswith("log: "):
            raise
        raise SurefootError(f"{', '.join(map(str, logs))}: {words.removeprefix('log: ')}") from error


def read(file: Path, mapping: Path | None, line: Line) -> Log:
    line.text(f"reading {file}")
    return Log.read(file, mapping)


def checked(world: "Engine", log: Log, file: Path, line: Line) -> None:
    """Refuse a log that is not what it says it is, before anything is learned from it; gaps are borne."""
    from surefoot.real2sim.preflight import preflight

    line.text(f"preflight of {file}")
    with naming(file):
        checks = preflight(world, log).checks
    bad = [c for c in checks if not c.holds and c.name != "gaps"]
    if bad:
        raise SurefootError(
            f"{file}: {bad[0].name}: {bad[0].evidence}; a fit would swallow it: correct the mapping, or say --no-check"
        )


def told(belief: str, params: Params) -> np.ndarray:
    """The best single e of a belief's file, in the order of some params."""
    if not belief:
        return params.nominal
    found = Belief.read(belief)
    if found.params.names != params.names:
        raise SurefootError(
            f"{belief}: params: expected {', '.join(params.names)}; found {', '.join(found.params.names)}"
        )
    return found.mean()


@dataclass
class Replay:
    """Give a model the controls of a real log and hold what it does against what the machine did."""

    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """what the machine did: any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the log's columns are; see docs/logs.md"""
    belief: str = ""
    """JSON file of a belief whose mean replaces the model's own numbers, such as `surefoot identify --save` writes"""
    world: tuple[Path, ...] = ()
    """what the model lacks, put into it: folders that `surefoot missing` or `surefoot delta` wrote, nets of `surefoot
    actuator`, in the order they act"""
    resync: int | None = None
    """set the model back to the measured state every so many steps; free from the first row to the last unless told"""
    signals: tuple[str, ...] = ()
    """columns to look at; all that the model can answer for unless told"""
    machine: Machine = field(default_factory=Machine)
    plot: Path | None = None
    """write a page with the curves (.html)"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.preflight import standing
        from surefoot.real2sim.replay import replay

        if self.plot:
            files.check_writable(self.plot, "--plot", ".html")
        if self.resync is not None and self.resync < 1:
            raise SurefootError(f"resync: expected at least 1, found {self.resync}")
        line = Line(say)
        log = read(self.log, self.mapping, line)
        params = Params()
        if self.belief:
            params = Belief.read(self.belief).params
        plain = self.machine.world(self.model, params, log)
        world = plain.like(1, (*plain.terms, *lacking(self.world, plain.model))) if self.world else plain
        line.text("replaying")
        with naming(self.log):
            found = replay(world, log, told(self.belief, world.params), self.resync, only=self.signals)
        line.end()
        shown: list[Any] = [_scores(found)]
        if found.diverged:
            shown.append(f"{found.diverged} simulations diverged: their errors mean nothing")
        doubts = [c.evidence for c in standing(plain, log) if not c.holds]
        shown += doubts
        facts = clean(found.facts()) | {"doubts": doubts}  # a prediction without an error has no rate of growth
        if self.plot:
            facts["page"] = str(page(self.plot, f"{self.model} against {self.log}", found))
            shown.append(f"picture: {self.plot}")
        about = asked(self.model, self.log, self.mapping, self.machine)
        return Answer(facts, shown, f"surefoot {self._following()} {about}")

    def _following(self) -> str:
        """After the model's own numbers, the log's; after those, of a task, what no number names."""
        return "missing" if self.belief and tasks.is_reference(self.model) else "identify"


def _scores(found: "Replayed") -> Table:
    table = Table("signal", "RMSE", "MAE", "R2", "error grows by", "worst part")
    for s in found.scores:
        worst = max(s.parts, key=lambda k: s.parts[k])
        rho = found.growth[s.signal]
        grows, r2 = (
            "-" if np.isnan(x) else words
            for x, words in ((rho, f"{100 * (rho - 1):+.2f} % a step"), (s.r2, f"{s.r2:.3f}"))
        )
        table.add_row(s.signal, f"{s.rmse:.4g} {s.unit}", f"{s.mae:.4g}", r2, grows,
                      f"{worst} {s.parts[worst]:.3g}")  # fmt: skip
    return table


def page(out: Path, title: str, found: "Replayed") -> Path:
    """The curves, a picture for each signal, in one HTML file."""
    from surefoot.gate import report

    parts = []
    for s in found.scores:
        measured, predicted = found.measured[s.signal], found.predicted[s.signal]
        names = list(s.parts)

        def draw(
            axes: Any, measured: np.ndarray = measured, predicted: np.ndarray = predicted, names: list[str] = names
        ) -> None:
            for k in range(min(measured.shape[1], 4)):
                axes.plot(
                    found.time, measured[:, k], color=f"C{k}", label=f"{names[k]} measured" if k < len(names) else None
                )
                axes.plot(found.time, predicted[:, k], "--", color=f"C{k}", linewidth=1)
            axes.set_xlabel("s")
            axes.legend(fontsize="small")

        more = f", the first 4 of {measured.shape[1]} parts" if measured.shape[1] > 4 else ""
        parts.append(
            report.plot(draw, f"{s.signal} [{s.unit}]: measured, and predicted (dashed){more}; RMSE {s.rmse:.4g}")
        )
    return report.write(out, title, parts, clean(found.facts()))


@dataclass
class Preflight:
    """Is this log what it says it is? Finds exchanged joints, turned signs, degrees, wrong axes, late clocks, bad stamps."""

    model: Positional[str]
    """a task's name, or a model file"""
    log: Positional[Path]
    """what the machine did"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the log's columns are"""
    machine: Machine = field(default_factory=Machine)

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.preflight import preflight

        line = Line(say)
        log = read(self.log, self.mapping, line)
        world = self.machine.world(self.model, None, log)
        line.text("predicting under each suspicion")
        with naming(self.log):
            verdict = preflight(world, log)
        line.end()
        table = Table("check", "", "evidence")
        for c in verdict.checks:
            if not c.holds or c.unit == "gain":
                table.add_row(c.name, "ok" if c.holds else "SUSPECT", c.evidence)
        rest = sum(c.holds and c.unit != "gain" for c in verdict.checks)
        shown = [
            *([table] if table.row_count else []),
            f"{rest} more checks of stamps, speeds, ranges and how it stood hold",
        ]
        unchecked = verdict.meta["unchecked"]
        if unchecked:
            shown.append(f"not checked, or hardly: order, signs, units and gravity: {unchecked}")
        facts = {"holds": verdict.holds, "unchecked": unchecked, "checks": [c.to_json() for c in verdict.checks]}
        about = asked(self.model, self.log, self.mapping, self.machine)
        if not verdict.holds:
            shown.append(
                "correct the mapping (docs/logs.md), or how the machine stood (--machine), as the first line says; then ask again"
            )
        return Answer(facts, shown, f"surefoot replay {about}" if verdict.holds else "", 0 if verdict.holds else FAILED)


@dataclass
class Identify:
    """The unknowns that make a model do what real logs say the machine did, with honest intervals."""

    model: Positional[str]
    """a task's name, or a model file"""
    logs: Positional[tuple[Path, ...]]
    """what the machine did: one log or several"""
    learn: str = ""
    """what to learn, by commas: such as armature:kinds,damping,frictionloss,delay,shape:trunk (docs/identify.md); for a
    task, names of its unknowns"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the logs' columns are"""
    signals: tuple[str, ...] = ()
    """columns to fit; all that the model can answer for unless told"""
    how: Annotated[str, tyro.conf.arg(metavar="least-squares|cma")] = "least-squares"
    """cma searches first by CMA-ES, where stiction or contacts make the cost rough"""
    hold: float = 0.25
    """share of each log, at its end, kept aside to check on"""
    known_start: bool = False
    """each log begins in exactly the state its first row says"""
    machine: Machine = field(default_factory=Machine)
    check: bool = True
    """look first whether the log is what it says it is"""
    save: Path | None = None
    """write the belief (.json), to train over or to replay with"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.identify import Identify as How
        from surefoot.real2sim.identify import identify

        if not self.logs:
            raise SurefootError("identify: expected at least one log")
        if self.how not in ("least-squares", "cma"):
            raise unknown("way", self.how, ["least-squares", "cma"], "--how")
        if self.save:
            files.check_writable(self.save, "--save", ".json", (*self.logs, self.mapping, self.model))
        line = Line(say)
        logs = [read(file, self.mapping, line) for file in self.logs]
        worlds, belief = self._unknowns(logs)
        if self.check:
            for file, world, log in zip(self.logs, worlds, logs):
                checked(world, log, file, line)
        how = How(hold=self.hold, how=self.how, starts="known" if self.known_start else "estimated")  # type: ignore[arg-type]
        with naming(*self.logs):
            found = identify(worlds, belief, logs, how, self.signals, lambda words: line.text(f"fitting {words}"))
        line.end()
        shown = [_params(found), *_remarks(found)]
        about = asked(self.model, self.logs[0], self.mapping, self.machine)
        if found.fault:
            shown.append(f"{found.fault}: do not use this belief" + ("; it is not saved" if self.save else ""))
            return Answer(_facts(found), shown, self._instead(about), FAILED)
        if self.save:
            found.belief.write(self.save)
            shown.append(f"belief: {self.save}")
        saved = f" --belief {quote(str(self.save))}" if self.save else ""
        lacks = not found.white and tasks.is_reference(self.model) and self.machine == Machine()
        return Answer(_facts(found), shown, f"surefoot {'missing' if lacks else 'replay'} {about}{saved}")

    def _instead(self, about: str) -> str:
        """Where no number explains a log: what has no name, of a task; a motion that would tell more, of a model."""
        return f"surefoot missing {about}" if tasks.is_reference(self.model) else f"surefoot explore {quote(self.model)} --learn {self.learn or 'armature:kinds'}"  # fmt: skip

    def _unknowns(self, logs: list[Log]) -> tuple[list["Engine"], Belief]:
        from surefoot.real2sim.learnable import learnable
        from surefoot.real2sim.subject import chosen

        words, plain = tuple(w for w in self.learn.split(",") if w), self.machine.world(self.model, None, logs[0])
        if tasks.is_reference(self.model):
            task = tasks.resolve(self.model)
            params = chosen(task.params, words)
            if self.machine == Machine():
                spans = {p.name: (p.low, p.high) for p in params}
                return [self.machine.world(self.model, None, x) for x in logs], Box.ranges(task.params, spans)
        else:
            params = learnable(plain.model, words or ("armature:kinds", "damping:kinds", "frictionloss:kinds", "delay"))
        return [self.machine.world(self.model, params, x) for x in logs], Box.full(params)


def _learned(found: "Identified") -> list[bool]:
    """Of each unknown, whether it was to be learned: the others are fixed in the belief."""
    return [bool(x > 0) for x in np.diag(found.belief.cov)]


def _facts(found: "Identified") -> dict[str, Any]:
    """Of an unknown that was not to be learned, the log was not asked whether it determines it."""
    facts = found.facts()
    rows = [
        p | {"learned": x, "determined": p["determined"] if x else None}
        for p, x in zip(facts["params"], _learned(found))
    ]
    return facts | {"params": rows}


def _params(found: "Identified") -> Table:
    table = Table("unknown", "before", "after", "95 % interval", "unit", "")
    for p, learned in zip(found.params, _learned(found)):
        if not learned:
            continue
        words = "" if p.determined else "not determined by this log"
        if p.at_bound:
            words = "at the end of its range" + (f"; {words}" if words else "")
        table.add_row(p.name, f"{p.before:.4g}", f"{p.value:.4g}", f"{p.low:.4g} .. {p.high:.4g}", p.unit or "-", words)
    return table


def _remarks(found: "Identified") -> list[str]:
    said = [f"determined together: {words}" for words in found.told]
    for where, errors in (("fitted", found.fit), ("kept aside", found.held)):
        said += [f"{where}: {name} error {a:.4g} -> {b:.4g}" for name, (a, b) in errors.items()]
    if not found.white:
        said.append(
            "what is left is not noise: the model lacks physics, and the intervals hold all that predicts within 1 % as well"
        )
    worse = [f"{name} {_more(a, b)}" for name, (a, b) in found.held.items() if b > a]
    if worse and not found.fault:
        said.append(f"predicted worse than before on what was kept aside: {', '.join(worse)}")
    return said


def _more(before: float, after: float) -> str:
    """By how much an error grew."""
    if before <= 0:
        return "from nothing"
    if after >= 2 * before:
        return f"{after / before:.2g} times"
    grown = 100 * (after / before - 1)
    return f"by {grown:.0f} %" if grown >= 1 else "by less than 1 %"
