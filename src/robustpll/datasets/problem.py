"""From a dataset to what R runs train on and are tested on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from robustpll.datasets.dataset import Dataset
from robustpll.datasets.noise import Flip, Noise
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.engine.random import Draws
from robustpll.errors import InputError


@dataclass(frozen=True, eq=False)
class Problem:
    """Training and test data of R runs on one dataset; each seed is a run.

    Examples
    --------
    >>> from robustpll import load_dataset
    >>> from robustpll.datasets.noise import Uniform
    >>> problem = Problem.of(load_dataset("digits"), Uniform(), seeds=(0, 1, 2), device="cpu")
    >>> problem.task.candidates.shape, problem.test_labels.shape
    (torch.Size([3, 1437, 10]), torch.Size([3, 360]))
    """

    task: Task
    test: Rows
    train_labels: Tensor  # (R, n)
    test_labels: Tensor  # (R, test rows)

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        noise: Noise | None,
        seeds: Sequence[int],
        device: str | torch.device = "auto",
    ) -> Self:
        """Split a dataset, scale it by the training rows, and make candidates by `noise`.

        Noise is for datasets without candidates; `Flip` without noise is for those with them.
        """
        if dataset.labels is None or len(seeds) == 0 or not isinstance(noise, Noise | None):
            raise InputError(
                "A problem needs true labels, a Noise such as Uniform() or None, and at least one "
                f"seed; got labels={dataset.labels}, noise={noise!r} and seeds={seeds!r}."
            )
        device = chosen_device(device)
        pool, labels = pool_of(dataset, device), torch.tensor(dataset.labels, device=device)
        splits = [dataset.split(seed) for seed in seeds]
        train, test = (
            torch.from_numpy(np.stack(parts)).to(device)  # (R, rows)
            for parts in zip(*((split.train, split.test) for split in splits), strict=True)
        )
        rows = Rows.of(pool, train)
        task = _task(dataset, noise, rows, labels[train], tuple(seeds))
        return cls(task, rows.others(pool, test), labels[train], labels[test])

    @classmethod
    def joined(cls, problems: Sequence[Self]) -> Self:
        """Return the runs of several problems of equal shape as one problem."""
        tasks = [problem.task for problem in problems]
        shapes = {(*task.candidates.shape[1:], *task.rows.shape) for task in tasks}
        if len(shapes) != 1:
            raise InputError(
                f"A bundle needs problems of equal rows, classes and features; got {shapes}."
            )
        return cls(
            Task(
                Rows.joined([task.rows for task in tasks]),
                torch.cat([task.candidates for task in tasks]),
                torch.cat([task.prior for task in tasks]),
                torch.cat([task.weight for task in tasks]),
                tuple(seed for task in tasks for seed in task.seeds),
            ),
            Rows.joined([problem.test for problem in problems]),
            torch.cat([problem.train_labels for problem in problems]),
            torch.cat([problem.test_labels for problem in problems]),
        )


def pool_of(dataset: Dataset, device: torch.device) -> Tensor:
    """Return all rows in float32, (n, d) or (n, h, w); pictures from 0 to 1, all else unscaled.

    The unit matters: a pixel that is always black in training keeps it in other rows.
    """
    features = np.array(dataset.features, dtype=np.float32, order="C")  # a copy for torch to own
    features /= dataset.white
    return torch.from_numpy(features).view(len(dataset), *(dataset.image_shape or (-1,))).to(device)


def _task(
    dataset: Dataset, noise: Noise | None, rows: Rows, labels: Tensor, seeds: tuple[int, ...]
) -> Task:
    """Return training rows with the dataset's candidates, or those made from labels (R, n)."""
    known = dataset.candidates
    if known is None:
        if noise is None:
            raise InputError(f"{dataset.title} has no candidates: pass a noise such as Uniform().")
        return Task.of(rows, noise.candidates(rows, labels, len(dataset.classes), seeds), seeds)
    candidates, prior = (
        torch.tensor(part, device=rows.device)[rows.at] for part in (known.matrix, known.prior)
    )
    if noise is None:
        return Task.of(rows, candidates, seeds, prior)
    if isinstance(noise, Flip) and noise.noise is None:
        draws = Draws.of(seeds, "flip noise", like=rows.shift)
        return Task.of(rows, noise.flipped(candidates, labels, draws), seeds)
    raise InputError(
        f"{dataset.title} has candidates of its own: pass noise=None or Flip(share), or drop them "
        "with dataclasses.replace(dataset, candidates=None)."
    )
