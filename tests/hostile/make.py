"""Every case there is, and a sample of them for the suite."""

from . import arrays, bags, bundles, logs, models, policies, runs
from .case import Case

SAMPLE = 110


def everything() -> list[Case]:
    cases = [c for room in (logs, arrays, bags, models, policies, runs, bundles) for c in room.everything()]
    names = [(c.kind, c.name) for c in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    return cases


def sample(most: int = SAMPLE) -> list[Case]:
    """Cases of every class, evenly over each, without those that take seconds even where all is well."""
    light = [c for c in everything() if not c.heavy]
    kinds = {c.kind: [d for d in light if d.kind == c.kind] for c in light}
    found = []
    for cases in kinds.values():
        n = max(3, round(most * len(cases) / len(light)))
        found += [cases[k * len(cases) // n] for k in range(min(n, len(cases)))]
    return found
