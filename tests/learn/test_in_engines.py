"""Engine randomization: each engine moves its own share of the simulations, and nothing else differs."""

from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn import envs
from surefoot.learn import train as learn
from surefoot.learn.joined.engines import MIXED, in_engines
from surefoot.learn.off_policy.settings import FastSACSettings
from surefoot.learn.on_robot.settings import OnRobot
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.run.parents import Parents, spec_of
from surefoot.learn.runspec import RunSpec

SMALL = {"envs": 11, "horizon": 6, "hidden": (8,), "minibatches": 1, "steps": 200, "learner_threads": 1}


def spec(**more) -> RunSpec:
    task = tasks.resolve("walk")
    return RunSpec("walk", task.belief, **({"engines": MIXED, "settings": learn.settings_for("walk", SMALL)} | more))


def built(spec: RunSpec, threads: int = 1):
    class Quiet:
        notes: list[str] = []

    return learn.build(spec, tasks.resolve("walk"), Parents(), envs.Place(threads), Quiet())


def same(a, b) -> bool:
    a, b = (x.save()[0] for x in (a, b))
    return a.keys() == b.keys() and all(np.array_equal(v, b[k]) for k, v in a.items())


@pytest.mark.parametrize("name", MIXED)
def test_each_engine_moves_the_robot_in_its_own_way_from_the_same_starts(name):
    """Half a second on the ground, beside MuJoCo as the model asks for it: e and start are equal, the motion is not."""
    task = tasks.resolve("walk")
    one = in_engines(task, task.belief, MIXED, 11, seed=3, threads=1).parts[name].envs[0]
    plain = tasks.env(task, 1, task.belief, 3, 1, stagger=True).like(one.n, one.first)
    one.reset(), plain.reset()
    assert np.array_equal(one.world.state.e, plain.world.state.e)
    assert np.array_equal(one.world.state.q, plain.world.state.q) and one.world.dt == pytest.approx(plain.world.dt)
    for _ in range(25):
        for env in (one, plain):
            env.step(np.zeros((env.n, 12)))
    apart = np.abs(one.world.state.q - plain.world.state.q).max(1)
    assert (apart == 0).all() if name == "mujoco" else (apart > 1e-6).all()


def test_engines_have_equal_shares_and_every_env_is_in_one():
    task = tasks.resolve("walk")
    parts = in_engines(task, task.belief, MIXED, 11, 0, 1).parts
    assert [(p.n, p.envs[0].first) for p in parts.values()] == [(2, 0), (2, 2), (2, 4), (2, 6), (3, 8)]


def test_the_same_seed_gives_the_same_bits_at_any_thread_count_and_another_seed_others():
    one, two, other = built(spec()), built(spec(), threads=3), built(spec(seed=1))
    assert one.iterate() == two.iterate() and same(one, two)
    other.iterate()
    assert not same(one, other)


def test_a_run_in_engines_goes_on_with_the_same_bits():
    """Half the timestep has longer memories of what is delayed, so the parts of a checkpoint differ in width."""
    whole, other = built(spec()), built(spec())
    first = whole.iterate()
    assert "mujoco:half-step/episodes" in first
    other.load(*whole.save())
    assert whole.iterate() == other.iterate() and same(whole, other)
    widths = {k: v.shape[1] for k, v in whole.save()[0].items() if k.endswith("world.state")}
    assert widths["env.mujoco:half-step.world.state"] > widths["env.mujoco.world.state"]


def test_the_command_trains_in_the_engines_it_is_told_and_names_the_flag_that_does_not_fit(tmp_path, capsys):
    small = ["--envs", "8", "--horizon", "8", "--steps", "64", "--minibatches", "1", "--threads", "1", "--json"]
    words = ["train", "balance", "--engines", "mujoco", "mujoco:rk4", "--out", str(tmp_path / "run"), *small]
    assert main(words) == 0
    assert spec_of(tmp_path / "run").engines == ("mujoco", "mujoco:rk4")
    words = ["train", "balance", "--engines", "mujoco", "bullet", "--out", str(tmp_path / "other"), *small]
    assert main(words) == 2
    assert "MuJoCo with other options" in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_a_spec_with_engines_is_the_same_after_a_file():
    assert RunSpec.from_json(spec().to_json()) == spec()
    assert "engines" in spec().differences(replace(spec(), engines=()))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ranges": ADR()}, "fixed ranges"),
        ({"robot": OnRobot(0.1, 0)}, "no robot is in another engine"),
        ({"settings": FastSACSettings()}, "--learner ppo"),
    ],
)
def test_what_does_not_go_with_engines_is_refused(more, words):
    with pytest.raises(SurefootError, match=words):
        spec(**more)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("mujoco", "bullet"), "MuJoCo with other options"),
        (("mujoco", "mujoco"), "each once"),
        (("mujoco:rk5",), "no engine matches"),
        (MIXED, "at least as many envs"),
    ],
)
def test_engines_that_cannot_be_mixed_are_refused_by_name(names, words):
    task = tasks.resolve("walk")
    with pytest.raises(SurefootError, match=words):
        in_engines(task, task.belief, names, 4, 0, 1)
