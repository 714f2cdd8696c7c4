"""Jobs have the same answers here and with workers; what was done is not done again."""

import json
import os

import pytest

from surefoot.errors import SurefootError
from surefoot.learn.cluster.jobs import Job, Jobs
from surefoot.report import Progress, unwatched


def squared(given, watch):
    watch(Progress(f"squaring {given}"))
    if given < 0:
        raise SurefootError(f"{given}: expected 0 or more")
    return {"value": given**2, "process": os.getpid()}


def test_answers_come_in_order_with_progress():
    said = []
    found = Jobs(watch=lambda p: said.append((p.doing, p.share))).each(squared, [Job(f"n{k}", k) for k in (3, 1, 2)])
    assert [x["value"] for x in found] == [9, 1, 4]
    assert [words for words, _ in said] == ["0 of 3 done", "squaring 3", "1 of 3 done: n3", "squaring 1", "2 of 3 done: n1", "squaring 2", "3 of 3 done: n2"]  # fmt: skip


def test_a_job_that_was_done_is_not_done_again_and_what_was_cut_is(tmp_path):
    asked, calls = [Job("same", 3), Job("same", 4)], []

    def counted(given, watch):
        calls.append(given)
        return squared(given, watch)

    first = Jobs(keep=tmp_path).each(counted, asked)
    assert Jobs(keep=tmp_path).each(counted, asked) == first and calls == [3, 4]
    one = sorted(tmp_path.iterdir())[0]
    one.write_text(one.read_text()[:-20])
    assert Jobs(keep=tmp_path).each(counted, asked) == first and len(calls) == 3
    edited = json.loads(sorted(tmp_path.iterdir())[1].read_text())
    edited["answer"]["value"] = 5
    sorted(tmp_path.iterdir())[1].write_text(json.dumps(edited))
    assert Jobs(keep=tmp_path).each(counted, asked) == first and len(calls) == 4


def test_a_job_that_fails_ends_all_and_those_before_it_are_kept(tmp_path):
    with pytest.raises(SurefootError, match="-1: expected 0 or more"):
        Jobs(keep=tmp_path).each(squared, [Job("a", 2), Job("b", -1), Job("c", 3)])
    assert len(list(tmp_path.iterdir())) == 1
    assert squared(2, unwatched)["value"] == 4
