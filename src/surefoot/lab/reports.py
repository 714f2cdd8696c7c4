"""What gate and doctor say of a run: their own reports, read where the commands wrote them, and the commands under way.

gate.json               surefoot gate RUN
doctor-LOG.json         surefoot doctor RUN LOG.npz --out doctor-LOG.html; every doctor*.json is shown
reality-SEED.npz        surefoot record TASK --policy RUN --reality SEED: a log where no robot has recorded one
"""

import time
from collections.abc import Callable
from pathlib import Path
from shlex import split

from surefoot import shipped
from surefoot.deploy import bundle
from surefoot.doctor import report as doctor
from surefoot.errors import SurefootError, unknown
from surefoot.gate import report as gate
from surefoot.lab.controls import Button, Control
from surefoot.lab.jobs import Job
from surefoot.lab.subject import Subject
from surefoot.report import Badge, Block, Checks, Details, Note, Text

Read = Callable[[Path], tuple[Badge, tuple[Block, ...]]]
MOST = 4  # of the doctor's reports, the newest first
LOGS = 20
LOOK = 0.2  # s between two looks at the files
SECONDS = 20  # s of a recorded log
WORK = {"gate": "the gate", "diagnose": "the doctor", "record": "the recording"}


class Reports:
    """Of one run; `run` is how commands name it."""

    def __init__(self, subject: Subject, run: Path):
        self.subject, self.run = subject, run
        path = shipped.located(run)
        self.folder = path if path.is_dir() else path.parent
        self.products = shipped.products(run, subject.home.parent)
        self.jobs: dict[str, Job] = {}
        self.last: Job | None = None
        self.kept: dict[Path, tuple[float, Badge | None, tuple[Block, ...]]] = {}
        self.state: object = None
        self.due = 0.0

    def logs(self) -> dict[str, Path]:
        """By name."""
        found = {p.name: p for folder in {self.folder, self.products} for p in folder.glob("*.npz")}
        return dict(sorted(found.items())[:LOGS])

    def log(self, name: str) -> Path:
        found = self.logs()
        if name not in found:
            raise unknown("log", name, found, str(self.products))
        return found[name]

    def controls(self, log: str) -> dict[str, Control]:
        """Buttons that start a command, or stop it while it runs; none where there is no policy yet to judge."""
        if not bundle.is_one(self.run):
            return {}
        about = {
            "gate": "surefoot gate on this run; its checks are shown as they are made, and are kept in gate.json",
            "diagnose": "surefoot doctor on this run and this log; its report is kept beside the run",
            "record": "surefoot record: a log of a simulated robot that differs from its model in hidden ways",
        }
        labels = {"gate": "gate again" if self._gate() else "run the gate", "diagnose": "ask the doctor",
                  "record": "record a log"}  # fmt: skip
        names = ["record", *([] if log == "none" else ["diagnose"]), "gate"]
        label = lambda name: f"stop {WORK[name]}" if self._running(name) else labels[name]  # noqa: E731
        return {name: Button(label(name), about[name]) for name in names}

    def press(self, name: str, log: str) -> None:
        """Start a command; the one that runs is stopped instead."""
        if self._running(name):
            self.jobs[name].stop()
            return
        args = self._args(name, log)
        if name in self.jobs:
            self.jobs[name].close()
        self.products.mkdir(parents=True, exist_ok=True)
        self.last = self.jobs[name] = Job(args)

    def _args(self, name: str, log: str) -> list[str]:
        run, flag = str(self.run), split(self.subject.flag)
        if name == "gate":
            own = self.products == shipped.products(self.run)
            return ["gate", run, *flag, *([] if own else ["--out", str(self.products)])]
        if name == "record":
            seed = next(k for k in range(LOGS + 1) if not (self.products / f"reality-{k}.npz").exists())
            out = self.products / f"reality-{seed}.npz"
            return ["record", self.subject.reference, "--policy", run, "--reality", str(seed),
                    "--seconds", str(SECONDS), "--out", str(out)]  # fmt: skip
        where = self.log(log)
        return ["doctor", run, str(where), *flag, "--out", str(self.products / f"doctor-{where.stem}.html")]

    def _running(self, name: str) -> bool:
        return name in self.jobs and self.jobs[name].running

    def _gate(self) -> Path | None:
        """What the gate wrote last; of a shipped policy, else what came with it."""
        return next((f / gate.NAME for f in (self.products, self.folder) if (f / gate.NAME).exists()), None)

    def _diagnoses(self) -> list[Path]:
        found = {p for folder in {self.folder, self.products} for p in folder.glob("doctor*.json")}
        return sorted(found, key=lambda p: (-p.stat().st_mtime, p))[:MOST]

    def fresh(self) -> bool:
        """Whether a command began, spoke or ended, or a report was written, since last asked; it looks every LOOK."""
        if time.monotonic() < self.due:
            return False
        self.due = time.monotonic() + LOOK
        jobs = [(name, job.running, job.said_last()) for name, job in self.jobs.items()]
        there = [p for p in (self._gate(), *self._diagnoses()) if p is not None]
        now = (jobs, [(p, p.stat().st_mtime) for p in there])
        new, self.state = now != self.state, now
        return new

    def words(self) -> list[Block]:
        """The commands under way, and those that gave no report."""
        out: list[Block] = []
        for job in self.jobs.values():
            if job.running:
                out.append(Text(job.words() + job.said_last(" · "), "quiet"))
            elif not job.facts():
                out.append(Text(job.words(), "quiet" if job.failed in ("", "stopped") else "bad"))
        return out

    def blocks(self) -> tuple[Block, ...]:
        """Each report to unfold, as the verb's own page has it."""
        path, out = self._gate(), list[Block]()
        if path is not None:
            out += self._read(path, gate.read, "Gate")
        for p in self._diagnoses():
            out += self._read(p, doctor.read, f"Doctor, {p.stem.removeprefix('doctor').lstrip('-') or 'of this run'}")
        return tuple(out)

    def _read(self, path: Path, read: Read, who: str) -> list[Block]:
        """A report, read again only when its file has changed."""
        try:
            changed = path.stat().st_mtime
            if path not in self.kept or self.kept[path][0] != changed:
                self.kept[path] = (changed, *read(path))
        except (SurefootError, OSError) as error:
            self.kept[path] = (time.time(), None, (Note(str(error), warning=True),))
        _, badge, blocks = self.kept[path]
        if badge is None:
            return list(blocks)
        checks = next((b for b in blocks if isinstance(b, Checks)), None)
        if path.name == gate.NAME and self._running("gate") and checks is not None:
            return [Details(f"Gate so far: {sum(c.holds for c in checks.checks)} checks pass", blocks)]
        return [Details(f"{who}: {badge.words}", blocks)]

    def close(self) -> None:
        for job in self.jobs.values():
            job.close()
