"""What methods without a training loop share; PlKnn and Ipal against worked numbers and loops."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.spatial.distance import cdist
from scipy.special import softmax
from torch import Tensor
from torch.nn.functional import one_hot

from robustpll import PLLClassifier, Votes, load_dataset
from robustpll.engine.data import Rows, Task
from robustpll.methods import DstPll, Ipal, PlEcoc, PlKnn, PlSvm
from robustpll.methods.classical import Classical, ClassicalMethod, equal_runs
from robustpll.methods.ipal import (
    mixture_weights,
    products,
    residuals,
    spread_as_pairs,
    spread_as_table,
)
from robustpll.methods.pl_knn import votes_of

Floats = NDArray[np.float64]
# Which rows and which candidates: runs 0, 2 and 4 have equal rows.
RUNS = ((0, 0), (1, 0), (0, 1), (2, 0), (0, 2))
# Two pairs of neighbours. The first pair has no candidate in common, the second has all.
X = np.array([[0.0], [1], [10], [11]])
Y = [{"a", "b"}, {"c"}, {"a", "c"}, {"a", "c"}]
# Accuracies of PlKnn and Ipal.
USUAL = {"lost": (41.2, 59.4), "msrc-v2": (44.2, 51.5), "bird-song": (66.7, 72.1)}


@pytest.fixture(scope="module")
def bundle(digits: Any) -> tuple[Task, Rows]:
    """Five runs of 100 rows, three of them on the same rows with other candidates; test rows."""
    random = np.random.default_rng(0)
    pool, labels = torch.from_numpy(digits[0][:400]), torch.from_numpy(digits[2][:400])
    rows = [torch.from_numpy(random.permutation(400)[:100]) for _ in range(3)]
    sets = torch.from_numpy(random.random((3, 400, 10)) < 0.3) | one_hot(labels, 10).bool()
    candidates = torch.stack([sets[drawn][rows[kind]] for kind, drawn in RUNS])
    index = torch.stack([rows[kind] for kind, _ in RUNS])
    task = Task.of(Rows.of(pool, index), candidates, tuple(range(5)))
    test = task.rows.others(torch.from_numpy(digits[1][:40]), torch.arange(40).expand(5, -1))
    return task, test


CLASSICAL = [PlKnn(), Ipal(), DstPll(), PlEcoc(), PlSvm(iterations=1000)]
CLASSICAL.append(DstPll(encoder="always", encoder_epochs=1))


@pytest.mark.parametrize("method", CLASSICAL, ids=str)
def test_runs_with_equal_rows_share_a_search_and_find_what_they_find_alone(
    method: ClassicalMethod, bundle: tuple[Task, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, test = bundle
    searched = []
    search = type(method).precompute

    def counted(method: Any, x: Tensor, learned: Any = None) -> Any:
        searched.append(len(x))
        return search(method, x, learned)

    monkeypatch.setattr(type(method), "precompute", counted)
    fitted = method.fit(task)
    assert isinstance(fitted, Classical)
    opinion = fitted.predict(test)
    assert searched == [100] * 3 + [40] * 3
    if "rows" in fitted.learned[0]:  # they are kept once
        assert len({id(learned["rows"]) for learned in fitted.learned}) == 3
        assert fitted.learned[0]["rows"] is fitted.learned[4]["rows"]
    for run in (slice(0, 1), slice(3, 4), slice(4, 5)):
        alone = method.fit(task.part(run))
        assert torch.equal(alone.label_weights, fitted.label_weights[run])
        assert torch.equal(alone.predict(test.part(run)).probability, opinion.probability[run])


def test_rows_that_are_scaled_otherwise_are_not_equal_runs(bundle: tuple[Task, Rows]) -> None:
    rows = bundle[0].rows
    assert equal_runs(rows) == [[0, 2, 4], [1], [3]]
    scale = rows.scale.clone()
    scale[2] *= 2
    assert equal_runs(replace(rows, scale=scale)) == [[0, 4], [1], [2], [3]]
    assert equal_runs(rows, keys=[1, 1, 1, 1, 2]) == [[0, 2], [1], [3], [4]]


@pytest.mark.data
@pytest.mark.parametrize(("method", "place"), [(PlKnn, 0), (Ipal, 1)])
@pytest.mark.parametrize("name", USUAL)
def test_real_data_gives_the_usual_accuracy(
    method: type[ClassicalMethod], place: int, name: str
) -> None:
    dataset, scores = load_dataset(name), []
    assert dataset.candidates is not None
    for seed in range(5):
        train, test = dataset.split(seed).train, dataset.split(seed).test
        model = PLLClassifier(method.paper())
        model.fit(dataset.features[train], dataset.candidates[train])
        truth = dataset.classes[dataset.labels[test]]
        scores.append(100 * model.score(dataset.features[test], truth))
    assert np.mean(scores) == pytest.approx(USUAL[name][place], abs=0.3)


def test_the_worked_votes_of_plknn_are_met() -> None:
    candidates = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 1, 1]]).bool()
    distance = torch.tensor([[1.0, 2, 2]], dtype=torch.float64)
    votes = votes_of(torch.arange(3)[None], distance, candidates)[0]
    np.testing.assert_allclose(votes, [0.8, 2.0, 0.6], atol=1e-15)
    distance = torch.tensor([[0.0, 0, 9e-7], [0, 0, 1.1e-6]], dtype=torch.float64)
    votes = votes_of(torch.arange(3).repeat(2, 1), distance, torch.eye(3).bool())
    np.testing.assert_allclose(votes, [[1, 1, 1], [1, 1, 0]], atol=1e-15)  # all at one place


def task_of(X: Floats, candidates: NDArray[np.bool_]) -> Task:
    rows = Rows.of(torch.from_numpy(X).double(), torch.arange(len(X))[None])
    return Task.of(rows, torch.from_numpy(candidates)[None], (0,))


def test_votes_are_those_of_a_plain_loop(digits: Any, candidates: np.ndarray) -> None:
    task = task_of(digits[0][:400], candidates[:400])
    test = task.rows.others(torch.from_numpy(digits[1][:50]), torch.arange(50)[None])
    probability = PlKnn(neighbours=7).fit(task).predict(test).probability[0]
    train, queries = (rows.x(rows.everything)[0].numpy() for rows in (task.rows, test))
    for distance, share in zip(cdist(queries, train), probability, strict=True):
        near = distance.argsort(kind="stable")[:7]
        votes = (1 - distance[near] / distance[near].sum()) @ candidates[near]
        np.testing.assert_allclose(share, votes / votes.sum(), atol=1e-6)


def test_a_training_row_does_not_vote_for_itself_but_its_duplicates_do() -> None:
    model = PLLClassifier(PlKnn(neighbours=1)).fit(X, [{"a", "b"}, {"a"}, {"b"}, {"a", "b"}])
    assert model.labels_.tolist() == ["a", "a", "b", "b"]
    rows = np.zeros((6, 2))
    rows[5] = 1
    y = [{"a", "b"}, {"b"}, {"b", "c"}, {"a", "b"}, {"b", "c"}, {"a"}]
    model = PLLClassifier(PlKnn(neighbours=4)).fit(rows, y)
    assert model.labels_.tolist() == ["b"] * 5 + ["a"]


def test_a_row_without_votes_keeps_its_prior_and_in_the_paper_gets_all_classes() -> None:
    sound, paper = (
        PLLClassifier(PlKnn(neighbours=1, undecided=undecided)).fit(X, Y).label_weights_
        for undecided in ("prior", "all")
    )
    np.testing.assert_allclose(sound, [[0.5, 0.5, 0], [0, 0, 1], [0.5, 0, 0.5], [0.5, 0, 0.5]])
    np.testing.assert_allclose(paper[:2], np.full((2, 3), 1 / 3))
    np.testing.assert_allclose(paper[2:], sound[2:])
    answers = np.array([["a", "a", "b"], ["c", "c", "c"], ["a", "c", "c"], ["a", "c", "c"]])
    weights = PLLClassifier(PlKnn(neighbours=1)).fit(X, Votes(answers)).label_weights_
    np.testing.assert_allclose(weights[[0, 2]], [[2 / 3, 1 / 3, 0], [0.5, 0, 0.5]], atol=1e-7)


@pytest.mark.parametrize("n", [2, 7])
@pytest.mark.parametrize("method", [PlKnn(), PlKnn.paper(), Ipal()], ids=str)
def test_equal_rows_work(method: ClassicalMethod, n: int) -> None:
    rows = np.zeros((n, 3))
    model = PLLClassifier(method).fit(rows, ([{"a", "b"}, {"b"}, {"b", "c"}] * 3)[:n])
    assert model.labels_[1] == "b"
    np.testing.assert_allclose(model.predict_proba(rows).sum(1), 1)


def plain_weights(x: Floats, rows: Floats, near: NDArray[np.int64]) -> Floats:
    """Of all rows, most of them 0."""
    weights = np.zeros(len(rows))
    weights[near] = nnls(rows[near].T, x)[0]
    return np.where(weights > 1e-10, weights, 0)


def plain_labels(rows: Floats, candidates: NDArray[np.bool_], method: Ipal) -> Floats:
    """Label weights by dense matrices, one row after the other."""
    far = cdist(rows, rows) + np.diag(np.full(len(rows), np.inf))
    near = far.argsort(1, kind="stable")[:, : method.neighbours]
    edges = np.array([plain_weights(x, rows, index) for x, index in zip(rows, near, strict=True)])
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


def test_ipal_trains_and_predicts_as_a_plain_loop_and_by_blocks(
    digits: Any, candidates: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = Ipal(neighbours=6, alpha=0.9, iterations=20)
    task = task_of(digits[0][:150], candidates[:150])
    rows = task.rows.x(task.rows.everything)[0].numpy()
    others = task.rows.others(torch.from_numpy(digits[1][:30]), torch.arange(30)[None])
    labels = plain_labels(rows, candidates[:150], method)
    for numbers in (2**17, 7 * 640):
        monkeypatch.setattr("robustpll.methods.neighbours.CPU_NUMBERS", numbers)
        fitted = method.fit(task)
        np.testing.assert_allclose(fitted.label_weights[0], labels, atol=1e-9)
        shares = fitted.predict(others).probability[0]
        for x, probability in zip(others.x(others.everything)[0].numpy(), shares, strict=True):
            near = cdist(x[None], rows)[0].argsort(kind="stable")[:6]
            weights = plain_weights(x, rows, near)[:, None] * np.eye(10)[labels.argmax(1)]
            residual = np.square(x - weights.T @ rows).sum(1)
            np.testing.assert_allclose(probability, softmax(residual.max() - residual), atol=1e-9)


def test_the_worked_mixture_of_ipal_is_met_and_tiny_weights_count_as_zero() -> None:
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
    rows, x = torch.tensor([[2e10, 0], [5e9, 0]]).double(), torch.tensor([[1.0, 0]]).double()
    tiny = [mixture_weights(*products(x, rows, torch.tensor([[i]]))).item() for i in (0, 1)]
    assert tiny == [0, pytest.approx(2e-10)]


def problems() -> dict[str, tuple[Tensor, Tensor]]:
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
@pytest.mark.parametrize("k", [2, 60])
def test_lists_and_tables_of_candidates_spread_the_same(iterations: int, k: int) -> None:
    generator = torch.Generator().manual_seed(0)
    candidates = torch.rand(80, k, generator=generator) < 0.3
    candidates[torch.arange(80), torch.randint(k, (80,), generator=generator)] = True
    votes = candidates * torch.randint(1, 4, (80, k), generator=generator).double()
    indices = torch.randint(80, (80, 6), generator=generator)
    edges = torch.rand(80, 6, generator=generator, dtype=torch.float64).sub(0.4).clamp(min=0)
    inputs = (edges / 6, indices, 0.1 * votes / votes.sum(-1, keepdim=True), candidates, iterations)
    pairs, table = spread_as_pairs(*inputs), spread_as_table(*inputs)
    torch.testing.assert_close(pairs, table, rtol=0, atol=1e-12)
    assert (table[~candidates] == 0).all()


def test_labels_reach_rows_that_only_neighbours_of_neighbours_could_tell() -> None:
    """Along each line only the first row has one candidate."""
    line = np.linspace(1, 2, 12)
    rows = np.concatenate([np.stack([line, 0 * line], 1), np.stack([0 * line, line], 1)])
    y = [{"a"}, *[{"a", "b"}] * 11, {"b"}, *[{"a", "b"}] * 11]
    few, many = (
        PLLClassifier(Ipal(neighbours=2, iterations=count)).fit(rows, y) for count in (1, 100)
    )
    assert many.labels_.tolist() == ["a"] * 12 + ["b"] * 12
    truth = np.repeat([[1.0, 0], [0, 1]], 12, axis=0)
    assert (many.label_weights_ * truth).sum() > (few.label_weights_ * truth).sum() + 2
    assert many.predict([[3.0, 0], [0, 3]]).tolist() == ["a", "b"]


def test_rows_that_no_neighbour_can_give_back_keep_their_prior() -> None:
    model, rows = PLLClassifier(Ipal(neighbours=2)), np.zeros((4, 2))
    weights = model.fit(rows, [{"a", "b"}, {"a", "b"}, {"a"}, {"a", "c"}]).label_weights_
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0], [0.5, 0.5, 0], [1, 0, 0], [0.5, 0, 0.5]])
    answers = np.array([["a", "a", "b"], ["a", "b", "b"], ["a", "a", "a"]])
    weights = model.fit(rows[:3], Votes(answers)).label_weights_
    np.testing.assert_allclose(weights, [[2 / 3, 1 / 3], [1 / 3, 2 / 3], [1, 0]], atol=1e-7)


@pytest.mark.gpu
def test_on_a_gpu_equal_rows_of_zeros_and_ones_give_numbers_as_on_the_host() -> None:
    """Of 20,000 such rows some broke the GPU's own solver."""
    random = np.random.default_rng(0)
    rows = (random.random((20_000, 60)) < 0.1).astype(float)
    candidates = np.eye(20, dtype=bool)[random.integers(20, size=len(rows))]
    task = task_of(rows, candidates | (random.random(candidates.shape) < 0.1))
    near = task.rows.x(task.rows.everything)[0]
    host, gpu = (Ipal().precompute(near.to(device)) for device in ("cpu", "cuda"))
    assert gpu["weights"].isfinite().all()
    gram, along = products(near, near, host["indices"])
    apart = [
        (weights * (torch.einsum("qab,qb->qa", gram, weights) - 2 * along)).sum(-1)
        for weights in (host["weights"], mixture_weights(gram.cuda(), along.cuda()).cpu())
    ]
    torch.testing.assert_close(*apart, rtol=0, atol=1e-8)  # what is left over is unique
