"""Rows of no known class: another dataset's, or those of a class that is held out."""

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

Subset = Literal["reference", "all", "test-split"]
Normalisation = Literal["own", "train"]


def ood_rows(
    problem: Problem,
    other: Dataset,
    subset: Subset = "reference",
    normalisation: Normalisation = "own",
) -> Rows:
    """Another dataset's rows, for the runs of a problem.

    Parameters
    ----------
    problem : Problem
        What the runs were trained on.
    other : Dataset
        Has rows of the same shape.
    subset : {"reference", "all", "test-split"}
        As many of the first rows as the problem has test rows, as in the published experiments;
        all rows; or the test rows of the other dataset's split under each run's seed.
    normalisation : {"own", "train"}
        Whether features are scaled by all rows of the other dataset, as in the published
        experiments, or by the training rows.

    Examples
    --------
    >>> from robustpll import load_dataset
    >>> from robustpll.datasets.noise import InstanceDependent
    >>> held = hold_out(load_dataset("digits"), 9)
    >>> problem = Problem.of(held.known, InstanceDependent(epochs=2), (0, 1), device="cpu")
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
            f"have {rows.shape}. Take a dataset of the same shape."
        )
    every = torch.arange(len(other), device=rows.device)[None]
    own = Rows.of(pool, every).repeated(len(seeds))
    if subset == "test-split":
        at = torch.from_numpy(np.stack([other.split(seed).test for seed in seeds])).to(rows.device)
    else:
        at = own.at if subset == "all" else own.at[:, : len(problem.test)]
    return (own if normalisation == "own" else rows).others(pool, at)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A dataset without one of its classes, and the rows of that class."""

    known: Dataset
    ood: Dataset  # rows of the training part first; its split is the one they had before


def hold_out(dataset: Dataset, name: Any, seed: int = 0) -> HeldOut:
    """Make a class unknown: its rows leave the dataset, and its column the candidates.

    Rows are taken out of the parts of a split, which then is the official one. A random split is
    that of `seed`, so a dataset with such a split is held out anew for each seed.

    Parameters
    ----------
    dataset : Dataset
        With true labels.
    name : object
        One of ``dataset.classes``.
    seed : int
        Of the split, where it is random.

    Examples
    --------
    >>> from robustpll import load_dataset
    >>> held = hold_out(load_dataset("digits"), 3)
    >>> held.known
    Dataset(Digits without 3: 1614 rows, 64 features, 9 classes)
    >>> held.ood.split(seed=0)
    Split(145 to train, 38 to test)
    """
    labels, gone = _checked(dataset, name)
    split = dataset.split(seed)
    is_gone = labels == gone
    kept = np.flatnonzero(~is_gone)
    new = np.cumsum(~is_gone) - 1  # where a kept row stands afterwards
    known = replace(
        dataset,
        title=f"{dataset.title} without {name}",
        features=dataset.features[kept],
        labels=labels[kept] - (labels[kept] > gone),
        classes=np.delete(dataset.classes, gone),
        candidates=_without(dataset.candidates, gone, kept),
        notes=tuple(f"before {name} was held out: {note}" for note in dataset.notes),
        official=Split(*(new[part[~is_gone[part]]] for part in (split.train, split.test))),
        content="",
    )
    train, test = (part[is_gone[part]] for part in (split.train, split.test))
    at = np.concatenate([train, test])
    ood = replace(
        dataset,
        title=f"{dataset.title}, {name} alone",
        features=dataset.features[at],
        labels=None,
        candidates=None,
        notes=(),
        content="",
        official=Split(np.arange(len(train)), np.arange(len(train), len(at))),
    )
    return HeldOut(known, ood)


def _checked(dataset: Dataset, name: Any) -> tuple[NDArray[np.int64], int]:
    """True labels, and which class the name stands for."""
    names = dataset.classes.tolist()
    if dataset.labels is None or len(names) < 3:
        raise InputError(
            f"{dataset.title} needs true labels and at least 3 classes, so that one can be held "
            "out. Use another dataset."
        )
    if name not in names:
        raise InputError(
            f"{dataset.title} has no class {name!r}; the classes are {some_of(names, 20)}."
        )
    return dataset.labels, names.index(name)


def _without(
    candidates: Candidates | None, gone: int, kept: NDArray[np.int64]
) -> Candidates | None:
    if candidates is None:
        return None
    matrix = np.delete(candidates.matrix[kept], gone, axis=1)
    empty = kept[~matrix.any(-1)]
    if len(empty):
        raise InputError(
            f"Without class {candidates.classes[gone]} there is no candidate left in {len(empty)} "
            f"rows ({some_of(empty)}), whose true label is another. Hold out another class."
        )
    return Candidates.of(matrix, classes=np.delete(candidates.classes, gone))
