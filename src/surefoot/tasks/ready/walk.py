"""walk: a 12-joint quadruped of 12.7 kg follows a commanded velocity (vx, vy, yaw rate) at 50 Hz, blind.

Each leg is abduction, hip, knee; a joint servo holds its target: torque = kp (target - q) - kd v, target = stand + 0.5 a.
A gait clock at 2 Hz gives every foot a swing and a stance: it is told to the policy and rewarded, which is what makes
walking quick to learn. The actor is told only what the robot measures: no base velocity, no contacts, no terrain.
"""

import numpy as np

from surefoot.belief import Box
from surefoot.contract import Action
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.rotation import norm2, to_body
from surefoot.sim.events import Push
from surefoot.task import Episode, Moment, Reward, Symmetry, Task
from surefoot.tasks.ready.ground import Ground
from surefoot.world import Start

LEGS = {"FL": (1, 1), "FR": (1, -1), "RL": (-1, 1), "RR": (-1, -1)}
JOINTS = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("abduction", "hip", "knee"))
STAND = np.tile([0.0, 0.8, -1.6], 4)
HEIGHT = 0.32  # m, of the trunk when standing
THIGH = SHANK = 0.213  # m
FOOT = 0.022  # m, radius
KP, KD = 35.0, 0.6
LOW, HIGH = np.tile([-0.86, -0.69, -2.82], 4), np.tile([0.86, 4.5, -0.89], 4)
SWING, FREQUENCY = 0.08, 2.0  # m, Hz
PHASE = np.array([0.0, 0.5, 0.5, 0.0])  # a trot: diagonal feet together
TROT = np.round(
    [np.cos(2 * np.pi * PHASE), np.sin(2 * np.pi * PHASE)], 12
)  # sin(a + p) = (sin a, cos a) . (cos p, sin p)
FASTEST = np.array([1.0, 0.5, 1.0])  # m/s, m/s, rad/s: largest command


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
            <site name="{name}_sole" pos="0 0 -{SHANK}" size="{FOOT * 1.3}" rgba="0 0 0 0"/>
          </body>
        </body>
      </body>"""


def xml(ground: Ground) -> str:
    legs = "".join(_leg(name, sx, sy) for name, (sx, sy) in LEGS.items())
    limit = {"abduction": 23.7, "hip": 23.7, "knee": 35.5}
    servos = "".join(
        f'<position name="{j}" joint="{j}" kp="{KP}" kv="{KD}" forcerange="-{limit[j[3:]]} {limit[j[3:]]}"/>'
        for j in JOINTS
    )
    joint_sensors = "".join(f'<joint{k} name="joint_{k}/{j}" joint="{j}"/>' for k in ("pos", "vel") for j in JOINTS)
    feet = "".join(
        f'<{kind} name="{family}/{leg}" {at}="{leg}_sole"/>'
        for kind, family, at in (("framepos", "foot_pos", "objtype=\"site\" objname"), ("framelinvel", "foot_vel", "objtype=\"site\" objname"), ("touch", "touch", "site"))
        for leg in LEGS
    )  # fmt: skip
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
  <asset>{ground.asset()}
    <texture type="skybox" builtin="gradient" rgb1=".92 .95 1" rgb2=".62 .74 .88" width="64" height="384"/>
    <texture name="grid" type="2d" builtin="checker" rgb1=".62 .68 .62" rgb2=".52 .58 .52" width="256" height="256"/>
    <material name="grid" texture="grid" texrepeat="1 1" texuniform="true"/></asset>
  <worldbody>
    {ground.geom()}
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
  <sensor><gyro name="gyro" site="imu"/><framequat name="attitude" objtype="site" objname="imu"/>{joint_sensors}{feet}</sensor>
</mujoco>
"""


PROPRIOCEPTION = "gyro|attitude|joint_pos/.*|joint_vel/.*"
PARAMS = Params((
    Param("payload", "mass", 0.0, -3.5, 6.0, match="trunk", op="add", unit="kg", about="mass carried by the trunk"),
    Param("com_x", "com_x", 0.0, -0.1, 0.1, match="trunk", op="add", unit="m", about="trunk's centre of mass, forward"),
    Param("com_y", "com_y", 0.0, -0.05, 0.05, match="trunk", op="add", unit="m", about="trunk's centre of mass, left"),
    Param("friction", "friction", 0.8, 0.1, 1.6, match=".*_foot", op="set", log=True, about="feet on the ground"),
    Param("strength", "strength", 1.0, 0.5, 1.4, about="motors' whole torque law, as a multiple"),
    Param("kp", "kp", 1.0, 0.5, 1.5, about="servos' stiffness, as a multiple"),
    Param("kd", "kd", 1.0, 0.3, 2.0, about="servos' damping, as a multiple"),
    Param("torque_limit", "force_limit", 1.0, 0.4, 1.2, about="largest torque, as a multiple"),
    Param("armature", "armature", 1.0, 0.4, 2.5, match=".*_(abduction|hip|knee)", log=True, about="rotor inertia, as a multiple"),
    Param("joint_friction", "frictionloss", 1.0, 0.0, 4.0, match=".*_(abduction|hip|knee)", about="dry joint friction, as a multiple"),
    Param("latency", "action_delay", 0.0, 0.0, 0.06, op="set", unit="s", about="from command to motor"),
    Param("sensor_latency", "sensor_delay", 0.0, 0.0, 0.02, match=PROPRIOCEPTION, op="set", unit="s", about="from motion to reading"),
    Param("slope_x", "slope_x", 0.0, -0.4, 0.4, op="set", unit="rad", about="ground tilted sideways"),
    Param("slope_y", "slope_y", 0.0, -0.4, 0.4, op="set", unit="rad", about="ground tilted along x"),
    Param("noise", "noise", 1.0, 0.0, 5.0, about="sensor noise, as a multiple"),
    Param("gyro_bias", "bias", 0.0, -0.3, 0.3, match="base_ang_vel", op="set", unit="rad/s", about="constant gyro offset"),
    Param("push", "push", 0.0, 0.0, 3.0, op="set", about="sideways pushes, as a multiple of 60 N for 0.1 s"),
))  # fmt: skip

RANGES = {
    "payload": (-0.5, 2.0), "com_x": (-0.03, 0.03), "com_y": (-0.02, 0.02), "friction": (0.4, 1.2), "strength": (0.9, 1.1),
    "kp": (0.9, 1.1), "kd": (0.8, 1.2), "torque_limit": (0.9, 1.0), "armature": (0.7, 1.4), "joint_friction": (0.0, 2.0),
    "latency": (0.0, 0.015), "sensor_latency": (0.0, 0.01), "slope_x": (-0.05, 0.05), "slope_y": (-0.05, 0.05),
    "noise": (0.5, 1.5), "gyro_bias": (-0.05, 0.05), "push": (0.0, 1.0),
}  # fmt: skip


GRAVITY = Formula("projected_gravity", frame="imu")  # as an attitude filter reports it: (0, 0, -1) when level
CLOCK = Formula("clock", frequency=FREQUENCY, still=0.05)  # of the gait; (0, 0) when standing


def _swing(s: Moment) -> np.ndarray:
    """How far into its swing each foot should be: 0 on the ground, 1 at the top; (n, 4)."""
    return np.maximum(s.once(CLOCK) @ TROT, 0.0)


def _touch(s: Moment) -> np.ndarray:
    """Which feet bear on the ground; (n, 4) bool."""
    return s.y["touch"] > 0.5


def _velocity(s: Moment) -> np.ndarray:
    """Velocity of the trunk in its own frame, m/s."""
    return to_body(s.q[:, 3:7], s.v[:, :3])


ACTOR = (
    ObsTerm(
        "base_ang_vel", Formula("base_ang_vel", frame="imu"), 3, "rad/s, body frame", noise=0.1, scale=0.25, clip=20.0
    ),
    ObsTerm("projected_gravity", GRAVITY, 3, "unit vector, body frame", noise=0.02),
    ObsTerm("command", Formula("command"), 3, "m/s, m/s, rad/s"),
    ObsTerm("joint_pos", Formula("joint_pos", JOINTS, tuple(STAND.tolist())), 12, "rad from the stand", noise=0.01),
    ObsTerm("joint_vel", Formula("joint_vel", JOINTS), 12, "rad/s", noise=0.5, scale=0.1, clip=50.0),
    ObsTerm("last_action", Formula("last_action"), 12),
    ObsTerm("gait_clock", CLOCK, 2, "sin, cos"),
)


class Rewards:
    """The reward table's functions that need the ground."""

    def __init__(self, ground: Ground):
        self.ground = ground

    def clearance(self, s: Moment) -> np.ndarray:
        """Height of each sole above the ground under it, m; (n, 4)."""
        foot = s.y["foot_pos"].reshape(-1, 4, 3)
        return foot[:, :, 2] - FOOT - self.ground.height(foot[:, :, 0], foot[:, :, 1])

    def gait(self, s: Moment) -> np.ndarray:
        swing = _swing(s)
        height = np.exp(-np.square((s.once(self.clearance) - SWING * swing) / 0.03))
        contact = (swing > 0) != s.once(_touch)
        return (height + contact) @ np.full(4, 0.5 / 4)

    def landing(self, s: Moment) -> np.ndarray:
        """Downward speed of feet about to touch, squared."""
        down = np.minimum(s.y["foot_vel"][:, 2::3], 0.0)
        return norm2(down * (s.once(self.clearance) < 0.02))

    def slip(self, s: Moment) -> np.ndarray:
        v = s.y["foot_vel"]
        return norm2(v[:, 0::3] * s.once(_touch)) + norm2(v[:, 1::3] * s.once(_touch))


def _tracking(s: Moment) -> np.ndarray:
    """|commanded - actual| planar velocity, m/s."""
    return np.sqrt(norm2(s.once(_velocity)[:, :2] - s.command[:, :2]))


def _limits(s: Moment) -> np.ndarray:
    q = s.q[:, 7:]
    return np.einsum("ij->i", np.abs(q - np.clip(q, LOW + 0.05, HIGH - 0.05)))


def _command(rng: Draw, n: int) -> np.ndarray:
    """Uniform within FASTEST, each part kept with probability 0.7: turning on the spot, straight lines and standing occur."""
    command = rng.uniform(-FASTEST, FASTEST, (n, 3))
    return command * (rng.random((n, 3)) < 0.7)


def _symmetry() -> Symmetry:
    """Left-right: y and roll, yaw change sign, left legs become right legs, the trot's clock shifts by half a turn.

    Of the unknowns, those of one side change sign. A gyro's bias, one number for all its axes, has no mirror image: it
    is taken as it is.
    """
    legs = (np.array([3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8]), np.tile([-1.0, 1.0, 1.0], 4))
    signs = {
        "base_ang_vel": [-1, 1, -1],
        "projected_gravity": [1, -1, 1],
        "command": [1, -1, -1],
        "gait_clock": [-1, -1],
    }
    signs |= {
        "base_lin_vel": [1, -1, 1],
        "trunk_height": [1],
        "e": [-1 if p.name in ("com_y", "slope_x") else 1 for p in PARAMS],
    }
    terms = {name: (np.arange(len(sign)), np.array(sign, float)) for name, sign in signs.items()}
    terms["touch"] = (np.array([1, 0, 3, 2]), np.ones(4))
    return Symmetry(terms | dict.fromkeys(("joint_pos", "joint_vel", "last_action"), legs), legs)


def _rewards(r: Rewards) -> dict[str, Reward]:
    return {
        "track": Reward(1.5, lambda s: np.exp(-np.square(s.once(_tracking)) / 0.25**2), "follow the commanded vx, vy"),
        "turn": Reward(
            0.75, lambda s: np.exp(-np.square((s.v[:, 5] - s.command[:, 2]) / 0.35)), "follow the commanded yaw rate"
        ),
        "gait": Reward(1.5, r.gait, "feet swing to 8 cm and stand, as the clock says"),
        "pose": Reward(0.4, lambda s: np.exp(-norm2(s.q[:, 7:] - STAND)), "joints near the stand"),
        "level": Reward(-4.0, lambda s: norm2(s.once(GRAVITY)[:, :2]), "roll and pitch"),
        "bounce": Reward(-1.0, lambda s: np.square(s.v[:, 2]), "vertical velocity squared"),
        "wobble": Reward(-0.05, lambda s: norm2(s.v[:, 3:5]), "roll and pitch rates squared"),
        "limits": Reward(-2.0, _limits, "joints beyond their range, rad"),
        "smooth": Reward(-0.02, lambda s: norm2(s.action - s.previous), "change of action squared"),
        "landing": Reward(-0.5, r.landing, "downward speed of landing feet squared"),
        "slip": Reward(-0.1, r.slip, "speed of feet on the ground squared"),
    }


def _privileged(r: Rewards) -> tuple[ObsTerm, ...]:
    return (
        ObsTerm("base_lin_vel", _velocity, 3, "m/s, body frame"),
        ObsTerm("trunk_height", lambda s: s.q[:, 2:3] - r.ground.height(s.q[:, 0], s.q[:, 1])[:, None], 1, "m"),
        ObsTerm("clearance", r.clearance, 4, "m", scale=10.0),
        ObsTerm("touch", _touch, 4, ""),
        ObsTerm("e", lambda s: s.x.e, len(PARAMS), "mixed", sensed=False),
    )


def walk(rough: bool = False) -> Task:
    ground = Ground(rough)
    rewards = Rewards(ground)

    def episode(rng: Draw, n: int) -> Episode:
        """Anywhere on the ground, any heading, joints and speeds a little off the stand."""
        xy, rest = ground.places(rng, n), rng.uniform(-1.0, 1.0, (n, 31))
        yaw = np.pi * rest[:, 0]
        quat = np.stack([np.cos(yaw / 2), 0 * yaw, 0 * yaw, np.sin(yaw / 2)], 1)
        z = HEIGHT + 0.02 + ground.top(xy)
        q = np.concatenate([xy, z[:, None], quat, STAND + 0.15 * rest[:, 1:13]], 1)
        return Episode(Start(q, 0.3 * rest[:, 13:], np.tile(STAND, (len(q), 1))))

    return Task(
        name="walk-rough" if rough else "walk",
        about="a quadruped follows a commanded velocity" + (" over rough ground" if rough else ""),
        robot=Robot.text(xml(ground), "quadruped"),
        params=PARAMS,
        belief=Box.ranges(PARAMS, RANGES),
        substeps=4,
        seconds=20.0,
        action=Action(JOINTS, STAND, np.full(12, 0.5), "rad", limit=4.0),
        observations={"actor": ObsGroup(ACTOR), "critic": ObsGroup((*ACTOR, *_privileged(rewards)))},
        rewards=_rewards(rewards),
        ended={"fell": lambda s: 1 - 2 * (s.q[:, 4] ** 2 + s.q[:, 5] ** 2) < 0.5,
               "trunk on the ground": lambda s: s.q[:, 2] - ground.height(s.q[:, 0], s.q[:, 1]) < 0.12},
        episode=episode,
        error=lambda s: s.once(_tracking),
        error_unit="m/s",
        tolerance=0.25,
        window=20.0,
        measure="mean",
        command=_command,
        command_names=("vx", "vy", "yaw_rate"),
        command_every=5.0,
        reward_floor=0.0,
        symmetry=_symmetry(),
        terms=(Push(joint_dofs=slice(0, 2), force=60.0, seconds=0.1, every=4.0, params=PARAMS),),
        settings={"envs": 1024, "steps": 10_000_000, "horizon": 24, "gamma": 0.99, "hidden": (128, 128), "lr": 1e-3, "entropy": 0.005},
        kind="legged",
    )  # fmt: skip
