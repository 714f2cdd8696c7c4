"""mujoco-warp against MuJoCo's threads, on its CPU backend: the same worlds, actions and delays; what it lacks is refused.

The first run compiles kernels, which takes minutes; later ones read them from a cache.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import mujoco
import numpy as np
import pytest

from surefoot import tasks
from surefoot.errors import MissingExtra, SurefootError
from surefoot.params import Params
from surefoot.sim import engines
from surefoot.world import Chance, Start

needs_warp = pytest.mark.skipif(
    find_spec("mujoco_warp") is None, reason="needs the extra gpu: pip install 'surefoot[gpu]'"
)
PENDULUM = """<mujoco><option timestep="0.002"/><worldbody><body pos="0 0 1"><joint name="j" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="1"/></body></worldbody></mujoco>"""


def world(engine: str, xml: str = PENDULUM, n: int = 2):
    return engines.make(engine, mujoco.MjSpec.from_string(xml), Params(()), n, 5)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    with pytest.raises(MissingExtra, match=r"engine warp needs the 'gpu' extra"):
        world("warp")


@needs_warp
def test_what_it_does_not_have_is_refused_by_name():
    with pytest.raises(SurefootError, match="engine warp: .*mjSOL_PGS"):
        world("warp", PENDULUM.replace('timestep="0.002"', 'timestep="0.002" solver="PGS"'))


@needs_warp
@pytest.mark.slow
def test_a_pendulum_swings_as_mujocos():
    """From 1 rad at rest, 1 s: both are MuJoCo's law, so they agree to single precision."""
    found = []
    for engine in ("mujoco", "warp"):
        w = world(engine)
        w.reset(np.arange(2), np.zeros((2, 0)), Start(np.array([[1.0], [0.5]]), np.zeros((2, 1)), np.zeros((2, 0))))
        for k in range(100):
            w.step(np.zeros((2, 0)), Chance(0, k, w.dt))
        found.append(w.state.q.copy())
    assert np.abs(found[0] - found[1]).max() < 2e-5 and not np.allclose(found[0], [[1.0], [0.5]], atol=0.1)


# largest difference of q, rad or m, in worlds of the task's belief with its delays: one control period, and 1 s
TOLERANCE = {"balance": (1e-6, 1e-5), "arm": (1e-6, 1e-5), "hover": (1e-6, 5e-4), "walk": (2e-3, 0.1)}


@needs_warp
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TOLERANCE)
def test_tasks_move_as_they_do_on_mujocos_threads(name, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.scale import parity

    assert np.all(np.array(parity(name)) < TOLERANCE[name])


@needs_warp
@pytest.mark.slow
def test_an_episode_a_checkpoint_and_other_unknowns_go_on_alike():
    """Two envs of one seed, one of them loaded from the other's checkpoint, with the same bits from there."""
    task = tasks.resolve("balance")
    one, two = (tasks.env(task, 3, task.belief, 5, engine="warp") for _ in range(2))
    one.reset(), two.reset()
    act = lambda k: np.full((3, 1), 0.3 * (-1) ** k)  # noqa: E731
    for k in range(10):
        one.step(act(k))
    two.load(one.save())
    for k in range(10, 20):
        a, b = one.step(act(k)), two.step(act(k))
        assert np.array_equal(a.obs["actor"], b.obs["actor"])
