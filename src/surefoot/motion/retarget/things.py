"""What a person handles, leans on or steps on, as boxes: a carried box moves; a wall and a step stand.

    a point of it    world = p(t) + R(t) c half,   |c| = 1 in its largest coordinate
    the robot's      half s, p s + lift;  s: ratio of the legs, lift: what brings the person's ankles to the robot's height
    a variant        box: half x size, p + shift, turned about the vertical;   step: height x size, shifted;   wall: shifted

m, world frame, z up, the person's floor at 0. Steps carry feet; boxes and walls do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import mujoco
import numpy as np

from surefoot.errors import SurefootError
from surefoot.motion.person import FLIP, MIRROR, Person
from surefoot.rng import stream
from surefoot.robot import Robot
from surefoot.rotation import product, to_body, to_world
from surefoot.sim.anatomy.shapes import CORNERS

OBJECT = "surefoot_object"
POINTS = 30
WALL = np.array([0.05, 2.0, 1.25])  # m, half sizes
SIDES = ("left", "right")
UP = np.array([0.0, 0.0, 1.0])


def yawed(yaw: float | np.ndarray) -> np.ndarray:
    yaw = np.asarray(yaw, float)
    return np.stack([np.cos(yaw / 2), 0 * yaw, 0 * yaw, np.sin(yaw / 2)], -1)


@dataclass(frozen=True, eq=False)
class Thing:
    """A box-shaped thing: half sizes, and where its middle is in each frame."""

    kind: Literal["box", "wall", "step"]
    half: np.ndarray  # (3,) m
    pos: np.ndarray  # (T, 3) m
    quat: np.ndarray  # (T, 4)

    def __post_init__(self) -> None:
        if not (self.half.shape == (3,) and (self.half > 0).all() and np.isfinite(self.half).all()):
            raise SurefootError(f"{self.kind}: found half sizes {self.half}, expected 3 numbers above 0")

    def world(self, local: np.ndarray, t: int) -> np.ndarray:
        """(n, 3) in the world, of points in its own frame."""
        return self.pos[t] + to_world(np.broadcast_to(self.quat[t], (len(local), 4)), local)

    def local(self, pos: np.ndarray) -> np.ndarray:
        """(T, 3) in its own frame, of one place a frame."""
        return to_body(self.quat, pos - self.pos)

    def far(self, pos: np.ndarray) -> np.ndarray:
        """(T,) m from its surface; 0 inside."""
        return np.linalg.norm(np.maximum(np.abs(self.local(pos)) - self.half, 0), axis=1)

    def corners(self) -> np.ndarray:
        """(T, 8, 3) m."""
        return np.stack([self.world(CORNERS * self.half, t) for t in range(len(self.pos))])

    @property
    def top(self) -> float:
        return float(self.pos[0, 2] + self.half[2])

    def mirrored(self) -> "Thing":
        return replace(self, pos=self.pos * MIRROR, quat=self.quat * FLIP)


def box(half: np.ndarray, path: np.ndarray, quat: np.ndarray | None = None) -> Thing:
    """A box that is carried or pushed: path (T, 3), attitudes (T, 4); without attitudes it does not turn."""
    turned = np.broadcast_to([1.0, 0, 0, 0], (len(path), 4)) if quat is None else quat
    return Thing("box", np.asarray(half, float), np.asarray(path, float), np.asarray(turned, float))


def wall(x: float, y: float, yaw: float, frames: int) -> Thing:
    """A wall through the point (x, y), whose front looks in the direction yaw [rad]."""
    front = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    pos = np.array([x, y, WALL[2]]) - WALL[0] * front
    return Thing("wall", WALL.copy(), np.tile(pos, (frames, 1)), np.tile(yawed(yaw), (frames, 1)))


def step(x: float, y: float, yaw: float, size: tuple[float, float, float], frames: int) -> Thing:
    """A block on the floor: the middle of its top, its direction [rad], its length along that, width and height."""
    half = np.array(size, float) / 2
    return Thing("step", half, np.tile([x, y, half[2]], (frames, 1)), np.tile(yawed(yaw), (frames, 1)))


@dataclass(frozen=True)
class Change:
    """How the robot's things differ from the person's, beside the scale: one demonstration gives many motions."""

    size: float = 1.0
    shift: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m
    turn: float = 0.0  # rad

    def __post_init__(self) -> None:
        if not 0.2 <= self.size <= 5:
            raise SurefootError(f"size of the object: found {self.size:g}, expected 0.2 to 5 times the person's")


SAME = Change()


def changes(n: int, seed: int) -> list[Change]:
    """As the person's, and n - 1 drawn: 0.8 to 1.2 times as large, up to 5 cm away along each axis, turned up to 0.2 rad."""
    rng = stream(seed, "variants")
    drawn = [
        Change(float(rng.uniform(0.8, 1.2)), tuple(rng.uniform(-0.05, 0.05, 3).tolist()), float(rng.uniform(-0.2, 0.2)))
        for _ in range(n - 1)
    ]
    return [SAME, *drawn]


def scaled(thing: Thing, s: float, lift: float) -> Thing:
    """As large as the robot's legs are; lifted as the person is."""
    return replace(thing, half=s * thing.half, pos=s * thing.pos + lift * UP)


def placed_for(thing: Thing, s: float, lift: float, change: Change) -> Thing:
    """The robot's: a step stands on the floor whatever the soles are; boxes and walls are lifted as the person is."""
    if thing.kind == "step":
        half = s * thing.half * np.array([1, 1, change.size])
        pos = s * thing.pos * np.array([1, 1, change.size]) + np.array([*change.shift[:2], 0.0])
        return replace(thing, half=half, pos=pos)
    out = scaled(thing, s, lift)
    pos = out.pos + np.array(change.shift)
    if thing.kind == "wall":
        return replace(out, pos=pos)
    return replace(out, half=change.size * out.half, pos=pos, quat=product(np.broadcast_to(yawed(change.turn), out.quat.shape), out.quat))  # fmt: skip


def surface(thing: Thing, pos: np.ndarray, margin: float, n: int = POINTS) -> np.ndarray:
    """(k, 3) of c: points spread over its faces, where a person (T, J, 3) comes near it; the same for variants of it.

    Points are those of a sphere, pushed out to the cube; what is far from the person, such as the rest of a wall, has none.
    """
    k = np.arange(n) + 0.5
    z, turn = 1 - 2 * k / n, np.pi * (1 + 5**0.5) * k
    r = np.sqrt(1 - z * z)
    ball = np.stack([r * np.cos(turn), r * np.sin(turn), z], 1)
    cube = ball / np.abs(ball).max(1, keepdims=True)
    if thing.kind == "box":
        return cube
    near = np.concatenate([thing.local(pos[:, j]) for j in range(pos.shape[1])])
    low, high = np.maximum(near.min(0) - margin, -thing.half), np.minimum(near.max(0) + margin, thing.half)
    if (low >= high).any():
        raise SurefootError(f"{thing.kind}: the person never comes within {margin:.2f} m of it")
    c = ((low + high) / 2 + cube * (high - low) / 2) / thing.half
    return c[np.abs(c).max(1) > 1 - 1e-9]


def with_things(robot: Robot, things: Sequence[Thing]) -> Robot:
    """The robot with things that distances can be measured to; they collide with nothing."""

    def edit(spec: mujoco.MjSpec) -> None:
        for k, thing in enumerate(things):
            body = spec.worldbody.add_body(name=f"{OBJECT}_{k}", mocap=True, pos=[0, 0, -10])
            shape = mujoco.mjtGeom.mjGEOM_BOX
            body.add_geom(name=f"{OBJECT}_{k}", type=shape, size=thing.half.tolist(), contype=0, conaffinity=0)

    return robot.edited(edit)


@dataclass(frozen=True, eq=False)
class Ground:
    """What is under each foot: its height in the person's world, and in the robot's how far it is shifted, and its height."""

    person: Mapping[str, np.ndarray]  # side -> (T,) m
    robot: Mapping[str, np.ndarray]  # side -> (T, 3) m: x and y of the shift, height


def level(frames: int) -> Ground:
    """One floor at 0."""
    return Ground({s: np.zeros(frames) for s in SIDES}, {s: np.zeros((frames, 3)) for s in SIDES})


def ground(person: Person, marks: Mapping[str, int], things: Sequence[Thing], s: float, change: Change) -> Ground:
    """By the steps under the middle of each foot, the highest where there are several."""
    out = level(len(person))
    for side in SIDES:
        ends = [marks[f"{side}_{k}"] for k in ("ankle", "toe") if f"{side}_{k}" in marks]
        foot = person.pos[:, ends].mean(1)
        for thing in things:
            if thing.kind != "step":
                continue
            on = (np.abs(thing.local(foot))[:, :2] <= thing.half[:2]).all(1) & (thing.top > out.person[side])
            out.person[side][on] = thing.top
            out.robot[side][on] = [*change.shift[:2], placed_for(thing, s, 0.0, change).top]
    return out
