"""Formulas that several methods share; all act on the last axis."""

import torch
from torch import Tensor


def normalize(weights: Tensor, otherwise: Tensor) -> Tensor:
    """Return rows (..., k) divided by their sums; a row of zeros becomes that of `otherwise`."""
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total, otherwise)


def weighted_ce(logits: Tensor, label_weights: Tensor) -> Tensor:
    """Return the cross-entropy of softmax(logits) against label weights (..., k) -> (...).

    -sum_j w_j ln(p_j + 1e-10): the summand bounds the loss, and is part of the published numbers.
    """
    return -(label_weights * (logits.softmax(-1) + 1e-10).log()).sum(-1)


def covering(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return -ln of the probability that softmax(logits) gives to all candidates -> (...).

    By log-sum-exp, so it has a gradient however small that probability is.
    """
    return logits.logsumexp(-1) - logits.masked_fill(~candidates, -torch.inf).logsumexp(-1)


def swapped(values: Tensor) -> Tensor:
    """Return values (M, ...) in which each pair of neighbouring models is exchanged."""
    return torch.unflatten(values, 0, (-1, 2)).flip(1).flatten(0, 1)
