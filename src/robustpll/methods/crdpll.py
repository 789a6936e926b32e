"""CRDPLL (Wu, Wang & Zhang, ICML 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from robustpll.engine.augment import Views
from robustpll.engine.data import Batch
from robustpll.engine.layers import Stack, steady_statistics
from robustpll.engine.networks import Shape
from robustpll.engine.random import Draws
from robustpll.methods.base import Number, Step
from robustpll.methods.evidential import EVIDENCE, RobustPll, attacked
from robustpll.methods.views import ViewMethod, kl, outside, restricted
from robustpll.opinion import Opinion


@dataclass(frozen=True)
class Crdpll(ViewMethod):
    """Consistency: all views of a row learn its label weights, the mean of their predictions.

    The loss is -sum of ln(1 - p) over non-candidates of the weak view, plus the divergence of
    each of three views from the label weights. These are the geometric mean of the three
    predictions, within the candidates. Where rows have no views, three predictions are equal.

    What differs from the publication: the authors train WRN-34-10 for 200 epochs, lower the
    learning rate in steps, and make strong views by AutoAugment. They pass each view alone through
    the network. Here one pass has all views, so that BatchNorm sees them together.

    Parameters
    ----------
    consistency : float or tuple with one for each member
        Weight of the divergences, reached at half of the training.
    """

    name = "crdpll"
    title = "CRDPLL"
    citation = (
        "Wu, Wang, Zhang: Revisiting Consistency Regularization for Deep Partial Label Learning. "
        "ICML 2022"
    )
    views: ClassVar[tuple[str, ...]] = ("weak", "strong", "strong2")
    by_row = True
    cost = 3.0

    consistency: Number = 1.0

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        views = [batch.views[name] for name in self.views] + self.further_views(net, batch)
        # one pass for all views: BatchNorm then sees them together
        log_p = self.scores(net(torch.cat(views, 1))).log_softmax(-1).chunk(len(views), 1)
        divergence = torch.stack([kl(batch.label_weights, view) for view in log_p]).mean(0)
        weight = 3 * self.consistency * (2 * progress).clamp(max=1)
        loss = outside(log_p[0], batch.candidates) + weight * divergence
        mean = torch.stack(log_p[: len(self.views)]).detach().mean(0)
        mean = mean + self.prior_of(batch).clamp(min=1e-10).log()
        return loss, {"label_weights": restricted(mean, batch.candidates)}

    def further_views(self, net: nn.Module, batch: Batch) -> list[Tensor]:
        """Views that learn label weights without taking part in them."""
        return []

    def prior_of(self, batch: Batch) -> Tensor:
        """What multiplies label weights: the published method has nothing."""
        return torch.ones_like(batch.prior)


@dataclass(frozen=True)
class RobustPllViews(Crdpll):
    """RobustPll on views of pictures: their opinions agree, and evidence says how sure they are.

    As `Crdpll` with two views, but outputs are the logarithm of evidence, and a prediction is the
    mean of its Dirichlet distribution. A prior from votes multiplies the label weights. Where views
    are mirrored, predictions are means over a picture and its mirror image. It is the library's own
    combination of two methods, and not published.

    Parameters
    ----------
    consistency : float or tuple with one for each member
        As in `Crdpll`.
    adversary : float
        How far each pixel may be moved in a third view, to increase its error; 0 for none.
    """

    name = "robust_pll_views"
    title = "RobustPll+Views"
    citation = f"{RobustPll.citation}; {Crdpll.citation}"
    views = ("weak", "strong")
    uncertain = True
    cost = 2.0

    adversary: float = 0.0

    def build(self, shape: Shape, k: int, draws: Draws) -> nn.Module:
        net, views = super().build(shape, k, draws), Views.of(self.views, self.augment, "", shape)
        if isinstance(net, Stack) and views is not None and not views.is_foreign:
            net.mirrored = any(view.flips(shape) for view in views.recipes.values())
        return net

    def draw(self, rows: int, shape: Shape, draws: Draws) -> Tensor | None:
        return draws.uniform(rows, *shape) if self.adversary else None

    def further_views(self, net: nn.Module, batch: Batch) -> list[Tensor]:
        if not self.adversary:
            return []

        def error(rows: Tensor) -> Tensor:
            return kl(batch.label_weights, self.scores(net(rows)).log_softmax(-1))

        epsilon = batch.prior.new_full((len(batch.x), 1), self.adversary)
        with steady_statistics(net):
            return [attacked(error, batch.x, epsilon, 1, batch.drawn)]

    def prior_of(self, batch: Batch) -> Tensor:
        return batch.prior

    def scores(self, outputs: Tensor) -> Tensor:
        return (EVIDENCE["exp"](outputs) + 1).log()

    def opinion(self, logits: Tensor) -> Opinion:
        return Opinion.of_evidence(EVIDENCE["exp"](logits))
