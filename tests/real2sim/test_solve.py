"""The solver of identification on a mass that falls, whose prediction is linear in gravity: numpy's least squares is the answer."""

import mujoco
import numpy as np
import pytest

from surefoot.belief import Box
from surefoot.log import Log
from surefoot.params import Param, Params
from surefoot.real2sim.identify.fit import Case, Problem, Space
from surefoot.real2sim.identify.noise import Noise
from surefoot.real2sim.identify.solve import Solver, cost
from surefoot.real2sim.plant import world
from surefoot.real2sim.replay import windows
from surefoot.rng import stream
from surefoot.world import Chance, Start

DT = 0.01
XML = """<mujoco><option timestep="0.01" integrator="RK4"/><worldbody>
<body><joint name="z" type="slide" axis="0 0 1"/><geom size=".1" mass="1"/></body></worldbody>{}</mujoco>"""
MOTOR = '<actuator><motor name="lift" joint="z" delay="0.01" nsample="12"/></actuator>'


def falling(low: float, high: float, sd: float = 0.01) -> tuple[Problem, float]:
    """The problem of finding g from a noisy fall, and its least-squares answer by hand: q = -g t^2 / 2."""
    t = DT * np.arange(101)
    q = -9.81 * t**2 / 2
    q[1:] += sd * stream(1, "noise").standard_normal(100)
    params = Params((Param("gravity", "gravity", 9.81, 1.0, 20.0, op="set"),))
    w = world(mujoco.MjSpec.from_string(XML.format("")), params, DT)
    log = Log(t, {"joint_pos": q[:, None], "joint_vel": np.where(t > 0, np.nan, 0.0)[:, None]})
    space = Space.of(Box.ranges(params, {"gravity": (low, high)}), DT)
    found = Problem(
        space, (Case(w, windows(w, log, 100, only=("joint_pos",)), False),), (Noise(np.array([sd]), np.zeros(1)),)
    )
    return found, float(np.linalg.lstsq(-(t**2)[:, None] / 2, q, rcond=None)[0][0])


def test_a_linear_problem_is_solved_as_by_numpy_whatever_it_starts_from():
    problem, g = falling(5.0, 15.0)
    for z in (0.0, 0.3, 1.0):
        found = Solver(lambda p: None, 2).polished(problem, np.array([z]), 20, "all")
        assert problem.space.e(found[None])[0, 0] == pytest.approx(g, abs=1e-5)
    residual = problem.residual(found[:, None])
    assert cost(problem, found) == pytest.approx(float((residual**2).sum())) and len(residual) == 100


@pytest.mark.parametrize("low, high, end", [(10.5, 15.0, 0.0), (5.0, 9.0, 1.0)])
def test_an_answer_outside_of_the_range_is_its_nearest_end(low, high, end):
    problem, _ = falling(low, high)
    assert Solver(lambda p: None, 1).solve(problem, np.array([0.5]), 20, "all")[0] == pytest.approx(end, abs=1e-9)


def test_a_fit_shows_its_share_and_keeps_the_best_point_so_far():
    problem, g = falling(5.0, 15.0)
    shown = []
    solver = Solver(shown.append, 2)
    costs = [cost(problem, np.array([1.0]))]

    def watch(p):
        shown.append(p)
        costs.append(cost(*solver.reached))

    solver.watch = watch
    solver.polished(problem, np.array([1.0]), 20, "all")
    shares = [p.share for p in shown]
    assert shares[0] == 0.0 and shares == sorted(shares) and max(shares) <= 1.0 and solver.done == 2
    assert costs == sorted(costs, reverse=True) and costs[2] < 1e-2 * costs[1]
    assert solver.solve(problem, np.array([1.0]), 20).shape == (1,) and solver.done == 2, (
        "without a name nothing is shown"
    )


def test_a_delay_is_found_by_trying_every_timestep_while_the_mass_is_fitted_beside_it():
    """Pushed by a sine 30 ms late, with 1.3 times the model's mass. From 0 ms, neighbours alone are one step away."""
    params = Params((
        Param("latency", "action_delay", 0.0, 0.0, 0.1, op="set"), Param("mass", "mass", 1.0, 0.5, 2.0),
    ))  # fmt: skip
    w, t = world(mujoco.MjSpec.from_string(XML.format(MOTOR)), params, DT), DT * np.arange(151)
    u = (9.81 + 5 * np.sin(7 * t) + 3 * np.sin(17 * t))[:, None]
    w.reset(np.arange(1), np.array([[0.03, 1.3]]), Start(np.zeros((1, 1)), np.zeros((1, 1)), u[:1]))
    m = w.rollout(u[None, :-1], Chance(0, 0, DT))
    q, v = (np.concatenate([np.zeros((1, 1)), x[0]]) for x in (m.q, m.v))
    log = Log(t, {"joint_pos": q, "joint_vel": v, "control": u})
    space = Space.of(Box.full(params), DT)
    problem = Problem(space, (Case(w, windows(w, log, 50), False),), (Noise(np.array([0.01, 0.1]), np.zeros(2)),))
    assert space.grain.tolist() == [pytest.approx(0.1), 0.0]
    solver = Solver(lambda p: None, 1)
    start = np.array([0.0, space.z(np.array([0.0, 1.0]))[1]])
    e = space.e(solver.stepped(problem, start, wide=True)[None])[0]
    assert e == pytest.approx([0.03, 1.3], rel=0.02)
    assert space.e(solver.stepped(problem, start, wide=False)[None])[0, 0] == pytest.approx(0.01)
