"""arm against the textbook's two-link equations, and the balance of torques under a pull."""

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.learn.ranges.adr import ADR
from surefoot.policy import Zero
from surefoot.sim.model.load import load_string
from surefoot.tasks.ready.arm import ARMATURE, FORE, GRAVITY, HAND, KP, MASS, MIDDLE, SPAN, TORQUE, UPPER, tip, xml
from surefoot.tasks.rollout import contract, evaluate
from surefoot.world import Chance, OnBody, Start

POSES = np.random.default_rng(0).uniform(-2.5, 2.5, (20, 2))
L1, L2 = UPPER, FORE
M1, M2, MT = MASS.values()
G = GRAVITY


def mass_matrix(q, mt=MT, m1=M1, m2=M2):
    """Uniform rods and a point at the end, with rotor inertias on the diagonal."""
    i1, i2, c = m1 * L1**2 / 12, m2 * L2**2 / 12, np.cos(q[1])
    m22 = i2 + m2 * L2**2 / 4 + mt * L2**2
    m12 = i2 + m2 * (L2**2 / 4 + L1 * L2 / 2 * c) + mt * (L2**2 + L1 * L2 * c)
    m11 = i1 + m1 * L1**2 / 4 + i2 + m2 * (L1**2 + L2**2 / 4 + L1 * L2 * c) + mt * (L1**2 + L2**2 + 2 * L1 * L2 * c)
    return np.array([[m11, m12], [m12, m22]]) + np.diag(ARMATURE)


def potential(q, mt=MT):
    a, b = np.sin(q[0]), np.sin(q[0] + q[1])
    return G * (M1 * L1 / 2 * a + M2 * (L1 * a + L2 / 2 * b) + mt * (L1 * a + L2 * b))


def gravity_torque(q, mt=MT):
    """dV/dq."""
    a, b = np.cos(q[0]), np.cos(q[0] + q[1])
    second = G * (M2 * L2 / 2 + mt * L2) * b
    return np.array([G * (M1 / 2 + M2 + mt) * L1 * a + second, second])


def coriolis(q, v):
    """c(q, v) = (-h v2 (2 v1 + v2), h v1^2), h = (m2 lc2 + mt l2) l1 sin q2."""
    h = (M2 * L2 / 2 + MT * L2) * L1 * np.sin(q[1])
    return np.array([-h * v[1] * (2 * v[0] + v[1]), h * v[0] ** 2])


def jacobian(q):
    """d(x, z)/dq of the hand."""
    a, b = q[0], q[0] + q[1]
    return np.array(
        [[-L1 * np.sin(a) - L2 * np.sin(b), -L2 * np.sin(b)], [L1 * np.cos(a) + L2 * np.cos(b), L2 * np.cos(b)]]
    )


@pytest.fixture(scope="module")
def model():
    return load_string(xml(), "arm").model


@pytest.fixture
def data(model):
    return mujoco.MjData(model)


def test_the_mass_matrix_is_the_textbooks(model, data):
    for q in POSES:
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        full = np.zeros((2, 2))
        mujoco.mj_fullM(model, data, full)
        assert np.allclose(full, mass_matrix(q), rtol=1e-6)


def test_gravity_and_coriolis_torques_are_the_textbooks(model, data):
    for q, v in zip(POSES, POSES[::-1]):
        data.qpos[:], data.qvel[:] = q, v
        mujoco.mj_forward(model, data)
        assert np.allclose(data.qfrc_bias, gravity_torque(q) + coriolis(q, v), rtol=1e-6, atol=1e-6)


def test_gravity_torque_is_the_slope_of_the_potential():
    h = 1e-6
    for q in POSES:
        slope = [(potential(q + d) - potential(q - d)) / (2 * h) for d in h * np.eye(2)]
        assert np.allclose(gravity_torque(q), slope, rtol=1e-6, atol=1e-6)


def test_energy_is_kept_when_nothing_rubs_and_no_servo_holds():
    """A free double pendulum swings for 3 s: kinetic + potential energy, both by textbook, stay what they were."""
    swing = mujoco.MjModel.from_xml_string(xml())
    swing.opt.timestep, swing.opt.integrator = 1e-3, mujoco.mjtIntegrator.mjINT_RK4
    swing.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT
    swing.dof_damping[:], swing.dof_frictionloss[:], swing.actuator_gainprm[:], swing.actuator_biasprm[:] = 0, 0, 0, 0
    data = mujoco.MjData(swing)
    data.qpos[:] = -0.4, 0.5
    energy = []
    for _ in range(3000):
        mujoco.mj_step(swing, data)
        q, v = data.qpos, data.qvel
        energy.append(0.5 * v @ mass_matrix(q) @ v + potential(q))
    assert np.abs(data.qvel).max() > 0.5 and np.ptp(energy) < 1e-6 * G


def test_the_hand_is_where_the_angles_put_it(model, data):
    for q in POSES:
        data.qpos[:] = q
        mujoco.mj_forward(model, data)
        assert np.allclose(data.xpos[HAND, [0, 2]], tip(q[None])[0]) and model.body(HAND).name == "hand"


def test_masses_and_payload_move_the_mass_matrix_as_the_textbook_says():
    task = tasks.resolve("arm")
    env = tasks.env(task, 1)
    env.reset(e=task.params.vector({"upper_mass": 1.8, "fore_mass": 0.7, "payload": 0.5})[None])
    model = env.world.batch.get_model(0)
    data = mujoco.MjData(model)
    data.qpos[:] = 0.3, 0.9
    mujoco.mj_forward(model, data)
    full = np.zeros((2, 2))
    mujoco.mj_fullM(model, data, full)
    assert np.allclose(full, mass_matrix(data.qpos, MT + 0.5, 1.8, 0.7), rtol=1e-6)


class Lean(OnBody):
    bodies = ("hand",)

    def __init__(self, force):
        self.force = force

    def __call__(self, x, u, chance):
        return np.broadcast_to([*self.force, 0.0, 0.0, 0.0], (len(x.q), 1, 6))


@pytest.mark.parametrize("force", [(0.0, 0.0, 0.0), (12.0, 0.0, -20.0), (-25.0, 0.0, 5.0)])
def test_at_rest_the_servos_carry_gravity_less_what_the_pull_carries(force):
    """kp (u - q) = g(q) - J^T F, with no dry friction to hide a remainder."""
    task = tasks.resolve("arm")
    world = tasks.env(task, 3, terms=(Lean(force),)).world
    e = np.tile(task.params.vector({"joint_friction": 0.0}), (3, 1))
    u = np.array([[0.4, 0.6], [-0.5, 1.2], [0.0, 1.6]])
    world.reset(np.arange(3), e, Start(u, np.zeros((3, 2)), u))
    for k in range(400):
        world.step(u, Chance(0, k, world.dt))
    assert np.abs(world.state.v).max() < 1e-6
    for q, target in zip(world.state.q, u):
        expected = gravity_torque(q) - jacobian(q).T @ np.array(force)[[0, 2]]
        assert np.allclose(np.array(KP) * (target - q), expected, atol=1e-4)


def test_every_pose_a_command_asks_for_can_be_held_against_the_largest_pull_and_payload():
    """So an error is the policy's, not the motors': torque left over, and the servo target within the action's reach."""
    task = tasks.resolve("arm")
    most = dict(zip(task.params.names, task.belief.high))
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 15)] * 2), -1).reshape(-1, 2)
    for q in MIDDLE + SPAN * grid:
        for angle in np.linspace(0, 2 * np.pi, 24):
            force = most["pull"] * np.array([np.cos(angle), np.sin(angle)])
            torque = gravity_torque(q, MT + most["payload"]) - jacobian(q).T @ force
            target = q + torque / (np.array(KP) * 0.9)
            assert (np.abs(torque) < TORQUE).all()
            assert (np.abs((target - task.action.offset) / task.action.scale) < 1).all()


def test_the_critic_is_told_the_force_and_the_actor_is_not():
    task = tasks.resolve("arm")
    env = tasks.env(task, 4, terms=(Lean((7.0, 0.0, -3.0)),))
    env.reset()
    obs = env.step(np.zeros((4, 2))).obs
    terms = [t.name for t in task.observations["critic"].terms]
    at = task.observations["critic"].columns[terms.index("hand_force")]
    assert np.allclose(obs["critic"][:, at], [0.7, -0.3])
    assert {t.name for t in task.observations["actor"].terms} == {"joint_pos", "joint_vel", "command", "last_action"}


def test_a_pull_moves_a_hand_that_nobody_steers():
    task = tasks.resolve("arm")
    still, pulled = (task.params.vector({"pull": f})[None].repeat(40, 0) for f in (0.0, 30.0))
    missed = []
    for e in (still, pulled):
        env, hand = tasks.env(task, 40, seed=3), []
        evaluate(Zero(contract(task, env.world)), env, lambda k, env, h=hand: h.append(tip(env.moment.q)), e=e)
        missed.append(np.array(hand))
    moved = np.linalg.norm(missed[0] - missed[1], axis=2)
    assert moved[50:150].mean() > 0.05 and moved.max() < 0.6


def test_the_pull_grows_as_a_policy_copes_and_stops_where_it_does_not():
    """A stand-in for a policy that bears 12 N: of the range up to 30 N, ADR's upper edge ends within a step of it."""
    task, at = tasks.resolve("arm"), tasks.resolve("arm").params.index("pull")
    ranges = ADR(step=0.1).start(task.belief, 10, 4000)
    assert ranges.belief.high[at] == 0.0
    rng = np.random.default_rng(0)
    for k in range(400):
        e = ranges.belief.sample(rng, 128)
        ranges.tell(e, e[:, at] <= 12.0, np.full(128, 11 * k + 1), 11 * (k + 1))
    assert 12.0 - 3.0 <= ranges.belief.high[at] <= 12.0 + 3.0
    others = np.delete(task.belief.high, at), np.delete(ranges.belief.high, at)
    assert np.allclose(*others)
