"""What is read off a robot's motion, against motions whose numbers are known."""

from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.gate.measures.motion import measure
from surefoot.observation import ObsGroup
from surefoot.policy import Policy
from surefoot.tasks.rollout import contract


class Says(Policy):
    """A row of actions, one after the other."""

    def __init__(self, c, actions):
        self.contract, self.actions, self.asked = c, actions, 0

    def step(self, s, obs):
        self.asked += 1
        return s, np.full(
            (len(obs), len(self.contract.action.names)), self.actions[(self.asked - 1) % len(self.actions)]
        )


def ride(name, actions, **changes):
    task = replace(tasks.resolve(name), ended={}, **changes)
    env = tasks.env(task, 4, seed=1, threads=1)
    return measure(Says(contract(task, env.world), actions), env)


def test_full_force_is_at_its_limit_all_the_time_and_does_the_work_it_does():
    """10 N on the cart for 1 s: power is F v, and the speed it ends with is what F / M gives, near enough with a pole."""
    seen = ride("balance", [1.0], seconds=1.0)
    assert np.allclose(seen.at_limit, 1.0) and seen.busiest == ("push", 1.0) and seen.peak == pytest.approx(1.0)
    assert np.allclose(seen.change, 0.0) and seen.hinge_speed is None and seen.transport is None
    assert (seen.slide_speed > 5.0).all() and np.allclose(
        seen.power, 10 * seen.slide_speed / 2, rtol=0.25
    )  # v grows evenly


def test_half_force_is_not_at_its_limit_and_flipping_actions_change_by_two():
    seen = ride("balance", [0.5], seconds=1.0)
    assert np.allclose(seen.at_limit, 0.0) and seen.peak == pytest.approx(0.5)
    assert np.allclose(ride("balance", [1.0, -1.0], seconds=1.0).change, 2.0)


def test_a_choice_has_no_size_and_a_rotor_is_at_its_limit_by_its_command():
    assert ride("balance-discrete", [1.0], seconds=0.5).change is None
    seen = ride("hover", [1.0], seconds=0.2)  # 2.25 x hover is above the rotor's range
    assert np.allclose(seen.at_limit, 1.0) and seen.power is None and seen.hinge_speed is None
    idle = ride("hover", [0.0], seconds=0.2)
    assert np.allclose(idle.at_limit, 0.0)


def test_a_robot_that_holds_still_has_no_cost_of_transport():
    seen = ride("walk", [0.0], seconds=1.0)
    assert seen.transport is None and seen.power is not None and (seen.hinge_speed > 0).all()


def test_an_action_may_drive_the_last_actuator_alone():
    """The other joint's servo keeps its first target: at rest it needs a share of its torque, the driven one all of its."""
    task = tasks.resolve("arm")
    whole = task.action
    last = replace(whole, names=whole.names[1:], offset=whole.offset[1:], scale=whole.scale[1:])
    actor = tuple(t for t in task.observations["actor"].terms if t.name != "last_action")
    seen = ride("arm", [1.0, -1.0], seconds=0.5, action=last, observations={"actor": ObsGroup(actor)})
    assert seen.busiest is not None and seen.busiest[0] == whole.names[1] and np.allclose(seen.change, 2.0)
