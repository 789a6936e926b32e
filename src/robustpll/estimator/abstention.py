"""What a classifier needs to reject predictions: recalibration, novelty, and thresholds."""

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import binom
from torch import Tensor, nn
from torch.nn import functional as F

from robustpll._display import ROWS, Displayed
from robustpll.engine import layers
from robustpll.engine.data import Rows
from robustpll.engine.networks import Embedded
from robustpll.engine.predict import Fitted, Networks, logits_of
from robustpll.engine.random import seed_of
from robustpll.errors import POSITIVE, InputError, Rule, check_fields, refuse_other_than_share
from robustpll.methods.auto import Stack
from robustpll.methods.neighbours import neighbours
from robustpll.opinion import Opinion, named_as

Floats = NDArray[np.float64]
Parts = tuple[Floats, Tensor]  # keys (r,) and scaled rows (r, *shape) of a sample
Source = Literal["labels", "candidates"]
Scaled = Literal["evidence", "logits"]
FINITE = Rule("finite", math.isfinite)

ROWS_AT_ONCE = 2**11  # rows that are compared together: 50 MiB for pictures of 32 x 32 in colour
MOST_ROWS, MOST_NUMBERS = 1000, 2**20  # of the reference rows: 4 MiB in float32
NEAR = 1e-5  # of equal rows: distances are rounded
NEVER = -1.0  # certainty of a row that must not be accepted
STARTS = 2  # sequences of tests in `bounded_threshold`
ACCEPTED, NOVEL, NO_PROMISE = "accepted", "unlike the training data", "no promise can be made"


@dataclass(frozen=True)
class Recalibration:
    """A factor on the evidence, or on the logits, that calibrates probabilities.

    With evidence e, belief becomes f e / (k + f sum e) and uncertainty k / (k + f sum e). Methods
    without evidence get temperature scaling with temperature 1 / f. The factor minimises the log
    loss, the mean of -ln P(S) over rows with candidates S. A small penalty keeps it near 1 for few
    rows: factors of 10 and 1/10 cost half a nat for all rows together.

    >>> opinion = Opinion.of_probability(np.array([[0.9, 0.1]] * 400))
    >>> right = np.array([[True, False]] * 300 + [[False, True]] * 100)
    >>> Recalibration.of_rows(opinion, right)
    Recalibration(factor=0.500..., of='logits', source='labels', rows=400, before=0.65..., ...)
    """

    factor: Annotated[float, POSITIVE]
    of: Scaled  # what is multiplied
    source: Source  # what it was learned from
    rows: int
    before: Annotated[float, FINITE]  # log loss of these rows
    after: Annotated[float, FINITE]

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of_rows(cls, opinion: Opinion, candidates: NDArray[np.bool_]) -> Self:
        """Learn from an uncalibrated opinion of n rows and their candidates (n, k)."""
        source: Source = "labels" if (candidates.sum(-1) == 1).all() else "candidates"
        scaled: Scaled = "evidence" if (opinion.uncertainty > 0).any() else "logits"
        start = cls(1.0, scaled, source, len(candidates), 0.0, 0.0)

        def loss(log_factor: float) -> float:
            scaling = replace(start, factor=float(np.exp(log_factor)))
            return float(-scaling._log_probability(opinion, candidates).mean())

        def penalised(log_factor: Any, loss: Any) -> Any:
            return len(candidates) * loss + (log_factor / math.log(10.0)) ** 2 / 2

        grid = np.linspace(-np.log(1e4), np.log(1e4), 121)  # with sets, there may be several minima
        losses = np.array([loss(log_factor) for log_factor in grid])
        if not np.isfinite(losses).all() or np.ptp(losses) < 1e-9:
            raise InputError(
                "X and y do not say how sure the model should be: it gives probability 0 to a row "
                "of y, or every set holds all classes. Pass labels or other rows, or use another "
                "method than PlKnn and DstPll."
            )
        best = int(np.argmin(penalised(grid, losses)))
        bounds = (grid[max(0, best - 1)], grid[min(best + 1, len(grid) - 1)])
        search: Any = {"bounds": bounds, "method": "bounded", "options": {"xatol": 1e-6}}
        least = minimize_scalar(lambda x: penalised(x, loss(x)), **search).x
        return replace(start, factor=float(np.exp(least)), before=loss(0.0), after=loss(least))

    def opinion(self, opinion: Opinion) -> Opinion:
        """A recalibrated copy of an opinion, with the same predicted classes."""
        return named_as(self._scaled(opinion), opinion)

    def _scaled(self, opinion: Opinion) -> Opinion:
        if self.of == "evidence":
            total = self.factor * (1 - opinion.uncertainty) + opinion.uncertainty
            belief = self.factor * opinion.belief / total[..., None]
            return replace(opinion, belief=belief, uncertainty=opinion.uncertainty / total)
        xp: Any = torch if isinstance(opinion.belief, Tensor) else np
        belief = (opinion.belief / xp.amax(opinion.belief, axis=-1, keepdims=True)) ** self.factor
        return replace(opinion, belief=belief / belief.sum(-1)[..., None])

    def _log_probability(self, opinion: Opinion, candidates: NDArray[np.bool_]) -> NDArray[Any]:
        """ln P(S) of each row, (n,); logits far apart do not round it to 0."""
        with np.errstate(divide="ignore"):
            if self.of == "evidence":
                return np.asarray(np.log((self._scaled(opinion).probability * candidates).sum(-1)))
            logs = self.factor * np.log(opinion.belief)
        return np.asarray(logsumexp(logs, axis=-1, b=candidates) - logsumexp(logs, axis=-1))


@dataclass(frozen=True, eq=False)
class Reference:
    """A sample of distinct training rows, in the last hidden layer; other rows may be far away."""

    rows: Tensor  # (M, r, h) in float32, see `representation`
    trained: int = 0  # training rows of which it is a sample; 0 if that is not known

    @classmethod
    def of(cls, fitted: Fitted, training: Rows, seed: int, *, has_ids: bool = False) -> Self | None:
        """Draw at most 1,000 rows and a million numbers from one run.

        Ids have no distances: None if rows have ids, and the network no hidden layer to compare.
        """
        if has_ids and not _hidden_width(fitted, training.shape, None):
            return None
        order = np.random.default_rng(seed_of(seed, "reference")).permutation(len(training))
        sample = replace(training, indices=training.indices[:, order[:MOST_ROWS]])
        x = sample.x(sample.everything)[0].flatten(1).cpu().numpy()
        first = np.sort(np.unique(x, axis=0, return_index=True)[1])
        rows = representation(fitted, replace(sample, indices=sample.indices[:, first]))
        rows = rows[:, : max(2, MOST_NUMBERS // rows.shape[-1])].float().contiguous()
        return cls(rows.to(fitted.device), len(training))

    @cached_property
    def limit(self) -> float:
        """The largest distance of a reference row to the others; infinite for a single row."""
        if self.rows.shape[1] < 2:
            return math.inf
        rows = self.rows.double()
        return float(nearest_distance(rows, rows, itself=True).mean(0).max())

    def has_seen(self, distance: Floats) -> bool:
        """Whether rows at these distances (n,) surely have training rows among them.

        If all have, as many are at distance 0 as training rows are in the sample. Of new rows, no
        more are than twice the share of the sample that equals other rows of it.
        """
        count, width = self.rows.shape[1:]
        drawn = min(self.trained, MOST_ROWS, max(2, MOST_NUMBERS // width))
        if not drawn or self.trained > 20 * drawn:
            return False
        repeated = max(0.0, 1 - count / drawn)
        share = drawn / self.trained / 2 + 3 * repeated
        return repeated < 0.1 and int((distance <= NEAR).sum()) >= max(3, share * len(distance))

    def distance(self, fitted: Fitted, rows: Rows) -> Tensor:
        """Distance of each row to the nearest reference row, the mean over members, (n,)."""
        reference, distances = self.rows.double(), []
        for indices in torch.split(rows.indices, ROWS_AT_ONCE, dim=1):
            x = representation(fitted, replace(rows, indices=indices), reference.shape[-1])
            distances.append(nearest_distance(x, reference).mean(0))
        return torch.cat(distances)


def sampled(before: Parts | None, rows: Rows, seed: int) -> Parts:
    """Add a part of the training rows to a random sample of 1,000: the smallest keys stay."""
    keys = np.random.default_rng(seed_of(seed, "parts")).random(len(rows))
    chosen = np.argsort(keys)[:MOST_ROWS]
    x = rows.x(torch.from_numpy(chosen).to(rows.indices.device)[None])[0]
    keys = keys[chosen]
    if before is not None:
        keys, x = np.concatenate([before[0], keys]), torch.cat([before[1].to(x), x])
    smallest = np.argsort(keys)[:MOST_ROWS]
    return keys[smallest], x[torch.from_numpy(smallest).to(x.device)]


def nearest_distance(rows: Tensor, reference: Tensor, *, itself: bool = False) -> Tensor:
    """Distance of each of M models' rows (M, n, h) to its nearest reference row, (M, n)."""
    pairs = zip(rows, reference, strict=True)
    return torch.stack([neighbours(x, near, 1, itself=itself)[1][:, 0] for x, near in pairs])


def networks_of(fitted: Fitted) -> tuple[Networks, ...]:
    """The networks of all runs together, or of each run of `Auto`; empty for other methods."""
    if isinstance(fitted, Stack):
        return fitted.networks
    return (fitted,) if isinstance(fitted, Networks) else ()


def by_networks(fitted: Fitted, rows: Rows, compute: Callable[[Networks, Rows], Tensor]) -> Tensor:
    """Join what is computed by networks from the rows of their members, (M, n, ...)."""
    networks = networks_of(fitted)
    parts = [rows.part([run]) for run in range(rows.models)] if len(networks) > 1 else [rows]
    pairs = zip(networks, parts, strict=True)
    return torch.cat([compute(each, part.repeated(each.method.members)) for each, part in pairs])


def representation(fitted: Fitted, rows: Rows, stored: int | None = None) -> Tensor:
    """The last hidden layers scaled to length 1, or else the features; (M, n, h) in float64.

    It is made as stored rows of the width `stored` were.
    """
    if not _hidden_width(fitted, rows.shape, stored):
        return rows.x(rows.everything).double().flatten(2)

    def hidden(networks: Networks, rows: Rows) -> Tensor:
        body, _ = _body(networks.method.classifier(networks.net))
        return F.normalize(logits_of(networks.method, body, rows), dim=-1)

    return by_networks(fitted, rows, hidden)


def representation_shape(
    fitted: Fitted, shape: tuple[int, ...], stored: int | None = None
) -> tuple[int, int]:
    """The number of models and the width of `representation` of one run's rows of this shape."""
    width = _hidden_width(fitted, shape, stored)
    return (len(networks_of(fitted)[0].seeds), width) if width else (1, math.prod(shape))


def _hidden_width(fitted: Fitted, shape: tuple[int, ...], stored: int | None) -> int:
    """The width of the last hidden layer, or 0 if features represent rows of this shape.

    In former files, only networks with a model axis have a hidden layer. In other networks, stored
    rows are features if they are as wide; so a hidden layer as wide as features is not used.
    """
    for networks in networks_of(fitted)[:1]:
        net = networks.method.classifier(networks.net)
        _, width = _body(net)
        if type(net) is nn.Sequential or math.prod(shape) not in (width, stored):
            return width
    return 0


def _body(net: Any) -> tuple[nn.Module, int]:
    """A predicting network without its last linear layer, and its width; 0 without such a layer."""
    if isinstance(net, layers.Stack):
        bodies, widths = zip(*map(_body, net.copies), strict=True)
        stack = copy.copy(net)
        stack._modules, stack.in_eval = {"copies": nn.ModuleList(bodies)}, []
        return stack, widths[0]
    head = None
    if isinstance(net, Embedded):
        net, head = net.body, net.head
    elif type(net) is nn.Sequential and len(net):  # another class may compute something else
        net, head = net[:-1], net[-1]
    if isinstance(head, layers.Linear):
        return net, head.weight.shape[1]
    return net, head.in_features if isinstance(head, nn.Linear) else 0


@dataclass(frozen=True, eq=False, repr=False)
class Decision(Displayed):
    """Predicted classes, which of them to accept, and why not the others.

    Attributes
    ----------
    label : array of shape (n,)
        The predicted class, also of rejected rows.
    accepted : bool array of shape (n,)
        Whether the prediction is accepted.
    reason : array of shape (n,)
        ``"accepted"``, ``"ambiguous: a or b"`` with the two most probable classes, ``"unlike the
        training data"``, or ``"no promise can be made"`` if no threshold bounds the error.
    threshold : float
        The smallest probability of an accepted prediction; infinite if none can be accepted.
    """

    label: NDArray[Any]
    accepted: NDArray[np.bool_]
    reason: NDArray[np.str_]
    threshold: float

    @property
    def coverage(self) -> float:
        """Share of accepted rows."""
        return float(self.accepted.mean())

    def __len__(self) -> int:
        return len(self.label)

    def _facts(self) -> str:
        return f"{int(self.accepted.sum())} of {len(self)} rows accepted"

    def _table(self) -> Any:
        import pandas as pd

        names = ("label", "accepted", "reason")
        return pd.DataFrame({name: getattr(self, name)[:ROWS] for name in names})


def certainty_of(opinion: Opinion) -> Floats:
    """Probability of the predicted class, (n,)."""
    return np.asarray(opinion.probability[np.arange(len(opinion)), opinion.predicted()])


def ambiguities(opinion: Opinion) -> list[str]:
    """The predicted class of each row and the next probable one, as a reason."""
    names, probability, predicted = opinion.classes, opinion.probability, opinion.predicted()
    assert names is not None
    probability[np.arange(len(predicted)), predicted] = NEVER
    pairs = zip(names[predicted], names[probability.argmax(-1)], strict=True)
    return [f"ambiguous: {first} or {second}" for first, second in pairs]


@dataclass(frozen=True, eq=False)
class CalibrationSample:
    """Rows that thresholds are computed from: the model's certainty, and its errors."""

    certainty: Floats = field(repr=False)  # (n,) of the predicted class, falling; novel rows: -1
    wrong: Floats = field(repr=False)  # (n,): 0 or 1 by labels, or the probability of an error
    limit: float  # rows farther than this from the training data are novel
    source: Source | None = None  # of `wrong`; None: the model's own probabilities
    confidence: float | None = None  # of the bound on the error, if the source is labels

    def __post_init__(self) -> None:
        if not self.limit >= 0 or self.source not in (*get_args(Source), None):
            raise ValueError(f"the limit {self.limit!r} or the source {self.source!r} is wrong")
        if self.confidence is not None:
            refuse_other_than_share("confidence", self.confidence)

    @classmethod
    def of(cls, opinion: Opinion, distance: Floats, wrong: Floats | None, **about: Any) -> Self:
        """Sort rows by certainty, novel rows last; None for `wrong` trusts the probabilities."""
        limit = float(np.quantile(distance, 0.99, method="higher"))
        about = {"limit": max(NEAR, limit), **about}
        certainty = certainty_of(opinion)
        wrong = 1 - certainty if wrong is None else wrong
        certainty = np.where(distance > about["limit"], NEVER, certainty)
        order = np.argsort(-certainty, kind="stable")
        return cls(certainty[order], wrong[order], **about)

    def decision(self, opinion: Opinion, distance: Floats, coverage: Any, error: Any) -> Decision:
        """Accept certain rows near the training data, and give reasons for the others."""
        rejected: Any = ambiguities(opinion)
        if error is None:
            threshold = share_threshold(self.certainty, float(coverage))
        else:
            threshold = self.threshold(error)
            if self.confidence is not None and math.isinf(threshold):
                rejected = NO_PROMISE
        similar = distance <= self.limit
        accepted = similar & (certainty_of(opinion) >= threshold)
        reason = np.where(accepted, ACCEPTED, np.where(similar, rejected, NOVEL))
        label = np.asarray(opinion.classes)[opinion.predicted()]
        return Decision(label, accepted, reason, threshold)

    def fewest(self, error: float) -> int:
        """How many labelled rows a bound on the error needs; 0 for an estimate by candidates."""
        return 0 if self.confidence is None else fewest_rows(error, self.confidence)

    def can_promise(self, error: float) -> bool:
        """Whether there are enough rows for a bound on the error; True for an estimate."""
        return self.fewest(error) <= len(self.certainty)

    def threshold(self, error: float) -> float:
        """The certainty that rows need for this error; infinite if none can be accepted."""
        if self.confidence is None:
            return mean_threshold(self.certainty, self.wrong, error)
        if not self.can_promise(error):
            message = (
                f"error={error:g} cannot be promised with confidence {self.confidence:g} from "
                f"{len(self.certainty)} labelled rows: it takes {self.fewest(error)}. So no row is "
                "accepted. Pass more rows to calibrate_decisions, or allow a larger error."
            )
            warnings.warn(message, UserWarning, stacklevel=4)  # of the caller of `decide`
        return bounded_threshold(self.certainty, self.wrong, error, self.confidence)


def share_threshold(certainty: Floats, share: float) -> float:
    """Threshold that accepts a share of falling certainties, as nearly as ties allow."""
    counts = np.append(0, _acceptable_counts(certainty))
    best = counts[np.argmin(np.abs(counts - share * len(certainty)))]
    return float(certainty[best - 1]) if best else math.inf


def mean_threshold(certainty: Floats, wrong: Floats, error: float) -> float:
    """Threshold that accepts most of falling certainties with a mean of `wrong` up to `error`."""
    counts = _acceptable_counts(certainty)
    sound = counts[np.cumsum(wrong)[counts - 1] <= (error + 1e-9) * counts]
    return float(certainty[sound[-1] - 1]) if len(sound) else math.inf


def bounded_threshold(certainty: Floats, wrong: Floats, error: float, confidence: float) -> float:
    """Threshold above which, with this confidence, at most `error` of rows are wrong."""
    # Learn then Test (Angelopoulos et al., 2021): binomial tests of growing numbers of rows, the
    # most certain first, until one fails. One sequence starts with the fewest rows that can pass,
    # another half-way; each gets half of the error probability. It holds for rows drawn like these.
    ends = _acceptable_counts(certainty)
    tested = np.geomspace(fewest_rows(error, confidence), len(certainty), 20).round()
    steps = np.searchsorted(ends, tested)
    counts = np.unique(ends[steps[steps < len(ends)]])
    p_values = np.asarray(binom.cdf(np.cumsum(wrong)[counts - 1], counts, error))
    passed = p_values <= (1 - confidence) / STARTS
    reached = 0
    for start in range(0, len(passed), max(1, math.ceil(len(passed) / STARTS))):
        failed = np.flatnonzero(~passed[start:])
        end = start + failed[0] if len(failed) else len(passed)
        reached = max(reached, counts[end - 1] if end > start else 0)
    return float(certainty[reached - 1]) if reached else math.inf


def fewest_rows(error: float, confidence: float) -> int:
    """Labelled rows that a bound on the error needs, even if all predictions are right."""
    fewest = math.log((1 - confidence) / STARTS) / math.log1p(-error)
    return math.ceil(min(fewest, 1e18))  # for the smallest errors it overflows


def _acceptable_counts(certainty: Floats) -> NDArray[np.int64]:
    """Numbers of rows that can be accepted: ties stay together, rows below 0 stay out."""
    last = np.append(certainty[1:] < certainty[:-1], True)
    return np.flatnonzero(last & (certainty >= 0)) + 1
