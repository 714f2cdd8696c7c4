"""Sound files, which the generators spoil: a log, a run, a policy, learned Terms, a robot with another's net and contract."""

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
    _terms(good)
    _stranger(good)
    _bundles(good)


def _run(good: Path) -> None:
    from surefoot import tasks
    from surefoot.cli import main

    how = ["--steps", "512", "--envs", "16", "--save-every", "0", "--threads", "1"]
    assert main(["train", "balance", *how, "--out", str(good / "run")]) == 0
    (good / "belief.json").write_text(json.dumps(tasks.resolve("balance").belief.to_json()))


def _terms(good: Path) -> None:
    """A small residual force on the cart and pole, and a net of its motor."""
    import torch

    from surefoot import tasks
    from surefoot.real2sim.actuator.net import ActuatorModule, Shape, UnitNets, exported
    from surefoot.real2sim.residual.ensemble import Ensemble, FitSettings
    from surefoot.real2sim.residual.force_fit import term_of
    from surefoot.sim.learned import save
    from surefoot.sim.learned.actuator_net import Actuators, drives
    from surefoot.sim.learned.features import StateFeatures

    world = tasks.env(tasks.resolve("balance"), 1).world
    features = StateFeatures.of(world.model)
    net = Ensemble(len(features.names), features.nv, FitSettings(members=2, hidden=(4,)), torch.Generator())
    net.spread.fill_(1.0)
    save(term_of("force", world, net.scaled(np.full(features.nv, 1e-3))), good / "term")
    shape = Shape("gru", (0,), 1, 1, 4)
    scales = {"shift": np.full((1, 1, 3), 0.5), "scale": np.ones((1, 1, 3)), "gain": np.ones((1, 1, 1)), "offset": np.full((1, 1, 1), 0.1)}  # fmt: skip
    nets = UnitNets(shape, scales, 0)
    torch.nn.init.ones_(nets.last.weight)
    save(
        exported(
            ActuatorModule(nets, shape, (5.0,)), Actuators(world.dt, drives(world.model), (0.1,), (5.0,)), world.model
        ),
        good / "motor",
    )


def _bundles(good: Path) -> None:
    """A bundle of the run, the same in safety layers, the layers alone, and a file of rows."""
    from onnx import TensorProto, helper, numpy_helper

    from surefoot import tasks
    from surefoot.cli import main
    from surefoot.control import layers
    from surefoot.control.barrier import Filter
    from surefoot.control.reach_avoid import ReachAvoid, Recovery
    from surefoot.deploy import bundle
    from surefoot.log import rows_head
    from surefoot.onnx_file import graph_in
    from surefoot.tasks.joint_model import limits_of

    nodes = [helper.make_node("Gemm", ["obs", "w"], ["y"]), helper.make_node("Tanh", ["y"], ["value"])]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, w]) for n, w in (("obs", 4), ("value", 1))]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], [numpy_helper.from_array(np.full((4, 1), 0.1, np.float32), "w")])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    recovery = Recovery((("cart_pole", 1),), (-1.0,), (1.0,), (5,), "drive", ((1.0,),))
    switch = ReachAvoid(graph_in(model.SerializeToString(), "value"), ("cart_pole",), recovery)
    limits = limits_of(tasks.resolve("balance"), bundle.load(good / "run").contract, 3.0)
    layers.write(good / "safety", (switch, Filter((limits,))))
    assert main(["export", str(good / "run"), "--out", str(good / "bundle")]) == 0
    assert main(["export", str(good / "run"), "--out", str(good / "worn"), "--safety", str(good / "safety")]) == 0
    table = np.column_stack([np.arange(50) / 50, np.sin(np.arange(50)), np.arange(50)])
    (good / "run.rows").write_bytes(
        rows_head([("time", 0, "f8"), ("q", 1, "f4"), ("n", 0, "i8")], {}, {}) + table.tobytes()
    )


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
