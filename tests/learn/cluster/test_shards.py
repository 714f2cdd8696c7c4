"""Shards of envs give the bits of one process, at any number of workers, whoever dies. Here workers are objects of this
process; test_ray.py has them as processes."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest

from surefoot import tasks
from surefoot.belief import Belief
from surefoot.errors import SurefootError
from surefoot.learn import envs
from surefoot.learn.cluster import start
from surefoot.learn.cluster.address import On
from surefoot.learn.cluster.shards import Workers, cut
from surefoot.learn.cluster.worker import Worker
from surefoot.learn.collect import TILE, tiles
from surefoot.learn.settings import DistillSettings
from surefoot.learn.train import resume, settings_for, train

SMALL = {"horizon": 8, "minibatches": 2, "hidden": (16,)}


class Here(Workers):
    """Workers in this process. What is asked goes through bytes, as between machines; some die when they are asked."""

    def __init__(self, count, plan, n, dying=()):
        self.shards, self.plan, self.dying, self.asked = cut(n, count), plan, set(dying), 0
        self.workers = [Worker(plan, rows) for rows in self.shards]

    def share(self, value):
        return pickle.dumps(value)

    def each(self, method, arguments, saved=()):
        found = []
        for i, given in enumerate(arguments):
            self.asked += method == "collect"
            if method == "collect" and self.asked in self.dying:
                self.workers[i] = Worker(self.plan, self.shards[i])
                self.workers[i].load(saved[i])
            given = [pickle.loads(x if isinstance(x, bytes) else pickle.dumps(x)) for x in given]  # noqa: S301
            found.append(pickle.loads(pickle.dumps(getattr(self.workers[i], method)(*given))))  # noqa: S301
        return found

    def close(self):
        self.workers = []


def on_workers(monkeypatch, count, dying=()):
    """Runs that are asked for workers have `count` of this process."""

    def begun(spec, parents, task, place, run):
        plan = start.plan(spec, place, run)
        return start.shards(spec, parents, task, Here(count, plan, spec.settings.envs, dying), run)

    monkeypatch.setattr(start, "start", begun)
    return On("", count)


def bits(folder: Path) -> tuple[str, str, str]:
    """Of the last checkpoint (weights, optimiser, every env), the metrics and the policy."""
    arrays = sorted((folder / "checkpoints").glob("*.safetensors"))[-1]
    paths = (arrays, folder / "metrics.jsonl", folder / "policy.onnx")
    return tuple(hashlib.sha256(p.read_bytes()).hexdigest() for p in paths)


def trained(name, out, envs, iterations, on=None, horizon=8, **asked):
    settings = settings_for(name, SMALL | {"envs": envs, "horizon": horizon, "steps": envs * horizon * iterations})
    task = tasks.resolve(name)
    asked = {"belief": task.belief, "seed": 5} | asked
    return bits(train(name, out, settings=settings, on=on, **asked).parent)


def test_every_env_has_one_worker_and_tiles_depend_on_n_alone():
    for n, w in ((7, 3), (4096, 2), (1025, 4), (3, 8)):
        shards = cut(n, w)
        assert [i for s in shards for i in range(s.start, s.stop)] == list(range(n)) and len(shards) == min(n, w)
        assert max(s.stop - s.start for s in shards) - min(s.stop - s.start for s in shards) <= 1
    assert tiles([TILE + 3, 5]) == [slice(0, TILE), slice(TILE, TILE + 3), slice(TILE + 3, TILE + 8)]


@pytest.mark.parametrize(
    "name, n, counts",
    [("balance", 48, (1, 3, 5)), ("hover", 33, (2, 4)), ("walk", 24, (2,)), ("walk-estimate", 8, (3,))],
)
def test_the_number_of_workers_moves_no_bit(name, n, counts, tmp_path, monkeypatch):
    """Weights, optimiser, where every env stands, metrics and the policy's file; shards cut tiles where they fall."""
    whole = trained(name, tmp_path / "whole", n, 3)
    for w in counts:
        assert trained(name, tmp_path / str(w), n, 3, on_workers(monkeypatch, w)) == whole


def test_two_blocks_and_their_tiles_are_put_together_as_they_are_here(tmp_path, monkeypatch):
    """1026 envs are two blocks of 513, each a tile of 512 and one of 1; three workers cut both."""
    whole = trained("balance", tmp_path / "whole", 1026, 2)
    assert trained("balance", tmp_path / "three", 1026, 2, on_workers(monkeypatch, 3)) == whole


@pytest.mark.parametrize("dying", [(1,), (4, 5), (2, 3, 4, 6)])
def test_a_worker_that_dies_is_replaced_and_no_bit_moves(dying, tmp_path, monkeypatch):
    whole = trained("hover", tmp_path / "whole", 20, 4)
    assert trained("hover", tmp_path / "w", 20, 4, on_workers(monkeypatch, 2, dying)) == whole


def test_ranges_that_grow_reach_the_workers(tmp_path, monkeypatch):
    from surefoot.learn.ranges.ramp import Ramp

    more = {"ranges": Ramp(begin=0.0, end=0.6), "horizon": 64}
    whole = trained("balance", tmp_path / "whole", 16, 4, **more)
    assert trained("balance", tmp_path / "w", 16, 4, on_workers(monkeypatch, 2), **more) == whole
    reached = [Belief.read(tmp_path / k / "reached.json") for k in ("w", "whole")]
    assert reached[0].to_json() == reached[1].to_json() and (reached[0].low < reached[0].high).any()


def test_a_run_stops_here_and_goes_on_there(tmp_path, monkeypatch):
    whole = trained("hover", tmp_path / "whole", 20, 6)
    stop = {"left": 3}

    def watch(p):
        stop["left"] -= bool(p.metrics)
        if stop["left"] == 0:
            raise KeyboardInterrupt

    settings = settings_for("hover", SMALL | {"envs": 20, "steps": 20 * 8 * 6})
    with pytest.raises(KeyboardInterrupt):
        task = tasks.resolve("hover")
        train("hover", tmp_path / "w", settings=settings, belief=task.belief, seed=5, save_every=0, watch=watch)
    resume(tmp_path / "w", on=on_workers(monkeypatch, 3))
    assert bits(tmp_path / "w") == whole


def test_a_student_and_a_residual_have_their_parents_at_the_workers(tmp_path, monkeypatch):
    s = settings_for("hover", SMALL | {"envs": 16, "steps": 16 * 8 * 2, "encoder": "e"})
    task = tasks.resolve("hover")
    teacher = train(
        "hover", tmp_path / "t", settings=s, belief=task.belief, obs=tasks.teachers(task, tasks.ObsOverride())
    )
    lesson = DistillSettings(history=5, envs=16, horizon=8, steps=16 * 8 * 2, minibatches=2)
    found = []
    for k, on in enumerate((None, on_workers(monkeypatch, 3))):
        train("hover", tmp_path / f"s{k}", teacher=teacher, settings=lesson, belief=task.belief, on=on)
        base = train("hover", tmp_path / f"b{k}", settings=settings_for("hover", SMALL | {"envs": 16, "steps": 128}))
        train("hover", tmp_path / f"r{k}", base=base, on=on, belief=task.belief, settings=settings_for("hover", SMALL | {"envs": 16, "steps": 256}))  # fmt: skip
        found.append((bits(tmp_path / f"s{k}"), bits(tmp_path / f"r{k}")))
    assert found[0] == found[1]


def test_a_task_that_no_worker_can_find_is_refused_and_leaves_no_run(tmp_path, monkeypatch):
    on, task = on_workers(monkeypatch, 2), tasks.resolve("balance")
    from dataclasses import replace

    with pytest.raises(SurefootError, match="made in a script, and no worker can find it"):
        train(
            replace(task, name="mine"),
            tmp_path / "r",
            on=on,
            settings=settings_for("balance", {"envs": 8, "steps": 64}),
        )
    assert not (tmp_path / "r").exists()


def test_a_task_file_that_changed_is_not_the_learners(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text("from surefoot.tasks.ready.balance import balance\nfrom surefoot.task import Task\n\n\ndef task() -> Task:\n    return balance()\n")  # fmt: skip
    on, run = on_workers(monkeypatch, 2), tmp_path / "r"
    real = start.plan

    def edited(*given):
        made = real(*given)
        file.write_text(file.read_text() + "\nX = 1\n")
        return made

    monkeypatch.setattr(start, "plan", edited)
    with pytest.raises(SurefootError, match="not the learner's task"):
        train(str(file), run, on=on, settings=settings_for("balance", {"envs": 8, "steps": 64}))


@pytest.mark.parametrize(
    "text, workers, found",
    [("local:3", 0, On("", 3)), ("ray://h-1.x:10001", 8, On("ray://h-1.x:10001", 8)), ("10.0.0.1:6379", 0, On("10.0.0.1:6379", 0)), ("localhost:6379", 0, On("localhost:6379", 0)), ("auto", 2, On("auto", 2)), ("", 0, None)],
)  # fmt: skip
def test_addresses_mean_what_they_say(text, workers, found):
    assert On.parse(text, workers) == found


@pytest.mark.parametrize(
    "text, workers, words",
    [("local", 0, "--on: expected local:2"), ("local:0", 0, "expected 1 to"), ("ssh://x", 0, "--on: expected"), ("h:0", 0, "--on: expected"), ("ray://h:70000", 0, "--on: expected"), ("local:2", 3, "leave it out"), ("", 2, "only with --on"), ("auto", -1, "--workers")],
)  # fmt: skip
def test_other_addresses_are_refused(text, workers, words):
    with pytest.raises(SurefootError, match=words):
        On.parse(text, workers)


def test_envs_of_a_part_are_those_rows_of_the_whole():
    from surefoot.learn.run.parents import Parents
    from surefoot.learn.train import plan

    spec, _ = plan("hover", settings=settings_for("hover", {"envs": 1030, "steps": 1030}))
    task = tasks.resolve("hover")
    whole = envs.part(spec, Parents(), task, slice(0, 1030), 1)
    some = envs.part(spec, Parents(), task, slice(500, 530), 1)
    assert [(e.first, e.n) for e in some.envs] == [(500, 15), (515, 15)]
    assert np.array_equal(whole.reset()["actor"][500:530], some.reset()["actor"])
