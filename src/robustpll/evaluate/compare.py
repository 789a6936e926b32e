"""Baselines beside a model: the same held-out rows, the same measure, no true label needed."""

import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from robustpll._display import Displayed
from robustpll.datasets.problem import candidates_task
from robustpll.engine.cluster import computing_on
from robustpll.engine.data import Rows, fold_indices
from robustpll.engine.device import chosen_device
from robustpll.engine.history import progress_bars
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_count, refuse_other_length, some_of
from robustpll.estimator.classifier import PLLClassifier
from robustpll.estimator.features import Features
from robustpll.estimator.loaders import pairs_of
from robustpll.labels.candidates import Candidates
from robustpll.labels.parsing import array_of
from robustpll.methods import Auto, Method, Wrapped
from robustpll.opinion import Opinion

Ints = NDArray[np.int64]

BASELINES = {"random forest": "random_forest", "logistic regression": "logistic_regression"}
FOLDS = 5
FEWEST_ROWS = 20  # of a comparison
FEWEST_SINGLES = 50  # rows with one candidate that a comparison may go by
FEW = 0.5  # share of rows with one candidate below which they may not stand for all
MOST_ROWS = 20_000  # that baselines learn from: a forest of 300 trees then takes a minute
ERRORS = 2.0  # standard errors that tell two learners apart


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Displayed):
    """The class that a learner predicts for each row it did not learn from."""

    title: str
    predicted: Ints  # (n,): index of the class; -1 for rows that are not compared
    seconds: float | None = None  # of all fits
    advice: str = ""  # how to get this learner
    note: str = ""


@dataclass(frozen=True, repr=False)
class Learner(Displayed):
    """One line of a `Comparison`."""

    title: str
    score: float  # by the measure of the comparison
    covering_rate: float  # share of rows whose predicted class is a candidate
    accuracy: float | None  # None without true labels
    seconds: float | None


@dataclass(frozen=True, repr=False)
class Contrast(Displayed):
    """The score of a model against that of the best baseline.

    The standard error is that of a difference of 0 (McNemar's test); rows are paired. It ignores
    that models of different folds share training rows.

    >>> Contrast("accuracy", "Proden", 0.83, "Majority", 0.80, 0.01, "").verdict
    'better'
    """

    measure: str
    title: str
    score: float
    baseline: str
    baseline_score: float
    standard_error: float
    advice: str

    @property
    def difference(self) -> float:
        return self.score - self.baseline_score

    @property
    def verdict(self) -> str:
        """Return "better", "worse" or "not told apart"."""
        if abs(self.difference) <= ERRORS * self.standard_error:
            return "not told apart"
        return "better" if self.difference > 0 else "worse"

    def __str__(self) -> str:
        ours, baseline = (self.title, self.score), (self.baseline, self.baseline_score)
        first, second = (baseline, ours) if self.verdict == "worse" else (ours, baseline)
        words = f"{first[0]} is better than {second[0]} here"
        if self.verdict == "not told apart":
            words = f"{first[0]} and {second[0]} cannot be told apart here"
        error = f"standard error of the difference: {self.standard_error:.3f}"
        sentence = f"{words}: {first[1]:.3f} against {second[1]:.3f} ({self.measure}; {error})."
        return f"{sentence} {self.advice}".rstrip() if self.verdict == "worse" else sentence


@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
    """A model beside baselines, see `compare`.

    `learners` has the baselines first and the model last. `measure` is "agreement with answers",
    "right in rows with one candidate" or "covering rate", over `count` answers or rows.
    `contrasts` tell whether the model is better than the best baseline, by this measure and last by
    the accuracy if true labels are known.

    >>> y = Candidates.of(["a", "b"] * 50)
    >>> right, wrong = np.array([0, 1] * 50), np.array([0, 1] * 40 + [1, 0] * 10)
    >>> result = comparison_of(y, Predictions("Mine", wrong), [Predictions("Forest", right)])
    >>> print(result)
    right in rows with one candidate, of 100 held-out rows
           right in rows with one candidate covering rate seconds
    Forest                               1.000         1.000       -
    Mine                                 0.800         0.800       -
    Forest is better than Mine here: 1.000 against 0.800 (right in rows with one candidate; ...
    """

    measure: str
    count: int
    learners: tuple[Learner, ...]
    contrasts: tuple[Contrast, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Return "better", "worse" or "not told apart"; by the accuracy if it is known."""
        return self.contrasts[-1].verdict

    def __str__(self) -> str:
        title, frame = self._parts()
        return "\n".join([title, frame.to_string(), *map(str, self.contrasts), *self.notes])

    def _facts(self) -> str:
        return f"{self._parts()[0]}; {self.learners[-1].title}: {self.verdict}"

    def _table(self) -> pd.DataFrame:
        return self._parts()[1]

    def _notes(self) -> list[object]:
        return [*self.contrasts, *self.notes]

    def _parts(self) -> tuple[str, pd.DataFrame]:
        """The title, and the table."""
        unit = "answers in held-out rows" if self.measure == AGREEMENT else "held-out rows"
        columns: dict[str, list[float | None]] = {
            self.measure: [learner.score for learner in self.learners],
            COVERING: [learner.covering_rate for learner in self.learners],
        }
        if len(self.contrasts) > 1:
            columns[ACCURACY] = [learner.accuracy for learner in self.learners]
        cells = {name: [_cell(x, ".3f") for x in column] for name, column in columns.items()}
        cells["seconds"] = [_cell(learner.seconds, ",.1f") for learner in self.learners]
        frame = pd.DataFrame(cells, index=[learner.title for learner in self.learners])
        return f"{self.measure}, of {self.count:,} {unit}", frame


AGREEMENT, SINGLES = "agreement with answers", "right in rows with one candidate"
COVERING, ACCURACY = "covering rate", "accuracy"


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def compare(
    X: Any,
    y: Any,
    *,
    method: str | Method | None = None,
    truth: ArrayLike | None = None,
    text: Sequence[str] = (),
    folds: int = FOLDS,
    random_state: Any = None,
    device: str = "auto",
    verbose: bool = False,
    cluster: str | None = None,
) -> Comparison:
    """Compare a method with a majority vote and standard classifiers, on held-out rows.

    The baselines are a random forest and a logistic regression. They learn the class with most
    votes, or each candidate as a row of its own without votes; at most 20,000 rows, at random.

    Votes are measured by the share of held-out answers that are the predicted class. Candidate sets
    are measured by rows with a single candidate if there are 50, else by the covering rate. These
    measures can mislead: repeating mistakes in labels pays, and rows with one candidate may differ.
    On msrc-v2 they prefer a forest that is less accurate than `Auto`. With `truth`, that decides.

    Parameters
    ----------
    X, y
        Rows, and candidates in any form that `Candidates.of` accepts.
    method : str, Method or None
        `Auto` by default, which holds out rows by itself. Others are fitted once for each fold.
    truth : array of shape (n,), optional
        True labels, None or NaN if unknown. They are compared with, never learned from.
    folds, text, random_state, device, verbose, cluster
        Number of folds, at least 2; the others are those of `PLLClassifier`.

    Examples
    --------
    >>> X = np.repeat(np.eye(3), 40, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 20 + [{"b", "c"}, {"b"}] * 20 + [{"c", "a"}, {"c"}] * 20
    >>> comparison = compare(X, y, method="pl_knn", random_state=0)
    >>> comparison.measure, comparison.verdict
    ('right in rows with one candidate', 'not told apart')
    """
    model = PLLClassifier(Auto() if method is None else method)
    learner = model.resolved_method()
    X, y = pairs_of(X, y)
    X, candidates = model._read(X, reset=True), Candidates.of(y)
    refuse_other_length(X.shape[0], n := len(candidates))
    if not is_count(folds, least=2) or folds > n // 2:
        raise InputError(f"folds must be an int of at least 2, at most {n // 2}; got {folds!r}.")
    _known_truth(candidates, truth)  # raises before anything is fitted
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    _, rows = Features.fit_rows(X, chosen_device(device), learner.scale, text)  # by all rows
    splits = sampled_folds(n, folds, seed, candidates)
    with progress_bars() if verbose else nullcontext(), computing_on(cluster, device):
        start, ours = time.perf_counter(), None
        if fitted := _fit_once(learner, rows, candidates, seed):
            predicted = np.asarray(fitted.held_out[0].numpy().predicted())
            ours = Predictions(learner.title, predicted, time.perf_counter() - start)
        ours = ours or out_of_fold(learner, rows, candidates, splits=splits, seed=seed)
        return comparison_of(candidates, ours, baselines(rows, candidates, seed, splits), truth)


def _fit_once(method: Method, rows: Rows, candidates: Candidates, seed: int) -> Any:
    """Fit `Auto` if it predicts each row by members that did not see it; None for others."""
    if not isinstance(method, Auto) or not method.holds_out_all(len(rows), method.folds):
        return None
    fitted = method.fit(candidates_task(rows, candidates, (seed,)))
    return None if fitted.held_out is None else fitted


def sampled(n: int, seed: int) -> Ints:
    """Return the positions of at most 20,000 of n rows, in order.

    >>> sampled(3, seed=0), len(sampled(30_000, seed=0))
    (array([0, 1, 2]), 20000)
    """
    order = np.random.default_rng(seed_of(seed, "sample")).permutation(n)
    return np.sort(order[:MOST_ROWS])


def sampled_folds(
    n: int, folds: int, seed: int, candidates: Candidates | None = None
) -> tuple[Tensor, Tensor]:
    """Return positions of training and test rows, (folds, rows) each, of at most 20,000 rows.

    With candidates, folds are stratified by the likeliest class, see `CandidateKFold`.

    >>> train, test = sampled_folds(10, 5, seed=0)
    >>> train.shape, test.shape
    (torch.Size([5, 8]), torch.Size([5, 2]))
    """
    positions = sampled(n, seed)
    stratified = None if candidates is None else candidates[positions]
    train, test = fold_indices(stratified or len(positions), folds, seed)
    return torch.from_numpy(positions)[train], torch.from_numpy(positions)[test]


def baselines(
    rows: Rows, candidates: Candidates, seed: int, splits: tuple[Tensor, Tensor] | None = None
) -> list[Predictions]:
    """Return the held-out predictions of a random forest and of a logistic regression.

    `rows` are those of one run, as `Features.fit_rows` returns them; `splits` are positions of
    training and test rows, (folds, rows) each, by default of `sampled_folds`.

    >>> _, rows = Features.fit_rows(np.repeat(np.eye(2), 20, axis=0), "cpu")
    >>> forest, regression = baselines(rows, Candidates.of(["a"] * 20 + ["b"] * 20), seed=0)
    >>> forest.title, forest.predicted[[0, -1]].tolist()
    ('Each candidate + random forest', [0, 1])
    """
    splits = splits or sampled_folds(len(rows), min(FOLDS, len(rows) // 2), seed, candidates)
    labels = "Each candidate" if candidates.answers is None else "Majority"
    learners = []
    for words, name in BASELINES.items():
        method, title = Wrapped(name, labels="majority"), f"{labels} + {words}"
        advice = f'Consider PLLClassifier(Wrapped("{name}", labels="majority")).'
        if candidates.answers is None:  # other candidates may depend on the row, too
            advice = f"Candidate sets can mislead: check some labels by hand. {advice}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # after 1,000 steps
            settings: Any = {"splits": splits, "seed": seed, "title": title, "advice": advice}
            learners.append(out_of_fold(method, rows, candidates, **settings))
    return learners


def out_of_fold(
    method: Method,
    rows: Rows,
    candidates: Candidates,
    *,
    splits: tuple[Tensor, Tensor],
    seed: int,
    title: str | None = None,
    advice: str = "",
) -> Predictions:
    """Fit a method once for each split, as runs of one task, and predict its test rows.

    >>> _, rows = Features.fit_rows(np.repeat(np.eye(2), 4, axis=0), "cpu")
    >>> y, forest = Candidates.of(["a"] * 4 + ["b"] * 4), Wrapped("random_forest", "prior")
    >>> out_of_fold(forest, rows, y, splits=sampled_folds(8, 4, 0), seed=0).predicted
    array([0, 0, 0, 0, 1, 1, 1, 1])
    """
    start, (train, test) = time.perf_counter(), splits
    opinion = _opinion_of_folds(method, rows, candidates, splits, seed)
    predicted = np.full(len(rows), -1)
    predicted[test.numpy()] = opinion.predicted()  # a fold may name a row twice
    title, note = title or method.title, ""
    if len(np.union1d(train.numpy(), test.numpy())) < len(rows):
        part = f"{train.shape[1]:,} of {len(rows):,} rows"
        note = f"{title} learned from {part}, a random sample; more may help it."
    return Predictions(title, predicted, time.perf_counter() - start, advice, note)


def _opinion_of_folds(
    method: Method, rows: Rows, candidates: Candidates, splits: tuple[Tensor, Tensor], seed: int
) -> Opinion:
    """Opinions (folds, b, ...) of test rows, by one model for each split."""
    train, test = splits
    seeds = tuple(seed_of(seed, "fold", fold) for fold in range(len(train)))
    task = candidates_task(_at(rows, train), candidates, seeds)
    return method.fit(task).predict(_at(rows, test)).numpy()


def _at(rows: Rows, positions: Tensor) -> Rows:
    """Rows at (folds, b) of one run, as many runs."""
    return rows.repeated(len(positions)).others(rows.pool, positions.to(rows.indices.device))


def comparison_of(
    candidates: Candidates,
    ours: Predictions,
    others: Sequence[Predictions],
    truth: ArrayLike | None = None,
) -> Comparison:
    """Compare predictions for rows that all of these learners predicted; see `Comparison`."""
    every = (*others, ours)
    compared = np.logical_and.reduce([learner.predicted >= 0 for learner in every])
    here = candidates[compared]
    predicted = [learner.predicted[compared] for learner in every]
    measure, hits, counts = _hits(here, predicted)
    covered = [here.matrix[np.arange(len(here)), column].mean() for column in predicted]
    contrasts = [_contrast(measure, every, hits, counts)]
    accuracies: list[float | None] = [None] * len(every)
    known, codes = (values[compared] for values in _known_truth(candidates, truth))
    if known.any():
        right = [1 * (known & (codes == column)) for column in predicted]
        by_accuracy = _contrast(ACCURACY, every, right, 1 * known)
        contrasts = [replace(contrasts[0], advice=""), by_accuracy]  # only the last advises
        accuracies = [float(column.sum() / known.sum()) for column in right]
    learners = tuple(
        Learner(one.title, float(hit.sum() / counts.sum()), float(cover), share, one.seconds)
        for one, hit, cover, share in zip(every, hits, covered, accuracies, strict=True)
    )
    notes = [learner.note for learner in every if learner.note]
    if measure == SINGLES and (share := counts.mean()) < FEW:
        few = f"Only {share:.0%} of the rows have one candidate"
        notes.append(f"{few}, and they may differ from the others. Some true labels tell more.")
    return Comparison(measure, int(counts.sum()), learners, tuple(contrasts), tuple(notes))


def _known_truth(candidates: Candidates, truth: Any) -> tuple[NDArray[np.bool_], Ints]:
    """Return which true labels are known, (n,), and the index of each among the classes or -1."""
    n = len(candidates)
    labels = np.full(n, None) if truth is None else array_of(truth)
    if labels.shape != (n,):
        raise InputError(f"truth must hold one label for each of {n} rows; got {labels.shape}.")
    known, codes = pd.notna(labels), pd.Index(candidates.classes).get_indexer(labels)
    if known.any() and (codes < 0).all():
        names = some_of(map(repr, candidates.classes.tolist()))
        raise InputError(f"truth names none of the classes of y, which are {names}. Correct it.")
    return known, codes


def _hits(candidates: Candidates, predicted: Sequence[Ints]) -> tuple[str, list[Ints], Ints]:
    """Return the measure, how many answers (n,) each learner predicted, and how many there are."""
    covered = [1 * candidates.matrix[np.arange(len(column)), column] for column in predicted]
    single, answers = 1 * (candidates.sizes == 1), candidates.answers
    if answers is not None and (answers >= 0).any():
        counts = (answers >= 0).sum(-1)
        decided = single * (counts == 0)  # by a person, in a review: it counts as one answer
        pairs = zip(predicted, covered, strict=True)
        hits = [(answers == column[:, None]).sum(-1) + decided * cover for column, cover in pairs]
        return AGREEMENT, hits, counts + decided
    if single.sum() >= FEWEST_SINGLES:
        return SINGLES, [cover * single for cover in covered], single
    return COVERING, covered, np.ones_like(single)


def _contrast(
    measure: str, every: Sequence[Predictions], hits: Sequence[Ints], counts: Ints
) -> Contrast:
    """Compare the last learner with the best of the others; see `Contrast`."""
    shares = [float(column.sum() / counts.sum()) for column in hits]
    best = int(np.argmax(shares[:-1]))
    error = float(np.sqrt(np.square(hits[-1] - hits[best]).sum()) / counts.sum())
    ours, baseline = (every[-1].title, shares[-1]), (every[best].title, shares[best])
    return Contrast(measure, *ours, *baseline, error, every[best].advice)
