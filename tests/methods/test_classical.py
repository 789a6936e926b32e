"""What methods without a training loop share: one search for all runs with equal rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robustpll.engine.data import Rows, Task
from robustpll.methods.classical import Classical, ClassicalMethod, equal_runs
from robustpll.methods.dst_pll import DstPll
from robustpll.methods.ipal import Ipal
from robustpll.methods.pl_ecoc import PlEcoc
from robustpll.methods.pl_knn import PlKnn
from robustpll.methods.pl_svm import PlSvm

METHODS = [
    PlKnn(),
    Ipal(),
    DstPll(),
    DstPll(encoder="always", encoder_epochs=1),
    PlEcoc(),
    PlSvm(iterations=1000),
]
# Which rows and which candidates: runs 0, 2 and 4 have equal rows.
RUNS = ((0, 0), (1, 0), (0, 1), (2, 0), (0, 2))


@pytest.fixture(scope="module")
def bundle(digits: Any) -> tuple[Task, Rows]:
    """Five runs of 200 rows, three of them on the same rows with other candidates; test rows."""
    drawn = np.random.default_rng(0)
    pool, labels = torch.from_numpy(digits[0]), torch.from_numpy(digits[2])
    rows = [torch.from_numpy(drawn.permutation(len(pool))[:200]) for _ in range(3)]
    at = torch.stack([rows[kind] for kind, _ in RUNS])
    others = [torch.from_numpy(drawn.random((len(pool), 10)) < 0.3) for _ in range(3)]
    sets = [
        others[kind].index_put((torch.arange(len(pool)), labels), torch.tensor(True))
        for _, kind in RUNS
    ]
    candidates = torch.stack([each[own] for each, own in zip(sets, at, strict=True)])
    task = Task.of(Rows.of(pool, at), candidates, tuple(range(5)))
    test = task.rows.others(torch.from_numpy(digits[1][:40]), torch.arange(40).expand(5, -1))
    return task, test


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_runs_with_equal_rows_share_a_search_and_find_what_they_find_alone(
    method: ClassicalMethod, bundle: tuple[Task, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, test = bundle
    searched = []
    search = type(method).precompute

    def counted(own: Any, x: Tensor, learned: Any = None) -> Any:
        searched.append(len(x))
        return search(own, x, learned)

    monkeypatch.setattr(type(method), "precompute", counted)
    fitted = method.fit(task)
    opinion = fitted.predict(test)
    assert searched == [200] * 3 + [40] * 3
    for run in range(task.models):
        own = slice(run, run + 1)
        alone = method.fit(task.part(own))
        assert torch.equal(alone.label_weights, fitted.label_weights[own])
        assert torch.equal(alone.predict(test.part(own)).probability, opinion.probability[own])


@pytest.mark.parametrize("method", METHODS[:4], ids=str)
def test_runs_with_equal_rows_keep_them_once(
    method: ClassicalMethod, bundle: tuple[Task, Rows]
) -> None:
    fitted = method.fit(bundle[0])
    assert isinstance(fitted, Classical)
    assert len({id(learned["rows"]) for learned in fitted.learned}) == 3
    assert fitted.learned[0]["rows"] is fitted.learned[4]["rows"]


def test_rows_that_are_scaled_otherwise_are_not_equal_runs(bundle: tuple[Task, Rows]) -> None:
    rows = bundle[0].rows
    assert equal_runs(rows) == [[0, 2, 4], [1], [3]]
    scale = rows.scale.clone()
    scale[2] *= 2
    assert equal_runs(replace(rows, scale=scale)) == [[0, 4], [1], [2], [3]]
    assert equal_runs(rows, keys=[1, 1, 1, 1, 2]) == [[0, 2], [1], [3], [4]]
