"""balance: keep a pole upright on a cart. Constants, equations and integrator of Gymnasium's CartPole-v1.

M = m_c + m_p, l = half the pole;  theta'' = (g sin - cos (F + m_p l theta'^2 sin) / M) / (l (4/3 - m_p cos^2 / M)),
x'' = (F + m_p l (theta'^2 sin - theta'' cos)) / M;  x += h x', v += h a  (explicit Euler, h = 0.02 s)
"""

import numpy as np

from surefoot.arrays import namespace
from surefoot.belief import Box
from surefoot.contract import Action
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.task import Episode, Reward, Task
from surefoot.world import Start

DT = 0.02
FORCE = 10.0  # N
TILT = 12 * 2 * np.pi / 360  # rad, where an episode ends
TRACK = 2.4  # m, likewise

MODEL = """
<mujoco model="balance">
  <option timestep="0.02" gravity="0 0 -9.8" integrator="Euler"><flag contact="disable"/></option>
  <visual><headlight ambient=".45 .45 .45" diffuse=".4 .4 .4" specular="0 0 0"/></visual>
  <asset><texture type="skybox" builtin="gradient" rgb1=".92 .95 1" rgb2=".62 .74 .88" width="64" height="384"/>{assets}</asset>
  <worldbody>
    <light pos="0 -2 3" dir="0 .5 -1" directional="true" diffuse=".3 .3 .3" specular="0 0 0"/>
    <geom name="rail" type="capsule" fromto="-2.6 0 0 2.6 0 0" size=".03" rgba=".35 .35 .4 1" contype="0" conaffinity="0"/>
    <camera name="side" pos="0 -4.5 .55" xyaxes="1 0 0 0 0 1"/>{scenery}
    <body name="cart">
      <inertial pos="0 0 0" mass="1" diaginertia=".01 .01 .01"/>
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom name="cart" type="box" size=".2 .1 .08" rgba=".2 .4 .8 1"/>
      <body name="pole">
        <inertial pos="0 0 .5" mass=".1" diaginertia="0.008333333333333333 0.008333333333333333 1e-5"/>
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <geom name="pole" type="capsule" fromto="0 0 0 0 0 1" size=".04" rgba=".8 .5 .2 1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="slide" gear="1" ctrlrange="-10 10"/></actuator>
</mujoco>
"""
XML = MODEL.format(assets="", scenery="")

PARAMS = Params((
    Param("gravity", "gravity", 9.8, 5.0, 16.0, op="set", unit="m/s^2", about="strength of gravity"),
    Param("cart_mass", "mass", 1.0, 0.2, 4.0, match="cart", op="set", unit="kg", log=True, about="mass of the cart"),
    Param("pole_mass", "mass", 0.1, 0.02, 0.6, match="pole", op="set", unit="kg", log=True, about="mass of the pole, uniform along it"),
    Param("strength", "strength", 1.0, 0.3, 2.0, op="scale", about="force of the motor, as a multiple"),
    Param("rail_drag", "damping", 0.0, 0.0, 3.0, match="slide", op="set", unit="N s/m", about="viscous friction of the rail"),
    Param("latency", "action_delay", 0.0, 0.0, 0.08, op="set", unit="s", about="from command to force"),
    Param("noise", "noise", 0.0, 0.0, 0.2, op="set", about="standard deviation of the sensors' noise, in each one's unit"),
))  # fmt: skip

RANGES = {
    "gravity": (8.0, 14.0), "cart_mass": (0.5, 2.0), "pole_mass": (0.05, 0.3), "strength": (0.7, 1.3),
    "rail_drag": (0.0, 1.0), "latency": (0.0, 0.04), "noise": (0.0, 0.05),
}  # fmt: skip


def _episode(rng: Draw, n: int) -> Episode:
    x = rng.uniform(-0.05, 0.05, (n, 4))
    return Episode(Start(x[:, :2], x[:, 2:], namespace(x).zeros_like(x[:, :1])))


def balance(discrete: bool = False) -> Task:
    """`balance` pushes with any force up to 10 N; `balance-discrete` full left or full right, as CartPole-v1 does."""
    seen = (ObsTerm("cart_pole", Formula("joint_state", ("slide", "hinge")), 4, "m, m/s, rad, rad/s"),)
    return Task(
        name="balance-discrete" if discrete else "balance",
        about="pole on a cart" + (", two actions" if discrete else ""),
        robot=Robot.text(XML, "balance"),
        params=PARAMS,
        belief=Box.ranges(PARAMS, RANGES),
        substeps=1,
        explicit=True,
        seconds=10.0,
        action=Action(("push",), np.zeros(1), np.array([FORCE]), "N", choices=2 if discrete else 0),
        observations={
            "actor": ObsGroup(seen),
            "critic": ObsGroup((*seen, ObsTerm("e", lambda s: s.x.e, len(PARAMS), "mixed", sensed=False))),
        },
        rewards={"upright": Reward(1 / DT, lambda s: s.xp.ones_like(s.time), "one for each step the pole stays up")},
        ended={
            "off the rail": lambda s: s.xp.abs(s.q[:, 0]) > TRACK,
            "pole fell": lambda s: s.xp.abs(s.q[:, 1]) > TILT,
        },
        episode=_episode,
        error=lambda s: s.xp.abs(s.q[:, 1]),
        error_unit="rad",
        tolerance=TILT,
        window=10.0,
        settings={"envs": 64, "steps": 200_000, "horizon": 32, "gamma": 0.99, "hidden": (64, 64), "activation": "tanh", "lr": 2e-3, "kl": 0.0},
    )  # fmt: skip
