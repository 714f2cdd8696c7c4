"""A bundle is read as it was written, or refused by file and field."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from surefoot import files, tasks
from surefoot.cli import main
from surefoot.deploy import bundle, manifest
from surefoot.errors import SurefootError
from surefoot.gate.bundled import bundled

FLIPS = 40  # bits flipped of each file


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    """The files of a bundle of the shipped policy."""
    policy = bundle.load(Path("balance"))
    found, why = bundled(Path("balance"), policy, tasks.resolve("balance"), {})
    assert not why
    return found


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return manifest.write(tmp_path / "b", made)


def resealed(made: dict[str, bytes], change) -> dict[str, bytes]:
    """A forger's manifest: changed, with the right seal and hashes."""
    body = json.loads(made[manifest.MANIFEST])
    change(body)
    return {**made, manifest.MANIFEST: json.dumps(files.seal(body)).encode()}


def refused(made: dict[str, bytes], folder: Path, words: str) -> None:
    manifest.write(folder, made)
    with pytest.raises(SurefootError, match=words):
        manifest.read(folder)


def test_it_is_read_as_it_was_written_from_a_folder_and_from_a_zip(made, tmp_path):
    one, other = (
        manifest.read(manifest.write(tmp_path / "b", made)),
        manifest.read(manifest.write(tmp_path / "b.zip", made)),
    )
    assert one.sha256 == other.sha256 and one.passed and one.policy.contract == bundle.load(Path("balance")).contract
    assert len(one.golden.obs) == 4 * one.policy.contract.rate and max(one.worst.values()) <= 1e-5
    assert one.manifest.belief == tasks.resolve("balance").belief
    assert other.manifest.limits.to_json() == one.manifest.limits.to_json()


def test_equal_contents_give_equal_bytes(made, tmp_path):
    one, other = (manifest.write(tmp_path / name, made).read_bytes() for name in ("a.zip", "b.zip"))
    assert one == other


@pytest.mark.parametrize("name", list(manifest.LARGEST))
def test_every_flipped_bit_is_noticed_in_the_file_it_is_in(made, name, tmp_path):
    """All in memory but for a few: by hash for two files, by the seal for the third."""
    data = made[name]
    bits = np.linspace(0, 8 * len(data) - 1, FLIPS).astype(int)
    for k, bit in enumerate(bits):
        at = bit // 8
        other = data[:at] + bytes([data[at] ^ (1 << bit % 8)]) + data[at + 1 :]
        if k % 8 == 0:
            refused({**made, name: other}, tmp_path / str(k), name)
        elif name != manifest.MANIFEST:
            assert files.sha256(other) != files.sha256(data)


def test_files_of_two_bundles_are_refused(made, tmp_path):
    """A manifest with other limits makes another golden.json; neither goes with the other's."""
    policy = bundle.load(Path("balance"))
    other, _ = bundled(Path("balance"), policy, tasks.resolve("balance"), {"rate": 5.0})
    assert other[manifest.GOLDEN] != made[manifest.GOLDEN]
    refused({**made, manifest.GOLDEN: other[manifest.GOLDEN]}, tmp_path / "b", "golden.json: not the file .* sha256")


def test_limits_that_were_widened_and_sealed_again_are_found_by_the_golden_commands(tmp_path):
    policy = bundle.load(Path("balance"))
    slow, _ = bundled(Path("balance"), policy, tasks.resolve("balance"), {"rate": 5.0})
    refused(
        resealed(slow, lambda m: m["limits"].update(rate=[500.0])),
        tmp_path / "b",
        "golden.json: command: .* other numbers",
    )


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda m: m.update(format=7), "format: expected 1, found 7"),
        (lambda m: m["verdict"]["meta"]["parents"].update(policy="0" * 64), "verdict: it is about another policy"),
        (lambda m: m["verdict"].update(holds=False), "verdict.holds: found False, expected True"),
        (lambda m: m["limits"].update(torque=[-1.0]), "limits: torque: expected numbers > 0"),
        (lambda m: m["limits"].update(low=[1.0, 2.0]), "limits: low: expected 1 numbers"),
        (lambda m: m["limits"].update(speed=[1.0]), "no field matches 'speed'"),
        (lambda m: m.pop("limits"), "limits: found nothing"),
        (lambda m: m.update(wears=["cape"]), r"wears: found \['cape'\], expected \[\]"),
        (lambda m: m["verdict"]["meta"]["parents"].update(safety="0" * 64), "verdict: it is about other safety layers"),
        (lambda m: m.update(more=1), "no field matches 'more'"),
        (lambda m: m["belief"].update(low=["x"] * 7), "belief"),
    ],
)
def test_a_manifest_with_one_field_changed_is_refused_by_its_name(made, tmp_path, change, words):
    refused(resealed(made, change), tmp_path / "b", words)


def test_an_edited_manifest_breaks_its_seal(made, tmp_path):
    body = made[manifest.MANIFEST].replace(b'"temperature": 80.0', b'"temperature": 99.0')
    assert body != made[manifest.MANIFEST]
    refused({**made, manifest.MANIFEST: body}, tmp_path / "b", "edited or damaged")


def zipped(entries: list[tuple[str, bytes]], path: Path) -> Path:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in entries:
            z.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    path.write_bytes(out.getvalue())
    return path


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "entries, words",
    [
        (lambda m: [*m.items(), ("../canary", b"x")], "'../canary': expected only"),
        (lambda m: [*m.items(), ("/etc/canary", b"x")], "'/etc/canary': expected only"),
        (lambda m: [*m.items(), ("policy.onnx", b"x")], "each once"),
        (lambda m: list(m.items())[1:], "each once"),
        (lambda m: [(k, v + b" " * (files.LARGEST_JSON + 1) if k == "golden.json" else v) for k, v in m.items()], "golden.json: found more than"),
        (lambda m: [*m.items(), *((f"{k}.json", b"") for k in range(10_000))], "expected only"),
    ],
)  # fmt: skip
def test_a_hostile_zip_is_refused_and_nothing_is_written(made, tmp_path, entries, words):
    path = zipped(entries(made), tmp_path / "b.zip")
    with pytest.raises(SurefootError, match=words):
        manifest.read(path)
    assert [p.name for p in tmp_path.iterdir()] == ["b.zip"]


def test_a_truncated_zip_is_refused(made, tmp_path):
    data = manifest.write(tmp_path / "b.zip", made).read_bytes()
    for cut in (0, 10, len(data) // 2, len(data) - 1):
        (tmp_path / "c.zip").write_bytes(data[:cut])
        with pytest.raises(SurefootError, match="c.zip"):
            manifest.read(tmp_path / "c.zip")


def test_check_exits_with_1_and_names_the_field(folder, capsys):
    assert main(["bundle", "check", str(folder)]) == 0
    (folder / "golden.json").write_bytes((folder / "golden.json").read_bytes()[:-2])
    assert main(["bundle", "check", str(folder)]) == 1
    assert "golden.json: not the file" in capsys.readouterr().out


def test_a_full_disk_leaves_no_half_of_a_bundle(made, tmp_path, monkeypatch):
    whole = files.write

    def full(path, data):
        if path.name == manifest.GOLDEN:
            raise SurefootError(f"{path}: could not write: No space left on device")
        whole(path, data)

    monkeypatch.setattr(files, "write", full)
    with pytest.raises(SurefootError, match="No space left"):
        manifest.write(tmp_path / "b", made)
    assert not (tmp_path / "b").exists()


def test_a_run_is_no_bundle(tmp_path):
    with pytest.raises(SurefootError, match="surefoot export"):
        manifest.read(Path("balance"))


BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mujoco", "torch", "scipy", "rich", "tyro", "safetensors", "matplotlib"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from pathlib import Path
from surefoot.deploy import manifest
from surefoot.deploy.links import robot_side, udp
from surefoot.deploy.runtime import loop, watchdog
assert manifest.read(Path(sys.argv[1])).passed
"""


def test_a_robots_computer_reads_it_with_numpy_and_onnxruntime_alone(folder):
    done = subprocess.run([sys.executable, "-c", BARE, str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_command_after_a_check_finds_a_task_that_is_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    task = 'from dataclasses import replace\nfrom surefoot import tasks\nfrom surefoot.task import Task\n\n\ndef mine() -> Task:\n    return replace(tasks.named("balance"), name="mine")\n'
    (tmp_path / "mine.py").write_text(task)
    small = ["--envs", "8", "--horizon", "8", "--steps", "128", "--hidden", "8", "--learner-threads", "1"]
    assert main(["train", "mine.py", "--out", "r", *small]) == 0 and main(["export", "r"]) == 0
    assert main(["bundle", "check", "r/bundle"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: surefoot robot {tmp_path / 'mine.py'}"
    (tmp_path / "mine.py").write_text(task + "# changed")
    assert main(["bundle", "check", "r/bundle"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("next: surefoot run r/bundle --link udp://")
