"""Unknowns come back from logs of worlds that have them; what a log cannot tell is said."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import Box, point
from surefoot.errors import SurefootError
from surefoot.learn.nets.policy_net import linear
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.episodes import logged
from surefoot.real2sim.identify import Identify, identify
from surefoot.real2sim.identify.fit import Case, Problem, Space
from surefoot.real2sim.identify.noise import Noise, estimate, is_white, shared
from surefoot.real2sim.identify.param_grammar import learnable
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import windows
from surefoot.rng import stream
from surefoot.tasks.rollout import contract
from surefoot.world import Chance, Start

XML = """<mujoco><compiler angle="radian"/><option timestep="0.01" integrator="implicitfast"/>
<worldbody><body name="arm"><joint name="hinge" axis="0 1 0" damping=".1" armature=".02"/>
  <inertial pos="0 0 -.3" mass="1" diaginertia=".01 .01 .01"/></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""
PARAMS = Params((
    Param("mass", "mass", 1.0, 0.5, 2.0, match="arm", log=True),
    Param("damping", "damping", 0.1, 0.02, 0.5, op="set", log=True),
    Param("armature", "armature", 0.02, 0.001, 0.05, op="set"),
))  # fmt: skip
TRUTH = np.array([1.3, 0.16, 0.03])
QUICK = Identify(horizons=(0.3,), starts="known", hold=0.0, iterations=20)


def pendulum(params=PARAMS, xml=XML):
    return world(mujoco.MjSpec.from_string(xml), params, 0.01)


def recorded(w, e, seconds=2.0, noise=(0.0, 0.0), seed=0, drive=2.0, q0=0.0):
    count = round(seconds / w.dt)
    t = w.dt * np.arange(count + 1)
    u = drive * (np.sin(4 * t) + 0.5 * np.sin(9 * t + 1))[:, None]
    start = np.full((1, 1), q0)
    w.reset(np.arange(1), e[None], Start(start, np.zeros((1, 1)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    y = np.concatenate([[[q0, 0.0]], np.concatenate([m.q[0], m.v[0]], 1)])
    y[1:] += stream(seed, "noise").standard_normal((count, 2)) * noise
    return Log(t, {"joint_pos": y[:, :1], "joint_vel": y[:, 1:], "control": u})


def test_identify_recovers_what_it_was_not_told():
    found = identify(pendulum(), Box.full(PARAMS), recorded(pendulum(), TRUTH), QUICK)
    assert found.e == pytest.approx(TRUTH, rel=1e-4)
    assert found.fit["joint_pos"][1] < 1e-4 * found.fit["joint_pos"][0]


def test_intervals_are_as_wide_as_the_noise_makes_them():
    """sd of each estimate against the Cramer-Rao bound at the truth, with the noise given and not estimated."""
    noise, w = (0.01, 0.05), pendulum()
    log = recorded(w, TRUTH, noise=noise)
    found = identify(w, Box.full(PARAMS), log, QUICK)
    space = Space.of(Box.full(PARAMS), 0.01)
    J = Problem(space, (Case(w, windows(w, log), False),), (Noise(np.array(noise), np.zeros(2)),)).jacobian(
        space.z(TRUTH)
    )
    sd_y = np.sqrt(np.diag(np.linalg.inv(J.T @ J))) * [np.log(4.0), np.log(25.0), 0.049]
    assert np.sqrt(np.diag(found.belief.cov)) == pytest.approx(sd_y, rel=0.15)
    assert found.white and all(p.determined for p in found.params)
    y = lambda e: np.array([np.log(e[0]), np.log(e[1]), e[2]])  # noqa: E731
    assert (np.abs(y(found.e) - y(TRUTH)) < 4 * sd_y).all()


def test_the_noise_of_each_channel_is_found():
    found = identify(pendulum(), Box.full(PARAMS), recorded(pendulum(), TRUTH, noise=(0.002, 0.3), seconds=4.0), QUICK)
    sd = [c["sd"] for c in found.noise[0].values()]
    assert sd == pytest.approx([0.002, 0.3], rel=0.1)


def test_a_machine_at_rest_tells_nothing_and_that_is_said():
    found = identify(pendulum(), Box.full(PARAMS), recorded(pendulum(), TRUTH, drive=0.0, noise=(0.01, 0.05)), QUICK)
    assert not any(p.determined for p in found.params)
    low, high = found.belief.interval()
    assert (low < 0.6 * high).all()


def test_what_only_a_product_tells_is_told_as_a_combination():
    """Two motors' gains on one joint driven alike: only their sum acts."""
    xml = XML.replace(
        '<motor name="motor" joint="hinge"/>', '<motor name="a" joint="hinge"/><motor name="b" joint="hinge"/>'
    )
    params = Params(tuple(Param(n, "strength", 1.0, 0.5, 1.5, match=n) for n in "ab"))
    w = pendulum(params, xml)
    log = recorded_two(w, np.array([1.2, 0.9]))
    found = identify(w, Box.full(params), log, QUICK)
    assert not any(p.determined for p in found.params)
    assert len(found.combinations) == 1 and "+1.00 a +1.00 b" in found.combinations[0].replace("-1.00", "+1.00")
    assert found.e.sum() == pytest.approx(2.1, rel=1e-3)


def recorded_two(w, e):
    one = recorded(pendulum(), TRUTH)
    u = np.repeat(one["control"], 2, 1)
    w.reset(np.arange(1), e[None], Start(np.zeros((1, 1)), np.zeros((1, 1)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, w.dt))
    y = np.concatenate([np.zeros((1, 2)), np.concatenate([m.q[0], m.v[0]], 1)])
    y[1:] += stream(1, "noise").standard_normal((len(y) - 1, 2)) * 1e-3
    return Log(one.time, {"joint_pos": y[:, :1], "joint_vel": y[:, 1:], "control": u})


def test_an_unknown_start_is_fitted_and_does_not_bend_the_rest():
    w = pendulum()
    log = recorded(w, TRUTH, noise=(0.002, 0.02), q0=0.4)
    y = log["joint_vel"].copy()
    y[0] += 0.5  # a bad first reading
    bad = Log(log.time, {**log.columns, "joint_vel": y})
    how = dict(horizons=(0.3,), hold=0.0, iterations=20)
    estimated = identify(w, Box.full(PARAMS), bad, Identify(starts="estimated", **how)).e
    known = identify(w, Box.full(PARAMS), bad, Identify(starts="known", **how)).e
    assert np.abs(estimated / TRUTH - 1).max() < 0.2 * np.abs(known / TRUTH - 1).max()


def test_what_was_kept_aside_is_predicted_better_too():
    how = Identify(horizons=(0.3,), starts="known", iterations=20)
    found = identify(pendulum(), Box.full(PARAMS), recorded(pendulum(), TRUTH, 3.0, noise=(0.002, 0.02)), how)
    before, after = found.held_out["joint_pos"]
    assert after < 0.2 * before


def test_missing_physics_is_flagged_and_widens_the_intervals():
    """A spring the model has not got: what is left is no noise."""
    xml = XML.replace('armature=".02"', 'armature=".02" stiffness="2"')
    w = pendulum()
    log = recorded(pendulum(xml=xml), TRUTH, noise=(0.002, 0.02))
    found, plain = (
        identify(w, Box.full(PARAMS), log, QUICK),
        identify(w, Box.full(PARAMS), recorded(w, TRUTH, noise=(0.002, 0.02)), QUICK),
    )
    assert plain.white and not found.white
    assert (np.diag(found.belief.cov) > 4 * np.diag(plain.belief.cov)).all()


def test_two_logs_tell_more_than_one():
    w, noise = pendulum(), (0.01, 0.05)
    logs = [recorded(w, TRUTH, noise=noise, seed=s) for s in (0, 1)]
    one, both = (identify(w, Box.full(PARAMS), x, QUICK).belief.cov for x in (logs[0], logs))
    assert np.diag(both) == pytest.approx(np.diag(one) / 2, rel=0.25)


def test_autocorrelation_is_found_and_whitened_away():
    rng, r = stream(0, "ar"), np.zeros((4, 2000, 2))
    r[:, 0] = rng.standard_normal((4, 2))
    for k in range(1, 2000):
        r[:, k] = [0.9, 0.0] * r[:, k - 1] + np.sqrt([1 - 0.81, 1.0]) * rng.standard_normal((4, 2))
    noise = estimate([r], 0)
    assert noise.rho == pytest.approx([0.9, 0.0], abs=0.02)
    assert noise.sd == pytest.approx([1.0, 1.0], rel=0.05)
    assert is_white([noise.whiten(r)]) and not is_white([r])


def coloured(rho, count, seed):
    """(1, count, C) stationary, of unit spread."""
    rng, rho = stream(seed, "ar"), np.array(rho)
    r = rng.standard_normal((1, count, len(rho)))
    for k in range(1, count):
        r[:, k] = rho * r[:, k - 1] + np.sqrt(1 - rho**2) * r[:, k]
    return r


def test_channels_share_an_autocorrelation_unless_the_log_tells_theirs_apart():
    line = np.tile(np.linspace(-1, 1, 1000)[None, :, None, None], (1, 1, 2, 1))
    alike, apart = coloured([0.9, 0.9], 1000, 0), coloured([0.5, 0.95], 1000, 0)
    (same,), (own,) = (shared([estimate([r], 1)], [r], [line]) for r in (alike, apart))
    assert same.rho[0] == same.rho[1] == pytest.approx(0.9, abs=0.03)
    assert own.rho == pytest.approx([0.5, 0.95], abs=0.06)
    assert same.sd == pytest.approx([1.0, 1.0], rel=0.2)


def test_the_autocorrelation_counts_what_the_fit_took_out():
    k = np.arange(200)
    slow = np.stack([np.cos(np.pi * i * (k + 0.5) / 200) for i in range(8)], -1)  # 8 numbers that look like slow noise
    J = np.tile(slow[None, :, None, :], (1, 1, 2, 1))
    found = []
    for seed in range(40):
        r = coloured([0.9, 0.9], 200, seed)
        x = np.linalg.lstsq(J.reshape(-1, 8), r.ravel(), rcond=None)[0]
        r = r - J @ x
        (fair,) = shared([estimate([r], 8)], [r], [J])
        found.append((estimate([r], 8).rho.mean(), fair.rho.mean()))
    plain, fair = np.mean(found, 0)
    assert abs(fair - 0.9) < 0.02 and abs(fair - 0.9) < abs(plain - 0.9) / 2


def test_a_fixed_belief_and_a_wrong_world_are_refused():
    log = recorded(pendulum(), TRUTH)
    with pytest.raises(SurefootError, match="nothing is left to identify"):
        identify(pendulum(), Box(PARAMS, PARAMS.nominal, PARAMS.nominal), log, QUICK)
    with pytest.raises(SurefootError, match="the belief is about mass"):
        identify(pendulum(Params()), Box.full(PARAMS), log, QUICK)


LEGS = """<mujoco><worldbody>{}</worldbody><actuator>{}</actuator></mujoco>""".format(
    "".join(
        f'<body name="{s}_thigh"><joint name="{s}_hip_joint" damping=".5"/><geom size=".05"/>'
        f'<body name="{s}_shin" pos="0 0 -.3"><joint name="{s}_knee_joint" armature=".01"/><geom size=".05"/></body></body>'
        for s in ("FL", "FR", "RL", "RR")
    ),
    "".join(
        f'<motor name="{s}_{j}" joint="{s}_{j}_joint"/>' for s in ("FL", "FR", "RL", "RR") for j in ("hip", "knee")
    ),
)


@pytest.mark.parametrize("word, names", [
    ("damping", ["damping"]),
    ("armature:kinds", ["armature:hip_joint", "armature:knee_joint"]),
    ("damping:mirror", ["damping:F*_hip_joint", "damping:F*_knee_joint", "damping:R*_hip_joint", "damping:R*_knee_joint"]),
    ("frictionloss:FL_.*", ["frictionloss:FL_.*"]),
    ("delay=0..0.02", ["action_delay"]),
])  # fmt: skip
def test_words_share_a_number_by_kind_pair_or_pattern(word, names):
    assert learnable(mujoco.MjModel.from_xml_string(LEGS), [word]).names == names


def test_ten_numbers_make_a_body_and_a_range_may_be_given():
    model = mujoco.MjModel.from_xml_string(LEGS)
    assert len(learnable(model, ["shape:FL_thigh"])) == 10
    delay = learnable(model, ["delay=0..0.02"])["action_delay"]
    assert (delay.low, delay.high, delay.op) == (0.0, 0.02, "set")


@pytest.mark.parametrize("word, told", [
    ("dampng", "did you mean damping"), ("damping:FL_kne_joint", "did you mean FL_knee_joint"), ("delay=0-1", "two dots"),
    ("shape:FL_thig", "did you mean FL_thigh"),
])  # fmt: skip
def test_words_that_mean_nothing_are_refused_with_the_nearest_that_do(word, told):
    with pytest.raises(SurefootError, match=told):
        learnable(mujoco.MjModel.from_xml_string(LEGS), [word])


@pytest.mark.parametrize("horizons", [(0.3,), ()])
def test_cma_finds_what_least_squares_would_from_far_away(horizons):
    how = Identify(horizons=horizons, starts="known", hold=0.0, iterations=20, how="cma")
    assert identify(pendulum(), Box.full(PARAMS), recorded(pendulum(), TRUTH), how).e == pytest.approx(TRUTH, rel=1e-3)


def test_a_delay_of_a_machine_that_falls_is_found_from_episodes_with_pauses():
    """A pole in balance: a slope says nothing of a delay in whole timesteps, and a window of seconds tells of its start alone."""
    task = tasks.resolve("balance")
    params = task.params.only(["latency", "cart_mass"])
    belief = Box.full(params)
    plain = replace(task, params=params, belief=belief, terms=(), observations={"actor": task.observations["actor"]})
    truth = params.vector({"latency": 0.04, "cart_mass": 1.4})
    policy = linear(contract(plain, tasks.env(plain, 1).world), {"cart_pole": np.array([[1.0, 2.0, 20.0, 4.0]])})
    noise = {"joint_pos": 1e-3, "joint_vel": 5e-3}
    log = logged(policy, tasks.env(plain, 2, point(params, truth), 3), noise, stir=0.3)
    found = identify(tasks.env(plain, 1).world, belief, log)
    for p, true in zip(found.params, truth):
        assert p.low <= true <= p.high and p.determined
    late = found.params[params.index("latency")]
    assert (
        late.high - late.low >= 0.02
    )  # the engine delays by whole timesteps of 20 ms: nearer than that, it cannot tell


def test_a_fit_that_predicts_worse_than_the_model_did_is_a_fault_and_so_is_one_that_diverges():
    w = pendulum()
    found = identify(w, Box.full(PARAMS), recorded(w, TRUTH, noise=(0.001, 0.01)), QUICK)
    assert not found.fault
    assert (
        "worse than the model before it, with 2.00 times the error"
        in replace(found, held_out={"joint_pos": (1.0, 2.0)}).fault
    )
    assert not replace(found, held_out={"joint_pos": (1.0, 1.1), "joint_vel": (1.0, 0.5)}).fault
    assert "diverge" in replace(found, fit={"joint_pos": (np.nan, np.nan)}).fault


def test_a_fit_that_predicts_the_held_out_rest_worse_is_warned_of_in_python_as_on_the_command_line():
    """The robot loses its payload before the part of the log that is held out: the fit is right, and no longer of use."""
    w = pendulum()
    loaded, bare = recorded(w, PARAMS.vector({"mass": 1.8})), recorded(w, PARAMS.nominal)
    columns = {k: np.concatenate([loaded[k], bare[k][1:]]) for k in loaded.columns}
    log = Log(w.dt * np.arange(len(loaded) + len(bare) - 1), columns)
    with pytest.warns(UserWarning, match="the fit predicts the held-out part worse .* do not use this belief"):
        found = identify(w, Box.full(PARAMS), log, replace(QUICK, hold=0.5))
    assert found.fault


def test_too_few_rows_tell_of_their_noise_alone():
    w = pendulum()
    with pytest.raises(SurefootError, match="found 10 rows in all logs, expected at least 20"):
        identify(w, Box.full(PARAMS), recorded(w, TRUTH).slice(0.0, 0.095), QUICK)


def test_what_it_was_before_is_what_the_model_says():
    w = pendulum()
    params = Params((*PARAMS.items, Param("delay", "action_delay", 0.0, 0.0, 0.05, op="set")))
    late = world(mujoco.MjSpec.from_string(XML), params, 0.01)
    found = identify(late, Box.full(params), recorded(w, TRUTH), QUICK)
    assert [p.before for p in found.params] == params.nominal.tolist()


def test_a_delay_between_two_timesteps_lies_in_its_interval():
    """The engine waits three whole steps of 5 ms for any delay of 10 to 15 ms: the middle is the fairest answer."""
    task = tasks.resolve("arm")
    w, index = tasks.env(task, 1).world, task.params.index("latency")
    e = task.params.nominal.copy()
    e[index] = 0.012
    start = task.episode(stream(0, "start"), 1).start
    w.reset(np.arange(1), e[None], start)
    u = start.u + 0.3 * np.sin(np.arange(150)[:, None] * [0.35, 0.5])
    m = w.rollout(u[None], Chance(0, 0, w.dt))
    q, v = (np.concatenate([a, b[0, :-1]]) for a, b in ((start.q, m.q), (start.v, m.v)))
    log = Log(w.dt * np.arange(150), {"joint_pos": q, "joint_vel": v, "control": u})
    ranges = {n: (float(x), float(x)) for n, x in zip(task.params.names, task.params.nominal)} | {
        "latency": (0.0, 0.06)
    }
    found = identify(tasks.env(task, 1).world, Box.ranges(task.params, ranges), log).params[index]
    assert found.value == pytest.approx(0.0125) and found.low < 0.0101 and found.high > 0.0149 and found.determined


def test_masses_and_a_motor_that_may_all_be_larger_together_are_told_by_their_ratio():
    """x'' = strength u / mass: the ratio is told, each alone is as uncertain as it was, wherever the fit stops."""
    xml = XML.replace('damping=".1" armature=".02"', "").replace('pos="0 0 -.3"', 'pos="0 0 0"')
    both = Params((
        Param("mass", "inertia", 1.0, 0.25, 4.0, match="arm", log=True),
        Param("strength", "strength", 1.0, 0.25, 4.0, log=True),
    ))  # fmt: skip
    truth = np.array([2.0, 2.4])
    found = identify(pendulum(both, xml), Box.full(both), recorded(pendulum(both, xml), truth, noise=(1e-3, 1e-2)))
    assert not any(p.determined for p in found.params)
    assert all(p.low < x < p.high for p, x in zip(found.params, truth))
    assert len(found.combinations) == 1 and "mass" in found.combinations[0] and "strength" in found.combinations[0]
    assert found.e[1] / found.e[0] == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize("noise", [(0.0, 0.0), (1e-8, 1e-8)], ids=["exact", "rounded"])
@pytest.mark.parametrize("settings", [QUICK, Identify()], ids=["known", "estimated"])
def test_a_log_without_noise_does_not_determine_what_only_acts_together(noise, settings):
    """Mass, damping and strength may all be larger by one factor: nothing changes. How inertia and mass divide does show."""
    params = Params((
        Param("mass", "mass", 1.0, 0.5, 2.0, match="arm", log=True), Param("damping", "damping", 0.1, 0.02, 0.5, op="set", log=True),
        Param("inertia", "inertia", 1.0, 0.25, 4.0, match="arm", log=True), Param("strength", "strength", 1.0, 0.25, 4.0, log=True),
    ))  # fmt: skip
    w, truth = pendulum(params, XML.replace('armature=".02"', "")), np.array([1.3, 0.16, 1.5, 1.4])
    found = identify(w, Box.full(params), recorded(w, truth, noise=noise), settings)
    assert found.fit["joint_pos"][1] < 1e-6 and found.white
    assert [p.name for p in found.params if p.determined] == ["inertia"]
    assert all(p.low <= x <= p.high and p.low < p.high for p, x in zip(found.params, truth))
    assert all(p.high > 3 * p.low for p in found.params if not p.determined)
    assert found.combinations and "strength" in found.combinations[0]


def test_one_sided_differences_are_the_central_ones_to_first_order():
    w, space = pendulum(), Space.of(Box.full(PARAMS), 0.01)
    log = recorded(w, TRUTH)
    noise = (Noise(np.ones(2), np.zeros(2)),)
    problem = Problem(space, (Case(w, windows(w, log, 50), True),), noise, step=1e-5)  # starts are unknowns, too
    p = np.concatenate([[0.3, 1.0, 0.6], np.zeros(problem.size - 3)])  # one unknown is at its bound
    r = problem.residual(p[:, None])
    J, one = problem.jacobian(p), problem.jacobian(p, r)
    np.testing.assert_allclose(one, J, atol=2e-4 * np.abs(J).max())
    some = problem.jacobian(p, r, np.array([True, False, True]))
    assert not some[:, 1].any() and np.array_equal(some[:, [0, 2, 3]], one[:, [0, 2, 3]])


def test_a_fit_says_how_much_of_it_is_done_and_never_less_than_before():
    shares = []
    identify(pendulum(), Box.full(PARAMS), recorded(pendulum(), TRUTH, noise=(0.01, 0.05)), QUICK, watch=lambda p: shares.append(p.share))  # fmt: skip
    known = [s for s in shares if s is not None]
    assert len(known) > 4 and known == sorted(known) and known[0] == 0.0 and known[-1] <= 1.0


def test_a_fit_that_is_stopped_has_the_best_values_so_far():
    """Stopped in the last stage, where windows of 0.3 s have already found the unknowns to a few percent."""

    def stop(p):
        if "whole log" in p.doing:
            raise KeyboardInterrupt

    found = identify(pendulum(), Box.full(PARAMS), recorded(pendulum(), TRUTH), QUICK, watch=stop)
    assert found.interrupted and found.facts()["interrupted"] and not found.fault
    assert found.e == pytest.approx(TRUTH, rel=0.05) and found.fit["joint_pos"][1] < 0.2 * found.fit["joint_pos"][0]
    assert not identify(pendulum(), Box.full(PARAMS), recorded(pendulum(), TRUTH), QUICK).interrupted


def test_a_channel_that_nothing_explains_does_not_decide_the_others_where_errors_weigh():
    """A pole whose swing is shaken at random, and a cart that slides freely: the cart's own channel determines its drag."""

    task = tasks.resolve("balance")
    world, rows = tasks.env(task, 1, threads=1).world, 400
    truth = task.params.vector({"rail_drag": 1.0})
    u = np.repeat(stream(0, "force").uniform(-5, 5, rows // 10), 10)[:, None]
    env = tasks.env(task, 1, Box(task.params, truth, truth), threads=1)
    env.reset(0)
    q, v = [], []
    for k in range(rows):
        x = env.world.state
        q.append(x.q[0].copy()), v.append(x.v[0].copy())
        env.world.set_state(x.q * [1.0, 0.0], x.v * [1.0, 0.0] + [0.0, stream(0, "shake", k).normal(0.0, 3.0)])
        env.world.begin(u[k : k + 1], env.chance)
        env.world.advance()
        env.world.end()
    columns = {"joint_pos": np.array(q), "joint_vel": np.array(v), "control": u}
    log = Log(np.arange(rows) * world.dt, columns, {}, {})
    wide = Box.ranges(task.params, {"rail_drag": (0.0, 3.0), "gravity": (5.0, 16.0)})
    how = Identify(horizons=(), last=0.1, starts="known", rounds=3, weigh="error", hold=0.0)
    found = {x.name: x.value for x in identify(world, wide, log, how, warn=False).params}
    assert found["rail_drag"] == pytest.approx(1.0, abs=0.1)
