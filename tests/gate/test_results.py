"""What a gate knows: the answer of a job is taken as it was given, through JSON, and what came first stays."""

import json

import numpy as np

from surefoot.gate.results import Results
from surefoot.gate.runs import Separation
from surefoot.verdict import Check


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
