"""Files of people, written here so that what they hold is known."""

import os
from pathlib import Path

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.motion import made_person
from surefoot.motion.landmarks import landmarks, stature
from surefoot.motion.person import Person
from surefoot.motion.readers import read_person
from surefoot.motion.readers.smpl import NAMES, PARENTS, average
from surefoot.rotation import exp, to_world


def bvh(p: Person, size: float = 1.0, up: str = "z") -> str:
    """A file whose every joint has three position channels, so that it has exactly these places; y up where asked."""
    pos = p.pos[:, :, [1, 2, 0]] if up == "y" else p.pos
    pos = pos / size
    order: list[int] = []

    def lines(k: int) -> list[str]:
        order.append(k)
        head = "ROOT" if p.parents[k] < 0 else "JOINT"
        inner = [x for c, parent in enumerate(p.parents) if parent == k for x in lines(c)]
        return [f"{head} {p.names[k]}", "{", "OFFSET 0 0 0", "CHANNELS 3 Xposition Yposition Zposition", *inner, "}"]

    tree = lines(0)
    local = [pos[:, k] - (pos[:, p.parents[k]] if p.parents[k] >= 0 else 0) for k in order]
    rows = [" ".join(f"{x:.6f}" for part in local for x in part[t]) for t in range(len(p))]
    return "\n".join(["HIERARCHY", *tree, "MOTION", f"Frames: {len(p)}", f"Frame Time: {1 / p.rate:.7f}", *rows]) + "\n"


@pytest.mark.parametrize("size, up, unit", [(0.01, "y", "cm"), (1.0, "z", "m"), (0.0254 / 0.45, "y", "CMU")])
def test_a_bvh_in_any_unit_and_axis_is_the_same_person(tmp_path, size, up, unit):
    p = made_person.walking(1.75, seconds=1.0)
    path = tmp_path / "walk.bvh"
    path.write_text(bvh(p, size, up))
    found = read_person(path)
    order = [found.names.index(n) for n in p.names]
    off = found.pos[:, order] - p.pos
    assert np.ptp(off, axis=(0, 1)).max() < 1e-4  # but for the height of the floor
    assert (
        found.rate == pytest.approx(60.0, rel=1e-4)
        and any(unit in n for n in found.notes)
        and f"up: {up}" in found.notes
    )
    assert found.rest is None and any(
        "zero pose is no person who stands" in n for n in found.notes
    )  # all offsets are 0


def test_bvh_rotations_follow_the_order_of_their_channels(tmp_path):
    """Two links along x: Z 90 turns the second to y; then, in the turned frame, X 90 turns its y to z."""
    path = tmp_path / "two.bvh"
    path.write_text(
        "HIERARCHY\nROOT a\n{\nOFFSET 0 0 0\nCHANNELS 6 Xposition Yposition Zposition Zrotation Yrotation Xrotation\nJOINT b\n{\nOFFSET 1 0 0\n"
        "CHANNELS 3 Zrotation Yrotation Xrotation\nEnd Site\n{\nOFFSET 0 1 0\n}\n}\n}\nMOTION\nFrames: 3\nFrame Time: 0.01\n" + "0 0 5 90 0 90 0 0 0\n" * 3
    )  # fmt: skip
    from surefoot.motion.readers.bvh import read_bvh

    found = read_bvh(path.read_text())
    assert np.allclose(found.pos[0], [[0, 0, 5], [0, 1, 5], [0, 1, 6]], atol=1e-9)
    assert found.names == ("a", "b", "b_end") and np.allclose(found.rest_pos, [[0, 0, 0], [1, 0, 0], [1, 1, 0]])


def test_an_added_first_pose_is_left_out(tmp_path):
    p = made_person.squatting(seconds=1.0)
    pos = p.pos.copy()
    pos[0, p.names.index("left_wrist")] += [0.5, 0.6, 0.5]
    path = tmp_path / "p.bvh"
    path.write_text(bvh(Person(p.time, p.names, p.parents, pos)))
    found = read_person(path)
    assert len(found) == len(p) - 1 and any("added pose" in n for n in found.notes)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda s: s.replace("Frames: 61", "Frames: 60"), "expected 60 frames of 54"),
        (lambda s: s.replace("OFFSET", "OFSET", 1), "line 4: found 'OFSET', expected OFFSET"),
        (lambda s: s.replace("Xposition", "Wposition", 1), "line 5: found the channel 'wposition'"),
        (lambda s: s[: s.index("MOTION") - 4], "end of the file within the hierarchy"),
        (lambda s: s.replace("Frame Time: 0.0166667", "Frame Time: 0"), "Frame Time"),
        (lambda s: s.replace("left_knee", "left_nothing"), "no joint for left_knee"),
        (lambda s: s + " nan", "numbers, expected 61 frames"),
        (lambda s: "CHANNELS 99999999999999", "expected HIERARCHY"),
    ],
)
def test_broken_bvh_files_are_refused_with_the_place(tmp_path, change, words):
    path = tmp_path / "bad.bvh"
    path.write_text(change(bvh(made_person.walking(seconds=1.0))))
    with pytest.raises(SurefootError, match=words) as error:
        read_person(path)
    assert str(path) in str(error.value)


def test_amass_rotations_give_places_by_the_table_of_bones(tmp_path):
    """The left knee bends by a right angle: the shank points backwards. An object array beside the numbers is not opened."""
    T = 5
    poses = np.zeros((T, 156))
    poses[:, 0] = np.pi / 2  # the body's y becomes the world's z
    poses[:, 3 * NAMES.index("left_knee")] = np.pi / 2
    path = tmp_path / "walk.npz"
    objects = np.array([{"a": 1}, None], dtype=object)
    np.savez(
        path,
        poses=poses,
        trans=np.tile([1.0, 2, 0.9], (T, 1)),
        mocap_framerate=np.array(100.0),
        markers_latent_vids=objects,
        gender=np.array("female"),
    )
    found = read_person(path)
    at = {n: found.pos[0, k] for k, n in enumerate(found.names)}
    shank = at["left_ankle"] - at["left_knee"]
    offsets = average()
    length = -offsets[NAMES.index("left_ankle"), 1]
    forward = (
        at["left_foot"] - at["left_ankle"]
    )  # knee turns about the body's x, to its left: the foot points up or down
    assert np.allclose(shank, [0, length, 0], atol=1e-9)  # the body faces -y after the turn: the shank points to +y
    assert abs(forward[0]) < 1e-9 and found.rate == 100 and found.rest is not None
    assert np.allclose(at["pelvis"][:2], [1, 2]) and stature(found.pos, landmarks(found.names)) == pytest.approx(
        1.7, rel=0.1
    )
    assert any("average person" in n for n in found.notes)


def test_amass_takes_a_table_of_bones_and_checks_it(tmp_path):
    import json

    path, table = tmp_path / "walk.npz", tmp_path / "bones.json"
    np.savez(path, poses=np.tile([np.pi / 2, *np.zeros(65)], (4, 1)), trans=np.zeros((4, 3)), mocap_frame_rate=60.0)
    bones = {n: [NAMES[PARENTS[k]], (1.1 * average()[k]).tolist()] for k, n in enumerate(NAMES) if k}
    table.write_text(json.dumps(bones))
    found = read_person(path, skeleton=table)
    assert np.linalg.norm(found.at("left_knee")[0] - found.at("left_hip")[0]) == pytest.approx(1.1 * 0.245 * 1.7)
    table.write_text(json.dumps({k: v for k, v in bones.items() if k != "left_knee"}))
    with pytest.raises(SurefootError, match="skeleton: no joint matches 'left_knee'"):
        read_person(path, skeleton=table)


def test_attitudes_of_amass_are_those_of_its_rotations(tmp_path):
    r = np.zeros((4, 66))
    r[:, :3] = [np.pi / 2, 0, 0]
    r[:, 3 * NAMES.index("left_wrist") : 3 * NAMES.index("left_wrist") + 3] = [0.3, 0, 0]
    np.savez(tmp_path / "a.npz", poses=r, mocap_framerate=30.0)
    found = read_person(tmp_path / "a.npz")
    wrist, turn = found.quat[0, NAMES.index("left_wrist")], exp(np.array([np.pi / 2 + 0.3, 0, 0]))
    assert min(np.abs(wrist - turn).max(), np.abs(wrist + turn).max()) < 1e-9
    assert np.allclose(
        to_world(found.rest.quat[0], np.array([0.0, 1, 0])), [0, 0, 1]
    )  # the body's y is up where it stands


def markers(p: Person) -> dict[str, np.ndarray]:
    """Plug-in Gait markers of a person, hips placed so that Bell's rule gives them back."""
    at, out = p.at, {}
    d = 0.24
    mid = (at("left_hip") + at("right_hip")) / 2
    half = np.linalg.norm(at("left_hip") - at("right_hip"), axis=1)[0] / 2
    d = half / 0.36
    for s, side in (("L", 1.0), ("R", -1.0)):
        out[f"{s}ASI"] = mid + [0.22 * d, side * d / 2, 0.30 * d]
        out[f"{s}PSI"] = mid + [0.22 * d - 0.2, side * 0.05, 0.30 * d]
        name = "left" if s == "L" else "right"
        for m, part in (("KNE", "knee"), ("ANK", "ankle"), ("TOE", "toe"), ("SHO", "shoulder"), ("ELB", "elbow")):
            out[f"{s}{m}"] = at(f"{name}_{part}")
        out[f"{s}WRA"], out[f"{s}WRB"] = at(f"{name}_wrist") + [0.02, 0, 0], at(f"{name}_wrist") - [0.02, 0, 0]
        out[f"{s}FHD"] = at("head") + [0.1, 0.05 * side, 0]
    return out | {"C7": at("neck")}


def write_c3d(path: Path, seen: dict[str, np.ndarray], rate: float) -> Path:
    ezc3d = pytest.importorskip("ezc3d")
    file = ezc3d.c3d()
    file["parameters"]["POINT"]["RATE"]["value"] = [rate]
    file["parameters"]["POINT"]["LABELS"]["value"] = tuple(f"subject:{k}" for k in seen)
    file["parameters"]["POINT"]["UNITS"]["value"] = ("mm",)
    data = np.stack([1000 * v.T for v in seen.values()], 1)
    file["data"]["points"] = np.concatenate([data, np.ones((1, *data.shape[1:]))])
    file.write(str(path))
    return path


def test_c3d_markers_become_joints_and_short_gaps_are_filled(tmp_path):
    p = made_person.walking(1.7, seconds=1.0)
    seen = markers(p)
    seen["LKNE"] = seen["LKNE"].copy()
    seen["LKNE"][20:30] = np.nan
    found = read_person(write_c3d(tmp_path / "walk.c3d", seen, p.rate))
    lift = found.at("left_ankle")[0, 2] - p.at("left_ankle")[0, 2]
    for name in ("left_hip", "right_hip", "right_knee", "left_ankle", "right_wrist"):
        assert np.abs(found.at(name) - p.at(name) - [0, 0, lift]).max() < 2e-4, name
    assert np.abs(found.at("left_knee") - p.at("left_knee") - [0, 0, lift]).max() < 0.03
    assert any("LKNE: 10 frames" in n for n in found.notes) and any("mm, as the file says" in n for n in found.notes)


def test_a_marker_that_is_lost_for_long_is_refused(tmp_path):
    p = made_person.walking(1.7, seconds=2.0)
    seen = markers(p)
    seen["RANK"] = np.where(np.arange(len(p))[:, None] < 50, np.nan, seen["RANK"])
    with pytest.raises(SurefootError, match="RANK: is not seen for 0.83 s"):
        read_person(write_c3d(tmp_path / "walk.c3d", seen, p.rate))


@pytest.mark.parametrize("content", [b"", b"\x02\x50" + bytes(600), os.urandom(2000), b"PK\x03\x04"])
@pytest.mark.parametrize("suffix", [".bvh", ".c3d", ".npz"])
def test_rubbish_is_refused_in_words(tmp_path, content, suffix):
    if suffix == ".c3d":
        pytest.importorskip("ezc3d")
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    with pytest.raises(SurefootError, match="bad"):
        read_person(path)


def test_an_unknown_suffix_is_refused(tmp_path):
    (tmp_path / "a.bhv").write_text("x")
    with pytest.raises(SurefootError, match="did you mean .bvh"):
        read_person(tmp_path / "a.bhv")


def test_real_recordings_of_cmu_are_people(motions):
    found = read_person(motions / "cmu_bvh" / "02_01.bvh")
    marks = landmarks(found.names)
    assert 1.5 < stature(found.pos, marks) < 1.9 and found.rate == pytest.approx(120, rel=1e-3)
    walked = np.linalg.norm(np.ptp(found.at("Hips")[:, :2], axis=0))
    assert 2.0 < walked < 5.0 and found.rest is not None  # 2.9 s of walking
