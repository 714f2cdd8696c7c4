"""When a policy of others fails at home, what in its contract would explain it is named, with evidence."""

import math

import numpy as np
import pytest

from surefoot import tasks
from surefoot.contract import Contract
from surefoot.fault.joint_orders import groups, orders
from surefoot.gate import suspects
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import Plan, gate
from surefoot.gate.suspects import KINDS, sentences
from surefoot.tasks.ready.walk import JOINTS, STAND, xml

onnx = pytest.importorskip("onnx", reason="needs the export extra")
PLAN = Plan(episodes=20, rungs=4, watched=4, threads=1)


def test_legs_are_known_by_their_names_and_every_order_of_four_is_tried():
    legs = groups(JOINTS)
    assert [leg[0] for leg in legs] == ["FL_abduction", "FR_abduction", "RL_abduction", "RR_abduction"]
    tried = dict(orders(JOINTS))
    assert len(tried) == math.factorial(4) - 1 + 1  # all but the one it is in, and joint by joint across legs
    assert tried["FR FL RR RL"][:4] == ("FR_abduction", "FR_hip", "FR_knee", "FL_abduction")
    assert tried["all first joints, all second joints, ..."][:4] == tuple(leg[0] for leg in legs)
    assert not list(orders(("a_x", "b_x", "b_y"))) and not list(orders(("shoulder", "elbow")))


def test_each_doubt_changes_the_contract_and_what_is_told_stays_as_long():
    contract = Contract.from_json(
        {"joints": list(JOINTS), "home": STAND.tolist(), "rate": 50, "action_scale": 0.5, "kp": 20, "latency": 0.04,
         "observation": ["base_ang_vel", "projected_gravity", "joint_pos", "joint_vel"], "frame": "imu"}
    )  # fmt: skip
    ideas = [idea for kind in KINDS for idea in kind(contract)]
    assert all(idea.contract.differences(contract) and idea.contract.obs_dim == contract.obs_dim for idea in ideas)
    for idea in ideas:
        idea.contract.check(idea.change)
    assert len({idea.change for idea in ideas}) == len(ideas)
    assert {idea.kind for idea in ideas} == {"delay", "gain", "order", "sign", "scale", "pose", "frame", "rate"}


def test_an_order_put_right_is_the_contract_that_had_it_right_from_the_start():
    """Each joint keeps its own default pose, whatever column it is told in."""
    home = (STAND + np.arange(12) / 100).tolist()
    short = {"joints": list(JOINTS), "home": home, "rate": 50, "action_scale": 0.5}
    swapped = [JOINTS[i] for i in (3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8)]
    terms = [{"name": name, "joints": swapped} for name in ("joint_pos", "joint_vel")]
    right = Contract.from_json(short | {"observation": ["joint_pos", "joint_vel"]})
    wrong = Contract.from_json(short | {"observation": terms})
    ideas = list(suspects._orders(wrong))
    assert ideas[0].change == "joint_pos and joint_vel are read in the order of the actions, FL FR RL RR"
    assert not ideas[0].contract.differences(right)
    back = {idea.change: idea.contract for idea in suspects._orders(right)}
    assert not back["joint_pos and joint_vel are read in the order FR FL RR RL"].differences(wrong)
    names = {"joints": swapped, "observation": ["joint_pos", "joint_vel"]}
    renamed = Contract.from_json(short | names)  # the numbers of home stay where they are in the list
    assert not back["joints are in the order FR FL RR RL, in observation and action"].differences(renamed)


@pytest.fixture(scope="module")
def stands(tmp_path_factory):
    """A net that always answers 0, a quadruped, and a contract under which it stands."""
    from onnx import TensorProto, helper, numpy_helper

    folder = tmp_path_factory.mktemp("stands")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["obs", "w"], ["actions"])],
        "net",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, [1, 15])],
        [helper.make_tensor_value_info("actions", TensorProto.FLOAT, [1, 12])],
        [numpy_helper.from_array(np.zeros((15, 12), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    (folder / "p.onnx").write_bytes(model.SerializeToString())
    (folder / "robot.xml").write_text(xml())
    contract = {"joints": list(JOINTS), "home": STAND.tolist(), "observation": ["projected_gravity", "joint_pos"]}
    return folder, contract


def judged(folder, contract, **change):
    import json

    (folder / "c.json").write_text(json.dumps(contract | {"rate": 50, "action_scale": 0.5} | change))
    who = candidate(folder / "p.onnx", model=folder / "robot.xml", contract_file=folder / "c.json", seconds=3.0)
    return gate(who, tasks.nominal(who.task), PLAN, Limits(success=0.8, push=0.0, cost_of_transport=100.0))


def test_a_stranger_that_stands_passes_and_needs_no_explanation(stands):
    verdict = judged(*stands)
    assert (
        verdict.holds
        and not verdict.meta["suspects"]
        and set(verdict.meta["parents"]) == {"policy", "model", "contract"}
    )


def test_gains_too_low_to_stand_are_named_with_success_with_and_without(stands):
    verdict = judged(*stands, kp=1.0)
    best = verdict.meta["suspects"][0]
    assert not verdict.holds and best["kind"] == "gain" and best["change"] == "kp is the model's own"
    assert best["holds"] and best["success"] == 1.0 and best["without"] == 0.0 and best["low"] > 0.8
    assert (
        "it passes if, in the contract, kp is the model's own: success 100 %" in sentences(verdict.meta["suspects"])[0]
    )
    assert verdict.next_step.startswith("surefoot gate ")  # again, once the contract is corrected
    assert "kp: the contract's are 0.0286 times the model's" in verdict.meta["notes"][0]


def test_where_nothing_explains_it_that_is_said(stands, monkeypatch):
    """Told to walk, a net that stands cannot be explained by any contract."""
    monkeypatch.setattr(suspects, "KINDS", (suspects._delays, suspects._poses))
    verdict = judged(*stands, commands={"vx": [1.0, 1.0]})
    assert not verdict.holds and not any(f["holds"] for f in verdict.meta["suspects"])
    assert verdict.next_step.startswith("surefoot gate ")
