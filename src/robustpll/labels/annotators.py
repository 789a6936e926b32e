"""How reliable annotators are, and what their answers tell about the class of each row.

Annotators err by themselves, and together: a misleading row gets the same wrong answer from many.
`Crowd` describes both. What it cannot tell is whether annotators err on rows that also mislead the
model; `shared_doubt` measures that.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix
from scipy.special import logsumexp, softmax

from robustpll._display import Displayed
from robustpll.labels.parsing import Ints
from robustpll.labels.votes import Floats, votes_for

Kind = Literal["number", "guesses", "confusion", "hierarchical"]

RIGHT, WRONG = 5.0, 2.0  # imagined answers of each annotator, so that few answers say little
CONFUSED = 10.0  # imagined answers to each class, distributed as those of the whole crowd
ROUNDS = 50
STABLE = 1e-3  # largest change of a probability after which rounds end
MOST_CLASSES = 50  # above, a matrix per annotator is too large, and known too little
COLLAPSED = 0.1  # by how much more rows seem to be of one class than with guesses
# More answers agree with the classes by this factor if each person with ten answers per class may
# name them anew. Of real crowds, it is at most 1.03.
RENAMED, MANY_ANSWERS = 1.06, 10
MISTAKES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)  # shares of misleading rows to weigh
USUAL_MISTAKES = 0.1  # mean of such shares before answers are seen: exponentially distributed
DOUBT = 3.0  # factor on the measured slope: noise in both measures of doubt flattens it
LEAST_SHARED, UNKNOWN_SHARED = 0.05, 0.5  # MORE_SHARED: of the upper end of an interval
MORE_SHARED = 0.2
SAME = 0.02  # distance of a model's probabilities from their mean, below which they tell nothing
MOST_COMPARED = 1000  # annotators, of whom copies are looked for
FEWEST_PAIRS = 30  # rows with two answers, below which nothing is known about shared doubt


@dataclass(frozen=True, eq=False, repr=False)
class Crowd(Displayed):
    """What annotators answer for rows of each class.

    >>> answers = np.array([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]] * 20)
    >>> crowd = Crowd.fit(answers, 2, kind="number")
    >>> crowd.reliability.round(2)
    array([0.98, 0.98, 0.23])
    >>> softmax(crowd.log_likelihood(answers[:2]), axis=-1).round(2)
    array([[1., 0.],
           [0., 1.]])
    """

    reliability: Floats  # (annotators,): share of right answers
    confusion: Floats | None  # (annotators, k, k): of each answer, by true class; None: equal
    mistakes: float  # share of rows that look like another class, to all annotators
    k: int
    guesses: Floats | None = None  # (annotators, k): of each answer, of "guesses"

    @classmethod
    def fit(
        cls,
        answers: Ints,
        k: int,
        prior: Floats | None = None,
        *,
        kind: Kind = "hierarchical",
        mistakes: float = 0.0,
    ) -> Self:
        """Estimate a crowd from answers (n, annotators), -1 for none, by expectation maximisation.

        `prior` (n, k) is what else is known about each row, such as a model's probabilities for
        rows that it did not learn from. Without it, classes have shares that are estimated, too.

        - "number": one reliability per annotator, wrong answers are equally likely.
        - "guesses": an annotator knows the class, or guesses as in all of the own answers. So one
          who always answers the same tells nothing. With "number", and without a model, such an
          annotator may become the most reliable one, because classes seem to have that share.
        - "confusion": a matrix per annotator, after Dawid and Skene (1979).
        - "hierarchical": between both. A matrix starts from that of the whole crowd, with more or
          fewer mistakes, and changes as far as an annotator's answers show it.
        """
        told, annotators = _one_hot(answers, k), answers.shape[1]
        votes = votes_for(answers, k)
        looks = (votes + 0.1) * (1.0 if prior is None else np.sqrt(prior))
        looks /= looks.sum(-1, keepdims=True).clip(min=1e-300)
        kind = kind if k <= MOST_CLASSES or kind == "number" else "guesses"
        total = (answers >= 0).sum(0)
        habits = np.asarray(told.sum(0)).reshape(annotators, k) + 0.5
        habits /= habits.sum(-1, keepdims=True)
        knows = np.full(annotators, RIGHT / (RIGHT + WRONG))
        for _ in range(ROUNDS):
            if kind in ("number", "guesses"):
                named = np.take_along_axis(looks, answers.clip(min=0), 1) * (answers >= 0)
                if kind == "guesses":  # the part of the right answers that is known
                    part = knows[:, None] / (knows[:, None] + (1 - knows[:, None]) * habits)
                    named *= part[np.arange(annotators), answers.clip(min=0)]
                knows = (named.sum(0) + RIGHT) / (total + RIGHT + WRONG)
                crowd = cls(knows, None, mistakes, k)
                if kind == "guesses":
                    guesses = (1 - knows[:, None]) * habits
                    right = knows + guesses @ looks.mean(0)
                    crowd = cls(right, None, mistakes, k, guesses)
            else:
                counts = (told.T @ looks).reshape(annotators, k, k).transpose(0, 2, 1)
                crowd = cls.of_counts(counts, kind, mistakes)
            known = looks.mean(0) if prior is None else prior
            before = looks
            looks = softmax(crowd._logs(told) + logarithms(crowd._misled(known)), axis=-1)
            if np.abs(looks - before).max(initial=0.0) < STABLE:
                break
        return crowd

    @classmethod
    def of_counts(cls, counts: Floats, kind: Kind, mistakes: float = 0.0) -> Self:
        """Return a crowd with these numbers (annotators, k, k) of answers, by true class."""
        k, same = counts.shape[-1], np.eye(counts.shape[-1])
        if kind == "confusion":
            expected = np.broadcast_to((0.5 + same) / (0.5 * k + 1), counts.shape)
            strength = 0.5 * k + 1
        else:
            usual = counts.sum(0) + 1 + 3 * same
            usual /= usual.sum(-1, keepdims=True)
            diagonal, number = np.diag(usual), counts.sum((1, 2))
            wrong = number - np.einsum("acc->a", counts)
            relative = (wrong + 3) / ((counts.sum(-1) * (1 - diagonal)).sum(-1) + 3)
            right = (1 - (1 - diagonal) * relative[:, None]).clip(0.02, 0.999)  # (annotators, k)
            others = usual * (1 - same)
            others /= others.sum(-1, keepdims=True).clip(min=1e-300)
            expected = (1 - right)[..., None] * others + right[..., None] * same
            strength = CONFUSED
        totals = counts.sum(-1, keepdims=True)
        confusion = (counts + strength * expected) / (totals + strength)
        shares = counts.sum((0, 2)) + 1e-9
        reliability = np.einsum("acc,c->a", confusion, shares / shares.sum())
        return cls(reliability, confusion, mistakes, k)

    def log_likelihood(self, answers: Ints) -> Floats:
        """Return the logarithm of how likely each row's answers are for each class, (n, k)."""
        logs = self._logs(_one_hot(answers, self.k))
        highest = logs.max(-1, keepdims=True)
        return np.asarray(np.log(self._misled(np.exp(logs - highest)).clip(1e-300)) + highest)

    def _misled(self, values: Floats) -> Floats:
        """Mix values (..., k) of a class with those of the others, by the share of mistakes."""
        others = (values.sum(-1, keepdims=True) - values) / max(self.k - 1, 1)
        return np.asarray((1 - self.mistakes) * values + self.mistakes * others)

    def _logs(self, told: Any) -> Floats:
        """As `log_likelihood`, of rows that look like their class, from one-hot answers."""
        if self.confusion is not None:
            table = self.confusion.transpose(0, 2, 1).reshape(-1, self.k)
            return np.asarray(told @ np.log(table.clip(1e-6)))
        sure = self.reliability.clip(1e-3, 1 - 1e-3)[:, None]
        wrong = np.broadcast_to((1 - sure) / max(self.k - 1, 1), (len(sure), self.k))
        if self.guesses is not None:
            sure, wrong = 1 - self.guesses.sum(-1, keepdims=True) + self.guesses, self.guesses
        gain = np.log(sure / wrong) + np.zeros_like(wrong)  # of the class that an answer names
        row, at = told.nonzero()
        named = (gain.ravel()[at], (row, at % self.k))
        by_class = csr_matrix(named, (told.shape[0], self.k)).toarray()
        return np.asarray(by_class + told @ np.log(wrong).ravel()[:, None])


def first_crowd(answers: Ints, k: int) -> Crowd:
    """Estimate a crowd before any model is known.

    People know or guess: so one who always answers the same tells nothing. But if some share a
    wrong code book, matrices describe them.
    """
    if has_code_books(answers, k):
        return unless_collapsed(Crowd.fit(answers, k), answers)
    return Crowd.fit(answers, k, kind="guesses")


def unless_collapsed(crowd: Crowd, answers: Ints) -> Crowd:
    """Return the crowd, or one that guesses if more rows seem to be of one class without that."""
    guessing = Crowd.fit(answers, crowd.k, kind="guesses")
    even = np.full((len(answers), crowd.k), 1 / crowd.k)
    most, usual = (
        posterior_given_answers(each, answers, even).mean(0).max() for each in (crowd, guessing)
    )
    return crowd if most <= usual + COLLAPSED else guessing


def has_code_books(answers: Ints, k: int) -> bool:
    """Whether some people with many answers mean other classes by them than the others do."""
    own = (answers >= 0).sum(0) >= MANY_ANSWERS * k
    if k > MOST_CLASSES or not own.any():
        return False
    crowd, even = Crowd.fit(answers, k, kind="guesses"), np.full((len(answers), k), 1 / k)
    probability = posterior_given_answers(crowd, answers, even)
    counts = (_one_hot(answers[:, own], k).T @ probability).reshape(-1, k, k)
    renamed = sum(c[linear_sum_assignment(-c)].sum() for c in counts)
    return bool(renamed > RENAMED * np.einsum("acc->", counts))


class Resolved(NamedTuple):
    """What answers and a model tell together about n rows, see `resolve`."""

    crowd: Crowd
    probability: Floats  # (n, k)
    shared: float  # the part of the model's doubt that annotators are assumed to share, 0 to 1
    missing: tuple[float, float, float]  # share of rows whose class nobody named: low, mean, high


def resolve(
    answers: Ints,
    probability: Floats,
    *,
    kind: Kind = "hierarchical",
    mistakes: float | None = None,
    named: NDArray[np.bool_] | None = None,
    doubted: Floats | None = None,
) -> Resolved:
    """Combine answers (n, annotators) with probabilities (n, k) of models that did not see them.

    The share of misleading rows is estimated by how likely it makes the answers, unless it is
    given. With the probability `shared`, annotators know no more about a row than the model; then
    its probabilities stay as they are. Else both err independently, and multiply. The class of a
    row is the one that is likely by both if half of the shared doubt is ignored; it gets the
    highest of the row's probabilities.

    `named` (n, k) are the classes that somebody named; None: by `answers`. `doubted` (n, k) is what
    the model says, where `probability` is better known.

    >>> model = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]] * 20)
    >>> answers = np.array([[0, 0, 1], [0, 0, -1], [1, 1, 1]] * 20)
    >>> resolved = resolve(answers, model)
    >>> resolved.probability[:3].argmax(-1)
    array([0, 0, 1])
    """
    k = probability.shape[1]
    if says_the_same(probability):
        # It knows only the shares of classes, and answers tell them better.
        alone = unless_collapsed(Crowd.fit(answers, k, kind=kind), answers)
        shares = posterior_given_answers(alone, answers, np.full_like(probability, 1 / k)).mean(0)
        probability, mistakes = np.tile(shares, (len(probability), 1)), 0.0
    if mistakes is None:
        crowds = [Crowd.fit(answers, k, probability, kind=kind, mistakes=m) for m in MISTAKES]
        joint = [crowd.log_likelihood(answers) + logarithms(probability) for crowd in crowds]
        likely = [float(logsumexp(logs, axis=-1).sum()) for logs in joint]
        mistakes = float(weights_of_mistakes(likely) @ MISTAKES)
    crowd = Crowd.fit(answers, k, probability, kind=kind, mistakes=mistakes)
    shared = shared_doubt(answers, probability if doubted is None else doubted)
    named = votes_for(answers, k) > 0 if named is None else named
    counted = (answers >= 0).any(-1)

    def missing_of(given: Floats) -> float:
        return float((given * ~named)[counted].sum(-1).mean()) if counted.any() else 0.0

    alone = replace(crowd, mistakes=0.0)
    independent, least = (posterior_given_answers(c, answers, probability) for c in (crowd, alone))
    mixed = shared * probability + (1 - shared) * independent
    logs = logarithms(probability) + (1 - shared / 2) * crowd.log_likelihood(answers)
    rows, leader, highest = np.arange(len(mixed)), logs.argmax(-1), mixed.argmax(-1)
    exchanged = mixed[rows, highest], mixed[rows, leader]
    mixed[rows, leader], mixed[rows, highest] = exchanged
    mean = missing_of(mixed)
    error = 1.64 * np.sqrt(max(mean * (1 - mean), 1e-9) / max(counted.sum(), 1))
    high = max(mean, missing_of(MORE_SHARED * probability + (1 - MORE_SHARED) * independent))
    low = min(missing_of(least), mean)
    return Resolved(crowd, mixed, shared, (max(low - error, 0.0), mean, min(high + error, 1.0)))


def copies(answers: Ints) -> list[tuple[int, int]]:
    """Return pairs of annotators of whom one seems to copy the other's answers (n, annotators).

    They differ in at most 1 % of 50 shared rows or more. When at least two others are of one
    opinion, they say something else in a tenth of 30 rows or more: so they are no experts.

    >>> rng = np.random.default_rng(0)
    >>> three = np.where(rng.random((400, 3)) < 0.7, 0, 1)
    >>> copies(three[:, [0, 1, 1, 2]])
    [(1, 2)]
    """
    if answers.shape[1] > MOST_COMPARED:
        return []
    own = csr_matrix(answers >= 0, dtype=float)
    shared, equal = (own.T @ own).toarray(), np.zeros((answers.shape[1],) * 2)
    for name in np.unique(answers[answers >= 0]):
        named = csr_matrix(answers == name, dtype=float)
        equal += (named.T @ named).toarray()
    alike, found = (shared >= 50) & (equal >= 0.99 * shared), []
    for one, two in np.argwhere(np.triu(alike, 1)):
        rows = np.flatnonzero(answers[:, one] >= 0)
        agree, opinion = of_one_opinion(answers[rows][:, ~(alike[one] | alike[two])])
        differs = answers[rows, one][agree] != opinion[agree]
        if agree.sum() >= 30 and differs.mean() >= 0.1:
            found.append((int(one), int(two)))
    return found


def of_one_opinion(answers: Ints) -> tuple[NDArray[np.bool_], Ints]:
    """Return which rows have two answers or more, all of them equal, and the highest answers."""
    opinion, several = answers.max(-1, initial=-1), (answers >= 0).sum(-1) >= 2
    return several & ((answers == opinion[:, None]) | (answers < 0)).all(-1), opinion


def overruled(answers: Ints, predicted: Ints) -> float:
    """Return the share of rows of one opinion that get another class."""
    agree, opinion = of_one_opinion(answers)
    return float((predicted[agree] != opinion[agree]).mean()) if agree.any() else 0.0


def says_the_same(probability: Floats) -> bool:
    """Return whether a model's probabilities (n, k) are equal for all rows, but for rounding."""
    if len(probability) < 2:
        return False
    from_mean = np.abs(probability - probability.mean(0)).sum(-1) / 2  # 0 to 1, for any k
    return bool(from_mean.mean() < SAME)


def weights_of_mistakes(log_likelihoods: list[float]) -> Floats:
    """Return how probable each share in `MISTAKES` is, given the likelihood of all answers."""
    prior = -np.array(MISTAKES) / USUAL_MISTAKES
    return np.asarray(softmax(np.array(log_likelihoods) + prior))


def posterior_given_answers(crowd: Crowd, answers: Ints, probability: Floats) -> Floats:
    """Multiply probabilities (n, k) by the likelihood of the answers, and normalize."""
    return np.asarray(softmax(crowd.log_likelihood(answers) + logarithms(probability), axis=-1))


def logarithms(probability: Floats) -> Floats:
    """Return logarithms that are finite."""
    return np.asarray(np.log(probability.clip(1e-12)))


def shared_doubt(answers: Ints, probability: Floats) -> float:
    """Return which part of a model's doubt about rows annotators share, between 0.05 and 1.

    If people and the model err independently, people agree equally often about rows of which the
    model is sure and of which it is not. The slope of their disagreement on the model's expected
    disagreement with itself, 1 - sum(p^2), is 0 then; it is 1 if people answer as the model does.
    Its standard error is subtracted.
    """
    votes = votes_for(answers, probability.shape[1])
    number = votes.sum(-1)
    several = number >= 2
    if several.sum() < FEWEST_PAIRS:
        return UNKNOWN_SHARED
    votes, number = votes[several], number[several]
    disagree = 1 - (votes * (votes - 1)).sum(-1) / (number * (number - 1))
    disagree -= np.average(disagree, weights=number - 1)
    doubt, weight = 1 - (probability[several] ** 2).sum(-1), number - 1
    from_mean = doubt - np.average(doubt, weights=weight)
    spread = np.average(from_mean**2, weights=weight)
    if spread < 1e-6:  # the model has the same doubt about all rows
        return UNKNOWN_SHARED if doubt.mean() > 0.01 else LEAST_SHARED
    slope = np.average(from_mean * disagree, weights=weight) / spread
    noise = np.sqrt(np.average(disagree**2, weights=weight) / (spread * len(doubt)))
    return float(np.clip(DOUBT * (slope - noise), LEAST_SHARED, 1))


def _one_hot(answers: Ints, k: int) -> Any:
    """Return a sparse matrix (n, annotators * k) with a 1 for each answer."""
    row, column = np.nonzero(answers >= 0)
    shape = (len(answers), answers.shape[1] * k)
    return csr_matrix((np.ones(len(row)), (row, column * k + answers[row, column])), shape)
