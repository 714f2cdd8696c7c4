"""A live view of a policy in a browser: its robot, moving in real time, with the commands and e in your hands.

    each control period: sliders -> command, and e from the next reset on;  x' = f(x, policy(obs), e) -> the page

The page is served to this computer alone unless another host is asked for, to whoever has the address that was printed: it
holds a secret of this start, http://127.0.0.1:8080/SECRET/. See access.py for who is let in.
"""

import contextlib
import io
import secrets
import socket
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np

from surefoot.belief import point
from surefoot.env import Env
from surefoot.errors import MissingExtra, SurefootError
from surefoot.policy import Driver, Policy
from surefoot.rng import Draw, stream
from surefoot.sim.events import Push
from surefoot.tasks.view.access import guarded, loopback
from surefoot.tasks.view.picture import engine
from surefoot.tasks.view.reward_bars import RewardBars
from surefoot.tasks.view.shapes import Scene
from surefoot.world import Chance, OnForce, State

Say = Callable[[str], None]
REDRAW = 0.015  # s: no screen shows more pictures than that


def view(
    policy: Policy, env: Env, port: int = 8080, host: str = "127.0.0.1", say: Say = print, steps: int | None = None
) -> None:
    """Show env 0 in the browser until Ctrl-C, or for `steps` control steps. If the port is taken: the next free one."""
    token = secrets.token_urlsafe(32)
    server = serve(token, host, port)
    try:
        live = Live(policy, env, server)
        address = "localhost" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host
        say(f"{env.task.name}: http://{address}:{server.get_port()}/{token}/  (Ctrl-C ends it)")
        if not loopback(host):
            say(f"whoever has this address and can reach {host} can watch and steer this simulation")
        live.run(steps)
    except KeyboardInterrupt:
        say("viewer closed")
    finally:
        with contextlib.redirect_stdout(io.StringIO()):
            server.stop()


def serve(token: str, host: str = "127.0.0.1", port: int = 8080, pages: Collection[str] = ()) -> Any:
    """A viser server on host alone, under /token/. Left to itself viser listens on every network and can publish itself."""
    try:
        import viser
    except ImportError:
        raise MissingExtra("the viewer", "play") from None
    _bindable(host, port)
    with contextlib.redirect_stdout(io.StringIO()), guarded(host, token, pages) as took:
        server: Any = viser.ViserServer(host=host, port=port, label="surefoot", verbose=False)
    if not took:
        server.stop()
        raise SurefootError(f"the viewer: viser {viser.__version__} does not let its requests be checked; install 1.1")
    server.request_share_url = lambda verbose=True: None  # a message from the page would open a public tunnel
    server.gui.configure_theme(show_share_button=False, show_logo=False)
    return server


class Panel:
    """What the user has set. viser's threads write it at any time; it is read, and clicks taken, between two steps."""

    def __init__(self, server: Any, env: Env, follow: bool):
        gui, task = server.gui, env.task
        self.status = gui.add_markdown(task.about)
        self.pause, self.reset = gui.add_checkbox("pause", False), gui.add_button("reset")
        self.speed = gui.add_slider("speed", 0.1, 4.0, 0.1, 1.0)
        self.follow = gui.add_checkbox("follow", follow)
        push = [t for t in env.world.terms if isinstance(t, Push)]
        self.shove = Shove(push[0], env.seed) if push else None
        self.push = gui.add_button("push") if push else None
        self.command_sliders: list[Any] = []
        if task.command is not None:
            reach = _rounded(np.abs(task.command(stream(0, "viewer"), 1000)).max(0))
            with gui.add_folder("command"):
                start = zip(task.command_names, reach, env.command[0])
                self.command_sliders = [_slider(gui, name, -r, r, round(value, 2)) for name, r, value in start]
        with gui.add_folder("e, from the next reset on"):
            drawn = zip(env.belief.params, env.world.state.e[0])
            self.e_sliders = [_slider(gui, f"{p.name} {p.unit}", p.low, p.high, e, p.about) for p, e in drawn]
        self.rewards = RewardBars(gui, env)

    def command(self, rng: Draw, n: int) -> np.ndarray:
        """A Task's command that is what the sliders say."""
        return np.tile([_value(s) for s in self.command_sliders], (n, 1))

    def e(self) -> np.ndarray:
        return np.array([_value(s) for s in self.e_sliders])

    @contextlib.contextmanager
    def steering(self, env: Env) -> Iterator[None]:
        """For as long as this lasts, env has its command, e and pushes from here; then it is as it was."""
        task, belief, terms = env.task, env.belief, env.world.terms
        if task.command is not None:
            env.task = replace(task, command=self.command, command_every=env.world.dt)
        if self.shove is not None:
            env.world.terms = (*terms, self.shove)
        try:
            yield
        finally:
            env.task, env.belief, env.world.terms = task, belief, terms


class Shove(OnForce):
    """The world's own push, when a button asks for it, each time in another direction."""

    def __init__(self, push: Push, seed: int):
        self.push, self.seed, self.count, self.left = push, seed, 0, 0

    def begin(self, dt: float) -> None:
        self.count, self.left = self.count + 1, max(1, round(self.push.seconds / dt))

    def __call__(self, x: State, u: np.ndarray, chance: Chance) -> np.ndarray:
        out = np.zeros((len(x.q), x.v.shape[1]))
        if self.left:
            angle = stream(self.seed, "shove", self.count).uniform(-np.pi, np.pi)
            out[:, self.push.joint_dofs] = self.push.force * np.array([np.cos(angle), np.sin(angle)])
            self.left -= 1
        return out


class Live:
    """An env that is stepped at its control rate, shown, and steered from the page."""

    def __init__(self, policy: Policy, env: Env, server: Any):
        self.drive, self.env, self.batch = Driver(policy, env.n), env, engine(env).batch
        self.obs = env.reset()
        self.model = self.batch.get_model(0)
        self.data = mujoco.MjData(self.model)
        self.scene = Scene(server, self.model)
        self.panel = Panel(server, env, follow=self.scene.follows)
        self.episode, self.ended, self.shown = 1, "", 0.0
        self.show()
        self.scene.stand(self.data, self.panel.follow.value)

    def run(self, steps: int | None = None) -> None:
        done, due = 0, time.monotonic()
        with self.panel.steering(self.env):
            while steps is None or done < steps:
                self.obey()
                if self.panel.pause.value:
                    time.sleep(0.02)
                    continue
                self.step()
                done += 1
                due = max(due + self.env.world.dt / _value(self.panel.speed), time.monotonic() - 0.1)  # late: no race
                time.sleep(max(0.0, due - time.monotonic()))

    def obey(self) -> None:
        """Do what was clicked, and let the next reset have the e of the sliders."""
        panel, env = self.panel, self.env
        env.belief = point(env.belief.params, panel.e())
        if panel.shove is not None and _taken(panel.push):
            panel.shove.begin(env.world.dt)
        if _taken(panel.reset):
            self.obs, self.episode, self.ended = env.reset(), self.episode + 1, ""
            self.show()

    def step(self) -> None:
        step = self.env.step(self.drive(self.obs["actor"]))
        self.drive.begin(step.final)
        self.panel.rewards.step()
        self.obs = step.obs
        if step.episodes is not None and 0 in step.episodes.ids:
            self.episode, self.ended = self.episode + 1, f" · the last one ended: {step.episodes.reason[0]}"
        if time.monotonic() - self.shown >= REDRAW:
            self.show()

    def show(self) -> None:
        self.batch.get_model(0, self.model)
        self.batch.get_data(0, self.data)
        mujoco.mj_fwdPosition(self.model, self.data)
        self.scene.update(self.data, self.panel.follow.value)
        status = f"{self.env.task.about} · episode {self.episode}{self.ended}"
        if self.panel.status.content != status:
            self.panel.status.content = status
        self.shown = time.monotonic()


def _slider(gui: Any, label: str, low: float, high: float, value: float, hint: str = "") -> Any:
    low, high, value = float(low), float(high), float(np.clip(value, low, high))
    return gui.add_slider(label.strip(), low, high, (high - low) / 200, value, hint=hint or None)


def _value(slider: Any) -> float:
    """A slider's number within its range, whatever the page sent."""
    return float(np.clip(np.nan_to_num(slider.value), slider.min, slider.max))


def _taken(button: Any) -> bool:
    """Was it clicked since last asked?"""
    clicked, button.value = button.value, False
    return bool(clicked)


def _rounded(x: np.ndarray) -> np.ndarray:
    """To two digits, so that a range found by sampling reads as the one that was meant."""
    return np.array([max(float(f"{v:.1e}"), 0.1) for v in x])


def _bindable(host: str, port: int) -> None:
    """viser tries one port after another, and waits for ever where none can be had."""
    if not host or not 0 <= port < 65536:
        raise SurefootError(f"expected a host, such as 127.0.0.1, and a port of 0 to 65535, found '{host}' and {port}")
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise SurefootError(f"host: expected an address of this computer, found '{host}': {error}") from None
