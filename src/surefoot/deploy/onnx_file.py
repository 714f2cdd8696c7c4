"""An ONNX file that others wrote, run by onnxruntime on the CPU, after a look at what is in it.

    bytes -> size -> operators, tensors, opset -> one answer in a process with limits -> session

Refused: data kept outside the file, operators that are not arithmetic (loops, custom domains), more than LARGEST bytes,
several inputs, what needs more than a few seconds or gigabytes for one answer. A graph without loops ends.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.deploy.runtime import runtime
from surefoot.errors import MissingExtra, SurefootError, unknown

LARGEST = 256 * 2**20  # bytes
MOST_NODES = 10_000
OPSETS = range(7, 24)
TRIAL_SECONDS, TRIAL_BYTES = 20.0, 4 << 30
OPS = frozenset(
    "Abs Add And ArgMax AveragePool BatchNormalization Cast Ceil Clip Concat Constant Conv Cos Div Elu Equal Erf Exp"
    " Flatten Floor Gather Gelu Gemm Greater GRU HardSigmoid HardSwish Identity LSTM LayerNormalization LeakyRelu Less Log"
    " MatMul Max MaxPool Min Mish Mul Neg Not Or PRelu Pow Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape"
    " RNN Selu Shape Sigmoid Sign Sin Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Tan Tanh Transpose Unsqueeze"
    " Where".split()
)

# Runs in a process of its own: limits first, then one answer of the net to zeros.
TRIAL = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[3]),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except ImportError:
    pass
import numpy
from surefoot.deploy.runtime import runtime
onnxruntime = runtime()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.log_severity_level = 4
try:
    session = onnxruntime.InferenceSession(sys.stdin.buffer.read(), options, providers=["CPUExecutionProvider"])
    for n in (1, 3):
        session.run(None, {session.get_inputs()[0].name: numpy.zeros((n, int(sys.argv[1])), numpy.float32)})
        print(n)
except Exception as error:
    print(str(error)[:500], file=sys.stderr)
    sys.exit(3)
"""


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

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        obs = np.asarray(obs, np.float32)
        if self.rows and len(obs) > 1:
            return np.concatenate([self(row[None]) for row in obs])
        return np.asarray(self.session.run([self.names[1]], {self.names[0]: obs})[0])


def read(path: Path, given: str = "", wanted: str = "") -> Graph:
    """The net in a file; `given` and `wanted` name its input and output where it has several."""
    try:
        import onnx
    except ImportError:
        raise MissingExtra("reading an ONNX file", "export") from None
    onnxruntime = runtime("reading an ONNX file")
    path = Path(path)
    model = _parsed(path, onnx)
    _vet(model, str(path), onnx)
    source, sink = _ports(model, str(path), given, wanted)
    width, wide = _shape(source, f"{path}: input {source.name}"), _shape(sink, f"{path}: output {sink.name}")
    batched = _batched(model, source, sink)
    data, rows = batched.SerializeToString(), False
    answered = _trial(data, width, str(path))
    if 3 not in answered:
        data, rows = model.SerializeToString(), True
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    metadata = {p.key: p.value for p in model.metadata_props}
    graph = Graph(width, wide, metadata, session, (source.name, sink.name), rows)
    return graph if rows else _same_by_row(graph, model, options)


def _same_by_row(graph: Graph, model: Any, options: Any) -> Graph:
    """Three rows at once must be answered as each alone is, by the file as it was; else one goes at a time."""
    session = runtime().InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    alone = Graph(graph.width, graph.wide, graph.metadata, session, graph.names, True)
    obs = np.linspace(-1.0, 1.0, 3 * graph.width, dtype=np.float32).reshape(3, -1)
    one, all_ = alone(obs), graph(obs)
    return graph if one.shape == all_.shape and np.allclose(one, all_, rtol=1e-4, atol=1e-5) else alone


def _parsed(path: Path, onnx: Any) -> Any:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise SurefootError(f"{path}: {error.strerror}") from None
    if size > LARGEST:
        raise SurefootError(f"{path}: {size} bytes, expected at most {LARGEST}")
    try:
        return onnx.load_model_from_string(path.read_bytes())
    except Exception as error:  # protobuf's own, whose class depends on its build
        raise SurefootError(f"{path}: not an ONNX file: {type(error).__name__}") from None


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


def _batched(model: Any, source: Any, sink: Any) -> Any:
    """The same net, told that it may be given several rows."""
    out = type(model)()
    out.CopyFrom(model)
    for port in (*out.graph.input, *out.graph.output):
        if port.name in (source.name, sink.name):
            port.type.tensor_type.shape.dim[0].dim_param = "n"
    del out.graph.value_info[:]
    return out


def _trial(data: bytes, width: int, where: str) -> list[int]:
    """One answer in a process with limits on time and memory; which counts of rows it answered."""
    job = [sys.executable, "-c", TRIAL, str(width), str(TRIAL_BYTES), str(int(TRIAL_SECONDS))]
    try:
        done = subprocess.run(job, input=data, capture_output=True, timeout=2 * TRIAL_SECONDS)
    except subprocess.TimeoutExpired:
        raise SurefootError(f"{where}: gave no answer within {2 * TRIAL_SECONDS:g} s") from None
    answered = [int(word) for word in done.stdout.split() if word.isdigit()]
    if 1 not in answered:
        said = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        why = (
            said
            if done.returncode == 3
            else f"crashed, or took more than {TRIAL_BYTES >> 30} GiB or {TRIAL_SECONDS:g} s"
        )
        raise SurefootError(f"{where}: onnxruntime gives no answer: {why}")
    return answered


def parsed(text: str) -> Any:
    """JSON kept in a file's metadata; None where it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
