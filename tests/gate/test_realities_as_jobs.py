"""Parts of a gate as jobs have the checks and the evidence that the gate finds itself; a gate that was stopped goes on."""

from pathlib import Path

import numpy as np
import pytest

from surefoot.gate import gate as room
from surefoot.gate.candidate import candidate
from surefoot.gate.checks import Limits
from surefoot.gate.gate import gate
from surefoot.gate.plan import Plan
from surefoot.learn.cluster.address import On
from surefoot.learn.cluster.jobs import Job, Jobs
from surefoot.report import jsonable
from surefoot.rng import judging

SMALL = Plan(engines=("mujoco", "mujoco:half-step"), realities=(3,), episodes=100, seed=judging(1000), per_load=20, motion=4, repeats=1, search=(20, 10, 10))  # fmt: skip


class Here(Jobs):
    """As with workers, in this process: answers travel as JSON."""

    def _answers(self, work, jobs):
        return Jobs(None, None, self.watch)._answers(work, jobs)


@pytest.fixture(scope="module")
def whole():
    who = candidate(Path("balance"))
    return who, gate(who, who.task.belief, SMALL, Limits())


def told(verdict):
    meta = {k: v for k, v in verdict.meta.items() if k not in ("seconds", "plan")}
    return [c.to_json() for c in verdict.checks], verdict.next_step, jsonable(meta)


def test_a_gate_by_jobs_has_every_check_and_all_the_evidence(whole, tmp_path):
    who, alone = whole
    jobs = Here(On("", 2), tmp_path / "gate.jobs")
    found = gate(who, who.task.belief, SMALL, Limits(), jobs=jobs)
    assert told(found) == told(alone)
    assert {p.name.rpartition("-")[0] for p in jobs.keep.iterdir()} == {"belief", "engine-mujoco-half-step", "reality-3", "motion", "latency", "push"}  # fmt: skip


def test_a_gate_that_was_stopped_does_only_what_is_left(whole, tmp_path, monkeypatch):
    who, alone = whole
    done, own = list[str](), room.in_part

    def in_part(given, watch):
        done.append(given[4][0])
        if len(done) == 3:
            raise KeyboardInterrupt
        return own(given, watch)

    in_part.__module__, in_part.__name__ = own.__module__, own.__name__
    monkeypatch.setattr(room, "in_part", in_part)
    jobs = Here(On("", 2), tmp_path / "gate.jobs")
    first = gate(who, who.task.belief, SMALL, Limits(), jobs=jobs)
    assert first.meta["interrupted"] and done == ["belief", "engine", "reality"]
    again = gate(who, who.task.belief, SMALL, Limits(), jobs=jobs)
    assert told(again) == told(alone) and done[3:] == ["reality", "motion", "latency", "push"]
    jobs.forget()
    assert not jobs.keep.exists()


def test_another_policy_at_the_same_path_has_other_answers(tmp_path):
    jobs, given = Jobs(keep=tmp_path), {"path": "x"}
    content = [np.float64(1.0)]
    assert jobs._file(room.in_part, Job("a", given, content)) == jobs._file(
        room.in_part, Job("a", dict(given), content)
    )
    assert jobs._file(room.in_part, Job("a", given, ["sha1"])) != jobs._file(room.in_part, Job("a", given, ["sha2"]))
