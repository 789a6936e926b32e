"""A small table that several people voted on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robustpll.clean.judge import Judgement
from robustpll.labels.candidates import Candidates
from robustpll.opinion import Opinion

CLASSES = ("ant", "bee", "cow")
SKILL = {"ada": 1.0, "bob": 0.8, "zoe": 0.4}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three clusters of 40; Ada is always right, Zoe seldom. Line 2 is the first row."""
    random = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 40)
    lines = ["name,size,legs,by ada,by bob,by zoe,gold"]
    for row, label in enumerate(truth):
        size, legs = random.normal(3 * label, 0.3, size=2)
        answers = [
            CLASSES[label if random.random() < skill else random.integers(3)]
            for skill in SKILL.values()
        ]
        lines.append(f"pet {row},{size:.4f},{legs:.4f},{','.join(answers)},{CLASSES[label]}")
    path = tmp_path / "pets.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def judged_as() -> Callable[..., Judgement]:
    """Makes a judgement without any training; classes are ant, bee, cow."""

    def made(
        probability: Any, sets: list[set[str]], features: Any = None, votes: Any = None
    ) -> Judgement:
        y = Candidates.of(votes if votes is not None else sets, classes=CLASSES)
        p = np.asarray(probability, dtype=np.float64)
        x = torch.arange(len(p), dtype=torch.float32)[:, None] if features is None else features
        return Judgement(y, Opinion.of_probability(p), x, np.zeros(len(p), dtype=bool))

    return made
