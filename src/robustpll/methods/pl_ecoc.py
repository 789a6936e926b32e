"""PlEcoc (Zhang, Yu and Tang, TKDE 2017)."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from robustpll.engine.networks import Shape
from robustpll.engine.random import seed_of
from robustpll.methods.classical import Around, ClassicalMethod, Layout, Learned, OneRun
from robustpll.methods.squared_hinge import machines
from robustpll.opinion import Opinion

ENUMERATED = 10  # up to so many classes all dichotomies are looked at, not drawn
MOST_REJECTED = 10_000  # proposals in a row, before the search for another dichotomy ends
PROPOSALS = 128  # judged at once
LAST = -1e300  # the score of a class that no machine is reliable for: below all others

Decoding = Literal["loss", "reference"]


@dataclass(frozen=True)
class PlEcoc(ClassicalMethod):
    """Error-correcting output codes: machines tell groups of classes apart.

    No row is disambiguated. Up to L = ceil(10 log2 k) random dichotomies split the classes into a
    positive and a negative side. A row teaches the linear machine of a dichotomy if all its
    candidates are on one side. With decision values g_l(x), sides M_cl = 1 or -1 and reliabilities
    H_cl, the share of the rows with candidate c that machine l puts on c's side, divided by its sum
    over l, the class of least cost Σ_l H_cl exp(-M_cl g_l(x)) is predicted. Probabilities are
    proportional to 1 / cost: for one machine and two classes that is 1 / (1 + exp(-2 g)), as is
    customary with this loss.

    Parameters
    ----------
    decoding : {"loss", "reference"}
        Whether the class of least cost is predicted, or that of the largest score
        Σ_l H_cl exp(M_cl g_l(x)), to which probabilities are then proportional.
    error_cost : float
        How much squared errors of a machine count against the size of its weights.

    Notes
    -----
    ``PlEcoc.paper()`` differs in ``decoding="reference"``, where one machine that is very certain
    outvotes all others. If there is no dichotomy with a row on each side and a tenth of the rows on
    either, nothing is learned: all classes are as probable.

    Examples
    --------
    >>> import numpy as np
    >>> from robustpll import PLLClassifier
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> PLLClassifier(PlEcoc(), random_state=0).fit(X, y).predict(np.eye(3))
    array(['a', 'b', 'c'], dtype='<U1')
    >>> PlEcoc().decoding, PlEcoc.paper().decoding
    ('loss', 'reference')
    """

    name: ClassVar[str] = "pl_ecoc"
    title: ClassVar[str] = "PlEcoc"
    seconds: ClassVar[tuple[float, float]] = (0.1, 1.0)
    citation: ClassVar[str] = (
        "Zhang, Yu, Tang: Disambiguation-Free Partial Label Learning. IEEE TKDE 2017"
    )
    on_host: ClassVar[bool] = True

    decoding: Decoding = "loss"
    error_cost: float = 1.0

    @classmethod
    def paper(cls) -> Self:
        return cls(decoding="reference")

    def learn(self, run: OneRun) -> tuple[Learned, Opinion]:
        generator = torch.Generator().manual_seed(seed_of(run.seed, self.name))
        codes = dichotomies(run.candidates, generator)
        learned, decisions = self._trained(run, codes) if len(codes) else _untrained(run)
        scores = self._scores(learned, decisions).masked_fill(~run.candidates, -torch.inf)
        return learned, Opinion.of_probability(scores.softmax(-1))

    def judge(self, learned: Learned, x: Tensor, around: Around) -> Opinion:
        scores = self._scores(learned, _decisions(x, learned["weights"]))
        return Opinion.of_probability(scores.softmax(-1))

    def layout(self, shape: Shape, k: int) -> Layout:
        return {
            "weights": (torch.float64, (torch.Size(shape).numel() + 1, "machines")),
            "codes": (torch.bool, ("machines", k)),
            "reliability": (torch.float64, (k, "machines")),
        }

    def _trained(self, run: OneRun, codes: Tensor) -> tuple[Learned, Tensor]:
        """What is learned, and the decision values of the training rows (n, L)."""
        positive, negative = one_sided(run.candidates, codes)  # (n, L) each
        weights = machines(run.x, positive.to(run.x) - negative.to(run.x), self.error_cost)
        decisions = _decisions(run.x, weights)
        reliable = reliability(decisions, run.candidates, codes)
        return {"weights": weights, "codes": codes, "reliability": reliable}, decisions

    def _scores(self, learned: Learned, decisions: Tensor) -> Tensor:
        return decoded(decisions, learned["codes"], learned["reliability"], self.decoding)


def _untrained(run: OneRun) -> tuple[Learned, Tensor]:
    """One machine, which is reliable for no class: all come last, and are tied."""
    d, k = run.x.shape[1], run.candidates.shape[1]
    learned = {
        "weights": run.x.new_zeros(d + 1, 1),
        "codes": run.candidates.new_zeros(1, k),
        "reliability": run.x.new_zeros(k, 1),
    }
    return learned, torch.zeros_like(run.x[:, :1])


def _decisions(x: Tensor, weights: Tensor) -> Tensor:
    """Of rows x (q, d), (q, L)."""
    return (weights[:-1].T @ x.T).T + weights[-1]  # with so few columns faster than x @ weights


def dichotomies(candidates: Tensor, generator: torch.Generator) -> Tensor:
    """Which classes are on the positive side, (L, k) bool; the last class never is.

    A dichotomy needs a row on each side, and a tenth of the rows (n, k) on either. Of up to ten
    classes all dichotomies are looked at; of more they are drawn by fair coins, until there are
    enough or 10,000 in a row were of no use.

    >>> candidates = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.bool)
    >>> dichotomies(candidates, torch.Generator().manual_seed(0)).int()
    tensor([[1, 0, 0],
            [1, 1, 0]], dtype=torch.int32)
    """
    n, k = candidates.shape
    sets = torch.unique(candidates, dim=0, return_counts=True)
    most = math.ceil(10 * math.log2(k))
    if k > ENUMERATED:
        return _proposed(sets, n, most, generator)
    classes = torch.arange(k, device=candidates.device)
    codes = torch.arange(2 ** (k - 1), device=candidates.device)[:, None] >> classes & 1 == 1
    codes = codes[_eligible(codes, sets, n)]
    drawn = torch.randperm(len(codes), generator=generator)[:most]
    return codes[drawn.to(codes.device)]


def _proposed(sets: tuple[Tensor, Tensor], n: int, most: int, generator: torch.Generator) -> Tensor:
    k, device = sets[0].shape[1], sets[0].device
    found: dict[bytes, Tensor] = {}
    rejected = 0  # in a row
    while len(found) < most and rejected < MOST_REJECTED:
        codes = torch.randint(2, (PROPOSALS, k), generator=generator).bool()
        codes[:, -1] = False
        eligible = _eligible(codes.to(device), sets, n).tolist()
        for code, fits in zip(codes, eligible, strict=True):
            if len(found) == most or rejected == MOST_REJECTED:
                break
            key = code.numpy().tobytes()
            new = fits and key not in found
            rejected = 0 if new else rejected + 1
            if new:
                found[key] = code
    return torch.stack([*found.values(), torch.zeros(k).bool()])[:-1].to(device)


def _eligible(codes: Tensor, sets: tuple[Tensor, Tensor], n: int) -> Tensor:
    """Whether the rows, given as distinct candidate sets and their counts, suffice; (B,)."""
    distinct, counts = sets
    positive, negative = (
        counts.double() @ side.double() for side in one_sided(distinct, codes)
    )  # rows on each side, (B,)
    return (positive > 0) & (negative > 0) & (positive + negative >= max(1, n // 10))


def one_sided(candidates: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """Whether all candidates (n, k) are on the positive and on the negative side, (n, L) each."""
    few = candidates.float()  # counts of classes are exact in it
    return few @ (~codes).float().T == 0, few @ codes.float().T == 0


def reliability(decisions: Tensor, candidates: Tensor, codes: Tensor) -> Tensor:
    """Share of the rows with a candidate that machines put on its side, rows of sum 1; (k, L).

    All rows count (n, L), whether or not they taught the machine.
    """
    few = candidates.to(decisions)
    total = few.sum(0)[:, None]  # (k, 1)
    positive = few.T @ (decisions > 0).to(decisions)
    share = torch.where(codes.T, positive, total - positive) / total.clamp(min=1)
    sums = share.sum(1, keepdim=True)
    return torch.where(sums < 1e-6, share, share / sums)


def decoded(decisions: Tensor, codes: Tensor, reliable: Tensor, decoding: Decoding) -> Tensor:
    """Logarithms of the scores, of which probabilities are the softmax; (q, L) -> (q, k).

    "reference": of Σ_l H_cl exp(M_cl g_l); "loss": minus that of the cost Σ_l H_cl exp(-M_cl g_l).
    A class without reliable machines comes last: as a cost its sum, 0, would win.
    """
    sign = 1 if decoding == "reference" else -1
    largest = decisions.abs().amax(1, keepdim=True)  # taken out, so that nothing overflows
    on_positive = (sign * decisions - largest).exp()  # (q, L): for classes on the positive side
    on_negative = (-sign * decisions - largest).exp()
    sums = on_positive @ (codes * reliable.T) + on_negative @ (~codes * reliable.T)  # (q, k)
    scores = sign * (sums.clamp(min=1e-300).log() + largest)
    return torch.where(reliable.sum(1) > 0, scores, LAST)
