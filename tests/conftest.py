"""What tests share: small data, and honest skips."""

import importlib.util
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from robustpll.datasets.catalog import CATALOG
from robustpll.engine.data import Rows, Task

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

# No test depends on the machine's speed: it may be busy with something else.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

# The background jobs of a shell ignore Ctrl-C, and so would all that tests start.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _absent() -> dict[str, str | None]:
    """Why tests of a kind cannot run here; None where they can."""
    data = os.environ.get("ROBUSTPLL_DATA")
    return {
        "data": None if data and Path(data).is_dir() else "ROBUSTPLL_DATA names no folder",
        "gpu": None if torch.cuda.is_available() else "torch finds no CUDA device",
        "browser": _no_browser(),
        "ray": None if importlib.util.find_spec("ray") else "the extra `ray` is not installed",
    }


def _no_browser() -> str | None:
    if not importlib.util.find_spec("playwright"):
        return "Playwright is not installed"
    return None if shutil.which("chromium") else "chromium is not on the PATH"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test whose needs are not met is skipped; if ROBUSTPLL_REQUIRE names them, it fails."""
    required = os.environ.get("ROBUSTPLL_REQUIRE", "").split(",")
    for kind, reason in _absent().items():
        if item.get_closest_marker(kind) and reason:
            if kind in required:
                pytest.fail(f"{kind!r} is required here, but {reason}", pytrace=False)
            pytest.skip(f"needs {kind}: {reason}")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Products of several threads add up in an order that depends on the number of models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


@pytest.fixture(scope="session")
def task_of(digits: Any, candidates: np.ndarray) -> Callable[..., Task]:
    """Makes a task in float64; a run has so many rows, which are drawn by its seed."""

    def make(
        *seeds: int, rows: int = 300, device: str = "cpu", shape: tuple[int, ...] = (64,)
    ) -> Task:
        generators = (torch.Generator().manual_seed(seed) for seed in seeds)
        drawn = [torch.randperm(len(candidates), generator=g)[:rows] for g in generators]
        indices = torch.stack(drawn).to(device)
        pool = torch.from_numpy(digits[0]).double().to(device)
        sets = torch.from_numpy(candidates).to(device)[indices]
        return Task.of(Rows.of(pool.view(-1, *shape), indices), sets, seeds)

    return make


@pytest.fixture
def unpublished(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Forgets the sums of a dataset's files, or sets others, so that made files pass for it."""

    def forget(name: str, sums: Iterable[str] = ()) -> None:
        entry = CATALOG[name]
        files = tuple(
            replace(file, sha256=content) for file, content in zip_longest(entry.files, sums)
        )
        monkeypatch.setitem(CATALOG, name, replace(entry, files=files))

    return forget


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def contrast() -> Callable[["Locator"], float]:
    """The contrast of an element's words with the ground behind them, as WCAG defines it."""
    script = """(node) => {
      const light = (text) => {
        const rgb = text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
        const [r, g, b] = rgb.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      let ground = node;
      const under = () => getComputedStyle(ground).backgroundColor;
      while (under() === "rgba(0, 0, 0, 0)") ground = ground.parentNode;
      const pair = [getComputedStyle(node).color, under()].map(light);
      return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    }"""
    return lambda place: float(place.evaluate(script))


@pytest.fixture
def show(browser: "Browser", tmp_path: Path) -> Iterator[Callable[..., "Page"]]:
    """Opens a page; at the end nothing must have gone wrong in it, nor been asked of a network."""
    wrong: list[str] = []
    contexts: list[Any] = []

    def open_page(text: str, complaints: bool = False, **options: Any) -> "Page":
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        if not complaints:
            page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        return page

    asked: list[str] = []
    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(("data:", tmp_path.as_uri()))] == []
