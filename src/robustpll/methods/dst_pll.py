"""DstPll (Fuchs et al., TMLR 2025)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from robustpll.engine.data import Rows, Task
from robustpll.engine.networks import Shape
from robustpll.engine.predict import Fitted
from robustpll.errors import InputError
from robustpll.methods.autoencoder import CODE, Encoder, codes, encoder_shapes, encoders_of
from robustpll.methods.classical import (
    Around,
    Classical,
    ClassicalMethod,
    Layout,
    Learned,
    OneRun,
    alike,
)
from robustpll.methods.dempster_shafer import MOST_WITNESSES, opinion_of
from robustpll.methods.neighbours import nearest
from robustpll.opinion import Opinion


@dataclass(frozen=True)
class DstPll(ClassicalMethod):
    """Evidence of the nearest training rows, combined by Dempster-Shafer theory.

    Each neighbour gives the mass 1/2 to its candidates and 1/2 to all classes; for a training row
    both are restricted to the row's own candidates. A neighbour whose candidates tell nothing, as
    none or all of these classes are among them, is left out. Masses are multiplied, and meet on
    intersections:

        m(C) = 2^-m * number of groups of neighbours whose candidates have the intersection C

    for the m neighbours left. The empty set's mass goes back to all classes (Yager's rule). Belief
    in class c is m({c}); what no single class has is uncertainty, and probability is proportional
    to belief. Where no single class has mass, probability is uniform on the set that has most.
    Nothing is random: `random_state` has no effect.

    Pictures are compared by codes, the means of a variational auto-encoder. It learns from the
    training rows of the fit and from nothing else; in the published experiments that of NotMNIST
    had seen most of the test pictures.

    Parameters
    ----------
    neighbours : int
        How many, where rows are compared by their scaled features; from 1 to 52.
    code_neighbours : int
        How many, where rows are compared by codes.
    encoder : {"auto", "never", "always"}
        Whether to compare by codes. "auto" does for pictures, whose rows have shape (h, w) or
        (c, h, w); pictures that are flattened look like a table.
    encoder_epochs : int
        For how long the auto-encoder is trained.

    Notes
    -----
    ``DstPll.paper()`` differs in ``neighbours=10, encoder_epochs=1000``.

    The method's own paper also rejects rows, by how far belief in a class is above the plausibility
    of all others. An opinion does not hold plausibilities: here `uncertainty` is to reject by.

    Examples
    --------
    >>> import numpy as np
    >>> from robustpll import PLLClassifier
    >>> X = np.repeat(np.eye(3), 20, axis=0)
    >>> y = [{"a", "b"}, {"a"}] * 10 + [{"b", "c"}, {"b"}] * 10 + [{"c", "a"}, {"c"}] * 10
    >>> model = PLLClassifier(DstPll(neighbours=4)).fit(X, y)
    >>> model.predict(np.eye(3))
    array(['a', 'b', 'c'], dtype='<U1')
    >>> model.predict_opinion(np.eye(3)).uncertainty
    array([0.25, 0.25, 0.25])
    """

    name: ClassVar[str] = "dst_pll"
    title: ClassVar[str] = "DstPll"
    seconds: ClassVar[tuple[float, float]] = (1.5, 2.0)
    citation: ClassVar[str] = (
        "Fuchs, Kalinke, Böhm: Partial-Label Learning with a Reject Option. TMLR 2025"
    )
    uncertain: ClassVar[bool] = True

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
                msg = f"The {name!r} of DstPll must be an int {limit}. Got {value!r} instead."
                raise InputError(msg)

    @classmethod
    def paper(cls) -> Self:
        return cls(neighbours=10, encoder_epochs=1000)

    def pretraining_epochs(self, pictures: bool) -> int:
        by_codes = self.encoder == "always" or (self.encoder == "auto" and pictures)
        return self.encoder_epochs if by_codes else 0

    def layout(self, shape: Shape, k: int) -> Layout:
        features = torch.Size(shape).numel()
        double = torch.float64
        candidates: Layout = {"candidates": (torch.bool, ("n", k))}
        if not self._by_codes(shape):
            return candidates | {"rows": (double, ("n", features))}
        encoder = {name: (double, size) for name, size in encoder_shapes(features).items()}
        return candidates | {"rows": (double, ("n", CODE))} | encoder

    def _by_codes(self, shape: Shape) -> bool:
        """Whether rows of this shape are compared by codes."""
        return self.pretraining_epochs(len(shape) > 1) > 0

    def fit(self, task: Task, *, watch: Task | None = None) -> Fitted:
        if not self._by_codes(task.rows.shape):
            return super().fit(task, watch=watch)
        self.refuse_weights_and_watch(task, watch)  # before an encoder is trained
        encoders = encoders_of(task.rows, self.encoder_epochs)
        plain = replace(self, neighbours=self.code_neighbours, encoder="never")
        fitted = plain.fit(replace(task, rows=_coded(task.rows, encoders)))
        assert isinstance(fitted, Classical)
        both = zip(fitted.learned, encoders, strict=True)
        return replace(fitted, method=self, learned=tuple(own | of_run for own, of_run in both))

    def around(self, x: Tensor, learned: Learned | None = None) -> Around:
        if learned is None:
            return {"at": nearest(x, x, self.neighbours, itself=True)}
        count = self.neighbours
        if "encoder.mean.weight" in learned:
            x, count = codes(learned, x), self.code_neighbours
        return {"at": nearest(x, learned["rows"], count)}

    def learn(self, run: OneRun) -> tuple[Learned, Opinion]:
        """From scaled features or from codes."""
        learned = {"rows": run.x, "candidates": run.candidates}
        return learned, opinion_of(run.candidates, run.around["at"], base=run.candidates)

    def judge(self, learned: Learned, x: Tensor, around: Around) -> Opinion:
        candidates = learned["candidates"]
        everything = torch.ones_like(candidates[:1]).expand(len(x), -1)  # (q, k)
        return opinion_of(candidates, around["at"], base=everything)


def _coded(rows: Rows, encoders: list[Encoder]) -> Rows:
    """Codes of R runs in place of their rows."""
    pool, at = [], torch.empty_like(rows.at, device=rows.device)
    for group, runs in enumerate(alike(rows)):
        own = rows.part(slice(runs[0], runs[0] + 1))
        pool.append(codes(encoders[runs[0]], own.x(own.everything)[0].flatten(1)))
        at[runs] = group * len(rows) + torch.arange(len(rows), device=rows.device)
    unit = pool[0].new_ones(rows.models, 1, CODE)
    return Rows(torch.cat(pool), at, torch.zeros_like(unit), unit)
