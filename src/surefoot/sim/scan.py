"""Looks through a robot model and every file it names before MuJoCo opens any of them.

MuJoCo follows `../`, absolute paths and symlinks wherever they lead, looks for a nested <model> in the working
directory first, expands `replicate count="10000000"` until the machine gives up, and crashes on a model that attaches
itself. So:

    every path MuJoCo could form from a reference, if it exists, lies inside the model's directory or the asset root;
    every count that makes something grow is below a cap, and above a smaller one the compile is first tried in a cage.
"""

import hashlib
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from surefoot.errors import SurefootError, unknown
from surefoot.sim.modelxml import MAX_DEPTH, MAX_ELEMENTS, MAX_XML_BYTES, Node, parse_xml

MAX_FILES = 2_000
MAX_ASSET_BYTES = 256 << 20
MAX_TOTAL_BYTES = 1 << 30
MAX_PIXELS = 8192 * 8192
MAX_EXPANDED = 50_000

TRIAL_EXPANDED = 2_000  # replicate and flexcomp compile in quadratic time: 10,000 elements take seconds
TRIAL_BYTES = 20 << 20
TRIAL_TEXT = 1_000_000

# element, attribute, try the compile in a cage above this, refuse above this; several numbers multiply
COUNTS: tuple[tuple[str, str, float, float], ...] = (
    ("flexcomp", "count", 1_000, 20_000),
    ("flexcomp", "cellcount", 27, 1_000),
    ("texture", "width", 2_048, 8_192),
    ("texture", "height", 2_048, 8_192 * 6),
    ("hfield", "nrow", 2_048, 8_192),
    ("hfield", "ncol", 2_048, 8_192),
    ("camera", "resolution", 4e6, 64e6),
    ("size", "memory", 256 << 20, 2 << 30),
    *(("size", a, 1e5, 1e7) for a in ("nuserdata", "nkey", "njmax", "nconmax")),
    ("size", "nstack", 1e7, 1e8),
    *(("size", f"nuser_{a}", 100, 1e4) for a in ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor")),
    *(
        ("option", a, 1e5, 1e5)
        for a in ("iterations", "ls_iterations", "noslip_iterations", "ccd_iterations", "sdf_iterations")
    ),
    ("", "nsample", 1e4, 1e6),
)
SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}


@dataclass
class Scan:
    """What was found: the trees (each model with its includes in place), and all that must be known to load it."""

    roots: tuple[str, ...]
    docs: list[Node] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)  # package:// reference -> file
    growth: list[str] = field(default_factory=list)  # reasons to try the compile in a cage first
    seen: dict[str, str] = field(default_factory=dict)  # real path -> content hash, in reading order
    weights: dict[str, float] = field(default_factory=dict)  # real path of a model -> elements once expanded
    elements: int = 0
    size: int = 0

    @property
    def hash(self) -> str:
        return hashlib.sha256("".join(self.seen.values()).encode()).hexdigest()


def scan_file(path: str, asset_root: str | None = None) -> Scan:
    """Scan a model file; refuses what leaves the model's directory and `asset_root`, or grows beyond the caps."""
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise SurefootError(f"{path}: no such model file")
    if asset_root is not None and not os.path.isdir(asset_root):
        raise SurefootError(f"{asset_root}: no such directory, expected the asset root to hold the model's files")
    roots = [os.path.dirname(path)] + ([asset_root] if asset_root is not None else [])
    scan = Scan(tuple(os.path.realpath(r) for r in roots))
    _document(scan, path, ())
    return scan


def scan_string(xml: str, name: str) -> Scan:
    """Scan a model made in code; it carries everything in itself, so it may name no file."""
    data = xml.encode()
    root = parse_xml(data, name)
    for node in root.walk():
        for attr in _file_attrs(node):
            raise node.refuse(
                attr, "names a file; a model made in code may not: write it to disk and load it with load_model"
            )
    scan = Scan((), [root], seen={name: hashlib.sha256(data).hexdigest()})
    _check_counts(scan, root, {})
    return scan


def _document(scan: Scan, path: str, chain: tuple[str, ...]) -> float:
    """Scan one model and the models nested in it; returns how many elements it expands to."""
    real = os.path.realpath(path)
    root = _parse(scan, path)
    home = os.path.dirname(path)
    if root.tag != "robot":  # MuJoCo expands no includes in a URDF
        _splice(scan, root, home)
    scan.docs.append(root)
    dirs, strip = _asset_dirs(scan, root, home)
    nested: dict[str, float] = {}
    for node in _reading_nodes(root):
        for attr in _file_attrs(node):
            if node.tag == "model":
                weight = _nested(scan, node, attr, home, (*chain, real))
                nested[node.attrs[attr]] = nested[node.attrs.get("name", "")] = weight
            else:
                _asset(scan, node, attr, _find(scan, node, attr, home, dirs, strip))
    scan.weights[real] = _check_counts(scan, root, nested)
    return scan.weights[real]


def _nested(scan: Scan, node: Node, attr: str, home: str, chain: tuple[str, ...]) -> float:
    """Scan every model a <model> element could mean; returns the elements of the largest."""
    weights = []
    for child in _find(scan, node, attr, home):
        real = os.path.realpath(child)
        if real in chain:
            raise node.refuse(attr, "makes the model contain itself")
        weights.append(scan.weights.get(real) or _document(scan, child, chain))
    return max(weights)


def _reading_nodes(root: Node) -> list[Node]:
    """The elements whose files MuJoCo opens: in a URDF only meshes, and visual ones only when told to keep them."""
    if root.tag != "robot":
        return list(root.walk())
    keep = any(n.tag == "compiler" and n.attrs.get("discardvisual") == "false" for n in root.walk())
    unread = {id(n) for v in root.walk() if v.tag == "visual" and not keep for n in v.walk()}
    return [n for n in root.walk() if n.tag == "mesh" and id(n) not in unread]


def _file_attrs(node: Node) -> list[str]:
    """file, filename, fileright, ...: no other attribute makes MuJoCo open a file."""
    return [a for a in node.attrs if a.startswith("file") and node.attrs[a]]


def _splice(scan: Scan, root: Node, home: str) -> None:
    """Put the content of each <include> in its place."""
    included = {os.path.realpath(root.file)}
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise SurefootError(f"{node.file}:{node.line}: elements nested deeper than {MAX_DEPTH} by includes")
        children: list[Node] = []
        pending = node.children[::-1]
        while pending:
            child = pending.pop()
            if child.tag != "include" or "file" not in child.attrs:
                children.append(child)
                continue
            path = _find(scan, child, "file", home)[0]
            if os.path.realpath(path) in included:
                raise child.refuse("file", "is included twice; MuJoCo takes a file once")
            included.add(os.path.realpath(path))
            pending.extend(reversed(_parse(scan, path).children))
        node.children = children
        stack.extend((c, depth + 1) for c in children)


def _asset_dirs(scan: Scan, root: Node, home: str) -> tuple[list[str], bool]:
    """The directories a model looks for assets in, and whether it strips paths from names."""
    dirs, strip = [""], False
    for node in root.walk():
        if node.tag != "compiler":
            continue
        strip |= node.attrs.get("strippath") == "true"
        for attr in ("meshdir", "texturedir", "assetdir"):
            if node.attrs.get(attr):
                path = node.attrs[attr].replace("\\", "/")
                _confine(scan, node, attr, os.path.join(home, path))
                dirs.insert(0, path)
    return dirs, strip


def _confine(scan: Scan, node: Node, attr: str, path: str) -> None:
    real = os.path.realpath(path)
    if not any(Path(real).is_relative_to(root) for root in scan.roots):
        raise node.refuse(
            attr,
            f"leads to {real}, outside {' and '.join(scan.roots)}; move the file inside, "
            f"or allow a directory that holds it with --asset-root DIR",
        )


def _find(scan: Scan, node: Node, attr: str, home: str, dirs: Sequence[str] = ("",), strip: bool = False) -> list[str]:
    """The files a reference can mean, in the order MuJoCo tries them; all of them inside the roots."""
    ref = node.attrs[attr].replace("\\", "/")
    if ref.startswith("package://") and not strip:
        return [_package(scan, node, attr, ref)]
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", ref) and not strip:
        raise node.refuse(attr, "has a scheme; expected a path relative to the model, or package:// with an asset root")
    names = [os.path.basename(ref), *([] if "://" in ref else [ref])] if strip else [ref]
    tried = [os.path.join(b, d, n) for n in names for d in dirs for b in (home, os.path.dirname(node.file))]
    expected = tried[0]
    if node.tag == "model":
        tried.insert(0, os.path.abspath(ref))  # MuJoCo tries the working directory first
    found = [p for p in dict.fromkeys(tried) if os.path.lexists(p)]
    for p in found or [expected]:
        _confine(scan, node, attr, p)
    if not found:
        raise node.refuse(attr, f"names a missing file; looked for {', '.join(dict.fromkeys(tried))}")
    for p in found:
        if not os.path.isfile(p):
            raise node.refuse(attr, f"leads to {p}, which is not a regular file")
    return found


def _package(scan: Scan, node: Node, attr: str, ref: str) -> str:
    """package://NAME/rest inside the asset root, which holds the package or is the package."""
    if node.tag != "mesh":
        raise node.refuse(attr, "has a scheme; package:// is for meshes, expected a path relative to the model")
    package, _, rest = ref.removeprefix("package://").partition("/")
    if len(scan.roots) < 2:
        raise node.refuse(
            attr, f"names a ROS package; give the directory that holds {package or 'it'} with --asset-root DIR"
        )
    root = scan.roots[1]
    tried = [os.path.join(root, package, rest)] + (
        [os.path.join(root, rest)] if os.path.basename(root) == package else []
    )
    for path in tried:
        _confine(scan, node, attr, path)
        if os.path.isfile(path):
            scan.packages[node.attrs[attr]] = os.path.realpath(path)
            return path
    held = sorted(e.name for e in os.scandir(root) if e.is_dir())
    if package not in (*held, os.path.basename(root)):
        raise unknown(
            "package", package, held, f"{node.file}:{node.line}: {node.label}: {attr}: in the asset root {root}"
        )
    raise node.refuse(attr, f"names a missing file; looked for {', '.join(tried)}")


def _read(scan: Scan, path: str, limit: int) -> bytes:
    """The bytes of a file that has been found to be inside; remembers its hash."""
    size = os.path.getsize(path)
    scan.size += size
    if size > limit or scan.size > MAX_TOTAL_BYTES:
        raise SurefootError(f"{path}: file of {size} bytes, expected at most {limit}, and {MAX_TOTAL_BYTES} in all")
    with open(path, "rb") as f:
        data = f.read(limit)
    scan.seen[os.path.realpath(path)] = hashlib.sha256(data).hexdigest()
    if len(scan.seen) > MAX_FILES:
        raise SurefootError(f"{path}: the model names more than {MAX_FILES} files, expected fewer")
    return data


def _parse(scan: Scan, path: str) -> Node:
    root = parse_xml(_read(scan, path, MAX_XML_BYTES), path)
    scan.elements += sum(1 for _ in root.walk())
    if scan.elements > MAX_ELEMENTS:
        raise SurefootError(f"{path}: brings the model above {MAX_ELEMENTS} elements, expected fewer")
    return root


def _asset(scan: Scan, node: Node, attr: str, paths: list[str]) -> None:
    for path in paths:
        if os.path.realpath(path) in scan.seen:
            continue
        data = _read(scan, path, MAX_ASSET_BYTES)
        if len(data) > TRIAL_BYTES:
            scan.growth.append(f"{path} of {len(data)} bytes")
        problem = _header_problem(data, path.lower().rsplit(".", 1)[-1], node.attrs.get("content_type", ""))
        if problem:
            raise node.refuse(attr, f"is a broken file: {path}: {problem}")


def _header_problem(data: bytes, suffix: str, content_type: str) -> str:
    """What the first bytes promise that the file does not hold."""
    kind = {"model/stl": "stl", "model/vnd.mujoco.msh": "msh", "image/png": "png"}.get(content_type, suffix)
    if kind == "stl" and len(data) >= 84:
        (faces,) = struct.unpack_from("<I", data, 80)
        if len(data) != 84 + 50 * faces:
            ascii_stl = " (it looks like an ASCII STL; MuJoCo reads binary ones)" if data.startswith(b"solid") else ""
            return f"the header says {faces} triangles, {84 + 50 * faces} bytes; the file has {len(data)}{ascii_stl}"
    elif kind == "msh" and len(data) >= 16:
        v, n, t, f = struct.unpack_from("<4i", data)
        if min(v, n, t, f) < 0 or len(data) != 16 + 4 * (3 * v + 3 * n + 2 * t + 3 * f):
            return (
                f"the header says {v} vertices, {n} normals, {t} texcoords, {f} faces; the file has {len(data)} bytes"
            )
    elif kind == "png" and len(data) >= 24:
        width, height = struct.unpack_from(">2I", data, 16)
        if width * height > MAX_PIXELS:
            return f"the header says {width} x {height} pixels, expected at most {MAX_PIXELS} in all"
    elif kind in ("stl", "msh", "png"):
        return f"{len(data)} bytes are too few for a header"
    return ""


def _check_counts(scan: Scan, root: Node, nested: dict[str, float]) -> float:
    """Refuse counts above the caps, note those worth a trial, and return how many elements the model expands to."""
    for node in root.walk():
        for tag, attr, trial, cap in COUNTS:
            if attr in node.attrs and tag in ("", node.tag):
                n = _amount(node, attr)
                if n > cap:
                    raise node.refuse(attr, f"asks for {n:.3g}, expected at most {cap:.3g}")
                if n > trial:
                    scan.growth.append(f"{node.label}: {attr} {n:.3g}")
        _check_generators(scan, node)
    total = _expanded(root, nested)
    if total > TRIAL_EXPANDED:
        scan.growth.append(f"{total:.3g} elements once expanded")
    return total


def _check_generators(scan: Scan, node: Node) -> None:
    if node.tag == "replicate" and node.integer("count") < 1:
        raise node.refuse("count", "found, expected at least 1: MuJoCo drops the content without a word")
    if node.tag == "mesh" and node.attrs.get("builtin") and max(node.numbers("params"), default=0) > 100:
        scan.growth.append(f"{node.label}: params {node.attrs['params']}")
    if node.tag == "lengthrange":
        scan.growth.append("lengthrange simulates while compiling")
    if any(len(v) > TRIAL_TEXT for v in node.attrs.values()):
        scan.growth.append(f"{node.label}: an attribute of more than {TRIAL_TEXT} characters")


def _amount(node: Node, attr: str) -> float:
    text = node.attrs[attr].strip().upper()
    if text[-1:] in SUFFIXES and text[:-1].isdigit():
        return float(text[:-1]) * SUFFIXES[text[-1]]
    return prod(max(abs(n), 1.0) for n in node.numbers(attr))


def _expanded(root: Node, nested: dict[str, float]) -> float:
    """How many elements there are once replicate, attach and flexcomp have done their work."""
    total, stack = 0.0, [(root, 1.0)]
    culprit, attr = root, "model"  # the last element seen that multiplies others
    while stack:
        node, times = stack.pop()
        own = 1.0
        if node.tag == "replicate":
            culprit, attr = node, "count"
            times *= max(node.integer("count"), 1)
        elif node.tag == "flexcomp":
            culprit, attr = node, "count"
            own = _amount(node, "count") if "count" in node.attrs else 1_000.0
        elif node.tag in ("attach", "model"):
            culprit, attr = node, "model" if node.tag == "attach" else "file"
            own = nested.get(node.attrs.get(attr, ""), max(nested.values(), default=1.0))
        total += own * times
        if total > MAX_EXPANDED:
            raise culprit.refuse(attr, f"brings the model above {MAX_EXPANDED} elements once expanded, expected fewer")
        stack.extend((c, times) for c in node.children)
    return total
