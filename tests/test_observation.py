"""What a policy is told, against closed forms, plain MuJoCo and loops written out: one pipeline for simulator, log and robot."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import SurefootError
from surefoot.formula import ESTIMATED
from surefoot.observation import FORMULAS, Columns, Formula, History, ObsGroup, ObsTerm
from surefoot.robot import Layout
from surefoot.sim.layout import layout_of
from surefoot.task import Moment
from surefoot.world import State

XML = """
<mujoco>
  <worldbody>
    <body name="trunk" pos="0 0 1"><freejoint/><geom size=".1" mass="2"/><site name="imu" pos=".1 .02 .03" euler="30 20 10"/>
      <body name="upper"><joint name="knee" axis="0 1 0"/><geom size=".05" pos="0 0 -.2"/>
        <body name="lower" pos="0 0 -.3"><joint name="ankle" axis="1 0 0"/><geom size=".05"/></body></body>
      <body name="rail"><joint name="hip" type="slide" axis="1 0 0"/><geom size=".05" pos=".2 0 0"/></body>
    </body>
  </worldbody>
  <sensor><gyro name="spin" site="imu"/><velocimeter name="speed" site="imu"/>
    <framequat name="attitude" objtype="site" objname="imu"/></sensor>
</mujoco>"""
MODEL = mujoco.MjModel.from_xml_string(XML)
JOINTS = ("knee", "ankle", "hip")  # in the order of the model
ACTIONS = ("a", "b")
N = 5


def engine(q, v):
    d = mujoco.MjData(MODEL)
    d.qpos[:], d.qvel[:] = q, v
    mujoco.mj_forward(MODEL, d)
    return d


def made(seed=0, n=N):
    """A moment of n robots anywhere, and what plain MuJoCo knows of each."""
    rng = np.random.default_rng(seed)
    q, v = rng.standard_normal((n, MODEL.nq)), rng.standard_normal((n, MODEL.nv))
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    engines = [engine(*row) for row in zip(q, v)]
    y = {s: np.array([d.sensor(s).data for d in engines]) for s in ("spin", "speed", "attitude")}
    gravity = rng.standard_normal((n, 3)) + [0, 0, -9.81]
    x = State(np.zeros(n), q, v, np.zeros((n, 0)), np.zeros((n, 0)), y, np.zeros((n, 0)), gravity, np.zeros((n, 1, 6)))
    action, command = rng.standard_normal((n, 2)), rng.standard_normal((n, 3))
    command[1] = 0.0
    time, layout = np.r_[0.0, rng.uniform(0.1, 9.0, n - 1)], replace(layout_of(MODEL), actions=ACTIONS)
    phase = rng.uniform(0.0, 0.5, n)
    return Moment(x, action, 0 * action, command, time, np.zeros(n), layout, phase=phase), engines


ROBOT, ENGINES = made()
BODY = MODEL.body("trunk").id
SITE = MODEL.site("imu").id


def rows(f):
    return np.array([f(d) for d in ENGINES])


def at_site(d):
    """Angular and linear velocity of the site in its own frame."""
    out = np.zeros(6)
    mujoco.mj_objectVelocity(MODEL, d, mujoco.mjtObj.mjOBJ_SITE, SITE, out, 1)
    return out


def body_matrix(d):
    return d.xmat[BODY].reshape(3, 3)


KNOWN = {
    "joint_pos": (Formula("joint_pos", ("hip", "knee")), lambda d: [d.joint("hip").qpos[0], d.joint("knee").qpos[0]]),
    "joint_pos as they are": (Formula("joint_pos"), lambda d: [d.joint(j).qpos[0] for j in JOINTS]),
    "joint_pos from a pose": (Formula("joint_pos", ("ankle", "hip", "knee"), (1.0, 2.0, 3.0)), lambda d: [d.joint("ankle").qpos[0] - 1, d.joint("hip").qpos[0] - 2, d.joint("knee").qpos[0] - 3]),
    "joint_vel": (Formula("joint_vel", ("hip", "ankle")), lambda d: [d.joint("hip").qvel[0], d.joint("ankle").qvel[0]]),
    "joint_state": (Formula("joint_state", ("hip", "knee")), lambda d: [d.joint("hip").qpos[0], d.joint("hip").qvel[0], d.joint("knee").qpos[0], d.joint("knee").qvel[0]]),
    "base_pos": (Formula("base_pos"), lambda d: d.xpos[BODY]),
    "base_pos from a goal": (Formula("base_pos", offset=(1.0, 2.0, 3.0)), lambda d: d.xpos[BODY] - [1, 2, 3]),
    "rotation": (Formula("rotation"), lambda d: d.xmat[BODY]),
    "rotation of a site": (Formula("rotation", frame="imu"), lambda d: d.site_xmat[SITE]),
    "base_lin_vel": (Formula("base_lin_vel"), lambda d: d.qvel[:3]),
    "base_lin_vel in the world": (Formula("base_lin_vel", frame="world"), lambda d: d.qvel[:3]),
    "base_lin_vel in the base": (Formula("base_lin_vel", frame="base"), lambda d: body_matrix(d).T @ d.qvel[:3]),
    "base_lin_vel at a site": (Formula("base_lin_vel", frame="imu"), lambda d: at_site(d)[3:]),
    "base_ang_vel": (Formula("base_ang_vel"), lambda d: d.qvel[3:6]),
    "base_ang_vel in the base": (Formula("base_ang_vel", frame="base"), lambda d: d.qvel[3:6]),
    "base_ang_vel in the world": (Formula("base_ang_vel", frame="world"), lambda d: body_matrix(d) @ d.qvel[3:6]),
    "base_ang_vel at a site": (Formula("base_ang_vel", frame="imu"), lambda d: at_site(d)[:3]),
    "a sensor": (Formula("reading", reading="spin"), lambda d: d.sensor("spin").data),
    "a sensor from an offset": (Formula("reading", offset=(1.0, 2.0, 3.0), reading="spin"), lambda d: d.sensor("spin").data - [1, 2, 3]),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_a_term_of_the_body_is_what_plain_mujoco_says(name):
    formula, known = KNOWN[name]
    assert np.allclose(formula(ROBOT), rows(known), atol=1e-12)


def test_gravity_is_seen_from_the_base_or_a_site_whatever_its_size_and_slope():
    unit = ROBOT.x.gravity / np.linalg.norm(ROBOT.x.gravity, axis=1, keepdims=True)
    for frame, turn in (("", body_matrix), ("base", body_matrix), ("imu", lambda d: d.site_xmat[SITE].reshape(3, 3))):
        wanted = [turn(d).T @ g for d, g in zip(ENGINES, unit)]
        assert np.allclose(Formula("projected_gravity", frame=frame)(ROBOT), wanted, atol=1e-12)


@pytest.mark.parametrize("angle", [0.0, 0.3, np.pi / 2, 2.5])
def test_gravity_of_known_tilts(angle):
    """Rolled by a: (0, -sin a, -cos a); pitched: (sin a, 0, -cos a); turned about the vertical: (0, 0, -1)."""
    c, s = np.cos(angle / 2), np.sin(angle / 2)
    quat = np.array([[c, s, 0, 0], [c, 0, s, 0], [c, 0, 0, s]])
    for size in (9.81, 1.62):
        told = Formula("projected_gravity")(Columns({"base_quat": quat, "gravity": np.array([[0, 0, -size]])}, {}))
        wanted = [[0, -np.sin(angle), -np.cos(angle)], [np.sin(angle), 0, -np.cos(angle)], [0, 0, -1]]
        assert np.allclose(told, wanted, atol=1e-12)


def test_a_rotation_is_orthogonal_and_right_handed():
    R = Formula("rotation")(made(1, 200)[0]).reshape(-1, 3, 3)
    assert np.allclose(R @ R.transpose(0, 2, 1), np.eye(3), atol=1e-12) and np.allclose(np.linalg.det(R), 1)


def test_a_clock_stands_at_known_angles_and_stops_with_the_command():
    """At 1.25 Hz a quarter turn takes 0.2 s; it stands at (0, 0) while nothing larger than 0.1 is asked for."""
    told = Formula("clock", frequency=1.25, still=0.1)(
        Columns(
            {
                "time": np.array([[0.0], [0.2], [0.4], [0.6], [0.1], [0.2], [0.2]]),
                "command": np.array([[1, 0], [0, -1], [0.2, 0], [1, 1], [0, 0.11], [0.1, -0.1], [0, 0]]),
            },
            {},
        )
    )
    half = np.sqrt(0.5)
    assert np.allclose(told, [[0, 1], [1, 0], [0, -1], [-1, 0], [half, half], [0, 0], [0, 0]], atol=1e-12)


def test_an_episode_has_begun_at_time_0_alone():
    assert Formula("begun")(Columns({"time": np.array([[0.0], [0.02], [9.0]])}, {})).tolist() == [[1], [0], [0]]


def test_the_last_action_is_told_in_the_order_asked_for():
    assert np.array_equal(Formula("last_action", ("b", "a"))(ROBOT), ROBOT.action[:, ::-1])
    assert np.array_equal(Formula("last_action", ("b",), (0.5,))(ROBOT), ROBOT.action[:, 1:] - 0.5)
    assert np.array_equal(Formula("last_action")(ROBOT), ROBOT.action)


# ---- reference motions


def at_phase(*phase, **more):
    return Columns({"phase": np.array(phase)[:, None], **more}, {})


def test_the_joints_of_a_motion_at_constant_speed_are_on_the_line_between_its_rows():
    line = np.outer(np.arange(6) / 50, [0.5, -2.0]) + [0.1, 0.2]
    f = Formula("reference_joints", ("a", "b"), (0.1, 0.2), frequency=50.0, table=tuple(line.ravel()))
    found = f(at_phase(0.0, 0.02, 0.031, 0.1, 7.0))
    t = np.array([0.0, 0.02, 0.031, 0.1, 0.1])  # it stays in its last row
    assert np.allclose(found[:, :2], np.outer(t, [0.5, -2.0]), atol=1e-12)
    assert np.allclose(found[:, 2:], [0.5, -2.0])


def yaw(angle):
    return np.stack([np.cos(angle / 2), 0 * angle, 0 * angle, np.sin(angle / 2)], -1)


def test_the_attitude_of_a_motion_is_seen_from_the_base():
    turning = yaw(np.arange(5) * 0.1)  # 0.1 rad each row
    f = Formula("reference_rotation", frequency=10.0, table=tuple(turning.ravel()))
    base, phase = np.array([0.0, 0.3, -0.2]), np.array([0.0, 0.2, 0.25])
    a = phase - base  # 10 rows a second, 0.1 rad each: the motion's heading is its phase
    expected = np.stack([np.cos(a), -np.sin(a), np.sin(a), np.cos(a), 0 * a, 0 * a], 1)
    assert np.allclose(f(at_phase(*phase, base_quat=yaw(base))), expected, atol=1e-12)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"table": (0.0, 1.0, 2.0)}, "table: expected at least two rows of 2, found 3 numbers"),
        ({"table": (0.0, 1.0)}, "table: expected at least two rows of 2, found 2 numbers"),
        ({"frequency": 0.0}, "frequency: expected the table's rows in a second, found 0"),
        ({"joints": ("a",)}, "joints: expected 4 columns, found 1 joints"),
        ({"offset": (0.0,)}, "offset: expected 4 numbers, found 1"),
    ],
)
def test_a_reference_whose_numbers_do_not_fit_is_refused(change, said):
    f = Formula("reference_joints", ("a", "b"), frequency=50.0, table=(0.0, 1.0, 2.0, 3.0))
    ObsTerm("reference_joints", f, 4).check("here")
    with pytest.raises(SurefootError, match=said):
        ObsTerm("reference_joints", replace(f, **change), 4).check("here")


def test_a_reference_goes_into_a_contract_and_comes_back_with_the_same_bits():
    for name, dim in (("reference_joints", 4), ("prompt", 3)):
        t = ObsTerm(name, EVERY[name], dim)
        assert ObsTerm.from_json(t.to_json(), "here") == t


# ---- the same from simulator, log and robot

EVERY = {
    **{name: formula for name, (formula, _) in KNOWN.items()},
    "projected_gravity": Formula("projected_gravity"), "gravity at a site": Formula("projected_gravity", frame="imu"),
    "clock": Formula("clock", frequency=1.3, still=0.05), "begun": Formula("begun"), "command": Formula("command"),
    "last_action": Formula("last_action", ("b", "a")),
    "tip_pos": Formula("tip_pos", ("hip", "knee"), links=(0.1, 0, 0.2, 0, 1, 0, 0, 0.3, 0, 0, 0, 0, 1, 0, 0.5, 0.1, 0.2)),
    "reference_joints": Formula("reference_joints", ("hip", "knee"), frequency=10.0, table=tuple(np.sin(np.arange(12.0)))),
    "reference_rotation": Formula("reference_rotation", frame="imu", frequency=4.0, table=(1, 0, 0, 0, 0.6, 0, 0, 0.8, 0.8, 0.6, 0, 0)),
    "prompt": Formula("prompt", frequency=10.0, table=tuple(np.cos(np.arange(12.0))), columns=3),
}  # fmt: skip


def test_every_kind_of_formula_is_among_them():
    """But for those that an estimator answers, which has a state (tests/estimate)."""
    assert {f.kind for f in EVERY.values()} == set(FORMULAS) - set(ESTIMATED)


def logged(moment, formula):
    """What a log holds of the readings a formula says it needs; joints in another order than the model's."""
    values = {name: np.array(moment.reading(name)) for name in formula.needs}
    names = {name: moment.parts(name) for name in formula.needs if moment.parts(name)}
    for name in names if formula.joints else ():  # a reference's joints are its own
        values[name], names[name] = values[name][:, ::-1], names[name][::-1]
    return Columns(values, names)


@pytest.mark.parametrize("name", EVERY)
def test_the_simulator_a_log_and_one_robot_are_told_the_same(name):
    formula, told = EVERY[name], EVERY[name](ROBOT)
    log = logged(ROBOT, formula)
    assert np.array_equal(formula(log), told) and len(told) == N
    for i in range(N):
        one = Columns({k: v if len(v) == 1 else v[i : i + 1] for k, v in log.values.items()}, log.names)
        assert np.array_equal(formula(one), told[i : i + 1])
        assert np.array_equal(formula(ROBOT.rows(np.array([i]))), told[i : i + 1])


@pytest.mark.parametrize("name", EVERY)
def test_a_formula_needs_what_it_says_and_nothing_else(name):
    formula, log = EVERY[name], logged(ROBOT, EVERY[name])
    for lost in formula.needs:
        few = Columns({k: v for k, v in log.values.items() if k != lost}, log.names)
        with pytest.raises(SurefootError, match=f"no reading matches '{lost}'"):
            formula(few)


@pytest.mark.parametrize(
    "formula, said",
    [
        (Formula("joint_pos", ("hip", "kneee")), "no joint matches 'kneee'; there are knee, ankle, hip; did you mean knee"),
        (Formula("reading", reading="attitud"), "no reading matches 'attitud'; .* did you mean attitude"),
        (Formula("base_ang_vel", frame="imuu"), "no reading matches 'base_ang_vel@imuu'; .* did you mean base_ang_vel@imu"),
        (Formula("last_action", ("c",)), "no joint matches 'c'; there are a, b"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused_by_name_with_the_nearest(formula, said):
    with pytest.raises(SurefootError, match=said):
        formula(ROBOT)


def test_a_log_without_a_reading_says_what_it_has():
    log = Columns({"joint_poss": np.zeros((1, 1))}, {"joint_poss": ("hip",)})
    with pytest.raises(SurefootError, match="no reading matches 'joint_pos'; there are joint_poss; did you mean joint_pos"):  # fmt: skip
        Formula("joint_pos")(log)


def test_a_robot_without_a_free_base_is_not_said_to_have_one():
    fixed = replace(ROBOT, layout=Layout(("hip",), (0,), (0,)))
    with pytest.raises(SurefootError, match="no reading matches 'base_pos'") as refused:
        Formula("base_pos")(fixed)
    assert "base_pos" not in str(refused.value).split("there are")[1]


def test_an_unknown_kind_of_formula_is_refused_with_the_nearest():
    with pytest.raises(SurefootError, match="no formula matches 'joint_poss'; .* did you mean joint_pos"):
        Formula("joint_poss")


# ---- clip, scale


def test_a_term_is_clipped_in_its_unit_and_then_scaled():
    group = ObsGroup((ObsTerm("x", None, 4, clip=2.0, scale=0.5), ObsTerm("y", None, 2, scale=-3.0)))
    told = group.finish(np.array([[-9, -1, 1, 9, 9, -9]], np.float32))
    assert told.tolist() == [[-1.0, -0.5, 0.5, 1.0, -27.0, 27.0]]


def test_each_column_may_have_a_scale_of_its_own():
    group = ObsGroup((ObsTerm("x", None, 3, clip=2.0, scale=(1.0, 10.0, -100.0)), ObsTerm("y", None, 1)))
    assert group.finish(np.array([[5, 5, 5, 5], [1, 1, 1, 1]], np.float32)).tolist() == [[2, 20, -200, 5], [1, 10, -100, 1]]  # fmt: skip
    assert group.scales.tolist() == [1, 10, -100, 1] and group.clips.tolist() == [2, 2, 2, np.inf]


def test_a_group_is_its_terms_side_by_side_and_nan_where_no_reading_tells():
    terms = (ObsTerm("w", Formula("base_ang_vel"), 3), ObsTerm("secret", None, 2), ObsTerm("u", Formula("command"), 3))
    group = ObsGroup(terms)
    raw = group.raw(ROBOT, N)
    assert raw.dtype == np.float32 and group.columns == [slice(0, 3), slice(3, 5), slice(5, 8)]
    assert np.allclose(raw[:, :3], ROBOT.v[:, 3:6]) and np.isnan(raw[:, 3:5]).all()
    assert np.allclose(raw[:, 5:], ROBOT.command)


# ---- history


@st.composite
def groups(draw):
    longest = draw(st.integers(1, 5))
    terms = tuple(
        ObsTerm(f"t{i}", None, draw(st.integers(1, 3)), history=draw(st.integers(0, longest)))
        for i in range(draw(st.integers(1, 4)))
    )
    return ObsGroup(terms, longest, draw(st.sampled_from(["frames", "terms"])), draw(st.sampled_from(["last", "first"])))  # fmt: skip


def by_hand(group, past):
    """What is told of frames `past`, oldest first, each a list of the terms' rows."""
    frames = list(enumerate(past)) if group.newest == "last" else list(enumerate(past))[::-1]
    heard = lambda i, k: k >= group.history - (group.terms[i].history or group.history)  # noqa: E731
    n = range(len(group.terms))
    if group.layout == "frames":
        parts = [frame[i] for k, frame in frames for i in n if heard(i, k)]
    else:
        parts = [frame[i] for i in n for k, frame in frames if heard(i, k)]
    return [x for part in parts for x in part]


@given(groups(), st.lists(st.sets(st.integers(0, 2)), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_a_history_is_what_a_loop_over_frames_makes_of_it(group, begins, seed):
    """Three rows; those that begin anew are told copies of their first frame, the others what they remember."""
    history, rng = History(group, 3), np.random.default_rng(seed)
    past = {}
    for k, new in enumerate(begins):
        new = {0, 1, 2} if k == 0 else new
        frame = rng.integers(-1000, 1000, (3, group.frame)).astype(np.float32)
        if k > 0:
            ids = np.array([2, 0])
            would = history.next(frame[ids], ids)
        told = history.push(frame, np.array(sorted(new), int))
        for i in range(3):
            now = [frame[i, at].tolist() for at in group.columns]
            past[i] = [now] * group.history if i in new else [*past[i][1:], now]
            assert told[i].tolist() == by_hand(group, past[i])
            if k > 0 and i in ids and i not in new:
                assert would[ids.tolist().index(i)].tolist() == told[i].tolist()
    assert told.shape == (3, group.dim) and told.dtype == np.float32


def test_what_was_told_stays_as_it_was():
    history = History(ObsGroup((ObsTerm("x", None, 1),), 2), 1)
    first = history.push(np.array([[1.0]], np.float32), np.array([0]))
    history.push(np.array([[2.0]], np.float32), np.array([], int))
    assert first.tolist() == [[1.0, 1.0]]


def test_two_frames_are_laid_out_as_written_down():
    terms = (ObsTerm("a", None, 2), ObsTerm("b", None, 1))
    frames = np.array([[[1, 2, 3], [4, 5, 6]]], np.float32)
    told = lambda **how: ObsGroup(terms, 2, **how).flat(frames)[0].tolist()  # noqa: E731
    assert told() == [1, 2, 3, 4, 5, 6] and told(newest="first") == [4, 5, 6, 1, 2, 3]
    assert told(layout="terms") == [1, 2, 4, 5, 3, 6] and told(layout="terms", newest="first") == [4, 5, 1, 2, 6, 3]
    short = (terms[0], replace(terms[1], history=1))
    assert ObsGroup(short, 2).flat(frames)[0].tolist() == [1, 2, 4, 5, 6] and ObsGroup(short, 2).dim == 5


# ---- terms that cannot be


@pytest.mark.parametrize(
    "term, said",
    [
        (ObsTerm("x", Formula("rotation"), 4), "x: dim"),
        (ObsTerm("x", Formula("begun"), 3), "x: dim"),
        (ObsTerm("x", Formula("joint_state", ("hip", "knee"), (0.0,) * 4), 4), "x: offset"),
        (ObsTerm("x", Formula("reading"), 1), "x: reading"),
    ],
)
def test_a_formula_that_cannot_fill_its_term_is_refused_before_it_is_asked(term, said):
    with pytest.raises(SurefootError, match=said):
        term.check("c")


def test_a_single_row_is_clipped_and_scaled_to_the_bits_of_the_same_row_among_many():
    terms = (
        ObsTerm("a", None, 2, clip=0.1, scale=0.3),
        ObsTerm("b", None, 2, scale=(0.7, -2.0)),
        ObsTerm("c", None, 3),
    )
    group = ObsGroup(terms)
    raw = np.random.default_rng(0).standard_normal((300, 7)).astype(np.float32)
    raw[::3, :2], raw[1::3, 3] = np.float32(0.1), np.nan
    many = group.finish(raw.copy())
    for k in range(300):
        assert np.array_equal(group.finish(raw[k : k + 1].copy())[0], many[k], equal_nan=True)
