"""What is fuzzed: each parser of what strangers write, with sound input to change."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import files, tasks
from surefoot.belief import Belief
from surefoot.contract import Contract
from surefoot.control import layers
from surefoot.control.adaptive import Adaptive
from surefoot.control.barrier import Filter
from surefoot.control.command_limits import CommandLimits
from surefoot.deploy import bundle, foreign, holosoma, manifest
from surefoot.deploy.limits import Limits
from surefoot.deploy.links import About, Command, Packet, wire
from surefoot.deploy.links.robot_side import Server
from surefoot.deploy.unitree import from_deploy
from surefoot.errors import SurefootError
from surefoot.formats.mapping import Mapping
from surefoot.formats.readers.arrays import load
from surefoot.formats.readers.text import read_csv, read_json
from surefoot.gate.bundled import bundled
from surefoot.learn.runspec import RunSpec
from surefoot.log import Log, from_rows, rows_head
from surefoot.sim.model.load import load_robot
from surefoot.tasks.joint_model import joints_of, limits_of
from surefoot.tasks.rollout import contract as contract_of
from surefoot.verbs.train import settings_file
from surefoot.verbs.train.train import Train
from surefoot.verdict import Verdict

from .fuzz import Target
from .good import TERMS


def parsed(parse: Callable[[Any], Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(files.parse_json(data, "file"))


def blob(value: Any) -> bytes:
    return json.dumps(value).encode()


def targets(folder: Path) -> list[Target]:
    """`folder` is for parsers that read files."""
    return [*nouns(), *bundles(), *strangers(folder), *logs(folder), *links(), *dds()]


def nouns() -> Iterator[Target]:
    walk = tasks.resolve("walk-estimate")
    long = blob(contract_of(walk, tasks.env(walk, 1).world).to_json())
    short = blob({"joints": ["a", "b"], "home": [0.1, 0.2], "observation": [{"name": n} for n in TERMS], "rate": 50.0, "action_scale": [0.5], "kp": [20.0], "kd": [1.0], "commands": {"vx": [-1, 1]}, "phase": {"period": 0.5, "feet": [0.0, 3.14]}})  # fmt: skip
    yield Target("contract", (long, short), parsed(lambda v: Contract.from_json(v, "file")))
    task = tasks.resolve("balance")
    yield Target("belief", (blob(task.belief.to_json()), blob(tasks.nominal(task).to_json())), parsed(lambda v: Belief.from_json(v, "file")))  # fmt: skip
    gate = Path(bundle.find("balance")).with_name("gate.json").read_bytes()
    yield Target("verdict", (gate,), parsed(lambda v: Verdict.from_json(v, "file")))
    run = json.loads(Path(bundle.find("balance")).with_name("run.json").read_text())
    yield Target("run", (blob(run),), parsed(lambda v: RunSpec.from_json(v, "file")))


def bundles() -> Iterator[Target]:
    """Seals and hashes are made to agree: what lies behind them is fuzzed."""
    net = bundle.load(Path("balance"))
    made, _ = bundled(Path("balance"), net, tasks.resolve("balance"), {})
    hashes = {n: files.sha256(made[n]) for n in (bundle.NAME, manifest.GOLDEN)}
    told = {k: v for k, v in json.loads(made[manifest.MANIFEST]).items() if k != "sha256"}

    def read_manifest(v: Any) -> Any:
        body = manifest.known_fields(files.check_seal(v, "file"), manifest.FIELDS, manifest.FIELDS, "file")
        return manifest._manifest(body, net, hashes, (), "file")

    def read_golden(data: bytes) -> Any:
        golden, tables = manifest._golden(data, False, "file")
        golden.check_net(net, "file")
        return manifest._replayed(net, told_limits, golden)

    told_limits = Limits.from_json(told["limits"], 1, "file")
    golden = json.loads(made[manifest.GOLDEN])
    few = {k: {n: v[:5] for n, v in x.items()} if k in ("readings", "raw") else x if k == "parts" else x[:5] for k, x in golden.items()}  # fmt: skip
    yield Target("manifest", (blob(told),), parsed(read_manifest))
    yield Target("limits", (blob(told["limits"]),), parsed(lambda v: Limits.from_json(v, 1, "file")))
    yield Target("golden", (blob(few),), read_golden)
    arm = tasks.resolve("arm")
    own = contract_of(arm, tasks.env(arm, 1).world)
    law = Adaptive(joints_of(load_robot(arm.robot).model), tip=(0.55, 0.0, 0.0))
    base = CommandLimits((("command", 0),), (0.5,), (None,))
    seeds = [layers.contents(x)[layers.NAME] for x in ((law, Filter((limits_of(arm, own, 2.0),))), (base,))]
    switch = {"kind": "reach_avoid", "value": "value.onnx", "sha256": "0" * 64, "terms": ["a"], "recovery": {"columns": [["a", 0]], "low": [0.0], "high": [1.0], "points": [3]}}  # fmt: skip
    zero = bundle.OnnxPolicy(own, net.graph, {})

    def read_layers(data: bytes) -> Any:
        return layers.wear(zero, layers.read_from(data, lambda name: b"no net", "file"))

    yield Target("layers", (*seeds, blob({"format": 1, "layers": [switch]})), read_layers)


def strangers(folder: Path) -> Iterator[Target]:
    motors = [f"j{k}" for k in range(12)]
    deploy = {
        "joint_ids_map": list(range(12)), "step_dt": 0.02, "default_joint_pos": [0.0] * 12, "stiffness": [20.0] * 12, "damping": [0.5] * 12, "actions": {"JointPositionAction": {"scale": 0.5, "offset": [0.0] * 12, "clip": [[-1, 1]] * 12}},
        "observations": {n: {"scale": 1.0, "history_length": 1, "clip": [-100, 100]} for n in TERMS}, "commands": {"base_velocity": {"ranges": {"lin_vel_x": [-0.5, 0.5]}}},
    }  # fmt: skip
    yield Target("deploy.yaml", (blob(deploy),), parsed(lambda v: Contract.from_json(from_deploy(v, motors, "file"), "file")))  # fmt: skip
    config = {
        "robot": {"init_state": {"default_joint_angles": {"a": 0.1, "b": 0.2}}, "control": {"action_scale": 0.25, "clip_actions": True, "action_clip_value": 20.0}},
        "simulator": {"config": {"sim": {"fps": 200, "control_decimation": 4}}}, "command": {"setup_terms": {"locomotion_gait": {"params": {"gait_period": 1.0}}}},
        "observation": {"groups": {"actor_obs": {"history_length": 1, "terms": {n: {"scale": 1.0} for n in ("base_ang_vel", "projected_gravity", "dof_pos", "dof_vel", "actions", "sin_phase", "cos_phase")}}}},
    }  # fmt: skip
    holo = {"dof_names": ["a", "b"], "kp": [20.0, 20.0], "kd": [1.0, 1.0], "command_ranges": {"lin_vel_x": [-1, 1]}, "experiment_config": config}  # fmt: skip

    def metadata(v: Any) -> Any:
        if not isinstance(v, dict):
            raise SurefootError("an ONNX file's metadata are keys with texts")
        words = {str(k): x if isinstance(x, str) else json.dumps(x) for k, x in v.items()}
        return Contract.from_json({"rate": 50.0} | foreign._inside(words, "file"), "file")

    assert holosoma.is_one({k: json.dumps(x) for k, x in holo.items()})
    yield Target("holosoma", (blob(holo),), parsed(metadata))
    mjlab = bundle._metadata(bundle.load(Path("balance")).contract) | {"observation_names": "joint_pos,joint_vel", "observation_terms_scale": "1,0.1", "observation_terms_clip": "-5;5,", "observation_terms_history_length": "1,2"}  # fmt: skip
    yield Target("mjlab", (blob(mjlab),), parsed(metadata))
    toml = b'steps = 500_000\nhidden = [128, 128]\nlr = 1e-3\nbelief = "task"\n[student]\nhistory = 30\n[range]\nmass = [0.8, 1.2]\nlatency = "0..0.02"\n'  # fmt: skip

    def settings(data: bytes) -> Any:
        path = folder / "settings.toml"
        path.write_bytes(data)
        return settings_file.applied(Train(), settings_file.read(path), "file")

    yield Target("settings", (toml,), settings)


def logs(folder: Path) -> Iterator[Target]:
    def file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
        def parse(data: bytes) -> Any:
            (folder / name).write_bytes(data)
            return read(folder / name)

        return parse

    rows = rows_head([("time", 0, "f8"), ("q", 2, "f4"), ("n", 0, "i8")], {"q": "rad"}, {"names": {"q": ["a", "b"]}}) + np.arange(24.0).tobytes()  # fmt: skip
    yield Target("rows", (rows,), from_rows)
    Log(np.arange(3.0), {"q": np.eye(3)}).save(folder / "seed.npz")
    yield Target("npz", ((folder / "seed.npz").read_bytes(),), file("a.npz", load))
    yield Target("csv", (b"time,q0,q1\n0,1,2\n0.1,2,3\n0.2,3,nan\n",), file("a.csv", read_csv))
    yield Target("json log", (blob({"time": [0, 1, 2], "q": [[1, 2], [3, 4], [5, 6]]}), blob([{"t": 0, "q": 1}, {"t": 1, "q": 2}])), file("a.json", read_json))  # fmt: skip
    mapping = {"time": {"column": "t", "unit": "ms"}, "columns": {"joint_pos": {"from": ["q0", "q1"], "unit": "deg"}}}
    yield Target("mapping", (blob(mapping),), parsed(lambda v: Mapping.from_json(v, "file")))


class Heard:
    """A transport that hands over one message."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []

    def receive(self) -> tuple[bytes, Any] | None:
        return (self.waiting.pop(), "peer") if self.waiting else None

    def send(self, data: bytes, peer: Any) -> None:
        assert len(data) <= wire.LONGEST

    def close(self) -> None: ...


class Body:
    def about(self) -> About:
        return About({"joint_pos": ("a", "b"), "control": ("a", "b")}, 200.0, "robot", {"model": "x"})

    def reset(self, run: int) -> None: ...

    def readings(self) -> dict[str, np.ndarray]:
        return {"joint_pos": np.zeros(2), "base_quat": np.array([1.0, 0, 0, 0])}

    def advance(self, command: Command | None) -> None: ...


def links() -> Iterator[Target]:
    about, layout = Body().about(), wire.Layout.of(Body().readings())
    body = wire.about_body(about, layout)
    packet = wire.message(wire.PACKET, 5, 7, wire.packet_body(Packet(7, 1.25, Body().readings(), "driven")))
    command = wire.message(wire.COMMAND, 5, 9, wire.command_body(Command(9, "servo", *np.ones((3, 2)))))

    def read(data: bytes) -> None:
        m = wire.parse(data)
        if m is not None:
            found = wire.parse_packet(m, layout)
            assert found is None or found.readings.keys() == Body().readings().keys()
            wire.parse_command(m)

    def served(data: bytes) -> None:
        transport = Heard()
        server = Server(Body(), transport)
        transport.waiting = [data, command, data]
        server._hear()
        server._tell()

    yield Target("packets", (packet, command), read)
    yield Target("about", (body,), lambda data: wire.parse_about(data, "robot"))
    yield Target("robot's end", (packet, command, wire.message(wire.HELLO, 3), wire.message(wire.DAMP, 3)), served)


def dds() -> Iterator[Target]:
    """Messages as Cyclone DDS decodes them; what cannot be decoded never comes out of it (links/dds.py: taken)."""
    try:
        from surefoot.deploy.links import ros2, unitree
        from surefoot.deploy.links.dds import taken
    except ImportError:  # the extra unitree
        return

    class Source:
        def __init__(self, kind: Any, data: bytes):
            self.kind, self.data = kind, [data]

        def take_next(self) -> Any:
            return self.kind.deserialize(self.data.pop()) if self.data else None

    def link(made: Any, kind: Any) -> Callable[[bytes], None]:
        def read(data: bytes) -> None:
            for m in taken(Source(kind, data), kind):
                packet = made().packet_of(m)
                assert packet is None or all(isinstance(x, np.ndarray) for x in packet.readings.values())

        return read

    state = unitree.LowState_(tick=5)
    state.crc = state.sum()
    joints = ros2.JointState_(name=["a", "b"], position=[0.1, 0.2], velocity=[0.3, 0.4], effort=[0.5, 0.6])
    damaged = struct.pack("<I", 1)
    yield Target("unitree", (state.serialize(), state.serialize() + damaged), link(lambda: unitree.UnitreeLink("lo"), unitree.LowState_))  # fmt: skip
    yield Target("ros2", (joints.serialize(),), link(lambda: ros2.Ros2Link("lo"), ros2.JointState_))
