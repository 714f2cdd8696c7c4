"""Training begins more often where episodes fail, and a checkpoint remembers where that is."""

import numpy as np

from surefoot.env import Episodes
from surefoot.learn.ranges.starts import RATE, UNIFORM, Starts
from surefoot.task import Clip, Episode
from surefoot.world import Start


def begin(rng, n, chances):
    return Episode(Start(np.zeros((n, 1)), np.zeros((n, 1)), np.zeros((n, 0))))


CLIP = Clip("five seconds", 5.0, 5, begin)


def ended(phases, reasons):
    n = len(phases)
    zero, no = np.zeros(n), np.zeros(n, bool)
    return Episodes(np.arange(n), zero, zero, no, zero, list(reasons), np.zeros((n, 0)), zero, np.array(phases, float))


def test_before_the_first_failure_every_part_is_as_likely():
    starts = Starts(CLIP)
    starts.tell([ended([5.0, 5.0], ["time", "time"])], 24)
    assert np.allclose(starts.chances, 0.2) and np.isclose(starts.facts()["starts_entropy"], 1.0)


def test_chances_are_the_share_of_failures_and_a_uniform_rest():
    starts = Starts(CLIP)
    starts.tell([ended([0.5, 3.2, 3.9, 5.0], ["fell", "fell", "tilt", "time"])], 24)
    assert np.allclose(starts.chances, np.array([1, 0, 0, 2, 0]) / 3 * (1 - UNIFORM) + UNIFORM / 5)
    assert starts.facts()["starts_hardest"] == 3.0


def test_failures_are_forgotten_at_the_rate_of_control_periods_not_of_rollouts():
    once, often = Starts(CLIP), Starts(CLIP)
    for starts in (once, often):
        starts.tell([ended([1.5], ["fell"])], 10)
    once.tell([], 100)
    for _ in range(10):
        often.tell([], 10)
    assert np.allclose(once.failed, often.failed) and np.isclose(
        once.failed[1], (1 - (1 - RATE) ** 10) / 10 * (1 - RATE) ** 100
    )


def test_a_failure_at_the_very_end_counts_in_the_last_part():
    starts = Starts(CLIP)
    starts.tell([ended([5.02], ["fell"])], 1)
    assert starts.chances.argmax() == 4


def test_it_goes_on_from_what_was_saved():
    a, b = Starts(CLIP), Starts(CLIP)
    a.tell([ended([2.5], ["fell"])], 24)
    b.load(a.save())
    assert np.array_equal(a.chances, b.chances)
