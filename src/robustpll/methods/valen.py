"""Valen (Xu et al., NeurIPS 2021)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll.engine.data import Batch, State, Task, pick
from robustpll.engine.layers import Linear
from robustpll.engine.networks import Shape, mlp, wide
from robustpll.engine.random import Draws
from robustpll.engine.train import Training
from robustpll.errors import InputError
from robustpll.methods.base import WARM_UP, DeepMethod
from robustpll.methods.evidential import flat_kl
from robustpll.methods.losses import weighted_ce
from robustpll.methods.neighbours import nearest

NEIGHBOURS = 3
LEAST = 0.01  # concentration of a class that is no candidate any more
TINY = 1e-10


@dataclass(frozen=True)
class Valen(DeepMethod):
    """Variational label enhancement: labels are sampled from a Dirichlet that must explain the row.

    An encoder posits a Dirichlet over the labels of a row. A sample of it is decoded back to the
    features, to the candidates, and, by the likeness of samples, to a graph of neighbours; and
    samples weigh the labels from which a classifier learns. Ten epochs of warm-up train the
    classifier as Proden does.

    Parameters
    ----------
    network : {"mlp", "wide"}
        Of classifier and encoder.
    start : {"warm", "uniform"}
        Whether the classifier's label weights after the warm-up are those it found, or uniform.
    graph : {"rows", "columns"}
        Whether a row's entries in the graph are its neighbours, or the rows whose neighbour it is.

    Notes
    -----
    ``Valen.paper()`` differs in ``network="wide", start="uniform", graph="columns"``.

    Examples
    --------
    >>> Valen().network, Valen.paper().network
    ('mlp', 'wide')
    """

    name: ClassVar[str] = "valen"
    title: ClassVar[str] = "Valen"
    step_cost: ClassVar[float] = 5.0
    predicting_part: ClassVar[str] = "classifier"
    citation: ClassVar[str] = (
        "Xu, Qiao, Geng, Zhang: Instance-Dependent Partial Label Learning. NeurIPS 2021"
    )
    warm_up: ClassVar[int] = 10
    restarts: ClassVar[bool] = True
    compilable: ClassVar[bool] = False  # torch.compile does not take a generator

    start: Literal["warm", "uniform"] = "warm"
    graph: Literal["rows", "columns"] = "rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in ("mlp", "wide"):
            msg = (
                "Valen compares rows by the last hidden layer of its network, so that must be "
                f"'mlp' or 'wide'. Got {self.network!r}."
            )
            raise InputError(msg)

    @classmethod
    def paper(cls) -> Self:
        return cls(network="wide", start="uniform", graph="columns")

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        classifier, encoder = (mlp if self.network == "mlp" else wide for _ in range(2))
        return Enhancer(classifier(shape, k, draws), encoder(shape, k, draws), draws)

    def begin(self, task: Task) -> State:
        """`label_weights` feed the encoder, `sampled` feed the classifier."""
        state = State.of(task, sampled=task.prior)
        at = task.rows.everything.to(task.prior.device)
        count = min(NEIGHBOURS, len(task) - 1)
        state.memory = {
            "neighbours": at[..., None].repeat(1, 1, count),  # (M, n, 3)
            "degree": torch.ones_like(task.prior[..., 0]),  # (M, n): row sums of the graph
        }
        return state

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        logits = net(batch.x)
        if batch.stage == WARM_UP:
            found = revised(logits.detach().softmax(-1), batch.label_weights)
            return weighted_ce(logits, batch.label_weights), {"label_weights": found}
        encoded = net(batch.x, "encoder")
        probability = encoded.softmax(-1)
        possible = batch.label_weights > 0
        loss = weighted_ce(encoded, batch.label_weights) + weighted_ce(
            logits, batch.rows["sampled"]
        )
        # clipped before exp, which would overflow and leave no number as its gradient
        evidence = (encoded / 4).clamp(math.log(0.01), math.log(30)).exp() - 1
        loss = loss + flat_kl(evidence)
        z = batch.draws.dirichlet(concentration(probability, possible))
        loss = loss + self._unexplained(net, batch, z)
        named = revised(probability.detach(), batch.label_weights)
        written = {
            "sampled": revised(z.detach(), named),
            "label_weights": revised(logits.detach().softmax(-1), batch.rows["sampled"]),
        }
        return loss, written

    def _unexplained(self, net: nn.Module, batch: Batch, z: Tensor) -> Tensor:
        """How badly samples z (M, b, k) tell features, candidates and neighbours, (M, b)."""
        x = batch.x.flatten(2)
        features = torch.square(net(z, "decoder") - x).mean(-1)
        asked = batch.candidates.to(z.dtype)
        candidates = F.binary_cross_entropy_with_logits(z, asked, reduction="none").mean(-1)
        alike = (z @ z.mT).sigmoid().softmax(-1)  # (M, b, b)
        neighbours = (alike - self._adjacency(batch)).square().mean(-1)
        return features + 0.01 * candidates + neighbours

    def _adjacency(self, batch: Batch) -> Tensor:
        """The graph among the rows of the batch, (M, b, b); its rows are divided by their sums."""
        listed = pick(batch.memory["neighbours"], batch.at)  # (M, b, 3)
        lists = (listed[:, :, None] == batch.at[:, None, :, None]).any(-1)  # i lists j, (M, b, b)
        joined = lists if self.graph == "rows" else lists.mT
        own = torch.eye(lists.shape[-1], dtype=torch.bool, device=lists.device)
        return (joined | own) / batch.memory["degree"].gather(1, batch.at)[..., None]

    def end_epoch(self, training: Training, epoch: int) -> None:
        if epoch != self.warm_up - 1:
            return
        state, task = training.state, training.task
        if self.start == "warm":
            state.rows["sampled"].copy_(state.rows["label_weights"])
        pieces = torch.split(task.rows.everything, 4096, dim=1)
        training.net.eval()
        with torch.no_grad():
            hidden = [training.net(task.rows.elsewhere(at), "hidden") for at in pieces]
        training.net.train()
        listed, degree = state.memory["neighbours"], state.memory["degree"]
        for model, rows in enumerate(torch.cat(hidden, 1)):
            listed[model] = nearest(rows, rows, listed.shape[-1], itself=True)
        times = torch.ones_like(listed, dtype=degree.dtype)
        if self.graph == "rows":
            degree.copy_(1 + times.sum(-1))
        else:
            degree.fill_(1).scatter_add_(1, listed.flatten(1), times.flatten(1))


class Enhancer(nn.Module):
    """Classifier, encoder and decoder; predictions and attacks only see the first."""

    def __init__(self, classifier: nn.Sequential, encoder: nn.Sequential, draws: Draws) -> None:
        super().__init__()
        layers = [part for part in classifier if isinstance(part, Linear)]
        features, k = layers[0].weight.shape[1], layers[-1].weight.shape[2]
        self.classifier, self.encoder = classifier, encoder
        self.decoder = nn.Sequential(
            Linear(k, features, draws), nn.ReLU(), Linear(features, features, draws)
        )

    def forward(self, x: Tensor, part: str = "classifier") -> Tensor:
        """Of a part by name, or of the classifier's last "hidden" layer."""
        net = self.classifier[:-1] if part == "hidden" else self.get_submodule(part)
        outputs: Tensor = net(x)
        return outputs


def revised(found: Tensor, weights: Tensor) -> Tensor:
    """What was found (..., k), restricted to where there was weight before; sums to 1."""
    kept = (weights > 0) * (found + TINY)
    return kept / kept.sum(-1, keepdim=True)


def concentration(probability: Tensor, possible: Tensor) -> Tensor:
    """Of the Dirichlet: probabilities (..., k) of what is possible, and a little for the rest."""
    masked = probability * possible
    total = masked.detach().sum(-1, keepdim=True)
    shared = possible / possible.sum(-1, keepdim=True)
    return torch.where(total > 0, masked / total.clamp(min=TINY), shared) + LEAST
