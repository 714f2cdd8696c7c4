"""The pages of the lab, in the order in which they are read."""

from surefoot.lab.actuator import Actuator
from surefoot.lab.adaptation import Adaptation
from surefoot.lab.drift import Drift
from surefoot.lab.live_run import LiveRun
from surefoot.lab.methods import Map
from surefoot.lab.page import Page
from surefoot.lab.pipeline import Pipeline
from surefoot.lab.width import Width
from surefoot.lab.worlds import Worlds

PAGES: dict[str, type[Page]] = {p.key: p for p in (Pipeline, Worlds, Width, Drift, Adaptation, Actuator, Map, LiveRun)}
FIRST = Worlds.key  # the one that moves at once
