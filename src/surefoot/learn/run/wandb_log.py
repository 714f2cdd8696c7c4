"""Metrics to Weights & Biases, where a user asks for it: whoever watches a training can pass them on.

WANDB_MODE=offline keeps them on this computer; `wandb login` says whose account they go to.
"""

from pathlib import Path
from typing import Any

from surefoot import files
from surefoot.errors import MissingExtra
from surefoot.report import Progress, Watch


class WandbLog:
    """A Watch that logs each iteration's metrics under its number, then tells the Watch behind it.

    Each run of surefoot is a run there; its id comes from the run's folder, so that a run that goes on continues its curves.
    """

    def __init__(self, project: str, watch: Watch):
        try:
            import wandb
        except ImportError:
            raise MissingExtra("--wandb", "wandb") from None
        self.wandb, self.project, self.watch = wandb, project, watch
        self.folder = ""
        self.run: Any = None

    def __call__(self, p: Progress) -> None:
        if p.metrics:
            self._follow(p.metrics["run"])
            rest = {k: v for k, v in p.metrics.items() if k not in ("run", "iteration")}
            self.run.log(rest, step=int(p.metrics["iteration"]))
        self.watch(p)

    def _follow(self, folder: str) -> None:
        """Log to the run of this folder from now on."""
        if folder != self.folder:
            self.close()
            where = str(Path(folder).absolute())
            name = files.sha256(where.encode())[:16]
            config: Any = files.read_json(Path(folder) / "run.json")
            self.run = self.wandb.init(project=self.project, name=folder, id=name, resume="allow", config=config)
            self.folder = folder

    def close(self) -> None:
        if self.run is not None:
            self.run.finish()
        self.run = None
