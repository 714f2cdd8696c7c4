"""hover: a 27 g quadrotor, thrown at up to 90 degrees of tilt, comes to rest at the origin and stays there.

    m v' = R z sum f_i - m g - d v,   J w' = sum r_i x f_i z + sum +-c f_i z - w x J w,   f_i' = (u_i - f_i) / tau
Mass, arm and inertia are those of a Crazyflie 2; f_i is a rotor's thrust in N, u_i its command, tau its time constant.
"""

import numpy as np

from surefoot.belief import Box
from surefoot.contract import Action
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.rotation import from_axis_angle, norm2
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Start

MASS, ARM, GRAVITY = 0.027, 0.028, 9.81
MAX_THRUST = 0.1488  # N a rotor: 3.16e-10 N/rpm^2 at 21702 rpm
TORQUE = 0.005964  # m: drag torque of a rotor per N of its thrust
HOVER = MASS * GRAVITY / 4  # N a rotor
REACH = 2.0  # m from the goal, where an episode ends
ROTORS = {"front_left": (1, 1, -1), "rear_left": (-1, 1, 1), "rear_right": (-1, -1, -1), "front_right": (1, -1, 1)}


def xml() -> str:
    a = ARM / np.sqrt(2)
    at = {name: f"{sx * a:.6f} {sy * a:.6f} 0" for name, (sx, sy, _) in ROTORS.items()}
    sites = "".join(
        f'<site name="{n}" pos="{p}" size=".018 .001" type="cylinder" rgba=".95 .55 .1 .8"/>' for n, p in at.items()
    )
    arms = "".join(
        f'<geom type="capsule" fromto="0 0 0 {p}" size=".004" rgba=".1 .1 .1 1" mass="0"/>' for p in at.values()
    )
    motors = "".join(
        f'<general name="{n}" site="{n}" gear="0 0 1 0 0 {spin * TORQUE:.6f}" dyntype="filterexact" dynprm=".05"'
        f' ctrlrange="0 {MAX_THRUST}" actlimited="true" actrange="0 {MAX_THRUST}"/>'
        for n, (_, _, spin) in ROTORS.items()
    )
    return f"""
<mujoco model="hover">
  <option timestep="0.005" integrator="implicitfast" gravity="0 0 -{GRAVITY}"><flag contact="disable"/></option>
  <visual><headlight ambient=".35 .35 .35" diffuse=".35 .35 .35" specular="0 0 0"/><map znear=".01"/></visual>
  <asset><texture type="skybox" builtin="gradient" rgb1=".92 .95 1" rgb2=".62 .74 .88" width="64" height="384"/>
    <texture name="grid" type="2d" builtin="checker" rgb1=".62 .66 .72" rgb2=".54 .58 .65" width="256" height="256"/>
    <material name="grid" texture="grid" texrepeat="10 10"/></asset>
  <worldbody>
    <light pos="0 0 3" diffuse=".45 .45 .45" specular="0 0 0"/>
    <geom name="floor" type="plane" size="2 2 .1" pos="0 0 -.8" material="grid" contype="0" conaffinity="0"/>
    <site name="goal" size=".012" rgba=".1 .7 .2 .7"/>
    <camera name="side" pos="0 -.85 .3" mode="targetbody" target="drone" fovy="38"/>
    <body name="drone">
      <joint name="free" type="free"/>
      <inertial pos="0 0 0" mass="{MASS}" diaginertia="3.85e-6 3.85e-6 5.97e-6"/>
      <geom name="hull" type="box" size=".012 .012 .008" rgba=".2 .4 .8 1" mass="0"/>
      {arms}{sites}
    </body>
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>
"""


PARAMS = Params((
    Param("mass", "mass", 1.0, 0.5, 2.0, match="drone", log=True, about="mass and inertia, as a multiple of 27 g"),
    Param("com_x", "com_x", 0.0, -0.01, 0.01, match="drone", op="add", unit="m", about="centre of mass, forward"),
    Param("com_y", "com_y", 0.0, -0.01, 0.01, match="drone", op="add", unit="m", about="centre of mass, left"),
    Param("strength", "strength", 1.0, 0.5, 1.5, about="thrust of every rotor, as a multiple (battery, propeller wear)"),
    Param("rotor_1", "strength", 1.0, 0.7, 1.3, match="front_left", about="thrust of one rotor against the others"),
    Param("motor_time", "motor_time", 0.05, 0.02, 0.2, op="set", unit="s", log=True, about="time constant of the motors"),
    Param("drag", "drag", 0.0, 0.0, 0.2, match="free", op="set", unit="N s/m", about="linear air drag"),
    Param("latency", "action_delay", 0.0, 0.0, 0.04, op="set", unit="s", about="from command to motor"),
    Param("noise", "noise", 1.0, 0.0, 5.0, about="sensor noise, as a multiple"),
))  # fmt: skip

RANGES = {
    "mass": (0.85, 1.2), "com_x": (-0.0007, 0.0007), "com_y": (-0.0007, 0.0007), "strength": (0.88, 1.12), "rotor_1": (0.96, 1.04),
    "motor_time": (0.04, 0.065), "drag": (0.0, 0.02), "latency": (0.0, 0.01), "noise": (0.0, 2.0),
}  # fmt: skip

SEEN = (
    ObsTerm("position_error", Formula("base_pos"), 3, "m, world frame", noise=0.002, clip=3.0),
    ObsTerm("rotation", Formula("rotation"), 9, "body to world, row by row", noise=0.002),
    ObsTerm(
        "base_lin_vel", Formula("base_lin_vel", frame="world"), 3, "m/s, world frame", noise=0.01, scale=0.5, clip=10.0
    ),
    ObsTerm("base_ang_vel", Formula("base_ang_vel"), 3, "rad/s, body frame", noise=0.02, scale=0.1, clip=40.0),
    ObsTerm("last_action", Formula("last_action"), 4),
)
PRIVILEGED = (
    ObsTerm("rotor_thrust", lambda s: s.x.act, 4, "N", scale=10.0),
    ObsTerm("e", lambda s: s.x.e, len(PARAMS), "mixed", sensed=False),
)


def _distance(s: Moment) -> np.ndarray:
    return np.sqrt(norm2(s.q[:, :3]))


def _episode(rng: Draw, n: int) -> Episode:
    """Up to 0.2 m away, tilted up to 90 degrees about any axis, moving up to 1 m/s and turning up to 1 rad/s, each axis."""
    axis, rest = rng.standard_normal((n, 3)), rng.uniform(-1.0, 1.0, (n, 10))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    quat = from_axis_angle(axis, rest[:, 0] * np.pi / 2)
    q, v = np.concatenate([0.2 * rest[:, 1:4], quat], 1), rest[:, 4:]
    thrust = np.full((len(q), 4), HOVER)
    return Episode(Start(q, v, thrust, thrust))


def hover() -> Task:
    return Task(
        name="hover",
        about="a quadrotor thrown at up to 90 degrees of tilt comes to rest at the goal",
        robot=Robot.text(xml(), "hover"),
        params=PARAMS,
        belief=Box.ranges(PARAMS, RANGES),
        substeps=4,
        seconds=5.0,
        action=Action(tuple(ROTORS), np.full(4, HOVER), np.full(4, 1.25 * HOVER), "N"),
        observations={
            "actor": ObsGroup(SEEN, history=3),
            "critic": ObsGroup((*SEEN, *PRIVILEGED)),
        },
        rewards={
            "alive": Reward(2.0, lambda s: np.ones(len(s.q)), "for each second in the air near the goal"),
            "near": Reward(5.0, lambda s: np.exp(-10.0 * s.once(_distance)), "exp(-10 d): close to the goal"),
            "upright": Reward(1.5, lambda s: 1 - 2 * (s.q[:, 4] ** 2 + s.q[:, 5] ** 2), "cosine of the tilt"),
            "far": Reward(-2.0, lambda s: s.once(_distance), "distance to the goal, m"),
            "lost": Reward(-200.0, lambda s: (s.once(_distance) > REACH).astype(float), "flying away, once"),
            "slow": Reward(-0.05, lambda s: norm2(s.v[:, :3]), "speed squared"),
            "still": Reward(-0.005, lambda s: norm2(s.v[:, 3:]), "turn rate squared"),
            "smooth": Reward(-0.05, lambda s: norm2(s.action - s.previous), "change of action squared"),
        },
        ended={"flew away": lambda s: s.once(_distance) > REACH},
        episode=_episode,
        error=lambda s: s.once(_distance),
        error_unit="m",
        tolerance=0.1,
        window=1.0,
        settings={"envs": 512, "steps": 2_000_000, "horizon": 16, "gamma": 0.98, "hidden": (64, 64), "activation": "tanh", "kl": 0.02, "spread": (0.1, 0.5, 1.0)},
        kind="quadrotor",
    )  # fmt: skip
