"""The contract: what is written is what is read, and what cannot be meant is refused in words that name the field."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.contract import Action, Contract, base_columns
from surefoot.errors import SurefootError
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.tasks.rollout import contract as contract_of

NAN, INF = float("nan"), float("inf")


def plain(**more) -> Contract:
    terms = (
        ObsTerm("joint_pos", Formula("joint_pos", ("hip", "knee"), (0.1, -0.2)), 2, "rad", noise=0.01),
        ObsTerm("base_ang_vel", Formula("base_ang_vel", frame="imu"), 3, "rad/s", scale=(0.25, 0.5, 1.0), clip=20.0),
        ObsTerm("phase", Formula("clock", frequency=2.0, still=0.05), 2, history=1),
        ObsTerm("command", Formula("command"), 3),
    )
    law = Action(("hip", "knee"), np.array([0.1, -0.2]), np.array([0.5, 0.25]), "rad", 2.0)
    body = {
        "joints": ("hip", "knee"), "home": (0.1, -0.2), "kp": (20.0, 30.0), "kd": (0.5, 0.7), "control_low": (-1.0, -2.0),
        "control_high": (1.0, 2.0), "command_names": ("vx", "vy", "yaw_rate"), "latency": 0.02,
        "command_ranges": ((-1.0, 1.0), (0.0, 0.0), (-0.5, 0.5)), "parents": {"model": "abc"}, "about": "a test",
    }  # fmt: skip
    return Contract("hop", 50.0, ObsGroup(terms, 2), law, **body | more)


PLAIN = plain().to_json()


def edited(at, value):
    """The contract's JSON with one place changed, such as `action.scale` or `observation.terms.0.clip`."""
    data = copy.deepcopy(PLAIN)
    *path, last = [int(k) if k.isdigit() else k for k in at.split(".")]
    spot = data
    for k in path:
        spot = spot[k]
    spot[last] = value
    return data


# ---- there and back


@pytest.mark.parametrize("name", tasks.names())
def test_the_contract_of_every_ready_task_survives_json(name):
    task = tasks.resolve(name)
    own = contract_of(task, tasks.env(task, 1).world)
    again = Contract.from_json(json.loads(json.dumps(own.to_json(), allow_nan=False)), name)
    assert again == own and again.to_json() == own.to_json() and not again.differences(own, but=())
    assert [t.formula for t in again.terms] == [t.formula for t in own.terms]
    assert (again.obs_dim, again.observation.dim) == (own.obs_dim, task.observations["actor"].dim)


def test_a_contract_is_read_as_it_was_written():
    again = Contract.from_json(json.loads(json.dumps(PLAIN)))
    assert again == plain() and again.to_json() == PLAIN and again.observation == plain().observation
    assert again != plain(latency=0.03) and again != "hop"


SHORT = {
    "joints": ["hip", "knee"], "home": [0.1, -0.2], "rate": 50, "action_scale": 0.5, "frame": "imu", "kp": 20, "kd": [0.5, 0.7],
    "latency": 0.02, "layout": "terms", "newest": "first", "commands": {"vx": [-1, 1]}, "input": "obs", "output": "act",
    "action_limit": 3, "about": "by hand",
    "observation": [
        "base_lin_vel", "gyro", {"name": "joint_pos", "joints": ["knee", "hip"], "scale": [2, 3], "clip": 5, "history": 3},
        {"name": "actions", "scale": [2]}, "command",
    ],
}  # fmt: skip


def test_the_short_form_means_what_is_written_out():
    """Every term by the field's name; home is subtracted joint by joint in the term's own order; one number is one for each."""
    terms = (
        ObsTerm("base_lin_vel", Formula("base_lin_vel", frame="imu"), 3, "m/s", history=1),
        ObsTerm("base_ang_vel", Formula("base_ang_vel", frame="imu"), 3, "rad/s", history=1),
        ObsTerm("joint_pos", Formula("joint_pos", ("knee", "hip"), (-0.2, 0.1)), 2, "rad", scale=(2, 3), clip=5.0, history=3),
        ObsTerm("last_action", Formula("last_action", ("hip", "knee")), 2, scale=2.0, sensed=False, history=1),
        ObsTerm("command", Formula("command"), 3, sensed=False, history=1),
    )  # fmt: skip
    wanted = Contract(
        "", 50.0, ObsGroup(terms, 3, "terms", "first"), Action(("hip", "knee"), np.array([0.1, -0.2]), np.array([0.5, 0.5]), "rad", 3.0),
        ("hip", "knee"), (0.1, -0.2), (20.0, 20.0), (0.5, 0.7), command_names=("vx", "vy", "yaw_rate"),
        command_ranges=((-1.0, 1.0), (0.0, 0.0), (0.0, 0.0)), latency=0.02, ports=("obs", "act"), about="by hand",
    )  # fmt: skip
    found = Contract.from_json(SHORT)
    assert found.to_json() == wanted.to_json() and found.obs_dim == 3 + 3 + 3 * 2 + 2 + 3
    assert Contract.from_json(found.to_json()) == wanted


def test_without_a_frame_a_short_form_means_the_bases_own_and_an_offset_may_differ_from_home():
    few = {k: v for k, v in SHORT.items() if k not in ("frame", "action_limit")} | {"action_offset": [0.3, 0.4]}
    found = Contract.from_json(few)
    assert [t.formula.frame for t in found.terms[:2]] == ["base", ""]
    assert found.action.offset.tolist() == [0.3, 0.4] and found.home == (0.1, -0.2) and found.action.limit == 100.0


# ---- refused in words

BAD = [
    ("task", 5, "task: expected text, found '5'"),
    ("about", None, "about: expected text"),
    ("trial", 1e9, "trial: expected a whole number from 1 to 1000"),
    ("trial", 10**9, "trial: expected a whole number from 1 to 1000"),
    ("trial", 0, "trial: expected a whole number from 1 to 1000, found '0'"),
    ("rate", 0, "rate: expected 1 to 10000 Hz, found 0"),
    ("rate", -5, "rate: expected 1 to 10000 Hz, found -5"),
    ("rate", 1e9, "rate: expected"),
    ("rate", 2e4, "rate: expected 1 to 10000 Hz"),
    ("rate", NAN, "rate: expected a finite number, found 'nan'"),
    ("rate", "50", "rate: expected a finite number, found '50'"),
    ("rate", True, "rate: expected a finite number"),
    ("rate", [50], "rate: expected a finite number"),
    ("latency", -0.1, "latency: expected 0 to 1 s"),
    ("latency", 5, "latency: expected 0 to 1 s"),
    ("action", [], "action: expected an object, found list"),
    ("action.scale", [0.5, 0], "action: scale: expected numbers other than 0"),
    ("action.scale", [0.5, NAN], "action: scale: expected a finite number, found 'nan'"),
    ("action.scale", [0.5, "x"], "action: scale: expected a finite number, found 'x'"),
    ("action.scale", [0.5], "action: scale: expected 2 numbers, one an action, found 1"),
    ("action.scale", {}, "action: scale: expected a finite number"),
    ("action.offset", [0.5, INF], "action: offset: expected a finite number"),
    ("action.offset", [0.1, 0.2, 0.3], "action: offset: expected 2 numbers"),
    ("action.limit", 0, "action: limit: expected a number from 0 to 1e.06, found 0"),
    ("action.limit", INF, "action: limit: expected a finite number, found 'inf'"),
    ("action.limit", 1e8, "action: limit: expected a number from 0 to"),
    ("action.limit", "1", "action: limit: expected a finite number"),
    ("action.choices", 1, "action: choices: expected 0, or 2 and more"),
    ("action.choices", -1, "action: choices: expected a whole number"),
    ("action.choices", 2.5, "action: choices: expected a whole number"),
    ("action.choices", True, "action: choices: expected a whole number"),
    ("action.names", ["hip", "hip"], "action: names: expected names, each once"),
    ("action.names", [], "action: names: expected names"),
    ("action.names", "hip", "action: names: expected a list of names"),
    ("action.unit", 3, "action: unit: expected text"),
    ("kp", [-20, 30], "kp: expected numbers >= 0, found -20"),
    ("kp", [20], "kp: expected one an action, 2, found 1"),
    ("kd", ["a", 1], "kd: expected a finite number, found 'a'"),
    ("home", [0.1], "home: expected one an action, 2, found 1"),
    ("joints", ["hip", "hip"], "joints: expected names, each once"),
    ("joints", ["hip"], "joints: expected one an action, 2, found 1"),
    ("joints", [1, 2], "joints: expected text, found '1'"),
    ("control_low", [5, 5], "control_low: expected at most control_high"),
    ("command_ranges", [[-1, 1]], "command_ranges: expected one for each of vx, vy, yaw_rate"),
    ("command_ranges", [[1, -1], [0, 0], [0, 0]], "command_ranges: expected ranges of low <= high"),
    ("command_ranges", "fast", "command_ranges: expected a list of ranges"),
    ("command_names", "vx", "command_names: expected a list of names"),
    ("ports", ["obs"], "ports: expected the names of an input and an output"),
    ("ports", ["obs", 1], "ports: expected text"),
    ("parents", {"model": 5}, "parents: expected names with hashes"),
    ("parents", ["model"], "parents: expected names with hashes"),
    ("observation", {}, "observation: terms: found nothing, expected a value"),
    ("observation.terms", [], "observation: found no terms"),
    ("observation.terms", "joint_pos", "observation: terms: expected a list of terms"),
    ("observation.layout", "frame", "no layout matches 'frame'; .* did you mean frames"),
    ("observation.layout", ["frames"], "no layout matches"),
    ("observation.newest", "latest", "no newest matches 'latest'"),
    ("observation.history", 0, "history: expected a whole number from 1 to 4096, found '0'"),
    ("observation.history", 10**9, "history: expected a whole number from 1 to 4096"),
    ("observation.history", 1e9, "history: expected a whole number from 1 to 4096"),
    ("observation.history", "abc", "history: expected a whole number from 1 to 4096, found 'abc'"),
    ("observation.history", True, "history: expected a whole number from 1 to 4096, found 'True'"),
    ("observation.terms.0.history", 3, "joint_pos: history: expected at most 2 frames"),
    ("observation.terms.0.history", -1, "joint_pos: history: expected a whole number"),
    ("observation.terms.0.history", True, "joint_pos: history: expected a whole number"),
    ("observation.terms.0.clip", 0, "joint_pos: clip: expected a number > 0, found 0"),
    ("observation.terms.0.clip", -1, "joint_pos: clip: expected a number > 0, found -1"),
    ("observation.terms.0.clip", "a", "clip: expected a finite number, found 'a'"),
    ("observation.terms.0.clip", NAN, "clip: expected a finite number, found 'nan'"),
    ("observation.terms.0.scale", [1, 2, 3], "joint_pos: scale: expected one number, or 2, found 3"),
    ("observation.terms.0.scale", [], "joint_pos: scale: expected one number, or 2, found 0"),
    ("observation.terms.0.scale", [1, "x"], "joint_pos: scale: expected a finite number, found 'x'"),
    ("observation.terms.0.scale", [1, 0], "joint_pos: scale: expected numbers other than 0"),
    ("observation.terms.0.scale", "x", "joint_pos: scale: expected a finite number, found 'x'"),
    ("observation.terms.0.unit", 7, "joint_pos: expected a name and a unit in words"),
    ("observation.terms.0.name", 7, "expected a name and a unit in words"),
    ("observation.terms.0.name", "command", "observation: expected each name once"),
    ("observation.terms.0.noise", "loud", "noise: expected a finite number, found 'loud'"),
    ("observation.terms.0.sensed", "yes", "sensed: expected"),
    ("observation.terms.0.dim", 2.0, "joint_pos: dim: expected a whole number"),
    ("observation.terms.0.dim", 0, "joint_pos: dim: expected a whole number"),
    ("observation.terms.0.dim", 10**12, "joint_pos: dim: expected a whole number"),
    ("observation.terms.0.formula", "joint_pos", "formula: expected an object, found str"),
    ("observation.terms.0.formula.kind", "joint_poss", "no formula matches 'joint_poss'; .* did you mean joint_pos"),
    ("observation.terms.0.formula.kind", ["joint_pos"], "formula: kind: expected text"),
    ("observation.terms.0.formula.joints", ["hip"], "joint_pos: joints: expected 2 columns, found 1 joints"),
    ("observation.terms.0.formula.joints", "hip", "formula: joints: expected a list, found hip"),
    ("observation.terms.0.formula.offset", [0.1], "joint_pos: offset: expected 2 numbers, found 1"),
    ("observation.terms.0.formula.offset", [0.1, NAN], "formula: offset: expected a finite number"),
    ("observation.terms.0.formula.frequencyy", 1.0, "no field matches 'frequencyy'; .* did you mean frequency"),
    ("observation.terms.0.scael", 1.0, "no field matches 'scael'; .* did you mean scale"),
    ("observation.histroy", 1, "no field matches 'histroy'; .* did you mean history"),
    ("action.scael", 1, "no field matches 'scael'; .* did you mean scale"),
    ("raet", 1, "no field matches 'raet'; .* did you mean rate"),
    ("format", 1, "format: expected 2, found 1; .* train or export the policy again"),
    ("format", 99, "format: expected 2, found 99$"),
    ("format", "2", "format: expected 2"),
]  # fmt: skip


@pytest.mark.parametrize("at, value, said", BAD, ids=[f"{at}={str(value)[:20]}" for at, value, _ in BAD])
def test_a_contract_that_cannot_be_meant_is_refused_by_field(at, value, said):
    with pytest.raises(SurefootError, match=said) as refused:
        Contract.from_json(edited(at, value), "p.json")
    assert str(refused.value).startswith("p.json: ")


ODD = [
    None,
    True,
    -1,
    0,
    3,
    10**400,
    1e308,
    NAN,
    "",
    "x" * 10_000,
    "\x00",
    [],
    [[]],
    [None],
    {},
    {"a": []},
    [{}],
    [1e308] * 5000,
]


def places(data, at=()):
    yield at
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for k, v in inside:
        yield from places(v, (*at, k))


@pytest.mark.parametrize("short", [False, True])
def test_whatever_stands_in_any_place_is_refused_in_words_or_read_as_it_is_written(short):
    whole, read = (SHORT if short else PLAIN), 0
    for at in [at for at in places(whole) if at]:
        for value in ODD:
            data = copy.deepcopy(whole)
            spot = data
            for k in at[:-1]:
                spot = spot[k]
            spot[at[-1]] = copy.deepcopy(value)
            try:
                found = Contract.from_json(data, "p.json")
            except SurefootError as error:
                assert str(error).startswith("p.json: "), (at, value)
            else:
                read += 1
                text = json.dumps(found.to_json(), allow_nan=False)
                assert Contract.from_json(json.loads(text), "p.json") == found, (at, value)
    assert read > 20  # such as no gains, or a latency of 0


@pytest.mark.parametrize("name", ["task", "rate", "observation", "action"])
def test_what_a_contract_must_tell_is_not_guessed(name):
    with pytest.raises(SurefootError, match=f"p.json: {name}: found nothing, expected a value"):
        Contract.from_json({k: v for k, v in PLAIN.items() if k != name}, "p.json")


@pytest.mark.parametrize("path, name", [("action", "unit"), ("observation.terms.0", "dim")])
def test_what_its_parts_must_tell_is_not_guessed_either(path, name):
    spot = PLAIN
    for k in path.split("."):
        spot = spot[int(k) if k.isdigit() else k]
    with pytest.raises(SurefootError, match=f"{name}: found nothing, expected a value"):
        Contract.from_json(edited(path, {k: v for k, v in spot.items() if k != name}), "p.json")


@pytest.mark.parametrize("data", [[], "text", 5, None])
def test_what_is_no_object_is_no_contract(data):
    with pytest.raises(SurefootError, match=f"p.json: format: expected 2, found {type(data).__name__}"):
        Contract.from_json(data, "p.json")


@pytest.mark.parametrize(
    "change, said",
    [
        ({"observation": [{"name": "joint_pos", "joints": ["hip", "kne"]}]}, "joint_pos: joints: no joint matches 'kne'; .* did you mean knee"),
        ({"observation": [{"name": "joint_pos", "joints": ["hip"]}]}, "joint_pos: joints: expected each of hip, knee once"),
        ({"observation": [{"name": "joint_pos", "history": 0}]}, "joint_pos: history: expected a whole number"),
        ({"observation": [{"name": "joint_pos", "history": True}]}, "joint_pos: history: expected a whole number"),
        ({"observation": [{"name": "joint_pos", "scale": [1, 2, 3]}]}, "joint_pos: scale: expected one number, or 2, found 3"),
        ({"observation": [{"name": "joint_pos", "clip": -1}]}, "joint_pos: clip: expected a number > 0"),
        ({"observation": [{"name": "joint_pos", "scael": 1}]}, "did you mean scale"),
        ({"observation": [5]}, "observation.0.: expected an object, found int"),
        ({"observation": [{"name": ["joint_pos"]}]}, "observation.0.: name: expected text"),
        ({"observation": ["joint_pos", "dof_pos"]}, "observation: expected each name once"),
        ({"observation": []}, "observation: expected a list of terms, some of"),
        ({"action_scale": 0}, "action: scale: expected numbers other than 0"),
        ({"action_scale": [1, 2, 3]}, "action_scale: expected one for each of 2 joints, found 3 numbers"),
        ({"action_limit": 0}, "action: limit: expected a number from 0"),
        ({"kd": [1, 2, 3]}, "kd: expected one for each of 2 joints, found 3 numbers"),
        ({"commands": {"vx": [1, 2, 3]}}, "commands: expected ranges of low <= high"),
        ({"commands": "fast"}, "commands: expected names with ranges"),
        ({"frame": 5}, "frame: expected text"),
        ({"newest": "frist"}, "no newest matches 'frist'; .* did you mean first"),
    ],
)  # fmt: skip
def test_a_short_form_that_cannot_be_meant_is_refused_by_field(change, said):
    with pytest.raises(SurefootError, match=said) as refused:
        Contract.from_json(SHORT | change, "c.json")
    assert str(refused.value).startswith("c.json: ")


# ---- differences

CHANGES = [
    ("rate", 100.0), ("latency", 0.03), ("trial", 2), ("kp", [20.0, 31.0]), ("kd", []), ("home", [0.1, -0.3]),
    ("joints", ["knee", "hip"]), ("control_high", [1.0, 3.0]), ("command_ranges", [[-1.0, 2.0], [0.0, 0.0], [-0.5, 0.5]]),
    ("command_names", ["vx", "vy", "turn"]), ("action.scale", [0.5, 0.26]), ("action.offset", [0.1, 0.2]), ("action.limit", 1.0),
    ("action.unit", "N m"), ("action.names", ["knee", "hip"]), ("observation.history", 3), ("observation.layout", "terms"),
    ("observation.newest", "first"), ("observation.terms.0.unit", "deg"), ("observation.terms.0.clip", 1.0),
    ("observation.terms.1.scale", 0.25), ("observation.terms.1.formula.frame", "base"), ("observation.terms.0.formula.joints", ["knee", "hip"]),
    ("observation.terms.0.formula.offset", [0.0, 0.0]), ("observation.terms.2.formula.frequency", 2.1), ("observation.terms.2.history", 2),
]  # fmt: skip


@pytest.mark.parametrize("at, value", CHANGES, ids=[at for at, _ in CHANGES])
def test_a_difference_is_named_by_the_field_that_was_changed_and_no_other(at, value):
    names = [t["name"] for t in PLAIN["observation"]["terms"]]
    said = ".".join(names[int(k)] if k.isdigit() else k for k in at.split("."))
    other = Contract.from_json(edited(at, value))
    for one, two in ((plain(), other), (other, plain())):
        (found,) = one.differences(two)
        assert found.split(": ")[0] == said
    assert other != plain()


def test_noise_and_where_it_came_from_make_no_difference():
    calm = plain(parents={"model": "other"}, about="else").with_terms(["joint_pos"], lambda t: replace(t, noise=9.0, sensed=False))  # fmt: skip
    assert calm.differences(plain()) == [] and calm != plain()
    assert plain().differences(replace(plain(), rate=50.0 + 1e-12, kp=(20.0, 30.0 + 1e-12))) == []


def test_other_terms_are_a_difference():
    fewer = replace(plain(), observation=replace(plain().observation, terms=plain().terms[:-1]))
    (found,) = plain().differences(fewer)
    assert found.startswith("observation.terms: ")


# ---- a base under a policy


def upon(history=3, names=("joint_pos", "base_ang_vel", "command"), **more):
    terms = tuple(replace(t, history=0) for t in plain().terms if t.name in names)
    return replace(plain(**more), observation=ObsGroup(terms, history))


def test_a_base_finds_its_columns_by_name_in_the_newest_frames():
    """Frames of (joint_pos 2, base_ang_vel 3, command 3): the last two of three begin at 8 and 16."""
    found = base_columns(upon(), upon(2, ("joint_pos", "command")))
    assert found.tolist() == [8, 9, 13, 14, 15, 16, 17, 21, 22, 23]


def scaled(t):
    return replace(t, scale=2.0)


@pytest.mark.parametrize(
    "policy, base, said",
    [
        (upon(), replace(upon(), rate=100.0), "rate: expected 50.0, found 100.0"),
        (upon(), upon(kp=(20.0, 31.0)), r"kp: expected \[20.0, 30.0\], found \[20.0, 31.0\]"),
        (upon(), upon(kd=()), "kd: expected"),
        (upon(), replace(upon(), action=replace(plain().action, scale=np.ones(2))), "action.scale: expected"),
        (upon(), replace(upon(), action=replace(plain().action, choices=3)), "choices: expected continuous actions"),
        (upon(), upon(4), "history: expected at most 3 frames, found 4"),
        (upon(trial=2), upon(2), "history: expected 1 frame under a policy that remembers 2 episodes, found 2"),
        (upon(names=("joint_pos", "command")), upon(), "no observation term matches 'base_ang_vel'"),
        (upon(), upon().with_terms(["base_ang_vel"], scaled), "base_ang_vel.scale: expected .*, found 2.0"),
        (upon(), upon(command_names=("vx", "vy", "turn")), "command_names: expected"),
        (upon(), replace(upon(), observation=replace(upon().observation, newest="first")), "layout: expected whole frames"),
        (plain(), upon(1), "layout: expected whole frames, newest last"),
    ],
)  # fmt: skip
def test_a_base_that_means_something_else_is_refused_by_field(policy, base, said):
    with pytest.raises(SurefootError, match=said) as refused:
        base_columns(policy, base)
    assert str(refused.value).startswith("policy for hop: base for hop: ")


def test_a_base_may_differ_in_noise():
    quiet = upon().with_terms(["joint_pos"], lambda t: replace(t, noise=0.0))
    assert base_columns(upon(), quiet).tolist() == list(range(24))
