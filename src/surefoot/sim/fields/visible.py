"""Targets of rendering alone, without physics: lights, colours, cameras. tasks/terms/camera.py writes them into the model it renders."""

import numpy as np

from surefoot.rotation import exp, matrix, product
from surefoot.sim.fields.target import Rows, Target, Write, combine

LIGHTS = tuple(
    f"{of}{kind}" for of in ("light_", "vis.headlight.") for kind in ("ambient", "diffuse", "specular")
)  # fmt: skip
POSE = ("cam_pos", "cam_quat")


def light(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Power of every light, the headlight's too."""
    for field in LIGHTS:
        old = rows[field]
        rows[field] = combine(old, value.reshape(-1, *[1] * (old.ndim - 1)), op)


def light_tilt(axis: int) -> Write:
    """Turns the direction of directional and spot lights about a world axis, rad."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        d, i, j = rows["light_dir"], (axis + 1) % 3, (axis + 2) % 3
        c, s = np.cos(value), np.sin(value)  # (k, 1): every matched light by the same angle
        d[:, ids, i], d[:, ids, j] = c * d[:, ids, i] - s * d[:, ids, j], s * d[:, ids, i] + c * d[:, ids, j]

    return write


def channel(*which: int) -> Write:
    """Channels of a colour (red 0, green 1, blue 2, opacity 3), kept within 0..1."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        for k in which:
            rows["geom_rgba"][:, ids, k] = combine(rows["geom_rgba"][:, ids, k], value, op).clip(0, 1)

    return write


def hue(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Rotates a colour about the grey axis of red, green and blue, rad; grey stays grey."""
    rgb, a = rows["geom_rgba"][:, ids, :3], value[..., None]
    across = (np.roll(rgb, 1, -1) - np.roll(rgb, -1, -1)) / np.sqrt(3)  # the axis times rgb
    turned = np.cos(a) * rgb + (1 - np.cos(a)) * rgb.mean(-1, keepdims=True) + np.sin(a) * across
    rows["geom_rgba"][:, ids, :3] = turned.clip(0, 1)


def camera_move(axis: int) -> Write:
    """Moves a camera along its own axis (x right, y up, z backward), m."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        rows["cam_pos"][:, ids] += value[..., None] * matrix(rows["cam_quat"][:, ids])[..., axis]

    return write


def camera_turn(axis: int) -> Write:
    """Turns a camera about its own axis: pitch about x, yaw about y, roll about z, rad."""

    def write(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
        turn = exp(value[..., None] * np.eye(3)[axis])
        rows["cam_quat"][:, ids] = product(rows["cam_quat"][:, ids], turn)

    return write


def camera_fov(rows: Rows, ids: np.ndarray, value: np.ndarray, op: str) -> None:
    """Vertical field of view, rad; the engine's own is in degrees."""
    value = value if op == "scale" else np.degrees(value)
    rows["cam_fovy"][:, ids] = combine(rows["cam_fovy"][:, ids], value, op)


VISIBLE: dict[str, Target] = {
    "light": Target("", LIGHTS, light, "power of every light, as a multiple", ("scale",)),
    "light_tilt_x": Target("light", ("light_dir",), light_tilt(0), "lights turned about world x, rad", ("add",)),
    "light_tilt_y": Target("light", ("light_dir",), light_tilt(1), "lights turned about world y, rad", ("add",)),
    "red": Target("geom", ("geom_rgba",), channel(0), "red of a surface, 0 to 1"),
    "green": Target("geom", ("geom_rgba",), channel(1), "green of a surface, 0 to 1"),
    "blue": Target("geom", ("geom_rgba",), channel(2), "blue of a surface, 0 to 1"),
    "shade": Target("geom", ("geom_rgba",), channel(0, 1, 2), "red, green and blue together, 0 to 1"),
    "opacity": Target("geom", ("geom_rgba",), channel(3), "0: invisible, 1: opaque"),
    "hue": Target("geom", ("geom_rgba",), hue, "turn of a surface's colour about the grey axis, rad", ("add",)),
    "camera_x": Target("camera", POSE, camera_move(0), "camera moved to its right, m", ("add",)),
    "camera_y": Target("camera", POSE, camera_move(1), "camera moved upward in its picture, m", ("add",)),
    "camera_z": Target("camera", POSE, camera_move(2), "camera moved backward, m", ("add",)),
    "camera_pitch": Target("camera", POSE, camera_turn(0), "camera turned upward, rad", ("add",)),
    "camera_yaw": Target("camera", POSE, camera_turn(1), "camera turned to its left, rad", ("add",)),
    "camera_roll": Target("camera", POSE, camera_turn(2), "camera turned about its line of sight, rad", ("add",)),
    "camera_fov": Target("camera", ("cam_fovy",), camera_fov, "vertical field of view, rad"),
}
