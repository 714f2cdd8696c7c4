"""The forward model: from what a teacher observes to where its robot is one control period later.

    psi(o) = mean + sd (A z + mlp(z)),  z = normalised o        minimise  E[|d| + d^2],  d = (k' - psi(o)) / sd

L1 keeps small errors small, L2 large ones rare. It learns from the teacher's own batches while the teacher learns, so at the
end it knows the motions of the finished teacher. `change`, the sd of k' - k, says how far the robot moves in a period: the unit
in which a student's error is counted.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as save_tensors
from torch import Tensor, nn

from surefoot import files
from surefoot.errors import SurefootError, unknown
from surefoot.learn.collect import Rollout
from surefoot.learn.learner import Auxiliary
from surefoot.learn.nets import Normaliser, adam_state, mlp, restore_adam
from surefoot.learn.sim2sim.settings import Forward
from surefoot.learn.sim2sim.support import KINEMATIC
from surefoot.observation import ObsGroup
from surefoot.rng import key
from surefoot.task import Task
from surefoot.tasks import with_actor_terms
from surefoot.tensors import parse_tensors
from surefoot.typed import MOST, known_fields, texts, whole

NAME = "forward.safetensors"
LARGEST = 256 << 20  # bytes of a file
FORMAT = 1
SHOWN = 256  # rows of a batch that its normalisers take in, after the first
CARD = "card"  # of the file: what the numbers mean, as JSON in bytes


@dataclass(frozen=True)
class Meaning:
    """What goes in and out of a forward model, by name."""

    terms: tuple[str, ...]
    """of the teacher's observation"""
    history: int
    inputs: int
    outputs: tuple[tuple[str, int], ...]
    """kinematic terms and their widths"""
    hidden: tuple[int, ...]

    @property
    def columns(self) -> dict[str, slice]:
        """Where in the output each term is."""
        ends = np.cumsum([dim for _, dim in self.outputs]).tolist()
        return {name: slice(end - dim, end) for (name, dim), end in zip(self.outputs, ends)}

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **vars(self)}

    @staticmethod
    def from_json(data: Any, where: str) -> "Meaning":
        names = {"format", "terms", "history", "inputs", "outputs", "hidden"}
        body = known_fields(data, names, names, where)
        if body.pop("format") != FORMAT:
            raise SurefootError(f"{where}: format: expected {FORMAT}: another version wrote it")
        outputs = body["outputs"]
        if not isinstance(outputs, list) or not all(isinstance(x, list) and len(x) == 2 for x in outputs):
            raise SurefootError(f"{where}: outputs: expected pairs of a name and a width")
        rows = tuple((str(name), whole(dim, 1, MOST, f"{where}: outputs")) for name, dim in outputs)
        hidden = tuple(whole(x, 1, MOST, f"{where}: hidden") for x in body["hidden"])
        history, inputs = (whole(body[k], 1, 1 << 20, f"{where}: {k}") for k in ("history", "inputs"))
        return Meaning(texts(body["terms"], f"{where}: terms"), history, inputs, rows, hidden)


class ForwardModel(nn.Module):
    """psi."""

    def __init__(self, meaning: Meaning, rng: torch.Generator):
        super().__init__()
        self.meaning = meaning
        width = sum(dim for _, dim in meaning.outputs)
        self.see, self.scale, self.moved = Normaliser(meaning.inputs), Normaliser(width), Normaliser(width)
        self.body = mlp(meaning.inputs, meaning.hidden, width, "tanh", 0.01, rng)
        self.skip = mlp(meaning.inputs, (), width, "tanh", 0.01, rng)

    def normalised(self, obs: Tensor) -> Tensor:
        """psi in units of each output's spread."""
        z = self.see(obs)
        return self.skip(z) + self.body(z)

    def forward(self, obs: Tensor) -> Tensor:
        """(n, .) where the robot will be, in units."""
        return self.scale.mean.float() + self.scale.sd.float() * self.normalised(obs)

    @property
    def change_sd(self) -> Tensor:
        """(.) how far each output moves in a control period."""
        return (self.moved.var + self.moved.mean.square() + 1e-8).sqrt().float()

    def check(self, task: Task) -> None:
        """Refuse a task whose robot has other kinematics."""
        mine, own = self.meaning.outputs, tuple((t.name, t.dim) for t in task.observations[KINEMATIC].terms)
        if mine != own:
            words = [", ".join(f"{name} {dim}" for name, dim in rows) for rows in (mine, own)]
            raise SurefootError(f"reference: it predicts {words[0]}; task {task.name} has {words[1]}")


def meaning_of(task: Task, how: Forward) -> Meaning:
    """Of a model to be learned beside a teacher of this task, which has a kinematic group."""
    actor, out = task.observations["actor"], task.observations[KINEMATIC]
    return Meaning(
        tuple(t.name for t in actor.terms),
        actor.history,
        actor.dim,
        tuple((t.name, t.dim) for t in out.terms),
        how.hidden,
    )


def seen_by(task: Task, meaning: Meaning) -> ObsGroup:
    """The observation that a forward model is asked with, in a student's task."""
    group = with_actor_terms(task, meaning.terms, meaning.history).observations["actor"]
    if group.dim != meaning.inputs:
        raise SurefootError(
            f"reference: it observes {meaning.inputs} numbers; in task {task.name} its terms are {group.dim}"
        )
    return group


class ForwardLearner(Auxiliary):
    """Learns psi from a teacher's rollouts."""

    groups: Sequence[str] = ("actor", KINEMATIC)

    def __init__(self, task: Task, how: Forward, seed: int):
        self.how, self.seed = how, seed
        rng = torch.Generator().manual_seed(key(seed, "forward weights") >> 1)
        self.model = ForwardModel(meaning_of(task, how), rng)
        self.named = dict(self.model.named_parameters())
        self.optimiser = torch.optim.Adam(self.named.values(), how.lr, fused=True)

    def take(self, r: Rollout, iteration: int, iterations: int) -> dict[str, float]:
        obs, now, after = transitions(r)
        if not len(obs):
            return {}
        m, fresh = self.model, not self.model.see.count
        if fresh:
            self._look(obs, now, after)
        facts = _errors(m, obs, after)  # of transitions that it has not learned from
        if not fresh:
            some = slice(None, None, max(1, len(obs) // SHOWN))
            self._look(obs[some], now[some], after[some])
        for group in self.optimiser.param_groups:
            group["lr"] = self.how.lr * (1 - 0.9 * iteration / max(iterations, 1))
        target = (after - m.scale.mean.float()) / m.scale.sd.float()
        for epoch in range(self.how.epochs):
            rng = torch.Generator().manual_seed(key(self.seed, "forward", iteration * self.how.epochs + epoch) >> 1)
            for part in torch.randperm(len(obs), generator=rng).chunk(self.how.minibatches):
                self._step(obs[part], target[part])
        return facts

    def _look(self, obs: Tensor, now: Tensor, after: Tensor) -> None:
        for normaliser, rows in ((self.model.see, obs), (self.model.scale, after), (self.model.moved, after - now)):
            normaliser.update(rows)

    def _step(self, obs: Tensor, target: Tensor) -> None:
        d = self.model.normalised(obs) - target
        loss = d.abs().mean() + d.square().mean()
        if not loss.isfinite():  # the teacher's batch is contained by PPO; nothing is to be learned here
            return
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.named.values(), 1.0)
        self.optimiser.step()

    def products(self) -> Mapping[str, bytes]:
        return {NAME: to_bytes(self.model)}

    def save(self) -> dict[str, np.ndarray]:
        state = self.model.state_dict() | adam_state(self.optimiser, self.named)
        return {k: v.numpy().copy() for k, v in state.items()}

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        state = {k: torch.from_numpy(v.copy()) for k, v in arrays.items()}
        self.model.load_state_dict({k: v for k, v in state.items() if not k.startswith("adam.")})
        restore_adam(self.optimiser, self.named, state)


def transitions(r: Rollout) -> tuple[Tensor, Tensor, Tensor]:
    """(o_t, k_t, k_{t+1}) of steps that led on within their episode."""
    good = r.flags["valid"] & ~r.flags["terminated"] & ~r.flags["truncated"]
    obs, k = r.obs["actor"], r.obs[KINEMATIC]
    return tuple(torch.from_numpy(np.ascontiguousarray(x[good])) for x in (obs[:-1], k[:-1], k[1:]))  # type: ignore[return-value]


@torch.no_grad()
def _errors(m: ForwardModel, obs: Tensor, after: Tensor) -> dict[str, float]:
    off = (m(obs) - after).abs()
    return {f"forward/{name}": float(off[:, at].mean()) for name, at in m.meaning.columns.items()}


def to_bytes(m: ForwardModel) -> bytes:
    card = np.frombuffer(json.dumps(m.meaning.to_json()).encode(), np.uint8)
    return bytes(save_tensors({CARD: card} | {k: v.numpy().copy(order="C") for k, v in m.state_dict().items()}))


def digest(m: ForwardModel) -> str:
    return files.sha256(to_bytes(m))


def read(path: Path) -> ForwardModel:
    """A forward model from its file, or from the folder of a run that learned one."""
    path = Path(path) / NAME if Path(path).is_dir() else Path(path)
    if path.suffix == ".onnx":  # the run's policy was named
        path = path.parent / NAME
    where = str(path)
    if not path.exists():
        raise SurefootError(
            f"{where}: no such file; expected a run of a support world (surefoot train TASK --support easy)"
        )
    tensors = parse_tensors(files.read_bytes(path, LARGEST), where)
    if CARD not in tensors:
        raise unknown("entry", CARD, tensors, where)
    try:
        card = json.loads(tensors.pop(CARD).tobytes())
    except ValueError:
        raise SurefootError(f"{where}: {CARD}: expected JSON") from None
    m = ForwardModel(Meaning.from_json(card, f"{where}: {CARD}"), torch.Generator().manual_seed(0))
    try:
        m.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in tensors.items()})
    except RuntimeError as error:
        raise SurefootError(
            f"{where}: its numbers do not fit its {CARD}: {' '.join(str(error).split())[:200]}"
        ) from None
    if not all(v.isfinite().all() for v in m.state_dict().values()):
        raise SurefootError(f"{where}: found numbers that are not finite")
    return m
