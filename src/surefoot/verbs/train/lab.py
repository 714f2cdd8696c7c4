"""surefoot lab: sim-to-real in the browser."""

from dataclasses import dataclass
from shlex import quote

from tyro.conf import Positional

from surefoot.errors import unknown
from surefoot.report import Progress, Report, Watch


@dataclass(frozen=True)
class Lab:
    given: Positional[str] = "balance"
    """a run's folder, a policy.onnx, or a task: its name (see `surefoot tasks`), file.py, or module:function"""
    task: str = ""
    """the policy's task file, if it has changed or moved, or another task that the policy fits"""
    page: str = ""
    """the page to begin with; default: the first"""
    port: int = 8080
    """the lab's port on this computer; the next free one where it is taken"""
    seed: int = 1
    """seed of what the pages draw"""

    def run(self, watch: Watch) -> Report:
        from surefoot.lab.pages import FIRST, PAGES
        from surefoot.lab.subject import Subject
        from surefoot.web.lab.server import open_lab

        page = self.page or FIRST
        if page not in PAGES:
            raise unknown("page", page, PAGES, "--page")
        subject = Subject.of(self.given, self.task, self.seed)
        open_lab(subject, page, port=self.port, say=lambda words: watch(Progress(words, stays=True)))
        return Report(self.given, {"viewed": self.given}, (), f"surefoot gate {quote(self.given)}")
