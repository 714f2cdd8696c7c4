"""Model files made to deceive: two parsers that see two models, files swapped while they are read, work without end."""

import os
import re
import shutil
import struct
from pathlib import Path

import mujoco
import pytest

from surefoot import isolated
from surefoot.cli import main
from surefoot.errors import SurefootError
from surefoot.sim import audit
from surefoot.sim.model import load, modelxml, scan
from surefoot.sim.model.load import describe, load_model, load_string

TETRAHEDRON = "v 0 0 0\nv {0} 0 0\nv 0 {0} 0\nv 0 0 {0}\nf 1 3 2\nf 1 2 4\nf 2 3 4\nf 1 4 3\n"
SMALL, LARGE = TETRAHEDRON.format(1), TETRAHEDRON.format(7)  # of 1/6 and 343/6 m^3


def arm(pre="", joint="", geom='size=".1"', inner="", post="", world=""):
    return (
        f'<mujoco>{pre}<worldbody>{world}<body name="arm"><joint name="elbow" {joint}/><geom name="rod" {geom}/>'
        f'<site name="tip"/>{inner}</body></worldbody>{post}</mujoco>'
    )


def meshed(file: str, pre: str = "") -> str:
    return arm(f'{pre}<asset><mesh name="hull" file="{file}"/></asset>', geom='type="mesh" mesh="hull" density="6"')


def mass(path: Path) -> float:
    """1 kg where the small tetrahedron was read, 343 kg where the large one was."""
    return describe(load_model(path).model)["mass"]


@pytest.fixture
def house(tmp_path):
    """A model's directory `in` with a small mesh, and beside it `out` with a large one that no model may reach."""
    root = tmp_path / "in"
    for name, mesh in (("in/top.obj", SMALL), ("in/meshes/m.obj", SMALL), ("out/m.obj", LARGE), ("out/top.obj", LARGE)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(mesh)
    return root


def written(root: Path, xml: str | bytes, name: str = "robot.xml") -> Path:
    path = root / name
    path.write_bytes(xml if isinstance(xml, bytes) else xml.encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(SurefootError) as caught:
        load_model(path)
    return str(caught.value)


# What is opened -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["\n", "\t", "\r"], ids=["newline", "tab", "return"])
def test_whitespace_that_two_parsers_read_differently_leads_nowhere_else(house, between):
    """To expat it is a space, to MuJoCo it is itself: what is checked would be one file, and what is opened another."""
    (house / "a b.obj").write_text(SMALL)
    (house / f"a{between}b.obj").symlink_to(house.parent / "out" / "m.obj")
    (house / "a\nb.obj").unlink(missing_ok=True)
    (house / "a\nb.obj").symlink_to(house.parent / "out" / "m.obj")  # tinyxml2 makes a newline of a return
    assert mass(written(house, meshed(f"a{between}b.obj"))) == pytest.approx(1.0)


PATHS = {
    "include": '<mujoco><include file="{}"/></mujoco>',
    "mesh": '<mujoco><asset><mesh file="{}"/></asset></mujoco>',
    "meshdir": '<mujoco><compiler meshdir="{}"/></mujoco>',
    "texturedir": '<mujoco><compiler texturedir="{}"/></mujoco>',
    "assetdir": '<mujoco><compiler assetdir="{}"/></mujoco>',
    "cube": '<mujoco><asset><texture type="cube" fileback="{}"/></asset></mujoco>',
    "content_type": '<mujoco><asset><mesh file="top.obj" content_type="{}"/></asset></mujoco>',
    "urdf": '<robot name="r"><link name="l"><collision><geometry><mesh filename="{}"/></geometry></collision></link></robot>',
}


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("hidden", ["&#10;", "&#9;", "&#13;", "\x7f", "\x9b", "\u202e"])
def test_control_characters_in_a_path_are_refused_by_name(house, name, hidden):
    said = refusal(written(house, PATHS[name].format(f"a{hidden}b")))
    assert "control character" in said and "robot.xml:1" in said
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", said)


def test_mujocos_schema_names_no_other_attribute_that_opens_a_file():
    schema = mujoco.mj_printSchema(False, False)
    found = set(re.findall(r"\b\w*(?:file|dir|path|url|uri)\b|\bfile\w*", schema)) - {"dir", "directional"}
    known = {"meshdir", "texturedir", "assetdir", "strippath"}
    assert {a for a in found if not a.startswith("file")} == known


def test_mujoco_opens_no_file_itself(house):
    """All is read by then: what is swapped or removed before MuJoCo compiles, and compiles again, is not missed."""
    (house / "kid.xml").write_text('<mujoco><worldbody><body name="kid"><geom size=".1"/></body></worldbody></mujoco>')
    (house / "part.xml").write_text("<x><default><joint damping='2'/></default></x>")
    pre = '<include file="part.xml"/><compiler meshdir="meshes"/><asset><model name="k" file="kid.xml"/></asset>'
    attached = meshed("m.obj", pre).replace("</worldbody>", '<attach model="k" prefix="a/"/></worldbody>')
    found = scan.scan_file(str(written(house, attached)))
    shutil.rmtree(house)
    loaded = load._load(found, "robot.xml", True)
    again = loaded.spec.compile()
    assert [b["name"] for b in describe(again)["bodies"]] == ["arm", "a/kid"] and again.dof_damping[0] == 2
    assert again.body_mass[1] == pytest.approx(1.0)


def test_the_same_name_with_another_content_is_another_mesh(house):
    path = written(house, meshed("top.obj"))
    assert mass(path) == pytest.approx(1.0)
    (house / "top.obj").write_text(LARGE)
    assert mass(path) == pytest.approx(343.0)


def test_two_names_of_one_file_are_two_meshes(house):
    (house / "other.obj").symlink_to("top.obj")
    two = '<asset><mesh file="top.obj"/><mesh file="other.obj"/></asset>'
    assert [m.name for m in load_model(written(house, arm(two))).spec.meshes] == ["top", "other"]


def test_a_file_that_becomes_a_link_after_it_was_checked_is_not_followed(house, monkeypatch):
    find = scan._find

    def found(*args):
        path = find(*args)
        os.unlink(path)
        os.symlink(house.parent / "out" / "top.obj", path)
        return path

    monkeypatch.setattr(scan, "_find", found)
    assert "outside" in refusal(written(house, meshed("top.obj")))


def test_a_directory_that_becomes_a_link_while_it_is_opened_is_not_followed(house, monkeypatch):
    real_open, swapped = os.open, []

    def opened(path, *args, **options):
        if path == "meshes" and not swapped:
            swapped.append((house / "meshes").rename(house / "aside"))
            (house / "meshes").symlink_to(house.parent / "out")
        return real_open(path, *args, **options)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "supports_dir_fd", {opened})
    said = refusal(written(house, meshed("meshes/m.obj")))
    assert swapped and "cannot read" in said and "m.obj" in said


def test_a_reference_that_may_mean_two_files_is_refused(house):
    (house / "meshes" / "top.obj").write_text(LARGE)
    (house / "meshes" / "part.xml").write_text('<x><asset><mesh name="hull" file="top.obj"/></asset></x>')
    path = written(house, arm('<include file="meshes/part.xml"/>'))
    assert "may mean" in refusal(path)
    (house / "meshes" / "top.obj").unlink()
    load_model(path)


# Two parsers --------------------------------------------------------------------------------------------------------

ALIKE = {
    "a character by its number": meshed("t&#111;p&#x2e;obj"),
    "a predefined entity": meshed("top.obj").replace('name="hull"', 'name="&lt;hull&amp;&quot;"').replace('mesh="hull"', 'mesh="&lt;hull&amp;&quot;"'),
    "a mesh in CDATA is text": meshed("top.obj", '<![CDATA[<compiler meshdir="../out"/>]]>'),
    "a compiler in a comment": meshed("top.obj", '<!-- <compiler meshdir="../out"/> -->'),
    "a byte order mark": "\ufeff" + meshed("top.obj"),
    "a header in another encoding": "<?xml version='1.0' encoding='latin-1'?>" + meshed("top.obj"),
    "the last compiler counts": meshed("m.obj", '<compiler meshdir="nowhere"/><compiler assetdir="meshes"/>'),
    "meshdir before assetdir": meshed("m.obj", '<compiler meshdir="meshes" assetdir="nowhere"/>'),
    "strippath": meshed("../out/top.obj", '<compiler strippath="true"/>'),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_mujoco_sees_the_model_that_was_checked(house, name):
    assert mass(written(house, ALIKE[name])) == pytest.approx(1.0)


UNLIKE = {
    "a number of no character": (meshed("top.obj&#0;"), "not well-formed"),
    "a zero byte": (meshed("top.obj\0"), "not well-formed"),
    "an attribute twice": (meshed("top.obj").replace("file=", 'file="../out/top.obj" file='), "not well-formed"),
    "two roots": (meshed("top.obj") + meshed("../out/top.obj"), "not well-formed"),
    "a prefix": ('<mujoco xmlns:x="urn:x"><x:include file="../out/m.xml"/></mujoco>', "outside"),
    "capitals": ('<mujoco><Include file="../out/m.xml"/></mujoco>', "outside"),
    "UTF-16": (meshed("top.obj").encode("utf-16"), "not UTF-8"),
    "UTF-16 with a header": (("<?xml version='1.0' encoding='UTF-16'?>" + meshed("top.obj")).encode("utf-16-le"), "not well-formed"),
    "latin-1": (meshed("top.obj").replace("hull", "h\xfcll").encode("latin-1"), "not UTF-8"),
    "spaces around a name": (meshed(" top.obj "), "missing file"),
    "an include with a child": ('<mujoco><include file="../out/m.xml"><geom/></include></mujoco>', "outside"),
    "an extension in capitals": (meshed("../out/M.OBJ"), "outside"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
def test_what_parsers_differ_about_is_refused(house, name):
    xml, word = UNLIKE[name]
    assert word in refusal(written(house, xml))


def test_lines_in_mujocos_errors_are_those_of_the_file(house):
    said = refusal(written(house, arm("\n\n<!-- a\nb -->\n<option\n gravity='x'/>")))
    assert "line 5" in said


# Work ---------------------------------------------------------------------------------------------------------------


def bodies(n: int, joint: str) -> str:
    return "".join(f'<body name="b{i}">{joint}<geom size=".1"/></body>' for i in range(n))


MUCH = {
    "attributes": ("<mujoco " + " ".join(f'a{i}="1"' for i in range(1000)) + "/>", "1000 attributes"),
    "free bodies": (arm(world=bodies(900, "<freejoint/>")), "1000 degrees of freedom"),
    "free bodies by a default": (arm('<default><joint type="free"/></default>', world=bodies(200, "<joint/>")), "1206 degrees of freedom, expected at most 1000"),
    "replicated bodies": (arm(world=f'<replicate count="900">{bodies(1, "<freejoint/>")}</replicate>'), "degrees of freedom"),
    "points of a flexcomp": (arm(world='<flexcomp name="f" type="grid" count="8 8 8" spacing="1 1 1"/>'), "degrees of freedom"),
    "keyframes": (arm(inner=bodies(900, "<joint/>"), post="<keyframe>" + "<key/>" * 2000 + "</keyframe>"), "1000000"),
    "delays": (arm(post="<actuator>" + '<motor joint="elbow" delay=".01" nsample="9999"/>' * 200 + "</actuator>"), "1000000"),
    "readings of a user": (arm(post='<sensor><user dim="100000000"/></sensor>'), "dim"),
    "readings of contacts": (arm(post='<sensor><contact geom1="rod" num="100000000"/></sensor>'), "num"),
    "states of an actuator": (arm(post='<actuator><general joint="elbow" dyntype="user" actdim="100000000"/></actuator>'), "actdim"),
    "pixels of many textures": (arm("<asset>" + "".join(f'<texture name="t{i}" type="2d" builtin="flat" width="4000" height="4000"/>' for i in range(9)) + "</asset>"), "pixels"),
    "samples of height fields": (arm("<asset>" + "".join(f'<hfield name="h{i}" nrow="4000" ncol="4000" size="1 1 1 1"/>' for i in range(9)) + "</asset>"), "pixels"),
    "an arena": (arm('<size memory="2G"/>'), "memory"),
    "a count in letters": (arm('<size nuserdata="0x7fffffff"/>'), "expected a number"),
    "a long name": (arm().replace("elbow", "e" * 10**6), "expected at most 500"),
    "elements": (arm(inner="<site/>" * 25_000), "10000 elements"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUCH)
def test_what_would_take_minutes_or_gigabytes_is_refused_by_its_limit_before_the_work(tmp_path, name, monkeypatch):
    monkeypatch.setattr(load.isolated, "run", lambda *_: pytest.fail("the work had begun"))
    xml, word = MUCH[name]
    said = refusal(written(tmp_path, xml))
    assert word in said and "expected" in said and len(said) < 1000


RANGED = {"timestep": "1e-12", "inttotal": "1e12", "interval": "1e9", "timeconst": "1e-9", "accel": "1e15", "maxforce": "-1", "tolrange": "0 1"}  # fmt: skip


def muscled(settings: str = "", muscle: str = "", more: str = "") -> str:
    """A muscle from the tip of an arm of 1 m to a point sqrt(2) m away: its length lies within sqrt(2) -+ 1."""
    return (
        f'<mujoco><compiler><lengthrange {settings}/></compiler><worldbody><body name="arm"><joint name="elbow"/>'
        f'<geom size=".1" pos="1 0 0"/><site name="tip" pos="1 0 0"/></body><site name="wall" pos="1 1 0"/></worldbody>'
        f'<tendon><spatial name="t"><site site="tip"/><site site="wall"/></spatial></tendon>'
        f'<actuator>{more}<muscle name="biceps" tendon="t" {muscle}/></actuator></mujoco>'
    )


@pytest.mark.parametrize("attr", RANGED)
def test_the_simulation_that_finds_length_ranges_is_bounded_before_it_begins(tmp_path, attr, monkeypatch):
    monkeypatch.setattr(load.isolated, "run", lambda *_: pytest.fail("the work had begun"))
    said = refusal(written(tmp_path, muscled(f'{attr}="{RANGED[attr]}"')))
    assert f'lengthrange: {attr}="{RANGED[attr]}"' in said and "expected a number from" in said


def test_a_length_range_that_takes_long_to_find_ends_in_the_cage(tmp_path, monkeypatch):
    """Ten million steps, each setting within its bounds."""
    monkeypatch.setattr(load, "TRIAL", isolated.Limits(seconds=2))
    said = refusal(written(tmp_path, muscled('timestep="1e-4" inttotal="1e3"')))
    assert "2 s of CPU time" in said and "lengthrange" in said


@pytest.mark.parametrize("settings", ["", 'mode="all"', 'mode="muscleuser" useexisting="false"'])
def test_length_ranges_are_found_in_the_cage_and_nowhere_else(settings):
    """By geometry sqrt(2) -+ 1; here every compile takes them as given, that of an edited spec with them."""
    loaded = load_string(muscled(settings, more='<motor name="m" joint="elbow" lengthrange="-7 7"/>'))
    again, none = loaded.spec.compile(), mujoco.mjtLRMode.mjLRMODE_NONE
    for model in (loaded.model, again):
        assert model.actuator("biceps").lengthrange == pytest.approx([2**0.5 - 1, 2**0.5 + 1], abs=1e-4)
    assert loaded.spec.compiler.LRopt.mode == none
    assert load_string(loaded.spec.to_xml()).model.nu == 2


def test_a_model_that_gives_its_length_ranges_pays_for_no_trial(monkeypatch):
    monkeypatch.setattr(load.isolated, "run", lambda *_: pytest.fail("nothing is to be found"))
    model = load_string(muscled(muscle='lengthrange="0.5 2"')).model
    assert model.actuator("biceps").lengthrange == pytest.approx([0.5, 2])
    load_string(muscled('mode="none"', 'lengthrange="0.5 2"', '<motor joint="elbow"/>'))


def test_a_muscle_without_a_length_range_is_refused():
    with pytest.raises(SurefootError, match="actuator 'biceps': lengthrange is .* expected low < high"):
        load_string(muscled('mode="none"'))


def test_a_picture_whose_header_is_cut_short_is_refused(tmp_path):
    (tmp_path / "t.ktx").write_bytes(b"\x89PNG")
    (tmp_path / "t.png").write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s", 13, b"IHDR"))
    texture = '<mujoco><asset><texture name="t" type="2d" file="{}"/></asset></mujoco>'
    assert "too few" in refusal(written(tmp_path, texture.format("t.png")))
    main(["look", str(written(tmp_path, texture.format("t.ktx")))])


def test_an_audit_that_would_take_long_is_left_out_and_said(tmp_path, capsys, monkeypatch):
    path = written(tmp_path, arm('<option timestep="1e-5"/>'))
    monkeypatch.setattr("surefoot.verbs.model.look.AUDIT_SECONDS", 0.01)
    assert main(["look", str(path)]) == 0
    assert "not checked" in " ".join(capsys.readouterr().out.split())
    model = load_model(path).model
    monkeypatch.setattr(audit, "_timed", lambda _: 1e-6)
    params = audit.unknowns(model)
    assert audit.cost(model, params) == pytest.approx(4 * len(params) * (50_000 + 1) * 1e-6)


# Numbers ------------------------------------------------------------------------------------------------------------

NUMBERS = {
    **{f"timestep {v}": (arm(f'<option timestep="{v}"/>'), "timestep") for v in ("1e-300", "1e300", "nan", "5e-324", "1e-6", "-1")},
    **{f"gravity {v}": (arm(f'<option gravity="0 0 {v}"/>'), "gravity") for v in ("1e308", "-1e16", "inf", "nan")},
    **{f"mass {v}": (arm(geom=f'size=".1" mass="{v}"'), "mass") for v in ("1e300", "1e-300", "-1", "nan", "1e-10", "1e10")},
    **{f"size {v}": (arm(geom=f'size="{v}"'), "") for v in ("0", "1e300", "1e-300", "nan", "", "big")},
    **{f"damping {v}": (arm(joint=f'damping="{v}"'), "damping") for v in ("1e308", "-1", "nan")},
    **{f"range {v}": (arm(joint=f'range="{v}"'), "range") for v in ("1 -1", "1e300 1e301", "nan 1")},
    "place": (arm(inner='<body pos="1e150 0 0"><joint/><geom size=".1"/></body>'), "pos"),
    "no number": (arm('<option timestep="fast"/>'), "timestep"),
    "key": (arm(post='<keyframe><key qpos="1e308"/></keyframe>'), "qpos"),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beyond_physics_end_in_words(tmp_path, capsys, name):
    xml, word = NUMBERS[name]
    assert main(["look", str(written(tmp_path, xml))]) == 2
    said = capsys.readouterr().err
    assert word in said and "robot.xml" in said and "defect" not in said


STRANGE = {
    "nothing": "<mujoco/>",
    "an empty world": "<mujoco><worldbody/></mujoco>",
    "a URDF of nothing": '<robot name="r"/>',
    "nothing that moves": '<mujoco><worldbody><body mocap="true"><geom size=".1"/></body></worldbody></mujoco>',
    "nothing at all": '<mujoco><option gravity="0 0 0"/></mujoco>',
    "no gravity": arm('<option gravity="0 0 0"/>'),
    "gravity that is hardly there": arm('<option gravity="0 0 -1e-320"/>'),
    "a name of brackets": arm().replace("elbow", "[bold]("),
    "a motion that diverges": arm(post='<actuator><motor name="m" joint="elbow" gear="1e14"/></actuator>'),
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("how", [[], ["--json"]], ids=["words", "json"])
def test_a_strange_model_is_described_all_the_same(tmp_path, capsys, name, how):
    assert main(["look", str(written(tmp_path, STRANGE[name])), *how]) in (0, 1)
    assert capsys.readouterr().out


def test_names_that_steer_a_terminal_are_refused():
    for name in ("a&#10;b", "\x9b31m", "\u202etxet", "a\u2028b"):
        with pytest.raises(SurefootError, match="control character"):
            load_string(arm().replace("elbow", name))


def test_the_text_of_a_tree_is_read_back_as_the_same_tree():
    xml = arm('\n<custom>\n<text name="t" data="a&#10;&#9;&#13;&lt;&amp;&quot;\'b"/></custom>')
    tree = modelxml.parse_xml(xml.encode(), "f")
    again = modelxml.parse_xml(modelxml.text(tree).encode(), "f")
    assert [(n.tag, n.attrs, n.line) for n in again.walk()] == [(n.tag, n.attrs, n.line) for n in tree.walk()]
