"""Sound files, which the generators spoil: a log, a run, a policy, a learned Term, a robot with another's net and contract."""

import json
import sys
from pathlib import Path

import numpy as np

TERMS = ("base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "last_action", "command")


def make(good: Path) -> None:
    good.mkdir(parents=True)
    t = np.arange(60) / 100
    rows = "".join(f"{a!r},{np.sin(6 * a)!r},{np.cos(6 * a)!r}\n" for a in t.tolist())
    (good / "swing.csv").write_text("time,q0,q1\n" + rows.replace("np.float64(", "").replace(")", ""))
    _run(good)
    _term(good / "term")
    _stranger(good)


def _run(good: Path) -> None:
    from surefoot import tasks
    from surefoot.cli import main

    how = ["--steps", "512", "--envs", "16", "--save-every", "0", "--threads", "1"]
    assert main(["train", "balance", *how, "--out", str(good / "run")]) == 0
    (good / "belief.json").write_text(json.dumps(tasks.resolve("balance").belief.to_json()))


def _term(folder: Path) -> None:
    """A missing force of zeros on the cart and pole."""
    from surefoot import tasks
    from surefoot.sim.learned import Ensemble, Layout, MissingForce, save

    layout = Layout.of(tasks.env(tasks.resolve("balance"), 1).world.model)
    n, nv = len(layout.names), layout.nv
    zero = lambda *shape: np.zeros(shape)  # noqa: E731
    arrays = {"w0": zero(2, 4, n), "b0": zero(2, 4), "w1": zero(2, nv, 4), "b1": zero(2, nv), "mean": zero(n), "sd": np.ones(n), "scale": np.ones(nv), "doubt": np.array(0.0)}  # fmt: skip
    save(MissingForce(layout, Ensemble(arrays)), folder)


def _stranger(good: Path) -> None:
    """A quadruped, a net of zeros and its contract."""
    from onnx import TensorProto, helper, numpy_helper

    from surefoot.contract import Contract
    from surefoot.tasks.ready.walk import JOINTS, STAND, xml

    contract = {
        "joints": list(JOINTS), "home": list(STAND), "observation": [{"name": n} for n in TERMS], "rate": 50.0, "action_scale": [0.5],
        "action_limit": 100.0, "latency": 0.0, "frame": "imu", "commands": {"vx": [0.5, 0.5]}, "kp": [], "about": "",
    }  # fmt: skip
    (good / "robot.xml").write_text(xml())
    (good / "contract.json").write_text(json.dumps(contract))
    n = Contract.from_json(contract).obs_dim
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["obs", "w"], ["actions"], transB=1)], "net",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, [1, n])],
        [helper.make_tensor_value_info("actions", TensorProto.FLOAT, [1, 12])],
        [numpy_helper.from_array(np.zeros((12, n), np.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (good / "policy.onnx").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    make(Path(sys.argv[1]))
