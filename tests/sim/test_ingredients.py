"""Each ingredient of the reality gap against a number known otherwise; strength 0 against the plain world."""

import mujoco
import numpy as np
import pytest
from gap_models import BLOCK, INERTIA, LENGTH, LIMIT, MASS, MOTOR, SERVO, Machine, of, pendulum

from surefoot import tasks
from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.sim.gap.air import ratio
from surefoot.sim.gap.build import INGREDIENTS, fitting, world_of
from surefoot.sim.gap.link import HeldCommand
from surefoot.tasks.ready.hover import ARM, GRAVITY, HOVER
from surefoot.tasks.ready.hover import MASS as DRONE
from surefoot.world import Chance


def played(task, strengths, seed=1, steps=15, n=2):
    """Positions, and what the actor is told, under the same random actions."""
    env = Env(task, world_of(task, strengths, seed, n), tasks.nominal(task), 3)
    rng, q, told = np.random.default_rng(0), [], [env.reset()["actor"]]
    for _ in range(steps):
        told.append(env.step(rng.uniform(-1, 1, (n, len(task.action.names)))).obs["actor"])
        q.append(env.world.state.q.copy())
    return np.array(q), np.array(told)


@pytest.mark.parametrize("name", ["balance", "hover", "walk", "arm"])
def test_strength_0_is_the_plain_world_bit_for_bit(name):
    task = tasks.resolve(name)
    env, rng = tasks.env(task, 2, seed=3), np.random.default_rng(0)
    told, q = [env.reset()["actor"]], []
    for _ in range(15):
        told.append(env.step(rng.uniform(-1, 1, (2, len(task.action.names)))).obs["actor"])
        q.append(env.world.state.q.copy())
    none = played(task, dict.fromkeys(fitting(task), 0.0))
    assert np.array_equal(none[0], q) and np.array_equal(none[1], told)


SENSES = {"sensor_noise", "sensor_bias", "sensor_drift", "observation_latency", "imu_misalignment"}
WHERE = {"ground_effect": "hover"} | dict.fromkeys(("sensor_noise", "air_drag", "wind"), "hover")
PLAIN: dict = {}


@pytest.mark.parametrize("ingredient", INGREDIENTS)
def test_an_ingredient_moves_the_machine_or_only_what_its_sensors_say(ingredient):
    name = WHERE.get(ingredient, "walk")
    task = tasks.resolve(name)
    if name not in PLAIN:
        PLAIN[name] = played(task, {})
    q, told = played(task, {ingredient: 0.7})
    assert np.isfinite(told).all()
    assert np.array_equal(q, PLAIN[name][0]) == (ingredient in SENSES)
    assert not np.array_equal(told, PLAIN[name][1])


@pytest.mark.parametrize("name", ["balance", "hover", "walk", "arm"])
def test_all_ingredients_together_still_make_a_machine(name):
    task = tasks.resolve(name)
    env = Env(task, world_of(task, dict.fromkeys(fitting(task), 0.5), 0, 2), tasks.nominal(task), 3)
    env.reset()
    for _ in range(20):
        assert np.isfinite(env.step(np.full((2, len(task.action.names)), 0.3)).obs["actor"]).all()
    assert env.diverged == 0


FIELDS = {
    "mass": {"body_mass", "body_inertia"}, "com": {"body_ipos"}, "inertia": {"body_inertia"},
    "contact_friction": {"geom_friction"}, "slippery_ground": {"geom_friction"}, "soft_ground": {"geom_solref"},
    "gains": {"actuator_gainprm", "actuator_biasprm"}, "cable_drag": {"jnt_stiffness", "dof_damping", "qpos_spring"},
    "action_latency": {"actuator_delay"}, "observation_latency": {"sensor_delay"}, "imu_misalignment": {"site_quat"},
}  # fmt: skip
OWN = {
    *FIELDS["mass"], *FIELDS["com"], *FIELDS["gains"], *FIELDS["cable_drag"], "geom_friction", "geom_solref", "geom_solimp",
    "geom_priority", "actuator_delay", "sensor_delay", "site_quat", "site_pos", "body_pos", "body_quat", "dof_armature",
    "dof_frictionloss", "jnt_range", "jnt_axis", "actuator_forcerange", "actuator_gear", "actuator_dynprm", "body_iquat",
}  # fmt: skip


@pytest.mark.parametrize("ingredient", FIELDS)
def test_wrong_numbers_are_those_named_and_no_others(ingredient):
    task = tasks.resolve("walk")
    plain, other = (world_of(task, s, 1).model for s in ({}, {ingredient: 0.7}))
    changed = {f for f in OWN if not np.array_equal(getattr(plain, f), getattr(other, f))}
    assert changed == FIELDS[ingredient]


@pytest.mark.parametrize("ingredient, task", [("ground_effect", "walk"), ("stiction", "hover"), ("soft_ground", "arm"),
                                              ("imu_misalignment", "balance"), ("saturation", "hover")])  # fmt: skip
def test_an_ingredient_refuses_a_model_that_cannot_have_it(ingredient, task):
    assert ingredient not in fitting(tasks.resolve(task))
    with pytest.raises(SurefootError, match=f"task {task}: ingredient {ingredient}: expected a model with"):
        world_of(tasks.resolve(task), {ingredient: 0.5}, 0)


def test_a_strength_beyond_1_and_a_name_that_is_none_are_refused():
    with pytest.raises(SurefootError, match="from 0 .none. to 1 .severe., found 1.5"):
        world_of(tasks.resolve("arm"), {"mass": 1.5}, 0)
    with pytest.raises(SurefootError, match="did you mean backlash"):
        world_of(tasks.resolve("arm"), {"backlsh": 0.5}, 0)


# wrong numbers


@pytest.mark.parametrize("seed", [0, 1])
def test_a_wrong_mass_divides_the_acceleration_of_a_thrown_drone(seed):
    def rise(strengths):
        thrust = np.full(4, 2 * HOVER)
        return Machine(tasks.resolve("hover"), strengths, seed).start(act=thrust).step(thrust).v[2]

    factor = (rise({}) / 0.02 + GRAVITY) / (rise({"mass": 1.0}) / 0.02 + GRAVITY)
    assert rise({}) == pytest.approx(GRAVITY * 0.02, rel=1e-3)
    assert 1.5**0.5 < max(factor, 1 / factor) < 1.5


def test_gravity_is_wrong_by_up_to_a_tenth():
    fall = [
        Machine(tasks.resolve("hover"), {"gravity": 1.0}, k).start().step(np.zeros(4)).v[2] / -0.02 / GRAVITY
        for k in range(8)
    ]
    assert all(1.1**0.5 - 1e-9 < max(f, 1 / f) < 1.1 + 1e-9 for f in fall) and min(fall) < 1 < max(fall)


def test_a_centre_of_mass_that_is_off_turns_a_drone_under_even_thrust():
    m = Machine(tasks.resolve("hover"), {"com": 1.0}, 2).start(act=np.full(4, HOVER))
    x, y, _ = m.world.model.body("drone").ipos
    J = m.world.model.body("drone").inertia
    m.step(np.full(4, HOVER))
    expected = DRONE * GRAVITY * np.array([-y / J[0], x / J[1]]) * 0.02  # torque of the thrust about the true centre
    assert m.v[3:5] == pytest.approx(expected, rel=0.02)


def test_inertia_changes_the_turn_and_not_the_fall():
    plain, other = (Machine(pendulum(MOTOR), s).start().step(1.0) for s in ({}, {"inertia": 1.0}))
    assert plain.v[0] == pytest.approx(0.002 / INERTIA, rel=1e-6)
    assert other.world.model.body("link").mass[0] == MASS
    assert other.v[0] == pytest.approx(0.002 / (INERTIA - 1e-4 + other.world.model.body("link").inertia[1]), rel=1e-6)


def test_a_motors_gain_scales_its_torque_and_a_servos_its_stiffness():
    m = Machine(pendulum(MOTOR), {"gains": 1.0}, 1)
    gain = m.world.model.actuator_gainprm[0, 0]
    assert 1.5**0.5 < max(gain, 1 / gain) < 1.5
    assert m.start().step(1.0).v[0] == pytest.approx(0.002 * gain / INERTIA, rel=1e-6)
    servo = Machine(pendulum(SERVO, gravity=1.0), {"gains": 1.0}, 1)
    sag = servo.start().step(0.0, 2000).q[0]
    assert sag == pytest.approx(MASS * 1.0 * LENGTH * np.cos(sag) / servo.world.model.actuator_gainprm[0, 0], rel=1e-3)


# ground


def grips(strengths, friction, seed=0) -> bool:
    """Whether a block of 2 kg bears a pull of friction times its weight of 20 N for half a second."""
    m = Machine(of(BLOCK), strengths, seed).start().step(0.0, 200)
    return bool(
        m.step(20.0 * friction, 250).v[0] < 0.25 * friction
    )  # slipping, it gains g t (1.07 - 1) friction or more


@pytest.mark.parametrize("s, friction", [(0.0, 0.5), (0.5, 0.5 / 8**0.5), (1.0, 0.5 / 8)])
def test_slippery_ground_has_an_eighth_of_the_friction(s, friction):
    assert grips({"slippery_ground": s}, 0.93 * friction)
    assert not grips({"slippery_ground": s}, 1.07 * friction)


def test_wrong_friction_is_the_larger_of_the_two_surfaces():
    wrong = {"contact_friction": 1.0}
    friction = Machine(of(BLOCK), wrong, 4).world.model.geom_friction[:, 0].max()
    assert not 0.85 < friction / 0.5 < 1.15
    assert grips(wrong, 0.93 * friction, 4) and not grips(wrong, 1.07 * friction, 4)


def test_soft_ground_gives_way_with_the_square_of_its_time_constant():
    depth = lambda s: -Machine(of(BLOCK), s).start().step(0.0, 1500).q[1]  # noqa: E731
    assert depth({"soft_ground": 0.5}) / depth({}) == pytest.approx(4.0, rel=0.05)


# joints


def test_stiction_holds_up_to_a_tenth_of_the_motors_torque_and_slides_at_0_6_of_that():
    m = Machine(pendulum(MOTOR), {"stiction": 1.0}).start()
    ramp = np.arange(0.0, 1.0, 0.0005)
    speed = [m.step(u).v[0] for u in ramp]
    breakaway = ramp[np.flatnonzero(np.array(speed) > 0.1)[0]]
    assert breakaway == pytest.approx(0.1 * LIMIT, rel=0.05)
    m.start(v=5.0).step(0.0, 50)
    before = m.v[0]
    assert (before - m.step(0.0, 50).v[0]) / 0.1 * INERTIA == pytest.approx(0.06 * LIMIT, rel=0.01)


def test_backlash_loses_motion_equal_to_the_gap():
    def lost(s):
        """What the link lacks when the same motor angle is reached from above and from below, pressed by gravity."""
        m = Machine(pendulum(SERVO, gravity=0.2), {"backlash": s} if s else {})
        sides = [m.start(q=q, u=q).step(q, 1200) and m.q[0] - m.joint("hinge") for q in (0.0, np.pi)]
        return sides[0] - sides[1]  # level to the right, then to the left: gravity turns it the other way

    assert lost(0.0) == 0.0
    assert lost(1.0) == pytest.approx(0.06, rel=0.02)
    assert lost(0.5) == pytest.approx(0.03, rel=0.03)


def test_a_series_spring_gives_in_proportion_to_the_torque():
    m = Machine(pendulum(SERVO, gravity=4.0), {"series_elasticity": 0.5}).start().step(0.0, 4000)
    torque = MASS * 4.0 * LENGTH * np.cos(m.q[0])
    assert m.q[0] - m.joint("hinge") == pytest.approx(torque / LIMIT * 0.1, rel=1e-2)


def test_a_flexible_link_bends_under_its_load_and_its_encoder_does_not_see_it():
    m = Machine(pendulum(SERVO, gravity=4.0), {"flexible_links": 1.0}).start().step(0.0, 6000)
    bend = m.joint("bend_in/hinge")
    arm = 0.7 * LENGTH * np.cos(m.q[0] + bend)
    assert bend == pytest.approx(MASS * 4.0 * arm / (LIMIT / 0.1), rel=1e-2)
    assert m.joint("bend_across/hinge") == pytest.approx(0.0, abs=1e-6)
    assert m.q[0] == m.joint("hinge")


def test_a_cable_pulls_towards_where_it_was_laid():
    m = Machine(pendulum(MOTOR), {"cable_drag": 1.0}, 3)
    rest = m.world.model.qpos_spring[0]
    assert 0 < abs(rest) < 1
    assert m.start().step(0.0).v[0] / 0.002 == pytest.approx(0.05 * LIMIT * rest / INERTIA, rel=1e-3)
    assert m.start(q=rest).step(0.0, 50).q[0] == pytest.approx(rest, abs=1e-6)


def test_torque_falls_with_speed_along_a_line_to_nothing():
    m = Machine(pendulum(MOTOR), {"saturation": 0.5}).start()
    v = np.array([0.0, *(m.step(LIMIT).v[0] for _ in range(800))])
    torque, middle = np.diff(v) / 0.002 * INERTIA, (v[1:] + v[:-1]) / 2
    assert torque == pytest.approx(LIMIT * (1 - middle / 24.0), abs=0.02 * LIMIT)
    assert v[-1] == pytest.approx(24.0 * (1 - np.exp(-1.6 * LIMIT / 24.0 / INERTIA)), rel=1e-2)
    brake = m.start(v=10.0).step(-LIMIT)  # against the motion all of the torque is there
    assert (brake.v[0] - 10.0) / 0.002 * INERTIA == pytest.approx(-LIMIT, rel=1e-6)


def test_a_servo_below_its_limits_is_the_same_as_a_dc_motor():
    tracks = [
        [Machine(pendulum(SERVO, 1.0), s).start().step(0.02, k).q[0] for k in (5, 50)]
        for s in ({}, {"saturation": 0.1})
    ]
    assert tracks[0] == pytest.approx(tracks[1], rel=1e-9)


def test_heat_takes_half_of_a_motors_torque_in_the_end():
    m = Machine(pendulum(MOTOR, armature=1e6), {"heating": 1.0}).start()
    m.engine.substeps = 50
    force = m.engine.batch.bind("actuator_force")
    m.step(LIMIT)
    assert force[0, 0] == pytest.approx(LIMIT, rel=0.02)
    m.step(LIMIT, 2000)
    assert force[0, 0] == pytest.approx(LIMIT / 2, rel=0.01)


def test_rotors_weaken_with_use():
    m = Machine(tasks.resolve("hover"), {"heating": 1.0}).start(u=np.full(4, HOVER), act=np.full(4, HOVER))
    used = HOVER / 0.1488
    m.step(np.full(4, HOVER), 500)
    assert m.world.state.u[0] == pytest.approx(HOVER * (1 - 0.3 * (1 - np.exp(-used * 499 * 0.02 / 20))), rel=1e-6)


# air


def box(model) -> np.ndarray:
    """Half-widths of the box that has the drone's inertia."""
    J = model.body("drone").inertia
    return np.sqrt(1.5 / DRONE * (J.sum() - 2 * J))


def test_air_drags_with_the_square_of_the_speed():
    m = Machine(tasks.resolve("hover"), {"air_drag": 0.5}).start(v=[5, 0, 0, 0, 0, 0])
    r = box(m.world.model)
    rate = 2 * 6.0 * r[1] * r[2] / DRONE * 5.0
    assert m.step(np.zeros(4)).v[0] == pytest.approx(5.0 / (1 + rate * 0.02), rel=1e-4)


def test_wind_carries_a_drone_at_rest():
    m = Machine(tasks.resolve("hover"), {"wind": 0.5}, 4).start()
    r, w = box(m.world.model), m.world.model.opt.wind
    assert np.linalg.norm(w) == pytest.approx(4.0)
    push = 2 * 1.2 * np.array([r[1] * r[2], r[0] * r[2]]) * w[:2] * np.abs(w[:2]) / DRONE
    assert m.step(np.zeros(4)).v[:2] / 0.02 == pytest.approx(push, rel=0.02)


def test_ground_effect_lifts_as_cheeseman_and_bennett_say():
    m = Machine(tasks.resolve("hover"), {"ground_effect": 1.0})
    radius = ARM + 0.018
    below = radius / 4 / np.sqrt(1 - 1 / 1.15)
    for height in (0.0, 0.05, 0.2):
        m.start(q=[0, 0, height, 1, 0, 0, 0], act=np.full(4, HOVER)).step(np.full(4, HOVER))
        expected = 1 / (1 - (radius / (4 * (below + height))) ** 2) - 1
        assert m.v[2] / 0.02 / GRAVITY == pytest.approx(expected, rel=0.02)
        assert m.v[3:] == pytest.approx(0, abs=1e-6)
    assert ratio(np.array([0.0]), 1.0) == ratio(np.array([0.5]), 1.0)


# the wire


def test_a_command_reaches_the_motor_after_its_latency():
    m = Machine(pendulum(MOTOR), {"action_latency": 0.5}).start()
    moved = [m.step(1.0).v[0] > 0 for _ in range(30)]
    assert moved.index(True) == pytest.approx(0.03 / 0.002, abs=1)


def test_jitter_holds_the_last_command_as_often_as_it_says():
    m = Machine(pendulum(MOTOR), {"action_jitter": 0.6}).start(u=-1.0)
    held = 0
    for k in range(1000):
        before = m.world.state.u[0, 0]
        m.step(k / 1000)
        held += m.world.state.u[0, 0] == before
    assert abs(held - 300) < 4 * np.sqrt(1000 * 0.3 * 0.7)
    assert [t.chance for t in m.world.terms if isinstance(t, HeldCommand)] == [0.3]


def drifting(strengths, steps, task=None, seed=1):
    """q as it is and as it is told, (steps, 2), of a pendulum that turns at 1 rad/s."""
    m = Machine(task or pendulum(MOTOR), strengths, seed).start(v=1.0)
    m.told()
    return np.array([(m.step(0.0).q[0], m.told().q[0, 0]) for _ in range(steps)])


def test_readings_are_as_old_as_the_latency_says():
    q, told = drifting({"observation_latency": 0.625}, 40).T  # 25 ms: 12.5 periods
    assert told[20:] == pytest.approx(q[20:] - 0.025, abs=1e-9)
    assert told[:10] == pytest.approx(0.0, abs=1e-12)  # nothing older than the start


def test_latency_of_the_models_own_sensors_is_the_engines():
    tell = lambda s: Machine(tasks.resolve("walk"), s).start(u=np.tile([0, 0.8, -1.6], 4))  # noqa: E731
    plain, late = tell({}), tell({"observation_latency": 0.5})
    rows = [[m.step(np.tile([0, 0.8, -1.6], 4)).told().y["gyro"][0].copy() for _ in range(8)] for m in (plain, late)]
    assert np.array(rows[1][1:]) == pytest.approx(np.array(rows[0][:-1]), abs=1e-12)  # 20 ms is one period


def test_noise_has_its_spread_and_nothing_else():
    off = np.subtract(*drifting({"sensor_noise": 0.5}, 2000).T)
    assert off.std() == pytest.approx(0.01, rel=0.06) and abs(off.mean()) < 4 * 0.01 / np.sqrt(2000)
    assert abs(np.corrcoef(off[1:], off[:-1])[0, 1]) < 0.1


def test_a_bias_stays_and_a_drift_grows():
    bias = np.subtract(*drifting({"sensor_bias": 1.0}, 500).T)
    assert np.ptp(bias) < 1e-12 and 0 < abs(bias[0]) < 0.02
    drift = np.subtract(*drifting({"sensor_drift": 1.0}, 500).T)
    assert drift == pytest.approx(drift[-1] * np.arange(1, 501) / 500, abs=1e-9)
    assert 0 < abs(drift[-1]) <= 0.02 * 1.0 / 10


def test_packets_are_lost_as_often_as_it_says_and_the_last_is_told_again():
    told = drifting({"dropped_packets": 1.0}, 2000)[:, 1]
    again = np.diff(told) == 0
    assert abs(again.sum() - 600) < 4 * np.sqrt(2000 * 0.3 * 0.7)
    assert np.diff(told)[~again].min() > 0


def test_a_servo_with_a_wrong_zero_holds_its_joint_off_and_reads_that_it_is_right():
    m = Machine(pendulum(SERVO), {"encoder_offset": 1.0}, 1).start().step(0.3, 3000)
    offset = 0.3 - m.q[0]
    assert 0.025 < abs(offset) < 0.05
    assert m.told().q[0, 0] == pytest.approx(0.3, abs=1e-6)


def turned(a, b) -> float:
    """Angle between two attitudes, rad."""
    return 2 * np.arccos(min(1.0, abs(float(a @ b))))


def test_an_imu_mounted_askew_turns_attitude_and_rates_alike():
    spin = np.array([0.3, -0.2, 0.5])
    for name, attitude, rates in (
        ("hover", lambda x: x.q[0, 3:7], lambda x: x.v[0, 3:6]),
        ("walk", lambda x: x.y["attitude"][0], lambda x: x.y["gyro"][0]),
    ):
        v = np.concatenate([np.zeros(3), spin, np.zeros(12 if name == "walk" else 0)])
        plain, askew = (Machine(tasks.resolve(name), s).start(v=v).told() for s in ({}, {"imu_misalignment": 0.5}))
        assert turned(attitude(plain), attitude(askew)) == pytest.approx(0.05, rel=1e-3)
        back, w = np.zeros(4), np.zeros(3)
        mujoco.mju_mulQuat(back, attitude(askew) * [1, -1, -1, -1], attitude(plain))
        mujoco.mju_rotVecQuat(w, rates(plain).copy(), back)
        assert rates(askew) == pytest.approx(w, abs=1e-9)


def test_encoders_sit_on_the_motors_side_of_a_spring():
    m = Machine(pendulum(SERVO, gravity=4.0), {"series_elasticity": 1.0}).start().step(0.0, 2000)
    assert m.told().q[0, 0] == pytest.approx(m.joint("hinge"), abs=1e-12) and m.q[0] - m.joint("hinge") > 0.05


def test_a_rollout_of_what_is_shown_is_its_steps():
    m = Machine(pendulum(SERVO, gravity=4.0), {"series_elasticity": 1.0, "stiction": 0.5}).start()
    motion = m.world.rollout(np.full((1, 30, 1), 0.4), Chance(0, 0, m.world.dt))
    m.start()
    stepped = [m.step(0.4).q[0] for _ in range(30)]
    assert motion.q.shape == (1, 30, 1) and motion.q[0, :, 0] == pytest.approx(stepped, abs=1e-12)
    twin = Machine(pendulum(SERVO, gravity=4.0), {"series_elasticity": 1.0, "stiction": 0.5})
    twin.world = twin.world.with_(1)
    assert twin.start().step(0.4, 30).q[0] == stepped[-1]


def test_to_set_a_machine_back_leaves_its_hidden_parts_as_they_are():
    m = Machine(pendulum(SERVO, gravity=0.2), {"backlash": 1.0}).start().step(0.3, 20)
    shown = m.world.view.q
    hidden = np.delete(m.engine.state.q[0], shown)
    m.world.set_state(np.full((1, 1), 0.1), np.zeros((1, 1)))
    assert (
        m.q == pytest.approx(0.1, abs=1e-12)
        and len(hidden)
        and np.array_equal(np.delete(m.engine.state.q[0], shown), hidden)
    )
