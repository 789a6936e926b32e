"""PlEcoc (Zhang, Yu and Tang, TKDE 2017)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from robustpll.engine.networks import Shape
from robustpll.engine.random import seed_of
from robustpll.methods.classical import ClassicalMethod, Layout, Learned, OneRun, Precomputed
from robustpll.methods.squared_hinge import squared_hinge_classifiers
from robustpll.opinion import Opinion

ENUMERATED = 10  # up to so many classes, all dichotomies are examined, not drawn
MOST_REJECTED = 10_000  # proposals in a row, before the search for another dichotomy ends
PROPOSALS = 128  # examined at once
LAST = -1e300  # the score of a class that no classifier is reliable for: below all others

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
    paper_fields: ClassVar[dict[str, Any]] = {"decoding": "reference"}

    decoding: Decoding = "loss"
    error_cost: float = 1.0

    def fit_run(self, run: OneRun) -> tuple[Learned, Opinion]:
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

    def predict_run(self, learned: Learned, x: Tensor, precomputed: Precomputed) -> Opinion:
        decisions = _decisions(x, learned["weights"])
        scores = decoded(decisions, learned["codes"], learned["reliability"], self.decoding)
        return Opinion.of_probability(scores.softmax(-1))

    def layout(self, shape: Shape, k: int) -> Layout:
        return {
            "weights": (torch.float64, (torch.Size(shape).numel() + 1, "machines")),
            "codes": (torch.bool, ("machines", k)),
            "reliability": (torch.float64, (k, "machines")),
        }


def _decisions(x: Tensor, weights: Tensor) -> Tensor:
    """Decision values of rows x (q, d), (q, L)."""
    return (weights[:-1].T @ x.T).T + weights[-1]  # with so few columns faster than x @ weights


def dichotomies(candidates: Tensor, generator: torch.Generator) -> Tensor:
    """Return which classes are on the positive side, (L, k) bool; the last class never is.

    A dichotomy needs a row on each side, and a tenth of the rows (n, k) on either. Up to ten
    classes, all dichotomies are examined. For more, they are drawn by fair coins, until there are
    enough or 10,000 in a row were of no use.

    >>> candidates = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    >>> dichotomies(candidates, torch.Generator().manual_seed(0)).int()
    tensor([[1, 0, 0],
            [1, 1, 0]], dtype=torch.int32)
    """
    (n, k), device = candidates.shape, candidates.device
    sets, counts = torch.unique(candidates, dim=0, return_counts=True)
    most = math.ceil(10 * math.log2(k))

    def eligible(codes: Tensor) -> Tensor:
        """Whether the rows suffice for dichotomies (B, k), (B,)."""
        inside, outside = (counts.double() @ side.double() for side in one_sided(sets, codes))
        fits: Tensor = (inside > 0) & (outside > 0) & (inside + outside >= max(1, n // 10))
        return fits

    if k <= ENUMERATED:
        numbers = torch.arange(2 ** (k - 1), device=device)[:, None]
        codes = numbers >> torch.arange(k, device=device) & 1 == 1
        codes = codes[eligible(codes)]
        return codes[torch.randperm(len(codes), generator=generator)[:most].to(device)]
    chosen: dict[bytes, Tensor] = {}
    rejected = 0  # in a row
    while len(chosen) < most and rejected < MOST_REJECTED:
        codes = torch.randint(2, (PROPOSALS, k), generator=generator).bool()
        codes[:, -1] = False
        for code, fits in zip(codes, eligible(codes.to(device)).tolist(), strict=True):
            key = code.numpy().tobytes()
            new = fits and key not in chosen
            rejected = 0 if new else rejected + 1
            if new:
                chosen[key] = code
            if len(chosen) == most or rejected == MOST_REJECTED:
                break
    return torch.stack([*chosen.values(), torch.zeros(k).bool()])[:-1].to(device)


def one_sided(candidates: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether all candidates (n, k) are on the positive and the negative side, (n, L)."""
    few = candidates.float()  # counts of classes are exact in it
    return few @ (~codes).float().T == 0, few @ codes.float().T == 0


def reliability(decisions: Tensor, candidates: Tensor, codes: Tensor) -> Tensor:
    """Return the share of the rows with a candidate on its side, (k, L); each row sums to 1.

    All rows of the decision values (n, L) count, whether or not they were in the training set.
    """
    few = candidates.to(decisions)
    total = few.sum(0)[:, None]  # (k, 1)
    positive = few.T @ (decisions > 0).to(decisions)
    share = torch.where(codes.T, positive, total - positive) / total.clamp(min=1)
    sums = share.sum(1, keepdim=True)
    return torch.where(sums < 1e-6, share, share / sums)


def decoded(decisions: Tensor, codes: Tensor, reliable: Tensor, decoding: Decoding) -> Tensor:
    """Return logarithms of the scores, whose softmax are probabilities; (q, L) -> (q, k).

    "reference": of Σ_l H_cl exp(M_cl g_l); "loss": minus that of the cost Σ_l H_cl exp(-M_cl g_l).
    A class without reliable classifiers comes last: as a cost its sum, 0, would win.
    """
    sign = 1 if decoding == "reference" else -1
    largest = decisions.abs().amax(1, keepdim=True)  # taken out, so that nothing overflows
    on_positive = (sign * decisions - largest).exp()  # (q, L): for classes on the positive side
    on_negative = (-sign * decisions - largest).exp()
    sums = on_positive @ (codes * reliable.T) + on_negative @ (~codes * reliable.T)  # (q, k)
    scores = sign * (sums.clamp(min=1e-300).log() + largest)
    return torch.where(reliable.sum(1) > 0, scores, LAST)
