"""Watched rows choose the epoch, and last epochs are averaged; nothing else changes."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from robustpll import METHODS, InputError, PLLClassifier, load
from robustpll.engine.data import Task
from robustpll.engine.layers import tensors_of
from robustpll.engine.predict import Networks
from robustpll.engine.train import Training, train
from robustpll.estimator.fitting import validation_split
from robustpll.methods import Proden, RobustPll, RobustPllAt

# with row state, with members, with random passes, with stages, and with attacked rows
NAMES = ("proden_ens", "proden_dropout", "crosel", "valen", "robust_pll", "robust_pll_at")


@dataclass(frozen=True)
class Remembering(Proden):
    """Proden that keeps a copy of its networks after each epoch."""

    name: ClassVar[str] = "remembering"
    copies: ClassVar[list[list[torch.Tensor]]] = []

    def end_epoch(self, training: Training, epoch: int) -> None:
        self.copies.append([tensor.detach().clone() for tensor, _ in tensors_of(training.net)])


def foreign(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(shape[0], 30), nn.BatchNorm1d(30), nn.Dropout(0.3), nn.Linear(30, k)
    )


def halves(task: Task) -> tuple[Task, Task]:
    """200 rows to learn from and 200 to watch for each seed."""
    return task.some_rows(torch.arange(200)), task.some_rows(torch.arange(200, 400))


def covering_rate(fitted: Any, validation: Task) -> torch.Tensor:
    named = fitted.predict(validation.rows).predicted()[..., None]
    return validation.candidates.gather(-1, named)[..., 0].double().mean(-1)


@pytest.mark.parametrize("name", NAMES)
def test_a_watched_training_goes_as_any_other_and_alone_as_in_a_bundle(
    name: str, task_of: Any
) -> None:
    method: Any = METHODS[name](epochs=2, **({"passes": 5} if name == "proden_dropout" else {}))
    task, validation = halves(task_of(7, rows=400))
    plain, watched = method.fit(task), method.fit(task, validation=validation)
    assert torch.equal(plain.history.loss, watched.history.loss)
    rates = watched.history.covering_rate
    assert rates.shape == watched.history.loss.shape
    assert plain.history.covering_rate.numel() == 0
    task, validation = halves(task_of(5, 7, rows=400))
    bundle = method.fit(task, validation=validation)
    assert torch.equal(watched.label_weights[0], bundle.label_weights[1])
    first, second = bundle.part(slice(0, 1)), bundle.part(slice(1, 2))
    assert torch.equal(rates, second.history.covering_rate)  # of each member
    both = Networks.of_parts([first, second], method)
    assert torch.equal(both.history.covering_rate, bundle.history.covering_rate)


@pytest.mark.parametrize("network", ["mlp", foreign])
def test_each_model_stays_as_it_was_after_its_best_epoch(network: Any, task_of: Any) -> None:
    method = Proden(epochs=8, learning_rate=0.1, batch_size=64, network=network)
    task, validation = halves(task_of(1, 2, 3, rows=400))
    fitted = train(method, task, validation=validation)
    rates = fitted.history.covering_rate  # (epochs, M)
    torch.testing.assert_close(covering_rate(fitted, validation), rates.amax(0))
    last = [int(torch.nonzero(rate == rate.max())[-1]) for rate in rates.T]
    assert len(set(last)) > 1
    for run, epoch in enumerate(last):  # Proden does not ask how long it will be trained
        one = slice(run, run + 1)
        shorter = train(replace(method, epochs=epoch + 1), task.part(one))
        assert torch.equal(shorter.label_weights[0], fitted.label_weights[run])
        rows = validation.rows.part(one)
        assert torch.equal(shorter.predict(rows).belief, fitted.part(one).predict(rows).belief)


def test_rows_without_weight_are_not_watched(task_of: Any) -> None:
    task, validation = halves(task_of(0, rows=400))
    weighted = replace(validation, weight=(torch.arange(200) < 50).double()[None])
    few = validation.some_rows(torch.arange(50))
    fitted = (train(Proden(epochs=3), task, validation=rows) for rows in (weighted, few))
    torch.testing.assert_close(*(one.history.covering_rate for one in fitted))


@pytest.mark.gpu
def test_captured_steps_go_on_between_looks(task_of: Any) -> None:
    task, validation = halves(task_of(1, 2, rows=400, device="cuda"))
    method = RobustPll(epochs=6)
    alone, watched = train(method, task), train(method, task, validation=validation)
    assert torch.equal(alone.history.loss, watched.history.loss)
    best = watched.history.covering_rate.amax(0)
    torch.testing.assert_close(covering_rate(watched, validation).cpu(), best)


def test_the_classifier_says_how_well_each_epoch_covered(
    digits: Any, candidates: np.ndarray, tmp_path: Any
) -> None:
    X, y = digits[0][:400], candidates[:400]
    method = Proden(epochs=5, learning_rate=0.03)
    model = PLLClassifier(method, watch=0.25, random_state=0).fit(X, y)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    train_rows, watched = validation_split(400, 0.25, seed)
    assert sorted([*train_rows.tolist(), *watched.tolist()]) == list(range(400))
    rates = model.history_["covering_rate"]
    assert rates.max() == pytest.approx(model.score(X[watched], y[watched]))
    assert model.opinion_.probability.shape == (400, 10)
    np.testing.assert_allclose((model.label_weights_ * y).sum(-1), 1, atol=1e-6)
    assert y[np.arange(400), model.labels_].all()
    model.save(tmp_path / "model.pll")
    again = load(tmp_path / "model.pll")
    assert again.get_params()["watch"] == 0.25
    np.testing.assert_array_equal(again.history_["covering_rate"], rates)


def test_what_cannot_be_watched_or_averaged_is_refused(digits: Any, candidates: np.ndarray) -> None:
    for name in ("pl_knn", "dst_pll"):
        with pytest.raises(InputError, match="has no epochs to choose from"):
            PLLClassifier(name, watch=0.1).fit(digits[0], candidates)
    odd: list[Any] = [0.0, 1.0, -0.1, 1.5, "0.1", 0.001]
    for share in odd:
        with pytest.raises(InputError, match="watch must be None, or the share"):
            PLLClassifier("proden", watch=share).fit(digits[0][:50], candidates[:50])
    for share in odd[2:5]:
        with pytest.raises(InputError, match="averaged"):
            replace(RobustPllAt(), averaged=share)


@pytest.mark.parametrize(("share", "last"), [(0.5, 3), (1.0, 6), (0.1, 1), (0.01, 1), (0.7, 4)])
def test_the_network_is_the_mean_of_those_after_the_last_epochs(
    share: float, last: int, task_of: Any
) -> None:
    task = task_of(0, 1, rows=200)
    Remembering.copies.clear()
    fitted = Remembering(epochs=6, averaged=share).fit(task)
    for index, (tensor, _) in enumerate(tensors_of(fitted.net)):
        mean = torch.stack([copy[index] for copy in Remembering.copies[-last:]]).mean(0)
        torch.testing.assert_close(tensor, mean)
    if last == 3:  # the training goes as any other
        plain = Remembering(epochs=6).fit(task)
        assert torch.equal(plain.history.loss, fitted.history.loss)
        assert torch.equal(plain.label_weights, fitted.label_weights)
        probability = plain.predict(task.rows).probability
        assert not torch.equal(probability, fitted.predict(task.rows).probability)


def test_watched_rows_choose_among_averages(task_of: Any) -> None:
    """All epochs but the first are averaged: what is left is the mean up to the best one."""
    task, validation = halves(task_of(0, 1, rows=400))
    Remembering.copies.clear()
    fitted = Remembering(epochs=6, averaged=5 / 6).fit(task, validation=validation)
    for model, rates in enumerate(fitted.history.covering_rate.T):
        best = int((rates == rates.max()).nonzero()[-1])
        for index, (tensor, _) in enumerate(tensors_of(fitted.net)):
            epochs = [copy[index][model] for copy in Remembering.copies[: best + 1]]
            mean = torch.stack(epochs[1:] or epochs).mean(0)
            torch.testing.assert_close(tensor[model], mean)
