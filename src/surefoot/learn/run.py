"""A run on disk: what was asked, checkpoints that are whole or absent, metrics that follow them.

    runs/<task>/<time>/ run.json · metrics.jsonl · checkpoints/<iteration>.safetensors + .json
    policy.onnx + policy.safetensors · diverged/*.npz (bundles to replay) · events.* (TensorBoard)

A checkpoint is two files: the arrays, then a JSON with their hash, which commits it. Reading takes the newest whose
hash agrees. One process at a time may write a run.
"""

import errno
import fcntl
import io
import json
import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import mujoco
import numpy as np
import scipy
import torch
from safetensors.numpy import save as save_tensors

import surefoot
from surefoot import files
from surefoot.errors import SurefootError
from surefoot.tensors import read_tensors

KEEP = 3  # checkpoints


def versions() -> dict[str, str]:
    """What must be the same for a resumed run to have the same bits."""
    return {
        "surefoot": surefoot.__version__, "mujoco": mujoco.__version__, "torch": torch.__version__,
        "numpy": np.__version__, "scipy": scipy.__version__, "python": platform.python_version(), "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }  # fmt: skip


def _hash(data: bytes, numbers: Mapping[str, Any]) -> str:
    """Of all a checkpoint holds: its arrays and its numbers."""
    return files.sha256(data + json.dumps(numbers, sort_keys=True).encode())


class Run:
    """A run's folder, held by this process until close()."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.said: list[str] = []  # what the user should know: fallbacks, disks that were full
        self.made: list[Path] = []  # folders that were not there before, innermost first
        self._unwritten = ""
        self._lock = self._hold()

    @staticmethod
    def create(folder: Path, about: dict[str, Any]) -> "Run":
        folder = Path(folder)
        if (folder / "run.json").exists():
            raise SurefootError(
                f"{folder}: a run is here already; go on with it by --resume {folder}, or choose another --out"
            )
        made = [p for p in (folder, *folder.parents) if not p.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SurefootError(f"{folder}: cannot make this folder: {error.strerror}") from error
        run = Run(folder)
        run.made = made
        files.write_json(folder / "run.json", about | {"versions": versions(), "resumed": []})
        return run

    @staticmethod
    def open(folder: Path) -> tuple["Run", dict[str, Any]]:
        folder = Path(folder)
        if not (folder / "run.json").exists():
            below = [p.parent for p in sorted(folder.glob("*/run.json"), reverse=True)]
            hint = f", but in {' and '.join(map(str, below))}: name one of them" if below else ": run.json is missing"
            raise SurefootError(f"{folder}: no run here{hint}")
        return Run(folder), files.read_json(folder / "run.json")

    def _hold(self) -> IO[str]:
        """A lock the system drops when this process ends, however it ends."""
        try:
            lock = open(self.folder / "run.lock", "a+")
        except OSError as error:
            raise SurefootError(f"{self.folder}: cannot write here: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            lock.close()
            raise SurefootError(f"{self.folder}: {holder} is writing this run; wait for it or stop it") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        return lock

    def close(self) -> None:
        self._lock.close()

    def discard(self) -> None:
        """Leave nothing of a run that could not begin, so that the folder is free for one that can."""
        for name in ("run.json", "run.lock"):
            (self.folder / name).unlink(missing_ok=True)
        self.close()
        for folder in self.made or [self.folder]:
            if any(folder.iterdir()):
                break
            folder.rmdir()

    def note_resume(self, about: dict[str, Any], iteration: int) -> list[str]:
        """Record a resume; returns what differs from the machine and libraries the run began on."""
        now, then = versions(), about["versions"]
        differs = [f"{k} {then.get(k)} -> {now[k]}" for k in now if then.get(k) != now[k]]
        about["resumed"] = [
            *about.get("resumed", []),
            {"iteration": iteration, "bit_exact": not differs, "differs": differs},
        ]
        files.write_json(self.folder / "run.json", about)
        return differs

    def save(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> bool:
        """Write a checkpoint. A disk that is full costs this one, not the run: the earlier ones stay."""
        # by copy, since ascontiguousarray would make scalars rows
        data = save_tensors({k: v.copy(order="C") for k, v in arrays.items()})
        stem = self.folder / "checkpoints" / f"{numbers['iteration']:08d}"
        try:
            files.write(stem.with_suffix(".safetensors"), data)
            files.write_json(stem.with_suffix(".json"), {"sha256": _hash(data, numbers), "numbers": dict(numbers)})
        except SurefootError as error:
            self.said.append(
                f"checkpoint {stem.name} was not saved ({error}); the earlier ones are whole, training goes on"
            )
            return False
        for old in sorted(stem.parent.glob("*.json"))[:-KEEP]:
            old.unlink(missing_ok=True)
            old.with_suffix(".safetensors").unlink(missing_ok=True)
        return True

    def newest(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The newest whole checkpoint; says which broken ones it passed over. None where there is none yet."""
        for card in sorted((self.folder / "checkpoints").glob("*.json"), reverse=True):
            try:
                return self._checkpoint(card)
            except SurefootError as error:
                self.said.append(f"checkpoint {card.stem} is broken ({error}); an earlier one is used if there is one")
        return None

    def _checkpoint(self, card: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        about = files.read_json(card)
        path = card.with_suffix(".safetensors")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SurefootError(f"{path.name}: {error.strerror}") from error
        numbers = about.get("numbers") if isinstance(about, dict) else None
        if not isinstance(numbers, dict) or _hash(data, numbers) != about.get("sha256"):
            raise SurefootError(f"{path.name}: content and hash disagree")
        return read_tensors(data, path.name), numbers

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row; where the disk refuses, keep it and try again with the next."""
        finite = {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in row.items()}
        self._unwritten += json.dumps(finite) + "\n"
        try:
            size = self.metrics.stat().st_size if self.metrics.exists() else 0
            data = self._unwritten.encode()
            with open(self.metrics, "ab", buffering=0) as f:
                try:
                    written = f.write(data)
                except OSError:
                    written = -1
            if written != len(data):  # part of it, or none: a row is there whole or not at all
                os.truncate(self.metrics, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._unwritten = ""
        except OSError as error:
            self.said.append(f"metrics.jsonl: {error.strerror}; its rows are kept and written when the disk lets them")

    def rewind(self, iteration: int) -> None:
        """Forget the metrics after a checkpoint, and a row cut short: they will be written again, the same."""
        if self.metrics.exists():
            lines = self.metrics.read_bytes().splitlines(keepends=True)
            files.write(self.metrics, b"".join(lines[:iteration]))

    def bundle(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep what led to a divergence; at most a hundred of them, and never at the price of the run."""
        folder, data = self.folder / "diverged", io.BytesIO()
        if len(list(folder.glob("*.npz"))) >= 100:
            return
        np.savez(data, **arrays)  # type: ignore[arg-type]
        try:
            files.write(folder / f"{name}.npz", data.getvalue())
        except SurefootError as error:
            self.said.append(f"a diverged simulation could not be kept: {error}")
