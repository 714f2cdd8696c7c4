"""Bars of the weighted reward terms, a second: what the policy earns now, and what each term costs it.

    b_k = (sum of term k since the last picture) / (seconds since it)        the widest bar is the largest |b_k| so far

Names come from a task's file and are shown as they are, never as markup.
"""

from html import escape
from typing import Any

import numpy as np

from surefoot.env import Env
from surefoot.report import plain

REFRESH = 0.2  # s of simulated time between pictures
GOOD, BAD = "#2f9e44", "#e03131"


class RewardBars:
    """The bars of env 0 of an env of one, in a folder of the page."""

    def __init__(self, gui: Any, env: Env):
        self.env, self.steps, self.widest = env, 0, 1e-9
        env.reward_sums[:] = 0.0
        with gui.add_folder("rewards, a second"):
            self.picture = gui.add_html(self.drawn(np.zeros(len(env.task.rewards))))

    def step(self) -> None:
        """Count a control period, and draw when enough of them have passed."""
        self.steps += 1
        seconds = self.steps * self.env.world.dt
        if seconds >= REFRESH:
            self.picture.content = self.drawn(self.env.reward_sums.mean(1) / seconds)
            self.env.reward_sums[:], self.steps = 0.0, 0

    def drawn(self, values: np.ndarray) -> str:
        """Rows of name, bar and number; negative terms are red."""
        self.widest = max(self.widest, float(np.abs(values).max(initial=0.0)))
        return "".join(self._row(name, float(v)) for name, v in zip(self.env.task.rewards, values))

    def _row(self, name: str, value: float) -> str:
        width, colour = 100 * abs(value) / self.widest, BAD if value < 0 else GOOD
        bar = f'<div style="width:{width:.1f}%;height:.7em;background:{colour}"></div>'
        cells = [
            f'<div style="width:6.5em;overflow-wrap:anywhere">{escape(plain(name))}</div>',
            f'<div style="flex:1">{bar}</div>',
            f'<div style="width:4.5em;text-align:right">{value:+.3g}</div>',
        ]
        style = "display:flex;align-items:center;gap:.4em;font-size:.75em;padding:0 .8em"
        return f'<div style="{style}">{"".join(cells)}</div>'
