"""A small table with votes, cleaned once for all tests that only look at the result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from robustpll.clean.judge import Judgement, judgement
from robustpll.cli import app
from robustpll.labels.candidates import Candidates
from robustpll.opinion import Opinion

CLASSES = ("ant", "bee", "cow")
SKILL = {"ada": 1.0, "bob": 0.8, "zoe": 0.4}
FORM = ("--votes", "by ", "--truth", "gold", "--ignore", "name")


def write_pets(folder: Path) -> Path:
    """Three clusters of 40; Ada is always right, Zoe seldom. Line 2 is the first row."""
    random = np.random.default_rng(0)
    lines = ["name,size,legs,by ada,by bob,by zoe,gold"]
    for row, label in enumerate(np.repeat([0, 1, 2], 40)):
        size, legs = random.normal(3 * label, 0.3, size=2)
        answers = [
            CLASSES[label if random.random() < skill else random.integers(3)]
            for skill in SKILL.values()
        ]
        lines.append(f"pet {row},{size:.4f},{legs:.4f},{','.join(answers)},{CLASSES[label]}")
    path = folder / "pets.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return write_pets(tmp_path)


def run_clean(
    path: Path,
    *options: str,
    out: str | Path = "out",
    form: tuple[str, ...] = FORM,
    baselines: bool = False,
    method: str | None = "pl_knn",
) -> Any:
    """Run `robustpll clean`; None is the default. `out` is relative to the table's folder."""
    line = ["clean", str(path), "--out", str(path.parent / out)]
    line += [] if method is None else ["--method", method]
    line += [] if baselines else ["--no-baselines"]
    return CliRunner().invoke(app, [*line, *form, *options])


@pytest.fixture(scope="session")
def run() -> Callable[..., Any]:
    return run_clean


@pytest.fixture(scope="session")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The table in its folder, cleaned into `out`, and what the command printed."""
    path = write_pets(tmp_path_factory.mktemp("cleaned"))
    return path, run_clean(path)


@pytest.fixture(scope="session")
def judged_as() -> Callable[..., Judgement]:
    """Makes a judgement without any training; classes are ant, bee, cow."""

    def make(probability: Any, sets: Any, features: Any = None, decided: Any = None) -> Judgement:
        p = np.asarray(probability, dtype=np.float64)
        x = torch.arange(len(p), dtype=torch.float32)[:, None] if features is None else features
        y = Candidates.of(sets, classes=CLASSES)
        return judgement(y, Opinion.of_probability(p), x, decided)

    return make
