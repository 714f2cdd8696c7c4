"""A learned Term on disk is what was written, or it is refused by the name of the field."""

import json

import mujoco
import numpy as np
import pytest

from surefoot import files
from surefoot.errors import SurefootError
from surefoot.sim.learned import DeltaAction, Ensemble, Layout, load, save

PENDULUM = """<mujoco><worldbody><body><joint name="hinge" range="-1 1" limited="true"/><geom size=".1"/></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""


@pytest.fixture
def folder(tmp_path):
    layout = Layout.of(mujoco.MjModel.from_xml_string(PENDULUM))
    shapes = {"w0": (2, 4, 3), "b0": (2, 4), "w1": (2, 1, 4), "b1": (2, 1), "mean": (3,), "scale": (1,), "doubt": ()}
    net = Ensemble({k: np.full(s, 0.5) for k, s in shapes.items()} | {"sd": np.ones(3)})
    save(DeltaAction(layout, net), tmp_path / "t")
    return tmp_path / "t"


def changed(folder, change, sealed=True):
    card = json.loads((folder / "term.json").read_text())
    change(card)
    (folder / "term.json").write_text(json.dumps(files.seal(card) if sealed else card))


def test_an_edited_term_json_is_noticed_by_its_seal(folder):
    changed(folder, lambda c: c["layout"].update(nv=7), sealed=False)
    with pytest.raises(SurefootError, match="term.json: edited or damaged since it was written"):
        load(folder)
    changed(folder, lambda c: c.pop("sha256"), sealed=False)
    with pytest.raises(SurefootError, match="sha256: found nothing"):
        load(folder)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda c: c.update(kind=["delta action"]), "kind: expected text"),
        (lambda c: c.update(kind="dleta action"), "no term matches 'dleta action'.*did you mean delta action"),
        (lambda c: c.update(format=1), "expected 2, found 1; an earlier version of surefoot wrote it: learn it again"),
        (lambda c: c.update(extra=1), "no field matches 'extra'"),
        (lambda c: c.update(layout=[]), "layout: expected an object, found list"),
        (lambda c: c["layout"].update(joints=None), "layout: joints: expected a list"),
        (lambda c: c["layout"].update(joints=[5]), "layout: joints: expected text, found '5'"),
        (lambda c: c["layout"].update(places=[-1]), "layout: places: expected a whole number from 0"),
        (lambda c: c["layout"].update(na=10**9), "layout: na: expected a whole number from 0 to 4096"),
        (lambda c: c["layout"].update(turns=[0]), "layout: base, turns: expected true or false"),
        (lambda c: c["layout"].update(speeds=[0, 1]), "layout: places, speeds, turns: expected one for each of 1"),
        (lambda c: c["layout"].update(controls=["a", "b"]), "its layers do not fit 4 inputs"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(folder, change, said):
    changed(folder, change)
    with pytest.raises(SurefootError, match=said):
        load(folder)


def test_a_term_comes_back_from_its_folder(folder):
    found = load(folder, mujoco.MjModel.from_xml_string(PENDULUM))
    assert isinstance(found, DeltaAction) and found.layout.joints == ("hinge",) and found.layout.places == (0,)
