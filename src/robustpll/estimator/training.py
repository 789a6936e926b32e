"""What `fit` does around a method: row weights, early stopping, and a check of the result."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from robustpll.engine.data import Task
from robustpll.engine.predict import Fitted, Networks
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_share, some_of
from robustpll.labels.candidates import Candidates
from robustpll.methods import Method
from robustpll.opinion import Opinion

ClassWeight = Mapping[Any, float] | str | None

# Of `check_training`
SAMPLE, FEWEST = 1000, 100  # training rows to predict; fewer are too few for a warning
PASSES = 16  # of a method that predicts by random passes
TIED = 0.5  # share of rows with several classes in first place
RARELY = 0.1  # share of rows whose predicted class is a candidate
BY_CHANCE = 0.05  # the same for a class drawn at random


def row_weights(
    candidates: Candidates, class_weight: ClassWeight, sample_weight: ArrayLike | None
) -> NDArray[np.float64]:
    """Weights (n,) with mean 1; a row's class weight is the mean over its candidates' prior."""
    weight = _checked("sample_weight", sample_weight, len(candidates))
    if class_weight is not None:
        of_class = _class_weights(candidates, class_weight)
        weight = weight / weight.max() * (candidates.prior @ (of_class / of_class.max()))
    if not (weight.any() and np.isfinite(weight).all()):
        raise InputError(
            "sample_weight or class_weight gives all rows the weight 0, or one that is not finite."
        )
    weight = weight / weight.max()  # first, so that the mean of huge weights does not overflow
    return np.asarray(weight / weight.mean())


def _class_weights(candidates: Candidates, class_weight: ClassWeight) -> NDArray[np.float64]:
    """One weight for each class, (k,); scikit-learn's function would ignore misspelt names."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        mass = candidates.prior.sum(0, dtype=np.float64)
        return np.asarray(np.divide(1.0, mass, out=np.zeros_like(mass), where=mass > 0))
    if not isinstance(class_weight, Mapping):
        raise InputError(f"class_weight must be None, 'balanced' or a dict; got {class_weight!r}.")
    names = candidates.classes.tolist()
    unknown = [name for name in class_weight if name not in names]
    if unknown:
        raise InputError(
            f"class_weight names unknown classes ({some_of(map(repr, unknown))}): the classes are "
            f"{some_of(map(repr, names), 10)}. Correct the names."
        )
    return _checked("class_weight", [class_weight.get(name, 1.0) for name in names], len(names))


def _checked(name: str, weights: Any, n: int) -> NDArray[np.float64]:
    """Finite weights of at least 0, (n,); None stands for ones."""
    try:
        checked: NDArray[np.float64] = _check_sample_weight(
            weights, np.empty((n, 0)), dtype=np.float64, ensure_non_negative=True
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be used: {error}") from error
    return checked


def fit_early_stopping(
    method: Method, task: Task, share: float | None
) -> tuple[Fitted, Tensor, Opinion]:
    """Fit one run; return the model, and the label weights and opinion of all rows.

    A share of the rows, if any, are validation rows: the training keeps the epoch that fits their
    candidates best. Their opinion is the model's prediction within their candidates.
    """
    if share is None:
        fitted = method.fit(task)
        return fitted, fitted.label_weights[0], fitted.opinion[0]
    training, validation = validation_split(len(task), share, task.seeds[0])
    aside = task.some_rows(validation)
    fitted = method.fit(task.some_rows(training), watch=aside)
    predicted = replace(fitted.predict(aside.rows), prior=aside.prior.double())
    predicted = predicted.within(aside.candidates)
    order = torch.cat([training, validation]).argsort().to(aside.prior.device)

    def all_rows(learned: Tensor, predicted: Tensor) -> Tensor:
        return torch.cat([learned[0].to(predicted), predicted[0]])[order]

    weights = all_rows(fitted.label_weights, predicted.probability).to(fitted.label_weights)
    learned = fitted.opinion
    belief, prior = (
        all_rows(learned.belief, predicted.belief),
        all_rows(learned.prior, predicted.prior),
    )
    uncertainty = all_rows(learned.uncertainty, predicted.uncertainty)
    return fitted, weights, Opinion(belief, prior, uncertainty)


def validation_split(n: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted positions of training rows and of validation rows, drawn at random."""
    count = round(n * share) if is_share(share) else 0
    if not 1 <= count <= n - 2:
        raise InputError(
            "watch must be None, or the share of rows to set aside: a number between 0 and 1 that "
            f"leaves 2 rows to learn from and 1 to watch. Got {share!r} for {n} rows."
        )
    order = np.random.default_rng(seed_of(seed, "watch")).permutation(n)
    return torch.from_numpy(np.sort(order[count:])), torch.from_numpy(np.sort(order[:count]))


def check_training(
    fitted: Fitted, task: Task, weights: Tensor, opinion: Opinion, *, watched: bool
) -> None:
    """Raise InputError if a training diverged, and warn if its networks learned little.

    It diverged if weights, opinions or the last loss are not finite (with early stopping the last
    loss does not count). It learned little if half of the rows have several classes in first place
    and most predictions are no candidates, or if hardly any prediction among many classes is one.
    """
    numbers = [weights, opinion.belief, opinion.uncertainty]
    if isinstance(fitted, Networks):
        sample = task.some_rows(torch.arange(0, len(task), -(-len(task) // SAMPLE)))
        predicted = replace(fitted, method=fitted.method.with_passes(PASSES)).predict(sample.rows)
        numbers += [predicted.belief, predicted.uncertainty, *fitted.net.state_dict().values()]
        numbers += [] if watched else fitted.history.losses[-1:]
    if not all(bool(tensor.isfinite().all()) for tensor in numbers):
        losses = fitted.history.loss  # (epochs, M)
        lost = (~losses.isfinite().all(-1)).nonzero().flatten().tolist()
        since = (
            f" The loss is not finite from epoch {lost[0] + 1} of {len(losses)} on." if lost else ""
        )
        raise InputError(
            f"Training diverged: the model has numbers that are not finite.{since} Fit again with "
            "a lower learning_rate, and look for rows of a far larger weight than others."
        )
    if not isinstance(fitted, Networks) or len(sample) < FEWEST:
        return
    labels = predicted.predicted()[..., None]
    weight = sample.weight / sample.weight.sum().clamp(min=1e-10)
    rate = float((sample.candidates.gather(-1, labels)[..., 0] * weight).sum())
    tied = float(predicted.guess.double().mean()) >= TIED and rate < 0.5
    rare = float(sample.candidates.double().mean()) < BY_CHANCE and rate < RARELY
    if tied or rare:
        remedy = "Train for more epochs, or try another learning_rate."
        if fitted.method.uncertain:
            remedy = (
                'Use a method without evidence, such as "proden". Or let evidence grow more '
                "easily, in Python, by kl_ceiling=0 or RobustPLLClassifier(adversary=0)."
            )
        message = (
            f"{fitted.method.title} has learned little: in {rate:.1%} of its training rows the "
            f"predicted class is a candidate, and it predicts {len(labels.unique()):,} of "
            f"{task.k:,} classes. {remedy}"
        )
        warnings.warn(message, UserWarning, stacklevel=4)
