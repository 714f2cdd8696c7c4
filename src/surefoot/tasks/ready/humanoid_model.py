"""A humanoid in primitive shapes: 1.3 m, 35 kg, 23 joints; the size, masses, ranges and torques of a Unitree G1.

Each leg: hip pitch, roll, yaw, knee, ankle pitch, roll. Waist: yaw. Each arm: shoulder pitch, roll, yaw, elbow, wrist roll.
Lengths in m, masses in kg, angles in rad. A servo is as stiff as its rotor allows (BeyondMimic's rule):

    kp = armature w^2,   kd = 2 zeta armature w,   w = 2 pi 15 Hz,   zeta = 2
"""

from dataclasses import dataclass

import numpy as np

W, ZETA = 2 * np.pi * 15.0, 2.0
SIDES = {"left": 1, "right": -1}


@dataclass(frozen=True)
class Motor:
    armature: float  # kg m^2, rotor inertia behind the gear
    torque: float  # N m


SMALL, MEDIUM, LARGE = Motor(0.0036, 25.0), Motor(0.0102, 88.0), Motor(0.0251, 139.0)
ANKLE = Motor(0.0072, 50.0)  # two small motors in parallel
MOTORS = {
    "hip_pitch": MEDIUM, "hip_roll": LARGE, "hip_yaw": MEDIUM, "knee": LARGE, "ankle_pitch": ANKLE, "ankle_roll": ANKLE,
    "shoulder_pitch": SMALL, "shoulder_roll": SMALL, "shoulder_yaw": SMALL, "elbow": SMALL, "wrist_roll": SMALL,
}  # fmt: skip
LEG = ("hip_pitch", "hip_roll", "hip_yaw", "knee", "ankle_pitch", "ankle_roll")
ARM = ("shoulder_pitch", "shoulder_roll", "shoulder_yaw", "elbow", "wrist_roll")
STAND = {
    "hip_pitch": -0.31,
    "knee": 0.67,
    "ankle_pitch": -0.36,
    "shoulder_pitch": 0.2,
    "shoulder_roll": 0.2,
    "elbow": -0.9,
}
HEIGHT = 0.768  # m, of the pelvis when standing
SOLE = 0.035  # m below the ankle
CORNERS = ((0.12, 0.03), (0.12, -0.03), (-0.05, 0.025), (-0.05, -0.025))  # m, x and y of a sole's contact points

JOINTS = (
    *(f"{side}_{j}" for side in SIDES for j in LEG),
    "waist_yaw",
    *(f"{side}_{j}" for side in SIDES for j in ARM),
)


def stand(joint: str) -> float:
    """rad: a joint's angle in the default pose; a roll of the right side is the mirror image of the left one's."""
    side, _, kind = joint.partition("_")
    value = STAND.get(kind, 0.0)
    return -value if side == "right" and kind.endswith(("roll", "yaw")) else value


def motor(joint: str) -> Motor:
    return MEDIUM if joint == "waist_yaw" else MOTORS[joint.partition("_")[2]]


def _joint(name: str, axis: str, low: float, high: float) -> str:
    if name.startswith("right_") and axis != "0 1 0":  # mirrored: what opens to the left opens to the right
        low, high = -high, -low
    return f'<joint name="{name}" axis="{axis}" range="{low} {high}" armature="{motor(name).armature}"/>'


def _inertial(at: str, mass: float, size: tuple[float, float, float]) -> str:
    """A solid box of this mass and these edges, at a point of the body."""
    x, y, z = size
    moments = [mass / 12 * m for m in (y * y + z * z, x * x + z * z, x * x + y * y)]
    return f'<inertial pos="{at}" mass="{mass}" diaginertia="{" ".join(f"{m:.6g}" for m in moments)}"/>'


def _shape(kind: str, size: str, where: str, color: str = "body") -> str:
    return f'<geom class="shape" type="{kind}" size="{size}" {where} material="{color}"/>'


def _leg(side: str) -> str:
    s = SIDES[side]
    soles = "".join(
        f'<geom name="{side}_foot_{k}" class="foot" pos="{x} {y * s} {-SOLE + 0.005}"/>'
        for k, (x, y) in enumerate(CORNERS)
    )
    return f"""
      <body name="{side}_hip" pos="0 {0.064 * s} -.103">
        {_joint(f"{side}_hip_pitch", "0 1 0", -2.53, 2.88)}
        {_inertial(f"0 {0.03 * s} -.02", 1.35, (0.09, 0.09, 0.09))}
        {_shape("cylinder", ".045", f'fromto="0 {-0.01 * s} 0 0 {0.06 * s} 0"', "joint")}
        <body name="{side}_hip_roll_link" pos="0 {0.052 * s} -.03">
          {_joint(f"{side}_hip_roll", "1 0 0", -0.52, 2.97)}
          {_inertial("0 0 -.05", 1.52, (0.09, 0.09, 0.12))}
          {_shape("capsule", ".045", 'fromto="0 0 0 .01 0 -.1"')}
          <body name="{side}_thigh" pos=".025 0 -.124">
            {_joint(f"{side}_hip_yaw", "0 0 1", -2.76, 2.76)}
            {_inertial("-.04 0 -.08", 1.7, (0.09, 0.09, 0.2))}
            {_shape("capsule", ".048", 'fromto="0 0 0 -.078 0 -.177"')}
            <body name="{side}_shank" pos="-.078 0 -.177">
              {_joint(f"{side}_knee", "0 1 0", -0.09, 2.88)}
              {_inertial(".01 0 -.13", 1.93, (0.07, 0.07, 0.3))}
              {_shape("cylinder", ".045", 'fromto="0 -.03 0 0 .03 0"', "joint")}
              {_shape("capsule", ".034", 'fromto="0 0 -.02 0 0 -.28"')}
              <body name="{side}_ankle" pos="0 0 -.3">
                {_joint(f"{side}_ankle_pitch", "0 1 0", -0.87, 0.52)}
                {_inertial("0 0 0", 0.15, (0.05, 0.05, 0.05))}
                <body name="{side}_foot" pos="0 0 -.018">
                  {_joint(f"{side}_ankle_roll", "1 0 0", -0.26, 0.26)}
                  {_inertial(".03 0 -.02", 0.61, (0.19, 0.07, 0.04))}
                  {_shape("box", ".1 .035 .013", f'pos=".035 0 {-SOLE + 0.013}"', "joint")}
                  {soles}
                </body>
              </body>
            </body>
          </body>
        </body>
      </body>"""


def _arm(side: str) -> str:
    s = SIDES[side]
    return f"""
        <body name="{side}_shoulder" pos="0 {0.1 * s} .24">
          {_joint(f"{side}_shoulder_pitch", "0 1 0", -3.09, 2.67)}
          {_inertial(f"0 {0.03 * s} 0", 0.72, (0.07, 0.08, 0.07))}
          {_shape("sphere", ".042", f'pos="0 {0.03 * s} 0"', "joint")}
          <body name="{side}_shoulder_roll_link" pos="0 {0.045 * s} -.01">
            {_joint(f"{side}_shoulder_roll", "1 0 0", -1.59, 2.25)}
            {_inertial("0 0 -.04", 0.64, (0.06, 0.06, 0.1))}
            {_shape("capsule", ".036", f'fromto="0 {0.01 * s} 0 0 {0.01 * s} -.08"')}
            <body name="{side}_upper_arm" pos="0 {0.01 * s} -.1">
              {_joint(f"{side}_shoulder_yaw", "0 0 1", -2.62, 2.62)}
              {_inertial("0 0 -.04", 0.73, (0.06, 0.06, 0.12))}
              {_shape("capsule", ".034", 'fromto="0 0 0 .01 0 -.09"')}
              <body name="{side}_forearm" pos=".015 0 -.1">
                {_joint(f"{side}_elbow", "0 1 0", -2.09, 1.05)}
                {_inertial(".0 0 -.05", 0.6, (0.06, 0.06, 0.13))}
                {_shape("capsule", ".03", 'fromto="0 0 0 0 0 -.11"')}
                <body name="{side}_hand" pos="0 0 -.12">
                  {_joint(f"{side}_wrist_roll", "0 0 1", -1.97, 1.97)}
                  {_inertial("0 0 -.05", 0.35, (0.05, 0.06, 0.12))}
                  {_shape("box", ".022 .03 .05", 'pos="0 0 -.06"', "joint")}
                </body>
              </body>
            </body>
          </body>
        </body>"""


def servo(joint: str) -> str:
    m = motor(joint)
    kp, kd = m.armature * W**2, 2 * ZETA * m.armature * W
    return f'<position name="{joint}" joint="{joint}" kp="{kp:.4g}" kv="{kd:.4g}" forcerange="-{m.torque} {m.torque}"/>'


def xml() -> str:
    pose = " ".join(f"{stand(j):g}" for j in JOINTS)
    return f"""
<mujoco model="humanoid">
  <compiler angle="radian"/>
  <option timestep="0.005" integrator="implicitfast" cone="pyramidal" solver="Newton" iterations="5" ls_iterations="8"/>
  <default>
    <joint damping=".05" frictionloss=".1"/>
    <default class="shape"><geom contype="0" conaffinity="0" mass="0" group="1"/></default>
    <default class="foot"><geom type="sphere" size=".005" mass="0" contype="0" conaffinity="1" friction=".8 .02 .01"
      priority="1" condim="3" group="1" material="joint"/></default>
  </default>
  <asset>
    <material name="body" rgba=".82 .84 .88 1"/>
    <material name="joint" rgba=".16 .18 .22 1"/>
  </asset>
  <worldbody>
    <body name="pelvis" pos="0 0 {HEIGHT}">
      <freejoint name="free"/>
      {_inertial("0 0 -.07", 3.8, (0.13, 0.18, 0.12))}
      <camera name="side" mode="trackcom" pos=".6 -2.3 .35" xyaxes="1 .25 0 -.03 .12 1"/>
      {_shape("box", ".05 .07 .055", 'pos="0 0 -.06"')}
      <site name="imu" pos="0 0 -.08"/>{_leg("left")}{_leg("right")}
      <body name="torso" pos="0 0 .02">
        {_joint("waist_yaw", "0 0 1", -2.62, 2.62)}
        {_inertial("0 0 .17", 10.1, (0.16, 0.22, 0.32))}
        {_shape("capsule", ".075", 'fromto="0 -.045 .1 0 .045 .1"')}
        {_shape("box", ".065 .09 .1", 'pos="0 0 .17"')}
        {_shape("capsule", ".055", 'fromto="0 0 .36 0 0 .42"', "joint")}{_arm("left")}{_arm("right")}
      </body>
    </body>
  </worldbody>
  <actuator>{"".join(servo(j) for j in JOINTS)}</actuator>
  <keyframe><key name="home" qpos="0 0 {HEIGHT} 1 0 0 0 {pose}"/></keyframe>
</mujoco>
"""
