"""Formulas that several methods share; all act on the last axis."""

import torch
from torch import Tensor


def normalize(weights: Tensor, otherwise: Tensor) -> Tensor:
    """Rows (..., k) divided by their sums; a row that is all zero becomes that of `otherwise`."""
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total, otherwise)


def weighted_ce(logits: Tensor, label_weights: Tensor) -> Tensor:
    """Cross-entropy of softmax(logits) against label weights (..., k) -> (...).

    -sum_j w_j ln(p_j + 1e-10): the summand bounds the loss, and is part of the published numbers.
    """
    return -(label_weights * (logits.softmax(-1) + 1e-10).log()).sum(-1)


def covering(logits: Tensor, candidates: Tensor) -> Tensor:
    """-ln of the probability that softmax(logits) gives to all candidates together -> (...).

    By log-sum-exp, so it has a gradient however small that probability is.
    """
    return logits.logsumexp(-1) - logits.masked_fill(~candidates, -torch.inf).logsumexp(-1)


def swapped(values: Tensor) -> Tensor:
    """Each of two neighbouring models (M, ...) gets what is the other's."""
    return torch.unflatten(values, 0, (-1, 2)).flip(1).flatten(0, 1)
