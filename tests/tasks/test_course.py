"""course: wheels by their kinematics, rays by geometry, a way through, and a mirror image that the physics has, too."""

from dataclasses import replace

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.rng import stream
from surefoot.task import Episode, quiet
from surefoot.tasks.ready import course as c
from surefoot.world import Start


def placed(q, v=None):
    """A quiet env whose robots begin at q."""
    task, e = quiet(tasks.resolve("course"))
    q = np.atleast_2d(q)
    start = Start(q, np.zeros_like(q) if v is None else np.atleast_2d(v), np.zeros((len(q), 3)))
    task = replace(task, episode=lambda rng, n: Episode(start))
    env = tasks.env(task, len(q), point(task.params, e), threads=1)
    env.world.sense_after_step = True
    env.reset()
    return env


def empty(x=0.0, y=0.0, yaw=0.0):
    """No disk within reach: all of them beyond the wall."""
    q = np.zeros(5 + 2 * c.DISKS)
    q[:3], q[3:5], q[5::2] = (x, y, yaw), (2.9, 0.0), 40.0
    return q


@pytest.mark.parametrize("left, right", [(1.0, 1.0), (0.4, 0.8), (-0.5, 0.5)])
def test_wheels_that_grip_give_the_kinematics(left, right):
    env = placed(empty(-2.0))
    for _ in range(40):
        env.step(np.array([[left, right]]) / c.SPEED)
    v, w = c.D @ [left, right]
    read = env.moment.reading
    assert read("velocity")[0, 0] == pytest.approx(v, abs=0.01) and read("gyro")[0, 2] == pytest.approx(w, abs=0.02)
    assert abs(read("velocity")[0, 1]) < 0.06  # little sliding


def test_it_takes_half_a_metre_to_stop_from_full_speed():
    """v^2 / (2 mu g) = 0.51 m; the engine's steps and the last of it, when no wheel slips, are worth a centimetre."""
    v = np.zeros(5 + 2 * c.DISKS)
    v[0] = 2.0
    env = placed(empty(-2.0), v)
    for _ in range(60):
        env.step(np.zeros((1, 2)))
    stopped = env.world.state.q[0, 0] + 2.0
    assert stopped == pytest.approx(2.0**2 / (2 * c.MU * c.GRAVITY), abs=0.015)


def test_rays_are_distances_to_walls_and_disks():
    q = empty(1.0, 0.5, yaw=0.0)
    q[5:7] = 2.0, 0.5  # straight ahead, its edge 0.75 m away
    env = placed(q)
    env.world.sense()
    rays = env.moment.reading("ray")[0]
    assert rays[7] == pytest.approx(1.0 - c.DISK, abs=1e-6)
    assert rays[0] == pytest.approx(2.5, abs=1e-6) and rays[-1] == pytest.approx(1.5, abs=1e-6)
    assert c.clearance(env.moment)[0] == pytest.approx(1.0 - c.DISK - c.RADIUS)


def test_the_goal_is_read_in_the_robots_frame():
    env = placed(empty(0.9, 0.0, yaw=np.pi / 2))
    env.world.sense()
    np.testing.assert_allclose(env.moment.reading("goal")[0], [0.0, -2.0, 0.0], atol=1e-9)


def test_touching_ends_the_episode_and_costs_once():
    q = empty()
    q[5:7] = c.DISK + c.RADIUS + 0.01, 0.0
    v = np.zeros_like(q)
    v[0] = 1.0
    step = placed(q, v).step(np.array([[0.5, 0.5]]))
    assert step.terminated[0] and step.episodes.reason == ["collided"] and step.reward[0] < -c.COLLISION + 0.1


def test_there_is_always_a_way_through_and_nobody_begins_in_a_disk():
    task = tasks.resolve("course")
    q = task.episode(stream(0, "course"), 2000).start.q
    disks = q[:, c.DISK_XY].reshape(-1, c.DISKS, 2)
    for k in range(0, c.DISKS, 2):
        low, high = disks[:, k, 1], disks[:, k + 1, 1]
        gaps = np.stack([low + c.HALF[1], high - low, c.HALF[1] - high]) - 2 * c.DISK * np.array([[0.5], [1.0], [0.5]])
        assert gaps.max(0).min() > 2 * c.RADIUS
    assert c.gap(q[:, c.ROBOT_XY], disks).min() > 0.0
    line = q[:, 0] == c.START
    assert 0.45 < line.mean() < 0.55


def test_left_and_right_exchanged_the_physics_is_the_same():
    task = tasks.resolve("course")
    mirror = task.symmetry.of(task.observations["actor"])
    q = task.episode(stream(1, "course"), 1).start.q[0]
    other = q.copy()
    other[[1, 2, 4]] *= -1
    other[6::2] *= -1
    env = placed(np.stack([q, other]))
    rng = np.random.default_rng(0)
    for _ in range(25):
        a = rng.uniform(0, 0.5, 2)
        obs = env.step(np.stack([a, a[::-1]])).obs["actor"]
        np.testing.assert_allclose(obs[1], mirror.obs_sign * obs[0][mirror.obs_order], atol=1e-5)
