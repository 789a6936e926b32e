"""Noise models that turn true labels into candidate sets."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

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
from robustpll.errors import InputError, Rule, check_fields, counted, refuse_other_length
from robustpll.estimator.features import Features, finite, is_sparse
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import as_pandas, is_frame
from robustpll.methods import DeepMethod
from robustpll.methods.base import Count, Positive, Share, Step


class Noise(ABC):
    """A rule that makes candidates from the true class."""

    # Whether a benchmark stores the candidates: they take long to draw, and say everything.
    stored: ClassVar[bool] = True

    @abstractmethod
    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        """Return candidates (R, n, k) for R runs, whose rows have true labels (R, n)."""

    def task(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Task:
        """Return the training task of R runs: rows with candidates and their prior."""
        return Task.of(rows, self.candidates(rows, labels, k, seeds), seeds)

    def apply(
        self, X: Any, labels: ArrayLike, random_state: Any = None, device: str = "auto"
    ) -> Candidates:
        """Return candidates for the rows of X, as for `fit`, with true labels given by name.

        Examples
        --------
        >>> Uniform(share=1.0).apply(np.zeros((3, 1)), ["a", "b", "c"], random_state=0)
        Candidates(3 rows, 3 classes, 3.00 candidates on average)
        """
        true = Candidates.of(labels)
        if (true.sizes > 1).any():
            raise InputError("labels must name one true class per row; some rows have several.")
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        X = as_pandas(X)
        if not is_frame(X):
            X = finite(X.tocsr() if is_sparse(X) else np.asarray(X, dtype=np.float64))
        _, rows = Features.fit_rows(X, chosen_device(device))
        refuse_other_length(len(rows), len(true))
        positions = torch.from_numpy(true.matrix.argmax(-1))[None].to(rows.device)
        task = self.task(rows, positions, true.shape[1], (seed,))
        answers = None if task.answers is None else task.answers[0].cpu().numpy()
        matrix, prior = (part[0].cpu().numpy() for part in (task.candidates, task.prior))
        return Candidates(matrix, true.classes, prior, answers)


class CheckedNoise(Noise):
    """A noise whose fields hold what their annotations say."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Teacher(DeepMethod):
    """Learns true labels by squared error and plain gradient descent."""

    name: ClassVar[str] = "teacher"
    title: ClassVar[str] = "Noise teacher"

    def step(self, net: nn.Module, batch: Batch, progress: Tensor) -> Step:
        error = batch.label_weights - net(batch.x).softmax(-1)
        return error.square().sum(-1), {}

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        return SGD(parameters, lr=self.learning_rate, fused=True)


@dataclass(frozen=True)
class InstanceDependent(CheckedNoise):
    """Adds wrong classes that a network finds plausible for the row.

    A teacher g learns the true labels for a few epochs; fewer steps add more candidates. A wrong
    class j joins with probability min(1, x_j / mean x), where x_j = g_j / max g over the wrong
    classes. The most plausible one always joins, unless all have less than 1e-10. The mean counts
    the true class as a zero, as in the published code, or is over "wrong" classes, as in the paper.
    """

    epochs: Count = 100
    batch_size: Annotated[int, Rule("of at least 2", lambda size: size >= 2)] = 256
    learning_rate: Positive = 1e-3
    mean_over: Literal["all", "wrong"] = "all"

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        true = one_hot(labels, k).bool()  # (R, n, k)
        teacher = Teacher(self.epochs, self.batch_size, self.learning_rate)
        opinion = teacher.fit(Task.of(rows, true, seeds)).predict(rows)
        chance = joining(opinion.probability, true, self.mean_over)
        draws = Draws.of(seeds, "instance-dependent noise", like=chance)
        return true | (draws.uniform(*chance.shape[1:]) < chance)


def joining(probability: Tensor, true: Tensor, mean_over: Literal["all", "wrong"]) -> Tensor:
    """Return the chance (..., k) of each wrong class to become a candidate; 0 for the true one."""

    def divisor(values: Tensor) -> Tensor:
        return torch.where(values > 1e-10, values, 1.0)

    wrong = probability.masked_fill(true, 0)
    wrong = wrong / divisor(wrong.amax(-1, keepdim=True))
    count = true.shape[-1] - (mean_over == "wrong")
    return (wrong / divisor(wrong.sum(-1, keepdim=True) / count)).clamp(max=1)


@dataclass(frozen=True)
class ClassDependent(CheckedNoise):
    """Adds wrong classes to some rows, most often the partner of the true class.

    A random permutation of the classes is cut into pairs; an odd class has no partner.
    """

    added: Count = 1  # number of wrong classes to add
    share: Share = 0.7  # of the rows that get them
    cooccurrence: Share = 0.7  # probability of the partner; the others share the rest equally

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        most = min(1 if self.cooccurrence == 1 else k, k - 1)
        if self.added > most:
            partner = ", and cooccurrence=1 draws the partner alone" if most < k - 1 else ""
            raise InputError(
                f"{self} can add at most {counted(most, 'wrong class', 'wrong classes')}: there "
                f"are {k} classes{partner}. Lower `added`."
            )
        draws = Draws.of(seeds, "class-dependent noise", like=rows.shift)
        order = draws.order(k)  # (R, k)
        paired = k - k % 2
        first, second = order[:, 0:paired:2], order[:, 1:paired:2]
        high = max(self.cooccurrence, 1 / (k - 1))
        run = torch.arange(len(order))[:, None]
        # (R, true class, class)
        chance = torch.full((len(order), k, k), (1 - high) / max(k - 2, 1))
        chance[run, order[:, paired:]] = 1 / (k - 1)  # the class without a partner, if any
        chance[run, first, second] = chance[run, second, first] = high
        chance = (chance * (1 - torch.eye(k))).to(labels.device)
        row_chance = chance.gather(1, labels[..., None].expand(-1, -1, k))  # (R, n, k)
        # The r largest of ln(p) + Gumbel are r draws by p without replacement.
        uniform = draws.uniform(labels.shape[1], k).clamp(min=1e-30)  # a 0 would tie with p = 0
        gumbel = -torch.log(-torch.log(uniform))
        drawn = (row_chance.log() + gumbel).topk(self.added, -1).indices
        wrong = torch.zeros_like(row_chance, dtype=torch.bool).scatter_(-1, drawn, value=True)
        is_noisy = draws.uniform(labels.shape[1], 1) < self.share
        return one_hot(labels, k).bool() | (wrong & is_noisy)


@dataclass(frozen=True)
class Uniform(ClassDependent):
    """Adds wrong classes to some rows, all equally likely."""

    added: Count = 2
    share: Share = 0.5
    cooccurrence: Share = 0.0


@dataclass(frozen=True)
class Independent(CheckedNoise):
    """Adds each wrong class with the same probability; rows that get none have one candidate."""

    chance: Share = 0.5

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        draws = Draws.of(seeds, "independent noise", like=rows.shift)
        return one_hot(labels, k).bool() | (draws.uniform(labels.shape[1], k) < self.chance)


NOISE = Rule("a Noise such as Uniform(), or None", lambda value: isinstance(value, Noise | None))


@dataclass(frozen=True)
class Flip(CheckedNoise):
    """Removes the true class from some sets, as careless annotators do.

    A set without other classes gets one wrong class instead, all equally likely.
    """

    share: Share  # of the rows whose set misses the true class
    noise: Annotated[Noise | None, NOISE] = None  # makes the sets; None: the dataset has them

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        if self.noise is None:
            raise InputError("Flip has no candidates to flip. Pass Flip(share, Uniform()).")
        return self.flipped(rows, self.noise.candidates(rows, labels, k, seeds), labels, seeds)

    def flipped(
        self, rows: Rows, candidates: Tensor, labels: Tensor, seeds: tuple[int, ...]
    ) -> Tensor:
        """Remove the true labels (R, n) from some of the candidates (R, n, k)."""
        n, k = candidates.shape[1:]
        draws = Draws.of(seeds, "flip noise", like=rows.shift)
        true = one_hot(labels, k).bool()
        is_flipped = draws.uniform(n, 1) < self.share
        instead = one_hot((draws.uniform(n, k) - 2.0 * true).argmax(-1), k).bool()
        wrong = candidates & ~true
        wrong = torch.where(wrong.any(-1, keepdim=True), wrong, instead)
        return torch.where(is_flipped, wrong, candidates)


@dataclass(frozen=True)
class Annotators(CheckedNoise):
    """Answers of several annotators, whose skills differ; sets may miss the true class.

    Skills are uniform between the lowest and the highest. An answer is right with the probability
    of the skill. Wrong answers depend on the true class: each has a distribution over the other
    classes, drawn from a Dirichlet distribution, and all annotators share it. Candidates are all
    classes that somebody named, and their prior is the share of answers.

    Examples
    --------
    >>> y = Annotators(count=3, gaps=0.5).apply(np.zeros((4, 1)), ["a", "b", "a", "b"], 0, "cpu")
    >>> y.answers.shape, y.prior.sum(-1)
    ((4, 3), array([1., 1., 1., 1.], dtype=float32))
    """

    stored: ClassVar[bool] = False  # drawing is fast, and stored sets would lack the answers

    count: Count = 5
    lowest_skill: Share = 0.5
    highest_skill: Share = 0.9
    gaps: Share = 0.3  # probability of a missing answer; every row has at least one
    concentration: Positive = 1.0  # the smaller, the more do wrong answers agree

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lowest_skill > self.highest_skill:
            raise InputError(
                f"lowest_skill must not exceed highest_skill; got {self.lowest_skill} and "
                f"{self.highest_skill}. Swap them."
            )

    def answers(self, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        """Return the class that each annotator names, (R, n, count), -1 for none."""
        # Each of R runs, with true labels (R, n), has annotators of its own.
        if k < 2:
            raise InputError(f"Annotators need at least 2 classes to confuse; labels have {k}.")
        runs, n = labels.shape
        like = torch.zeros((), dtype=torch.float64, device=labels.device)
        draws = Draws.of(seeds, "annotators", like=like)
        span = self.highest_skill - self.lowest_skill
        skill = self.lowest_skill + span * draws.uniform(1, self.count)
        confusion = draws.dirichlet(like.new_full((runs, k, k - 1), self.concentration))
        steps = confusion.cumsum(-1).gather(1, labels[..., None].expand(-1, -1, k - 1))
        position = torch.searchsorted(steps, draws.uniform(n, self.count)).clamp(max=k - 2)
        true = labels[..., None]
        wrong = position + (position >= true)  # the other classes, in order
        named = torch.where(draws.uniform(n, self.count) < skill, true, wrong)
        luck = draws.uniform(n, self.count)
        is_gap = (luck < self.gaps) & (luck < luck.amax(-1, keepdim=True))
        return named.masked_fill(is_gap, -1)

    def candidates(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Tensor:
        return self.task(rows, labels, k, seeds).candidates

    def task(self, rows: Rows, labels: Tensor, k: int, seeds: tuple[int, ...]) -> Task:
        answers = self.answers(labels, k, seeds)
        counts = torch.zeros(*labels.shape, k + 1, device=labels.device)
        ones = torch.ones_like(answers, dtype=counts.dtype)
        votes = counts.scatter_add_(-1, answers + 1, ones)[..., 1:]  # (R, n, k), without gaps
        prior = votes / votes.sum(-1, keepdim=True)
        return Task.of(rows, votes > 0, seeds, prior, answers=answers)


NOISES: dict[str, type[Noise]] = {  # by their names in grids
    "instance-dependent": InstanceDependent,
    "class-dependent": ClassDependent,
    "uniform": Uniform,
    "independent": Independent,
    "flip": Flip,
    "annotators": Annotators,
}
