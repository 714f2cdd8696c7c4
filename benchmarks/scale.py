"""Many processes: the same bits, what they cost, and what is predicted beyond this machine.

bits       final weights with 1, 2 and 4 local workers and on clusters of 2 and 3 nodes, against one process
killed     the same with a worker killed -9 at random instants
overhead   env steps a second with 2 workers against one process, interleaved; bytes over the wire for each env step
realities  a gate's ten realities side by side against one after the other
model      the cost model fitted to 1 and 2 workers, against 4; and its prediction for 10 to 1000
warp       mujoco-warp against MuJoCo's threads: one control period, and 1 s
"""

import hashlib
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import measure
from benchmarks.measure import Row, row, skipped
from surefoot import tasks
from surefoot.learn.cluster.address import On
from surefoot.learn.cluster.cost import Cost
from surefoot.learn.cluster.ray_workers import connect, disconnect
from surefoot.learn.collect import Elsewhere
from surefoot.learn.envs import Place
from surefoot.learn.run import Run
from surefoot.learn.run.parents import Parents
from surefoot.learn.train import build, plan, settings_for, train
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
        yield _cluster(nodes, names, alone)


def _cluster(nodes: int, names: list[str], alone: dict[str, str]) -> Row:
    from ray.cluster_utils import Cluster

    there = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(nodes - 1):
        there.add_node(num_cpus=1)
    try:
        same = [trained(name, On(there.address, nodes)) == alone[name] for name in names]
    finally:
        disconnect()
        there.shutdown()
    return row(f"cluster of {nodes} nodes: equal weights of {', '.join(names)}", sum(same), "runs", at_least=len(names))


def workers() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [int(path.parent.name)] if path.read_bytes().startswith(b"ray::Held") else []
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

    def __init__(self, name: str, n: int, on: On | None):
        self.folder = TemporaryDirectory()
        settings = settings_for(name, {"envs": n, "horizon": 24, "minibatches": 4, "steps": 10**9})
        task = tasks.resolve(name)
        spec, _ = plan(name, settings=settings, belief=task.belief)
        made = {"provenance": provenance(task, name).to_json()}
        self.run = Run.create(Path(self.folder.name) / "run", spec.to_json() | made)
        self.learner = build(spec, task, Parents(), Place(0, on, name), self.run)
        self.batch = settings.batch
        for _ in range(2):
            self.learner.iterate()

    def collecting(self) -> float:
        """Seconds of one rollout."""
        return measure.seconds(self.learner.collect)  # type: ignore[attr-defined]

    def iterating(self) -> float:
        return measure.seconds(self.learner.iterate)

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
    from surefoot.belief import point
    from surefoot.gate.candidate import candidate
    from surefoot.gate.checks import Limits
    from surefoot.gate.gate import Plan, in_reality
    from surefoot.learn.cluster.jobs import Job, Jobs
    from surefoot.rng import judging

    who = candidate(Path("balance"))  # a policy that ships
    belief = point(who.task.params, who.task.params.nominal)
    each = [Plan(realities=(x,), seed=judging(1000), threads=1) for x in range(2 if quick else 10)]
    asked = [Job(f"reality {p.realities[0]}", (who.files, belief, p, Limits())) for p in each]
    answers = {}

    def timed(name: str, jobs: Jobs) -> float:
        began = time.perf_counter()
        answers[name] = [tuple(x) for x in jobs.each(in_reality, asked)]
        return time.perf_counter() - began

    connect(On("", 2))
    try:
        on = Jobs(On("", 2))
        on.each(in_reality, asked[:2])  # workers have imported what they need
        found = measure.interleaved(
            {"here": lambda: timed("here", Jobs()), "there": lambda: timed("there", on)}, 1 if quick else 2
        )
    finally:
        disconnect()
    same = sum(a == b for a, b in zip(answers["here"], answers["there"]))
    yield row("balance, ten realities: the same checks and evidence", same, f"of {len(asked)}", at_least=len(asked))
    note = "on two cores that others use, too, unless the load beside this record is small"
    yield row("balance, ten realities: time one after the other / side by side", found["here"] / found["there"], "ratio", at_least=1.7, note=note)  # fmt: skip


def model(quick: bool) -> Iterator[Row]:
    """c from the collecting of 1 and 2 workers, L and B from the rest; U from the learner. Then 4 workers on these cores."""
    n, rounds = (256, 1) if quick else (1024, 3)
    connect(On("", 4))
    trainers = {w: Trainer("walk", n, On("", w)) for w in (1, 2, 4)}
    try:
        collect = measure.interleaved({str(w): t.collecting for w, t in trainers.items()}, rounds)
        whole = measure.interleaved({str(w): t.iterating for w, t in trainers.items()}, rounds)
        steps, cores = trainers[1].batch, len(os.sched_getaffinity(0))
        received = next(r.value for r in wire(trainers[2]) if "to the learner" in r.name) or 0.0
    finally:
        for t in trainers.values():
            t.close()
        disconnect()
    one, two = (float(np.median(collect[k])) for k in ("1", "2"))
    halves = max(2 * (one - two), 1e-9)  # n T c: what two cores halve
    rest = max(one - halves, 1e-6)
    update = max(float(np.median(whole["2"])) - two, 1e-6)
    cost = Cost(halves / steps, received, received * steps / rest, 1e-3, update / steps)
    real = steps / float(np.median(whole["4"]))
    yield row("walk, 4 workers on these cores: predicted / measured env steps/s", cost.rate(steps, 4, cores) / real, "ratio", note="goal: 0.8 to 1.2")  # fmt: skip
    yield row("c", 1e6 * cost.step, "us a step")
    yield row("B", cost.bandwidth / 1e6, "MB/s")
    yield row("u", 1e6 * cost.update, "us a step")
    yield row("w*: workers that one learner can use", cost.saturation(), "workers")
    yield row("w* with 8 learners side by side", cost.saturation(8), "workers")
    for w in (10, 100, 1000):
        yield row(f"predicted: {w} workers on {w} cores, 1024 envs each", cost.rate(1024 * 24 * w, w, w), "env steps/s")


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


PARTS = {"bits": bits, "killed": killed, "overhead": overhead, "realities": realities, "model": model, "warp": warp}

if __name__ == "__main__":
    measure.main("scale", __doc__.split("\n")[0], PARTS)
