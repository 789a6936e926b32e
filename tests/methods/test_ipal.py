"""Ipal: worked numbers, a plain reference, and what labels are spread to."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.spatial.distance import cdist
from scipy.special import softmax
from torch.nn.functional import one_hot

from robustpll import InputError, PLLClassifier, Votes, load_dataset
from robustpll.engine.data import Rows, Task
from robustpll.methods.ipal import (
    Ipal,
    mixture_weights,
    products,
    residuals,
    spread_as_pairs,
    spread_as_table,
)

Floats = NDArray[np.float64]


def task_of(X: Floats, candidates: NDArray[np.bool_]) -> Task:
    rows = Rows.of(torch.from_numpy(X).double(), torch.arange(len(X))[None])
    return Task.of(rows, torch.from_numpy(candidates)[None], (0,))


def plain_weights(x: Floats, rows: Floats, near: NDArray[np.int64]) -> Floats:
    """Of all rows, most of them 0."""
    weights = np.zeros(len(rows))
    weights[near] = nnls(rows[near].T, x)[0]
    return np.where(weights > 1e-10, weights, 0)


def plain_labels(rows: Floats, candidates: NDArray[np.bool_], method: Ipal) -> Floats:
    """Label weights by dense matrices, one row after the other."""
    far = cdist(rows, rows) + np.diag(np.full(len(rows), np.inf))
    near = far.argsort(1, kind="stable")[:, : method.neighbours]
    edges = np.array([plain_weights(x, rows, own) for x, own in zip(rows, near, strict=True)])
    edges /= np.maximum(edges.sum(1, keepdims=True), 1e-10)
    start = candidates / candidates.sum(1, keepdims=True)
    spread = start.copy()
    for _ in range(method.iterations):
        spread = method.alpha * edges @ spread + (1 - method.alpha) * start
        spread = np.where(candidates, spread, 0)
        spread /= spread.sum(1, keepdims=True)
    spread *= start.sum(0) / spread.sum(0)
    weights: Floats = spread / spread.sum(1, keepdims=True)
    return weights


def test_training_and_prediction_are_those_of_a_plain_loop(
    digits: Any, candidates: np.ndarray
) -> None:
    method = Ipal(neighbours=6, alpha=0.9, iterations=20)
    task = task_of(digits[0][:150], candidates[:150])
    rows = task.rows.x(task.rows.everything)[0].numpy()
    fitted = method.fit(task)
    labels = plain_labels(rows, candidates[:150], method)
    np.testing.assert_allclose(fitted.label_weights[0], labels, atol=1e-9)
    others = task.rows.others(torch.from_numpy(digits[1][:30]), torch.arange(30)[None])
    found = fitted.predict(others).probability[0]
    for x, probability in zip(others.x(others.everything)[0].numpy(), found, strict=True):
        near = cdist(x[None], rows)[0].argsort(kind="stable")[:6]
        weights = plain_weights(x, rows, near)
        left_over = np.array(
            [np.square(x - (weights * (labels.argmax(1) == c)) @ rows).sum() for c in range(10)]
        )
        np.testing.assert_allclose(probability, softmax(left_over.max() - left_over), atol=1e-9)


def test_what_is_left_over_is_that_of_the_worked_mixture() -> None:
    """0.6 of the first, 0.2 of the second neighbour, which are of classes 0 and 2."""
    rows = torch.tensor([[1, 0], [0, 1], [-1, 0]], dtype=torch.float64)
    x = torch.tensor([[0.6, 0.2]], dtype=torch.float64)
    indices, labels = torch.tensor([[0, 1, 2]]), one_hot(torch.tensor([0, 2, 0]), 4).bool()
    gram, along = products(x, rows, indices)
    weights = mixture_weights(gram, along)
    np.testing.assert_allclose(weights, [[0.6, 0.2, 0]], atol=1e-10)
    expected = np.array([[0.04, 0.4, 0.36, 0.4]])  # |x|^2 is 0.4
    residual = residuals(labels, indices, weights, gram, along)
    np.testing.assert_allclose(residual + 0.4, expected, atol=1e-10)


def test_tiny_weights_count_as_zero() -> None:
    rows, x = torch.tensor([[2e10, 0], [5e9, 0]]).double(), torch.tensor([[1.0, 0]]).double()
    weights = [mixture_weights(*products(x, rows, torch.tensor([[i]]))).item() for i in (0, 1)]
    assert weights == [0, pytest.approx(2e-10)]


def problems() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Columns (b, m, d) and targets (b, d) of several kinds."""
    generator = torch.Generator().manual_seed(0)
    columns = torch.rand(60, 8, 12, generator=generator, dtype=torch.float64)
    target = torch.rand(60, 12, generator=generator, dtype=torch.float64)
    duplicates = columns.clone()
    duplicates[:, 1], duplicates[:, 5] = columns[:, 0], 0
    return {
        "usual": (columns, target),
        "near the target": (target[:, None] + 0.05 * (columns - 0.5), target),
        "of any sign": (columns - 0.5, target - 0.5),
        "duplicates, and a column of zeros": (duplicates, target),
        "more columns than features": (columns[..., :3], target[:, :3]),
        "all the same": (columns[:, :1].expand(-1, 8, -1), target),
        "of very different lengths": (columns * 10.0 ** torch.arange(-4, 4)[:, None], target),
        "zero target": (columns, torch.zeros_like(target)),
        "binary": ((columns < 0.3).double(), (target < 0.3).double()),
    }


@pytest.mark.parametrize("kind", problems())
def test_mixtures_are_as_close_to_the_row_as_possible(kind: str) -> None:
    columns, target = problems()[kind]
    weights = mixture_weights(columns @ columns.mT, (columns @ target[..., None])[..., 0])
    assert (weights >= 0).all()
    distance = (target - (weights[..., None] * columns).sum(1)).norm(dim=-1)
    for row in range(0, 60, 6):
        _, least = nnls(columns[row].mT.numpy(), target[row].numpy())
        assert distance[row] <= least + 1e-8 * target[row].norm()
    if "duplicates" in kind:
        np.testing.assert_allclose(weights[:, 0], weights[:, 1], atol=0.01)
        assert (weights[:, 5] == 0).all()


@pytest.mark.parametrize("iterations", [0, 1, 30])
@pytest.mark.parametrize("k", [2, 5, 60])
def test_lists_and_tables_of_candidates_spread_the_same(iterations: int, k: int) -> None:
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(80, k, generator=generator) < 0.3
    candidates[torch.arange(80), torch.randint(k, (80,), generator=generator)] = True
    votes = candidates * torch.randint(1, 4, (80, k), generator=generator).double()
    indices = torch.randint(80, (80, 6), generator=generator)
    edges = torch.rand(80, 6, generator=generator, dtype=torch.float64).sub(0.4).clamp(min=0)
    given = (edges / 6, indices, 0.1 * votes / votes.sum(-1, keepdim=True), candidates, iterations)
    pairs, table = spread_as_pairs(*given), spread_as_table(*given)
    torch.testing.assert_close(pairs, table, rtol=0, atol=1e-12)
    assert (table[~candidates] == 0).all()


def test_labels_reach_rows_that_only_neighbours_of_neighbours_could_tell() -> None:
    """Along each line only the first row has one candidate."""
    line = np.linspace(1, 2, 12)
    X = np.concatenate([np.stack([line, 0 * line], 1), np.stack([0 * line, line], 1)])
    y = [{"a"}, *[{"a", "b"}] * 11, {"b"}, *[{"a", "b"}] * 11]
    few, many = (
        PLLClassifier(Ipal(neighbours=2, iterations=count)).fit(X, y) for count in (1, 100)
    )
    assert many.labels_.tolist() == ["a"] * 12 + ["b"] * 12
    truth = np.repeat([[1.0, 0], [0, 1]], 12, axis=0)
    assert (many.label_weights_ * truth).sum() > (few.label_weights_ * truth).sum() + 2
    assert many.predict([[3.0, 0], [0, 3]]).tolist() == ["a", "b"]


def test_rows_that_no_neighbour_can_give_back_keep_their_candidates() -> None:
    X, y = np.zeros((4, 2)), [{"a", "b"}, {"a", "b"}, {"a"}, {"a", "c"}]
    weights = PLLClassifier(Ipal(neighbours=2)).fit(X, y).label_weights_
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0], [0.5, 0.5, 0], [1, 0, 0], [0.5, 0, 0.5]])


def test_spreading_begins_with_the_votes_of_annotators() -> None:
    answers = np.array([["a", "a", "b"], ["a", "b", "b"], ["a", "a", "a"]])
    X = np.zeros((3, 2))  # no row can be made of others
    model = PLLClassifier(Ipal(neighbours=2)).fit(X, Votes(answers))
    expected = [[2 / 3, 1 / 3], [1 / 3, 2 / 3], [1, 0]]
    np.testing.assert_allclose(model.label_weights_, expected, atol=1e-7)


@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_few_rows_and_equal_rows_work(n: int, scale: float) -> None:
    X = scale * np.random.default_rng(0).random((n, 3))
    y = ([{"a", "b"}, {"b"}, {"b", "c"}] * 3)[:n]
    model = PLLClassifier(Ipal()).fit(X, y)
    assert model.labels_[1] == "b"
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_blocks_change_nothing(
    digits: Any, candidates: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(digits[0][:90], candidates[:90])
    whole = Ipal().fit(task)
    monkeypatch.setattr("robustpll.methods.neighbours.CPU_NUMBERS", 7 * 640)
    pieces = Ipal().fit(task)
    torch.testing.assert_close(pieces.label_weights, whole.label_weights, rtol=0, atol=1e-12)
    both = (fitted.predict(task.rows).probability for fitted in (pieces, whole))
    torch.testing.assert_close(*both, rtol=0, atol=1e-12)


def test_the_settings_are_checked_and_are_the_published_ones() -> None:
    assert Ipal.paper() == Ipal() == Ipal(neighbours=10, alpha=0.95, iterations=100)
    with pytest.raises(InputError, match=r"'alpha' of Ipal must be a float below 1\. Got 1\.0"):
        Ipal(alpha=1.0)
    for neighbours in (0, -1):
        with pytest.raises(InputError, match="'neighbours' of Ipal must be an int of at least"):
            Ipal(neighbours=neighbours)


@pytest.mark.gpu
def test_on_a_gpu_equal_rows_of_zeros_and_ones_give_numbers_as_on_the_host() -> None:
    """Of 20,000 such rows some broke the GPU's own solver."""
    random = np.random.default_rng(0)
    X = (random.random((20_000, 60)) < 0.1).astype(float)
    candidates = np.eye(20, dtype=bool)[random.integers(20, size=len(X))]
    candidates |= random.random(candidates.shape) < 0.1
    task = task_of(X, candidates)
    near = task.rows.x(task.rows.everything)[0]
    host, gpu = (Ipal().precompute(near.to(device)) for device in ("cpu", "cuda"))
    assert gpu["weights"].isfinite().all()
    gram, along = products(near, near, host["indices"])
    apart = [
        (weights * (torch.einsum("qab,qb->qa", gram, weights) - 2 * along)).sum(-1)
        for weights in (host["weights"], mixture_weights(gram.cuda(), along.cuda()).cpu())
    ]
    torch.testing.assert_close(*apart, rtol=0, atol=1e-8)  # what is left over is unique


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "usual"), [("lost", 59.4), ("msrc-v2", 51.5), ("bird-song", 72.1)]
)
def test_real_data_gives_the_usual_accuracy(name: str, usual: float) -> None:
    dataset, scores = load_dataset(name), []
    assert dataset.candidates is not None
    for seed in range(5):
        train, test = dataset.split(seed).train, dataset.split(seed).test
        model = PLLClassifier(Ipal.paper())
        model.fit(dataset.features[train], dataset.candidates[train])
        truth = dataset.classes[dataset.labels[test]]
        scores.append(100 * model.score(dataset.features[test], truth))
    assert np.mean(scores) == pytest.approx(usual, abs=0.3)
