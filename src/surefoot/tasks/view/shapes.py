"""The shapes of a mujoco model on a viser server.

    a point p of a geom or site g of body b stands at  x_b + R_b (x_g + R_g p);  viser sums this over nested frames

What viser has no shape for becomes triangles, and a texture its mean colour.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import mujoco
import numpy as np
from mujoco import mjtGeom

Color = tuple[int, ...]  # r, g, b of 0 to 255
Pose = Mapping[str, np.ndarray]  # position and wxyz
SHOWN_GROUPS = 3  # mujoco's viewers, too, hide geoms and sites of group 3 and above
TRACKING = (int(mujoco.mjtCamLight.mjCAMLIGHT_TRACK), int(mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM))
CHECKER = 0.5  # m: a side of the squares on a height field
GRID = {"cell_size": 0.1, "section_size": 0.5, "fade_distance": 15.0, "plane_opacity": 1.0, "shadow_opacity": 0.4}
"""how a plane looks, lengths in m: without a fade the far lines flicker, without a shadow a robot seems to float"""
BOX = np.array([[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4],
                [1, 5, 7], [1, 7, 3]])  # fmt: skip
"""triangles between the corners of a box, whose coordinates count up like a number's bits"""


def shown(model: mujoco.MjModel) -> np.ndarray:
    """(6,) uint8: which groups of geoms are drawn. All of them, where a robot would have no shape without the hidden ones."""
    robot = model.body_weldid[model.geom_bodyid] > 0
    robot &= np.array([rgba_of(model, "geom", i)[3] > 0 for i in range(model.ngeom)], bool)
    groups = np.arange(mujoco.mjNGROUP) < SHOWN_GROUPS
    lost = robot.any() and not groups[model.geom_group[robot]].any()
    return (groups | lost).astype(np.uint8)


def visible(model: mujoco.MjModel) -> Iterator[tuple[str, int]]:
    """Family and number of each geom and site that is drawn."""
    for family, groups in (("geom", shown(model)), ("site", np.arange(mujoco.mjNGROUP) < SHOWN_GROUPS)):
        for i in np.flatnonzero(groups[getattr(model, f"{family}_group")]).tolist():
            if rgba_of(model, family, i)[3] > 0:
                yield family, i


class Scene:
    """The shapes of a model on a viser server: one frame a body, moved by `update`; geoms and sites rest in it."""

    def __init__(self, server: Any, model: mujoco.MjModel):
        self.server, self.model, scene = server, model, server.scene
        self.world = scene.add_frame("/world", show_axes=False)
        self.bodies = [scene.add_frame(f"/world/body{i}", show_axes=False) for i in range(model.nbody)]
        self.shapes = {}
        for family, i in visible(model):
            shape = _add(scene, model, family, i)
            if shape is not None:
                self.shapes[f"{family}{i}"] = shape
        tracked = [int(b) for b, mode in zip(model.cam_bodyid, model.cam_mode) if mode in TRACKING]
        self.follows = bool(tracked)
        """whether a camera of the model goes with a body"""
        self.tracked = int([*tracked, *model.jnt_bodyid, 0][0])
        """the body that is followed where this is asked for: that of the camera, else the first that moves"""

    def update(self, data: mujoco.MjData, follow: bool = False) -> None:
        """Move every body to where data has it. To follow, move the world under the robot: the camera is the user's."""
        x, y, _ = data.xpos[self.tracked]
        with self.server.atomic():
            self.world.position = (-x, -y, 0.0) if follow else (0.0, 0.0, 0.0)
            for frame, position, wxyz in zip(self.bodies, data.xpos, data.xquat):
                frame.position, frame.wxyz = position, wxyz

    def stand(self, data: mujoco.MjData, follow: bool) -> None:
        """Begin at the model's first camera, looking at what it sees; without one, a little to the side."""
        centre, begin = data.subtree_com[0], self.server.initial_camera
        offset = np.array([*data.xpos[self.tracked][:2], 0.0]) if follow else np.zeros(3)
        if self.model.ncam:
            at, ahead = data.cam_xpos[0], -data.cam_xmat[0].reshape(3, 3)[:, 2]
            centre = at + ahead * max(ahead @ (centre - at), 0.1)
        else:
            at = centre + self.model.stat.extent * np.array([0.5, -1.5, 0.7])
        begin.position, begin.look_at = at - offset, centre - offset


def _add(scene: Any, model: mujoco.MjModel, family: str, i: int) -> Any:
    """Geom or site i in the frame of its body; None where it has no surface."""
    of = lambda field: getattr(model, f"{family}_{field}")[i]  # noqa: E731
    rgba, kind, size = rgba_of(model, family, i), mjtGeom(int(of("type"))), of("size")
    name, color = f"/world/body{of('bodyid')}/{family}{i}", _shade(rgba[:3], 255)
    pose: Pose = {"position": of("pos"), "wxyz": of("quat")}
    if kind == mjtGeom.mjGEOM_PLANE:
        wide, long = (float(2 * s) if s > 0 else 100.0 for s in size[:2])  # 0: without end
        lines = {"plane_color": color, "cell_color": _shade(color, 0.94), "section_color": _shade(color, 0.82)}
        return scene.add_grid(name, wide, long, **GRID, **lines, **pose)
    look = {"color": color, "opacity": float(rgba[3]) if rgba[3] < 1 else None, **pose}
    if kind == mjtGeom.mjGEOM_BOX:
        return scene.add_box(name, dimensions=2 * size, **look)
    found = surface(model, kind, size, of("dataid") if family == "geom" else -1)
    if found is None:
        return None
    if kind == mjtGeom.mjGEOM_HFIELD:
        return _checkered(scene, name, *found, color, pose)
    return scene.add_mesh_simple(name, *found, **look)


def _checkered(scene: Any, name: str, vertices: np.ndarray, faces: np.ndarray, color: Color, pose: Pose) -> Any:
    """A height field in light and dark squares: of one colour, neither hills nor the way over them could be seen."""
    dark = np.floor(vertices[faces[:, 0], :2] / CHECKER + 1e-6).sum(1) % 2 == 1
    frame = scene.add_frame(name, show_axes=False, **pose)
    for part, mask, share in (("light", ~dark, 1.0), ("dark", dark, 0.75)):
        if mask.any():  # cells wider than the squares may all be of one kind
            scene.add_mesh_simple(f"{name}/{part}", vertices, faces[mask], color=_shade(color, share))
    return frame


def _shade(color: Iterable[float], share: float) -> Color:
    return tuple(int(share * c) for c in color)


def surface(model: mujoco.MjModel, kind: mjtGeom, size: np.ndarray, at: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Vertices (k, 3) in m and triangles (m, 3), seen from outside anticlockwise."""
    a = np.linspace(-np.pi / 2, np.pi / 2, 18)  # an even number: a capsule is cut between two of them
    if kind in (mjtGeom.mjGEOM_SPHERE, mjtGeom.mjGEOM_CAPSULE):
        half = size[1] if kind == mjtGeom.mjGEOM_CAPSULE else 0.0
        return _turned(size[0] * np.cos(a), size[0] * np.sin(a) + half * np.sign(a))
    if kind == mjtGeom.mjGEOM_BOX:
        corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
        return (size * corners)[BOX.ravel()], np.arange(BOX.size).reshape(
            BOX.shape
        )  # a corner for each face: sharp edges
    if kind == mjtGeom.mjGEOM_ELLIPSOID:
        vertices, faces = _turned(np.cos(a), np.sin(a))
        return vertices * size, faces
    if kind == mjtGeom.mjGEOM_CYLINDER:  # rings twice at the edges, which keeps them sharp
        return _turned(size[0] * np.array([0, 1, 1, 1, 1, 0]), size[1] * np.array([-1, -1, -1, 1, 1, 1]))
    if kind == mjtGeom.mjGEOM_HFIELD:
        hfield = model.hfield(at)
        (sx, sy, sz, _), rows, columns = hfield.size, int(hfield.nrow[0]), int(hfield.ncol[0])
        x, y = np.meshgrid(np.linspace(-sx, sx, columns), np.linspace(-sy, sy, rows))
        return np.stack([x, y, sz * hfield.data.reshape(rows, columns)], -1).reshape(-1, 3), _sheet(rows, columns)
    if kind in (mjtGeom.mjGEOM_MESH, mjtGeom.mjGEOM_SDF) and at >= 0:
        v, f = int(model.mesh_vertadr[at]), int(model.mesh_faceadr[at])
        return model.mesh_vert[v : v + model.mesh_vertnum[at]], model.mesh_face[f : f + model.mesh_facenum[at]]
    return None


def _turned(r: np.ndarray, z: np.ndarray, sides: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """The surface that the line (r, z), from below to above, sweeps around the z axis."""
    angle = np.linspace(0, 2 * np.pi, sides + 1)
    x, y = np.outer(r, np.cos(angle)), np.outer(r, np.sin(angle))
    return np.stack([x, y, np.broadcast_to(z[:, None], x.shape)], -1).reshape(-1, 3), _sheet(len(r), sides + 1)


def _sheet(rows: int, columns: int) -> np.ndarray:
    """Triangles (m, 3) between the neighbours of a grid of points, row after row."""
    a = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    b, c, d = a + 1, a + columns + 1, a + columns
    return np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])


def rgba_of(model: mujoco.MjModel, family: str, i: int) -> np.ndarray:
    """Its own colour, else its material's; a texture counts with its mean, for the page has none."""
    rgba, material = getattr(model, f"{family}_rgba")[i], getattr(model, f"{family}_matid")[i]
    if material < 0 or not np.allclose(rgba, [0.5, 0.5, 0.5, 1]):  # mujoco, too, takes its default colour for none
        return rgba
    texture = int(model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB])
    return model.mat_rgba[material] * (_mean(model.tex(texture)) if texture >= 0 else 1)


def _mean(texture: Any) -> np.ndarray:
    """Its mean colour (r, g, b, 1); a grey one has a single channel."""
    mean = texture.data.reshape(-1, texture.nchannel[0])[:, :3].mean(0) / 255
    return np.append(np.resize(mean, 3), 1.0)
