"""Training begins more often where episodes fail, and a checkpoint remembers where that is."""

import numpy as np

from surefoot.env import Episodes
from surefoot.learn.ranges.starts import BLAMED, RATE, UNIFORM, Starts
from surefoot.task import Clip, Episode
from surefoot.world import Start


def begin(rng, n, chances):
    return Episode(Start(np.zeros((n, 1)), np.zeros((n, 1)), np.zeros((n, 0))))


CLIP = Clip("five seconds", 5.0, 5, begin)


def ended(phases, reasons, lengths=None):
    """Episodes of these control periods of 0.02 s; without, all as long as what is blamed."""
    n = len(phases)
    zero, no = np.zeros(n), np.zeros(n, bool)
    long = np.full(n, round(BLAMED / 0.02)) if lengths is None else np.array(lengths)
    return Episodes(np.arange(n), zero, long, no, zero, list(reasons), np.zeros((n, 0)), zero, np.array(phases, float))


def test_before_the_first_failure_every_part_is_as_likely():
    starts = Starts(CLIP, 0.02)
    starts.tell([ended([5.0, 5.0], ["time", "time"])], 24)
    assert np.allclose(starts.chances, 0.2) and np.isclose(starts.facts()["starts_entropy"], 1.0)


def test_a_failure_is_blamed_on_the_second_before_it():
    starts = Starts(CLIP, 0.02)
    starts.tell([ended([3.2], ["fell"], [100])], 1)
    assert np.allclose(starts.failed / starts.failed.sum(), [0, 0, 0.8, 0.2, 0])
    assert np.allclose(starts.spent / starts.spent.sum(), [0, 0.4, 0.5, 0.1, 0])  # it began at 1.2 s
    late = Starts(CLIP, 0.02)
    late.tell([ended([3.2], ["fell"], [5])], 1)  # it began at 3.1 s: no part before is to blame
    assert np.allclose(late.failed / late.failed.sum(), [0, 0, 0, 1, 0])


def test_what_counts_is_how_often_and_not_how_many():
    """Nine of ten episodes are in the last part and half of all fall, wherever: every part is as likely, but for the prior."""
    starts = Starts(CLIP, 0.02)
    phases = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [2, 2, 2, 2, 72])
    starts.tell([ended(phases, ["fell", "time"] * 40)], 24)
    assert np.allclose(starts.chances, 0.2)


def test_training_begins_where_falls_begin():
    starts = Starts(CLIP, 0.02)
    starts.tell([ended([1.0, 2.0, 3.0, 4.0, 5.0] * 10, (["time"] * 2 + ["fell"] + ["time"] * 2) * 10)], 24)
    assert starts.chances[2] > 0.8 and np.isclose(starts.chances.sum(), 1.0) and starts.chances.min() >= UNIFORM / 5
    assert starts.facts()["starts_hardest"] == 2.0


def test_failures_are_forgotten_at_the_rate_of_control_periods_not_of_rollouts():
    once, often = Starts(CLIP, 0.02), Starts(CLIP, 0.02)
    for starts in (once, often):
        starts.tell([ended([2.0], ["fell"])], 10)
    once.tell([], 100)
    for _ in range(10):
        often.tell([], 10)
    assert np.allclose(once.failed, often.failed) and np.allclose(once.spent, often.spent)
    assert np.isclose(once.failed[1], (1 - (1 - RATE) ** 10) / 10 * (1 - RATE) ** 100)


def test_a_failure_at_the_very_end_counts_in_the_last_part():
    starts = Starts(CLIP, 0.02)
    starts.tell([ended([5.02], ["fell"], [1])], 1)
    assert starts.failed.argmax() == 4 and starts.failed[:4].max() == 0.0


def test_it_goes_on_from_what_was_saved():
    a, b = Starts(CLIP, 0.02), Starts(CLIP, 0.02)
    a.tell([ended([2.5], ["fell"])], 24)
    b.load(a.save())
    assert np.array_equal(a.chances, b.chances)
