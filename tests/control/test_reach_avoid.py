"""The switch and its files: values by hand, a grid whose best point is known, and layers that are read as they were written."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from surefoot import tasks
from surefoot.contract import Action, Contract
from surefoot.control import layers
from surefoot.control.adaptive import Adaptive
from surefoot.control.barrier import BaseLimits, Filter, JointLimits
from surefoot.control.dynamics import Joints, Link
from surefoot.control.reach_avoid import Guarded, ReachAvoid, Recovery
from surefoot.errors import SurefootError
from surefoot.learn.nets.export import graph_of
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.policy import Policy, Zero
from surefoot.sim.model.load import load_robot
from surefoot.tasks.joint_model import joints_of


class Closing(nn.Module):
    """V = tanh(v - d): unsafe where the speed is larger than the distance."""

    def forward(self, x):
        return torch.tanh(x[:, :1] / 0.5 - x[:, 1:2])


def contract():
    terms = (
        ObsTerm("velocity", Formula("reading", reading="velocity"), 1, scale=0.5),
        ObsTerm("last_action", Formula("last_action"), 2),
        ObsTerm("ray", Formula("reading", reading="ray"), 1),
    )
    law = Action(("left", "right"), np.zeros(2), np.array([2.0, 2.0]), "m/s")
    return Contract("cart", 50.0, ObsGroup(terms), law)


class Ahead(Policy):
    """Full speed."""

    def __init__(self):
        self.contract = contract()

    def step(self, s, obs):
        return s, np.ones((len(obs), 2), np.float32)


def switch(**more):
    recovery = Recovery((("velocity", 0),), (0.0,), (2.0,), (21,), "drive", ((1.0,), (1.0,)))
    return ReachAvoid(graph_of(Closing(), 2), ("velocity", "ray"), recovery, **more)


def seen(v, d):
    return np.array([[0.5 * v, 0.0, 0.0, d]], np.float32)


def test_the_policy_acts_where_it_is_safe_and_the_recovery_where_it_is_not():
    policy = Guarded(contract(), Ahead(), switch())
    s, a = policy.step(policy.init(1), seen(1.0, 2.0))
    assert a.tolist() == [[1.0, 1.0]] and s["reach_avoid.recovering"].tolist() == [[0]]
    assert s["reach_avoid.value"][0, 0] == pytest.approx(np.tanh(-1.0), abs=1e-6)
    s, a = policy.step(s, seen(1.5, 1.0))
    assert s["reach_avoid.recovering"].tolist() == [[1]]
    # V(y) + 0.1 <= 0 where y <= d - atanh(0.1): the fastest such point of the grid, 0.1 apart, nearest to what is asked
    np.testing.assert_allclose(a, [[0.45, 0.45]], atol=1e-6)


def test_each_row_has_its_own_switch():
    policy = Guarded(contract(), Ahead(), switch())
    both = np.concatenate([seen(1.0, 2.0), seen(1.5, 1.0)])
    s, a = policy.step(policy.init(2), both)
    assert (
        a[0].tolist() == [1.0, 1.0]
        and a[1, 0] == pytest.approx(0.45)
        and s["reach_avoid.recovering"].ravel().tolist() == [0, 1]
    )


def test_a_value_that_is_no_number_is_not_safe():
    policy = Guarded(contract(), Ahead(), switch())
    s, _ = policy.step(policy.init(1), seen(np.nan, 1.0))
    assert s["reach_avoid.recovering"].tolist() == [[1]]


def test_a_recovery_by_command_lets_the_policy_act_on_another_command():
    """The policy does what its command says; V forbids commands above 0.5."""
    terms = (ObsTerm("command", Formula("command"), 1, scale=2.0),)
    c = Contract("legs", 50.0, ObsGroup(terms), Action(("u",), np.zeros(1), np.ones(1), "m/s"))

    class Obeys(Policy):
        contract = c

        def step(self, s, obs):
            return s, obs / 2.0

    class Fast(nn.Module):
        def forward(self, x):
            return torch.tanh(x - 1.0)

    recovery = Recovery((("command", 0),), (-1.0,), (1.0,), (201,))
    policy = Guarded(c, Obeys(), ReachAvoid(graph_of(Fast(), 1), ("command",), recovery))
    assert policy(np.array([[0.2]], np.float32))[0, 0] == pytest.approx(0.1)
    asked = policy(np.array([[1.8]], np.float32))[0, 0]
    assert asked == pytest.approx(0.44, abs=1e-6)  # tanh(2 y - 1) <= -0.1 where y <= 0.4498


@pytest.mark.parametrize("change, words", [
    ({"terms": ("velocity", "rays")}, "no observation term matches 'rays'.*did you mean ray"),
    ({"terms": ("velocity",)}, "expected a net of 1 numbers to 1, found 2 to 1"),
])  # fmt: skip
def test_a_switch_that_does_not_fit_the_policy_is_refused(change, words):
    own = switch()
    with pytest.raises(SurefootError, match=words):
        Guarded(contract(), Ahead(), ReachAvoid(own.value, **{"terms": own.terms, "recovery": own.recovery} | change))


def every():
    arm = joints_of(load_robot(tasks.resolve("arm").robot).model)
    base = BaseLimits(((0.5, 0.5), (-3.0, 3.0)), 0.05, 2.0, 5.0, (-0.5, 0.0, 0.5), 0.2)
    return (
        switch(threshold=-0.2),
        Adaptive(arm, (0.55, 0.0, 0.0)),
        Filter((JointLimits(arm, (-1, -1), (1, 1), (3, 3)), base)),
    )


def test_layers_are_read_as_they_were_written(tmp_path):
    path = layers.write(tmp_path, every())
    again = layers.read(tmp_path)
    assert (
        again[1:] == every()[1:] and isinstance(again[1].joints.links[0], Link) and isinstance(again[1].joints, Joints)
    )
    own = again[0]
    assert (own.terms, own.recovery, own.threshold) == (("velocity", "ray"), switch().recovery, -0.2)
    rows = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    assert np.array_equal(own.value(rows), switch().value(rows))
    assert layers.read(path)[1:] == again[1:]


def test_layers_are_worn_from_the_inside_out():
    filter = Filter((BaseLimits(((0.5, 0.5), (-3.0, 3.0)), 0.0, 0.5, 5.0, velocity="velocity", gyro="ray"),))
    worn = layers.wear(Ahead(), (switch(),))
    assert isinstance(worn, Guarded) and isinstance(worn.policy, Ahead)
    with pytest.raises(SurefootError, match="no observation term matches 'command'"):
        bad = Recovery((("command", 0),), (0.0,), (1.0,), (3,))
        layers.wear(Zero(contract()), (ReachAvoid(switch().value, ("velocity", "ray"), bad), filter))


@pytest.mark.parametrize("edit, words", [
    (lambda d: d.update(format=2), "format: expected 1, found 2"),
    (lambda d: d.update(layers=[]), "layers: expected a list of 1 to 16"),
    (lambda d: d["layers"][1].update(kind="adaptiv"), r"layers\[1\]: no kind matches 'adaptiv'.*did you mean adaptive"),
    (lambda d: d["layers"][1].update(kapa=3), r"layers\[1\]: no field matches 'kapa'.*did you mean kappa"),
    (lambda d: d["layers"][1].update(kappa="fast"), r"layers\[1\]: kappa: expected a number, found"),
    (lambda d: d["layers"][0].update(value="../value.onnx"), "value: expected the name of an ONNX file in the same folder"),
    (lambda d: d["layers"][0].update(sha256="0" * 64), "not the net that safety.json names"),
    (lambda d: d["layers"][2]["barriers"][0].update(margin=2), r"barriers\[0\]: joint limits: margin: expected 0 to below 1"),
    (lambda d: d["layers"][2]["barriers"][0]["joints"]["links"][1].update(parent=5), "parent: expected"),
])  # fmt: skip
def test_a_file_that_was_changed_is_refused_by_its_place(tmp_path, edit, words):
    path = layers.write(tmp_path, every())
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))
    with pytest.raises(SurefootError, match=words):
        layers.read(path)
