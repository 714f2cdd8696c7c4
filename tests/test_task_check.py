"""A mistake in a user's task is said as the user's: by term, file and line, never as a defect of surefoot."""

import json
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import TaskCodeError
from surefoot.task_check import check_groups, code_of, place

TASK = """import numpy as np
from dataclasses import replace
from surefoot import tasks
from surefoot.task import Episode, Reward, Task
from surefoot.observation import Formula, ObsGroup, ObsTerm; from surefoot.belief import Box; from surefoot.robot import Robot
from surefoot.world import OnForce, Start


def helper(s):
    return s.q[:, 9]


def late(s):
    if (s.time > 0.1).any():
        raise RuntimeError("the author's own words")
    return np.ones(len(s.q))


class Gust(OnForce):
    def __call__(self, x, u, chance):
        return 1 / 0


def mine() -> Task:
    t = tasks.named("balance")
    actor = t.observations["actor"]
    return replace(t, name="mine", {change})
"""
SMALL = ["--envs", "16", "--horizon", "16", "--steps", "512", "--hidden", "8", "--minibatches", "2"]
REWARD = 'rewards={{"mine": Reward(1.0, {}, "")}}'
TERM = 'observations=dict(t.observations, actor=replace(actor, terms=(ObsTerm("odd", {}, 2),)))'
LINE = 27  # of the change


def written(tmp_path, change):
    path = tmp_path / "mine.py"
    path.write_text(TASK.replace("{change}", change))
    return path


@pytest.mark.parametrize("change, said", [
    (REWARD.format("lambda s: s.q"), "reward 'mine' (mine.py, line 27): expected numbers of shape (16,), a row for each of 16 simulations, found shape (16, 2)"),
    (REWARD.format("lambda s: s.q[:, :1]"), "reward 'mine' (mine.py, line 27): expected numbers of shape (16,), a row for each of 16 simulations, found shape (16, 1)"),
    (REWARD.format("lambda s: 1.0"), "reward 'mine' (mine.py, line 27): expected numbers of shape (16,), a row for each of 16 simulations, found float of shape ()"),
    (REWARD.format("lambda s: None"), "reward 'mine' (mine.py, line 27): expected numbers of shape (16,), a row for each of 16 simulations, found NoneType"),
    (REWARD.format("lambda s: np.full(len(s.q), np.nan)"), "reward 'mine' (mine.py, line 27): expected finite numbers, found NaN or infinity in 16 of 16 simulations"),
    (REWARD.format("lambda s: np.array(['a'] * len(s.q))"), "reward 'mine' (mine.py, line 27): expected numbers of shape (16,), a row for each of 16 simulations, found <U1"),
    (REWARD.format("lambda s: s.y['gyroo'][:, 0]"), "reward 'mine': no sensor matches 'gyroo'; there are none"),
    (REWARD.format("lambda s: s.reading('joint_poss')[:, 0]"), "reward 'mine': no reading matches 'joint_poss'"),
    (REWARD.format("lambda s: s.reading('joint_poss')[:, 0]"), "did you mean joint_pos?"),
    (REWARD.format("helper"), "reward 'mine': IndexError: index 9 is out of bounds"),
    (REWARD.format("helper"), "mine.py, line 10: return s.q[:, 9]"),
    (REWARD.format("lambda s: {}['missing']"), "reward 'mine': KeyError: 'missing'"),
    (REWARD.format("late"), "reward 'mine': RuntimeError: the author's own words"),
    (REWARD.format("late"), "mine.py, line 15: raise RuntimeError"),
    ('ended={"over": lambda s: s.q[:, 1]}', "termination 'over' (mine.py, line 27): expected true or false of shape (16,), a row for each of 16 simulations, found float64"),
    ('ended={"over": lambda s: s.q > 1}', "termination 'over' (mine.py, line 27): expected true or false of shape (16,), a row for each of 16 simulations, found shape (16, 2)"),
    ("error=lambda s: s.q", "error (mine.py, line 27): expected numbers of shape (16,)"),
    (TERM.format("lambda s: s.q[:, 0]"), "observation 'odd' of actor (mine.py, line 27): expected numbers of shape (16, 2), a row for each of 16 simulations, found shape (16,)"),
    (TERM.format("lambda s: s.qq"), "observation 'odd' of actor: AttributeError: 'Moment' object has no attribute 'qq'"),
    ('observations={"actor": actor}', "task mine: observations: expected a group 'critic', found actor"),
    ('observations={"critic": actor}', "task mine: observations: expected a group 'actor', found critic"),
    ("episode=lambda rng, n: Episode(Start(np.zeros((n, 3)), np.zeros((n, 2)), np.zeros((n, 1))))", "episode (mine.py, line 27): start.q: expected numbers of shape (16, 2), a row for each of 16 simulations, found shape (16, 3)"),
    ("episode=lambda rng, n: rng.unifrom(0, 1, n)", "episode: AttributeError: 'Rows' object has no attribute 'unifrom'"),
    ("command=lambda rng, n: np.zeros(n), command_names=('vx',)", "command (mine.py, line 27): expected numbers of shape (16, 1), a row for each of 16 simulations, found shape (16,)"),
    ("terms=(Gust(),)", "term Gust: ZeroDivisionError: division by zero"),
    ('settings={"lrr": 0.1}', "task mine: settings: no setting matches 'lrr'; there are envs"),
    ('settings={"envs": "many"}', "task mine: settings: "),
])  # fmt: skip
def test_a_users_mistake_names_the_term_the_file_and_the_line(tmp_path, capsys, change, said):
    path = written(tmp_path, change.replace("lambda s: s.q)", "lambda s: s.q)"))
    if "expected a group" in said:  # no function of the user's is in it: one is, to know the file by
        path = written(tmp_path, change + ', ended={"over": lambda s: s.q[:, 1] > 9}')
    assert main(["train", str(path), "--out", str(tmp_path / "r"), *SMALL]) == 2
    shown = capsys.readouterr().err
    assert said in shown and "defect" not in shown and "Traceback" not in shown


KNOWN = ', ended={"over": lambda s: s.q[:, 1] > 9}'  # a function of the author's, which the file is known by


@pytest.mark.parametrize("change, said, line", [
    (TERM.format('Formula("reading", reading="gyroo")') + KNOWN, "observation 'odd' of actor: no reading matches 'gyroo'", LINE),
    (TERM.format('Formula("joint_pos", ("slidr",))') + KNOWN, "observation 'odd' of actor: joints: no joint matches 'slidr'", LINE),
    (TERM.format('Formula("joint_pos", ("slide",))') + KNOWN, "observation 'odd' of actor: expected numbers of shape (16, 2)", LINE),
    ('observations={"actor": actor}' + KNOWN, "expected a group 'critic', found actor", 26),
    ('settings={"lrr": 0.1}' + KNOWN, "no setting matches 'lrr'", LINE),
    ('rewards={"mine": helper}', "reward 'mine': expected Reward(weight, function, about), found function", LINE),
    ('rewards={"mine": Reward("1.0", helper, "")}', "reward 'mine': weight: expected a number, found '1.0'", LINE),
    ('rewards={"mine": Reward(1.0, 2, "")}', "reward 'mine': expected a function, found int", LINE),
    ('ended={"over": True}', "termination 'over': expected a function, found bool", LINE),
    ('observations={"actor": actor.terms}', "observations 'actor': expected ObsGroup(terms), found tuple", LINE),
    ('belief=Box.ranges(t.params, {"cart_mas": (1.0, 2.0)})', "no param matches 'cart_mas'", LINE),
    ('robot=Robot.file("gone.xml", beside=__file__)', "gone.xml: no such model file", LINE),
])  # fmt: skip
def test_a_mistake_outside_of_a_function_names_the_file_and_the_line(tmp_path, capsys, change, said, line):
    path = written(tmp_path, change)
    assert main(["train", str(path), "--out", str(tmp_path / "r"), *SMALL]) == 2
    shown = capsys.readouterr().err
    assert said in shown and f"{path}, line {line}: " in shown and "internal error" not in shown


def test_the_line_in_these_messages_is_that_of_the_change(tmp_path):
    assert TASK.splitlines()[LINE - 1].strip() == 'return replace(t, name="mine", {change})'


def test_a_reward_that_becomes_nan_later_is_blamed_not_the_physics(tmp_path, capsys):
    """Finite as episodes begin; not a number once the cart has moved right."""
    path = written(tmp_path, REWARD.format("lambda s: np.where(s.v[:, 0] > 0.5, np.nan, 1.0)"))
    assert main(["train", str(path), "--out", str(tmp_path / "r"), *SMALL]) == 2
    shown = capsys.readouterr().err
    assert "task mine: reward 'mine' (mine.py, line 27) is NaN or infinite where the simulation is sound" in shown
    assert "timestep" not in shown


def test_every_verb_says_so_not_only_train(tmp_path, capsys):
    path = written(tmp_path, REWARD.format("lambda s: s.q"))
    for verb in (["try", str(path)], ["play", "zero", "--task", str(path), "--record", str(tmp_path / "f.gif")]):
        assert main(verb) == 2
        assert "reward 'mine' (mine.py, line 27): expected numbers of shape" in capsys.readouterr().err


def test_our_own_tasks_are_nobody_elses_fault():
    """An exception in a ready task is a defect, so it passes as it is."""
    task = tasks.resolve("hover")
    env = tasks.env(task, 2)
    env.reset()
    env.world.state.y.clear()
    env.world.end = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        env.step(np.zeros((2, 4)))


def test_a_task_is_checked_once_and_checking_draws_nothing():
    task = tasks.resolve("walk")
    a, b = (tasks.env(task, 4, task.belief, 3) for _ in range(2))
    b.checked = True
    assert all(np.array_equal(x, y) for x, y in zip(a.reset().values(), b.reset().values())) and a.checked


def test_code_is_found_in_whatever_can_be_called():
    from functools import partial

    class Callable_:
        def __call__(self, s):
            return s

        def method(self, s):
            return s

    thing = Callable_()
    assert code_of(thing) is Callable_.__call__.__code__ and code_of(thing.method) is Callable_.method.__code__
    assert code_of(partial(partial(thing.method), 1)) is Callable_.method.__code__
    assert code_of(np.abs) is None and place(np.abs) == "" and place(tasks.resolve) == ""
    assert place(_here) == f" (test_task_check.py, line {_here.__code__.co_firstlineno})"


def _here(s):
    return s


def test_a_missing_group_of_a_ready_task_names_no_file():
    with pytest.raises(TaskCodeError, match="task hover: observations: expected a group 'pupil', found actor, critic"):
        check_groups(tasks.resolve("hover"), ("pupil",))


def test_a_task_that_does_not_load_is_listed_with_its_error_beside_the_others(tmp_path, capsys, monkeypatch):
    """An installed package registers a task whose function raises: the rest is still listed."""
    (tmp_path / "broken_tasks.py").write_text("def bad():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("bad", "broken_tasks:bad", "surefoot.tasks"),
        EntryPoint("gone", "no_such:f", "surefoot.tasks"),
    ]
    monkeypatch.setattr("surefoot.tasks.registry.entry_points", lambda group: points)
    assert main(["tasks", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "hover" in [t["name"] for t in found["tasks"]] and [t["name"] for t in found["broken"]] == ["bad", "gone"]
    assert (
        "ZeroDivisionError" in found["broken"][0]["error"] and "broken_tasks.py, line 2" in found["broken"][0]["error"]
    )
    for verb in (["tasks"], ["presets"]):
        assert main(verb) == 0
    assert "bad does not load" in capsys.readouterr().out
    assert main(["try", "bad", "--episodes", "2"]) == 2
    assert "defect" not in capsys.readouterr().err
