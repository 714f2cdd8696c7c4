"""The verb that learns actuators from a log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from surefoot import files
from surefoot.belief import Belief, point
from surefoot.console import Answer, Line
from surefoot.log import Log
from surefoot.params import Params


@dataclass
class Actuator:
    """Learn from a log what real actuators do beyond the model's: a net that goes into worlds as a term."""

    model: Positional[str]
    """a model file (.xml MJCF, .urdf)"""
    log: Positional[Path]
    """a log (.npz) with control, joint_pos and, for labels, joint_torque"""
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
    fixed: bool = False
    """the base was held while the log was made"""
    kp: float | None = None
    """position gain of the robot's servos, where the model has bare motors, N m/rad"""
    kd: float = 0.0
    """velocity gain of those servos, N m s/rad"""
    belief: Path | None = None
    """unknowns that were identified before, a belief's JSON file: its mean is taken"""
    seed: int = 0
    """seed of all that is random in learning"""
    out: Path = Path("actuator.json")
    """where to write the net: this JSON, and .safetensors beside it"""

    def run(self, say: Console) -> Answer:
        from surefoot.real2sim.actuator import Settings, fit
        from surefoot.real2sim.actuator_net import save
        from surefoot.real2sim.plant import Plant

        log = Log.load(self.log)
        belief = self._belief()
        world = Plant(self.model, self.fixed, self.kp, self.kd).world(belief.params, log)
        settings = Settings(
            net=self.net, labels=self.labels, by=self.by, types=self.types, history=self.history, hidden=self.hidden,
            rounds=self.rounds, seed=self.seed,
        )  # fmt: skip
        line = Line(say)
        fitted = fit(world, belief, log, settings, line.text)
        line.end()
        parents = {"model": files.sha256(Path(self.model).read_bytes()), "log": files.sha256(self.log.read_bytes())}
        path = save(fitted.net, self.out, fitted.facts | {"parents": parents})
        return Answer(fitted.facts | {"actuator": str(path)}, [table(fitted.facts), f"net: {path}"])

    def _belief(self) -> Belief:
        if self.belief is None:
            return point(Params(()), np.zeros(0))
        return Belief.from_json(files.read_json(self.belief), str(self.belief))


def table(facts: dict[str, Any]) -> Table:
    """Errors on blocks of the log that nothing was learned from."""
    out = Table(f"on unseen blocks of {facts['seconds']:g} s", "model alone", "with the net", "squared error explained")
    rows = {f"{name}, free rollout": x for name, x in facts["rollout"].items()}
    rows |= {"torque": facts["torque"]} if "torque" in facts else {}
    for name, x in rows.items():
        out.add_row(name, f"{x['without']:.4g}", f"{x['with']:.4g}", f"{100 * x['explained']:.1f} %")
    return out
