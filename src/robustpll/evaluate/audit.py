"""How much a fitted classifier can be changed by small changes of its input, at worst.

One attack says little: a method may be fooled easily and yet resist that one. Here several are
tried, a row counts as right only if all of them failed on it, and signs that they failed for the
wrong reason are named.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll.attacks.autopgd import AutoPGD
from robustpll.attacks.base import PGD, Attack
from robustpll.attacks.square import Square
from robustpll.engine.data import Task
from robustpll.engine.predict import Fitted, Networks, scaled_rows
from robustpll.engine.random import Draws
from robustpll.engine.rows import Rows
from robustpll.errors import InputError, refuse_other_length
from robustpll.estimator.classifier import CandidateClassifier
from robustpll.evaluate.ood import rows_of
from robustpll.labels.candidates import Candidates, is_label_vector
from robustpll.methods.proden import Proden
from robustpll.opinion import Opinion

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2)
NOTABLE = 0.01  # share of the rows above which an oddity is named
COPIES = 10  # of each row, moved at random: what a twin learns from besides the rows
BLIND = ("square", "transfer")  # attacks that do not follow the model's own gradient


@dataclass(frozen=True)
class RobustnessReport:
    """Accuracy under attack, and what speaks against trusting it.

    Attributes
    ----------
    rows : int
        How many were attacked.
    clean : float
        Share of rows that are right without attack. A row is right if the true class alone has the
        largest probability; a tie counts as wrong, here and everywhere in the report.
    epsilons : tuple of float
        How far each feature may move; features are scaled by the training rows to [0, 1].
    worst : tuple of float
        For each epsilon, the share of rows that are right whatever the attack, at this epsilon or
        a smaller one. An upper bound: an attack not tried may do better.
    attacks : mapping of str to tuple of float
        The same for each attack alone.
    unbounded : float
        Share of rows still right when each feature may take any value of its range.
    zero_gradients : mapping of str to float
        For "float32" and "float64", the share of rows at which the gradient of the cross-entropy is
        exactly 0, so that plain gradient attacks stand still; empty for methods without gradient.
    warnings : tuple of str
        Signs that gradients are masked, or the attacks too weak; none is a good sign, no proof.
    """

    rows: int
    clean: float
    epsilons: tuple[float, ...]
    worst: tuple[float, ...]
    attacks: Mapping[str, tuple[float, ...]]
    unbounded: float
    zero_gradients: Mapping[str, float]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        title, lines = self._title(), self._lines()
        width = max(len(line[0]) for line in lines)
        table = [
            "  ".join([name.ljust(width), *(c.rjust(5) for c in cells)]) for name, *cells in lines
        ]
        return "\n".join([title, *table, *self._notes()])

    def _repr_html_(self) -> str:
        head, *lines = self._lines()
        cells = "".join(f"<th>{cell}</th>" for cell in head)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines
        )
        notes = "".join(f"<li>{escape(note)}</li>" for note in self._notes())
        return (
            f"<table><caption>{self._title()}</caption><thead><tr>{cells}</tr></thead>"
            f"<tbody>{body}</tbody></table><ul>{notes}</ul>"
        )

    def _title(self) -> str:
        return f"Share of {self.rows} rows that are right, in percent; features move by epsilon"

    def _lines(self) -> list[list[str]]:
        """The table, its head first."""
        curves = {"all attacks": self.worst, **self.attacks}
        return [
            ["epsilon", "0", *(f"{epsilon:g}" for epsilon in self.epsilons)],
            *(
                [name, *(f"{100 * share:.1f}" for share in (self.clean, *curve))]
                for name, curve in curves.items()
            ),
        ]

    def _notes(self) -> list[str]:
        told = [f"{100 * self.unbounded:.1f} % are right wherever features may go."]
        if self.zero_gradients:
            shares = (f"{100 * each:.1f} % in {name}" for name, each in self.zero_gradients.items())
            told.append(f"Gradients of exactly 0: {', '.join(shares)} of the rows.")
        return told + [f"Warning: {warning}" for warning in self.warnings]


def robustness_report(
    model: CandidateClassifier,
    X: Any,
    y: ArrayLike,
    epsilons: Sequence[float] = EPSILONS,
    **settings: Any,
) -> RobustnessReport:
    """Attack a fitted classifier in several ways, and see what is left of its accuracy.

    Networks are attacked by `AutoPGD` in float64, towards a margin in the predicted probabilities
    and in the logits, a larger cross-entropy and, if evidential, a larger expected error. Every
    method is attacked by `Square`, which needs no gradient, and with rows that fool a twin: a
    plain network that learned the classifier's answers. Members of an ensemble see the same row.

    Parameters
    ----------
    model : PLLClassifier or RobustPLLClassifier
        Fitted, by any method.
    X : array, DataFrame or pictures
        Rows of the same form as in training; better not the training rows.
    y : array of shape (n,)
        Their true labels.
    epsilons : sequence of float
        How far each feature may move, rising. Features are scaled by the training rows to [0, 1].
    **settings
        Fields of `Audit`: steps, restarts, queries, clip, fixed, per_feature, twin_epochs.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> from robustpll.methods import Proden
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> report = robustness_report(model, X, y, (0.1, 0.9), steps=10, queries=50, twin_epochs=5)
    >>> report.clean, report.worst
    (1.0, (1.0, 0.0))
    >>> sorted(report.attacks)
    ['cross-entropy', 'margin', 'margin of logits', 'square', 'transfer']
    """
    audit = Audit(tuple(epsilons), **settings)
    rows = rows_of(model, X)
    if not is_label_vector(y):
        msg = "y must hold one true label for each row: accuracy cannot be told from candidates."
        raise InputError(msg)
    named = Candidates.of(y, classes=model.classes_).matrix
    refuse_other_length(len(rows), len(named))
    truth = torch.tensor(named.argmax(-1), device=model.fitted_.device)[None]
    return audit.reports(model.fitted_, rows, truth)[0]


@dataclass(frozen=True)
class Audit:
    """Which attacks are tried.

    Parameters
    ----------
    epsilons : tuple of float
        How far each feature may move, rising.
    steps, restarts : int
        Of attacks by gradient.
    queries : int
        Of the attack without.
    clip : (low, high)
        Range of the scaled features, numbers or arrays; rows that lie outside may stay there.
    fixed : bool array or None
        True for features that an attacker cannot change.
    per_feature : number or array
        How far each feature may move where epsilon is 1.
    twin_epochs : int
        Of the network that learns the model's answers.
    """

    epsilons: tuple[float, ...] = EPSILONS
    steps: int = 50
    restarts: int = 3
    queries: int = 500
    clip: tuple[ArrayLike, ArrayLike] = (0.0, 1.0)
    fixed: ArrayLike | None = None
    per_feature: float | ArrayLike = 1.0
    twin_epochs: int = 50

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip((0.0, *self.epsilons), self.epsilons, strict=False))
        if not self.epsilons or not rising or self.twin_epochs < 1:
            msg = (
                "epsilons must be one number or more, above 0 and rising, and twin_epochs at least "
                f"1. Got {self.epsilons!r} and {self.twin_epochs!r}."
            )
            raise InputError(msg)
        each = np.asarray(self.per_feature)
        if each.dtype.kind not in "iuf" or not np.all((each >= 0) & np.isfinite(each)):
            msg = f"per_feature must be a number of at least 0, or an array of them. Got {each}."
            raise InputError(msg)
        self.attacks(None)  # refuses other settings before anything is computed

    @property
    def reaches(self) -> list[ArrayLike]:
        """How far each feature may move, for each epsilon."""
        return [epsilon * np.asarray(self.per_feature) for epsilon in self.epsilons]

    @property
    def strongest(self) -> AutoPGD:
        return AutoPGD(
            self.per_feature,
            steps=self.steps,
            restarts=self.restarts,
            clip=self.clip,
            fixed=self.fixed,
            precision="float64",
        )

    def attacks(self, fitted: Fitted | None) -> dict[str, Attack]:
        """By name, each with what an epsilon of 1 stands for."""
        blind = Square(self.per_feature, queries=self.queries, clip=self.clip, fixed=self.fixed)
        if not isinstance(fitted, Networks):
            return {"square": blind}
        following: dict[str, Attack] = {
            "margin": self.strongest,
            "margin of logits": replace(self.strongest, target="logits"),
            "cross-entropy": replace(self.strongest, loss="cross-entropy"),
        }
        if fitted.method.uncertain:
            following["evidential"] = replace(self.strongest, loss="evidential")
        return {**following, "square": blind}

    def reports(self, fitted: Fitted, rows: Rows, truth: Tensor) -> list[RobustnessReport]:
        """One for each of the R runs that were fitted; `truth` is (R, n)."""
        answers = fitted.predict(rows)
        clean = _right(answers, truth)
        found = self._by_attack(fitted, rows, truth, clean)
        attack = next(iter(self.attacks(fitted).values()))
        everywhere = replace(attack, epsilon=np.subtract(*self.clip[::-1]))
        unbounded = clean & _right(fitted.predict(rows, everywhere, truth), truth)
        zeros = _zero_gradients(fitted, rows)
        chance = 1.0 if self.fixed is not None else 1 / answers.belief.shape[-1]
        return [
            Findings(
                clean[run],
                {name: each[:, run] for name, each in found.items()},
                unbounded[run],
                {precision: share[run] for precision, share in zeros.items()},
            ).report(self.epsilons, chance)
            for run in range(len(truth))
        ]

    def withstood(self, fitted: Fitted, rows: Rows, truth: Tensor) -> Tensor:
        """Which rows (E, R, n) are right whatever the attack, at each epsilon or a smaller one.

        >>> rows = Rows.of(torch.eye(3).repeat(5, 1), torch.arange(15)[None])
        >>> truth = torch.arange(3).repeat(5)[None]
        >>> fitted = Proden(epochs=20).fit(Task.of(rows, one_hot(truth).bool(), seeds=(0,)))
        >>> audit = Audit((0.1, 0.9), steps=10, queries=50, twin_epochs=5)
        >>> audit.withstood(fitted, rows, truth).sum(-1).tolist()
        [[15], [0]]
        """
        clean = _right(fitted.predict(rows), truth)
        return _every(self._by_attack(fitted, rows, truth, clean))

    def _by_attack(
        self, fitted: Fitted, rows: Rows, truth: Tensor, clean: Tensor
    ) -> dict[str, Tensor]:
        """Which of the rows that are right without attack are right under each, (E, R, n)."""

        def right(opinions: Iterable[Opinion]) -> Tensor:
            return torch.stack([clean & _right(each, truth) for each in opinions])

        found = {
            name: right(fitted.predict_at_each(self.reaches, rows, attack, truth))
            for name, attack in self.attacks(fitted).items()
        }
        return {**found, "transfer": right(self._transferred(fitted, rows, truth))}

    def _transferred(self, fitted: Fitted, rows: Rows, truth: Tensor) -> Iterator[Opinion]:
        """For each epsilon, of rows that were made to fool a twin."""
        twin = self._twin(fitted, rows)
        points = twin.attacked(rows, self.strongest, truth, epsilons=self.reaches)
        found = fitted.predict(points)  # (R, E n, ...)
        for at in range(0, len(points), len(rows)):
            yield found[:, at : at + len(rows)]

    def _twin(self, fitted: Fitted, rows: Rows) -> Networks:
        """Plain networks that learned what the model answers on these rows and around them."""
        x = rows.x(rows.everything)  # (R, n, *shape)
        draws = Draws.near((0,) * rows.models, "twin", like=x)
        reach = replace(self.strongest, epsilon=self.reaches[-1]).reach(x)
        copies = scaled_rows(torch.cat([x, *(reach.somewhere(draws) for _ in range(COPIES))], 1))
        answers = fitted.predict(copies)
        named = one_hot(torch.as_tensor(answers.predicted()), answers.belief.shape[-1]).bool()
        task = Task.of(copies, named, seeds=(0,) * rows.models)
        twin = Proden(epochs=self.twin_epochs).fit(task)
        assert isinstance(twin, Networks)
        return twin


def _zero_gradients(fitted: Fitted, rows: Rows) -> dict[str, Tensor]:
    """For each precision, at which rows the input has no effect on the cross-entropy, (R, n).

    One step moves all other rows: each feature by the sign of its gradient.
    """
    if not isinstance(fitted, Networks):
        return {}
    x = rows.x(rows.everything)
    step = PGD(1.0, steps=1, random_start=False, clip=None, joint=True)
    found = {}
    for precision in ("float32", "float64"):
        moved = fitted.attacked(rows, replace(step, precision=precision))
        found[precision] = (moved.x(moved.everything) == x).flatten(2).all(-1)
    return found


@dataclass(frozen=True)
class Findings:
    """Which of the n rows of one run are right; `attacks` (epsilons, n), all else (n,)."""

    clean: Tensor
    attacks: Mapping[str, Tensor]
    unbounded: Tensor
    zero_gradients: Mapping[str, Tensor]

    def report(self, epsilons: tuple[float, ...], chance: float) -> RobustnessReport:
        return RobustnessReport(
            len(self.clean),
            _share(self.clean),
            epsilons,
            tuple(map(_share, _every(self.attacks))),
            {name: tuple(map(_share, each)) for name, each in self.attacks.items()},
            _share(self.unbounded),
            {precision: _share(each) for precision, each in self.zero_gradients.items()},
            tuple(self._warnings(epsilons, chance)),
        )

    def _warnings(self, epsilons: tuple[float, ...], chance: float) -> Iterator[str]:
        """Signs of masked gradients after Athalye et al. (ICML 2018)."""
        following = {name: each for name, each in self.attacks.items() if name not in BLIND}
        for precision, none in self.zero_gradients.items():
            if _many(none):
                yield (
                    f"{_percent(none)} of the rows have a gradient of exactly 0 in {precision}: "
                    "attacks that follow the cross-entropy stand still there."
                )
        blind = {name: each for name, each in self.attacks.items() if name in BLIND}
        for name, each in blind.items() if following else ():
            unseen = torch.stack(list(following.values())).all(0) & ~each
            for epsilon, rows in zip(epsilons, unseen, strict=True):
                if _many(rows):
                    yield (
                        f"At epsilon {epsilon:g}, {_percent(rows)} of the rows are fooled by the "
                        f"attack {name!r} and by none that follows the gradient."
                    )
        for name, each in self.attacks.items():
            for before, after, epsilon in zip(each, each[1:], epsilons[1:], strict=False):
                if int(after.sum() - before.sum()) > max(1.0, NOTABLE * len(after)):
                    yield f"The attack {name!r} does less harm at {epsilon:g} than at less."
        if _share(self.unbounded) > chance and _many(self.unbounded):
            yield (
                f"{_percent(self.unbounded)} of the rows are right wherever features may go, above "
                f"chance ({100 * chance:.1f} %): the attack is too weak, or the answer is always "
                "the same."
            )


def _right(opinion: Opinion, truth: Tensor) -> Tensor:
    """Whether the true class alone has the largest probability."""
    return torch.eq(opinion.predicted(), truth).logical_and(~opinion.guess)


def _every(attacks: Mapping[str, Tensor]) -> Tensor:
    """Which rows are right under all attacks, (epsilons, ...)."""
    every = torch.stack(list(attacks.values())).all(0)
    return every.long().cummin(0).values.bool()  # whoever may move by more may move by less


def _share(rows: Tensor) -> float:
    return float(rows.double().mean())


def _percent(rows: Tensor) -> str:
    return f"{100 * _share(rows):.1f} %"


def _many(rows: Tensor) -> bool:
    """More than one row, and more than a hundredth."""
    return int(rows.sum()) > max(1.0, NOTABLE * len(rows))
