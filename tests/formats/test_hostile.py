"""Broken and hostile files: each is read or refused in words that name it; nothing crashes, hangs or is executed."""

import json
import re
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path

import makers
import numpy as np
import pytest

from surefoot import isolated
from surefoot.errors import SurefootError
from surefoot.log import Log

pytest.importorskip("mcap", reason="needs the logs extra")
pytest.importorskip("pyarrow", reason="needs the logs extra")

BOMB = 1 << 30  # bytes that a bomb unpacks to

# One process reads the whole corpus within the limits that a single file has: what kills it would kill a reader.
CHILD = """
import json, resource, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from surefoot.formats import readers
from surefoot.formats.align import assemble
from surefoot.isolated import Limits, confine
from surefoot.errors import SurefootError
for name in ("bags", "tables", "arrays", "text"):
    __import__("surefoot.formats.readers." + name)
import mcap_ros2, mcap.writer, pyarrow.parquet, rosbags.rosbag2, scipy.io
confine(Limits(1 << 30, 120))
told = {}
for path in sorted(Path(sys.argv[1]).iterdir()):
    began = time.process_time()
    try:
        what = readers.kind(path)
        log = assemble(readers.reader(what)(path), None, None, False, {})
        said = f"read {len(log)} rows"
    except SurefootError as error:
        said = f"refused: {error}"
    except MemoryError:
        said = "memory"
    except BaseException as error:
        said = f"BROKE: {type(error).__name__}: {error}"
    told[path.name] = [said, time.process_time() - began]
    print(path.name, file=sys.stderr, flush=True)
# not ru_maxrss, which a process inherits from whoever started it
peak = int(next(x.split()[1] for x in open("/proc/self/status") if x.startswith("VmHWM")))
print(json.dumps({"told": told, "peak": peak}))
"""


def zip_of(path: Path, members: dict[str, bytes], lie: int | None = None) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    if lie is not None:  # the size that the central directory declares
        raw = bytearray(path.read_bytes())
        at = raw.rindex(b"PK\x01\x02")
        raw[at + 24 : at + 28] = struct.pack("<I", lie)
        path.write_bytes(raw)


def record(op: int, content: bytes, length: int | None = None) -> bytes:
    return struct.pack("<BQ", op, len(content) if length is None else length) + content


def chunk(compression: bytes, data: bytes, declared: int) -> bytes:
    return struct.pack("<QQQI", 0, 1, declared, 0) + struct.pack("<I", len(compression)) + compression + struct.pack("<Q", len(data)) + data  # fmt: skip


def mcap_with(*records: bytes) -> bytes:
    return b"\x89MCAP0\r\n" + record(1, struct.pack("<I", 0) * 2) + b"".join(records)


def zeros_zstd(n: int) -> bytes:
    import zstandard

    out, block = b"", zstandard.ZstdCompressor(write_content_size=False)
    press = block.compressobj()
    for _ in range(n >> 24):
        out += press.compress(bytes(1 << 24))
    return out + press.flush()


def zeros_lz4(n: int) -> bytes:
    import lz4.frame

    with lz4.frame.LZ4FrameCompressor() as press:
        out = press.begin()
        for _ in range(n >> 24):
            out += press.compress(bytes(1 << 24))
        return out + press.flush()


def mat_element(kind: int, size: int, data: bytes = b"") -> bytes:
    return b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8) + b"\x00\x01IM" + struct.pack("<II", kind, size) + data


def hostile(folder: Path) -> None:
    text = {
        "empty.csv": "", "header_only.csv": "time,q\n", "ragged.csv": "time,q\n0,1\n1\n", "word.csv": "time,q\n0,1\n1,fast\n", "back.csv": "time,q\n0,1\n2,1\n1,1\n",
        "twice.csv": "time,q\n0,1\n0,1\n", "nan_stamp.csv": "time,q\n0,1\nnan,1\n", "inf_stamp.csv": "time,q\n0,1\ninf,1\n", "same_names.csv": "q,q\n0,1\n",
        "quote.csv": 'time,q\n0,"1\n1,2\n', "long_number.csv": "time,q\n0,1\n1," + "9" * 100_000 + "\n", "long_quote.csv": 'time,q\n0,"' + "9" * 200_000 + '"\n', "wide.csv": "time" + ",q" * 200_000 + "\n", "zero.csv": "time,q\n0,\x001\n",
        "no_clock.csv": "a,b\n0,1\n", "far_stamp.csv": "time,q\n0,1\n1e300,1\n2e300,1\n", "words.csv": "who,what\nme,that\n",
        "deep.json": "[" * 200_000, "deep_object.json": '{"a":' * 100_000, "digits.json": '{"time":[0,' + "1" * 1_000_000 + "]}", "big.json": '{"time":[0,1],"q":[1e999,0]}',
        "half.json": '{"time":[0,1', "scalar.json": "3", "empty.json": "", "list.json": "[1,2,3]", "mixed.json": '[{"time":0,"q":1},{"time":1,"q":"a"}]', "empty_list.json": "[]",
        "ragged.json": '{"time":[0,1,2],"q":[[1,2],[1],[1,2]]}', "twice.json": '[{"t":0,"q":1},{"t":0,"q":1}]', "null.json": '{"time":[null,null],"q":[1,2]}', "big_stamp.json": '{"time":[1' + "0" * 300 + ',2],"q":[1,2]}',
    }  # fmt: skip
    for name, content in text.items():
        (folder / name).write_text(content)
    (folder / "latin.csv").write_bytes(b"time,q\n0,\xff\xfe\n")
    zip_of(folder / "object.npz", {"time.npy": makers.npy("'|O'", "(3,)") + b"cos\nsystem\n(S'touch pwned'\ntR."})
    zip_of(folder / "shape.npz", {"time.npy": makers.npy("'<f8'", "(1000000000000,)") + bytes(64)})
    zip_of(folder / "negative.npz", {"time.npy": makers.npy("'<f8'", "(-4,)") + bytes(64)})
    zip_of(folder / "code.npz", {"time.npy": makers.npy("__import__('os').system('touch pwned')", "(3,)")})
    zip_of(folder / "lie.npz", {"time.npy": makers.npy("'<f8'", "(8,)") + bytes(64)}, lie=0xFFFFFFF0)
    zip_of(folder / "text.npz", {"readme.txt": b"hello"})
    zip_of(
        folder / "bomb.npz",
        {"time.npy": makers.npy("'<f8'", f"({1 << 24},)") + bytes(1 << 27), "q.npy": makers.npy("'<f8'", "(2,)")},
    )
    (folder / "other.npz").write_bytes(b"PK\x05\x06" + bytes(18))
    (folder / "no.mcap").write_bytes(b"not an mcap")
    (folder / "magic.mcap").write_bytes(b"\x89MCAP0\r\n")
    (folder / "length.mcap").write_bytes(mcap_with(record(6, b"", 1 << 32)))
    (folder / "length63.mcap").write_bytes(mcap_with(record(5, b"ab", (1 << 63) + 1)))
    (folder / "inner.mcap").write_bytes(mcap_with(record(3, struct.pack("<HI", 1, 0xFFFFFFF0) + b"x" * 20)))
    squeezed = zeros_zstd(BOMB)
    (folder / "zstd_bomb.mcap").write_bytes(mcap_with(record(6, chunk(b"zstd", squeezed, BOMB))))
    (folder / "zstd_lie.mcap").write_bytes(mcap_with(record(6, chunk(b"zstd", squeezed, 1000))))
    (folder / "lz4_lie.mcap").write_bytes(mcap_with(record(6, chunk(b"lz4", zeros_lz4(1 << 28), 1000))))
    (folder / "lz4_rubbish.mcap").write_bytes(mcap_with(record(6, chunk(b"lz4", b"rubbish", 1000))))
    (folder / "brotli.mcap").write_bytes(mcap_with(record(6, chunk(b"brotli", b"", 0))))
    (folder / "orphan.mcap").write_bytes(mcap_with(record(5, struct.pack("<HIQQ", 9, 0, 0, 0))))
    (folder / "size.mat").write_bytes(mat_element(14, 0xFFFFFFF0))
    (folder / "shape.mat").write_bytes(
        mat_element(14, 48, struct.pack("<IIIIIIiiIII", 6, 8, 6, 0, 5, 8, 2**31 - 1, 2**31 - 1, 0x10001, 9, 0))
    )
    squeezed = zlib.compress(struct.pack("<II", 14, 1 << 28) + bytes(1 << 28))
    (folder / "bomb.mat").write_bytes(mat_element(15, len(squeezed), squeezed))
    (folder / "no.mat").write_bytes(b"MATLAB ")
    (folder / "no.parquet").write_bytes(b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1")
    (folder / "short.parquet").write_bytes(b"PAR1")


def spoilt(folder: Path, spare: Path) -> None:
    """Valid files of each format, cut short and with bits turned, at random but the same each time."""
    rng = np.random.default_rng(19)
    for name, make in makers.MAKERS.items():
        data = make(spare / name, 60).read_bytes()
        stem, end = name.split(".")
        for k in range(6):
            cut = int(rng.integers(0, len(data)))
            (folder / f"cut{k}.{end}").write_bytes(data[:cut])
        for k in range(16):
            turned = bytearray(data)
            for _ in range(1 + k % 3):
                turned[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
            (folder / f"turned{k}.{end}").write_bytes(turned)
    bag = makers.rosbag2_folder(spare / "bag", 20)
    db = next(bag.glob("*.db3")).read_bytes()
    for k in range(8):
        turned = bytearray(db)
        turned[int(rng.integers(0, len(db)))] ^= 1 << int(rng.integers(0, 8))
        (folder / f"turned{k}.db3").write_bytes(turned if k % 2 else turned[: int(rng.integers(0, len(db)))])


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    folder, spare = tmp_path_factory.mktemp("corpus"), tmp_path_factory.mktemp("spare")
    hostile(folder)
    spoilt(folder, spare)
    src = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), src], capture_output=True, text=True, timeout=280, cwd=spare
    )
    assert done.returncode == 0, f"died after {done.stderr.splitlines()[-3:]}"
    return json.loads(done.stdout) | {"spare": spare, "folder": folder}


def test_every_file_of_the_corpus_is_read_or_refused(verdicts):
    told = {name: said for name, (said, _) in verdicts["told"].items()}
    assert len(told) >= 180
    assert not {n: s for n, s in told.items() if s.startswith("BROKE")}
    refused = {n: s for n, s in told.items() if s.startswith("refused: ")}
    assert len(refused) >= 90


def test_what_is_wrong_is_named_with_file_and_place(verdicts):
    told = {name: said for name, (said, _) in verdicts["told"].items()}
    for name, words in {
        "ragged.csv": "line 3: found 1 cells, expected 2",
        "word.csv": "line 3: q: found 'fast'",
        "back.csv": "row 2: found 1 after 2, going back",
        "twice.csv": "row 1: found 0 after 0, a duplicate",
        "nan_stamp.csv": "row 1: found nan",
        "long_number.csv": "line 3: q: found '9999",
        "quote.csv": "unexpected end of data",
        "latin.csv": "byte 9: expected UTF-8",
        "no_clock.csv": "found no clock among a, b",
        "deep.json": "levels of nesting",
        "digits.json": "1000000 digits",
        "big.json": "found the number 1e999",
        "mixed.json": "q: row 1: found 'a', expected a number",
        "half.json": "byte 12",
        "object.npz": "time.npy: found objects, which could run code",
        "shape.npz": "expected 8000000000000 for shape (1000000000000,)",
        "lie.npz": "bytes of arrays, expected at most",
        "length.mcap": "record at byte 25: RecordLengthLimitExceeded: CHUNK record has length 4294967296",
        "length63.mcap": "record at byte 25",
        "inner.mcap": "expected 4294967280 more bytes",
        "zstd_bomb.mcap": "chunk: found 1073741824 bytes declared",
        "zstd_lie.mcap": "chunk: found 1001 bytes or more after decompression, expected 1000",
        "lz4_lie.mcap": "chunk: found 1001 bytes or more after decompression, expected 1000",
        "orphan.mcap": "channel 9, which no record describes",
    }.items():
        assert words in told[name], (name, told[name])


def test_nothing_took_five_seconds_a_gibibyte_or_ran(verdicts):
    slow = {n: s for n, (_, s) in verdicts["told"].items() if s >= 5}
    assert not slow and verdicts["peak"] * 1024 < 1 << 30
    assert not list(verdicts["spare"].rglob("pwned")) and not list(verdicts["folder"].rglob("pwned"))


def test_a_turned_bit_inside_an_mcap_chunk_is_found_by_its_crc(tmp_path):
    from surefoot.formats.readers.bags import read_mcap

    data = makers.mcap_file(tmp_path / "a.mcap", compression="NONE").read_bytes()
    at = data.index(struct.pack("<d", np.cos(2 * np.pi * 0.5)))  # a joint's angle
    (tmp_path / "b.mcap").write_bytes(data[: at + 3] + bytes([data[at + 3] ^ 16]) + data[at + 4 :])
    with pytest.raises(
        SurefootError, match=r"b\.mcap: record at byte \d+: CRCValidationError: crc validation failed in Chunk"
    ):
        read_mcap(tmp_path / "b.mcap")


def test_a_reader_that_eats_memory_is_stopped_and_named(tmp_path, monkeypatch):
    """Equal numbers: 84 kB on disk, 160 MB in memory. A small file passes under the same limit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from surefoot.formats.readers import isolated_reader

    monkeypatch.setattr(isolated_reader, "LEAST", 160 << 20)
    pq.write_table(pa.table({"q": np.zeros(20_000_000)}), tmp_path / "bomb.parquet")
    assert (tmp_path / "bomb.parquet").stat().st_size < 100_000
    with pytest.raises(
        SurefootError, match=r"bomb\.parquet: reading takes more than 160 MiB of memory, too much for a parquet of"
    ):
        Log.read(tmp_path / "bomb.parquet", rate=1)
    assert len(Log.read(makers.parquet_file(tmp_path / "a.parquet"))) == 200


def test_a_file_that_crashes_its_reader_is_refused_and_this_process_lives(tmp_path):
    """64 bytes lost within a struct: on scipy 1.17 its reader ends by a signal; a later one may refuse it in words."""
    from scipy.io import savemat

    path = tmp_path / "a.mat"
    savemat(path, {"t": np.arange(40.0), "q": np.ones((40, 2)), "s": {"a": 1}, "c": np.array(["x", 2], dtype=object)})
    data = path.read_bytes()
    path.write_bytes(data[:1300] + data[1364:])
    with pytest.raises(SurefootError, match=r"a\.mat: (reading broke off \(code -11|.*expected a MATLAB file)"):
        Log.read(path)


def test_a_reader_that_takes_too_long_is_stopped_and_named(tmp_path, monkeypatch):
    from surefoot.formats.readers import isolated_reader

    path = tmp_path / "long.csv"
    path.write_text("time,q\n" + "0,1\n" * 4_300_000)
    monkeypatch.setattr(isolated_reader, "limits", lambda size: isolated.Limits(seconds=1))
    with pytest.raises(
        SurefootError, match=r"long\.csv: reading took more than 1 s of CPU time, too much for a csv of"
    ):
        Log.read(path)


def test_pipes_devices_and_absent_files_are_refused_at_once(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.csv")
    for path, why in ((tmp_path / "pipe.csv", "a device, pipe or socket"), (Path("/dev/zero"), "a device, pipe or socket"), (tmp_path / "gone.csv", "no such file"), (tmp_path, "neither meta/info.json")):  # fmt: skip
        with pytest.raises(SurefootError, match=why):
            Log.read(path)


@pytest.mark.parametrize("name", ["a.mcap", "a.mat", "a.parquet"])
def test_modules_beside_a_dataset_are_not_run_when_it_is_read(tmp_path, monkeypatch, name):
    path = makers.MAKERS[name](tmp_path / name)
    for module in ("numpy", "scipy", "pyarrow", "mcap"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    assert len(Log.read(path.name)) == 200 and not (tmp_path / "ran").exists()


def npz_of(path: Path, n: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for k in range(n):
            archive.writestr(f"a{k}.npy", makers.npy("'<f8'", "(1,)") + bytes(8))


MANY = {
    "a million columns.csv": (lambda p: p.write_text(",".join(map(str, range(1_000_000))) + "\n"), "found 1000000 columns, expected at most 10000"),
    "one name 100000 times.csv": (lambda p: p.write_text("time" + ",q" * 100_000 + "\n0" + ",1" * 100_000), "found 100001 columns, expected at most 10000"),
    "another name twice.csv": (lambda p: p.write_text("time" + "".join(f",q{k}" for k in range(9000)) + ",q7\n0" + ",1" * 9001), "found column 'q7' twice"),
    "each record its own key.json": (lambda p: p.write_text(json.dumps([{f"k{k}": k} for k in range(20_000)])), "found 20000 columns, expected at most 10000"),
    "mostly nothing.json": (lambda p: p.write_text(json.dumps([{"time": k, f"k{k % 9000}": k} for k in range(20_000)])), "40000 of 180020000 values; expected at least 1 of 64"),
    "empty lists.json": (lambda p: p.write_text('{"time":[' + ",".join(["[]"] * 3_000_000) + "]}"), "reading takes more than 1024 MiB of memory, too much for a json of 9000010 bytes"),
    "constants.json": (lambda p: p.write_text(json.dumps({f"k{k}": k for k in range(20_000)} | {"time": [0, 1]})), "found 20000 constants"),
    "members.npz": (lambda p: npz_of(p, 60_000), "found 60000 arrays, expected at most 10002"),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_more_of_anything_than_a_log_has_is_refused_before_the_work(tmp_path, name):
    """Seconds each, where the work itself would take minutes or all memory."""
    make, words = MANY[name]
    make(tmp_path / name)
    began = time.monotonic()
    with pytest.raises(SurefootError, match=words):
        Log.read(tmp_path / name)
    assert time.monotonic() - began < 60


def test_a_wide_log_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("time" + "".join(f",q{k}" for k in range(2000)) + ("\n0" + ",1" * 2000) + ("\n1" + ",2" * 2000))  # fmt: skip
    assert len(Log.read(tmp_path / "a.csv").columns) == 2000


def test_an_npz_that_unpacks_to_much_is_read_in_a_process_of_its_own(tmp_path):
    """39 kB on disk and 40 MB of zeros: right, but not taken at its word in this process."""
    path, data = tmp_path / "a.npz", makers.npy("'<f8'", "(5000000,)") + bytes(40_000_000)
    zip_of(path, {"time.npy": data})
    from surefoot.formats.readers import ARRAYS, SMALL, _unpacked

    assert path.stat().st_size < SMALL and _unpacked(path) > ARRAYS
    with pytest.raises(SurefootError, match="row 1: found 0 after 0, a duplicate"):
        Log.read(path)


def test_a_rate_that_asks_for_more_than_memory_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("time" + "".join(f",q{k}" for k in range(200)) + ("\n0" + ",1" * 200) + ("\n3000" + ",2" * 200))  # fmt: skip
    with pytest.raises(SurefootError, match=r"rate: found 400 numbers, which at 10000 Hz would be 6000000200"):
        Log.read(tmp_path / "a.csv", rate=10_000)


def test_pipes_and_devices_inside_a_folder_are_refused(tmp_path):
    import os

    for name, make in (("pipe.mcap", os.mkfifo), ("zero.mcap", lambda p: p.symlink_to("/dev/zero"))):
        bag = makers.rosbag2_folder(tmp_path / name.split(".")[0], 20)
        make(bag / name)
        with pytest.raises(SurefootError, match=f"{name}: found a device, pipe or socket, expected a file"):
            Log.read(bag)


BAD_META = {
    "names": [3, {"q": "abc"}, {"q": [1]}], "hold": [3, [1], "x"], "gaps": [3, [[1]], [["a", "b"]], [[2, 1]]], "constants": [3, "x"],
    "streams": [3, {"a": 3}, {"a": {"rows": "x"}}], "notes": [3, [1], "x"], "mended": [3, [1]], "epoch": ["x", [1]],
}  # fmt: skip


@pytest.mark.parametrize("key, value", [(k, v) for k, values in BAD_META.items() for v in values])
def test_a_log_of_ours_with_wrong_meta_is_refused_by_both_readers(tmp_path, key, value):
    header = {"format": "surefoot.log/1", "units": {}, "meta": {key: value}}
    np.savez(tmp_path / "a.npz", header=np.array(json.dumps(header)), time=np.arange(3.0), **{"columns/q": np.ones(3)})
    for read in (Log.read, Log.load):
        with pytest.raises(SurefootError, match=rf"a\.npz: header: meta: {key}: found .*, expected"):
            read(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "units, stamps, q, words",
    [
        ({"q": 3}, np.arange(3.0), np.ones(3), "header: units: q: found 3, expected a text"),
        ({}, np.arange(3.0), np.ones(2), r"q: found float64 of shape \(2,\)"),
        ({}, np.arange(3.0), np.array(1.0), r"q: found float64 of shape \(\)"),
        ({}, np.array(["a", "b"]), np.ones(2), "time: found str"),
        ({}, np.arange(3.0) + 1j, np.ones(3), "time: found complex128"),
    ],
)
def test_a_log_of_ours_with_arrays_that_do_not_fit_is_refused(tmp_path, units, stamps, q, words):
    header = {"format": "surefoot.log/1", "units": units, "meta": {}}
    np.savez(tmp_path / "a.npz", header=np.array(json.dumps(header)), time=stamps, **{"columns/q": q})
    with pytest.raises(SurefootError, match=rf"a\.npz: {words}"):
        Log.read(tmp_path / "a.npz")


@pytest.mark.parametrize(
    "name, text, words",
    [
        ("half.json", '{"time":[0,1,2],"\\ud800":[1,2,3]}', "half a character"),
        ("twice.json", '{"time":[0,1,2],"q":[1,2,3],"q":[4,5,6]}', "found the key 'q' twice"),
        ("records.json", '[{"time":0,"q":1,"q":2},{"time":1,"q":1}]', "found the key 'q' twice"),
        ("tiny.json", '{"time":[0,5e-324,1e-323],"q":[1,2,3]}', "found a median step of 4.94e-324 s"),
        ("far.json", '{"time":[0,1e300,2e300],"q":[1,2,3]}', r"expected at most 1e\+12 s"),
    ],
)
def test_json_that_ended_in_a_traceback_is_refused(tmp_path, capsys, name, text, words):
    from surefoot.cli import main

    (tmp_path / name).write_text(text)
    for more in ([], ["--json"]):
        assert main(["log", str(tmp_path / name), *more]) == 2
        assert re.search(words, capsys.readouterr().err)


def test_a_link_out_of_a_folder_is_not_followed(tmp_path):
    outside = tmp_path / "secret.mcap"
    makers.mcap_file(outside, 9)
    bag = tmp_path / "bag"
    bag.mkdir()
    (bag / "a.mcap").symlink_to(outside)
    with pytest.raises(
        SurefootError,
        match=r"a.mcap: found a link to a file outside .*bag, expected a folder with all of its files; cp -rL",
    ):
        Log.read(bag)
    (bag / "a.mcap").unlink()
    makers.mcap_file(bag / "real.mcap", 9)
    (tmp_path / "alias").symlink_to(bag)
    assert len(Log.read(tmp_path / "alias")) == len(Log.read(bag))


def test_a_number_with_an_underscore_is_no_number(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("time,q\n0,1\n1,1_0\n")
    with pytest.raises(SurefootError, match="line 3: q: found '1_0', expected a number"):
        Log.read(path)


def test_brackets_in_a_name_cost_time_in_proportion(tmp_path):
    """The search for a unit used to try every bracket with all the rest of the name."""
    path = tmp_path / "a.csv"
    columns = ",".join(f"q{k}" + "(" * 990 for k in range(300))
    path.write_text(f"time,{columns},v [rad/s]\n" + "".join(f"{t}" + ",1" * 301 + "\n" for t in range(3)))
    began = time.process_time()
    assert Log.read(path).units["v [rad/s]"] == "rad/s" and time.process_time() - began < 10


def test_a_clock_beyond_signed_numbers_and_a_shape_of_true_are_no_defects(tmp_path):
    np.savez(tmp_path / "a.npz", time=np.arange(5, dtype="u8") + 2**63, q=np.arange(5.0))
    with pytest.raises(SurefootError, match="a.npz"):
        Log.read(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as z:
        z.writestr("time.npy", makers.npy("'<f8'", "(True,)") + bytes(8))
    with pytest.raises(SurefootError, match="b.npz"):
        Log.read(tmp_path / "b.npz")


def test_a_mapping_of_too_many_columns_is_refused_before_they_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("time,q\n0,1\n1,2\n")
    told = {"columns": {f"q{k}": {"from": "q"} for k in range(20_000)}}
    with pytest.raises(SurefootError, match="found 20000 columns, expected at most"):
        Log.read(tmp_path / "a.csv", told)


def test_a_name_longer_than_any_file_has_is_refused_in_words():
    with pytest.raises(SurefootError, match="cannot read it: File name too long"):
        Log.read("a" * 10_000 + ".csv")
