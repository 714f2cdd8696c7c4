"""A link of your own: a robot whose driver speaks lines of JSON over TCP. Here the driver is faked, and the run is dry.

{"t": 1.25, "q": [...], "v": [...], "damped": false}  <-  robot        {"target": [...], "kp": [...], "kd": [...]}  ->  robot
"""

import json
import socket
import threading
import time
from pathlib import Path

import numpy as np

import surefoot as sf
from surefoot.deploy.links import About, Command, Packet
from surefoot.deploy.manifest import read
from surefoot.deploy.runtime.loop import Settings, drive

JOINTS, ACTUATORS = ("slide", "hinge"), ("push",)


class JsonLink:  # 30 lines: all that a robot needs
    def __init__(self, rest: str):
        host, port = rest.split(":")
        self.where, self.rest, self.count, self.damped = (host, int(port)), b"", 0, False

    def open(self) -> About:
        self.socket = socket.create_connection(self.where, timeout=5)
        self.socket.setblocking(False)
        return About({"joint_pos": JOINTS, "joint_vel": JOINTS, "control": ACTUATORS}, rate=200.0, name="json robot")

    def read(self) -> Packet | None:
        try:
            self.rest += self.socket.recv(65536)
        except BlockingIOError:
            pass
        line, newline, after = self.rest.partition(b"\n")
        if not newline:
            return None
        self.rest, self.count, said = after, self.count + 1, json.loads(line)
        self.damped = said["damped"]
        readings = {"joint_pos": np.array(said["q"]), "joint_vel": np.array(said["v"])}
        return Packet(
            self.count, said["t"], readings, "damping" if self.damped else "driven" if said["driven"] else "held"
        )

    def send(self, command: Command) -> None:
        words = {
            "mode": command.mode,
            "target": command.target.tolist(),
            "kp": command.kp.tolist(),
            "kd": command.kd.tolist(),
        }
        self.socket.sendall(json.dumps(words).encode() + b"\n")

    def damp(self) -> None:
        self.socket.sendall(b'{"mode": "damping"}\n')

    def acknowledged(self) -> bool | None:
        return self.damped

    def close(self) -> None:
        self.socket.close()


def driver(listener: socket.socket) -> None:
    """The faked driver: a cart at rest, whose encoders tremble."""
    to, _ = listener.accept()
    start = time.monotonic()
    with to:
        while True:
            t = time.monotonic() - start
            said = {"t": t, "q": [1e-4 * np.sin(9 * t), 0.0], "v": [0.0, 0.0], "damped": False, "driven": False}
            try:
                to.sendall(json.dumps(said).encode() + b"\n")
            except OSError:
                return
            time.sleep(0.005)


if __name__ == "__main__":
    bundle = read(Path(sf.export("balance", "bundle")))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=driver, args=(listener,), daemon=True).start()
        address = f"__main__:JsonLink://127.0.0.1:{listener.getsockname()[1]}"
        done = drive(bundle, address, Settings(live=False, seconds=1.0))
    assert done.log is not None
    print(
        f"{done.about.name}: {done.counts.periods} periods, {done.counts.sent} commands sent, {done.states.cause.why}"
    )
    print(f"observation {done.log['observation'].shape}, action {done.log['action'].shape}")
