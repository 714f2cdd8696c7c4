"""A camera as an observation term: each row's q, drawn with that row's light, colours and camera pose.

    pixels(q, e) = mean of fine x fine samples of the picture of q through the model with e's VISIBLE targets written in

Values are 0 to 1, row after row from the top left. A point at (x, y, z) in the camera's frame (x right, y up, z backward)
falls on  column W/2 + f x / -z,  row H/2 - f y / -z,  with focal length f = (H / 2) / tan(fovy / 2) in pixels.
"""

import weakref
from functools import cached_property
from operator import attrgetter

import mujoco
import numpy as np

from surefoot.errors import SurefootError, unknown
from surefoot.params import Params
from surefoot.robot import Robot
from surefoot.sim.fields import POSE, VISIBLE, Rows, Writer, writer
from surefoot.sim.model.load import load_robot
from surefoot.task import Moment

GREY = np.array([0.299, 0.587, 0.114], np.float32)  # how bright red, green and blue seem
UNSET = np.array([0.5, 0.5, 0.5, 1], np.float32)  # the colour that for the engine means: take the material's


class Camera:
    """Draws what a named camera of a model sees. OpenGL is needed, and a context made, at the first picture only.

    The model drawn is a copy of its own, so that nothing here can move the physics. Shadows and reflections are off: in
    software they cost more than all else together.
    """

    def __init__(
        self,
        robot: Robot,
        params: Params,
        name: str,
        size: tuple[int, int] = (32, 20),
        grey: bool = True,
        fine: int = 2,
    ):
        self.robot, self.params, self.name, self.grey, self.fine = robot, params, name, grey, fine
        self.width, self.height = size
        self.dim = self.width * self.height * (1 if grey else 3)
        self._gl: mujoco.Renderer | None = None

    def __call__(self, now: Moment) -> np.ndarray:
        """(n, dim) float32: a picture of each row."""
        looks, gl = self.looks(now.x.e), self._renderer()
        out = np.empty((len(now.q), self.dim), np.float32)
        for i, q in enumerate(now.q):
            for field, rows in looks.items():
                self._fields[field][:] = rows[i]
            out[i] = self._picture(gl, q)
        return out

    def looks(self, e: np.ndarray) -> Rows:
        """Fields of the model drawn, a row for each row of e: the model's own, then each Param's op in order."""
        own = self._own  # before any row is written
        rows = {field: np.repeat(value[None], len(e), 0) for field, value in own.items()}
        for i, write in self._writers:
            write(rows, e[:, i])
        return rows

    def close(self) -> None:
        """Give the OpenGL context back; the next picture makes another."""
        if self._gl is not None:
            self._closer()
            self._gl = None

    @cached_property
    def _model(self) -> mujoco.MjModel:
        model = load_robot(self.robot).model
        cameras = [model.camera(i).name for i in range(model.ncam)]
        if self.name not in cameras:
            raise unknown("camera", self.name, cameras)
        room = model.vis.global_
        room.offwidth, room.offheight = self.fine * self.width, self.fine * self.height
        quality = model.vis.quality
        quality.offsamples = quality.shadowsize = 0
        quality.numslices, quality.numstacks, quality.numquads = 12, 6, 1
        bare = (model.geom_matid >= 0) & (model.geom_rgba == UNSET).all(1)
        model.geom_rgba[bare] = model.mat_rgba[model.geom_matid[bare]]  # so that a change of it is a change of that
        return model

    @cached_property
    def _data(self) -> mujoco.MjData:
        return mujoco.MjData(self._model)

    @cached_property
    def _writers(self) -> list[tuple[int, Writer]]:
        found = [(i, writer(self._model, p)) for i, p in enumerate(self.params) if p.target in VISIBLE]
        for _, w in found:
            if w.target.fields == POSE and (self._model.cam_mode[w.ids] != mujoco.mjtCamLight.mjCAMLIGHT_FIXED).any():
                raise SurefootError(
                    f"param {w.param.name}: target {w.param.target}: expected a camera of mode fixed, "
                    f"found one among '{w.param.match}' that follows something by itself"
                )
        return found

    @cached_property
    def _fields(self) -> Rows:
        """The fields that params write, as live views of the model drawn."""
        names = sorted({field for _, w in self._writers for field in w.target.fields})
        return {field: attrgetter(field)(self._model) for field in names}

    @cached_property
    def _own(self) -> Rows:
        """The same, as the model has them."""
        return {field: value.copy() for field, value in self._fields.items()}

    def _picture(self, gl: mujoco.Renderer, q: np.ndarray) -> np.ndarray:
        self._data.qpos[:] = q
        mujoco.mj_fwdPosition(self._model, self._data)
        gl.update_scene(self._data, self.name)
        seen, k = gl.render().astype(np.float32), self.fine
        seen = seen @ GREY if self.grey else seen
        mean = sum(seen[i::k, j::k] for i in range(k) for j in range(k)) / np.float32(255 * k * k)
        return np.clip(mean, 0, 1).ravel()

    def _renderer(self) -> mujoco.Renderer:
        if self._gl is None:
            from surefoot.tasks.view.picture import renderer

            self._gl = renderer(self._model, (self.fine * self.width, self.fine * self.height))
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                self._gl.scene.flags[flag] = False
            self._closer = weakref.finalize(self, self._gl.close)  # also before the interpreter ends
        return self._gl
