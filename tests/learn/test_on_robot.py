"""A robot among the simulations: its rows come last, its numbers stay hidden, and the runtime's limiter is before its motors."""

import json
from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn import envs
from surefoot.learn import train as learn
from surefoot.learn.collect import FLAGS, LocalCollector, Rollout
from surefoot.learn.joined.parts import beside
from surefoot.learn.on_robot.envs import robot_env, with_robot
from surefoot.learn.on_robot.limited import Limiter, behind_runtime
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.learn.run.parents import Parents, spec_of
from surefoot.learn.runspec import RunSpec
from surefoot.sim.realities import Reality, hidden

SMALL = {"envs": 8, "horizon": 8, "hidden": (8,), "minibatches": 2, "steps": 8 * 8 * 3, "learner_threads": 1}
WORDS = [w for k, v in SMALL.items() for w in (f"--{k.replace('_', '-')}", *(str(x) for x in (v if isinstance(v, tuple) else (v,))))]  # fmt: skip
PLAIN = OnRobot(0.25, 0)


def zero(obs, draws):
    return np.zeros((len(obs["actor"]), 1)), {}


def limited(name="balance"):
    return behind_runtime(tasks.resolve(name), late=0.0)


def built(spec, parents=None):
    class Quiet:
        notes: list[str] = []

    return learn.build(spec, tasks.resolve("balance"), parents or Parents(), envs.Place(1), Quiet())


def spec(**more):
    task = tasks.resolve("balance")
    robot = OnRobot.of(hidden(3, task), 0.25)
    return RunSpec("balance", task.belief, learn.settings_for("balance", SMALL), robot=robot, **more)


def test_a_share_is_at_least_one_row_and_never_all_of_them_unless_asked_for():
    assert [OnRobot(x, 0).rows(128) for x in (0.001, 0.05, 0.5, 0.999, 1.0)] == [1, 6, 64, 127, 128]
    with pytest.raises(SurefootError, match="above 0 and up to 1"):
        OnRobot(0.0, 0)


def test_robot_time_is_that_of_its_rows_one_after_the_other():
    assert OnRobot(0.05, 0).seconds(steps=128_000, envs=128, dt=0.02) == pytest.approx(6 * 1000 * 0.02)


def test_the_last_rows_are_the_robot_s_with_its_own_numbers():
    task = limited()
    env = with_robot(task, task.belief, replace(PLAIN, e={"cart_mass": 3.3}), 8, seed=0, threads=1)
    env.collector()
    at = task.params.index("cart_mass")
    assert (env.parts["sim"].n, env.parts["robot"].n, env.n) == (6, 2, 8)
    assert (env.parts["robot"].world.state.e[:, at] == 3.3).all()
    assert (env.parts["sim"].envs[0].world.state.e[:, at] <= task.belief.high[at]).all()


def test_a_robot_like_the_nominal_model_behaves_as_simulation_does_bit_for_bit():
    """Without wrong numbers, missing physics or noise, rows of the robot are rows of the nominal world."""
    task, nominal = limited(), tasks.nominal(tasks.resolve("balance"))
    robot = robot_env(task, nominal, PLAIN, 4, seed=5, first=0, threads=1)
    sim = tasks.env(task, 4, nominal, 5, 1, stagger=True)
    both = [LocalCollector(env).collect(zero, 30, ("actor", "critic")) for env in (robot, sim)]
    assert np.array_equal(both[0].reward, both[1].reward)
    assert np.array_equal(both[0].obs["actor"], both[1].obs["actor"])
    assert np.array_equal(both[0].obs["critic"], both[1].obs["critic"])


def test_the_critic_of_a_robot_s_row_is_given_what_is_believed_not_what_is():
    task = limited()
    env = robot_env(task, task.belief, replace(PLAIN, e={"cart_mass": 3.3}), 2, 0, 0, 1)
    group = task.observations["critic"]
    at = next(columns for t, columns in zip(group.terms, group.columns) if t.name == "e")
    shown = env.reset()["critic"][:, at]
    assert shown == pytest.approx(np.tile(task.belief.estimate(), (2, 1)), rel=1e-5)
    assert env.world.state.e[0, task.params.index("cart_mass")] == 3.3


def test_the_runtime_s_limiter_is_before_the_motors_of_simulations_and_robot():
    task = envs.learners_task(spec(), tasks.resolve("balance"), Parents())
    assert sum(isinstance(t, Limiter) for t in task.terms) == 1
    env = envs.make(replace(spec(), robot=PLAIN), Parents(), task, envs.Place(1), None)
    for world in (env.world, env.parts["robot"].world):
        assert sum(isinstance(t, Limiter) for t in world.terms) == 1


def test_rollouts_beside_each_other_keep_whose_row_is_whose():
    def part(n, value):
        flags = {k: np.zeros((2, n), bool) for k in FLAGS}
        obs = np.full((3, n, 1), value, np.float32)
        r = Rollout({"actor": obs}, {"action": obs[1:]}, np.full((2, n), value, np.float32), flags)
        return replace(r, last=[(1, np.array([n - 1]), {"actor": obs[0, :1]})], ended=[(1, 0)])

    r = beside([part(3, 1.0), part(2, 2.0)])
    assert r.reward.tolist() == [[1, 1, 1, 2, 2]] * 2 and r.obs["actor"].shape == (3, 5, 1)
    assert [(t, rows.tolist()) for t, rows, _ in r.last] == [(1, [2]), (1, [4])] and r.ended == [(1, 0), (1, 3)]


def test_a_run_with_a_robot_goes_on_with_the_same_bits_and_reports_it_apart():
    whole, other = built(spec()), built(spec())
    first = whole.iterate()
    assert "robot/episodes" in first
    other.load(*whole.save())
    assert whole.iterate() == other.iterate()
    assert all(np.array_equal(v, other.save()[0][k]) for k, v in whole.save()[0].items())


def test_all_rows_may_be_the_robot_s():
    learner = built(replace(spec(), robot=replace(spec().robot, share=1.0)))
    assert "sim" not in learner.env.parts and learner.iterate()["steps"] == 64


def test_a_spec_with_a_robot_is_the_same_after_json_and_refuses_growing_ranges():
    own = spec()
    assert RunSpec.from_json(own.to_json()) == own
    assert own.robot.reality == hidden(3, tasks.resolve("balance")) and isinstance(own.robot.reality, Reality)
    from surefoot.learn.ranges.ramp import Ramp

    with pytest.raises(SurefootError, match="expected fixed ranges"):
        spec(ranges=Ramp())


def test_one_command_fine_tunes_a_run_with_a_robot(tmp_path, capsys):
    assert main(["train", "balance", "--out", str(tmp_path / "a"), *WORDS]) == 0
    more = ["--start", str(tmp_path / "a"), "--robot-share", "0.25", "--reality", "3"]
    assert main(["train", "balance", "--out", str(tmp_path / "b"), *more, *WORDS]) == 0
    said = capsys.readouterr()
    assert "2 of 8 rows are the robot's: 1 s of driving it" in said.out + said.err
    assert spec_of(tmp_path / "b").robot.share == 0.25
    rows = [json.loads(x) for x in (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()]
    assert all("robot/episodes" in row for row in rows)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--robot-share", "0.1", "--reality", "1"], "give --start RUN"),
        (["--robot-share", "0.1", "--start", "x"], "give --reality SEED"),
        (["--reality", "1"], "--reality: only with --robot-share"),
        (["--robot-share", "2", "--reality", "1", "--start", "x"], "expected a share from 0 to 1"),
    ],
)
def test_a_robot_is_not_driven_by_an_untrained_policy_nor_by_a_guess(flags, words, tmp_path, capsys):
    assert main(["train", "balance", "--out", str(tmp_path / "run"), *flags, *WORDS]) != 0
    said = capsys.readouterr()
    assert words in said.out + said.err
