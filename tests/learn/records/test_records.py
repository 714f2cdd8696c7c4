"""Runs as records: listed, ranked, compared over seeds, cleaned, and shared by content."""

import json
import math
import os
import shutil
import socket
import sys

import pytest

from surefoot.errors import MissingExtra, SurefootError
from surefoot.learn.records import runs as records
from surefoot.learn.records.store import Store
from surefoot.learn.train import settings_for, train
from surefoot.report import unwatched
from surefoot.verbs.train.runs import Runs

SMALL = {"envs": 8, "horizon": 8, "minibatches": 2, "hidden": (8,), "steps": 8 * 8 * 4}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Two seeds of one spec, and one with another step size; their returns are written here, to be known."""
    top = tmp_path_factory.mktemp("three")
    for name, seed, lr in (("a0", 0, 1e-3), ("a1", 1, 1e-3), ("b", 0, 2e-3)):
        train(
            "balance",
            top / "deep" / name,
            seed=seed,
            save_every=0,
            settings=settings_for("balance", SMALL | {"lr": lr}),
        )
    return top


@pytest.fixture
def runs(three, tmp_path):
    import shutil

    shutil.copytree(three, tmp_path / "runs")
    for name, score in (("a0", 10.0), ("a1", 20.0), ("b", 12.0)):
        rows = [{"steps": 64 * (k + 1), "return": score * (k == 3)} for k in range(4)]
        path = tmp_path / "runs" / "deep" / name / "metrics.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows) + '{"steps": 99')  # a row that is being written
    return tmp_path / "runs"


def test_runs_are_found_at_any_depth_and_ranked_by_the_end_of_their_curve(runs):
    facts = Runs(runs, rank="return").run(unwatched).facts
    assert [(r["run"].split("/")[-1], r["return"], r["state"]) for r in facts["runs"]] == [
        ("a1", 20.0, "finished"), ("b", 12.0, "finished"), ("a0", 10.0, "finished"),
    ]  # fmt: skip
    assert len(Runs(runs, rank="return", top=1).run(unwatched).facts["runs"]) == 1
    with pytest.raises(SurefootError, match="no metric matches 'retrun'.*did you mean return"):
        Runs(runs, rank="retrun").run(unwatched)


def test_runs_that_differ_by_their_seed_alone_are_one_group_with_students_interval(runs):
    """Of 10 and 20: mean 15, sd 7.07, t of one degree of freedom 12.706: 15 +- 63.5."""
    group = Runs(runs, rank="return").run(unwatched).facts["groups"][0]
    assert (group["runs"], group["mean"]) == (2, 15.0)
    assert group["high"] - 15 == pytest.approx(12.7062 * math.sqrt(50) / math.sqrt(2), rel=1e-4)


def test_a_copy_of_a_run_is_no_second_seed(runs):
    """10 twice and 20: two seeds, as before."""
    shutil.copytree(runs / "deep" / "a0", runs / "copy")
    group = Runs(runs, rank="return").run(unwatched).facts["groups"][0]
    assert (group["runs"], group["seeds"], group["mean"]) == (3, 2, 15.0)
    assert group["high"] - 15 == pytest.approx(12.7062 * math.sqrt(50) / math.sqrt(2), rel=1e-4)


def test_runs_say_in_what_they_differ(runs):
    found = Runs(runs, rank="return", compare=True).run(unwatched).facts["differences"]
    assert {k.split("/")[-1]: v for k, v in found.items()} == {"b": {"seed": "", "settings": "lr: 0.001, not 0.002"}, "a0": {"seed": ""}}  # fmt: skip


def test_nothing_is_removed_unasked_and_what_stays_goes_on(runs):
    before = sorted(runs.rglob("*"))
    facts = Runs(runs, rank="return", clean="checkpoints").run(unwatched).facts
    assert sorted(runs.rglob("*")) == before and len(facts["would_remove"]) == 3 * 2 * 2
    Runs(runs, rank="return", clean="checkpoints", yes=True).run(unwatched)
    left = [p.name for p in (runs / "deep" / "b" / "checkpoints").glob("*.json")]
    assert left == ["00000004.json"]
    Runs(runs, rank="return", clean="worse", keep=1, yes=True).run(unwatched)
    assert [p.name for p in (runs / "deep").iterdir()] == ["a1"]


def test_a_run_that_is_being_written_is_never_removed(runs):
    (runs / "deep" / "a0" / "run.lock").write_text(f"process {os.getpid()} on {socket.gethostname()}\n")
    (runs / "deep" / "b" / "run.lock").write_text(
        f"process 999999999 on {socket.gethostname()}\n"
    )  # of one that was killed
    state = {r.folder.name: r.state for r in records.found(runs)[0]}
    assert state == {"a0": "running", "a1": "finished", "b": "finished"}
    Runs(runs, rank="return", clean="worse", keep=1, yes=True).run(unwatched)
    assert sorted(p.name for p in (runs / "deep").iterdir()) == ["a0", "a1"]


def test_a_run_that_was_edited_is_named_and_the_others_are_listed(runs):
    path = runs / "deep" / "b" / "run.json"
    path.write_text(path.read_text().replace("0.002", "0.003"))
    facts = Runs(runs, rank="return").run(unwatched).facts
    assert len(facts["runs"]) == 2 and list(facts["broken"]) == [str(path.parent)]


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_shared_runs_come_back_the_same_and_equal_files_are_sent_once(kind, runs, tmp_path):
    pytest.importorskip("fsspec", reason="comes with the extra train")
    address = str(tmp_path / "store") if kind == "folder" else f"memory://{tmp_path.name}"
    first = Runs(runs, rank="return", push=address).run(unwatched).facts["pushed"]
    again = Runs(runs, rank="return", push=address).run(unwatched).facts["pushed"]
    assert first["new_bytes"] > 0 and again["new_files"] == 0 and again["files"] == first["files"]
    there = tmp_path / "there"
    assert Runs(there, pull=address).run(unwatched).facts["pulled"] == ["deep/a0", "deep/a1", "deep/b"]
    for path in (p for p in runs.rglob("*") if p.is_file()):
        assert (there / path.relative_to(runs)).read_bytes() == path.read_bytes()
    assert Runs(there, pull=address).run(unwatched).facts["here"] == ["deep/a0", "deep/a1", "deep/b"]


def test_logs_and_bundles_are_shared_beside_runs_and_equal_content_once(runs, tmp_path):
    pytest.importorskip("fsspec", reason="comes with the extra train")
    log, bundle, address = tmp_path / "flight.npz", tmp_path / "bundle", str(tmp_path / "store")
    log.write_bytes(b"rows" * 1000)
    (bundle / "in").mkdir(parents=True)
    (bundle / "in" / "golden.npz").write_bytes(b"rows" * 1000)  # the same content under another name
    plain = Runs(runs, rank="return", push=address).run(unwatched).facts["pushed"]
    more = Runs(runs, rank="return", push=address, also=(log, bundle)).run(unwatched).facts["pushed"]
    assert (more["new_files"], more["new_bytes"], more["files"]) == (1, 4000, plain["files"] + 2)
    there = tmp_path / "there"
    assert Runs(there, pull=address).run(unwatched).facts["pulled"][:2] == ["also/bundle", "also/flight"]
    assert (there / "also" / "flight" / "flight.npz").read_bytes() == log.read_bytes()
    assert (there / "also" / "bundle" / "in" / "golden.npz").read_bytes() == log.read_bytes()
    with pytest.raises(SurefootError, match="--also: only with --push"):
        Runs(runs, also=(log,)).run(unwatched)
    with pytest.raises(SurefootError, match="nowhere: no such file or folder"):
        Runs(runs, rank="return", push=address, also=(tmp_path / "nowhere",)).run(unwatched)


def test_a_store_may_be_in_a_folder_named_runs(runs, tmp_path):
    pytest.importorskip("fsspec", reason="comes with the extra train")
    address = str(tmp_path / "runs" / "fleet")
    Runs(runs / "deep", rank="return", push=address).run(unwatched)
    assert Runs(tmp_path / "there", pull=address).run(unwatched).facts["pulled"] == ["a0", "a1", "b"]


def test_what_a_pull_was_cut_in_is_not_there_and_comes_with_the_next(runs, tmp_path):
    """The fifth file is refused: neither of the run's first four stays, nor is the run taken for one that is here."""
    fsspec = pytest.importorskip("fsspec", reason="comes with the extra train")
    address, there, asked = f"memory://{tmp_path.name}", tmp_path / "there", []
    Runs(runs, rank="return", push=address).run(unwatched)
    memory = type(fsspec.filesystem("memory"))

    def cut(self, path, *given, **how):
        asked.append(path)
        if len(asked) == 5:
            raise TimeoutError("the line is down")
        return whole(self, path, *given, **how)

    whole, memory.cat_file = memory.cat_file, cut
    try:
        with pytest.raises(SurefootError, match=f"^{address}: TimeoutError: the line is down$"):
            Runs(there, pull=address).run(unwatched)
    finally:
        memory.cat_file = whole
    assert [p for p in there.rglob("*") if p.is_file()] == []
    assert Runs(there, pull=address).run(unwatched).facts["pulled"] == ["deep/a0", "deep/a1", "deep/b"]


def test_no_bucket_is_made_and_an_address_without_runs_is_refused(runs, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec", reason="comes with the extra train")

    def makes(self, path, **how):
        raise AssertionError(f"{path}: a bucket that nobody asked for")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "makedirs", makes)
    Store(f"memory://{tmp_path.name}").put(runs / "deep" / "b", "b")
    with pytest.raises(SurefootError, match="nowhere: no runs were shared there"):
        Runs(tmp_path / "there", pull=str(tmp_path / "nowhere")).run(unwatched)
    with pytest.raises(SurefootError, match="expected a place in it, such as s3://bucket/runs"):
        Store("memory://")


def test_s3_without_its_extra_says_what_to_install(monkeypatch):
    registry = pytest.importorskip("fsspec.registry", reason="comes with the extra train")
    monkeypatch.delitem(registry._registry, "s3", raising=False)  # what was imported before
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtra, match=r"s3://b/x needs the 's3' extra: pip install 'surefoot\[s3\]'"):
        Store("s3://b/x")


def test_a_store_that_lies_is_refused(runs, tmp_path):
    store = Store(str(tmp_path / "store"))
    store.put(runs / "deep" / "b", "b")
    blob = max((tmp_path / "store" / "blobs").rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else 0)
    blob.write_bytes(b"x" * blob.stat().st_size)
    with pytest.raises(SurefootError, match="content and hash disagree"):
        store.get("b", tmp_path / "one")
    from surefoot import files

    bad = files.seal({"run": "b", "files": {"../../out": "0" * 64}})
    (tmp_path / "store" / "runs" / "b.json").write_text(json.dumps(bad))
    with pytest.raises(SurefootError, match="leads out of the run's folder"):
        store.get("b", tmp_path / "two")
    with pytest.raises(SurefootError, match="no run c"):
        store.get("c", tmp_path / "three")
    for name in ("../b", "/b", "a b", ""):
        with pytest.raises(SurefootError, match="expected a run's name"):
            store.put(runs / "deep" / "b", name)
