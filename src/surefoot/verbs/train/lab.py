"""surefoot lab: sim-to-real in the browser."""

from dataclasses import dataclass
from shlex import quote

from tyro.conf import Positional

from surefoot.errors import unknown
from surefoot.report import Note, Progress, Report, Table, Text, Watch


@dataclass(frozen=True)
class Lab:
    given: Positional[str] = "balance"
    """a run's folder, a policy.onnx, or a task: its name (see `surefoot tasks`), file.py, or module:function"""
    task: str = ""
    """the policy's task file, if it has changed or moved, or another task that the policy fits"""
    page: str = ""
    """the page to begin with, or its link: 'drift&unknown=mass'; default: the first"""
    print: bool = False
    """compute the page as its link says, print its numbers, and open no browser"""
    port: int = 8080
    """the lab's port on this computer; the next free one where it is taken"""
    seed: int = 1
    """seed of what the pages draw"""

    def run(self, watch: Watch) -> Report:
        from surefoot.lab.page import parsed
        from surefoot.lab.pages import FIRST, PAGES
        from surefoot.lab.subject import Subject

        link = self.page.lstrip("/") or FIRST
        key, settings = parsed(link)
        if key not in PAGES:
            raise unknown("page", key, PAGES, "--page")
        subject, following = Subject.of(self.given, self.task, self.seed), f"surefoot gate {quote(self.given)}"
        if self.print:
            page = PAGES[key](subject)
            try:
                page.open(settings)
                page.finish()
                blocks = (*page.blocks(), *page.reports())
            finally:
                page.close()
            tables = [
                {"title": b.title, "columns": [c.head for c in b.columns], "rows": b.cells()}
                for b in blocks
                if isinstance(b, Table)
            ]
            words = [b.words for b in blocks if isinstance(b, (Text, Note))]
            following = f"surefoot lab {quote(self.given)} --page {quote(link)}"
            return Report(page.title, {"page": link, "words": words, "tables": tables}, blocks, following)
        from surefoot.web.lab.server import open_lab

        open_lab(subject, link, port=self.port, say=lambda words: watch(Progress(words, stays=True)))
        return Report(self.given, {"viewed": self.given}, (), following)
