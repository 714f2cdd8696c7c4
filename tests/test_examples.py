"""Examples and the README's commands do what they say."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TASK_FILE = """from surefoot.task import Task
from surefoot.tasks import resolve


def task() -> Task:
    return resolve("balance")
"""  # in place of the one that `surefoot new` writes


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("[0-9]*.py")), ids=lambda p: p.name)
def test_an_example_runs(path, tmp_path):
    done = subprocess.run(
        [sys.executable, str(path), "--quick"], cwd=tmp_path, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def commands() -> list[str]:
    """Every `surefoot ...` line in a shell block of the README and the docs."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", page.read_text(), re.S):
            found += [
                line.strip().removeprefix("$ ") for line in block.splitlines() if re.match(r"\s*(\$ )?surefoot ", line)
            ]
    return sorted(set(found))


def settings() -> list[tuple[str, str]]:
    """Every TOML block of the docs that begins with the name of its file: `# my.toml: ...`."""
    pages = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))
    return [(name, text) for text, name in re.findall(r"```toml\n(# (\S+\.toml):.*?)```", pages, re.S)]


@pytest.mark.parametrize("line", commands())
def test_a_documented_command_parses(line, tmp_path, monkeypatch):
    """Each command shown names a verb and flags that exist; those that need no training are run elsewhere."""
    from surefoot.cli import _parse

    for name, text in settings():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line.split(" #")[0])[1:]
    for file in (w for w in words if w.endswith(".py")):
        (tmp_path / file).write_text(TASK_FILE)
    words = [w for w in words if w not in ("--json", "--traceback")]
    if words[:1] in ([], ["--help"], ["--version"]) or {"--help", "--help-all"} & set(words):
        return
    assert _parse(words) is not None


def blocks() -> list[tuple[str, str]]:
    """Every Python block of the README and the docs, with a name to find it by."""
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for k, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S)):
            found.append((f"{page.stem}-{k}", code))
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what the blocks presume: a run of hover, its ONNX file, and a robot called go2.xml."""
    from surefoot.deploy import bundle
    from surefoot.learn.train import settings_for, train

    folder = tmp_path_factory.mktemp("docs")
    small = settings_for("hover", {"envs": 32, "horizon": 8, "steps": 256, "hidden": (16,)})
    train("hover", folder / "runs" / "hover", settings=small)
    (folder / "hover.onnx").write_bytes(bundle.find(folder / "runs" / "hover").read_bytes())
    feet = "".join(
        f'<body name="leg_{k}" pos="{i} 0 0"><joint name="{k}" axis="0 1 0"/><geom name="{k}" size=".02" mass=".1"/></body>'
        for i, k in enumerate(("FL", "FR", "RL", "RR"))
    )
    motors = "".join(f'<motor name="{k}" joint="{k}"/>' for k in ("FL", "FR", "RL", "RR"))
    (folder / "go2.xml").write_text(
        f'<mujoco><worldbody><body name="base"><freejoint/><geom size=".1" mass="5"/>{feet}</body></worldbody>'
        f"<actuator>{motors}</actuator></mujoco>"
    )
    return folder


@pytest.mark.parametrize("code", [c for _, c in blocks()], ids=[name for name, _ in blocks()])
def test_a_documented_python_block_runs(code, place, monkeypatch):
    from surefoot.tasks import registry

    monkeypatch.chdir(place)
    monkeypatch.setattr(registry, "READY", dict(registry.READY))
    try:
        exec(compile(code, "docs", "exec"), {"__name__": "__main__"})
    except SystemExit as done:
        assert not done.code


def test_the_readme_names_the_two_commands_the_makefile_has():
    readme, make = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in readme and re.search(rf"^{target}:", make, re.M)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
