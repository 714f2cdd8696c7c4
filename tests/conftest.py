"""What every test may count on."""

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small nets gain nothing from threads, which wait for each other on a busy machine; a Learner sets its own count.

    Set before each test rather than once: what a Learner set is the process's, and would outlast its test.
    """
    if "torch" in sys.modules:  # to import it takes seconds, which a test that needs none should not wait for
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes what surefoot keeps for its user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture
def real_data() -> Path:
    """Folder of logs recorded on real robots, which are no part of the project."""
    root = Path(__file__).parents[1]
    folder = Path(os.environ.get("SUREFOOT_REAL_DATA") or root.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real logs: neither $SUREFOOT_REAL_DATA nor {folder}")
    return folder


@pytest.fixture
def motions() -> Path:
    """Folder of recordings of people and robots, which are no part of the project."""
    folder = Path(os.environ.get("SUREFOOT_MOTIONS") or Path(__file__).parents[2] / "shared" / "motions")
    if not folder.is_dir():
        pytest.skip(f"no recordings: neither $SUREFOOT_MOTIONS nor {folder}")
    return folder
