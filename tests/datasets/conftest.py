"""What the tests of datasets share."""

from pathlib import Path

import pytest


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder in which datasets are searched; the cache folder is apart."""
    monkeypatch.setenv("ROBUSTPLL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"
