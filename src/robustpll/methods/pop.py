"""Pop (Xu et al., ICML 2023)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from robustpll.engine.data import Batch, State, Task
from robustpll.engine.train import Training
from robustpll.methods.base import Number, Step
from robustpll.methods.losses import normalize, weighted_ce
from robustpll.methods.proden import Proden

WINDOW = 5  # epochs that are averaged, and from one purification to the next
FIRST = 20  # the epoch of the first purification


@dataclass(frozen=True)
class Pop(Proden):
    """Progressive purification: Proden that rules candidates out.

    Every fifth epoch from the 21st on, label weights are averaged over five epochs. A candidate
    with an average below a threshold times the row's largest is ruled out.

    Parameters
    ----------
    threshold : float
        Initial threshold.
    rise : float
        Growth of the threshold with each purification.
    ceiling : float
        Largest threshold.
    growth : {"added", "multiplied"}
        Whether it grows by `rise`, or by the factor 1 + `rise` and only after purifications that
        ruled out less than one in 10,000 of all pairs of a row and a class.
    persistent : bool
        Whether a candidate that is ruled out remains so. Otherwise it only affects the next epoch.

    Notes
    -----
    ``Pop.paper()`` differs in ``growth="multiplied", ceiling=0.4, persistent=False``.

    Examples
    --------
    >>> Pop().persistent, Pop.paper().persistent
    (True, False)
    """

    name = "pop"
    title = "Pop"
    citation = (
        "Xu, Liu, Lv, Qiao, Geng: Progressive Purification for Instance-Dependent Partial Label "
        "Learning. ICML 2023"
    )
    paper_fields: ClassVar[dict[str, Any]] = {
        "growth": "multiplied",
        "ceiling": 0.4,
        "persistent": False,
    }

    threshold: Number = 0.001
    rise: Number = 0.001
    ceiling: Number = 0.04
    growth: Literal["added", "multiplied"] = "added"
    persistent: bool = True

    def begin(self, task: Task) -> State:
        state = State.of(task, kept=task.candidates.to(task.prior))
        state.memory["window"] = torch.zeros_like(task.prior).repeat(WINDOW, 1, 1, 1)
        state.memory["threshold"] = self.threshold[..., None].clone()  # (M, 1, 1)
        return state

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        logits = net(batch.x)
        allowed = batch.rows["kept"] if self.persistent else batch.candidates
        weights = normalize(allowed * logits.detach().softmax(-1), batch.label_weights)
        return weighted_ce(logits, batch.label_weights), {"label_weights": weights}

    def end_epoch(self, training: Training, epoch: int) -> None:
        state = training.state
        window, threshold = state.memory["window"], state.memory["threshold"]
        allowed, weights = state.rows["kept"], state.rows["label_weights"]
        window[epoch % WINDOW] = weights
        if epoch < FIRST or epoch % WINDOW:
            return
        mean = window.mean(0)  # (M, n, k)
        stays = allowed.bool() & (mean >= threshold * mean.amax(-1, keepdim=True))
        stays = torch.where(stays.any(-1, keepdim=True), stays, allowed.bool())
        ruled_out = (allowed - stays.to(allowed)).sum((-1, -2), keepdim=True)  # (M, 1, 1)
        allowed.copy_(stays)
        weights.copy_(normalize(mean * allowed, weights))
        rise, ceiling = self.rise[..., None], self.ceiling[..., None]
        if self.growth == "added":
            threshold.copy_(torch.minimum(threshold + rise, ceiling))
        else:
            few = ruled_out < 1e-4 * allowed[0].numel()
            threshold.mul_(1 + rise * (few & (threshold < ceiling)))
