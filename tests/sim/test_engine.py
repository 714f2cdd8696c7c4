"""Worlds on mujoco.batch against closed forms and against MuJoCo stepped by hand."""

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.params import Param, Params
from surefoot.sim.audit import effects, model_trace, unknowns
from surefoot.sim.engine import Engine
from surefoot.sim.fields import TARGETS, writer
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.recent import KEEP
from surefoot.world import Chance, OnAction, OnForce, Start

PENDULUM = """
<mujoco><compiler angle="radian"/><option timestep="0.002" integrator="RK4"/>
<worldbody>
  <geom name="floor" type="plane" size="5 5 .1" pos="0 0 -3"/>
  <body name="arm"><joint name="hinge" axis="0 1 0" damping=".02" armature=".01" frictionloss=".01"/>
    <inertial pos="0 0 -.5" mass="2" diaginertia=".02 .02 .02"/><geom name="bob" size=".1" pos="0 0 -.5"/><site name="tip" pos="0 0 -.5"/></body>
</worldbody>
<actuator><position name="servo" joint="hinge" kp="20" kv="1" forcerange="-8 8"/></actuator>
<sensor><jointpos name="angle" joint="hinge"/><gyro name="gyro" site="tip"/></sensor></mujoco>"""

FALL = """
<mujoco><option timestep="0.001" integrator="RK4" density="1.2"><flag contact="disable"/></option>
<worldbody><body name="ball"><joint name="free" type="free"/>
<geom name="ball" type="sphere" size=".05" mass="0.3"/></body></worldbody></mujoco>"""


def world(xml: str, params: Params, n: int = 4, substeps: int = 1, threads: int = 0, terms=()) -> Engine:
    return Engine(compile_for(mujoco.MjSpec.from_string(xml), params), params, n, substeps, threads, terms)


def begin(w: Engine, e=None, q=None, v=None, u=None) -> None:
    fill = lambda rows, width: np.zeros((w.n, width)) if rows is None else np.broadcast_to(rows, (w.n, width)).copy()  # noqa: E731
    q = np.tile(w.model.qpos0, (w.n, 1)) if q is None else q
    w.reset(
        np.arange(w.n),
        np.tile(w.params.nominal, (w.n, 1)) if e is None else e,
        Start(fill(q, w.model.nq), fill(v, w.model.nv), fill(u, w.model.nu)),
    )


def run(w: Engine, steps: int, u: float = 0.0) -> None:
    for k in range(steps):
        assert not w.step(np.full((w.n, w.model.nu), u), Chance(0, k, w.dt)).any()


def test_a_batch_steps_as_mujoco_by_hand_does_to_the_last_bit():
    w = world(PENDULUM, Params(), n=3, substeps=5)
    begin(w, q=[0.4], u=[0.2])
    run(w, 20, 0.2)
    model, data = w.model, mujoco.MjData(w.model)
    data.qpos[:], data.ctrl[:] = 0.4, 0.2
    for _ in range(100):
        mujoco.mj_step(model, data)
    assert np.array_equal(w.state.q, np.tile(data.qpos, (3, 1))) and np.array_equal(
        w.state.v, np.tile(data.qvel, (3, 1))
    )


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_thread_count_changes_no_bit(threads):
    params = Params(
        (Param("mass", "mass", 1.0, 0.5, 2.0, match="arm"), Param("latency", "action_delay", 0.0, 0.0, 0.02, op="set"))
    )
    found = []
    for t in (1, threads):
        w = world(PENDULUM, params, n=16, threads=t)
        begin(w, np.stack([np.linspace(0.5, 2, 16), np.linspace(0, 0.02, 16)], 1), q=[0.3])
        run(w, 100, 0.5)
        found.append(w.batch.state.copy())
    assert np.array_equal(*found)


def test_scaling_a_mass_scales_its_inertia_so_free_fall_and_swing_keep_their_shape():
    params = Params((Param("mass", "mass", 1.0, 0.5, 2.0, match="arm"),))
    w = world(PENDULUM, params, n=2)
    begin(w, np.array([[1.0], [2.0]]))
    assert np.allclose(w.fields["body_mass"][:, 1], [2.0, 4.0])
    assert np.allclose(w.fields["body_inertia"][1, 1], 2 * w.fields["body_inertia"][0, 1])


def test_gravity_and_slope_give_the_closed_form_of_free_fall():
    """After t seconds on ground sloping by a about y, a falling body has moved g t^2 / 2 (sin a, 0, -cos a)."""
    params = Params(
        (Param("g", "gravity", 9.81, 1.0, 20.0, op="set"), Param("slope", "slope_y", 0.0, -0.5, 0.5, op="set"))
    )
    xml = FALL.replace(' density="1.2"', "")
    w = world(xml, params, n=3)
    e = np.array([[9.81, 0.0], [3.7, 0.0], [9.81, 0.2]])
    begin(w, e)
    run(w, 500)
    g, a = e.T
    expected = 0.5 * 0.5**2 * np.stack([g * np.sin(a), 0 * g, -g * np.cos(a)], 1)
    assert np.allclose(np.abs(w.state.q[:, :3]), np.abs(expected), atol=1e-9)
    assert np.allclose(np.linalg.norm(w.state.gravity, axis=1), g)


def test_a_world_that_changes_on_the_way_goes_on_from_the_same_state():
    """Falling under g1 for t1 and g2 for t2: v = -(g1 t1 + g2 t2), and the neighbour's world stays."""
    params = Params((Param("g", "gravity", 9.81, 1.0, 20.0, op="set"),))
    w = world(FALL.replace(' density="1.2"', ""), params, n=2)
    begin(w, np.array([[9.81], [9.81]]))
    run(w, 100)
    q = w.state.q.copy()
    w.set_params(np.array([1]), np.array([[3.7]]))
    assert np.array_equal(w.state.q, q) and w.state.e[:, 0].tolist() == [9.81, 3.7]
    run(w, 50)
    t = 100 * w.dt, 50 * w.dt
    assert np.allclose(w.state.v[:, 2], [-9.81 * sum(t), -9.81 * t[0] - 3.7 * t[1]], atol=1e-9)
    assert len(w.replay_record(1)["controls"]) <= 50 and w.replay_record(1)["e"] == [3.7]


def test_drag_gives_the_terminal_velocity_of_the_closed_form():
    """m v' = -m g - d v settles at v = -m g / d."""
    params = Params((Param("drag", "drag", 0.0, 0.0, 2.0, match="free", op="set"),))
    w = world(FALL.replace(' density="1.2"', ""), params, n=2)
    begin(w, np.array([[1.0], [2.0]]))
    run(w, 6000)
    assert np.allclose(w.state.v[:, 2], [-0.3 * 9.81 / 1.0, -0.3 * 9.81 / 2.0], rtol=1e-4)


def test_wind_carries_a_ball_along_where_there_is_air():
    params = Params((Param("wind", "wind_x", 0.0, -10.0, 10.0, op="set", unit="m/s"),))
    w = world(FALL, params, n=2)
    begin(w, np.array([[0.0], [8.0]]))
    run(w, 300)
    assert abs(w.state.v[0, 0]) < 1e-9 and w.state.v[1, 0] > 0.01


def test_a_delay_moves_the_answer_later_by_exactly_that_much():
    params = Params((Param("latency", "action_delay", 0.0, 0.0, 0.02, op="set"),))
    w = world(
        PENDULUM.replace("RK4", "implicitfast"), params, n=2
    )  # RK4 asks between steps, where a delay lands earlier
    begin(w, np.array([[0.0], [0.02]]))
    tracks = []
    for k in range(60):
        w.step(np.full((2, 1), 1.0), Chance(0, k, w.dt))
        tracks.append(w.state.q[:, 0].copy())
    track = np.array(tracks)
    assert np.array_equal(track[:-10, 0], track[10:, 1])  # 0.02 s is 10 steps


def test_a_reset_fills_the_memory_of_delayed_servos_with_the_starting_control_not_zero():
    params = Params((Param("latency", "action_delay", 0.0, 0.0, 0.02, op="set"),))
    w = world(PENDULUM.replace("RK4", "implicitfast"), params, n=1)
    torque = w.batch.bind("actuator_force")
    for _ in range(2):  # the second reset must not see the first episode's controls
        begin(w, np.array([[0.02]]), q=[0.7], u=[0.7])
        w.step(np.full((1, 1), 0.7), Chance(0, 0, w.dt))
        assert abs(torque[0, 0]) < 1e-9, "told 0 by an empty buffer, the servo would pull with 8 N m"
        run(w, 30, -1.0)
        assert abs(torque[0, 0]) > 1.0


def test_a_delayed_sensor_says_what_was_and_begins_with_the_truth():
    params = Params((Param("lag", "sensor_delay", 0.0, 0.0, 0.01, match="angle", op="set"),))
    w = world(PENDULUM, params, n=2)
    begin(w, np.array([[0.0], [0.01]]), q=[0.5], u=[0.5])
    assert np.allclose(w.state.y["angle"], 0.5)
    said = []
    for k in range(40):
        w.step(np.full((2, 1), -0.5), Chance(0, k, w.dt))
        said.append(w.state.y["angle"][:, 0].copy())
    said = np.array(said)
    assert np.allclose(said[:-5, 0], said[5:, 1])  # 0.01 s is 5 steps


def test_servo_gains_and_limits_write_the_force_law():
    params = Params(
        (
            Param("kp", "kp", 1.0, 0.1, 3.0),
            Param("kd", "kd", 1.0, 0.1, 3.0),
            Param("limit", "force_limit", 1.0, 0.1, 3.0),
        )
    )
    w = world(PENDULUM, params, n=2)
    begin(w, np.array([[1.0, 1.0, 1.0], [0.5, 2.0, 0.25]]), u=[1.0])
    force = w.batch.bind("actuator_force")[:, 0]
    w.step(np.ones((2, 1)), Chance(0, 0, w.dt))
    assert np.allclose(force, [8.0, 2.0])  # 20 N m and 10 N m asked for, limits of 8 and 2
    assert np.allclose(w.fields["actuator_biasprm"][1, 0, 1:3], [-10.0, -2.0])


def test_ops_on_one_field_compose_in_order():
    params = Params(
        (
            Param("scale", "mass", 1.0, 0.5, 2.0, match="arm"),
            Param("load", "mass", 0.0, 0.0, 5.0, match="arm", op="add"),
        )
    )
    w = world(PENDULUM, params, n=1)
    begin(w, np.array([[2.0, 1.0]]))
    assert np.isclose(w.fields["body_mass"][0, 1], 2 * 2 + 1)


def test_terms_sit_in_their_sockets():
    class Half(OnAction):
        def __call__(self, x, u, chance):
            return 0.5 * u

    class Lift(OnForce):
        def __call__(self, x, u, chance):
            return np.full((len(x.q), 1), 1.5)

    plain, halved = world(PENDULUM, Params(), n=1), world(PENDULUM, Params(), n=1, terms=(Half(), Lift()))
    for w in (plain, halved):
        begin(w)
    plain.step(np.full((1, 1), 0.1), Chance(0, 0, plain.dt))
    halved.step(np.full((1, 1), 0.2), Chance(0, 0, halved.dt))
    assert np.array_equal(plain.state.u, halved.state.u)
    assert halved.state.v[0, 0] > plain.state.v[0, 0]


def test_save_and_load_go_on_with_the_same_bits():
    params = Params(
        (Param("mass", "mass", 1.0, 0.5, 2.0, match="arm"), Param("latency", "action_delay", 0.0, 0.0, 0.02, op="set"))
    )
    e = np.stack([np.linspace(0.5, 2, 4), np.linspace(0, 0.02, 4)], 1)
    w, again = world(PENDULUM, params), world(PENDULUM, params)
    begin(w, e, q=[0.3])
    run(w, 30, 1.0)
    saved = w.save()
    run(w, 30, -1.0)
    again.load(saved)
    run(again, 30, -1.0)
    assert np.array_equal(w.batch.state, again.batch.state)


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e12])
def test_a_diverged_simulation_is_named_and_moves_no_other_by_a_bit(poison):
    clean, hurt = world(PENDULUM, Params(), n=8), world(PENDULUM, Params(), n=8)
    for w in (clean, hurt):
        begin(w, q=[0.3])
        run(w, 5, 0.2)
    hurt.state.v[3] = poison
    bad = hurt.step(np.full((8, 1), 0.2), Chance(0, 5, hurt.dt))
    clean.step(np.full((8, 1), 0.2), Chance(0, 5, clean.dt))
    assert bad.tolist() == [i == 3 for i in range(8)]
    others = [i for i in range(8) if i != 3]
    assert np.array_equal(clean.batch.state[others], hurt.batch.state[others])


@pytest.mark.parametrize("steps", range(KEEP - 2, KEEP + 3))
def test_what_diverged_can_be_replayed_from_its_bundle(steps):
    """Whenever it happens between two copies of the state, and though the row began anew since the last of them."""
    w, again = world(PENDULUM, Params(), n=4), world(PENDULUM, Params(), n=1)
    begin(w, q=[0.3]), begin(again)
    run(w, steps, 0.2)
    w.reset(np.array([2]), np.zeros((1, 0)), Start(np.array([[0.1]]), np.zeros((1, 1)), np.zeros((1, 1))))
    run(w, 2, 0.4)
    w.batch.bind("qfrc_applied")[2] = 1e15
    assert w.step(np.zeros((4, 1)), Chance(0, 5, w.dt)).tolist() == [False, False, True, False]
    kept = w.replay_record(2)
    again.batch.state[:] = kept["state"]
    bad = []
    for u, force in zip(kept["controls"], kept["forces"]):
        again.batch.bind("qfrc_applied")[:] = force
        bad.append(bool(again.step(u[None], Chance(0, 5, again.dt))[0]))
    assert bad == [False] * (len(bad) - 1) + [True]


def test_a_reset_leaves_nothing_of_the_old_episode():
    """A simulation that began anew goes on with the bits of one that never ran: no warm start, no memory, no warning."""
    params = Params((Param("delay", "action_delay", 0.03, 0.0, 0.1, op="set"),))
    used, new = world(PENDULUM, params, n=3), world(PENDULUM, params, n=3)
    begin(used, q=[0.7]), run(used, 30, 0.9)
    used.state.v[1] = np.nan
    assert used.step(np.zeros((3, 1)), Chance(0, 30, used.dt)).tolist() == [False, True, False]
    begin(used, q=[0.3]), begin(new, q=[0.3])
    run(used, 20, 0.5), run(new, 20, 0.5)
    assert np.array_equal(used.batch.state, new.batch.state)


FREE_TARGETS = (
    "com_x",
    "com_y",
    "com_z",
    "drag",
    "gravity",
    "slope_x",
    "slope_y",
    "wind_x",
    "wind_y",
    "wind_z",
    "air_density",
)


ROTOR = """<mujoco><worldbody><body name="base"><joint name="yaw" axis="0 0 1"/><geom size=".1"/><site name="r"/></body></worldbody>
<actuator><motor name="rotor" site="r" gear="0 0 1 0 0 -.02" ctrlrange="-1 1"/></actuator></mujoco>"""


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_of_the_vocabulary_acts_on_a_model_that_has_it(name):
    model = {
        "friction": PENDULUM.replace('pos="0 0 -3"', 'pos="0 0 -.58"'),
        **{stop: PENDULUM.replace('armature=".01"', 'armature=".01" range="-.1 .1"') for stop in ("stop_low", "stop_high")},
        "tendon_limit": PENDULUM.replace('<position name="servo" joint="hinge"', '<position name="servo" tendon="wire"').replace(
            "<actuator>", '<tendon><fixed name="wire" actuatorfrcrange="-1 1"><joint joint="hinge" coef="1"/></fixed></tendon><actuator>'),
        "yaw_torque": ROTOR,
        "constraint": PENDULUM.replace("<actuator>", '<equality><joint name="lock" joint1="hinge" solref="-2500 -100"/></equality><actuator>'),
        "motor_time": PENDULUM.replace('<position name="servo" joint="hinge" kp="20" kv="1"', '<general name="servo" joint="hinge" dyntype="filter" dynprm=".05"'),
    }  # fmt: skip
    xml = model.get(name, FALL if name in FREE_TARGETS or name.startswith("inertia_") else PENDULUM)
    offset = name.startswith(("com_", "slope", "wind")) or name.endswith("delay") or name in ("drag", "constraint")
    p = Param(name, name, 0.0, 0.0, 0.02, op="set") if offset else Param(name, name, 1.0, 0.5, 2.0)
    if TARGETS[name].ops == ("add",):
        p = Param(name, name, 0.0, -0.05, 0.05, op="add")
    assert effects(Params((p,)), model_trace(mujoco.MjSpec.from_string(xml), Params((p,))))[0].acts


def test_the_audit_finds_a_param_that_does_nothing():
    """Wind without air: the field is written, the physics is deaf to it."""
    params = Params(
        (Param("wind", "wind_x", 0.0, 0.0, 10.0, op="set"), Param("g", "gravity", 9.81, 9.0, 10.0, op="set"))
    )
    found = effects(params, model_trace(mujoco.MjSpec.from_string(FALL.replace(' density="1.2"', "")), params))
    assert [f.acts for f in found] == [False, True]


def test_a_friction_masked_by_the_other_surface_is_caught():
    """MuJoCo takes the larger of two frictions: making the smaller one smaller does nothing."""
    xml = """<mujoco><option timestep=".004"/><worldbody><geom name="floor" type="plane" size="5 5 .1" friction="1"/>
    <body pos="0 0 .1" name="box"><joint name="free" type="free"/><geom name="box" type="box" size=".1 .1 .1" friction=".5"/></body></worldbody></mujoco>"""
    masked = Params((Param("f", "friction", 0.5, 0.1, 0.9, match="box", op="set"),))
    seen = Params((Param("f", "friction", 0.5, 0.1, 0.9, match="box|floor", op="set"),))
    assert not effects(masked, model_trace(mujoco.MjSpec.from_string(xml), masked))[0].acts
    assert effects(seen, model_trace(mujoco.MjSpec.from_string(xml), seen))[0].acts


def test_names_that_match_nothing_are_told_what_exists():
    model = mujoco.MjModel.from_xml_string(PENDULUM)
    with pytest.raises(SurefootError, match="no body matches 'amr'.*did you mean arm"):
        writer(model, Param("m", "mass", 1.0, 0.5, 2.0, match="amr"))
    with pytest.raises(SurefootError, match="no target matches 'frcition'.*did you mean friction"):
        writer(model, Param("f", "frcition", 1.0, 0.5, 2.0))


@pytest.mark.parametrize("target", ["strength", "inertia", "slope_x", "bias", "push", "noise"])
def test_an_op_that_would_be_other_physics_is_refused(target):
    with pytest.raises(SurefootError, match="op: target"):
        world(PENDULUM, Params((Param("p", target, 1.0, 0.5, 2.0, op="add"),)))


def test_a_delay_beyond_the_models_memory_is_refused():
    with pytest.raises(SurefootError, match="needs a history"):
        writer(mujoco.MjModel.from_xml_string(PENDULUM), Param("d", "action_delay", 0.0, 0.0, 0.02, op="set"))


def test_the_unknowns_of_any_model_all_act():
    spec = mujoco.MjSpec.from_string(PENDULUM.replace('pos="0 0 -3"', 'pos="0 0 -.58"'))
    params = unknowns(spec.compile())
    assert {"mass", "armature", "damping", "frictionloss", "strength", "latency", "friction"} <= set(params.names)
    assert all(effect.acts for effect in effects(params, model_trace(spec, params)))
