"""Every format gives the same swing back: q = sin, cos of 2 pi t at 100 Hz, whoever wrote the file."""

import json
from pathlib import Path

import makers
import numpy as np
import pytest

from surefoot.errors import MissingExtra, SurefootError
from surefoot.formats.align import assemble
from surefoot.formats.readers import kind, read_raw, reader
from surefoot.formats.readers.isolated_reader import pack, unpack
from surefoot.log import Log


def here(path, mapping=None, rate=None, episode=0):
    """As Log.read does, but always in this process: to start another for each format takes seconds."""
    from surefoot.formats.mapping import Mapping

    raw = reader(kind(path), episode)(path)
    return assemble(raw, Mapping.from_json(mapping) if mapping else None, rate, False, {})


@pytest.mark.parametrize("name", list(makers.MAKERS))
def test_a_format_gives_the_swing_back(tmp_path, name):
    log = here(makers.MAKERS[name](tmp_path / name))
    t, q = makers.swing()
    found = np.stack([log["q0"], log["q1"]], axis=1) if name == "a.csv" else log["/joints.position" if name == "a.mcap" else "q"]  # fmt: skip
    assert np.allclose(log.time, t, atol=1e-9) and np.allclose(found, q, atol=1e-12)


def test_what_a_file_says_once_is_a_constant(tmp_path):
    assert here(makers.npz_file(tmp_path / "a.npz")).meta["constants"] == {"gain": 3.5}
    assert here(makers.mat_file(tmp_path / "a.mat")).meta["constants"] == {"kp": 7.0}


def test_a_file_that_needs_a_foreign_reader_is_read_in_another_process(tmp_path):
    log = Log.read(makers.mcap_file(tmp_path / "a.mcap", compression="LZ4"))
    assert log.meta["names"]["/joints.position"] == makers.NAMES and log.meta["epoch"] == makers.EPOCH
    assert log.meta["streams"]["/imu"] == {"rows": 100, "clock": "log_time"}
    t = log.time[:-1]  # /imu ends 10 ms before /joints
    assert np.allclose(log["/imu.w.z"][:-1], np.sin(2 * np.pi * (t - 0.03)), atol=2 * (np.pi * 0.02) ** 2 / 4)
    assert np.isnan(log["/imu.w.z"][-1])
    assert "/joints.velocity: empty" in log.meta["notes"]


def test_what_passes_between_the_processes_is_whole(tmp_path):
    raw = reader("mcap")(makers.mcap_file(tmp_path / "a.mcap"))
    back = unpack(pack(raw), Path("a.csv"))
    assert back.units == raw.units and back.notes == raw.notes and list(back.streams) == list(raw.streams)
    for s, stream in raw.streams.items():
        assert stream.names == back.streams[s].names
        for c, x in stream.columns.items():
            assert x.dtype == back.streams[s].columns[c].dtype and np.array_equal(x, back.streams[s].columns[c])


def test_a_bag_of_sqlite_and_a_folder_of_mcap_give_the_same(tmp_path):
    bag = makers.rosbag2_folder(tmp_path / "bag")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "metadata.yaml").write_text("")
    makers.mcap_file(tmp_path / "folder" / "a_0.mcap", 100)
    a, b = here(bag), here(tmp_path / "folder")
    assert np.array_equal(a["/joints.position"], b["/joints.position"]) and np.allclose(a.time, b.time)
    assert a.meta["names"]["/joints.position"] == ["left", "right"]


def test_a_whole_number_stamp_keeps_its_nanoseconds(tmp_path):
    """1.7e18 ns has no room for single nanoseconds in a double: the epoch must go while they are whole numbers."""
    stamps = makers.EPOCH * 10**9 + np.array([0, 1_000_001, 2_000_003, 3_000_004])
    np.savez(tmp_path / "a.npz", timestamp=stamps, q=np.arange(4.0))
    log = Log.read(tmp_path / "a.npz")
    assert np.array_equal(np.round(log.time * 1e9), [0, 1_000_001, 2_000_003, 3_000_004])
    assert log.meta["epoch"] == makers.EPOCH


def test_an_episode_of_a_lerobot_dataset_is_picked(tmp_path):
    folder = makers.lerobot_folder(tmp_path / "set")
    log = here(folder, episode=1)
    assert len(log) == 50 and log.rate == pytest.approx(50, rel=1e-4) and log["observation.state"][0].tolist() == [1, 0]
    assert log.meta["names"]["action"] == makers.NAMES and log.meta["constants"]["robot_type"] == "so101"
    assert np.array_equal(log["action"][:-1, 1], log["observation.state"][1:, 1])
    with pytest.raises(SurefootError, match="episode: found 7, expected 0 to 2"):
        here(folder, episode=7)
    info = folder / "meta" / "info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"codebase_version": "v2.1"}))
    with pytest.raises(SurefootError, match="codebase_version: found 'v2.1', expected v3.x"):
        here(folder)


def test_our_own_log_reads_as_it_loads(tmp_path):
    log = Log([0.0, 0.1, 0.3], {"q": [[1.0, 2.0]] * 3, "on": [True, False, True]}, {"q": "rad"}, {"names": {"q": ["a", "b"]}, "seed": 3})  # fmt: skip
    back = Log.read(log.save(tmp_path / "a.npz"))
    assert np.array_equal(back.time, log.time) and back["on"].dtype == bool and back.units == log.units
    assert back.meta["seed"] == 3 and back.meta["names"] == {"q": ["a", "b"]}


@pytest.mark.parametrize(
    "text, names",
    [
        ("time;q\n0;1\n1;2\n", ["q"]),
        ("time\tq\n0\t1\n1\t2\n", ["q"]),
        ("# time q\n0 1\n1 2\n", ["q"]),
        ('"time","the q"\r\n0,1\r\n1,2\r\n', ["the q"]),
        ("\ufefft_ms,q,who\n0,1,me\n1000,2,you\n", ["q"]),
        ("time [ms],q [deg]\n0,1\n1000,2\n", ["q [deg]"]),
        ("q,stamp_ns,on\n1,0,true\n2,1000000000,false\n", ["q", "on"]),
    ],
)
def test_csv_as_people_write_it(tmp_path, text, names):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    log = Log.read(tmp_path / "a.csv")
    assert list(log.columns) == names and log.time.tolist() == [0, 1] and log[names[0]].tolist() == [1, 2]


def test_an_empty_cell_is_nan_and_a_file_cut_within_a_line_says_so(tmp_path):
    (tmp_path / "a.csv").write_text("time,q\n0,\n0.1,2\n0.2,3.14")
    log = Log.read(tmp_path / "a.csv")
    assert np.isnan(log["q"][0]) and log["q"][2] == 3.14
    assert log.meta["notes"] == ["line 4: the file ends within a line; its last number may be incomplete"]


def test_a_column_that_begins_like_a_clock_is_not_taken_for_one(tmp_path):
    (tmp_path / "a.csv").write_text("t_motor,time_constant\n30,1\n31,1\n")
    with pytest.raises(SurefootError, match="found no clock among t_motor, time_constant"):
        Log.read(tmp_path / "a.csv")
    log = Log.read(tmp_path / "a.csv", rate=50)
    assert log.time.tolist() == [0, 0.02] and list(log.columns) == ["t_motor", "time_constant"]


@pytest.mark.parametrize(
    "value",
    [
        {"t": [0, 1], "q": [1, 2], "mass": 3},
        [{"t": 0, "q": 1}, {"t": 1, "q": 2}],
        {"mass": 3, "entries": [{"t": 0, "q": 1}, {"t": 1, "q": 2}]},
    ],
)
def test_json_as_columns_records_or_records_among_constants(tmp_path, value):
    (tmp_path / "a.json").write_text(json.dumps(value))
    log = Log.read(tmp_path / "a.json")
    assert log["q"].tolist() == [1, 2] and log.time.tolist() == [0, 1]
    assert isinstance(value, list) or log.meta["constants"] == {"mass": 3}


def test_nested_records_have_dotted_names_and_absent_values_are_nan(tmp_path):
    (tmp_path / "a.json").write_text('[{"t":0,"imu":{"gyro":[1,2,3]}},{"t":1},{"t":2,"imu":{"gyro":[4,5,6]}}]')
    gyro = Log.read(tmp_path / "a.json")["imu.gyro"]
    assert gyro[2].tolist() == [4, 5, 6] and np.isnan(gyro[1]).all()


def test_joints_that_change_their_order_within_a_topic_are_refused():
    from surefoot.formats.raw import from_records

    rows = [{"name": ["a", "b"], "position": [1.0, 2.0]}, {"name": ["b", "a"], "position": [2.0, 1.0]}]
    with pytest.raises(SurefootError, match=r"row 1: found \['b', 'a'\] after \['a', 'b'\], expected one order"):
        from_records(rows, "bag: /joints")


def test_a_missing_library_names_the_extra(tmp_path, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"reading parquet \(pyarrow\) needs the 'logs' extra: pip install 'surefoot\[logs\]'"
    ):
        read_raw(tmp_path / "a.parquet", "parquet")


def test_content_counts_more_than_the_name_and_an_unknown_name_is_told_what_there_is(tmp_path):
    makers.parquet_file(tmp_path / "a.csv")
    assert kind(tmp_path / "a.csv") == "parquet"
    (tmp_path / "a.cvs").write_text("t,q\n")
    with pytest.raises(SurefootError, match=r"found the suffix '.cvs', .*did you mean \.csv"):
        kind(tmp_path / "a.cvs")


def test_a_log_of_one_row_is_told_so(tmp_path):
    np.savez(tmp_path / "a.npz", time=np.zeros(1), joint_pos=np.zeros((1, 2)))
    with pytest.raises(SurefootError, match="time: found one row, expected at least 2"):
        Log.read(tmp_path / "a.npz")


def test_a_file_with_nothing_beside_its_clock_is_refused_with_what_was_left_out(tmp_path):
    (tmp_path / "a.json").write_text('{"t": [0, 1, 2], "q": [1, 2]}')
    with pytest.raises(SurefootError, match="found no column besides the clock: q: 2 rows where others have 3"):
        Log.read(tmp_path / "a.json")


ROWS = np.arange(200)


@pytest.mark.parametrize(
    "stamps, rate, said",
    [
        (
            5 * ROWS,
            200.0,
            "t: taken as ms: the median step is 5,",
        ),  # 0, 5, 10: ms of a robot at 200 Hz, no log at 0.2 Hz
        (2.5 * ROWS, 400.0, "t: taken as ms"),
        (20 * ROWS + 7_000_000, 50.0, "t: taken as ms"),  # since it was switched on, two hours ago
        (1000 * ROWS, 1000.0, "t: taken as us"),
        (5000 * ROWS + 2_000_000_000, 200.0, "t: taken as us"),  # in seconds these would be of 2033, an hour apart
        (5_000_000 * ROWS, 200.0, "t: taken as ns"),
        (2_000_000 * ROWS + 10**15, 500.0, "t: taken as ns"),  # switched on eleven days ago
        (10 * ROWS + 1_700_000_000_000, 100.0, "t: taken as ms: stamps of this size count from 1970"),
        (10_000_000 * ROWS + 1_700_000_000 * 10**9, 100.0, "t: taken as ns: stamps of this size count from 1970"),
        (ROWS, 1.0, "t: taken as s: the median step is 1, which is 1 Hz; in ms it would be 1000 Hz"),
        (0.1 * ROWS, 10.0, ""),
        (0.00005 * ROWS, 20000.0, ""),
        (10 * ROWS + 1_700_000_000, 0.1, ""),  # a slow logger's wall clock
    ],
)
def test_a_clock_that_names_no_unit_is_taken_for_what_its_size_says_and_that_is_said(tmp_path, stamps, rate, said):
    np.savez(tmp_path / "a.npz", t=stamps, q=np.sin(ROWS))
    log = Log.read(tmp_path / "a.npz")
    assert log.rate == pytest.approx(rate) and log.meta.get("notes", [""])[0].startswith(said)
    assert bool(said) == bool(log.meta.get("notes"))


def test_a_clock_that_is_told_is_not_guessed(tmp_path):
    np.savez(tmp_path / "a.npz", t=5 * ROWS, q=np.sin(ROWS))
    told = Log.read(tmp_path / "a.npz", {"time": {"from": "t", "unit": "s"}, "columns": {"joint_pos": "q"}})
    assert told.rate == pytest.approx(0.2) and "notes" not in told.meta
    Log(5.0 * ROWS, {"q": np.sin(ROWS)}).save(tmp_path / "own.npz")
    own = Log.read(tmp_path / "own.npz")
    assert own.rate == pytest.approx(0.2) and "notes" not in own.meta


def test_a_csv_column_of_lists_is_read_as_a_vector_and_a_row_of_another_length_is_refused(tmp_path):
    path = tmp_path / "arm.csv"
    path.write_text('type,timestamp,positions\nC,0.0,"[0.1, -0.2]"\nC,0.1,"[0.3, 4e-1]"\n')
    log = Log.read(path)
    assert log["positions"].tolist() == [[0.1, -0.2], [0.3, 0.4]] and log.time.tolist() == [0.0, 0.1]
    path.write_text('timestamp,positions\n0.0,"[0.1, -0.2]"\n0.1,"[0.3]"\n')
    with pytest.raises(SurefootError, match="arm.csv: line 3: positions: expected a list of 2 numbers"):
        Log.read(path)


def test_a_csv_whose_column_has_a_name_of_a_megabyte_is_refused_by_its_limit(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time," + "x" * 1_000_000 + "\n0,1\n1,2\n")
    with pytest.raises(SurefootError, match="line 1: found a name of 1000000 characters, expected at most 1000"):
        Log.read(path)


@pytest.mark.parametrize("text", ["", "\n \t\n", "\x1d", "# \x1e\n#\n"])
def test_a_csv_of_white_space_alone_is_an_empty_file(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(SurefootError, match="found an empty file, expected a header line and rows"):
        Log.read(path)
