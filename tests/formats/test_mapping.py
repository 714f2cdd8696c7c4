"""A mapping brings foreign names, units, signs, orders and frames into the schema, and says what it cannot find."""

import json
import math

import makers
import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.formats.mapping import Mapping, expand
from surefoot.formats.units import SI, si
from surefoot.log import Log


def npz(path, **arrays):
    np.savez(path / "a.npz", **arrays)
    return path / "a.npz"


def test_units_become_si_by_factors_known_otherwise():
    for unit, (base, factor) in {
        "deg": ("rad", math.pi / 180),
        "rpm": ("rad/s", 0.10471975511965977),
        "mNm": ("N m", 1e-3),
        "g": ("m/s^2", 9.80665),
        "mm": ("m", 1e-3),
        "us": ("s", 1e-6),
        "kg cm": ("N m", 0.0980665),
        "gram": ("kg", 1e-3),
        "km/h": ("m/s", 1 / 3.6),
    }.items():
        found = si(unit, "")
        assert found[0] == base and found[1] == pytest.approx(factor, rel=1e-12)
    assert all(SI[base] == (base, 1.0) for base, _ in SI.values())
    with pytest.raises(SurefootError, match="no unit matches 'degr'.*did you mean deg"):
        si("degr", "x")


def test_patterns_count_and_list():
    assert expand("q{0..2}_des") == ["q0_des", "q1_des", "q2_des"] and expand("q{2..0}") == ["q2", "q1", "q0"]
    assert expand("{FL,FR}_{hip,calf}") == ["FL_hip", "FL_calf", "FR_hip", "FR_calf"] and expand("plain") == ["plain"]


def test_unit_sign_scale_and_offset_go_part_by_part(tmp_path):
    path = npz(tmp_path, stamp=np.array([0.0, 10.0]), a=np.array([90.0, 180.0]), b=np.array([10.0, 20.0]))
    columns = {"joint_pos": {"from": "{a,b}", "unit": "deg", "names": ["hip", "knee"], "sign": [1, -1], "scale": [1, 0.5], "offset": [0, 0.1]}}  # fmt: skip
    log = Log.read(path, {"time": {"from": "stamp", "unit": "ms"}, "columns": columns, "constants": {"kp": 20.0}})
    assert log.time.tolist() == [0, 0.01] and log.units == {"joint_pos": "rad"}
    assert np.allclose(log["joint_pos"][:, 0], [math.pi / 2, math.pi])
    assert np.allclose(log["joint_pos"][:, 1], [0.1 - math.pi / 36, 0.1 - math.pi / 18])
    assert log.meta["names"] == {"joint_pos": ["hip", "knee"]} and log.meta["constants"] == {"kp": 20.0}


def test_a_raw_register_is_read_as_twos_complement(tmp_path):
    path = npz(tmp_path, time=np.arange(4.0), load=np.array([3, 65533, 32767, 32768], np.uint16))
    log = Log.read(path, {"columns": {"load": {"from": "load", "signed": 16, "scale": 2}}})
    assert log["load"].tolist() == [6, -6, 65534, -65536]


def test_parts_that_the_file_names_are_picked_by_name(tmp_path):
    from surefoot.formats.align import assemble
    from surefoot.formats.readers import reader

    raw = reader("mcap")(makers.mcap_file(tmp_path / "a.mcap"))
    spec = {"columns": {"joint_pos": {"from": "/joints.position", "names": ["right", "left"]}}}
    log = assemble(raw, Mapping.from_json(spec), None, False, {})
    t, q = makers.swing()
    assert np.allclose(log["joint_pos"], q[:, ::-1]) and log.meta["names"]["joint_pos"] == ["right", "left"]
    spec["columns"]["joint_pos"]["names"] = ["rigth", "left"]
    with pytest.raises(SurefootError, match="no part matches 'rigth'; there are left, right; did you mean right"):
        assemble(raw, Mapping.from_json(spec), None, False, {})


def test_streams_of_two_rates_meet_on_one_clock_over_the_time_they_share(tmp_path):
    from surefoot.formats.align import assemble
    from surefoot.formats.readers import reader

    raw = reader("mcap")(makers.mcap_file(tmp_path / "a.mcap"))
    spec = {"rate": 200, "columns": {"joint_pos": "/joints.position", "gyro": {"from": "/imu.w.z", "unit": "deg/s"}}}
    log = assemble(raw, Mapping.from_json(spec), None, False, {})
    assert log.rate == pytest.approx(200) and log.time[-1] == pytest.approx(1.98) and len(log) == 397
    assert np.allclose(log["joint_pos"][:, 0], np.sin(2 * np.pi * log.time), atol=(2 * np.pi * 0.01) ** 2 / 8)
    assert np.allclose(log["gyro"], np.radians(np.sin(2 * np.pi * (log.time - 0.03))), atol=1e-4)
    assert log.meta["names"]["joint_pos"] == makers.NAMES
    stamped = assemble(raw, Mapping.from_json({"time": "header.stamp", "columns": {"joint_pos": "/joints.position"}}), None, False, {})  # fmt: skip
    assert np.allclose(stamped.time, makers.swing()[0], atol=1e-9) and stamped.meta["epoch"] == makers.EPOCH


def test_quaternions_are_put_in_order_and_velocities_turned(tmp_path):
    """A body yawed by 90 degrees that moves forward moves along the world's y."""
    half = math.sqrt(0.5)
    qpos = np.tile([0.0, 0, 0.3, 0, 0, half, half], (4, 1))  # x y z, then x y z w
    path = npz(tmp_path, time=np.arange(4.0), qpos=qpos, v=np.tile([2.0, 0, 0], (4, 1)), w=np.tile([0.0, 1, 0], (4, 1)))
    columns = {
        "base_pos": "qpos[0:3]",
        "base_quat": {"from": "qpos[3:7]", "quaternion": "xyzw"},
        "base_lin_vel": {"from": "v", "frame": "body"},
        "base_ang_vel": {"from": "w", "frame": "world"},
    }
    log = Log.read(path, {"columns": columns})
    assert np.allclose(log["base_quat"], [half, 0, 0, half]) and np.allclose(log["base_pos"], [0, 0, 0.3])
    assert np.allclose(log["base_lin_vel"], [0, 2, 0]) and np.allclose(log["base_ang_vel"], [1, 0, 0])
    del columns["base_quat"]
    with pytest.raises(SurefootError, match="base_lin_vel: frame: found body; turning it needs base_quat"):
        Log.read(path, {"columns": columns})


@pytest.mark.parametrize(
    "spec, why",
    [
        ({"colums": {}}, "no key matches 'colums'; .*did you mean columns"),
        ({"columns": {}}, "columns: found {}, expected an object of columns"),
        ({"columns": {"joint_pos": {"form": "q"}}}, "columns: joint_pos: no key matches 'form'.*did you mean from"),
        ({"columns": {"joint_pos": {"from": "q", "unit": "dge"}}}, "unit: no unit matches 'dge'"),
        ({"columns": {"joint_pos": {"from": "q", "unit": "N m"}}}, "unit: found N m, expected a unit of rad"),
        ({"columns": {"joint_pos": {"from": "q", "sign": 2}}}, "sign: found 2, expected 1 or -1"),
        ({"columns": {"joint_pos": {"from": "q{0.2}"}}}, r"found \{0.2\} in 'q\{0.2\}'"),
        ({"columns": {"joint_pos": {"from": "q", "names": ["a", "a"]}}}, "expected a list of different names"),
        ({"columns": {"base_quat": {"from": "q", "quaternion": "wxzy"}}}, "no quaternion matches 'wxzy'"),
        ({"columns": {"imu": {"from": "q", "frame": "body"}}}, "frame: only base_lin_vel and base_ang_vel have one"),
        ({"columns": {"joint_pos": "q"}, "rate": -1}, "rate: found -1, expected a positive number"),
        ({"columns": {"joint_pos": "q"}, "time": {"from": "t", "unit": "deg"}}, "time: unit: found 'deg'"),
        ({"columns": {"joint_pos": "qq"}}, "no column of the file matches 'qq'; there are q, p; did you mean q"),
        ({"columns": {"joint_pos": "q[3]"}}, r"found q\[3\], q has parts 0 to 1"),
        ({"columns": {"joint_pos": {"from": "q", "names": ["a", "b", "c"]}}}, "names: found 3 for 2 parts"),
        (
            {"columns": {"joint_pos": {"from": "q", "offset": [1, 2, 3]}}},
            "found 3 numbers of sign, scale or offset for 2",
        ),
        ({"columns": {"load": {"from": "p", "signed": True}}}, "signed: found True, expected a number of bits"),
        ({"columns": {"base_pos": "q"}}, "base_pos: found 2 parts, expected 3"),
        ({"columns": {"q": "q"}, "time": "tiem"}, "time: from: no column matches 'tiem'.*did you mean time"),
        ({"columns": {"base_quat": ["q", "q"]}}, "row 0: found .*expected a unit quaternion"),
    ],
)
def test_a_bad_mapping_is_named_with_the_nearest_right_word(tmp_path, spec, why):
    path = npz(tmp_path, time=np.arange(3.0), q=np.ones((3, 2)), p=np.ones(3))
    with pytest.raises(SurefootError, match=why):
        Log.read(path, spec)


def test_a_mapping_file_is_read_and_named_in_errors(tmp_path):
    path = npz(tmp_path, time=np.arange(3.0), q=np.ones((3, 2)))
    (tmp_path / "map.json").write_text(json.dumps({"columns": {"joint_pos": "q"}, "raet": 5}))
    with pytest.raises(SurefootError, match=r"map\.json: no key matches 'raet'.*did you mean rate"):
        Log.read(path, tmp_path / "map.json")


def test_a_column_nearly_called_as_one_of_the_schema_gets_a_note_and_a_sensor_none(tmp_path):
    path = npz(tmp_path, time=np.arange(4.0) / 100, a=np.arange(4.0))
    log = Log.read(path, {"columns": {"joint_pso": "a", "reference_pos": "a", "base_lin_acc": "a", "command": "a"}})
    assert log.meta["notes"] == ["column joint_pso: not in the schema, taken as a sensor; did you mean joint_pos?"]


@pytest.mark.parametrize("rate", [1e300, 0, -5, 1e-300, True, "200"])
def test_a_rate_that_no_log_has_is_refused(rate):
    with pytest.raises(SurefootError, match="rate: found .*expected a positive number of Hz, from 0.001 to 1e.06"):
        Mapping.from_json({"rate": rate, "columns": {"joint_pos": "a"}})


@pytest.mark.parametrize("bad", [3, True, ["rad"], {"a": 1}, 1e308])
def test_words_that_are_no_words_are_refused_by_their_place(bad):
    with pytest.raises(SurefootError, match="mapping: columns: q: unit: found .*, expected a unit as text"):
        Mapping.from_json({"columns": {"q": {"from": "x", "unit": bad}}})
    with pytest.raises(SurefootError, match="mapping: time: unit: found .*, expected a unit as text"):
        Mapping.from_json({"columns": {"q": "x"}, "time": {"from": "t", "unit": bad}})
    with pytest.raises(SurefootError, match="mapping: columns: q: no quaternion matches"):
        Mapping.from_json({"columns": {"q": {"from": "x", "quaternion": bad}}})
