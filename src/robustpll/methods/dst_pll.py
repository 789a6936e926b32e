"""DstPll (Fuchs et al., TMLR 2025)."""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from robustpll.engine.data import Task
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Fitted
from robustpll.engine.rows import Rows
from robustpll.errors import InputError
from robustpll.methods.autoencoder import CODE, Encoder, codes, encoder_shapes, encoders_of
from robustpll.methods.classical import (
    Classical,
    ClassicalMethod,
    Layout,
    Learned,
    OneRun,
    Precomputed,
    equal_runs,
)
from robustpll.methods.dempster_shafer import MOST_WITNESSES, opinion_of
from robustpll.methods.neighbours import neighbours
from robustpll.opinion import Opinion


@dataclass(frozen=True)
class DstPll(ClassicalMethod):
    """Evidence of the nearest training rows, combined by Dempster-Shafer theory.

    Each neighbour gives the mass 1/2 to its candidates and 1/2 to all classes; for a training row
    both are restricted to the row's own candidates. Neighbours that have none or all of these
    classes as candidates are left out. The mass of a set C is 2^-m times the number of groups of
    the m others whose candidates have the intersection C. The mass of the empty set goes to all
    classes (Yager's rule). Belief in class c is the mass of {c}, the rest is uncertainty, and
    probability is proportional to belief, or uniform on the heaviest set if no single class has
    mass. The paper rejects rows by plausibility; here, reject by `uncertainty`. `random_state` has
    no effect.

    Images are compared by the codes of a variational auto-encoder, trained on the training rows
    only. In the published experiments, that of NotMNIST had seen most of the test images.

    Parameters
    ----------
    neighbours : int
        Number of neighbours, if rows are compared by their scaled features; from 1 to 52.
    code_neighbours : int
        Number of neighbours, if rows are compared by codes.
    encoder : {"auto", "never", "always"}
        Whether to compare by codes. "auto" does for rows of shape (h, w) or (c, h, w).
    encoder_epochs : int
        Training epochs of the auto-encoder.

    Notes
    -----
    ``DstPll.paper()`` differs in ``neighbours=10, encoder_epochs=1000``.

    Examples
    --------
    >>> import numpy as np
    >>> from robustpll import PLLClassifier
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(DstPll(neighbours=4)).fit(X, y)
    >>> model.predict_opinion(np.eye(3)).uncertainty
    array([0.25, 0.25, 0.25])
    """

    name = "dst_pll"
    title = "DstPll"
    citation = "Fuchs, Kalinke, Böhm: Partial-Label Learning with a Reject Option. TMLR 2025"
    uncertain = True
    cost = (1.5, 2.0)

    neighbours: int = 20
    code_neighbours: int = 20
    encoder: Literal["auto", "never", "always"] = "auto"
    encoder_epochs: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        most = {"neighbours": MOST_WITNESSES, "code_neighbours": MOST_WITNESSES}
        for name in ("neighbours", "code_neighbours", "encoder_epochs"):
            value = getattr(self, name)
            if not 1 <= value <= most.get(name, value):
                limit = f"from 1 to {most[name]}" if name in most else "of at least 1"
                raise InputError(
                    f"The {name!r} of DstPll must be an int {limit}. Got {value!r} instead."
                )

    @classmethod
    def paper(cls) -> Self:
        return cls(neighbours=10, encoder_epochs=1000)

    def layout(self, shape: Shape, k: int) -> Layout:
        features, double = torch.Size(shape).numel(), torch.float64
        encoder: Layout = {}
        if self._by_codes(shape):
            encoder = {name: (double, size) for name, size in encoder_shapes(features).items()}
            features = CODE
        tables = {"candidates": (torch.bool, ("n", k)), "rows": (double, ("n", features))}
        return tables | encoder

    def _by_codes(self, shape: Shape) -> bool:
        """Whether rows of this shape are compared by codes."""
        return self.encoder == "always" or (self.encoder == "auto" and len(shape) > 1)

    def shared_seconds(self, rows: int, shape: Shape, *, cuda: bool) -> float:
        """Runs of one bundle train their auto-encoders at once."""
        if not self._by_codes(shape):
            return 0.0
        return 20 + self.encoder_epochs * rows * (1e-6 if cuda else 3e-5)

    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        if not self._by_codes(task.rows.shape):
            return super().fit(task, watch=watch)
        self.refuse_weights_and_watch(task, watch)  # before an encoder is trained
        encoders = encoders_of(task.rows, self.encoder_epochs)
        plain = replace(self, neighbours=self.code_neighbours, encoder="never")
        fitted = plain.fit(replace(task, rows=_coded(task.rows, encoders)))
        assert isinstance(fitted, Classical)
        learned = (run | encoder for run, encoder in zip(fitted.learned, encoders, strict=True))
        return replace(fitted, method=self, learned=tuple(learned))

    def precompute(self, x: Tensor, learned: Learned | None = None) -> Precomputed:
        count, rows = self.neighbours, x if learned is None else learned["rows"]
        if learned is not None and "encoder.mean.weight" in learned:
            x, count = codes(learned, x), self.code_neighbours
        return {"indices": neighbours(x, rows, count, itself=learned is None).indices}

    def fit_run(self, run: OneRun) -> tuple[Learned, Opinion]:
        learned = {"rows": run.x, "candidates": run.candidates}
        return learned, opinion_of(run.candidates, run.precomputed["indices"], run.candidates)

    def predict_run(self, learned: Learned, x: Tensor, precomputed: Precomputed) -> Opinion:
        candidates = learned["candidates"]
        all_classes = torch.ones_like(candidates[:1]).expand(len(x), -1)  # (q, k)
        return opinion_of(candidates, precomputed["indices"], all_classes)


def _coded(rows: Rows, encoders: list[Encoder]) -> Rows:
    """Codes of R runs in place of their rows."""
    pool, index = [], torch.empty_like(rows.at, device=rows.device)
    for group, runs in enumerate(equal_runs(rows)):
        part = rows.part(slice(runs[0], runs[0] + 1))
        pool.append(codes(encoders[runs[0]], part.x(part.everything)[0].flatten(1)))
        index[runs] = group * len(rows) + torch.arange(len(rows), device=rows.device)
    unit = pool[0].new_ones(rows.models, 1, CODE)
    return Rows(torch.cat(pool), index, torch.zeros_like(unit), unit)
