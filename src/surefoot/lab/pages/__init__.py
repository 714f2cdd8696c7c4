"""The pages of the lab, one a file, in the order in which they are read. A page is imported when somebody turns to it."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from surefoot.lab.page import Page

WHERE = {
    "pipeline": ("The pipeline", "pipeline", "Pipeline"),
    "worlds": ("Many worlds", "worlds", "Worlds"),
    "width": ("Randomization width", "width", "Width"),
    "drift": ("Drift", "drift", "Drift"),
    "adaptation": ("Teacher and student", "adaptation", "Adaptation"),
    "actuator": ("Actuator", "actuator", "Actuator"),
    "map": ("The map", "map", "Map"),
    "run": ("A run", "live_run", "LiveRun"),
}
"""by key: title, file and class"""
TITLES = {key: title for key, (title, _, _) in WHERE.items()}
FIRST = "worlds"  # the one that moves at once


class Pages(Mapping[str, type[Page]]):
    """Some need torch, whose import takes longer than all that the first page needs."""

    def __getitem__(self, key: str) -> type[Page]:
        _, file, name = WHERE[key]
        page: type[Page] = getattr(import_module(f"surefoot.lab.pages.{file}"), name)
        return page

    def __contains__(self, key: object) -> bool:
        return key in WHERE

    def __iter__(self) -> Iterator[str]:
        return iter(WHERE)

    def __len__(self) -> int:
        return len(WHERE)


PAGES = Pages()
