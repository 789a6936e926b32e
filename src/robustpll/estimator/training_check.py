"""Whether a training came to anything: numbers that are finite, and labels better than guesses."""

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from robustpll.engine.data import Task
from robustpll.engine.predict import Fitted, Networks
from robustpll.errors import InputError
from robustpll.opinion import Opinion

LOOKED_AT = 1000  # training rows, at the most
FEWEST = 100  # of them: fewer tell little, and make for few steps
PASSES = 16  # of a method that predicts by random passes
TIED = 0.5  # share of rows of which the model says the same of several classes
RARELY = 0.1  # share of rows whose predicted class is a candidate
BY_CHANCE = 0.05  # the same for a class drawn at random, at the most


def check_training(
    fitted: Fitted, task: Task, weights: Tensor, opinion: Opinion, *, watched: bool
) -> None:
    """Refuses what diverged, and warns of what collapsed; `weights` and `opinion` of all rows.

    Diverged: numbers are not finite in the networks, in what is held of the training rows or
    predicted of some of them, or in the last loss (unless watched rows chose an earlier epoch).
    Collapsed: networks tell hardly more of their training rows than a guess would. That is, half of
    all rows have several classes in first place and most predictions are no candidates; or hardly
    any prediction is one, though many classes are to be told apart.
    """
    numbers = [weights, opinion.belief, opinion.uncertainty]
    if not isinstance(fitted, Networks):
        _refuse_infinite(fitted, numbers)
        return
    sample = task.some_rows(torch.arange(0, len(task), -(-len(task) // LOOKED_AT)))
    seen = replace(fitted, method=fitted.method.with_passes(PASSES)).predict(sample.rows)
    last = [] if watched else fitted.history.losses[-1:]
    tensors = fitted.net.state_dict().values()
    _refuse_infinite(fitted, [*numbers, seen.belief, seen.uncertainty, *last, *tensors])
    named = seen.predicted()[..., None]
    weight = sample.weight / sample.weight.sum().clamp(min=1e-10)
    rate = float((sample.candidates.gather(-1, named)[..., 0] * weight).sum())
    by_chance = float(sample.candidates.double().mean())
    tied = float(seen.guess.double().mean()) >= TIED and rate < 0.5
    rare = by_chance < BY_CHANCE and rate < RARELY
    if len(sample) >= FEWEST and (tied or rare):
        message = _collapsed(fitted, task.k, rate, len(named.unique()))
        warnings.warn(message, UserWarning, stacklevel=4)


def _refuse_infinite(fitted: Fitted, numbers: list[Tensor]) -> None:
    if all(bool(tensor.isfinite().all()) for tensor in numbers):
        return
    losses = fitted.history.loss  # (epochs, M)
    lost = (~losses.isfinite().all(-1)).nonzero().flatten().tolist()
    since = f" The loss is no number from epoch {lost[0] + 1} of {len(losses)} on." if lost else ""
    msg = (
        f"Training diverged: the model has numbers that are not finite.{since} Fit again with a "
        "lower learning_rate, and look for rows whose weight is far larger than that of others."
    )
    raise InputError(msg)


def _collapsed(fitted: Networks, k: int, rate: float, distinct: int) -> str:
    remedy = "Train for more epochs, or try another learning_rate."
    if fitted.method.uncertain:
        remedy = (
            'Use a method without evidence, such as "proden". Or let evidence grow more easily, in '
            "Python, by kl_ceiling=0 or RobustPLLClassifier(adversary=0)."
        )
    return (
        f"{fitted.method.title} has learned little: in {rate:.1%} of its training rows the "
        f"predicted class is a candidate, and of {k:,} classes it names {distinct:,}. {remedy}"
    )
