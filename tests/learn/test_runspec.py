"""A spec is all that determines a run: it survives JSON, says how it differs from another, and refuses what cannot be."""

import json
from dataclasses import replace

import pytest

from surefoot import files, tasks
from surefoot.errors import SurefootError
from surefoot.learn import train as learn
from surefoot.learn.ranges.adr import ADR
from surefoot.learn.ranges.doraemon import Doraemon
from surefoot.learn.ranges.widen import Widen
from surefoot.learn.residual import Residual
from surefoot.learn.run.parents import Parents, spec_of
from surefoot.learn.runspec import Origin, RunSpec, content_hash
from surefoot.learn.settings import DistillSettings, PPOSettings
from surefoot.tasks import ObsOverride

BELIEF = tasks.resolve("balance").belief
PLAIN = RunSpec("balance", BELIEF, PPOSettings(lr=3e-4, hidden=(7, 5), spread=(0.1, 0.2, 0.3)), 3)
STUDENT = RunSpec("balance", BELIEF, DistillSettings(label="action", only=("e",)), teacher="ab", terms=("cd", "ef"))
SPECS = {
    "plain": PLAIN,
    "adr": replace(PLAIN, ranges=ADR(episodes=4)),
    "doraemon": replace(PLAIN, ranges=Doraemon()),
    "widen": replace(PLAIN, ranges=Widen(step=0.25), obs=ObsOverride(history=3, also=("e",), critic="actor")),
    "upon": replace(PLAIN, base="12", residual=Residual(scale=0.5), start=Origin("/runs/a", "34")),
    "student": STUDENT,
    "of a log": RunSpec("arm", BELIEF, inputs={"log": "56", "learns": "actuator"}),
}
TINY = {"envs": 8, "horizon": 8, "hidden": (4,), "minibatches": 2, "steps": 8 * 8 * 3, "learner_threads": 1}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_spec_survives_json_and_differs_from_every_other(spec):
    again = RunSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec and type(again.settings) is type(spec.settings) and spec.differences(again) == {}
    for other in SPECS.values():
        assert (spec.differences(other) == {}) == (other is spec)


def test_differences_name_the_field_and_the_entry():
    other = replace(PLAIN, seed=4, settings=replace(PLAIN.settings, lr=1e-3))
    assert PLAIN.differences(other) == {"seed": "", "settings": "lr: 0.0003, not 0.001"}


@pytest.mark.parametrize(
    "change, said",
    [
        ({"sed": 1}, "no field matches 'sed'.*did you mean seed"),
        ({"settings": {"lrr": 1.0}}, "settings: no field matches 'lrr'.*did you mean lr"),
        ({"settings": {"lr": "fast"}}, 'settings: lr: expected a number, found "fast"'),
        ({"settings": {"envs": True}}, "settings: envs: expected a whole number, found true"),
        ({"settings": {"envs": 8.5}}, "settings: envs: expected a whole number, found 8.5"),
        ({"settings": {"hidden": [8, "x"]}}, r'settings: hidden\[1\]: expected a whole number, found "x"'),
        ({"settings": {"spread": [1.0]}}, "settings: spread: expected a list"),
        ({"settings": {"encoder": "lstm"}}, "settings: encoder: expected none, e, conv, gru"),
        ({"settings": {"envs": 0}}, "settings: envs: expected at least 1"),
        ({"settings": []}, "settings: expected an object, found list"),
        (
            {"learner": "pppo"},
            "learner: no kind matches 'pppo'; there are ppo, fasttd3, fastsac, .*; did you mean ppo",
        ),
        ({"ranges": {"kind": "adrr"}}, "ranges: no kind matches 'adrr'.*did you mean adr"),
        ({"ranges": "adr"}, "ranges: expected an object, found str"),
        ({"seed": True}, "seed: expected a whole number"),
        ({"seed": -1}, "seed: expected 0 to"),
        ({"terms": "x"}, "terms: expected a list"),
        ({"terms": [1]}, r"terms\[0\]: expected text"),
        ({"residual": {"scale": 0.5}}, "residual: expected a base"),
        ({"teacher": "ab"}, "teacher: only with settings of distillation"),
        ({"belief": 5}, "belief"),
    ],
)
def test_what_cannot_be_a_spec_is_refused_by_field(change, said):
    with pytest.raises(SurefootError, match=f"r/run.json: .*{said}"):
        RunSpec.from_json(PLAIN.to_json() | change, "r/run.json")


@pytest.mark.parametrize("name", ["task", "belief", "settings"])
def test_what_is_missing_is_named(name):
    with pytest.raises(SurefootError, match=f"{name}: missing"):
        RunSpec.from_json({k: v for k, v in PLAIN.to_json().items() if k != name})


def test_what_run_json_has_beside_the_spec_is_no_part_of_it():
    plain, student = PLAIN.to_json(), STUDENT.to_json()
    beside = {"versions": {"numpy": "1"}, "resumed": []}
    assert RunSpec.from_json(plain | beside) == PLAIN and RunSpec.from_json(student | beside) == STUDENT


@pytest.mark.parametrize(
    "change, said",
    [
        ({"teacher": ""}, "distillation needs one"),
        ({"base": "12"}, "base: not with a teacher"),
        ({"ranges": ADR(), "obs": ObsOverride(history=2)}, "ranges, obs: not with a teacher"),
        ({"settings": DistillSettings(only=("e",))}, "student.only"),
    ],
)
def test_a_student_takes_what_its_teacher_leaves_to_it(change, said):
    with pytest.raises(SurefootError, match=said):
        replace(STUDENT, **change)


def test_run_json_is_the_spec_and_a_spec_trains_to_the_same_bits(tmp_path):
    settings = learn.settings_for("balance", TINY)
    base = learn.train("balance", tmp_path / "base", settings=settings)
    asked = {"seed": 3, "belief": BELIEF, "settings": settings, "base": base}
    spec, parents = learn.plan("balance", **asked)
    one = learn.train("balance", tmp_path / "one", **asked)
    two = learn.train(spec, tmp_path / "two", parents=parents)
    assert one.read_bytes() == two.read_bytes()
    about = files.read_json(tmp_path / "two" / "run.json")
    assert {k: about[k] for k in about if k not in ("versions", "resumed", "provenance", "sha256")} == spec.to_json()
    assert spec_of(tmp_path / "one") == spec
    with pytest.raises(SurefootError, match="base: not what the spec names"):
        learn.train(spec, tmp_path / "three", parents=Parents())
    with pytest.raises(SurefootError, match="a spec says all; found seed beside it"):
        learn.train(spec, tmp_path / "three", parents=parents, seed=3)
    assert not (tmp_path / "three").exists()


def test_a_content_hash_tells_contents_apart_and_nothing_else():
    log = {"a": tasks.resolve("arm").action.scale, "b": [1, "x"]}
    same = {"b": [1, "x"], "a": log["a"].copy()}
    assert content_hash(log) == content_hash(same)
    others = [{**log, "b": [1, "y"]}, {**log, "a": log["a"] + 1e-12}, {**log, "c": None}, {"a": log["a"]}]
    assert len({content_hash(x) for x in (log, *others)}) == 5


def test_a_keyword_that_train_does_not_know_is_refused(tmp_path):
    with pytest.raises(SurefootError, match="train: no keyword matches 'beleif'.*did you mean belief"):
        learn.train("balance", tmp_path / "r", beleif=BELIEF)
    assert not (tmp_path / "r").exists()
