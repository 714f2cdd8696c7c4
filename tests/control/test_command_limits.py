"""Limits of a base that follows a command: closed forms of the clip, the tilt's rate by finite differences, and the layer."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from surefoot import tasks
from surefoot.contract import Action, Contract
from surefoot.control import layers
from surefoot.control.command_limits import CommandLimits, Governed
from surefoot.errors import SurefootError
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.policy import Policy
from surefoot.rotation import direction, turned
from surefoot.tasks.rollout import contract as contract_of
from surefoot.verbs.train.guard import command_limits

DT = 0.02
LIMITS = CommandLimits((("command", 0), ("command", 1)), (0.5, 1.0), (("speed", 0), None), tilt=0.6)
TERMS = (
    ObsTerm("command", Formula("command"), 2, scale=2.0),
    ObsTerm("speed", Formula("reading", reading="speed"), 1, scale=0.5),
    ObsTerm("projected_gravity", Formula("projected_gravity"), 3),
    ObsTerm("base_ang_vel", Formula("base_ang_vel"), 3, scale=0.25),
)
CONTRACT = Contract("legs", 1 / DT, ObsGroup(TERMS), Action(("a", "b"), np.zeros(2), np.ones(2), "m/s", 10.0))


class Echo(Policy):
    """Answers the command it observes, in its unit."""

    contract = CONTRACT

    def step(self, s, obs):
        return s, obs[:, :2] / 2.0


def test_a_base_that_follows_its_command_never_passes_its_speed_and_returns_by_gamma_from_beyond():
    r, v = 1 - np.exp(-DT / LIMITS.lag), np.array([[0.0, np.nan]])
    for _ in range(300):
        v[:, 0] += r * (LIMITS.within(np.array([[3.0, 0.0]]), v, DT)[:, 0] - v[:, 0])
        assert v[0, 0] <= 0.5
    assert v[0, 0] == pytest.approx(0.5, abs=1e-3)
    v = np.array([[0.52, np.nan]])
    for k in range(1, 5):  # above: b = v_max - v shrinks by 1 - gamma in each period
        v[:, 0] += r * (LIMITS.within(np.array([[3.0, 0.0]]), v, DT)[:, 0] - v[:, 0])
        assert 0.5 - v[0, 0] == pytest.approx(-0.02 * (1 - LIMITS.gamma) ** k)


def test_what_is_within_passes_and_what_is_not_measured_is_only_clipped():
    asked = np.array([[0.2, -0.7], [0.2, -4.0]])
    assert LIMITS.within(asked, np.array([[0.2, np.nan]] * 2), DT).tolist() == [[0.2, -0.7], [0.2, -1.0]]


def test_the_rate_of_the_tilt_is_that_of_finite_differences():
    """s = (alpha (tilt_max - tilt) - tilt') / (alpha tilt_max / 2) where it is between 0 and 1."""
    rng = np.random.default_rng(0)
    quat, w = turned(np.array([[1.0, 0, 0, 0]]), rng.uniform(-0.3, 0.3, (400, 3))), rng.uniform(-0.3, 0.3, (400, 3))
    g, h = np.tile([[0.0, 0, -9.81]], (400, 1)), 1e-6
    tilt = lambda q: np.arccos(-direction(q, g)[:, 2])  # noqa: E731
    rate = (tilt(turned(quat, h * w)) - tilt(turned(quat, -h * w))) / (2 * h)
    wanted = (LIMITS.alpha * (0.6 - tilt(quat)) - rate) / (0.5 * LIMITS.alpha * 0.6)
    some = (wanted > 0) & (wanted < 1)
    assert some.sum() > 20 and np.allclose(LIMITS.upright(direction(quat, g), w)[some], wanted[some], atol=1e-5)
    assert LIMITS.upright(np.array([[0.0, 0, -1]]), np.zeros((1, 3))) == [1.0]
    assert LIMITS.upright(np.array([[np.sin(0.6), 0, -np.cos(0.6)]]), np.zeros((1, 3))) == pytest.approx(
        [0.0], abs=1e-9
    )


def test_the_policy_is_asked_for_what_the_limits_allow_and_the_state_counts_it():
    policy = layers.wear(Echo(), (LIMITS,))
    obs = np.array([[2.0, 1.0, 0.0, 0, 0, -1, 0, 0, 0], [0.2, 0.2, 0.05, 0, 0, -1, 0, 0, 0]], np.float32)
    s, action = policy.step(policy.init(2), obs)
    high = 0.2 * 0.5 / (1 - np.exp(-DT / 0.3))  # v = 0: gamma v_max / r, above v_max
    assert action[0].tolist() == pytest.approx([min(0.5, high), 0.5]) and action[1].tolist() == pytest.approx(
        [0.1, 0.1]
    )
    assert s["command.changed"].tolist() == [[1], [0]] and layers.counted(s) == {"commands limited": 1}
    obs[0, 3:6] = [np.sin(0.7), 0, -np.cos(0.7)]  # leans beyond its limit: nothing is asked
    assert policy.step(s, obs)[1][0].tolist() == [0.0, 0.0]


def test_it_goes_into_a_file_and_comes_back(tmp_path):
    found = layers.read(layers.write(tmp_path, (LIMITS,)))
    assert (
        found == (LIMITS,)
        and json.loads((tmp_path / "safety.json").read_text())["layers"][0]["kind"] == "command_limits"
    )


@pytest.mark.parametrize(
    "change, words",
    [
        ({"top": (0.5,)}, "one for each of 2 commands"),
        ({"gamma": 0.0}, "gamma above 0"),
        ({"command": (("command", 0), ("comand", 1))}, "did you mean command"),
        ({"measured": (("speed", 3), None)}, "speed: expected a number from 0, found 3"),
    ],
)
def test_limits_that_do_not_fit_are_refused(change, words):
    with pytest.raises(SurefootError, match=words):
        Governed(CONTRACT, Echo(), CommandLimits(**asdict(LIMITS) | change))


def test_a_walking_robots_limits_are_found_by_what_its_policy_observes():
    c = contract_of(tasks.resolve("walk-estimate"), tasks.env(tasks.resolve("walk-estimate"), 1).world)
    found = command_limits(c, (0.5, 0.3, 0.6), 0.5)
    assert found.measured == (("base_lin_vel_estimate", 0), ("base_lin_vel_estimate", 1), ("base_ang_vel", 2))
    found.check(c)
    with pytest.raises(SurefootError, match="--base: expected 3 numbers"):
        command_limits(c, (0.5,))
