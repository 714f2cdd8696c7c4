"""Examples and the README's commands do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("[0-9]*.py")), ids=lambda p: p.name)
def test_an_example_runs(path):
    done = subprocess.run([sys.executable, str(path), "--quick"], capture_output=True, text=True, timeout=250)
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


@pytest.mark.parametrize("line", commands())
def test_a_documented_command_parses(line):
    """Each command shown names a verb and flags that exist; those that need no training are run elsewhere."""
    from surefoot.cli import _parse

    words = line.split(" #")[0].split()[1:]
    words = [w for w in words if w not in ("--json", "--traceback")]
    if words[:1] in ([], ["--help"], ["--version"]) or "--help" in words:
        return
    assert _parse(words) is not None


def test_the_readme_names_the_two_commands_the_makefile_has():
    readme, make = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in readme and re.search(rf"^{target}:", make, re.M)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
