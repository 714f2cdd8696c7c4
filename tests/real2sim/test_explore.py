"""What a motion would tell agrees with closed forms, and the motion found keeps its limits."""

import json

import mujoco
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from surefoot.belief import Box
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.excite.excitation import (
    Limits,
    Shape,
    control_range,
    guard,
    home,
    machine,
    ramp,
    settled,
    spline,
)
from surefoot.real2sim.excite.excited_robot import excited_robot
from surefoot.real2sim.excite.explore import Explore, _settled, design, explore, meter_for, outside
from surefoot.real2sim.excite.fisher import information, informed, meter, posterior, score
from surefoot.real2sim.plant import Plant
from surefoot.sim.model.load import load_string
from surefoot.world import Chance, Start

M, C, K = 2.0, 0.8, 50.0  # kg, N s/m, N/m


def cart(extra: str = "", actuator: str = f'<position name="spring" joint="x" kp="{K}"/>', joint: str = "") -> str:
    """A mass on a spring, which is a servo, with a damper."""
    return f"""<mujoco><option timestep=".0005" integrator="implicitfast"><flag contact="disable"/></option><worldbody>
      <body name="cart"><inertial pos="0 0 0" mass="{M}" diaginertia="1 1 1"/>
      <joint name="x" type="slide" axis="1 0 0" damping="{C}" {joint}/><geom size=".1" mass="0"/>{extra}</body></worldbody>
      <actuator>{actuator}</actuator></mujoco>"""


PARAMS = Params((
    Param("mass", "mass", M, 1.0, 4.0, match="cart", op="set", unit="kg"),
    Param("damping", "damping", C, 0.1, 2.0, match="x", op="set", unit="N s/m"),
    Param("stiffness", "kp", K, 20.0, 80.0, op="set", unit="N/m"),
))  # fmt: skip


def spring(params: Params = PARAMS, xml: str = "", rate: float = 50.0):
    return machine(load_string(xml or cart()).spec, params, rate)


def sensitivities(u: np.ndarray, dt: float) -> np.ndarray:
    """(T, 3): d x / d (m, c, k) of m x'' + c x' + k x = k u, from its own differential equations, at the ends of steps."""

    def law(t, s):
        x, v, now = s[0], s[1], u[min(int(t / dt), len(u) - 1)]
        a = (K * (now - x) - C * v) / M
        forced = np.array([-a, -v, now - x])  # what each unknown adds to the force balance of its sensitivity
        return np.concatenate([[v, a], s[5:], (forced - C * s[5:] - K * s[2:5]) / M])

    s, found = np.zeros(8), []
    for k in range(len(u)):
        s = solve_ivp(law, (k * dt, (k + 1) * dt - 1e-12), s, rtol=1e-9, atol=1e-12).y[:, -1]
        found.append(s[2:5])
    return np.array(found)


def test_information_about_a_mass_on_a_spring_is_that_of_its_sensitivity_equations():
    world, sd = spring(), 1e-3
    u = 0.1 * np.sin(4.0 * np.arange(100) * world.dt)
    at = meter(world, Box.full(PARAMS), home(world.model), {"joint_pos": sd})
    z = at.space.z(PARAMS.nominal[None])
    F = information(at, u[None, :, None], z)[0, 0]
    J = sensitivities(u, world.dt) * (PARAMS.high - PARAMS.low) / sd
    np.testing.assert_allclose(F, J.T @ J, rtol=0.01)
    one_sided = information(at, u[None, :, None], z, central=False)[0, 0]
    np.testing.assert_allclose(one_sided, F, rtol=0.1)


def test_a_start_that_has_to_be_estimated_costs_information_and_no_more_than_that():
    world = spring()
    u = 0.1 * np.sin(4.0 * np.arange(100) * world.dt)[None, :, None]
    at = meter(world, Box.full(PARAMS), home(world.model), {"joint_pos": 1e-3})
    z = at.space.z(PARAMS.nominal[None])
    known, estimated = information(at, u, z)[0, 0], information(at, u, z, starts=True)[0, 0]
    assert np.linalg.eigvalsh(known - estimated).min() > -1e-6 * np.linalg.eigvalsh(known).max()
    assert np.linalg.slogdet(estimated)[1] < np.linalg.slogdet(known)[1]


def test_twice_the_noise_is_a_quarter_of_the_information_and_signals_add_up():
    world = spring()
    u, belief = 0.1 * np.sin(4.0 * np.arange(50) * world.dt)[None, :, None], Box.full(PARAMS)
    z = np.full((1, 3), 0.5)
    F = lambda noise: information(meter(world, belief, home(world.model), noise), u, z)[0, 0]  # noqa: E731
    both = {"joint_pos": 1e-3, "joint_vel": 1e-2}
    np.testing.assert_allclose(F({"joint_pos": 2e-3}), F({"joint_pos": 1e-3}) / 4, rtol=1e-9)
    np.testing.assert_allclose(F(both), F({"joint_pos": 1e-3}) + F({"joint_vel": 1e-2}), rtol=1e-6)


def test_many_motions_at_many_unknowns_are_judged_as_each_alone():
    world = spring()
    u = np.random.default_rng(0).normal(size=(5, 30, 1)) * 0.1
    z = np.random.default_rng(1).random((2, 3))
    at = meter(world, Box.full(PARAMS), home(world.model), {"joint_pos": 1e-3})
    F = information(at, u, z)
    for i in range(5):
        for j in range(2):
            np.testing.assert_allclose(information(at, u[i : i + 1], z[j : j + 1])[0, 0], F[i, j], rtol=1e-9)


def test_scores_by_hand():
    world = spring()
    at = meter(world, Box.full(PARAMS), home(world.model), {"joint_pos": 1e-3})
    np.testing.assert_allclose(at.prior, 12**-0.5, rtol=0.03)  # uniform
    F = np.diag([100.0, 10.0, 0.0])
    P = np.diag(1 / at.prior**2)
    assert score(at, F, "trace") == 110
    assert score(at, F, "logdet") == pytest.approx(np.log(np.diag(F + P)).sum())
    assert score(at, F, "a") == pytest.approx(-(1 / np.diag(F + P)).sum())
    np.testing.assert_allclose(np.sqrt(posterior(at, F)[2, 2]), at.prior[2])  # no information: as wide as before
    with pytest.raises(SurefootError, match="did you mean logdet"):
        score(at, F, "logdett")


DAMPED = Params((Param("damping", "damping", 0.1, 0.05, 0.4, match="x", op="set", unit="N s/m"),))


def test_the_frequency_that_tells_most_of_damping_is_resonance():
    """x'' + c x' / m + k x / m = f: |d x / d c| = w |F| / |k - m w^2 + i c w|^2, largest close to sqrt(k / m)."""
    soft = cart('<site name="s"/>', '<motor name="f" joint="x" ctrlrange="-1 1" ctrllimited="true"/>', 'stiffness="50"')
    world = spring(DAMPED, soft.replace(".0005", ".02"), 10.0)
    settings = Explore(samples=1, verify=2, iterations=8, population=16)
    limits, shape = Limits(seconds=20.0, speed=1e3), Shape(count=1, slowest=0.1, fastest=3.0)
    plan = explore(design(world, Box.full(DAMPED), limits, {"joint_pos": 1e-3}, shape, settings))
    spectrum = np.abs(np.fft.rfft(plan.log["control"][:, 0] - plan.log["control"][:, 0].mean()))
    hz = np.fft.rfftfreq(len(plan.log), 1 / 10.0)[spectrum.argmax()]
    assert hz == pytest.approx(np.sqrt(K / M) / (2 * np.pi), rel=0.05)


@pytest.mark.parametrize(
    "objective, gained, ends",
    [("logdet", 0.059, True), ("logdet", 0.061, False), ("a", 0.0199, True), ("a", 0.0205, False)],
)
def test_a_search_ends_when_its_last_rounds_make_sds_smaller_by_less_than_1_percent(objective, gained, ends):
    """logdet is -2 sum log sd: 3 unknowns by 1 % are 0.06 nats. a is -sum sd^2: by 1 % is 2 % of it."""
    last = 41.0 if objective == "logdet" else -1.0
    history, settings = [last - 9.0, *[last - gained] * 2, *[last] * 5], Explore(objective, patience=6)
    assert _settled(history, settings, 3) == ends
    assert not _settled(history[-6:], settings, 3) and not _settled([-2e6] * 8, settings, 3)


ARM = """<mujoco><compiler angle="radian"/><option timestep=".005" integrator="implicitfast"/><worldbody>
  <geom name="wall" type="box" pos=".75 0 0" size=".05 .5 .5"/>
  <body name="upper"><joint name="shoulder" axis="0 -1 0" range="-2 2" limited="true" damping=".2" armature=".02"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02" mass="1"/>
    <body name="fore" pos=".3 0 0"><joint name="elbow" axis="0 -1 0" range="-2.5 2.5" limited="true" damping=".1" armature=".01"/>
      <geom type="capsule" fromto="0 0 0 .25 0 0" size=".02" mass=".5"/></body></body></worldbody>
  <contact><exclude body1="upper" body2="fore"/></contact>
  <actuator><position name="shoulder" joint="shoulder" kp="40" kv="3" forcerange="-12 12"/>
    <position name="elbow" joint="elbow" kp="20" kv="1" forcerange="-6 6"/></actuator></mujoco>"""
LINKS = Params((
    Param("fore", "mass", 1.0, 0.7, 1.4, match="fore", log=True, about="of the forearm"),
    Param("damping", "damping", 1.0, 0.3, 3.0, match="shoulder|elbow", log=True),
    Param("wind", "wind_x", 0.0, -1.0, 1.0, op="set", unit="m/s", about="acts nowhere: there is no air"),
))  # fmt: skip
QUICK = Explore(samples=1, verify=8, iterations=4, population=16)


@pytest.fixture(scope="module")
def plan():
    limits = Limits(seconds=2.0, speed=5.0, torque=0.8)
    return explore(design(machine(load_string(ARM).spec, LINKS, 50.0), Box.full(LINKS), limits, settings=QUICK))


def test_the_motion_found_keeps_every_limit_on_machines_it_was_not_searched_on(plan):
    world = machine(load_string(ARM).spec, LINKS, 50.0).with_(16)
    e = Box.full(LINKS).sample(np.random.default_rng(5), 16)
    start = np.tile(plan.log.meta["start"], (16, 1))
    u = plan.log["control"]
    world.reset(np.arange(16), e, Start(start, 0 * start, np.tile(u[0], (16, 1))))
    motion = world.rollout(np.repeat(u[None, :-1], 16, 0), Chance(0, 0, world.dt))
    assert np.abs(motion.v).max() < 5.0 * 1.03 and not motion.diverged.any()
    assert (np.abs(motion.y["actuator_force"]) < 0.83 * np.array([12.0, 6.0])).all()
    assert np.abs(motion.q[..., 0]).max() < 2.0 and np.abs(motion.q[..., 1]).max() < 2.5
    assert not motion.y["touching"].any()  # the wall is within reach
    assert all(0 <= share <= 1 for share in plan.used.values()) and max(plan.used.values()) > 0.4


def test_the_motion_starts_and_ends_at_home_and_at_rest(plan):
    u = plan.log["control"]
    np.testing.assert_allclose(u[0], 0.0, atol=1e-12)
    np.testing.assert_allclose(u[-1], 0.0, atol=1e-12)
    assert np.abs(np.diff(u, axis=0)[[0, -1]]).max() < 0.2 * np.abs(np.diff(u, axis=0)).max()


def test_what_no_motion_can_tell_is_named_and_stays_as_wide_as_believed(plan):
    assert plan.undetermined == ["wind"]
    wind = plan.params[2]
    assert wind.after == pytest.approx(wind.before, rel=1e-6)
    assert all(p.after < 0.2 * p.before for p in plan.params[:2])
    assert plan.condition > 1e6


def test_the_plan_is_a_log_that_says_what_it_is(plan, tmp_path):
    back = Log.load(plan.log.save(tmp_path / "plan.npz"))
    assert back.meta["names"] == {"control": ["shoulder", "elbow"]} and list(back.columns) == ["control"]
    assert back.meta["undetermined"] == ["wind"] and set(back.meta["sd"]) == {"fore", "damping", "wind"}
    assert back.meta["limits"]["speed"] == 5.0 and back.time[-1] == pytest.approx(2.0)


def test_same_seed_same_bits(plan):
    limits = Limits(seconds=2.0, speed=5.0, torque=0.8)
    world = machine(load_string(ARM).spec, LINKS, 50.0)
    again = explore(design(world, Box.full(LINKS), limits, settings=QUICK))
    assert again.log["control"].tobytes() == plan.log["control"].tobytes()


def test_a_motion_found_tells_more_than_one_drawn_blindly(plan):
    world, limits = machine(load_string(ARM).spec, LINKS, 50.0), Limits(seconds=2.0, speed=5.0, torque=0.8)
    at = meter_for(world, Box.full(LINKS), {"joint_pos": 0.002})
    range_ = control_range(world.model, at.start.u[0], limits)
    drawn = Shape().controls(np.random.default_rng(0).random((32, 14)), range_, plan.log.time)
    drawn = range_.home + 0.5 * (drawn - range_.home)  # few larger ones keep the limits
    middle = np.full((1, 3), 0.5)
    fine = drawn[outside(at, guard(world.model, limits), drawn, middle) == 0]
    fine = score(at, information(at, fine[:, :-1], middle, central=False)[:, 0], "logdet")
    assert len(fine) >= 3 and plan.history[-1] > np.median(fine) + 0.5


def test_limits_that_cannot_be_kept_are_said():
    world = machine(load_string(ARM).spec, LINKS, 50.0)
    with pytest.raises(SurefootError, match="even to hold still breaks a limit: torque"):
        explore(design(world, Box.full(LINKS), Limits(seconds=1.0, torque=0.01), settings=QUICK))
    with pytest.raises(SurefootError, match="limits.speed"):
        Limits(speed=0.0)
    with pytest.raises(SurefootError, match="did you mean joint_pos"):
        explore(design(world, Box.full(LINKS), noise={"joint_poss": 0.1}, settings=QUICK))


@pytest.mark.parametrize("kind", ["sines", "spline"])
def test_controls_never_leave_their_range(kind):
    model = machine(load_string(ARM).spec, LINKS, 50.0).model
    range_ = control_range(model, np.array([0.3, -0.5]), Limits())
    time, shape = np.arange(101) * 0.02, Shape(kind)
    u = shape.controls(np.random.default_rng(0).random((200, 2 * shape.size(2.0))), range_, time)
    assert (u >= range_.low).all() and (u <= range_.high).all()
    np.testing.assert_allclose(range_.low, [-1.8, -2.25])
    np.testing.assert_allclose(u[:, [0, -1]], np.broadcast_to([0.3, -0.5], (200, 2, 2)), atol=1e-12)
    assert np.ptp(u, axis=1).max() > 1.0


def test_the_ramp_is_smooth_and_full_between():
    w = ramp(np.linspace(0, 4, 401))
    assert w[0] == 0 and w[-1] == 0 and (w[50:351] == 1).all() and np.abs(np.diff(w)).max() < 0.04


def test_a_machine_settles_where_gravity_and_servo_agree():
    world = machine(load_string(ARM).spec, LINKS, 50.0)
    x = settled(world, LINKS.nominal, home(world.model))
    data = mujoco.MjData(world.model)
    data.qpos[:], data.ctrl[:] = x.q[0], 0.0
    mujoco.mj_forward(world.model, data)
    assert np.abs(data.qfrc_bias - data.qfrc_actuator).max() < 0.01 and x.q[0, 0] < -0.05


SMALL = "--limits.seconds 1 --search.iterations 2 --search.population 8 --search.samples 1 --search.verify 4".split()


def test_the_command_tells_what_would_be_known_and_writes_a_plan(tmp_path, capsys):
    out = tmp_path / "plan.npz"
    words = ["explore", "arm", "--learn", "fore_mass,elbow_damping", "--out", str(out), *SMALL]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert (
        "fore_mass" in shown
        and "sd after" in shown
        and shown.splitlines()[-1] == f"next: surefoot record arm --excite {out}"
    )
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [p["name"] for p in facts["params"]] == ["fore_mass", "elbow_damping"] and facts["undetermined"] == []
    assert Log.load(out)["control"].shape == (51, 2)


def test_a_model_file_that_holds_its_base_can_be_explored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.xml").write_text(ARM)
    assert (
        main(["explore", "two.xml", "--learn", "mass:fore=0.4..0.6,damping", "--noise", "joint_pos=0.001", *SMALL]) == 0
    )
    assert (tmp_path / "two-plan.npz").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        (["arm", "--learn", "for_mass"], "did you mean fore_mass"),
        (["arm", "--learn", "pull"], "no unknown matches 'pull'"),
        (["arm", "--learn", "fore_mass", "--noise", "joint_pos"], "expected NAME=NUMBER"),
        (["armm", "--learn", "fore_mass"], "did you mean arm"),
        (["arm", "--learn", "fore_mass", "--machine.fixed"], "no free joint"),
    ],
)
def test_what_cannot_be_explored_is_said(words, said, capsys):
    assert main(["explore", *words, *SMALL]) == 2
    assert said in capsys.readouterr().err


def test_a_quadruped_held_in_the_air_begins_at_its_stand():
    who = excited_robot(Plant("walk", fixed=True), ("kd", "armature"), 50.0)
    assert who.world.model.nv == 12 and who.belief.params.names == ["kd", "armature"]
    np.testing.assert_allclose(who.start.q[0], np.tile([0.0, 0.8, -1.6], 4))
    np.testing.assert_allclose(who.start.u, who.start.q)


def test_a_spline_passes_its_knots_is_exact_for_a_parabola_within_and_rests_at_its_ends():
    j, s = np.arange(6.0), np.linspace(0, 5, 51)
    parabola = j**2 - 3 * j
    plan = spline(parabola, 51)
    np.testing.assert_allclose(plan[::10], parabola, atol=1e-12)
    np.testing.assert_allclose(plan[10:41], (s**2 - 3 * s)[10:41], atol=1e-12)
    ends = np.diff(spline(parabola, 50_001))[[0, -1]] / (5 / 50_000)
    assert np.abs(ends).max() < 0.01  # of slopes of 2 and 7 that a parabola would have there
    np.testing.assert_allclose(spline(np.full((2, 3, 5), 0.7), 9), 0.7)


def test_information_and_limits_come_from_the_same_motions():
    world, limits = machine(load_string(ARM).spec, LINKS, 50.0), Limits(seconds=1.0, speed=3.0)
    at = meter_for(world, Box.full(LINKS), {"joint_pos": 0.002})
    range_, within = control_range(world.model, at.start.u[0], limits), guard(world.model, limits)
    time = np.arange(51) * 0.02
    u = Shape().controls(np.random.default_rng(0).random((6, 14)), range_, time)
    z = np.random.default_rng(1).random((2, 3))
    F, over = informed(at, u[:, :-1], z, within)
    np.testing.assert_allclose(F, information(at, u[:, :-1], z, central=False), rtol=1e-12)
    np.testing.assert_allclose(over, outside(at, within, u, z), rtol=1e-12)
    assert (over > 0).any()
