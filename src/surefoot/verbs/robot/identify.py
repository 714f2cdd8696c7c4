"""surefoot identify: a model's unknowns from real logs, with intervals."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from surefoot import files, tasks
from surefoot.belief import Belief, Box
from surefoot.errors import SurefootError, unknown
from surefoot.log import Log
from surefoot.report import Badge, Block, Column, Note, Report, Table, Text, Watch
from surefoot.verbs.machine import FAILED, INTERRUPTED, Machine, asked, checked, naming, read

if TYPE_CHECKING:
    from surefoot.learn.cluster.jobs import Jobs
    from surefoot.real2sim.identify import Identify as How
    from surefoot.real2sim.identify.laws import Comparison
    from surefoot.real2sim.identify.result import Identified, Learned
    from surefoot.sim.engine import Engine


@dataclass(frozen=True)
class Identify:
    model: Positional[str]
    """a task's name, or a model file"""
    logs: Positional[tuple[Path, ...]]
    """the robot's logs: one or several"""
    learn: tuple[str, ...] = ()
    """what to learn, such as armature:kinds,damping,frictionloss,delay,shape:trunk (docs/identify.md); for a task, names of
    its unknowns"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that says what the logs' columns are"""
    signals: tuple[str, ...] = ()
    """columns to fit; default: all that the model predicts"""
    how: Annotated[str, arg(metavar="least-squares|cma")] = "least-squares"
    """cma searches with CMA-ES first, for costs that stiction or contacts make rough"""
    hold: float = 0.25
    """fraction of each log, at its end, held out for testing"""
    last: float | None = None
    """window length of the last stage, s; default: the whole log, up to 20 s, shorter where the motion is unstable"""
    enough: float = 8.0
    """total length of the windows, spread over each log, in the stages before the last, s; less is faster, and finds the
    minimum less surely"""
    known_start: bool = False
    """each log starts exactly in the state of its first row"""
    laws: tuple[str, ...] = ()
    """friction laws to compare on held-out motions, such as coulomb,stribeck,load,back; the best one is then fitted. Also
    coulomb:kinds, or words of --learn joined by +"""
    on: str = ""
    """workers for --laws, each with splits of the logs: local:2, or a Ray cluster's ray://HOST:10001, HOST:6379 or auto"""
    workers: int = 0
    """how many workers of a cluster; 0: one for each of its cores"""
    machine: Machine = Machine()
    check: bool = True
    """run preflight on the logs first"""
    save: Path | None = None
    """write the belief (.json), to train over or to replay with"""
    save_model: Path | None = None
    """write the model with the fitted numbers as MJCF (.xml); a model with meshes: into its own folder"""

    def run(self, watch: Watch) -> Report:
        from surefoot.real2sim.identify import Identify as How
        from surefoot.real2sim.identify import identify
        from surefoot.real2sim.identify.laws import words_of

        self._check_arguments()
        logs = [read(file, self.mapping, watch) for file in self.logs]
        if self.check:
            for file, log in zip(self.logs, logs):
                checked(self.machine.world(self.model, None, log), log, file, watch)
        starts = "known" if self.known_start else "estimated"
        how = How(hold=self.hold, how=self.how, last=self.last, enough=self.enough, starts=starts)  # type: ignore[arg-type]
        with naming(*self.logs):
            compared = self._compared(logs, how, watch) if self.laws else None
            worlds, belief = self._unknowns(logs, words_of(compared.chosen) if compared else ())
            found = identify(worlds, belief, logs, how, self.signals, watch, warn=False)
        title = f"{self.model} from {', '.join(map(str, self.logs))}"
        blocks: tuple[Block, ...] = (_params(found), *map(Text, _remarks(found)))
        facts = _facts(found) | ({"laws": compared.facts()} if compared else {})
        if compared:
            blocks = (_laws(compared), Note(f"law: {compared.chosen}; {compared.why}"), *blocks)
        about = asked(self.model, self.logs[0], self.mapping, self.machine)
        if found.fault:
            words = f"{found.fault}: do not use this belief" + ("; it is not saved" if self.save else "")
            enough = self._enough_rows(logs[0], worlds[0].dt)
            if tasks.is_reference(self.model) and not enough:
                blocks += (Text("to learn what the model lacks, `surefoot missing` needs a longer log than this one"),)
            return Report(title, facts, blocks, self._instead(about, enough), Badge(words, False), FAILED)
        if self.save:
            found.belief.write(self.save)
            blocks += (Text(f"belief: {self.save}"),)
        if self.save_model:
            blocks += self._model(self.save_model, found)
        if found.interrupted:
            words = "stopped before the end: the values are the best so far"
            return Report(title, facts, blocks, self._again(), Badge(words, False), INTERRUPTED)
        lacks = not found.white and self.machine == Machine() and self._enough_rows(logs[0], worlds[0].dt)
        return Report(title, facts, blocks, self._next(about, lacks))

    def _check_arguments(self) -> None:
        if not self.logs:
            raise SurefootError("identify: expected at least one log")
        if self.how not in ("least-squares", "cma"):
            raise unknown("way", self.how, ["least-squares", "cma"], "--how")
        reads = (*self.logs, self.mapping, self.model)
        if self.save:
            files.check_writable(self.save, "--save", ".json", reads)
        if self.save_model:
            files.check_writable(self.save_model, "--save-model", ".xml", reads)
            if tasks.is_reference(self.model):
                raise SurefootError(f"--save-model: {self.model} is a task, expected a model file")
        if (self.on or self.workers) and not self.laws:
            raise SurefootError(
                "--on: one fit is one process with every core; expected with --laws, whose splits are jobs"
            )
        if self.last is not None and not self.last > 0:
            raise SurefootError(f"--last: found {self.last:g}, expected a length above 0, s")
        if not self.enough > 0:
            raise SurefootError(f"--enough: found {self.enough:g}, expected a length above 0, s")

    def _enough_rows(self, log: Log, dt: float) -> bool:
        """Whether `surefoot missing` can learn a task's missing physics from this log."""
        if not tasks.is_reference(self.model):
            return False
        from surefoot.real2sim.residual.ensemble import FitSettings  # by torch, which only a task's fit waits for
        from surefoot.real2sim.residual.force_fit import rows_needed

        return len(log) >= rows_needed(dt, FitSettings())

    def _next(self, about: str, lacks: bool) -> str:
        """Replay what was fitted, or find what the model lacks; where nothing was saved, first keep it."""
        if self.save is None:
            return self._again()
        return f"surefoot {'missing' if lacks else 'replay'} {about} --belief {quote(str(self.save))}"

    def _again(self) -> str:
        """The same fit, with its belief saved."""
        words = f" --learn {quote(','.join(self.learn))}" if self.learn else ""
        words += f" --laws {quote(','.join(self.laws))}" if self.laws else ""
        about = asked(self.model, self.logs, self.mapping, self.machine)
        return f"surefoot identify {about}{words} --save {quote(str(self.save or f'{self.logs[0].stem}-belief.json'))}"

    def _model(self, out: Path, found: "Identified") -> tuple[Block, ...]:
        """The model file as it was driven, free again where its base was fixed, with the fitted numbers."""
        from surefoot.real2sim.plant import Plant
        from surefoot.sim.model.fitted import write_fitted

        spec = Plant(self.model, False, self.machine.kp, self.machine.kd).spec()
        left = write_fitted(spec, found.belief.params, found.e)
        if any(spec.meshes) and out.resolve().parent != Path(self.model).resolve().parent:
            raise SurefootError(
                f"--save-model: {out}: expected a file in {Path(self.model).resolve().parent}, whose meshes the model names"
            )
        files.write(out, spec.to_xml().encode())
        words = f"not in the model, since MJCF has no place for them: {', '.join(left)}"
        return (Text(f"model: {out}"), *([Note(words, True)] if left else []))

    def _instead(self, about: str, enough: bool) -> str:
        """What to do if no values explain the log. A task: learn the missing physics. A model: record a more informative motion."""
        if tasks.is_reference(self.model):
            return f"surefoot missing {about}" if enough else ""
        return f"surefoot explore {quote(self.model)} --learn {','.join(self.learn) or 'armature:kinds'}"  # fmt: skip

    def _compared(self, logs: list[Log], how: "How", watch: Watch) -> "Comparison":
        """Errors of the friction laws on held-out motions; few logs are cut into pieces."""
        from surefoot.real2sim.identify.laws import compare, words_of
        from surefoot.real2sim.identify.param_grammar import learnable
        from surefoot.real2sim.identify.splits import runs

        if tasks.is_reference(self.model):
            raise SurefootError(f"--laws: {self.model} is a task, whose unknowns are its own; expected a model file")
        model = self.machine.world(self.model, None, logs[0]).model
        laws = {law: learnable(model, self._words(words_of(law))) for law in dict.fromkeys(self.laws)}
        make, jobs = partial(self.machine.world, self.model), self._jobs(watch)
        found = compare(make, laws, runs(logs), how, self.signals, watch, jobs=jobs)
        if jobs is not None:
            jobs.forget()
        return found

    def _jobs(self, watch: Watch) -> "Jobs | None":
        """Workers, and where they keep what is done: beside the belief that is saved."""
        if not self.on:
            return None
        from surefoot.learn.cluster.address import On
        from surefoot.learn.cluster.jobs import Jobs

        return Jobs(On.parse(self.on, self.workers), self.save and self.save.with_suffix(".jobs"), watch)

    def _words(self, law: tuple[str, ...]) -> tuple[str, ...]:
        """The words of --learn and those of a law; a target that a law has is not learned twice."""
        own = {word.partition("=")[0].partition(":")[0] for word in law}
        return (*(w for w in self.learn if w.partition("=")[0].partition(":")[0] not in own), *law)

    def _unknowns(self, logs: list[Log], law: tuple[str, ...] = ()) -> tuple[list["Engine"], Belief]:
        from surefoot.real2sim.excite.excited_robot import chosen_params
        from surefoot.real2sim.identify.param_grammar import learnable

        words, plain = self._words(law), self.machine.world(self.model, None, logs[0])
        if tasks.is_reference(self.model):
            task = tasks.resolve(self.model)
            params = chosen_params(task.params, words)
            if self.machine == Machine():
                spans = {p.name: (p.low, p.high) for p in params}
                return [self.machine.world(self.model, None, x) for x in logs], Box.ranges(task.params, spans)
        else:
            params = learnable(plain.model, words or ("armature:kinds", "damping:kinds", "frictionloss:kinds", "delay"))
        return [self.machine.world(self.model, params, x) for x in logs], Box.full(params)


def _laws(found: "Comparison") -> Table:
    """Errors of the first signal: where fitted, and on what was left out."""
    rows = []
    for law in found.laws:
        worst = int(np.argmax(law.rmse))
        mark = "to use" if law.name == found.chosen else "not told apart" if law.name in found.alike else ""
        left = float(np.exp(np.log(law.rmse).mean()))
        rows.append(
            [law.name, len(law.params), law.fitted, left, f"{law.rmse[worst]:.4g} ({found.splits[worst].name})", mark]
        )
    number = lambda name: Column(name, form=".4g")  # noqa: E731
    head = ["law", Column("unknowns", form="d"), number("fitted"), number("left out"), "worst left out", ""]
    return Table.of(
        head, rows, f"laws: error of {found.signal}, with {len(found.splits)} groups of motions left out in turn"
    )


def _learned(found: "Identified") -> list[bool]:
    """Of each unknown, whether it was to be learned: the others are fixed in the belief."""
    return [bool(x > 0) for x in np.diag(found.belief.cov)]


def _facts(found: "Identified") -> dict[str, Any]:
    """Whether the log determines an unknown was tested only for those that were learned."""
    facts = found.facts()
    rows = [
        p | {"learned": x, "determined": p["determined"] if x else None}
        for p, x in zip(facts["params"], _learned(found))
    ]
    return facts | {"params": rows}


def _params(found: "Identified") -> Table:
    rows = []
    for p, learned in zip(found.params, _learned(found)):
        if learned:
            words = [
                *(["at the end of its range"] if p.at_bound else []),
                *([] if p.determined else ["not determined by this log"]),
            ]
            unit = p.unit or ("x model" if p.si else "-")
            rows.append([p.name, p.before, p.value, f"{p.low:.4g} .. {p.high:.4g}", unit, _si(p), "; ".join(words)])
    number = lambda name: Column(name, form=".4g")  # noqa: E731
    head = ["unknown", number("before"), number("after"), "95 % interval", "unit", "in SI", ""]
    if not any(row[5] for row in rows):
        head, rows = [*head[:5], ""], [[*row[:5], row[6]] for row in rows]
    return Table.of(head, rows)


def _si(p: "Learned") -> str:
    """What a multiple makes of the model's values."""
    if p.si is None:
        return ""
    low, high, unit = p.si
    return f"{low:.4g}{f' .. {high:.4g}' if f'{high:.4g}' != f'{low:.4g}' else ''} {unit}".rstrip()


def _remarks(found: "Identified") -> list[str]:
    said = [f"determined only together: {words}" for words in found.combinations]
    for where, errors in (("fitted", found.fit), ("held out", found.held_out)):
        said += [f"{where}: {name} error {a:.4g} -> {b:.4g}" for name, (a, b) in errors.items()]
    if not found.white:
        said.append(
            "the residual is not white noise: the model lacks physics, and policies may rank differently on the robot; "
            "intervals are widened to every e within 1 % of the best error"
        )
    worse = [f"{name} {_more(a, b)}" for name, (a, b) in found.held_out.items() if b > a]
    if worse and not found.fault:
        said.append(f"held-out prediction is worse than before: {', '.join(worse)}")
    return said


def _more(before: float, after: float) -> str:
    """By how much an error grew."""
    if before <= 0:
        return "from nothing"
    if after >= 2 * before:
        return f"{after / before:.2g} times"
    grown = 100 * (after / before - 1)
    return f"by {grown:.0f} %" if grown >= 1 else "by less than 1 %"
