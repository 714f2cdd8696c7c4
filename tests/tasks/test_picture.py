"""Films and strips: what is drawn, what is written, and what is said where that cannot be."""

import io
import re
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from mujoco.rendering.classic import gl_context
from PIL import Image, ImageSequence

from surefoot.env import Env
from surefoot.errors import SurefootError
from surefoot.policy import Policy, Random, Zero
from surefoot.robot import Robot
from surefoot.tasks import env as make_env
from surefoot.tasks import resolve, velocity
from surefoot.tasks.ready import walk
from surefoot.tasks.rollout import contract
from surefoot.tasks.view.picture import Eye, _watch, film, record, strip

SMALL = (64, 48)


def actors(name: str, seed: int = 0, still: bool = False) -> tuple[Policy, Env]:
    task = resolve(name)
    env = make_env(task, 1, task.belief, seed, threads=1)
    told = contract(task, env.world)
    return (Zero(told) if still else Random(told)), env


@pytest.fixture(scope="module")
def drawing() -> None:
    """Skip where the machine has no OpenGL at all."""
    try:
        with Eye(actors("balance")[1], SMALL):
            pass
    except SurefootError as error:
        if "no OpenGL" not in str(error):
            raise
        pytest.skip(str(error))


def frames(gif: bytes) -> list[np.ndarray]:
    return [np.asarray(f.convert("RGB")) for f in ImageSequence.Iterator(Image.open(io.BytesIO(gif)))]


@pytest.mark.usefixtures("drawing")
class TestFilm:
    def test_a_film_has_a_frame_for_each_moment_and_the_robot_moves_in_it(self) -> None:
        seen: list[tuple[int, int]] = []
        gif = film(*actors("hover"), seconds=0.4, fps=20, size=SMALL, on_frame=lambda k, total: seen.append((k, total)))
        shots = frames(gif)
        assert len(shots) == 8
        assert {f.shape for f in shots} == {(48, 64, 3)}
        assert all((a != b).any() for a, b in zip(shots, shots[1:]))
        assert seen == [(k, 8) for k in range(1, 9)]

    def test_a_film_lasts_as_long_as_what_it_shows(self) -> None:
        gif = Image.open(io.BytesIO(film(*actors("hover"), seconds=0.3, fps=30, size=SMALL)))
        assert sum(f.info["duration"] for f in ImageSequence.Iterator(gif)) == 300  # not 9 x 33 rounded to 9 x 30
        assert gif.info["loop"] == 0

    def test_same_seed_gives_the_same_bytes_and_another_seed_another_film(self) -> None:
        one, two, other = (film(*actors("hover", seed), seconds=0.1, size=SMALL) for seed in (3, 3, 4))
        assert one == two != other

    def test_a_strip_stays_at_the_last_moment_of_an_episode_that_failed(self) -> None:
        policy, env = actors("balance", still=True)
        png = Image.open(io.BytesIO(strip(policy, env, [0.0, 6.0, 9.0], SMALL)))
        assert png.format == "PNG"
        assert png.size == (3 * 64, 48 + 20)
        first, second, third = (np.asarray(png)[:, 64 * k : 64 * (k + 1)] for k in range(3))
        assert (first != second).any()
        assert (second == third).all()  # the caption, too: why and when it failed
        assert env.counter < 6 / env.world.dt
        policy, env = actors("balance", still=True)
        with Eye(env, SMALL) as eye:
            assert [why for _, why in _watch(policy, env, [0.0, 6.0], eye, hold=True)][1].startswith("pole fell at ")
            assert abs(eye.data.qpos[1]) > 0.15  # rad: leaning, as no episode begins

    def test_a_gif_is_written_whole_beside_nothing_else(self, tmp_path: Path) -> None:
        path = record(*actors("balance"), tmp_path / "new" / "a.gif", seconds=0.08, fps=25, size=SMALL)
        assert [p.name for p in path.parent.iterdir()] == ["a.gif"]
        assert len(frames(path.read_bytes())) == 2

    def test_an_mp4_gets_every_pixel_of_every_frame(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        encoder = tmp_path / "ffmpeg"
        encoder.write_text(
            f"#!{sys.executable}\nimport sys\nopen(sys.argv[-1], 'w').write(str(len(sys.stdin.buffer.read())))\n"
        )
        encoder.chmod(encoder.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(tmp_path))
        path = record(*actors("balance"), tmp_path / "a.mp4", seconds=0.12, fps=25, size=SMALL)
        assert int(path.read_text()) == 3 * 64 * 48 * 3

    def test_a_frame_may_be_larger_than_the_model_foresaw(self) -> None:
        _, env = actors("balance")
        with Eye(env, (700, 20)) as eye:
            eye.keep()
            assert eye.draw().shape == (20, 700, 3)

    @pytest.mark.skipif(sys.platform != "linux", reason="EGL is Linux's way to draw without a display")
    def test_without_a_display_it_draws_though_mujoco_chose_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(gl_context, "GLContext", Broken)
        assert len(film(*actors("balance"), seconds=0.04, size=SMALL)) > 100


class Broken:
    """An OpenGL that cannot be had."""

    def __init__(self, width: int, height: int):
        raise RuntimeError("no such screen")


def test_no_opengl_names_what_failed_and_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    monkeypatch.setattr(gl_context, "GLContext", Broken)
    with pytest.raises(SurefootError, match=r"no OpenGL.*glfw: no such screen.*apt install libegl1.*MUJOCO_GL"):
        film(*actors("balance"), seconds=0.04, size=SMALL)


def test_what_cannot_be_drawn_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, env = actors("balance")
    with pytest.raises(SurefootError, match=r"no camera matches 'sid'; there are side, free; did you mean side\?"):
        film(policy, env, camera="sid")
    with pytest.raises(SurefootError, match=r"ends in .gif or .mp4, found '.webm'"):
        record(policy, env, tmp_path / "a.webm")
    with pytest.raises(SurefootError, match="at most 50 pictures a second, found 60"):
        film(policy, env, fps=60)
    with pytest.raises(SurefootError, match="rising order"):
        strip(policy, env, [1.0, 0.0])
    with pytest.raises(SurefootError, match="pixels, found 0 x 48"):
        film(policy, env, size=(0, 48))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(SurefootError, match=r"a.mp4: an MP4 needs ffmpeg: pip install imageio-ffmpeg, or choose a.gif"):
        record(policy, env, tmp_path / "a.mp4")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("drawing")
def test_a_robot_whose_model_has_no_camera_is_in_the_middle_of_the_picture_wherever_it_is() -> None:
    """The blue quadruped, 50 m from the origin, which mujoco's own camera would show as a dot or not at all."""
    task = velocity(Robot.text(re.sub("<camera[^>]*/>", "", walk.xml()), "quadruped"))
    env = make_env(task, 1, threads=1)
    env.reset()
    q = env.world.state.q.copy()
    q[:, :2] = 50.0, 30.0
    env.world.set_state(q, np.zeros_like(env.world.state.v))
    with Eye(env, SMALL) as eye:
        eye.keep()
        frame = eye.draw().astype(int)
    blue = frame[:, :, 2] > frame[:, :, 0] + 40
    ys, xs = np.nonzero(blue[8:])  # the sky, above, is blue, too
    assert len(xs) > 60 and abs(xs.mean() - 32) < 8
