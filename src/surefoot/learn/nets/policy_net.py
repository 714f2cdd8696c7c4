"""A policy as torch has it, from which learning goes on and ONNX is exported: its structure, its weights, and linear laws."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.contract import Contract, base_columns
from surefoot.errors import SurefootError, unknown
from surefoot.learn.nets import ACTIVATIONS, CLIP, Actor, Encoder, mlp
from surefoot.learn.nets.flow import NOISE_ACTORS, PREDICTED, DiffusionActor, NoiseActor
from surefoot.policy import Policy, PolicyState, follow, no_plan
from surefoot.task import Mirror
from surefoot.typed import whole

DEEPEST = 8  # bases on bases
MOST_FLOW = 1024  # actions, chunks and steps of a flow
FREE = 1024.0  # largest magnitude of a linear law's input, in its unit, where the contract has no clip


class PolicyNet(nn.Module, Policy):
    """A whole policy as torch has it: observations as the contract makes them -> actions, or scores of choices.

        out = scale * actor(clip((obs - mean) / sd, +-10)) + clip(base(obs'), +-limit)

    With a base, what the actor gives is added to what the base does; obs' are the columns that the base observes.
    """

    mean: Tensor
    sd: Tensor
    columns: Tensor

    def __init__(
        self,
        contract: Contract,
        actor: Actor | NoiseActor,
        scales: tuple[np.ndarray, np.ndarray],
        base: "PolicyNet | None" = None,
        scale: float = 1.0,
    ):
        """`scales` are mean and sd of observations; `scale` that of the actor's answers, such as upon a base."""
        super().__init__()
        self.contract, self.actor, self.base, self.scale = contract, actor, base, scale
        for name, value in zip(("mean", "sd"), scales):
            self.register_buffer(name, torch.from_numpy(np.array(value, np.float32)))
        if base is not None:
            self.register_buffer("columns", torch.from_numpy(base_columns(contract, base.contract)))
            if base.execute > 1:
                raise SurefootError(f"base: it executes {base.execute} actions of a plan; expected one that is asked each time (--execute 1)")  # fmt: skip
        if self.depth > DEEPEST:
            raise SurefootError(f"policy for {contract.task}: base: expected at most {DEEPEST} on each other")

    @property
    def depth(self) -> int:
        return 0 if self.base is None else 1 + self.base.depth

    @property
    def outputs(self) -> int:
        return self.contract.action.choices or len(self.contract.action.names)

    @property
    def execute(self) -> int:
        """Actions of a plan that are executed before the next one."""
        return self.actor.execute if isinstance(self.actor, NoiseActor) else 1

    def normalised(self, obs: Tensor) -> Tensor:
        return ((obs - self.mean) / self.sd).clamp(-CLIP, CLIP)

    def beneath(self, obs: Tensor) -> Tensor:
        """What the base does, within the action's limit: a base that asks for more could not be talked out of it."""
        assert self.base is not None
        limit = self.contract.action.limit
        return self.base(obs[:, self.columns]).clamp(-limit, limit)

    def forward(self, obs: Tensor) -> Tensor:
        out = self.actor(self.normalised(obs))
        out = out if self.scale == 1.0 else self.scale * out
        return out if self.base is None else out + self.beneath(obs)

    def plan(self, obs: Tensor) -> Tensor:
        """(n, execute * na) the actions to execute from here, oldest first; of a policy that plans."""
        assert isinstance(self.actor, NoiseActor)
        return self.scale * self.actor.plan(self.normalised(obs))

    def __call__(self, obs: Any) -> Any:
        """Tensors as torch's modules take them; arrays as policies do."""
        return nn.Module.__call__(self, obs) if isinstance(obs, Tensor) else Policy.__call__(self, obs)

    def init(self, n: int) -> PolicyState:
        return no_plan(n, self.execute, self.outputs)

    @torch.no_grad()
    def step(self, s: PolicyState, obs: np.ndarray) -> tuple[PolicyState, np.ndarray]:
        if self.execute > 1:
            return follow(s, obs, lambda rows: self.plan(torch.from_numpy(rows)).numpy())
        out = self(torch.from_numpy(np.ascontiguousarray(obs, np.float32))).numpy()
        return s, out.argmax(1)[:, None].astype(np.float32) if self.contract.action.choices else out

    def spec(self) -> dict[str, Any]:
        """Its structure, from which `build` makes a net of the same shape."""
        a = self.actor
        linear = [m for m in a.body if isinstance(m, nn.Linear)]
        found: dict[str, Any] = {
            "sizes": [linear[0].in_features, *(m.out_features for m in linear)], "activation": a.activation,
            "mirrored": a.mirrored, "scale": self.scale, **({"squash": a.squash} if a.squash else {}), "encoder": None,
        }  # fmt: skip
        if isinstance(a, NoiseActor):
            found["flow"] = a.spec()
        elif a.encoder is not None:
            e = a.encoder
            found["encoder"] = {"kind": e.kind, "reads": len(e.reads), "frames": e.frames, "latent": e.out.out_features,
                                "width": e.width, "keeps": len(a.keeps), "estimates": e.estimates}  # fmt: skip
        return found | (
            {} if self.base is None else {"base": self.base.spec(), "base_contract": self.base.contract.to_json()}
        )


def build(spec: Mapping[str, Any], contract: Contract, tensors: Mapping[str, Tensor], where: str) -> PolicyNet:
    """The net that a spec describes, with these weights; refused where they do not fit."""
    try:
        _check_size(spec, sum(t.numel() for t in tensors.values()))
        net = _shell(spec, contract, where)
        net.load_state_dict(dict(tensors))
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError, AttributeError, OverflowError) as error:
        if isinstance(error, SurefootError):
            raise
        raise SurefootError(f"{where}: its layers do not fit: {str(error)[:300]}") from None
    if not all(bool(torch.isfinite(v).all()) for v in net.state_dict().values()):
        raise SurefootError(f"{where}: expected finite numbers, found NaN or infinity")
    return net


def _check_size(spec: Mapping[str, Any], most: int) -> None:
    """No net is made that has more numbers than there are weights for it."""
    sizes, e = [int(k) for k in spec["sizes"]], spec["encoder"]
    needs = [a * b for a, b in zip(sizes, sizes[1:])]
    if e is not None:
        half = int(e["width"]) // 2
        square = half**2 if e["kind"] != "conv" or int(e["frames"]) > 4 else 0
        needs += [int(e["reads"]), int(e["keeps"]), int(e["frames"]), int(e["latent"]) * half, square]
    if len(sizes) < 2 or min(sizes) < 1 or sum(needs) > 4 * most:
        raise ValueError(f"found layers of {str(sizes)[:80]} for {most} weights")
    if "base" in spec:
        _check_size(spec["base"], most)


def _shell(spec: Mapping[str, Any], contract: Contract, where: str) -> PolicyNet:
    sizes, seed, e = [int(k) for k in spec["sizes"]], torch.Generator(), spec["encoder"]
    if spec["activation"] not in ACTIVATIONS:
        raise unknown("activation", str(spec["activation"]), ACTIVATIONS, where)
    body = mlp(sizes[0], sizes[1:-1], sizes[-1], spec["activation"], 1.0, seed)
    n, na = contract.obs_dim, len(contract.action.names)
    mirror = Mirror(np.arange(n), np.ones(n), np.arange(na), np.ones(na)) if spec["mirrored"] else None
    encoder, keeps = None, None
    if e is not None:
        reads, keeps = np.zeros(int(e["reads"]), np.int64), np.zeros(int(e["keeps"]), np.int64)
        more = int(e["width"]), int(e.get("estimates", 0))
        encoder = Encoder(e["kind"], reads, int(e["frames"]), int(e["latent"]), spec["activation"], seed, *more)
    base = None
    if "base" in spec:
        base = _shell(spec["base"], Contract.from_json(spec["base_contract"], f"{where}: base"), f"{where}: base")
    actor: Actor | NoiseActor
    if "flow" in spec:
        counts = {"execute": 1, **spec["flow"]}
        names = ("actions", "chunk", "steps", "execute")
        flow = {k: whole(counts[k], 1, MOST_FLOW, f"{where}: flow: {k}") for k in names}
        if spec["flow"]["kind"] not in NOISE_ACTORS:
            raise unknown("kind", str(spec["flow"]["kind"]), NOISE_ACTORS, f"{where}: flow")
        actor = NOISE_ACTORS[spec["flow"]["kind"]](body, mirror, activation=spec["activation"], **flow)
        if isinstance(actor, DiffusionActor):
            actor.predicts = str(spec["flow"].get("predicts", "noise"))  # of files from before there were two
            if actor.predicts not in PREDICTED:
                raise unknown("prediction", actor.predicts, PREDICTED, f"{where}: flow")
    else:
        actor = Actor(body, mirror, encoder, keeps, spec["activation"], float(spec.get("squash", 0.0)))
    return PolicyNet(contract, actor, (np.zeros(n), np.ones(n)), base, float(spec["scale"]))


def linear(
    contract: Contract, gains: Mapping[str, Sequence[Any] | np.ndarray], offset: Sequence[float] | None = None
) -> PolicyNet:
    """A law by hand, such as PD or LQR: u = offset + sum_i K_i y_i, on the newest frame of each named term y_i.

    u is in the unit of the controls and y_i in the term's own: N, m, rad; K_i is (controls, dim). Without an offset, the
    contract's. The scales of actions and observations are worked in here.
    """
    where, n = f"linear law for {contract.task}", len(contract.action.names)
    if contract.action.choices:
        raise SurefootError(
            f"{where}: choices: expected continuous actions, found {contract.action.choices} to choose from"
        )
    known = {t.name: t for t in contract.terms}
    for name in gains:
        if name not in known:
            raise unknown("observation term", name, known, where)
    blocks, reach = [], []
    for t in contract.terms:
        gain = np.asarray(gains.get(t.name, np.zeros((n, t.dim))), float)
        if gain.shape != (n, t.dim):
            raise SurefootError(f"{where}: {t.name}: expected gains of shape {(n, t.dim)}, found {gain.shape}")
        each = np.broadcast_to(np.asarray(t.scale, float), (t.dim,))
        blocks.append(gain / each)
        reach += (np.abs(each) * (FREE if t.clip == np.inf else t.clip)).tolist()
    zero, scale = contract.action.offset, contract.action.scale
    first = zero if offset is None else np.asarray(offset, float)
    if first.shape != (n,):
        raise SurefootError(f"{where}: offset: expected {n} numbers, one an action, found shape {first.shape}")
    # a normalised observation is clipped: scaled by powers of two, which cost no rounding, none reaches the clip
    sd = np.tile(2.0 ** np.ceil(np.log2(np.array(reach) / CLIP)), contract.history)
    gain = np.concatenate(blocks, 1) / scale[:, None]  # (n, frame): from observation to actions
    older = np.zeros((n, contract.obs_dim - gain.shape[1]))
    layer = nn.Linear(contract.obs_dim, n)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(np.concatenate([older, gain], 1) * sd))
        layer.bias.copy_(torch.from_numpy((first - zero) / scale))
    return PolicyNet(contract, Actor(nn.Sequential(layer), None), (0 * sd, sd))
