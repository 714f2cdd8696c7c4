"""Laws of the readers' parts: cells of text, members of an npz, arrow columns, and the numbers of a summary."""

import io
import zipfile

import numpy as np
import pytest

from surefoot.errors import SurefootError
from surefoot.formats.readers import arrays, tables, text
from surefoot.formats.summary import draw, summary
from surefoot.log import Log


@pytest.mark.parametrize("mark", [",", ";", "\t", " "])
def test_a_table_is_the_same_whatever_separates_its_cells(tmp_path, mark):
    rows = [["t", "a [deg]", "b"], ["0", "1.5", "nan"], ["0.1", "-2e3", "true"]]
    rows[0][1] = "a[deg]" if mark == " " else rows[0][1]
    (tmp_path / "a.csv").write_text("\n".join(mark.join(r) for r in rows) + "\n")
    raw = text.read_csv(tmp_path / "a.csv")
    a, b = (raw.streams[""].columns[n] for n in (rows[0][1], "b"))
    assert a.tolist() == [1.5, -2000.0] and np.isnan(b[0]) and b[1] == 1.0 and raw.units == {rows[0][1]: "deg"}


def test_a_file_without_a_header_has_numbered_columns_and_text_is_left_out_with_a_note(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    assert text.read_csv(tmp_path / "a.csv").streams[""].columns["1"].tolist() == [2.0, 4.0]
    (tmp_path / "b.csv").write_text('t,mode,q\n0,stand,"[1,2]"\n1,walk,"[3,4]"\n')
    raw = text.read_csv(tmp_path / "b.csv")
    assert raw.notes == ["mode: text"] and raw.streams[""].columns["q"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_json_columns_and_json_records_give_the_same(tmp_path):
    (tmp_path / "a.json").write_text('{"t": [0, 1], "q": [[1, 2], [3, null]], "mass": 0.5}')
    (tmp_path / "b.json").write_text('{"mass": 0.5, "rows": [{"t": 0, "q": [1, 2]}, {"t": 1, "q": [3, null]}]}')
    a, b = (text.read_json(tmp_path / name) for name in ("a.json", "b.json"))
    assert a.constants == b.constants == {"mass": 0.5}
    for name in ("t", "q"):
        np.testing.assert_array_equal(a.streams[""].columns[name], b.streams[""].columns[name])


def npz(path, **members: bytes):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


def npy(a: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, a)
    return out.getvalue()


def test_an_npz_is_read_bit_for_bit_in_either_memory_order(tmp_path):
    a = np.arange(6.0).reshape(2, 3)
    found = arrays.load(npz(tmp_path / "a.npz", c=npy(a), f=npy(np.asfortranarray(a))))
    assert np.array_equal(found["c"], a) and np.array_equal(found["f"], a)
    assert arrays.unpacked(tmp_path / "a.npz") == 2 * len(npy(a))


def test_a_member_whose_header_declares_other_sizes_is_refused_before_it_is_read(tmp_path):
    short = npy(np.zeros(8))[:-8]
    with pytest.raises(SurefootError, match="found 56 bytes, expected 64"):
        arrays.load(npz(tmp_path / "a.npz", x=short))
    with pytest.raises(SurefootError, match="found objects"):
        arrays.load(npz(tmp_path / "b.npz", x=npy(np.array([None]))))


def test_arrow_columns_become_arrays_with_nan_for_null_and_ns_for_stamps():
    pa = pytest.importorskip("pyarrow", reason="needs the logs extra")
    notes: list[str] = []
    assert np.array_equal(tables._array(pa.array([1.0, None]), "x", notes), [1.0, np.nan], equal_nan=True)
    assert tables._array(pa.array([[1, 2], [3, 4]]), "x", notes).tolist() == [[1, 2], [3, 4]]
    assert tables._array(pa.array([3], pa.timestamp("ms")), "x", notes).tolist() == [3_000_000]
    assert tables._array(pa.array([[1], [1, 2]]), "x", notes) is None and notes == [
        "x: lists of different or great length"
    ]
    assert tables._names({"names": {"motors": ["a", "b"]}}) == tables._names({"names": ["a", "b"]}) == ["a", "b"]


def test_jitter_rate_and_lost_rows_are_those_of_the_steps():
    steps = np.array([9.0, 11.0] * 20 + [100.0] + [9.0, 11.0] * 20) / 1000
    time = np.concatenate([[0.0], np.cumsum(steps)])
    facts = summary(Log(time, {"q": np.where(time < 0.095, np.nan, time), "still": np.ones(len(time))}))
    assert (
        facts["rows"] == 82 and facts["duration"] == pytest.approx(0.9) and facts["longest_step"] == pytest.approx(0.1)
    )
    assert facts["jitter"] == pytest.approx(0.001) and facts["mean_rate"] == pytest.approx(100.0)
    (gap,) = facts["gaps"]
    assert gap == pytest.approx([0.4, 0.5]) and facts["lost"] == round(0.1 * facts["rate"]) - 1
    assert facts["columns"]["q"]["nan"] == pytest.approx(10 / 82) and facts["columns"]["still"]["constant"] == ["0"]


def test_a_log_of_one_row_has_no_rate_and_a_plot_is_a_png(tmp_path):
    one = summary(Log(np.array([1.0]), {"q": np.array([2.0])}))
    assert one["rate"] is None and one["duration"] == 0.0 and one["columns"]["q"]["max"] == 2.0
    log = Log(np.arange(3.0), {"q": np.arange(3.0)})
    assert draw(log, tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(SurefootError, match="ends in .png"):
        draw(log, tmp_path / "a.jpg")
