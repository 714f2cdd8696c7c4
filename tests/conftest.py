"""What every test may count on."""

import sys

import pytest


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Small nets gain nothing from threads, which wait for each other on a busy machine; a Learner sets its own count.

    Set before each test rather than once: what a Learner set is the process's, and would outlast its test.
    """
    if "torch" in sys.modules:  # to import it takes seconds, which a test that needs none should not wait for
        sys.modules["torch"].set_num_threads(1)
