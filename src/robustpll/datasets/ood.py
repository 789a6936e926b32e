"""Out-of-distribution rows: those of another dataset, or of a class that is held out."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from robustpll.datasets.dataset import Dataset, Split
from robustpll.datasets.problem import Problem, pool_of
from robustpll.engine.data import Rows
from robustpll.errors import InputError, some_of
from robustpll.labels.candidates import Candidates


def ood_rows(
    problem: Problem,
    other: Dataset,
    subset: Literal["reference", "all", "test-split"] = "reference",
    normalisation: Literal["own", "train"] = "own",
) -> Rows:
    """Return rows of another dataset for the runs of a problem.

    Parameters
    ----------
    problem, other : Problem, Dataset
        What the runs were trained on, and a dataset with rows of the same shape.
    subset : {"reference", "all", "test-split"}
        The first rows, as many as the problem has test rows, as published; all rows; or the test
        rows of the other dataset's split under each run's seed.
    normalisation : {"own", "train"}
        Whether to scale by all rows of the other dataset, as published, or by the training rows.

    Examples
    --------
    >>> from robustpll import load_dataset
    >>> from robustpll.datasets.noise import Uniform
    >>> held = hold_out(load_dataset("digits"), 9)
    >>> problem = Problem.of(held.known, Uniform(), (0, 1), device="cpu")
    >>> len(ood_rows(problem, held.ood, subset="all", normalisation="train"))
    180
    """
    if subset not in ("reference", "all", "test-split"):
        raise InputError(f"subset must be 'reference', 'all' or 'test-split'; got {subset!r}.")
    if normalisation not in ("own", "train"):
        raise InputError(f"normalisation must be 'own' or 'train'; got {normalisation!r}.")
    rows, seeds = problem.task.rows, problem.task.seeds
    pool = pool_of(other, rows.device)
    if tuple(pool.shape[1:]) != rows.shape:
        raise InputError(
            f"{other.title} has rows of shape {tuple(pool.shape[1:])}, but those of the problem "
            f"have {rows.shape}. Use a dataset of the same shape."
        )
    everything = torch.arange(len(other), device=rows.device)[None]
    scaled_by_other = Rows.of(pool, everything).repeated(len(seeds))
    indices = scaled_by_other.at
    if subset == "reference":
        indices = indices[:, : len(problem.test)]
    elif subset == "test-split":
        tests = np.stack([other.split(seed).test for seed in seeds])
        indices = torch.from_numpy(tests).to(rows.device)
    return (scaled_by_other if normalisation == "own" else rows).others(pool, indices)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A dataset without one of its classes, and the rows of that class."""

    known: Dataset
    ood: Dataset  # training rows first; its official split is the one they had before


def hold_out(dataset: Dataset, name: Any, seed: int = 0) -> HeldOut:
    """Remove the rows of a class from a dataset, and the class from the candidates.

    Both results keep their parts of the split as the official split. If the split is random, hold
    out the class once per seed.

    Examples
    --------
    >>> from robustpll import load_dataset
    >>> held = hold_out(load_dataset("digits"), 3)
    >>> held.known
    Dataset(Digits without 3: 1614 rows, 64 features, 9 classes)
    >>> held.ood.split(seed=0)
    Split(145 to train, 38 to test)
    """
    labels, names = dataset.labels, dataset.classes.tolist()
    if labels is None or len(names) < 3 or name not in names:
        raise InputError(
            f"{dataset.title} must have true labels, at least 3 classes, and the class {name!r}; "
            f"its classes are {some_of(names, 20)}."
        )
    position = names.index(name)
    is_known, split = labels != position, dataset.split(seed)
    new_index = np.cumsum(is_known) - 1  # of a known row
    parts = [new_index[part[is_known[part]]] for part in (split.train, split.test)]
    train, test = (part[~is_known[part]] for part in (split.train, split.test))
    known = replace(
        dataset,
        title=f"{dataset.title} without {name}",
        features=dataset.features[is_known],
        labels=labels[is_known] - (labels[is_known] > position),
        classes=np.delete(dataset.classes, position),
        candidates=_without(dataset.candidates, position, np.flatnonzero(is_known)),
        notes=tuple(f"before {name} was held out: {note}" for note in dataset.notes),
        official=Split(*parts),
        content="",
    )
    n = len(train) + len(test)
    ood = replace(
        dataset,
        title=f"{dataset.title}, only {name}",
        features=dataset.features[np.concatenate([train, test])],
        labels=None,
        candidates=None,
        notes=(),
        official=Split(np.arange(len(train)), np.arange(len(train), n)),
        content="",
    )
    return HeldOut(known, ood)


def _without(
    candidates: Candidates | None, position: int, known: NDArray[np.int64]
) -> Candidates | None:
    if candidates is None:
        return None
    matrix = np.delete(candidates.matrix[known], position, axis=1)
    empty = known[~matrix.any(-1)]
    if len(empty):
        raise InputError(
            f"Without class {candidates.classes[position]}, no candidate is left in {len(empty)} "
            f"rows of other classes ({some_of(empty)}). Hold out another class."
        )
    return Candidates.of(matrix, classes=np.delete(candidates.classes, position))
