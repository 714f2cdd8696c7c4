"""The metadata of holosoma's ONNX files, one JSON value a key, are a contract as far as they go."""

import json

import numpy as np
import pytest

from surefoot.deploy.foreign import contract_of
from surefoot.errors import SurefootError

JOINTS = [f"joint_{i}" for i in range(29)]
TERMS = {
    "base_ang_vel": {"scale": 0.25}, "projected_gravity": {"scale": 1.0}, "command_lin_vel": {}, "command_ang_vel": {},
    "dof_pos": {"scale": 1.0}, "dof_vel": {"scale": 0.05, "clip": [-10.0, 10.0]}, "actions": {}, "sin_phase": {}, "cos_phase": {},
}  # fmt: skip
CONFIG = {
    "robot": {
        "init_state": {"default_joint_angles": {j: 0.01 * i for i, j in enumerate(reversed(JOINTS))}},
        "control": {"action_scale": 0.25, "clip_actions": True, "action_clip_value": 80.0},
    },
    "observation": {"groups": {"actor_obs": {"history_length": 1, "terms": TERMS}}},
    "simulator": {"config": {"sim": {"fps": 200, "control_decimation": 4}}},
    "command": {"setup_terms": {"locomotion_gait": {"params": {"gait_period": 0.9}}}},
}
METADATA = {
    "dof_names": JOINTS, "kp": [40.0 + i for i in range(29)], "kd": [1.0] * 29, "robot_urdf": "<robot/>", "iteration": 7,
    "command_ranges": {"lin_vel_x": [-1, 1.5], "lin_vel_y": [-0.5, 0.5], "ang_vel_yaw": [-1, 1], "heading": [-3, 3]},
    "experiment_config": CONFIG,
}  # fmt: skip


def read(path=None, **change):
    texts = {k: json.dumps(v) for k, v in (METADATA | change).items() if v is not None}
    return contract_of(path, texts, JOINTS, "p.onnx")


def test_everything_that_a_locomotion_policy_needs_is_read():
    c = read().contract
    assert c.obs_dim == 100 and c.rate == 50 and c.action.limit == 80 and np.allclose(c.action.scale, 0.25)
    alphabet = ["last_action", "base_ang_vel", "command_ang_vel", "command_lin_vel", "cos_phase", "joint_pos", "joint_vel", "projected_gravity", "sin_phase"]  # fmt: skip
    assert [t.name for t in c.terms] == alphabet  # of their names: actions, base_ang_vel, ..., dof_pos, dof_vel, ...
    assert c.joints == tuple(JOINTS) and c.home[0] == pytest.approx(0.28) and c.kp[:2] == (40, 41) and c.kd[0] == 1
    assert dict(zip(c.command_names, c.command_ranges)) == {"vx": (-1, 1.5), "vy": (-0.5, 0.5), "yaw_rate": (-1, 1)}
    speed = next(t for t in c.terms if t.name == "joint_vel")
    assert speed.scale == 0.05 and speed.clip == pytest.approx(200)  # theirs is 10, of scaled numbers
    f = next(t for t in c.terms if t.name == "sin_phase").formula
    assert f.frequency == pytest.approx(1 / 0.9) and f.waves == ("sin",) and f.still == 0.01
    assert np.allclose(f.phases, [0, -np.pi]) and np.allclose(f.stand, np.pi)


def test_a_layout_of_later_versions_goes_before_the_configuration():
    layout = [
        {"group": "a", "name": "dof_pos", "dim": 29, "history_length": 3, "scale": 2.0, "clip": None},
        {"group": "a", "name": "sin_phase", "dim": 1, "history_length": 1, "scale": 1.0, "clip": None},
    ]
    c = read(observation_layout=layout, observation_clip=100.0, action_scale=[0.5] * 29).contract
    assert c.obs_dim == 3 * 29 + 1 and c.terms[0].history == 3 and c.terms[0].clip == 50 and c.action.scale[3] == 0.5
    assert c.terms[1].formula.phases == (0.0,)


def test_what_an_early_version_leaves_out_is_asked_for_and_given_by_a_file(tmp_path):
    with pytest.raises(SurefootError, match="p.onnx: (action_scale|home|observation): found nothing"):
        read(experiment_config=None)
    rest = {"home": [0.0] * 29, "observation": ["joint_pos"], "action_scale": 0.25}
    (tmp_path / "c.json").write_text(json.dumps(rest))
    found = read(tmp_path / "c.json", experiment_config=None)
    assert found.contract.kp[1] == 41 and found.contract.obs_dim == 29 and "rate: not given" in found.notes[0]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"dof_names": [1, 2]}, "dof_names: expected text"),
        ({"kp": ["a"] * 29}, "kp: expected a finite number"),
        ({"dof_names": [*JOINTS[:-1], "joint_99"]}, "default_joint_angles: found nothing for joint_99"),
        ({"observation_layout": [{"name": "sin_phase", "dim": 7}]}, "dim: expected a whole number from 1 to 2"),
        ({"observation_layout": [{"name": "motion_command", "dim": 58}]}, "no term matches 'motion_command'"),
        ({"observation_layout": [{"name": "dof_pos", "clip": ["a", "b"]}]}, "clip: expected a finite number"),
    ],
)
def test_metadata_that_cannot_be_meant_are_refused_by_key(change, message):
    with pytest.raises(SurefootError, match=message):
        read(**change)


JUNK = (None, [], {}, "x", -1, 0, True, 1e300, [[1]], {"name": []}, [None], float("nan"))


def places(data, at=()):
    """Paths to every value of nested objects and lists."""
    yield at
    for k, v in data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ():
        yield from places(v, (*at, k))


def test_junk_in_any_place_is_read_or_refused_in_words():
    layout = [{"name": "sin_phase", "dim": 2, "history_length": 1, "scale": 1.0, "clip": [-1, 1]}]
    whole = METADATA | {"observation_layout": layout, "observation_clip": 100.0, "action_scale": 0.5}
    tried = 0
    for base in (METADATA, whole):
        for at in places(base):
            for junk in JUNK if at else ():
                data = json.loads(json.dumps(base))
                holder = data
                for k in at[:-1]:
                    holder = holder[k]
                holder[at[-1]] = junk
                tried += 1
                try:
                    contract_of(None, {k: json.dumps(v) for k, v in data.items()}, JOINTS, "p.onnx")
                except SurefootError:
                    pass
    assert tried > 1000
