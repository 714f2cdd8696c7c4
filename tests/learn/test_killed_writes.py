"""kill -9 inside every write: no half file, and the run goes on to the same bits.

A warm process forks a child for each instant. In the child every step of a write counts: half of the bytes, all of them
before fsync, after it, before the rename, after it, before a removal. At the k-th it kills itself. Then another child gives
the same command again, and what is there at the end is compared with what an undisturbed one leaves.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.deploy import bundle
from surefoot.learn.nets import export

WARM = '''
import hashlib, json, os, shutil, signal, sys, traceback
from pathlib import Path
import matplotlib.figure, numpy as np, onnx, tensorboard.summary.writer.record_writer
from tensorboard.compat.proto import event_pb2, summary_pb2
from surefoot import files
from surefoot.cli import main
from surefoot.verbs.judge import eval as _, gate as _
from surefoot.verbs.train import export as _, train as _
from surefoot.deploy import bundle
from surefoot.learn.nets import export
from surefoot.onnx_file.runtime import runtime
from surefoot.tensors import parse_tensors
from surefoot.errors import SurefootError
from surefoot.gate import gate as _, junit as _
from surefoot.learn import run, train as learn
from surefoot.web import page as _

runtime()

folder, verb, sample = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
TINY = "--envs 4 --horizon 4 --hidden 4 --minibatches 1 --steps 48 --learner-threads 1".split()
LESSON = "--student.envs 4 --student.horizon 4 --student.steps 32 --student.minibatches 1 --student.history 2 --student.learner-threads 1".split()
TRAIN = ["train", "balance", *TINY, "--save-every", "0", "--threads", "1"]


def command(out, again):
    """The words of the verb; `again` after a kill."""
    if verb == "ppo":
        started = (out / "run.json").exists()
        return ["train", "--resume", str(out), "--save-every", "0"] if started else [*TRAIN, "--ranges", "adr", "--out", str(out)]
    if verb in ("dagger", "rma"):
        return [*TRAIN, "--adapt", verb, *LESSON, "--out", str(out)]
    policy = str(folder / "policy")
    if verb == "export":
        return ["export", policy, "--out", str(out / "policy.onnx")]
    return ["gate", policy, "--episodes", "20", "--threads", "1", "--out", str(out), "--junit", str(out / "gate.xml")]


def count(k):
    """From now on the k-th step of a write kills this process; returns how many there were, for k = 0."""
    seen = [0]

    def step(before=None):
        seen[0] += 1
        if seen[0] == k:
            if before is not None:
                before()
            os.kill(os.getpid(), signal.SIGKILL)

    def around(real):
        def call(*args, **kw):
            step()
            return real(*args, **kw)
        return call

    def halved(fd):
        if os.path.isfile(f"/proc/self/fd/{fd}"):  # a folder cannot be cut
            step(lambda: os.truncate(f"/proc/self/fd/{fd}", os.fstat(fd).st_size // 2))
        step()
        sync(fd)
        step()

    def opened(path, mode="r", *args, **kw):
        """Rows are appended without a rename: half of one may be there."""
        f = real_open(path, mode, *args, **kw)
        return Half(f) if mode == "ab" and Path(path).name == "metrics.jsonl" else f

    class Half:
        def __init__(self, f):
            self.f = f
        def write(self, data):
            step(lambda: self.f.write(data[: len(data) // 2]))
            return self.f.write(data)
        def fileno(self):
            return self.f.fileno()
        def __enter__(self):
            return self
        def __exit__(self, *why):
            self.f.close()

    sync, real_open = os.fsync, open
    os.fsync, os.replace, os.truncate, os.unlink = halved, around(os.replace), os.truncate, around(os.unlink)
    run.open = opened
    return seen


def child(out, k=0, again=False):
    """Whether a forked process came to the end, and how many steps of writes it took."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 97
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            seen = count(k)
            code = main(command(out, again))
            os.write(writes, str(seen[0]).encode())
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    os.close(writes)
    with open(reads) as f:
        steps = f.read()
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return -9, 0
    return os.WEXITSTATUS(status), int(steps)


def left(out):
    """Hashes of what must be the same; of JSON that tells of time and resumes, what must be whole."""
    found = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        name, data = str(path.relative_to(out)), path.read_bytes()
        if path.name.startswith("events.") or path.suffix == ".lock":
            continue
        assert not path.name.endswith(".part"), f"litter: {name}"
        if path.name in ("run.json", "gate.json") or path.parent.name == "checkpoints" and path.suffix == ".json":
            value = files.check_seal(files.read_json(path), name)
            for k in ("run", "resumed", "metrics", "meta"):
                value.pop(k, None)
            data = json.dumps(value, sort_keys=True).replace(str(out), "OUT").encode()
        elif path.suffix in (".html", ".xml"):
            data = data.rstrip()[-7:]  # to its end; it tells of seconds, too
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def check_killed(out, k):
    """Right after a kill: what has a name is whole."""
    for path in out.rglob("*") if out.exists() else ():
        if path.suffix == ".json" and not path.name.startswith("."):
            files.check_seal(files.read_json(path), str(path))
        if path.suffix == ".safetensors" and not path.name.startswith("."):
            parse_tensors(path.read_bytes(), str(path))
        if path.suffix == ".onnx":
            bundle.load(path)


if verb in ("gate", "export"):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main([*TRAIN, "--out", str(folder / "policy")]))
    assert os.waitpid(pid, 0)[1] == 0
code, steps = child(folder / "straight")
expected = left(folder / "straight")
ks = range(1, steps + 1)
if sample and sample < steps:
    ks = sorted(np.random.default_rng(0).choice(np.arange(1, steps + 1), sample, replace=False).tolist())
same = []
for k in ks:
    out = folder / f"k{k}"
    died, _ = child(out, k)
    assert died == -9, (k, died)
    check_killed(out, k)
    again, _ = child(out, again=True)
    assert again == code, (k, again, code)
    found = left(out)
    same.append(found == expected)
    if not same[-1]:
        print(k, sorted(n for n in {*found, *expected} if found.get(n) != expected.get(n)), file=sys.stderr)
    shutil.rmtree(out)
print(json.dumps({"code": code, "steps": steps, "tried": len(same), "same": sum(same), "files": sorted(expected)}))
'''


def test_a_student_killed_while_its_teacher_is_copied_begins_anew(tmp_path):
    """A copy is two files; a run is one from its run.json on, which comes after them."""
    from surefoot import tasks
    from surefoot.learn import train as learn
    from surefoot.learn.settings import DistillSettings

    lesson = DistillSettings(envs=4, horizon=4, steps=16, minibatches=1, history=2, label="action")
    settings = learn.settings_for("balance", {"envs": 4, "horizon": 4, "hidden": (4,), "minibatches": 1, "steps": 16})
    teacher = learn.train("balance", tmp_path / "t", settings=settings, obs=tasks.ObsOverride(also=("e",)))
    kept = tmp_path / "s" / "teacher"
    kept.mkdir(parents=True)
    shutil.copy(teacher.with_name("policy.safetensors"), kept)  # and there it was killed
    path = learn.train("balance", tmp_path / "s", teacher=teacher, settings=lesson, resume_if_same=True)
    assert export.digest(export.load_net(kept)) == export.digest(export.load_net(teacher)) and bundle.load(path)


def killed(folder: Path, verb: str, sample: int) -> dict:
    """How a verb stood being killed at `sample` of the steps of its writes, or at all of them, for 0."""
    args = [sys.executable, "-W", "ignore", "-c", WARM, str(folder), verb, str(sample)]
    done = subprocess.run(args, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["same"] == found["tried"], done.stderr[-3000:]
    return found


@pytest.mark.parametrize("verb, sample", [("ppo", 8), ("dagger", 4), ("rma", 4), ("gate", 2), ("export", 3)])
def test_killed_inside_a_write_a_command_given_again_ends_with_the_same_bits(tmp_path, verb, sample):
    assert killed(tmp_path, verb, sample)["tried"] == sample


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("verb", ["ppo", "dagger", "rma", "gate", "export"])
def test_killed_inside_every_write_a_command_given_again_ends_with_the_same_bits(tmp_path, verb):
    found = killed(tmp_path, verb, 0)
    assert found["tried"] == found["steps"]
