"""Faults: each edit does what its law says, and one fault means the same in a log, a frame and a contract."""

from dataclasses import replace

import numpy as np
import pytest

from surefoot.contract import Contract
from surefoot.fault import (
    PLAIN,
    Chain,
    Edit,
    Exchange,
    Fault,
    History,
    Inverse,
    Late,
    Order,
    Plus,
    Times,
    Turn,
    on_columns,
    on_contract,
    on_frames,
    swapped,
)
from surefoot.fault.contracts import CONTRACT
from surefoot.fault.joint_orders import exchanges, limbs, orders
from surefoot.fault.logs import Driven, of_attitude, of_joints
from surefoot.fault.observations import of_actions, of_frames
from surefoot.observation import Columns, Formula, ObsGroup, ObsTerm
from surefoot.rng import stream
from surefoot.rotation import exp, matrix, to_world

LEGS = ("FL_hip", "FL_knee", "FR_hip", "FR_knee")
N = 20


def fault(*edits: Edit) -> Fault:
    return Fault("order", "", edits)


def draw(name: str, *shape: int) -> np.ndarray:
    return stream(1, name).normal(size=shape)


def contract(**more) -> Contract:
    observation = ["base_ang_vel", "projected_gravity", "joint_pos", "joint_vel"]
    short = {"joints": list(LEGS), "home": [0.1, 0.2, 0.3, 0.4], "rate": 50, "action_scale": 0.5, "frame": "base"}
    return Contract.from_json(short | {"observation": observation} | more)


def told(w: Contract, readings: Columns) -> np.ndarray:
    return w.observation.finish(w.observation.raw(readings, N))


@pytest.mark.parametrize(
    "edit, x, y",
    [
        (Order(("a",), (2, 0, 1)), [10, 20, 30], [30, 10, 20]),
        (Times(("a",), (1,)), [10, 20, 30], [10, -20, 30]),
        (Times(("a",), by=0.5), [10, 20, 30], [5, 10, 15]),
        (Times(("a",), (0, 2), (2.0, 3.0)), [10, 20, 30], [20, 20, 90]),
        (Plus(("a",), (0,), 5.0), [10, 20, 30], [15, 20, 30]),
        (Chain(("a",), 2), [10, 20, 30], [10, 20, 50]),
        (Chain(("a",), 1, -1.0), [10, 20, 30], [10, 10, 30]),
        (Inverse(("a",)), [1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 4, 7, 2, 5, 8, 3, 6, 9]),
        (Inverse(("a",)), [1, 2, 3, 4], [1, -2, -3, -4]),
        (Order(("b",), (1, 0)), [10, 20, 30], [10, 20, 30]),
    ],
)
def test_an_edit_of_a_row_is_what_is_written_beside_it(edit, x, y):
    x = np.array([x], float)
    kept = x.copy()
    assert on_columns(fault(edit), {"a": x})["a"].tolist() == [y]
    assert np.array_equal(x, kept)  # nothing is changed in place


def test_what_is_late_comes_from_its_own_stretch_and_what_was_lost_is_not_moved():
    x = np.arange(8.0)[:, None]
    x[2] = np.nan
    spans = np.array([0, 0, 0, 0, 4, 4, 4, 4]), np.array([3, 3, 3, 3, 7, 7, 7, 7])
    moved = lambda k: on_columns(fault(Late(k)), {"a": x}, spans)["a"][:, 0]  # noqa: E731
    np.testing.assert_array_equal(moved(1), [0, 0, np.nan, 3, 4, 4, 5, 6])
    np.testing.assert_array_equal(moved(-2), [0, 3, np.nan, 3, 6, 7, 7, 7])
    both = on_columns(fault(Late(1, ("a",))), {"a": x, "b": x})
    assert both["b"] is x and both["a"] is not x


def test_a_vector_turned_to_the_world_and_back_is_itself_and_columns_before_it_count():
    quat, v = exp(draw("r", N, 3)), draw("v", N, 3)
    there = on_columns(fault(Turn(("v",), "world")), {"v": v, "base_quat": quat})["v"]
    assert there == pytest.approx(to_world(quat, v))
    assert on_columns(fault(Turn(("v",), "body")), {"v": there}, quat=quat)["v"] == pytest.approx(v)
    mended = fault(Inverse(("base_quat",)), Turn(("v",), "world"))  # by the attitude as the first edit left it
    assert on_columns(mended, {"v": there, "base_quat": quat})["v"] == pytest.approx(v)


def test_a_fault_of_columns_or_frames_is_the_same():
    group = ObsGroup((ObsTerm("a", None, 3), ObsTerm("r", None, 9), ObsTerm("b", None, 3)))
    quat = exp(draw("r", N, 3))
    raw = np.concatenate([draw("a", N, 3), matrix(quat).reshape(N, 9), draw("b", N, 3)], 1)
    both = fault(Exchange("a", "b"), Turn(("b",), "body"), Inverse(("r",)), Late(2, ("a",)))
    made = on_columns(both, {"a": raw[:, :3], "r": raw[:, 3:12], "b": raw[:, 12:]}, quat=quat)
    assert np.array_equal(on_frames(both, group, raw, quat=quat), np.concatenate([made[n] for n in "arb"], 1))
    assert np.array_equal(on_frames(PLAIN, group, raw), raw)


@pytest.mark.parametrize(
    "edit, written",
    [
        (Times(("joint_vel",), by=0.05), None),
        (Times(("base_ang_vel", "projected_gravity")), None),
        (Exchange("base_ang_vel", "projected_gravity"), None),
        (Exchange("joint_pos", "joint_vel"), None),
        (Order(("joint_vel",), (2, 3, 0, 1)), Order(("joint_vel",), joints=(*LEGS[2:], *LEGS[:2]))),
        (Order(("joint_pos",), (1, 0, 2, 3)), Order(("joint_pos",), joints=("FL_knee", "FL_hip", "FR_hip", "FR_knee"))),
        (Turn(("base_ang_vel",), "world"), None),
    ],
)
def test_a_policy_is_told_the_same_by_a_runtime_with_a_fault_and_by_a_contract_that_says_so(edit, written):
    """Either the frames are edited, or the contract and then the frames are made from it."""
    right = contract()
    quat = exp(draw("r", N, 3))
    readings = Columns(
        {"base_ang_vel": draw("w", N, 3), "base_quat": quat, "gravity": np.tile([0, 0, -9.81], (N, 1)),
         "joint_pos": draw("q", N, 4), "joint_vel": draw("v", N, 4)},
        {"joint_pos": LEGS, "joint_vel": LEGS},
    )  # fmt: skip
    wrong = on_contract(fault(written or edit), right)
    wrong.check("wrong")
    frames = on_frames(fault(edit), right.observation, right.observation.raw(readings, N), quat=quat)
    np.testing.assert_allclose(told(wrong, readings), right.observation.finish(frames), atol=1e-6)


def test_a_sign_written_twice_is_the_contract_itself():
    w = contract(kp=20, latency=0.02)
    for make in CONTRACT:
        for f in make(w):
            again = on_contract(f, on_contract(f, w))
            if f.kind == "sign" or any(isinstance(e, Exchange) for e in f.edits):
                assert not again.differences(w), f.words
    halved = on_contract(fault(Times(("latency", "rate", "kp", "action"), by=0.5)), w)
    assert (halved.latency, halved.rate, halved.kp[0], halved.action.scale[0]) == (0.01, 25.0, 10.0, 0.25)
    with pytest.raises(TypeError, match="Late: no contract has it"):
        on_contract(fault(Late(1)), w)


def test_every_usual_fault_of_a_frame_shows_in_it_and_has_words_of_its_own():
    terms = [ObsTerm("base_ang_vel", None, 3), ObsTerm("projected_gravity", None, 3), ObsTerm("joint_pos", None, 4),
             ObsTerm("joint_vel", None, 4), ObsTerm("rotation", None, 9), ObsTerm("last_action", None, 4)]  # fmt: skip
    group = ObsGroup(tuple(terms), history=3)
    raw, quat = draw("raw", N, group.frame), exp(draw("r", N, 3))
    faults = list(of_frames(group, {t.name: np.ones(t.dim) for t in terms}, attitude=True))
    assert len({f.words for f in faults}) == len(faults) > 150
    for f in faults:
        known = f.at(f.guesses[0]) if f.guesses else f
        shows = not np.allclose(on_frames(known, group, raw, quat=quat), raw)
        assert shows != bool(f.ages), f.words  # ages of frames are the stacker's
    assert {f.kind for f in faults} == {"order", "sign", "scale", "offset", "frame", "delay", "history"}
    blind = of_frames(group, {t.name: np.ones(t.dim) for t in terms}, attitude=False)
    assert not any(isinstance(e, Turn) for f in blind for e in f.edits)


def test_a_number_that_was_found_stands_in_the_edit_and_in_the_words():
    f = Fault("offset", "a reads {:+.2g} too much", (Plus(("a",), (1,)),), guesses=(0.1, -0.1)).at(0.25, shown=-0.25)
    assert f.words == "a reads -0.25 too much" and not f.guesses
    assert on_columns(f, {"a": np.zeros((1, 3))})["a"].tolist() == [[0, 0.25, 0]]


def test_controls_and_readings_that_are_both_wrong_are_the_joint_that_is():
    """A fault of joints is the fault of their controls with its twin, wherever an exchange undoes itself."""
    d = Driven(LEGS, (1, 0, 3, -1), 4, (True,) * 4)  # two motors crossed over, the last joint without one
    x = {"joint_pos": draw("q", N, 4), "joint_vel": draw("v", N, 4), "control": draw("u", N, 4)}
    found = {(f.of, f.words): f for f in of_joints(d, 0.1)}
    pairs = {
        "turn the sign of FR_hip": "turn the sign of the control of FR_hip",
        "exchange FL_hip and FR_hip": "exchange the controls of FL_hip and FR_hip",
        "the columns are of FR FL, not FL FR": "the controls are of FR FL, not FL FR",
    }
    for whole, half in pairs.items():
        control = found["control", half]
        assert control.twin is not None and control.twin.of == "readings"
        parts = on_columns(control.twin, on_columns(control, x))
        for name, column in on_columns(found["joints", whole], x).items():
            np.testing.assert_array_equal(parts[name], column)
        assert d.joints(control)
    assert d.joints(found["control", "turn the sign of the control of FR_hip"]) == [2]
    assert d.joints(found["joints", "exchange FL_hip and FR_hip"]) == [0, 2]
    assert not found["control", "turn the sign of the control of FR_knee"].edits  # it has no motor


def test_a_log_put_in_order_is_the_log_that_had_it_right():
    """Columns that are another driver's order of limbs: the fault that names it gives each joint its own back."""
    names = ("FL_hip", "FL_knee", "FR_hip", "FR_knee", "RL_hip", "RL_knee", "torso")
    d, right = Driven(names, tuple(range(7)), 7, (True,) * 7), draw("q", N, 7)
    theirs = {"RL_hip": 0, "RL_knee": 1, "FL_hip": 2, "FL_knee": 3, "FR_hip": 4, "FR_knee": 5, "torso": 6}
    wrong = right[:, [names.index(n) for n in theirs]]
    (f,) = [f for f in of_joints(d, 0.1) if f.words == "the columns are of RL FL FR, not FL FR RL"]
    assert np.array_equal(on_columns(f, {"joint_pos": wrong, "control": wrong})["joint_pos"], right)
    assert np.array_equal(on_columns(f, {"joint_pos": wrong, "control": wrong})["control"], right)


def test_limbs_are_known_by_side_or_by_their_first_word_and_a_torso_stays():
    human = ("torso", "left_hip", "left_knee", "right_hip", "right_knee")
    assert limbs(human) == {"left": [1, 2], "right": [3, 4]}
    assert dict(orders(human)) == {"right left": ("torso", "right_hip", "right_knee", "left_hip", "left_knee")}
    assert limbs(("leg1_a", "leg1_b", "leg2_a", "leg2_b")) == {"leg1": [0, 1], "leg2": [2, 3]}
    six = [f"leg{i}_{part}" for i in range(6) for part in "ab"]
    assert len(list(orders(six))) == 15 + 1  # exchanges of two of six, and part by part
    assert not limbs(("shoulder", "elbow", "wrist_1", "wrist_2")) and not limbs(())


def test_of_many_motors_only_the_same_joint_of_other_limbs_is_thought_exchanged():
    few, many = [f"m{i}" for i in range(6)], [f"{leg}_{part}" for leg in ("FL", "FR", "RL", "RR") for part in "ab"]
    assert len(list(exchanges("control", few, "{} {}", alike=True))) == 15
    assert len(list(exchanges("control", many, "{} {}", alike=True))) == 2 * 6
    assert swapped(4, 1, 3) == (0, 3, 2, 1)
    assert len(list(of_actions(many))) == 28 + 8 + 1 + 5


def test_attitudes_are_misread_in_sixteen_ways_the_plainest_by_no_edit():
    faults = list(of_attitude())
    assert len({f.words for f in faults}) == 16 and faults[0].edits == () and max(len(f.edits) for f in faults) == 4
    quat, w = exp(draw("r", N, 3)), draw("w", N, 3)
    wrong = {"base_quat": (quat * [1, -1, -1, -1])[:, [1, 2, 3, 0]], "base_ang_vel": np.degrees(to_world(quat, w))}
    mended = on_columns(faults[-1], wrong)
    assert mended["base_quat"] == pytest.approx(quat) and mended["base_ang_vel"] == pytest.approx(w)


def test_a_history_is_laid_out_or_aged_otherwise():
    w = contract(observation=[{"name": "joint_pos", "history": 3}, {"name": "joint_vel", "history": 3}])
    words = {f.words: on_contract(f, w).observation for make in CONTRACT for f in make(w) if f.kind == "history"}
    assert words["layout is terms"].layout == "terms" and words["the newest frame comes first"].newest == "first"
    f = Fault("history", "", (History((0, 1, 2)),))
    assert f.ages == (0, 1, 2) and f.rows == 0 and fault(Late(2), Late(1)).rows == 3


def test_a_term_without_a_formula_is_left_as_it_is():
    w = contract()
    w = replace(w, observation=replace(w.observation, terms=(*w.terms, ObsTerm("seen", None, 2))))
    for edit in (Order(("seen",), joints=LEGS), Turn(("seen",), "world")):
        assert on_contract(fault(edit), w) == w
    assert isinstance(w.terms[0].source, Formula)
