"""Actuator nets: what a real actuator does beyond the model's own, as a Term that is put into the world.

    tau_j = own_j(q, v, u) + r_j,   r_j = f(p_j, v_j, s_j at t, t - dt, ...) within +-limit_j,   p = u - q

own: what the model's actuator puts on joint j, which the engine goes on working out step by step; r: what is learned,
held for one control period dt. p is the error of a servo in rad (a motor's p is its command u), v in rad/s, tau in N m;
s = v / (|v| + v_slow) is v again with its turning points drawn apart, because friction lives there.
f is an MLP on the last `history` periods, or a GRU with a state of its own. A net knows its dt and the actuators it
was learned on, and goes into no other world: called at another rate, its history would mean something else.

In arrays: n simulations, J joints in units of `together` (k) that share what they see, so U = J / k units. Weights are
(m, U, in, out): m nets may be tried at once, each in n / m simulations that stand together.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import mujoco
import numpy as np
from safetensors.numpy import save as save_tensors

from surefoot import files
from surefoot.errors import SurefootError, unknown
from surefoot.tensors import parse_tensors
from surefoot.world import Chance, OnForce, Remembers, State

FORMAT = "surefoot.actuator/1"
Kind = Literal["mlp", "gru"]
SAME = 1e-6  # relative: how far a period, gain or limit may be from the one a net was learned with
TOLD = 3  # numbers a net is told of each joint in each period: p, v, s
CLIP = 10.0  # largest magnitude of a normalised input
GOLDEN = 1e-5  # relative: how far an answer may be from the one that was written with the net
LARGEST = 256 << 20  # bytes of weights
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Drive:
    """An actuator on a joint, as the model has it."""

    actuator: str
    joint: str
    gain: float
    position: float
    """the actuator's force by its length, N m/rad: minus a servo's kp; 0: not a servo"""
    velocity: float
    gear: float
    low: float | None
    high: float | None

    @property
    def servo(self) -> bool:
        return self.position != 0.0


def drives(model: mujoco.MjModel) -> tuple[Drive, ...]:
    """The model's actuators; refused where one does not drive one joint of one degree of freedom."""
    found = []
    one = [int(t) for t in (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)]
    joined = [int(t) for t in (mujoco.mjtTrn.mjTRN_JOINT, mujoco.mjtTrn.mjTRN_JOINTINPARENT)]
    for i in range(model.nu):
        name, joint = model.actuator(i).name, int(model.actuator_trnid[i, 0])
        if model.actuator_trntype[i] not in joined or model.jnt_type[joint] not in one:
            raise SurefootError(f"actuator {name}: expected one that drives a hinge or slide joint")
        gain, bias = float(model.actuator_gainprm[i, 0]), model.actuator_biasprm[i]
        limited = bool(model.actuator_forcelimited[i])
        low, high = (float(v) for v in model.actuator_forcerange[i])
        found.append(Drive(
            name, model.joint(joint).name, gain, float(bias[1]), float(bias[2]), float(model.actuator_gear[i, 0]),
            low if limited else None, high if limited else None,
        ))  # fmt: skip
    if not found:
        raise SurefootError("model: found no actuator to learn")
    doubled = {d.joint for d in found if sum(x.joint == d.joint for x in found) > 1}
    if doubled:
        raise SurefootError(f"model: joint {sorted(doubled)[0]}: found several actuators, expected one on each joint")
    return tuple(found)


@dataclass(frozen=True)
class Card:
    """All of a net but its weights: what it is told, what it drives, and where it may be used."""

    kind: Kind
    dt: float
    """s: the period it was learned at, and the only one it may be used at"""
    drives: tuple[Drive, ...]
    groups: tuple[int, ...]
    """of each unit, which of the nets is its own"""
    limit: tuple[float, ...]
    """of each joint, largest |r| in N m or N"""
    slow: tuple[float, ...]
    """of each joint, v_slow in rad/s or m/s"""
    history: int = 1
    """periods an MLP is told, this one among them"""
    hidden: int = 16
    """numbers a GRU remembers of each unit"""
    together: int = 1
    """joints in a unit"""
    parents: Mapping[str, str] | None = None

    @property
    def units(self) -> int:
        return len(self.groups)

    @property
    def servo(self) -> np.ndarray:
        """(J,) by how much p falls as the joint moves on."""
        return np.array([d.gear if d.servo else 0.0 for d in self.drives])

    @property
    def remembered(self) -> int:
        """Numbers of the past, of all units."""
        past = TOLD * self.together * (self.history - 1) if self.kind == "mlp" else self.hidden
        return self.units * past


def response(kind: Kind, a: Mapping[str, Any], z: Any, h: Any, xp: Any) -> tuple[Any, Any]:
    """What a net says to its inputs z (m, U, w, in), and a GRU's next state h (m, U, w, hidden). xp: numpy or torch.

    GRU: s = sigma(z W_s + h V_s + b_s) for s = r, c;   g = tanh(z W_g + b_g + r (h V_g + d_g));   h' = (1 - c) g + c h
    """
    if kind == "gru":
        size = h.shape[-1]
        x, y = z @ a["wx"] + a["bx"], h @ a["wh"] + a["bh"]
        s = 1 / (1 + xp.exp(-(x[..., : 2 * size] + y[..., : 2 * size])))
        r, c = s[..., :size], s[..., size:]
        h = (1 - c) * xp.tanh(x[..., 2 * size :] + r * y[..., 2 * size :]) + c * h
        z = h
    for k in range(sum(name.startswith("w") and name[1:].isdigit() for name in a)):
        z = xp.tanh(z @ a[f"w{k}"] + a[f"b{k}"])
    return a["offset"] + a["gain"] * (z @ a["w_out"] + a["b_out"]), h


@dataclass(frozen=True, eq=False)
class ActuatorNet(OnForce, Remembers):
    """A learned r in a world of one model."""

    card: Card
    arrays: Arrays
    """(G, in, out) by name, or (m, G, in, out) for m nets at once"""
    u_at: np.ndarray  # (J,) columns of controls, positions and velocities, and the gears
    q_at: np.ndarray
    v_at: np.ndarray

    @staticmethod
    def on(model: mujoco.MjModel, card: Card, arrays: Arrays, where: str = "actuator net") -> "ActuatorNet":
        """Bound to a model, by names; refused where its actuators are not those the net was learned on."""
        have = {d.actuator: (i, d) for i, d in enumerate(drives(model))}
        places = []
        for d in card.drives:
            if d.actuator not in have:
                raise unknown("actuator", d.actuator, have, where)
            i, mine = have[d.actuator]
            _same(d, mine, where)
            j = model.joint(d.joint).id
            places.append((i, int(model.jnt_qposadr[j]), int(model.jnt_dofadr[j])))
        return ActuatorNet(card, {k: np.asarray(v, np.float32) for k, v in arrays.items()}, *np.array(places).T)

    @property
    def width(self) -> int:
        return 1 + self.card.remembered  # a 1 once the episode has begun

    def fits(self, dt: float) -> None:
        if abs(dt - self.card.dt) > SAME * self.card.dt:
            raise SurefootError(
                f"actuator net: period: found a world of {dt:.6g} s, expected {self.card.dt:.6g} s, at which it was "
                "learned; its history would mean something else: make the world at that rate, or learn it anew"
            )

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """(m, U, in, out) by name."""
        each = {k: v if v.ndim == 4 else v[None] for k, v in self.arrays.items()}
        return {k: np.ascontiguousarray(v[:, list(self.card.groups)]) for k, v in each.items()}

    def features(self, q: np.ndarray, v: np.ndarray, u: np.ndarray) -> np.ndarray:
        """(..., U, 3 k) p, v and s of each joint of each unit, from whole states and controls."""
        v = v[..., self.v_at]
        p = u[..., self.u_at] - self.card.servo * q[..., self.q_at]
        f = np.stack([p, v, v / (np.abs(v) + np.array(self.card.slow))], -1)
        return f.reshape(*f.shape[:-2], self.card.units, TOLD * self.card.together)

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        self.fits(chance.dt)
        memory, out = x.memory[self], np.zeros_like(x.v)
        r, past = self.answer(self.features(x.q, x.v, u).astype(np.float32), memory[:, 1:], memory[:, 0] == 0)
        memory[:, 0], memory[:, 1:] = 1.0, past
        out[:, self.v_at] = r
        return out

    def answer(self, now: np.ndarray, past: np.ndarray, fresh: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """r (n, J) for features now (n, U, 3 k), and the past that the next period is to know."""
        c, n = self.card, len(now)
        h, inputs = np.zeros((1, 1, 1, 1), np.float32), now
        if c.kind == "gru":
            h = self._split(past.reshape(n, c.units, c.hidden).astype(np.float32))
        elif c.history > 1:
            frames = past.reshape(n, c.history - 1, *now.shape[1:]).astype(np.float32)
            frames = np.concatenate([now[:, None], np.where(fresh[:, None, None, None], now[:, None], frames)], 1)
            inputs, past = frames.swapaxes(1, 2).reshape(n, c.units, -1), frames[:, :-1].reshape(n, -1)
        a = self.weights
        z = np.clip((self._split(inputs) - a["shift"]) / a["scale"], -CLIP, CLIP)
        r, h = response(c.kind, a, z, h, np)
        past = self._joined(h, n).reshape(n, -1) if c.kind == "gru" else past
        r = self._joined(r, n).reshape(n, -1).astype(float)
        return np.clip(r, -np.array(c.limit), c.limit), past

    def _split(self, x: np.ndarray) -> np.ndarray:
        """(n, U, .) -> (m, U, n / m, .)"""
        m = len(self.weights["w_out"])
        return x.reshape(m, -1, *x.shape[1:]).swapaxes(1, 2)

    def _joined(self, x: np.ndarray, n: int) -> np.ndarray:
        """The inverse."""
        return x.swapaxes(1, 2).reshape(n, self.card.units, -1)

    def along(self, features: np.ndarray) -> np.ndarray:
        """r (b, T, J) along b recordings of features (b, T, U, 3 k), each with a past of its own."""
        past, r = np.zeros((len(features), self.card.remembered), np.float32), []
        for t in range(features.shape[1]):
            now = features[:, t].astype(np.float32)
            each, past = self.answer(now, past, np.full(len(now), t == 0))
            r.append(each)
        return np.stack(r, 1)


def _same(was: Drive, now: Drive, where: str) -> None:
    """A net adds to what the model's actuator does: under other gains the sum would be another one."""
    for name, a in asdict(was).items():
        b = getattr(now, name)
        alike = a == b if isinstance(a, str) or a is None or b is None else abs(a - b) <= SAME * max(abs(a), abs(b))
        if not alike:
            raise SurefootError(
                f"{where}: actuator {was.actuator}: {name}: found {b} in this model, expected {a}, on which the net was learned"
            )


def save(net: ActuatorNet, path: str | Path, facts: Mapping[str, Any] | None = None) -> Path:
    """Write PATH.safetensors and, last, PATH.json, which commits it. Returns the JSON's path."""
    path = Path(path).with_suffix(".json")
    data = save_tensors({k: np.ascontiguousarray(v) for k, v in net.arrays.items()})
    files.write(path.with_suffix(".safetensors"), data)
    told, said = _golden(net)
    files.write_json(path, {
        "format": FORMAT, "card": asdict(net.card), "sha256": files.sha256(data),
        "golden": {"features": told.tolist(), "r": said.tolist()}, "facts": dict(facts or {}),
    })  # fmt: skip
    return path


def load(path: str | Path, model: mujoco.MjModel) -> ActuatorNet:
    """The net that `save` wrote, bound to a model: a Term for `Plant.world`, `World.like` or a Task's `terms`."""
    path = Path(path).with_suffix(".json")
    told, where = files.read_json(path), str(path)
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        found = told.get("format") if isinstance(told, dict) else type(told).__name__
        raise SurefootError(f"{where}: format: found {found!r}, expected {FORMAT!r}")
    weights = path.with_suffix(".safetensors")
    try:
        data = files.read_bytes(weights, LARGEST)
    except SurefootError as error:
        raise SurefootError(f"{error}; expected the weights beside {path.name}") from None
    if files.sha256(data) != told.get("sha256"):
        raise SurefootError(f"{weights}: not the weights {path.name} was written with (sha256 differs)")
    net = ActuatorNet.on(model, _card(told.get("card"), where), parse_tensors(data, str(weights)), where)
    if not np.allclose(_golden(net)[1], np.array(told["golden"]["r"]), rtol=GOLDEN, atol=GOLDEN * max(net.card.limit)):
        raise SurefootError(f"{where}: golden: the net answers differently from when it was written")
    return net


def _card(told: Any, where: str) -> Card:
    try:
        tuples = {k: tuple(told[k]) for k in ("groups", "limit", "slow")}
        card = Card(**told | tuples | {"drives": tuple(Drive(**d) for d in told["drives"])})
    except (TypeError, KeyError) as error:
        raise SurefootError(f"{where}: card: {error}") from None
    if card.kind not in ("mlp", "gru") or not 0 < card.dt < 1 or len(card.limit) != card.units * card.together:
        raise SurefootError(f"{where}: card: found kind {card.kind!r}, dt {card.dt}, {len(card.limit)} limits")
    if len(card.drives) != len(card.limit) or not np.isfinite(card.limit).all():
        raise SurefootError(f"{where}: card: limit: expected {len(card.drives)} finite numbers, found {card.limit}")
    return card


def _golden(net: ActuatorNet) -> tuple[np.ndarray, np.ndarray]:
    """Features of three periods, and what the net says to them."""
    c = net.card
    shape = (1, 3, c.units, TOLD * c.together)
    told = (0.1 * np.sin(1.0 + np.arange(np.prod(shape)))).reshape(shape)
    return told, net.along(told)
