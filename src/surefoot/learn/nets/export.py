"""From torch to ONNX by torch's own exporter, checked against torch: policies on disk with golden vectors, and learned Terms."""

import io
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as save_tensors
from torch import Tensor, nn

from surefoot import files
from surefoot.deploy import bundle
from surefoot.deploy.bundle import NAME, WEIGHTS, Golden, sealed
from surefoot.errors import SurefootError
from surefoot.learn.nets.policy_net import PolicyNet, build
from surefoot.onnx_file import Graph, exported
from surefoot.policy import along
from surefoot.rng import stream
from surefoot.tensors import parse_tensors

TOLERANCE = 1e-5  # of onnxruntime's answers from torch's, relative to their size


class _Exported(nn.Module):
    """What the file computes: actions; the latent where there is an encoder, or what it estimates, in units; a plan's actions."""

    def __init__(self, net: PolicyNet):
        super().__init__()
        self.net = net

    def forward(self, obs: Tensor) -> Any:
        encoder = self.net.actor.encoder
        if self.net.execute > 1:
            plan = self.net.plan(obs)
            return plan[:, : self.net.outputs], plan
        if encoder is None:
            return self.net(obs)
        latent = encoder(self.net.normalised(obs))
        return self.net(obs), encoder.in_units(latent) if encoder.estimates else latent


def onnx_bytes(net: PolicyNet) -> bytes:
    """A policy as ONNX."""
    encoder = net.actor.encoder
    names = ["actions"] + ([] if encoder is None else ["estimate" if encoder.estimates else "latent"])
    names += [bundle.CHUNK] if net.execute > 1 else []
    return to_onnx(_Exported(net), net.contract.obs_dim, names)


def to_onnx(module: nn.Module, width: int, names: Sequence[str] = ("out",)) -> bytes:
    """A module of rows (n, width) as ONNX. The older exporter takes 0.1 s, the newer one 5 s: too long for every checkpoint."""
    import onnx

    out: Any = io.BytesIO()  # it takes a file, too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own age, and shapes that do not vary
        torch.onnx.export(
            module.eval(), (torch.zeros(2, width),), out, input_names=["obs"], output_names=list(names),
            dynamic_axes={name: {0: "n"} for name in ("obs", *names)}, dynamo=False, opset_version=17,
        )  # fmt: skip
    model = onnx.load_model_from_string(out.getvalue())
    with torch.no_grad():
        values = module(torch.zeros(2, width))
    for port, value in zip(model.graph.output, [values] if isinstance(values, Tensor) else values):
        port.type.tensor_type.shape.dim[1].dim_value = value.shape[1]  # the exporter loses it behind a Reshape
    return bytes(model.SerializeToString())


def graph_of(module: nn.Module, width: int) -> Graph:
    """A module as onnxruntime runs it, checked against torch."""
    graph = exported(to_onnx(module, width))
    check_same(module, graph, stream(1, "export").standard_normal((64, width)).astype(np.float32), "exported net")
    return graph


def save(
    net: PolicyNet, folder: Path, golden: Golden | None = None, about: dict[str, Any] | None = None, name: str = NAME
) -> Path:
    """Write a policy: the weights as torch has them, then the ONNX file, which commits both. Returns its path."""
    path = Path(folder) / name
    weights = weights_of(net)
    card = {
        "format": bundle.FORMAT, "contract": net.contract.to_json(), "net": net.spec(), "weights": files.sha256(weights),
        "golden": (golden or plain_golden(net)).to_json(), "about": about or {},
    }  # fmt: skip
    data = sealed(onnx_bytes(net), json.loads(json.dumps(card)))
    files.write(path.with_suffix(".safetensors"), weights)
    files.write(path, data)
    return path


def weights_of(net: PolicyNet) -> bytes:
    return bytes(save_tensors({k: v.detach().numpy().copy(order="C") for k, v in net.state_dict().items()}))


def digest(net: PolicyNet) -> str:
    """Content hash of all that a policy is: weights, structure and contract, and those of its base."""
    meaning = {"contract": net.contract.to_json(), "net": net.spec()}
    return files.sha256(weights_of(net) + json.dumps(meaning, sort_keys=True).encode())


def load_net(path: Path) -> PolicyNet:
    """The torch net of a policy on disk, to learn on from it: a base, a teacher, a start. It answers as the ONNX file does."""
    policy = bundle.load(path)
    own = bundle.find(path).with_suffix(".safetensors")
    beside = own if own.exists() else own.with_name(WEIGHTS)  # of a copy under another name
    if "net" not in policy.about or not beside.exists():
        raise SurefootError(f"{beside}: no such file; expected it beside the policy: copy both files of one run")
    data = files.read_bytes(beside, bundle.LARGEST)
    if files.sha256(data) != policy.about.get("weights"):
        raise SurefootError(f"{beside}: these are not the weights {NAME} was written with (sha256 differs)")
    tensors = {k: torch.from_numpy(np.array(v)) for k, v in parse_tensors(data, str(beside)).items()}
    net = build(policy.about["net"], policy.contract, tensors, str(beside))
    _difference(net, policy, beside, 16)
    return net


def plain_golden(net: PolicyNet, n: int = 8) -> Golden:
    """Observations drawn around the training mean, where there is no robot to drive."""
    rng = stream(0, "golden")
    spread = net.sd.numpy() * rng.standard_normal((n, net.contract.obs_dim))
    return golden_of(net, (net.mean.numpy() + spread).astype(np.float32))


@torch.no_grad()
def golden_of(net: PolicyNet, obs: np.ndarray, **recorded: Any) -> Golden:
    """Golden vectors of observations, with the readings they came from where those were recorded."""
    out = along(net, obs) if net.execute > 1 else net(torch.from_numpy(obs)).numpy()
    blank: dict[str, Any] = {"readings": {}, "parts": {}, "raw": {}}
    return bundle.golden_with(net.contract, out, **blank | recorded, obs=obs)


def onnx_difference(net: PolicyNet, path: Path, n: int = 1024) -> float:
    """Largest difference of onnxruntime on the file from torch on the net over n observations; an error if large."""
    return _difference(net, bundle.load(path), path, n)


def _difference(net: PolicyNet, policy: bundle.OnnxPolicy, path: Path, n: int) -> float:
    obs = net.mean.numpy() + net.sd.numpy() * stream(1, "export").standard_normal((n, net.contract.obs_dim))
    rows = obs.astype(np.float32)
    worst = check_same(net, policy.graph, rows, str(path))
    return worst if net.execute == 1 else max(worst, check_same(net.plan, policy.graph, rows, str(path), bundle.CHUNK))


@torch.no_grad()
def check_same(
    module: Callable[[Tensor], Tensor], graph: Graph, rows: np.ndarray, where: str, output: str = ""
) -> float:
    """Largest difference of onnxruntime's answers, or another output, from torch's; an error if large."""
    wanted = module(torch.from_numpy(rows)).numpy()
    worst = float(np.abs(graph.run(rows, output or graph.names[1]) - wanted).max())
    if not worst <= TOLERANCE * max(1.0, float(np.abs(wanted).max())):
        raise SurefootError(
            f"{where}: answers of onnxruntime differ from torch by {worst:.2g}, more than {TOLERANCE:g}; it is not fit to deploy"
        )
    return worst
