"""balance is CartPole-v1: the same equations, constants and integrator, step by step."""

import gymnasium
import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import point
from surefoot.world import Chance, Start


def pair(x0, params=None):
    """Gymnasium's env and our world in the same state, with the same constants."""
    task = tasks.resolve("balance-discrete")
    env = tasks.env(task, 1, point(task.params, task.params.vector(params or {})))
    env.reset()
    e = task.params.vector(params or {})[None]
    env.world.reset(np.arange(1), e, Start(x0[None, [0, 2]], x0[None, [1, 3]], np.zeros((1, 1))))
    peer = gymnasium.make("CartPole-v1").unwrapped
    peer.reset()
    for ours, theirs in (("gravity", "gravity"), ("cart_mass", "masscart"), ("pole_mass", "masspole")):
        setattr(peer, theirs, dict(zip(task.params.names, e[0]))[ours])
    peer.total_mass, peer.polemass_length = peer.masscart + peer.masspole, peer.masspole * peer.length
    peer.state = tuple(x0)
    return env, peer


@pytest.mark.parametrize(
    "params", [{}, {"gravity": 12.0, "cart_mass": 1.5, "pole_mass": 0.2}], ids=["as in v1", "another world"]
)
def test_states_equal_gymnasiums_step_by_step(params):
    rng = np.random.default_rng(0)
    for _ in range(20):
        x0 = rng.uniform(-0.05, 0.05, 4)
        env, peer = pair(x0, params)
        for k in range(100):
            push = int(rng.integers(2))
            ended = peer.step(push)[2]
            env.world.step(np.array([[10.0 if push else -10.0]]), Chance(0, k, env.world.dt))
            x = env.world.state
            ours = np.array([x.q[0, 0], x.v[0, 0], x.q[0, 1], x.v[0, 1]])
            assert np.allclose(ours, peer.state, rtol=0, atol=1e-9)
            if ended:
                break


def test_episodes_end_and_pay_as_gymnasiums_do():
    task = tasks.resolve("balance-discrete")
    env = tasks.env(task, 1, seed=3)
    env.reset()
    peer = gymnasium.make("CartPole-v1").unwrapped
    peer.reset()
    peer.state = tuple(
        float(v)
        for v in np.array(
            [env.world.state.q[0, 0], env.world.state.v[0, 0], env.world.state.q[0, 1], env.world.state.v[0, 1]]
        )
    )
    rng = np.random.default_rng(1)
    for _ in range(200):
        push = int(rng.integers(2))
        seen, reward, ended, _, _ = peer.step(push)
        step = env.step(np.array([[push]]))
        assert step.reward[0] == pytest.approx(reward) and bool(step.terminated[0]) == ended
        assert np.allclose(step.last["actor"][0] if ended else step.obs["actor"][0], seen, atol=1e-6)
        if ended:
            return
    raise AssertionError("random pushes should topple the pole")


def test_the_time_limit_is_500_steps():
    task = tasks.resolve("balance-discrete")
    assert tasks.env(task, 1).steps == 500 == gymnasium.spec("CartPole-v1").max_episode_steps
    assert obs_bounds(task) == pytest.approx((2.4, 0.2094395102))


def obs_bounds(task):
    from surefoot.tasks.ready.balance import TILT, TRACK

    return TRACK, TILT
