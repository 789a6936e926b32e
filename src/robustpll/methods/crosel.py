"""CroSel (Tian et al., CVPR 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.data import Batch, State, Task, pick
from robustpll.engine.train import Training
from robustpll.errors import InputError
from robustpll.methods import base
from robustpll.methods.base import WARM_UP, Count, DeepMethod, Number, Step, normalize

VIEWS = 3  # epochs that must agree on a row
FEWEST = 0.05  # share of the rows that must be selected before a network learns from them


@dataclass(frozen=True)
class CroSel(DeepMethod):
    """Two networks, each of which learns from the rows that the other is certain of.

    A network selects a row if its predictions in the last three epochs agree on a candidate, with
    more than the threshold on average. The loss is the cross-entropy on rows that the other
    selected, plus that of all rows against the other's last prediction, times `consistency` and the
    share of rows not selected. Ten epochs of warm-up learn as Cc does.

    ``CroSel.paper()`` has all four switches off, and keeps classes that are not candidates in
    ``label_weights``; with 151 classes or more it learns nothing (see `Cc`). Unlike the published
    code, all steps have the same size. If too few rows are selected, a network learns from the
    consistency term alone.

    Parameters
    ----------
    threshold : float
        Average probability above which a row is selected.
    consistency : float
        Weight of the consistency term while no row is selected.
    stable_warmup : bool
        Whether the warm-up computes its loss by log-sum-exp, to learn with any number of classes.
    mask_consistency : bool
        Whether the other's prediction is restricted to the candidates.
    true_cross : bool
        Whether a network learns from the other, or after the first epoch from itself.
    single_softmax : bool
        Whether softmax is applied once in the cross-entropy on selected rows, or twice.
    """

    name = "crosel"
    title = "CroSel"
    incremental = False
    citation = (
        "Tian, Wei, Wang, Feng: CroSel: Cross Selection of Confident Pseudo Labels for "
        "Partial-Label Learning. CVPR 2024"
    )
    warm_up = 10
    restarts = True
    cost = 2.0
    attacked_jointly = True
    final_weights = "normalised"
    paper_fields: ClassVar = dict.fromkeys(
        ("stable_warmup", "mask_consistency", "true_cross", "single_softmax"), False
    )

    members: Count = 2
    threshold: Number = 0.9
    consistency: Number = 2.0
    stable_warmup: bool = True
    mask_consistency: bool = True
    true_cross: bool = True
    single_softmax: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members != 2:
            raise InputError(f"CroSel has two networks: members must be 2. Got {self.members}.")

    def begin(self, task: Task) -> State:
        state = State.of(task, view=torch.zeros_like(task.prior))
        empty = torch.zeros_like(task.prior)
        state.memory = {
            "views": empty.repeat(VIEWS, 1, 1, 1),  # the last ones, (3, M, n, k)
            "labels": empty[..., 0].long(),  # (M, n)
            "order": task.rows.everything.to(empty.device).clone(),  # (M, n): selected rows first
            "count": empty[:, :1, 0].long(),  # (M, 1)
            "in use": empty[:, :1, 0].clone(),  # (M, 1): 1 where enough rows are selected
            "unsure": empty[:, :1, 0].clone(),  # (M, 1): weight of the consistency term
        }
        return state

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        if batch.stage == WARM_UP:
            logits = net(batch.x)
            loss = base.covering(logits, batch.candidates, stable=self.stable_warmup)
            return loss, self.before_step(logits, batch)
        selected = self._on_selected(net, batch)  # before the others: BatchNorm is moved by both
        logits = net(batch.x)
        view = self._masked(pick(swapped(batch.memory["views"][-1]), batch.indices), batch)
        loss = selected + batch.memory["unsure"] * base.weighted_ce(logits, view)
        return loss, self.before_step(logits, batch)

    def reweigh(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        view = logits.softmax(-1)
        return {"view": view, "label_weights": self._masked(view, batch)}

    def _masked(self, view: Tensor, batch: Batch) -> Tensor:
        if not self.mask_consistency:
            return view
        return normalize(view * batch.candidates, batch.prior)

    def _on_selected(self, net: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy on rows that the other network selected, (M, b)."""
        order, count, labels, in_use = (
            swapped(batch.memory[name]) for name in ("order", "count", "labels", "in use")
        )
        index = order.gather(1, batch.indices % count.clamp(min=1))  # (M, b)
        outputs = net(batch.task.rows.elsewhere(index))
        if not self.single_softmax:
            outputs = outputs.softmax(-1)
        loss = F.cross_entropy(outputs.mT, labels.gather(1, index), reduction="none")
        # The engine multiplies column b by the weight of the batch's row b: undone here.
        weighed = (loss * batch.task.weight.gather(1, index)).mean(-1, keepdim=True)
        return in_use * weighed / batch.weight.mean(-1, keepdim=True).clamp(min=1e-10)

    def end_epoch(self, training: Training, epoch: int) -> None:
        memory, view = training.state.memory, training.state.rows["view"]
        view = view if self.true_cross or epoch < self.warm_up else swapped(view)
        views = memory["views"]
        views.copy_(torch.cat([views[1:], view[None]]))
        if epoch < self.warm_up - 1:
            return
        task = training.task
        sure = self._selected(views, task.candidates) & (task.weight > 0)  # (M, n)
        n = sure.shape[1]
        count = sure.sum(-1, keepdim=True)
        in_use = (count > FEWEST * n) & (count >= 2)
        shuffled = training.draws.order(n).to(sure.device)
        # If too few are selected, the pass still moves BatchNorm, so it uses rows of all kinds.
        last = (~sure & in_use).gather(1, shuffled).long()
        memory["order"].copy_(shuffled.gather(1, last.argsort(dim=-1, stable=True)))
        memory["count"].copy_(torch.where(in_use, count, n))
        memory["in use"].copy_(in_use)
        unsure = self.consistency * (1 - count / n)
        memory["unsure"].copy_(swapped(unsure) if self.true_cross else unsure)
        memory["labels"].copy_(views[-1].argmax(-1))

    def _selected(self, views: Tensor, candidates: Tensor) -> Tensor:
        """Rows whose last views (3, M, n, k) agree on a likely candidate, (M, n)."""
        last = views[-1]
        largest = last.amax(-1, keepdim=True)
        tied = (last - largest).abs() <= 1e-8 + 1e-5 * largest
        predicted = views.argmax(-1)
        agree = (predicted == predicted[-1]).all(0)
        likely = views.mean(0).amax(-1) > self.threshold
        return torch.logical_and((tied & candidates).any(-1) & agree, likely)


def swapped(values: Tensor) -> Tensor:
    """Return values (M, ...) in which each pair of neighbouring models is exchanged."""
    return torch.unflatten(values, 0, (-1, 2)).flip(1).flatten(0, 1)
