"""A reality as a job has the check and the evidence that the gate finds itself."""

from pathlib import Path

from surefoot.belief import point
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import Plan, Results, _Gate, in_reality
from surefoot.report import jsonable, unwatched
from surefoot.rng import judging
from surefoot.verdict import Check


def test_a_job_gives_the_check_and_the_evidence_of_the_gate():
    who = candidate(Path("balance"))
    belief, plan, found = point(who.task.params, who.task.params.nominal), Plan(realities=(3,), episodes=20, seed=judging(1000)), Results()  # fmt: skip
    here = list(_Gate(who, belief, plan, Limits(), found, unwatched)._reality(3))
    rows, evidence = in_reality((who.files, belief, plan, Limits()), unwatched)
    assert [Check.from_json(row, "x") for row in rows] == here and evidence == jsonable(found.evidence) != {}
