"""A bundle carries the safety layers of its policy: data alone, checked as the rest of it is, run as the gate judged it."""

import json
import subprocess
import sys

import numpy as np
import pytest

from surefoot import files, tasks
from surefoot.cli import main
from surefoot.control import layers
from surefoot.control.adaptive import Adapted, Adaptive
from surefoot.control.barrier import Filter
from surefoot.deploy import bundle, manifest
from surefoot.deploy.runtime.controller import Controller
from surefoot.deploy.runtime.loop import Settings, drive
from surefoot.errors import SurefootError
from surefoot.gate.candidate import candidate
from surefoot.learn.nets import export
from surefoot.learn.nets.policy_net import linear
from surefoot.policy import Driver
from surefoot.report import unwatched
from surefoot.sim.model.load import load_robot
from surefoot.tasks.joint_model import joints_of, limits_of
from surefoot.tasks.rollout import contract
from surefoot.verbs.train.bundled import bundled
from surefoot.verbs.train.guard import Guard

SPEED = 0.5  # rad/s: the arm asks for more


def run_of(name, folder):
    task = tasks.resolve(name)
    c = contract(task, tasks.env(task, 1).world)
    return export.save(linear(c, {}), folder).parent


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """A run of the arm, and the folder of its layers: limits of joints around an adaptive law."""
    folder = tmp_path_factory.mktemp("arm")
    run, task = run_of("arm", folder / "run"), tasks.resolve("arm")
    limits = limits_of(task, bundle.load(run).contract, SPEED)
    law = Adaptive(joints_of(load_robot(task.robot).model), tip=(0.55, 0.0, 0.0))
    layers.write(folder, (law, Filter((limits,))))
    return run, folder


def made(arm) -> dict[str, bytes]:
    run, folder = arm
    return bundled(run, bundle.load(run), tasks.resolve("arm"), {}, folder)[0]


def test_a_bundle_in_layers_is_read_as_it_was_written_and_its_policy_wears_them(arm, tmp_path):
    files_ = made(arm)
    assert set(files_) == {"policy.onnx", "golden.json", "manifest.json", "safety.json"}
    for path in (tmp_path / "b", tmp_path / "b.zip"):
        found = manifest.read(manifest.write(path, files_))
        assert found.manifest.wears == ("adaptive", "limits") and max(found.worst.values()) <= 1e-5
        assert isinstance(found.policy.policy, Adapted) and not found.passed


def test_the_runtime_drives_what_the_layers_allow(arm, tmp_path):
    """On the same observations: the net asks for more than the layers let through, and the controller sends the latter."""
    run, folder = arm
    found = manifest.read(manifest.write(tmp_path / "b", made(arm)))
    worn = Driver(layers.wear(bundle.load(run), layers.read(folder)), 1)
    wanted = np.concatenate([worn(row[None].astype(np.float32)) for row in found.golden.obs])
    parts = {k: v for k, v in found.golden.parts.items() if k != "action"} | {
        "control": found.policy.contract.action.names
    }
    c = Controller(found.policy, found.manifest.limits, parts)
    rows = [{k: x[i] for k, x in found.golden.readings.items() if k not in ("action", "command", "time")} for i in range(len(wanted))]  # fmt: skip
    asked = found.golden.readings.get("command", np.zeros((len(wanted), 0)))
    got = np.array([c.step(row, a).action for row, a in zip(rows, asked)])
    assert np.abs(got - wanted).max() <= 1e-5
    assert np.abs(got - found.golden.out).max() > 0.01, "the layers change what the net asks for"
    assert layers.counted(c.driver.state)["limits passed"] + layers.counted(c.driver.state)["limits changed"] > 0


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda f: f.pop("safety.json"), "safety.json"),
        (lambda f: f.update({"value.onnx": f["policy.onnx"]}), "value.onnx"),
        (lambda f: f.update({"safety.json": f["safety.json"].replace(b'"margin": 0.1', b'"margin": 0.0')}), "safety.json: not the file"),
    ],
)  # fmt: skip
def test_layers_that_are_not_the_bundles_own_are_refused(arm, tmp_path, change, words):
    files_ = made(arm)
    change(files_)
    manifest.write(tmp_path / "b", files_)
    with pytest.raises(SurefootError, match=words):
        manifest.read(tmp_path / "b")


def resealed(files_, safety) -> dict[str, bytes]:
    """A forger's bundle: other layers, with the right hashes and seal."""
    body = json.loads(files_["manifest.json"])
    body["files"]["safety.json"] = files.sha256(safety)
    return {**files_, "safety.json": safety, "manifest.json": json.dumps(files.seal(body)).encode()}


@pytest.mark.parametrize(
    "old, new, words",
    [
        (b'"speed": [\n', b'"speed": [99.0, 99.0], "was": [\n', "no field matches 'was'"),
        (b'"kappa": 20.0', b'"kappa": 2.0', "golden.json: .*: the runtime computes other numbers"),
        (b'"kind": "adaptive"', b'"kind": "os.system"', "no kind matches 'os.system'"),
        (b'"kappa": 20.0', b'"kappa": "20"', "kappa: expected a number"),
    ],
)
def test_layers_that_were_changed_and_sealed_again_are_refused(arm, tmp_path, old, new, words):
    files_ = made(arm)
    safety = files_["safety.json"].replace(old, new)
    assert safety != files_["safety.json"]
    manifest.write(tmp_path / "b", resealed(files_, safety))
    with pytest.raises(SurefootError, match=words):
        manifest.read(tmp_path / "b")


def test_export_gate_and_check_name_the_layers(arm, tmp_path, capsys):
    run, folder = arm
    out = tmp_path / "b"
    assert main(["export", str(run), "--safety", str(folder), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wears"] == ["adaptive", "limits"]
    assert main(["bundle", "check", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wears"] == ["adaptive", "limits"]
    who = candidate(out)
    assert "adaptive, limits" in who.notes[-1] and who.parents["safety"] == files.sha256(
        (out / "safety.json").read_bytes()
    )
    assert main(["export", str(run), "--out", str(out)]) == 0  # without layers, where a bundle with some was
    assert manifest.read(out).manifest.wears == () and not (out / "safety.json").exists()


def test_a_switch_goes_into_a_bundle_with_its_net(tmp_path):
    run = run_of("course", tmp_path / "run")
    Guard(run, episodes=1, envs=8, seed=2, threads=1).run(unwatched)
    files_ = bundled(run, bundle.load(run), tasks.resolve("course"), {}, run)[0]
    found = manifest.read(manifest.write(tmp_path / "b.zip", files_))
    assert found.manifest.wears == ("reach_avoid",) and "value.onnx" in files_
    other = {**files_, "value.onnx": files_["policy.onnx"]}
    with pytest.raises(SurefootError, match="value.onnx: not the file that manifest.json was written for"):
        manifest.read(manifest.write(tmp_path / "c", other))


@pytest.mark.slow
def test_a_robot_is_driven_in_layers_and_the_log_counts_what_they_did(arm, tmp_path, monkeypatch):
    """The robot is another process, as on a desk."""
    monkeypatch.setattr("surefoot.deploy.runtime.loop.QUICKEST", 5.0)
    found = manifest.read(manifest.write(tmp_path / "b", made(arm)))
    job = [sys.executable, "-m", "surefoot", "robot", "arm", "--port", "9898", "--runs", "1", "--json"]
    robot = subprocess.Popen(job, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        settings = Settings(live=True, seconds=1.0, misses=10**6, watchdog=20.0)
        done = None
        for _ in range(10):  # it takes some seconds to start
            try:
                done = drive(found, "udp://127.0.0.1:9898", settings)
                break
            except SurefootError as error:
                assert "no robot answers" in str(error)
    finally:
        robot.terminate()
        robot.wait()
    assert done is not None and done.good, done and done.states.cause
    counts = done.log.meta["counts"]["layers"]
    assert sum(n for k, n in counts.items() if k.startswith("limits")) == done.counts.periods
