"""A run that is killed, at any instant, ends with the same bits as one that was not."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot import files
from surefoot.deploy import bundle
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.envs import Place
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.ranges.doraemon import Doraemon
from surefoot.learn.ranges.widen import Widen
from surefoot.learn.run import Run, versions
from surefoot.learn.run.parents import Parents, spec_of
from surefoot.tasks import registry
from tests.learn.killed_runs import Killable, finished

CHANGES = {"envs": 32, "horizon": 8, "hidden": (16,), "minibatches": 2, "steps": 32 * 8 * 12}


def test_killed_inside_a_save_a_run_ends_with_the_same_bits(tmp_path):
    """fsync is called for data, JSON and folder of each checkpoint; replace twice: these counts die before and between them."""
    run = Killable("ppo", CHANGES)
    expected, _ = run.straight(tmp_path / "straight")
    assert run.killed(tmp_path / "killed", ["fsync:9", "replace:4", "fsync:12"]) == expected


@pytest.mark.slow
@pytest.mark.parametrize("task", ["balance", "hover", "walk"])
def test_killed_at_twenty_instants_a_run_ends_with_the_same_bits_each_time(tmp_path, task):
    assert Killable("ppo", CHANGES, task).equal_of_twenty(tmp_path) == 20


def test_a_terminated_run_saves_and_says_how_to_go_on(tmp_path):
    args = [
        sys.executable,
        "-m",
        "surefoot",
        "train",
        "hover",
        "--out",
        str(tmp_path / "r"),
        "--steps",
        "400000",
        "--seed",
        "3",
    ]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (tmp_path / "r" / "metrics.jsonl").exists():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"--resume" in said
    assert list((tmp_path / "r" / "checkpoints").glob("*.json"))


def trained(folder: Path, task: str = "balance", save_every: float = 0.0) -> Path:
    settings = learn.settings_for(task, CHANGES)
    return learn.train(
        task, folder, seed=7, belief=learn.tasks.resolve(task).belief, settings=settings, save_every=save_every
    )


@pytest.mark.parametrize("part", [".safetensors", ".json"])
def test_a_broken_newest_checkpoint_is_seen_and_the_one_before_it_used(tmp_path, part):
    """Either of its files, truncated at 50 lengths and flipped at 300 bits: never taken for whole, or for another."""
    trained(tmp_path / "r")
    newest = sorted((tmp_path / "r" / "checkpoints").glob(f"*{part}"))[-1]
    data, rng = newest.read_bytes(), np.random.default_rng(0)
    broken = [data[: int(k)] for k in rng.integers(0, len(data) - 1, 50)]
    for at in rng.integers(0, 8 * len(data), 300):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << (at % 8)
        broken.append(bytes(flipped))
    run, _ = Run.open(tmp_path / "r")
    whole = run.newest()[1]
    for content in broken:
        newest.write_bytes(content)
        run.notes.clear()
        _, numbers = run.newest()
        if part == ".json" and numbers == whole:  # a flipped blank
            continue
        assert numbers["iteration"] == int(newest.stem) - 1
        assert f"checkpoint {newest.stem} is broken" in run.notes[0] and "an earlier one is used" in run.notes[0]
    newest.write_bytes(data)
    assert run.newest()[1] == whole
    run.close()


def test_a_full_disk_costs_a_checkpoint_not_the_run(tmp_path, monkeypatch):
    real, calls = files.os.fsync, [0]

    def full(fd):
        calls[0] += 1
        if 6 < calls[0] < 12:
            raise OSError(28, "No space left on device")
        return real(fd)

    monkeypatch.setattr(files.os, "fsync", full)
    said = []
    learn.train(
        "balance",
        tmp_path / "r",
        seed=7,
        settings=learn.settings_for("balance", CHANGES),
        watch=lambda p: said.append(p.doing),
        save_every=0,
    )
    assert any("No space left on device" in s and "training goes on" in s for s in said)
    assert not list(tmp_path.rglob("*.part")) and not [
        p for p in tmp_path.rglob("*.safetensors") if p.stat().st_size == 0
    ]
    bundle.load(tmp_path / "r")


def test_two_processes_cannot_write_one_run(tmp_path):
    run = Run.create(tmp_path / "r", {"task": "balance"})
    run.begin()
    with pytest.raises(SurefootError, match=rf"process {os.getpid()} on .* is writing this run"):
        Run.open(tmp_path / "r")
    with pytest.raises(SurefootError, match=rf"process {os.getpid()} on .* is writing this run"):
        Run.create(tmp_path / "r", {"task": "balance"})
    run.close()
    Run.open(tmp_path / "r")[0].close()
    said = f"a run is here already; go on with it by `surefoot train --resume {tmp_path / 'r'}`"
    with pytest.raises(SurefootError, match=re.escape(said)):
        Run.create(tmp_path / "r", {})


def test_a_run_of_a_task_file_says_the_command_that_goes_on_with_it(tmp_path):
    run = Run.create(tmp_path / "r", {"task": "mine.py"})
    run.begin()
    run.close()
    with pytest.raises(SurefootError, match=re.escape(f"`surefoot train mine.py --resume {tmp_path / 'r'}`")):
        Run.create(tmp_path / "r", {"task": "mine.py"})


def stopped(folder: Path, at: int = 6, **how) -> None:
    """A run that ended after so many iterations, with a checkpoint of each."""

    def stop(p):
        if p.metrics.get("iteration") == at:
            raise KeyboardInterrupt

    settings = learn.settings_for("balance", CHANGES)
    with pytest.raises(KeyboardInterrupt):
        learn.train(
            "balance",
            folder,
            seed=7,
            belief=learn.tasks.resolve("balance").belief,
            settings=settings,
            watch=stop,
            save_every=0,
            **how,
        )


def test_resuming_under_other_versions_is_told_and_recorded(tmp_path, monkeypatch):
    others = versions() | {"mujoco": "3.9.9"}
    with monkeypatch.context() as then:
        then.setattr("surefoot.learn.run.versions", lambda: others)
        stopped(tmp_path / "r")
    said = []
    learn.resume(tmp_path / "r", watch=lambda p: said.append(p.doing))
    assert any("not bit-exact" in s and "mujoco 3.9.9 ->" in s for s in said)
    assert files.read_json(tmp_path / "r" / "run.json")["resumed"][-1]["bit_exact"] is False


def test_divergence_leaves_a_bundle_and_training_goes_on(tmp_path, monkeypatch):
    from surefoot.sim.engine import Engine
    from surefoot.sim.recent import KEEP

    real, count = Engine.begin, [0]

    def begin(self, u, chance):
        count[0] += self.n == 32  # not the one that golden vectors are recorded with
        if self.n == 32 and count[0] % 20 == 0:
            self.batch.bind("qfrc_applied")[5] = 1e30
        return real(self, u, chance)

    monkeypatch.setattr(Engine, "begin", begin)
    trained(tmp_path / "r")
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    kept = sorted((tmp_path / "r" / "diverged").glob("*.npz"))
    assert rows[-1]["diverged"] == len(kept) == 12 * 8 // 20
    with np.load(kept[0], allow_pickle=False) as data:
        assert int(data["env"]) == 5 and str(data["task"]) == "balance" and np.isfinite(data["state"]).all()
        assert (data["forces"][-1] == 1e30).all() and len(data["controls"]) == len(data["forces"]) <= KEEP


def test_a_model_that_keeps_diverging_stops_the_run_with_a_diagnosis(tmp_path, monkeypatch):
    from surefoot.sim.engine import Engine

    real = Engine.begin

    def begin(self, u, chance):
        self.state.v[:4] = np.inf
        return real(self, u, chance)

    monkeypatch.setattr(Engine, "begin", begin)
    with pytest.raises(SurefootError, match="times a simulation diverged in the last batch"):
        trained(tmp_path / "r")


@pytest.mark.parametrize(
    "ranges",
    [ADR(episodes=4), Doraemon(episodes=20), Widen(episodes=20)],
    ids=lambda r: type(r).__name__,
)
def test_a_run_whose_belief_grows_goes_on_with_the_same_bits(tmp_path, ranges):
    """Interrupted in the middle, by the watcher, after a save each iteration."""
    task = replace(learn.tasks.resolve("balance"), name="balance", seconds=0.3)
    settings = learn.settings_for("balance", {**CHANGES, "steps": 32 * 8 * 20})
    stop = lambda at: lambda p: (_ for _ in ()).throw(KeyboardInterrupt) if p.metrics.get("iteration") == at else None  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry.Ready, "__call__", lambda ready: task)
        about = dict(seed=3, belief=task.belief, settings=settings, save_every=0, ranges=ranges)
        learn.train("balance", tmp_path / "whole", **about)
        with pytest.raises(KeyboardInterrupt):
            learn.train("balance", tmp_path / "cut", watch=stop(11), **about)
        learn.resume(tmp_path / "cut", save_every=0)
    assert finished(tmp_path / "whole") == finished(tmp_path / "cut")
    rows = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["width"] > rows[0]["width"]


def test_a_stage_begins_with_what_the_last_one_learned_and_asked_again_it_goes_on(tmp_path):
    task = learn.tasks.resolve("balance")
    settings = learn.settings_for("balance", {**CHANGES, "steps": 32 * 8 * 3})
    stages = [learn.tasks.nominal(task), task.belief]
    about = dict(seed=3, settings=settings, save_every=0)
    learn.progressive("balance", tmp_path / "whole", stages, **about)
    first = Run.open(tmp_path / "whole" / "stage1")[0]
    learner = learn.build(spec_of(first.folder), learn.tasks.resolve("balance"), Parents(), Place(), first)
    learner.adopt(first.newest()[0], "stage1")
    assert all(np.array_equal(v, learner.save()[0][k]) for k, v in first.newest()[0].items() if k.startswith("net."))
    first.close()
    stop = lambda p: (_ for _ in ()).throw(KeyboardInterrupt) if p.metrics.get("iteration") == 2 else None  # noqa: E731
    for _ in range(2):  # once in the first stage; resumed, it ends, and the second is stopped likewise
        with pytest.raises(KeyboardInterrupt):
            learn.progressive("balance", tmp_path / "cut", stages, watch=stop, **about)
    learn.progressive("balance", tmp_path / "cut", stages, **about)
    assert finished(tmp_path / "whole" / "stage2")["policy"] == finished(tmp_path / "cut" / "stage2")["policy"]
    start = tmp_path / "whole" / "stage1"
    wider = replace(settings, hidden=(5,))
    with pytest.raises(SurefootError, match="a run of balance: its nets do not fit: .* expected shape"):
        learn.train("balance", tmp_path / "other", settings=wider, start=start)
    for told, change in (("tanh; expected relu", {"activation": "relu"}), ("spread", {"spread": (0.01, 0.5, 1.0)})):
        with pytest.raises(SurefootError, match=f"its nets were learned with .*{told}"):
            learn.train("balance", tmp_path / "other", settings=replace(settings, **change), start=start)
    with pytest.raises(SurefootError, match="its actor observes cart_pole; here it would observe position_error"):
        learn.train("hover", tmp_path / "other", settings=settings, start=start)
    assert not (tmp_path / "other").exists()
    with pytest.raises(SurefootError, match="no run here"):
        learn.train("balance", tmp_path / "none", settings=settings, start=tmp_path / "nowhere")


USERS = """
from pathlib import Path
from surefoot import tasks
Path(__file__).with_name("ran").touch()
def mine():
    return tasks.resolve("balance")
"""


def test_a_run_whose_task_is_a_file_goes_on_only_where_the_user_names_the_file(tmp_path, capsys):
    from surefoot.cli import main

    own, folder = tmp_path / "mine.py", tmp_path / "r"
    own.write_text(USERS)
    stop = lambda p: (_ for _ in ()).throw(KeyboardInterrupt) if p.metrics.get("iteration") == 2 else None  # noqa: E731
    settings = learn.settings_for("balance", CHANGES)
    with pytest.raises(KeyboardInterrupt):
        learn.train(f"{own}:mine", folder, settings=settings, watch=stop, save_every=0)
    whole = learn.train(f"{own}:mine", tmp_path / "whole", settings=settings)
    (tmp_path / "ran").unlink()
    with pytest.raises(
        SurefootError, match=r"run.json: task: .*mine.py:mine is code.*surefoot train .*mine.py:mine --re"
    ):
        learn.resume(folder)
    with pytest.raises(
        SurefootError, match=r"run.json: task: a run of .*mine.py:mine, and it keeps its task; found ba"
    ):
        learn.resume(folder, task="balance")
    with pytest.raises(SurefootError, match="spec: task: .*mine.py:mine is code"):
        learn.train(spec_of(folder), tmp_path / "copy")
    assert main(["train", "--start", str(folder), "balance", "--out", str(tmp_path / "other")]) == 2
    assert "is code" in capsys.readouterr().err and not (tmp_path / "ran").exists()
    assert main(["train", f"{own}:mine", "--resume", str(folder), "--threads", "1"]) == 0
    assert (folder / "policy.safetensors").read_bytes() == whole.with_name("policy.safetensors").read_bytes()
