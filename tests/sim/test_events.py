"""Forces on bodies against Newton's law, and the draws of a pull against its own."""

import mujoco
import numpy as np
import pytest
from scipy import stats

from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.sim.engine import Engine
from surefoot.sim.events import Pull
from surefoot.sim.fields.compile import compile_for
from surefoot.world import Chance, OnBody, Start, State

FREE = """
<mujoco><option timestep="0.01" integrator="Euler" gravity="0 0 0"><flag contact="disable"/></option>
<worldbody>
  <body name="ball"><joint type="free"/><geom type="sphere" size=".1" mass="2"/></body>
  <body name="bar" pos="1 0 0"><joint type="free"/><geom type="box" size=".5 .1 .1" pos=".3 0 0" mass="4"/></body>
</worldbody></mujoco>"""
PULL = Params((Param("pull", "pull", 0.0, 0.0, 50.0, op="set", unit="N"),))
NOTHING = Params()
BALL, BAR = slice(0, 3), slice(6, 9)  # velocities of their travel


class Steady(OnBody):
    """The same wrenches on the same bodies, always."""

    def __init__(self, bodies, wrenches):
        self.names, self.wrenches = bodies, np.asarray(wrenches, float)

    @property
    def bodies(self):
        return self.names

    def __call__(self, x, u, chance):
        return np.broadcast_to(self.wrenches, (len(x.q), *self.wrenches.shape))


def world(terms=(), params=NOTHING, n=3, e=None, xml=FREE) -> Engine:
    w = Engine(compile_for(mujoco.MjSpec.from_string(xml), params), params, n, 2, 1, terms)
    begin(w, e)
    return w


def begin(w: Engine, e=None, ids=None) -> None:
    ids = np.arange(w.n) if ids is None else ids
    q = np.tile(w.model.qpos0, (len(ids), 1))
    e = np.tile(w.params.nominal, (len(ids), 1)) if e is None else np.asarray(e, float)
    w.reset(ids, e, Start(q, np.zeros((len(ids), w.model.nv)), np.zeros((len(ids), 0))))


def run(w: Engine, steps: int, first: int = 0, seed: int = 0) -> np.ndarray:
    """Step on; the velocities after each step."""
    track = []
    for k in range(first, first + steps):
        assert not w.step(np.zeros((w.n, 0)), Chance(seed, k, w.dt)).any()
        track.append(w.state.v.copy())
    return np.array(track)


class TestBodies:
    def test_a_constant_force_accelerates_a_free_body_by_force_over_mass(self):
        """v = F t / m along each axis, though the bar's centre of mass is not at its body's origin: it does not turn."""
        w = world([Steady(("bar", "ball"), [[2.0, -4.0, 8.0, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]])])
        v, t = run(w, 50), 0.02 * np.arange(1, 51)[:, None]
        middle = v[:, 0, BAR] + np.cross(v[:, 0, 9:12], [0.3, 0, 0])
        assert np.allclose(middle, np.array([2.0, -4.0, 8.0]) * t / 4.0, rtol=1e-9)
        assert np.abs(v[:, :, 9:12]).max() < 1e-12
        assert np.allclose(v[:, 1, 0], t[:, 0] / 2.0, rtol=1e-12) and not v[:, :, 1:6].any()

    def test_a_torque_spins_a_ball_by_torque_over_its_inertia(self):
        w = world([Steady(("ball",), [[0, 0, 0, 0.01, 0, 0]])])
        assert np.allclose(run(w, 10)[-1, :, 3], 0.01 * 0.2 / (0.4 * 2.0 * 0.1**2), rtol=1e-9)

    def test_forces_of_several_terms_on_one_body_add_up(self):
        one, other = Steady(("ball",), [[1.0, 0, 0, 0, 0, 0]]), Steady(("bar", "ball"), [[0] * 6, [2.0, 0, 0, 0, 0, 0]])
        assert np.allclose(run(world([one, other]), 5)[-1, :, 0], 3.0 * 0.1 / 2.0)

    def test_what_was_put_on_each_body_can_be_read_and_is_gone_after_a_reset(self):
        w = world([Steady(("ball",), [[1.0, 2.0, 3.0, 0, 0, 0]])])
        run(w, 1)
        assert w.state.wrench[:, 1, :3].tolist() == [[1.0, 2.0, 3.0]] * 3 and not w.state.wrench[:, [0, 2]].any()
        begin(w, ids=np.array([1]))
        assert not w.state.wrench[1].any() and w.state.wrench[[0, 2], 1, 0].all()

    def test_a_body_that_is_not_there_is_named_before_anything_runs(self):
        with pytest.raises(SurefootError, match="term Steady: no body matches 'bal'.*did you mean ball"):
            world([Steady(("bal",), [[0] * 6])])

    def test_a_diverged_simulation_replays_from_its_bundle_with_its_wrenches(self):
        class Blow(Steady):
            def __call__(self, x, u, chance):
                out = np.array(super().__call__(x, u, chance))
                out[1] *= 1e12 if chance.step == 9 else 1.0
                return out

        w, again = world([Blow(("ball",), [[1.0, 0, 0, 0, 0, 0]])]), world(n=1)
        run(w, 9)
        assert w.step(np.zeros((3, 0)), Chance(0, 9, w.dt)).tolist() == [False, True, False]
        kept = w.replay_record(1)
        again.batch.state[:] = kept["state"]
        bad = []
        for force, wrench in zip(kept["forces"], kept["wrenches"], strict=True):
            again.batch.bind("qfrc_applied")[:], again.state.wrench[:] = force, wrench
            bad.append(bool(again.step(np.zeros((1, 0)), Chance(0, 0, again.dt))[0]))
        assert bad == [False] * (len(bad) - 1) + [True]
        assert "wrenches" not in world().replay_record(0)


def pulled(pull: Pull, n: int, steps: int, seed: int = 0, dt: float = 0.02, e: float = 10.0) -> np.ndarray:
    """(steps, n, 3) forces of a pull in n episodes that all begin at step 0."""
    found = []
    for k in range(steps):
        z = np.zeros((n, 0))
        x = State(np.full(n, k * dt), z, z, z, z, {}, np.full((n, 1), e), np.zeros((1, 3)), np.zeros((n, 1, 6)))
        wrench = pull(x, z, Chance(seed, k, dt))
        assert wrench.shape == (n, 1, 6) and not wrench[:, :, 3:].any()
        found.append(wrench[:, 0, :3])
    return np.array(found)


class TestPull:
    def test_it_moves_a_free_body_as_its_force_over_mass_adds_up(self):
        """m v = sum F dt: the engine integrates exactly the force that the term gave."""
        w = world([Pull("ball", PULL, seconds=(0.5, 1.0))], PULL, e=[[10.0], [20.0], [0.0]])
        given, v = [], []
        for k in range(100):
            w.step(np.zeros((3, 0)), Chance(0, k, w.dt))
            given.append(w.state.wrench[:, 1, :3].copy()), v.append(w.state.v[:, BALL].copy())
        assert np.allclose(np.array(v), np.cumsum(given, 0) * w.dt / 2.0, rtol=1e-9, atol=1e-12)
        assert np.abs(given)[:, :2].any((0, 2)).all() and not np.array(given)[:, 2].any()

    def test_no_pull_is_bit_equal_to_no_term(self):
        tied = FREE.replace('gravity="0 0 0"', "")
        plain, none = world((), PULL, xml=tied), world([Pull("ball", PULL)], PULL, xml=tied)
        assert np.array_equal(run(plain, 30), run(none, 30))
        assert np.array_equal(plain.batch.state, none.batch.state)

    def test_it_is_a_triangle_that_starts_at_any_phase_and_never_passes_its_size(self):
        force = pulled(Pull("ball", PULL, seconds=(1.0, 1.0), none=0.0), 400, 100)
        size = np.abs(force).sum(2)
        into = (size[1:] - size[:-1]) / 10.0  # of a wave of 50 steps: up or down by 1 / 25
        assert np.allclose(np.abs(into), 2 / 50, atol=1e-9)
        assert size.max() == pytest.approx(10.0) and size.min() == pytest.approx(0.0, abs=1e-9)
        phase = np.where(into[0] > 0, size[0] / 20, 1 - size[0] / 20)
        assert stats.kstest(phase, "uniform").pvalue > 0.01

    def test_periods_are_drawn_per_episode_from_their_range(self):
        size = np.abs(pulled(Pull("ball", PULL, seconds=(0.5, 1.5), none=0.0), 500, 200)).sum(2)
        length = np.array([np.diff(np.flatnonzero(np.isclose(s, 0.0, atol=1e-9))[:2])[0] for s in size.T])
        assert (length >= 25).all() and (length <= 75).all()
        assert stats.kstest((length - 24.5) / 51, "uniform").statistic < 0.08

    @pytest.mark.parametrize("none", [0.0, 0.25, 0.7])
    def test_an_axis_is_left_out_with_the_stated_chance_and_the_others_weigh_as_dirichlet_ones(self, none):
        n = 4000
        _, w = Pull("ball", PULL, none=none).draws(np.zeros(n), Chance(0, 7, 0.02))
        assert np.allclose((w == 0).mean(0), none, atol=4 * np.sqrt(none * (1 - none) / n) + 1e-12)
        size, sign = np.abs(w[w != 0]), w[w != 0] > 0
        assert stats.kstest(size, stats.beta(1, 2).cdf).statistic < 1.95 / np.sqrt(
            len(size) / 3
        )  # of a uniform simplex
        assert abs(sign.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(sign))
        assert np.allclose(np.abs(w).sum(1), 1.0) if none == 0 else (np.abs(w).sum(1) <= 1 + 1e-12).all()

    def test_each_period_of_an_episode_goes_another_way(self):
        force = pulled(Pull("ball", PULL, seconds=(0.2, 0.2), none=0.0), 50, 100)
        ways = [len({tuple(np.round(f / np.abs(f).sum(), 6)) for f in row if f.any()}) for row in force.swapaxes(0, 1)]
        assert min(ways) >= 10  # 100 steps are ten periods of ten

    def test_axes_and_caps_hold(self):
        pull = Pull("ball", PULL, along=(True, False, True), low=(-1.0, 0, -2.0), high=(1.0, 0, 0.5))
        force = pulled(pull, 300, 50, e=50.0)
        assert not force[..., 1].any()
        assert force.min((0, 1)).tolist() == [-1.0, 0.0, -2.0] and force.max((0, 1)).tolist() == [1.0, 0.0, 0.5]

    def test_size_is_set_in_newtons_or_scales_the_terms_own_for_the_bodies_it_matches(self):
        scale = Params((Param("p", "pull", 1.0, 0.0, 3.0, match="ball"),))
        e = np.array([[0.5], [3.0]])
        assert Pull("ball", PULL, force=8.0).size(e).tolist() == [0.5, 3.0]
        assert Pull("ball", scale, force=8.0).size(e).tolist() == [4.0, 24.0]
        assert Pull("bar", scale, force=8.0).size(e).tolist() == [8.0, 8.0]

    def test_one_env_that_ends_or_is_pulled_harder_moves_no_other_by_a_bit(self):
        """Nor do more envs: env i is pulled as it would be alone."""
        term, e = [Pull("ball", PULL, seconds=(0.3, 0.6))], np.full((4, 1), 10.0)
        clean, hurt = world(term, PULL, 4, e), world(term, PULL, 4, e * [[1], [1], [3], [1]])
        few = world(term, PULL, 2, e[:2])
        tracks = [run(w, 20) for w in (clean, hurt, few)]
        begin(hurt, [[10.0]], np.array([2]))
        tracks = [np.concatenate([t, run(w, 40, 20)]) for t, w in zip(tracks, (clean, hurt, few))]
        assert np.array_equal(tracks[0][:, [0, 1, 3]], tracks[1][:, [0, 1, 3]])
        assert np.array_equal(tracks[0][:, :2], tracks[2])
        assert not np.array_equal(tracks[0][:, 2], tracks[1][:, 2])

    def test_two_bodies_two_seeds_and_two_episodes_are_pulled_differently(self):
        ball, bar = (pulled(Pull(b, PULL, none=0.0), 3, 5) for b in ("ball", "bar"))
        assert (
            not np.isclose(ball, bar).any()
            and not np.isclose(ball, pulled(Pull("ball", PULL, none=0.0), 3, 5, 1)).any()
        )
        w = world([Pull("ball", PULL, none=0.0)], PULL, e=[[10.0]] * 3)
        first = run(w, 5)
        begin(w, [[10.0]] * 3)
        assert not np.isclose(first, run(w, 5, first=5))[..., BALL].any()

    def test_save_and_load_go_on_with_the_same_bits(self):
        term, e = [Pull("ball", PULL, seconds=(0.3, 0.6))], np.full((3, 1), 10.0)
        w, again = world(term, PULL, e=e), world(term, PULL)
        run(w, 17)
        saved = w.save()
        again.load(saved)
        assert np.array_equal(run(w, 30, 17), run(again, 30, 17))

    @pytest.mark.parametrize(
        ("told", "says"),
        [
            ({"seconds": (0.0, 1.0)}, "seconds: expected 0 < shortest"),
            ({"seconds": (3.0, 1.0)}, "seconds: expected 0 < shortest"),
            ({"none": 1.5}, "none: expected a probability from 0 to 1, found 1.5"),
            ({"along": (False, False, False)}, "along: expected at least one axis"),
        ],
    )
    def test_what_cannot_be_is_refused(self, told, says):
        with pytest.raises(SurefootError, match=f"pull on ball: {says}"):
            Pull("ball", PULL, **told)
