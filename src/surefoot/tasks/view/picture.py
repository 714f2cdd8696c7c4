"""Pictures of a policy at work: a film (GIF or MP4), or a strip of stills for a report.

    picture k shows x(t_k), the state after floor(t_k / dt) control periods;  in a film t_k = k / fps

What is drawn is env 0 with its own e. One engine on one machine draws the same bits for the same policy, e and seed.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from mujoco.rendering.classic import gl_context

from surefoot.env import Env, Step
from surefoot.errors import MissingExtra, SurefootError, unknown
from surefoot.files import write
from surefoot.policy import Driver, Policy
from surefoot.sim.engine import Engine
from surefoot.tasks.view.shapes import shown

Size = tuple[int, int]  # width, height in pixels
OnFrame = Callable[[int, int], None]  # (pictures drawn so far, how many there will be)
FREE = "free"  # the name of mujoco's own camera, which sees the whole model
SIDE = (
    "side"  # the camera that is taken where none is asked for; a model without it is seen by one that follows its robot
)
NEAR, TURN, DOWN = 3.0, 120.0, -15.0  # of that one: distance in robot's radii; azimuth and elevation in degrees
FASTEST_GIF = 50  # frames/s: a GIF counts in 1/100 s, and browsers slow down what is shorter than 2/100 s
LARGEST = 4096  # pixels a side
NO_GL = (
    "on Linux install Mesa (apt install libegl1 libgl1-mesa-dri) and leave MUJOCO_GL unset, or set it to egl, "
    "to osmesa (apt install libosmesa6), or to glfw where there is a display"
)


def record(
    policy: Policy,
    env: Env,
    path: str | Path,
    seconds: float = 5.0,
    fps: float = 25,
    size: Size = (320, 240),
    camera: str = "",
    on_frame: OnFrame | None = None,
) -> Path:
    """Film the policy and write path, whole or not at all: a GIF or an MP4, as its suffix says."""
    path = Path(path)
    if path.suffix.lower() == ".gif":
        data = film(policy, env, seconds, fps, size, camera, on_frame)
    elif path.suffix.lower() == ".mp4":
        encoder = _ffmpeg(path)  # before the film, so that its lack is reported at once
        data = _mp4(_frames(policy, env, seconds, fps, size, camera, on_frame), fps, size, encoder)
    else:
        raise SurefootError(f"{path}: expected a name that ends in .gif or .mp4, found '{path.suffix}'")
    write(path, data)
    return path


def film(
    policy: Policy,
    env: Env,
    seconds: float = 5.0,
    fps: float = 25,
    size: Size = (320, 240),
    camera: str = "",
    on_frame: OnFrame | None = None,
) -> bytes:
    """A GIF that plays in real time and for ever. An episode that ends is followed by the next one."""
    _pillow()
    if fps > FASTEST_GIF:
        raise SurefootError(f"fps: a GIF shows at most {FASTEST_GIF} pictures a second, found {fps:g}")
    return _gif(list(_frames(policy, env, seconds, fps, size, camera, on_frame)), fps)


def strip(policy: Policy, env: Env, times: Sequence[float], size: Size = (320, 240), camera: str = "") -> bytes:
    """A PNG: a row of pictures of one episode at `times`, in s. Once it failed, its last moment stays and says why."""
    image, draw, font = _pillow()
    if not len(times) or min(times) < 0 or list(times) != sorted(times):
        raise SurefootError(f"times: expected seconds in rising order, found {list(times)}")
    (width, height), band = size, 20  # pixels: the captions stand above the pictures
    row, letters = image.new("RGB", (width * len(times), height + band)), font.load_default(size=12)
    with Eye(env, size, camera) as eye:
        for k, (t, (frame, failed)) in enumerate(zip(times, _watch(policy, env, times, eye, hold=True))):
            cell = image.new("RGB", (width, height + band), "white")
            cell.paste(image.fromarray(frame), (0, band))
            draw.Draw(cell).text((4, 3), failed or f"{t:.1f} s", "black", letters)
            row.paste(cell, (k * width, 0))
    out = io.BytesIO()
    row.save(out, "PNG", optimize=True)
    return out.getvalue()


class Eye:
    """Env 0 seen through one camera. `keep` takes down the moment; `draw` is the picture of the moment last kept."""

    def __init__(self, env: Env, size: Size, camera: str = ""):
        width, height = size
        if not (0 < width <= LARGEST and 0 < height <= LARGEST):
            raise SurefootError(f"size: expected width and height of 1 to {LARGEST} pixels, found {width} x {height}")
        self.batch = engine(env).batch
        self.model = self.batch.get_model(0)
        self.data = mujoco.MjData(self.model)
        cameras = [self.model.camera(i).name for i in range(self.model.ncam)]
        if camera and camera not in (*cameras, FREE):
            raise unknown("camera", camera, [*cameras, FREE], env.task.name)
        taken = camera or SIDE
        self.camera = cameras.index(taken) if taken in cameras else -1
        self.follows = not camera and SIDE not in cameras and self.model.njnt > 0
        self.radius = 0.0
        room = self.model.vis.global_
        room.offwidth, room.offheight = max(room.offwidth, width), max(room.offheight, height)
        self.option = mujoco.MjvOption()
        self.option.geomgroup[:] = shown(self.model)
        self.renderer = renderer(self.model, size)

    def keep(self) -> None:
        self.batch.get_model(0, self.model)
        self.batch.get_data(0, self.data)

    def draw(self) -> np.ndarray:
        """(height, width, 3) uint8."""
        mujoco.mj_fwdPosition(self.model, self.data)
        camera = self._following() if self.follows else self.camera
        self.renderer.update_scene(self.data, camera, self.option)
        return self.renderer.render()

    def _following(self) -> mujoco.MjvCamera:
        """The robot, of all moving things the one with most joints, in the middle and whole."""
        m, d, camera = self.model, self.data, mujoco.MjvCamera()
        root = int(np.bincount(m.body_rootid[m.jnt_bodyid]).argmax())
        camera.lookat[:] = d.subtree_com[root]
        own = m.body_rootid[m.geom_bodyid] == root
        reach = np.linalg.norm(d.geom_xpos[own] - camera.lookat, axis=1) + m.geom_rbound[own]
        self.radius = self.radius or float(reach.max(initial=0.1))
        camera.distance, camera.azimuth, camera.elevation = NEAR * self.radius, TURN, DOWN
        return camera

    def __enter__(self) -> "Eye":
        return self

    def __exit__(self, *_: object) -> None:
        self.renderer.close()


def engine(env: Env) -> Engine:
    """The mujoco world of an env: no other can be drawn."""
    if not isinstance(env.world, Engine):
        raise SurefootError(f"{env.task.name}: only a mujoco world can be drawn, found {type(env.world).__name__}")
    return env.world


def _watch(
    policy: Policy, env: Env, times: Iterable[float], eye: Eye, hold: bool = False
) -> Iterator[tuple[np.ndarray, str]]:
    """A picture at each time, and why the episode failed or "". With `hold`, the first episode's last moment stays."""
    obs, k, failed, over, drive = env.reset(), 0, "", False, Driver(policy, env.n)
    eye.keep()
    for t in times:
        while k < int(t / env.world.dt + 1e-6) and not (hold and over):
            step = env.step(drive(obs["actor"]))
            drive.begin(step.final)
            obs, k = step.obs, k + 1
            over = bool(step.terminated[0] or step.truncated[0])
            failed = f"{_why(step)} at {k * env.world.dt:.1f} s" if step.terminated[0] else ""
            if not (hold and over):  # what follows the end is already the next episode's start
                eye.keep()
        yield eye.draw(), failed


def _why(step: Step) -> str:
    ended = step.episodes
    return next((why for i, why in zip(ended.ids, ended.reason) if i == 0), "ended") if ended else "ended"


def _frames(
    policy: Policy, env: Env, seconds: float, fps: float, size: Size, camera: str, on_frame: OnFrame | None
) -> Iterator[np.ndarray]:
    if not (0 < fps < 1000 and 0 < seconds < 3600):
        raise SurefootError(f"expected fps below 1000 and seconds below 3600, found fps {fps:g} and {seconds:g} s")
    total = max(1, round(seconds * fps))
    with Eye(env, size, camera) as eye:
        for k, (frame, _) in enumerate(_watch(policy, env, [k / fps for k in range(total)], eye), start=1):
            if on_frame is not None:
                on_frame(k, total)
            yield frame


def _gif(frames: list[np.ndarray], fps: float) -> bytes:
    """One palette, from a few of the frames, so that colours do not flicker; no dither: still parts cost nothing."""
    image, _, _ = _pillow()
    palette = _palette(image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 8)])))
    pictures = [image.fromarray(f).quantize(palette=palette, dither=image.Dither.NONE) for f in frames]
    ends = [round(100 * k / fps) for k in range(len(frames) + 1)]  # 1/100 s: rounding must not add up over the film
    durations = [10 * (b - a) for a, b in zip(ends, ends[1:])]
    out = io.BytesIO()
    pictures[0].save(out, "GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0)
    return out.getvalue()


def _palette(picture: Any) -> Any:
    """192 colours where most pixels are, for a smooth ground, and 64 far apart, so that small things keep theirs."""
    image, _, _ = _pillow()
    most = picture.quantize(192, image.Quantize.MEDIANCUT).getpalette()[: 3 * 192]
    apart = picture.quantize(64, image.Quantize.MAXCOVERAGE).getpalette()[: 3 * 64]
    palette = image.new("P", (1, 1))
    palette.putpalette([*most, *apart])
    return palette


def _ffmpeg(path: Path) -> str:
    """The encoder: on the PATH, or the one that the package imageio-ffmpeg carries."""
    found = shutil.which("ffmpeg")
    if found:
        return found
    try:
        from imageio_ffmpeg import get_ffmpeg_exe

        return str(get_ffmpeg_exe())
    except (ImportError, RuntimeError):
        raise SurefootError(
            f"{path}: an MP4 needs ffmpeg: pip install imageio-ffmpeg, or choose {path.with_suffix('.gif').name}"
        ) from None


def _mp4(frames: Iterable[np.ndarray], fps: float, size: Size, encoder: str) -> bytes:
    """H.264 that every browser plays, which takes an even width and height."""
    width, height = size
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "film.mp4"
        command = [encoder, "-loglevel", "error", *raw, *even, str(out)]
        done = subprocess.run(command, input=b"".join(f.tobytes() for f in frames), capture_output=True)
        if done.returncode or not out.is_file():
            raise SurefootError(f"{encoder}: no film: {done.stderr.decode(errors='replace').strip()[-500:]}")
        return out.read_bytes()


def renderer(model: mujoco.MjModel, size: Size) -> mujoco.Renderer:
    """A renderer on the first OpenGL that works. mujoco chooses one when it is imported, and then assumes a display."""
    width, height = size
    chosen, failed = gl_context.__dict__.get("GLContext"), []
    for name in _backends():
        try:
            if name == "egl":
                gl_context.GLContext = _egl()
            return mujoco.Renderer(model, height, width)
        except Exception as error:  # each GL library fails in its own way, some only in C
            failed.append(f"{name}: {str(error).strip() or type(error).__name__}")
            gl_context.GLContext = chosen
    raise SurefootError(f"no OpenGL to draw with ({'; '.join(failed)}); {NO_GL}")


def _backends() -> list[str]:
    """What to try: the user's word alone, else the display's where there is one, else EGL, which needs none."""
    said = os.environ.get("MUJOCO_GL", "").strip()
    if said or sys.platform != "linux":
        return [said or "default"]
    return ["display", "egl"] if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") else ["egl"]


def _egl() -> type:
    from mujoco.egl import GLContext

    return GLContext


def _pillow() -> tuple[Any, Any, Any]:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise MissingExtra("a picture", "play") from None
    return Image, ImageDraw, ImageFont
