"""The pages of the lab, one a file, in the order in which they are read."""

from surefoot.lab.page import Page
from surefoot.lab.pages.actuator import Actuator
from surefoot.lab.pages.adaptation import Adaptation
from surefoot.lab.pages.drift import Drift
from surefoot.lab.pages.live_run import LiveRun
from surefoot.lab.pages.methods import Map
from surefoot.lab.pages.pipeline import Pipeline
from surefoot.lab.pages.width import Width
from surefoot.lab.pages.worlds import Worlds

PAGES: dict[str, type[Page]] = {p.key: p for p in (Pipeline, Worlds, Width, Drift, Adaptation, Actuator, Map, LiveRun)}
FIRST = Worlds.key  # the one that moves at once
