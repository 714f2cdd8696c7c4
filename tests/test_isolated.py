"""A child that reads a stranger's bytes can compute and answer, and nothing else."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from surefoot import isolated
from surefoot.errors import SurefootError
from surefoot.isolated import Exceeded, Limits, run

linux = pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are Linux's")


PLENTY = Limits()


def child(code: str, limits: Limits = PLENTY) -> bytes:
    """Any code in place of a reader that was broken into."""
    return run("builtins:exec", code.encode(), limits, "x.csv: reading")


def test_bytes_go_in_and_bytes_come_out():
    data = bytes(range(256)) * 10_000
    assert run("builtins:bytearray", data, Limits(), "x: reading") == data


def test_what_the_function_refuses_is_refused_in_its_own_words():
    with pytest.raises(SurefootError, match="^row 3: found nothing$") as caught:
        child("from surefoot.errors import SurefootError\nraise SurefootError('row 3: found nothing')")
    assert not isinstance(caught.value, Exceeded)


@pytest.mark.parametrize(
    "code, limits, words",
    [
        ("while True: pass", Limits(seconds=1), "x.csv: reading took more than 1 s of CPU time"),
        ("import time; time.sleep(60)", Limits(wall=1.0), "x.csv: reading took more than 1 s"),
        ("bytearray(1 << 29)", Limits(memory=1 << 28), "x.csv: reading takes more than 256 MiB of memory"),
        ("import os; os.abort()", Limits(), r"x.csv: reading broke off \(code -6"),
        ("1 / 0", Limits(), "x.csv: reading broke off .*ZeroDivisionError: division by zero"),
        ("print('x' * 100_000, flush=True); 1 / 0", Limits(), "reading broke off .*ZeroDivisionError"),
    ],
    ids=["cpu", "wall", "memory", "crash", "error", "noise"],
)
def test_a_limit_that_is_passed_is_named(code, limits, words):
    with pytest.raises(Exceeded, match=words):
        child(code, limits)


def test_an_answer_longer_than_the_limit_on_memory_is_not_taken():
    flood = "import os\nwhile True:\n    for fd in range(3, 10):\n        try: os.write(fd, bytes(1 << 20))\n        except OSError: pass"
    with pytest.raises(Exceeded, match="takes more than 16 MiB of memory"):
        child(flood, Limits(memory=16 << 20, wall=20.0))


@linux
@pytest.mark.parametrize(
    "code",
    [
        "open('{there}/made', 'w')",
        "import os; os.mkdir('{there}/made')",
        "import os; os.remove('{there}/kept')",
        "import os; os.rename('{there}/kept', '{there}/made')",
        "import os; os.truncate('{there}/kept', 0)",
        "import os; os.execv('/bin/sh', ['sh', '-c', 'touch {there}/made'])",
        "import subprocess; subprocess.run(['touch', '{there}/made'])",
        "import os; os.fork()",
        "import os; os.kill({pid}, 0)",
    ],
)
def test_a_child_writes_removes_and_starts_nothing(tmp_path, code):
    (tmp_path / "kept").write_text("as it was")
    with pytest.raises(Exceeded, match="PermissionError"):
        child(code.format(there=tmp_path, pid=os.getpid()))
    assert os.listdir(tmp_path) == ["kept"] and (tmp_path / "kept").read_text() == "as it was"


@linux
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_a_child_reaches_no_network(kind):
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as server:
        server.bind(("127.0.0.1", 0))
        address = server.getsockname()
        with pytest.raises(Exceeded, match="PermissionError"):
            child(f"import socket; socket.socket(socket.AF_INET, socket.{kind}).connect({address})")


@linux
def test_threads_of_libraries_still_run():
    with pytest.raises(SurefootError, match="^a thread ran$"):
        child(
            "import threading\nfrom surefoot.errors import SurefootError\nran = []\n"
            "t = threading.Thread(target=ran.append, args=(1,)); t.start(); t.join()\n"
            "raise SurefootError('a thread ran' if ran else 'none ran')"
        )


def test_modules_beside_a_dataset_are_not_imported(tmp_path, monkeypatch):
    for name in ("numpy", "json", "surefoot", "ctypes"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run("builtins:bytearray", b"a", Limits(), "x: reading") == b"a"
    assert not (tmp_path / "ran").exists()


def test_python_m_surefoot_imports_no_module_beside_a_dataset(tmp_path):
    for name in ("numpy", "json", "tyro", "struct"):
        (tmp_path / f"{name}.py").write_text("open('canary', 'w')")
    (tmp_path / "a.csv").write_text("time,q\n0,1\n1,2\n2,3\n")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}  # which surefoot's command line sets
    job = [sys.executable, "-m", "surefoot", "log", "a.csv"]
    done = subprocess.run(job, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not (tmp_path / "canary").exists(), done.stderr


def test_a_package_that_is_not_installed_is_found_where_its_parent_found_it(tmp_path):
    """A copy of the sources elsewhere: the child runs the copy, as its parent does."""
    import shutil
    from pathlib import Path

    copy = shutil.copytree(Path(isolated.__file__).parent, tmp_path / "surefoot", ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    (copy / "mark.py").write_text("def where(data):\n    return __file__.encode()\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom surefoot import isolated\nprint(isolated.run('surefoot.mark:where', b'', isolated.Limits(), 'x').decode())"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(copy / "mark.py")


def test_what_a_system_lacks_is_said_once():
    script = (
        "import json, warnings\nfrom surefoot import isolated\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n    isolated._warn(['no A']); isolated._warn(['no A', 'no B'])\n"
        "print(json.dumps([str(w.message) for w in caught]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert [s.split(": ")[1] for s in said] == ["no A", "no B"]


def test_nothing_is_left_behind():
    before = threading.active_count()
    with pytest.raises(Exceeded):
        child("import time; time.sleep(60)", Limits(wall=0.5))
    assert threading.active_count() == before
