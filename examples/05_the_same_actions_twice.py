"""Two thought experiments about the reality gap, done: record what a balancing cart-pole was told, and tell it again.

I   the same machine, begun a hair's breadth (a thousandth of a degree) elsewhere: no two runs of a real robot are the same
II  another machine, whose pole is 4 % heavier: a simulator is another machine

Nobody watches the second time, so nothing corrects. Both fall, the second sooner: the error grows by a factor rho
each step, and rho is the machine's, not the mistake's.
"""

import numpy as np

import surefoot as sf
from surefoot.real2sim.replay import compounding
from surefoot.world import Chance, Start

FALLEN = np.radians(12)
task = sf.resolve("balance")
world = sf.make_env(task, 1).world
nominal = task.params.nominal
start = Start(np.array([[0.0, 0.05]]), np.zeros((1, 2)), np.zeros((1, 1)))
K = np.array([1.0, 30.0, 2.0, 4.0])  # N for m, rad, m/s, rad/s: feedback that balances


def told(q0: float, e: np.ndarray, controls: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(T + 1, 2) positions, speeds and (T, 1) controls of 10 s: with feedback, or with controls played blindly."""
    world.reset(np.arange(1), e[None], Start(start.q + [[0.0, q0]], start.v, start.u))
    q, v, u = [world.state.q[0].copy()], [world.state.v[0].copy()], []
    for k in range(500):
        feedback = np.array([[K @ np.concatenate([q[-1], v[-1]])]])
        u.append(np.clip(feedback, -10, 10)[0] if controls is None else controls[k])
        world.step(u[-1][None], Chance(0, k, world.dt))
        q.append(world.state.q[0].copy())
        v.append(world.state.v[0].copy())
    return np.array(q), np.array(v), np.array(u)


def falls(q: np.ndarray) -> float:
    fallen = np.abs(q[:, 1]) > FALLEN
    return float(np.argmax(fallen) * world.dt) if fallen.any() else np.inf


q, v, u = told(0.0, nominal, None)
assert falls(q) == np.inf, "with feedback it balances"
again = falls(told(np.radians(1e-3), nominal, u)[0])
heavier = task.params.vector({"pole_mass": 1.04 * nominal[task.params.index("pole_mass")]})
other = falls(told(0.0, heavier, u)[0])
print(f"I.  the same machine, the same actions, 0.001 degrees off: falls after {again:.2f} s")
print(f"II. a pole 4 % heavier, the same actions:                  falls after {other:.2f} s")

log = sf.Log(world.dt * np.arange(501), {"joint_pos": q, "joint_vel": v, "control": np.concatenate([u, u[-1:]])})
rho = compounding(world, log, heavier, horizon=0.6)[0]["joint_pos"]
print(
    f"the error grows by {100 * (rho - 1):.1f} % each step of {1000 * world.dt:.0f} ms: by {rho ** (1 / world.dt):.0f} in a second"
)
assert other < again < 10 and rho > 1.02
