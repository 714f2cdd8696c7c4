"""The pages of the lab, in the order in which they are read."""

from surefoot.lab.page import Page
from surefoot.lab.worlds import Worlds

PAGES: dict[str, type[Page]] = {p.key: p for p in (Worlds,)}
FIRST = "worlds"
