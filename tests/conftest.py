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


@pytest.fixture(scope="session")
def real_models() -> Path:
    """The directory of robot models that are not ours to ship; tests that need them are skipped where it is missing."""
    path = Path(os.environ.get("SUREFOOT_MODELS") or Path(__file__).parents[2] / "shared" / "models")
    if not path.is_dir():
        pytest.skip(f"no robot models at {path}; point SUREFOOT_MODELS at a directory that has them")
    return path
