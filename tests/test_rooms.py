"""The house keeps its shape: imports go one way, files stay readable, nothing unpickles."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "surefoot"
NOUNS = {
    "errors",
    "rng",
    "arrays",
    "typed",
    "files",
    "isolated",
    "rotation",
    "robot",
    "params",
    "special",
    "belief",
    "estimate",
    "world",
    "formula",
    "observation",
    "short_terms",
    "noise",
    "blocks",
    "contract",
    "fault",
    "task",
    "task_check",
    "env",
    "policy",
    "log",
    "verdict",
    "shipped",
    "report",
}
# each room and those it may import from; the nouns are open to all
MAY = {
    "formats": set(),
    "tensors": set(),
    "onnx_file": set(),
    "sim": {"tensors", "onnx_file"},
    "control": {"onnx_file"},
    "deploy": {"control", "onnx_file"},
    "tasks": {"sim", "control", "motion", "deploy"},
    "presets": {"sim"},
    "learn": {"formats", "tensors", "onnx_file", "sim", "control", "tasks", "deploy"},
    "motion": {"formats", "sim", "control"},
    "real2sim": {"formats", "tensors", "onnx_file", "sim", "control", "tasks", "learn", "motion"},
    "gate": {"formats", "onnx_file", "presets", "sim", "control", "tasks", "learn", "motion", "real2sim", "deploy"},
    "doctor": {"formats", "sim", "control", "tasks", "learn", "real2sim", "gate"},
    "cross": {"sim", "tasks", "learn", "real2sim", "deploy", "gate", "doctor"},
    "lab": {"sim", "control", "tasks", "learn", "real2sim", "gate", "doctor", "deploy"},
    "verbs": {
        "formats",
        "presets",
        "sim",
        "control",
        "tasks",
        "learn",
        "motion",
        "real2sim",
        "gate",
        "doctor",
        "cross",
        "deploy",
        "lab",
        "web",
    },
    "web": {"lab", "tasks"},
    "cli": {"verbs", "web", "tasks"},
    "__main__": {"cli"},
}
PATHS = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0] if parts[0] != "__init__" else "surefoot"


def imports(path: Path) -> set[str]:
    """Every module a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
    return found


def rooms_of(path: Path) -> set[str]:
    inner = {m.split(".")[1] for m in imports(path) if m.startswith("surefoot.")}
    return {r for r in inner if r in NOUNS or r in MAY}


@pytest.mark.parametrize("path", PATHS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    own = room(path)
    if own in NOUNS or own == "surefoot":
        assert rooms_of(path) <= NOUNS | ({"formats"} if own == "log" else set())  # Log.read opens it when called
    else:
        assert rooms_of(path) - NOUNS <= MAY[own] | {own}


def test_nouns_need_numpy_alone():
    for path in PATHS:
        if room(path) in NOUNS:
            outside = {m.split(".")[0] for m in imports(path)} & {
                "mujoco",
                "torch",
                "scipy",
                "rich",
                "tyro",
                "matplotlib",
                "safetensors",
            }
            assert not outside, f"{path.name} imports {outside}"


def test_verbs_neither_print_nor_draw():
    for path in (SOURCE / "verbs").rglob("*.py"):
        assert not {m.split(".")[0] for m in imports(path)} & {"rich", "matplotlib", "html"}, path.name
        assert not re.search(r"(?<![\w.])print\(", path.read_text()), path.name


def test_deploy_needs_neither_mujoco_nor_torch_and_sim_no_torch():
    for room_, banned in (
        ("deploy", {"mujoco", "torch", "scipy", "rich", "tyro"}),
        ("onnx_file", {"mujoco", "torch"}),
        ("sim", {"torch"}),
    ):
        for path in (SOURCE / room_).rglob("*.py"):
            assert not {m.split(".")[0] for m in imports(path)} & banned, path.name


def test_no_room_is_called_utils():
    banned = {"utils", "common", "helpers", "managers", "base", "core"}
    assert not [p for p in PATHS if p.stem in banned or p.parent.name in banned]


def test_nothing_on_a_load_path_can_run_code():
    unsafe = re.compile(r"\bpickle\b|torch\.load\(|allow_pickle=True|yaml\.load\(|(?<![\w.])eval\(|(?<![\w.])exec\(")
    for path in PATHS:
        code = "\n".join(
            line.split("#")[0] for line in path.read_text().splitlines() if not line.strip().startswith('"""')
        )
        hit = unsafe.search(code)
        assert hit is None or "refus" in code[max(0, hit.start() - 80) : hit.end() + 80], f"{path.name}: {hit}"


def test_files_and_functions_stay_readable():
    longest = {p: len(p.read_text().splitlines()) for p in PATHS}
    assert max(longest.values()) <= 450, max(longest, key=longest.get)
    sizes = []
    for path in PATHS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                sizes.append((node.end_lineno - node.lineno + 1, f"{path.name}:{node.name}"))
    assert max(sizes)[0] <= 75, max(sizes)
    assert sum(s <= 40 for s, _ in sizes) >= 0.9 * len(sizes)


def test_a_room_has_at_most_a_dozen_files():
    """Of those in a room itself; larger ones have sub-rooms. The ground floor is not a room: each of its files is a noun."""
    rooms = {path.parent for path in PATHS} - {SOURCE}
    sizes = {str(r.relative_to(SOURCE)): sum(p.stem != "__init__" for p in r.glob("*.py")) for r in rooms}
    assert max(sizes.values()) <= 12, {room: n for room, n in sizes.items() if n > 12}


def test_public_names_are_where_the_package_says():
    """Each is found, is no module of the package under another meaning, and an unknown one is refused as by any module."""
    import surefoot

    for name in surefoot.__all__:
        assert callable(getattr(surefoot, name)) and not (SOURCE / name).exists()
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = surefoot.trian


def test_the_architecture_page_has_the_rooms_as_they_are():
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.M)
    told = {room: set(re.findall(r"`(\w+)`", rest)) for room, rest in rows if room in MAY}
    assert told == MAY
    files = {name.removesuffix(".py").rstrip("/") for name in re.findall(r"\| (\w+(?:\.py|/)) \|", page)}
    assert files and files <= NOUNS


def test_no_two_files_of_tests_have_one_name():
    """pytest knows a file by its name alone: the second one would be an error, and only where both are collected."""
    names = [p.name for p in (SOURCE.parents[1] / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
