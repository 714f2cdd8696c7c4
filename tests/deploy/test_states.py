"""The states of a run: every event in every state has a known answer, and damping leads to nothing but the end."""

from itertools import product
from typing import get_args

from surefoot.deploy.runtime.states import NEXT, Event, State, States

EVENTS, STATES = get_args(Event), get_args(State)


def reached(start: str) -> set[str]:
    found = {start}
    while True:
        more = {after for (state, _), after in NEXT.items() if state in found}
        if more <= found:
            return found
        found |= more


def test_damping_is_latched():
    assert reached("damping") == {"damping", "ended"} and reached("ended") == {"ended"}
    assert [e for e in EVENTS if ("damping", e) in NEXT] == ["acknowledged"]


def test_a_robot_that_was_commanded_is_damped_before_the_run_ends():
    """Of all ways through the states, none leads from soft start or running to the end but through damping."""
    for state, event in product(("soft start", "running"), EVENTS):
        assert NEXT.get((state, event)) in (None, "damping", "running")


def test_every_state_but_the_last_can_end_by_a_fault_and_by_a_stop():
    for state in ("checking", "soft start", "running", "dry"):
        assert {NEXT[state, event] for event in ("fault", "stop")} <= {"damping", "ended"}


def test_a_dry_run_never_becomes_a_live_one():
    assert reached("dry") == {"dry", "ended"}


def test_events_that_mean_nothing_change_nothing_and_the_first_cause_is_kept():
    s = States()
    assert not s.on("done", "", 0.0) and s.now == "checking"
    for event, why in (("ready", ""), ("reached", ""), ("fault", "stale"), ("stop", "key"), ("acknowledged", "")):
        s.on(event, why, 1.0)
    assert s.now == "ended" and (s.cause.event, s.cause.why) == ("fault", "stale")
    assert [c.state for c in s.changes] == ["checking", "soft start", "running", "damping", "ended"]
