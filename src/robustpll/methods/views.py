"""What methods that compare several views of a picture share."""

import copy
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from robustpll.engine.augment import AUGMENT, Augment
from robustpll.engine.data import State, Task, pick
from robustpll.engine.networks import Network
from robustpll.engine.random import Draws
from robustpll.methods.base import MOMENTUM, NETWORK, Count, DeepMethod, Positive

EMBEDDING = 128  # numbers of an embedding, in all published networks
TEMPERATURE = 0.07  # of similarities of embeddings


@dataclass(frozen=True)
class ViewMethod(DeepMethod):
    """A method for pictures, trained by SGD; rows have equal views."""

    published: ClassVar[bool] = False
    views: ClassVar[tuple[str, ...]] = ("weak", "strong")
    published_epochs: ClassVar[int] = 500  # in shorter trainings, label weights must move faster
    added_fields: ClassVar = {"parameter_groups": None, "clip": 0.0}

    epochs: Count = 100
    learning_rate: Positive = 0.1
    weight_decay: float = 5e-4
    network: Annotated[Network, NETWORK] = "auto"
    schedule: Literal["constant", "one-cycle"] = "one-cycle"
    augment: Annotated[Augment, AUGMENT] = "auto"
    momentum: Annotated[float, MOMENTUM] = 0.9

    def epoch(self, progress: Tensor) -> Tensor:
        """The current epoch, from 0."""
        return (progress * self.epochs).round()

    def kept(self, progress: Tensor, first: float, fall: float) -> Tensor:
        """Share that a moving average keeps: 0.99 in the first epoch, then from `first` down."""
        epoch = self.epoch(progress)
        return torch.where(epoch < 1, 0.99, first - fall * (epoch - 1) / self.epochs)

    def kept_weights(self, progress: Tensor) -> Tensor:
        """Share of the old label weights, for `published_epochs` from 0.95 down to 0.8."""
        power = max(1.0, self.published_epochs / self.epochs)
        return (self.kept(progress, 0.95, 0.15) ** power).clamp(min=0.5)


class TwoSpeeds(nn.Module):
    """A network, and a copy that follows it slowly."""

    def __init__(self, fast: nn.Module) -> None:
        super().__init__()
        self.fast, self.slow = fast, copy.deepcopy(fast).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.fast(x)
        return outputs

    @torch.no_grad()
    def slowly(self, x: Tensor, keep: float) -> Tensor:
        """Move the copy a little, then return its outputs."""
        torch._foreach_lerp_([*self.slow.parameters()], [*self.fast.parameters()], 1 - keep)
        outputs: Tensor = self.slow(x)
        return outputs


def two_speeds(net: nn.Module) -> TwoSpeeds:
    """Return the network of a method with a slow copy, also if products are in bfloat16."""
    inner = getattr(net, "net", net)
    assert isinstance(inner, TwoSpeeds)
    return inner


def split(outputs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Logits and embeddings of a network that `embedded` built."""
    return outputs[..., :k], outputs[..., k:]


def restricted(log_p: Tensor, allowed: Tensor) -> Tensor:
    """Probabilities (..., k) within the allowed classes, from logarithms or logits."""
    return log_p.masked_fill(~allowed, -torch.inf).softmax(-1)


def one_hot_like(labels: Tensor, like: Tensor) -> Tensor:
    """1 at the label (...), 0 elsewhere (..., k)."""
    return torch.zeros_like(like).scatter(-1, labels[..., None], 1.0)


def kl(weights: Tensor, log_p: Tensor) -> Tensor:
    """KL divergence of a prediction from label weights, (..., k) -> (...)."""
    return (torch.xlogy(weights, weights) - weights * log_p).sum(-1)


def outside(log_p: Tensor, candidates: Tensor) -> Tensor:
    """Return -sum of ln(1 - p) over classes that are no candidates, (..., k) -> (...)."""
    rest = torch.log1p(-log_p.exp().clamp(max=1 - 1e-6))
    return -rest.masked_fill(candidates, 0).sum(-1)


def contrast(
    embedding: Tensor, keys: Tensor, memory: dict[str, Tensor], alike: Tensor, on: Tensor
) -> Tensor:
    """Return the contrastive loss of a batch to itself, its keys and the queue, (M, b).

    It is -mean of ln softmax of similarities over others, weighed by `alike` (M, b, a). Until `on`,
    only a row's own key counts, and the other rows of the batch are ignored.
    """
    others = torch.cat([embedding, keys, memory["queue_embedding"]], 1)  # (M, a, d)
    b, filled = embedding.shape[1], memory["queue_filled"][..., 0] > 0
    row = torch.arange(b, device=embedding.device)[:, None]
    column = torch.arange(others.shape[1], device=embedding.device)
    itself, its_key, in_queue = column == row, column == row + b, column >= 2 * b
    known = torch.cat([torch.ones_like(filled[:, :1]).repeat(1, 2 * b), filled], 1)[:, None]
    ignored = torch.where(on, itself | ~known, ~its_key & ~(in_queue & known))
    positive = torch.where(on, alike, its_key.to(alike)).masked_fill(ignored, 0)
    similarity = (embedding @ others.mT / TEMPERATURE).masked_fill(ignored, -torch.inf)
    loss = torch.where(positive > 0, positive * similarity.log_softmax(-1), 0.0).sum(-1)
    return -loss / positive.sum(-1).clamp(min=1e-12)


def moved_prototypes(
    prototypes: Tensor, embedding: Tensor, labels: Tensor, keep: float | Tensor
) -> Tensor:
    """Prototypes (M, k, d) after moving averages over embeddings (M, b, d), one row at a time.

    P_y <- keep P_y + (1 - keep) q_i for each row i of label y in turn; then of length 1.
    """
    hot = one_hot_like(labels, embedding.new_zeros(*labels.shape, prototypes.shape[1]))
    later = hot.flip(1).cumsum(1).flip(1) - hot  # (M, b, k): later rows of each class
    shares = hot * keep**later * (1 - keep)
    moved = keep ** hot.sum(1)[..., None] * prototypes + shares.mT @ embedding
    return normalize(moved, dim=-1, eps=1e-12)


def add_queue(state: State, task: Task, size: int, **widths: int) -> None:
    """Add queues of the last rows' values to the memory, (M, size, width) each, and their fill."""
    for name, width in (widths | {"filled": 1}).items():
        state.memory[f"queue_{name}"] = task.prior.new_zeros(task.models, size, width)
    state.memory["queue_next"] = torch.zeros(1, dtype=torch.long, device=task.prior.device)


@torch.no_grad()
def push(memory: dict[str, Tensor], **rows: Tensor) -> None:
    """Replace the oldest values of queues by rows (M, b, width), in place."""
    place, size = memory["queue_next"], memory["queue_filled"].shape[1]
    b = next(iter(rows.values())).shape[1]
    places = (place + torch.arange(min(b, size), device=place.device)) % size
    for name, values in rows.items():
        queue = memory[f"queue_{name}"]
        queue.index_copy_(1, places, values[:, :size].to(queue.dtype))
    memory["queue_filled"].index_fill_(1, places, 1.0)
    place.add_(b).remainder_(size)


def draw_mixing(rows: int, draws: Draws, concentration: int) -> tuple[Tensor, Tensor]:
    """A partner of each row (M, b), and a share (M, 1) from the distribution Beta(a, a).

    The median of 2 a - 1 uniform numbers has this distribution.
    """
    share = draws.uniform(2 * concentration - 1).median(-1, keepdim=True).values
    return draws.uniform(rows).argsort(-1), share


def mixed(values: Tensor, partner: Tensor, share: Tensor) -> Tensor:
    """Mix each row of (M, b, ...) with its partner's."""
    other = pick(values.flatten(2), partner).view_as(values)
    return torch.lerp(other, values, share.view(-1, *[1] * (values.ndim - 1)))
