"""hover: a 27 g quadrotor, thrown at up to 90 degrees of tilt, comes to rest at the origin and stays there.

    m v' = R z sum f_i - m g - d v,   J w' = sum r_i x f_i z + sum +-c f_i z - w x J w,   f_i' = (u_i - f_i) / tau
Mass, arm and inertia are those of a Crazyflie 2; f_i is a rotor's thrust in N, u_i its command, tau its time constant.
"""

from dataclasses import replace

import numpy as np

from surefoot.robot import Robot
from surefoot.task import Task
from surefoot.tasks.build import hover as build

MASS, ARM, GRAVITY = 0.027, 0.028, 9.81
MAX_THRUST = 0.1488  # N a rotor: 3.16e-10 N/rpm^2 at 21702 rpm
TORQUE = 0.005964  # m: drag torque of a rotor per N of its thrust
HOVER = MASS * GRAVITY / 4  # N a rotor
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


RANGES = {
    "com_x": (-0.0007, 0.0007), "com_y": (-0.0007, 0.0007), "drag": (0.0, 0.02), "latency": (0.0, 0.01), "noise": (0.0, 2.0),
}  # fmt: skip


def hover() -> Task:
    task = build.hover(Robot.text(xml(), "hover"), ranges=RANGES)
    return replace(task, name="hover", about="quadrotor recovers when thrown")
