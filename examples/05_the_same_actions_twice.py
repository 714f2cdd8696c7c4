"""Two thought experiments about the reality gap, carried out: record the actions of a balancing cart-pole and play them again.

I   the same machine, started a thousandth of a degree off: no two runs of a real robot are the same
II  another machine, whose pole is 4 % heavier: a simulator is another machine

The second time there is no feedback, so nothing corrects the error. Both fall, the second sooner: the error grows by a factor
rho each step, and rho is a property of the machine, not of the first error.
"""

import numpy as np

import surefoot as sf

FALLEN, PERIODS = np.radians(12), 500
task = sf.resolve("balance")
world = sf.make_env(task, 1).world
nominal = task.params.nominal
heavier = task.params.vector({"pole_mass": 1.04 * nominal[task.params.index("pole_mass")]})
START = np.array([0.0, 0.05]), np.zeros(2)  # cart m, pole rad; at rest
K = np.array([1.0, 30.0, 2.0, 4.0])  # N for m, rad, m/s, rad/s: feedback that balances


def step(q: np.ndarray, v: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    motion = sf.simulate(world, nominal[None], q[None], v[None], u[None, None])
    return motion.q[0, -1], motion.v[0, -1]


def fall(offset: float, e: np.ndarray) -> float:
    """Seconds until the pole has fallen, under the recorded controls."""
    motion = sf.simulate(world, e[None], START[0][None] + [[0.0, offset]], START[1][None], controls[None])
    return float(np.argmax(np.abs(motion.q[0, :, 1]) > FALLEN) * world.dt)


states, controls = [START], np.zeros((PERIODS, 1))
for k in range(PERIODS):
    controls[k] = np.clip(K @ np.concatenate(states[-1]), -10, 10)
    states.append(step(*states[-1], controls[k]))
q, v = (np.array(x) for x in zip(*states))
assert np.abs(q[:, 1]).max() < FALLEN, "with feedback it balances"
again, other = fall(np.radians(1e-3), nominal), fall(0.0, heavier)
print(f"I.  the same machine, the same actions, 0.001 degrees off: falls after {again:.2f} s")
print(f"II. a pole 4 % heavier, the same actions:                  falls after {other:.2f} s")

log = sf.Log(
    world.dt * np.arange(PERIODS + 1),
    {"joint_pos": q, "joint_vel": v, "control": np.concatenate([controls, controls[-1:]])},
)
rho = sf.replay(world, log, heavier, horizon=0.6).growth["joint_pos"]
print(
    f"the error grows by {100 * (rho - 1):.1f} % each step of {1000 * world.dt:.0f} ms: by {rho ** (1 / world.dt):.0f} in a second"
)
assert 0 < other < again < 10 and rho > 1.02
