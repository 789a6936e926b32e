"""PiCO (Wang et al., ICLR 2022), and ALIM on top of it (Xu et al., NeurIPS 2023)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from robustpll.engine.data import Batch, State, Task
from robustpll.engine.networks import Shape, build_network
from robustpll.engine.random import Draws
from robustpll.engine.train import Training
from robustpll.methods.base import Count, Number, Share, Step
from robustpll.methods.views import (
    EMBEDDING,
    TEMPERATURE,
    TwoSpeeds,
    ViewMethod,
    add_queue,
    contrast,
    draw_mixing,
    mixed,
    moved_prototypes,
    one_hot_like,
    push,
    split,
    two_speeds,
)

PROTOTYPE_SHARE = 0.99  # that a prototype keeps for each row


@dataclass(frozen=True)
class Pico(ViewMethod):
    """Contrastive learning: rows of one predicted class get similar embeddings.

    Each class has a prototype, the moving average of its rows' embeddings. Label weights move
    slowly to the candidate whose prototype is closest. The loss is the cross-entropy to them, plus
    a contrastive one over the batch, a slow copy of the network and a queue of its embeddings.

    What differs from the publication: the authors train ResNet-18 for 800 epochs, on random crops
    in changed colours. Here the slow copy moves faster, and so do label weights if there are
    fewer epochs. The queue starts empty instead of with random embeddings.

    Parameters
    ----------
    contrast : float or tuple with one for each member
        Weight of the contrastive loss.
    queue : int
        Number of embeddings that are kept.
    slowness : float
        Share that the slow copy keeps in each step; published is 0.999, for 800 epochs.
    """

    name = "pico"
    title = "PiCO"
    incremental = False
    citation = (
        "Wang, Xiao, Li, Feng, Niu, Chen, Zhao: PiCO: Contrastive Label Disambiguation for Partial "
        "Label Learning. ICLR 2022"
    )
    cost = 3.0
    compilable = False  # compiled, gradients would be of the memory that the step has changed
    temperature: ClassVar[float] = 1.0  # of similarities to prototypes
    published_epochs = 800

    contrast: Number = 0.5
    queue: Count = 8192
    slowness: Share = 0.99

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        return TwoSpeeds(build_network(self.network, shape, k, draws, EMBEDDING))

    def classifier(self, net: nn.Module) -> nn.Module:
        return two_speeds(net).fast

    def begin(self, task: Task) -> State:
        state = State.of(task)
        state.memory["prototypes"] = task.prior.new_zeros(task.models, task.k, EMBEDDING)
        add_queue(state, task, self.queue, embedding=EMBEDDING, label=1)
        return state

    def factors(self, batch: Batch) -> Tensor:
        """Factor of each class in the choice of a row's class, (M, b, k)."""
        return batch.candidates.to(batch.prior.dtype)

    def is_on(self, progress: Tensor) -> Tensor:
        """Whether label weights move and classes are contrasted: after the first epoch."""
        return self.epoch(progress) >= 1

    def target_of(self, scores: Tensor) -> Tensor:
        """What label weights move to, by scores of classes (M, b, k)."""
        return one_hot_like(scores.argmax(-1), scores)

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        k, factors, on = batch.candidates.shape[-1], self.factors(batch), self.is_on(progress)
        logits, query = split(net(batch.views["weak"]), k)
        memory, fixed = batch.memory, query.detach()
        labels = (logits.detach().softmax(-1) * factors).argmax(-1)  # (M, b)
        scores = (fixed @ memory["prototypes"].mT / self.temperature).softmax(-1)
        moved = moved_prototypes(memory["prototypes"], fixed, labels, PROTOTYPE_SHARE)
        memory["prototypes"].copy_(moved)
        keys = split(two_speeds(net).slowly(batch.views["strong"], self.slowness), k)[1].to(fixed)
        keep = torch.where(on, self.kept_weights(progress), 1.0)
        weights = torch.lerp(self.target_of(scores * factors), batch.label_weights, keep)
        loss = -(weights * logits.log_softmax(-1)).sum(-1)
        classes = torch.cat([labels, labels, memory["queue_label"][..., 0].long()], 1)
        same = (labels[..., None] == classes[:, None]).to(fixed)
        loss = loss + self.contrast * contrast(query, keys, memory, same, on)
        push(memory, embedding=keys, label=labels[..., None])
        return loss, {"label_weights": weights, **self.margins(scores, batch)}

    def margins(self, scores: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Further row state."""
        return {}


@dataclass(frozen=True)
class Alim(Pico):
    """PiCO for sets that may miss the truth: other classes count, too, by a common factor.

    The factor is chosen after each epoch, so that a share of the rows has its best class outside of
    its candidates. Mixed pictures learn mixed label weights.

    What differs from the publication: the authors train ResNet-18 for 1,000 epochs, and other
    classes count from epoch 80 or 140 on. They pass the true share as `missing`; yours is a guess.
    The rest is as in `Pico`.

    Parameters
    ----------
    contrast, queue, slowness
        As in `Pico`.
    missing : float
        The share of rows whose candidates are assumed to miss the truth.
    target : {"one-hot", "scale"}
        Whether label weights move to the best class, or to all classes by their scores.
    start : float
        Share of the training after which other classes count.
    """

    name = "alim"
    title = "ALIM"
    citation = (
        "Xu, Lian, Feng, Liu, Tao: ALIM: Adjusting Label Importance Mechanism for Noisy Partial "
        "Label Learning. NeurIPS 2023"
    )
    cost = 4.0
    temperature = TEMPERATURE
    moves_rows = True  # mixes them
    published_epochs = 1000

    missing: Share = 0.05
    target: Literal["one-hot", "scale"] = "one-hot"
    start: Share = 0.1

    def begin(self, task: Task) -> State:
        state = super().begin(task)
        state.rows["margin"] = torch.full_like(task.prior[..., :1], 1e9)
        state.memory["factor"] = task.prior.new_zeros(task.models, 1, 1)
        return state

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Any:
        partner, share = draw_mixing(rows, draws, concentration=4)
        return partner, torch.maximum(share, 1 - share)

    def is_on(self, progress: Tensor) -> Tensor:
        return progress >= 0

    def factors(self, batch: Batch) -> Tensor:
        return torch.where(batch.candidates, 1.0, batch.memory["factor"])

    def target_of(self, scores: Tensor) -> Tensor:
        if self.target == "one-hot":
            return super().target_of(scores)
        return scores / scores.sum(-1, keepdim=True)

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        loss, written = super().step(net, batch, progress)
        weights, k = mixed(written["label_weights"], *batch.drawn), batch.candidates.shape[-1]
        logits, _ = split(net(mixed(batch.views["weak"], *batch.drawn)), k)
        return loss - (weights * logits.log_softmax(-1)).sum(-1), written

    def margins(self, scores: Tensor, batch: Batch) -> dict[str, Tensor]:
        inside = scores.masked_fill(~batch.candidates, 0).amax(-1, keepdim=True)
        outside = scores.masked_fill(batch.candidates, 0).amax(-1, keepdim=True)
        return {"margin": inside / (outside + 1e-9)}

    def end_epoch(self, training: Training, epoch: int) -> None:
        state, n = training.state, len(training.task)
        if self.missing and epoch + 1 >= self.start * self.epochs:
            margins = state.rows["margin"][..., 0].sort(-1).values  # (M, n)
            factor = margins[:, min(int(self.missing * n), n - 1)].clamp(max=1)
            state.memory["factor"].copy_(factor[:, None, None])
