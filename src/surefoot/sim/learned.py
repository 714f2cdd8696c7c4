"""Learned Terms: what a model lacks, as small nets on what a robot can tell of itself; numpy alone runs them.

    z = (phi(x, u) - mean) / sd        phi: what is read, free of place and heading (see Layout)
    y_k(z) = f_k(z) + p_k(z)           k = 1..K members: f_k was fitted, p_k is random and was not
    value = T(d) scale mean_k y_k,     d = sd_k y_k,     T(d) = exp(-(max(d / s - 1, 0))^2)

The members agree where there were data and nowhere else, because off the data each follows its own p_k. s is the doubt d
of the data themselves, so T is 1 there and fades to 0 elsewhere: where nothing was seen, the model stays as it was.

On disk a Term is term.safetensors beside term.json, which is sealed and holds the layout it was learned on and the weights'
hash.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import mujoco
import numpy as np
from safetensors.numpy import save as save_tensors

from surefoot import files
from surefoot.errors import SurefootError, unknown
from surefoot.rotation import to_body, to_world, unit
from surefoot.tensors import parse_tensors
from surefoot.typed import MOST, known_fields, text, whole
from surefoot.world import Chance, OnAction, OnForce, State

FORMAT = 2
FARTHEST = 10.0  # of a standardised input: beyond it nothing is told apart
WEIGHTS = "term.safetensors"
DOWN = np.array([0.0, 0.0, -1.0])
LARGEST = 256 << 20  # bytes of weights
CARD = {"format", "kind", "layout", "weights", "about"}


@dataclass(frozen=True)
class Layout:
    """Where in a model's state the numbers are that a learned Term reads and moves.

    Read are, of a free base: its height, which way is down, its velocity and turn rate, all in its own frame; of each
    joint: its place (sine and cosine where it may turn without end) and speed; the controls, and what slow actuators have
    reached. Place on the ground and heading are not: physics is the same everywhere.
    """

    base: bool
    joints: tuple[str, ...]
    places: tuple[int, ...]
    """column of q for each joint"""
    speeds: tuple[int, ...]
    """column of v for each joint"""
    turns: tuple[bool, ...]
    controls: tuple[str, ...]
    nv: int
    na: int

    @staticmethod
    def of(model: mujoco.MjModel) -> "Layout":
        free, hinge, slide = (int(getattr(mujoco.mjtJoint, f"mjJNT_{k}")) for k in ("FREE", "HINGE", "SLIDE"))
        base = bool(model.njnt and model.jnt_type[0] == free)
        for j in range(int(base), model.njnt):
            if model.jnt_type[j] not in (hinge, slide):
                raise SurefootError(
                    f"model: joint {model.joint(j).name}: expected a hinge or a slide beside one free base, found another"
                )
        own = range(int(base), model.njnt)
        turns = tuple(bool(model.jnt_type[j] == hinge and not model.jnt_limited[j]) for j in own)
        return Layout(
            base,
            tuple(model.joint(j).name for j in own),
            tuple(int(model.jnt_qposadr[j]) for j in own),
            tuple(int(model.jnt_dofadr[j]) for j in own),
            turns,
            tuple(model.actuator(i).name for i in range(model.nu)),
            model.nv,
            model.na,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Of what is read, in order."""
        base = ("height", "down_x", "down_y", "down_z", *(f"{k}_{a}" for k in ("vel", "turn") for a in "xyz"))
        joints = [n for j, t in zip(self.joints, self.turns) for n in ((f"sin {j}", f"cos {j}") if t else (j,))]
        speeds = (f"{j} speed" for j in self.joints)
        reached = (f"reached {i}" for i in range(self.na))
        return (*(base if self.base else ()), *joints, *speeds, *(f"control {c}" for c in self.controls), *reached)

    def read(self, q: np.ndarray, v: np.ndarray, u: np.ndarray, act: np.ndarray) -> np.ndarray:
        """(n, len(names)) of states (n, ...)."""
        parts = []
        if self.base:
            quat = unit(q[:, 3:7])
            parts += [q[:, 2:3], to_body(quat, DOWN), to_body(quat, v[:, :3]), v[:, 3:6]]
        for at, turn in zip(self.places, self.turns):
            place = q[:, at : at + 1]
            parts += [np.sin(place), np.cos(place)] if turn else [place]
        return np.concatenate([*parts, v[:, list(self.speeds)], u, act[:, : self.na]], 1)

    def turned(self, q: np.ndarray, force: np.ndarray, back: bool = False) -> np.ndarray:
        """A generalised force (n, nv) whose first three are along the base's axes, along the world's; or back again."""
        if not self.base:
            return force
        force = force.copy()
        force[:, :3] = (to_body if back else to_world)(unit(q[:, 3:7]), force[:, :3])
        return force


@dataclass(frozen=True, eq=False)
class Ensemble:
    """K nets side by side. Arrays: w0 (K, h, in), b0 (K, h), ...; the random ones' p_w0, p_b0, p_w1; mean, sd (in,);
    scale (out,); doubt (): s, or 0 for a net that knows no doubt."""

    arrays: Mapping[str, np.ndarray]

    @cached_property
    def depth(self) -> int:
        return sum(k.startswith("w") for k in self.arrays)

    @property
    def outputs(self) -> int:
        return len(self.arrays["scale"])

    def members(self, phi: np.ndarray) -> np.ndarray:
        """(K, n, out), before scaling."""
        a = self.arrays
        z = np.clip((phi - a["mean"]) / a["sd"], -FARTHEST, FARTHEST)[None]
        y = z
        for k in range(self.depth):
            y = y @ a[f"w{k}"].transpose(0, 2, 1) + a[f"b{k}"][:, None]
            y = np.tanh(y) if k < self.depth - 1 else y
        if "p_w0" not in a:
            return y
        hidden = np.maximum(z @ a["p_w0"].transpose(0, 2, 1) + a["p_b0"][:, None], 0.0)
        return y + hidden @ a["p_w1"].transpose(0, 2, 1)

    def trust(self, members: np.ndarray) -> np.ndarray:
        """(n, 1) T(d), with d over the outputs' root mean square."""
        s = float(self.arrays["doubt"])
        if s == 0:
            return np.ones((members.shape[1], 1))
        return np.exp(-np.square(np.maximum(doubt(members) / s - 1.0, 0.0)))[:, None]

    def __call__(self, phi: np.ndarray) -> np.ndarray:
        y = self.members(phi)
        return self.trust(y) * y.mean(0) * self.arrays["scale"]

    def check(self, where: str, inputs: int, outputs: int) -> None:
        """Shapes fit each other and the layout; numbers are finite."""
        a = self.arrays
        for name in ("mean", "sd", "scale", "doubt", "w0"):
            if name not in a:
                raise SurefootError(f"{where}: {name} is missing; found {', '.join(sorted(a))}")
        bad = [k for k, v in a.items() if not np.isfinite(v).all()]
        if bad or not (a["sd"] > 0).all():
            raise SurefootError(f"{where}: {', '.join(bad) or 'sd'}: expected finite numbers, spreads above 0")
        try:
            found = self(np.zeros((1, inputs))).shape
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise SurefootError(f"{where}: its layers do not fit {inputs} inputs: {error}") from error
        if found != (1, outputs):
            raise SurefootError(f"{where}: expected {outputs} outputs, found {found[1]}")


def doubt(members: np.ndarray) -> np.ndarray:
    """(n,) how far members (K, n, out) are from agreeing."""
    return np.sqrt(members.var(0).mean(1))


@dataclass(frozen=True, eq=False)
class MissingForce(OnForce):
    """g(x, u): the generalised force the model lacks, N and N m; on a free base along its own axes."""

    layout: Layout
    net: Ensemble
    kind: ClassVar[str] = "missing force"

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return self.layout.turned(x.q, self.net(self.layout.read(x.q, x.v, u, x.act)))


@dataclass(frozen=True, eq=False)
class DeltaAction(OnAction):
    """u + delta(x, u): what to tell the model's motors so that they do what the robot's do when told u."""

    layout: Layout
    net: Ensemble
    kind: ClassVar[str] = "delta action"

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        return u + self.delta(x, u)

    def delta(self, x: State, u: np.ndarray) -> np.ndarray:
        """(n, nu), never more than the `reach` it was learned within."""
        reach = self.net.arrays.get("reach")
        found = self.net(self.layout.read(x.q, x.v, u, x.act))
        return found if reach is None else np.clip(found, -reach, reach)


KINDS: dict[str, Any] = {"missing force": MissingForce, "delta action": DeltaAction}


def save(term: MissingForce | DeltaAction, folder: Path, about: Mapping[str, Any] | None = None) -> Path:
    """Write both files, the JSON, which commits them, last. Returns its path."""
    folder = Path(folder)
    data = weights(term)
    files.write(folder / WEIGHTS, data)
    card = {"format": FORMAT, "kind": term.kind, "layout": asdict(term.layout), "weights": files.sha256(data)}
    files.write_json(folder / "term.json", files.seal(card | {"about": dict(about or {})}))
    return folder / "term.json"


def weights(term: MissingForce | DeltaAction) -> bytes:
    return bytes(save_tensors({k: np.array(v, order="C") for k, v in term.net.arrays.items()}))


def load(folder: Path, model: mujoco.MjModel | None = None) -> MissingForce | DeltaAction:
    """The Term a folder holds; refused where it was learned on a model laid out otherwise than `model`."""
    where = Path(folder) / "term.json"
    card = _card(where)
    path = where.with_name(WEIGHTS)
    data = files.read_bytes(path, LARGEST)
    if files.sha256(data) != card["weights"]:
        raise SurefootError(f"{path}: these are not the weights {where.name} was written with (sha256 differs)")
    net, layout = Ensemble(parse_tensors(data, str(path))), _layout(card["layout"], f"{where}: layout")
    term: MissingForce | DeltaAction = KINDS[card["kind"]](layout, net)
    net.check(str(path), len(layout.names), layout.nv if term.kind == MissingForce.kind else len(layout.controls))
    if model is not None:
        _same(layout, Layout.of(model), where)
    return term


def _card(where: Path) -> dict[str, Any]:
    """What term.json says, as it was written."""
    told = files.read_json(where)
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        found = told.get("format") if isinstance(told, dict) else type(told).__name__
        older = "; an earlier version of surefoot wrote it: learn it again" if found == 1 else ""
        raise SurefootError(f"{where}: format: expected {FORMAT}, found {str(found)[:80]}{older}")
    if "sha256" not in told:
        raise SurefootError(f"{where}: sha256: found nothing, expected the seal of all the rest")
    card = known_fields(files.check_seal(told, str(where)), CARD, CARD, str(where))
    if text(card["kind"], f"{where}: kind") not in KINDS:
        raise unknown("term", card["kind"], KINDS, str(where))
    return card


def _layout(told: Any, where: str) -> Layout:
    names = {f.name for f in fields(Layout)}
    body = known_fields(told, names, names, where)
    for name in ("joints", "places", "speeds", "turns", "controls"):
        if not isinstance(body[name], list) or len(body[name]) > MOST:
            raise SurefootError(f"{where}: {name}: expected a list of at most {MOST}, found {str(body[name])[:80]}")
    texts: dict[str, Any] = {k: tuple(text(v, f"{where}: {k}") for v in body[k]) for k in ("joints", "controls")}
    columns: dict[str, Any] = {
        k: tuple(whole(v, 0, MOST, f"{where}: {k}") for v in body[k]) for k in ("places", "speeds")
    }
    counts: dict[str, Any] = {k: whole(body[k], 0, MOST, f"{where}: {k}") for k in ("nv", "na")}
    if not all(isinstance(x, bool) for x in (body["base"], *body["turns"])):
        raise SurefootError(f"{where}: base, turns: expected true or false")
    if not len(texts["joints"]) == len(columns["places"]) == len(columns["speeds"]) == len(body["turns"]):
        raise SurefootError(f"{where}: places, speeds, turns: expected one for each of {len(texts['joints'])} joints")
    return Layout(base=body["base"], turns=tuple(body["turns"]), **texts, **columns, **counts)


def _same(mine: Layout, model: Layout, where: Path) -> None:
    for f in fields(Layout):
        a, b = getattr(mine, f.name), getattr(model, f.name)
        if a != b:
            raise SurefootError(f"{where}: {f.name}: learned on a model with {a}, found {b}: not the same robot")
