"""How large a model becomes once MuJoCo has expanded it: counts above a cap are refused, large ones are noted.

`replicate`, `attach` and `flexcomp` multiply elements, textures and height fields take memory by the pixel, and the
compile takes quadratic time. A model with a count above the smaller limit is first compiled in a process with limits.
"""

from dataclasses import dataclass, field
from math import prod

from surefoot.errors import SurefootError
from surefoot.sim.model.modelxml import Node

MAX_PIXELS = 1 << 25  # in all; 8192 x 4096, which takes a few hundred MB while it is unpacked
MAX_EXPANDED = 10_000
MAX_DOFS = 1_000  # MuJoCo reserves 48 nv^2 bytes for each simulation
MAX_NUMBERS = 1_000_000  # in keyframes, in buffers of delays, and that sensors read

TRIAL_EXPANDED = 1_000  # replicate and flexcomp compile in quadratic time: 10,000 elements take seconds
TRIAL_PIXELS = 1 << 22
TRIAL_BYTES = 8 << 20
TRIAL_TEXT = 1_000_000

# element, attribute, try the compile with limits above this, refuse above this; several numbers multiply
COUNTS: tuple[tuple[str, str, float, float], ...] = (
    ("flexcomp", "count", 1_000, 20_000),
    ("flexcomp", "cellcount", 27, 1_000),
    ("hfield", "nrow", 2_048, 8_192),
    ("hfield", "ncol", 2_048, 8_192),
    ("camera", "resolution", 4e6, 64e6),
    ("size", "memory", 64 << 20, 512 << 20),
    *(("size", a, 1e4, 1e5) for a in ("nuserdata", "nkey", "njmax", "nconmax")),
    ("size", "nstack", 1e7, 5e7),
    *(("size", f"nuser_{a}", 100, 1e3) for a in ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor")),
    *(
        ("option", a, 1e5, 1e5)
        for a in ("iterations", "ls_iterations", "noslip_iterations", "ccd_iterations", "sdf_iterations")
    ),
    ("", "nsample", 1e4, 1e5),
    ("user", "dim", 1e4, 1e5),
    ("contact", "num", 1e3, 1e4),
    ("", "actdim", 1e3, 1e4),
)
# settings of the simulation that finds length ranges, and what they may be; MuJoCo's defaults are 0.01, 10, 2, 1, 20, 0, 0.05
RANGING = {
    "timestep": (1e-4, 0.1),
    "inttotal": (0.1, 1e3),
    "interval": (0.0, 1e3),
    "timeconst": (1e-3, 1e3),
    "accel": (1e-3, 1e4),
    "maxforce": (0.0, 1e6),
    "tolrange": (1e-6, 1.0),
}
SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}


@dataclass
class Growth:
    """What a model costs beyond its own text: reasons to try the compile with limits first, and pixels so far."""

    reasons: list[str] = field(default_factory=list)
    pixels: float = 0.0

    def spend(self, node: Node, attr: str, pixels: float) -> None:
        """Count the pixels of a picture or the samples of a height field; all of a model share one budget."""
        self.pixels += pixels
        if not self.pixels <= MAX_PIXELS:
            raise node.refuse(
                attr, f"brings the model to {self.pixels:.3g} pixels, expected at most {MAX_PIXELS} in all"
            )
        if pixels > TRIAL_PIXELS:
            self.reasons.append(f"{node.label}: {pixels:.3g} pixels")


def check_counts(growth: Growth, root: Node, nested: dict[str, float]) -> float:
    """Refuse counts above the caps, note those worth a trial, and return how many elements the model expands to."""
    for node in root.walk():
        for tag, attr, trial, cap in COUNTS:
            if attr in node.attrs and tag in ("", node.tag):
                n = _amount(node, attr)
                if not n <= cap:
                    raise node.refuse(attr, f"asks for {n:.3g}, expected at most {cap:.3g}")
                if n > trial:
                    growth.reasons.append(f"{node.label}: {attr} {n:.3g}")
        _check_generators(growth, node)
    total = _expanded(root, nested)
    if total > TRIAL_EXPANDED:
        growth.reasons.append(f"{total:.3g} elements once expanded")
    return total


def _check_generators(growth: Growth, node: Node) -> None:
    if node.tag == "replicate" and node.integer("count") < 1:
        raise node.refuse("count", "found, expected at least 1: MuJoCo drops the content without a word")
    if node.tag == "mesh" and node.attrs.get("builtin") and max(node.numbers("params"), default=0) > 100:
        growth.reasons.append(f"{node.label}: params {node.attrs['params']}")
    if node.tag == "lengthrange":
        _check_ranging(node)
    if node.tag == "texture" and node.attrs.get("builtin"):
        width, height = (_amount(node, a) if a in node.attrs else 1.0 for a in ("width", "height"))
        growth.spend(node, "width", width * (height if node.attrs.get("type") == "2d" else max(height, 6 * width)))
    if node.tag == "hfield" and "nrow" in node.attrs and "ncol" in node.attrs:
        growth.spend(node, "nrow", _amount(node, "nrow") * _amount(node, "ncol"))
    if any(len(v) > TRIAL_TEXT for v in node.attrs.values()):
        growth.reasons.append(f"{node.label}: an attribute of more than {TRIAL_TEXT} characters")


def _check_ranging(node: Node) -> None:
    """The simulation that finds length ranges is of a bounded length; a timestep of 0 means the model's own."""
    for attr, (low, high) in RANGING.items():
        numbers = node.numbers(attr)
        inside = len(numbers) == 1 and (low <= numbers[0] <= high or attr == "timestep" and numbers == [0.0])
        if attr in node.attrs and not inside:
            raise node.refuse(attr, f"found, expected a number from {low:g} to {high:g}")


def _amount(node: Node, attr: str) -> float:
    written = node.attrs[attr].strip().upper()
    if written[-1:] in SUFFIXES and written[:-1].isdigit():
        return float(written[:-1]) * SUFFIXES[written[-1]]
    if not node.numbers(attr):
        raise node.refuse(attr, "found, expected a number")
    return prod(max(abs(n), 1.0) for n in node.numbers(attr))


def _expanded(root: Node, nested: dict[str, float]) -> float:
    """The number of elements after replicate, attach and flexcomp are expanded."""
    total, dofs, keys, samples, stack = 0.0, 0.0, 0, 0.0, [(root, 1.0)]
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
        dofs += times * _dofs(node, own)
        keys += node.tag == "key"
        samples += times * sum(max(node.integer(a), 0) for a in ("nsample", "dim", "num", "actdim"))
        if keys * (dofs + 1) + samples > MAX_NUMBERS:
            raise SurefootError(
                f"{node.file}:{node.line}: {node.label}: brings keyframes times degrees of freedom, samples of delays "
                f"and readings above {MAX_NUMBERS}, expected fewer"
            )
        if dofs > MAX_DOFS:
            raise SurefootError(
                f"{node.file}:{node.line}: {node.label}: brings the model above {MAX_DOFS} degrees of freedom, "
                "expected fewer"
            )
        if total > MAX_EXPANDED:
            raise culprit.refuse(attr, f"brings the model above {MAX_EXPANDED} elements once expanded, expected fewer")
        stack.extend((c, times) for c in node.children)
    return total


def _dofs(node: Node, points: float) -> float:
    """A lower bound of an element's degrees of freedom; defaults may give a joint more, so MuJoCo's count decides."""
    if node.tag == "flexcomp":
        return 0.0 if node.attrs.get("rigid") == "true" or "dof" in node.attrs else 3 * points
    if node.tag == "freejoint":
        return 6.0
    known = {"free": 6.0, "floating": 6.0, "ball": 3.0, "fixed": 0.0}
    moves = node.tag == "joint" and not node.attrs.keys() & {"joint", "joint1"}  # of a tendon, of an equality
    return known.get(node.attrs.get("type", ""), 1.0) if moves else 0.0
