"""A Log gives back what was put in, bit for bit, and says which row of which column is wrong."""

import json
import os
import zipfile

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.log import ROWS, Log, from_rows, rows_head


def a_log() -> Log:
    time = np.arange(100) * 0.01
    columns = {"q": np.sin(np.outer(time, [1.0, 2.0])), "contact": time > 0.5, "count": np.arange(100), "file": time**2}
    return Log(time, columns, {"q": "rad"}, {"seed": 7, "policy": "ab12", "nested": {"version": [0, 1]}})


def test_a_saved_log_loads_bit_for_bit_with_its_provenance(tmp_path):
    log = a_log()
    back = Log.load(log.save(tmp_path / "run.npz"))
    assert np.array_equal(back.time, log.time) and list(back.columns) == list(log.columns)
    for name in log.columns:
        assert back[name].dtype == log[name].dtype and np.array_equal(back[name], log[name])
    assert back.units == log.units and back.meta == log.meta


def test_equal_logs_give_equal_bytes(tmp_path):
    one, two = a_log().save(tmp_path / "a.npz"), a_log().save(tmp_path / "b.npz")
    assert one.read_bytes() == two.read_bytes()


def test_a_missing_reading_survives_as_nan(tmp_path):
    log = Log([0.0, 1.0], {"v": [np.nan, 2.0]})
    assert np.isnan(Log.load(log.save(tmp_path / "a.npz"))["v"][0])


def test_an_empty_log_and_one_with_no_columns_round_trip(tmp_path):
    assert len(Log.load(Log([], {"q": np.empty((0, 3))}).save(tmp_path / "a.npz"))) == 0
    assert Log.load(Log([0.5], {}).save(tmp_path / "b.npz")).columns == {}


def test_a_failed_save_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = a_log().save(tmp_path / "run.npz")
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(SurefootError, match="run.npz: could not write .* bytes: no space left"):
        a_log().slice(0, 0.5).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.npz"]


def test_a_save_leaves_only_the_file_itself(tmp_path):
    a_log().save(str(tmp_path / "run.npz"))
    assert os.listdir(tmp_path) == ["run.npz"]


def test_slices_are_half_open_so_neighbours_make_the_whole():
    log = a_log()
    left, right = log.slice(0.0, 0.3), log.slice(0.3, 2.0)
    assert len(left) == 30 and len(left) + len(right) == 100
    assert np.array_equal(np.concatenate([left["q"], right["q"]]), log["q"])
    assert right.time[0] == log.time[30] and right.units == log.units and right.meta == log.meta


def test_rate_is_the_median_and_so_ignores_a_gap():
    assert a_log().rate == pytest.approx(100.0)
    assert Log([0.0, 0.1, 0.2, 5.0], {}).rate == pytest.approx(10.0)
    with pytest.raises(SurefootError, match="rate: found 1 rows"):
        _ = Log([0.0], {}).rate


def test_a_column_that_does_not_exist_names_the_nearest():
    with pytest.raises(SurefootError, match="no column matches 'contcat'.*did you mean contact?"):
        a_log()["contcat"]


def test_arrays_are_frozen_copies():
    time = np.arange(3.0)
    log = Log(time, {"q": time})
    time[0] = -1.0
    assert log.time[0] == 0.0 and log["q"][0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        log["q"][0] = 1.0


@pytest.mark.parametrize(
    "time, columns, units, why",
    [
        ([0.0, 0.1, 0.1], {}, {}, "time: row 2: found 0.1 after 0.1, expected strictly increasing"),
        ([0.0, 0.2, 0.1], {}, {}, "time: row 2: found 0.1 after 0.2"),
        ([0.0, np.nan, 0.1], {}, {}, "time: row 1: found nan"),
        ([[0.0]], {}, {}, r"time: found shape \(1, 1\)"),
        (["a"], {}, {}, "time: found str"),
        ([0.0, 0.1], {"q": [1.0]}, {}, r"column q: found shape \(1,\), expected \(2,\)"),
        ([0.0, 0.1], {"q": np.zeros((2, 2, 2))}, {}, "column q: found shape"),
        ([0.0], {"q": 3.0}, {}, "column q: found shape"),
        ([0.0], {"q": [None]}, {}, "column q: found object"),
        ([0.0], {"speed": [1.0]}, {"sped": "m/s"}, "units: no column matches 'sped'.*did you mean speed"),
    ],
)
def test_a_bad_log_names_the_column_and_the_row(time, columns, units, why):
    with pytest.raises(SurefootError, match=why):
        Log(time, columns, units)


def header(**changes) -> np.ndarray:
    return np.array(json.dumps({"format": "surefoot.log/1", "units": {}, "meta": {}} | changes))


@pytest.mark.parametrize(
    "arrays, why",
    [
        ({"time": np.zeros(2)}, "header: found none among time"),
        ({"header": header()}, "time: found none"),
        ({"header": np.array("{"), "time": np.zeros(1)}, "header: .*expected JSON"),
        ({"header": np.array("3"), "time": np.zeros(1)}, "header: found format 3"),
        (
            {"header": header(format="other/9"), "time": np.zeros(1)},
            "found format 'other/9', expected 'surefoot.log/1'",
        ),
        ({"header": header(meta=[]), "time": np.zeros(1)}, "header: meta: found"),
        ({"header": header(), "time": np.array([1.0, 0.0])}, "time: row 1: found 0.0 after 1.0"),
        ({"header": header(), "time": np.zeros(1), "columns/q": np.zeros(4)}, r"column q: found shape \(4,\)"),
        ({"header": header(), "time": np.zeros(1), "columns/q": np.array([{}])}, "found objects, which could run code"),
    ],
)
def test_a_bad_npz_is_an_error_that_names_the_file(tmp_path, arrays, why):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(SurefootError, match=rf"bad\.npz: .*{why}"):
        Log.load(tmp_path / "bad.npz")


def test_what_is_not_an_npz_is_an_error_that_names_the_file(tmp_path):
    path = a_log().save(tmp_path / "half.npz")
    path.write_bytes(path.read_bytes()[:-200])
    (tmp_path / "text.npz").write_text("t,q\n0,1\n")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    for name in ("half.npz", "text.npz", "empty.npz", "one.npy", "other.npz"):
        with pytest.raises(SurefootError, match=f"{name}: .*expected"):
            Log.load(tmp_path / name)
    with pytest.raises(SurefootError, match="gone.npz: no such file"):
        Log.load(tmp_path / "gone.npz")
    with pytest.raises(SurefootError, match="found a folder, expected a file"):
        Log.load(tmp_path)


def test_save_says_what_it_cannot_write(tmp_path):
    for meta in ({"policy": object()}, {"score": float("nan")}):
        with pytest.raises(SurefootError, match="meta: .*JSON"):
            Log([0.0], {}, {}, meta).save(tmp_path / "a.npz")


def test_a_log_is_saved_in_a_new_folder_but_under_no_name_that_says_it_is_something_else(tmp_path):
    assert len(Log.load(a_log().save(tmp_path / "new" / "a.npz"))) == len(a_log())
    with pytest.raises(SurefootError, match="a.csv: expected a name that ends in .npz"):
        a_log().save(tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


HEAD = rows_head([("time", 0, "f8"), ("q", 2, "f4"), ("n", 0, "i8"), ("on", 0, "b1")], {"q": "rad"}, {"rate": 50.0})


def test_a_file_of_rows_is_read_up_to_its_last_whole_row():
    table = np.array([[5.0, 0.25, -1.5, 3, 1], [5.02, 0.5, 2.5, 4, 0], [5.02, 0.75, 3.5, 5, 1]])
    data = HEAD + table.tobytes()
    log = from_rows(data)
    assert (
        np.allclose(log.time, [0.0, 0.02, 0.020001]) and log["q"].dtype == np.float32 and log["n"].tolist() == [3, 4, 5]
    )
    assert log["q"].tolist() == table[:, 1:3].tolist() and log["on"].tolist() == [True, False, True]
    assert log.units == {"q": "rad"} and log.meta == {"rate": 50.0}
    for cut in range(1, 40):
        assert len(from_rows(data[:-cut])) == 2


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "no line of JSON"),
        (HEAD, "found 0 whole rows"),
        (HEAD.replace(b"f4", b"O8"), "q: expected a width and one of f8, f4"),
        (HEAD.replace(b'"time"', b'"t"'), "`time` first"),
        (HEAD.replace(b'["q", 2', b'["q", 1e9'), "q: expected a width"),
        (HEAD.replace(b'"rad"', b"1"), "units: q"),
        (ROWS + b"[]\n", "expected an object, found list"),
    ],
)  # fmt: skip
def test_a_file_of_rows_that_is_not_one_is_refused_in_words(data, words):
    with pytest.raises(SurefootError, match=words):
        from_rows(data)
