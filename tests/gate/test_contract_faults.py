"""When a policy from elsewhere fails in the nominal world, the fault of its contract is named, with evidence."""

import math
import re

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.contract import Contract
from surefoot.fault import on_contract
from surefoot.fault.contracts import CONTRACT, delays_of, orders_of, pairs_of, poses_of
from surefoot.fault.joint_orders import limbs, mirrored_pairs, orders
from surefoot.gate import contract_faults
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.contract_faults import Explained, Explanation, hypotheses
from surefoot.gate.gate import gate
from surefoot.gate.plan import Plan
from surefoot.tasks.ready.walk import JOINTS, STAND, xml

onnx = pytest.importorskip("onnx", reason="needs the export extra")
PLAN = Plan(episodes=20, per_load=4, motion=4, threads=1)


def test_legs_are_known_by_their_names_and_every_order_of_four_is_tried():
    legs = [[JOINTS[i] for i in limb] for limb in limbs(JOINTS).values()]
    assert [leg[0] for leg in legs] == ["FL_abduction", "FR_abduction", "RL_abduction", "RR_abduction"]
    tried = dict(orders(JOINTS))
    assert len(tried) == math.factorial(4) - 1 + 1  # all but the one it is in, and joint by joint across legs
    assert tried["FR FL RR RL"][:4] == ("FR_abduction", "FR_hip", "FR_knee", "FL_abduction")
    assert tried["all first joints, all second joints, ..."][:4] == tuple(leg[0] for leg in legs)
    assert not list(orders(("a_x", "b_x", "b_y"))) and not list(orders(("shoulder", "elbow")))


def test_each_fault_changes_the_contract_and_keeps_the_length_of_the_observation():
    contract = Contract.from_json(
        {"joints": list(JOINTS), "home": STAND.tolist(), "rate": 50, "action_scale": 0.5, "kp": 20, "latency": 0.04,
         "observation": ["base_ang_vel", "projected_gravity", "joint_pos", "joint_vel"], "frame": "imu"}
    )  # fmt: skip
    faults = [fault for kind in CONTRACT for fault in kind(contract)]
    for fault in faults:
        changed = on_contract(fault, contract)
        assert changed.differences(contract) and changed.obs_dim == contract.obs_dim
        changed.check(fault.words)
    assert len({fault.words for fault in faults}) == len(faults)
    assert {fault.kind for fault in faults} == {"delay", "gain", "order", "sign", "scale", "pose", "frame", "rate"}


def test_an_order_put_right_is_the_contract_that_had_it_right_from_the_start():
    """Each joint keeps its own default pose, whatever its column."""
    home = (STAND + np.arange(12) / 100).tolist()
    short = {"joints": list(JOINTS), "home": home, "rate": 50, "action_scale": 0.5}
    swapped = [JOINTS[i] for i in (3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8)]
    terms = [{"name": name, "joints": swapped} for name in ("joint_pos", "joint_vel")]
    right = Contract.from_json(short | {"observation": ["joint_pos", "joint_vel"]})
    wrong = Contract.from_json(short | {"observation": terms})
    first = next(orders_of(wrong))
    assert first.words == "joint_pos and joint_vel are read in the order of the actions, FL FR RL RR"
    assert not on_contract(first, wrong).differences(right)
    back = {fault.words: on_contract(fault, right) for fault in orders_of(right)}
    assert not back["joint_pos and joint_vel are read in the order FR FL RR RL"].differences(wrong)
    names = {"joints": swapped, "observation": ["joint_pos", "joint_vel"]}
    renamed = Contract.from_json(short | names)  # the numbers of home stay where they are in the list
    assert not back["joints are in the order FR FL RR RL, in observation and action"].differences(renamed)


@pytest.fixture(scope="module")
def stands(tmp_path_factory):
    """A net whose action is always 0, a quadruped, and a contract with which it stands."""
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


def judged(folder, contract, model="robot.xml", **change):
    import json

    (folder / "c.json").write_text(json.dumps(contract | {"rate": 50, "action_scale": 0.5} | change))
    who = candidate(folder / "p.onnx", model=folder / model, contract_file=folder / "c.json", seconds=3.0)
    return gate(who, tasks.nominal(who.task), PLAN, Limits(success=0.8, push=0.0, cost_of_transport=100.0))


def test_a_policy_from_elsewhere_that_stands_passes_without_explanation(stands):
    verdict = judged(*stands)
    assert (
        verdict.holds
        and not verdict.meta["contract_faults"]
        and set(verdict.meta["parents"]) == {"policy", "model", "contract"}
    )


def test_a_policy_with_a_gait_phase_on_a_model_with_contact_pairs_goes_through_every_check(stands):
    """Feet that collide in pairs alone, torque limits on the joints, a clock of four feet beside two terms: as models of the field."""
    folder, contract = stands
    spec = mujoco.MjSpec.from_string(xml())
    for g in spec.geoms:
        if g.conaffinity:
            spec.add_pair(geomname1=g.name, geomname2="floor", friction=[0.8, 0.8, 0.005, 0.0001, 0.0001], condim=3)
        g.contype = g.conaffinity = 0
    for a in spec.actuators:
        a.forcelimited = 0
        spec.joint(a.target).actfrclimited, spec.joint(a.target).actfrcrange = 1, a.forcerange
    (folder / "paired.xml").write_text(spec.to_xml())
    clock = {"period": 0.5, "feet": [0, 3.14, 3.14, 0], "waves": ["sin"], "still": 0.1}
    wide = {
        "observation": ["projected_gravity", "phase", "cos_phase", "command_ang_vel", "base_ang_vel"],
        "phase": clock,
    }
    verdict = judged(folder, contract, "paired.xml", **wide)
    found = {c.name: c for c in verdict.checks}
    assert verdict.holds and {"torque at its limit", "push margin", "latency margin"} <= set(found)
    assert 0 < verdict.meta["evidence"]["motion"]["peak"] < 1  # of the joints' limits


def test_gains_too_low_to_stand_are_named_with_success_with_and_without(stands):
    verdict = judged(*stands, kp=1.0)
    best = verdict.meta["contract_faults"][0]
    assert not verdict.holds and best["kind"] == "gain" and best["change"] == "kp is the model's own"
    assert best["passes"] and best["success"] == 1.0 and best["without"] == 0.0 and best["low"] > 0.8
    assert "it passes if, in the contract, kp is the model's own: success 100 %" in verdict.meta["why"][0]
    assert verdict.next_step.startswith("surefoot gate ")  # again, once the contract is corrected
    assert "kp: the contract's are 0.0286 times the model's" in verdict.meta["notes"][0]


def test_without_an_explanation_none_passes(stands, monkeypatch):
    """With a command to walk, a net that stands fails under every contract."""
    monkeypatch.setattr(contract_faults, "CONTRACT", (delays_of, poses_of))
    verdict = judged(*stands, commands={"vx": [1.0, 1.0]})
    assert not verdict.holds and not verdict.meta["contract_faults"]
    assert verdict.meta["why"][0].startswith("no cause found: none of 1 single changes")
    assert verdict.next_step.startswith("surefoot gate ")


def test_a_change_that_passes_short_episodes_alone_is_no_cause():
    nearly = Explanation("gain", "kp is 2 times as large", False, 0.7, 0.6, 0.8, 50, 0.0)
    (words,) = Explained((nearly,), 90).sentences()
    assert "no cause found: none of 90" in words and "kp" not in words
    assert Explained().sentences() == []  # nothing was tried


def test_gains_that_the_contract_leaves_to_the_model_are_searched_by_factor(stands):
    _, contract = stands
    given = Contract.from_json(contract | {"rate": 50, "action_scale": 0.5})
    own = Contract.from_json(contract | {"rate": 50, "action_scale": 0.5, "kp": 8.0, "kd": 0.5})
    tried = {fault.words: on_contract(fault, base) for fault, base in hypotheses(given, own)}
    assert tried["kp is 4 times the model's"].kp == (32.0,) * 12
    assert tried["kp is 4 times the model's"].kd == own.kd  # the model's, in place of nothing
    named = Contract.from_json(contract | {"rate": 50, "action_scale": 0.5, "kp": 8.0})
    words = [fault.words for fault, _ in hypotheses(named, own)]
    assert "kp is 4 times as large" in words and "kd is 2 times the model's" in words
    assert not any(w.startswith("kp") and "times the model's" in w for w in words)


def test_gains_too_low_in_the_model_are_named(stands):
    """Its legs give way at kp 12 and below and hold at 35; the contract says nothing of gains."""
    folder, contract = stands
    weak = re.sub(r'kp="[\d.]+"', 'kp="12"', xml())
    (folder / "robot_weak.xml").write_text(weak)
    verdict = judged(folder, contract, model="robot_weak.xml")
    best = verdict.meta["contract_faults"][0]
    assert not verdict.holds and best["passes"] and best["kind"] == "gain" and "times the model's" in best["change"]


def test_one_joint_and_its_mirror_image_exchanged_are_put_right():
    """Six pairs of twelve joints; in the net's order the numbers of home stay where they are in the list."""
    assert [names for names, _ in mirrored_pairs(JOINTS)][:2] == ["FL_abduction and FR_abduction", "FL_hip and FR_hip"]
    assert len(list(mirrored_pairs(JOINTS))) == 6 and not list(mirrored_pairs(("waist_yaw", "left_knee")))
    short = {"home": STAND.tolist(), "rate": 50, "action_scale": 0.5, "observation": ["joint_pos", "joint_vel"]}
    wrong = [*JOINTS[3:4], *JOINTS[1:3], *JOINTS[0:1], *JOINTS[4:]]  # FL and FR abduction exchanged
    right, given = (Contract.from_json(short | {"joints": list(j)}) for j in (JOINTS, wrong))
    back = {fault.words: on_contract(fault, given) for fault in pairs_of(given)}
    fixed = back["FR_abduction and FL_abduction are exchanged in joints, for observation and action"]
    assert not fixed.differences(right)


def test_a_phase_in_another_order_is_among_the_faults():
    short = {"joints": list(JOINTS), "home": STAND.tolist(), "rate": 50, "action_scale": 0.5, "observation": ["phase"]}
    clock = {"frequency": 1.5, "feet": [0, 3.0], "waves": ["cos", "sin"]}
    given, swapped = (
        Contract.from_json(short | {"phase": clock | {"waves": w}}) for w in (["cos", "sin"], ["sin", "cos"])
    )
    tried = {fault.words: on_contract(fault, given) for kind in CONTRACT for fault in kind(given)}
    assert not tried["waves of phase are sin then cos"].differences(swapped)
    assert tried["the feet of phase are in the other order"].terms[0].formula.phases == (3.0, 0.0)
