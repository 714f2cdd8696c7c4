"""The doctor on policies of others: terms in a site's frame are rebuilt, and what a log cannot answer is not checked."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.contract import Contract
from surefoot.doctor import diagnose
from surefoot.doctor.branches.action_path import action_causes
from surefoot.doctor.evidence.observation import rebuild
from surefoot.doctor.prescription import Case, prescribe
from surefoot.gate.candidate import candidate
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import linear
from surefoot.log import Log
from surefoot.policy import Random
from surefoot.sim.realities import Reality
from surefoot.sim.simulated_robot import SimulatedRobot
from surefoot.tasks.from_contract import task_of
from surefoot.tasks.ready.walk import JOINTS, STAND, xml
from surefoot.tasks.rollout import contract

onnx = pytest.importorskip("onnx", reason="needs the export extra")
ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("SUREFOOT_MODELS") or ROOT.parent / "shared" / "models")
GO1, POLICY = MODELS / "unitree_go1_flat.xml", MODELS.parent / "policies" / "go1_joystick.onnx"
BASE = ("action", "control", "command", "joint_pos", "joint_vel", "base_pos", "base_quat", "base_lin_vel", "base_ang_vel")  # fmt: skip
TERMS = ["base_lin_vel", "base_ang_vel", "projected_gravity", "joint_pos", "last_action", "command"]
SHORT = {"joints": list(JOINTS), "home": STAND.tolist(), "observation": TERMS, "rate": 50, "action_scale": 0.5, "frame": "imu"}  # fmt: skip
ON_BASE = '<site name="imu"/>'


def quadruped(path: Path, on_leg: bool = False) -> Path:
    """The quadruped of `walk`, its IMU moved and turned: on the base, or on the thigh of a leg."""
    moved, text = '<site name="imu" pos=".1 .02 .03" euler=".3 .2 .1"/>', xml()
    assert ON_BASE in text
    if on_leg:
        text = text.replace(ON_BASE, "")
        at = text.index(">", text.index('<joint name="FL_hip"')) + 1
        text = text[:at] + moved + text[at:]
    path.write_text(text if on_leg else text.replace(ON_BASE, moved))
    return path


def driven(task, policy, seconds=0.6, reality=None, send=lambda a: a) -> Log:
    robot = SimulatedRobot(task, Reality(2, reality or {}), 5, observation=True)
    obs, actions = robot.connect(), []
    for _ in range(round(seconds * robot.rate)):
        actions.append(np.clip(policy(obs[None])[0], -0.5, 0.5))
        obs = robot.act(send(actions[-1]))
    log = robot.log()
    return Log(log.time, log.columns | {"action": np.array(actions)}, meta=log.meta)


def as_a_driver_writes_it(log: Log) -> Log:
    """Joints, base and command, and no sensor in another frame."""
    return Log(log.time, {k: log.columns[k] for k in BASE}, meta=log.meta)


@pytest.mark.parametrize("on_leg", [False, True], ids=["on the base", "on a thigh"])
def test_terms_in_the_frame_of_a_site_are_rebuilt_from_base_and_joints(tmp_path, on_leg):
    task, _ = task_of(quadruped(tmp_path / "q.xml", on_leg), Contract.from_json(SHORT))
    own = contract(task, tasks.env(task, 1).world)
    log = driven(task, Random(own, 1))
    found = rebuild(own, tasks.env(task, 1).world, as_a_driver_writes_it(log))
    assert found.missing == ()
    np.testing.assert_allclose(found.observations(), log["observation"], atol=1e-4)
    without = as_a_driver_writes_it(log)
    lost = Log(log.time, {k: v for k, v in without.columns.items() if k != "base_ang_vel"}, meta=log.meta)
    assert rebuild(own, tasks.env(task, 1).world, lost).missing == ("base_lin_vel", "base_ang_vel")


def test_a_gait_phase_and_histories_of_different_lengths_are_rebuilt(tmp_path):
    """A clock that stands below a command of 0.1, a command in two terms, and one to four frames of a term, terms together."""
    terms = [
        {"name": "joint_pos", "history": 4},
        {"name": "phase", "history": 2},
        "command_lin_vel",
        "command_ang_vel",
        "cos_phase",
    ]
    clock = {"period": 0.7, "feet": [0, 3.1], "still": 0.1, "stand": 3.1}
    short = SHORT | {"observation": terms, "phase": clock, "layout": "terms"}
    for vx in (0.5, 0.05):
        given = Contract.from_json(short | {"commands": {"vx": [vx, vx]}})
        task, _ = task_of(quadruped(tmp_path / "q.xml"), given)
        own = contract(task, tasks.env(task, 1).world)
        log = driven(task, Random(own, 1))
        found = rebuild(own, tasks.env(task, 1).world, as_a_driver_writes_it(log))
        assert found.missing == () and found.observations().shape[1] == 4 * 12 + 2 * 4 + 3 + 2
        np.testing.assert_allclose(found.observations(), log["observation"], atol=1e-4)
        moves = np.ptp(found.observations()[:, 48:56], axis=0) > 0.5
        assert moves.all() if vx > 0.1 else not moves.any()


TASK_FILE = """
from dataclasses import replace

import numpy as np

from surefoot import tasks
from surefoot.observation import ObsTerm


def task():
    own = tasks.resolve("balance")
    wind = ObsTerm("wind", lambda s: np.zeros((len(s.q), 1)), 1)
    actor = own.observations["actor"]
    return replace(own, name="windy", observations={**own.observations, "actor": replace(actor, terms=(*actor.terms, wind))})
"""


def windy(tmp_path):
    """A cart whose policy observes the wind, which no log has."""
    (tmp_path / "windy.py").write_text(TASK_FILE)
    task = tasks.resolve(str(tmp_path / "windy.py"))
    law = linear(contract(task, tasks.env(task, 1).world), {"cart_pole": [[1.0, 2.0, 30.0, 6.0]]})
    robot = SimulatedRobot(task, Reality(3, {"sensor_noise": 0.05}), 3)
    obs = robot.connect()
    for _ in range(400):
        obs = robot.act(law(obs[None])[0])
    return task, law, robot.log()


def test_a_branch_that_the_log_cannot_answer_is_not_checked_and_nothing_is_called_healthy(tmp_path, capsys):
    task, law, log = windy(tmp_path)
    found = diagnose(law, task, log)
    assert not found.significant and not found.healthy and [b.name for b in found.unchecked] == ["contract"]
    assert "no readings for wind" in found.unchecked[0].evidence
    export.save(law, tmp_path / "run")
    log.save(tmp_path / "log.npz")
    words = ["doctor", str(tmp_path / "run"), str(tmp_path / "log.npz"), "--task", str(tmp_path / "windy.py"), "--success", "False"]  # fmt: skip
    assert main([*words, "--json"]) == 3
    facts = json.loads(capsys.readouterr().out)
    assert facts["verdict"] == "not checked" and facts["healthy"] is False and facts["unchecked"] == ["contract"]
    assert facts["mismatch"] is None and facts["probability_healthy"] is None
    assert "no readings for wind" in facts["prescription"]["do"]
    assert main(words) == 3
    assert "NOT CHECKED: contract" in capsys.readouterr().out


def stranger(tmp_path):
    """A net of another's, its robot and its contract: actions are a tenth of the angles."""
    from onnx import TensorProto, helper, numpy_helper

    weights = np.zeros((36, 12), np.float32)
    weights[9:21] = 0.1 * np.eye(12)
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["obs", "w"], ["actions"])],
        "net",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, [1, 36])],
        [helper.make_tensor_value_info("actions", TensorProto.FLOAT, [1, 12])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (tmp_path / "p.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "c.json").write_text(json.dumps(SHORT))
    quadruped(tmp_path / "q.xml")
    return candidate(tmp_path / "p.onnx", model=tmp_path / "q.xml", contract_file=tmp_path / "c.json")


def test_the_verb_takes_a_strangers_policy_with_its_model_and_contract(tmp_path, capsys):
    who, order = stranger(tmp_path), [3, 1, 2, 0, *range(4, 12)]
    log = as_a_driver_writes_it(driven(who.task, who.policy, 4.0, {"sensor_noise": 0.05}, lambda a: a[order]))
    log.save(tmp_path / "log.npz")
    files = ["--model", str(tmp_path / "q.xml"), "--contract", str(tmp_path / "c.json")]
    words = ["doctor", str(tmp_path / "p.onnx"), str(tmp_path / "log.npz"), *files, "--success", "False", "--json"]
    assert main(words) == 1
    facts = json.loads(capsys.readouterr().out)
    assert (
        facts["causes"][0]["kind"] == "action order" and "FL_abduction and FR_abduction" in facts["causes"][0]["about"]
    )
    assert facts["mismatch"] < 0.03


def test_an_action_scale_shows_where_no_action_comes_near_its_limit(tmp_path):
    """A contract written by hand has a limit of 100."""
    who = stranger(tmp_path)
    log = as_a_driver_writes_it(driven(who.task, who.policy, 1.0, send=lambda a: 0.5 * a))
    rows = rebuild(who.policy.contract, tasks.env(who.task, 1).world, log)
    first = action_causes(rows, log["control"])[0]
    assert first.kind == "action scale" and "0.5 of the contract's" in first.about


def test_commands_after_a_strangers_policy_name_its_model_and_its_contract(tmp_path):
    who = stranger(tmp_path)
    case = Case(who.task, "p.onnx", "log.npz", 0, "q.xml", "surefoot gate p.onnx --model q.xml")
    assert prescribe(case, None).command == case.gate
    for param, word in (("latency", "action_delay"), ("payload", "mass:")):
        assert case.learn(param).strip("'").startswith(word)


@pytest.mark.slow
@pytest.mark.skipif(not (GO1.exists() and POLICY.exists()), reason=f"no {POLICY}")
def test_weak_gains_and_exchanged_motors_of_a_walking_robot_are_named(monkeypatch):
    """Both were called healthy when the terms in the IMU's frame could not be rebuilt."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.go1_faults import examined
    from benchmarks.stranger import client

    who = client({})
    for name, cause in (("kp x 0.6 to 0.75", "gain"), ("wiring", "wiring")):
        found = examined(who, name, 100)
        assert found.first.kind == cause and found.first.share > 0.5 and not found.unchecked
