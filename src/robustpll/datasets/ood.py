"""Out-of-distribution rows: those of another dataset, or of a class that is held out."""

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

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

    The subset is "all" rows; the first ones, as many as there are test rows, as published
    ("reference"); or the test rows of the other dataset under each run's seed. They are scaled by
    all rows of the other dataset, as published ("own"), or by the training rows ("train").
    """
    if subset not in ("reference", "all", "test-split") or normalisation not in ("own", "train"):
        raise InputError(
            "subset must be 'reference', 'all' or 'test-split', and normalisation 'own' or 'train';"
            f" got {subset!r} and {normalisation!r}."
        )
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


class HeldOut(NamedTuple):
    """A dataset without one of its classes, and the rows of that class."""

    known: Dataset
    ood: Dataset  # training rows first


def hold_out(dataset: Dataset, name: Any, seed: int = 0) -> HeldOut:
    """Remove the rows of a class from a dataset, and the class from the candidates.

    Both results keep their parts of the split as the official split. If the split is random, hold
    out the class once per seed.

    >>> from robustpll import load_dataset
    >>> hold_out(load_dataset("digits"), 3).known
    Dataset(Digits without 3: 1614 rows, 64 features, 9 classes)
    """
    labels, names, y = dataset.labels, dataset.classes.tolist(), dataset.candidates
    if labels is None or len(names) < 3 or name not in names:
        raise InputError(
            f"{dataset.title} must have true labels, at least 3 classes, and the class {name!r}; "
            f"its classes are {some_of(names, 20)}."
        )
    position, split = names.index(name), dataset.split(seed)
    is_known, classes = labels != position, np.delete(dataset.classes, position)
    new_index = np.cumsum(is_known) - 1  # of a known row
    known_parts = [new_index[part[is_known[part]]] for part in (split.train, split.test)]
    train, test = (part[~is_known[part]] for part in (split.train, split.test))
    if y is not None:  # refuses rows that have no other candidate
        y = Candidates.of(np.delete(y.matrix[is_known], position, axis=1), classes=classes)
    known = replace(
        dataset,
        title=f"{dataset.title} without {name}",
        features=dataset.features[is_known],
        labels=labels[is_known] - (labels[is_known] > position),
        classes=classes,
        candidates=y,
        notes=tuple(f"before {name} was held out: {note}" for note in dataset.notes),
        official=Split(*known_parts),
        content="",
    )
    ood = replace(
        dataset,
        title=f"{dataset.title}, only {name}",
        features=dataset.features[np.concatenate([train, test])],
        labels=None,
        candidates=None,
        notes=(),
        official=Split(np.arange(len(train)), np.arange(len(train), len(train) + len(test))),
        content="",
    )
    return HeldOut(known, ood)
