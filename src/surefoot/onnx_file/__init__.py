"""An ONNX file, run by onnxruntime on the CPU, after a look at what is in it: a policy or a learned Term, ours or not.

    bytes -> size -> operators, tensors, opset -> one answer in a process with limits -> session

Refused: data kept outside the file, operators that are not arithmetic (loops, custom domains), more than LARGEST bytes,
several inputs, what needs more than a few seconds or gigabytes for one answer. A graph without loops ends.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files, isolated
from surefoot.errors import MissingExtra, SurefootError, unknown
from surefoot.onnx_file.runtime import runtime

LARGEST = 256 * 2**20  # bytes
MOST_NODES = 10_000
OPSETS = range(7, 24)
TRIAL = isolated.Limits(memory=1 << 30, seconds=20, wall=60.0)
OPS = frozenset(
    "Abs Add And ArgMax AveragePool BatchNormalization Cast Ceil Clip Concat Constant ConstantOfShape Conv Cos Div Elu Equal Erf Exp Expand"
    " Flatten Floor Gather Gelu Gemm Greater GRU HardSigmoid HardSwish Identity LSTM LayerNormalization LeakyRelu Less Log"
    " MatMul Max MaxPool Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape"
    " RNN Selu Shape Sigmoid Sign Sin Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Tan Tanh Transpose Unsqueeze"
    " Where".split()
)


@dataclass(frozen=True)
class Graph:
    """obs (n, width) -> out (n, wide) float32, and the file's metadata."""

    width: int
    wide: int
    metadata: dict[str, str]
    session: Any
    names: tuple[str, str]
    rows: bool
    """one row at a time: the file's net does not take several"""
    data: bytes
    """the file"""
    outputs: dict[str, int]
    """names of all it gives, and the width of each; 0 where it is no (n, width)"""

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        return self.run(obs, self.names[1])

    def run(self, obs: np.ndarray, output: str) -> np.ndarray:
        obs = np.asarray(obs, np.float32)
        if self.rows and len(obs) > 1:
            return np.concatenate([self.run(row[None], output) for row in obs])
        return np.asarray(self.session.run([output], {self.names[0]: obs})[0])


def read(path: Path, given: str = "", wanted: str = "") -> Graph:
    """The net in a file; `given` and `wanted` name its input and output where it has several."""
    return graph_in(files.read_bytes(Path(path), LARGEST), str(path), given, wanted)


def graph_in(data: bytes, where: str, given: str = "", wanted: str = "") -> Graph:
    """The net in the bytes of a file; `where` it is from begins every error."""
    model, graph = _opened(data, where, given, wanted)
    answered = _trial(_batched(model, graph.names), (graph.width, graph.wide, graph.names[1]), where)
    alone = replace(graph, session=_session(model.SerializeToString()), rows=True)
    if 3 not in answered:
        return alone
    graph = replace(graph, session=_session(_batched(model, graph.names)))
    return graph if _same_by_row(graph, alone) else alone


def exported(data: bytes) -> Graph:
    """The net that this process has just exported: it takes n rows, and needs no trial."""
    return replace(_opened(data, "exported net")[1], session=_session(data))


def _opened(data: bytes, where: str, given: str = "", wanted: str = "") -> tuple[Any, Graph]:
    """A file's model, vetted, and its Graph, yet without a session."""
    try:
        import onnx
    except ImportError:
        raise MissingExtra("reading an ONNX file", "export") from None
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's own, whose class depends on its build
        raise SurefootError(f"{where}: not an ONNX file: {type(error).__name__}") from None
    _vet(model, where, onnx)
    source, sink = _ports(model, where, given, wanted)
    width, wide = _shape(source, f"{where}: input {source.name}"), _shape(sink, f"{where}: output {sink.name}")
    metadata = {p.key: p.value for p in model.metadata_props}
    dims = {o.name: o.type.tensor_type.shape.dim for o in model.graph.output}
    outputs = {name: int(d[1].dim_value) if len(d) == 2 else 0 for name, d in dims.items()}
    return model, Graph(width, wide, metadata, None, (source.name, sink.name), False, data, outputs)


def _session(data: bytes) -> Any:
    """One thread, so that answers have the same bits on any machine's number of cores."""
    options = runtime().SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return runtime().InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _same_by_row(graph: Graph, alone: Graph) -> bool:
    """Three rows at once must be answered as each alone is, by the file as it was; else one goes at a time."""
    obs = np.linspace(-1.0, 1.0, 3 * graph.width, dtype=np.float32).reshape(3, -1)
    one, all_ = alone(obs), graph(obs)
    return one.shape == all_.shape and np.allclose(one, all_, rtol=1e-4, atol=1e-5)


def _vet(model: Any, where: str, onnx: Any) -> None:
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version not in OPSETS:
            raise SurefootError(f"{where}: opset {opset.version}: expected {OPSETS[0]} to {OPSETS[-1]}")
    if len(model.functions):
        raise SurefootError(f"{where}: found functions of its own, expected plain operators")
    nodes = list(model.graph.node)
    if not 0 < len(nodes) <= MOST_NODES:
        raise SurefootError(f"{where}: found {len(nodes)} operators, expected 1 to {MOST_NODES}")
    for node in nodes:
        if node.domain not in ("", "ai.onnx") or node.op_type not in OPS:
            name = f"{node.domain}.{node.op_type}".strip(".")
            raise SurefootError(f"{where}: operator {name}: not one that a policy of plain arithmetic has")
    if len({p.key for p in model.metadata_props}) < len(model.metadata_props):
        raise SurefootError(f"{where}: metadata: found a key twice, expected each once")
    for tensor in _tensors(model.graph, onnx):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.external_data):
            raise SurefootError(f"{where}: tensor {tensor.name}: kept in another file, expected all in one")


def _tensors(graph: Any, onnx: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (t for t in (attribute.t, *attribute.tensors) if t.dims or t.external_data)


def _ports(model: Any, where: str, given: str, wanted: str) -> tuple[Any, Any]:
    constants = {t.name for t in model.graph.initializer}
    sources = {i.name: i for i in model.graph.input if i.name not in constants}
    sinks = {o.name: o for o in model.graph.output}
    if len(sources) != 1:
        raise SurefootError(
            f"{where}: inputs: found {', '.join(sources)}; expected one, the observation: "
            "a net that is handed its own memory is not supported"
        )
    source, sink = given or next(iter(sources)), wanted or next(iter(sinks), "")
    if source not in sources:
        raise unknown("input", source, sources, where)
    if sink not in sinks:
        raise unknown("output", sink, sinks, where)
    return sources[source], sinks[sink]


def _shape(port: Any, where: str) -> int:
    kind = port.type.tensor_type
    dims = [d.dim_value for d in kind.shape.dim]
    if kind.elem_type != 1:
        raise SurefootError(f"{where}: expected float32, found element type {kind.elem_type}")
    if len(dims) != 2 or not 0 < dims[1] <= 1_000_000:
        raise SurefootError(f"{where}: expected a shape (n, width), found {tuple(dims)}")
    return int(dims[1])


def _batched(model: Any, names: tuple[str, str]) -> bytes:
    """The same net, whose inputs may have several rows."""
    out = type(model)()
    out.CopyFrom(model)
    for port in (*out.graph.input, *out.graph.output):
        if port.name in names:
            port.type.tensor_type.shape.dim[0].dim_param = "n"
    del out.graph.value_info[:]
    return bytes(out.SerializeToString())


def _trial(data: bytes, shape: tuple[int, int, str], where: str) -> bytes:
    """One answer in a process with limits on time and memory; which counts of rows it answered."""
    job, doing = json.dumps(shape).encode() + b"\n" + data, f"{where}: onnxruntime gives no answer: running the net"
    try:
        return isolated.run("surefoot.onnx_file:answer", job, TRIAL, doing)
    except isolated.Exceeded:
        raise
    except SurefootError as error:
        raise SurefootError(f"{where}: onnxruntime gives no answer: {error}") from None


def answer(job: bytes) -> bytes:
    """In the child: one row of zeros, then three; the counts that were answered with as many rows of finite numbers."""
    head, _, data = job.partition(b"\n")
    width, wide, sink = json.loads(head)
    answered: list[int] = []
    try:
        session = _session(data)
        for n in (1, 3):
            found = session.run([sink], {session.get_inputs()[0].name: np.zeros((n, width), np.float32)})[0]
            if found.shape != (n, wide) or not np.isfinite(found).all():
                raise ValueError(
                    f"to zeros it answers {found.shape} numbers, expected finite ones of shape {(n, wide)}"
                )
            answered.append(n)
    except Exception as error:  # onnxruntime's own kinds
        if "alloc" in str(error).lower():
            raise MemoryError from None
        if not answered:
            raise SurefootError(" ".join(str(error).split())[:300]) from None
    return bytes(answered)


def parsed(text: str) -> Any:
    """JSON kept in a file's metadata; None where it is not JSON."""
    try:
        return files.parse_json(text, "metadata")
    except SurefootError:
        return None
