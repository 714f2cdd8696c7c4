"""The ground a legged robot walks on: flat, or a height field of gentle random hills, the same for every simulation."""

from functools import cached_property

import mujoco
import numpy as np

from surefoot.arrays import namespace
from surefoot.rng import Draw
from surefoot.sim.model import edits

SIZE, CELL, AMPLITUDE = 16.0, 0.1, 0.06  # m: half width, grid, largest height


class Ground:
    def __init__(self, rough: bool = False, seed: int = 0):
        self.rough, self.seed = rough, seed

    @cached_property
    def heights(self) -> np.ndarray:
        """(ny, nx) heights in [0, AMPLITUDE] m: white noise smoothed over 0.3 m and over 1.2 m, in equal parts."""
        k = round(2 * SIZE / CELL) + 1
        rng = np.random.default_rng(self.seed)
        fx = np.fft.fftfreq(k, CELL)
        f2 = fx[:, None] ** 2 + fx[None, :] ** 2
        total = np.zeros((k, k))
        for width in (0.3, 1.2):
            wave = np.fft.ifft2(
                np.fft.fft2(rng.standard_normal((k, k))) * np.exp(-2 * (np.pi * width / 2) ** 2 * f2)
            ).real
            total += wave / wave.std()
        total = np.clip(total / 4, -1, 1)
        total -= total.min()
        return AMPLITUDE * total / total.max()

    def edit(self, spec: mujoco.MjSpec) -> str:
        """The floor of a model: its plane, or these hills in place of it."""
        said = edits.add_floor(spec)
        if not self.rough:
            return said
        k, floor = len(self.heights), spec.geom(edits.FLOOR)
        spec.add_hfield(name="hills", nrow=k, ncol=k, size=[SIZE, SIZE, AMPLITUDE, 0.1], userdata=(self.heights / AMPLITUDE).ravel())  # fmt: skip
        floor.type, floor.hfieldname, floor.size, floor.pos = (
            mujoco.mjtGeom.mjGEOM_HFIELD,
            "hills",
            [0, 0, 0],
            [0, 0, 0],
        )
        return f"floor: hills up to {AMPLITUDE:g} m"

    def height(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Height under (x, y), bilinear between grid points, m."""
        xp = namespace(x)
        if not self.rough:
            return xp.zeros_like(x)
        k = len(self.heights)
        gx, gy = (xp.clip((at + SIZE) / CELL, 0, k - 1.001) for at in (x, y))
        i, j = xp.astype(gy, xp.int64), xp.astype(gx, xp.int64)
        a, b, h = gy - i, gx - j, xp.asarray(self.heights)
        return (1 - a) * ((1 - b) * h[i, j] + b * h[i, j + 1]) + a * ((1 - b) * h[i + 1, j] + b * h[i + 1, j + 1])

    def places(self, rng: Draw, n: int) -> np.ndarray:
        """Starting points (n, 2): one place when flat, the inner half when rough."""
        return rng.uniform(-SIZE / 2, SIZE / 2, (n, 2)) if self.rough else np.zeros((n, 2))

    def top(self, xy: np.ndarray) -> np.ndarray:
        """Highest ground within a stance around each place, m."""
        reach = [(dx, dy) for dx in (-0.25, 0.0, 0.25) for dy in (-0.15, 0.0, 0.15)]
        xp = namespace(xy)
        return xp.amax(xp.stack([self.height(xy[:, 0] + dx, xy[:, 1] + dy) for dx, dy in reach]), 0)


FLAT = Ground()
