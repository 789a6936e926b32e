"""Rows that a training only watches, to choose its best epoch without a true label."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from robustpll.engine.data import Task
from robustpll.engine.predict import Fitted
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_share
from robustpll.methods import Method
from robustpll.opinion import Opinion


def fit_watching(method: Method, task: Task, share: float | None) -> tuple[Fitted, Tensor, Opinion]:
    """What a method learns from one run, and the label weights and opinion of all its rows.

    A share of the rows, drawn by the run's seed, is watched rather than learned from. Of these the
    opinion is what the model predicts, within their candidates.
    """
    if share is None:
        fitted = method.fit(task)
        return fitted, fitted.label_weights[0], fitted.opinion[0]
    taught, watched = parted(len(task), share, task.seeds[0])
    aside = task.some_rows(watched)
    fitted = method.fit(task.some_rows(taught), watch=aside)
    held = replace(fitted.predict(aside.rows), prior=aside.prior.double()).within(aside.candidates)
    back = torch.cat([taught, watched]).argsort().to(aside.prior.device)

    def all_rows(learned: Tensor, seen: Tensor) -> Tensor:
        return torch.cat([learned[0].to(seen), seen[0]])[back]

    opinion = Opinion(
        all_rows(fitted.opinion.belief, held.belief),
        all_rows(fitted.opinion.prior, held.prior),
        all_rows(fitted.opinion.uncertainty, held.uncertainty),
    )
    weights = all_rows(fitted.label_weights, held.probability).to(fitted.label_weights)
    return fitted, weights, opinion


def parted(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Positions to learn from and to watch, drawn at random, in their order.

    >>> taught, watched = parted(10, 0.2, seed=0)
    >>> len(taught), len(watched)
    (8, 2)
    """
    count = round(n * share) if is_share(share) else 0
    if not 1 <= count <= n - 2:
        raise InputError(
            "watch must be None, or the share of rows to set aside: a number between 0 and 1 that "
            f"leaves 2 rows to learn from and 1 to watch. Got {share!r} for {n} rows."
        )
    drawn = np.random.default_rng(seed_of(seed, "watch")).permutation(n)
    return torch.from_numpy(np.sort(drawn[count:])), torch.from_numpy(np.sort(drawn[:count]))
