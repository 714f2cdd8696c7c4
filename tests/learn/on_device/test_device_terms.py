"""Rewards, observations, terminations and draws of tasks, by torch on tensors, against NumPy on the same states."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot import rotation, tasks
from surefoot.arrays import namespace
from surefoot.errors import SurefootError
from surefoot.learn.on_device.arrays import ARRAYS as xp
from surefoot.rng import Rows
from surefoot.robot import Robot
from surefoot.tasks.build.reach import reach
from surefoot.tasks.ready.arm import xml
from surefoot.world import Chance


def on_device(now):
    """The moment in single precision."""
    put = lambda a: torch.from_numpy(np.ascontiguousarray(a)).float() if a.dtype.kind == "f" else torch.from_numpy(a)  # noqa: E731
    x = {k: put(v) for k, v in vars(now.x).items() if k not in ("y", "memory")}
    own = ("action", "previous", "command", "time", "reward", "reference", "phase")
    x = replace(now.x, **x, y={k: put(v) for k, v in now.x.y.items()})
    return replace(now, x=x, **{k: put(getattr(now, k)) for k in own}, known={})


def moment(task, n=16, periods=12):
    """Of n worlds of the task's belief, a while after their beginning."""
    env = tasks.env(task, n, task.belief, 3, 1, stagger=True)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(periods):
        env.step(rng.standard_normal((n, task.action.width)))
    return env.moment


def close(found, wanted, rtol=2e-5, atol=1e-5):
    assert isinstance(found, torch.Tensor)
    if wanted.dtype == bool:
        assert found.dtype == torch.bool and np.array_equal(found.numpy(), wanted)
    else:
        assert np.allclose(found.double().numpy(), wanted, rtol, atol), np.abs(found.double().numpy() - wanted).max()


TASKS = ("balance", "arm", "hover", "walk", "walk-rough", "humanoid", "reach")


@pytest.mark.parametrize("name", TASKS)
def test_a_tasks_terms_are_the_same_numbers_on_a_device(name):
    task = reach(Robot.text(xml(), "two-link")) if name == "reach" else tasks.resolve(name)
    now = moment(task)
    there = on_device(now)
    for r in task.rewards.values():
        close(r.compute(there), np.asarray(r.compute(now), float))
    for f in task.ended.values():
        close(f(there), f(now))
    close(task.error(there), task.error(now))
    for group in task.observations.values():
        for t in group.terms:
            close(there.once(t.source) * 1.0, np.asarray(now.once(t.source), float), atol=2e-5)


@pytest.mark.parametrize("name", TASKS)
def test_episodes_commands_and_unknowns_are_drawn_the_same_on_a_device(name):
    task = reach(Robot.text(xml(), "two-link")) if name == "reach" else tasks.resolve(name)
    ids = np.array([0, 5, 1000, 2**40])
    draw = lambda f: [f(Rows(7, "start", 11, a)) for a in (torch.from_numpy(ids), ids)]  # noqa: E731
    there, here = (vars(e.start) for e in draw(lambda rng: task.episode(rng, 4)))
    for k, wanted in here.items():
        assert there[k] is None if wanted is None else close(there[k], wanted, 1e-6, 1e-6) is None
    if task.command is not None:
        close(*draw(lambda rng: task.command(rng, 4)), 1e-6, 1e-6)
    close(*draw(lambda rng: task.belief.sample(rng, 4)), 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["arm", "walk"])
def test_pushes_and_pulls_are_the_same_forces_on_a_device(name):
    """At many instants, so that some of the short pushes are among them."""
    task = tasks.resolve(name)
    now = moment(task, periods=0)
    felt = 0.0
    for step in range(0, 200, 2):
        chance, x, (term,) = Chance(3, step, 0.02), replace(now.x, time=np.full(16, step * 0.02)), task.terms
        wanted = term(x, x.u, chance)
        found = term(on_device(replace(now, x=x)).x, x.u, chance)
        close(found, wanted, 1e-4, 1e-4)
        felt = max(felt, np.abs(wanted).max())
    assert felt > 1


def test_draws_of_rows_are_numpys_to_the_bit():
    ids = np.arange(100)
    for draw in (
        lambda r: r.random((100, 3)),
        lambda r: r.uniform(-1.0, 2.0, 100),
        lambda r: r.integers(3, 9, (100, 5)),
    ):
        there, here = draw(Rows(7, "x", 5, torch.from_numpy(ids))), draw(Rows(7, "x", 5, ids))
        assert np.array_equal(there.numpy(), here)
    with pytest.raises(SurefootError, match="beta: rows on a device"):
        Rows(7, "x", 5, torch.from_numpy(ids)).beta(np.ones(1), np.ones(1), (100, 1))


def test_rotations_are_the_same_on_a_device():
    rng = np.random.default_rng(1)
    q, p = (rotation.unit(rng.standard_normal((50, 4))) for _ in range(2))
    v, s = rng.standard_normal((50, 3)), rng.random(50)
    laws = {
        "to_body": (q, v), "to_world": (q, v), "product": (q, p), "conjugate": (q,), "matrix": (q,), "exp": (v,), "log": (q,),
        "between": (q, p), "turned": (q, v), "slerp": (q, p, s), "direction": (q, v), "norm2": (v,), "unit": (2 * q,),
    }  # fmt: skip
    for name, given in laws.items():
        law = getattr(rotation, name)
        close(law(*(torch.from_numpy(a) for a in given)), law(*given), 1e-6, 1e-6)


def test_functions_mean_what_numpys_of_that_name_mean():
    a, b = np.array([[-1.5, 0.5, 2.5], [0.0, -0.5, 1.0]]), np.array([[1.0, -1.0, 0.2], [0.0, 3.0, 0.5]])
    calls = {
        "minimum": [(a, 0.3), (0.3, a), (a, b)], "maximum": [(a, 0.3), (0.3, a), (a, b)], "clip": [(a, -1.0, 1.0), (a, b - 1, b)],
        "where": [(a > 0, a, b), (a > 0, 1.0, b)], "stack": [([a, b],), ([a, b], 1)], "concatenate": [([a, b],), ([a, b], 1)],
        "tile": [(a, (2, 1))], "rint": [(a,)], "sum": [(a, 1)], "mean": [(a, 1), (a > 0, 1)], "amax": [(a, 1)], "amin": [(a, 0)],
        "sinc": [(a,)], "arctan2": [(a, b)], "einsum": [("ij,ij->i", a, b)], "zeros_like": [(a,), (a, bool)], "ones_like": [(a,)],
        "astype": [(a, int), (a > 0, float)], "broadcast_to": [(a[0], (2, 3))],
    }  # fmt: skip

    def put(x):
        return [put(i) for i in x] if isinstance(x, list) else torch.from_numpy(x) if isinstance(x, np.ndarray) else x

    for name, rows in calls.items():
        for given in rows:
            close(getattr(xp, name)(*map(put, given)), getattr(np, name)(*given), 1e-6, 1e-6)
    assert xp.zeros((2, 3)).shape == (2, 3) and xp.full(2, 0.5).tolist() == [0.5, 0.5] and len(xp.arange(1, 4)) == 3


def test_a_constant_goes_to_the_device_once_and_leaves_it_when_nobody_has_it():
    constant = np.arange(3.0)
    there = xp.asarray(constant)
    assert there.dtype == torch.float32 and xp.asarray(constant) is there and xp.asarray(there) is there
    assert xp.asarray(0.5) == 0.5 and namespace(there) is xp and namespace(constant) is np
    known = len(xp._known)
    del constant
    assert len(xp._known) == known - 1
