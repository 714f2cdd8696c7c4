"""A simulated robot in real time is the task's own robot: same physics, same readings, same judgement; and it obeys gains."""

from dataclasses import replace

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.deploy.links import Command
from surefoot.motion.made import from_poses
from surefoot.robot import Robot
from surefoot.sim.layout import model_of
from surefoot.sim.realities import Reality
from surefoot.task import Task
from surefoot.tasks.build.legged import read_legged
from surefoot.tasks.live_robot import LiveRobot, falls
from surefoot.tasks.ready.humanoid_model import JOINTS, stand, xml
from surefoot.tasks.rollout import contract

NOMINAL = Reality(0, {})


def robot(name: str, reality: Reality = NOMINAL, **more) -> LiveRobot:
    made = LiveRobot(tasks.resolve(name), reality, **more)
    made.reset(0)
    return made


def servo(target, kp, kd) -> Command:
    return Command(1, "servo", np.asarray(target, float), np.asarray(kp, float), np.asarray(kd, float))


OFF = [("hover", {}), ("arm", {}), ("walk", {}), ("arm", {"kp": 1.5}), ("walk", {"kp": 0.7, "kd": 1.6})]


@pytest.mark.parametrize(("name", "e"), OFF)
def test_it_moves_as_the_tasks_env_does_under_the_same_controls(name, e):
    """Between two controls it makes as many steps as the env's control period has, of the same engine. Gains that are off, which nobody
    knows, are off whatever gains it is sent."""
    task, reality = tasks.resolve(name), Reality(0, {}, e)
    live = robot(name, reality)
    env = tasks.env(task, 1, point(task.params, reality.values(task, task.params.nominal)))
    env.reset(0)
    env.world.set_state(live.env.world.state.q.copy(), live.env.world.state.v.copy())
    law, every = contract(task, env.world), round(env.world.dt / live.dt)
    assert every * live.dt == pytest.approx(env.world.dt)
    rng = np.random.default_rng(0)
    for _ in range(3):
        a = rng.uniform(-0.3, 0.3, (1, len(task.action.names)))
        u = task.action.control(a)[0]
        command = servo(u, law.kp, law.kd) if law.kp else Command(1, "control", u, u, u)
        for _ in range(every):
            live.advance(command)
        env.step(a)
        assert np.allclose(live.env.world.state.q, env.world.state.q, atol=1e-9)
        assert np.allclose(live.env.world.state.v, env.world.state.v, atol=1e-7)


def test_readings_are_those_that_the_contracts_formulas_need():
    for name in ("balance", "hover", "arm", "walk"):
        live = robot(name)
        found, parts = live.readings(), live.about().parts
        terms = live.task.observations["actor"].terms
        needs = {n for t in terms for n in t.formula.needs} - {"action", "command", "time", "gravity"}
        assert needs <= set(found) and all(len(found[k]) == len(v) for k, v in parts.items() if k in found)


def test_gains_of_a_command_are_obeyed():
    """The torque of the first instant is kp (target - q) - kd v, whatever gains the model's own servos have."""
    live = robot("arm")
    x = live.env.world.state
    q, v = x.q[0].copy(), np.array([0.3, -0.2])
    live.env.world.set_state(q[None], v[None])
    kp, kd, target = np.array([10.0, 3.0]), np.array([0.5, 0.2]), q + [0.05, -0.1]
    u = live._controls(servo(target, kp, kd))
    drives = {d.actuator: d for d in live.env.world.layout.drives}
    own = [drives[name] for name in live.task.action.names]
    torque = [d.kp * (a - b) - d.kd * w for d, a, b, w in zip(own, u, q, v)]
    assert np.allclose(torque, kp * (target - q) - kd * v)


def test_it_sinks_down_in_damping():
    """Without stiffness gravity wins: the arm comes to hang straight down, the shoulder at -90 degrees."""
    live = robot("arm")
    for _ in range(4000):
        live.advance(None)
    assert np.allclose(live.env.world.state.q, [[-np.pi / 2, 0.0]], atol=0.1)


def test_a_run_is_judged_as_the_task_judges():
    """Nobody drives the cart: the pole falls; the reason is the task's. Damping afterwards is no part of the run."""
    live = robot("balance")
    for _ in range(400):
        live.advance(Command(1, "control", np.zeros(1), np.zeros(1), np.zeros(1)))
    for _ in range(100):
        live.advance(None)
    live.land()
    (flown,) = live.flights
    assert flown.ended == "pole fell" and not flown.success and flown.seconds == pytest.approx(2.0)


def standing_up() -> Task:
    """Our humanoid, which falls if nobody balances it, follows a motion that begins with bent knees."""
    body = Robot.text(xml(), "humanoid")
    bent = {j: stand(j) + {"knee": 0.6, "hip_pitch": -0.3, "ankle_pitch": -0.3}.get(j.partition("_")[2], 0.0) for j in JOINTS}  # fmt: skip
    home = {j: stand(j) for j in JOINTS}
    return tasks.track(body, from_poses(body, read_legged(body)[0].feet, [(0.0, bent), (1.0, home)]))


def commands(live: LiveRobot) -> tuple[Command, Command]:
    """Of the soft start, and of a policy that only holds its first pose."""
    law = contract(live.task, live.env.world)
    held = servo(law.first_pose, law.kp, law.kd)
    return replace(held, starting=True), held


def test_it_needs_a_gantry_if_it_falls_while_nobody_balances():
    assert falls(standing_up()) and not any(falls(tasks.resolve(name)) for name in ("walk", "arm", "hover"))


def test_on_a_gantry_joints_come_to_the_motions_first_pose_and_the_base_stays():
    live = LiveRobot(standing_up(), NOMINAL, hangs=True)
    live.reset(0)
    x, (soft, _) = live.env.world.state, commands(live)
    before, knee = x.q[0, :7].copy(), live.env.layout.joints.index("left_knee")
    for _ in range(600):
        live.advance(soft)
    assert np.abs(x.q[0, :7] - before).max() < 0.005
    assert soft.target[knee] == pytest.approx(stand("left_knee") + 0.6, abs=1e-4)
    assert np.abs(x.q[0, 7:] - soft.target).max() < 0.07  # servos sag under the weight of the legs
    assert live.steps == 0 and not live.ended


def test_the_gantry_lets_go_at_the_first_command_of_the_policy_and_the_run_and_its_motion_begin_there():
    """1 m above the floor the centre of mass then falls freely: g t^2 / 2."""
    live = LiveRobot(standing_up(), NOMINAL, hangs=True)
    live.reset(0)
    x, (soft, held) = live.env.world.state, commands(live)
    x.q[0, 2] += 1.0
    live.gantry.hang()
    for _ in range(200):
        live.advance(soft)
    high = _centre(live)
    for _ in range(40):
        live.advance(held)
    assert high - _centre(live) == pytest.approx(9.81 * 0.2**2 / 2, rel=0.05)
    assert live.steps * live.dt == pytest.approx(0.2) == live.env.moment.phase[0]
    live.reset(1)
    for _ in range(100):
        live.advance(soft)
    assert live.env.world.state.q[0, 2] == pytest.approx(live.task.clip.begin.ref.q[0, 2], abs=0.02)  # it hangs again


def _centre(live: LiveRobot) -> float:
    """m: height of the centre of mass."""
    m = model_of(live.env.world)
    d = mujoco.MjData(m)
    d.qpos[:] = live.env.world.state.q[0]
    mujoco.mj_fwdPosition(m, d)
    return float(d.subtree_com[0, 2])
