"""surefoot actuator: a net of real actuators, from a log."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from surefoot import files
from surefoot.belief import point
from surefoot.report import Block, Column, Note, Report, Table, Text, Watch
from surefoot.verbs.machine import Machine, checked, estimate_of, naming, params_of, read


@dataclass(frozen=True)
class Actuator:
    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """the robot's log: control, joint_pos and, for labels, joint_torque; any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, arg(name="map")] = None
    """JSON file that maps the log's columns to our schema; see docs/logs.md"""
    labels: bool = True
    """learn from measured torque; --no-labels: from motion alone"""
    net: Literal["mlp", "gru"] = "mlp"
    """a history of periods into an MLP, or one period at a time into a GRU"""
    by: Literal["gradient", "es", "ppo"] = "gradient"
    """without labels: gradients through the engine, evolution of the weights, or reinforcement learning"""
    types: tuple[str, ...] = ()
    """patterns of joints' names, such as .*_hip: joints that match one share a net; default: a net for each"""
    history: int = 6
    """control periods in the input of an MLP, with this one"""
    hidden: int = 32
    """width of the net"""
    rounds: int | None = None
    """epochs with labels, updates without"""
    belief: str = ""
    """JSON file of a belief whose point estimate replaces the model's own numbers, such as `surefoot identify --save` writes"""
    machine: Machine = Machine()
    check: bool = True
    """run preflight on the log first"""
    seed: int = 0
    """seed of all that is random in learning"""
    out: Path = Path("actuator.onnx")
    """the net's ONNX file; without labels also the folder <out>-run, a run that resumes"""

    def run(self, watch: Watch) -> Report:
        from surefoot.real2sim.actuator import degraded, fit
        from surefoot.real2sim.actuator.dataset import Settings
        from surefoot.sim.learned import save

        files.check_writable(self.out, "--out", ".onnx", reads=(self.log, self.mapping, self.belief))
        log = read(self.log, self.mapping, watch)
        world = self.machine.world(self.model, params_of(self.belief), log)
        settings = Settings(
            net=self.net, labels=self.labels, by=self.by, types=self.types, history=self.history, hidden=self.hidden,
            rounds=self.rounds, seed=self.seed,
        )  # fmt: skip
        believed = point(world.params, estimate_of(self.belief, world.params))
        if self.check:
            checked(world, log, self.log, watch)
        with naming(self.log):
            run = None if self.labels else self.out.with_name(f"{self.out.stem}-run")
            fitted = fit(world, believed, log, settings, watch, run)
        named = {"model": Path(self.model), "log": self.log, "belief": Path(self.belief)}
        parents = {k: files.sha256(p.read_bytes()) for k, p in named.items() if p.is_file()}
        path = save(replace(fitted.net, about=fitted.facts | {"parents": parents}), self.out)
        blocks: list[Block] = [_table(fitted.facts), Text(f"net: {path}")]
        blocks.append(Text("the test blocks hold the same motions as the training blocks: test it on another log"))
        following = f"surefoot replay {quote(self.model)} OTHER_LOG --world {quote(str(path))}"
        if bad := degraded(fitted.facts):
            said = ", ".join(f"{name} ({100 * added:.1f} % more squared error)" for name, added in bad.items())
            blocks.append(
                Note(f"with the net the free rollout gets worse in {said}; find out why before you use it", True)
            )
            following = ""
        title = f"actuators of {self.model}, from {self.log}"
        return Report(title, fitted.facts | {"actuator": str(path)}, tuple(blocks), following)


def _table(facts: dict[str, Any]) -> Table:
    """Errors on blocks of the log that nothing was learned from."""
    found = {f"{name}, free rollout": x for name, x in facts["rollout"].items()}
    found |= {"torque": facts["torque"]} if "torque" in facts else {}
    rows = [[name, x["without"], x["with"], f"{100 * x['explained']:.1f} %"] for name, x in found.items()]
    number = lambda name: Column(name, form=".4g")  # noqa: E731
    head = [f"on unseen blocks of {facts['seconds']:g} s", number("model alone"), number("with the net")]
    return Table.of([*head, "squared error explained"], rows)
