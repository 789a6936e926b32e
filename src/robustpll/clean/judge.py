"""Out-of-fold predictions for each row, combined with its candidate set."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robustpll._display import Displayed
from robustpll.engine.cluster import computing_on
from robustpll.engine.data import fold_indices
from robustpll.engine.device import chosen_device
from robustpll.engine.history import progress_bars
from robustpll.engine.random import seed_of
from robustpll.errors import InputError, is_count
from robustpll.estimator.abstention import Recalibration, Scaled
from robustpll.estimator.features import Features
from robustpll.evaluate.compare import _fit_once, _opinion_of_folds
from robustpll.labels.annotators import Kind, Resolved, resolve
from robustpll.labels.candidates import Candidates
from robustpll.labels.votes import votes_for
from robustpll.methods import Auto, Method
from robustpll.methods.neighbours import neighbours
from robustpll.opinion import Opinion

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FAULTY = 0.05  # assumed share of candidate sets that miss the true class, if nobody's answers are
# known; what people leave out is estimated from their answers
NEIGHBOURS = 5
FACTORS = np.geomspace(0.01, 4, 41)  # on the evidence; sets that favour confused classes want 100


@dataclass(frozen=True, eq=False, repr=False)
class Judgement(Displayed):
    """The probable labels of n rows, see `judge`."""

    candidates: Candidates  # decided rows have a single candidate
    opinion: Opinion  # (n, k), recalibrated, of models that did not see the row's candidates
    decided: Bools  # (n,): whether a person chose the label
    probability: Floats  # (n, k), given the model and the candidates
    resolved: Ints  # (n,): index of the most probable candidate; with answers, of any class
    best_outside: Ints  # (n,): index of the most probable class that is no candidate; or `resolved`
    labels: NDArray[Any]  # (n,): names of the resolved classes
    confidence: Floats  # (n,): probability that the resolved label is right
    missing: Floats  # (n,): probability that the true class is not a candidate
    near: tuple[Ints, Floats]  # indices and distances of the nearest other rows, (n, 5) or fewer
    crowd: Resolved | None = None  # of the rows with answers of annotators
    answers: Ints | None = None  # (n, annotators), -1 for none; also of decided rows


def judge(
    X: Any,
    candidates: Candidates,
    method: Method,
    *,
    folds: int = 5,
    seed: int = 0,
    device: str = "auto",
    verbose: bool = False,
    decided: Bools | None = None,
    answers: Ints | None = None,
    text: Sequence[str] = (),
    cluster: str | None = None,
) -> Judgement:
    """Predict each fold by a model trained on the others.

    `decided` and `answers` are as in `Judgement`; without the latter, they are those of candidates.
    `text` are columns of texts; `cluster` is that of `PLLClassifier`.

    `Auto` holds out folds by itself, and calibrates; it is fitted once, if it holds out all rows.
    """
    _, rows = Features.fit_rows(X, chosen_device(device), method.scale, text)  # by all rows
    n = len(rows)
    if n < 4:
        raise InputError(f"At least 4 rows are needed, to judge some by models of others; got {n}.")
    if not is_count(folds, least=2) or folds > n // 2:
        raise InputError(f"folds must be an int of at least 2, at most {n // 2}; got {folds!r}.")
    mistakes, kind = None, method.crowd if isinstance(method, Auto) else "hierarchical"
    answers = candidates.answers if answers is None else answers
    with progress_bars() if verbose else nullcontext(), computing_on(cluster, device):
        itself = replace(method, folds=int(folds)) if isinstance(method, Auto) else method
        if fitted := _fit_once(itself, rows, candidates, seed_of(seed, "fold", 0)):
            opinion, mistakes = fitted.held_out[0].numpy(), fitted.runs[0].mistakes
        else:
            # at random: in stratified folds, a row's candidates would change who judges it
            train, test = fold_indices(n, int(folds), seed)
            predicted = _opinion_of_folds(method, rows, candidates, (train, test), seed)
            _, first = np.unique(test.numpy(), return_index=True)  # a fold may name a row twice
            opinion = predicted[np.unravel_index(first, test.shape)]
            opinion = recalibrated(opinion, candidates.matrix)
    x = rows.x(rows.everything)[0]
    crowd: Any = {"answers": answers, "mistakes": mistakes, "kind": kind}
    return judgement(candidates, opinion, x, decided, **crowd)


def judgement(
    candidates: Candidates,
    opinion: Opinion,
    rows: torch.Tensor,
    decided: Bools | None = None,
    *,
    answers: Ints | None = None,
    mistakes: float | None = None,
    kind: Kind = "hierarchical",
) -> Judgement:
    """Combine what models and candidates say about n rows with scaled features (n, *shape).

    `mistakes` is the share of rows that mislead all annotators; None estimates it.
    """
    matrix = candidates.matrix
    decided = np.zeros(len(matrix), dtype=bool) if decided is None else decided
    model = np.asarray(opinion.probability, dtype=np.float64)
    probability, crowd, allowed = posterior_given_candidates(model, candidates.prior), None, matrix
    if answers is not None:
        known = np.where(decided[:, None], matrix, model)
        told: Any = {"mistakes": mistakes, "kind": kind, "doubted": model}
        named = matrix | (votes_for(answers, len(candidates.classes)) > 0)
        named[decided] &= votes_for(answers[decided], len(candidates.classes)) > 0
        crowd = resolve(answers, known, named=named, **told)
        answered = (answers >= 0).any(-1, keepdims=True)
        probability = np.where(answered, crowd.probability, probability)
        allowed = matrix | answered
    probability[decided] = matrix[decided]
    resolved = np.where(allowed, probability, -1.0).argmax(-1)
    outside = np.where(matrix, -1.0, probability).argmax(-1)
    nearest = neighbours(rows.flatten(1), rows.flatten(1), NEIGHBOURS, itself=True)
    return Judgement(
        candidates,
        opinion,
        decided,
        probability,
        resolved,
        best_outside=np.where(matrix.all(-1), resolved, outside),
        labels=np.asarray(candidates.classes[resolved]),
        confidence=probability[np.arange(len(matrix)), resolved],
        missing=np.asarray((probability * ~matrix).sum(-1)),
        near=(nearest.indices.cpu().numpy(), nearest.distance.cpu().numpy()),
        crowd=crowd,
        answers=answers,
    )


def posterior_given_candidates(probability: Floats, prior: NDArray[Any]) -> Floats:
    """Multiply model probabilities (n, k) by the likelihood of the candidates, and normalize."""
    # 19 of 20 sets are assumed to contain the true class; their members are as likely as their
    # shares of votes, `prior` (n, k). In the other sets, all non-candidates are equally likely.
    outside = prior == 0
    count = outside.sum(-1, keepdims=True)
    share = np.where(count > 0, FAULTY, 0.0)
    likelihood = np.where(outside, share / np.maximum(count, 1), (1 - share) * prior)
    product = probability * likelihood
    total = product.sum(-1, keepdims=True)
    # if the model excludes every class, the candidates alone decide
    return np.asarray(np.where(total > 0, product / np.where(total > 0, total, 1), likelihood))


def recalibrated(opinion: Opinion, candidates: Bools) -> Opinion:
    """Scale evidence or logits so that candidates (n, k) the models did not see are most likely."""
    informative = ~candidates.all(-1)
    sets = candidates[informative]
    scaled: Scaled = "evidence" if (opinion.uncertainty > 0).any() else "logits"
    best, best_likelihood = opinion, -np.inf
    for factor in FACTORS if len(sets) else ():
        scaling = Recalibration(float(factor), scaled, "candidates", len(sets), 0.0, 0.0)
        p = np.asarray(scaling.opinion(opinion[informative]).probability)
        inside, outside = np.mean(p, -1, where=sets), np.mean(p, -1, where=~sets)
        # a set is as likely as its members on average, or as the others if it misses the truth
        likelihood = np.log((1 - FAULTY) * inside + FAULTY * outside).sum()
        if likelihood > best_likelihood:
            best, best_likelihood = scaling.opinion(opinion), likelihood
    return best
