"""What the tests of datasets share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def letters_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder in which NotMNIST is decoded once for all tests."""
    return tmp_path_factory.mktemp("letters")
