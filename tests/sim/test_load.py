"""The loader meets files that lie, escape, explode or make no physical sense, and says so; and good robots pass."""

import json
import os
import struct
import time
from pathlib import Path

import mujoco
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.isolated import Limits
from surefoot.sim.model import load as load_module
from surefoot.sim.model.load import describe, load_model, load_string, vet_model

MODELS = Path(os.environ.get("SUREFOOT_MODELS", "no models given"))

OBJ = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"
CANARY = "CANARY-7f3a"


def mjcf(pre="", joint="", geom='size=".1"', inertial="", post="", body=""):
    """One body on one hinge, with room for a defect anywhere."""
    return (
        f'<mujoco>\n{pre}\n<worldbody><body name="arm" {body}>{inertial}<joint name="elbow" {joint}/>'
        f'<geom name="rod" {geom}/></body></worldbody>\n{post}\n</mujoco>'
    )


def urdf(mass="1", inertia='ixx="1" iyy="1" izz="1"', limit='lower="-1" upper="1"', damping="1", geometry="", pre=""):
    inertial = f'<inertial><mass value="{mass}"/><inertia {inertia} ixy="0" ixz="0" iyz="0"/></inertial>'
    geometry = geometry or '<sphere radius="0.1"/>'
    return (
        f'<robot name="r">{pre}<link name="base">{inertial}</link>'
        f'<link name="tip">{inertial}<collision><geometry>{geometry}</geometry></collision></link>'
        f'<joint name="wrist" type="revolute"><parent link="base"/><child link="tip"/><axis xyz="0 0 1"/>'
        f'<limit {limit} effort="3" velocity="1"/><dynamics damping="{damping}" friction="0.1"/></joint></robot>'
    )


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def assert_refused(path: Path, *words: str, within: float = 5.0, **options) -> str:
    """The model is refused soon, and the message holds the file and every word."""
    start = time.process_time()
    with pytest.raises(SurefootError) as caught:
        load_model(path, **options)
    message = str(caught.value)
    assert time.process_time() - start < within
    for word in (str(path), *words):
        assert word in message
    return message


# Bytes and XML ------------------------------------------------------------------------------------------------------

BOMB = '<!DOCTYPE m [<!ENTITY a "x">' + "".join(
    f'<!ENTITY {b} "{("&" + a + ";") * 10}">' for a, b in zip("abcdefgh", "bcdefghi")
)
HOSTILE = {
    "entity bomb": (BOMB + ']><mujoco model="&i;"/>', "DOCTYPE"),
    "external entity": ('<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/hostname">]><mujoco>&x;</mujoco>', "DOCTYPE"),
    "external DTD": ('<!DOCTYPE m SYSTEM "http://localhost/x.dtd"><mujoco/>', "DOCTYPE"),
    "deep nesting": ("<mujoco><worldbody>" + "<body>" * 100_000, "nested deeper"),
    "undefined entity": ("<mujoco>&x;</mujoco>", "not well-formed"),
    "many elements": ("<mujoco>" + "<geom/>" * 60_000 + "</mujoco>", "elements"),
    "cut short": ('<mujoco><worldbody><body name="arm">', "not well-formed"),
    "empty": ("", "not well-formed"),
    "binary": (b"\x7fELF\0\0\0\1" * 64, "not well-formed"),
    "UTF-16": ("<mujoco/>".encode("utf-16"), "not UTF-8"),
    "zip": (b"PK\3\4" + b"\0" * 100, "not well-formed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_xml_is_refused_within_a_second(tmp_path, name):
    content, word = HOSTILE[name]
    assert_refused(write(tmp_path / "robot.xml", content), word, within=1.0)


def test_an_encoding_header_cannot_make_two_readers_see_two_files(tmp_path):
    text = '<?xml version="1.0" encoding="utf-7"?><mujoco model="+ADw-"><worldbody/></mujoco>'
    assert describe(load_model(write(tmp_path / "robot.xml", text)).model)["name"] == "+ADw-"


def test_a_file_above_the_cap_is_refused_unread(tmp_path):
    path = tmp_path / "robot.xml"
    with open(path, "wb") as f:
        f.truncate(1 << 40)  # sparse: holds no data
    assert_refused(path, "bytes, expected at most", within=1.0)


def test_a_model_that_does_not_exist_is_named(tmp_path):
    assert_refused(tmp_path / "nowhere.xml", "no such model file")


def test_a_model_that_is_no_regular_file_is_refused_as_what_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe.xml")
    (tmp_path / "zero.xml").symlink_to("/dev/zero")
    (tmp_path / "folder.xml").mkdir()
    assert_refused(tmp_path / "pipe.xml", "pipe")
    assert_refused(tmp_path / "zero.xml", "device")
    assert_refused(tmp_path / "folder.xml", "folder")


# Files outside ------------------------------------------------------------------------------------------------------

OUTSIDE = {
    "include ..": ('<mujoco><include file="../out/secret.xml"/></mujoco>', "include", "file"),
    "include absolute": ('<mujoco><include file="OUT/secret.xml"/></mujoco>', "include", "file"),
    "include symlink": ('<mujoco><include file="link.xml"/></mujoco>', "include", "file"),
    "include through a linked directory": ('<mujoco><include file="linkdir/secret.xml"/></mujoco>', "include", "file"),
    "include backslash": (r'<mujoco><include file="..\out\secret.xml"/></mujoco>', "include", "file"),
    "include hidden in an include": ('<mujoco><include file="inner.xml"/></mujoco>', "include", "file"),
    "mesh ..": ('<mujoco><asset><mesh name="hull" file="../out/m.obj"/></asset></mujoco>', "mesh 'hull'", "file"),
    "mesh absolute": ('<mujoco><asset><mesh name="hull" file="OUT/m.obj"/></asset></mujoco>', "mesh 'hull'", "file"),
    "mesh missing and outside": ('<mujoco><asset><mesh file="../out/none.obj"/></asset></mujoco>', "mesh", "file"),
    "meshdir": ('<mujoco><compiler meshdir="../out"/><asset><mesh file="m.obj"/></asset></mujoco>', "compiler", "meshdir"),
    "assetdir": ('<mujoco><compiler assetdir="OUT"/><worldbody/></mujoco>', "compiler", "assetdir"),
    "texturedir": ('<mujoco><compiler texturedir="linkdir"/><worldbody/></mujoco>', "compiler", "texturedir"),
    "texture": ('<mujoco><asset><texture name="t" type="2d" file="../out/t.png"/></asset></mujoco>', "texture 't'", "file"),
    "cube side": ('<mujoco><asset><texture name="t" type="cube" fileright="../out/t.png"/></asset></mujoco>', "texture", "fileright"),
    "hfield": ('<mujoco><asset><hfield name="h" file="OUT/h.png" size="1 1 1 1"/></asset></mujoco>', "hfield 'h'", "file"),
    "skin": ('<mujoco><deformable><skin name="s" file="../out/s.skn"/></deformable></mujoco>', "skin 's'", "file"),
    "flexcomp": ('<mujoco><worldbody><flexcomp name="f" type="mesh" file="../out/m.obj"/></worldbody></mujoco>', "flexcomp 'f'", "file"),
    "nested model": ('<mujoco><asset><model name="k" file="../out/secret.xml"/></asset></mujoco>', "model 'k'", "file"),
}  # fmt: skip


@pytest.fixture
def house(tmp_path):
    """A model directory `in`, and beside it a directory `out` that no model may reach."""
    root, out = tmp_path / "in", tmp_path / "out"
    write(out / "secret.xml", f'<mujoco model="{CANARY}"><worldbody><body name="{CANARY}"/></worldbody></mujoco>')
    write(out / "m.obj", f"# {CANARY}\n{OBJ}")
    write(out / "t.png", CANARY)
    write(root / "inner.xml", '<x><include file="../out/secret.xml"/></x>')
    (root / "link.xml").symlink_to(out / "secret.xml")
    (root / "linkdir").symlink_to(out)
    return root


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_reference_that_leaves_the_directory_is_refused_and_not_read(house, name, monkeypatch):
    xml, element, attr = OUTSIDE[name]
    opened: list[str] = []
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda p, *a, **k: opened.append(str(p)) or real_open(p, *a, **k))
    monkeypatch.setattr(mujoco.MjSpec, "from_string", lambda *_, **__: pytest.fail("MuJoCo saw the file"))
    out = str(house.parent / "out")
    path = write(house / "robot.xml", xml.replace("OUT", out))
    with pytest.raises(SurefootError) as caught:
        load_model(path)
    message = str(caught.value)
    assert element in message and attr in message and out in message and "--asset-root" in message
    assert str(house) in message and CANARY not in message
    assert str(path) in opened, "the spy sees what the loader opens"
    assert not [p for p in opened if os.path.realpath(house / p).startswith(out)]


def test_the_same_reference_loads_when_its_directory_is_the_asset_root(house):
    path = write(house / "robot.xml", '<mujoco><include file="../out/secret.xml"/></mujoco>')
    loaded = load_model(path, asset_root=house.parent / "out")
    assert describe(loaded.model)["bodies"][0]["name"] == CANARY
    assert_refused(path, "outside", asset_root=house)


def test_a_missing_file_and_a_directory_are_named(house):
    mesh = '<mujoco><asset><mesh name="hull" file="{}"/></asset></mujoco>'
    assert_refused(
        write(house / "a.xml", mesh.format("gone.obj")), "mesh 'hull'", "missing file", str(house / "gone.obj")
    )
    assert_refused(write(house / "b.xml", mesh.format(".")), "not a regular file")
    assert_refused(write(house / "c.xml", mesh.format("http://localhost/m.obj")), "scheme")
    os.mkfifo(house / "pipe.obj")
    assert_refused(write(house / "d.xml", mesh.format("pipe.obj")), "not a regular file")


def test_a_nested_model_is_not_taken_from_the_working_directory(house, monkeypatch):
    nested = '<mujoco><asset><model name="k" file="secret.xml"/></asset></mujoco>'
    write(house / "secret.xml", '<mujoco><worldbody><body name="mine"><geom size="1"/></body></worldbody></mujoco>')
    path = write(house / "robot.xml", nested.replace("</mujoco>", '<worldbody><attach model="k" body="mine" prefix="p"/></worldbody></mujoco>'))  # fmt: skip
    monkeypatch.chdir(house.parent / "out")
    assert [b["name"] for b in describe(load_model(path).model)["bodies"]] == ["pmine"]


def test_a_model_that_contains_itself_is_refused(tmp_path):
    """MuJoCo's parser dies of a stack overflow on this one."""
    loop = '<mujoco><asset><model name="k" file="{}"/></asset><worldbody><attach model="k" prefix="p"/></worldbody></mujoco>'
    assert_refused(write(tmp_path / "a.xml", loop.format("a.xml")), "contain itself")
    b, c = tmp_path / "b.xml", tmp_path / "c.xml"
    write(b, loop.format("c.xml"))
    write(c, loop.format("b.xml"))
    with pytest.raises(SurefootError, match="contain itself"):
        load_model(b)
    assert_refused(write(tmp_path / "d.xml", '<mujoco><include file="./d.xml"/></mujoco>'), "included twice")


# Things that grow ---------------------------------------------------------------------------------------------------

GROWING = {
    "replicate": ('<mujoco><worldbody><replicate count="10000000"><geom size="1"/></replicate></worldbody></mujoco>', 'replicate: count="10000000"'),
    "replicate 1e9": ('<mujoco><worldbody><replicate count="1000000000"><geom size="1"/></replicate></worldbody></mujoco>', "count"),
    "nested replicate": ("<mujoco><worldbody>" + '<replicate count="40">' * 4 + '<geom size="1"/>' + "</replicate>" * 4 + "</worldbody></mujoco>", 'count="40"'),
    "replicate below one": ('<mujoco><worldbody><replicate count="-3"><geom size="1"/></replicate></worldbody></mujoco>', 'count="-3"'),
    "flexcomp": ('<mujoco><worldbody><flexcomp name="f" type="grid" count="500 500 500"/></worldbody></mujoco>', "flexcomp 'f': count"),
    "memory": ('<mujoco><size memory="1000T"/><worldbody/></mujoco>', 'size: memory="1000T"'),
    "nkey": ('<mujoco><size nkey="2000000000"/><worldbody/></mujoco>', "size: nkey"),
    "nuser": ('<mujoco><size nuser_body="2000000000"/><worldbody/></mujoco>', "nuser_body"),
    "texture": ('<mujoco><asset><texture name="t" type="2d" builtin="flat" width="90000" height="90000"/></asset></mujoco>', "texture 't': width"),
    "hfield": ('<mujoco><asset><hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/></asset></mujoco>', "hfield 'h': nrow"),
    "camera": ('<mujoco><worldbody><camera name="c" resolution="100000 100000"/></worldbody></mujoco>', "camera 'c': resolution"),
    "iterations": ('<mujoco><option iterations="2000000000"/><worldbody/></mujoco>', "option: iterations"),
    "delay buffer": (mjcf(post='<actuator><motor joint="elbow" delay=".1" nsample="9000000"/></actuator>'), "nsample"),
}  # fmt: skip


@pytest.mark.parametrize("name", GROWING)
def test_a_count_that_would_eat_the_machine_is_refused_within_a_second(tmp_path, name):
    xml, word = GROWING[name]
    assert_refused(write(tmp_path / "robot.xml", xml), word, "expected", within=1.0)


def test_models_that_attach_models_are_counted_as_a_whole(tmp_path):
    """Twenty files, each attaching the next twice: a million bodies in a hundred elements."""
    leaf = '<mujoco><worldbody><body name="b"><geom size="1"/></body></worldbody></mujoco>'
    twice = '<attach model="k" prefix="x"/><attach model="k" prefix="y"/>'
    for i in range(20):
        nested = f'<asset><model name="k" file="m{i + 1}.xml"/></asset><worldbody>{twice}</worldbody>'
        write(tmp_path / f"m{i}.xml", f"<mujoco>{nested}</mujoco>")
    write(tmp_path / "m20.xml", leaf)
    with pytest.raises(SurefootError, match="once expanded"):
        load_model(tmp_path / "m0.xml")


HEADERS = {
    "STL of a billion triangles": ("m.stl", b"\0" * 80 + struct.pack("<I", 10**9), "1000000000 triangles"),
    "ASCII STL": ("m.stl", b"solid x\n" + b"facet normal 0 0 0\n" * 20, "ASCII"),
    "STL cut short": ("m.stl", b"\0" * 40, "too few"),
    "MSH of a billion vertices": ("m.msh", struct.pack("<4i", 10**9, 0, 0, 0), "1000000000 vertices"),
    "MSH of fewer than none": ("m.msh", struct.pack("<4i", -5, 0, 0, 0) + b"\0" * 64, "-5 vertices"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_mesh_header_that_lies_is_refused(tmp_path, name):
    file, content, word = HEADERS[name]
    mesh = write(tmp_path / file, content)
    xml = f'<mujoco><asset><mesh name="hull" file="{file}"/></asset><worldbody/></mujoco>'
    assert_refused(write(tmp_path / "robot.xml", xml), "mesh 'hull'", str(mesh), word)


def test_a_picture_that_unpacks_to_gigabytes_is_refused(tmp_path):
    write(tmp_path / "t.png", b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s2I", 13, b"IHDR", 60_000, 60_000) + b"\0" * 20)
    xml = '<mujoco><asset><texture name="t" type="2d" file="t.png"/></asset><worldbody/></mujoco>'
    assert_refused(write(tmp_path / "robot.xml", xml), "texture 't'", "60000 x 60000")


def test_what_may_hang_is_first_compiled_in_a_cage(tmp_path, monkeypatch):
    """A cone of 100,000 sides keeps MuJoCo's hull busy for minutes; nothing in the XML is large."""
    monkeypatch.setattr(load_module, "TRIAL", Limits(seconds=2))
    xml = '<mujoco><asset><mesh name="m" builtin="cone" params="100000 0.5"/></asset><worldbody><geom type="mesh" mesh="m"/></worldbody></mujoco>'
    assert_refused(write(tmp_path / "robot.xml", xml), "compiling took more than 2 s of CPU time", "mesh 'm'")


def test_what_may_eat_memory_is_first_compiled_in_a_cage(tmp_path, monkeypatch):
    monkeypatch.setattr(load_module, "TRIAL", Limits(memory=256 << 20))
    many = "".join('<joint joint1="elbow"/>' for _ in range(6000))  # MuJoCo reserves for all constraints at once
    path = write(tmp_path / "robot.xml", mjcf(post=f"<equality>{many}</equality>"))
    assert_refused(path, "compiling takes more than 256 MiB of memory", "elements once expanded")


def test_an_ordinary_model_pays_for_no_trial_and_a_middling_one_passes_it(tmp_path, monkeypatch):
    trials = []
    trial = load_module._trial
    monkeypatch.setattr(load_module, "_trial", lambda *a: trials.append(a) or trial(*a))
    load_string(mjcf())
    assert not trials
    geoms = '<replicate count="2500" offset="1 0 0"><geom size=".1"/></replicate>'
    loaded = load_model(write(tmp_path / "robot.xml", f"<mujoco><worldbody>{geoms}</worldbody></mujoco>"))
    assert len(trials) == 1 and loaded.model.ngeom == 2500


# Physics ------------------------------------------------------------------------------------------------------------


def inertial(mass="1", moments='diaginertia="1 1 1"'):
    return f'<inertial pos="0 0 0" mass="{mass}" {moments}/>'


MEND = '<compiler balanceinertia="true" boundmass="0.001" boundinertia="0.001"/>'
IMPOSSIBLE = {
    "mass nan": (mjcf(geom='size=".1" mass="nan"'), "geom 'rod'", "mass"),
    "mass nan(1)": (mjcf(geom='size=".1" mass="nan(1)"'), "geom 'rod'", "mass"),
    "mass inf": (mjcf(geom='size=".1" mass="inf"'), "geom 'rod'", "mass"),
    "mass negative": (mjcf(geom='size=".1" mass="-1"'), "geom 'rod'", "mass"),
    "mass zero": (mjcf(geom='size=".1" mass="0"'), "'arm'", "mass"),
    "mass absent": ('<mujoco><worldbody><body name="arm"><joint/></body></worldbody></mujoco>', "'arm'", "mass"),
    "mass in a default": (mjcf(pre='<default><default class="d"><geom mass="-2"/></default></default>'), "geom", "mass"),
    "inertial mass negative though bounded": (mjcf(inertial=inertial("-1"), pre=MEND), "inertial of body 'arm'", "mass"),
    "inertial mass nan": (mjcf(inertial=inertial("nan")), "inertial of body 'arm'", "mass"),
    "inertia nan though bounded": (mjcf(inertial=inertial("1", 'fullinertia="nan 1 1 0 0 0"'), pre=MEND), "body 'arm'", "fullinertia"),
    "inertia triangle": (mjcf(inertial=inertial("1", 'diaginertia="1 1 3"')), "body 'arm'", "diaginertia"),
    "inertia not positive": (mjcf(inertial=inertial("1", 'fullinertia="1 1 1 2 0 0"')), "body 'arm'", "fullinertia"),
    "inertia not positive though bounded": (mjcf(inertial=inertial("1", 'fullinertia="1 1 1 2 0 0"'), pre=MEND), "body 'arm'", "fullinertia"),
    "inertia negative": (mjcf(inertial=inertial("1", 'diaginertia="1 1 -1"')), "body 'arm'", "diaginertia"),
    "damping": (mjcf(joint='damping="-1"'), "joint 'elbow'", "damping"),
    "damping nan": (mjcf(joint='damping="nan"'), "joint 'elbow'", "damping"),
    "armature": (mjcf(joint='armature="-1"'), "joint 'elbow'", "armature"),
    "frictionloss": (mjcf(joint='frictionloss="-.1"'), "joint 'elbow'", "frictionloss"),
    "stiffness inf": (mjcf(joint='stiffness="inf"'), "joint 'elbow'", "stiffness"),
    "friction": (mjcf(geom='size=".1" friction="-1"'), "geom 'rod'", "friction"),
    "torsional friction": (mjcf(geom='size=".1" friction="1 -1 0"'), "geom 'rod'", "friction"),
    "body pos": (mjcf(body='pos="nan 0 0"'), "body 'arm'", "pos"),
    "gravity": (mjcf(pre='<option gravity="0 0 inf"/>'), "option", "gravity"),
    "timestep zero": (mjcf(pre='<option timestep="0"/>'), "option", "timestep"),
    "timestep negative": (mjcf(pre='<option timestep="-0.01"/>'), "option", "timestep"),
    "timestep nan": (mjcf(pre='<option timestep="nan"/>'), "option", "timestep"),
    "timestep long": (mjcf(pre='<option timestep="0.5"/>'), "option", "timestep"),
    "range swapped": (mjcf(joint='range="10 -10"'), "joint 'elbow'", "range"),
    "range empty": (mjcf(joint='range="10 10"'), "joint 'elbow'", "range"),
    "range missing": (mjcf(joint='limited="true"'), "'elbow'", "range"),
    "range nan": (mjcf(joint='range="nan 1"'), "joint 'elbow'", "range"),
    "torque limit swapped": (mjcf(post='<actuator><motor name="m" joint="elbow" forcerange="5 -5"/></actuator>'), "motor 'm'", "forcerange"),
    "gain": (mjcf(post='<actuator><position name="p" joint="elbow" kp="-5"/></actuator>'), "position 'p'", "kp"),
    "delay": (mjcf(post='<actuator><motor name="m" joint="elbow" delay="-1"/></actuator>'), "motor 'm'", "delay"),
    "keyframe": (mjcf(post='<keyframe><key name="home" qpos="nan"/></keyframe>'), "key 'home'", "qpos"),
    "actuator on no joint": (mjcf(post='<actuator><motor name="m" joint="elbw"/></actuator>'), "'elbw'", "did you mean elbow?"),
    "sensor on no joint": (mjcf(post='<sensor><jointpos joint="elbw"/></sensor>'), "'elbw'", "did you mean elbow?"),
    "mesh of no name": (mjcf(geom='type="mesh" mesh="nope"'), "mesh", "'nope'"),
    "name twice": (mjcf().replace("</worldbody>", '<body name="arm"/></worldbody>'), "repeated name 'arm'", "body"),
    "unknown attribute": (mjcf(joint='dampign="1"'), "joint", "dampign"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_model_is_refused_by_element_and_field(tmp_path, name):
    xml, element, attr = IMPOSSIBLE[name]
    assert_refused(write(tmp_path / "robot.xml", xml), element, attr)
    with pytest.raises(SurefootError, match=attr.replace("?", ".")):
        load_string(xml)


IMPOSSIBLE_URDF = {
    "mass nan": (urdf(mass="nan"), "link 'base'", "value"),
    "mass negative": (urdf(mass="-1"), "link 'base'", "value"),
    "inertia nan": (urdf(inertia='ixx="nan" iyy="1" izz="5"'), "link 'base'", "ixx"),
    "limit swapped": (urdf(limit='lower="1" upper="-1"'), "limit of joint 'wrist'", "lower"),
    "limit empty": (urdf(limit='lower="0" upper="0"'), "limit of joint 'wrist'", "lower"),
    "damping": (urdf(damping="-1"), "dynamics of joint 'wrist'", "damping"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE_URDF)
def test_an_impossible_urdf_is_refused_by_element_and_field(tmp_path, name):
    xml, element, attr = IMPOSSIBLE_URDF[name]
    assert_refused(write(tmp_path / "robot.urdf", xml), element, attr)


def test_the_line_of_the_defect_is_named(tmp_path):
    path = write(tmp_path / "robot.xml", mjcf(joint='damping="-1"', pre="\n" * 7))
    assert_refused(path, f"{path}:10: joint 'elbow': damping=\"-1\" is negative, expected >= 0")


def test_all_defects_are_told_at_once_and_an_included_file_is_named(tmp_path):
    part = write(tmp_path / "part.xml", '<x><option timestep="0"/></x>')
    path = write(tmp_path / "robot.xml", mjcf(pre='<include file="part.xml"/>', joint='damping="-1" armature="-1"'))
    message = assert_refused(path, "damping", "armature", f"{part}:1: option: timestep")
    assert len(message.splitlines()) == 3


def test_lenient_loading_turns_defects_into_warnings_but_never_opens_outside_files(house):
    loaded = load_string(mjcf(joint='damping="-1"'), strict=False)
    assert loaded.model.dof_damping[0] == -1 and any("damping" in w for w in loaded.warnings)
    assert_refused(write(house / "robot.xml", OUTSIDE["include .."][0]), "outside", strict=False)


def test_a_robot_may_be_called_nan():
    loaded = load_string(mjcf(post='<actuator><motor name="nan" joint="elbow"/></actuator>').replace("rod", "inf"))
    assert describe(loaded.model)["actuators"][0]["name"] == "nan"


def test_an_inertia_mended_by_balanceinertia_is_a_warning():
    loaded = load_string(mjcf(inertial=inertial("1", 'diaginertia="1 1 3"'), pre=MEND))
    assert loaded.model.body_inertia[1] == pytest.approx([5 / 3] * 3)
    assert any("balanceinertia" in w for w in loaded.warnings)


def test_an_actuator_range_of_zero_is_no_limit_and_a_warning_but_on_a_joint_it_is_refused():
    """Public arms write ctrlrange="0 0" for no limit; range="0 0" is written to lock a joint, and MuJoCo leaves it free."""
    motor = '<actuator><motor name="m" joint="elbow" ctrlrange="0 0" {}/></actuator>'
    loaded = load_string(mjcf(post=motor.format("")))
    assert not loaded.model.actuator_ctrllimited[0] and any(
        "ctrlrange" in w and "no limit" in w for w in loaded.warnings
    )
    for wrong in (mjcf(post=motor.format('ctrllimited="true"')), mjcf(joint='range="0 0"')):
        with pytest.raises(SurefootError, match="range"):
            load_string(wrong)


def test_a_model_edited_in_code_is_vetted_by_name():
    loaded = load_string(mjcf())
    loaded.spec.joint("elbow").damping[0] = -3
    with pytest.raises(SurefootError, match="joint 'elbow': dof_damping is .-3"):
        vet_model(loaded.spec.compile(), "edited")
    model = loaded.model
    model.body_inertia[1] = 1, 1, 3
    with pytest.raises(SurefootError, match="body 'arm': inertia has principal moments 1, 1, 3"):
        vet_model(model)


def test_a_string_may_name_no_file():
    with pytest.raises(SurefootError, match="my task.*mesh 'm'.*file.*load_model"):
        load_string('<mujoco><asset><mesh name="m" file="m.obj"/></asset><worldbody/></mujoco>', "my task")


# Warnings -----------------------------------------------------------------------------------------------------------


def warned(xml: str) -> str:
    return "\n".join(load_string(xml).warnings)


def test_what_is_missing_is_warned_of_and_silence_means_it_is_there():
    bare = warned(mjcf())
    for words in ("no actuators", "no keyframe", "without a range: elbow", "no two geoms can touch"):
        assert words in bare
    motor = '<actuator><motor joint="elbow"/></actuator>'
    assert "driven without armature" in warned(mjcf(post=motor)) and "driven without frictionloss" in warned(
        mjcf(post=motor)
    )
    full = mjcf(
        joint='range="-90 90" armature=".01" frictionloss=".1"', post=motor + '<keyframe><key name="home"/></keyframe>'
    )
    assert warned(full.replace("<worldbody>", '<worldbody><geom type="plane" size="1 1 1"/>')) == ""


def test_strange_masses_and_long_steps_are_warned_of():
    assert "total mass is 1e-06 kg" in warned(mjcf(geom='size=".1" mass="1e-6"'))
    assert "total mass is 1e+06 kg" in warned(mjcf(geom='size=".1" mass="1e6"'))
    assert "timestep 0.05 s is long for euler" in warned(mjcf(pre='<option timestep="0.05"/>'))


def test_a_joint_nothing_drives_is_warned_of():
    tail = '<body name="tail"><joint name="wag" type="slide"/><geom size=".1"/></body></worldbody>'
    text = warned(mjcf(post='<actuator><motor joint="elbow"/></actuator>').replace("</worldbody>", tail))
    assert "1 of 2 joints without an actuator: wag" in text


def servo(number: float, integrator: str = "Euler", gain: str = "kp") -> str:
    """A hinge of inertia 1 kg m^2 at dt = 0.01 whose stability number (kp dt^2 / I, or kv dt / I) is `number`."""
    value = number / 0.01**2 if gain == "kp" else number / 0.01
    gains = f'kp="{value}"' if gain == "kp" else f'kp="1e-9" kv="{value}"'
    return mjcf(
        pre=f'<option timestep="0.01" gravity="0 0 0" integrator="{integrator}"/>',
        inertial=inertial(),
        post=f'<actuator><position name="servo" joint="elbow" {gains}/></actuator>',
    )


def grows(xml: str) -> bool:
    model = load_string(xml).model
    data = mujoco.MjData(model)
    data.qpos[0], data.qvel[0] = 1e-6, 1e-6
    for _ in range(1000):
        mujoco.mj_step(model, data)
        if abs(data.qvel[0]) > 1:
            return True
    return False


@pytest.mark.parametrize("gain, edge", [("kp", 4.0), ("kv", 2.0)])
def test_the_servo_number_warns_before_the_edge_where_the_step_really_diverges(gain, edge):
    assert not grows(servo(0.98 * edge, gain=gain)) and grows(servo(1.02 * edge, gain=gain))
    assert f"{gain} dt" not in warned(servo(0.9, gain=gain))
    text = warned(servo(1.1, gain=gain))
    assert f"1 of 1 servos with {gain} dt" in text and "actuator 'servo' 1.1" in text


def test_the_servo_number_knows_implicit_integrators():
    assert "kv dt" not in warned(servo(3.0, "implicitfast", "kv")) and not grows(servo(3.0, "implicitfast", "kv"))
    assert "kp dt" in warned(servo(5.0, "implicitfast")) and grows(servo(5.0, "implicitfast"))
    assert "kp dt" not in warned(servo(5.0, "discrete")) and not grows(servo(5.0, "discrete"))


# Good models --------------------------------------------------------------------------------------------------------


def parts(root: Path) -> Path:
    """A model in four files, one in a directory that is named by the compiler."""
    write(root / "parts/joints.xml", '<x><default><joint damping="2"/></default></x>')
    write(root / "meshes/hull.obj", OBJ)
    write(root / "kid.xml", '<mujoco><worldbody><body name="kid"><geom size=".1"/></body></worldbody></mujoco>')
    pre = (
        '<include file="parts/joints.xml"/><compiler meshdir="meshes"/>'
        '<asset><mesh file="hull.obj"/><model name="k" file="kid.xml"/></asset>'
    )
    xml = mjcf(pre=pre, geom='type="mesh" mesh="hull"')
    return write(root / "robot.xml", xml.replace("</worldbody>", '<attach model="k" prefix="a/"/></worldbody>'))


def test_a_model_of_many_files_loads_and_can_be_edited_and_compiled_again(tmp_path):
    loaded = load_model(parts(tmp_path))
    assert loaded.path == str(tmp_path / "robot.xml") and loaded.model.dof_damping[0] == 2
    assert [b["name"] for b in describe(loaded.model)["bodies"]] == ["arm", "a/kid"]
    loaded.spec.joint("elbow").armature = 0.5
    again = loaded.spec.compile()
    assert again.dof_armature[0] == 0.5 and again.body_mass == pytest.approx(loaded.model.body_mass)


def test_the_hash_is_of_the_content_of_every_file_and_not_of_the_place(tmp_path):
    first = load_model(parts(tmp_path / "a")).hash
    assert len(first) == 64 and load_model(parts(tmp_path / "b")).hash == first
    changes = {
        "parts/joints.xml": ("2", "3"),
        "meshes/hull.obj": ("v 1 0 0", "v 2 0 0"),
        "kid.xml": (".1", ".2"),
        "robot.xml": ("arm", "leg"),
    }
    hashes = {first}
    for file, (old, new) in changes.items():
        path = parts(tmp_path / "c")
        changed = path.parent / file
        changed.write_text(changed.read_text().replace(old, new))
        hashes.add(load_model(path).hash)
    assert len(hashes) == 1 + len(changes)


@pytest.mark.parametrize(
    "six, moments",
    [
        ('ixx="1" iyy="1" izz="5"', (2.5, 2.5, 5)),  # raised until a + b = c
        ('ixx="5" iyy="-1" izz="1"', (2, 3, 5)),  # a negative moment counts as nearly 0 first
        ('ixx="0" iyy="0" izz="0"', (1e-6, 1e-6, 1e-6)),  # of 1 kg
        ('ixx="1e-6" ixy="1e-6" ixz="1e-6" iyy="1e-6" iyz="1e-6" izz="1e-6"', (1.5e-6, 1.5e-6, 3e-6)),
        ('ixx="0" iyy="1" izz="1"', (1e-6, 1, 1)),  # a rod without thickness
        ('ixx="3" iyy="4" izz="5"', (3, 4, 5)),
    ],
)
def test_an_impossible_inertia_of_a_urdf_becomes_the_nearest_possible_one(tmp_path, six, moments):
    xml = urdf(inertia=six)
    xml = xml.replace(' ixy="0" ixz="0" iyz="0"', "") if "ixy" in six else xml
    loaded = load_model(write(tmp_path / "robot.urdf", xml))
    found = np.sort(loaded.model.body_inertia[loaded.model.body("base").id])
    assert np.allclose(found, np.sort(moments), rtol=1e-5)
    said = [w for w in loaded.warnings if "inertia of base" in w]
    assert len(said) == (moments != (3, 4, 5)) and all("no body can have it" in w for w in said)


def test_limits_of_a_urdf_s_fixed_and_continuous_joints_mean_nothing(tmp_path):
    empty = urdf(limit='lower="0" upper="0"')
    with pytest.raises(SurefootError, match="is not below upper"):
        load_model(write(tmp_path / "robot.urdf", empty))
    free = load_model(write(tmp_path / "free.urdf", empty.replace("revolute", "continuous"))).model
    assert free.njnt == 1 and not free.jnt_limited[0]
    far = load_model(write(tmp_path / "far.urdf", urdf(limit='lower="-1e+16" upper="1e+16"'))).model
    assert far.njnt == 1 and not far.jnt_limited[0]
    assert load_model(write(tmp_path / "fixed.urdf", empty.replace("revolute", "fixed"))).model.njnt == 0


def test_meshes_of_a_urdf_that_mujoco_cannot_read_are_left_out_and_text_stl_is_read(tmp_path):
    corners = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    faces = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
    rows = [f"facet normal 0 0 0\nouter loop\n{''.join(f'vertex {x} {y} {z} ' + chr(10) for x, y, z in (corners[i] for i in face))}endloop\nendfacet" for face in faces]  # fmt: skip
    write(tmp_path / "text.stl", "solid t\n" + "\n".join(rows) + "\nendsolid t\n")
    loaded = load_model(write(tmp_path / "stl.urdf", urdf(geometry='<mesh filename="text.stl"/>')))
    assert loaded.model.nmesh == 1 and loaded.model.mesh_facenum[0] == 4
    loaded = load_model(write(tmp_path / "dae.urdf", urdf(geometry='<mesh filename="hull.DAE"/>')))
    assert loaded.model.nmesh == 0 and any("1 shapes left out" in w for w in loaded.warnings)


def test_a_package_that_the_model_lies_in_is_named_as_the_asset_root_to_give(tmp_path):
    reference = '<mesh filename="package://arm_description/meshes/hull.obj"/>'
    path = write(tmp_path / "ros/arm_description/urdf/robot.urdf", urdf(geometry=reference))
    assert_refused(path, f"--asset-root {(tmp_path / 'ros').resolve()}")


def test_a_file_outside_of_the_models_folder_says_which_folder_to_allow(tmp_path):
    path = write(tmp_path / "robot/scenes/scene.xml", '<mujoco><include file="../robot.xml"/></mujoco>')
    assert_refused(path, f"--asset-root {(tmp_path / 'robot').resolve()}")


def test_a_frame_of_a_urdf_that_weighs_next_to_nothing_loads(tmp_path):
    """Contact frames of published humanoids weigh 1e-9 kg and have no inertia."""
    path = write(tmp_path / "robot.urdf", urdf("1e-9", 'ixx="0" iyy="0" izz="0"', geometry='<box size="1 1 1"/>'))
    loaded = load_model(path)
    assert any("inertia of base, tip" in w for w in loaded.warnings) and (loaded.model.body_inertia[1:] > 0).all()


def test_urdf_finds_packages_inside_the_asset_root_and_nowhere_else(tmp_path):
    ros = tmp_path / "ros"
    write(ros / "arm_description/meshes/hull.obj", OBJ)
    write(ros / "secret/m.obj", OBJ)
    path = write(
        tmp_path / "urdf/robot.urdf", urdf(geometry='<mesh filename="package://arm_description/meshes/hull.obj"/>')
    )
    assert_refused(path, "filename", "arm_description", "--asset-root")
    for root in (ros, ros / "arm_description"):
        loaded = load_model(path, asset_root=root)
        assert loaded.model.nmesh == 1 and loaded.spec.compile().nmesh == 1
    wrong = urdf(geometry='<mesh filename="package://arm_descripton/meshes/hull.obj"/>')
    assert_refused(write(path, wrong), "filename", "did you mean arm_description?", asset_root=ros)
    climb = urdf(geometry='<mesh filename="package://arm_description/../../ros/../x.obj"/>')
    assert_refused(write(path, climb), "outside", asset_root=ros)


def test_urdf_meshes_that_are_only_seen_need_not_be_there(tmp_path):
    plugin = '<gazebo><plugin filename="libcontrol.so"/></gazebo>'
    seen = '<collision><geometry><sphere radius=".1"/></geometry></collision><visual><geometry><mesh filename="package://no/x.dae"/></geometry></visual>'
    xml = urdf(pre=plugin).replace('<collision><geometry><sphere radius="0.1"/></geometry></collision>', seen)
    model = load_model(write(tmp_path / "robot.urdf", xml)).model
    assert model.jnt_range[0] == pytest.approx([-1, 1]) and model.nmesh == 0


def test_the_card_is_plain_data_and_tells_each_actuator_by_its_kind():
    kinds = {
        "motor": "", "position": 'kp="7" kv="2" delay=".004" nsample="2" forcerange="-3 3"', "velocity": 'kv="4"',
        "intvelocity": 'actrange="-1 1"', "dcmotor": 'motorconst="0.1" resistance="1"', "pid": 'kp="5" kv="1"', "cylinder": "",
    }  # fmt: skip
    actuators = "".join(f'<{k} name="{k}" joint="elbow" {a}/>' for k, a in kinds.items())
    post = f'<actuator>{actuators}</actuator><sensor><jointpos name="angle" joint="elbow"/></sensor><keyframe><key name="home"/></keyframe>'
    xml = mjcf(
        joint='range="-90 90" damping="2" armature=".3" frictionloss=".4"',
        geom='size=".1" mass="1.5" friction=".7"',
        post=post,
    )
    card = describe(load_string(xml.replace("<mujoco>", '<mujoco model="zed">')).model)
    assert json.loads(json.dumps(card)) == card
    assert (card["name"], card["mass"], card["keyframes"], card["integrator"]) == ("zed", 1.5, ["home"], "euler")
    assert [a["kind"] for a in card["actuators"]] == ["general" if k == "cylinder" else k for k in kinds]
    position = card["actuators"][1]
    assert (position["joint"], position["kp"], position["kd"], position["delay"]) == ("elbow", 7, 2, 0.004)
    assert position["force_range"] == [-3, 3]
    assert card["joints"][0] == {
        "name": "elbow", "type": "hinge", "range": pytest.approx([-np.pi / 2, np.pi / 2]), "damping": 2, "armature": 0.3, "frictionloss": 0.4,
    }  # fmt: skip
    assert card["sensors"][0]["type"] == "jointpos" and card["geoms"][0]["friction"][0] == 0.7


ROBOTS = {"crazyflie_2": (0.027, 4), "unitree_go1_flat": (12.743448, 12), "unitree_go2": (15.206408, 12)}


@pytest.mark.parametrize("name", ROBOTS)
def test_real_robots_load_without_complaint_about_their_physics(name):
    path = MODELS / f"{name}.xml"
    if not path.exists():
        pytest.skip(f"{path} is not here; point SUREFOOT_MODELS at a directory that has it")
    loaded = load_model(path)
    card = describe(loaded.model)
    assert (card["mass"], card["nu"]) == (pytest.approx(ROBOTS[name][0]), ROBOTS[name][1])
    assert not [w for w in loaded.warnings if "servo" in w or "mass" in w or "without" in w]
