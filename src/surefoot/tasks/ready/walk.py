"""walk: a 12-joint quadruped of 12.7 kg follows a commanded velocity (vx, vy, yaw rate) at 50 Hz, blind.

Each leg is abduction, hip, knee. The task is what build/velocity.py makes of the robot, whose legs of 0.426 m are the size
that its numbers are given for: commands up to 1 m/s, 0.5 m/s and 1 rad/s, a trot at 2 Hz, feet that swing to 8 cm.
"""

from dataclasses import replace

import numpy as np

from surefoot.robot import Robot
from surefoot.task import Task
from surefoot.tasks.build.velocity import velocity

LEGS = {"FL": (1, 1), "FR": (1, -1), "RL": (-1, 1), "RR": (-1, -1)}
JOINTS = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("abduction", "hip", "knee"))
STAND = np.tile([0.0, 0.8, -1.6], 4)
HEIGHT = 0.32  # m, of the trunk when standing
THIGH = SHANK = 0.213  # m
FOOT = 0.022  # m, radius
KP, KD = 35.0, 0.6


def _leg(name: str, sx: int, sy: int) -> str:
    return f"""
      <body name="{name}_hip_link" pos="{sx * 0.188} {sy * 0.047} 0">
        <joint name="{name}_abduction" class="joint" axis="1 0 0" range="-.86 .86"/>
        <inertial pos="0 {sy * 0.006} 0" mass=".66" diaginertia="5e-4 8e-4 6e-4"/>
        <geom class="shape" type="cylinder" fromto="0 {sy * 0.03} 0 0 {sy * 0.08} 0" size=".04"/>
        <body name="{name}_thigh" pos="0 {sy * 0.08} 0">
          <joint name="{name}_hip" class="joint" axis="0 1 0" range="-.69 4.5"/>
          <inertial pos="-.003 {sy * -0.02} -.03" mass="1.0" diaginertia="5.5e-3 5e-3 1.3e-3"/>
          <geom class="shape" type="capsule" fromto="0 0 0 0 0 -{THIGH}" size=".018"/>
          <body name="{name}_shank" pos="0 0 -{THIGH}">
            <joint name="{name}_knee" class="joint" axis="0 1 0" range="-2.82 -.89"/>
            <inertial pos=".004 0 -.12" mass=".265" diaginertia="3e-3 3e-3 4e-5"/>
            <geom class="shape" type="capsule" fromto="0 0 0 0 0 -{SHANK}" size=".012"/>
            <geom name="{name}_foot" class="foot" pos="0 0 -{SHANK}"/>
          </body>
        </body>
      </body>"""


def xml() -> str:
    """The robot on a plane, standing in keyframe home."""
    legs = "".join(_leg(name, sx, sy) for name, (sx, sy) in LEGS.items())
    limit = {"abduction": 23.7, "hip": 23.7, "knee": 35.5}
    servos = "".join(
        f'<position name="{j}" joint="{j}" kp="{KP}" kv="{KD}" forcerange="-{limit[j[3:]]} {limit[j[3:]]}"/>'
        for j in JOINTS
    )
    pose = " ".join(f"{x:g}" for x in STAND)
    return f"""
<mujoco model="walk">
  <compiler angle="radian"/>
  <option timestep="0.005" integrator="implicitfast" cone="pyramidal" solver="Newton" iterations="5" ls_iterations="8"/>
  <size memory="256K"/>
  <visual><headlight ambient=".35 .35 .35" diffuse=".35 .35 .35" specular="0 0 0"/><map znear=".02"/><quality shadowsize="2048"/></visual>
  <default>
    <default class="joint"><joint damping=".1" armature=".006" frictionloss=".2"/></default>
    <default class="shape"><geom contype="0" conaffinity="0" mass="0" rgba=".2 .4 .8 1"/></default>
    <default class="foot"><geom type="sphere" size="{FOOT}" mass="0" rgba=".1 .1 .1 1" contype="0" conaffinity="1"
      friction=".8 .02 .01" priority="1" condim="3" solref=".02 1"/></default>
  </default>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".92 .95 1" rgb2=".62 .74 .88" width="64" height="384"/>
    <texture name="grid" type="2d" builtin="checker" rgb1=".62 .68 .62" rgb2=".52 .58 .52" width="256" height="256"/>
    <material name="grid" texture="grid" texrepeat="1 1" texuniform="true"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 .05" material="grid" contype="1" conaffinity="0" friction="1 .02 .01"/>
    <body name="trunk" pos="0 0 {HEIGHT}">
      <joint name="free" type="free"/>
      <inertial pos="0 0 0" mass="5.0" diaginertia=".0168 .0630 .0717"/>
      <light pos="0 -.6 2" dir="0 .3 -1" mode="trackcom" directional="true" diffuse=".5 .5 .5" specular="0 0 0"/>
      <camera name="side" mode="trackcom" pos=".3 -1.3 .45" xyaxes="1 .2 0 -.06 .3 .95"/>
      <geom class="shape" type="box" size=".188 .047 .057"/>
      <site name="imu"/>
      {legs}
    </body>
  </worldbody>
  <actuator>{servos}</actuator>
  <keyframe><key name="home" qpos="0 0 {HEIGHT} 1 0 0 0 {pose}" ctrl="{pose}"/></keyframe>
</mujoco>
"""


def walk(rough: bool = False, estimate: bool = False) -> Task:
    """With `estimate`, the actor also observes its base velocity, as a state estimator has it."""
    task = velocity(
        Robot.text(xml(), "quadruped"), rough=rough, estimate=("base_lin_vel_estimate",) if estimate else None
    )
    name, where = ("walk-rough", "on rough ground") if rough else ("walk", "follows a velocity")
    name, where = ("walk-estimate", "with an estimator") if estimate else (name, where)
    return replace(task, name=name, about=f"quadruped {where}")
