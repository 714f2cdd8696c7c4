"""What is on disk of a run is what was written, or it is said what is not."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from surefoot import files
from surefoot.belief import Belief
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.loop import _signals
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.run import KEEP, Run
from surefoot.report import Watch
from surefoot.verbs.arguments import trained_over

TINY = {"envs": 8, "horizon": 4, "hidden": (4,), "minibatches": 2, "steps": 8 * 4 * 8, "learner_threads": 1}
FLIPS = 600


def begun(folder: Path, at: int = 5, **how) -> Path:
    """A run of 8 iterations, stopped after `at` of them, with a checkpoint of each."""

    def stop(p):
        if p.metrics.get("iteration") == at:
            raise KeyboardInterrupt

    settings, belief = learn.settings_for("balance", TINY), learn.tasks.resolve("balance").belief
    with pytest.raises(KeyboardInterrupt):
        learn.train("balance", folder, seed=7, belief=belief, settings=settings, watch=stop, save_every=0, **how)
    return folder


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    return begun(tmp_path_factory.mktemp("five") / "r")


@pytest.fixture
def run(five, tmp_path):
    return Path(shutil.copytree(five, tmp_path / "r"))


def notes(said: list[str]) -> Watch:
    """A watch that keeps what is noted beside the metrics."""
    return lambda p: said.append(p.doing) if p.stays else None


def resumed(folder: Path) -> list[str]:
    """What is said while a run goes on to its end."""
    said: list[str] = []
    learn.resume(folder, watch=notes(said), save_every=0)
    return said


@pytest.fixture(scope="module")
def metrics(five, tmp_path_factory):
    """metrics.jsonl of the run when nothing happens to it."""
    folder = Path(shutil.copytree(five, tmp_path_factory.mktemp("whole") / "r"))
    assert resumed(folder) == []
    return (folder / "metrics.jsonl").read_bytes()


def edited(folder: Path, change, sealed: bool) -> None:
    about = files.read_json(folder / "run.json")
    change(about)
    files.write_json(folder / "run.json", files.seal(about) if sealed else about)


def wider(about):
    about["belief"]["high"][0] *= 1.5


EDITS = {
    "belief.high": wider,
    "seed": lambda about: about.update(seed=8),
    "settings.lr": lambda about: about["settings"].update(lr=0.5),
    "versions.mujoco": lambda about: about["versions"].update(mujoco="3.0.0"),
}


@pytest.mark.parametrize("sealed", [False, True], ids=["seal left", "sealed again"])
@pytest.mark.parametrize("name", EDITS)
def test_an_edited_run_json_is_refused_and_the_field_named(run, name, sealed):
    edited(run, EDITS[name], sealed)
    with pytest.raises(SurefootError, match=rf"run.json: {name}: edited.* since checkpoint 00000005 was written"):
        resumed(run)
    (run / "run.json").unlink()
    assert any("run.json was missing; it is written again" in s for s in resumed(run))
    about = files.read_json(run / "run.json")
    assert about["resumed"][-1]["bit_exact"] is True and about["seed"] == 7


def test_an_edit_before_the_first_checkpoint_is_refused_too(tmp_path):
    fresh = Run.create(tmp_path / "r", {"task": "balance", "seed": 1})
    fresh.begin()
    fresh.close()
    edited(tmp_path / "r", EDITS["seed"], sealed=False)
    with pytest.raises(SurefootError, match="edited or damaged since it was written: sha256: expected"):
        Run.open(tmp_path / "r")


def test_another_runs_checkpoints_are_not_taken(run, tmp_path):
    other = begun(tmp_path / "other", 2)
    edited(other, EDITS["seed"], sealed=True)
    shutil.copytree(run / "checkpoints", other / "checkpoints", dirs_exist_ok=True)
    with pytest.raises(SurefootError, match=r"seed: edited \(8, was 7\)"):
        resumed(other)


def test_a_run_without_a_seal_is_refused_in_words(run):
    files.write_json(run / "run.json", files.check_seal(files.read_json(run / "run.json"), "run.json"))
    with pytest.raises(SurefootError, match="sha256: missing; another program, or an earlier version of surefoot"):
        resumed(run)


def flips(data: bytes, rng: np.random.Generator):
    for at in rng.integers(0, 8 * len(data), FLIPS):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << (at % 8)
        yield bytes(flipped)


def test_every_flipped_bit_of_run_json_is_seen(run):
    path = run / "run.json"
    data, value, seen = path.read_bytes(), files.read_json(path), 0
    for content in flips(data, np.random.default_rng(0)):
        path.write_bytes(content)
        try:
            held, about = Run.open(run)
        except SurefootError:
            seen += 1
        else:
            seen += about == {k: v for k, v in value.items() if k != "sha256"}  # 1e-05 written as 1E-05
            held.close()
    assert seen == FLIPS


@pytest.mark.parametrize("part", [".json", ".safetensors"])
def test_every_flipped_bit_of_a_checkpoint_is_seen(run, part):
    path = run / "checkpoints" / f"00000005{part}"
    data, seen = path.read_bytes(), 0
    held, _ = Run.open(run)
    whole = held.newest()
    for content in flips(data, np.random.default_rng(1)):
        path.write_bytes(content)
        held.notes.clear()
        _, numbers = held.newest()
        seen += (
            "00000005 is broken" in held.notes[0] and numbers["iteration"] == 4 if held.notes else numbers == whole[1]
        )
    held.close()
    assert seen == FLIPS


def test_every_flipped_bit_of_the_metrics_is_mended(run):
    """Of five rows, the last three are in checkpoints; of the others, a flip is said to be there."""
    path, mended, told = run / "metrics.jsonl", 0, 0
    held, _ = Run.open(run)
    held.newest()
    data = path.read_bytes()
    for content in flips(data, np.random.default_rng(2)):
        path.write_bytes(content)
        held.notes.clear()
        held.rewind()
        said = " ".join(held.notes)
        mended += path.read_bytes() == data and "written again" in said
        told += path.read_bytes() != data and "rows 1 to 2 are not all as they were logged" in said
        assert all(isinstance(json.loads(line), dict) for line in path.read_bytes().splitlines())
    held.close()
    assert mended + told == FLIPS and mended > FLIPS / 2


def test_every_flipped_bit_of_the_belief_that_ranges_reached_is_seen(tmp_path):
    folder, task = begun(tmp_path / "r", ranges=ADR(episodes=4)), learn.tasks.resolve("balance")
    path, seen = folder / "reached.json", 0
    data, reached = path.read_bytes(), trained_over(folder, task)
    for content in flips(data, np.random.default_rng(3)):
        path.write_bytes(content)
        try:
            seen += trained_over(folder, task) == reached
        except SurefootError:
            seen += 1
    assert seen == FLIPS
    path.write_bytes(data)
    assert main(["train", "balance", "--belief", str(path), "--steps", "1", "--out", str(tmp_path / "again")]) == 0
    told = files.read_json(tmp_path / "again" / "run.json")["belief"]
    assert Belief.from_json(told) == reached, "a sealed belief is one to train over"


DAMAGES = {
    "cut in a row": lambda rows: b"".join(rows)[:-40],
    "a row lost": lambda rows: b"".join(rows[:3] + rows[4:]),
    "garbage": lambda rows: b"".join(rows[:4]) + b"\x00\xff{garbage" + rows[4],
    "all but two lost": lambda rows: b"".join(rows[:2]),
    "a row after the checkpoint": lambda rows: b"".join(rows) + b'{"steps": 6',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_metrics_since_the_oldest_checkpoint_are_made_whole_again(run, metrics, damage):
    path = run / "metrics.jsonl"
    path.write_bytes(DAMAGES[damage](path.read_bytes().splitlines(keepends=True)))
    said = resumed(run)
    assert path.read_bytes() == metrics
    assert any("rows 3 to 5 were cut or edited" in s for s in said) == (damage != "a row after the checkpoint")


def test_metrics_that_no_checkpoint_has_are_said_to_be_missing(run, metrics):
    path, rows = run / "metrics.jsonl", metrics.splitlines(keepends=True)
    path.write_bytes(rows[0][:20] + b"".join(rows[1:5]))  # the first row is glued to the second
    said = resumed(run)
    assert any("rows 1 to 2 are not all as they were logged, 0 are left" in s for s in said)
    assert path.read_bytes() == b"".join(rows[2:])
    assert "rows 1 to 2" in files.read_json(run / "run.json")["resumed"][-1]["metrics"]


def test_metrics_are_synced_with_each_checkpoint(tmp_path, monkeypatch):
    synced, real = set(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(os.readlink(f"/proc/self/fd/{fd}")), real(fd))[1])
    begun(tmp_path / "r", 1)
    assert str(tmp_path / "r" / "metrics.jsonl") in synced


def test_pruning_leaves_files_of_others_and_every_checkpoint_they_would_have_cost(run):
    others = {"a.json", "zzz.json", "zzz.safetensors", "99999999.json", "notes.txt", "1.json"}
    for name in others:
        (run / "checkpoints" / name).write_text("{}")
    (run / "checkpoints" / "00000003.json").unlink()  # a save that was killed between its files
    resumed(run)
    left = {p.name for p in (run / "checkpoints").iterdir()}
    assert left - others == {f"0000000{i}{part}" for i in (8, 7, 6) for part in (".json", ".safetensors")}
    assert others <= left and KEEP == 3


def test_folders_called_as_checkpoints_are_cost_nothing(run):
    """They are no checkpoints of the run: a folder cannot be unlinked, and ended the training."""
    for name in ("00000001.json", "00000002.safetensors", "00000099.json"):
        (run / "checkpoints" / name).mkdir()
    assert resumed(run) == [] and (run / "checkpoints" / "00000008.json").is_file()
    assert (run / "checkpoints" / "00000001.json").is_dir()


@pytest.mark.parametrize("link", [True, False])
def test_a_run_does_not_begin_on_metrics_that_are_there(tmp_path, link):
    """They may be a link that leads out of the folder: rows were added to whatever it leads to."""
    kept = tmp_path / "kept"
    kept.write_bytes(b"mine\n")
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "metrics.jsonl").symlink_to(kept) if link else shutil.copy(kept, tmp_path / "r" / "metrics.jsonl")
    with pytest.raises(SurefootError, match="metrics.jsonl is here already"):
        Run.create(tmp_path / "r", {})
    assert kept.read_bytes() == b"mine\n" and not (tmp_path / "r" / "run.json").exists()


def test_a_run_neither_writes_nor_prunes_in_a_folder_that_a_link_leads_to(run, tmp_path):
    (run / "checkpoints").rename(tmp_path / "others")
    (run / "checkpoints").symlink_to(tmp_path / "others")
    before = sorted(p.name for p in (tmp_path / "others").iterdir())
    with pytest.raises(SurefootError, match="checkpoints: found a link, expected a folder of the run's own"):
        learn.resume(run)
    assert sorted(p.name for p in (tmp_path / "others").iterdir()) == before and not (run / "run.lock").exists()


def test_what_a_killed_write_left_is_cleared_when_a_run_goes_on(run):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    gone, alive = child.pid, os.getppid()
    dead = [run / f".run.json.{gone}.part", run / "checkpoints" / f".00000006.json.{gone}.part"]
    kept = [
        run / f".run.json.{alive}.part",
        run / ".mine.part",
        run / f"run.json.{gone}.part",
        run / f".x.{gone}.partly",
    ]
    for path in dead + kept:
        path.write_text("half")
    resumed(run)
    assert not any(p.exists() for p in dead) and all(p.exists() for p in kept)


def test_a_run_does_not_begin_on_the_checkpoints_of_another(run):
    (run / "run.json").unlink()
    with pytest.raises(SurefootError, match="a run is here already"):
        Run.create(run, {"task": "balance"})


def test_a_hangup_saves_as_a_termination_does_also_when_the_terminal_is_gone(tmp_path):
    leader, terminal = os.openpty()
    args = [sys.executable, "-m", "surefoot", "train", "balance", "--out", str(tmp_path / "r"), "--steps", "100000000"]
    child = subprocess.Popen(
        args, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(terminal)
    while not (tmp_path / "r" / "metrics.jsonl").exists():
        time.sleep(0.05)
        assert child.poll() is None
    os.close(leader)  # the terminal closes
    assert child.wait(60) == 128 + signal.SIGHUP
    rows = len((tmp_path / "r" / "metrics.jsonl").read_bytes().splitlines())
    assert max(p.stem for p in (tmp_path / "r" / "checkpoints").glob("*.json")) == f"{rows:08d}"


def test_hangups_are_heard_once_and_not_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with _signals("") as asked:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)
            assert asked[0] == signal.SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with _signals("") as asked:
            os.kill(os.getpid(), signal.SIGHUP)
        assert asked == []
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_reader_that_has_gone_costs_no_iteration(tmp_path):
    def gone(p):
        raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        learn.train(
            "balance", tmp_path / "r", seed=7, settings=learn.settings_for("balance", TINY), watch=gone, save_every=1e9
        )
    assert [p.name for p in (tmp_path / "r" / "checkpoints").glob("*.json")] == ["00000001.json"]


@pytest.mark.parametrize("when", ["opening", "writing"])
def test_tensorboard_on_a_full_disk_costs_the_pictures_alone(tmp_path, when, capfd):
    """/dev/full takes no byte."""
    from surefoot.learn import loop

    def full(path, *args, **kw):
        if when == "opening":
            raise OSError(28, "No space left on device")
        return open("/dev/full", "wb", buffering=0)

    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "open", full, raising=False)
        settings = learn.settings_for("balance", TINY)
        learn.train("balance", tmp_path / "r", seed=7, settings=settings, watch=notes(said), save_every=0)
    assert [s for s in said if "TensorBoard" in s] == [
        "note: TensorBoard's file cannot be written (No space left on device); training goes on without it"
    ]
    assert "Traceback" not in capfd.readouterr().err
    assert len((tmp_path / "r" / "metrics.jsonl").read_bytes().splitlines()) == 8


def test_tensorboard_reads_what_was_logged_and_not_what_a_stopped_run_logged_after_its_checkpoint(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = begun(tmp_path / "r")
    for old in ("00000005", "00000004"):
        (folder / "checkpoints" / f"{old}.json").unlink()
    time.sleep(1.1)  # TensorBoard orders files by their second
    resumed(folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    shown = EventAccumulator(str(folder))
    shown.Reload()
    scalars = shown.Scalars("steps")
    assert [(s.step, s.value) for s in scalars] == [(i + 1, row["steps"]) for i, row in enumerate(rows)]


def test_what_the_last_save_could_not_write_is_told(tmp_path, monkeypatch):
    real = files.os.fsync

    def full(fd):
        if "00000008" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(28, "No space left on device")
        return real(fd)

    monkeypatch.setattr(files.os, "fsync", full)
    said = []
    settings = learn.settings_for("balance", TINY)
    learn.train("balance", tmp_path / "r", seed=7, settings=settings, watch=notes(said), save_every=0)
    assert any("checkpoint 00000008 was not saved" in s for s in said)


@pytest.mark.parametrize("verb, lock", [("gate", "gate.lock"), ("export", "policy.onnx.lock")])
def test_two_cannot_write_one_folder(run, capsys, verb, lock):
    out = run.parent / "out"
    args = [verb, str(run), "--out", str(out if verb == "gate" else out / "policy.onnx")]
    out.mkdir()
    with files.held(out / lock, "writing"):
        assert main(args) == 2
    assert f"{out}: process {os.getpid()} on" in capsys.readouterr().err
    assert list(out.iterdir()) == [], "neither its files nor a lock"


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_on_the_new_one(tmp_path):
    first = files.Lock(tmp_path / "x.lock", "writing")
    first.path.unlink()
    second = files.Lock(tmp_path / "x.lock", "writing")
    with pytest.raises(SurefootError, match=f"process {os.getpid()} on .* is writing; wait for it or stop it"):
        files.Lock(tmp_path / "x.lock", "writing")
    first._file.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_two_crossings_cannot_mix_in_one_folder(tmp_path, capsys):
    begun(tmp_path / "c" / "00-train", 1)
    assert main(["cross", "balance", "--out", str(tmp_path / "c"), "--steps", "1"]) == 2
    assert "a run with other" in capsys.readouterr().err


def test_a_seal_is_the_hash_of_all_the_rest():
    """sha256sum of {"a":[1.5,null],"b":"é"} with é escaped, as another program computes it."""
    import hashlib

    value = {"b": "é", "a": [1.5, None]}
    sealed = files.seal(value)
    assert sealed["sha256"] == hashlib.sha256(rb'{"a":[1.5,null],"b":"\u00e9"}').hexdigest()
    assert files.check_seal(json.loads(json.dumps(sealed)), "x") == value == files.check_seal(value, "x")
    with pytest.raises(SurefootError, match="x.json: edited or damaged"):
        files.check_seal(sealed | {"b": "e"}, "x.json")


ODD = {
    "task": (["balance"], r"task: expected text, found \["),
    "seed": ("7", 'seed: expected a whole number, found "7"'),
    "settings": (None, "settings: expected an object"),
    "versions": ("x", "versions: expected an object"),
    "terms": ([5], r"terms\[0\]: expected text, found 5"),
    "start": ({"run": 5}, "start: sha256: missing"),
    "student": ({}, "no field matches 'student'"),
    "sees": ({}, "no field matches 'sees'"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_field_of_run_json_of_another_type_is_refused_by_name(run, name):
    """Sealed again everywhere, as someone writes it who knows how."""
    value, said = ODD[name]
    edited(run, lambda about: about.update({name: value}), sealed=True)
    about = files.check_seal(files.read_json(run / "run.json"), "run.json")
    for card in (run / "checkpoints").glob("*.json"):
        files.write_json(card, files.seal(files.read_json(card) | {"run": about}))
    with pytest.raises(SurefootError, match=f"run.json: .*{said}"):
        resumed(run)


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": {"iteration": "x"}},
        {"numbers": {"iteration": 4, "lr": 0.1, "rejected": 0}},
        {"metrics": 5},
        {"metrics": {"before": [0, ""], "since": [[1]], "here": [5, ""]}},
        {"run": []},
    ],
)
def test_a_checkpoint_whose_card_says_odd_things_is_passed_over(run, metrics, change):
    card = sorted((run / "checkpoints").glob("*.json"))[-1]
    files.write_json(card, files.seal(files.read_json(card) | change))
    assert any("checkpoint 00000005 is broken" in s for s in resumed(run))
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_weights_that_do_not_fit_the_settings_are_refused_in_words(run):
    from safetensors.numpy import save

    for card in (run / "checkpoints").glob("*.json"):
        data = save({"net.x": np.zeros(3, "f4")})
        card.with_suffix(".safetensors").write_bytes(data)
        files.write_json(card, files.seal(files.read_json(card) | {"arrays": files.sha256(data)}))
    with pytest.raises(SurefootError, match="its checkpoint does not fit its run.json"):
        resumed(run)


def test_metrics_that_are_a_pipe_are_refused_at_once(run):
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(SurefootError, match="metrics.jsonl: found a device, pipe or socket"):
        resumed(run)


def test_layers_beyond_memory_are_refused_before_they_are_made(tmp_path):
    huge = learn.settings_for("balance", TINY | {"hidden": (10**9, 10**9)})
    with pytest.raises(SurefootError, match="hidden: layers of .* weights, expected at most"):
        learn.train("balance", tmp_path / "r", settings=huge)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("envs", [8], r"envs: expected a whole number, found \[8\]"),
        ("lr", None, "lr: expected a number, found null"),
        ("hidden", ["4"], r"hidden\[0\]: expected a whole number, found \"4\""),
        ("symmetric", 1, "symmetric: expected true or false, found 1"),
        ("lrr", 1, "no field matches 'lrr'.*did you mean lr"),
    ],
)
def test_a_setting_of_another_type_is_refused_by_name(name, value, said):
    spec, _ = learn.plan("balance", settings=learn.settings_for("balance", TINY))
    told = spec.to_json()
    assert learn.RunSpec.from_json(told, "run.json") == spec
    told["settings"][name] = value
    with pytest.raises(SurefootError, match=f"run.json: settings: {said}"):
        learn.RunSpec.from_json(told, "run.json")
