"""An exported policy against the net it came from."""

from pathlib import Path

import numpy as np
import torch

from surefoot.deploy.runtime import runtime
from surefoot.errors import SurefootError
from surefoot.learn.nets import ACTIVATIONS, Actor, Encoder
from surefoot.policy import Net
from surefoot.rng import stream
from surefoot.task import Mirror

TOLERANCE = 1e-4


def as_torch(policy: Net) -> Actor:
    """The policy's own actor as learning knew it, on normalised observations and without its base."""
    a = policy.arrays
    layers: list[torch.nn.Module] = []
    for k in range(policy.depth):
        linear = torch.nn.Linear(a[f"w{k}"].shape[1], a[f"w{k}"].shape[0])
        linear.weight.data, linear.bias.data = torch.from_numpy(a[f"w{k}"].copy()), torch.from_numpy(a[f"b{k}"].copy())
        layers += [linear] if k == policy.depth - 1 else [linear, ACTIVATIONS[policy.activation]()]
    mirror = Mirror(a["obs_order"], a["obs_sign"], a["action_order"], a["action_sign"]) if policy.mirrored else None
    if not policy.encoder:
        return Actor(torch.nn.Sequential(*layers), mirror)
    width = (
        a["enc_wh"].shape[1] if policy.encoder == "gru" else len(a["enc_b0"]) * (2 if policy.encoder == "conv" else 1)
    )
    encoder = Encoder(
        policy.encoder,
        a["reads"],
        policy.contract.history,
        len(a["latent_b"]),
        policy.activation,
        torch.Generator(),
        width,
    )
    encoder.adopt(a)
    return Actor(torch.nn.Sequential(*layers), mirror, encoder, a["keeps"])


@torch.no_grad()
def answers(policy: Net, obs: np.ndarray) -> torch.Tensor:
    """What torch makes of observations: the policy's own net, and its base's where it has one."""
    out = as_torch(policy)(torch.from_numpy(policy.normalised(obs)))
    if policy.beneath is None:
        return out
    told, base, limit = obs[:, policy.beneath.columns], policy.base, policy.contract.action_limit
    below = answers(base, told) if isinstance(base, Net) else torch.from_numpy(policy.beneath.base(told))
    return out + below.clamp(-limit, limit)


def onnx_difference(policy: Net, path: Path, n: int = 1024) -> float:
    """Largest difference of onnxruntime on the file from torch on the net over n observations; an error if large."""
    onnxruntime = runtime("checking an ONNX file")
    obs = policy.arrays["mean"] + policy.arrays["sd"] * stream(1, "export").standard_normal(
        (n, policy.contract.obs_dim)
    )
    obs = obs.astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found = session.run(None, {"obs": obs})[0]
    expected = answers(policy, obs).numpy()
    worst = float(np.abs(found - expected).max())
    if not worst <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise SurefootError(
            f"{path}: answers differ from torch by {worst:.2g}, more than {TOLERANCE:g}; the file is not fit to deploy"
        )
    return worst
