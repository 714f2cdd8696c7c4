"""Motions in a robot's own joints, from files of several shapes."""

import os
from pathlib import Path

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.log import Log
from surefoot.motion.read import read_motion

JOINTS = ("hip", "knee", "ankle")
T = np.arange(20) / 50
POS = np.stack([0.3 * T, 0 * T, 0.7 + 0 * T], 1)
QUAT = np.stack([np.cos(T), 0 * T, 0 * T, np.sin(T)], 1)  # turning about the vertical
Q = np.stack([np.sin(T), np.cos(T), T], 1)


def same(log: Log, joints=JOINTS) -> None:
    own = [JOINTS.index(j) for j in joints]
    assert log.meta["names"]["joint_pos"] == list(joints)
    for name, wanted in (("base_pos", POS), ("base_quat", QUAT), ("joint_pos", Q[:, own])):
        assert np.allclose(log[name], wanted, atol=1e-6), name
    assert np.allclose(log.time - log.time[0], T, atol=1e-9)


def test_plain_arrays_with_joint_names(tmp_path):
    path = tmp_path / "clip.npz"
    np.savez(path, time=T, base_pos=POS, base_quat=QUAT, joint_pos=Q[:, [2, 0]], joint_names=np.array(["ankle", "hip"]))
    same(read_motion(path, JOINTS), ("ankle", "hip"))


def test_a_saved_log(tmp_path):
    columns = {"base_pos": POS, "base_quat": QUAT, "joint_pos": Q}
    path = Log(T, columns, meta={"names": {"joint_pos": list(JOINTS)}}).save(tmp_path / "clip.npz")
    same(read_motion(path, JOINTS))
    same(read_motion("clip.npz", JOINTS, beside=str(tmp_path / "task.py")))


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [1, 2, 3, 0]], ids=["wxyz", "xyzw"])
def test_a_table_without_names_finds_the_order_of_its_quaternion(tmp_path, order):
    path = tmp_path / "clip.csv"
    np.savetxt(path, np.concatenate([POS, QUAT[:, order], Q], 1), delimiter=",", fmt="%.8f")
    log = read_motion(path, JOINTS, rate=50)
    same(log)
    assert ("x y z w" in log.meta["notes"][0]) == (order[0] == 1)


def test_a_table_with_names(tmp_path):
    path = tmp_path / "clip.csv"
    parts = [f"base_pos_{p}" for p in "xyz"] + [f"base_quat_{p}" for p in "wxyz"]
    rows = np.concatenate([T[:, None], Q[:, [1, 0]], POS, QUAT], 1)
    np.savetxt(path, rows, delimiter=",", fmt="%.8f", header=",".join(["time", "knee", "hip", *parts]), comments="")
    same(read_motion(path, JOINTS), ("hip", "knee"))


def table(tmp_path, rows=None, rate=50.0, **change):
    path = tmp_path / "clip.csv"
    np.savetxt(path, np.concatenate([POS, QUAT, Q], 1) if rows is None else rows, delimiter=",", fmt="%.8f")
    return read_motion(path, change.get("joints", JOINTS), rate)


def test_what_is_wrong_with_a_motion_is_said(tmp_path):
    with pytest.raises(
        SurefootError, match="clip.csv: rate: the file has no clock, expected its rows a second, such as"
    ):
        table(tmp_path, rate=None)
    with pytest.raises(
        SurefootError, match="found 10 columns without names, expected position 3, quaternion 4 and the 2"
    ):
        table(tmp_path, joints=("hip", "knee"))
    with pytest.raises(SurefootError, match="base_quat: row 0: found length 2, expected a unit quaternion"):
        table(tmp_path, np.concatenate([POS, 2 * QUAT, Q], 1))
    with pytest.raises(SurefootError, match="found 2 rows, expected at least 3"):
        table(tmp_path, np.concatenate([POS, QUAT, Q], 1)[:2])
    path = tmp_path / "other.npz"
    np.savez(path, time=T, base_pos=POS, base_quat=QUAT, joint_pos=Q, joint_names=np.array(["hip", "kne", "ankle"]))
    with pytest.raises(SurefootError, match="joint_names: no joint matches 'kne'; .* did you mean knee"):
        read_motion(path, JOINTS)
    np.savez(path, time=T, base_pos=POS, joint_pos=Q)
    with pytest.raises(SurefootError, match="no column matches 'base_quat'"):
        read_motion(path, JOINTS)


def motions() -> Path:
    folder = Path(os.environ.get("SUREFOOT_MOTIONS") or Path(__file__).parents[2].parent / "shared" / "motions")
    if not folder.is_dir():
        pytest.skip(f"no motions: neither $SUREFOOT_MOTIONS nor {folder}")
    return folder


def test_a_stranger_s_table_stands_upright():
    log = read_motion(motions() / "g1_moves" / "B_HandsUp.csv", [f"j{k}" for k in range(29)], rate=60)
    w, x, y, z = log["base_quat"].T
    assert (1 - 2 * (x**2 + y**2)).min() > 0.9 and "x y z w" in log.meta["notes"][0]
    assert 0.7 < log["base_pos"][:, 2].mean() < 0.9 and np.isclose(log.rate, 60)
