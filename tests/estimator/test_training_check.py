"""A training that came to nothing says so, and others stay silent."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from robustpll import InputError, PLLClassifier, RobustPLLClassifier
from robustpll.methods import (
    METHODS,
    Cavl,
    DeepMethod,
    PlKnn,
    Proden,
    ProdenDropout,
    RobustPll,
    RobustPllAt,
)

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(90, 4)), np.arange(90) % 3


@pytest.mark.parametrize("kind", [RobustPll, Proden, RobustPllAt, Cavl], ids=lambda k: k.__name__)
def test_a_training_that_diverges_is_refused(kind: type[DeepMethod]) -> None:
    model = PLLClassifier(kind(epochs=4, learning_rate=1e30, members=2), random_state=0)
    with pytest.raises(InputError, match=r"Training diverged.* lower learning_rate"):
        model.fit(X, LABELS)
    assert not hasattr(model, "fitted_")


class Overflowing(nn.Linear):
    """As statistics of BatchNorm can make a network: fine in training, and of no use after it."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return logits if self.training else logits * torch.inf


def test_finite_weights_that_predict_nothing_finite_are_refused() -> None:
    method = Proden(epochs=2, network=lambda shape, k: Overflowing(shape[0], k))
    with pytest.raises(InputError, match=r"Training diverged.* not finite\. Fit again"):
        PLLClassifier(method, random_state=0).fit(X, LABELS)


def many_classes(k: int, rows_each: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Rows around k different places, each with its own class and two others as candidates."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(k), rows_each)
    rows = draw.normal(size=(k, 32))[labels] + 0.15 * draw.normal(size=(len(labels), 32))
    sets = np.zeros((len(labels), k), dtype=bool)
    for others in (labels, *draw.integers(k, size=(2, len(labels)))):
        sets[np.arange(len(labels)), others] = True
    return rows, sets


def test_a_training_that_learned_little_is_told_with_what_helps() -> None:
    rows, sets = many_classes(1000)
    with pytest.warns(UserWarning, match=r"RobustPll has learned little.*proden") as warned:
        model = PLLClassifier(RobustPll(epochs=4), random_state=0).fit(rows, sets)
    assert [warning.filename for warning in warned] == [__file__]
    assert model.score(rows, sets) < 0.1
    with pytest.warns(UserWarning, match=r"Proden has learned little.* more epochs"):
        PLLClassifier(Proden(epochs=1), random_state=0).fit(*many_classes(200))


@pytest.mark.slow
def test_the_default_learns_many_classes_as_proden_does() -> None:
    k = 300
    rows, sets = many_classes(k, rows_each=6)
    labels, test = np.repeat(np.arange(k), 6), np.arange(6 * k) % 6 == 0
    models = (PLLClassifier("proden", random_state=0), RobustPLLClassifier(random_state=0))
    proden, ours = (
        model.fit(rows[~test], sets[~test]).score(rows[test], labels[test])
        for model in models  # a warning would be an error
    )
    assert ours > proden - 0.02


def test_one_class_for_all_rows_is_told() -> None:
    rows = np.zeros((600, 2))
    sets = np.eye(3, dtype=bool)[np.arange(600) % 3]
    with pytest.warns(UserWarning, match="all rows get the same class"):
        PLLClassifier(RobustPll(epochs=2), random_state=0).fit(rows, sets)


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if issubclass(m, DeepMethod)])
def test_healthy_trainings_are_silent(name: str) -> None:
    """Of small and larger tables, after few epochs; also where nothing can be learned."""
    digits, figures = load_digits(return_X_y=True)
    tables = ((digits[:200], figures[:200]), (RNG.normal(size=(120, 5)), np.arange(120) % 4))
    for rows, labels in tables:
        k = labels.max() + 1
        sets = (labels[:, None] == np.arange(k)) | (RNG.random((len(labels), k)) < 0.3)
        PLLClassifier(METHODS[name](epochs=2), random_state=0).fit(rows, sets)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("method", "data"),
    [
        (RobustPll(epochs=3), (RNG.normal(size=(150, 3)), np.ones((150, 4), dtype=bool))),
        (PlKnn(neighbours=1), many_classes(300)),
    ],
    ids=["sets of all classes", "without networks"],
)
def test_where_there_is_nothing_to_say_nothing_is_said(method: Any, data: Any) -> None:
    PLLClassifier(method, random_state=0).fit(*data)


def test_random_passes_are_few_in_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    few = ProdenDropout.with_passes

    def counted(self: ProdenDropout, passes: int) -> ProdenDropout:
        asked.append(passes)
        return few(self, passes)

    monkeypatch.setattr(ProdenDropout, "with_passes", counted)
    PLLClassifier(ProdenDropout(epochs=1), random_state=0).fit(X, LABELS)
    assert asked == [16]
