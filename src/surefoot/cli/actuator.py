"""The verb that learns actuators from a log."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files
from surefoot.belief import Belief, point
from surefoot.cli.real import Machine, checked, naming, read, told
from surefoot.console import Answer, Line
from surefoot.params import Params


@dataclass
class Actuator:
    """Learn from a log what real actuators do beyond the model's: a net that goes into worlds as a term."""

    model: Positional[str]
    """a task's name, or a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """what the machine did: control, joint_pos and, for labels, joint_torque; any file that `surefoot log` reads"""
    mapping: Annotated[Path | None, tyro.conf.arg(name="map")] = None
    """JSON file that says what the log's columns are; see docs/logs.md"""
    labels: bool = True
    """learn from measured torque; without, from motion alone"""
    net: Literal["mlp", "gru"] = "mlp"
    """a history of periods into an MLP, or one period at a time into a GRU"""
    by: Literal["gradient", "es", "ppo"] = "gradient"
    """without labels: gradients through the engine, evolution of the weights, or reinforcement learning"""
    types: tuple[str, ...] = ()
    """patterns of joints' names, such as .*_hip: those that match one share a net; unless told, each joint has its own"""
    history: int = 6
    """periods an MLP is told, this one among them"""
    hidden: int = 32
    """width of the net"""
    rounds: int | None = None
    """epochs with labels, updates without"""
    belief: str = ""
    """JSON file of a belief whose mean replaces the model's own numbers, such as `surefoot identify --save` writes"""
    machine: Machine = field(default_factory=Machine)
    check: bool = True
    """look first whether the log is what it says it is"""
    seed: int = 0
    """seed of all that is random in learning"""
    out: Path = Path("actuator.json")
    """where to write the net: this JSON, and .safetensors beside it; without labels, also <out>-run, a run that resumes"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.actuator import Settings, fit, worse
        from surefoot.real2sim.actuator_net import save

        files.check_writable(self.out.with_suffix(".json"), "--out", reads=(self.log, self.mapping, self.belief))
        line = Line(say)
        log, params = read(self.log, self.mapping, line), Params()
        if self.belief:
            params = Belief.read(self.belief).params
        world = self.machine.world(self.model, params, log)
        settings = Settings(
            net=self.net, labels=self.labels, by=self.by, types=self.types, history=self.history, hidden=self.hidden,
            rounds=self.rounds, seed=self.seed,
        )  # fmt: skip
        believed = point(world.params, told(self.belief, world.params))
        if self.check:
            checked(world, log, self.log, line)
        with naming(self.log):
            folder = None if self.labels else self.out.with_name(f"{self.out.stem}-run")
            fitted = fit(world, believed, log, settings, line.text, folder)
        line.end()
        named = {"model": Path(self.model), "log": self.log, "belief": Path(self.belief)}
        parents = {k: files.sha256(p.read_bytes()) for k, p in named.items() if p.is_file()}
        path = save(fitted.net, self.out, fitted.facts | {"parents": parents})
        shown = [table(fitted.facts), f"net: {path}", "these blocks are of the same motions: try it on a log of others"]
        next_ = f"surefoot replay {self.model} OTHER_LOG --world {path}"
        if bad := worse(fitted.facts):
            said = ", ".join(f"{name} ({100 * added:.1f} % more squared error)" for name, added in bad.items())
            shown.append(f"warning: with the net the free rollout gets worse in {said}; find out why before you use it")
            next_ = ""
        return Answer(fitted.facts | {"actuator": str(path)}, shown, next_)


def table(facts: dict[str, Any]) -> Table:
    """Errors on blocks of the log that nothing was learned from."""
    out = Table(f"on unseen blocks of {facts['seconds']:g} s", "model alone", "with the net", "squared error explained")
    rows = {f"{name}, free rollout": x for name, x in facts["rollout"].items()}
    rows |= {"torque": facts["torque"]} if "torque" in facts else {}
    for name, x in rows.items():
        out.add_row(name, f"{x['without']:.4g}", f"{x['with']:.4g}", f"{100 * x['explained']:.1f} %")
    return out
