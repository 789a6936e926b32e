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
    """What R runs of one dataset train on, and what they are tested on; one seed makes one run.

    Examples
    --------
    >>> from robustpll import load_dataset
    >>> from robustpll.datasets.noise import InstanceDependent
    >>> noise = InstanceDependent(epochs=2)
    >>> problem = Problem.of(load_dataset("digits"), noise, seeds=(0, 1, 2), device="cpu")
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
        """Split, scale by the training rows, and make candidates by `noise` where none are given.

        Rows are pictures where the dataset's are.
        """
        if dataset.labels is None or len(seeds) == 0:
            raise InputError(
                f"A problem needs true labels and at least one seed; got {dataset.title} with "
                f"{'no labels' if dataset.labels is None else 'labels'} and seeds={seeds!r}."
            )
        _refuse_no_noise(noise)
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
        """Runs of several datasets of equal shape as one bundle, one dataset after the other.

        >>> from robustpll import load_dataset
        >>> from robustpll.datasets.noise import Uniform
        >>> one = Problem.of(load_dataset("digits"), Uniform(), seeds=(0, 1), device="cpu")
        >>> Problem.joined([one, one]).test_labels.shape
        torch.Size([4, 360])
        """
        shapes = {(*each.task.candidates.shape[1:], *each.task.rows.shape) for each in problems}
        if len(shapes) != 1:
            raise InputError(
                f"A bundle needs problems of equal rows, classes and features; found {shapes}."
            )
        tasks = [each.task for each in problems]
        candidates, prior, weight = (
            torch.cat([getattr(task, name) for task in tasks])
            for name in ("candidates", "prior", "weight")
        )
        rows = Rows.joined([task.rows for task in tasks])
        seeds = tuple(seed for task in tasks for seed in task.seeds)
        return cls(
            Task(rows, candidates, prior, weight, seeds),
            Rows.joined([each.test for each in problems]),
            torch.cat([each.train_labels for each in problems]),
            torch.cat([each.test_labels for each in problems]),
        )


def _refuse_no_noise(noise: object) -> None:
    if not isinstance(noise, Noise | None):
        raise InputError(
            f"noise must be a Noise such as InstanceDependent(), or None; got {noise!r}."
        )


def pool_of(dataset: Dataset, device: torch.device) -> Tensor:
    """All rows in float32, (n, d) or (n, h, w); pictures from 0 to 1, all else unscaled.

    The unit matters: a pixel that is always black in training stays as it is elsewhere.
    """
    features = np.array(dataset.features, dtype=np.float32, order="C")  # torch wants to own it
    features /= dataset.white
    return torch.from_numpy(features).view(len(dataset), *(dataset.image_shape or (-1,))).to(device)


def _task(
    dataset: Dataset, noise: Noise | None, rows: Rows, labels: Tensor, seeds: tuple[int, ...]
) -> Task:
    """Training rows with candidates: given ones, or those that noise makes of labels (R, n)."""
    known = dataset.candidates
    if known is None:
        if noise is None:
            raise InputError(
                f"{dataset.title} has no candidates: pass a noise such as InstanceDependent()."
            )
        return Task.of(rows, noise.candidates(rows, labels, len(dataset.classes), seeds), seeds)
    candidates, prior = (
        torch.tensor(part, device=rows.device)[rows.at] for part in (known.matrix, known.prior)
    )
    if isinstance(noise, Flip) and noise.noise is None:
        draws = Draws.of(seeds, "flip noise", like=rows.shift)
        return Task.of(rows, noise.flipped(candidates, labels, draws), seeds)
    if noise is not None:
        raise InputError(
            f"{dataset.title} has candidates of its own: pass noise=None or Flip(share), or drop "
            "them with dataclasses.replace(dataset, candidates=None)."
        )
    return Task.of(rows, candidates, seeds, prior)
