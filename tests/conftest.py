"""What tests share: small data, and honest skips."""

import importlib.util
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def _absent() -> dict[str, str | None]:
    """Why tests of a kind cannot run here; None where they can."""
    data = os.environ.get("ROBUSTPLL_DATA")
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    return {
        "data": None if data and Path(data).is_dir() else "ROBUSTPLL_DATA names no folder",
        "gpu": None if torch.cuda.is_available() else "torch finds no CUDA device",
        "browser": None if browser else "chromium is not on the PATH",
        "ray": None if importlib.util.find_spec("ray") else "the extra `ray` is not installed",
    }


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test whose needs are not met is skipped; if ROBUSTPLL_REQUIRE names them, it fails."""
    required = os.environ.get("ROBUSTPLL_REQUIRE", "").split(",")
    for kind, reason in _absent().items():
        if item.get_closest_marker(kind) and reason:
            if kind in required:
                pytest.fail(f"{kind!r} is required here, but {reason}", pytrace=False)
            pytest.skip(f"needs {kind}: {reason}")


@pytest.fixture(scope="session")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows, test rows, and their true labels."""
    X, y = load_digits(return_X_y=True)
    return tuple(train_test_split(X, y, test_size=0.3, random_state=0, stratify=y))


@pytest.fixture(scope="session")
def candidates(digits: tuple[np.ndarray, ...]) -> np.ndarray:
    """For the training rows: each wrong class is a candidate with probability 0.3."""
    labels = digits[2]
    drawn = np.random.default_rng(0).random((len(labels), 10)) < 0.3
    drawn[np.arange(len(labels)), labels] = True
    return drawn
