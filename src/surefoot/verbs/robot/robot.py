"""surefoot robot: a simulated robot in a process of its own, in real time, for `surefoot run` to drive."""

import signal
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from surefoot.errors import SurefootError
from surefoot.report import Block, Column, Progress, Report, Table, Text, Watch
from surefoot.verbs.arguments import reality_of

if TYPE_CHECKING:
    from surefoot.deploy.links.robot_side import Server, Transport
    from surefoot.tasks.live_robot import LiveRobot

SHOW, LINGER = 0.5, 0.3  # s between two lines of progress, and after the last run's end


@dataclass(frozen=True)
class Robot:
    task: Positional[str]
    """a task by name, file or module"""
    reality: int | None = None
    """seed of a hidden reality; default: the nominal robot"""
    ingredient: tuple[str, ...] = ()
    """name=strength, from 0 to 1: effects that make up the reality, instead of what its seed draws"""
    port: int = 9870
    """UDP port on this computer"""
    host: str = "127.0.0.1"
    """address to listen at; others than 127.0.0.1 let the network drive the robot"""
    latency: float = 0.0
    """s by which every message is late, both ways"""
    jitter: float = 0.0
    """s: standard deviation of further delay"""
    loss: float = 0.0
    """share of messages lost, 0 to 1"""
    runs: int = 0
    """end after so many runs; 0: on Ctrl-C"""
    timeout: float = 0.5
    """s without a command after which the robot lowers itself"""
    speed: float = 1.0
    """speed of its clock, as a multiple of real time; give `surefoot run --speed` the same"""
    command: tuple[float, ...] = ()
    """the command that `surefoot run` is given, by which its runs are judged; default: zeros"""
    seed: int = 0
    """seed of starts and noise"""
    gantry: Literal["auto", "yes", "no"] = "auto"
    """hang the base from a gantry until the policy's first command; auto: if the robot falls while nobody balances it"""

    def run(self, watch: Watch) -> Report:
        from surefoot import tasks
        from surefoot.deploy.links.robot_side import Server
        from surefoot.sim.realities import Reality, realities
        from surefoot.tasks.live_robot import LiveRobot, falls

        task = tasks.resolve(self.task)
        nominal = Reality(0, {}) if self.reality is None else realities(self.reality, task)
        body = LiveRobot(
            task,
            reality_of(self.reality or 0, self.ingredient) if self.ingredient else nominal,
            self.seed,
            self.command,
            hangs=self.gantry == "yes" or (self.gantry == "auto" and falls(task)),
        )
        transport = self._transport()
        server = Server(body, transport, self.timeout, self.speed)
        try:
            self._serve(server, body, watch)
        finally:
            transport.close()
        body.land()
        return _report(self, server, body)

    def _transport(self) -> "Transport":
        from surefoot.deploy.links.robot_side import Impaired, UdpTransport

        for name, most in (("latency", 1.0), ("jitter", 1.0), ("loss", 1.0)):
            if not 0 <= getattr(self, name) <= most:
                raise SurefootError(f"--{name}: expected 0 to {most:g}, found {getattr(self, name):g}")
        try:
            plain = UdpTransport(self.host, self.port)
        except OSError as error:
            raise SurefootError(f"--port: {self.host}:{self.port}: {error.strerror or error}") from None
        return Impaired(plain, self.latency, self.jitter, self.loss, self.seed)

    def _serve(self, server: "Server", body: "LiveRobot", watch: Watch) -> None:
        from surefoot.deploy.runtime.priority import ROBOT, real_time

        where = f"udp://{self.host}:{self.port}"
        watch(
            Progress(
                f"{server.about.name}{' on a gantry' if body.gantry else ''} at {where}; in another terminal: surefoot run BUNDLE --link {where} --live",
                stays=True,
            )
        )
        ended: list[int] = []
        before = {n: signal.signal(n, lambda n, _: ended.append(n)) for n in (signal.SIGINT, signal.SIGTERM)}
        stop = signal.signal(signal.SIGUSR1, lambda n, _: server.stop())
        shown = [0.0, 0.0]

        def done(s: "Server") -> bool:
            now = time.monotonic()
            if now - shown[0] > SHOW:
                shown[0] = now
                watch(Progress(f"{s.mode}  {body.steps * body.dt:6.1f} s  run {s.runs}  {len(s.listeners)} listening"))
            over = bool(self.runs) and s.runs >= self.runs and s.mode in ("damping", "stopped")
            shown[1] = (shown[1] or now) if over else 0.0
            return bool(ended) or (over and now - shown[1] > LINGER)

        try:
            with real_time(ROBOT):
                server.run_until(done)
        finally:
            for n, handler in {**before, signal.SIGUSR1: stop}.items():
                signal.signal(n, handler)


def _report(asked: Robot, server: "Server", body: "LiveRobot") -> Report:
    flights = [asdict(f) for f in body.flights]
    facts: dict[str, Any] = {
        "task": body.task.name, "rate": server.about.rate, "runs": flights, "success": sum(f["success"] for f in flights),
        "events": [asdict(e) for e in server.events], "mode": server.mode, "gantry": body.gantry is not None,
    }  # fmt: skip
    rows = [
        [f["run"] + 1, f["seconds"], f["ended"] or "cut short", f["error"], "yes" if f["success"] else "no"]
        for f in flights
    ]
    columns = ["run", Column("seconds", form=".2f"), "ended", Column("error", body.task.error_unit, ".4g"), "success"]
    blocks: list[Block] = [Table.of(columns, rows)] if rows else [Text("nobody drove it")]
    return Report(f"robot of {body.task.name}", facts, tuple(blocks))
