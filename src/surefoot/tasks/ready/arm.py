"""arm: two links in a vertical plane hold their tip where it is commanded to be, while something pulls at it.

    M(q) q'' + c(q, q') + g(q) + b q' + f sign(q') = tau + J(q)^T F,      tau_i = kp_i (u_i - q_i) - kd_i q'_i

q = (shoulder, elbow) in rad: the upper arm's angle above the horizontal x axis, the forearm's from the upper arm. Links
are uniform rods of length l, mass m, centre of mass at l / 2 and inertia m l^2 / 12 about it; the hand is a point mass
m_t at the tip, where F acts. With s = m_f l_u l_f / 2 + m_t l_u l_f and rotor inertias a:

    M_22 = (m_f / 3 + m_t) l_f^2 + a_2,   M_12 = (m_f / 3 + m_t) l_f^2 + s cos q_2
    M_11 = (m_u / 3 + m_f + m_t) l_u^2 + (m_f / 3 + m_t) l_f^2 + 2 s cos q_2 + a_1

Servos of moderate stiffness give way: 10 N at the hand move it by 7 cm on average. The actor observes what an arm measures, five
frames of it, and no force: it has to feel the load in how far the joints are from where it sent them.
"""

import numpy as np

from surefoot.arrays import namespace
from surefoot.belief import Box
from surefoot.contract import Action
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.rotation import norm2
from surefoot.sim.events import Pull
from surefoot.task import Episode, Moment, Reward, Task
from surefoot.world import Start

JOINTS = ("shoulder", "elbow")
UPPER, FORE = 0.30, 0.25  # m, lengths
MASS = {"upper": 1.5, "fore": 1.0, "hand": 0.2}  # kg
KP, KD, TORQUE = (30.0, 15.0), (2.5, 1.0), (30.0, 15.0)  # N m/rad, N m s/rad, N m: of each servo
DAMPING, FRICTION, ARMATURE = (0.3, 0.15), (0.3, 0.15), (0.02, 0.01)  # N m s/rad, N m, kg m^2
GRAVITY = 9.81
MIDDLE, SPAN = np.array([0.0, 1.0]), np.array([0.8, 0.7])  # rad: where commands lie
HAND = 3  # the hand's number among the bodies, after the world's and the links'


def _link(name: str, length: float) -> str:
    """Inertia and looks of a uniform rod along x; what turns about y is m l^2 / 12."""
    across = MASS[name] * length**2 / 12
    return f"""<inertial pos="{length / 2} 0 0" mass="{MASS[name]}" diaginertia="{across / 20} {across} {across}"/>
      <geom class="look" type="capsule" fromto="0 0 0 {length} 0 0" size=".025" rgba=".2 .4 .8 1"/>
      <geom class="look" type="cylinder" fromto="0 -.035 0 0 .035 0" size=".04" rgba=".15 .15 .2 1"/>"""


def _joint(i: int) -> str:
    return (
        f'<joint name="{JOINTS[i]}" axis="0 -1 0" range="-2.6 2.6" damping="{DAMPING[i]}"'
        f' frictionloss="{FRICTION[i]}" armature="{ARMATURE[i]}"/>'
    )


def xml() -> str:
    servos = "".join(
        f'<position name="{j}" joint="{j}" kp="{KP[i]}" kv="{KD[i]}" forcerange="-{TORQUE[i]} {TORQUE[i]}"/>'
        for i, j in enumerate(JOINTS)
    )
    return f"""
<mujoco model="arm">
  <compiler angle="radian"/>
  <option timestep="0.005" integrator="implicitfast" gravity="0 0 -{GRAVITY}"><flag contact="disable"/></option>
  <visual><headlight ambient=".4 .4 .4" diffuse=".4 .4 .4" specular="0 0 0"/><map znear=".02"/></visual>
  <default><default class="look"><geom contype="0" conaffinity="0" mass="0"/></default></default>
  <asset><texture type="skybox" builtin="gradient" rgb1=".92 .95 1" rgb2=".62 .74 .88" width="64" height="384"/></asset>
  <worldbody>
    <light pos="0 -2 3" dir="0 .5 -1" directional="true" diffuse=".3 .3 .3" specular="0 0 0"/>
    <camera name="side" pos=".25 -1.5 .05" xyaxes="1 0 0 0 0 1"/>
    <geom class="look" type="box" pos="-.06 0 -.3" size=".03 .06 .35" rgba=".35 .35 .4 1"/>
    <body name="upper">{_joint(0)}
      {_link("upper", UPPER)}
      <body name="fore" pos="{UPPER} 0 0">{_joint(1)}
        {_link("fore", FORE)}
        <body name="hand" pos="{FORE} 0 0">
          <inertial pos="0 0 0" mass="{MASS["hand"]}" diaginertia="1e-8 1e-8 1e-8"/>
          <geom class="look" type="sphere" size=".035" rgba=".95 .55 .1 1"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>{servos}</actuator>
</mujoco>
"""


PARAMS = Params((
    Param("upper_mass", "mass", MASS["upper"], 0.5, 4.0, match="upper", op="set", unit="kg", log=True, about="mass of the upper arm, uniform along it"),
    Param("fore_mass", "mass", MASS["fore"], 0.3, 3.0, match="fore", op="set", unit="kg", log=True, about="mass of the forearm, uniform along it"),
    Param("payload", "mass", 0.0, 0.0, 3.0, match="hand", op="add", unit="kg", about="mass in the hand"),
    Param("shoulder_damping", "damping", DAMPING[0], 0.0, 2.0, match="shoulder", op="set", unit="N m s/rad", about="viscous friction of the shoulder"),
    Param("elbow_damping", "damping", DAMPING[1], 0.0, 1.0, match="elbow", op="set", unit="N m s/rad", about="viscous friction of the elbow"),
    Param("joint_friction", "frictionloss", 1.0, 0.0, 5.0, match="shoulder|elbow", about="dry friction of both, as a multiple of 0.3 and 0.15 N m"),
    Param("armature", "armature", 1.0, 0.3, 3.0, match="shoulder|elbow", log=True, about="rotor inertia, as a multiple of 0.02 and 0.01 kg m^2"),
    Param("kp", "kp", 1.0, 0.5, 1.5, about="servos' stiffness, as a multiple of 30 and 15 N m/rad"),
    Param("latency", "action_delay", 0.0, 0.0, 0.06, op="set", unit="s", about="from command to motor"),
    Param("noise", "noise", 1.0, 0.0, 5.0, about="sensor noise, as a multiple"),
    Param("pull", "pull", 0.0, 0.0, 60.0, op="set", unit="N", about="largest force of a slow pull at the hand"),
))  # fmt: skip

RANGES = {
    "upper_mass": (1.2, 1.8), "fore_mass": (0.8, 1.25), "payload": (0.0, 0.3), "shoulder_damping": (0.1, 0.6),
    "elbow_damping": (0.05, 0.3), "joint_friction": (0.0, 2.0), "armature": (0.7, 1.4), "kp": (0.9, 1.1),
    "latency": (0.0, 0.02), "noise": (0.5, 1.5), "pull": (0.0, 30.0),
}  # fmt: skip


def tip(q: np.ndarray) -> np.ndarray:
    """Where the hand is, (n, 2): x and z in m from the shoulder."""
    a, b = q[:, 0], q[:, 0] + q[:, 1]
    xp = namespace(q)
    return xp.stack([UPPER * xp.cos(a) + FORE * xp.cos(b), UPPER * xp.sin(a) + FORE * xp.sin(b)], 1)


def _missed(s: Moment) -> np.ndarray:
    """Distance of the hand from where the commanded angles have it, m."""
    return s.xp.sqrt(norm2(tip(s.q) - tip(s.command)))


def _episode(rng: Draw, n: int) -> Episode:
    """At rest at any pose a command may ask for."""
    q = _command(rng, n)
    return Episode(Start(q, namespace(q).zeros_like(q), q))


def _command(rng: Draw, n: int) -> np.ndarray:
    x = rng.uniform(-1.0, 1.0, (n, 2))
    middle, span = (namespace(x).asarray(a) for a in (MIDDLE, SPAN))
    return middle + span * x


SEEN = (
    ObsTerm("joint_pos", Formula("joint_pos", JOINTS), 2, "rad", noise=0.001),
    ObsTerm("joint_vel", Formula("joint_vel", JOINTS), 2, "rad/s", noise=0.02, scale=0.2, clip=20.0),
    ObsTerm("command", Formula("command"), 2, "rad"),
    ObsTerm("last_action", Formula("last_action"), 2),
)

PRIVILEGED = (
    ObsTerm("hand_force", lambda s: s.x.wrench[:, HAND, [0, 2]], 2, "N, x and z of the world", scale=0.1),
    ObsTerm("missed", lambda s: tip(s.q) - tip(s.command), 2, "m", scale=10.0),
    ObsTerm("e", lambda s: s.x.e, len(PARAMS), "mixed", sensed=False),
)


OFF_POLICY = {
    "envs": 64, "steps": 100_000, "horizon": 8, "updates": 16, "samples": 512, "warm_up": 5000, "actor_after": 6000, "gamma": 0.97,
    "value": "mean", "hidden": (64, 64), "critic_hidden": (64, 64),
}  # fmt: skip


FORWARD_BACKWARD = {
    "envs": 64, "steps": 60_000, "horizon": 8, "updates": 64, "samples": 256, "warm_up": 6000, "gamma": 0.97, "tau": 0.02, "lr": 1e-3, "z": 32, "ortho": 10.0,
    "goal_terms": ("joint_pos", "joint_vel"), "hidden": (128, 128), "forward_hidden": (128, 128), "learner_threads": 1,
}  # fmt: skip


def arm() -> Task:
    return Task(
        name="arm",
        about="arm holds a pose against pulls",
        robot=Robot.text(xml(), "arm"),
        params=PARAMS,
        belief=Box.ranges(PARAMS, RANGES),
        substeps=4,
        seconds=4.0,
        action=Action(JOINTS, MIDDLE, np.array([1.8, 1.5]), "rad"),
        observations={"actor": ObsGroup(SEEN, history=5), "critic": ObsGroup((*SEEN, *PRIVILEGED))},
        rewards={
            "near": Reward(3.0, lambda s: s.xp.exp(-20.0 * s.once(_missed)), "exp(-20 d): the hand close to where it should be"),
            "far": Reward(-5.0, lambda s: s.once(_missed), "its distance d from there, m"),
            "slow": Reward(-0.02, lambda s: norm2(s.v), "joint speeds squared"),
            "smooth": Reward(-0.5, lambda s: norm2(s.action - s.previous), "change of action squared"),
        },
        ended={},
        episode=_episode,
        error=lambda s: s.once(_missed),
        error_unit="m",
        tolerance=0.03,
        window=1.0,
        measure="mean",
        command=_command,
        command_names=JOINTS,
        command_every=2.0,
        terms=(Pull("hand", PARAMS, seconds=(2.0, 4.0), along=(True, False, True)),),
        settings={"envs": 128, "steps": 400_000, "horizon": 32, "gamma": 0.97, "hidden": (64, 64), "activation": "tanh", "kl": 0.02},
        learners={"fasttd3": OFF_POLICY | {"explore": (0.05, 0.2)}, "fastsac": OFF_POLICY, "fb": FORWARD_BACKWARD},
    )  # fmt: skip
