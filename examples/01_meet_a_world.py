"""A world is x' = f(x, u, e), many at once: swing a pendulum under eight gravities and check each against its closed form.

T = 2 pi sqrt(I / (m g l)) for small swings of a pendulum with inertia I about its pivot
"""

import numpy as np

import surefoot as sf

XML = """
<mujoco><option timestep="0.002" integrator="RK4"/>
<worldbody><body name="bob"><joint name="hinge" axis="0 1 0"/>
<inertial pos="0 0 -1" mass="1" diaginertia=".01 .01 .01"/><geom size=".05" pos="0 0 -1"/></body></worldbody></mujoco>"""

params = sf.Params((sf.Param("gravity", "gravity", 9.81, 1.0, 25.0, op="set", unit="m/s^2"),))
world = sf.make_world(sf.Robot.text(XML, "pendulum"), params, n=8)
gravity = np.linspace(1.6, 24.8, 8)[:, None]  # from the Moon to Jupiter
motion = sf.simulate(world, gravity, np.full((8, 1), 0.05), np.zeros((8, 1)), np.zeros((8, 6000, 0)))

print("gravity   period   closed form")
for g, q in zip(gravity[:, 0], motion.q[..., 0]):
    crossings = world.dt * np.flatnonzero((q[:-1] > 0) & (q[1:] <= 0))
    period, expected = float(np.diff(crossings).mean()), 2 * np.pi * np.sqrt(1.01 / g)
    print(f"{g:7.2f}  {period:7.4f}      {expected:7.4f}")
    assert abs(period / expected - 1) < 2e-3
