"""Workers as Ray actors: the bits of one process, also when workers are killed; quiet, and on loopback alone."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from test_shards import SMALL, bits

from surefoot import tasks
from surefoot.errors import MissingExtra, SurefootError
from surefoot.learn.cluster.address import On
from surefoot.learn.cluster.jobs import Job, Jobs
from surefoot.learn.train import resume, settings_for, train


@pytest.fixture(scope="module")
def ray():
    """One cluster for all tests of this file: it takes seconds to start."""
    if find_spec("ray") is None:
        pytest.skip("workers on Ray need the extra cluster: pip install 'surefoot[cluster]'")
    from surefoot.learn.cluster.ray_workers import connect, disconnect

    before = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    yield connect(On("", 4))
    disconnect()
    assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)] == before


def workers(kind: bytes = b"ray::Held") -> list[int]:
    """Processes that hold envs, or share an update."""
    found = [p for p in Path("/proc").glob("[0-9]*/cmdline") if _read(p).startswith(kind)]
    return sorted(int(p.parent.name) for p in found)


def gone() -> None:
    """Nobody is left within ten seconds of a run's end."""
    until = time.monotonic() + 10
    while workers() and time.monotonic() < until:
        time.sleep(0.1)
    assert not workers()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def trained(name, out, on=None, watch=None, envs=24, iterations=4):
    settings = settings_for(name, SMALL | {"envs": envs, "steps": envs * 8 * iterations})
    return bits(
        train(name, out, settings=settings, belief=tasks.resolve(name).belief, seed=5, on=on, watch=watch).parent
    )


def test_a_shared_update_survives_the_death_of_a_process_with_the_same_bits(ray, tmp_path):
    """Two runs of two ranks, of which one loses a rank between its iterations; one process has other bits."""
    dead, said = list[int](), list[str]()

    def kill(progress):
        said.append(progress.doing)
        if progress.metrics and not dead:
            dead.append(workers(b"ray::Peer")[0])
            os.kill(dead[0], signal.SIGKILL)

    first = trained("hover", tmp_path / "a", On("", 1, 2))
    assert trained("hover", tmp_path / "b", On("", 1, 2), kill) == first and dead
    assert trained("hover", tmp_path / "c") != first
    about = lambda: json.loads((tmp_path / "b" / "run.json").read_text())  # noqa: E731
    assert about()["versions"]["update"] == "by 2 processes"
    notes = [words for words in said if words.startswith("note:")]
    assert "the update is shared by 2 processes" in notes[0] and "a process that shares the update died" in notes[1]
    resume(tmp_path / "b")
    assert about()["resumed"][-1]["differs"] == ["update by 2 processes -> by one process"]


def test_a_shared_update_with_workers_of_its_own_ends_as_it_should(ray, tmp_path):
    """Its processes end before the connection does: asked afterwards, Ray would begin a cluster of its own, open to all."""
    words = "train hover --on local:2 --shards 2 --envs 24 --horizon 8 --minibatches 2 --steps 384 --out run".split()
    job = [sys.executable, "-m", "surefoot", *words]
    done = subprocess.run(job, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "Started a local Ray instance" not in done.stdout + done.stderr
    assert not (tmp_path / "run" / "run.lock").exists()


def test_processes_and_killed_processes_move_no_bit(ray, tmp_path, capfd):
    """Of two workers two are killed -9 while they collect or wait."""
    whole, said, killed = trained("hover", tmp_path / "whole"), [], []

    def watch(p):
        said.append(p.doing)
        if p.metrics and len(killed) < 2:
            killed.append(workers()[0])
            os.kill(killed[-1], signal.SIGKILL)

    assert trained("hover", tmp_path / "ray", On("", 2), watch) == whole
    assert len(killed) == 2 and sum("a new one continues with its envs" in words for words in said) == 2
    assert capfd.readouterr().out == ""
    gone()


def test_a_task_file_is_found_by_its_path_and_its_errors_come_home(ray, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\n\nfrom surefoot.task import Reward, Task\nfrom surefoot.tasks.ready.balance import balance\n\n\n"
        "def wrong(s):\n    if s.time.max() > 0.5:\n        raise ZeroDivisionError('no such angle')\n    return s.q[:, 0]\n\n\n"
        "def task() -> Task:\n    return replace(balance(), name='mine', rewards={'wrong': Reward(1.0, wrong, 'x')})\n"
    )
    settings = settings_for("balance", SMALL | {"envs": 8, "steps": 8 * 8 * 20})
    with pytest.raises(SurefootError, match="no such angle"):
        train(str(file), tmp_path / "r", settings=settings, on=On("", 1))
    gone()


def test_jobs_run_side_by_side_and_one_whose_worker_dies_is_done_again(ray, tmp_path):
    """Each job waits for the other to have begun; one kills its worker the first time."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # no worker can import a test
    asked = [Job(name, (str(tmp_path), name)) for name in ("a", "b")]
    assert Jobs(On("", 4)).each(meets, asked) == ["a met b", "b met a"]
    with pytest.raises(SurefootError, match="no such job"):
        Jobs(On("", 4)).each(refuses, [Job("x", None)])


def meets(given, watch):
    folder, name = Path(given[0]), given[1]
    other = "b" if name == "a" else "a"
    if name == "a" and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / name).touch()
    until = time.monotonic() + 60
    while not (folder / other).exists() and time.monotonic() < until:
        time.sleep(0.05)
    return f"{name} met {other}" if (folder / other).exists() else f"{name} was alone"


def refuses(given, watch):
    raise SurefootError("no such job")


def waits(given, watch):
    time.sleep(120)


def test_sigterm_while_jobs_run_ends_them_with_its_exit_code(ray):
    """128 + 15, through every `finally`; Ray's own answers are 15 and 1, and nobody's is a process that leaves others behind."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(SystemExit) as ended:
        Jobs(On("", 4)).each(waits, [Job("x", None)])
    assert ended.value.code == 143


def test_more_workers_than_cores_are_refused_and_so_are_cores_that_others_use(ray, tmp_path, monkeypatch):
    """Ray itself would wait for them without a word."""
    with pytest.raises(
        SurefootError, match="--on: local: 5 workers need a core each, and the cluster has 4; expected fewer"
    ):
        trained("hover", tmp_path / "a", On("", 5))
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr("surefoot.learn.cluster.ray_workers.ROOM", 1.0)
    busy = ray.remote(num_cpus=3)(waits).remote(None, None)
    try:
        until = time.monotonic() + 60
        while ray.available_resources().get("CPU", 0) > 1 and time.monotonic() < until:
            time.sleep(0.1)
        with pytest.raises(SurefootError, match="2 workers need a core each, and the cluster has 4, which others use"):
            trained("hover", tmp_path / "a", On("", 2))
    finally:
        ray.cancel(busy, force=True)
    assert not (tmp_path / "a").exists()


def test_a_successor_without_a_core_shares_one_and_moves_no_bit(ray, tmp_path, monkeypatch):
    """As after a machine of the cluster is gone for good."""
    from surefoot.learn.cluster.ray_workers import RayWorkers

    whole, said, killed = trained("hover", tmp_path / "whole"), [], []

    def watch(p):
        said.append(p.doing)
        if p.metrics and not killed:
            killed.append(workers()[0])
            monkeypatch.setattr(RayWorkers, "_free", lambda self, cores: False)
            os.kill(killed[0], signal.SIGKILL)

    assert trained("hover", tmp_path / "ray", On("", 2), watch) == whole
    assert killed and any(re.fullmatch("note: no core is left for worker [01]: it shares one", x) for x in said)
    gone()


def test_where_nobody_answers_is_said_at_once():
    ray = pytest.importorskip("ray", reason="workers on Ray need the extra cluster")
    from surefoot.learn.cluster.ray_workers import _check_answers

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(SurefootError, match=rf"--on: {address}: nobody answers there \(Connection refused\)"):
            _check_answers(ray, On(address, 1))


def niceness(given, watch):
    return os.nice(0)


def test_workers_have_the_priority_of_the_learner(ray):
    """Ray's own choice is 15: on a busy machine they would get no core."""
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    assert Jobs(On("", 4)).each(niceness, [Job("x", None)]) == [os.nice(0)]


def test_only_this_machine_is_spoken_to_and_nobody_is_told(ray):
    assert ray.util.get_node_ip_address() == "127.0.0.1"
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0" and os.environ["RAY_AUTH_MODE"] == "token"
    from ray._private.worker import _global_node

    assert not _global_node.webui_url  # no dashboard
    folder = Path(_global_node.get_session_dir_path()).parents[1]
    assert folder.stat().st_mode & 0o077 == 0


def test_processes_that_share_an_update_on_this_machine_listen_on_loopback_alone(tmp_path):
    """Also where the environment or the host's name leads elsewhere."""
    import torch.distributed as dist

    pytest.importorskip("ray", reason="workers on Ray need the extra cluster")
    from surefoot.learn.cluster.peers import INTERFACE, Gloo

    before = listening()
    elsewhere = [name for _, name in socket.if_nameindex() if not name.startswith("lo")]
    with pytest.MonkeyPatch.context() as m:
        m.setenv(INTERFACE, (elsewhere or ["lo"])[-1])
        Gloo((str(tmp_path / "meeting"), 0), 0, 1)
        try:
            assert os.environ[INTERFACE] == (elsewhere or ["lo"])[-1]
            own = listening() - before
            assert own and {address for address, _ in own} == {"0100007F"}
        finally:
            dist.destroy_process_group()


def listening() -> set[tuple[str, str]]:
    """(address, port) of this process's listening sockets, as Linux writes them."""
    nodes = {_link(p).removeprefix("socket:[").removesuffix("]") for p in Path("/proc/self/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {(r[1].split(":")[0], r[1].split(":")[1]) for r in rows if r[3] == "0A" and r[9] in nodes}


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("surefoot.learn.cluster.ray_workers.connected", lambda: False)
    with pytest.raises(MissingExtra, match=r"--on needs the 'cluster' extra: pip install 'surefoot\[cluster\]'"):
        train("balance", tmp_path / "r", settings=settings_for("balance", {"envs": 8, "steps": 64}), on=On("", 2))
    assert not (tmp_path / "r").exists()
