"""Sparse rows and texts become numbers, by rules that a model file holds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer

from robustpll import InputError, PLLClassifier, compare, load
from robustpll.errors import ModelFileError
from robustpll.estimator.features import Features
from robustpll.estimator.model_file import KEY, _content
from robustpll.estimator.reduction import Reduction

WORDS = (("dull", "awful", "weak", "tired"), ("great", "lovely", "superb", "moving"))
LABELS = np.arange(120) % 2


def sentences() -> list[str]:
    random = np.random.default_rng(0)
    drawn = [random.choice(WORDS[label], 3) for label in LABELS]
    return [
        f"A {one} plot, {two} music and {three} pictures {row}"
        for row, (one, two, three) in enumerate(drawn)
    ]


TABLE = pd.DataFrame({"review": sentences(), "minutes": np.arange(120.0) % 7})


def counts(columns: int = 900) -> sparse.csr_array:
    """Rows of each class have their entries in other columns."""
    random = np.random.default_rng(1)
    X = np.zeros((120, columns))
    for row, label in enumerate(LABELS):
        X[row, random.integers(columns // 2, size=20) + label * (columns // 2)] = 1
    return sparse.csr_array(X)


def quick(**params: Any) -> PLLClassifier:
    return PLLClassifier("proden", random_state=0, device="cpu", **params).set_params(
        method__epochs=15
    )


@pytest.fixture(scope="module")
def wide() -> PLLClassifier:
    return quick().fit(counts(), LABELS)


@pytest.fixture(scope="module")
def reader() -> PLLClassifier:
    return quick(text=["review"]).fit(TABLE, LABELS)


def test_wide_sparse_rows_are_reduced_and_learned(wide: PLLClassifier) -> None:
    assert (wide.n_features_in_, wide.features_.shape) == (900, (20,))
    assert wide.score(counts(), LABELS) > 0.95
    expected = wide.predict_proba(counts())
    for form in (sparse.csc_matrix, sparse.coo_array, sparse.lil_matrix):
        np.testing.assert_allclose(wide.predict_proba(form(counts())), expected, atol=1e-6)
    np.testing.assert_allclose(wide.predict_proba(counts().toarray()), expected, atol=1e-6)
    with pytest.raises(ValueError, match="features"):
        wide.predict(counts(898))


def test_narrow_sparse_rows_are_numbers() -> None:
    X = counts(40)
    model, dense = quick().fit(X, LABELS), quick().fit(X.toarray(), LABELS)
    assert model.features_ == dense.features_
    assert (model.predict_proba(X) == dense.predict_proba(X.toarray())).all()
    assert (dense.predict_proba(X) == model.predict_proba(X)).all()


@pytest.mark.parametrize(("rows", "count"), [(12, 6), (100, 20), (400, 50), (5000, 500)])
def test_components_are_few_beside_the_rows(rows: int, count: int) -> None:
    """With half as many as rows, held-out rows looked too easy, and texts were misread."""
    X = sparse.random(rows, 600, density=0.3, random_state=0, format="csr")
    assert len(Reduction.of_sparse(X).components) == count


def test_no_component_is_made_of_rounding_errors() -> None:
    X = sparse.csr_array(np.tile(np.eye(2), (100, 300)))  # of rank 2
    assert Reduction.of_sparse(X).components.shape == (2, 600)
    assert Reduction.of_sparse(sparse.csr_array((40, 600))).components.shape == (1, 600)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_sparse_rows_with_odd_numbers_are_refused(wide: PLLClassifier, number: float) -> None:
    X = counts().tolil()
    X[7, 3] = number
    for call in (lambda rows: quick().fit(rows, LABELS), wide.predict):
        with pytest.raises(InputError, match=r"NaN or infinity in 1 row \(7\)"):
            call(X.tocsr())


def test_comparison_takes_sparse_rows_and_texts() -> None:
    for X, text in ((counts(), ()), (TABLE, ["review"])):
        result = compare(X, LABELS, method="pl_knn", text=text, random_state=0)
        assert result.learners[0].covering_rate > 0.9


def test_texts_are_weighted_as_by_scikit_learn() -> None:
    texts = sentences()
    reduction = Reduction.of_texts(texts)
    rows = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
    numbers = reduction.numbers(texts)
    np.testing.assert_allclose(numbers, rows @ reduction.components.T, atol=1e-6)
    # the largest part of what rows have in common survives the reduction
    like, kept = (rows @ rows.T).toarray(), numbers @ numbers.T
    assert np.corrcoef(like.ravel(), kept.ravel())[0, 1] > 0.95
    assert (reduction.numbers(["", "unheard"]) == 0).all()


def test_texts_are_learned_beside_numbers(reader: PLLClassifier) -> None:
    assert reader.score(TABLE, LABELS) > 0.95
    assert reader.features_.columns[-1] == "minutes"
    assert reader.features_.columns[0] == "review component 0"
    later = pd.DataFrame({"review": ["great, lovely and superb", "a weak, dull plot", None]})
    later["minutes"] = 3.0
    assert reader.predict(later)[:2].tolist() == [1, 0]
    assert clone(reader).get_params()["text"] == ["review"]


def test_a_file_holds_the_reductions_without_pickle(
    wide: PLLClassifier, reader: PLLClassifier, tmp_path: Path
) -> None:
    for model, X in ((wide, counts()), (reader, TABLE)):
        model.save(tmp_path / "model.pll")
        again = load(tmp_path / "model.pll", device="cpu")
        assert (again.predict_proba(X) == model.predict_proba(X)).all()
        again.save(tmp_path / "again.pll")
        assert (tmp_path / "again.pll").read_bytes() == (tmp_path / "model.pll").read_bytes()
    assert again.text == ("review",)
    again.fit(TABLE, LABELS)  # it can learn again
    assert (again.predict(TABLE) == reader.predict(TABLE)).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda about, _: about["features"]["texts"]["review"].pop(),
        lambda about, _: about["features"]["texts"]["review"].__setitem__(0, "weak"),
        lambda about, _: about["features"]["texts"].__setitem__("review", []),
        lambda about, _: about["features"]["texts"].__setitem__("other", ["a", "b"]),
        lambda _, tensors: tensors.pop("robustpll.text.0.idf"),
        lambda _, tensors: tensors.update({"robustpll.text.0.idf": torch.ones(3)}),
        lambda _, tensors: tensors.update({"robustpll.text.0.components": torch.ones(3, 3)}),
        lambda _, tensors: tensors.update({"robustpll.reduction.components": torch.ones(3, 3)}),
    ],
)
def test_a_file_with_other_reductions_is_refused(
    change: Any, reader: PLLClassifier, tmp_path: Path
) -> None:
    path = tmp_path / "model.pll"
    reader.save(path)
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()[KEY])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(about, tensors)
    path.write_bytes(_content(json.dumps(about), tensors))
    with pytest.raises(ModelFileError):
        load(path)


def test_texts_that_are_not_named_are_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"'review' has 120 different texts.* name it in `text`"):
        quick().fit(TABLE, LABELS)
    repeated = TABLE.assign(review=sentences()[:30] * 4)  # a quarter of the cells differ
    with pytest.raises(InputError, match="30 different texts in 120 rows"):
        quick().fit(repeated, LABELS)
    few = TABLE.assign(review=["on the whole I agree", "I do not agree at all"] * 60)
    assert len(Features.fit_rows(few, "cpu")[0].categories["review"]) == 2


@pytest.mark.parametrize(
    ("X", "text", "message"),
    [
        (TABLE, ["other"], "no column of X: 'other'.*'review'"),
        (counts(), ["review"], "a DataFrame is needed"),
        (TABLE.assign(review=None), ["review"], "'review' has fewer than two different words"),
        (TABLE.assign(review="a 1"), "review", "fewer than two different words"),
    ],
)
def test_columns_that_hold_no_texts_are_refused(X: Any, text: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        quick(text=text).fit(X, LABELS)


def test_texts_have_no_onnx_graph(
    wide: PLLClassifier, reader: PLLClassifier, tmp_path: Path
) -> None:
    for model in (wide, reader):
        with pytest.raises(InputError, match=r"no ONNX graph.* Use save"):
            model.export_onnx(tmp_path / "model.onnx")
