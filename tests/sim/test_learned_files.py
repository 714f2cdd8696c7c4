"""A learned Term on disk is what was written, or it is refused by the name of the field."""

import json
import shutil
from dataclasses import replace

import mujoco
import numpy as np
import onnx
import pytest
import torch

from surefoot.errors import SurefootError
from surefoot.learn.nets.export import graph_of
from surefoot.onnx_file.seal import sealed
from surefoot.real2sim.actuator.net import ActuatorModule, Shape, UnitNets, exported
from surefoot.sim import learned
from surefoot.sim.learned import DeltaAction, ResidualForce, digest, load, save
from surefoot.sim.learned.actuator_net import Actuators, drives
from surefoot.sim.learned.features import StateFeatures

PENDULUM = """<mujoco><worldbody><body><joint name="hinge" range="-1 1" limited="true"/><geom size=".1"/></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator></mujoco>"""
MODEL = mujoco.MjModel.from_xml_string(PENDULUM)


def net(inputs=3, outputs=1):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(inputs, 8), torch.nn.Tanh(), torch.nn.Linear(8, outputs))


def delta():
    return DeltaAction(StateFeatures.of(MODEL), graph_of(net(), 3), {"explained": 0.5})


def motor():
    shape = Shape("mlp", (0,), 1, history=2, hidden=4)
    scales = {"shift": (1, 1, 6), "scale": (1, 1, 6), "gain": (1, 1, 1), "offset": (1, 1, 1)}
    module = ActuatorModule(UnitNets(shape, {k: np.ones(size) for k, size in scales.items()}, 0), shape, (2.0,))
    return exported(module, Actuators(0.01, drives(MODEL), (0.1,), (2.0,)), MODEL)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("terms")
    save(delta(), root / "delta"), save(motor(), root / "motor")
    return root


@pytest.fixture
def folder(folders, tmp_path):
    shutil.copytree(folders / "delta", tmp_path / "t")
    return tmp_path / "t"


def changed(folder, change):
    """A card that says something else, sealed again."""
    path = folder / "term.onnx"
    card = json.loads({p.key: p.value for p in onnx.load(path).metadata_props}["surefoot"])
    change(card)
    path.write_bytes(sealed(path.read_bytes(), card))


def test_a_term_comes_back_from_its_file_with_the_same_bits(folder, folders):
    found, phi = load(folder, MODEL), np.random.default_rng(0).standard_normal((1024, 3))
    assert isinstance(found, DeltaAction) and found.features == StateFeatures.of(MODEL)
    assert found.about == {"explained": 0.5} and digest(found) == digest(delta())
    for n in (1, 64, 1024):
        assert np.array_equal(found.net(phi[:n]), delta().net(phi[:n]))
    back, f = load(folders / "motor" / "term.onnx", MODEL), np.random.default_rng(0).standard_normal((5, 7, 3))
    assert np.array_equal(back.along(f), motor().along(f)) and back.fits(0.01) is None and back.width == 4


def test_onnxruntime_answers_as_torch_does_to_a_millionth_and_the_same_whatever_ran_before():
    phi, by_onnx = np.random.default_rng(0).standard_normal((1024, 3)).astype(np.float32), graph_of(net(), 3)
    with torch.no_grad():
        wanted = net()(torch.from_numpy(phi)).numpy()
    first = by_onnx(phi)
    assert np.abs(first - wanted).max() < 1e-6
    by_onnx(phi[:64]), by_onnx(phi[:1])
    assert np.array_equal(by_onnx(phi), first)


def test_an_edited_file_is_noticed_by_its_seal(folder):
    path = folder / "term.onnx"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"explained": 0.5', b'"explained": 0.9'))
    with pytest.raises(SurefootError, match="term.onnx: changed since it was written"):
        load(folder, MODEL)
    path.write_bytes(net_alone := graph_of(net(), 3).data)
    assert len(net_alone) < len(data)
    with pytest.raises(SurefootError, match="no seal"):
        load(folder, MODEL)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda c: c.update(kind=["delta action"]), "kind: expected text"),
        (lambda c: c.update(kind="dleta action"), "no kind matches 'dleta action'.*did you mean delta action"),
        (lambda c: c.update(format=2), "format: expected 3, found 2"),
        (lambda c: c.update(extra=1), "no field matches 'extra'"),
        (lambda c: c.update(about=[]), "about: expected an object, found list"),
        (lambda c: c.update(golden=[[1.0]] * 3), "golden: the net answers differently"),
        (lambda c: c.update(golden="x"), "golden: expected rows of numbers"),
        (lambda c: c.update(term=[]), "term: expected an object, found list"),
        (lambda c: c["term"].update(features=[]), "features: expected an object, found list"),
        (lambda c: c["term"]["features"].update(joints=None), "features: joints: expected a list"),
        (lambda c: c["term"]["features"].update(joints=[5]), r"features: joints\[0\]: expected text, found 5"),
        (lambda c: c["term"]["features"].update(places=[-1]), "features: places: expected whole numbers from 0"),
        (lambda c: c["term"]["features"].update(na=10**9), "features: na: expected whole numbers from 0 to 4096"),
        (lambda c: c["term"]["features"].update(turns=[0]), r"features: turns\[0\]: expected true or false"),
        (lambda c: c["term"]["features"].update(speeds=[0, 1]), "places, speeds, turns: expected one for each of 1"),
        (lambda c: c["term"]["features"].update(joints=["knee"]), "joints: learned on .*'knee'.*not the same robot"),
        (lambda c: c.update(contract={}), "found a policy, expected a learned Term"),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(folder, change, said):
    changed(folder, change)
    with pytest.raises(SurefootError, match=said):
        load(folder, MODEL)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t.update(dt=0), "term: dt: expected a period above 0"),
        (lambda t: t.update(dt="x"), 'term: dt: expected a number, found "x"'),
        (lambda t: t.update(limit=[1.0, 2.0]), "term: limit: expected 1 numbers above 0"),
        (lambda t: t.update(slow=[0]), "term: slow: expected 1 numbers above 0"),
        (lambda t: t.update(drives=[]), "term: drives: expected 1 to 4096, found 0"),
        (lambda t: t["drives"][0].update(gain=None), r"term: drives\[0\]: gain: expected a number, found null"),
        (lambda t: t["drives"][0].update(gain=3), "actuator motor: gain: found 1.0 in this model, expected 3.0"),
        (lambda t: t["drives"][0].update(actuator="mtr"), "no actuator matches 'mtr'.*did you mean motor"),
        (lambda t: t["drives"].append(t["drives"][0]) or t.update(slow=[1, 1], limit=[1, 1]), "expected a net of 9 inputs and 5"),
    ],
)  # fmt: skip
def test_a_field_of_an_actuator_net_is_refused_by_name(folders, tmp_path, change, said):
    shutil.copytree(folders / "motor", tmp_path / "t")
    changed(tmp_path / "t", lambda c: change(c["term"]))
    with pytest.raises(SurefootError, match=said):
        load(tmp_path / "t", MODEL)


def test_a_net_of_another_width_is_refused(tmp_path):
    wide = replace(delta(), net=graph_of(net(outputs=2), 3))
    with pytest.raises(SurefootError, match="expected a net of 3 inputs and 1 outputs, found 3 and 2"):
        load(save(wide, tmp_path), MODEL)
    force = ResidualForce(StateFeatures.of(MODEL), graph_of(net(inputs=4), 4))
    with pytest.raises(SurefootError, match="expected a net of 3 inputs and 1 outputs, found 4 and 1"):
        load(save(force, tmp_path / "f.onnx"), MODEL)


@pytest.mark.parametrize("text", ['{"format": 2, "layout": {}}', '{"format": "surefoot.actuator/1", "card": {}}'])
def test_a_term_of_an_earlier_version_is_refused_in_words(tmp_path, text):
    (tmp_path / "term.json").write_text(text)
    for path in (tmp_path, tmp_path / "term.json"):
        with pytest.raises(SurefootError, match="an earlier version of surefoot wrote this Term; learn it again"):
            learned.load(path, MODEL)
