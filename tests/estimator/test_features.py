"""Arrays, pictures and tables become scaled numbers, and never by guessing."""

import copy
import json
import sys
import tracemalloc
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from robustpll import PGD, InputError, PLLClassifier, RobustPLLClassifier, load
from robustpll.engine.data import Rows, Task
from robustpll.engine.train import train
from robustpll.estimator.features import Curve, Features
from robustpll.methods import Auto, RobustPll

NAN = float("nan")
TABLE = pd.DataFrame(
    {
        "age": [20.0, NAN, 40.0, 25.0],
        "count": pd.array([0, 4, None, 1], dtype="Int64"),
        "member": [True, False, True, True],
        "town": ["Rome", None, "Bonn", "Rome"],
        "size": pd.Categorical(["S", "L", "S", None], categories=["S", "M", "L"]),
    },
    index=[9, 9, 1, 0],
)


def learned(X: Any) -> Features:
    return Features.fit_rows(X, "cpu")[0]


def scaled(X: Any, later: Any = None) -> list[Any]:
    """What a model sees of `later` (or of X itself) after learning from X."""
    rows = learned(X).rows(X if later is None else later)
    return rows.x(rows.everything)[0].tolist()


def column(*cells: Any, dtype: Any = None) -> pd.DataFrame:
    return pd.DataFrame({"c": pd.Series(list(cells), dtype=dtype)})


def numbers(*cells: float) -> np.ndarray:
    return np.array(cells, dtype=float)[:, None]


FROZEN = np.array([[1, 2], [3, 6]])
FROZEN.flags.writeable = False
SECONDS = 1.6e9 + numbers(0, 0.5, 2)
GAPS = [[0, 0], [0.125, 1], [0.125, 0], [1, 0]]  # of 0, a gap, 1 and 8
WORDS, BACK = [[1, 0], [0, 0], [0, 1]], [[0, 1], [0, 0], [1, 0]]  # of x, a gap and y
NEW = [[0, 0], [0, 1], [0, 0]]  # of a new word, y and a gap
WORKED: dict[str, tuple[Any, Any, list[Any]]] = {  # training rows, later ones, what comes out
    "a zero column": (numbers(0, 0), None, [[0], [0]]),
    "constant columns": (numbers(-3, -3), None, [[1], [1]]),
    "a small constant": (numbers(1e-9, 1e-9), None, [[1], [1]]),
    "outside the training range": (numbers(0, 2), numbers(-2, 6), [[-1], [3]]),
    "not the constant": (numbers(5, 5), numbers(10, 0), [[2], [0]]),
    "a large offset": (SECONDS, None, [[0], [0.25], [1]]),
    "a large offset later": (SECONDS, SECONDS + 1, [[0.5], [0.75], [1.5]]),
    "a table of seconds": (pd.DataFrame(SECONDS), pd.DataFrame(SECONDS), [[0], [0.25], [1]]),
    "lists": ([[1, 2], [3, 6]], None, [[0, 0], [1, 1]]),
    "another order in memory": (np.asfortranarray([[1, 2], [3, 6]]), None, [[0, 0], [1, 1]]),
    "an array that cannot be written": (FROZEN, None, [[0, 0], [1, 1]]),
    "a gap": (column(0, NAN, 1, 8), None, GAPS),
    "a later gap": (column(0, NAN, 1, 8), column(NAN, 16), [[0.125, 1], [2, 0]]),
    "a gap in float32": (column(0, NAN, 1, 8, dtype="float32"), None, GAPS),
    "a gap among integers": (column(0, None, 1, 8, dtype="Int64"), None, GAPS),
    "a gap among floats": (column(0, None, 1, 8, dtype="Float64"), None, GAPS),
    "a gap among booleans": (column(1, None, 0, dtype="boolean"), None, [[1, 0], [0.5, 1], [0, 0]]),
    "booleans as objects": (column(True, None, False), None, [[1, 0], [0.5, 1], [0, 0]]),
    "words": (column("x", None, "y"), None, WORDS),
    "words as objects": (column("x", None, "y", dtype=object), None, WORDS),
    "words as strings": (column("x", None, "y", dtype="string"), None, WORDS),
    "words as categories": (column("x", None, "y", dtype="category"), None, WORDS),
    "numbers as categories": (pd.DataFrame({"c": pd.Categorical([1, None, 2])}), None, WORDS),
    "later words": (column("x", None, "y"), column("y", None, "x"), BACK),
    "an unknown word": (column("x", "y"), column("z", "y", None), NEW),
    "an unknown string": (column("x", "y"), column("z", "y", None, dtype="string"), NEW),
    "an unknown category": (column("x", "y"), column("z", "y", None, dtype="category"), NEW),
}


@pytest.mark.parametrize("case", WORKED)
def test_rows_become_the_worked_numbers(case: str) -> None:
    X, later, expected = WORKED[case]
    assert scaled(X, later) == expected


@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 2), (3, 1, 2, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_each_dot_of_a_picture_is_scaled_by_itself(shape: tuple[int, ...], dtype: Any) -> None:
    pictures = np.array([[0, 0, 7, 9], [50, 0, 7, 5], [200, 0, 7, 1]], dtype=dtype).reshape(shape)
    constant = 1 if len(shape) == 2 else np.float32(7) / np.float32(255)  # others may come later
    expected = np.array([[0, 0, constant, 1], [0.25, 0, constant, 0.5], [1, 0, constant, 0]])
    if dtype == np.uint8 and len(shape) == 4:
        expected = (pictures.reshape(3, 4) / 255).astype(np.float32)  # as networks expect
    np.testing.assert_array_equal(scaled(pictures), expected.reshape(shape))


def test_a_table_of_all_kinds_becomes_named_numbers() -> None:
    assert learned(TABLE).columns == (
        *("age", "age is missing", "count", "count is missing", "member"),
        *("town is Bonn", "town is Rome", "size is L", "size is S"),
    )
    assert scaled(TABLE) == [
        [0, 0, 0, 0, 1, 0, 1, 0, 1],
        [0.25, 1, 1, 0, 0, 0, 0, 1, 0],
        [1, 0, 0.25, 1, 1, 1, 0, 0, 1],
        [0.25, 0, 0.25, 0, 1, 0, 1, 0, 0],
    ]


@pytest.mark.parametrize("odd", [NAN, np.inf, -np.inf, 1e300, -1e300, 2.0**70])
@pytest.mark.parametrize("form", ["array", "picture", "table"])
def test_rows_that_cannot_be_predicted_are_told_and_the_others_can(odd: float, form: str) -> None:
    X: Any = np.arange(16.0).reshape(4, 4)
    later: Any = X.copy()
    later[1, 2] = odd
    if form == "picture":
        X, later = X.reshape(4, 2, 2), later.reshape(4, 2, 2)
    elif form == "table":
        X, later = pd.DataFrame(X), pd.DataFrame(later)
    features = learned(X)
    unusable = features.unusable_rows(later)
    assert unusable.tolist() == [False, True, False, False]
    assert len(features.rows(later[~unusable])) == 3
    with pytest.raises(InputError, match=r"in 1 row \(1\)"):
        features.rows(later)


def test_gaps_that_training_knew_are_no_reason_to_leave_a_row_out() -> None:
    features = learned(TABLE)
    later = TABLE.assign(member=pd.array([True, None, False, True], dtype="boolean"))
    assert features.unusable_rows(TABLE).tolist() == [False] * 4
    assert features.unusable_rows(later).tolist() == [False, True, False, False]


DATES = pd.to_datetime(pd.Series(["2020-01-01", "2021-06-01"]))
NAMES = pd.DataFrame({"c": [f"row-{number}" for number in range(60)]})
AGES = pd.DataFrame({"c": ["31", "42", "?", "55"]})
NEEDS_DATES = r"Column 'c' holds dates, times.* Drop it, replace"
REFUSED: dict[str, tuple[Any, Any, str]] = {  # training rows, later ones, the message
    "no float64": (np.array([[0, 1e308], [1, -1e308]]), None, r"more than a float64 .*: 1\)"),
    "dates": (pd.DataFrame({"c": DATES}), None, NEEDS_DATES),
    "dates of a zone": (pd.DataFrame({"c": DATES.dt.tz_localize("UTC")}), None, NEEDS_DATES),
    "spans of time": (pd.DataFrame({"c": DATES - DATES[0]}), None, NEEDS_DATES),
    "later dates": (column(1, 2), pd.DataFrame({"c": DATES}), "Column 'c'"),
    "infinity": (column(1, np.inf), None, r"Column 'c' is infinite in 1 row \(1\)"),
    "later infinity": (column(1, 2), column(3, -np.inf), r"'c' is infinite in 1 row \(1\)"),
    "a new gap": (column(1, 2), column(1, NAN, 2, NAN), r"'c' has no value in 2 rows \(1, 3\)"),
    "a new gap among integers": (column(1, 2), column(1, None, dtype="Int64"), r"1 row \(1\)"),
    "words for numbers": (column(1, 2), column("x", "y"), "held numbers in training.* Convert"),
    "only new words": (column("x", "y"), column("v", "w"), "'c' holds no word that training saw"),
    "another shape": (np.eye(3), np.zeros((1, 2)), r"shape \(2,\).* fitted with .* same form"),
    "no picture": (np.ones((2, 2, 2)), np.zeros((1, 2)), r"shape \(2,\)"),
    "no table": (TABLE, np.zeros((1, 2)), r"shape \(2,\)"),
    "one name twice": (pd.DataFrame([[1, 2], [3, 4]], columns=["c", "c"]), None, "'c'"),
    "numbers as text": (AGES, None, r"'c' holds numbers as text, but for '\?'.*to_numeric"),
    "names of rows": (NAMES, None, r"'c' has 60 different words in 60 rows.* Drop it"),
    "lists": (column(["a"], ["a", "b"]), None, "'c' holds lists"),
}
for kind in (float, object, "string", "Int64", "category"):
    nothing = column(None, None, dtype=kind)
    REFUSED[f"no value as {kind}"] = (nothing, None, r"'c' has no value in any row. Drop it")


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_scaled_is_refused_by_name_and_row(case: str) -> None:
    X, later, message = REFUSED[case]
    with pytest.raises(InputError, match=message):
        scaled(X, later)


def test_declared_categories_may_be_many_or_numbers() -> None:
    assert learned(AGES.astype("category")).columns[0] == "c is 31"
    assert len(learned(NAMES.astype("category")).columns) == 60


INPUTS = {
    "table": TABLE,
    "array": np.arange(6.0).reshape(3, 2),
    "columns without gaps": TABLE[["member"]],
    "columns named by numbers": pd.DataFrame([[1, NAN, "a"], [3, 4, "b"], [1, 2, "é"]]),
}


@pytest.mark.parametrize("X", INPUTS.values(), ids=INPUTS.keys())
def test_json_gives_back_equal_features_and_the_input_is_never_modified(X: Any) -> None:
    before = copy.deepcopy(X)
    features = learned(X)
    again = Features.from_json(json.loads(json.dumps(asdict(features))))
    assert again == features
    assert again.rows(X).pool.equal(features.rows(X).pool)
    pd.testing.assert_frame_equal(pd.DataFrame(X), pd.DataFrame(before))


def test_scaled_rows_that_are_streamed_come_from_the_buffer() -> None:
    _, rows = Features.fit_rows(np.arange(12.0).reshape(6, 2), torch.device("cpu"))
    batch, positions = torch.rand(4, 2), torch.zeros(1, 4, dtype=torch.int64)
    assert torch.equal(replace(rows, buffer=batch).x(positions)[0], batch)
    assert torch.equal(rows.x(rows.everything)[0, -1], torch.ones(2))


PICTURES = np.random.default_rng(0).integers(3, 250, (600, 8, 8), dtype=np.uint8)
PICTURES[:, 0, 0], PICTURES[:, 0, 1] = 0, 7  # constant
LABELS = PICTURES[:, 4, 4].astype(int) // 64


def test_pictures_of_bytes_stay_bytes_and_mean_the_same_numbers() -> None:
    pictures = PICTURES.copy()
    pictures.flags.writeable = False  # as from a file
    features, rows = Features.fit_rows(pictures, "cpu", "minmax")
    reference, wide = Features.fit_rows(pictures.astype(np.float64), "cpu", "minmax")
    assert features == reference
    assert {type(number) for number in features.shift + features.scale} == {float}
    assert rows.pool.dtype == torch.uint8
    some = torch.arange(0, 600, 7)[None]
    assert rows.x(some).dtype == torch.float32
    torch.testing.assert_close(rows.x(some), wide.x(some), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((6, 8, 8, 3), (3, 8, 8)),
        ((6, 7, 9, 1), (1, 7, 9)),
        ((6, 3, 7, 9), (3, 7, 9)),
        ((6, 3, 4, 4), (3, 4, 4)),  # both may be channels, but pictures are square
        ((6, 4, 4, 3), (3, 4, 4)),
        ((6, 5, 8, 8), (5, 8, 8)),
        ((6, 8, 8, 5), (5, 8, 8)),
        ((6, 7, 9), (7, 9)),
    ],
)
def test_the_axis_of_channels_is_recognised_wherever_rows_enter(
    shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    for dtype in (np.uint8, np.float32):
        pictures = (np.arange(np.prod(shape)).reshape(shape) % 251).astype(dtype)
        model = PLLClassifier("pl_knn").fit(pictures, [*"ababab"])
        assert model.features_.shape == expected
        moved = pictures if shape[1:] == expected else np.moveaxis(pictures, -1, 1)
        for rows in (pictures, moved):
            read = model._rows(rows)
            np.testing.assert_array_equal(read.raw(read.everything)[0].float(), _raw(model, moved))
            assert model.predict(rows).shape == model.decide(rows, coverage=0.5).label.shape


def _raw(model: PLLClassifier, moved: np.ndarray) -> Any:
    """The rows before scaling if they are bytes, else scaled."""
    if moved.dtype == np.uint8:
        return torch.from_numpy(moved.astype(np.float32))
    rows = model.features_.rows(moved)
    return rows.raw(rows.everything)[0]


def test_grey_pictures_may_have_an_axis_of_channels_or_none() -> None:
    X = np.random.default_rng(0).integers(0, 256, (30, 20, 18), dtype=np.uint8)
    y = [{"a"}, {"b"}, {"a", "b"}] * 10
    for with_axis in (X, X[:, None]):
        model = PLLClassifier("pl_knn").fit(with_axis, y)
        assert model.features_.shape == with_axis.shape[1:]
        expected = model.predict_proba(with_axis)
        for other in (X, X[:, None], X[..., None]):
            np.testing.assert_array_equal(model.predict_proba(other), expected)


BYTES = np.random.default_rng(0).integers(0, 256, (30, 3, 8, 8), dtype=np.uint8)


@pytest.mark.parametrize("scale", ["minmax", "standard", None])
@pytest.mark.parametrize("pictures", [BYTES, BYTES[:, 0]], ids=["colour", "grey"])
def test_bytes_and_fractions_are_not_taken_for_one_another(
    pictures: Any, scale: Any, tmp_path: Path
) -> None:
    def fitted(X: Any) -> Any:
        PLLClassifier("pl_knn", scale=scale).fit(X, [*"abc"] * 10).save(tmp_path / "model.pll")
        return load(tmp_path / "model.pll")

    fractions, masks = (pictures / 255).astype(np.float32), pictures > 127
    for model, rows, sentence in (
        (fitted(pictures), fractions, "up to 1, but was fitted with numbers up to 255. Scale X"),
        (fitted(pictures * 1.0), fractions, "up to 1, but was fitted with numbers up to 255"),
        (fitted(fractions), pictures, "up to 255, but was fitted with numbers up to 1. Scale X"),
        (fitted(fractions), pictures * 1.0, "up to 255, but was fitted with numbers up to 1"),
        (fitted(2 * fractions - 1), pictures, "up to 255, but was fitted with numbers up to 1"),
    ):
        for ask in (model.predict, model.predict_proba, partial(model.decide, error=0.1)):
            with pytest.raises(InputError, match=sentence):
                ask(rows)
    for learned, rows in (
        (pictures, pictures.astype(np.float32)),
        (pictures, np.zeros(pictures.shape)),
        (fractions, fractions - 3),
        (fractions, fractions + 0.5),
        (fractions.astype(np.float64), masks.astype(np.uint8)),
        (masks.astype(np.uint8), masks.astype(np.float32)),
        (fractions * 2, pictures),
    ):
        fitted(learned).predict(rows)


@pytest.mark.parametrize("shape", [(6, 3, 32, 3), (6, 7, 8, 9), (6, 4, 4, 4)])
def test_channels_that_may_be_first_or_last_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"may be \(n, c, h, w\) or \(n, h, w, c\). Transpose it"):
        PLLClassifier("pl_knn").fit(np.zeros(shape, dtype=np.uint8), [*"ababab"])


def test_bytes_with_channels_are_divided_by_255_whatever_the_training_rows_hold() -> None:
    pictures = np.full((4, 3, 5, 5), 51, dtype=np.uint8)
    for scale in ("auto", "minmax", "quantile"):
        features, rows = Features.fit_rows(pictures, "cpu", scale)
        assert {*features.shift} == {0.0}
        assert {*features.scale} == {255.0}
        assert rows.pool.dtype == torch.uint8
        assert rows.x(rows.everything).unique().tolist() == [pytest.approx(0.2)]
    assert {*Features.fit_rows(pictures, "cpu", "standard")[0].shift} == {51.0}
    assert {*Features.fit_rows(pictures, "cpu", None)[0].scale} == {1.0}


@pytest.mark.parametrize("scale", ["auto", "minmax"])
def test_a_grey_pixel_that_was_black_in_training_is_not_huge_later(scale: str) -> None:
    pictures = np.zeros((40, 6, 6), dtype=np.uint8)
    pictures[:, 2:4, 2:4] = np.random.default_rng(0).integers(0, 256, (40, 2, 2))
    features, _ = Features.fit_rows(pictures, "cpu", scale)
    later = pictures.copy()
    later[:, 0, 0] = 255
    for rows in (features.rows(later), features.rows(later * 1.0)):
        assert rows.x(rows.everything).max() <= 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is measured as Linux counts it")
@pytest.mark.parametrize(("order", "most"), [("first", 1.3), ("last", 2.3)])
def test_memory_grows_by_the_pictures_and_one_copy_at_most(order: str, most: float) -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    with patch.object(sys, "path", [str(folder), *sys.path]):
        assert import_module("picture_memory").measured(order, 30_000) < most


def test_bytes_are_scaled_in_float64_if_the_model_learned_other_numbers() -> None:
    features = learned(PICTURES / 255)
    assert features.rows(PICTURES).pool.dtype == torch.float32
    expected = features.rows(PICTURES.astype(np.float64))
    indices = expected.everything
    assert torch.equal(features.rows(PICTURES).x(indices), expected.x(indices))


@pytest.mark.parametrize("method", ["robust_pll", "pl_knn"])
def test_a_model_of_bytes_predicts_as_one_of_floats(method: str) -> None:
    options: Any = {"method": method, "random_state": 0, "device": "cpu"}
    narrow, wide = (PLLClassifier(**options) for _ in range(2))
    if method == "robust_pll":
        for model in (narrow, wide):
            model.set_params(method__epochs=3)
    narrow.fit(PICTURES, LABELS)
    wide.fit(PICTURES.astype(np.float64), LABELS)
    expected = wide.predict_proba(PICTURES.astype(np.float64))
    for given in (PICTURES, PICTURES.astype(np.float64)):
        np.testing.assert_allclose(narrow.predict_proba(given), expected, rtol=0, atol=1e-3)


def test_no_step_of_fit_and_predict_copies_all_bytes_as_wider_numbers() -> None:
    """Tensors and arrays that the computation creates are smaller than X in float32."""
    pictures = np.tile(PICTURES, (7, 4, 4))  # 4,200 rows of 1,024 numbers
    labels = np.tile(LABELS, 7)
    sizes: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **kwargs or {})
            results = result if isinstance(result, tuple | list) else [result]
            tensors = (one for one in results if isinstance(one, torch.Tensor))
            sizes.extend(one.nbytes for one in tensors if one.dtype != torch.uint8)
            return result

    tracemalloc.start()
    try:
        with Sizes():
            settings: Any = {"epochs": 1, "batch_size": 512, "random_state": 0, "device": "cpu"}
            # a batch has rows for each; layers of a convolutional network are wider than rows
            model = RobustPLLClassifier(**settings, members=2, network="mlp")
            model.fit(pictures, labels).predict(pictures)
        peak = tracemalloc.get_traced_memory()[1]  # of numpy
    finally:
        tracemalloc.stop()
    assert max(sizes) < 4 * pictures.size
    assert peak < 4 * pictures.size


def test_streamed_bytes_give_the_same_as_resident_ones() -> None:
    rows = learned(PICTURES).rows(PICTURES)
    candidates = torch.nn.functional.one_hot(torch.from_numpy(LABELS), 4).bool()[None]
    task = Task.of(rows, candidates, (0,))
    resident = train(RobustPll(epochs=2, batch_size=100), task)
    with patch.object(Rows, "on_host", new_callable=PropertyMock, return_value=True):
        streamed = train(RobustPll(epochs=2, batch_size=100), task)
    assert torch.equal(streamed.label_weights, resident.label_weights)


RANDOM = np.random.default_rng(0)
SPREAD, SKEWED = RANDOM.random(400), RANDOM.lognormal(sigma=2, size=400)
OUTLIERS = np.where(np.arange(400) % 100 == 0, 1e6, SPREAD)
BINARY = (np.arange(400) % 50 == 0) * 1.0
COLUMNS = np.column_stack([SPREAD, SKEWED, OUTLIERS, BINARY])


def in_one_go(scale: Any, later: np.ndarray = COLUMNS) -> np.ndarray:
    rows = Features.fit_rows(COLUMNS, "cpu", scale)[0].rows(later)
    return rows.x(rows.everything)[0].numpy()


def test_columns_with_outliers_or_skew_are_spread_and_the_others_stay() -> None:
    assert [*Features.fit_rows(COLUMNS, "cpu", "auto")[0].curves] == [1, 2]
    assert [*Features.fit_rows(COLUMNS, "cpu", "quantile")[0].curves] == [0, 1, 2]
    spread, plain = in_one_go("auto"), in_one_go("minmax")
    np.testing.assert_array_equal(spread[:, [0, 3]], plain[:, [0, 3]])
    for number in (1, 2):
        assert np.quantile(plain[:, number], 0.9) < 0.2
        middle = np.quantile(spread[:, number], (0.25, 0.5, 0.75))
        np.testing.assert_allclose(middle, (0.25, 0.5, 0.75), atol=0.05)
        order = np.argsort(COLUMNS[:, number])
        assert (np.diff(spread[order, number]) >= 0).all()


def test_beyond_the_training_range_scaled_values_grow_as_without_a_curve() -> None:
    beyond = np.array([[0.5, 1e5, 1e7, 0.0], [0.5, -1e5, -1e7, 0.0]])
    curved, plain = in_one_go("auto", beyond), in_one_go("minmax", beyond)
    np.testing.assert_allclose(curved[:, 1:3], plain[:, 1:3], rtol=1e-5)


def test_other_scales_are_what_they_say_and_unknown_ones_are_refused() -> None:
    standard = in_one_go("standard")
    np.testing.assert_allclose(standard.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(0), 1, rtol=1e-5)
    np.testing.assert_allclose(in_one_go(None), COLUMNS, rtol=1e-6)
    with pytest.raises(InputError, match=r"scale must be one of 'auto', .* got 'robust'"):
        in_one_go("robust")


def test_curves_survive_json_and_broken_ones_are_unsound() -> None:
    features = Features.fit_rows(COLUMNS, "cpu", "auto")[0]
    again = Features.from_json(json.loads(json.dumps(asdict(features))))
    assert again == features
    curve = features.curves[1]
    assert curve.is_sound
    assert not Curve(curve.knots[::-1], curve.levels).is_sound
    assert not Curve((0.0, 0.5, 0.5, 1.0), (0.0, 0.4, 0.6, 1.0)).is_sound
    assert not Curve((0.0, float("nan"), 1.0), (0.0, 0.4, 1.0)).is_sound


def test_curves_that_cannot_be_computed_with_are_not_made() -> None:
    steep = np.append(SPREAD, [1e308] * 10)[:, None]
    assert Features.fit_rows(steep, "cpu", "auto")[0].curves == {}
    assert not Curve((0.0, 5e-324, 1.0), (0.0, 0.5, 1.0)).is_sound
    many = tuple(np.linspace(0, 1, 1000).tolist())
    assert not Curve(many, many).is_sound
    constant = np.column_stack([np.full(10, 0.1), np.arange(10.0)])
    standard = Features.fit_rows(constant, "cpu", "standard")[0]
    assert (standard.shift[0], standard.scale[0]) == (0.1, 1.0)


def test_a_method_has_its_own_scale_unless_one_is_chosen() -> None:
    y = COLUMNS[:, 0] > 0.5
    for model, numbers in (
        (PLLClassifier(Auto(epochs=1, members=5, learner="network"), random_state=0), [1, 2]),
        (PLLClassifier(RobustPll(epochs=1), random_state=0), []),
        (PLLClassifier(RobustPll(epochs=1), scale="auto", random_state=0), [1, 2]),
    ):
        assert [*model.fit(COLUMNS, y).features_.curves] == numbers
    with pytest.warns(DeprecationWarning, match="kl_ceiling"):
        former = RobustPLLClassifier(epochs=1, kl_ceiling=1.0, random_state=0).fit(COLUMNS, y)
    assert former.features_.curves == {}
    assert RobustPLLClassifier(scale=None).resolved_method().adversary == 0


def test_a_model_with_outliers_in_a_column_learns_and_one_without_a_range_is_not_attacked() -> None:
    X = np.concatenate([OUTLIERS[:, None], RANDOM.random((400, 2))], 1)
    y = (X[:, 0] > np.median(X[:, 0])).astype(int)
    settings: Any = {"learner": "network", "members": 5, "epochs": 20, "random_state": 0}
    scores = [
        RobustPLLClassifier(scale=scale, **settings).fit(X[:300], y[:300]).score(X[300:], y[300:])
        for scale in ("auto", "minmax")
    ]
    assert scores[0] > 0.8
    assert scores[1] < 0.7
    for scale in ("standard", None):
        model = PLLClassifier(RobustPll(epochs=2), scale=scale, random_state=1)
        model.fit(X[:, 1:], y)
        with pytest.raises(InputError, match="scale='auto'"):
            model.predict_opinion(X[:, 1:], attack=PGD(0.1))
