"""A run on disk: what was asked, checkpoints that are whole or absent, metrics that follow them.

    runs/<task>/<time>/ run.json · metrics.jsonl · checkpoints/<iteration>.safetensors + .json
    policy.onnx + policy.safetensors · diverged/*.npz (bundles to replay) · events.* (TensorBoard)

run.json is sealed: it holds its own hash. A checkpoint is two files: the arrays, then a sealed JSON with their hash, which
commits it. Reading takes the newest whose hashes agree. A checkpoint also holds a copy of run.json, so that an edit is
named, and the rows logged since the checkpoint before it (metrics.py). One process at a time may write a run.
"""

import io
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import scipy
import torch
from safetensors.numpy import save as save_tensors

import surefoot
from surefoot import files, shipped, tasks
from surefoot.errors import SurefootError
from surefoot.learn.run.metrics import Metrics, check_card
from surefoot.tasks.provenance import Provenance
from surefoot.tensors import parse_tensors
from surefoot.typed import known_fields, whole

KEEP = 3  # checkpoints
LARGEST = 4 << 30  # bytes of a checkpoint's arrays
CARD = {"arrays", "numbers", "metrics", "run"}  # of a checkpoint
OWN = re.compile(r"[0-9]{8,}")  # names of checkpoints; other files in their folder are not the run's


def versions() -> dict[str, str]:
    """What must be the same for a resumed run to have the same bits."""
    return {
        "surefoot": surefoot.__version__, "mujoco": version("mujoco"), "torch": torch.__version__,
        "numpy": np.__version__, "scipy": scipy.__version__, "python": platform.python_version(), "machine": platform.machine(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }  # fmt: skip


UPDATE, ALONE = "update", "by one process"


class Run:
    """A run's folder, held by this process until close()."""

    update = ALONE
    """who makes the learner's updates: others have other bits"""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.notes: list[str] = []  # what the user should know: fallbacks, disks that were full
        self.made: list[Path] = []  # folders that were not there before, innermost first
        self.about: dict[str, Any] = {}  # what run.json says
        self.beside: list[Callable[[], None]] = []  # what ends with the run, such as workers; the last one first
        self.unsure: list[str] = []  # why a resume cannot be called bit-exact, beside versions
        self.metrics = Metrics(self.folder / "metrics.jsonl", self.notes)
        self._card: dict[str, Any] = {}  # of the checkpoint in use
        inside = [self.folder / name for name in ("checkpoints", "diverged", "teacher", "base", "terms")]
        inside += self.folder.glob("terms/*")
        for each in inside:
            if each.is_symlink():  # it may lead to the checkpoints of another run, which this one would prune
                raise SurefootError(f"{each}: found a link, expected a folder of the run's own")
        self._lock = files.Lock(self.folder / "run.lock", "writing this run")
        for each in (self.folder, *inside):
            files.clear_parts(each)

    @staticmethod
    def create(folder: Path, about: dict[str, Any]) -> "Run":
        """A folder for a new run, which is one from begin() on."""
        folder = Path(folder)
        if _is_run(folder):
            files.Lock(folder / "run.lock", "writing this run").close()  # says so if another process does
        _check_free(folder)
        made = [p for p in (folder, *folder.parents) if not p.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SurefootError(f"{folder}: cannot make this folder: {error.strerror}") from error
        run = Run(folder)
        run.made = made
        run.about = about | {"versions": versions(), "resumed": []}
        try:
            _check_free(folder)  # another process may have been faster
        except SurefootError:
            run.close()
            raise
        return run

    def begin(self) -> None:
        """Write run.json, which commits the run: whatever it stands on, such as a teacher, is here by now."""
        who = {} if self.update == ALONE else {UPDATE: self.update}
        self._write_about(self.about | {"versions": self.about["versions"] | who})

    @staticmethod
    def open(folder: Path) -> tuple["Run", dict[str, Any]]:
        folder = Path(folder)
        if not (folder / "run.json").exists() and not _names(folder):
            below = [p.parent for p in sorted(folder.glob("*/run.json"), reverse=True)]
            hint = f", but in {' and '.join(map(str, below))}: name one of them" if below else ": run.json is missing"
            if shipped.is_name(folder):
                hint = ": the policy that ships under this name has no checkpoints to go on from"
            raise SurefootError(f"{folder}: no run here{hint}")
        run = Run(folder)
        try:
            run.about = run._read_about()
        except BaseException:
            run.close()
            raise
        return run, run.about

    def close(self) -> None:
        try:
            while self.beside:
                self.beside.pop()()
        finally:
            self._lock.close()

    def discard(self) -> None:
        """Leave nothing of a run that could not begin, so that the folder is free for one that can."""
        (self.folder / "run.json").unlink(missing_ok=True)
        self.close()
        for folder in self.made or [self.folder]:
            if any(folder.iterdir()):
                break
            folder.rmdir()

    # run.json

    def _write_about(self, about: dict[str, Any]) -> None:
        self.about = json.loads(json.dumps(about))
        files.write_json(self.folder / "run.json", files.seal(self.about))

    def _read_about(self) -> dict[str, Any]:
        """What run.json says, checked against its seal and against the copy in each checkpoint."""
        path = self.folder / "run.json"
        copies = {name: card["run"] for name, card in self._cards()}
        name = max(copies, default="")
        if not path.exists():
            if not copies:
                raise SurefootError(f"{path}: no such file, and no checkpoint has a copy of it; begin anew")
            self.notes.append(f"run.json was missing; it is written again as checkpoint {name} has it")
            self._write_about(copies[name])
            return self.about
        remedy = f"put it back, or delete run.json to have it as checkpoint {name} has it" if copies else "begin anew"
        try:
            about = files.read_json(path)
            for k, copy in copies.items():
                if edits := _edits(copy, about):
                    raise SurefootError(f"{path}: {', '.join(edits)} since checkpoint {k} was written")
            rest = files.check_seal(_sealed(about, str(path)), str(path))
        except SurefootError as error:
            raise SurefootError(f"{error}; a run keeps what it began with: {remedy}") from None
        return check_about(rest, str(path))

    def note_resume(self, iteration: int) -> list[str]:
        """Record a resume; returns what differs from the machine and libraries the run began on."""
        now, then = versions() | {UPDATE: self.update}, {UPDATE: ALONE} | self.about["versions"]
        differs = [f"{k} {then.get(k)} -> {now[k]}" for k in now if then.get(k) != now[k]] + self.unsure
        row = {"iteration": iteration, "bit_exact": not differs, "differs": differs}
        row |= {"metrics": self.metrics.lost} if self.metrics.lost else {}
        self._write_about(self.about | {"resumed": [*self.about.get("resumed", []), row]})
        return differs

    @property
    def provenance(self) -> Provenance | None:
        """Of the task as it was when the run began; None where run.json does not say."""
        kept = self.about.get("provenance")
        return None if kept is None else Provenance.from_json(kept, f"{self.folder / 'run.json'}: provenance")

    @property
    def made_from(self) -> dict[str, str]:
        """Hashes of the task and its model, for the contract of a policy."""
        return {} if self.provenance is None else self.provenance.parents()

    # checkpoints

    def save(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> bool:
        """Write a checkpoint. A disk that is full costs this one, not the run: the earlier ones stay."""
        # by copy, since ascontiguousarray would make scalars rows
        data = save_tensors({k: v.copy(order="C") for k, v in arrays.items()})
        stem = self.folder / "checkpoints" / f"{numbers['iteration']:08d}"
        rows = self.metrics.card()
        card = {"arrays": files.sha256(data), "numbers": dict(numbers), "metrics": rows, "run": self.about}
        try:
            files.write(stem.with_suffix(".safetensors"), data)
            files.write_json(stem.with_suffix(".json"), files.seal(card))
        except SurefootError as error:
            earlier = "the earlier ones are whole" if _names(self.folder) else "there is no earlier one"
            self.notes.append(f"checkpoint {stem.name} was not saved ({error}); {earlier}, training goes on")
            return False
        self.metrics.keep_since(rows["here"])
        self._prune(stem.name)
        return True

    def _prune(self, newest: str) -> None:
        """Keep the newest few, and remove what is left of others, by our own names alone."""
        older = [n for n in _names(self.folder, (".json", ".safetensors")) if n < newest]
        whole = [n for n in older if (self.folder / "checkpoints" / f"{n}.json").exists()]
        for name in set(older) - set(whole[1 - KEEP :]):
            for suffix in (".json", ".safetensors"):
                with suppress(OSError):  # not there, or a folder of somebody else's
                    (self.folder / "checkpoints" / f"{name}{suffix}").unlink()

    def newest(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The newest whole checkpoint; says which broken ones it passed over. None where there is none yet."""
        for name in reversed(_names(self.folder)):
            try:
                self._card, arrays = self._checkpoint(name)
                return arrays, self._card["numbers"]
            except SurefootError as error:
                self.notes.append(f"checkpoint {name} is broken ({error}); an earlier one is used if there is one")
        return None

    def _checkpoint(self, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        card = _card(self.folder, name)
        path = self.folder / "checkpoints" / f"{name}.safetensors"
        data = files.read_bytes(path, LARGEST)
        if files.sha256(data) != card["arrays"]:
            raise SurefootError(f"{path.name}: content and hash disagree")
        return card, parse_tensors(data, path.name)

    def _cards(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Names and cards of the checkpoints whose card is whole, newest first."""
        for name in reversed(_names(self.folder)):
            try:
                yield name, _card(self.folder, name)
            except SurefootError:
                pass  # newest() says so

    def log(self, row: Mapping[str, Any]) -> None:
        self.metrics.log(row)

    def rewind(self) -> None:
        """Make metrics.jsonl what was logged up to the checkpoint in use."""
        self.metrics.rewind(self._card.get("metrics"), (card["metrics"] for _, card in self._cards()))

    def bundle(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep what led to a divergence; at most a hundred of them, and never at the price of the run."""
        folder, data = self.folder / "diverged", io.BytesIO()
        if len(list(folder.glob("*.npz"))) >= 100:
            return
        np.savez(data, **arrays)  # type: ignore[arg-type]
        try:
            files.write(folder / f"{name}.npz", data.getvalue())
        except SurefootError as error:
            self.notes.append(f"a diverged simulation could not be kept: {error}")


def is_code(reference: str) -> bool:
    """Whether a reference means a file or a module, not a name."""
    return reference.endswith(".py") or ":" in reference


def resuming(task: str, folder: Path) -> str:
    """The command that goes on with a run of this task; code runs only where the command names it."""
    named = f"{quote(task)} " if is_code(task) else "" if task in tasks.names() else "FILE.py "
    return f"surefoot train {named}--resume {quote(str(folder))}"


def _is_run(folder: Path) -> bool:
    return (folder / "run.json").exists() or bool(_names(folder))


def _check_free(folder: Path) -> None:
    if _is_run(folder):
        task = ""
        with suppress(SurefootError):
            task = str(files.read_json(folder / "run.json").get("task", ""))
        raise SurefootError(
            f"{folder}: a run is here already; go on with it by `{resuming(task, folder)}`, or choose another --out"
        )
    if os.path.lexists(folder / "metrics.jsonl"):  # rows would be added to it, or to what it leads to
        raise SurefootError(
            f"{folder}: metrics.jsonl is here already, without its run; remove it, or choose another --out"
        )


def _names(folder: Path, parts: tuple[str, ...] = (".json",)) -> list[str]:
    """Of the checkpoints in a run's folder that have any of these parts, oldest first; the JSON commits one."""
    found = (p for p in (Path(folder) / "checkpoints").glob("*") if p.suffix in parts and OWN.fullmatch(p.stem))
    return sorted({p.stem for p in found if not p.is_dir()})


def _card(folder: Path, name: str) -> dict[str, Any]:
    """A checkpoint's JSON; refused where it was cut or edited."""
    path = Path(folder) / "checkpoints" / f"{name}.json"
    card = files.read_json(path)
    card = files.check_seal(_sealed(card, path.name), path.name)
    known_fields(card, CARD, CARD, path.name)
    for part in ("numbers", "run"):
        if not isinstance(card[part], dict):
            raise SurefootError(f"{path.name}: {part}: expected an object, found {type(card[part]).__name__}")
    if whole(card["numbers"].get("iteration"), 0, 10**12, f"{path.name}: iteration") != int(name):
        raise SurefootError(f"{path.name}: iteration: expected {int(name)}, found {card['numbers']['iteration']}")
    check_card(card["metrics"], f"{path.name}: metrics")
    return card


def _sealed(data: Any, where: str) -> dict[str, Any]:
    """Refuse what has no seal: whether it was edited would not be known."""
    if not isinstance(data, dict) or "sha256" not in data:
        raise SurefootError(f"{where}: sha256: missing; another program, or an earlier version of surefoot, wrote it")
    return data


def check_about(about: dict[str, Any], where: str) -> dict[str, Any]:
    """What a Run itself reads of run.json is of its type; the rest is RunSpec's."""
    kinds = {"versions": (dict, "an object"), "resumed": (list, "a list"), "provenance": (dict, "an object")}
    for name, (kind, words) in kinds.items():
        if not isinstance(about.get(name, kind()), kind):
            raise SurefootError(f"{where}: {name}: expected {words}, found {str(about[name])[:80]}")
    if "versions" not in about:
        raise SurefootError(f"{where}: versions: missing")
    return about


def _edits(was: Mapping[str, Any], now: Any, above: str = "") -> list[str]:
    """What was changed, by name; `resumed` grows and is left out, and so is the seal."""
    if not isinstance(now, dict):
        return [f"{above or 'all'}: found no object, so it was edited"]
    found = []
    for k in {**was, **now}:
        a, b = was.get(k, "nothing"), now.get(k, "nothing")
        if a == b or (not above and k in ("resumed", "sha256")):
            continue
        if isinstance(a, dict) and isinstance(b, dict) and not above:
            found += _edits(a, b, f"{k}.")
        else:
            values = f" ({b}, was {a})" if len(str(a) + str(b)) < 80 else ""
            found.append(f"{above}{k}: edited{values}")
    return found
