"""train(task, belief) -> policy: the loop around a learner: progress, checkpoints, and a way back after any stop."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from surefoot import files, tasks
from surefoot.belief import Belief
from surefoot.deploy import bundle
from surefoot.errors import SurefootError, unknown
from surefoot.learn.ppo import PPO, Learner
from surefoot.learn.run import Run
from surefoot.policy import Net
from surefoot.task import Env
from surefoot.tasks.rollout import contract

SAVE_EVERY = 10.0  # s between checkpoints
BAD_SHARE = 0.01  # of a batch's transitions: with more diverged, the model or the belief is at fault


@dataclass(frozen=True)
class Progress:
    """What a watcher is told after each iteration."""

    metrics: dict[str, Any]
    iteration: int
    iterations: int
    seconds: float
    steps_per_second: float
    said: tuple[str, ...]


Watcher = Callable[[Progress], None]


class Stopped(Exception):
    """Training was asked to stop by a signal and has saved where it stands."""

    def __init__(self, signum: int, folder: Path):
        self.signum, self.folder = signum, folder
        super().__init__(f"stopped by {signal.Signals(signum).name}; go on with: surefoot train --resume {folder}")


def settings_for(task_name: str, changes: dict[str, Any] | None = None) -> PPO:
    """The task's tuned settings, with changes."""
    known = PPO.__dataclass_fields__
    for k in changes or {}:
        if k not in known:
            raise unknown("setting", k, known)
    return PPO(**{**tasks.make(task_name).settings, **(changes or {})})


def train(
    task_name: str,
    out: Path,
    seed: int = 0,
    belief: Belief | None = None,
    settings: PPO | None = None,
    threads: int = 0,
    watch: Watcher | None = None,
    save_every: float = SAVE_EVERY,
) -> Path:
    """Train from the start over a belief (None: the nominal world); returns the path of the policy."""
    settings = settings or settings_for(task_name)
    belief = belief or tasks.nominal(tasks.make(task_name))
    about = {"task": task_name, "seed": seed, "belief": belief.to_json(), "settings": asdict(settings)}
    run = Run.create(out, about)
    try:
        return _go(run, _learner(run, about, threads), watch, save_every)
    finally:
        run.close()


def resume(folder: Path, threads: int = 0, watch: Watcher | None = None, save_every: float = SAVE_EVERY) -> Path:
    """Go on from the newest whole checkpoint, to the same bits as if nothing had happened."""
    run, about = Run.open(folder)
    try:
        learner = _learner(run, about, threads)
        saved = run.newest()
        if saved is not None:
            learner.load(*saved)
        run.rewind(learner.iteration)
        differs = run.note_resume(about, learner.iteration)
        if differs:
            run.said.append("not bit-exact: this run began under " + "; ".join(differs))
        return _go(run, learner, watch, save_every)
    finally:
        run.close()


def _learner(run: Run, about: dict[str, Any], threads: int) -> Learner:
    task, seed = tasks.make(about["task"]), int(about["seed"])
    where = str(run.folder / "run.json")
    told: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in about["settings"].items()}
    try:
        settings = PPO(**told)
    except TypeError as error:
        raise SurefootError(f"{where}: settings: {error}") from error
    belief = Belief.from_json(about["belief"], where)
    env = tasks.env(task, settings.envs, belief, seed, threads, stagger=True)
    env.on_divergence = lambda i, why: _keep(run, env, i)
    return Learner(env, settings, seed)


def _keep(run: Run, env: Env, i: int) -> None:
    """What led a simulation to diverge, and the task to replay it in."""
    arrays = env.world.bundle(i) | {
        "env": np.array(i),
        "step": np.array(env.counter),
        "task": np.array(env.task.name),
        "seed": np.array(env.seed),
    }
    run.bundle(f"step{env.counter:08d}_env{i:05d}", arrays)


def _go(run: Run, learner: Learner, watch: Watcher | None, save_every: float) -> Path:
    """Iterate to the end, saving on the way; each checkpoint is followed by the policy as it then is."""
    from torch.utils.tensorboard import SummaryWriter

    total, began, first = learner.settings.iterations, time.monotonic(), learner.iteration
    board = SummaryWriter(str(run.folder), purge_step=learner.iteration)
    saves = _Saves(run, learner, save_every)
    with _signals() as asked, board:
        while learner.iteration < total:
            diverged = learner.env.diverged
            row = learner.iterate()
            run.log(row)
            _check_share(learner, diverged, run)
            spent = time.monotonic() - began
            rate = (learner.iteration - first) * learner.settings.batch / spent
            for k, v in (row | {"steps_per_second": rate}).items():
                board.add_scalar(k, v, learner.iteration)
            if watch is not None:
                watch(Progress(row, learner.iteration, total, spent, rate, tuple(run.said)))
                run.said.clear()
            if learner.iteration < total:
                saves.maybe(forced=bool(asked))
            if asked and learner.iteration < total:
                raise Stopped(asked[0], run.folder)
    saves.maybe(forced=True)
    return bundle.save(policy_of(learner), run.folder)


class _Saves:
    """When to save: every so many seconds, never so often that it takes over a hundredth of the time; 0: always."""

    def __init__(self, run: Run, learner: Learner, every: float):
        self.run, self.learner, self.every, self.last, self.cost = run, learner, every, time.monotonic(), 0.0

    def maybe(self, forced: bool) -> None:
        if not forced and self.every > 0 and time.monotonic() - self.last < max(self.every, 100 * self.cost):
            return
        began = time.monotonic()
        if self.run.save(*self.learner.save()):
            self._policy()
        self.last = time.monotonic()
        self.cost = self.last - began

    def _policy(self) -> None:
        """What has been learned so far, to look at while the rest is learned, or after a stop."""
        try:
            bundle.save(policy_of(self.learner), self.run.folder)
        except SurefootError as error:
            self.run.said.append(f"the policy so far was not saved ({error}); training goes on")


def _check_share(learner: Learner, before: int, run: Run) -> None:
    share = (learner.env.diverged - before) / learner.settings.batch
    if share > BAD_SHARE:
        raise SurefootError(
            f"{run.folder}: {100 * share:.1f} % of the last batch's simulations diverged, "
            f"more than {100 * BAD_SHARE:.0f} %: the model's timestep or the belief's ranges are at fault; "
            f"see {run.folder / 'diverged'}"
        )


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM, so that the iteration under way ends and is saved; a second one is not waited for."""
    asked: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(signum)

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        yield asked
        return
    try:
        yield asked
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def policy_of(learner: Learner) -> Net:
    """The learner's actor as a policy that needs neither torch nor the simulator."""
    linear = [m for m in learner.actor.body if isinstance(m, torch.nn.Linear)]
    arrays = {
        f"{k}{i}": getattr(m, name).detach().numpy().copy()
        for i, m in enumerate(linear)
        for k, name in (("w", "weight"), ("b", "bias"))
    }
    see = learner.see_actor
    arrays |= {"mean": see.mean.float().numpy().copy(), "sd": see.sd.float().numpy().copy()}
    env = learner.env
    if learner.actor.mirrored and (m := env.task.mirror) is not None:
        arrays |= {"obs_order": m.obs_order.astype(np.int64), "action_order": m.action_order.astype(np.int64)}
        arrays |= {"obs_sign": m.obs_sign.astype(np.float32), "action_sign": m.action_sign.astype(np.float32)}
    parents = {
        "model": files.sha256(env.task.xml.encode()),
        "belief": files.sha256(repr(env.belief.to_json()).encode()),
        "seed": str(learner.seed),
        "iterations": str(learner.iteration),
    }
    return Net(contract(env.task, env.world.model, parents), arrays, learner.settings.activation)
