"""Ten numbers that can only give bodies that exist."""

import mujoco
import numpy as np
import pytest

from surefoot.params import Params
from surefoot.rng import stream
from surefoot.rotation import from_matrix
from surefoot.sim.engine import Engine
from surefoot.sim.fields.compile import compile_for
from surefoot.sim.fields.inertia import NAMES, congruence, inertial, inertial_of, pseudo
from surefoot.world import Chance, Start

ROD = """
<mujoco><option timestep="0.001" integrator="RK4"/><worldbody><body name="rod"><joint name="a" axis="0 1 0"/><joint name="b" axis="1 0 0"/>
  <inertial pos=".02 0 -.3" mass="2" quat=".9 .3 -.2 .1" diaginertia=".05 .04 .02"/></body></worldbody></mujoco>"""


def bodies(n: int) -> tuple[np.ndarray, ...]:
    """Random clouds of eight point masses: mass, com, principal axes and moments computed from the points."""
    rng = stream(0, "bodies")
    x, m = rng.normal(size=(n, 8, 3)), rng.uniform(0.1, 1.0, (n, 8))
    mass = m.sum(1)
    com = (m[..., None] * x).sum(1) / mass[:, None]
    r = x - com[:, None]
    second = np.einsum("nk,nki,nkj->nij", m, r, r)
    full = np.trace(second, axis1=1, axis2=2)[:, None, None] * np.eye(3) - second
    moments, axes = np.linalg.eigh(full)
    axes = axes * np.sign(np.linalg.det(axes))[:, None, None]
    return mass, com, from_matrix(axes), moments


def test_a_cloud_of_points_has_the_pseudo_inertia_its_points_have():
    rng = stream(0, "bodies")
    x, m = rng.normal(size=(5, 8, 3)), rng.uniform(0.1, 1.0, (5, 8))
    homogeneous = np.concatenate([x, np.ones((5, 8, 1))], -1)
    assert pseudo(*bodies(5)) == pytest.approx(np.einsum("nk,nki,nkj->nij", m, homogeneous, homogeneous), abs=1e-12)


def test_numbers_come_back_from_the_pseudo_inertia():
    J = pseudo(*bodies(50))
    assert pseudo(*inertial_of(J)) == pytest.approx(J, abs=1e-12)


def test_no_draw_of_ten_thousand_leaves_what_is_physical():
    rng, J = stream(1, "draws"), np.repeat(pseudo(*bodies(1)), 10_000, 0)
    for name in NAMES:
        U = congruence(name, rng.uniform(-1.0, 1.0, len(J)))
        J = U @ J @ np.swapaxes(U, -1, -2)
    assert np.linalg.eigvalsh(J).min() > 0
    mass, _, _, moments = inertial_of(J)
    assert mass.min() > 0 and moments.min() > 0
    assert (2 * moments.max(1) <= moments.sum(1) * (1 + 1e-9)).all()  # no moment above the sum of the others


def test_the_engine_moves_as_a_model_compiled_with_those_numbers():
    params = Params(inertial("rod"))
    e = stream(3, "e").uniform(params.low, params.high)
    J = pseudo(
        np.array(2.0),
        np.array([0.02, 0, -0.3]),
        np.array([0.9, 0.3, -0.2, 0.1]) / np.sqrt(0.95),
        np.array([0.05, 0.04, 0.02]),
    )
    for p, value in zip(params, e):
        U = congruence(p.target, np.array([value]))[0]
        J = U @ J @ U.T
    mass, com, quat, moments = inertial_of(J)
    spec = mujoco.MjSpec.from_string(ROD)
    body = spec.body("rod")
    body.mass, body.ipos, body.iquat, body.inertia = float(mass), com, quat, moments
    w = Engine(compile_for(mujoco.MjSpec.from_string(ROD), params), params, 1, 1)
    other = Engine(spec.compile(), Params(), 1, 1)
    start = Start(np.array([[0.4, -0.2]]), np.zeros((1, 2)), np.zeros((1, 0)))
    w.reset(np.arange(1), e[None], start)
    other.reset(np.arange(1), np.zeros((1, 0)), start)
    a, b = (x.rollout(np.zeros((1, 300, 0)), Chance(0, 0, x.dt)) for x in (w, other))
    assert a.q == pytest.approx(b.q, abs=1e-9)
    assert np.abs(a.q[0, -1] - [0.4, -0.2]).max() > 0.1
