"""Other people's ONNX files and contracts: what they mean is read, what they must not do is refused."""

import json
import os

import numpy as np
import pytest

from surefoot import onnx_file
from surefoot.contract import Contract
from surefoot.deploy import bundle
from surefoot.deploy.foreign import check_fits, contract_of, from_deploy, from_metadata
from surefoot.errors import SurefootError
from surefoot.observation import Formula
from surefoot.onnx_file import read

onnx = pytest.importorskip("onnx", reason="needs the export extra")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

WEIGHTS = np.array([[1, 0, 2], [0, 1, -1]], np.float32)


def saved(path, nodes=None, inputs=("obs",), kind=TensorProto.FLOAT, batch=1, opset=17, extra=(), domain="", meta=None):
    """actions = W obs, with W of (2, 3), as other people's exporters write it: one row at a time."""
    nodes = nodes or [helper.make_node("Gemm", [inputs[0], "w"], ["actions"], transB=1)]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, kind, [batch, 3]) for name in inputs],
        [helper.make_tensor_value_info("actions", TensorProto.FLOAT, [batch, 2])],
        [numpy_helper.from_array(WEIGHTS, "w"), *extra],
    )
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 8
    helper.set_model_props(model, meta or {})
    path.write_bytes(model.SerializeToString())
    return path


def test_a_net_made_for_one_row_answers_many_as_it_answers_each(tmp_path):
    graph = read(saved(tmp_path / "p.onnx"))
    obs = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert not graph.rows and (graph.width, graph.wide) == (3, 2)
    assert np.allclose(graph(obs), obs @ WEIGHTS.T)


def test_a_net_that_cannot_take_several_rows_is_given_one_at_a_time(tmp_path):
    shape = numpy_helper.from_array(np.array([1, 3], np.int64), "shape")
    nodes = [
        helper.make_node("Reshape", ["obs", "shape"], ["one"]),
        helper.make_node("Gemm", ["one", "w"], ["actions"], transB=1),
    ]
    graph = read(saved(tmp_path / "p.onnx", nodes, extra=[shape]))
    obs = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert graph.rows and np.allclose(graph(obs), obs @ WEIGHTS.T)


def test_a_file_of_ours_is_known_by_its_contract_and_its_golden_answers(tmp_path):
    from surefoot import tasks
    from surefoot.learn.nets import export
    from surefoot.learn.nets.policy_net import linear
    from surefoot.tasks.rollout import contract

    task = tasks.resolve("balance")
    policy = linear(contract(task, tasks.env(task, 1).world), {"cart_pole": [[1.0, 2.0, 20.0, 4.0]]})
    path = export.save(policy, tmp_path)
    again = bundle.ours(path, read(path))
    obs = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    assert again.contract.task == "balance" and np.allclose(again(obs), policy(obs), atol=1e-5)
    card = json.loads(again.graph.metadata["surefoot"])
    card["golden"]["out"][0][0] += 1.0
    path.write_bytes(bundle.sealed(path.read_bytes(), card))
    with pytest.raises(SurefootError, match="answers differently"):
        bundle.ours(path, read(path))


def external(name):
    tensor = TensorProto(name="stolen", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", name), ("offset", "0"), ("length", str(2**50))):
        tensor.external_data.add(key=key, value=value)
    return tensor


HOSTILE = {
    "data outside": (dict(extra=[external("../../etc/passwd")]), "kept in another file"),
    "data at an absolute path": (dict(extra=[external("/etc/passwd")]), "kept in another file"),
    "an operator of its own": (dict(nodes=[helper.make_node("Gemm", ["obs", "w"], ["actions"], domain="evil", transB=1)], domain="evil"), "operator evil.Gemm"),
    "two inputs": (dict(inputs=("obs", "memory")), "found obs, memory"),
    "whole numbers": (dict(kind=TensorProto.INT64), "expected float32"),
    "an unknown opset": (dict(opset=99), "opset 99"),
    "shapes that do not fit": (dict(nodes=[helper.make_node("Gemm", ["obs", "w"], ["actions"])]), "no answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_or_broken_onnx_is_refused_by_name(tmp_path, name):
    how, message = HOSTILE[name]
    with pytest.raises(SurefootError, match=message) as refused:
        read(saved(tmp_path / "p.onnx", **how))
    assert "p.onnx" in str(refused.value)


def test_a_loop_is_refused_before_it_runs(tmp_path):
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"])], "body", [], [])
    nodes = [helper.make_node("Loop", ["", "", "obs"], ["actions"], body=body)]
    with pytest.raises(SurefootError, match="operator Loop"):
        read(saved(tmp_path / "p.onnx", nodes))


def test_bytes_that_are_no_onnx_and_files_too_large_are_refused(tmp_path, monkeypatch):
    (tmp_path / "p.onnx").write_bytes(b"\x80\x04\x95 not a model" * 9)
    with pytest.raises(SurefootError, match="p.onnx"):
        read(tmp_path / "p.onnx")
    monkeypatch.setattr(onnx_file, "LARGEST", 100)
    with pytest.raises(SurefootError, match="expected at most 100"):
        read(saved(tmp_path / "q.onnx"))
    with pytest.raises(SurefootError, match="no such file"):
        read(tmp_path / "r.onnx")


def test_ports_are_known_by_name(tmp_path):
    with pytest.raises(SurefootError, match="did you mean actions"):
        read(saved(tmp_path / "p.onnx"), wanted="action")


# ---- contracts


def two(**more):
    terms = [{"name": "joint_pos", "history": 3}, {"name": "command", "history": 2}]
    short = {"joints": ["hip", "knee"], "home": [0.1, -0.2], "observation": terms, "rate": 50, "action_scale": 1.0}
    return Contract.from_json(short | more)


def test_frames_of_history_are_laid_out_as_the_contract_says():
    """Three whole frames of (q1 q2 | c1 c2 c3), newest last, are columns 0..14; the command is told for two of them."""
    taken = lambda **more: two(**more).observation.taken.tolist()  # noqa: E731
    assert taken() == [0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert taken(layout="terms") == [0, 1, 5, 6, 10, 11, 7, 8, 9, 12, 13, 14]
    assert taken(layout="terms", newest="first") == [10, 11, 5, 6, 0, 1, 12, 13, 14, 7, 8, 9]
    assert two().obs_dim == 12


def test_a_contract_survives_json():
    contract = two(kp=20.0, commands={"vx": [-1.0, 1.0]}, latency=0.02)
    again = Contract.from_json(json.loads(json.dumps(contract.to_json())))
    assert again == contract and not again.differences(contract) and again.to_json() == contract.to_json()
    assert again.kp == (20.0, 20.0) and again.command_ranges == ((-1, 1), (0, 0), (0, 0)) and again.latency == 0.02


GOOD = {
    "joints": ["hip", "knee"],
    "home": [0, 0],
    "observation": ["joint_pos", "velocity_commands"],
    "rate": 50,
    "action_scale": 0.5,
}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"jonts": []}, "did you mean joints"),
        ({"home": [0]}, "home: expected one for each of 2 joints"),
        ({"home": [0, "x"]}, "home: expected a finite number, found 'x'"),
        ({"home": [0, float("nan")]}, "home: expected a finite number, found 'nan'"),
        ({"observation": ["joint_poss"]}, "did you mean joint_pos"),
        ({"observation": [{"name": "joint_pos", "joints": ["hip", "kne"]}]}, "did you mean knee"),
        ({"observation": "joint_pos"}, "expected a list of terms"),
        ({"observation": [{"name": "joint_pos", "history": 10**9}]}, "history: expected a whole number from 1"),
        ({"rate": 0}, "rate: expected 1 to 10000 Hz, found 0"),
        ({"rate": "50"}, "rate: expected a finite number, found '50'"),
        ({"kp": [-20, 20]}, "kp: expected numbers >= 0, found -20"),
        ({"layout": "frame"}, "did you mean frames"),
        ({"commands": {"vz": [0, 1]}}, "did you mean v"),
        ({"commands": {"vx": [1, -1]}}, "low <= high"),
        ({"latency": -1}, "latency: expected 0 to 1 s, found -1"),
        ({"joints": ["hip", "hip"]}, "each once"),
    ],
)
def test_a_contract_that_cannot_be_meant_is_refused_by_field(change, message):
    with pytest.raises(SurefootError, match=message):
        Contract.from_json(GOOD | change, "c.json")


@pytest.mark.parametrize("name", ["joints", "home", "observation", "rate", "action_scale"])
def test_what_a_contract_must_tell_is_not_guessed(name):
    with pytest.raises(SurefootError, match=f"c.json: {name}: found nothing, expected a value"):
        Contract.from_json({k: v for k, v in GOOD.items() if k != name}, "c.json")


def test_names_others_use_are_known():
    theirs = ["gyro", "gravity_vec", "dof_pos", "joint_vel_rel", "actions"]
    terms = Contract.from_json(GOOD | {"observation": theirs}).terms
    known = ["base_ang_vel", "projected_gravity", "joint_pos", "joint_vel", "last_action"]
    assert [t.name for t in terms] == known and [t.formula.kind for t in terms] == known


MJLAB = {
    "run_path": "x", "joint_names": "hip,knee", "default_joint_pos": "-0.312,0.669", "joint_stiffness": "40.000,41.000",
    "joint_damping": "1.000,2.000", "action_scale": "0.500,0.250", "command_names": "velocity",
    "observation_names": "base_ang_vel,joint_pos,command", "observation_terms_scale": "0.250,1.000;0.500,2.000",
    "observation_terms_clip": "-inf;inf,-100.000;100.000,-inf;inf", "observation_terms_history_length": "0.000,3.000,0.000",
}  # fmt: skip


def test_mjlabs_metadata_are_a_contract():
    found = contract_of(None, MJLAB, ["hip", "knee"], "p.onnx")
    c = found.contract
    assert c.joints == ("hip", "knee") and c.home == (-0.312, 0.669) and c.action.scale.tolist() == [0.5, 0.25]
    assert c.kp == (40, 41) and c.kd == (1, 2) and c.observation.layout == "terms"
    assert [(t.name, t.scale, t.clip, t.history) for t in c.terms] == [
        ("base_ang_vel", 0.25, np.inf, 1),
        ("joint_pos", (1.0, 0.5), 100.0, 3),
        ("command", 2.0, np.inf, 1),
    ]
    assert c.terms[1].formula == Formula("joint_pos", ("hip", "knee"), (-0.312, 0.669))
    assert any("rate: not given" in n for n in found.notes)


def test_a_contract_file_goes_over_the_metadata(tmp_path):
    (tmp_path / "c.json").write_text('{"rate": 100, "frame": "imu"}')
    found = contract_of(tmp_path / "c.json", MJLAB, ["hip", "knee"], "p.onnx")
    assert found.contract.rate == 100 and found.contract.terms[0].formula.frame == "imu" and not found.notes


def test_metadata_that_do_not_fit_each_other_are_refused():
    with pytest.raises(SurefootError, match="observation_terms_scale: expected 3, found 2"):
        from_metadata(MJLAB | {"observation_terms_scale": "1,2"}, "p.onnx")
    with pytest.raises(SurefootError, match="expected a number, found '0.5x'"):
        from_metadata(MJLAB | {"action_scale": "0.5x,1"}, "p.onnx")
    with pytest.raises(SurefootError, match="no contract in it"):
        contract_of(None, {}, ["hip"], "p.onnx")


DEPLOY = """
joint_ids_map: [2, 0, 1]
step_dt: 0.02
stiffness: [20.0, 30.0, 40.0]
damping: [0.5, 0.6, 0.7]
default_joint_pos: [0.1, 0.2, 0.3]
commands: {base_velocity: {ranges: {lin_vel_x: [-0.5, 1.0], lin_vel_y: [-0.3, 0.3], ang_vel_z: [-1.2, 1.2], heading: null}}}
actions:
  JointPositionAction: {clip: null, joint_names: [.*], scale: [0.25, 0.25, 0.25], offset: [0.1, 0.2, 0.3], joint_ids: null}
observations:
  base_ang_vel: {params: {}, clip: null, scale: [0.2, 0.2, 0.2], history_length: 5}
  joint_pos_rel: {params: {}, clip: [-100, 100], scale: [1.0, 1.0, 1.0], history_length: 5}
  last_action: {params: {}, clip: null, scale: [1.0, 1.0, 1.0], history_length: 1}
"""


def test_a_deploy_yaml_is_a_contract_with_gains_in_the_order_of_the_motors(tmp_path):
    pytest.importorskip("yaml", reason="needs the export extra")
    (tmp_path / "deploy.yaml").write_text(DEPLOY)
    c = contract_of(tmp_path / "deploy.yaml", {}, ["a", "b", "c"], "p.onnx").contract
    assert c.joints == ("c", "a", "b") and c.home == (0.1, 0.2, 0.3) and c.rate == 50
    assert c.kp == (40, 20, 30) and c.kd == (0.7, 0.5, 0.6)  # the policy's first joint is motor 2
    ranges = dict(zip(c.command_names, c.command_ranges))
    assert ranges["yaw_rate"] == (-1.2, 1.2) and c.observation.layout == "terms" and c.obs_dim == 15 + 15 + 3
    assert [t.clip for t in c.terms] == [np.inf, 100.0, np.inf]


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: &a [x]\nb: [*a, *a]\n", "alias"),
        (
            DEPLOY.replace("[2, 0, 1]", "!!python/object/apply:os.system ['true']"),
            "joint_ids_map: !!python/object/apply:os.system: expected plain",
        ),
        ("a: [1, 2\n", "expected YAML"),
        ("a: 1\n", "expected a deploy.yaml with"),
        (DEPLOY.replace("[2, 0, 1]", "[2, 0, 9]"), "expected motors 0..2"),
        (DEPLOY.replace("[-100, 100]", "[-100, 50]"), "expected -c and c"),
    ],
)
def test_a_hostile_or_broken_deploy_yaml_is_refused(tmp_path, text, message):
    pytest.importorskip("yaml", reason="needs the export extra")
    (tmp_path / "deploy.yaml").write_text(text)
    with pytest.raises(SurefootError, match=message):
        contract_of(tmp_path / "deploy.yaml", {}, ["a", "b", "c"], "p.onnx")


def test_python_tags_of_a_deploy_yaml_are_not_read_and_said_and_the_rest_is(tmp_path):
    """As Isaac Lab's dump has them: slices make objects, tuples are lists."""
    pytest.importorskip("yaml", reason="needs the export extra")
    slices = "joint_ids: !!python/object/apply:builtins.slice [null, null, null]"
    text = DEPLOY.replace("joint_ids: null", slices).replace("[0.1, 0.2, 0.3]\n", "!!python/tuple [0.1, 0.2, 0.3]\n", 1)
    phase = "  gait_phase: {params: {period: 0.8}, clip: null, scale: [1.0, 1.0], history_length: 2}\n"
    (tmp_path / "deploy.yaml").write_text(text + phase)
    found = contract_of(tmp_path / "deploy.yaml", {}, ["a", "b", "c"], "p.onnx")
    tag = "actions.JointPositionAction.joint_ids: !!python/object/apply:builtins.slice"
    assert found.notes[0] == f"ignored, as it would make a Python object: {tag}"
    assert found.contract.home == (0.1, 0.2, 0.3) and found.contract.obs_dim == 15 + 15 + 3 + 4
    assert found.contract.terms[-1].formula == Formula(
        "clock", frequency=1.25, still=-1.0, phases=(0.0,), waves=("sin", "cos")
    )


def test_a_history_of_whole_frames_is_known_by_its_switch(tmp_path):
    pytest.importorskip("yaml", reason="needs the export extra")
    (tmp_path / "deploy.yaml").write_text(DEPLOY + "  use_gym_history: true\n")
    assert contract_of(tmp_path / "deploy.yaml", {}, ["a", "b", "c"], "p").contract.observation.layout == "frames"


def test_a_file_of_torchs_is_refused_in_words_that_say_how_to_convert_it(tmp_path):
    from surefoot.gate.candidate import candidate

    (tmp_path / "policy.pt").write_bytes(b"PK")
    for load in (bundle.load, lambda p: candidate(p, model=tmp_path / "robot.xml")):
        with pytest.raises(SurefootError, match="may run code, expected ONNX") as refused:
            load(tmp_path / "policy.pt")
        assert "torch.onnx.export(torch.jit.load('policy.pt').eval(), (torch.zeros(1, N),), 'policy.onnx'" in str(
            refused.value
        )


def test_gains_of_fewer_motors_than_the_map_names_are_left_to_the_model():
    import copy

    yaml = pytest.importorskip("yaml", reason="needs the export extra")
    data = yaml.safe_load(DEPLOY)
    few = copy.deepcopy(data) | {"stiffness": [1.0]}
    assert "kp" not in from_deploy(few, ["a", "b", "c"], "deploy.yaml")


def test_a_net_of_another_size_than_its_contract_is_refused(tmp_path):
    graph = read(saved(tmp_path / "p.onnx"))
    told = lambda *terms: Contract.from_json(GOOD | {"observation": list(terms)})  # noqa: E731
    with pytest.raises(SurefootError, match="takes 3 numbers, the contract has 5: command 3, joint_pos 2"):
        check_fits(graph, told("command", "joint_pos"), "p.onnx")
    check_fits(graph, told("command"), "p.onnx")
    one = Contract.from_json(GOOD | {"joints": ["hip"], "home": [0], "observation": ["command"]})
    with pytest.raises(SurefootError, match="gives 2 numbers, the contract has 1 joints"):
        check_fits(graph, one, "p.onnx")


def test_the_example_contract_is_one_of_48_numbers():
    from pathlib import Path

    path = Path(__file__).parents[2] / "examples" / "contracts" / "go1_joystick.json"
    c = contract_of(path, {}, [], "p.onnx").contract
    assert c.obs_dim == 48 and len(c.joints) == 12 and c.rate == 50
    assert {t.name: t.formula.frame for t in c.terms if t.formula.frame} == dict.fromkeys(
        ("base_lin_vel", "base_ang_vel", "projected_gravity"), "imu"
    )


def test_the_example_contract_with_a_gait_phase_is_one_of_103_numbers():
    """MuJoCo Playground's G1: 4 x 3, 3 x 29, and cos and sin of two feet."""
    from pathlib import Path

    path = Path(__file__).parents[2] / "examples" / "contracts" / "g1_joystick.json"
    c = contract_of(path, {}, [], "p.onnx").contract
    assert c.obs_dim == 103 and len(c.joints) == 29 and c.terms[-1].formula.waves == ("cos", "sin")


def test_modules_beside_a_net_are_not_run_when_it_is_tried(tmp_path, monkeypatch):
    for module in ("numpy", "onnxruntime", "json"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    assert read(saved(tmp_path / "p.onnx")).width == 3 and not (tmp_path / "ran").exists()


def test_pipes_and_devices_are_neither_nets_nor_contracts(tmp_path):
    os.mkfifo(tmp_path / "p.onnx")
    os.mkfifo(tmp_path / "c.yaml")
    (tmp_path / "z.onnx").symlink_to("/dev/zero")
    (tmp_path / "c.json").symlink_to("/dev/zero")
    for name in ("p.onnx", "z.onnx"):
        with pytest.raises(SurefootError, match=f"{name}: found a device, pipe or socket, expected a file"):
            read(tmp_path / name)
    for name in ("c.yaml", "c.json"):
        with pytest.raises(SurefootError, match=f"{name}: found a device, pipe or socket, expected a file"):
            contract_of(tmp_path / name, {}, ["a", "b"], "p.onnx")


@pytest.mark.parametrize(
    "text, words",
    [
        ("[" * 50_000, "c.yaml: found 50000 levels of nesting, expected at most 100"),
        ("- " * 5000, "expected YAML, found maximum recursion depth"),
        ("a: 1\nb:\n  rate: 1\n  rate: 2\n", "found the key 'rate' twice in one object"),
        ("!!python/object/apply:os.system ['true']", "the whole file: !!python/object/apply:os.system: expected plain"),
        ("a: &x [1]\nb: *x", "found an alias"),
        ("a: " + "9" * 5000, "expected YAML"),
        ("x" * 2_000_000, "found 2000000 bytes, expected at most 1048576"),
    ],
    ids=["wide nesting", "deep nesting", "key twice", "tag", "alias", "digits", "size"],
)
def test_yaml_that_is_no_contract_is_refused_within_limits(tmp_path, text, words):
    pytest.importorskip("yaml", reason="needs the export extra")
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(SurefootError, match=words):
        contract_of(tmp_path / "c.yaml", {}, ["a", "b"], "p.onnx")


LEAST_DEPLOY = {
    "joint_ids_map": [0, 1], "step_dt": 0.02, "default_joint_pos": [0, 0], "actions": {"JointPositionAction": {"scale": 0.5}},
    "observations": {"joint_pos": {"history_length": 2}},
}  # fmt: skip


@pytest.mark.parametrize(
    "change, words",
    [
        ({"observations": {"joint_pos": {"history_length": "abc"}}}, "history: expected a whole number from 1 to 4096, found 'abc'"),
        ({"observations": {"joint_pos": {"history_length": [1]}}}, "history: expected a whole number"),
        ({"observations": {"joint_pos": {"clip": 3}}}, ""),
        ({"observations": {"joint_pos": {"clip": "abc"}}}, "clip: expected a number"),
        ({"joint_ids_map": [], "stiffness": [1]}, "joint_ids_map: expected motors 0..1"),
    ],
)  # fmt: skip
def test_values_of_a_deploy_yaml_are_what_they_should_be(tmp_path, change, words):
    pytest.importorskip("yaml", reason="needs the export extra")
    (tmp_path / "c.yaml").write_text(json.dumps(LEAST_DEPLOY | change))
    if not words:
        assert contract_of(tmp_path / "c.yaml", {}, ["a", "b"], "p.onnx").contract.terms[0].clip == 3
        return
    with pytest.raises(SurefootError, match=f"c.yaml: .*{words}"):
        contract_of(tmp_path / "c.yaml", {}, ["a", "b"], "p.onnx")


def test_a_net_that_answers_nan_or_in_another_shape_is_refused(tmp_path):
    wrong = numpy_helper.from_array(np.full((2, 3), np.nan, np.float32), "nan")
    gemm = [helper.make_node("Gemm", ["obs", "nan"], ["actions"], transB=1)]
    with pytest.raises(SurefootError, match="onnxruntime gives no answer: .*expected finite ones"):
        read(saved(tmp_path / "p.onnx", gemm, extra=[wrong]))
    twice = [helper.make_node("Concat", ["obs", "obs"], ["actions"], axis=0)]
    with pytest.raises(SurefootError, match="onnxruntime gives no answer"):
        read(saved(tmp_path / "p.onnx", twice))


def test_metadata_that_say_a_thing_twice_are_refused(tmp_path):
    path = saved(tmp_path / "p.onnx", meta={"joint_names": "a,b"})
    model = onnx.load(path)
    model.metadata_props.add(key="joint_names", value="b,a")
    path.write_bytes(model.SerializeToString())
    with pytest.raises(SurefootError, match="metadata: found a key twice"):
        read(path)
