"""DIRK and DIRK-REF (Wu, Wang & Zhang, AAAI 2024)."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from robustpll.engine.data import Batch, State, Task
from robustpll.engine.networks import Shape, build_network
from robustpll.engine.random import Draws
from robustpll.methods.base import Count, Number, Share, Step
from robustpll.methods.views import (
    EMBEDDING,
    TwoSpeeds,
    ViewMethod,
    add_queue,
    contrast,
    push,
    restricted,
    split,
    two_speeds,
)

LABEL_TEMPERATURE = 0.4  # of similarities of labels


@dataclass(frozen=True)
class Dirk(ViewMethod):
    """A slow copy of the network teaches it; its probabilities are corrected by the candidates.

    Label weights are the teacher's probabilities for a strong view, within the candidates. DIRK-REF
    adds a contrastive loss, whose positives are weighted by the similarity of label weights:
    ``Dirk(contrast=1.0)``.

    What differs from the publication: the authors train ResNet-34 for 500 epochs, with a third view
    for labels. Here labels come from the strong view. Their teacher starts from other weights than
    the network; here it starts as a copy. Their correction is ``rectify="published"``.

    Parameters
    ----------
    rectify : {"candidates", "published"}
        Whether the teacher's probabilities are restricted to the candidates, or corrected as
        published: no candidate has less than another class. Then a row with one candidate has at
        most half of the weight on it, even if the teacher is sure.
    contrast : float or tuple with one for each member
        Weight of the contrastive loss.
    queue : int
        Number of embeddings that are kept for it.
    slowness : float
        Share that the teacher keeps in each step.
    """

    name = "dirk"
    title = "DIRK"
    incremental = False
    citation = (
        "Wu, Wang, Zhang: Distilling Reliable Knowledge for Instance-Dependent Partial Label "
        "Learning. AAAI 2024"
    )
    cost = 2.0
    compilable = False  # compiled, gradients would be of the memory that the step has changed

    rectify: Literal["candidates", "published"] = "candidates"
    contrast: Number = 0.0
    queue: Count = 4096
    slowness: Share = 0.99

    contrasts: ClassVar[bool] = True  # in training, False if no model's loss has this part

    def spread(self, models: int, like: Tensor) -> Self:
        method = super().spread(models, like)
        object.__setattr__(method, "contrasts", any(self.per_member("contrast")))
        return method

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        return TwoSpeeds(build_network(self.network, shape, k, draws, EMBEDDING))

    def classifier(self, net: nn.Module) -> nn.Module:
        return two_speeds(net).fast

    def begin(self, task: Task) -> State:
        state = State.of(task)
        add_queue(state, task, self.queue, embedding=EMBEDDING, label=task.k, candidate=task.k)
        return state

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        k, views = batch.candidates.shape[-1], [batch.views[name] for name in ("strong", "weak")]
        logits, embedding = split(net(views[0]), k)
        taught = two_speeds(net).slowly(torch.cat(views, 1), self.slowness).to(logits)
        teacher, keys = split(taught, k)
        teacher, keys = teacher.chunk(2, 1)[0], keys.chunk(2, 1)[1]
        if self.rectify == "published":
            weights = rectified(teacher, batch.candidates)
        else:
            weights = restricted(teacher, batch.candidates)
        loss = -(weights * logits.log_softmax(-1)).sum(-1)
        if self.contrasts:
            on = self.epoch(progress) >= 1
            alike = self.alike(weights, batch)
            loss = loss + self.contrast * contrast(embedding, keys, batch.memory, alike, on)
            candidates = batch.candidates.to(weights)
            push(batch.memory, embedding=keys, label=weights, candidate=candidates)
        return loss, {"label_weights": weights}

    def alike(self, weights: Tensor, batch: Batch) -> Tensor:
        """How similar labels are to those of the batch, twice, and of the queue, (M, b, a)."""
        memory, candidates = batch.memory, batch.candidates.to(weights)
        labels = torch.cat([weights, weights, memory["queue_label"]], 1)
        shared = torch.cat([candidates, candidates, memory["queue_candidate"]], 1)
        same = weights.argmax(-1)[..., None] == labels.argmax(-1)[:, None]
        same = same & (candidates @ shared.mT > 0)
        cosine = normalize(weights, dim=-1) @ normalize(labels, dim=-1).mT
        return same * (cosine / LABEL_TEMPERATURE).exp()


def rectified(logits: Tensor, candidates: Tensor) -> Tensor:
    """Probabilities (..., k) such that no candidate has less than another class.

    Ratios within the candidates stay, and those within the other classes.

    >>> u, s = torch.tensor([0.5, 0.1, 0.4]), torch.tensor([True, True, False])
    >>> rectified(u.log(), s)
    tensor([0.7576, 0.1515, 0.0909])
    """
    probability = logits.softmax(-1)
    mass = probability.masked_fill(~candidates, 0).sum(-1, keepdim=True).clamp(1e-6, 1)
    inside = restricted(logits, candidates)  # sums to 1, however small the mass
    outside = probability.masked_fill(candidates, 0) / (1 - mass).clamp(min=1e-6)
    outside = outside / outside.sum(-1, keepdim=True).clamp(min=1e-12)
    least = inside.masked_fill(~candidates, 1).amin(-1, keepdim=True)
    most = outside.amax(-1, keepdim=True) / mass
    share = torch.where(most > 0, most / (most + least), 1.0)
    return share * inside + (1 - share) * outside
