"""How beliefs grow: against closed forms, and on a policy whose success is known."""

import json

import numpy as np
import pytest
from scipy import stats

from surefoot.belief import Box, point
from surefoot.errors import SurefootError
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.ranges.doraemon import Doraemon, entropy, kl, log_density, step, success
from surefoot.learn.ranges.ramp import Ramp
from surefoot.learn.ranges.widen import Widen
from surefoot.params import Param, Params
from surefoot.rng import Rows

PARAMS = Params((
    Param("mass", "mass", 1.0, 0.1, 10.0, log=True),
    Param("gain", "strength", 1.0, 0.0, 2.0),
    Param("latency", "action_delay", 0.0, 0.0, 0.1, op="set"),
    Param("fixed", "damping", 0.5, 0.0, 1.0),
))  # fmt: skip
TARGET = Box.ranges(PARAMS, {"mass": (0.5, 2.0), "gain": (0.4, 1.6), "latency": (0.0, 0.04)})
EPISODE = 10
TRAINING = 4000
ROUND = EPISODE + 1  # steps from one round of episodes to the next: those begun as a belief moves are of the old one


def grown(settings, able, rounds: int = 300, each: int = 64, watch=lambda ranges: None):
    """Let ranges grow on a policy that succeeds where able(e): episodes begin together and last EPISODE steps."""
    ranges = settings.start(TARGET, EPISODE, TRAINING)
    for k in range(rounds):
        e = ranges.belief.sample(Rows(0, "e", k, np.arange(each)), each)
        ranges.tell(e, able(e), np.full(each, k * ROUND + 1), (k + 1) * ROUND)
        watch(ranges)
    return ranges


ALL = [Widen(), ADR(), Doraemon()]


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: ADR(step=-0.1), "adr.step: expected 0.001 to 1, found -0.1"),
        (lambda: ADR(narrow_at=0.7), "adr.narrow_at: expected below widen_at 0.6, found 0.7"),
        (lambda: Widen(above=80), "widen.above: expected 0 to 1, found 80"),
        (lambda: Ramp(begin=0.5, end=0.4), "ramp.end: expected more than ramp.begin 0.5, found 0.4"),
        (lambda: Doraemon(alpha=float("nan")), "doraemon.alpha: expected 0 to 1, found nan"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(make, word):
    with pytest.raises(SurefootError, match=word):
        make()


def always(e):
    return np.ones(len(e), bool)


def never(e):
    return np.zeros(len(e), bool)


def gain_at_least(low):
    return lambda e: e[:, 1] >= low


def test_episodes_on_ranges_without_width_tell_of_one_edge_each():
    """Six edges and ten episodes for each: none moves before 60 episodes are nearly heard, and all have at 60."""
    assert grown(ADR(), always, rounds=1, each=54).facts()["width"] == 0
    edges = grown(ADR(), always, rounds=1, each=60).edges
    assert edges[:, :3].round(6).tolist() == [[0.3, 0.3, 0.0], [0.7, 0.7, 0.2]]


def test_an_episode_drawn_before_the_belief_moved_does_not_count_for_it():
    ranges = Widen(episodes=64).start(TARGET, EPISODE, TRAINING)
    e = ranges.belief.sample(np.random.default_rng(0), 64)
    ranges.tell(e, always(e), np.full(64, 1), ROUND)  # the belief moves
    width = ranges.facts()["width"]
    ranges.tell(e, always(e), np.full(64, ROUND), 2 * ROUND)  # these began in that very step, before it moved
    assert width > 0 and ranges.facts()["width"] == width and not len(ranges.seen)


def test_a_ramp_is_as_wide_as_its_share_of_the_training_whatever_succeeds():
    ranges, widths = Ramp(begin=0.2, end=0.6).start(TARGET, EPISODE, TRAINING), []
    none = np.zeros((0, len(PARAMS))), np.zeros(0, bool), np.zeros(0, int)
    for now in (0, 800, 1200, 1600, 2400, 4000):
        ranges.tell(*none, now)
        widths.append(ranges.facts()["width"])
    assert widths == pytest.approx([0, 0, 0.25, 0.5, 1, 1])
    assert ranges.belief.low.tolist() == pytest.approx(TARGET.low.tolist())
    assert ranges.belief.high.tolist() == pytest.approx(TARGET.high.tolist())


def test_a_ramp_goes_on_from_a_save():
    ranges, again = (Ramp().start(TARGET, EPISODE, TRAINING) for _ in range(2))
    ranges.tell(np.zeros((0, 4)), np.zeros(0, bool), np.zeros(0, int), 1400)
    again.load(ranges.save())
    assert again.facts() == ranges.facts() and 0 < ranges.facts()["width"] < 1
    assert json.dumps(again.belief.to_json()) == json.dumps(ranges.belief.to_json())


@pytest.mark.parametrize("settings", ALL, ids=lambda s: type(s).__name__)
class TestAll:
    def test_it_begins_at_the_nominal_and_stays_there_while_nothing_succeeds(self, settings):
        ranges = grown(settings, never, 50)
        e = ranges.belief.sample(np.random.default_rng(0), 1000)
        z = ranges.target.share(e)[:, :3]
        assert np.abs(z - TARGET.share(PARAMS.nominal)[:3]).mean() < 0.05 and (e[:, 3] == 0.5).all()

    def test_it_reaches_the_target_when_everything_succeeds(self, settings):
        found = []
        ranges = grown(settings, always, watch=lambda r: found.append(r.facts()["ranges_entropy"]))
        assert ranges.facts()["ranges_entropy"] == pytest.approx(0.0, abs=0.02) and ranges.facts()["width"] > 0.98
        assert (np.diff(found) >= -1e-6).all()
        e = ranges.belief.sample(np.random.default_rng(0), 4000)
        assert (np.isclose(e, TARGET.low) | (e > TARGET.low)).all() and TARGET.inside(e).all()
        assert stats.kstest(TARGET.share(e)[:, 0], "uniform").statistic < (0.15 if settings == ADR() else 0.03)

    def test_it_goes_on_with_the_same_bits_from_a_save(self, settings):
        half = grown(settings, gain_at_least(0.8), 40)
        again = settings.start(TARGET, EPISODE, TRAINING)
        again.load({k: v for k, v in half.save().items()})
        for ranges in (half, again):
            for k in range(40, 60):
                e = ranges.belief.sample(Rows(0, "e", k, np.arange(64)), 64)
                ranges.tell(e, e[:, 1] >= 0.8, np.full(64, k * ROUND + 1), (k + 1) * ROUND)
        assert all(np.array_equal(v, again.save()[k]) for k, v in half.save().items())
        assert json.dumps(half.belief.to_json()) == json.dumps(again.belief.to_json())

    def test_a_belief_without_width_cannot_grow(self, settings):
        with pytest.raises(SurefootError, match="expected a box with some width, found no width"):
            settings.start(point(PARAMS, PARAMS.nominal), EPISODE, TRAINING)

    def test_failures_that_end_early_are_not_heard_of_before_the_successes_they_began_with(self, settings):
        """Told all failures at once and successes at their time, it moves as if told both at their time."""
        early, late = settings.start(TARGET, EPISODE, TRAINING), settings.start(TARGET, EPISODE, TRAINING)
        rng = np.random.default_rng(0)
        for k in range(200):
            e = early.belief.sample(Rows(1, "e", k, np.arange(64)), 64)
            won, began = rng.random(64) < 0.9, np.full(64, k * ROUND + 1)
            early.tell(e[~won], won[~won], began[~won], k * ROUND + 2)
            early.tell(e[won], won[won], began[won], (k + 1) * ROUND)
            order = np.argsort(won, kind="stable")
            late.tell(e[order], won[order], began, (k + 1) * ROUND)
        assert early.facts() == late.facts() and early.facts()["width"] > 0.2


def test_an_edge_that_goes_on_goes_further_each_time():
    """0.05 (1 + 1.5 + 2.25 + ...) from the centre at 0.5, until the target ends at 1."""
    seen = []
    grown(ADR(step=0.05), always, 40, watch=lambda r: seen.append(round(float(r.edges[1, 0]), 6)))
    assert list(dict.fromkeys(seen)) == [0.55, 0.625, 0.7375, 0.90625, 1.0]


def test_an_edge_that_cannot_move_inward_takes_its_first_step_no_larger_for_that():
    ranges = grown(ADR(step=0.05), never, 40)
    e = ranges.belief.sample(Rows(0, "e", 40, np.arange(64)), 64)
    ranges.tell(e, always(e), np.full(64, 40 * ROUND + 1), 41 * ROUND)
    moved = ranges.edges[:, :3] - ranges.centre[:3]
    assert np.abs(moved).max() == pytest.approx(0.05)


def test_an_edge_that_hurts_stops_while_the_others_grow():
    """Success needs a gain of 0.8 or more, of a target 1.2 wide: turning round, the edge comes within 3 % of it."""
    ranges = grown(ADR(), gain_at_least(0.8))
    low, high = ranges.belief.low, ranges.belief.high
    assert low[1] == pytest.approx(0.8, abs=0.03 * 1.2)
    others = [low[0], high[0], high[1], high[2]]
    assert np.allclose(others, [0.5, 2.0, 1.6, 0.04])


def test_one_range_grows_alone_while_the_others_are_whole_from_the_first_step():
    """Success needs a gain of 0.8: its lower edge stops there, its upper one ends at 1.6, no other ever moves."""
    begun = ADR(only=("gain",)).start(TARGET, EPISODE, TRAINING)
    assert begun.belief.low.tolist() == [0.5, 1.0, 0.0, 0.5] and begun.belief.high.tolist() == [2.0, 1.0, 0.04, 0.5]
    assert begun.facts()["width"] == 0
    ranges = grown(ADR(only=("gain",)), gain_at_least(0.8), 100)
    assert ranges.belief.low[1] == pytest.approx(0.8, abs=0.03 * 1.2) and ranges.belief.high[1] == pytest.approx(1.6)
    e = ranges.belief.sample(np.random.default_rng(0), 6000)
    on = np.stack([e == ranges.belief.low, e == ranges.belief.high])[:, :, :3].mean(1)
    assert np.allclose(on, [[0, 0.25, 0], [0, 0.25, 0]], atol=0.02)


@pytest.mark.parametrize(
    "name, word",
    [
        ("gian", "did you mean gain"),
        ("fixed", "adr.only: expected a parameter whose range has some width, found fixed"),
    ],
)
def test_a_range_that_cannot_grow_alone_is_refused(name, word):
    with pytest.raises(SurefootError, match=word):
        ADR(only=(name,)).start(TARGET, EPISODE, TRAINING)


def test_the_simple_schedule_stops_everything_where_one_parameter_hurts():
    """Above 0.56 of the target's width success is below 80 %; ADR's other edges are all out with fewer episodes."""
    simple = grown(Widen(episodes=1000), gain_at_least(0.8), 40, each=1000)
    assert 0.5 <= simple.facts()["width"] <= 0.75
    edges = grown(ADR(), gain_at_least(0.8), 40).edges
    assert edges[:, [0, 2]].tolist() == [[0, 0], [1, 1]] and edges[1, 1] == 1 and edges[0, 1] > 0


def test_half_of_the_episodes_are_on_an_edge_and_each_edge_gets_its_share():
    ranges = grown(ADR(), always)
    e = ranges.belief.sample(np.random.default_rng(0), 6000)
    on = np.stack([e == ranges.belief.low, e == ranges.belief.high])[:, :, :3]
    assert on.sum((0, 2)).max() <= 1
    assert np.allclose(on.mean(1), 0.5 / 6, atol=0.012)


class TestDoraemon:
    def test_gradients_are_those_of_finite_differences(self):
        rng = np.random.default_rng(0)
        old, a, b = (rng.uniform(2, 6, 3), rng.uniform(2, 6, 3)), rng.uniform(1, 5, 3), rng.uniform(1, 5, 3)
        z, won = rng.beta(*old, (50, 3)), rng.random(50) < 0.7
        for f in (entropy, lambda a, b: kl(old, a, b), lambda a, b: success(z, won, log_density(z, *old), a, b)):
            x, h = np.concatenate([a, b]), 1e-6
            slope = [(f(*np.split(x + d, 2))[0] - f(*np.split(x - d, 2))[0]) / (2 * h) for d in h * np.eye(6)]
            assert np.allclose(f(a, b)[1], slope, rtol=1e-5, atol=1e-6)

    def test_entropy_and_kl_are_scipys_and_the_estimate_is_unbiased(self):
        a, b, old = np.array([2.0, 5.0]), np.array([3.0, 1.5]), (np.array([4.0, 4.0]), np.array([4.0, 2.0]))
        assert entropy(a, b)[0] == pytest.approx(sum(stats.beta(*s).entropy() for s in zip(a, b)))
        z = np.random.default_rng(0).beta(*old, (400_000, 2))
        ratio = (stats.beta.logpdf(z, *old) - stats.beta.logpdf(z, a, b)).sum(1)
        assert kl(old, a, b)[0] == pytest.approx(ratio.mean(), abs=4 * ratio.std() / 630)
        won = z[:, 0] > 0.4
        assert success(z, won, log_density(z, *old), a, b)[0] == pytest.approx(stats.beta(2, 3).sf(0.4), abs=0.01)

    def test_an_episode_is_weighed_by_the_law_it_was_drawn_from_though_the_law_has_moved_since(self):
        """Half of the episodes begin under the first law, half under the second: each is remembered with its own density."""
        ranges = Doraemon(episodes=64).start(TARGET, EPISODE, TRAINING)
        first = (ranges.a.copy(), ranges.b.copy())
        e = ranges.belief.sample(np.random.default_rng(0), 64)
        ranges.tell(e, always(e), np.full(64, 1), ROUND)  # the law moves at step ROUND
        second = (ranges.a.copy(), ranges.b.copy())
        assert not np.allclose(first[0], second[0])
        old, new = e[:20], ranges.belief.sample(np.random.default_rng(1), 20)
        began = np.repeat([ROUND, ROUND + 1], 20)  # the first ones were drawn in the very step it moved, before that
        ranges.tell(np.concatenate([old, new]), np.ones(40), began, 2 * ROUND + 1)
        z = [TARGET.share(x)[:, :3] for x in (old, new)]
        expected = [log_density(z[0], *first), log_density(z[1], *second)]
        assert np.allclose(ranges.seen[:, 1], np.concatenate(expected))
        assert np.allclose(expected[1], stats.beta.logpdf(z[1], *second).sum(1))

    def test_its_width_is_that_of_a_range_as_uncertain(self):
        """Beta(2, 2) has 5/3 + ln(1/6) nats: as many as a uniform range of width 0.882."""
        ranges = Doraemon().start(TARGET, EPISODE, TRAINING)
        ranges.a, ranges.b = np.full(3, 2.0), np.full(3, 2.0)
        assert ranges.facts()["width"] == pytest.approx(np.exp(5 / 3) / 6)
        assert ranges.facts()["ranges_entropy"] == pytest.approx(5 / 3 - np.log(6))

    def test_a_step_uses_its_whole_kl_and_no_more(self):
        old = (np.full(4, 100.0), np.full(4, 100.0))
        z = np.random.default_rng(0).beta(*old, (300, 4))
        for eps in (0.01, 0.1, 0.5):
            new = step(old, z, np.ones(300), log_density(z, *old), 0.5, eps)
            assert 0.95 * eps <= kl(old, *new)[0] <= 1.01 * eps
            assert np.allclose(new[0], new[1], rtol=0.15) and (new[0] < old[0]).all()

    def test_it_is_as_wide_as_success_allows_and_every_step_keeps_its_promises(self):
        """Success where gain >= 0.7, z >= 0.25 of its range: the widest law that keeps half is not far from uniform."""
        steps, eps, alpha = [], 0.1, 0.6
        settings = Doraemon(alpha=alpha, eps=eps)
        able = gain_at_least(0.7)
        ranges = grown(settings, able, 600, watch=lambda r: steps.append(r.kl))
        assert ranges.facts()["width"] >= 0.9 and max(steps) <= 1.05 * eps
        e = ranges.belief.sample(np.random.default_rng(5), 20_000)
        assert able(e).mean() >= alpha - 0.05

    def test_where_the_law_fails_too_often_it_moves_to_where_it_succeeds(self):
        old = (np.array([2.0]), np.array([2.0]))
        z = np.random.default_rng(0).beta(*old, (400, 1))
        new = step(old, z, (z[:, 0] > 0.7).astype(float), log_density(z, *old), 0.5, 0.2)
        assert stats.beta(new[0][0], new[1][0]).sf(0.7) > 1.5 * stats.beta(2, 2).sf(0.7) and kl(old, *new)[0] <= 0.201
