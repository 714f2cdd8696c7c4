"""Readings at a site against the site's own path: velocity and turning rate are its derivatives, in its frame."""

import mujoco
import numpy as np
import pytest

from surefoot.doctor.evidence.site_readings import site_readings
from surefoot.rotation import between, to_body
from surefoot.sim.layout import layout_of

XML = """<mujoco><worldbody><body name="base"><freejoint/><geom size=".1"/>
<site name="imu" pos=".1 .2 .3" euler="20 -40 70"/>
<body name="arm" pos="0 0 .4"><joint name="shoulder" axis="0 1 0"/><geom size=".05"/>
  <body name="hand" pos=".5 0 0"><joint name="wrist" axis="1 0 0"/><geom size=".05"/><site name="palm" pos=".2 .1 0" euler="10 20 30"/></body></body>
</body></worldbody></mujoco>"""
MODEL = mujoco.MjModel.from_xml_string(XML)
LAYOUT, H = layout_of(MODEL), 1e-6
JOINTS = ("wrist", "shoulder")  # a log's order is its own


def motion(rows: int = 5) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """A log's columns, and the states that they are of."""
    rng = np.random.default_rng(3)
    q, v = rng.normal(size=(rows, MODEL.nq)), rng.normal(size=(rows, MODEL.nv))
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    columns = {"base_quat": q[:, 3:7], "base_lin_vel": v[:, :3], "base_ang_vel": v[:, 3:6]}
    return columns | {"joint_pos": q[:, [8, 7]], "joint_vel": v[:, [7, 6]]}, q, v


def placed(q: np.ndarray, v: np.ndarray, site: str, after: float) -> tuple[np.ndarray, np.ndarray]:
    """Where a site is some time later at speed v, and its attitude."""
    data, quat, q = mujoco.MjData(MODEL), np.zeros(4), q.copy()
    mujoco.mj_integratePos(MODEL, q, v, after)
    data.qpos[:] = q
    mujoco.mj_kinematics(MODEL, data)
    mujoco.mju_mat2Quat(quat, data.site(site).xmat)
    return data.site(site).xpos.copy(), quat


@pytest.mark.parametrize("site", ["imu", "palm"])
def test_readings_at_a_site_are_the_derivatives_of_its_path(site):
    log, q, v = motion()
    wanted = [f"{name}@{site}" for name in ("base_quat", "base_ang_vel", "base_lin_vel")]
    found = site_readings(MODEL, LAYOUT, log, JOINTS, wanted)
    for k in range(len(q)):
        (a, before), (b, after), (_, now) = (placed(q[k], v[k], site, t) for t in (-H, H, 0.0))
        assert np.abs(between(now, found[wanted[0]][k])).max() < 1e-9
        assert found[wanted[1]][k] == pytest.approx(between(before, after) / (2 * H), abs=1e-5)
        assert found[wanted[2]][k] == pytest.approx(to_body(now[None], (b - a)[None] / (2 * H))[0], abs=1e-7)


def test_a_site_on_the_base_needs_no_joints_and_one_on_a_hand_all_between():
    log, _, _ = motion()
    bare = {name: column for name, column in log.items() if name.startswith("base")}
    wanted = ["base_ang_vel@imu", "base_ang_vel@palm", "base_ang_vel@nowhere", "joint_pos@imu"]
    assert list(site_readings(MODEL, LAYOUT, log, JOINTS, wanted)) == wanted[:2]
    assert list(site_readings(MODEL, LAYOUT, bare, (), wanted)) == wanted[:1]
    assert (
        list(site_readings(MODEL, LAYOUT, log | {"joint_pos": log["joint_pos"][:, :1]}, JOINTS[:1], wanted))
        == wanted[:1]
    )
    del bare["base_quat"]
    assert list(site_readings(MODEL, LAYOUT, bare, (), ["base_lin_vel@imu", "base_ang_vel@imu"])) == [
        "base_ang_vel@imu"
    ]


def test_a_row_with_a_lost_number_has_no_reading_and_spoils_no_other():
    log, _, _ = motion()
    whole = site_readings(MODEL, LAYOUT, log, JOINTS, ["base_lin_vel@palm"])["base_lin_vel@palm"]
    log["joint_vel"][2, 0] = np.nan
    found = site_readings(MODEL, LAYOUT, log, JOINTS, ["base_lin_vel@palm"])["base_lin_vel@palm"]
    assert np.isnan(found[2]).all() and np.array_equal(np.delete(found, 2, 0), np.delete(whole, 2, 0))
