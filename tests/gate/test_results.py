"""What a gate knows: the answer of a job is taken as it was given, through JSON, and what came first stays."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from surefoot import shipped
from surefoot.gate.report import INTERVAL, blocks
from surefoot.gate.results import Results
from surefoot.gate.runs import Separation
from surefoot.report import Text
from surefoot.verdict import Check, Verdict


def test_an_answer_is_taken_as_it_was_given():
    by = Separation("mass", "high", 0.9, 1.25, 0.4, 0.98)
    made = [Check("success, belief", 0.9, 0.8, True, "so", 0.85, 0.95, ""), Check("lost", float("nan"), 0.8, False, "")]
    worker = Results(
        [],
        {"belief": {"rate": np.float64(0.9)}},
        {"power": "no sensor"},
        failed_realities=[7],
        separation=by,
        separating="mass",
    )
    answer = json.loads(json.dumps(worker.answer(made)))
    found = Results(evidence={"nominal": {}}, failed_realities=[3])
    taken = list(found.take(answer, "x"))
    assert taken[0] == made[0] and np.isnan(taken[1].value) and taken[1].name == "lost"
    assert found.evidence == {"nominal": {}, "belief": {"rate": 0.9}} and found.skipped == {"power": "no sensor"}
    assert found.failed_realities == [3, 7] and found.separation == by and found.separating == "mass"
    list(found.take(Results(separating="other").answer([]), "x"))
    assert found.separating == "mass" and found.separation == by


def test_a_rate_that_passes_though_its_interval_reaches_past_the_limit_is_explained():
    """The shipped policy of hover: 40 of 40 episodes prove 90 % at 5 % error, and their interval begins at 89.5 %."""
    verdict = Verdict.from_json(json.loads((shipped.located(Path("hover")) / "gate.json").read_text()))
    rate = next(c for c in verdict.checks if c.name == "success, nominal")
    assert rate.holds and rate.low < rate.limit
    assert Text(INTERVAL, "quiet") in blocks(verdict)
    plain = replace(verdict, checks=tuple(c for c in verdict.checks if not c.name.startswith("success")))
    assert Text(INTERVAL, "quiet") not in blocks(plain)
