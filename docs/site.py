"""Pages of the site that are kept elsewhere in the repository: SECURITY, CHANGELOG, CONTRIBUTING, and files that pages link to."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root, and each file outside of docs/ that a page links to."""
    for name, page in PAGES.items():
        text = re.sub(r"\]\(docs/", "](", (ROOT / name).read_text())
        files.append(File.generated(config, page, content=text))
    linked = {name for f in files.documentation_pages() for name in OUTSIDE.findall(f.content_string)}
    for name in sorted(linked - set(PAGES)):
        files.append(File.generated(config, f"repository/{name}", content=(ROOT / name).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that leave docs/ lead to the copies."""
    return OUTSIDE.sub(lambda m: f"]({PAGES.get(m[1], 'repository/' + m[1])}", markdown)
