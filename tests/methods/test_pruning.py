"""Pruning of candidates: the worked example, what always holds, and what it is good for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robustpll import InputError, PLLClassifier, Votes, load
from robustpll.bench.grid import Grid
from robustpll.engine.data import Rows, Task
from robustpll.methods import Auto, PlKnn, Proden, Pruned
from robustpll.methods.pruning import pruned

ANGLES = np.radians([0, 5, 10, 15, 80, 85])
FEATURES = np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1)
SETS = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 1, 1], [1, 1, 1]], dtype=bool)
REST = [[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]  # of rows 1 to 5


@pytest.mark.parametrize(("share", "first"), [(0.6, [1, 0, 0]), (0.4, [1, 1, 1])])
def test_the_worked_example_is_met_to_the_digit(share: float, first: list[int]) -> None:
    """With a share of 0.4, two classes of row 0 tie at the limit, and stay."""
    for length in (1.0, np.array([[3.0], [0.2], [1], [9], [0.5], [2]])):  # only angles count
        kept = pruned(length * FEATURES, SETS, neighbours=3, share=share)
        assert kept.astype(int).tolist() == [first, *REST]
    assert (Pruned(neighbours=3).similar(torch.from_numpy(FEATURES)).sort(1).values).tolist() == [
        *([1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [2, 3, 5], [2, 3, 4]),
    ]


@given(
    st.integers(2, 12),
    st.integers(2, 25),
    st.integers(1, 15),
    st.sampled_from([0.0, 0.1, 0.2, 0.55, 0.6, 0.7, 1.0]),
    st.integers(0, 10**6),
)
def test_a_row_loses_at_most_its_share_and_never_its_last_candidate(
    n: int, k: int, neighbours: int, share: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    x, sets = draw.integers(-1, 2, (n, 3)), draw.random((n, k)) < 0.5  # with duplicates and zeros
    sets[np.arange(n), draw.integers(0, k, n)] = True
    kept = pruned(x, sets, neighbours=neighbours, share=share)
    lost = sets.sum(1) - kept.sum(1)
    hundredths = round(100 * share) * (sets.sum(1) - 1)
    assert not (kept & ~sets).any()
    assert kept.any(1).all()
    assert (lost <= -(-hundredths // 100)).all()
    other = draw.permutation(k)  # the order of classes does not matter
    np.testing.assert_array_equal(
        pruned(x, sets[:, other], neighbours=neighbours, share=share), kept[:, other]
    )


def test_a_row_is_no_neighbour_of_itself_even_if_another_is_equal() -> None:
    x = np.repeat(np.eye(2), 3, axis=0)
    sets = np.eye(3, dtype=bool)[[0, 0, 0, 1, 1, 1]]
    sets[:, 2] = np.arange(6) % 3 == 0  # the class that one of three equal rows has
    kept = pruned(x, sets, neighbours=2, share=1.0)
    assert not kept[:, 2].any()
    indices = Pruned(neighbours=2).similar(torch.from_numpy(x))
    assert indices.tolist() == [[1, 2], [0, 2], [0, 1], [4, 5], [3, 5], [3, 4]]


def task(digits: Any, candidates: np.ndarray, runs: int = 1) -> Task:
    rows = Rows.of(torch.from_numpy(digits[0][:300]).double(), torch.arange(300).expand(runs, -1))
    sets = torch.from_numpy(candidates[:300]).repeat(runs, 1, 1)
    sets[1:, :, 0] = True  # another run on the same rows
    return Task.of(rows, sets, tuple(range(runs)))


def test_runs_on_the_same_rows_are_pruned_as_if_alone(digits: Any, candidates: np.ndarray) -> None:
    both = task(digits, candidates, 2)
    method = Pruned("pl_knn", neighbours=20)
    fitted: Any = method.fit(both)
    for run, sets in enumerate(both.candidates):
        alone: Any = method.fit(both.part(slice(run, run + 1)))
        assert torch.equal(fitted.learned[run]["candidates"], alone.learned[0]["candidates"])
        scaled = both.rows.x(both.rows.everything)[run]
        expected = pruned(scaled.numpy(), sets.numpy(), neighbours=20)
        np.testing.assert_array_equal(alone.learned[0]["candidates"], expected)


def test_what_remains_of_the_prior_is_divided_by_its_sum(digits: Any, candidates: Any) -> None:
    given = task(digits, candidates)
    draw = torch.rand(given.prior.shape, generator=torch.Generator().manual_seed(0))
    prior = torch.where(draw > 0.5, draw.double() + 1e-3, 0.0) * given.candidates
    first = given.candidates.long().argmax(-1, keepdim=True)
    prior = prior.scatter_add(-1, first, torch.full_like(draw, 1e-9).double())
    given = replace(given, prior=prior / prior.sum(-1, keepdim=True))
    seen: list[Task] = []

    class Seeing(PlKnn):
        def fit(self, task: Task, *, validation: Task | None = None) -> Any:
            seen.append(task)

    Pruned(Seeing()).fit(given)
    (inner,) = seen
    left = given.prior * inner.candidates
    is_empty = left.sum(-1) == 0  # then what is left is equally likely
    assert 0 < is_empty.sum() < 100
    expected = torch.where(is_empty[..., None], inner.candidates.double(), left)
    torch.testing.assert_close(inner.prior, expected / expected.sum(-1, keepdim=True))
    assert inner.weight is given.weight


def test_it_removes_far_more_wrong_candidates_than_true_ones(digits: Any, candidates: Any) -> None:
    truth = np.eye(10, dtype=bool)[digits[2]]
    kept = pruned(digits[0], candidates, neighbours=50)
    wrong, rows = candidates & ~truth, len(truth)
    assert (truth & ~kept).sum() / rows < 0.02
    assert (wrong & ~kept).sum() / wrong.sum() > 0.7


def test_classifiers_files_grids_and_votes_take_it(tmp_path: Path, digits: Any) -> None:
    method = Pruned(Proden(epochs=2), neighbours=5)
    X, y = digits[0][:60], digits[2][:60]
    votes = Votes(np.stack([y, y, (y + 1 + np.arange(60) % 9) % 10], 1).astype(str))
    model = PLLClassifier(method, random_state=0).fit(X, votes)
    assert ((model.label_weights_ > 0).sum(1) == 1).mean() > 0.8
    model.save(tmp_path / "model.pll")
    again = load(tmp_path / "model.pll")
    assert again.method == Proden(epochs=2)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model.set_params(method__share=0.0).fit(X, votes)
    plain = PLLClassifier(Proden(epochs=2), random_state=0).fit(X, votes)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-4)
    assert (Pruned("auto").scale, Pruned(Auto()).scale, Pruned().scale) == ("auto",) * 2 + (
        "minmax",
    )
    values = {"methods": [{"name": "pruned", "method": "ipal"}], "noise": "uniform"}
    runs = Grid.of(values | {"datasets": ["digits"], "seeds": 1}).runs()
    fields = {"method": "ipal", "neighbours": 150, "share": 0.6}
    assert runs[0].description["method"] == {"class": "Pruned", "fields": fields}


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"share": 1.5}, "'share' of Pruned must be a float from 0 to 1"),
        ({"neighbours": 0}, "'neighbours' of Pruned must be an int of at least 1"),
        ({"features": FEATURES[:4]}, "X has 4 rows, but y has 6"),
        ({"features": FEATURES[:1], "candidates": SETS[:1]}, "two rows or more"),
        ({"features": np.where(FEATURES > 0.99, np.nan, FEATURES)}, "finite numbers"),
        ({"features": ANGLES}, r"shape \(n, d\)"),
    ],
)
def test_a_value_without_a_meaning_is_refused(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        pruned(**{"features": FEATURES, "candidates": SETS} | arguments)
    for other in ("none", Proden, 3):
        with pytest.raises(InputError, match="'method' of Pruned must be a name of METHODS, or a"):
            Pruned(other)  # type: ignore[arg-type]
