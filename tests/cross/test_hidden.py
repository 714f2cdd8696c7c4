"""Hidden robots: numbers outside of the belief and physics that no number describes, the same for the same seed."""

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.cross.robot import Rate
from surefoot.env import Env
from surefoot.sim.realities import BEYOND, FARTHER, OUTSIDE, STRUCTURE, Reality, hidden


@pytest.mark.parametrize("name", ["balance", "hover", "arm", "walk"])
def test_a_hidden_robot_has_numbers_outside_of_the_belief_and_structure(name):
    task = tasks.resolve(name)
    for seed in range(5):
        robot = hidden(seed, task)
        e = robot.values(task, task.params.nominal)
        out = [
            p.name
            for i, p in enumerate(task.params)
            if p.name in robot.e and not task.belief.low[i] <= e[i] <= task.belief.high[i]
        ]
        count, _ = FARTHER.get(name, (OUTSIDE, BEYOND))
        assert len(out) == count and (task.params.low <= e).all() and (e <= task.params.high).all()
        assert "sensor_noise" in robot.strengths and 2 <= len(robot.strengths) <= 3
        assert set(robot.strengths) <= {*STRUCTURE, "sensor_noise"}
    assert hidden(0, task) == hidden(0, task) and hidden(0, task) != hidden(1, task)


@pytest.mark.parametrize("name", ["balance", "hover", "arm", "walk"])
def test_every_hidden_robot_can_be_built(name):
    """Also where an ingredient is an actuator of its own, as stiction, and an unknown is meant for all drives."""
    task = tasks.resolve(name)
    for seed in range(2000, 2040):
        assert hidden(seed, task).world(task).params.names == task.params.names


def test_numbers_of_a_reality_are_those_of_the_belief_at_the_same_e():
    """A reality whose only difference is e moves as the task's own world at that e, to the last bit."""
    task = tasks.resolve("balance")
    e = task.params.nominal.copy()
    e[task.params.index("cart_mass")], e[task.params.index("gravity")] = 2.2, 12.0
    real = Reality(0, e={"cart_mass": 2.2, "gravity": 12.0})
    ends = []
    for world in (real.world(task, 3), tasks.env(task, 3).world):
        env = Env(task, world, point(task.params, e), seed=5)
        env.reset()
        for k in range(40):
            env.step(np.full((3, 1), np.sin(k)))
        ends.append(env.world.state.q.copy())
    assert (ends[0] == ends[1]).all()


def test_a_rate_is_shown_with_its_interval():
    assert str(Rate(90, 100)) == "90 % (82 - 95)"  # Clopper-Pearson: 0.8238 - 0.9510
