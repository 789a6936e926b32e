"""Cavl (Zhang et al., ICLR 2022)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from robustpll.engine.data import Batch
from robustpll.methods.base import WARM_UP, DeepMethod, Step, weighted_ce


@dataclass(frozen=True)
class Cavl(DeepMethod):
    """Class activation values: learn towards the candidate with the largest |o - 1| o.

    Here o are the logits. In one epoch of warm-up before the others, all candidates weigh the same.

    Parameters
    ----------
    target : {"previous", "current"}
        Whether the candidate is picked after the last step with the row, or anew in the current
        step. Then, as published, a class outside the candidates shares if its value is the same.
    """

    name = "cavl"
    title = "Cavl"
    citation = (
        "Zhang, Feng, Han, Niu, Sugiyama, Qin: Exploiting Class Activation Value for Partial-Label "
        "Learning. ICLR 2022"
    )
    warm_up = 1
    by_row = True
    final_weights = "predicted"
    paper_fields: ClassVar = {"target": "current"}

    target: Literal["previous", "current"] = "previous"

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        logits = net(batch.x)
        target = batch.label_weights
        if batch.stage != WARM_UP and not self.second_pass:
            target = picked(logits.detach(), batch.candidates, strict=False)
        return weighted_ce(logits, target), {}

    @property
    def second_pass(self) -> bool:
        return self.target == "previous"

    def reweigh(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"label_weights": picked(logits, batch.candidates)}


def picked(logits: Tensor, candidates: Tensor, *, strict: bool = True) -> Tensor:
    """Return label weights on the candidate with the largest activation value; ties share."""
    values = (logits - 1).abs() * logits
    largest = values.masked_fill(~candidates, -torch.inf).amax(-1, keepdim=True)
    tied = (values - largest).abs() <= 1e-8 + 1e-5 * largest.abs()
    tied = (tied & candidates if strict else tied).to(logits.dtype)
    return tied / tied.sum(-1, keepdim=True)
