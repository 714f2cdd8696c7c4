"""Scans a robot model and every file it names, and packs all of them, so that MuJoCo opens no file.

MuJoCo follows `../`, absolute paths and symlinks, looks for a nested <model> in the working directory first, expands
`replicate count="10000000"` until memory is exhausted, and crashes on a model that attaches itself. So:

    every file lies inside the model's directory or the asset root, and is opened once, here, without following links;
    MuJoCo gets the XML that was scanned and the bytes that were read, named by their content's hash;
    every count that multiplies something is below a cap; above a smaller one the compile is first tried with limits.
"""

import hashlib
import os
import re
import struct
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from surefoot import files
from surefoot.errors import SurefootError, unknown
from surefoot.sim.model.growth import MAX_PIXELS, TRIAL_BYTES, Growth, check_counts
from surefoot.sim.model.modelxml import MAX_DEPTH, MAX_ELEMENTS, MAX_XML_BYTES, Node, parse_xml, text
from surefoot.sim.model.urdf import binary_stl, mend

MAX_FILES = 2_000
MAX_TOTAL_BYTES = 256 << 20


@dataclass
class Scan:
    """The result: the XML trees (each model with its includes in place), and all that is needed to load it."""

    roots: tuple[str, ...]
    docs: list[Node] = field(default_factory=list)
    xml: str = ""  # the model with its includes in place; every file it names is a name in the two below
    models: dict[str, bytes] = field(default_factory=dict)  # what MuJoCo reads while it parses
    assets: dict[str, bytes] = field(default_factory=dict)  # what MuJoCo reads when it compiles
    growth: Growth = field(default_factory=Growth)
    seen: dict[str, str] = field(default_factory=dict)  # real path -> content hash, in reading order
    weights: dict[str, float] = field(default_factory=dict)  # real path of a model -> elements once expanded
    data: dict[str, bytes] = field(default_factory=dict)  # real path -> content of an asset
    packed: dict[str, str] = field(default_factory=dict)  # real path of a nested model -> its name in models
    notes: list[str] = field(default_factory=list)  # what was mended
    elements: int = 0
    size: int = 0

    @property
    def hash(self) -> str:
        return hashlib.sha256("".join(self.seen.values()).encode()).hexdigest()


def scan_file(path: str, asset_root: str | None = None) -> Scan:
    """Scan a model file; refuses files outside the model's directory and `asset_root`, and counts above the caps."""
    path = os.path.abspath(path)
    if not os.path.exists(path):
        raise SurefootError(f"{path}: no such model file")
    if asset_root is not None and not os.path.isdir(asset_root):
        raise SurefootError(f"{asset_root}: no such directory, expected the asset root with the model's files")
    roots = [os.path.dirname(path)] + ([asset_root] if asset_root is not None else [])
    scan = Scan(tuple(os.path.realpath(r) for r in roots))
    _document(scan, path, ())
    scan.xml = text(scan.docs[0])
    return scan


def scan_string(xml: str, name: str) -> Scan:
    """Scan a model made in code, which may name no file."""
    data = xml.encode()
    root = parse_xml(data, name)
    for node in root.walk():
        for attr in _file_attrs(node):
            raise node.refuse(
                attr, "names a file; a model made in code may not: write it to disk and load it with load_model"
            )
    scan = Scan((), [root], text(root), seen={name: hashlib.sha256(data).hexdigest()})
    check_counts(scan.growth, root, {})
    return scan


def _document(scan: Scan, path: str, chain: tuple[str, ...]) -> float:
    """Scan one model and the models nested in it; returns how many elements it expands to."""
    real = os.path.realpath(path)
    root = _parse(scan, path)
    home = os.path.dirname(path)
    if root.tag != "robot":  # MuJoCo expands no includes in a URDF
        _splice(scan, root, home)
    else:
        scan.notes += mend(root)
    scan.docs.append(root)
    dirs, strip = _asset_dirs(scan, root, home)
    nested: dict[str, float] = {}
    for node in _reading_nodes(root):
        for attr in _file_attrs(node):
            if node.tag == "model":
                ref, weight = node.attrs[attr], _nested(scan, node, attr, home, (*chain, real))
                nested[ref] = nested[node.attrs[attr]] = nested[node.attrs.get("name", "")] = weight
            else:
                _asset(scan, node, attr, _find(scan, node, attr, home, dirs[node.tag == "texture"], strip))
    scan.weights[real] = check_counts(scan.growth, root, nested)
    return scan.weights[real]


def _nested(scan: Scan, node: Node, attr: str, home: str, chain: tuple[str, ...]) -> float:
    """Scan and pack the model a <model> element means; returns its elements."""
    child = _find(scan, node, attr, home)
    real = os.path.realpath(child)
    if real in chain:
        raise node.refuse(attr, "makes the model contain itself")
    if real not in scan.packed:
        at = len(scan.docs)
        _document(scan, child, chain)
        scan.packed[real] = _pack(scan.models, text(scan.docs[at]).encode(), f"{Path(child).stem}.xml")
    node.attrs.pop("content_type", None)
    node.attrs[attr] = scan.packed[real]
    return scan.weights[real]


def _pack(into: dict[str, bytes], data: bytes, name: str) -> str:
    """Name it by content: MuJoCo caches decoded files by name, and a mesh without a name is named after its file."""
    packed = f"{hashlib.sha256(data).hexdigest()[:32]}/{name}"
    into[packed] = data
    return packed


def _reading_nodes(root: Node) -> list[Node]:
    """The elements whose files MuJoCo opens: in a URDF only meshes, and visual ones only if discardvisual is false.

    Elements that it does not open are removed.
    """
    if root.tag != "robot":
        return list(root.walk())
    nodes = list(root.walk())
    if not any(n.tag == "compiler" and n.attrs.get("discardvisual") == "false" for n in nodes):
        for node in nodes:
            node.children = [c for c in node.children if c.tag != "visual"]
    nodes = list(root.walk())
    for node in nodes:
        if node.tag != "mesh":
            node.attrs = {a: v for a, v in node.attrs.items() if not a.startswith("file")}
    return [n for n in nodes if n.tag == "mesh"]


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
            path = _find(scan, child, "file", home)
            if os.path.realpath(path) in included:
                raise child.refuse("file", "is included twice; MuJoCo takes a file once")
            included.add(os.path.realpath(path))
            pending.extend(reversed(_parse(scan, path).children))
        node.children = children
        stack.extend((c, depth + 1) for c in children)


def _asset_dirs(scan: Scan, root: Node, home: str) -> tuple[tuple[str, str], bool]:
    """Where a model looks for meshes and where for textures, and whether it strips paths from names.

    They are removed from the tree, since packed files have no directories.
    """
    dirs, strip = {"meshdir": "", "texturedir": ""}, False
    for node in root.walk():
        if node.tag != "compiler":
            continue
        strip = node.attrs.pop("strippath", str(strip).lower()) == "true"
        for attr, sets in (("assetdir", tuple(dirs)), ("meshdir", ("meshdir",)), ("texturedir", ("texturedir",))):
            if node.attrs.get(attr):
                path = node.attrs[attr].replace("\\", "/")
                _confine(scan, node, attr, os.path.join(home, path))
                dirs |= dict.fromkeys(sets, path)
            node.attrs.pop(attr, None)
    return (dirs["meshdir"], dirs["texturedir"]), strip


def _confine(scan: Scan, node: Node, attr: str, path: str) -> None:
    real = os.path.realpath(path)
    if not any(Path(real).is_relative_to(root) for root in scan.roots):
        both = os.path.commonpath([scan.roots[0], real])
        raise node.refuse(
            attr,
            f"leads to {real}, outside {' and '.join(scan.roots)}; move the file inside, "
            f"or allow a directory that holds it: --asset-root {both if len(Path(both).parts) > 2 else 'DIR'}",
        )


def _find(scan: Scan, node: Node, attr: str, home: str, folder: str = "", strip: bool = False) -> str:
    """The file of a reference, inside the roots.

    In a file that was included from another directory a reference may start there, too. Which of the two MuJoCo means
    depends on what exists, so both at once are refused.
    """
    ref = node.attrs[attr].replace("\\", "/")
    if ref.startswith("package://") and not strip:
        return _package(scan, node, attr, ref)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", ref) and not strip:
        raise node.refuse(attr, "has a scheme; expected a path relative to the model, or package:// with an asset root")
    name, beside = os.path.basename(ref) if strip else ref, os.path.dirname(node.file)
    tried = [os.path.join(home, folder, name)]
    if beside != home:
        tried += [os.path.join(beside, folder, name), os.path.join(beside, name)]
    found = [p for p in tried if os.path.lexists(p)]
    for p in found or tried[:1]:
        _confine(scan, node, attr, p)
    if not found:
        raise node.refuse(attr, f"names a missing file; looked for {', '.join(dict.fromkeys(tried))}")
    if len(set(map(os.path.realpath, found))) > 1:
        raise node.refuse(attr, f"may mean {' or '.join(dict.fromkeys(found))}; expected one of them to be there")
    if not os.path.isfile(found[0]):
        raise node.refuse(attr, f"leads to {found[0]}, which is not a regular file")
    return found[0]


def _package(scan: Scan, node: Node, attr: str, ref: str) -> str:
    """package://NAME/rest inside a root, which holds the package or is the package: the model's folder, or the asset root."""
    if node.tag != "mesh":
        raise node.refuse(attr, "has a scheme; package:// is for meshes, expected a path relative to the model")
    package, _, rest = ref.removeprefix("package://").partition("/")
    tried = [os.path.join(root, package, rest) for root in scan.roots]
    tried += [os.path.join(root, rest) for root in scan.roots if os.path.basename(root) == package]
    for path in tried:
        _confine(scan, node, attr, path)
        if os.path.isfile(path):
            return path
    if len(scan.roots) < 2:
        where = next((str(p.parent) for p in Path(scan.roots[0]).parents if p.name == package), "DIR")
        raise node.refuse(
            attr, f"names a ROS package; give the directory that holds {package or 'it'} with --asset-root {where}"
        )
    root = scan.roots[1]
    held = sorted(e.name for e in os.scandir(root) if e.is_dir())
    if package not in (*held, os.path.basename(root)):
        raise unknown(
            "package", package, held, f"{node.file}:{node.line}: {node.label}: {attr}: in the asset root {root}"
        )
    raise node.refuse(attr, f"names a missing file; looked for {', '.join(tried)}")


def _read(scan: Scan, path: str, limit: int = MAX_TOTAL_BYTES) -> bytes:
    """The bytes of a file inside the roots; records its hash."""
    limit = min(limit, MAX_TOTAL_BYTES - scan.size)
    data = files.read_opened(_open_inside(scan, path), path, limit) if scan.seen else files.read_bytes(path, limit)
    scan.size += len(data)
    scan.seen[os.path.realpath(path)] = hashlib.sha256(data).hexdigest()
    if len(scan.seen) > MAX_FILES:
        raise SurefootError(f"{path}: the model names more than {MAX_FILES} files, expected fewer")
    return data


def _open_inside(scan: Scan, path: str) -> int:
    """A descriptor of what a path leads to, reached from a root by directories that are no links.

    A path that was checked can lead elsewhere a moment later; what is opened here cannot.
    """
    real = os.path.realpath(path)
    root = next((r for r in scan.roots if Path(real).is_relative_to(r)), None)
    if root is None:
        raise SurefootError(f"{path}: leads to {real}, outside {' and '.join(scan.roots)}")
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        if os.open not in os.supports_dir_fd:  # Windows, where links are made by administrators only
            return os.open(real, flags)
        fd = os.open(root, flags)
        for part in Path(real).relative_to(root).parts:
            above, fd = fd, os.open(part, flags | os.O_NOFOLLOW, dir_fd=fd)
            os.close(above)
        return fd
    except OSError as error:
        raise SurefootError(f"{path}: cannot read {real}: {error.strerror or error}") from None


def _parse(scan: Scan, path: str) -> Node:
    root = parse_xml(_read(scan, path, MAX_XML_BYTES), path)
    scan.elements += sum(1 for _ in root.walk())
    if scan.elements > MAX_ELEMENTS:
        raise SurefootError(f"{path}: brings the model above {MAX_ELEMENTS} elements, expected fewer")
    return root


def _asset(scan: Scan, node: Node, attr: str, path: str) -> None:
    """Read, check and pack one file; the element then names the packed one."""
    real = os.path.realpath(path)
    if real not in scan.data:
        data = _read(scan, path)
        scan.data[real] = binary_stl(data) if path.lower().endswith(".stl") else data
        if len(scan.data[real]) > TRIAL_BYTES:
            scan.growth.reasons.append(f"{path} of {len(scan.data[real])} bytes")
    problem = _header_problem(scan.data[real], path.lower().rsplit(".", 1)[-1], node.attrs.get("content_type", ""))
    if problem:
        raise node.refuse(attr, f"is a broken file: {path}: {problem}")
    if scan.data[real].startswith(b"\x89PNG") and len(scan.data[real]) >= 24:
        scan.growth.spend(node, attr, float(prod(struct.unpack_from(">2I", scan.data[real], 16))))
    parsed = node.tag == "flexcomp"  # its file is read while parsing
    node.attrs[attr] = _pack(scan.models if parsed else scan.assets, scan.data[real], os.path.basename(path))


def _header_problem(data: bytes, suffix: str, content_type: str) -> str:
    """A contradiction between a file's header and its size, or nothing."""
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
        if not data.startswith(b"\x89PNG\r\n\x1a\n") or width * height > MAX_PIXELS:
            return f"the header says {width} x {height} pixels, expected a PNG of at most {MAX_PIXELS} in all"
    elif kind in ("stl", "msh", "png"):
        return f"{len(data)} bytes are too few for a header"
    return ""
