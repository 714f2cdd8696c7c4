"""Observation -> action, with the contract that says what every number means.

What is lost between simulator and robot is seldom the weights and nearly always the contract: joint order, scales,
units, rate, gains, history layout. So a policy carries it, and golden vectors (observation -> action pairs) prove
it was kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.rng import stream

FORMAT = 1


@dataclass(frozen=True)
class Told:
    """One observation term, in the order the net is told them: (measured in `unit`, clipped to any +-clip) * scale."""

    name: str
    dim: int
    unit: str
    scale: float
    clip: float | None


@dataclass(frozen=True)
class Contract:
    """Everything a runtime must know to use a policy. control = offset + scale * clip(action, +-limit)."""

    task: str
    rate: float
    """Hz: how often the policy is asked"""
    observation: tuple[Told, ...]
    history: int
    """frames in an observation, newest last"""
    action_names: tuple[str, ...]
    action_unit: str
    action_offset: tuple[float, ...]
    action_scale: tuple[float, ...]
    action_limit: float
    choices: int = 0
    """0: continuous actions; k: the net gives k scores and the largest wins"""
    command_names: tuple[str, ...] = ()
    kp: tuple[float, ...] = ()
    """servo stiffness by action, where the actuators are servos"""
    kd: tuple[float, ...] = ()
    control_low: tuple[float, ...] = ()
    control_high: tuple[float, ...] = ()
    trial: int = 1
    """episodes in one world through which the history runs on; 1: it begins anew with each"""
    parents: Mapping[str, str] = field(default_factory=dict)
    """content hashes and versions of what this came from: model, belief, seed, run"""

    @property
    def obs_dim(self) -> int:
        return self.history * sum(t.dim for t in self.observation)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT} | asdict(self)

    @staticmethod
    def from_json(data: Any, where: str = "contract") -> "Contract":
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise SurefootError(f"{where}: format: expected {FORMAT}, found {found}")
        known = {f.name: f for f in fields(Contract)}
        body: dict[str, Any] = {k: v for k, v in data.items() if k != "format"}
        for k in body:
            if k not in known:
                raise unknown("field", k, known, where)
        try:
            body |= {k: tuple(v) for k, v in body.items() if isinstance(v, list)}
            contract = Contract(**body | {"observation": tuple(Told(**t) for t in body["observation"])})
        except (TypeError, KeyError) as error:
            raise SurefootError(f"{where}: {error}") from error
        contract.check(where)
        return contract

    def check(self, where: str) -> None:
        """Lengths agree and numbers are numbers; otherwise nothing may be driven with it."""
        n = len(self.action_names)
        for name in ("action_offset", "action_scale", "kp", "kd", "control_low", "control_high"):
            values = getattr(self, name)
            if len(values) not in ((n,) if name.startswith("action") else (0, n)):
                raise SurefootError(f"{where}: {name}: expected {n} numbers, one an action, found {len(values)}")
            if not all(isinstance(v, (int, float)) and np.isfinite(v) for v in values):
                raise SurefootError(f"{where}: {name}: expected finite numbers, found {list(values)}")
        if not (isinstance(self.action_limit, (int, float)) and 0 < self.action_limit < np.inf):
            raise SurefootError(f"{where}: action_limit: expected a finite number > 0, found {self.action_limit}")
        if not (isinstance(self.rate, (int, float)) and 0 < self.rate < 1e5):
            raise SurefootError(f"{where}: rate: expected a frequency in Hz, found {self.rate}")
        counts = (self.history, self.trial, *(t.dim for t in self.observation))
        if not all(isinstance(k, int) and k >= 1 for k in counts):
            raise SurefootError(f"{where}: history, trial and dims: expected whole numbers >= 1")


class Policy(ABC):
    """Something that acts. Frozen: whoever needs memory keeps it in the observation's history."""

    contract: Contract

    @abstractmethod
    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """(n, obs_dim) float32 -> (n, na) actions; for choices, (n, 1) the index chosen."""


@dataclass(frozen=True)
class Zero(Policy):
    """Always the middle of the action range: what the robot does when nobody drives it."""

    contract: Contract

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return np.zeros((len(obs), 1 if self.contract.choices else len(self.contract.action_names)), np.float32)


class Random(Policy):
    """Uniform over the action range. Its draws are keyed by (seed, how often it was asked)."""

    def __init__(self, contract: Contract, seed: int = 0):
        self.contract, self.seed, self.asked = contract, seed, 0

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        rng, c = stream(self.seed, "random policy", self.asked), self.contract
        self.asked += 1
        if c.choices:
            return rng.integers(0, c.choices, (len(obs), 1)).astype(np.float32)
        high = min(c.action_limit, 1.0)
        return rng.uniform(-high, high, (len(obs), len(c.action_names))).astype(np.float32)


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


STRIDE = 2  # of an encoder's convolutions
CLIP = 10.0  # largest magnitude of a normalised observation
DEEPEST = 8  # bases on bases


class Beneath(Policy):
    """A base as the policy that stands on it asks it: out of all that policy is told, and held to the action's limit.

    The base may be told fewer terms and fewer frames, never one that the policy is not. Without the limit, a base that
    asks for more than there is could not be talked out of it.
    """

    def __init__(self, contract: Contract, base: Policy):
        self.contract, self.base, self.columns = contract, base, _columns(contract, base.contract)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        limit = self.contract.action_limit
        return np.clip(self.base(np.take(obs, self.columns, 1)), -limit, limit).astype(np.float32)


def _columns(contract: Contract, base: Contract) -> np.ndarray:
    """Where in an observation a base finds what it is told; an error where both do not mean the same."""
    where = f"policy for {contract.task}: base for {base.task}"
    if contract.choices or base.choices:
        raise SurefootError(f"{where}: choices: expected continuous actions, which can be added; found a choice")
    for name in ("rate", "action_names", "action_unit", "action_offset", "action_scale", "action_limit", "kp", "kd"):
        if getattr(contract, name) != getattr(base, name):
            raise SurefootError(f"{where}: {name}: expected {getattr(contract, name)}, found {getattr(base, name)}")
    if contract.trial > 1 and base.history > 1:
        raise SurefootError(
            f"{where}: history: expected 1 frame under a policy that remembers {contract.trial} episodes, found "
            f"{base.history}: its older ones would be of the episode before"
        )
    if base.history > contract.history:
        raise SurefootError(f"{where}: history: expected at most {contract.history} frames, found {base.history}")
    frame = np.arange(contract.obs_dim // contract.history)
    told = {t.name: t for t in contract.observation}
    at = dict(zip(told, np.split(frame, np.cumsum([t.dim for t in contract.observation])[:-1])))
    for t in base.observation:
        if t.name not in told:
            raise unknown("observation term", t.name, told, where)
        if t != told[t.name]:
            raise SurefootError(f"{where}: {t.name}: expected {told[t.name]}, found {t}")
        if t.name == "command" and base.command_names != contract.command_names:
            raise SurefootError(
                f"{where}: command_names: expected {contract.command_names}, found {base.command_names}"
            )
    columns = np.concatenate([at[t.name] for t in base.observation])
    first = contract.history - base.history
    return np.concatenate([columns + k * len(frame) for k in range(first, contract.history)])


@dataclass(frozen=True)
class Net(Policy):
    """An MLP on normalised observations: a = W_k act(... act(W_1 z + b_1)) + b_k,  z = clip((obs - mean) / sd, +-10).

    With a mirror, the mean of the answer and the mirrored answer to the mirrored question. With an encoder, the MLP is
    told z[keeps] and a latent worked out from z[reads]: by an MLP (`mlp`), or from frames of history, oldest first, by
    convolutions over time (`conv`) or a gated recurrent unit (`gru`). With a base, the sum of the base's answer and this.

    `arrays` holds w0, b0, w1, ..., mean, sd; the mirror's obs_order, obs_sign, action_order, action_sign; and the
    encoder's columns reads, keeps, its layers by name (see `latent`), and latent_w, latent_b, which end it.
    """

    contract: Contract
    arrays: Mapping[str, np.ndarray]
    activation: str
    encoder: str = ""
    base: Policy | None = None

    def __post_init__(self) -> None:
        where, c, a = f"policy for {self.contract.task}", self.contract, self.arrays
        if self.activation not in ACTIVATIONS:
            raise unknown("activation", self.activation, ACTIVATIONS, where)
        if self.encoder:
            self._check_encoder(where)
        sizes = [self.told, *(a[f"w{k}"].shape[0] for k in range(self.depth))]
        if not self.depth or sizes[-1] != (c.choices or len(c.action_names)):
            found = sizes[-1] if self.depth else "no layers"
            raise SurefootError(f"{where}: expected {c.choices or len(c.action_names)} outputs, found {found}")
        for k in range(self.depth):
            _expect(where, f"w{k}", a, (sizes[k + 1], sizes[k]))
            _expect(where, f"b{k}", a, (sizes[k + 1],))
        for name in ("mean", "sd"):
            _expect(where, name, a, (c.obs_dim,))
        if not (a["sd"] > 0).all():
            raise SurefootError(f"{where}: sd: expected positive numbers")
        if self.base is not None:
            _columns(c, self.base.contract)
        if self.stands > DEEPEST:
            raise SurefootError(f"{where}: base: expected at most {DEEPEST} on each other, found {self.stands}")

    def _check_encoder(self, where: str) -> None:
        """Columns exist and layers fit each other; a trial run then finds what else does not."""
        a, kinds = self.arrays, ("mlp", "conv", "gru")
        if self.encoder not in kinds:
            raise unknown("encoder", self.encoder, kinds, where)
        for name in ("reads", "keeps"):
            found = a.get(name)
            if found is None or found.dtype != np.int64 or found.ndim != 1 or not len(found):
                raise SurefootError(f"{where}: {name}: expected a row of columns")
            if found.min() < 0 or found.max() >= self.contract.obs_dim:
                raise SurefootError(f"{where}: {name}: expected columns below {self.contract.obs_dim}")
        if self.encoder != "mlp" and len(a["reads"]) % self.contract.history:
            raise SurefootError(f"{where}: reads: {len(a['reads'])} columns are no {self.contract.history} frames")
        for name, found in a.items():
            if name.startswith("enc_") or name.startswith("latent_"):
                _expect(where, name, a, found.shape)
        try:
            self.latent(np.zeros((1, self.contract.obs_dim), np.float32))
        except (KeyError, ValueError, IndexError) as error:
            raise SurefootError(f"{where}: encoder {self.encoder}: its layers do not fit: {error}") from error

    @cached_property
    def beneath(self) -> Beneath | None:
        return None if self.base is None else Beneath(self.contract, self.base)

    @property
    def stands(self) -> int:
        """How many bases are below."""
        return 0 if self.base is None else 1 + (self.base.stands if isinstance(self.base, Net) else 0)

    @property
    def told(self) -> int:
        """How many numbers the MLP is told."""
        if not self.encoder:
            return self.contract.obs_dim
        return len(self.arrays["keeps"]) + len(self.arrays["latent_b"])

    @property
    def depth(self) -> int:
        return sum(k.startswith("w") for k in self.arrays)

    @property
    def mirrored(self) -> bool:
        return "obs_order" in self.arrays

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        out = self.scores(obs)
        return out.argmax(1)[:, None].astype(np.float32) if self.contract.choices else out

    def scores(self, obs: np.ndarray) -> np.ndarray:
        own = self.own(obs)
        return own if self.beneath is None else own + self.beneath(np.asarray(obs, np.float32))

    def own(self, obs: np.ndarray) -> np.ndarray:
        """What this net adds to its base."""
        a, z = self.arrays, self.normalised(obs)
        if not self.mirrored:
            return self._mlp(z)
        flipped = self._mlp(z[:, a["obs_order"]] * a["obs_sign"])
        return 0.5 * (self._mlp(z) + flipped[:, a["action_order"]] * a["action_sign"])

    def normalised(self, obs: np.ndarray) -> np.ndarray:
        return np.clip((np.asarray(obs, np.float32) - self.arrays["mean"]) / self.arrays["sd"], -CLIP, CLIP)

    def latent(self, z: np.ndarray) -> np.ndarray:
        """(n, latent): what the encoder makes of normalised observations.

        mlp: enc_w0, enc_b0, ...   conv: enc_w0, enc_b0 on each frame, then enc_k0 (out, in, width), enc_c0, ...
        gru: enc_wi (3h, frame), enc_wh (3h, h), enc_bi, enc_bh, for reset, update and new gate, from a state of zeros
        """
        a, act, x = self.arrays, ACTIVATIONS[self.activation], z[:, self.arrays["reads"]]
        if self.encoder != "mlp":
            x = x.reshape(len(x), self.contract.history, -1)
        if self.encoder == "gru":
            x = _gru(x, a["enc_wi"], a["enc_wh"], a["enc_bi"], a["enc_bh"])
        else:
            for k in range(sum(name.startswith("enc_w") for name in a)):
                x = act(x @ a[f"enc_w{k}"].T + a[f"enc_b{k}"])
            for k in range(sum(name.startswith("enc_k") for name in a)):
                x = act(_conv(x, a[f"enc_k{k}"]) + a[f"enc_c{k}"])
        return x.reshape(len(x), -1) @ a["latent_w"].T + a["latent_b"]

    def _mlp(self, z: np.ndarray) -> np.ndarray:
        act = ACTIVATIONS[self.activation]
        x = np.concatenate([z[:, self.arrays["keeps"]], self.latent(z)], 1) if self.encoder else z
        for k in range(self.depth):
            x = x @ self.arrays[f"w{k}"].T + self.arrays[f"b{k}"]
            x = act(x) if k < self.depth - 1 else x
        return x

    def golden(self, n: int = 8) -> tuple[np.ndarray, np.ndarray]:
        """Observations drawn around the training mean, and what this policy answers: a runtime must answer the same."""
        rng = stream(0, "golden")
        obs = self.arrays["mean"] + self.arrays["sd"] * rng.standard_normal((n, self.contract.obs_dim))
        obs = obs.astype(np.float32)
        return obs, self.scores(obs)


FREE = 1024.0  # largest magnitude of what a linear law is told, in its unit, where the contract has no clip


def linear(
    contract: Contract, gains: Mapping[str, Sequence[Any] | np.ndarray], offset: Sequence[float] | None = None
) -> Net:
    """A law by hand, such as PD or LQR: u = offset + sum_i K_i y_i, on the newest frame of each named term y_i.

    u is in the unit of the controls and y_i in the term's own: N, m, rad; K_i is (controls, dim). Without an offset, the
    contract's. The scales of actions and observations are worked in here.
    """
    where, n = f"linear law for {contract.task}", len(contract.action_names)
    if contract.choices:
        raise SurefootError(f"{where}: choices: expected continuous actions, found {contract.choices} to choose from")
    told = {t.name: t for t in contract.observation}
    for name in gains:
        if name not in told:
            raise unknown("observation term", name, told, where)
    blocks, reach = [], []
    for t in contract.observation:
        gain = np.asarray(gains.get(t.name, np.zeros((n, t.dim))), float)
        if gain.shape != (n, t.dim):
            raise SurefootError(f"{where}: {t.name}: expected gains of shape {(n, t.dim)}, found {gain.shape}")
        blocks.append(gain / t.scale)
        reach += t.dim * [abs(t.scale) * (FREE if t.clip is None else t.clip)]
    zero, scale = np.asarray(contract.action_offset), np.asarray(contract.action_scale)
    first = zero if offset is None else np.asarray(offset, float)
    if first.shape != (n,):
        raise SurefootError(f"{where}: offset: expected {n} numbers, one an action, found shape {first.shape}")
    # a normalised observation is clipped: by powers of two, which cost no rounding, none that can be told is
    sd = np.tile(2.0 ** np.ceil(np.log2(np.array(reach) / CLIP)), contract.history)
    gain = np.concatenate(blocks, 1) / scale[:, None]  # (n, frame): of what is told, to actions
    older = np.zeros((n, contract.obs_dim - gain.shape[1]))
    arrays = {"w0": np.concatenate([older, gain], 1) * sd, "b0": (first - zero) / scale, "mean": 0 * sd, "sd": sd}
    return Net(contract, {k: v.astype(np.float32) for k, v in arrays.items()}, "relu")


def _conv(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """(n, time, in) -> (n, time', out): a convolution over time with the module's stride, no padding."""
    seen = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2], axis=1)[:, ::STRIDE]  # (n, time', in, width)
    return seen.reshape(*seen.shape[:2], -1) @ kernel.reshape(len(kernel), -1).T


def _gru(x: np.ndarray, wi: np.ndarray, wh: np.ndarray, bi: np.ndarray, bh: np.ndarray) -> np.ndarray:
    """(n, time, in) -> (n, h): the last state. h' = (1 - u) n + u h,  n = tanh(W x + r (U h)),  r, u sigmoids."""
    h = np.zeros((len(x), wh.shape[1]), np.float32)
    for t in range(x.shape[1]):
        i, m = np.split(x[:, t] @ wi.T + bi, 3, 1), np.split(h @ wh.T + bh, 3, 1)
        reset, update = (1 / (1 + np.exp(-np.clip(i[k] + m[k], -50, 50))) for k in (0, 1))
        h = (1 - update) * np.tanh(i[2] + reset * m[2]) + update * h
    return h


def _expect(where: str, name: str, arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
    if name not in arrays:
        raise SurefootError(f"{where}: {name} is missing; found {', '.join(sorted(arrays))}")
    found = arrays[name]
    if found.shape != shape or found.dtype != np.float32:
        raise SurefootError(
            f"{where}: {name}: expected float32 of shape {shape}, found {found.dtype} of shape {found.shape}"
        )
    if not np.isfinite(found).all():
        raise SurefootError(f"{where}: {name}: expected finite numbers, found NaN or infinity")
