"""An independent client: the Go1 policy that others trained, which knows nothing of this project."""

import json
import os
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import gate
from surefoot.gate.measures import margins
from surefoot.gate.plan import Plan
from surefoot.tasks.rollout import evaluate

pytest.importorskip("onnx", reason="needs the export extra")
ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("SUREFOOT_MODELS") or ROOT.parent / "shared" / "models")
MODEL, POLICY = MODELS / "unitree_go1_flat.xml", MODELS.parent / "policies" / "go1_joystick.onnx"
CONTRACT = ROOT / "examples" / "contracts" / "go1_joystick.json"
PLAN, BAR = Plan(episodes=20, threads=1), 0.8  # 20 clean episodes show more than 0.8

pytestmark = pytest.mark.skipif(
    not (MODEL.exists() and POLICY.exists()), reason=f"no {POLICY}; point SUREFOOT_MODELS at a folder with the models, policies beside it"
)  # fmt: skip
LEFT_RIGHT = [3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]


def client(tmp_path, model=MODEL, **change):
    data = json.loads(CONTRACT.read_text()) | change
    (tmp_path / "c.json").write_text(json.dumps(data))
    return candidate(POLICY, model=model, contract_file=tmp_path / "c.json")


def held_back(who):
    verdict = gate(who, tasks.nominal(who.task), PLAN, Limits(success=BAR))
    assert not verdict.checks[0].holds
    return verdict.meta["contract_faults"][0]


def test_at_its_own_contract_it_walks_at_the_speed_seen_elsewhere(tmp_path):
    """1.02 m/s at vx = 1.0, as its makers' own loop gives it."""
    who = client(tmp_path)
    places = []
    env = tasks.env(who.task, 20, seed=1000, threads=1)
    found = evaluate(who.policy, env, lambda k, env: places.append(env.world.state.q[:, :2].copy()))
    speed = np.linalg.norm(places[-2] - places[50], axis=1) / (0.02 * (len(places) - 52))
    assert found.success.all() and np.median(speed) == pytest.approx(1.02, abs=0.02)


def test_its_latency_margin_is_between_20_and_40_ms(tmp_path):
    who = client(tmp_path)
    found = margins.latency(margins.Asked(who.policy, who.task, 10, 1000, 0.9, threads=1))
    assert found.tolerated is not None and 0.02 - 1e-9 <= found.tolerated <= 0.04 and found.failing <= 0.04


def test_a_delay_of_40_ms_is_held_back_and_named(tmp_path):
    best = held_back(client(tmp_path, latency=0.04))
    assert best["passes"] and best["kind"] == "delay" and best["without"] == 0.0


def test_observations_in_another_joint_order_are_held_back_and_the_right_order_is_named(tmp_path):
    data = json.loads(CONTRACT.read_text())
    swapped = [data["joints"][i] for i in LEFT_RIGHT]
    terms = [{"name": t, "joints": swapped} if t in ("joint_pos", "joint_vel") else t for t in data["observation"]]
    best = held_back(client(tmp_path, observation=terms))
    assert best["passes"] and best["kind"] == "order" and "joint_pos and joint_vel are read" in best["change"]
    assert "FR FL RR RL" in best["change"] and best["success"] == 1.0 and best["without"] == 0.0


def test_gains_at_sixty_percent_are_said_and_it_walks_slower(tmp_path):
    """0.95 m/s elsewhere: it passes, more slowly, and the note says what differs from the model."""
    who = client(tmp_path, kp=21.0)
    assert "kp: the contract's are 0.6 times the model's" in who.notes[0]
    weak, own = (evaluate(w.policy, tasks.env(w.task, 10, seed=1, threads=1)) for w in (who, client(tmp_path)))
    assert weak.success.all() and weak.error.mean() > own.error.mean() + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, kind",
    [
        ({"latency": 0.06}, "delay"),
        ({"joints": "swapped"}, "order"),
        ({"projected_gravity": -1.0}, "sign"),
        ({"joint_pos": 57.3}, "scale"),
        ({"action_scale": 0.125}, "scale"),
    ],
)
def test_other_mistakes_are_named_too(tmp_path, change, kind):
    data = json.loads(CONTRACT.read_text())
    if "joints" in change:
        change = {"joints": [data["joints"][i] for i in LEFT_RIGHT]}
    for term in ("projected_gravity", "joint_pos"):
        if term in change:
            change = {
                "observation": [{"name": t, "scale": change[term]} if t == term else t for t in data["observation"]]
            }
    best = held_back(client(tmp_path, **change))
    assert best["passes"] and best["kind"] == kind


@pytest.mark.slow
def test_gains_wrong_in_the_model_are_named(tmp_path):
    """Its servos have 0.35 of their stiffness; the contract says nothing of gains."""
    spec = mujoco.MjSpec.from_file(str(MODEL))
    for a in spec.actuators:
        a.gainprm[0], a.biasprm[1] = 0.35 * a.gainprm[0], 0.35 * a.biasprm[1]
    (tmp_path / "weak.xml").write_text(spec.to_xml())
    best = held_back(client(tmp_path, tmp_path / "weak.xml"))
    assert best["passes"] and best["kind"] == "gain" and "times the model's" in best["change"]


@pytest.mark.slow
def test_one_joint_exchanged_with_its_mirror_image_is_named(tmp_path):
    joints = json.loads(CONTRACT.read_text())["joints"]
    joints[2], joints[5] = joints[5], joints[2]
    best = held_back(client(tmp_path, joints=joints))
    assert best["passes"] and "FL_calf_joint and FR_calf_joint are exchanged in joints" in best["change"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_where_two_things_are_wrong_no_cause_is_named(tmp_path):
    terms = [{"name": t, "scale": -1.0} if t == "projected_gravity" else t for t in json.loads(CONTRACT.read_text())["observation"]]  # fmt: skip
    who = client(tmp_path, latency=0.06, observation=terms)
    verdict = gate(who, tasks.nominal(who.task), PLAN, Limits(success=BAR))
    assert not any(f["passes"] for f in verdict.meta["contract_faults"])
    assert len(verdict.meta["why"]) == 1 and verdict.meta["why"][0].startswith("no cause found: none of ")


@pytest.mark.slow
def test_it_passes_the_whole_gate_at_its_own_contract(tmp_path):
    who = client(tmp_path)
    verdict = gate(who, who.task.belief, replace(Plan(), threads=0), Limits())
    lines = {c.name: c for c in verdict.checks}
    assert verdict.holds and 20 - 1e-6 <= lines["latency margin"].value <= 40
