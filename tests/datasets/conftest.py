"""What the tests of datasets share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def letters_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder in which NotMNIST is decoded once for all tests."""
    return tmp_path_factory.mktemp("letters")


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder in which datasets are searched; the cache folder is apart."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
