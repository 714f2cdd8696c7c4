"""n robots of one model on a viser client: a mesh for each body and colour, drawn n times.

vertex p of a geom g of body b of robot i stands at  x_ib + R_ib (x_g + R_g p) + at_i
"""

from collections import defaultdict
from collections.abc import Callable
from itertools import product
from typing import Any

import mujoco
import numpy as np

from surefoot.lab.page import Scene
from surefoot.rotation import to_world
from surefoot.tasks.view.poses import Poses
from surefoot.tasks.view.shapes import GRID, rgba_of, surface, visible
from surefoot.web.lab.camera import MANY, ONE, Frame, placed

Clicked = Callable[[int | None, np.ndarray, np.ndarray], None]
TINT = 0.7  # of a robot's own colour replaced by what it stands for
GROUND = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
FORCE = (230, 60, 30)
CORNERS = np.array(list(product((-1.0, 1.0), repeat=3)))


class Robots:
    """Drawn once, then moved."""

    def __init__(self, client: Any, scene: Scene, clicked: Clicked):
        self.client, self.model, self.n, self.poses = client, scene.model, len(scene.q), Poses(scene.model)
        self.nodes: list[Any] = []  # at the root of the scene: with them go those below
        self.parts: list[tuple[int, np.ndarray, Any]] = []  # body, own colour, handle
        self.arrows: Any = None
        self.nodes.append(client.scene.add_frame("/robots", show_axes=False))
        x, r = self.poses(scene.q)
        for k, ((body, colour), (vertices, faces)) in enumerate(meshes(scene.model).items()):
            handle = client.scene.add_batched_meshes_simple(
                f"/robots/{k}", vertices, faces, r[:, body], self._placed(x, body, scene),
                batched_colors=self._tinted(body, np.array(colour), scene), lod="off", cast_shadow=self.n == 1,
            )  # fmt: skip
            if body:
                handle.on_click(lambda e: clicked(e.instance_index, np.array(e.ray_origin), np.array(e.ray_direction)))
            self.parts.append((body, np.array(colour), handle))
        self.grid = self._ground()
        self.corners = self._corners(scene, x, r, least=1 if self.n == 1 else 0).reshape(-1, 3)
        self.room = scene.room
        self.names = self._named(scene, self._corners(scene, x, r, least=1)[..., 2].max(1))
        self.stands: tuple[Frame, np.ndarray] | None = None
        self._stand()
        self.tint = None if scene.colours is None else scene.colours.copy()

    def _placed(self, x: np.ndarray, body: int, scene: Scene) -> np.ndarray:
        return x[:, body] + np.pad(scene.at, ((0, 0), (0, 1)))

    def _tinted(self, body: int, own: np.ndarray, scene: Scene) -> np.ndarray:
        if scene.colours is None or not body:
            return np.tile(own, (self.n, 1)).astype(np.uint8)
        return ((1 - TINT) * own + TINT * scene.colours).astype(np.uint8)

    def _ground(self) -> Any:
        m = self.model
        planes = np.flatnonzero(m.geom_type == GROUND[0])
        if not len(planes):
            return None
        at = m.geom_pos[planes[0]]
        grid = self.client.scene.add_grid("/ground", 100.0, 100.0, position=at, **GRID)
        self.nodes.append(grid)
        return grid

    def _corners(self, scene: Scene, x: np.ndarray, r: np.ndarray, least: int) -> np.ndarray:
        """(n, k, 3) of the box around each geom of each robot, on bodies from `least` on."""
        m = self.model
        own = np.flatnonzero((m.geom_bodyid >= least) & ~np.isin(m.geom_type, GROUND))
        if not len(own):
            return x + np.pad(scene.at, ((0, 0), (0, 1)))[:, None]
        middle, half = np.split(m.geom_aabb[own], 2, 1)
        box = (middle[:, None] + half[:, None] * CORNERS).reshape(-1, 3)
        body = np.repeat(m.geom_bodyid[own], len(CORNERS))
        box = to_world(np.repeat(m.geom_quat[own], len(CORNERS), 0), box) + np.repeat(m.geom_pos[own], len(CORNERS), 0)
        turned = to_world(r[:, body].reshape(-1, 4), np.tile(box, (self.n, 1))).reshape(self.n, -1, 3)
        return np.asarray(x[:, body] + turned + np.pad(scene.at, ((0, 0), (0, 1)))[:, None])

    def _named(self, scene: Scene, top: np.ndarray) -> list[tuple[float, Any]]:
        """A name over each robot that has one, and how high it is."""
        add = self.client.scene.add_label
        return [
            (float(top[i]), add(f"/robots/name{i}", name, anchor="bottom-center")) for i, name in enumerate(scene.names)
        ]

    def _stand(self) -> None:
        """All of them in the picture, for as long as nobody has moved the camera; again where the picture has another size."""
        camera = self.client.camera
        frame = Frame(camera.image_width, camera.image_height, camera.fov)
        if self.stands is not None:
            old, at = self.stands
            if frame == old or np.linalg.norm(camera.position - at) > 1e-3 * (1 + np.linalg.norm(at)):
                return
        position, look = placed(
            self.corners, np.full(len(self.corners), self.room), frame, ONE if self.n == 1 else MANY
        )
        camera.position = position  # which moves where it looks, too
        camera.look_at = look
        self.stands = frame, position

    def fits(self, scene: Scene) -> bool:
        return scene.model is self.model and len(scene.q) == self.n

    def update(self, scene: Scene) -> None:
        """Move every body to where the states have it."""
        x, r = self.poses(scene.q)
        old, new = self.tint, scene.colours
        recoloured = new is not None and (old is None or not np.array_equal(new, old))
        with self.client.atomic():
            for body, own, handle in self.parts:
                if body or self.n > 1:
                    handle.batched_positions, handle.batched_wxyzs = self._placed(x, body, scene), r[:, body]
                if recoloured and body:
                    handle.batched_colors = self._tinted(body, own, scene)
            for i, (height, label) in enumerate(self.names):
                label.position = (*(x[i, 1:, :2].mean(0) + scene.at[i]), height)
            if self.grid is not None and self.n == 1:  # the floor goes by under a robot that is followed
                z = self.model.geom_pos[np.flatnonzero(self.model.geom_type == GROUND[0])[0], 2]
                self.grid.position = (*np.fmod(scene.at[0], GRID["section_size"]), z)
            self._force(scene)
        self._stand()
        self.tint = None if scene.colours is None else scene.colours.copy()

    def _force(self, scene: Scene) -> None:
        if self.arrows is not None:
            self.arrows.remove()
            self.arrows = None
        if len(scene.arrows):
            size = 0.01 * float(max(self.model.stat.extent, 0.1))
            heads = {"shaft_radius": size, "head_radius": 2 * size, "head_length": 4 * size}
            self.arrows = self.client.scene.add_arrows("/forces", scene.arrows, FORCE, **heads)

    def nearest(self, scene: Scene, origin: np.ndarray, direction: np.ndarray) -> int:
        """The robot that a ray from the camera passes closest to."""
        x, _ = self.poses(scene.q)
        at = x[:, 1:].mean(1) + np.pad(scene.at, ((0, 0), (0, 1)))
        return int(np.linalg.norm(np.cross(at - origin, direction), axis=1).argmin())

    def remove(self) -> None:
        for node in [*self.nodes, *([self.arrows] if self.arrows is not None else [])]:
            node.remove()


def meshes(model: mujoco.MjModel) -> dict[tuple[int, tuple[int, ...]], tuple[np.ndarray, np.ndarray]]:
    """(body, colour) -> vertices and triangles in the body's frame, of all geoms and sites that are shown."""
    found: dict[tuple[int, tuple[int, ...]], list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for family, i in visible(model):
        of = lambda field: getattr(model, f"{family}_{field}")[i]  # noqa: B023, E731
        rgba, kind = rgba_of(model, family, i), int(of("type"))
        if kind in GROUND:
            continue
        shape = surface(model, mujoco.mjtGeom(kind), of("size"), of("dataid") if family == "geom" else -1)
        if shape is not None:
            at = to_world(np.tile(of("quat"), (len(shape[0]), 1)), np.asarray(shape[0], float)) + of("pos")
            found[int(of("bodyid")), tuple(int(255 * c) for c in rgba[:3])].append((at, shape[1]))
    return {key: _joined(shapes) for key, shapes in found.items()}


def _joined(shapes: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    first = np.cumsum([0, *(len(v) for v, _ in shapes)])
    return np.concatenate([v for v, _ in shapes]), np.concatenate([f + k for (_, f), k in zip(shapes, first)])
