"""From a dataset to what R runs train on, are tested on, and should be unsure of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustpll._display import Displayed
from robustpll.datasets.dataset import Dataset, Split
from robustpll.datasets.noise import Flip, Noise
from robustpll.engine.data import Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Displayed):
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
        cls, dataset: Dataset, noise: Noise | None, seeds: Sequence[int], device: str = "auto"
    ) -> Self:
        """Split a dataset, scale it by the training rows, and make candidates by `noise`.

        Noise is for datasets without candidates; `Flip` without noise is for those with them.
        """
        if dataset.labels is None or len(seeds) == 0:
            raise InputError(f"A problem needs true labels and a seed; got {dataset} and {seeds}.")
        pool = pool_of(dataset, chosen_device(device))
        labels = torch.tensor(dataset.labels, device=pool.device)
        splits = zip(*map(dataset.split, seeds), strict=True)
        train, test = (torch.from_numpy(np.stack(part)).to(pool.device) for part in splits)
        rows = scaled_rows(pool, train)
        task = _task(dataset, noise, rows, labels[train], tuple(seeds))
        return cls(task, rows.others(pool, test), labels[train], labels[test])

    @classmethod
    def joined(cls, problems: Sequence[Self]) -> Self:
        """Return the runs of several problems of equal shape as one problem."""
        tasks = [problem.task for problem in problems]

        def cat(parts: Sequence[Any], name: str) -> Tensor:
            return torch.cat([getattr(part, name) for part in parts])

        rows, seeds = Rows.joined([task.rows for task in tasks]), (task.seeds for task in tasks)
        candidates, prior, weight = (cat(tasks, n) for n in ("candidates", "prior", "weight"))
        answers = None if any(task.answers is None for task in tasks) else cat(tasks, "answers")
        task = Task(rows, candidates, prior, weight, tuple(chain(*seeds)), answers)
        test = Rows.joined([problem.test for problem in problems])
        return cls(task, test, cat(problems, "train_labels"), cat(problems, "test_labels"))


def pool_of(dataset: Dataset, device: torch.device) -> Tensor:
    """Return all rows in float32, (n, d) or (n, h, w); pictures from 0 to 1, all else unscaled.

    The unit matters: a pixel that is always black in training keeps it in other rows. Pictures in
    colour, (n, c, h, w), stay bytes.
    """
    if dataset.image_shape is not None and len(dataset.image_shape) == 3:
        pixels = torch.tensor(dataset.features).view(len(dataset), *dataset.image_shape)
        return pixels.to(device)
    features = np.array(dataset.features, dtype=np.float32, order="C")  # a copy for torch to own
    features /= dataset.white
    return torch.from_numpy(features).view(len(dataset), *(dataset.image_shape or (-1,))).to(device)


def scaled_rows(pool: Tensor, train: Tensor) -> Rows:
    """Return training rows (R, n) scaled by their extremes; bytes, by 255."""
    if pool.dtype != torch.uint8:
        return Rows.of(pool, train)
    scale = torch.full((len(train), 1, *pool.shape[1:]), 255.0, device=pool.device)
    return Rows(pool, train, torch.zeros_like(scale), scale)


def _task(
    dataset: Dataset, noise: Noise | None, rows: Rows, labels: Tensor, seeds: tuple[int, ...]
) -> Task:
    """Return training rows with the dataset's candidates, or those made from labels (R, n)."""
    known = dataset.candidates
    if known is None and isinstance(noise, Noise):
        return noise.task(rows, labels, len(dataset.classes), seeds)
    only_flips = isinstance(noise, Flip) and noise.noise is None
    if known is None or not (noise is None or only_flips):
        raise InputError(
            "noise must be None or Flip(share) for a dataset with candidates, and a Noise such as "
            f"Uniform() for one without; got {noise!r} for {dataset}."
        )
    task = candidates_task(rows, known, seeds)
    if isinstance(noise, Flip):
        return Task.of(rows, noise.flipped(rows, task.candidates, labels, seeds), seeds)
    return task


def candidates_task(rows: Rows, known: Candidates, seeds: tuple[int, ...]) -> Task:
    """Return the task of R runs on rows, whose indices are positions in the candidates."""
    answers, indices = known.answers, rows.indices  # answers (n, annotators), or None
    matrix, prior = (
        torch.tensor(part, device=rows.device)[indices] for part in (known.matrix, known.prior)
    )
    named = None if answers is None else torch.tensor(answers, device=rows.device)[indices]
    return Task.of(rows, matrix, seeds, prior, answers=named)


def ood_rows(
    problem: Problem,
    other: Dataset,
    subset: Literal["reference", "all"] = "reference",
    normalisation: Literal["own", "train"] = "own",
) -> Rows:
    """Return rows of another dataset for the runs of a problem.

    The subset is "all" rows or, as published, the first ones, as many as there are test rows
    ("reference"). They are scaled by all rows of the other dataset, as published ("own"), or by
    the training rows ("train").
    """
    if subset not in ("reference", "all") or normalisation not in ("own", "train"):
        rule = "subset must be 'reference' or 'all', and normalisation 'own' or 'train'"
        raise InputError(f"{rule}; got {subset!r} and {normalisation!r}.")
    rows = problem.task.rows
    pool = pool_of(other, rows.device)
    if tuple(pool.shape[1:]) != rows.shape:
        shapes = f"{tuple(pool.shape[1:])}; the problem needs {rows.shape}"
        raise InputError(f"{other.title} has rows of shape {shapes}.")
    everything = torch.arange(len(other), device=rows.device)[None]
    scaled_by_other = Rows.of(pool, everything).repeated(len(problem.task.seeds))
    count = len(other) if subset == "all" else len(problem.test)
    scale = scaled_by_other if normalisation == "own" else rows
    return scale.others(pool, scaled_by_other.indices[:, :count])


def hold_out(dataset: Dataset, name: Any, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Return a dataset without one of its classes, and the rows of that class.

    Both keep their parts of the split as the official split; a random one depends on the seed.

    >>> from robustpll import load_dataset
    >>> hold_out(load_dataset("digits"), 3)[0]
    Dataset(Digits without 3: 1614 rows, 64 features, 9 classes)
    """
    labels, names, y = dataset.labels, dataset.classes.tolist(), dataset.candidates
    if labels is None or len(names) < 3 or name not in names:
        rule = f"{dataset.title} must have true labels and at least 3 classes, one of them {name!r}"
        raise InputError(f"{rule}; its classes are {some_of(names, 20)}.")
    position, split = names.index(name), dataset.split(seed)
    is_known, classes = labels != position, np.delete(dataset.classes, position)
    if y is not None:  # refuses rows that have no other candidate
        y = Candidates.of(np.delete(y.matrix[is_known], position, axis=1), classes=classes)

    def part(is_kept: NDArray[np.bool_], **fields: Any) -> Dataset:
        new_index = np.cumsum(is_kept) - 1
        official = Split(*(new_index[rows[is_kept[rows]]] for rows in split))
        fields |= {"features": dataset.features[is_kept], "official": official}
        fields |= {"notes": (), "content": "", "people": None}  # they are of all rows
        return replace(dataset, **fields)

    new_labels = labels[is_known] - (labels[is_known] > position)
    title = f"{dataset.title} without {name}"
    known = part(is_known, title=title, labels=new_labels, classes=classes, candidates=y)
    title = f"{dataset.title}, only {name}"
    return known, part(~is_known, title=title, labels=None, candidates=None)
