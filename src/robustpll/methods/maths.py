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
