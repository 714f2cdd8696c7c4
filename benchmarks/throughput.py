"""How fast experience is made: against the engine's own limit, against other vector envs, and in how much memory.

python -m benchmarks.throughput [--only limit|randomization|peers|memory|checkpoints] [--quick] [--json] [--record]
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from mujoco.batch import Batch

from benchmarks import measure, versus
from benchmarks.drivers import DRIVERS
from benchmarks.measure import Row, interleaved, row
from surefoot import tasks
from surefoot.belief import Belief
from surefoot.blocks import Blocks, share, sizes
from surefoot.env import Env
from surefoot.learn.collect import Draws, LocalCollector, Obs
from surefoot.learn.on_policy.ppo import PPO
from surefoot.learn.run import Run
from surefoot.learn.train import settings_for, train

GOALS = {
    ("walk", 1024): 0.93, ("hover", 4096): 0.88, ("balance", 4096): 0.80,
    ("hover", 1024): None, ("balance", 1024): None,
}  # fmt: skip
STEPS = {"walk": 24, "hover": 48, "balance": 96}  # env steps in a stretch
AGE = 50  # env steps before anything is timed, so that robots have landed and thrown drones have levelled
MIB = 2**20


class Watched:
    """A Batch that keeps the state each of its steps began from: positions, controls, forces, warm starts and all."""

    def __init__(self, batch: Batch):
        self.batch, self.starts = batch, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def step(self, ids: np.ndarray | None, nstep: int) -> None:
        self.starts.append(self.batch.state.copy())
        self.batch.step(ids, nstep=nstep)


class Course:
    """A stretch of env steps that can be run again and again from one start: the same actions, states, resets and e.

    Its envs are in blocks, as in training, or all in one.
    """

    def __init__(self, name: str, n: int, belief: Belief | None = None, whole: bool = True):
        task = tasks.resolve(name)
        first, *more = [n] if whole else sizes(n)
        threads = share(0, 1 + len(more))
        blocks = Blocks.like(tasks.env(task, first, belief or task.belief, threads=threads, stagger=True), more)
        self.name, self.blocks, self.collector, self.k = name, blocks, LocalCollector(blocks), 0
        self.go(AGE)

    def go(self, steps: int) -> list[np.ndarray]:
        def act(obs: Obs, draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            action = DRIVERS[self.name](obs, int(draws["k"][0]))
            return action, {"action": action}

        k = np.broadcast_to(np.arange(self.k, self.k + steps)[:, None], (steps, self.blocks.n))
        self.k += steps
        return list(self.collector.collect(act, steps, (), {"k": k}).kept["action"])

    def rehearse(self, steps: int) -> None:
        """Untimed: find the actions, the state that each engine call begins from, and where the stretch ends."""
        self.begin = self.collector.save()
        worlds = [env.world for env in self.blocks.envs]
        for world in worlds:
            world.batch = Watched(world.batch)
        try:
            self.actions, self.starts = self.go(steps), [world.batch.starts for world in worlds]
        finally:
            for world in worlds:
                world.batch = world.batch.batch
        self.end = self.collector.save()

    def env_time(self) -> float:
        self.collector.load(self.begin)
        steps, draws = len(self.actions), {"action": np.array(self.actions)}
        return measure.seconds(lambda: self.collector.collect(lambda obs, w: (w["action"], {}), steps, (), draws))

    def engine_time(self, batches: Sequence[Batch] | None = None) -> float:
        """The same engine calls from the same states with the same controls, and nothing else."""

        def alone(env: Env, batch: Batch, starts: Sequence[np.ndarray]) -> float:
            total = 0.0
            for start in starts:
                batch.state[:] = start
                began = time.perf_counter()
                batch.step(nstep=env.world.substeps)
                total += time.perf_counter() - began
            return total

        with ThreadPoolExecutor(len(self.blocks.envs)) as pool:  # blocks at the same time, each on its own cores
            return max(pool.map(alone, self.blocks.envs, batches or self.batches, self.starts))

    @property
    def batches(self) -> list[Batch]:
        return [env.world.batch for env in self.blocks.envs]

    def on(self) -> None:
        self.collector.load(self.end)


def limit(quick: bool) -> Iterator[Row]:
    """Env steps (actions in; observations, reward, done, auto-reset with fresh e, noise out) over Batch.step alone.

    Fair because every engine call of the limit starts from the very state, controls and per-simulation fields that the
    env step's own engine call started from, on the same batch and threads; only the calls are timed, not the restoring.
    Envs are driven by controllers that keep them in the states of training, and reset as they end, at staggered ages.
    They are stepped as in training, in blocks that take turns; `one block`: all in one Env.step, with nothing to do
    while the engine works.
    """
    for (name, n), goal in GOALS.items():
        n = 64 if quick else n
        for whole in (False, True) if sizes(n) != [n] else (True,):
            course, found = Course(name, n, whole=whole), []
            for k in range(5 if quick else measure.PAIRS + 2):
                course.rehearse(4 if quick else STEPS[name])
                runs = [course.env_time, course.engine_time]
                times = [run() for run in runs[:: 1 if k % 2 == 0 else -1]][:: 1 if k % 2 == 0 else -1]
                found.append([len(course.actions) * n / t for t in times])
                course.on()
            (env, engine), how = np.array(found).T, ", one block" if whole else ""
            yield row(
                f"{name} x {n}{how}: env step / engine's limit", env / engine, "ratio", at_least=None if whole else goal
            )
            yield row(f"{name} x {n}{how}: env step", env, "env steps/s")
            yield row(f"{name} x {n}{how}: engine's limit", engine, "env steps/s")


def randomization(quick: bool) -> Iterator[Row]:
    """What a belief costs: env steps over task.belief against the nominal one; and fields per simulation, or shared.

    Both envs run the same task in turns; the nominal one has the same parameters, each at its nominal value. The second
    ratio is of the engine alone, from the same states, with the fields of e one for each simulation or one for all.
    """
    for name, n in (("walk", 1024), ("hover", 1024), ("balance", 1024)):
        n = 64 if quick else n
        steps, rounds = (4, 5) if quick else (STEPS[name], 2 * measure.PAIRS + 1)
        over, fixed = Course(name, n), Course(name, n, tasks.nominal(tasks.resolve(name)))
        runs = {k: lambda c=c, steps=steps: _speed(c, steps) for k, c in (("over", over), ("fixed", fixed))}
        speed = interleaved(runs, rounds)
        ratio = speed["over"] / speed["fixed"]
        yield row(f"{name} x {n}: env step over the belief / nominal", ratio, "ratio", at_least=0.95)
        over.rehearse(steps)
        batches = {"own": over.batches, "shared": [Batch(over.blocks.world.model, n)]}
        spent = interleaved({k: lambda b=b, c=over: c.engine_time(b) for k, b in batches.items()})
        yield row(f"{name} x {n}: engine with own fields / shared fields", spent["shared"] / spent["own"], "ratio")


def _speed(course: Course, steps: int) -> float:
    """Env steps a second; the driver's own time is not counted."""
    course.rehearse(steps)
    taken = course.env_time()
    course.on()
    return steps * course.blocks.n / taken


MEMORY = """
import sys, pathlib
from surefoot import tasks
import numpy as np
def kib(key):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(key))
before = kib("VmRSS")
task = tasks.resolve("walk")
env = tasks.env(task, int(sys.argv[1]), task.belief, stagger=True)
env.reset()
for _ in range(10):
    env.step(np.zeros((env.n, 12)))
print(kib("VmRSS") - before, kib("VmHWM") - before)
"""


def memory(quick: bool) -> Iterator[Row]:
    """Resident memory of 4096 walk envs above that of a process that has only imported surefoot, in a fresh process."""
    n = 64 if quick else 4096
    if not Path("/proc/self/status").exists():
        yield measure.skipped(f"walk x {n}: memory", "needs Linux's /proc")
        return
    found = []
    for _ in range(1 if quick else 3):
        out = subprocess.run([sys.executable, "-c", MEMORY, str(n)], capture_output=True, text=True, check=True)
        found.append([int(x) / 1024 for x in out.stdout.split()])
    now, peak = np.array(found).T
    yield row(f"walk x {n}: memory above the interpreter", now, "MiB", at_most=1024)
    yield row(f"walk x {n}: its peak", peak, "MiB")


def checkpoints(quick: bool) -> Iterator[Row]:
    """Share of a real training run's wall time that goes into Learner.save and Run.save, the last save included."""
    name, steps = ("balance", 20_000) if quick else ("walk", 600_000)
    spent: list[float] = []
    undo = [_timed(owner, spent) for owner in (PPO, Run)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            belief, settings = tasks.resolve(name).belief, settings_for(name, {"steps": steps})
            wall = measure.seconds(lambda: train(name, Path(folder) / "run", belief=belief, settings=settings))
    finally:
        for put_back in undo:
            put_back()
    each = [1000 * (a + b) for a, b in zip(spent[::2], spent[1::2])]  # Learner.save, then Run.save
    note = f"{len(each)} saves in {wall:.0f} s"
    yield row(f"{name}: checkpoints' share of training", sum(spent) / wall, "of wall time", at_most=0.02, note=note)
    yield row(f"{name}: one checkpoint", each, "ms")


def _timed(owner: type, spent: list[float]) -> Callable[[], None]:
    """Count the time in owner.save; returns how to undo it."""
    save = owner.save

    def timed(*args: Any) -> Any:
        began = time.perf_counter()
        try:
            return save(*args)
        finally:
            spent.append(time.perf_counter() - began)

    owner.save = timed
    return lambda: setattr(owner, "save", save)


PARTS: dict[str, measure.Part] = {
    "limit": limit, "randomization": randomization, "peers": versus.peers, "memory": memory, "checkpoints": checkpoints,
}  # fmt: skip

if __name__ == "__main__":
    measure.main("throughput", __doc__.split("\n")[0], PARTS)
