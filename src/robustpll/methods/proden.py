"""Proden (Lv et al., ICML 2020), its variants, and Pop (Xu et al., ICML 2023)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from robustpll.attacks import sign_of_gradient
from robustpll.engine.data import Batch, State, Task
from robustpll.engine.layers import Dropout, steady_statistics
from robustpll.engine.networks import Shape, mlp
from robustpll.engine.random import Draws
from robustpll.engine.train import Training
from robustpll.errors import InputError, Rule
from robustpll.methods.base import Count, DeepMethod, Number, Step, normalize, weighted_ce

NUMBERS_PER_BLOCK = 2**25  # of one layer's output, for all models and passes; 128 MiB in float32
WINDOW = 5  # epochs that Pop averages, and from one purification to the next
FIRST = 20  # the epoch of the first purification


@dataclass(frozen=True)
class Proden(DeepMethod):
    """Progressive identification of the true labels.

    Cross-entropy against label weights, which are the network's own probabilities p restricted to
    the candidates S and renormalised: w_j = [j in S] p_j / sum_{S} p.

    >>> Proden(epochs=50)
    Proden(epochs=50, batch_size=256, learning_rate=0.001, weight_decay=0.0, members=1,
           network='mlp', precision='auto', averaged=0.0, schedule='constant',
           augment='auto', momentum=0.0, parameter_groups=None, clip=0.0)
    """

    name = "proden"
    title = "Proden"
    citation = (
        "Lv, Xu, Feng, Niu, Geng, Sugiyama: Progressive Identification of True Labels for "
        "Partial-Label Learning. ICML 2020"
    )
    by_row = True

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        logits = net(batch.x)
        written = self.before_step(logits, batch)
        return weighted_ce(logits, batch.label_weights), written

    def reweigh(self, logits: Tensor, batch: Batch) -> dict[str, Tensor]:
        weights = self.allowed(batch) * logits.softmax(-1)
        return {"label_weights": normalize(weights, batch.label_weights)}

    def allowed(self, batch: Batch) -> Tensor:
        """Return the classes (M, b, k) that may have weight."""
        return batch.candidates


@dataclass(frozen=True)
class ProdenL2(Proden):
    """Proden with weight decay.

    Parameters
    ----------
    decay : {"decoupled", "l2"}
        Shrink parameters by ``learning_rate * weight_decay`` in each step, as the paper's code
        does, or add ``weight_decay / 2`` times their squared norm to the loss, as its text says.
    """

    name = "proden_l2"
    title = "Proden+L2"

    weight_decay: float = 0.01
    decay: Literal["decoupled", "l2"] = "decoupled"

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        if self.decay == "decoupled":
            return super().optimizer(parameters)
        parameters = list(parameters)
        cuda, decay = parameters[0].is_cuda, self.weight_decay
        return Adam(parameters, self.learning_rate, weight_decay=decay, capturable=cuda)


@dataclass(frozen=True)
class ProdenDropout(Proden):
    """Proden with dropout, also when it predicts (Gal & Ghahramani, ICML 2016).

    A prediction is the mean of softmax over passes; each drops the same random units for all rows.

    Parameters
    ----------
    rate : float
        Share of the units that are dropped, after each BatchNorm.
    passes : int
        Number of passes of a prediction.
    """

    name = "proden_dropout"
    title = "Proden+Dropout"
    family = "ensemble"

    rate: Annotated[float, Rule("above 0 and below 1", lambda rate: 0 < rate < 1)] = 0.05
    passes: Count = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network != "mlp":
            raise InputError(f"ProdenDropout needs network='mlp'. Got {self.network!r}.")

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        return mlp(shape, k, draws, dropout=self.rate)

    def with_passes(self, passes: int) -> Self:
        return replace(self, passes=min(passes, self.passes))

    def outputs(self, net: nn.Module, x: Tensor, seeds: tuple[int, ...]) -> Tensor:
        """Return ln of the mean probability, which softmax turns back into it."""
        layers = list(net.children())
        random = [number for number, layer in enumerate(layers) if isinstance(layer, Dropout)]
        for layer in layers[: random[0]]:  # not random: once for all passes
            x = layer(x)
        models, b, width = x.shape
        draws = Draws.of(seeds, self.name, "passes", like=x)
        masks = [draws.uniform(self.passes, 1, width) >= self.rate for _ in random]
        size = max(1, NUMBERS_PER_BLOCK // (models * b * width))
        blocks = zip(*(torch.split(mask, size, dim=1) for mask in masks), strict=True)
        total = torch.zeros(())
        for block in blocks:
            hidden, dropped = x[:, None], iter(block)  # (M, 1, b, width)
            for layer in layers[random[0] :]:
                if isinstance(layer, Dropout):
                    hidden = hidden * next(dropped) / (1 - self.rate)  # (M, passes, b, width)
                else:
                    hidden = torch.unflatten(layer(hidden.flatten(1, 2)), 1, (-1, b))
            total = total + hidden.softmax(-1).sum(1)  # (M, b, k)
        return torch.log(total / self.passes)


@dataclass(frozen=True)
class ProdenEns(Proden):
    """Five Proden networks with different initial weights and batches; probabilities averaged."""

    name = "proden_ens"
    title = "Proden+Ens"
    family = "ensemble"

    members: Count = 5


@dataclass(frozen=True)
class ProdenAdvEns(ProdenEns):
    """Proden+Ens with one attacked copy of each row (Lakshminarayanan et al., NeurIPS 2017).

    x' = x + epsilon sign(dL/dx), and the loss is that of x plus that of x' under the same label
    weights; these come from the unchanged row.

    Parameters
    ----------
    epsilon : float or tuple with one for each member
        How far each scaled feature is moved.
    """

    name = "proden_adv_ens"
    title = "Proden+AdvEns"
    moves_rows = True
    cost = 4.0

    epsilon: Number = 0.01

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        x = batch.x
        with steady_statistics(net):
            sign = sign_of_gradient(lambda moved: weighted_ce(net(moved), batch.label_weights), x)
        loss, written = super().step(net, batch, progress)
        epsilon = self.epsilon.view(-1, *[1] * (x.ndim - 1))
        attacked = weighted_ce(net(x + epsilon * sign), batch.label_weights)
        return loss + attacked, written


@dataclass(frozen=True)
class Pop(Proden):
    """Progressive purification: Proden that rules candidates out.

    Every fifth epoch from the 21st on, label weights are averaged over five epochs. A candidate
    with an average below a threshold times the row's largest is ruled out.

    Parameters
    ----------
    threshold, rise, ceiling : float
        Initial threshold, its growth with each purification, and its largest value.
    growth : {"added", "multiplied"}
        Whether it grows by `rise`, or by the factor 1 + `rise` after purifications that ruled out
        less than one in 10,000 of all pairs of a row and a class.
    persistent : bool
        Whether a candidate that is ruled out remains so, or only for the next epoch.
    """

    name = "pop"
    title = "Pop"
    incremental = False
    citation = (
        "Xu, Liu, Lv, Qiao, Geng: Progressive Purification for Instance-Dependent Partial Label "
        "Learning. ICML 2023"
    )
    by_row = False
    paper_fields: ClassVar = {"growth": "multiplied", "ceiling": 0.4, "persistent": False}

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

    def allowed(self, batch: Batch) -> Tensor:
        return batch.rows["kept"] if self.persistent else batch.candidates

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
