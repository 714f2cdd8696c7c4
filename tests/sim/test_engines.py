"""One model in every engine: each meets the closed forms that its integrator's order allows, and the same e and Terms act."""

import numpy as np
import pytest

from surefoot import tasks
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.sim.engines import ENGINES


def test_an_engine_that_does_not_exist_is_answered_with_those_that_do(capsys):
    with pytest.raises(SurefootError, match="no engine matches 'mujco'.*did you mean mujoco"):
        tasks.env(tasks.make("balance"), 1, engine="mujco")
    assert main(["eval", "/nowhere", "--in", "bulet"]) == 2
    assert "--in: no engine matches 'bulet'" in capsys.readouterr().err


@pytest.mark.parametrize("name", [k for k in ENGINES if k.startswith("mujoco")])
def test_a_control_period_is_the_same_in_every_engine(name):
    task = tasks.make("hover")
    world, plain = tasks.env(task, 1, engine=name).world, tasks.env(task, 1).world
    assert np.isclose(world.dt, plain.dt, rtol=1e-12)
