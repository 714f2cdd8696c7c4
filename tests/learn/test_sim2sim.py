"""Two worlds: the support world is the same robot made easy, the forward model tells where it goes, the student is paid for going there."""

import json
import math
from dataclasses import replace

import mujoco
import numpy as np
import pytest
import torch

from surefoot import tasks
from surefoot.belief import Box, point
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn import envs
from surefoot.learn import train as learn
from surefoot.learn.collect import FLAGS, Rollout
from surefoot.learn.nets.export import load_net
from surefoot.learn.run.parents import Parents, kept, spec_of
from surefoot.learn.runspec import RunSpec
from surefoot.learn.sim2sim import forward
from surefoot.learn.sim2sim.forward import ForwardLearner, ForwardModel, Meaning
from surefoot.learn.sim2sim.imitate import TEACHER, Imitating, best_rate, faded, matches
from surefoot.learn.sim2sim.prime import SameTorque
from surefoot.learn.sim2sim.settings import Easy, Forward, Imitation
from surefoot.learn.sim2sim.support import KINEMATIC, easy, easy_belief, stiffened, teachers, with_kinematics
from surefoot.sim.model.load import load_robot
from surefoot.tasks.rollout import contract

SMALL = {"envs": 8, "horizon": 8, "hidden": (8,), "minibatches": 2, "steps": 8 * 8 * 3, "learner_threads": 1}
WORDS = [w for k, v in SMALL.items() for w in (f"--{k.replace('_', '-')}", *(str(x) for x in (v if isinstance(v, tuple) else (v,))))]  # fmt: skip


def arm(how=None):
    task = tasks.resolve("arm")
    return task if how is None else easy(task, how)


def rollout(T=5, n=3, **groups):
    flags = {k: np.zeros((T, n), bool) for k in FLAGS} | {"valid": np.ones((T, n), bool)}
    return Rollout(groups, {}, np.zeros((T, n), np.float32), flags)


def model(inputs=2, width=2, seed=0):
    meaning = Meaning(("obs",), 1, inputs, (("joint_pos", width),), (4,))
    return ForwardModel(meaning, torch.Generator().manual_seed(seed))


def test_a_support_world_is_softer_at_the_same_damping_ratio_without_limits_and_dry_friction():
    was, now = (load_robot(t.robot).model for t in (arm(), arm(Easy(gain=0.25))))
    kp, kd = (-was.actuator_biasprm[:, k] for k in (1, 2))
    assert now.actuator_gainprm[:, 0] == pytest.approx(kp / 4) and -now.actuator_biasprm[:, 1] == pytest.approx(kp / 4)
    ratio = lambda m: m.actuator_biasprm[:, 2] ** 2 / m.actuator_biasprm[:, 1]  # noqa: E731
    assert ratio(now) == pytest.approx(ratio(was)) and -now.actuator_biasprm[:, 2] == pytest.approx(kd / 2)
    assert was.actuator_forcelimited.all() and not now.actuator_forcelimited.any()
    assert was.dof_frictionloss.all() and not now.dof_frictionloss.any()
    kept_all = load_robot(arm(Easy(1.0, True, True, True)).robot).model
    assert kept_all.actuator_forcelimited.all() and (kept_all.dof_frictionloss == was.dof_frictionloss).all()


def test_a_motor_without_a_position_gain_stays_as_it_is():
    spec = mujoco.MjSpec.from_string(tasks.resolve("balance").robot.xml)
    before = spec.compile().actuator_gainprm.copy()
    stiffened(spec, 4.0)
    assert (spec.compile().actuator_gainprm == before).all()


def test_a_teacher_does_not_observe_its_last_action_which_means_another_torque_elsewhere():
    assert teachers(arm()).only == ("joint_pos", "joint_vel", "command")
    assert teachers(arm(), tasks.ObsOverride(only=("joint_pos",))).only == ("joint_pos",)
    assert teachers(tasks.resolve("balance")) == tasks.ObsOverride()


def test_a_support_world_has_no_latency_whatever_was_believed_of_it():
    task = arm()
    own, soft = task.belief, easy_belief(task.belief, Easy())
    at = task.params.index("latency")
    assert own.high[at] > 0 and soft.low[at] == soft.high[at] == 0.0
    others = np.arange(len(own.low)) != at
    assert (soft.low[others] == own.low[others]).all() and (soft.high[others] == own.high[others]).all()
    assert easy_belief(own, Easy(latency=True)) is own
    late = point(task.params, task.params.vector({"latency": 0.04}))
    assert isinstance(easy_belief(late, Easy()), Box) and easy_belief(late, Easy()).low[at] == 0.0


def test_what_both_worlds_share_is_where_the_joints_and_the_base_are():
    env = tasks.env(with_kinematics(arm()), 4, seed=1)
    env.reset()
    shown = env.step(np.full((4, 2), 0.3)).obs[KINEMATIC]
    assert np.allclose(shown, np.concatenate([env.world.state.q, env.world.state.v], 1), atol=1e-6)
    group = with_kinematics(tasks.resolve("walk")).observations[KINEMATIC]
    assert [(t.name, t.dim) for t in group.terms] == [
        ("joint_pos", 12), ("joint_vel", 12), ("base_up", 3), ("base_lin_vel", 3), ("base_ang_vel", 3), ("base_height", 1), ("touch", 4)
    ]  # fmt: skip


def test_a_base_that_stands_upright_has_its_up_axis_along_z_and_one_on_its_side_does_not():
    group = with_kinematics(tasks.resolve("walk")).observations[KINEMATIC]
    env = tasks.env(tasks.resolve("walk"), 2)
    env.reset()
    q = env.world.state.q.copy()
    q[:, 3:7] = [[1, 0, 0, 0], [math.sqrt(0.5), math.sqrt(0.5), 0, 0]]  # level; rolled by 90 degrees to its right
    env.world.set_state(q, np.zeros_like(env.world.state.v))
    up = next(t for t in group.terms if t.name == "base_up").source(env.moment)
    assert np.allclose(up, [[0, 0, 1], [0, 1, 0]], atol=1e-9)


def test_a_forward_model_learns_a_linear_law_and_how_far_it_moves_in_a_period():
    task = with_kinematics(tasks.resolve("balance"))
    mine = ForwardLearner(task, Forward(hidden=(8,), lr=1e-2, epochs=4), seed=0)
    law = np.eye(4) + 0.1 * np.random.default_rng(0).normal(size=(4, 4))
    for k in range(40):
        k_now = np.random.default_rng(k).normal(size=(9, 64, 4)).astype(np.float32)
        for t in range(8):
            k_now[t + 1] = k_now[t] @ law.T
        facts = mine.take(rollout(8, 64, actor=k_now, **{KINEMATIC: k_now}), k, 40)
    spread = float(np.abs(k_now[1:] - k_now[:-1]).mean())
    assert facts["forward/joint_pos"] < 0.1 * spread and facts["forward/joint_vel"] < 0.1 * spread
    assert mine.model.change_sd.numpy() == pytest.approx(
        np.sqrt(np.square(k_now[1:] - k_now[:-1]).mean((0, 1))), rel=0.2
    )


def test_a_step_that_ends_an_episode_teaches_the_forward_model_nothing():
    k = np.arange(6 * 3 * 2, dtype=np.float32).reshape(6, 3, 2)
    r = rollout(5, 3, actor=k, **{KINEMATIC: k})
    r.flags["terminated"][1, 0] = r.flags["truncated"][2, 1] = True
    r.flags["valid"][3, 2] = False
    obs, now, after = forward.transitions(r)
    assert len(obs) == 15 - 3 and torch.equal(after - now, torch.full_like(now, 6.0)) and torch.equal(obs, now)


def test_a_step_to_where_the_model_said_earns_all_and_one_a_unit_off_earns_exp_minus_one():
    m = model()
    m.moved.var.fill_(4.0)  # it moves by 2 in a period
    obs = np.random.default_rng(0).normal(size=(6, 3, 2)).astype(np.float32)
    with torch.no_grad():
        said = m(torch.from_numpy(obs[:-1]).reshape(15, 2)).reshape(5, 3, 2).numpy()
    k = np.concatenate([np.zeros((1, 3, 2), np.float32), said])
    r = rollout(5, 3, **{TEACHER: obs, KINEMATIC: k})
    assert matches(m, r, 1.0) == pytest.approx(np.ones((5, 3)))
    k[1:, 1] += 2.0
    assert matches(m, r, 1.0)[:, 1] == pytest.approx(np.full(5, math.exp(-1)), rel=1e-4)
    assert matches(m, r, 2.0)[:, 1] == pytest.approx(np.full(5, math.exp(-0.25)), rel=1e-4)
    r.flags["terminated"][2, 0] = True
    r.flags["valid"][3, 0] = False
    assert matches(m, r, 1.0)[2:4, 0].tolist() == [0.0, 0.0]


def test_the_last_step_before_a_time_out_is_compared_with_the_state_before_the_reset():
    m, obs = model(), np.ones((3, 2, 2), np.float32)
    with torch.no_grad():
        said = m(torch.from_numpy(obs[0])).numpy()
    r = rollout(2, 2, **{TEACHER: obs, KINEMATIC: np.full((3, 2, 2), 99.0, np.float32)})
    r.flags["truncated"][0, 1] = r.flags["final"][0, 1] = True
    r.last.append((0, np.array([1]), {KINEMATIC: said[1:], TEACHER: obs[0, 1:]}))
    assert matches(m, r, 1.0)[0] == pytest.approx([0.0, 1.0])


def test_imitation_fades_evenly_and_is_counted_in_the_task_s_own_reward():
    assert [faded(0.5, x) for x in (0.0, 0.25, 0.5, 0.9)] == [1.0, 0.5, 0.0, 0.0] and faded(1.0, 1.0) == 1.0
    assert best_rate(tasks.resolve("arm")) == 3.0  # `near` alone is positive
    assert best_rate(tasks.resolve("balance")) == pytest.approx(50.0)


def test_a_forward_model_comes_back_from_its_file_and_a_broken_file_is_refused(tmp_path):
    m = model(seed=3)
    (tmp_path / forward.NAME).write_bytes(forward.to_bytes(m))
    again = forward.read(tmp_path)
    assert forward.digest(again) == forward.digest(m) and again.meaning == m.meaning
    (tmp_path / forward.NAME).write_bytes(forward.to_bytes(m)[:-40])
    with pytest.raises(SurefootError, match="not a safetensors file"):
        forward.read(tmp_path)
    with pytest.raises(SurefootError, match=r"no such file; expected a run of a support world"):
        forward.read(tmp_path / "nothing")


def test_a_forward_model_of_another_robot_is_refused_by_its_terms():
    with pytest.raises(SurefootError, match=r"predicts joint_pos 2; task arm has joint_pos 2, joint_vel 2"):
        Imitating(with_kinematics(arm()), model(), Imitation(), 0.02)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    assert main(["train", "arm", "--support", "easy", "--support-steps", "192", "--out", str(out), *WORDS]) == 0
    return out


def test_one_command_trains_a_teacher_and_a_student_that_has_the_teacher_s_model(runs):
    teacher, student = spec_of(runs / "teacher"), spec_of(runs / "student")
    assert teacher.easy == Easy() and teacher.forward == Forward() and not teacher.reference
    assert student.easy is None and student.imitation == Imitation()
    assert student.reference == forward.digest(forward.read(runs / "teacher"))
    rows = [json.loads(x) for x in (runs / "student" / "metrics.jsonl").read_text().splitlines()]
    assert all(0 < row["imitation"] <= 1 for row in rows)
    rows = [json.loads(x) for x in (runs / "teacher" / "metrics.jsonl").read_text().splitlines()]
    assert all(row["forward/joint_pos"] > 0 for row in rows)


@pytest.mark.parametrize("which", ["teacher", "student"])
def test_a_run_of_two_worlds_goes_on_with_the_same_bits(runs, which, tmp_path):
    spec = spec_of(runs / which)
    task = tasks.resolve("arm")
    parents = kept(runs / which, spec, task)
    place = envs.Place(1)

    class Quiet:
        notes: list[str] = []

    whole, other = (learn.build(spec, task, parents, place, Quiet()) for _ in range(2))
    whole.iterate()
    saved = whole.save()
    other.load(*saved)
    rows = [x.iterate() for x in (whole, other)]
    assert rows[0] == rows[1]
    assert all(np.array_equal(v, other.save()[0][k]) for k, v in whole.save()[0].items())


def test_the_student_s_first_actions_give_the_teacher_s_torque_in_its_own_servos(runs):
    """tau = kp (u - q) - kd v, worked out in both worlds."""
    policy = load_net(runs / "teacher")
    env = tasks.env(with_kinematics(arm()), 5, seed=2)
    own = contract(env.task, env.world)
    law = SameTorque(policy, own, env.world.layout.joints, {"joint_pos": slice(0, 2), "joint_vel": slice(2, 4)})
    obs = {"actor": tasks.env(tasks.for_contract(arm(), policy.contract), 5, seed=2).reset()["actor"]}
    q, v = (np.random.default_rng(k).normal(0, 0.2, (5, 2)) for k in range(2))
    u = own.action.control(law(obs["actor"], np.concatenate([q, v], 1).astype(np.float32)))
    with torch.no_grad():
        there = policy(torch.from_numpy(obs["actor"])).numpy()
    soft = policy.contract
    u_soft = soft.action.control(soft.action.bounded(there))
    torque = [np.array(c.kp) * (x - q) - np.array(c.kd) * v for c, x in ((own, u), (soft, u_soft))]
    assert np.allclose(torque[0], torque[1], atol=1e-3) and np.array(own.kp) == pytest.approx(4 * np.array(soft.kp))


def test_a_primed_student_leaves_its_actor_to_regression_at_first_and_goes_on_with_the_same_bits(runs, tmp_path):
    task, settings = tasks.resolve("arm"), learn.settings_for("arm", SMALL | {"steps": 8 * 8 * 5})
    how = {"reference": runs / "teacher", "teacher": runs / "teacher", "imitation": Imitation(prime=0.5)}
    spec, parents = learn.plan("arm", settings=settings, **how)

    class Quiet:
        notes: list[str] = []

    whole, other = (learn.build(spec, task, parents, envs.Place(1), Quiet()) for _ in range(2))
    before = {k: v.clone() for k, v in whole.actor.state_dict().items()}
    whole.iterate()
    assert all(torch.equal(v, before[k]) for k, v in whole.actor.state_dict().items())  # only the critic has learned
    losses = [whole.iterate()["prime_loss"] for _ in range(1)]
    assert not all(torch.equal(v, before[k]) for k, v in whole.actor.state_dict().items()) and losses[0] > 0
    other.load(*whole.save())
    assert whole.iterate() == other.iterate()
    assert "prime_loss" not in whole.iterate()  # PPO has taken over
    with pytest.raises(SurefootError, match=r"imitation\.prime: expected a teacher"):
        replace(spec, teacher="")


def test_a_spec_with_two_worlds_is_the_same_after_json():
    task = tasks.resolve("arm")
    settings = learn.settings_for("arm", SMALL)
    for more in ({"easy": Easy(0.5), "forward": Forward((4,))}, {"reference": "ab", "imitation": Imitation(2.0)}):
        spec = RunSpec("arm", task.belief, settings, **more)
        assert RunSpec.from_json(spec.to_json()) == spec
    assert RunSpec("arm", task.belief, settings, reference="ab").imitation == Imitation()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"imitation": Imitation()}, "expected a forward model to imitate"),
        ({"reference": "ab", "forward": Forward()}, "only its teacher learns one"),
        ({"easy": Easy(), "terms": ("ab",)}, "expected none in a support world"),
    ],
)
def test_a_spec_that_mixes_teacher_and_student_is_refused(more, words):
    with pytest.raises(SurefootError, match=words):
        RunSpec("arm", tasks.resolve("arm").belief, learn.settings_for("arm", SMALL), **more)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--easy.gain", "0.5"], "--easy.*: only with --support"),
        (["--support", "esay"], "did you mean easy"),
        (["--support", "easy", "--adapt", "rma"], "--adapt does not go with it"),
        (["--support", "walk", "--easy.gain", "0.5"], "only with --support easy"),
    ],
)
def test_flags_that_contradict_each_other_are_refused_before_anything_is_trained(flags, words, tmp_path, capsys):
    assert main(["train", "arm", "--out", str(tmp_path / "run"), *flags, *WORDS]) != 0
    said = capsys.readouterr()
    assert words in said.out + said.err and not (tmp_path / "run").exists()


def test_the_world_of_a_student_is_the_task_s_own(runs):
    spec = spec_of(runs / "student")
    parents = Parents(reference=forward.read(runs / "teacher"))
    task = envs.learners_task(spec, tasks.resolve("arm"), parents)
    assert (
        task.robot == tasks.resolve("arm").robot
        or load_robot(task.robot).compiled_hash == load_robot(arm().robot).compiled_hash
    )
    assert set(task.observations) == {"actor", "critic", TEACHER, KINEMATIC}
    assert replace(task.observations["actor"]) == tasks.resolve("arm").observations["actor"]
