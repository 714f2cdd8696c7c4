"""A policy on disk: one ONNX file that says what it is, sealed.

    policy.onnx: the net, obs -> actions, and in its metadata `surefoot`: contract, golden vectors, what it came from;
                 `sha256`: of all bytes of the file, with the hash itself written as zeros
    policy.safetensors: the same net as torch has it, for whoever learns on from it; its hash is in the metadata

Golden vectors are seconds of a simulated robot: readings -> observation -> action -> control. Reading a policy works them out
again, so that a contract that was changed, or a net that answers otherwise, is refused before anything is driven.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import shipped
from surefoot.contract import Contract
from surefoot.errors import SurefootError, nearest
from surefoot.observation import Columns, History
from surefoot.onnx_file import Graph, read, seal
from surefoot.policy import Policy, PolicyState, along, follow, no_plan
from surefoot.typed import known_fields, whole

NAME, WEIGHTS = "policy.onnx", "policy.safetensors"
BEST = "best.onnx"  # of a run that was judged while it trained
TORCH = (".pt", ".pth", ".jit", ".ckpt")  # whose loading may run code
GOLDEN = 1e-4  # how far a runtime's numbers may be from the golden ones, relative to their size
CARD = {"format", "contract", "golden", "net", "weights", "about"}
FORMAT = 2
MOST_EXECUTED = 1024
CHUNK = "chunk"  # output of a net that plans several actions at a time
LARGEST = 256 * 2**20  # bytes of weights; a policy of this toolkit is a few hundred kB


@dataclass(frozen=True)
class Golden:
    """T control periods of one robot that begin an episode: its readings, the policy's observations and outputs, and the controls."""

    readings: Mapping[str, np.ndarray]  # name -> (T, k), the ones that formulas of the contract need
    parts: Mapping[str, tuple[str, ...]]
    raw: Mapping[str, np.ndarray]  # term -> (T, dim), of terms that no reading tells
    obs: np.ndarray  # (T, obs_dim)
    out: np.ndarray  # (T, outputs) of the net
    control: np.ndarray  # (T, na) in the unit of the controls

    def to_json(self) -> dict[str, Any]:
        rows = lambda x: [[float(f"{v:.9g}") for v in row] for row in np.asarray(x, float)]  # noqa: E731
        tables = {k: {name: rows(v) for name, v in getattr(self, k).items()} for k in ("readings", "raw")}
        parts = {k: list(v) for k, v in self.parts.items()}
        return {**tables, "parts": parts, "obs": rows(self.obs), "out": rows(self.out), "control": rows(self.control)}

    @staticmethod
    def from_json(data: Any, where: str) -> "Golden":
        body = known_fields(data, set(fields_of(Golden)), set(fields_of(Golden)), where)
        try:
            tables = {k: {n: np.array(v, float) for n, v in body[k].items()} for k in ("readings", "raw")}
            arrays = {k: np.array(body[k], float) for k in ("obs", "out", "control")}
            parts = {str(k): tuple(map(str, v)) for k, v in body["parts"].items()}
        except (TypeError, ValueError, AttributeError) as error:
            raise SurefootError(f"{where}: expected tables of numbers: {error}") from None
        rows = [x for t in tables.values() for x in t.values()] + list(arrays.values())
        T = len(arrays["obs"]) if arrays["obs"].ndim else 0
        if not T or any(x.ndim != 2 or len(x) != T or not np.isfinite(x).all() for x in rows):
            raise SurefootError(f"{where}: expected tables of finite numbers with as many rows each")
        return Golden(tables["readings"], parts, tables["raw"], arrays["obs"], arrays["out"], arrays["control"])

    def check(self, contract: Contract, answers: np.ndarray, where: str) -> None:
        """What follows from the readings by the contract, and from the observations by the net, is what was written."""
        obs = self.obs.astype(np.float32)
        if obs.shape[1] != contract.obs_dim:
            raise SurefootError(f"{where}: obs: expected {contract.obs_dim} numbers a row, found {obs.shape[1]}")
        if self.readings or self.raw:
            _same(
                self.observations(contract, where),
                obs,
                f"{where}: the contract makes other observations of the readings",
            )
        _same(answers, self.out, f"{where}: the policy answers differently from when it was written")
        chosen = answers.argmax(1)[:, None] if contract.action.choices else answers
        control = contract.action.control(contract.action.bounded(chosen))
        _same(control, self.control, f"{where}: the contract makes other controls of the actions")

    def check_net(self, policy: "OnnxPolicy", where: str) -> None:
        """The same, of what a net answers now."""
        if self.obs.shape[1] != policy.graph.width:
            raise SurefootError(f"{where}: obs: expected {policy.graph.width} numbers a row, found {self.obs.shape[1]}")
        self.check(policy.contract, policy.answers(self.obs), where)

    def observations(self, contract: Contract, where: str) -> np.ndarray:
        """(T, obs_dim) of the readings, by the contract's formulas and history."""
        group, T = contract.observation, len(self.obs)
        readings = {k: v for k, v in self.readings.items()}
        try:
            raw = group.raw(Columns(readings, self.parts), T)
        except (ValueError, IndexError) as error:
            raise SurefootError(f"{where}: readings: {error}") from None
        for t, at in zip(group.terms, group.columns):
            if t.name in self.raw and t.formula is None:
                raw[:, at] = self.raw[t.name]
        history, rows = History(group, 1), []
        for k, frame in enumerate(group.finish(raw)):
            rows.append(history.push(frame[None], np.array([0] if k == 0 else [], int))[0])
        return np.array(rows)


def golden_with(contract: Contract, out: np.ndarray, **recorded: Any) -> Golden:
    """Golden vectors of what was recorded and what a net answered: (T, na) actions, or scores of choices."""
    action = contract.action
    chosen = out.argmax(1)[:, None] if action.choices else out
    return Golden(**recorded, out=out, control=action.control(action.bounded(chosen)))


def fields_of(kind: type) -> list[str]:
    return list(kind.__dataclass_fields__)  # type: ignore[attr-defined]


def _same(found: np.ndarray, wanted: np.ndarray, words: str) -> None:
    size = np.maximum(1.0, np.abs(wanted))
    if found.shape != wanted.shape or not (np.abs(found - wanted) <= GOLDEN * size).all():
        raise SurefootError(f"{words}; it is not the same policy")


@dataclass(frozen=True)
class OnnxPolicy(Policy):
    """A net that onnxruntime runs."""

    contract: Contract
    graph: Graph
    about: Mapping[str, Any]
    """who wrote the file, and the net's structure, of a policy of ours"""

    @property
    def execute(self) -> int:
        """Actions of a plan that are executed before the next one."""
        return self.graph.outputs[CHUNK] // self.graph.wide if self.plans else 1

    @property
    def plans(self) -> bool:
        """Whether it is a policy of ours that plans several actions at a time; a stranger's output may have any name."""
        return CHUNK in self.graph.outputs and bool(self.about)

    def init(self, n: int) -> PolicyState:
        return no_plan(n, self.execute, self.graph.wide)

    def answers(self, obs: np.ndarray) -> np.ndarray:
        """(T, outputs) to the observations (T, .) of one episode, before they are bounded or chosen from."""
        rows = obs.astype(np.float32)
        return along(self, rows) if self.execute > 1 else self.graph(rows)

    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        if self.execute > 1:
            return follow(s, obs, lambda rows: self.graph.run(rows, CHUNK))
        out = self.graph(obs)
        return s, out.argmax(1)[:, None].astype(np.float32) if self.contract.action.choices else out

    @property
    def adapts(self) -> bool:
        """Whether it has an encoder, whose latent can be read."""
        return "latent" in self.graph.outputs

    def latent(self, obs: np.ndarray) -> np.ndarray:
        """(n, latent)"""
        return self.graph.run(obs, "latent")


def find(path: str | PathLike[str]) -> Path:
    """The policy.onnx meant by a run folder, a bundle folder, the file itself, or a task with a shipped policy."""
    path = shipped.located(Path(path))
    if path.is_dir():
        inside = [p.parent for p in sorted(path.glob(f"*/{NAME}"), reverse=True)]
        old = (path / "policy.json").exists() and not (path / NAME).exists()
        path = path / NAME
        if old:
            raise SurefootError(f"{path.parent}: an earlier version of surefoot wrote this policy; train it again")
        if not path.exists() and inside:
            raise SurefootError(f"{path}: no policy here, but in {' and '.join(map(str, inside))}: name one of them")
    if not path.exists():
        meant = path.parent if path.name == NAME else path
        around = [str(p.parent) for p in meant.parent.glob(f"*/{NAME}")] if meant.parent.is_dir() else []
        near = nearest(str(meant), [*shipped.names(), *around])
        raise SurefootError(f"{path}: no policy here; a run writes {NAME} when it ends or is saved{near}")
    refuse_torch(path)
    if path.suffix != ".onnx":
        raise SurefootError(f"{path}: found {_kind(path)}, expected a run's folder or its {NAME}")
    return path


def refuse_torch(path: Path) -> None:
    """A file of torch's runs code when it is loaded; the words say how to convert it."""
    if path.suffix not in TORCH:
        return
    convert = (
        f"import torch; torch.onnx.export(torch.jit.load({path.name!r}).eval(), (torch.zeros(1, N),), "
        f"{path.with_suffix('.onnx').name!r}, dynamo=False)"
    )
    raise SurefootError(
        f"{path}: found a file of torch's, which may run code, expected ONNX. If it is TorchScript, convert it where you trust "
        f"it, with N the length of its observation:\n  {convert}\n"
        "A net that keeps a memory inside (LSTM, GRU) loses it that way; a checkpoint of weights alone is exported by its trainer"
    )


def is_one(path: Path) -> bool:
    """Whether a path is that of a policy."""
    try:
        return find(path).is_file()
    except SurefootError:
        return False


def _kind(path: Path) -> str:
    """What a file is that is no policy, by its name."""
    if path.suffix in (".npz", ".csv", ".tsv", ".mcap", ".parquet", ".mat", ".db3"):
        return f"a log or a table ({path.suffix})"
    return f"a file called {path.suffix or 'nothing'}"


def load(path: str | PathLike[str]) -> OnnxPolicy:
    """A policy of ours; refused where anything in it is not as it was written."""
    path = find(path)
    graph = read(path)
    if "surefoot" not in graph.metadata:
        raise SurefootError(f"{path}: a policy of others: `surefoot gate` takes it, with --model and --contract")
    return ours(path, graph)


def ours(path: Path, graph: Graph) -> OnnxPolicy:
    card = known_fields(seal.read_card(graph, str(path)), CARD, {"format", "contract", "golden"}, f"{path}: card")
    if card["format"] != FORMAT:
        raise SurefootError(f"{path}: card: format: expected {FORMAT}, found {str(card['format'])[:80]}")
    contract = Contract.from_json(card["contract"], f"{path}: contract")
    outputs = contract.action.choices or len(contract.action.names)
    if (contract.obs_dim, outputs) != (graph.width, graph.wide):
        raise SurefootError(
            f"{path}: the contract has {contract.obs_dim} numbers in and {outputs} out, the net {graph.width} and {graph.wide}"
        )
    about = {k: v for k, v in card.items() if k in ("net", "weights", "about")}
    policy = OnnxPolicy(contract, graph, about)
    _check_plan(policy, str(path))
    Golden.from_json(card["golden"], f"{path}: golden").check_net(policy, f"{path}: golden")
    return policy


def _check_plan(policy: OnnxPolicy, where: str) -> None:
    """The net plans as many actions as its card says."""
    net = policy.about.get("net")
    flow = net.get("flow") if isinstance(net, dict) else None
    said = flow.get("execute", 1) if isinstance(flow, dict) else 1
    execute, wide = whole(said, 1, MOST_EXECUTED, f"{where}: card: net: flow: execute"), policy.graph.wide
    found = policy.graph.outputs.get(CHUNK, wide)
    if found != execute * wide:
        raise SurefootError(
            f"{where}: output {CHUNK}: expected {execute} actions of {wide} numbers, {execute * wide}, found {found}"
        )


def sealed(data: bytes, card: Mapping[str, Any]) -> bytes:
    """An ONNX file with its card, the keys that mjlab's runtimes read, and the hash of all of it."""
    return seal.sealed(data, card, _metadata(Contract.from_json(card["contract"])))


def _metadata(c: Contract) -> dict[str, str]:
    """The field's usual keys, as mjlab writes them."""
    listed = lambda values: ",".join(str(v) for v in values)  # noqa: E731
    each = lambda s: ";".join(str(v) for v in s) if isinstance(s, tuple) else str(s)  # noqa: E731
    return {
        "joint_names": listed(c.joints or c.action.names),
        "joint_stiffness": listed(c.kp),
        "joint_damping": listed(c.kd),
        "default_joint_pos": listed(c.action.offset.tolist()),
        "action_scale": listed(c.action.scale.tolist()),
        "observation_names": listed(t.name for t in c.terms),
        "observation_terms_scale": listed(each(t.scale) for t in c.terms),
        "observation_terms_clip": listed(t.clip for t in c.terms),
        "observation_terms_history_length": listed(t.history or c.history for t in c.terms),
        "command_names": listed(c.command_names),
    }
