"""Files of strangers: regular, of bounded size, and JSON that says each thing once."""

import os

import pytest

from surefoot import files
from surefoot.errors import SurefootError


def test_a_file_is_read_whole_up_to_its_largest_size(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    assert files.read_bytes(path, 100) == b"x" * 100
    with pytest.raises(SurefootError, match="a: found 100 bytes, expected at most 99"):
        files.read_bytes(path, 99)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for name, why in (
        ("pipe.json", "found a device, pipe or socket, expected a file"),
        ("zero.json", "found a device, pipe or socket, expected a file"),
        ("loop.json", "cannot read it"),
        (".", "found a folder, expected a file"),
        ("gone.json", "no such file"),
        ("nul\0.json", "cannot read it"),
    ):
        with pytest.raises(SurefootError, match=why):
            files.read_json(tmp_path / name)


def test_a_large_sparse_file_costs_nothing(tmp_path):
    with open(tmp_path / "sparse.json", "wb") as f:
        f.truncate(1 << 40)
    with pytest.raises(SurefootError, match="found 1099511627776 bytes, expected at most"):
        files.read_json(tmp_path / "sparse.json")


@pytest.mark.parametrize(
    "text, why",
    [
        ('{"a": 1, "b": {"rate": 1, "rate": 2}}', "found the key 'rate' twice in one object"),
        ('["\\ud800"]', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
        ("[" * 100_000, "too many levels of nesting"),
        ("[NaN]", "NaN is not a number JSON allows"),
        ("[1e999]", "found the number 1e999, expected one within 1e308"),
        ("[1" + "0" * 400 + "]", "found a number of 401 digits"),
        ('{"a": 1,}', "line 1: .*; expected JSON"),
        ("", "expected JSON"),
    ],
)
def test_json_that_says_no_one_thing_is_refused(text, why):
    with pytest.raises(SurefootError, match=f"here: .*{why}"):
        files.parse_json(text, "here")


def test_json_keeps_what_it_says():
    assert files.parse_json(b'\xef\xbb\xbf{"a": [1, -2.5e3, true, null, "\\ud83d\\ude00"]}', "") == {
        "a": [1, -2500.0, True, None, "\U0001f600"]
    }


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="a file of Linux")
def test_a_file_whose_reading_fails_is_refused_in_words():
    with pytest.raises(SurefootError, match="/proc/self/mem: cannot read it: Input/output error"):
        files.read_head("/proc/self/mem", 16)


LAID = {"a link": os.symlink, "a link to nothing": lambda _, at: os.symlink("nowhere", at), "a second name": os.link}


@pytest.mark.parametrize("laid", LAID)
def test_a_lock_is_not_written_through_what_was_laid_under_its_name(tmp_path, laid):
    (tmp_path / "precious").write_text("kept")
    LAID[laid](tmp_path / "precious", tmp_path / "run.lock")
    with pytest.raises(SurefootError, match=r"run\.lock: found .* expected a lock"):
        files.Lock(tmp_path / "run.lock", "writing")
    assert (tmp_path / "precious").read_text() == "kept" and not (tmp_path / "nowhere").exists()


def test_a_lock_that_is_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "run.lock")
    with pytest.raises(SurefootError, match="pipe"):
        files.Lock(tmp_path / "run.lock", "writing")


@pytest.mark.parametrize("laid", LAID)
def test_a_write_does_not_go_through_what_was_laid_where_it_begins(tmp_path, laid):
    (tmp_path / "precious").write_text("kept")
    LAID[laid](tmp_path / "precious", tmp_path / f".a.json.{os.getpid()}.part")
    files.write(tmp_path / "a.json", b"new")
    assert (tmp_path / "precious").read_text() == "kept" and sorted(os.listdir(tmp_path)) == ["a.json", "precious"]
    assert (tmp_path / "a.json").read_bytes() == b"new" and not (tmp_path / "a.json").is_symlink()


@pytest.mark.parametrize("opens, closes", [("[", "]"), ('{"a":', "}")])
def test_what_can_be_parsed_can_be_shown_and_sealed_further_down(opens, closes):
    """Of all depths of nesting up to Python's own limit, each is either refused or of use."""

    def below(calls, act):
        return act() if not calls else below(calls - 1, act)

    for depth in range(100, 1100, 20):
        try:
            value = files.parse_json(opens * depth + "1" + closes * depth, "x.json")
        except SurefootError:
            assert depth > 100
            break
        assert below(150, lambda value=value: len(str(value))) > depth and below(
            150, lambda value=value: files.seal({"b": value})
        )
    else:
        pytest.fail("nesting without end was parsed")
