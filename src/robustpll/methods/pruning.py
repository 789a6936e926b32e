"""Candidate label set pruning (He et al., ICLR 2024)."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from robustpll.engine.data import Task
from robustpll.engine.device import computing
from robustpll.engine.predict import Fitted
from robustpll.errors import InputError, Rule, refuse_other_length
from robustpll.labels.candidates import Candidates
from robustpll.methods.base import Count, Method, Share, normalize
from robustpll.methods.classical import equal_runs, scaled_rows
from robustpll.methods.neighbours import neighbours as nearest


def _method_of(value: Any) -> Method | None:
    """Return the method that a name or an object stands for, if any."""
    from robustpll.methods import METHODS  # which imports this file

    if isinstance(value, str) and value in METHODS:
        return METHODS[value]()
    return value if isinstance(value, Method) else None


METHOD = Rule("a name of METHODS, or a Method", lambda value: _method_of(value) is not None)


@dataclass(frozen=True)
class Pruned(Method):
    """Drops candidates that few similar rows share, then another method learns from the rest.

    Of the nearest rows by cosine, count those without a candidate. Of s candidates of a row, at
    most ceil(share (s - 1)) go: those with the largest counts. Ties at the limit stay, so that the
    order of classes does not matter, and so does at least one candidate.

    Neighbours need good features. Raw pixels are poor; features by ``robustpll embed`` are better,
    but the rows that such an encoder was trained on are extra data. Rows are scaled as for the
    inner method; ``scale=None`` keeps the cosines of given features. A lost true class cannot be
    learned for its row. With classes that are easily confused, or without good features, use a
    smaller share. A fitted model and its file are those of the inner method.

    The defaults are the published ones for uniform candidates and features of a large encoder
    (BLIP-2). The publication has other settings for other noise; see `pruned`. Ties at the limit
    stay in its code, too.

    Parameters
    ----------
    method : str or Method
        The inner method, by its name in `robustpll.METHODS` or as an object.
    neighbours : int
        Number of neighbours that count; all other rows if there are fewer. It should be smaller
        than the number of rows of a class: 150 is for tens of thousands of rows.
    share : float
        Largest share of a row's candidates but one that go, from 0 to 1.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X = [[1.0, 0], [2, 0], [3, 0], [0, 1], [0, 2], [0, 3]]
    >>> y = [{"a", "b"}, {"a"}, {"a", "c"}, {"b", "c"}, {"b"}, {"b", "a"}]
    >>> model = PLLClassifier(Pruned("pl_knn", neighbours=2), scale=None).fit(X, y)
    >>> model.label_weights_.astype(int).tolist()
    [[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]]
    """

    name = "pruned"
    title = "Pruned"
    citation = (
        "He, Wang, Yang, Feng: Candidate Label Set Pruning: A Data-centric Perspective for Deep "
        "Partial-label Learning. ICLR 2024"
    )
    published = False

    method: Annotated[str | Method, METHOD] = "proden"
    neighbours: Count = 150
    share: Share = 0.6

    @property
    def inner(self) -> Method:
        """The method that learns from what is left."""
        inner = _method_of(self.method)
        assert inner is not None
        return inner

    @property
    def scale(self) -> Any:
        return self.inner.scale

    @property
    def by_row(self) -> bool:
        return bool(self.inner.by_row)

    def fit(self, task: Task, *, validation: Task | None = None) -> Fitted:
        kept = torch.empty_like(task.candidates)
        with computing("float32", task.rows.device):
            for runs in equal_runs(task.rows):
                indices = self.similar(scaled_rows(task.rows, runs[0]))
                for run in runs:
                    kept[run] = self.kept(task.candidates[run], indices)
        prior = normalize(task.prior * kept, kept / kept.sum(-1, keepdim=True))
        task = replace(task, candidates=kept, prior=prior)
        return self.inner.fit(task, validation=validation)

    def similar(self, x: Tensor) -> Tensor:
        """Return the indices (n, m) of the nearest other rows, by the cosine of rows (n, d)."""
        x = torch.nn.functional.normalize(x.double())
        return nearest(x, x, self.neighbours, itself=True).indices  # also nearest by distance

    def kept(self, candidates: Tensor, indices: Tensor) -> Tensor:
        """Return which candidates (n, k) stay, given neighbours at indices (n, m)."""
        agreeing = embedding_bag(indices, candidates.float(), mode="sum")  # no (n, m, k)
        against = (indices.shape[1] - agreeing) * candidates
        most = self.share * (candidates.sum(-1, keepdim=True) - 1).double()
        most = (most - 1e-9).ceil().long()  # 0.55 * 20 is slightly above 11
        return candidates & (against <= against.sort(-1, descending=True).values.gather(-1, most))


def pruned(
    features: ArrayLike, candidates: Any, *, neighbours: int = 150, share: float = 0.6
) -> NDArray[np.bool_]:
    """Return which candidates stay if rows are compared by features, (n, k); see `Pruned`.

    Parameters
    ----------
    features : array of shape (n, ...)
        Numbers that are similar for rows of one class, such as those of ``robustpll embed``.
    candidates : object
        Candidates in any form that `Candidates.of` accepts.
    neighbours, share
        As for `Pruned`. For candidates that are similar classes, the paper has 5 and 0.2.

    Examples
    --------
    >>> angles = np.radians([0, 5, 10, 15, 80, 85])
    >>> y = [{0, 1, 2}, {0, 2}, {0, 1}, {0}, {1, 2}, {0, 1, 2}]
    >>> pruned(np.stack([np.cos(angles), np.sin(angles)], 1), y, neighbours=3).astype(int).tolist()
    [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    """
    method = Pruned(neighbours=neighbours, share=share)
    x, matrix = np.asarray(features, dtype=np.float64), Candidates.of(candidates).matrix
    if x.ndim < 2 or len(x) < 2 or not np.isfinite(x).all():
        rule = "features must be finite numbers of shape (n, d), of two rows or more"
        raise InputError(f"{rule}; got shape {x.shape} and {x.size - np.isfinite(x).sum()} gaps.")
    refuse_other_length(len(x), len(matrix))
    indices = method.similar(torch.from_numpy(x).flatten(1))
    return method.kept(torch.from_numpy(matrix), indices).numpy()
