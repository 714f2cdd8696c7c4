"""Tracking a motion: targets, rewards and ends against plain MuJoCo, and a policy that learns to follow."""

import json
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.cli import main
from surefoot.contract import Contract, base_columns
from surefoot.errors import SurefootError
from surefoot.learn.collect import LocalCollector
from surefoot.learn.off_policy.settings import FastSACSettings
from surefoot.log import Log
from surefoot.motion.made import from_poses
from surefoot.rng import Rows
from surefoot.robot import Robot
from surefoot.rotation import unit
from surefoot.sim.model.load import load_robot
from surefoot.task import quiet as silent
from surefoot.tasks.build import track as tracking
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.ready.humanoid_model import JOINTS, stand, xml
from surefoot.tasks.rollout import contract_of
from surefoot.tasks.terms import tracking as terms

ROBOT = Robot.text(xml(), "humanoid")
LEGS = read_legged(ROBOT, "free")[0]


def squat() -> Log:
    """A squat with arms that wave, 2.4 s."""
    home = {j: stand(j) for j in JOINTS}
    bent = {
        f"{s}_{j}": a for s in ("left", "right") for j, a in (("hip_pitch", -0.6), ("knee", 1.2), ("ankle_pitch", -0.6))
    }
    wide = {"left_shoulder_roll": 0.8, "right_shoulder_roll": -0.8}
    return from_poses(
        ROBOT, LEGS.feet, [(0, home), (0.2, home), (1.0, bent | wide), (1.4, {"left_elbow": -0.3}), (2.4, home)]
    )


MOTION = squat()
TASK = tasks.track(ROBOT, MOTION)


def at(env, rows, base=(0, 0, 0), turn=0.0):
    """All envs in these rows of the motion, moved and turned about the vertical; no noise."""
    starts = TASK.clip.begin
    q, v = starts.ref.q[rows].copy(), starts.ref.v[rows].copy()
    half = np.array([np.cos(turn / 2), 0, 0, np.sin(turn / 2)])
    for x, w in zip(q, v):
        p, quat = x[:3].copy(), x[3:7].copy()
        mujoco.mju_rotVecQuat(x[:3], p, half)
        mujoco.mju_mulQuat(x[3:7], half, quat)
        lin = w[:3].copy()
        mujoco.mju_rotVecQuat(w[:3], lin, half)
        x[:3] += base
    env.reset()
    env.world.reset(np.arange(env.n), env.world.state.e, replace(env.task.episode(_Rng(), env.n).start, q=q, v=v))
    env.phase[:] = np.array(rows) * starts.ref.period
    return env.moment


class _Rng:
    def uniform(self, low, high, size):
        return np.zeros(size)


@pytest.fixture(scope="module")
def env():
    return tasks.env(TASK, 4, seed=0)


def test_on_the_motion_every_reward_is_whole_and_nothing_ends(env):
    s = at(env, [0, 30, 60, 100])
    for name in ("anchor_pos", "anchor_ori", "body_pos", "body_ori", "body_lin_vel", "body_ang_vel"):
        assert np.allclose(TASK.rewards[name].compute(s), 1.0, atol=0.02), name  # velocities are central differences
    assert np.allclose(TASK.error(s), 0.0, atol=1e-4)
    assert not any(hit(s).any() for hit in TASK.ended.values())


def test_drift_and_heading_cost_the_anchor_and_not_the_bodies(env):
    s = at(env, [0, 30, 60, 100], base=(0.3, -0.4, 0), turn=0.5)
    assert np.allclose(TASK.error(s), 0.0, atol=1e-4)
    assert np.allclose(TASK.rewards["body_pos"].compute(s), 1.0, atol=1e-4)
    assert np.allclose(TASK.rewards["body_ori"].compute(s), 1.0, atol=1e-4)
    assert np.allclose(TASK.rewards["anchor_ori"].compute(s), np.exp(-((0.5 / 0.4) ** 2)), atol=1e-3)
    s = at(env, [0, 30, 60, 100], base=(0.3, -0.4, 0))
    size = LEGS.length / tracking.L0
    assert np.allclose(TASK.rewards["anchor_pos"].compute(s), np.exp(-((0.5 / (0.3 * size)) ** 2)), atol=1e-3)


def test_a_base_that_is_too_low_ends_the_episode_and_its_bodies_are_low_by_as_much(env):
    for down, ends in ((0.2, False), (0.3, True)):
        s = at(env, [0, 30, 60, 100], base=(0, 0, -down))
        assert (TASK.ended["base height"](s) == ends).all() and (TASK.ended["hand or foot height"](s) == ends).all()
        assert np.allclose(TASK.error(s), down, atol=1e-4)
        assert not TASK.ended["base tilt"](s).any()


def test_bodies_of_the_motion_are_where_mujoco_has_them():
    ref, m = TASK.clip.begin.ref, load_robot(TASK.robot).model
    d = mujoco.MjData(m)
    names = tracking.family(m, "body_pos")
    for k in (0, 40, 90):
        d.qpos[:], d.qvel[:] = ref.q[k], ref.v[k]
        mujoco.mj_forward(m, d)
        for b, name in enumerate(names):
            v = np.zeros(6)
            mujoco.mj_objectVelocity(m, d, mujoco.mjtObj.mjOBJ_XBODY, m.body(name).id, v, 0)
            assert np.allclose(ref.pos[k, b], d.body(name).xpos) and np.allclose(ref.quat[k, b], d.body(name).xquat)
            assert np.allclose(ref.ang_vel[k, b], v[:3], atol=0.05) and np.allclose(ref.lin_vel[k, b], v[3:], atol=0.05)
    assert {"pelvis", "left_foot", "right_foot", "left_hand", "right_hand"} <= set(names) and names[0] == "pelvis"
    ends = tracking._ends(m, names)
    assert {names[i] for i in ends} == {"left_foot", "right_foot", "left_hand", "right_hand"}


def test_evaluation_begins_with_the_motion_and_training_anywhere():
    env = tasks.env(TASK, 64, seed=1)
    env.reset()
    assert (env.phase == 0).all()
    env.chances = np.array([0.0, 1.0])
    env.reset(seed=2)
    half = TASK.clip.seconds / 2
    assert TASK.clip.parts == 2 and (env.phase >= half - 0.02).all() and np.ptp(env.phase) > 0.8 * half
    at_phase = TASK.clip.begin.ref.q[np.rint(env.phase / 0.02).astype(int)]
    assert np.abs(env.world.state.q[:, 7:] - at_phase[:, 7:]).max() <= tracking.JOINT + 1e-9


def test_an_evaluation_begins_as_fast_as_the_motion_and_training_throws_the_base():
    first = TASK.clip.begin.ref.v[0]
    for begin, thrown in ((TASK.episode, 0.0), (TASK.clip.begin.thrown, 1.0)):
        off = begin(Rows(0, "start", 0, np.arange(500)), 500).start.v - first
        assert np.allclose(np.abs(off[:, :6]).max(0), thrown * tracking.SPEED, rtol=0.02) and not off[:, 6:].any()


def test_an_episode_ends_with_the_motion_in_time_and_its_error_is_a_mean_over_its_own_time():
    env = tasks.env(TASK, 8, seed=1)
    env.chances = np.array([0.0, 1.0])
    env.reset()
    left = np.rint((TASK.clip.seconds - env.phase) / 0.02).astype(int)
    env.task = replace(TASK, ended={}, error=lambda s: np.full(len(s.q), 0.07))
    first = np.ones(8, bool)
    for k in range(1, left.max() + 1):
        step = env.step(np.zeros((8, 23)))
        assert (step.truncated == (left == k))[first].all()
        if step.episodes is not None:
            assert np.allclose(step.episodes.error, 0.07) and step.episodes.success.all()
            assert np.allclose(step.episodes.phase, TASK.clip.seconds)
        first &= ~step.truncated  # they begin again, anywhere


def test_the_contract_carries_the_motion_and_a_robot_works_out_the_same_observation():
    layout = tasks.env(TASK, 1).world.layout
    contract = contract_of(TASK, layout, 50.0)
    back = Contract.from_json(json.loads(json.dumps(contract.to_json())))
    assert back == contract and not contract.differences(back)
    env = tasks.env(replace(TASK, observations={"actor": back.observation}), 4, seed=3)
    here = tasks.env(replace(TASK, observations={"actor": TASK.observations["actor"]}), 4, seed=3)
    assert np.array_equal(env.reset()["actor"], here.reset()["actor"])
    other = contract_of(tasks.track(ROBOT, _changed()), layout, 50.0)
    said = contract.differences(other)
    assert any("reference_joints" in words for words in said) and max(map(len, said)) < 500


def _changed() -> Log:
    joints = MOTION["joint_pos"].copy()
    joints[:, 0] += 0.01
    return Log(MOTION.time, {**MOTION.columns, "joint_pos": joints}, meta=MOTION.meta)


def test_joints_that_the_motion_does_not_name_stay_in_the_default_pose():
    few = [j for j in JOINTS if "wrist" not in j]
    own = [JOINTS.index(j) for j in few]
    motion = Log(MOTION.time, {**MOTION.columns, "joint_pos": MOTION["joint_pos"][:, own]}, meta={"names": {"joint_pos": few}})  # fmt: skip
    task = tasks.track(ROBOT, motion)
    assert list(task.action.names) == few
    with pytest.raises(SurefootError, match="motion: no driven joint matches 'elbow'; .* did you mean left_elbow"):
        tasks.track(ROBOT, Log(MOTION.time, MOTION.columns, meta={"names": {"joint_pos": ["elbow", *JOINTS[1:]]}}))


def test_the_reward_of_the_anchored_targets_is_that_of_a_loop_written_out(env):
    s = at(env, [0, 30, 60, 100], base=(0.1, 0, 0.05), turn=0.3)
    ref, pos = TASK.clip.begin.ref, terms.bodies(s, "pos")
    for i, k in enumerate([0, 30, 60, 100]):
        errors = []
        for b in range(pos.shape[1]):
            away = np.zeros(3)
            mujoco.mju_rotVecQuat(away, ref.pos[k, b] - ref.pos[k, 0], np.array([np.cos(0.15), 0, 0, np.sin(0.15)]))
            target = away + [pos[i, 0, 0], pos[i, 0, 1], ref.pos[k, 0, 2]]
            errors.append(np.sum((target - pos[i, b]) ** 2))
        size = LEGS.length / tracking.L0
        assert np.isclose(
            TASK.rewards["body_pos"].compute(s)[i], np.exp(-np.mean(errors) / (0.3 * size) ** 2), atol=1e-4
        )


def test_what_ppo_adds_to_holds_the_joints_of_the_motion():
    """Before anything is learned each servo is told where its joint is in the motion, at any phase and history, and so far ahead that
    its damping acts on what the joint is slower than in the motion: kp (target - q) - kd v = kp (q* - q) + kd (v* - v)."""
    from surefoot.learn.train import plan

    for history in (1, 3):
        spec, parents = plan(TASK, obs=tasks.ObsOverride(history=history))
        env = tasks.env(tasks.with_override(TASK, tasks.ObsOverride(history=history)), 64, seed=2)
        env.chances = np.array([0.5, 0.5])
        obs, ref = env.reset()["actor"], TASK.clip.begin.ref
        columns = base_columns(contract_of(env.task, env.world.layout, 50.0), parents.base.contract)
        row, ahead = np.rint(env.phase / 0.02).astype(int), [j.kd / j.kp for j in LEGS.joints.values()]
        wanted = ref.q[row, 7:] + ahead * np.gradient(ref.q[:, 7:], 0.02, axis=0)[row]
        assert np.allclose(TASK.action.control(parents.base(obs[:, columns])), wanted, atol=1e-4)
        assert spec.residual.scale == 1.0 and spec.residual.burn_in == 0.0
    farthest = np.abs((ref.q[:, 7:] + ahead * ref.v[:, 6:] - TASK.action.offset) / TASK.action.scale).max()
    assert TASK.action.limit >= farthest + 10.0  # so that the limit takes nothing from what is learned


def test_a_mirrored_robot_that_follows_the_mirrored_motion_observes_the_mirror_image():
    """Two tasks, one of the motion with left and right exchanged; states that are each other's mirror image, by plain geometry."""
    order, sign = TASK.symmetry.action
    joints = sign * MOTION["joint_pos"][:, order]
    flipped = Log(MOTION.time, {"base_pos": MOTION["base_pos"] * [1, -1, 1], "base_quat": MOTION["base_quat"] * [1, -1, 1, -1], "joint_pos": joints}, meta=MOTION.meta)  # fmt: skip
    rng, found = np.random.default_rng(0), []
    q, v = 0.3 * rng.standard_normal((8, 30)), rng.standard_normal((8, 29))
    q[:, 3:7] = unit(np.array([1.0, 0, 0, 0]) + 0.3 * rng.standard_normal((8, 4)))
    mirror = (
        np.concatenate([q[:, :3] * [1, -1, 1], q[:, 3:7] * [1, -1, 1, -1], sign * q[:, 7:][:, order]], 1),
        np.concatenate([v[:, :3] * [1, -1, 1], v[:, 3:6] * [-1, 1, -1], sign * v[:, 6:][:, order]], 1),
    )
    for task, (a, b) in ((TASK, (q, v)), (tasks.track(ROBOT, flipped), mirror)):
        quiet, e = silent(task)
        env = tasks.env(quiet, 8, point(task.params, e), seed=1)
        env.reset()
        env.world.reset(np.arange(8), env.world.state.e, replace(task.episode(_Rng(), 8).start, q=a, v=b))
        env.phase[:] = np.arange(8) * 0.3
        group = quiet.observations["actor"]
        found.append({t.name: t.formula(env.moment) for t in group.terms})
    for name, (at, turn) in TASK.symmetry.terms.items():
        assert np.allclose(turn * found[0][name][:, at], found[1][name], atol=1e-6), name


def test_a_run_adds_to_the_motions_joints_unless_it_is_told_not_to(tmp_path):
    from surefoot.learn.settings import PPOSettings
    from surefoot.learn.train import plan, settings_of, train

    few = {"settings": PPOSettings(envs=4, horizon=4, steps=16, minibatches=1, hidden=(4,), learner_threads=1)}
    with_law = settings_of(train(TASK, tmp_path / "law", **few).parent)
    assert (
        plan(TASK, **with_law)[0].base == plan(TASK, **few)[0].base != ""
    )  # trained again in other worlds, it has it, too
    without = settings_of(train(TASK, tmp_path / "bare", base=Path("none"), **few).parent)
    assert plan(TASK, **without)[0].base == "" and not (tmp_path / "bare" / "base").exists()
    blind = tasks.ObsOverride(only=("joint_pos", "joint_vel"))
    assert plan(TASK, obs=blind)[0].base == ""  # a policy that does not observe the motion has nothing to add to
    assert plan(TASK, settings=FastSACSettings())[0].base == ""
    assert plan(TASK, start=tmp_path / "bare", **few)[0].base == ""  # it began without


def test_training_that_is_stopped_goes_on_with_the_same_starts():
    def collector():
        return LocalCollector(tasks.env(TASK, 16, TASK.belief, 1, stagger=True))

    def act(obs, draws):
        return np.sin(9.0 * obs["actor"][:, :23]), {}  # it falls soon

    whole, first = collector(), collector()
    for each in (whole, first):
        each.collect(act, 60)
    second = collector()
    second.load(first.save())
    assert np.array_equal(second.starts.failed, whole.starts.failed) and whole.starts.failed.any()
    assert np.array_equal(second.collect(act, 30).reward, whole.collect(act, 30).reward)
    assert np.array_equal(second.blocks.envs[0].phase, whole.blocks.envs[0].phase)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "humanoid.xml").write_text(xml())
    MOTION.save(tmp_path / "squat.npz")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_new_track_writes_a_task_that_follows_the_motion(folder, capsys):
    assert main(["new", "track", "humanoid.xml", "--motion", "squat.npz", "--out", "squat.py"]) == 0
    said = capsys.readouterr().out
    assert "23 joints follow the motion" in said and "next: surefoot train squat.py --out run" in said
    made = tasks.resolve("squat.py")
    assert np.isclose(made.clip.seconds, 2.4) and made.rewards.keys() == TASK.rewards.keys()
    names = [t.name for t in made.observations["actor"].terms]
    assert names[:2] == ["reference_joints", "reference_rotation"] and "base_lin_vel" not in names


def test_new_track_says_what_it_lacks(folder, capsys):
    assert main(["new", "track", "humanoid.xml"]) != 0
    assert "motion: found none: give --motion FILE" in capsys.readouterr().err
    assert main(["new", "track", "humanoid.xml", "--motion", "none.npz"]) != 0
    assert "none.npz: no such motion file" in capsys.readouterr().err
    assert main(["new", "velocity", "humanoid.xml", "--motion", "squat.npz"]) != 0
    assert "motion: found squat.npz, expected none for velocity" in capsys.readouterr().err


def test_a_changed_motion_is_named_when_a_policy_is_judged(folder):
    from surefoot.tasks.provenance import changes, provenance

    assert main(["new", "track", "humanoid.xml", "--motion", "squat.npz", "--out", "squat.py"]) == 0
    was = provenance(tasks.resolve("squat.py"), "squat.py")
    _changed().save(folder / "squat.npz")
    [said] = changes(was, provenance(tasks.resolve("squat.py"), "squat.py"))
    assert "reference motion: 2.4 s, sha256" in said


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_minute_of_training_follows_better_and_longer_and_every_verb_works(folder):
    assert main(["new", "track", "humanoid.xml", "--motion", "squat.npz", "--out", "squat.py"]) == 0
    task, found = tasks.resolve("squat.py"), {}
    for name, steps in (("none", 0), ("run", 150_000)):
        found[name] = _evaluated(task, folder / name, steps)
    assert found["run"][0] > 1.1 * found["none"][0] and found["run"][1] > 1.1 * found["none"][1]
    for line in ("eval run --episodes 4", "play run --record film.gif --seconds 0.5", "export run --out policy.onnx"):
        assert main(line.split()) == 0, line
    assert main("gate run --episodes 20".split()) in (0, 1) and (folder / "run" / "gate.html").is_file()


def _evaluated(task, out, steps):
    """Mean return and length of episodes that begin with the motion, after training for this many steps."""
    from surefoot.deploy.bundle import load
    from surefoot.learn.train import settings_for, train
    from surefoot.tasks.rollout import evaluate

    settings = settings_for("squat.py", {"steps": max(steps, 1), "envs": 64, "hidden": (128, 128)})
    got = evaluate(load(train("squat.py", out, settings=settings, seed=0)), tasks.env(task, 64, seed=5))
    return float(got.returns.mean()), float(got.lengths.mean())


def test_one_task_of_two_motions_begins_with_either_and_ends_where_its_own_ends():
    both = tasks.track(ROBOT, [MOTION, MOTION.slice(0.0, 1.0)])
    ends = both.clip.ends
    rows = len(TASK.clip.begin.ref.q)
    assert len(ends) == 1 and ends[0] == pytest.approx(TASK.clip.seconds) and both.clip.seconds > ends[0] + 0.9
    assert np.array_equal(both.clip.begin.ref.q[:rows], TASK.clip.begin.ref.q)
    env = tasks.env(both, 16, seed=1)
    env.reset()
    assert set(np.rint(env.phase / 0.02).astype(int)) == {0, rows}
    env.task = replace(both, ended={}, error=lambda s: np.full(len(s.q), 0.07))
    left = np.where(env.phase == 0, rows - 1, len(both.clip.begin.ref.q) - rows - 1)
    first = np.ones(16, bool)
    for k in range(1, left.max() + 1):
        step = env.step(np.zeros((16, 23)))
        assert (step.truncated == (left == k))[first].all()
        first &= ~step.truncated
    assert not first.any()


def test_nobody_begins_where_one_of_several_motions_ends():
    both = tasks.track(ROBOT, [MOTION, MOTION])
    env = tasks.env(both, 512, seed=1)
    env.chances = np.full(both.clip.parts, 1 / both.clip.parts)
    env.reset()
    row = np.rint(env.phase / 0.02).astype(int)
    assert not np.isin(row, both.clip.begin.ends).any() and (row > both.clip.begin.ends[0]).mean() > 0.4


def test_motions_of_other_joints_are_refused():
    part = Log(
        MOTION.time,
        {**MOTION.columns, "joint_pos": MOTION["joint_pos"][:, :5]},
        meta={"names": {"joint_pos": JOINTS[:5]}},
    )
    with pytest.raises(SurefootError, match="motion 2: found joints"):
        tasks.track(ROBOT, [MOTION, part])
