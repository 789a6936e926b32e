"""What a fitted training is checked for."""

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from robustpll.engine.data import Task
from robustpll.engine.predict import Fitted, Networks
from robustpll.errors import InputError
from robustpll.methods.auto import Stack
from robustpll.opinion import Opinion


def check_training(
    fitted: Fitted, task: Task, weights: Tensor, opinion: Opinion, *, stopped_early: bool
) -> None:
    """Raise InputError if a training diverged, and warn if its model learned little.

    It learned little if half of the rows have several classes in first place and most predictions
    are no candidates, if a random class is rarely a candidate, and so are the predictions, or if
    all rows get the same class, though no class is a candidate of most rows.
    """
    numbers = [weights, opinion.belief, opinion.uncertainty]
    if isinstance(fitted, Networks | Stack):
        sample = task.some_rows(torch.arange(0, len(task), -(-len(task) // 1000)))  # 1,000 rows
        if isinstance(fitted, Networks):
            predicted = replace(fitted, method=fitted.method.with_passes(16)).predict(sample.rows)
            numbers += [*fitted.net.state_dict().values()]
            numbers += [] if stopped_early else fitted.history.losses[-1:]
        else:
            predicted = fitted.predict(sample.rows)
        numbers += [predicted.belief, predicted.uncertainty]
    if not all(bool(tensor.isfinite().all()) for tensor in numbers):
        raise InputError(
            "Training diverged: the model has numbers that are not finite. Fit again with a lower "
            "learning_rate, and look for rows of a far larger weight than others."
        )
    if not isinstance(fitted, Networks | Stack) or len(sample) < 100:  # too few for a warning
        return
    labels = predicted.predicted()[..., None].to(sample.candidates.device)
    weight = sample.weight / sample.weight.sum().clamp(min=1e-10)
    rate = float((sample.candidates.gather(-1, labels)[..., 0] * weight).sum())
    tied = float(predicted.guess.double().mean()) >= 0.5 and rate < 0.5
    rare = float(sample.candidates.double().mean()) < 0.05 and rate < 0.1
    most_frequent = float((sample.candidates * weight[..., None]).sum(1).max())
    single = int(labels.unique().numel()) == 1 and most_frequent < 0.8 and len(sample) >= 500
    if tied or rare or single:
        problem = f"in {rate:.1%} of its training rows the predicted class is a candidate"
        message = (
            f"{fitted.method.title} has learned little: "
            f"{'all rows get the same class' if single else problem}. Train for more epochs, try "
            'another learning_rate, or use "proden".'
        )
        warnings.warn(message, UserWarning, stacklevel=4)
