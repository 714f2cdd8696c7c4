"""A world is x' = f(x, u, e), many at once: swing a pendulum under eight gravities and check each against its closed form.

T = 2 pi sqrt(I / (m g l)) for small swings of a pendulum with inertia I about its pivot
"""

import numpy as np

import surefoot as sf
from surefoot.sim.engine import Engine, compile_for
from surefoot.sim.model.load import load_string
from surefoot.world import Chance, Start

XML = """
<mujoco><option timestep="0.002" integrator="RK4"/>
<worldbody><body name="bob"><joint name="hinge" axis="0 1 0"/>
<inertial pos="0 0 -1" mass="1" diaginertia=".01 .01 .01"/><geom size=".05" pos="0 0 -1"/></body></worldbody></mujoco>"""

params = sf.Params((sf.Param("gravity", "gravity", 9.81, 1.0, 25.0, op="set", unit="m/s^2"),))
model = compile_for(load_string(XML, "pendulum").spec, params)
world = Engine(model, params, n=8, substeps=1)
gravity = np.linspace(1.6, 24.8, 8)[:, None]  # from the Moon to Jupiter
world.reset(np.arange(8), gravity, Start(np.full((8, 1), 0.05), np.zeros((8, 1)), np.zeros((8, 0))))

crossings: list[list[float]] = [[] for _ in range(8)]
before = world.state.q.copy()
for k in range(6000):
    world.step(np.zeros((8, 0)), Chance(0, k, world.dt))
    for i in np.flatnonzero((before[:, 0] > 0) & (world.state.q[:, 0] <= 0)):
        crossings[i].append((k + 1) * world.dt)
    before = world.state.q.copy()

print("gravity   period   closed form")
for g, times in zip(gravity[:, 0], crossings):
    period, expected = float(np.diff(times).mean()), 2 * np.pi * np.sqrt(1.01 / g)
    print(f"{g:7.2f}  {period:7.4f}      {expected:7.4f}")
    assert abs(period / expected - 1) < 2e-3
