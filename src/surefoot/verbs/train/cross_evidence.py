"""The evidence on a crossing's page: predictions of the robot's log, their error budget, and success against each unknown."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from surefoot.report import Axis, Block, Column, Details, Plot, Rule, Series, Table, Text

if TYPE_CHECKING:
    from surefoot.cross.evidence import Curve, Evidence, Sources


def evidence_blocks(found: "Evidence", truth: Mapping[str, float]) -> list[Block]:
    """For the page; `truth` are the robot's own numbers, empty where nobody knows them."""
    blocks: list[Block] = [] if found.sources is None else [budget(found.sources)]
    if found.curves:
        how = (
            "The first log, predicted from its controls; every 0.3 s a prediction starts anew from the measured state."
        )
        blocks += [Text(how), *map(overlay, found.curves)]
    plots = tuple(tolerance(facts, truth.get(facts["over"])) for facts in found.tolerated)
    lines = "the vertical lines are the model's number and the robot's" if truth else "the vertical line is the model's number"  # fmt: skip
    return [*blocks, Details(f"Success of the policy shown against each unknown; {lines}", plots)] if plots else blocks


def budget(found: "Sources") -> Table:
    """Where the model's prediction error comes from."""
    rows = [
        ["wrong numbers", 100 * found.numbers, "the model with the robot's numbers has so much less"],
        ["missing physics", 100 * found.physics, "the robot's own physics has so much less again"],
        [
            "noise",
            100 * found.noise,
            "left with the robot's own numbers and physics: sensors, chance, unmeasured state",
        ],
    ]
    title = (
        f"Error budget: squared prediction error of the model over {found.seconds:.0f} s of the first log, 0.3 s ahead. "
        f"With what the crossing learned, {100 * found.identified:.0f} % of it is left"
    )
    return Table.of(["source", Column("share", "%", ".0f"), "how it is measured"], rows, title)


def overlay(c: "Curve") -> Plot:
    drawn = (
        Series.of("robot", c.time, c.measured),
        Series.of("model", c.time, c.model, style="dashed", tone="bad"),
        Series.of("as learned", c.time, c.identified, tone="good"),
    )
    return Plot(f"{c.signal}: {c.part}", drawn, Axis("time", "s"), Axis(c.part, c.unit))


def tolerance(facts: dict[str, Any], truth: float | None) -> Plot:
    """Success against one unknown, with the model's number and, where it is known, the robot's."""
    points = facts["policies"]["shown"]
    column = lambda k: [100 * p[k] for p in points]  # noqa: E731
    series = Series.of("success", [p["value"] for p in points], column("success"), column("low"), column("high"))
    rules = (Rule(facts["nominal"], "x", "model"), *((Rule(truth, "x", "robot"),) if truth is not None else ()))
    x = Axis(facts["over"], facts["unit"], scale="log" if facts["log"] else "linear")
    caption = (
        f"{facts['episodes']} episodes at each point, the other unknowns as believed of the robot; exact 95 % intervals"
    )
    return Plot(facts["over"], (series,), x, Axis("success", "%", low=0, high=100), rules, caption)
