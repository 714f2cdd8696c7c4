"""Many processes: the same bits, what they cost, and what is predicted beyond this machine.

bits       final weights with 1, 2 and 4 local workers and on clusters of 2 and 3 nodes, against one process
killed     the same with a worker killed -9 at random instants
overhead   env steps a second with 2 workers against one process, interleaved; bytes over the wire for each env step
realities  a gate's ten realities side by side against one after the other
shards     an update shared by two processes: what it takes
skill      and what is learned with it
model      the cost model fitted to 1 and 2 workers, against 4; and its prediction for 10 to 1000
warp       mujoco-warp against MuJoCo's threads: one control period, and 1 s
"""

import hashlib
import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row, skipped
from surefoot import tasks
from surefoot.learn.build import build
from surefoot.learn.cluster.address import On
from surefoot.learn.cluster.cost import Cost
from surefoot.learn.cluster.ray_workers import connect, disconnect
from surefoot.learn.collect import Elsewhere
from surefoot.learn.envs import Place
from surefoot.learn.run import Run
from surefoot.learn.run.parents import Parents
from surefoot.learn.train import plan, settings_for, train
from surefoot.rng import training
from surefoot.tasks.provenance import provenance

BUDGETS = {"balance": (1030, 3), "hover": (1030, 3), "walk": (1030, 3)}  # envs: two blocks, four tiles; iterations
HORIZON = 8
KILLS = 10


def digest(folder: Path) -> str:
    """Of the last checkpoint: weights, normalisers, optimiser, and where every env stands."""
    newest = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    return hashlib.sha256(newest.read_bytes()).hexdigest()


def trained(name: str, on: On | None, watch=None, budget: tuple[int, int] | None = None) -> str:
    n, iterations = budget or BUDGETS[name]
    settings = settings_for(name, {"envs": n, "horizon": HORIZON, "minibatches": 4, "steps": n * HORIZON * iterations})
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train(name, out, settings=settings, belief=tasks.resolve(name).belief, seed=7, on=on, watch=watch)
        return digest(out)


def bits(quick: bool) -> Iterator[Row]:
    names = ["balance"] if quick else list(BUDGETS)
    alone = {name: trained(name, None) for name in names}
    connect(On("", 4))
    try:
        for w in (2,) if quick else (1, 2, 4):
            same = [trained(name, On("", w)) == alone[name] for name in names]
            yield row(f"{w} local workers: equal weights of {', '.join(names)}", sum(same), "runs", at_least=len(names))
    finally:
        disconnect()
    for nodes in () if quick else (2, 3):
        with cluster(nodes) as on:
            same = [trained(name, on) == alone[name] for name in names]
        yield row(
            f"cluster of {nodes} nodes: equal weights of {', '.join(names)}", sum(same), "runs", at_least=len(names)
        )


@contextmanager
def cluster(nodes: int) -> Iterator[On]:
    """Nodes of a core each, as of many machines."""
    from ray.cluster_utils import Cluster

    there = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(nodes - 1):
        there.add_node(num_cpus=1)
    on = On(there.address, nodes)
    try:
        connect(on)
        yield on
    finally:
        disconnect()
        there.shutdown()


def workers() -> list[int]:
    """Processes that hold envs."""
    return named(b"ray::Held")


def named(start: bytes) -> list[int]:
    """Processes whose command begins so."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [int(path.parent.name)] if path.read_bytes().startswith(start) else []
        except OSError:
            continue
    return sorted(found)


def killed(quick: bool) -> Iterator[Row]:
    """A thread kills a worker at an instant drawn anew for each run; the instants are not in step with the rollouts."""
    budget, rng = (200, 12), np.random.default_rng(0)
    alone = trained("hover", None, budget=budget)
    connect(On("", 2))
    same = deaths = 0
    count = 2 if quick else KILLS
    try:
        for _ in range(count):
            ready, dead = threading.Event(), list[int]()
            instant = ready, float(rng.uniform(0, 0.6)), int(rng.integers(2)), dead
            thread = threading.Thread(target=strike, args=instant)
            thread.start()
            watch = lambda p, ready=ready: ready.set() if p.metrics else None  # noqa: E731
            same += trained("hover", On("", 2), watch, budget) == alone
            thread.join()
            deaths += len(dead)
    finally:
        disconnect()
    yield row("runs with a worker killed -9 at a random instant: equal weights", same, f"of {count}", at_least=count)
    yield row("workers that were alive to be killed", deaths, f"of {count}")


def strike(ready: threading.Event, after: float, which: int, dead: list[int]) -> None:
    """Kill a worker so many seconds after the first iteration."""
    ready.wait()
    time.sleep(after)
    if len(found := workers()) > which:
        os.kill(found[which], signal.SIGKILL)
        dead.append(found[which])


class Trainer:
    """A learner that can be asked for iterations, with or without workers."""

    def __init__(self, name: str, n: int, on: On | None, threads: int = 0, **more: int):
        self.folder = TemporaryDirectory()
        settings = settings_for(name, {"envs": n, "horizon": 24, "minibatches": 4, "steps": 10**9} | more)
        task = tasks.resolve(name)
        spec, _ = plan(name, settings=settings, belief=task.belief)
        made = {"provenance": provenance(task, name).to_json()}
        self.run = Run.create(Path(self.folder.name) / "run", spec.to_json() | made)
        self.learner = build(spec, task, Parents(), Place(threads, on, name), self.run)
        self.batch = settings.batch
        for _ in range(2):
            self.learner.iterate()

    def parts(self) -> tuple[float, float]:
        """Seconds of an iteration's rollout, and of the rest."""
        learner, began = self.learner, time.perf_counter()
        rollout = learner.collect()  # type: ignore[attr-defined]
        then = time.perf_counter()
        learner.update(rollout, *learner.estimate(rollout))  # type: ignore[attr-defined]
        learner.iteration += 1
        return then - began, time.perf_counter() - then

    def iterating(self) -> float:
        return measure.seconds(self.learner.iterate)

    def updating(self) -> float:
        """Seconds of one update."""
        learner: Any = self.learner
        rollout = learner.collect()
        found = learner.estimate(rollout)
        taken = measure.seconds(lambda: learner.update(rollout, *found))
        learner.iteration += 1
        return taken

    def close(self) -> None:
        self.run.close()
        self.folder.cleanup()


def cpu(pids: list[int]) -> float:
    """Seconds of processor time that this process and others have used: what counts where others use the cores, too."""
    tick, used = os.sysconf("SC_CLK_TCK"), time.process_time()
    for pid in pids:
        used += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / tick
    return used


def overhead(quick: bool) -> Iterator[Row]:
    n, rounds = (256, 1) if quick else (1024, 3)
    connect(On("", 2))
    here, there = Trainer("walk", n, None), Trainer("walk", n, On("", 2))
    try:
        used: dict[str, list[float]] = {"here": [], "there": []}

        def both(name: str, trainer: Trainer) -> float:
            before = cpu(workers())
            wall = trainer.iterating()
            used[name].append(cpu(workers()) - before)
            return wall

        turns = {name: lambda n=name, t=t: both(n, t) for name, t in (("here", here), ("there", there))}
        found = measure.interleaved(turns, rounds)
        spent = np.array(used["here"]) / np.array(used["there"])
        yield row(
            "walk, 2 workers: env steps for each second of processor time against one process",
            spent,
            "ratio",
        )
        yield row(
            "walk, 2 workers: env steps/s against one process", found["here"] / found["there"], "ratio", at_least=0.85
        )
        yield row("walk, one process", here.batch / found["here"], "env steps/s")
        yield row("walk, 2 workers", there.batch / found["there"], "env steps/s")
        yield from wire(there)
    finally:
        here.close(), there.close()
        disconnect()


def wire(there: Trainer) -> Iterator[Row]:
    """Bytes of what is sent and received, as Ray packs it, of one more iteration."""
    sent, received = [], []
    env = there.learner.env
    assert isinstance(env, Elsewhere)
    own_share, own_each = env.workers.share, env.workers.each  # type: ignore[attr-defined]
    size = lambda x: len(pickle.dumps(x, protocol=5))  # noqa: E731

    def share(value):
        sent.append(size(value) * len(env.workers.shards))
        return own_share(value)

    def each(method, arguments, saved=()):
        sent.extend(size(given[1:]) for given in arguments)
        answers = own_each(method, arguments, saved)
        received.extend(size(a) for a in answers)
        return answers

    env.workers.share, env.workers.each = share, each
    there.learner.iterate()
    env.workers.share, env.workers.each = own_share, own_each
    yield row("walk: bytes to the workers for each env step", sum(sent) / there.batch, "bytes")
    yield row("walk: bytes to the learner for each env step", sum(received) / there.batch, "bytes")


def realities(quick: bool) -> Iterator[Row]:
    """Ten realities and five seeds: fifty jobs, on two nodes of a core each and in this process."""
    from surefoot.gate.candidate import candidate
    from surefoot.gate.checks import Limits
    from surefoot.gate.gate import in_part
    from surefoot.gate.plan import Plan
    from surefoot.learn.cluster.jobs import Job, Jobs
    from surefoot.rng import judging

    who, seeds = candidate(Path("balance")), range(1 if quick else 5)  # a policy that ships
    belief, worlds = tasks.nominal(who.task), range(2 if quick else 10)

    def asked(threads: int) -> list[Job]:
        plans = [Plan(realities=tuple(worlds), seed=judging(1000 + s), threads=threads) for s in seeds]
        return [
            Job(f"reality {x}", (who.files, belief, plan, Limits(), ("reality", x), None))
            for plan in plans
            for x in worlds
        ]

    answers = {}

    def timed(name: str, jobs: Jobs, threads: int) -> float:
        began = time.perf_counter()
        answers[name] = jobs.each(in_part, asked(threads))
        return time.perf_counter() - began

    with cluster(2) as on:
        there = Jobs(on)
        there.each(in_part, asked(1)[:2])  # workers have imported what they need
        turns = {
            "one": lambda: timed("one", Jobs(), 1),
            "all": lambda: timed("all", Jobs(), 0),
            "there": lambda: timed("there", there, 1),
        }
        found = measure.interleaved(turns, 1 if quick else 2)
    same = sum(a == b == c for a, b, c in zip(*answers.values()))
    n = len(answers["there"])
    yield row(f"balance, {n} realities and seeds: the same checks and evidence", same, f"of {n}", at_least=n)
    note = "on two cores that others use, too, unless the load beside this record is small"
    words = f"balance, {n} realities and seeds: time one after the other / on two nodes"
    yield row(f"{words}, a thread each", found["one"] / found["there"], "ratio", at_least=1.7, note=note)
    yield row(f"{words}, all threads against one", found["all"] / found["there"], "ratio", note=note)


def shards(quick: bool) -> Iterator[Row]:
    """Walk's update by one process and by two of a thread each."""
    connect(On("", 1))
    n, rounds = (256, 1) if quick else (1024, 5)
    alone = Trainer("walk", n, None, learner_threads=1)
    shared = Trainer("walk", n, On("", 1, 2), learner_threads=1)
    try:
        found = measure.interleaved({"one": alone.updating, "two": shared.updating}, rounds)
        yield row("walk, an update by one process of a thread", found["one"], "s")
        yield row("walk, an update shared by two", found["two"], "s")
        yield row("walk, an update: one process / two", found["one"] / found["two"], "ratio")
    finally:
        alone.close(), shared.close()
        disconnect()


def same_skill(quick: bool) -> Iterator[Row]:
    """What balance learns with its own settings, three seeds."""
    connect(On("", 1))
    try:
        for words, on in (("one process", None), ("an update shared by two", On("", 1, 2))):
            seeds = (0,) if quick else (0, 1, 2)
            yield row(f"balance, success at the end of training, {words}", [learned(on, s) for s in seeds], "of 1")
    finally:
        disconnect()


def learned(on: On | None, seed: int) -> float:
    """Success of the last tenth of the iterations."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train("balance", out, settings=settings_for("balance", {}), seed=training(seed), on=on)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = [r["success"] for r in rows if "success" in r]
    return float(np.mean(found[-max(1, len(found) // 10) :]))


def model(quick: bool) -> Iterator[Row]:
    """Fitted to 1 and 2 workers of a thread each and to an update of 1 and 2 processes; then 4 workers here, and beyond.

    B is what the learner takes in of answers that are ready, L a question without bytes; c the rest of a collection.
    """
    n, rounds = (256, 1) if quick else (1024, 5)
    connect(On("", 1 + 2 + 4 + 1 + 1))
    trainers = {w: Trainer("walk", n, On("", w), 1) for w in (1, 2, 4)}
    alone, shared = (Trainer("walk", n, On("", 1, g), 1, learner_threads=1) for g in (1, 2))
    spent: dict[int, list[tuple[float, float]]] = {w: [] for w in trainers}
    try:
        turn = lambda w, t: spent[w].append(t.parts()) or sum(spent[w][-1])  # type: ignore[func-returns-value]  # noqa: E731
        whole = measure.interleaved({str(w): lambda w=w, t=t: turn(w, t) for w, t in trainers.items()}, rounds)
        update = measure.interleaved({"one": alone.updating, "two": shared.updating}, rounds)
        steps, cores = trainers[1].batch, len(os.sched_getaffinity(0))
        received = next(r.value for r in wire(trainers[2]) if "to the learner" in r.name) or 0.0
        asking = float(np.median([_asked(trainers[4]) for _ in range(20)])) / 4
        bandwidth = received * steps / float(np.median([_taking(trainers[2]) for _ in range(rounds)]))
        row_bytes = 4.0 * _width(trainers[1])
    finally:
        for t in (*trainers.values(), shared, alone):
            t.close()
        disconnect()
    collect, rest = (np.array([np.median([x[i] for x in spent[w]]) for w in (1, 2)]) for i in (0, 1))
    once = collect - steps * received / bandwidth - asking * np.array([1, 2])
    sync = float(np.median(update["two"]) - np.median(update["one"]) / 2) - steps * row_bytes / bandwidth
    step = float((once * np.minimum([1, 2], cores)).mean()) / steps
    cost = Cost(step, received, bandwidth, asking, float(rest.mean()) / steps, row_bytes, max(sync, 0.0))
    ratio = cost.rate(steps, 4, cores) * whole["4"] / steps
    yield row(
        "walk, 4 workers on these cores: predicted / measured env steps/s", ratio, "ratio", note="goal: 0.8 to 1.2"
    )
    for w in (1, 2, 4):
        yield row(f"walk, {w} workers of a thread", steps / whole[str(w)], "env steps/s")
    for name, value, unit in (("c", 1e6 * cost.step, "us a step"), ("b", received, "bytes"), ("B", bandwidth / 1e6, "MB/s"),
                              ("L", 1e3 * asking, "ms"), ("u", 1e6 * cost.update, "us a step"), ("r", row_bytes, "bytes"),
                              ("k S, two processes", cost.sync, "s")):  # fmt: skip
        yield row(name, value, unit)
    for g in (1, 2, 8):
        yield row(f"w*: workers that {g} learners can use", cost.saturation(g), "workers")
    for w in (10, 30, 100, 300, 1000):
        for g in (1, 8):
            words = f"predicted: {w} workers on {w} cores, 1024 envs each, {g} learners"
            yield row(words, cost.rate(1024 * 24 * w, w, w, g), "env steps/s")


def _taking(there: Trainer) -> float:
    """Seconds in which the learner takes in a rollout that is ready, and puts it together."""
    from surefoot.learn.cluster import shards as room

    held: Any = there.learner.env.workers  # type: ignore[union-attr]
    taken, answer, merged = list[float](), held._answer, room.merged

    def timed(f: Any) -> Any:
        def call(*given: Any) -> Any:
            held.ray.wait([given[0]]) if f == answer else None
            began = time.perf_counter()
            found = f(*given)
            taken.append(time.perf_counter() - began)
            return found

        return call

    held._answer, room.merged = timed(answer), timed(merged)
    try:
        there.parts()
    finally:
        held._answer, room.merged = answer, merged
    return sum(taken)


def _asked(there: Trainer) -> float:
    """Seconds of asking every worker for nearly nothing."""
    ray_workers = there.learner.env.workers  # type: ignore[union-attr]
    return measure.seconds(lambda: ray_workers.each("about", [()] * len(ray_workers.shards)))


def _width(there: Trainer) -> int:
    """Numbers of a row that a shared update sends."""
    dims = {g: group.dim for g, group in there.learner.env.task.observations.items()}
    acts = len(there.learner.env.task.action.names)
    return dims["actor"] + dims["critic"] + 2 * acts + 4


def warp(quick: bool) -> Iterator[Row]:
    from importlib.util import find_spec

    if find_spec("mujoco_warp") is None:
        yield skipped("mujoco-warp", "not installed: pip install 'surefoot[gpu]'")
        return
    for name in ("balance",) if quick else ("balance", "arm", "hover", "walk"):
        first, second = parity(name)
        yield row(f"{name}: largest difference of q after one control period", first, "rad, m")
        yield row(f"{name}: largest difference of q after 1 s", second, "rad, m")


def parity(name: str, n: int = 4) -> tuple[float, float]:
    """Over worlds drawn from the task's belief, under the same random actions of a tenth."""
    task = tasks.resolve(name)
    envs = [tasks.env(task, n, task.belief, 3, 1, engine=k) for k in ("mujoco", "warp")]
    rng, found = np.random.default_rng(0), []
    for env in envs:
        env.reset(3)
    for _ in range(round(1.0 / envs[0].world.dt)):
        action = 0.1 * rng.standard_normal((n, len(task.action.names)))
        for env in envs:
            env.begin(action)
            env.world.advance()
            env.world.end()
            env.counter += 1
        found.append(float(np.abs(envs[0].world.state.q - envs[1].world.state.q).max()))
    return found[0], found[-1]


PARTS = {
    "bits": bits,
    "killed": killed,
    "overhead": overhead,
    "realities": realities,
    "shards": shards,
    "skill": same_skill,
    "model": model,
    "warp": warp,
}

if __name__ == "__main__":
    measure.main("scale", __doc__.split("\n")[0], PARTS)
