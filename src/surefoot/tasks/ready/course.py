"""course: a differential-drive robot reaches a goal between eight disks that it sees by rays alone.

    [v w] = D [v_L v_R],   D = [[1/2, 1/2], [-1/d, 1/d]]        v m/s forward, w rad/s, d the distance between the wheels

The kinematics hold while the wheels grip. What they do on the floor is F_i = clip(c (v_i - s_i), +-mu m g / 2) along the
robot, with s_i the speed of the floor under wheel i, and the same across it against sliding: at 2 m/s the robot needs
half a metre to stop, and cannot turn tighter than a metre. Hence a policy that is quick is not safe by itself.

Disks stand two to a column, one on each side of the middle, so that there is always a way through.
"""

import numpy as np

from surefoot.belief import Box
from surefoot.contract import Action
from surefoot.control.reach_avoid import Recovery
from surefoot.observation import Formula, ObsGroup, ObsTerm
from surefoot.params import Param, Params
from surefoot.rng import Draw
from surefoot.robot import Robot
from surefoot.rotation import norm2
from surefoot.task import Episode, Moment, Reward, Symmetry, Task
from surefoot.world import Start

WHEELS = ("left", "right")
TRACK, SPEED = 0.30, 2.0  # m between the wheels; m/s of a wheel at an action of 1
D = np.array([[0.5, 0.5], [-1 / TRACK, 1 / TRACK]])  # (v, w) of the speeds of the wheels
MASS, MU, GRAVITY = 6.0, 0.4, 9.81  # kg, of the floor, m/s^2
GRIP = MU * MASS * GRAVITY / 2  # N, of one wheel
STICK, ACROSS = 60.0, 200.0  # N s/m: how strongly a wheel holds on along and across
RADIUS, DISK = 0.17, 0.25  # m, of the robot and of a disk
HALF = np.array([4.5, 2.0])  # m, half of the field's length and width
START, GOAL = -2.9, 2.9  # m along the field
COLUMNS = (-1.7, -0.55, 0.55, 1.7)  # m along the field, of two disks each
DISKS = 2 * len(COLUMNS)
TRIES = 6  # places of which a robot that begins between the disks takes the roomiest
RAYS = np.radians(np.linspace(-90, 90, 15))
SEES = 4.0  # m, the farthest that a ray tells
COLLISION = 6.0  # reward lost at a collision
TOLERANCE = 0.5  # m from the goal that counts as there


def xml() -> str:
    rays = "".join(
        f'<site name="ray{i}" pos="0 0 .05" zaxis="{np.cos(a):.9f} {np.sin(a):.9f} 0" size=".005"/>' for i, a in enumerate(RAYS)
    )  # fmt: skip
    disks = "".join(
        f'<body name="disk{i}" pos="0 0 .15"><inertial pos="0 0 0" mass="1" diaginertia=".1 .1 .1"/>'
        f'<joint name="disk{i}_x" type="slide" axis="1 0 0"/><joint name="disk{i}_y" type="slide" axis="0 1 0"/>'
        f'<geom type="cylinder" size="{DISK} .15" rgba=".75 .35 .25 1"/></body>'
        for i in range(DISKS)
    )
    ends = [(x * (HALF[0] + 0.05), 0.0, 0.05, HALF[1] + 0.1) for x in (-1, 1)]
    sides = [(0.0, y * (HALF[1] + 0.05), HALF[0] + 0.1, 0.05) for y in (-1, 1)]
    walls = "".join(
        f'<geom type="box" pos="{x} {y} .15" size="{a} {b} .15" rgba=".5 .53 .58 1"/>' for x, y, a, b in ends + sides
    )
    wheels = "".join(
        f'<site name="{name}" pos="0 {y} 0" size=".01"/>'
        f'<geom type="cylinder" fromto="0 {y - 0.02} -.04 0 {y + 0.02} -.04" size=".06" rgba=".1 .1 .1 1"/>'
        for name, y in zip(WHEELS, (TRACK / 2, -TRACK / 2))
    )
    drives = "".join(
        f'<velocity name="{name}" site="{name}" gear="1 0 0 0 0 0" kv="{STICK}" forcerange="-{GRIP:.6f} {GRIP:.6f}"'
        f' ctrlrange="-{SPEED} {SPEED}"/>'
        for name in WHEELS
    )
    seen = "".join(f'<rangefinder name="ray/{i}" site="ray{i}" cutoff="{SEES}"/>' for i in range(len(RAYS)))
    return f"""
<mujoco model="course">
  <compiler angle="radian"/>
  <option timestep="0.01" integrator="implicitfast"><flag contact="disable"/></option>
  <visual><headlight ambient=".45 .45 .45" diffuse=".4 .4 .4" specular="0 0 0"/></visual>
  <asset><texture type="skybox" builtin="gradient" rgb1=".92 .95 1" rgb2=".62 .74 .88" width="64" height="384"/></asset>
  <worldbody>
    <light pos="0 -2 5" dir="0 .3 -1" directional="true" diffuse=".3 .3 .3" specular="0 0 0"/>
    <camera name="above" pos="0 -3.5 6.5" xyaxes="1 0 0 0 .88 .47"/>
    <geom type="plane" size="5 3 .1" rgba=".9 .9 .87 1"/>
    {walls}
    <body name="base" pos="0 0 .1">
      <joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/><joint name="yaw" axis="0 0 1"/>
      <inertial pos="0 0 0" mass="{MASS}" diaginertia=".1 .1 .1"/>
      <geom type="cylinder" size="{RADIUS} .05" rgba=".2 .4 .8 1"/>
      <geom type="box" pos=".1 0 .055" size=".05 .02 .01" rgba=".95 .95 .95 1"/>
      <site name="middle" size=".01"/>{wheels}{rays}
    </body>
    <body name="goal" pos="0 0 .1"><inertial pos="0 0 0" mass="1" diaginertia=".1 .1 .1"/>
      <joint name="goal_x" type="slide" axis="1 0 0"/><joint name="goal_y" type="slide" axis="0 1 0"/>
      <site name="goal" type="cylinder" size=".15 .005" rgba=".2 .7 .3 1"/></body>
    {disks}
  </worldbody>
  <actuator>{drives}
    <velocity name="across" site="middle" gear="0 1 0 0 0 0" kv="{ACROSS}" forcerange="-{2 * GRIP:.6f} {2 * GRIP:.6f}"/>
  </actuator>
  <sensor><velocimeter name="velocity" site="middle"/><gyro name="gyro" site="middle"/>
    <framepos name="goal" objtype="body" objname="goal" reftype="site" refname="middle"/>{seen}</sensor>
</mujoco>
"""


PARAMS = Params((
    Param("mass", "mass", 1.0, 0.5, 2.0, match="base", log=True, about="mass and inertia of the robot, as a multiple"),
    Param("grip", "force_limit", 1.0, 0.3, 2.0, about="largest force between wheels and floor, as a multiple"),
    Param("slip", "strength", 1.0, 0.3, 2.0, about="how strongly a wheel holds on at a given slip, as a multiple"),
    Param("latency", "action_delay", 0.0, 0.0, 0.1, op="set", unit="s", about="from command to wheel"),
    Param("noise", "noise", 1.0, 0.0, 5.0, about="sensor noise, as a multiple"),
))  # fmt: skip
RANGES = {"mass": (0.8, 1.25), "grip": (0.7, 1.3), "slip": (0.7, 1.4), "latency": (0.0, 0.04), "noise": (0.5, 1.5)}

ROBOT_XY, YAW, GOAL_XY, DISK_XY = slice(0, 2), 2, slice(3, 5), slice(5, 5 + 2 * DISKS)  # columns of q


def to_goal(s: Moment) -> np.ndarray:
    """(n, 2) m, in the world's frame."""
    return s.q[:, GOAL_XY] - s.q[:, ROBOT_XY]


def distance(s: Moment) -> np.ndarray:
    """(n,) m to the goal."""
    return np.sqrt(norm2(s.once(to_goal)))


def clearance(s: Moment) -> np.ndarray:
    """(n,) m from the robot's edge to the nearest disk or wall."""
    return gap(s.q[:, ROBOT_XY], s.q[:, DISK_XY].reshape(len(s.q), DISKS, 2))


def collided(s: Moment) -> np.ndarray:
    return s.once(clearance) <= 0.0


def _progress(s: Moment) -> np.ndarray:
    """(n,) m/s towards the goal; nothing to gain within 0.3 m of it."""
    away = s.once(to_goal)
    return (s.v[:, ROBOT_XY] * away).sum(1) / np.maximum(s.once(distance), 0.3)


def _stalled(s: Moment) -> np.ndarray:
    return ((norm2(s.v[:, ROBOT_XY]) < 0.3**2) & (s.once(distance) > TOLERANCE)).astype(float)


def gap(xy: np.ndarray, disks: np.ndarray) -> np.ndarray:
    """(n,) m from the edge of a robot at xy (n, 2) to the nearest of the disks (n, DISKS, 2) or walls."""
    to_disks = np.sqrt(((disks - xy[:, None]) ** 2).sum(2)).min(1) - DISK
    return np.minimum(to_disks, (HALF - np.abs(xy)).min(1)) - RADIUS


def _disks(r: np.ndarray) -> np.ndarray:
    """(n, DISKS, 2): each in its column and on its side, by numbers r (n, 2 DISKS) from -1 to 1."""
    x = np.repeat(COLUMNS, 2) + 0.25 * r[:, :DISKS]
    side = np.tile([-1.0, 1.0], DISKS // 2)
    y = side * (HALF[1] / 2 + (HALF[1] / 2 - DISK) * r[:, DISKS:])
    return np.stack([x, y], 2)


def _anywhere(disks: np.ndarray, r: np.ndarray) -> np.ndarray:
    """(n, 2): of TRIES places by numbers r (n, 2 TRIES), the one with the most room."""
    places = r.reshape(len(r), TRIES, 2) * np.array([2.6, 1.6])
    room = np.stack([gap(places[:, k], disks) for k in range(TRIES)], 1)
    return places[np.arange(len(r)), room.argmax(1)]


def _episode(rng: Draw, n: int) -> Episode:
    """The goal at one end. Half of the robots are at rest at the other; half are anywhere between the disks, and move."""
    r = rng.uniform(-1.0, 1.0, (n, 2 * DISKS + 2 * TRIES + 6))
    k, more = len(r), r[:, 2 * DISKS + 2 * TRIES :]
    disks = _disks(r[:, : 2 * DISKS])
    far = more[:, 0] < 0
    line = np.stack([np.full(k, START), 1.4 * more[:, 1]], 1)
    xy = np.where(far[:, None], line, _anywhere(disks, r[:, 2 * DISKS : -6]))
    goal = np.stack([np.full(k, GOAL), 1.4 * more[:, 2]], 1)
    there = np.arctan2(goal[:, 1] - xy[:, 1], goal[:, 0] - xy[:, 0])
    yaw = np.where(far, 0.8 * more[:, 3], there + 1.2 * more[:, 3])
    speed = np.where(far, 0.0, 0.6 * (1 + more[:, 4]))
    q = np.concatenate([xy, yaw[:, None], goal, disks.reshape(k, -1)], 1)
    v = np.zeros_like(q)
    v[:, 0], v[:, 1], v[:, YAW] = speed * np.cos(yaw), speed * np.sin(yaw), np.where(far, 0.0, 2.0 * more[:, 5])
    return Episode(Start(q, v, np.zeros((k, 3))))


def _sensor(name: str, dim: int, unit: str, noise: float, scale: float, clip: float) -> ObsTerm:
    return ObsTerm(name, Formula("reading", reading=name), dim, unit, noise, scale, clip)


SEEN = (
    _sensor("velocity", 3, "m/s, robot's frame", 0.02, 0.5, 4.0),
    _sensor("gyro", 3, "rad/s, robot's frame", 0.02, 0.2, 20.0),
    _sensor("goal", 3, "m, robot's frame", 0.01, 0.3, 8.0),
    _sensor("ray", len(RAYS), "m, from right to left", 0.01, 0.5, SEES),
    ObsTerm("last_action", Formula("last_action"), 2),
)
PRIVILEGED = (
    ObsTerm("clearance", lambda s: s.once(clearance)[:, None], 1, "m", scale=2.0),
    ObsTerm("place", lambda s: s.q[:, ROBOT_XY], 2, "m, world frame", scale=0.4),
    ObsTerm("e", lambda s: s.x.e, len(PARAMS), "mixed", sensed=False),
)


RECOVERY = Recovery(
    (("velocity", 0), ("gyro", 2)), (-0.5, -4.0), (SPEED, 4.0), (11, 9), "drive", tuple(map(tuple, np.linalg.inv(D).tolist())),
    ray="ray", angles=tuple(RAYS.tolist()), clearance=RADIUS + 0.02,
)  # fmt: skip
"""any twist that the wheels can bring about, u = D^-1 (v, w), and that stays clear of what the rays see"""


def _mirrored() -> Symmetry:
    side = np.array([1.0, -1.0, 1.0])
    three, rays, two = np.arange(3), np.arange(len(RAYS))[::-1], np.array([1, 0])
    return Symmetry(
        {
            "velocity": (three, side),
            "gyro": (three, -side),
            "goal": (three, side),
            "ray": (rays, np.ones(len(RAYS))),
            "last_action": (two, np.ones(2)),
        },
        (two, np.ones(2)),
    )


def course() -> Task:
    return Task(
        name="course",
        about="wheeled robot reaches a goal between disks",
        robot=Robot.text(xml(), "course"),
        params=PARAMS,
        belief=Box.ranges(PARAMS, RANGES),
        substeps=2,
        seconds=7.0,
        action=Action(WHEELS, np.zeros(2), np.full(2, SPEED), "m/s"),
        observations={"actor": ObsGroup(SEEN), "critic": ObsGroup((*SEEN, *PRIVILEGED))},
        rewards={
            "progress": Reward(2.0, _progress, "speed towards the goal, m/s"),
            "there": Reward(4.0, lambda s: np.exp(-3.0 * s.once(distance)), "exp(-3 d): at the goal"),
            "collision": Reward(-50.0 * COLLISION, lambda s: s.once(collided).astype(float), "touching a disk or a wall, once"),
            "stalled": Reward(-3.0, _stalled, "slower than 0.3 m/s before the goal is near"),
            "smooth": Reward(-0.05, lambda s: norm2(s.action - s.previous), "change of action squared"),
        },
        ended={"collided": lambda s: s.once(collided)},
        episode=_episode,
        error=distance,
        error_unit="m",
        tolerance=TOLERANCE,
        window=0.5,
        symmetry=_mirrored(),
        settings={"envs": 256, "steps": 1_250_000, "horizon": 32, "gamma": 0.99, "hidden": (64, 64), "activation": "tanh", "lr": 2e-3, "kl": 0.02},
        kind="wheeled",
        recovery=RECOVERY,
    )  # fmt: skip
