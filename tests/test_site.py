"""The site's navigation has every page once, and no page that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = {"security.md", "changelog.md", "contributing.md"}  # docs/site.py makes these of files in the root


def test_the_navigation_has_every_page_once():
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    listed = re.findall(r"[\w-]+\.md", nav)
    assert len(listed) == len(set(listed))
    assert set(listed) - GENERATED == {p.name for p in (ROOT / "docs").glob("*.md")}
