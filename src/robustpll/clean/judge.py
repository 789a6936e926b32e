"""What is held of each row by a model that did not see its candidates, and by the candidates."""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from robustpll.engine.data import Task
from robustpll.engine.device import chosen_device
from robustpll.engine.progress import progress_bars
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_count, refuse_other_length
from robustpll.estimator.features import Features
from robustpll.estimator.recalibration import Recalibration, Scaled
from robustpll.labels.candidates import Candidates
from robustpll.methods import Method
from robustpll.methods.neighbours import neighbours
from robustpll.opinion import Opinion

if TYPE_CHECKING:
    from robustpll.engine.rows import Rows

Floats = NDArray[np.float64]

FAULTY = 0.05  # share of sets that are taken to miss the true class, see `Judgement`
NEAREST = 5  # rows around each that are looked at
FACTORS = np.geomspace(0.01, 4, 41)  # on the evidence or the logits


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is known of the label of each row.

    >>> opinion = Opinion.of_probability(np.array([[0.6, 0.3, 0.1], [0.02, 0.49, 0.49]]))
    >>> candidates = Candidates.of([{"ant", "bee"}, {"ant", "cow"}], classes=["ant", "bee", "cow"])
    >>> judged = Judgement(candidates, opinion, torch.eye(2), np.zeros(2, dtype=bool))
    >>> judged.probability.round(2)
    array([[0.66, 0.33, 0.01],
           [0.04, 0.09, 0.87]])
    >>> judged.labels, judged.confidence.round(2), judged.missing.round(2)
    (array(['ant', 'cow'], dtype='<U3'), array([0.66, 0.87]), array([0.01, 0.09]))
    """

    candidates: Candidates  # of n rows; of decided rows a single one
    opinion: Opinion  # of models that did not see these candidates, (n, k); recalibrated by them
    rows: torch.Tensor  # scaled features, (n, *shape)
    decided: NDArray[np.bool_]  # (n,): a person gave the label

    @cached_property
    def probability(self) -> Floats:
        """Of each class, by the model and the candidates with their votes, (n, k).

        The model's probability times how likely the candidates are if the class is the true one:
        19 sets of 20 are taken to hold the true class, and then classes share that by their
        votes; in the others all classes outside share it. Where no set misses the truth this
        costs next to nothing; where one in ten does, wrong labels are found much sooner.
        """
        found = posterior(np.asarray(self.opinion.probability), self.candidates.prior)
        found[self.decided] = self.candidates.matrix[self.decided]
        return found

    @cached_property
    def resolved(self) -> NDArray[np.int64]:
        """The most probable candidate of each row, (n,)."""
        inside = np.where(self.candidates.matrix, self.probability, -1.0)
        return np.asarray(inside.argmax(-1))

    @cached_property
    def near(self) -> tuple[NDArray[np.int64], Floats]:
        """The nearest other rows of each row, and their distances, (n, 5) each or fewer."""
        flat = self.rows.flatten(1)
        found = neighbours(flat, flat, NEAREST, itself=True)
        return found.indices.cpu().numpy(), found.distance.cpu().numpy()

    @cached_property
    def labels(self) -> NDArray[Any]:
        return np.asarray(self.candidates.classes[self.resolved])

    @cached_property
    def confidence(self) -> Floats:
        """Probability that the resolved label is right, (n,)."""
        return np.asarray(np.take_along_axis(self.probability, self.resolved[:, None], 1)[:, 0])

    @cached_property
    def missing(self) -> Floats:
        """Probability that the true class is no candidate, (n,)."""
        return np.asarray((self.probability * ~self.candidates.matrix).sum(-1))

    @cached_property
    def best_outside(self) -> NDArray[np.int64]:
        """The most probable class that is no candidate; the resolved one where all are, (n,)."""
        outside = np.where(self.candidates.matrix, -1.0, self.probability)
        full = self.candidates.matrix.all(-1)
        return np.where(full, self.resolved, outside.argmax(-1))

    def __len__(self) -> int:
        return len(self.candidates)


def posterior(probability: Floats, prior: NDArray[Any]) -> Floats:
    """Probabilities (n, k) of a model, together with shares of votes (n, k) on the candidates.

    >>> posterior(np.array([[0.5, 0.4, 0.1]]), np.array([[0.25, 0.75, 0.0]])).round(2)
    array([[0.29, 0.7 , 0.01]])
    """
    outside = prior == 0
    count = outside.sum(-1, keepdims=True)
    share = np.where(count > 0, FAULTY, 0.0)
    likely = np.where(outside, share / np.maximum(count, 1), (1 - share) * prior)
    weighed = probability * likely
    total = weighed.sum(-1, keepdims=True)
    # a model that rules out all candidates and all else leaves only what the candidates say
    return np.asarray(np.where(total > 0, weighed / np.where(total > 0, total, 1), likely))


def recalibrated(opinion: Opinion, candidates: NDArray[np.bool_]) -> Opinion:
    """As sure as the models should have been, judged by candidates (n, k) that they did not see.

    A set that holds the true class is as likely as the mean probability of its members, one that
    misses it as that of the others. The factor on the evidence or the logits (`Recalibration`) is
    the one that makes all sets most likely. Sets that favour what a model confuses seldom show
    its errors and ask for factors of 100; so it is 4 at most.

    >>> opinion = Opinion.of_probability(np.array([[0.9, 0.1, 0.0]] * 4))
    >>> candidates = np.array([[True, False, False]] * 3 + [[False, True, False]])
    >>> recalibrated(opinion, candidates).probability[0].round(2)
    array([0.78, 0.22, 0.  ])
    """
    of: Scaled = "evidence" if (opinion.uncertainty > 0).any() else "logits"
    told = ~candidates.all(-1)  # a set of all classes tells nothing
    if not told.any():
        return opinion
    some, sets = opinion[told], candidates[told]
    sizes = sets.sum(-1)
    found = []
    for factor in FACTORS:
        tried = Recalibration(float(factor), of, "candidates", len(sets), np.nan, np.nan)
        p = np.asarray(tried.opinion(some).probability)
        within = (p * sets).sum(-1) / sizes
        beyond = (p * ~sets).sum(-1) / (sets.shape[1] - sizes)
        likely = np.log((1 - FAULTY) * within + FAULTY * beyond).sum()
        found.append((likely, tried))
    return max(found, key=lambda pair: pair[0])[1].opinion(opinion)


def judge(
    X: Any,
    candidates: Candidates,
    method: Method,
    *,
    folds: int = 5,
    seed: int = 0,
    device: str = "auto",
    verbose: bool = False,
    decided: NDArray[np.bool_] | None = None,
) -> Judgement:
    """Train on all rows but a fold, judge the fold, for each fold; all trainings are one bundle.

    `decided` (n,) are rows whose single candidate a person chose; `verbose` shows a progress bar.

    >>> from robustpll.methods import PlKnn
    >>> random = np.random.default_rng(0)
    >>> truth = random.integers(3, size=90)
    >>> X = random.normal(truth[:, None], 0.1, size=(90, 2))
    >>> y = (random.random((90, 3)) < 0.3) | np.eye(3, dtype=bool)[truth]
    >>> y[7] = ~np.eye(3, dtype=bool)[truth[7]]  # all but the truth
    >>> judged = judge(X, Candidates.of(y), PlKnn())
    >>> int((judged.labels == truth).sum()), int(judged.missing.argmax())
    (89, 7)
    """
    features = Features.of(X)  # of all rows: what is measured, not what is said of it
    rows = features.rows(X, chosen_device(device))
    refuse_other_length(len(rows), len(candidates))
    n = len(rows)
    if not is_count(folds, least=2) or folds > n // 2:
        raise InputError(
            f"folds must be an int of at least 2 and at most half of {n} rows; got {folds!r}."
        )
    taught, judged = parts(n, int(folds), seed)
    with progress_bars() if verbose else nullcontext():
        fitted = method.fit(_task(rows, candidates, taught, seed))
    opinion = _in_order(fitted.predict(_runs(rows, judged)).numpy(), judged)
    opinion = recalibrated(opinion, candidates.matrix)
    decided = np.zeros(n, dtype=bool) if decided is None else decided
    return Judgement(candidates, opinion, rows.x(rows.everything)[0], decided)


def parts(n: int, folds: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions to train on and to judge, (folds, rows of each).

    A bundle needs equal numbers: where folds differ by a row, the larger training sets leave one
    of theirs out, and the smaller folds name one of their rows twice.

    >>> taught, judged = parts(11, 3, seed=0)
    >>> taught.shape, judged.shape, sorted(set(judged.flatten().tolist())) == list(range(11))
    (torch.Size([3, 7]), torch.Size([3, 4]), True)
    """
    order = np.random.default_rng(seed_of(seed, "folds")).permutation(n)
    folded = np.array_split(order, folds)
    size = max(map(len, folded))
    judged = [np.resize(own, size) for own in folded]
    taught = [np.setdiff1d(order, own)[np.arange(n - size)] for own in folded]
    return torch.from_numpy(np.stack(taught)), torch.from_numpy(np.stack(judged))


def _task(rows: "Rows", candidates: Candidates, at: torch.Tensor, seed: int) -> Task:
    seeds = tuple(seed_of(seed, "fold", fold) for fold in range(len(at)))
    matrix, prior = (torch.from_numpy(part) for part in (candidates.matrix, candidates.prior))
    return Task.of(_runs(rows, at), matrix[at], seeds, prior[at])


def _runs(rows: "Rows", at: torch.Tensor) -> "Rows":
    """Rows of one run for as many runs as `at` (runs, b) has."""
    return rows.repeated(len(at)).others(rows.pool, at.to(rows.at.device))


def _in_order(found: Opinion, at: torch.Tensor) -> Opinion:
    """Opinions of the rows at (folds, b), as one of all rows."""
    _, first = np.unique(at.numpy(), return_index=True)  # rows may be named twice
    return found[np.unravel_index(first, at.shape)]
