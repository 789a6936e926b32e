"""Watched rows choose the epoch, and change nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from robustpll import METHODS, InputError, PLLClassifier, load
from robustpll.engine.data import Rows, Task
from robustpll.engine.train import train
from robustpll.estimator.training import validation_split
from robustpll.methods import Proden, ProdenEns, RobustPll

SMALLER = {"proden_dropout": {"passes": 5}}
# with row state, with members, with random passes, with stages, and with attacked rows
NAMES = ("proden_ens", "proden_dropout", "crosel", "valen", "robust_pll", "robust_pll_at")
DEEP: dict[str, Any] = {
    name: replace(METHODS[name](), epochs=3, **SMALLER.get(name, {}))  # type: ignore[type-var]
    for name in NAMES
}
WATCHED = torch.arange(200, 400)


def foreign(shape: tuple[int, ...], k: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(shape[0], 30), nn.BatchNorm1d(30), nn.Dropout(0.3), nn.Linear(30, k)
    )


def tasks(
    digits: Any, candidates: np.ndarray, seeds: tuple[int, ...] = (0,), device: str = "cpu"
) -> tuple[Task, Task]:
    """200 rows to learn from and 200 to watch for each seed, in float64."""
    drawn = [torch.randperm(len(candidates), generator=_generator(seed))[:400] for seed in seeds]
    at = torch.stack(drawn)
    pool = torch.from_numpy(digits[0]).double().to(device)
    task = Task.of(Rows.of(pool, at.to(device)), torch.from_numpy(candidates)[at], seeds)
    return task.some_rows(torch.arange(200)), task.some_rows(WATCHED)


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def covering_rate(fitted: Any, watch: Task) -> torch.Tensor:
    named = fitted.predict(watch.rows).predicted()[..., None]
    return watch.candidates.gather(-1, named)[..., 0].double().mean(-1)


@pytest.mark.parametrize("name", DEEP)
def test_a_training_that_is_watched_goes_as_any_other(
    name: str, digits: Any, candidates: np.ndarray
) -> None:
    task, watch = tasks(digits, candidates)
    alone, watched = DEEP[name].fit(task), DEEP[name].fit(task, watch=watch)
    assert torch.equal(alone.history.loss, watched.history.loss)
    rates = watched.history.covering_rate
    assert rates.shape == watched.history.loss.shape
    assert alone.history.covering_rate.numel() == 0


@pytest.mark.parametrize("name", DEEP)
def test_a_watched_run_alone_equals_itself_in_a_bundle(
    name: str, digits: Any, candidates: np.ndarray
) -> None:
    (one, one_watch), (two, two_watch) = (
        tasks(digits, candidates, seeds) for seeds in ((7,), (5, 7))
    )
    alone, bundle = DEEP[name].fit(one, watch=one_watch), DEEP[name].fit(two, watch=two_watch)
    assert torch.equal(alone.label_weights[0], bundle.label_weights[1])
    members = DEEP[name].members
    rates = bundle.history.covering_rate[:, members:]
    assert torch.equal(alone.history.covering_rate, rates)


@pytest.mark.parametrize("network", ["mlp", foreign])
def test_each_model_stays_as_it_was_after_its_best_epoch(
    network: Any, digits: Any, candidates: np.ndarray
) -> None:
    method = Proden(epochs=15, learning_rate=0.1, batch_size=32, network=network)
    task, watch = tasks(digits, candidates, (1, 2, 3, 4))
    fitted = train(method, task, watch=watch)
    rates = fitted.history.covering_rate  # (epochs, M)
    torch.testing.assert_close(covering_rate(fitted, watch), rates.amax(0))
    last = [int(torch.nonzero(rate == rate.max())[-1]) for rate in rates.T]
    assert len(set(last)) > 1
    for run, epoch in enumerate(last):  # Proden does not ask how long it will be trained
        one = slice(run, run + 1)
        shorter = train(replace(method, epochs=epoch + 1), task.part(one))
        assert torch.equal(shorter.label_weights[0], fitted.label_weights[run])
        found, kept = (each.predict(watch.rows.part(one)) for each in (shorter, fitted.part(one)))
        assert torch.equal(found.belief, kept.belief)


def test_members_have_best_epochs_of_their_own(digits: Any, candidates: np.ndarray) -> None:
    task, watch = tasks(digits, candidates, (1, 2))
    method = ProdenEns(epochs=8, learning_rate=0.03, members=3)
    fitted = train(method, task, watch=watch)
    assert fitted.history.covering_rate.shape == (8, 6)
    part = fitted.part(slice(1, 2))
    assert torch.equal(part.history.covering_rate, fitted.history.covering_rate[:, 3:])
    both = fitted.part(slice(0, 1)).followed_by(part)
    assert torch.equal(both.history.covering_rate, fitted.history.covering_rate)


def test_rows_without_weight_are_not_watched(digits: Any, candidates: np.ndarray) -> None:
    task, watch = tasks(digits, candidates)
    some = replace(watch, weight=(torch.arange(200) < 50).double()[None])
    method = Proden(epochs=3)
    weighed = train(method, task, watch=some).history.covering_rate
    few = train(method, task, watch=watch.some_rows(torch.arange(50))).history.covering_rate
    torch.testing.assert_close(weighed, few)


@pytest.mark.gpu
def test_captured_steps_go_on_between_looks(digits: Any, candidates: np.ndarray) -> None:
    task, watch = tasks(digits, candidates, (1, 2), "cuda")
    method = RobustPll(epochs=6)
    alone, watched = train(method, task), train(method, task, watch=watch)
    assert torch.equal(alone.history.loss, watched.history.loss)
    best = watched.history.covering_rate.amax(0)
    torch.testing.assert_close(covering_rate(watched, watch).cpu(), best)


def test_the_classifier_says_how_well_each_epoch_covered(
    digits: Any, candidates: np.ndarray, tmp_path: Any
) -> None:
    X, y = digits[0][:400], candidates[:400]
    method = Proden(epochs=10, learning_rate=0.03)
    model = PLLClassifier(method, watch=0.25, random_state=0).fit(X, y)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    taught, watched = validation_split(400, 0.25, seed)
    assert sorted([*taught.tolist(), *watched.tolist()]) == list(range(400))
    rates = model.history_["covering_rate"]
    assert rates.max() == pytest.approx(model.score(X[watched], y[watched]))
    assert model.opinion_.probability.shape == (400, 10)
    assert (model.label_weights_[~y] == 0).all()
    np.testing.assert_allclose(model.label_weights_.sum(-1), 1, atol=1e-6)
    assert y[np.arange(400), model.labels_].all()
    model.save(tmp_path / "model.pll")
    again = load(tmp_path / "model.pll")
    assert again.get_params()["watch"] == 0.25
    np.testing.assert_array_equal(again.history_["covering_rate"], rates)


def test_a_method_without_epochs_has_nothing_to_watch(digits: Any, candidates: np.ndarray) -> None:
    for name in ("pl_knn", "dst_pll"):
        with pytest.raises(InputError, match="has no epochs to choose from"):
            PLLClassifier(name, watch=0.1).fit(digits[0], candidates)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, "0.1", 0.001])
def test_a_share_that_leaves_nothing_is_refused(
    share: Any, digits: Any, candidates: np.ndarray
) -> None:
    with pytest.raises(InputError, match="watch must be None, or the share"):
        PLLClassifier("proden", watch=share).fit(digits[0][:50], candidates[:50])
