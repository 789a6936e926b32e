"""Rules that turn true labels into candidate sets."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.optim import SGD, Optimizer

from robustpll.engine.data import Batch, Rows, Task
from robustpll.engine.device import chosen_device
from robustpll.engine.random import Draws
from robustpll.errors import InputError, is_count, is_share, refuse_other_length
from robustpll.estimator.features import Features, finite
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import is_frame
from robustpll.methods import DeepMethod


class Noise(ABC):
    """A rule that adds wrong classes to the true one."""

    looks_at_features: ClassVar[bool] = True

    @abstractmethod
    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        """Candidates (R, n, k) of R runs at once, whose rows have these true labels (R, n)."""

    def apply(
        self, X: Any, labels: ArrayLike, random_state: Any = None, device: str = "auto"
    ) -> Candidates:
        """Candidates for the rows of X, whose true labels are given by name.

        Classes that no row has are none of the result's, unless `labels` are `Candidates` that name
        them.

        Examples
        --------
        >>> X = np.repeat(np.eye(3), 4, axis=0)
        >>> labels = np.repeat(["a", "b", "c"], 4)
        >>> y = InstanceDependent(epochs=5).apply(X, labels, random_state=0)
        >>> all(label in names for label, names in zip(labels, y.sets()))
        True
        """
        true = Candidates.of(labels)
        if (true.sizes > 1).any():
            raise InputError(
                "labels must name the one true class of each row; some rows have several."
            )
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        if not self.looks_at_features:
            X = np.zeros((len(X) if hasattr(X, "__len__") else X.shape[0], 1))
        X = X if is_frame(X) else finite(np.asarray(X, dtype=np.float64))
        rows = Features.of(X).rows(X, chosen_device(device))
        refuse_other_length(len(rows), len(true))
        at = torch.from_numpy(true.matrix.argmax(-1))[None].to(rows.device)
        matrix = self.candidates(rows, at, true.shape[1], (seed,))[0].cpu().numpy()
        return Candidates.of(matrix, classes=true.classes)


@dataclass(frozen=True)
class InstanceDependent(Noise):
    """Wrong classes that a network finds plausible for the very row become candidates.

    A teacher g learns the true labels, softly: by plain gradient descent for few epochs. A wrong
    class j of a row joins with probability min(1, x_j / mean x), where x_j = g_j / max g over the
    wrong classes. The most plausible wrong class always joins, so no row has one candidate alone,
    unless the teacher is so certain that all wrong classes are below 1e-10.

    Parameters
    ----------
    epochs, batch_size, learning_rate
        Of the teacher. The fewer steps, the softer it is and the more candidates there are.
    mean_over : {"all", "wrong"}
        Whether the mean counts the true class as a zero, as in the published code, or runs over
        the wrong classes alone, as in the paper's text.
    """

    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    mean_over: Literal["all", "wrong"] = "all"

    def __post_init__(self) -> None:
        if self.mean_over not in ("all", "wrong"):
            raise InputError(f"mean_over must be 'all' or 'wrong'; got {self.mean_over!r}.")
        self._teacher()

    def _teacher(self) -> "Teacher":
        return Teacher(
            epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate
        )

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        true = one_hot(labels, k).bool()  # (R, n, k)
        teacher = self._teacher().fit(Task.of(rows, true, seeds))
        chance = joining(teacher.predict(rows).probability, true, self.mean_over)
        draws = Draws.of(seeds, "instance-dependent noise", like=chance)
        return true | (draws.uniform(*chance.shape[1:]) < chance)


@dataclass(frozen=True)
class ClassDependent(Noise):
    """Some rows get wrong classes, most often the partner of the true one.

    A random permutation of the classes is cut into pairs; with an odd number one stays single.

    Parameters
    ----------
    added : int
        Wrong classes that a row gets.
    share : float
        Of the rows that get them.
    cooccurrence : float
        Probability of the partner as a wrong class; all others share the rest. Where it is smaller
        than theirs, all wrong classes are as likely.

    Examples
    --------
    >>> labels = np.repeat(["a", "b", "c", "d"], 100)
    >>> ClassDependent(share=1.0).apply(np.ones((400, 1)), labels, random_state=0)
    Candidates(400 rows, 4 classes, 2.00 candidates on average)
    """

    looks_at_features: ClassVar[bool] = False

    added: int = 1
    share: float = 0.7
    cooccurrence: float = 0.7

    def __post_init__(self) -> None:
        shares = is_share(self.share) and is_share(self.cooccurrence)
        if not (is_count(self.added, least=1) and shares):
            raise InputError(
                f"{type(self).__name__}: added must be an int of at least 1, share and "
                f"cooccurrence numbers from 0 to 1; got {self}."
            )

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        if self.added > k - 1:
            raise InputError(
                f"{self} adds {self.added} wrong classes, but there are only {k} classes."
            )
        if self.added > 1 and self.cooccurrence == 1:
            raise InputError(
                f"{self}: with cooccurrence=1 only the partner can be drawn. Set added=1."
            )
        draws = Draws.of(seeds, "class-dependent noise", like=rows.shift)
        chance = _among_wrong(draws.order(k), self.cooccurrence).to(labels.device)  # (R, k, k)
        of_row = chance.gather(1, labels[..., None].expand(-1, -1, k))  # (R, n, k)
        # The r largest of ln(p) + Gumbel are r draws by p without replacement.
        uniform = draws.uniform(labels.shape[1], k).clamp(min=1e-30)  # a 0 would tie with no chance
        gumbel = -torch.log(-torch.log(uniform))
        drawn = (of_row.log() + gumbel).topk(self.added, -1).indices
        wrong = torch.zeros_like(of_row, dtype=torch.bool).scatter_(-1, drawn, value=True)
        noisy = draws.uniform(labels.shape[1], 1) < self.share
        return one_hot(labels, k).bool() | (wrong & noisy)


def _among_wrong(order: Tensor, cooccurrence: float) -> Tensor:
    """How likely each class is drawn as a wrong one, (R, true class, class); `order` is (R, k)."""
    k = order.shape[-1]
    if k == 2:
        return 1.0 - torch.eye(2).expand(len(order), 2, 2)
    high = max(cooccurrence, 1 / (k - 1))
    paired = k - k % 2
    first, second = order[:, 0:paired:2], order[:, 1:paired:2]
    run = torch.arange(len(order))[:, None]
    chance = torch.full((len(order), k, k), (1 - high) / (k - 2))
    chance[run, order[:, paired:]] = 1 / (k - 1)  # the single class, if there is one
    chance[run, first, second] = chance[run, second, first] = high
    return chance * (1 - torch.eye(k))


@dataclass(frozen=True)
class Uniform(ClassDependent):
    """Some rows get wrong classes, all as likely.

    Examples
    --------
    >>> labels = np.repeat(["a", "b", "c", "d"], 100)
    >>> Uniform(share=1.0).apply(np.ones((400, 1)), labels, random_state=0)
    Candidates(400 rows, 4 classes, 3.00 candidates on average)
    """

    added: int = 2
    share: float = 0.5
    cooccurrence: float = 0.0


@dataclass(frozen=True)
class Flip(Noise):
    """Leaves the true class out of some sets, as careless annotators do.

    A set that had nothing else gets one wrong class instead, all as likely.

    Parameters
    ----------
    share : float
        Of the rows whose set misses the true class.
    noise : Noise or None
        What makes the sets before; None takes the candidates that a dataset has.

    Examples
    --------
    >>> labels = np.repeat(["a", "b", "c", "d"], 500)
    >>> y = Flip(0.2, Uniform()).apply(np.ones((2000, 1)), labels, random_state=0)
    >>> missed = [label not in names for label, names in zip(labels, y.sets())]
    >>> round(float(np.mean(missed)), 1)
    0.2
    """

    share: float
    noise: Noise | None = None

    def __post_init__(self) -> None:
        if not is_share(self.share) or not isinstance(self.noise, Noise | None):
            raise InputError(
                "Flip: share must be a number from 0 to 1, noise a Noise such as Uniform(), or "
                f"None; got {self.share!r} and {self.noise!r}."
            )

    @property
    def looks_at_features(self) -> bool:  # type: ignore[override]
        return self.noise is None or self.noise.looks_at_features

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        if self.noise is None:
            raise InputError(
                "Flip without a noise needs candidates to flip. Pass Flip(share, Uniform())."
            )
        made = self.noise.candidates(rows, labels, k, seeds)
        return self.flipped(made, labels, Draws.of(seeds, "flip noise", like=rows.shift))

    def flipped(self, candidates: Tensor, labels: Tensor, draws: Draws) -> Tensor:
        """Candidates (R, n, k) of rows with these true labels (R, n), some without them."""
        n, k = candidates.shape[1:]
        true = one_hot(labels, k).bool()
        left_out = draws.uniform(n, 1) < self.share
        instead = one_hot((draws.uniform(n, k) - 2.0 * true).argmax(-1), k).bool()
        wrong = candidates & ~true
        wrong = torch.where(wrong.any(-1, keepdim=True), wrong, instead)
        return torch.where(left_out, wrong, candidates)


def joining(
    probability: Tensor, true: Tensor, mean_over: Literal["all", "wrong"] = "all"
) -> Tensor:
    """How likely each wrong class becomes a candidate, (..., k); 0 for the true one.

    >>> true = torch.tensor([True, False, False, False, False])
    >>> joining(torch.tensor([0.6, 0.2, 0.1, 0.06, 0.04]), true)
    tensor([0.0000, 1.0000, 1.0000, 0.7500, 0.5000])
    """
    wrong = probability.masked_fill(true, 0)
    wrong = wrong / _at_least(wrong.amax(-1, keepdim=True))
    count = true.shape[-1] - (mean_over == "wrong")
    return (wrong / _at_least(wrong.sum(-1, keepdim=True) / count)).clamp(max=1)


def _at_least(divisor: Tensor) -> Tensor:
    """The divisor, or 1 where it is as good as nothing."""
    return torch.where(divisor > 1e-10, divisor, 1.0)


@dataclass(frozen=True)
class Teacher(DeepMethod):
    """Squared error of softmax probabilities to true labels, by plain gradient descent."""

    name: ClassVar[str] = "teacher"
    title: ClassVar[str] = "Noise teacher"
    citation: ClassVar[str] = "Fuchs, Kalinke. 2025"

    def step(
        self, net: nn.Module, batch: Batch, progress: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        error = batch.label_weights - net(batch.x).softmax(-1)
        return error.square().sum(-1), {}

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        return SGD(parameters, lr=self.learning_rate, fused=True)
