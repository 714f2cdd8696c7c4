"""A gait clock and split commands, as contracts of the field write them: each number against its closed form."""

import json

import numpy as np
import pytest

from surefoot.contract import Contract
from surefoot.errors import SurefootError
from surefoot.observation import Columns

TIME = np.array([0.0, 0.1, 0.33, 1.0])
BARE = {"joints": ["hip", "knee"], "home": [0.1, -0.2], "rate": 50, "action_scale": 1.0}


def seen(terms, phase, command=(1.0, 0.0, 0.0)):
    """The observation at TIME, without history."""
    contract = Contract.from_json(BARE | {"observation": terms} | ({} if phase is None else {"phase": phase}))
    again = Contract.from_json(json.loads(json.dumps(contract.to_json())))
    assert again == contract
    readings = Columns({"time": TIME[:, None], "command": np.tile(command, (len(TIME), 1))}, {})
    return again.observation.raw(readings, len(TIME))


def test_playgrounds_humanoid_gets_cos_of_both_feet_then_sin_and_never_stands():
    x = 2 * np.pi * 1.375 * TIME
    clock = {"frequency": 1.375, "feet": [0, np.pi], "waves": ["cos", "sin"]}
    for command in ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0)):
        assert np.allclose(seen(["phase"], clock, command), np.stack([np.cos(x), -np.cos(x), np.sin(x), -np.sin(x)], 1))


def test_unitrees_clock_is_sin_and_cos_of_one_period():
    x = 2 * np.pi * TIME / 0.8
    assert np.allclose(seen(["gait_phase"], {"period": 0.8}), np.stack([np.sin(x), np.cos(x)], 1))


def test_holosomas_feet_stand_at_one_phase_while_no_command_is_larger():
    clock = {"period": 1.0, "feet": [0, -np.pi], "still": 0.01, "stand": np.pi}
    x = 2 * np.pi * TIME
    both = ["cos_phase", "sin_phase"]
    assert np.allclose(seen(both, clock), np.stack([np.cos(x), -np.cos(x), np.sin(x), -np.sin(x)], 1), atol=1e-6)
    assert np.allclose(seen(both, clock, (0.0, 0.005, 0.0)), [-1, -1, 0, 0], atol=1e-6)
    assert np.allclose(seen(both, clock | {"stand": None}, (0.0, 0.005, 0.0)), 0)


def test_a_command_may_come_in_two_terms():
    assert np.allclose(seen(["command_ang_vel", "command_lin_vel"], None, (0.5, 0.2, -0.7)), [-0.7, 0.5, 0.2])


@pytest.mark.parametrize(
    "phase, message",
    [
        (None, "found no gait clock, expected the contract's field phase"),
        ({}, "either frequency .* or period"),
        ({"frequency": 1.0, "period": 1.0}, "either frequency .* or period"),
        ({"period": 0}, "period: expected 0.001 to 1000, found 0"),
        ({"frequency": 1.0, "waves": ["sine"]}, "did you mean sin"),
        ({"frequency": 1.0, "stand": 3.14}, "still: found nothing"),
        ({"frequency": 1.0, "foot": [0]}, "did you mean feet"),
        ({"frequency": 1.0, "still": 0.1, "stand": [1, 2], "feet": [0, 1, 2]}, "expected one phase for each foot"),
    ],
)
def test_a_clock_that_cannot_be_meant_is_refused_by_field(phase, message):
    with pytest.raises(SurefootError, match=message):
        seen(["phase"], phase)


def test_a_hundred_numbers_with_histories_of_different_lengths_are_stacked_as_isaac_lab_does():
    """By another route: a deque a term, filled with copies of its first frame, oldest first, all frames of a term together."""
    from collections import deque

    from surefoot.observation import History

    joints = [f"j{i}" for i in range(12)]
    lengths = {"base_ang_vel": 5, "projected_gravity": 3, "command": 1, "joint_pos": 6, "last_action": 2, "phase": 4}
    terms = [{"name": k, "history": n} for k, n in lengths.items()]
    short = BARE | {
        "joints": joints,
        "home": [0.0] * 12,
        "observation": terms,
        "layout": "terms",
        "phase": {"period": 0.7},
    }
    group = Contract.from_json(short).observation
    assert group.dim == 5 * 3 + 3 * 3 + 3 + 6 * 12 + 2 * 12 + 4 * 2 > 100
    frames = np.random.default_rng(0).standard_normal((9, 1, group.frame)).astype(np.float32)
    kept, history = {}, History(group, 1)
    for k, frame in enumerate(frames):
        told = history.push(frame, np.array([k == 0]))
        for t, at in zip(group.terms, group.columns):
            kept.setdefault(t.name, deque([frame[0, at]] * t.history, maxlen=t.history)).append(frame[0, at])
        assert np.array_equal(told[0], np.concatenate([x for t in group.terms for x in kept[t.name]]))
