"""The runtime on a robot's computer: how long a control period takes, how well the rate is kept, and how fast a fault ends in damping.

    python -m benchmarks.deploy [--only PART] [--quick] [--json] [--record]

step      us of a control period, from the bytes of a packet to the command, sent: checks, observation, net, limiter; p50 and p99
          error of the mean rate over ten minutes, and deadlines missed, at 50 Hz, 500 Hz and 1 kHz, over UDP to another process
layers    us of the controller alone, again and again in one process: a policy bare, and in a filter of joint limits
nan, nan-action, silent, frozen, hang, signal, kill
          ms from a fault to damping at the robot, which is another process: a reading or an action that is no number, silence,
          frozen readings, inference that hangs, an emergency stop, kill -9 of the runtime
same      one policy, evaluated in process and through bundle, runtime, UDP and a robot in another process: success, and actions
          on the same readings

The robot's computer must be idle. Real-time priority is used where the system allows it, and noted.
"""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row, said
from surefoot import tasks
from surefoot.control import layers
from surefoot.control.barrier import Filter
from surefoot.deploy import bundle, manifest
from surefoot.deploy.links import About, Command
from surefoot.deploy.links.robot_side import Server, UdpTransport
from surefoot.deploy.runtime import loop
from surefoot.deploy.runtime.controller import OWN, Controller
from surefoot.deploy.runtime.loop import Outcome, Settings, drive
from surefoot.deploy.runtime.priority import ROBOT, take
from surefoot.gate.bundled import bundled
from surefoot.observation import Columns, History
from surefoot.policy import Policy
from surefoot.tasks.joint_model import limits_of
from surefoot.tasks.rollout import evaluate
from surefoot.verdict import clopper_pearson

TASK, JOINTS, ACTUATOR = "balance", ("slide", "hinge"), "push"
TRIALS, EPISODES, MINUTES = 1000, 200, 10.0
PERIOD = 0.02  # s
SPEED = 4.0  # of the clock, for 200 episodes of 10 s


class Still:
    """A robot that hardly moves, and turns bad at a random step: as light as can be, so that it keeps its own time."""

    def __init__(self, rate: float, kind: str, seed: int):
        self.rate, self.kind, self.rng, self.count, self.fault = rate, kind, np.random.default_rng(seed), 0, 0.0
        self.reset(0)

    def about(self) -> About:
        return About({"joint_pos": JOINTS, "joint_vel": JOINTS, "control": (ACTUATOR,)}, self.rate, "still")

    def reset(self, run: int) -> None:
        self.steps, self.at, self.fault, self.kept, self.damped = 0, int(self.rng.integers(60, 120)), 0.0, None, False

    def readings(self) -> dict[str, np.ndarray] | None:
        self.count += 1
        found = {"joint_pos": 1e-4 * np.sin([self.count, 2.0 * self.count]), "joint_vel": np.zeros(2)}
        if self.steps < self.at or self.damped or self.kind not in ("nan", "silent", "frozen"):
            return found
        self.fault = self.fault or time.monotonic()
        self.kept = self.kept or found
        return (
            None
            if self.kind == "silent"
            else self.kept
            if self.kind == "frozen"
            else {**found, "joint_vel": np.full(2, np.nan)}
        )

    def advance(self, command: Command | None) -> None:
        self.steps += command is not None
        self.damped = command is None  # and well again: it can acknowledge
        assert command is None or np.isfinite([command.target, command.kp, command.kd]).all()


def robot(conn: Connection, rate: float, kind: str, seed: int) -> None:
    """In another process: serves a robot until told to end; tells of each damping: when the fault was, when it came, why."""
    take(ROBOT)
    transport, body = UdpTransport("127.0.0.1", 0), Still(rate, kind, seed)
    server, told = Server(body, transport, timeout=60.0), 0
    conn.send(transport.port)

    def done(s: Server) -> bool:
        nonlocal told
        for e in s.events[told:]:
            told += 1
            if e.mode == "damping":
                conn.send((body.fault, e.at, e.why))
            elif e.mode == "driven":
                conn.send(("driven", e.at, e.why))
        return conn.poll() and conn.recv() == "end"

    server.run_until(done)
    transport.close()


class Robot:
    """A robot in another process."""

    def __init__(self, rate: float = 400.0, kind: str = "", seed: int = 0):
        context = multiprocessing.get_context("spawn")
        self.conn, theirs = context.Pipe()
        self.process = context.Process(target=robot, args=(theirs, rate, kind, seed), daemon=True)
        self.process.start()
        self.address = f"udp://127.0.0.1:{self.conn.recv()}"

    def damping(self, seconds: float = 20.0) -> tuple[float, float, str]:
        """The next damping: when its fault was, when it came, why."""
        while self.conn.poll(seconds):
            found = self.conn.recv()
            if found[0] != "driven":
                return found
        raise TimeoutError("the robot was not damped")

    def driven(self) -> None:
        assert self.conn.poll(30) and self.conn.recv()[0] == "driven"

    def close(self) -> None:
        self.conn.send("end")
        self.process.join(5)


class Bad(Policy):
    """A policy that answers nan after some periods, or hangs; it notes when."""

    def __init__(self, inner: Policy, how: str, after: int):
        self.inner, self.contract, self.how, self.after, self.at = inner, inner.contract, how, after, 0.0

    def init(self, n: int) -> dict[str, np.ndarray]:
        return {"asked": np.zeros((n, 1))}

    def stop(self) -> None:
        self.at = time.monotonic()
        os.kill(os.getpid(), signal.SIGUSR1)

    def step(self, s: Any, obs: np.ndarray) -> tuple[Any, np.ndarray]:
        out = self.inner(obs)
        if s["asked"][0, 0] >= self.after:
            if self.how == "signal" and not self.at:
                self.at = np.inf
                threading.Timer(self.after % 20 / 1000, self.stop).start()  # at any part of a period
            # rehearsals are answered, too: an action that is no number is the last one
            self.at = time.monotonic() if self.how == "nan action" else self.at or time.monotonic()
            if self.how == "hang":
                time.sleep(1.0)
            out = out * np.nan if self.how == "nan action" else out
        return {"asked": s["asked"] + 1}, out


def made(folder: Path) -> manifest.Bundle:
    policy = bundle.load(Path(TASK))
    found, _ = bundled(Path(TASK), policy, tasks.resolve(TASK), {})
    return manifest.read(manifest.write(folder / "bundle", found))


def at_rate(b: manifest.Bundle, rate: float) -> manifest.Bundle:
    contract = replace(b.policy.contract, rate=rate)
    return replace(b, policy=replace(b.policy, contract=contract))  # type: ignore[type-var]


def timing(b: manifest.Bundle, rate: float, seconds: float) -> Outcome:
    r = Robot(max(200.0, 2 * rate))
    try:
        return drive(at_rate(b, rate), r.address, Settings(live=True, seconds=seconds, misses=10**9))
    finally:
        r.close()


def step_and_rate(b: manifest.Bundle, quick: bool) -> Iterator[Row]:
    seconds = 5.0 if quick else 60.0 * MINUTES
    for rate in (50.0, 500.0, 1000.0):
        said(f"rate {rate:g} Hz for {seconds:g} s")
        o = timing(b, rate, seconds)
        if o.log is None:
            yield measure.skipped(f"rate {rate:g} Hz", o.states.cause.why)
            continue
        real = "real-time priority" if o.log.meta["real_time"] else "ordinary priority"
        us = 1e6 * o.log["compute"]
        goals: tuple[float | None, float | None] = (150.0, 2000.0) if rate == 50 else (None, None)
        yield row(f"control step at {rate:g} Hz, p50", float(np.percentile(us, 50)), "us", at_most=goals[0], note=real)
        yield row(f"control step at {rate:g} Hz, p99", float(np.percentile(us, 99)), "us", at_most=goals[1], note=real)
        ticks = o.log.time + o.log["age"]  # when each period was
        periods = len(ticks) - 1 + o.counts.missed
        error = abs(periods / (ticks[-1] - ticks[0]) / rate - 1)
        note = f"{o.counts.missed} of {periods} deadlines missed, latest {1000 * o.log['late'].max():.2f} ms; ended: {o.states.cause.why}"
        yield row(f"rate error at {rate:g} Hz", 100 * error, "%", at_most=0.1 if rate == 50 else None, note=note)


def worn(b: manifest.Bundle, quick: bool) -> Iterator[Row]:
    c = b.policy.contract
    filter_ = Filter((limits_of(tasks.of(c), c, 3.0),))
    parts = {k: v for k, v in b.golden.parts.items() if k != "action"} | {"control": c.action.names}
    rows = [{k: x[i] for k, x in b.golden.readings.items() if k not in OWN} for i in range(len(b.golden.obs))]
    for name, policy in {"bare": b.policy, "in a filter of joint limits": layers.wear(b.policy, (filter_,))}.items():
        controller, spent = Controller(policy, b.manifest.limits, parts), []
        for k in range(200 if quick else 5000):
            began = time.perf_counter()
            controller.step(rows[k % len(rows)], np.zeros(0))
            spent.append(1e6 * (time.perf_counter() - began))
        yield row(f"controller, {name}: p50", float(np.percentile(spent, 50)), "us")
        yield row(f"controller, {name}: p99", float(np.percentile(spent, 99)), "us", at_most=2000.0)


def latencies(b: manifest.Bundle, kind: str, trials: int) -> tuple[list[float], int]:
    """Seconds from fault to damping of each trial in which it came, and how many did not end by this fault."""
    found, other = [], 0
    r = Robot(kind=kind, seed=1)
    try:
        for k in range(trials):
            policy = Bad(b.policy, kind, 30 + k % 20) if kind in ("nan action", "hang", "signal") else b.policy
            o = drive(replace(b, policy=policy), r.address, Settings(live=True, seconds=30.0))  # type: ignore[arg-type]
            fault, came, _ = r.damping()
            fault = policy.at if isinstance(policy, Bad) else fault
            if fault and o.states.cause.event in ("fault", "stop"):
                found.append(came - fault)
            other += not fault
    finally:
        r.close()
    return found, other


CHILD = """
import sys
from pathlib import Path
from surefoot.deploy import manifest
from surefoot.deploy.runtime.loop import Settings, drive
drive(manifest.read(Path(sys.argv[1])), sys.argv[2], Settings(live=True, seconds=60))
"""


def killed(folder: Path, trials: int) -> list[float]:
    """The runtime is a process of its own, killed at a random instant."""
    r, rng, found = Robot(), np.random.default_rng(2), []
    try:
        for _ in range(trials):
            child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder), r.address], stdout=subprocess.DEVNULL)
            r.driven()
            time.sleep(rng.uniform(0.1, 0.3))
            at = time.monotonic()
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            found.append(r.damping()[1] - at)
    finally:
        r.close()
    return found


GOALS = {"nan": 1, "nan action": 1, "silent": 2, "frozen": 2, "hang": 5, "signal": 1, "kill": 5}  # periods of 20 ms
WORDS = {
    "nan": "a reading that is no number", "nan action": "an action that is no number", "silent": "no readings",
    "frozen": "frozen readings", "hang": "inference that hangs", "signal": "emergency stop by a signal", "kill": "kill -9",
}  # fmt: skip


def fault(kind: str) -> Callable[[manifest.Bundle, bool], Iterator[Row]]:
    """One kind a part: a thousand trials take half an hour, and another kind can be measured another day."""

    def rows(b: manifest.Bundle, quick: bool) -> Iterator[Row]:
        trials = 3 if quick else TRIALS
        loop.LISTEN = 0.1  # a trial begins sooner; nothing is measured before
        said(f"{trials} trials: {WORDS[kind]}")
        found, other = (killed(b.path, trials), 0) if kind == "kill" else latencies(b, kind, trials)
        ms, most = 1000 * np.array(found or [np.inf]), 1000 * PERIOD * GOALS[kind]
        within, load = int((ms <= most).sum()), os.getloadavg()[0]
        note = f"largest of {len(found)} of {trials}, {within} within the goal, {other} ended otherwise; median {np.median(ms):.1f} ms, p99 {np.percentile(ms, 99):.1f} ms; load {load:.1f} at the end"  # fmt: skip
        yield row(f"{WORDS[kind]} to damping", float(ms.max()), "ms", at_most=most, note=note)

    return rows


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def same(b: manifest.Bundle, quick: bool) -> Iterator[Row]:
    episodes, port = (3, free_port()) if quick else (EPISODES, free_port())
    task = tasks.of(b.policy.contract)
    said(f"{episodes} episodes in process")
    inside = evaluate(b.policy, tasks.env(task, episodes, tasks.nominal(task), seed=10**6))
    said(f"{episodes} episodes over UDP")
    job = [sys.executable, "-m", "surefoot", "robot", TASK, "--runs", str(episodes), "--speed", f"{SPEED:g}", "--port", str(port), "--json"]  # fmt: skip
    process = subprocess.Popen(job, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    worst, stopped = 0.0, []
    for _ in range(episodes):
        o = drive(b, f"udp://127.0.0.1:{port}", Settings(live=True, seconds=task.seconds + 0.2, speed=SPEED))
        worst = max(worst, difference(b, o))
        stopped += [] if o.good else [o.states.cause.why]
    facts = json.loads(process.communicate(timeout=60)[0])
    good = int(facts["success"])
    low, high = clopper_pearson(good, len(facts["runs"]))
    yield row("success in process", 100 * inside.rate, "%", note=f"{episodes} episodes, {100 * inside.interval[0]:.1f} to {100 * inside.interval[1]:.1f}")  # fmt: skip
    yield row("success over UDP", 100 * good / len(facts["runs"]), "%", at_least=100 * inside.interval[0], note=f"{len(facts['runs'])} episodes, {100 * low:.1f} to {100 * high:.1f}; goal: within the other's interval; the runtime ended {len(stopped)} early{': ' + stopped[0] if stopped else ''}")  # fmt: skip
    yield row("actions on the same readings, largest difference", worst, "", at_most=1e-5)


def difference(b: manifest.Bundle, o: Outcome) -> float:
    """Of logged actions from those that the contract and the net make of the logged readings, all rows at once."""
    if o.log is None:
        return np.inf
    c, log = b.policy.contract, o.log
    readings = {k: log[k] for k in ("joint_pos", "joint_vel")}
    frames = c.observation.finish(c.observation.raw(Columns(readings, {k: JOINTS for k in readings}), len(log)))
    history = History(c.observation, 1)
    obs = np.array([history.push(f[None], np.array([0] if k == 0 else [], int))[0] for k, f in enumerate(frames)])
    return float(np.abs(c.action.bounded(b.policy(obs)) - log["action"]).max())


def part(what: Callable[[manifest.Bundle, bool], Iterator[Row]]) -> measure.Part:
    def rows(quick: bool) -> Iterator[Row]:
        with tempfile.TemporaryDirectory() as folder:
            yield from what(made(Path(folder)), quick)

    return rows


if __name__ == "__main__":
    kinds = {kind.replace(" ", "-"): part(fault(kind)) for kind in GOALS}
    parts = {"step": part(step_and_rate), "layers": part(worn), **kinds, "same": part(same)}
    measure.main("deploy", (__doc__ or "").split("\n")[0], parts)
