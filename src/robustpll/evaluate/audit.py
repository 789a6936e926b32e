"""Robustness audit: the accuracy of a fitted classifier under the worst of several attacks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll._display import Displayed
from robustpll.attacks import PGD, Attack, AutoPGD, Square
from robustpll.engine.data import Rows, Task
from robustpll.engine.predict import Fitted, Networks
from robustpll.engine.random import Draws
from robustpll.errors import InputError, is_count, is_number, some_of
from robustpll.estimator.abstention import networks_of
from robustpll.estimator.base import CandidateClassifier, true_labels
from robustpll.evaluate.ood import rows_of
from robustpll.methods.auto import Stack
from robustpll.methods.proden import Proden
from robustpll.opinion import Opinion

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2)
NOTABLE = 0.01  # share of rows above which a warning is given
COPIES = 10  # randomly perturbed copies of each row that the surrogate learns from
WITHOUT_GRADIENT = ("square", "transfer")  # attacks that do not use the model's own gradient

TREES = (
    "Gradient attacks are found on the networks alone and moved to networks and trees together: "
    "attacks on both may be stronger."
)


@dataclass(frozen=True, repr=False)
class RobustnessReport(Displayed):
    """Shares of rows where the true class alone is the most probable, under attacks.

    `worst` is the share under all attacks at an epsilon and at smaller ones: an upper bound, as
    other attacks may be stronger. `attacks` has the shares under each attack, `unbounded` the share
    if features may take any value of their range. `zero_gradients` is the share of rows without
    gradient of the cross-entropy, by precision; {} for methods without gradients. `warnings` are
    signs of masked gradients or weak attacks; no warning is not a proof.
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
        title, frame, notes = self._parts()
        return "\n".join([title, frame.to_string(col_space=6), *notes])

    def _facts(self) -> str:
        right = dict(zip((0, *self.epsilons), (self.clean, *self.worst), strict=True))
        shares = some_of(f"{share:.1%} at {epsilon:g}" for epsilon, share in right.items())
        return f"{self.rows} rows, right by epsilon: {shares}"

    def _table(self) -> pd.DataFrame:
        return self._parts()[1]

    def _notes(self) -> list[str]:
        return self._parts()[2]

    def _parts(self) -> tuple[str, pd.DataFrame, list[str]]:
        """The title, the table in percent, and notes below it."""
        title = f"Share of {self.rows} rows that are right, in percent; features move by epsilon"
        curves = {"all attacks": self.worst, **self.attacks}
        shares = {name: (self.clean, *curve) for name, curve in curves.items()}
        columns = pd.Index([f"{epsilon:g}" for epsilon in (0, *self.epsilons)], name="epsilon")
        frame = 100 * pd.DataFrame.from_dict(shares, orient="index").set_axis(columns, axis=1)
        notes = [f"{self.unbounded:.1%} are right wherever features may go."]
        zeros = [f"{share:.1%} in {name}" for name, share in self.zero_gradients.items()]
        notes += [f"Gradients of exactly 0: {', '.join(zeros)} of the rows."] if zeros else []
        notes += [f"Warning: {warning}" for warning in self.warnings]
        return title, frame.round(1).astype(str), notes


def robustness_report(
    model: CandidateClassifier,
    X: Any,
    y: ArrayLike,
    epsilons: Sequence[float] = EPSILONS,
    **settings: Any,
) -> RobustnessReport:
    """Attack a fitted classifier in several ways and report the accuracy that remains.

    Networks are attacked by `AutoPGD` in float64 on several losses. Those of `Auto` are attacked
    alone, and rows that fool them are shown to networks and trees together. Every method is
    attacked by `Square`, which needs no gradient, and by transfer: with rows that fool a surrogate,
    a plain network trained on the classifier's predictions. All members of an ensemble see one row.

    Parameters
    ----------
    model : PLLClassifier or RobustPLLClassifier
        Fitted, by any method.
    X, y
        Rows of the same form as in training, preferably other ones, and their true labels (n,).
    epsilons : sequence of float
        Largest changes of each feature, increasing. Features are scaled by the training rows to
        [0, 1].
    **settings
        Fields of `Audit`: `steps` and `restarts` of gradient attacks, `queries` of `Square`, the
        range `clip` of the scaled features, a bool array `fixed` of features that cannot change,
        the largest change `per_feature` at epsilon 1, `twin_epochs` of the surrogate.

    Examples
    --------
    >>> from robustpll import PLLClassifier
    >>> X, y = np.repeat(np.eye(3), 20, axis=0), np.repeat([0, 1, 2], 20)
    >>> model = PLLClassifier(Proden(epochs=20), random_state=0).fit(X, y)
    >>> report = robustness_report(model, X, y, (0.1, 0.9), steps=10, queries=50, twin_epochs=5)
    >>> report.clean, report.worst
    (1.0, (1.0, 0.0))
    """
    if odd := settings.keys() - {field.name for field in fields(Audit)}:
        raise InputError(f"There is no setting {some_of([*odd])} of an audit.")
    audit = Audit(tuple(np.atleast_1d(epsilons).tolist()), **settings)
    rows = rows_of(model, X)
    model._refuse_attack()
    labels = true_labels(model, y, len(rows))
    return audit.reports(model.fitted_, rows, torch.tensor(labels, device=rows.device)[None])[0]


@dataclass(frozen=True)
class Audit:
    """The attacks of a robustness audit."""

    epsilons: tuple[float, ...] = EPSILONS  # largest changes of each feature, increasing
    steps: int = 50  # of gradient attacks
    restarts: int = 3
    queries: int = 500  # of the attack without gradient
    clip: tuple[ArrayLike, ArrayLike] = (0.0, 1.0)  # of the scaled features; rows outside may stay
    fixed: ArrayLike | None = None  # True for features that an attacker cannot change
    per_feature: float | ArrayLike = 1.0  # largest change of each feature at epsilon 1
    twin_epochs: int = 50  # of the surrogate for the transfer attack

    def __post_init__(self) -> None:
        are_numbers = bool(self.epsilons) and all(map(is_number, self.epsilons))
        rising = are_numbers and np.all(np.diff([0.0, *self.epsilons]) > 0)
        if not rising or not is_count(self.twin_epochs, least=1):
            raise InputError(
                "epsilons must be one or more positive, increasing numbers, and twin_epochs at "
                f"least 1. Got {self.epsilons!r} and {self.twin_epochs!r}."
            )
        sizes = np.asarray(self.per_feature)
        if sizes.dtype.kind not in "iuf" or not np.all((sizes >= 0) & np.isfinite(sizes)):
            raise InputError(f"per_feature must be one number from 0, or an array; got {sizes}.")
        self.attacks(None)  # refuses other invalid settings early

    @property
    def scaled_epsilons(self) -> list[ArrayLike]:
        """Largest change of each feature, for each epsilon."""
        return [epsilon * np.asarray(self.per_feature) for epsilon in self.epsilons]

    @property
    def strongest(self) -> AutoPGD:
        effort: Any = {"steps": self.steps, "restarts": self.restarts, "precision": "float64"}
        return AutoPGD(self.per_feature, clip=self.clip, fixed=self.fixed, **effort)

    def attacks(self, fitted: Fitted | None) -> dict[str, Attack]:
        """Attacks by name, at epsilon 1."""
        attacks: dict[str, Attack] = {}
        networks = () if fitted is None else networks_of(fitted)
        if networks:
            attacks["margin"] = self.strongest
            attacks["margin of logits"] = replace(self.strongest, target="logits")
            attacks["cross-entropy"] = replace(self.strongest, loss="cross-entropy")
            if networks[0].method.uncertain:
                attacks["evidential"] = replace(self.strongest, loss="evidential")
        square = Square(self.per_feature, queries=self.queries, clip=self.clip, fixed=self.fixed)
        return attacks | {"square": square}

    def reports(self, fitted: Fitted, rows: Rows, truth: Tensor) -> list[RobustnessReport]:
        """Return one report for each of the R fitted runs; `truth` is (R, n)."""
        opinion = fitted.predict(rows)
        clean = _right(opinion, truth)
        right = self._right_by_attack(fitted, rows, truth, clean)
        first = next(iter(self.attacks(fitted).values()))
        anywhere = replace(first, epsilon=np.subtract(*self.clip[::-1]))
        unbounded = clean & _right(fitted.predict(rows, anywhere, truth), truth)
        zeros = _zero_gradients(fitted, rows)
        chance = 1.0 if self.fixed is not None else 1 / opinion.belief.shape[-1]
        reports = []
        for run in range(len(truth)):
            attacks = {name: rows[:, run] for name, rows in right.items()}
            gradients = {precision: rows[run] for precision, rows in zeros.items()}
            values = (self.epsilons, clean[run], attacks, unbounded[run], gradients)
            report = report_of_run(*values, chance=chance)
            if zeros and isinstance(fitted, Stack) and "trees" in fitted.runs[run].parts:
                report = replace(report, warnings=(*report.warnings, TREES))
            reports.append(report)
        return reports

    def withstood(self, fitted: Fitted, rows: Rows, truth: Tensor) -> Tensor:
        """Return which rows (E, R, n) are right under all attacks at each epsilon and below."""
        clean = _right(fitted.predict(rows), truth)
        return _under_all(self._right_by_attack(fitted, rows, truth, clean))

    def _right_by_attack(
        self, fitted: Fitted, rows: Rows, truth: Tensor, clean: Tensor
    ) -> dict[str, Tensor]:
        """Which of the clean rows are right under each attack, (E, R, n)."""

        def right(opinions: Iterable[Opinion]) -> Tensor:
            return torch.stack([clean & _right(opinion, truth) for opinion in opinions])

        epsilons, results = self.scaled_epsilons, {}
        for name, attack in self.attacks(fitted).items():
            results[name] = right(fitted.predict_at_each(epsilons, rows, attack, truth))
        surrogate = self._surrogate(fitted, rows)
        moved = surrogate.attacked(rows, self.strongest, truth, epsilons=epsilons)
        opinion = fitted.predict(moved)  # (R, E n, ...)
        starts = range(0, len(moved), len(rows))
        results["transfer"] = right(opinion[:, start : start + len(rows)] for start in starts)
        return results

    def _surrogate(self, fitted: Fitted, rows: Rows) -> Networks:
        """Train plain networks on the model's predictions for these rows and for rows near them."""
        x = rows.x(rows.everything)  # (R, n, *shape)
        draws = Draws.of((0,) * rows.models, "twin", like=x, on_device=True)
        bounds = self.strongest.bounds(x, self.scaled_epsilons[-1:])
        near = [bounds.random_point(draws) for _ in range(COPIES)]
        copies = Rows.scaled(torch.cat([x, *near], 1))
        opinion = fitted.predict(copies)
        labels = one_hot(torch.as_tensor(opinion.predicted()), opinion.belief.shape[-1]).bool()
        task = Task.of(copies, labels, seeds=(0,) * rows.models)
        surrogate = Proden(epochs=self.twin_epochs).fit(task)
        assert isinstance(surrogate, Networks)
        return surrogate


def _zero_gradients(fitted: Fitted, rows: Rows) -> dict[str, Tensor]:
    """For each precision, the rows (R, n) that one step of PGD on the cross-entropy leaves."""
    if not networks_of(fitted):
        return {}
    x, zeros = rows.x(rows.everything), {}
    step = PGD(1.0, steps=1, random_start=False, clip=None, joint=True)
    for precision in ("float32", "float64"):
        moved = fitted.attacked(rows, replace(step, precision=precision))
        zeros[precision] = (moved.x(moved.everything) == x).flatten(2).all(-1)
    return zeros


def report_of_run(
    epsilons: tuple[float, ...],
    clean: Tensor,
    attacks: Mapping[str, Tensor],
    unbounded: Tensor,
    zero_gradients: Mapping[str, Tensor],
    *,
    chance: float,
) -> RobustnessReport:
    """Summarize which of the n rows of a run are right; `attacks` are (E, n), all else (n,).

    The warnings are signs of masked gradients after Athalye et al. (ICML 2018).
    """
    few = max(1.0, NOTABLE * len(clean))  # rows that may be due to chance
    warnings = [
        f"{_share(rows):.1%} of the rows have a gradient of exactly 0 in {precision}."
        for precision, rows in zero_gradients.items()
        if rows.sum() > few
    ]
    by_gradient = [rows for name, rows in attacks.items() if name not in WITHOUT_GRADIENT]
    for name, right in attacks.items():
        weaker = [False, *(right.sum(-1).diff() > few).tolist()]
        missed = torch.stack(by_gradient or [right]).all(0) & ~right
        for epsilon, less, rows in zip(epsilons, weaker, missed, strict=True):
            if less:
                warnings.append(f"The attack {name!r} does less harm at {epsilon:g} than at less.")
            if rows.sum() > few:
                fooled = f"At epsilon {epsilon:g}, {_share(rows):.1%} of the rows are fooled by"
                warnings.append(f"{fooled} the attack {name!r} but by no gradient attack.")
    if _share(unbounded) > chance and unbounded.sum() > few:
        always = f"{_share(unbounded):.1%} of the rows are right wherever features may go"
        warnings.append(f"{always}: the attack is too weak, or the answer is always the same.")
    worst = tuple(map(_share, _under_all(attacks)))
    curves = {name: tuple(map(_share, rows)) for name, rows in attacks.items()}
    zeros = {precision: _share(rows) for precision, rows in zero_gradients.items()}
    start = len(clean), _share(clean), epsilons, worst, curves
    return RobustnessReport(*start, _share(unbounded), zeros, tuple(warnings))


def _right(opinion: Opinion, truth: Tensor) -> Tensor:
    """Whether the true class alone has the largest probability."""
    return torch.eq(opinion.predicted(), truth).logical_and(~opinion.guess)


def _under_all(attacks: Mapping[str, Tensor]) -> Tensor:
    """Rows that are right under all attacks at each epsilon and all smaller ones, (E, ...)."""
    right = torch.stack(list(attacks.values())).all(0)
    return right.long().cummin(0).values.bool()


def _share(rows: Tensor) -> float:
    return float(rows.double().mean())
