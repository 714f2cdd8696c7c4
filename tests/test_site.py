"""The site's navigation has every page once, and no page that is not there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GENERATED = {"security.md", "changelog.md", "contributing.md"}  # docs/site.py makes these of files in the root


def test_the_navigation_has_every_page_once():
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    listed = re.findall(r"[\w-]+\.md", nav)
    assert len(listed) == len(set(listed))
    assert set(listed) - GENERATED == {p.name for p in (ROOT / "docs").glob("*.md")}


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    assert {p.stem for p in (ROOT / "docs").glob("*.md")} <= {p.stem for p in tmp_path.glob("*.html")}
