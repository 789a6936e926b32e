"""PlEcoc (Zhang, Yu and Tang, TKDE 2017)."""

import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import pad

from robustpll.engine.device import threads
from robustpll.engine.random import seed_of
from robustpll.methods.classical import ClassicalMethod, OneRun, Tensors
from robustpll.opinion import Opinion

MOST_USELESS = 80  # draws of 128 dichotomies in a row, before the search for another one ends
TOLERANCE = 1e-4  # largest distance of a training row's decision value from that of the optimum
MOST_STEPS = 200  # of Newton's method; about 6 are usual
Decoding = Literal["loss", "reference"]


@dataclass(frozen=True)
class PlEcoc(ClassicalMethod):
    """Error-correcting output codes: linear classifiers separate groups of classes.

    Up to L = ceil(10 log2 k) random dichotomies split the classes into a positive and a negative
    side. Rows whose candidates are all on one side train the classifier of a dichotomy. With
    decision values g_l(x), sides M_cl = 1 or -1, and reliabilities H_cl, the class of least cost
    Σ_l H_cl exp(-M_cl g_l(x)) is predicted; probabilities are proportional to 1 / cost. H_cl is the
    share of the rows with candidate c that classifier l puts on the side of c, divided by its sum
    over l. If no dichotomy has a row on each side and a tenth of the rows on either, all classes
    are equally probable.

    Parameters
    ----------
    decoding : {"loss", "reference"}
        Predict the class of least cost, or that of the largest score Σ_l H_cl exp(M_cl g_l(x)), as
        ``PlEcoc.paper()`` does. There one very certain classifier outvotes all others.
    error_cost : float
        Weight of a classifier's squared errors, relative to the size of its weights.

    Examples
    --------
    >>> import numpy as np
    >>> from robustpll import PLLClassifier
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> PLLClassifier(PlEcoc(), random_state=0).fit(X, y).predict(np.eye(3))
    array(['a', 'b', 'c'], dtype='<U1')
    """

    name = "pl_ecoc"
    title = "PlEcoc"
    citation = "Zhang, Yu, Tang: Disambiguation-Free Partial Label Learning. IEEE TKDE 2017"
    on_host = True
    cost = (0.1, 1.0)
    learns: ClassVar = {
        "weights": (torch.float64, ("d + 1", "machines")),
        "codes": (torch.bool, ("machines", "k")),
        "reliability": (torch.float64, ("k", "machines")),
    }
    paper_fields: ClassVar = {"decoding": "reference"}

    decoding: Decoding = "loss"
    error_cost: float = 1.0

    def fit_run(self, run: OneRun) -> tuple[Tensors, Opinion]:
        generator = torch.Generator().manual_seed(seed_of(run.seed, self.name))
        codes = dichotomies(run.candidates, generator)
        if not len(codes):  # one classifier, reliable for no class: all classes are tied
            codes = torch.zeros_like(run.candidates[:1])
        positive, negative = one_sided(run.candidates, codes)  # (n, L) each
        sides = positive.to(run.x) - negative.to(run.x)
        weights = squared_hinge_classifiers(run.x, sides, self.error_cost)
        decisions = _decisions(run.x, weights)
        reliable = reliability(decisions, run.candidates, codes) * codes.any()
        learned = {"weights": weights, "codes": codes, "reliability": reliable}
        scores = decoded(decisions, codes, reliable, self.decoding)
        scores = scores.masked_fill(~run.candidates, -torch.inf)
        return learned, Opinion.of_probability(scores.softmax(-1))

    def predict_run(self, learned: Tensors, x: Tensor, precomputed: Tensors) -> Opinion:
        decisions = _decisions(x, learned["weights"])
        scores = decoded(decisions, learned["codes"], learned["reliability"], self.decoding)
        return Opinion.of_probability(scores.softmax(-1))


def _decisions(x: Tensor, weights: Tensor) -> Tensor:
    """Decision values of rows x (q, d), (q, L)."""
    return (weights[:-1].T @ x.T).T + weights[-1]  # with so few columns faster than x @ weights


def dichotomies(candidates: Tensor, generator: torch.Generator) -> Tensor:
    """Return which classes are on the positive side, (L, k) bool; the last class never is."""
    # A dichotomy needs a row on each side, and a tenth of the rows (n, k) on either. With up to ten
    # classes, all are examined. Otherwise they are drawn by fair coins.
    (n, k), device = candidates.shape, candidates.device
    sets, counts = torch.unique(candidates, dim=0, return_counts=True)
    most = math.ceil(10 * math.log2(k))

    def eligible(codes: Tensor) -> Tensor:
        inside, outside = (counts.double() @ side.double() for side in one_sided(sets, codes))
        fits: Tensor = (inside > 0) & (outside > 0) & (inside + outside >= max(1, n // 10))
        return fits

    if k <= 10:
        numbers = torch.arange(2 ** (k - 1), device=device)[:, None]
        codes = numbers >> torch.arange(k, device=device) & 1 == 1
        codes = codes[eligible(codes)]
        return codes[torch.randperm(len(codes), generator=generator)[:most].to(device)]
    chosen: dict[bytes, Tensor] = {}
    useless = 0  # draws in a row
    while len(chosen) < most and useless < MOST_USELESS:
        codes = torch.randint(2, (128, k), generator=generator).bool()
        codes[:, -1] = False
        useful, before = codes[eligible(codes.to(device)).cpu()], len(chosen)
        chosen |= {code.numpy().tobytes(): code for code in useful}
        useless = useless + 1 if len(chosen) == before else 0
    codes = torch.stack([*chosen.values(), torch.zeros(k).bool()])[:-1]
    return codes[:most].to(device)


def one_sided(candidates: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether all candidates (n, k) are on the positive and the negative side, (n, L)."""
    few = candidates.float()  # counts of classes are exact in it
    return few @ (~codes).float().T == 0, few @ codes.float().T == 0


def reliability(decisions: Tensor, candidates: Tensor, codes: Tensor) -> Tensor:
    """Return the share of all rows with a candidate on its side, (k, L); each row sums to 1."""
    few = candidates.to(decisions)
    total = few.sum(0)[:, None]  # (k, 1)
    positive = few.T @ (decisions > 0).to(decisions)
    share = torch.where(codes.T, positive, total - positive) / total.clamp(min=1)
    sums = share.sum(1, keepdim=True)
    return torch.where(sums < 1e-6, share, share / sums)


def decoded(decisions: Tensor, codes: Tensor, reliable: Tensor, decoding: Decoding) -> Tensor:
    """Return logarithms of the scores, whose softmax are probabilities; (q, L) -> (q, k)."""
    # A class without reliable classifiers comes last: as a cost its sum, 0, would win.
    sign = 1 if decoding == "reference" else -1
    largest = decisions.abs().amax(1, keepdim=True)  # taken out, so that nothing overflows
    on_positive = (sign * decisions - largest).exp()  # (q, L): for classes on the positive side
    on_negative = (-sign * decisions - largest).exp()
    sums = on_positive @ (codes * reliable.T) + on_negative @ (~codes * reliable.T)  # (q, k)
    scores = sign * (sums.clamp(min=1e-300).log() + largest)
    return torch.where(reliable.sum(1) > 0, scores, -1e300)  # below all others


def squared_hinge_classifiers(x: Tensor, sides: Tensor, error_cost: float = 1.0) -> Tensor:
    """Return the weights (d + 1, L) of L linear classifiers on rows x (n, d), intercepts last.

    Classifier l minimises |w|²/2 + c Σ_i max(0, 1 - s_il f_il)², where f_il = w.(x_i, 1), c is
    `error_cost`, and the sum runs over rows with side s_il = 1 or -1, not over those with 0. That
    is the optimum of `sklearn.svm.LinearSVC`, which takes two to four times as long on MNIST.

    Only rows with s f < 1 have a gradient. So a classifier is fitted to a sample of its rows, and
    again with the worst other rows with s f < 1, until there are none. One product in float32 finds
    these rows for all classifiers.
    """
    n, d = x.shape
    rough = x.new_ones(n, d + 1, dtype=torch.float32)
    rough[:, :-1] = x
    longest = float(rough.norm(dim=1).amax())
    rounding = (d + 17) * torch.finfo(torch.float32).eps * longest
    columns = sides.T.float().contiguous()
    weights = x.new_zeros(len(columns), d + 1)
    samples = [torch.empty(0, dtype=torch.long, device=x.device) for _ in columns]

    def improve(number: int, values: Tensor) -> bool:
        """Fit a classifier to more rows, by decision values (n,) of all; True if it is done."""
        side, sample, before = columns[number], samples[number], weights[number].clone()
        margin = torch.where(side == 0, torch.inf, side * values)
        margin[sample] = torch.inf
        missed = (margin < 1 + rounding * float(before.norm())).nonzero()[:, 0]
        if len(sample):
            added = missed[margin[missed].argsort()[: 1 + len(sample) // 2]]
        else:
            added = missed[:: max(1, len(missed) // max(100, 2**16 // (d + 1)))]  # a first sample
        samples[number] = sample = torch.cat([sample, added])
        rows = pad(x[sample], (0, 1), value=1.0) * side[sample, None]
        weights[number] = _optimum(rows, before, error_cost, longest)
        return len(added) == len(missed) and torch.equal(weights[number], before)

    unfinished, values = list(range(len(columns))), rough.new_zeros(len(columns), n)
    while unfinished:  # samples grow, so this ends
        # one classifier is too small to be divided
        with ThreadPoolExecutor(torch.get_num_threads()) as pool, threads(1):
            done = list(pool.map(improve, unfinished, values))
        unfinished = [number for number, end in zip(unfinished, done, strict=True) if not end]
        values = (rough @ weights[unfinished].T.float()).T.contiguous()  # (unfinished, n)
    return weights.T.contiguous()


def _optimum(rows: Tensor, weights: Tensor, cost: float, longest: float) -> Tensor:
    """Weights (d,) for rows (b, d) that are multiplied by their sides, by Newton's method."""
    # The objective curves at least as |w|²/2, so w is no farther from the optimum than the gradient
    # is long, and a decision value no farther than that times |x|.
    ridge = 1 / (2 * cost) if cost else torch.inf
    slack = 1 - rows @ weights  # (b,)
    gram, counted = rows.new_zeros(()), torch.zeros_like(slack, dtype=torch.bool)
    for _ in range(MOST_STEPS):
        gradient = weights - 2 * cost * (slack.clamp(min=0) @ rows)
        digits = 1e-14 + 1e-16 * longest * float(weights.norm())  # precision of the slack
        rounding = 2 * cost * len(rows) * longest * digits
        if float(gradient.norm()) <= max(TOLERANCE / longest, rounding):
            return weights
        active = slack > 0
        count = int(active.sum())
        if count < len(gradient):  # Woodbury's identity: products of rows instead of features
            near = rows[active]
            direction = _solve(near @ near.T, ridge, near @ gradient) @ near - gradient
        else:
            moved = active ^ counted
            if int(moved.sum()) < count:  # update the products by the rows that came or went
                changed, sign = rows[moved], torch.where(active[moved], 1.0, -1.0).to(rows)
                gram = gram + (changed * sign[:, None]).T @ changed
            else:
                gram = rows[active].T @ rows[active]
            counted = active
            direction = -ridge * _solve(gram.clone(), ridge, gradient)
        change = rows @ direction
        length = _step_length(slack, change, weights, direction, cost)
        weights, slack = weights + length * direction, slack - length * change
    msg = f"A linear classifier is not at its optimum after {MOST_STEPS} steps. Scale the features."
    warnings.warn(msg, ConvergenceWarning, stacklevel=2)
    return weights


def _solve(gram: Tensor, ridge: float, right: Tensor) -> Tensor:
    """(gram + ridge I)^-1 right; gram is overwritten."""
    gram.diagonal().add_(ridge)
    return torch.cholesky_solve(right[:, None], torch.linalg.cholesky(gram))[:, 0]


def _step_length(
    slack: Tensor, change: Tensor, weights: Tensor, direction: Tensor, cost: float
) -> float:
    """Where the objective is least along a direction, by bisection of its slope to a tenth."""
    along, square = float(weights @ direction), float(direction @ direction)

    def slope(length: float) -> float:
        left = (slack - length * change).clamp(min=0)
        return along + length * square - 2 * cost * float(change @ left)

    first, low, high, length = slope(0.0), 0.0, 0.0, 1.0
    for _ in range(60):
        steepness = slope(length)
        if abs(steepness) <= 0.1 * abs(first):
            break
        low, high = (low, length) if steepness > 0 else (length, high)
        length = (low + high) / 2 if high else 2 * low
    return length
