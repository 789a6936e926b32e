"""Valen (Xu et al., NeurIPS 2021)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.data import Batch, State, Task, pick
from robustpll.engine.layers import Linear
from robustpll.engine.networks import Shape, mlp, wide
from robustpll.engine.random import Draws
from robustpll.engine.train import Training
from robustpll.errors import InputError
from robustpll.methods.base import WARM_UP, DeepMethod, Step, weighted_ce
from robustpll.methods.evidential import flat_kl
from robustpll.methods.neighbours import neighbours

TINY = 1e-10


@dataclass(frozen=True)
class Valen(DeepMethod):
    """Variational label enhancement: labels are sampled from a Dirichlet that must explain the row.

    An encoder predicts a Dirichlet distribution over the labels of a row. Samples are decoded to
    features, candidates and, by their similarity, a graph of neighbours. They are also the label
    weights from which a classifier learns. Ten epochs of warm-up train it as Proden does.

    Parameters
    ----------
    network : {"mlp", "wide"}
        The network of classifier and encoder.
    start : {"warm", "uniform"}
        Whether label weights after the warm-up are those of the warm-up, or uniform.
    graph : {"rows", "columns"}
        Whether a row's entries in the graph are its neighbours, or the rows whose neighbour it is.
    """

    name = "valen"
    title = "Valen"
    incremental = False
    citation = "Xu, Qiao, Geng, Zhang: Instance-Dependent Partial Label Learning. NeurIPS 2021"
    warm_up = 10
    restarts = True
    cost = 5.0
    paper_fields: ClassVar = {"network": "wide", "start": "uniform", "graph": "columns"}

    start: Literal["warm", "uniform"] = "warm"
    graph: Literal["rows", "columns"] = "rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in ("mlp", "wide"):
            raise InputError(f"Valen's network must be 'mlp' or 'wide'. Got {self.network!r}.")

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        network = mlp if self.network == "mlp" else wide
        return Enhancer(network(shape, k, draws), network(shape, k, draws), draws)

    def classifier(self, net: nn.Module) -> nn.Module:
        return net.get_submodule("classifier")

    def begin(self, task: Task) -> State:
        """`label_weights` feed the encoder, `sampled` feed the classifier."""
        state = State.of(task, sampled=task.prior)
        indices = task.rows.everything.to(task.prior.device)[..., None]
        state.memory["neighbours"] = indices.repeat(1, 1, min(3, len(task) - 1))  # (M, n, 3)
        state.memory["degree"] = torch.ones_like(task.prior[..., 0])  # row sums of the graph
        return state

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        logits = net(batch.x)
        if batch.stage == WARM_UP:
            weights = revised(logits.detach().softmax(-1), batch.label_weights)
            return weighted_ce(logits, batch.label_weights), {"label_weights": weights}
        encoded, sampled = net(batch.x, "encoder"), batch.rows["sampled"]
        probability = encoded.softmax(-1)
        loss = weighted_ce(encoded, batch.label_weights) + weighted_ce(logits, sampled)
        # clipped before exp, which would overflow and make the gradient NaN
        evidence = (encoded / 4).clamp(math.log(0.01), math.log(30)).exp() - 1
        z = batch.draws.dirichlet(concentration(probability, batch.label_weights > 0))
        loss = loss + flat_kl(evidence) + self._reconstruction_error(net, batch, z)
        return loss, {
            "sampled": revised(z.detach(), revised(probability.detach(), batch.label_weights)),
            "label_weights": revised(logits.detach().softmax(-1), sampled),
        }

    def _reconstruction_error(self, net: nn.Module, batch: Batch, z: Tensor) -> Tensor:
        """Error of features, candidates and neighbours as decoded from samples z (M, b, k)."""
        features = torch.square(net(z, "decoder") - batch.x.flatten(2)).mean(-1)
        target = batch.candidates.to(z.dtype)
        candidates = F.binary_cross_entropy_with_logits(z, target, reduction="none").mean(-1)
        similarity = (z @ z.mT).sigmoid().softmax(-1)  # (M, b, b)
        graph = (similarity - self._adjacency(batch)).square().mean(-1)
        return features + 0.01 * candidates + graph

    def _adjacency(self, batch: Batch) -> Tensor:
        """The graph among the rows of the batch, (M, b, b); its rows are divided by their sums."""
        listed = pick(batch.memory["neighbours"], batch.indices)[:, :, None]  # (M, b, 1, 3)
        lists = (listed == batch.indices[:, None, :, None]).any(-1)  # i lists j, (M, b, b)
        joined = lists if self.graph == "rows" else lists.mT
        diagonal = torch.eye(lists.shape[-1], dtype=torch.bool, device=lists.device)
        return (joined | diagonal) / batch.memory["degree"].gather(1, batch.indices)[..., None]

    def end_epoch(self, training: Training, epoch: int) -> None:
        if epoch != self.warm_up - 1:
            return
        state, task = training.state, training.task
        if self.start == "warm":
            state.rows["sampled"].copy_(state.rows["label_weights"])
        pieces = torch.split(task.rows.everything, 4096, dim=1)
        training.net.eval()
        with torch.no_grad():
            hidden = [training.net(task.rows.elsewhere(index), "hidden") for index in pieces]
        training.net.train()
        listed, degree = state.memory["neighbours"], state.memory["degree"]
        for model, rows in enumerate(torch.cat(hidden, 1)):
            listed[model] = neighbours(rows, rows, listed.shape[-1], itself=True).indices
        if self.graph == "rows":
            degree.fill_(1 + listed.shape[-1])
        else:
            ones = torch.ones_like(listed, dtype=degree.dtype)
            degree.fill_(1).scatter_add_(1, listed.flatten(1), ones.flatten(1))


class Enhancer(nn.Module):
    """Classifier, encoder and decoder; predictions and attacks use the classifier only."""

    def __init__(self, classifier: nn.Sequential, encoder: nn.Sequential, draws: Draws) -> None:
        super().__init__()
        layers = [part for part in classifier if isinstance(part, Linear)]
        features, k = layers[0].weight.shape[1], layers[-1].weight.shape[2]
        self.classifier, self.encoder = classifier, encoder
        self.decoder = nn.Sequential(
            Linear(k, features, draws), nn.ReLU(), Linear(features, features, draws)
        )

    def forward(self, x: Tensor, part: str = "classifier") -> Tensor:
        """Return the outputs of a part by name, or of the classifier's last "hidden" layer."""
        net = self.classifier[:-1] if part == "hidden" else self.get_submodule(part)
        outputs: Tensor = net(x)
        return outputs


def revised(probability: Tensor, weights: Tensor) -> Tensor:
    """Return probabilities (..., k) restricted to classes with weight; they sum to 1."""
    masked = (weights > 0) * (probability + TINY)
    return masked / masked.sum(-1, keepdim=True)


def concentration(probability: Tensor, possible: Tensor) -> Tensor:
    """Return Dirichlet parameters: probabilities (..., k) of possible classes, plus 0.01."""
    masked = probability * possible
    total = masked.detach().sum(-1, keepdim=True)
    shared = possible / possible.sum(-1, keepdim=True)
    return torch.where(total > 0, masked / total.clamp(min=TINY), shared) + 0.01
