"""A bundle: all that a robot's computer needs to run a policy, in a folder or a zip of three files, or five.

    policy.onnx      the net, its contract and a second of golden vectors (deploy/bundle.py)
    golden.json      seconds of its nominal robot: readings -> observation -> action -> control -> command, limited
    safety.json      where the policy wears safety layers: their numbers (control/layers.py); value.onnx: the net of a switch
    manifest.json    hashes of them, the belief it was trained over, the gate's verdict, limits, parents; sealed, written last

Reading a bundle works everything out again by the code that drives the robot (runtime/controller.py). What was changed, what
belongs to another policy and what cannot be computed is refused by file and field.
"""

import io
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import surefoot
from surefoot import files, shipped
from surefoot.belief import Belief
from surefoot.control import layers
from surefoot.deploy import bundle, sign
from surefoot.deploy.bundle import Golden, OnnxPolicy
from surefoot.deploy.limits import Limits
from surefoot.deploy.runtime.controller import OWN, Controller, needs
from surefoot.errors import SurefootError, nearest, unknown
from surefoot.onnx_file import graph_in
from surefoot.policy import Policy
from surefoot.typed import known_fields
from surefoot.verdict import Verdict

FORMAT = 1
MANIFEST, GOLDEN = "manifest.json", "golden.json"
LARGEST = {bundle.NAME: bundle.LARGEST, GOLDEN: files.LARGEST_JSON, MANIFEST: files.LARGEST_JSON}
LAYERS = {layers.NAME: files.LARGEST_JSON, layers.VALUE: bundle.LARGEST}  # where it wears some
FIELDS = {"format", "files", "limits", "belief", "verdict", "wears", "parents", "about"}
CLOSE = 1e-5  # of a command from the golden one, relative to its size


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of its policy beyond the contract."""

    limits: Limits
    belief: Belief | None = None
    """p(e) it was trained over"""
    verdict: Verdict | None = None
    """of the gate, about this very file"""
    wears: tuple[str, ...] = ()
    """kinds of its safety layers, the innermost first"""
    parents: Mapping[str, str] = field(default_factory=dict)
    """hashes of the files it was made from"""

    def to_json(self, hashes: Mapping[str, str]) -> dict[str, Any]:
        return files.seal({
            "format": FORMAT, "files": dict(hashes), "limits": self.limits.to_json(),
            "belief": self.belief.to_json() if self.belief else None, "verdict": self.verdict.to_json() if self.verdict else None,
            "wears": list(self.wears), "parents": dict(self.parents), "about": {"surefoot": surefoot.__version__},
        })  # fmt: skip


@dataclass(frozen=True)
class Bundle:
    """A bundle that was read: every number in it was worked out again."""

    path: Path
    policy: Policy
    """in its safety layers"""
    manifest: Manifest
    golden: Golden
    commands: np.ndarray  # (T, na) golden targets, after the limiter
    worst: Mapping[str, float]
    """largest difference from the golden numbers: observation, action, control, command"""
    sha256: str
    """of the manifest"""

    @property
    def passed(self) -> bool:
        return self.manifest.verdict is not None and self.manifest.verdict.holds


def contents(
    policy: Policy, onnx: bytes, manifest: Manifest, golden: Golden, safety: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """The files of a bundle; `golden` is of this policy, driven in its layers, whose files are `safety`."""
    needs(policy.contract)
    worn, kinds = wear(policy, safety or {}, "safety layers")
    made = _replayed(worn, manifest.limits, golden)
    rows = lambda x: [[float(f"{v:.9g}") for v in row] for row in x]  # noqa: E731
    tables = {"command": rows(made["command"])} | ({"worn": rows(made["action"])} if kinds else {})
    vectors = json.dumps(golden.to_json() | tables, allow_nan=False).encode()
    found = {bundle.NAME: onnx, GOLDEN: vectors, **(safety or {})}
    hashes = {name: files.sha256(data) for name, data in found.items()}
    content = replace(manifest, wears=kinds).to_json(hashes)
    return {**found, MANIFEST: (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()}


def wear(policy: Policy, safety: Mapping[str, bytes], where: str) -> tuple[Policy, tuple[str, ...]]:
    """The policy in the layers of these files, and their kinds; refused where a file is of no use."""
    if not safety:
        return policy, ()
    used = {layers.NAME}

    def beside(name: str) -> bytes:
        used.add(name)
        if name not in safety:
            raise SurefootError(f"{where}: {name[:80]}: no such file; expected the net of a layer in {layers.VALUE}")
        return safety[name]

    if layers.NAME not in safety:
        raise SurefootError(f"{where}: {', '.join(safety)}: expected {layers.NAME} beside it")
    found = layers.read_from(safety[layers.NAME], beside, f"{where}: {layers.NAME}")
    if rest := set(safety) - used:
        raise SurefootError(f"{where}: {', '.join(rest)}: no layer of {layers.NAME} names it")
    try:
        return layers.wear(policy, found), tuple(layers.to_json(x)["kind"] for x in found)
    except SurefootError as error:
        raise SurefootError(f"{where}: {layers.NAME}: {error}") from None


def write(path: Path, made: Mapping[str, bytes]) -> Path:
    """Write a folder, the manifest last; or a zip, where the path ends in .zip. Equal contents give equal bytes."""
    if path.suffix != ".zip":
        for name in set(LAYERS) - set(made):  # of a bundle that was here before
            (path / name).unlink(missing_ok=True)
        new = not path.exists()
        try:
            for name, data in made.items():
                files.write(path / name, data)
        except SurefootError:  # such as a full disk: half a bundle is none
            if new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        return path
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in made.items():
            z.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    files.write(path, out.getvalue())
    return path


def read(path: Path, key: Path | None = None) -> Bundle:
    """A bundle, all of it checked; the error names the file and the field that is not as it was written.

    With a public key, the owner of the key must have signed it.
    """
    if key is not None:
        sign.verify(signed_file(path), key)
    found = read_files(path)
    body = files.check_seal(files.parse_json(found[MANIFEST], f"{path}: {MANIFEST}"), f"{path}: {MANIFEST}")
    known_fields(body, FIELDS, FIELDS, f"{path}: {MANIFEST}")
    if body["format"] != FORMAT:
        raise SurefootError(f"{path}: {MANIFEST}: format: expected {FORMAT}, found {str(body['format'])[:80]}")
    hashes = _check_hashes(body["files"], found, path)
    net = bundle.ours(path / bundle.NAME, graph_in(found[bundle.NAME], f"{path}: {bundle.NAME}"))
    policy, kinds = wear(net, {k: found[k] for k in LAYERS if k in found}, str(path))
    manifest = _manifest(body, net, hashes, kinds, f"{path}: {MANIFEST}")
    golden, tables = _golden(found[GOLDEN], bool(kinds), f"{path}: {GOLDEN}")
    golden.check_net(net, f"{path}: {GOLDEN}")
    wanted = {"observation": golden.obs, "command": tables["command"]}
    if kinds:
        wanted["action"] = tables["worn"]
    else:
        wanted |= {"control": golden.control} | ({} if net.contract.action.choices else {"action": golden.out})
    worst = _compare(_replayed(policy, manifest.limits, golden, f"{path}: {GOLDEN}"), wanted, f"{path}: {GOLDEN}")
    return Bundle(path, policy, manifest, golden, tables["command"], worst, files.sha256(found[MANIFEST]))


def signed_file(path: Path) -> Path:
    """What a signature of a bundle is about: the zip, or the manifest, which has the hashes of the rest."""
    return path if path.suffix == ".zip" else path / MANIFEST


def read_files(path: Path) -> dict[str, bytes]:
    """The files of a folder or a zip, of bounded size; nothing is written anywhere."""
    if path.is_file() and path.suffix == ".zip":
        return _unzipped(path)
    if not path.is_dir():
        more = "; `surefoot export` makes a bundle of a run" if path.exists() or path.name in shipped.names() else ""
        raise SurefootError(f"{path}: no bundle here; expected a folder or a .zip with {', '.join(LARGEST)}{more}")
    for name in LARGEST:
        if not (path / name).is_file():
            words = f"{path / name}: no such file; expected a bundle: surefoot export RUN makes one"
            raise SurefootError(words)
    there = LARGEST | {name: most for name, most in LAYERS.items() if os.path.lexists(path / name)}
    return {name: files.read_bytes(path / name, largest) for name, largest in there.items()}


def _unzipped(path: Path) -> dict[str, bytes]:
    data = files.read_bytes(path, 2 * bundle.LARGEST + 3 * files.LARGEST_JSON)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            names = [info.filename for info in z.infolist()[:16]]
            for name in names:
                if name not in (*LARGEST, *LAYERS):
                    raise SurefootError(
                        f"{path}: {name[:80]!r}: expected only {', '.join((*LARGEST, *LAYERS))}{nearest(name, LARGEST)}"
                    )
            if len(set(names)) != len(z.infolist()) or not set(LARGEST) <= set(names):
                raise SurefootError(f"{path}: found {', '.join(names)}; expected {', '.join(LARGEST)}, each once")
            return {name: _entry(z, name, path) for name in names}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error) as error:
        if isinstance(error, SurefootError):
            raise
        raise SurefootError(f"{path}: a broken zip: {' '.join(str(error).split())[:200]}") from None


def _entry(z: zipfile.ZipFile, name: str, path: Path) -> bytes:
    largest = (LARGEST | LAYERS)[name]
    with z.open(name) as f:
        data = f.read(largest + 1)
    if len(data) > largest:
        raise SurefootError(f"{path}: {name}: found more than {largest} bytes")
    return data


def _check_hashes(said: Any, found: Mapping[str, bytes], path: Path) -> dict[str, str]:
    names = set(found) - {MANIFEST}
    hashes = known_fields(said, names, names, f"{path}: {MANIFEST}: files")
    for name in sorted(names):
        if hashes[name] != files.sha256(found[name]):
            raise SurefootError(f"{path}: {name}: not the file that {MANIFEST} was written for (files: sha256 differs)")
    return hashes


def _manifest(
    body: Mapping[str, Any], policy: OnnxPolicy, hashes: Mapping[str, str], kinds: tuple[str, ...], where: str
) -> Manifest:
    limits = Limits.from_json(body["limits"], len(policy.contract.action.names), f"{where}: limits")
    belief = None if body["belief"] is None else Belief.from_json(body["belief"], f"{where}: belief")
    verdict = None if body["verdict"] is None else Verdict.from_json(body["verdict"], f"{where}: verdict")
    if verdict is not None and judged(verdict)[0] != hashes[bundle.NAME]:
        raise SurefootError(f"{where}: verdict: it is about another policy; gate this one and export it again")
    if verdict is not None and judged(verdict)[1] != hashes.get(layers.NAME, ""):
        raise SurefootError(
            f"{where}: verdict: it is about other safety layers, or none; gate the policy in these and export it again"
        )
    parents = body["parents"]
    if body["wears"] != list(kinds):
        raise SurefootError(
            f"{where}: wears: found {str(body['wears'])[:80]}, expected {list(kinds)}, the layers of {layers.NAME}"
        )
    if not isinstance(parents, dict) or not all(isinstance(v, str) for v in parents.values()):
        raise SurefootError(f"{where}: parents: expected names with hashes, found {str(parents)[:80]}")
    return Manifest(limits, belief, verdict, kinds, parents)


def judged(verdict: Verdict) -> tuple[str, str]:
    """Hashes of the policy that a verdict is about, and of the safety layers that it wore; empty: none."""
    parents = verdict.meta.get("parents")
    own = parents if isinstance(parents, dict) else {}
    return str(own.get("policy", "")), str(own.get("safety", ""))


def _golden(data: bytes, worn: bool, where: str) -> tuple[Golden, dict[str, np.ndarray]]:
    """With the tables that the runtime makes: commands, and actions of a policy in layers."""
    names = {"command", "worn"} if worn else {"command"}
    body = known_fields(files.parse_json(data, where), {*bundle.fields_of(Golden), *names}, names, where)
    tables = {name: body.pop(name) for name in names}
    golden = Golden.from_json(body, where)
    for name, rows in tables.items():
        try:
            table = np.array(rows, float)
        except (TypeError, ValueError):
            raise SurefootError(f"{where}: {name}: expected a table of numbers") from None
        if table.shape != golden.control.shape or not np.isfinite(table).all():
            raise SurefootError(f"{where}: {name}: expected finite numbers of shape {golden.control.shape}")
        tables[name] = table
    return golden, tables


def _replayed(policy: Policy, limits: Limits, golden: Golden, where: str = GOLDEN) -> dict[str, np.ndarray]:
    """What the runtime makes of golden readings; each row begins with the golden action before it, the first target is the default."""
    for name in needs(policy.contract):
        if name not in golden.readings:
            raise unknown("reading", name, golden.readings, f"{where}: readings")
    parts = {k: v for k, v in golden.parts.items() if k != "action"} | {"control": policy.contract.action.names}
    controller = Controller(policy, limits, parts)
    rows: dict[str, list[np.ndarray]] = {k: [] for k in ("observation", "action", "control", "command")}
    for k in range(len(golden.obs)):
        own = {name: x[k] for name, x in golden.readings.items() if name not in OWN}
        asked = golden.readings["command"][k] if "command" in golden.readings else np.zeros(0)
        try:
            if "action" in golden.readings:  # else a policy that feeds it back would amplify its rounding, row by row
                controller.values["action"] = golden.readings["action"][k][None]
            period = controller.step(own, asked)
        except (ValueError, IndexError) as error:  # of rows that are too short or too long
            raise SurefootError(f"{where}: readings: {error}") from None
        for name, x in zip(rows, (period.obs, period.out, period.control, period.command.target)):
            rows[name].append(x)
    return {k: np.array(v) for k, v in rows.items()}


def _compare(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], where: str) -> dict[str, float]:
    worst = {}
    for name, x in wanted.items():
        off = np.abs(found[name] - x) / np.maximum(1.0, np.abs(x))
        worst[name] = float(off.max())
        if not worst[name] <= CLOSE:
            row = int(off.max(1).argmax())
            raise SurefootError(
                f"{where}: {name}: the runtime computes other numbers, off by {worst[name]:.2g} in row {row}, expected within {CLOSE:g}"
            )
    return worst
