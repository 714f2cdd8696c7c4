"""An estimate is the same term in training, in a bundle and on a robot, and no row's estimate knows of another's."""

import copy
import json

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.contract import Contract
from surefoot.deploy.bundle import Golden
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.observation import Columns, Live
from surefoot.policy import Driver, Random
from surefoot.robot import Robot
from surefoot.task import quiet
from surefoot.tasks import golden
from surefoot.tasks.build.estimator import legged_filter
from surefoot.tasks.build.hover import hover
from surefoot.tasks.ready.hover import xml
from surefoot.tasks.rollout import contract
from surefoot.tasks.terms import quantities

TASK = tasks.resolve("walk-estimate")
GROUP = TASK.observations["actor"]
AT = {t.name: at for t, at in zip(GROUP.terms, GROUP.columns)}
DRONE = hover(Robot.text(xml(), "drone"), estimate=("base_lin_vel_world_estimate", "base_lin_vel_world_spread"))


def walked(env, steps, seed=0):
    drive = Driver(Random(contract(env.task, env.world), seed), env.n)
    obs = env.reset()
    for _ in range(steps):
        obs = env.step(0.3 * drive(obs["actor"])).obs
    return obs


def silent(task):
    """One robot without noise, at its nominal e."""
    still, e = quiet(task)
    env = tasks.env(still, 1)
    return Env(still, env.world, point(task.params, e))


def test_a_standing_quadruped_knows_that_it_stands():
    """Dropped from 2 cm at up to 0.3 m/s, it stands after a second; by its own noisy sensors, whose biases it has to find."""
    env = tasks.env(TASK, 16, TASK.belief, 3, 1)
    obs = env.reset()
    for _ in range(150):
        obs = env.step(np.zeros((16, 12))).obs
    truth = quantities.base_lin_vel(env.moment)
    assert np.abs(obs["actor"][:, AT["base_lin_vel_estimate"]] - truth).max() < 0.1
    assert np.sqrt(np.mean((obs["actor"][:, AT["base_lin_vel_estimate"]] - truth) ** 2)) < 0.03


def test_one_sensor_has_one_noise_whoever_reads_it_and_the_critic_knows_the_actors_estimate():
    env = tasks.env(TASK, 4, TASK.belief, 0, 1)
    obs = walked(env, 20)
    gyro = AT["base_ang_vel"]
    assert np.array_equal(env.observer.input_columns[:3], np.arange(gyro.start, gyro.stop))
    at = AT["base_lin_vel_estimate"]
    assert np.array_equal(obs["critic"][:, at], obs["actor"][:, at]) and obs["actor"][:, at].any()
    assert not np.array_equal(obs["critic"][:, gyro], obs["actor"][:, gyro])


def test_an_env_goes_on_with_the_same_estimates_after_load():
    one = tasks.env(TASK, 4, TASK.belief, 0, 1)
    walked(one, 30)
    saved = one.save()
    other = tasks.env(TASK, 4, TASK.belief, 0, 1)
    other.reset()
    other.load(saved)
    for k in range(10):
        a = 0.2 * np.sin(k + np.arange(48.0)).reshape(4, 12)
        mine, theirs = (env.step(a).obs["actor"] for env in (one, other))
        assert np.array_equal(mine, theirs)


def test_an_estimate_begins_anew_with_its_episode_alone():
    env = tasks.env(TASK, 6, TASK.belief, 0, 1)
    env.reset()
    env.begin_at(np.array([0, 0, env.steps - 20, 0, env.steps - 35, 0]))
    for _ in range(40):
        env.step(np.zeros((6, 12)))
    assert env.age.tolist() == [40, 40, 20, 40, 5, 40]
    assert env.observer.estimator_state["age"].tolist() == (1.0 + env.age).tolist()


def test_a_command_that_changes_moves_no_estimate_twice():
    env = tasks.env(TASK, 2, TASK.belief, 0, 1)
    env.reset()
    for _ in range(260):  # commands change every 250 periods
        env.step(np.zeros((2, 12)))
    assert env.age.max() > 250 and env.observer.estimator_state["age"].tolist() == (1.0 + env.age).tolist()


@pytest.mark.parametrize("task", [TASK, DRONE], ids=["walk", "hover"])
def test_a_robot_observes_what_the_simulator_does(task):
    """The group at work on one robot's readings, by name, makes the env's observations, period by period."""
    env = silent(task)
    group = env.task.observations["actor"]
    live, obs, drive = Live(group), env.reset(0)["actor"], Driver(Random(contract(env.task, env.world)), 1)
    for k in range(60):
        now = env.sensed()
        values = {n: np.array(now.reading(n), float) for n in group.needs}
        readings = Columns(values, {n: now.parts(n) for n in group.needs if now.parts(n)})
        found = live(readings, np.array([0] if env.age[0] == 0 else [], int))
        assert np.allclose(found, obs, atol=1e-5), k
        obs = env.step(0.2 * drive(obs)).obs["actor"]


def test_golden_vectors_hold_the_estimator_to_its_settings():
    env = tasks.env(TASK, 1)
    c = contract(TASK, env.world)
    still = Random(c)
    recorded = golden.recorder(env.task, env.world)(still)
    out = np.zeros((len(recorded["obs"]), 12))
    made = Golden(**recorded, out=out, control=c.action.control(out))
    again = Contract.from_json(json.loads(json.dumps(c.to_json())))
    assert again == c
    made.check(again, out, "golden")
    body = copy.deepcopy(c.to_json())
    body["observation"]["estimator"]["sd"]["joint"] = 0.05
    other = Contract.from_json(body)
    assert any("estimator" in d for d in c.differences(other))
    with pytest.raises(SurefootError, match="the contract makes other observations"):
        made.check(other, out, "golden")


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda o: o.pop("estimator"), "found no estimator that makes it"),
        (lambda o: o["terms"][-1]["formula"].update(reading="base_lin_vle"), "base_lin_vle"),
        (lambda o: o["estimator"]["inputs"][0]["formula"].update(frame="head"), "base_ang_vel: expected the formula"),
        (lambda o: o["estimator"].update(kind="oracle"), "oracle"),
        (lambda o: o.update(estimator=[1]), "estimator"),
    ],
)
def test_a_contract_whose_estimate_nobody_makes_is_refused(change, said):
    body = copy.deepcopy(contract(TASK, tasks.env(TASK, 1).world).to_json())
    change(body["observation"])
    with pytest.raises(SurefootError, match=said):
        Contract.from_json(body)


def test_one_row_of_readings_makes_no_estimate():
    env = silent(TASK)
    env.reset(0)
    with pytest.raises(SurefootError, match="an estimate follows from those before it"):
        env.task.observations["actor"].raw(env.sensed(), 1)


def test_estimates_are_chosen_by_name():
    only = ("command", "base_lin_vel_estimate", "contact_estimate")
    task = tasks.with_override(TASK, tasks.ObsOverride(only=only))
    assert task.observations["actor"].estimator is TASK.estimator and task.observations["actor"].dim == 3 + 3 + 4
    plain = tasks.with_override(TASK, tasks.ObsOverride(only=("command", "joint_pos")))
    assert plain.observations["actor"].estimator is None
    tasks.env(plain, 2, plain.belief, 0, 1).reset()
    with pytest.raises(SurefootError, match="base_lin_vel_estimate"):
        tasks.with_override(TASK, tasks.ObsOverride(also=("base_lin_vel_estimat",)))


def test_contacts_from_torques_agree_with_touch_sensors_of_a_standing_robot():
    from surefoot.sim.model.edits import Timing
    from surefoot.tasks.build.legged import Body, read_legged
    from surefoot.tasks.ready import walk

    body = Body(TASK.robot, read_legged(Robot.text(walk.xml(), "quadruped"))[0])
    f = legged_filter(body, Timing(steps=4), "joint_torque")
    env = silent(TASK)
    env.reset(0)
    for _ in range(100):
        env.step(np.zeros((1, 12)))
    now = env.sensed()
    frame = np.concatenate([np.asarray(t.formula(now), float) for t in f.inputs], 1)
    s = f.step(f.init(1), frame)
    _, J, _ = f._seen(frame, s["R"])
    force = f._pushed(frame[:, f.at["joint_torque"]], J)
    assert np.allclose(force, now.reading("touch"), rtol=0.25) and (s["contact"] > 0.9).all()


def test_a_thrown_drone_knows_its_velocity_from_its_imu_and_where_it_is_seen():
    env = tasks.env(DRONE, 32, DRONE.belief, 1, 1)
    obs, group = env.reset()["actor"], DRONE.observations["actor"]
    errors = []
    for _ in range(50):
        obs = env.step(np.zeros((32, 4))).obs["actor"]
        frame = obs.reshape(32, group.history, -1)[:, -1]
        at = {t.name: frame[:, c] for t, c in zip(group.terms, group.columns)}
        grown = env.age > 10
        error = at["base_lin_vel_world_estimate"] - quantities.base_lin_vel_world(env.moment)
        errors.append((error / at["base_lin_vel_world_spread"])[grown])
        assert np.abs(error[grown]).max(initial=0.0) < 0.3
    spread = np.sqrt(np.mean(np.concatenate(errors) ** 2))
    assert 0.3 < spread < 1.5  # 1 where the covariance is honest
