"""Tasks on digits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from robustpll.engine.data import Rows, Task


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
