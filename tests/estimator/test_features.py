"""Arrays, pictures and tables become scaled numbers, and never by guessing."""

import copy
import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

from robustpll import InputError
from robustpll.estimator.features import Features

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


def scaled(X: Any, later: Any = None) -> list[Any]:
    """What a model sees of `later` (or of X itself) after learning from X."""
    rows = Features.of(X).rows(X if later is None else later)
    return rows.x(rows.everything)[0].tolist()


def column(*cells: Any, dtype: Any = None) -> pd.DataFrame:
    return pd.DataFrame({"c": pd.Series(list(cells), dtype=dtype)})


def test_training_rows_are_scaled_to_the_worked_numbers() -> None:
    X = np.column_stack([(0, 1, 4), (2, 2, 2), (5, 5, 5)])
    assert scaled(X) == [[0, 1, 1], [0.25, 1, 1], [1, 1, 1]]
    assert scaled(pd.DataFrame(X, columns=list("abc"))) == scaled(X)


@pytest.mark.parametrize(("cell", "expected"), [(0, 0), (-3, 1), (1e-9, 1)])
def test_a_constant_column_is_one_or_stays_zero(cell: float, expected: float) -> None:
    assert scaled(np.full((3, 1), cell)) == [[expected]] * 3


def test_values_outside_the_training_range_are_not_clipped() -> None:
    assert scaled(np.array([[0.0], [2.0]]), np.array([[-2.0], [6.0]])) == [[-1], [3]]
    assert scaled(np.full((2, 1), 5.0), np.array([[10.0], [0.0]])) == [[2], [0]]


def test_a_large_offset_keeps_its_precision() -> None:
    X = 1.6e9 + np.array([[0.0], [0.5], [2.0]])
    assert scaled(X) == [[0], [0.25], [1]]
    assert scaled(X, X + 1) == [[0.5], [0.75], [1.5]]
    assert scaled(pd.DataFrame(X.astype(int)), pd.DataFrame(X)) == scaled(X)


@pytest.mark.parametrize("shape", [(3, 2, 2), (3, 1, 2, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_each_dot_of_a_picture_is_scaled_by_itself(shape: tuple[int, ...], dtype: Any) -> None:
    pictures = np.array([[0, 0, 7, 9], [50, 0, 7, 5], [200, 0, 7, 1]], dtype=dtype).reshape(shape)
    found = np.array(scaled(pictures))
    assert found.shape == shape
    assert found.reshape(3, 4).tolist() == [[0, 0, 1, 1], [0.25, 0, 1, 0.5], [1, 0, 1, 0]]


@pytest.mark.parametrize("X", [[[1, 2], [3, 6]], np.array([[1, 2], [3, 6]], order="F")])
def test_lists_and_arrays_of_any_order_are_read(X: Any) -> None:
    assert scaled(X) == [[0, 0], [1, 1]]


def test_a_table_of_all_kinds_becomes_named_numbers() -> None:
    assert Features.of(TABLE).columns == (
        *("age", "age is missing", "count", "count is missing", "member"),
        *("town is Bonn", "town is Rome", "size is L", "size is S"),
    )
    assert scaled(TABLE) == [
        [0, 0, 0, 0, 1, 0, 1, 0, 1],
        [0.25, 1, 1, 0, 0, 0, 0, 1, 0],
        [1, 0, 0.25, 1, 1, 1, 0, 0, 1],
        [0.25, 0, 0.25, 0, 1, 0, 1, 0, 0],
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "Int64", "Float64"])
def test_a_gap_gets_the_training_median_and_says_so(dtype: str) -> None:
    X = column(0, None, 1, 8, dtype=dtype)
    assert scaled(X) == [[0, 0], [0.125, 1], [0.125, 0], [1, 0]]
    assert scaled(X, column(None, 16, dtype=dtype)) == [[0.125, 1], [2, 0]]


def test_a_gap_among_truth_values_is_filled_too() -> None:
    X = column(True, None, True, False, dtype="boolean")
    assert scaled(X) == [[1, 0], [1, 1], [1, 0], [0, 0]]


WORDS = {
    "str": column("x", None, "y"),
    "object": column("x", None, "y", dtype=object),
    "string": column("x", None, "y", dtype="string"),
    "category": column("x", None, "y", dtype="category"),
    "numbers as categories": pd.DataFrame({"c": pd.Categorical([1, None, 2])}),
}


@pytest.mark.parametrize("X", WORDS.values(), ids=WORDS.keys())
def test_each_word_has_a_column_and_a_gap_is_all_zero(X: pd.DataFrame) -> None:
    assert scaled(X) == [[1, 0], [0, 0], [0, 1]]
    assert scaled(X, X[::-1]) == [[0, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_an_unknown_word_at_prediction_is_all_zero(dtype: Any) -> None:
    X, later = column("x", "y", dtype=dtype), column("z", "y", None, dtype=dtype)
    assert scaled(X, later) == [[0, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize("later", [column(1, NAN, 2, NAN), column(1, None, 2, None, dtype="Int64")])
def test_a_new_gap_is_refused_by_name_and_row(later: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"Column 'c' has no value in 2 rows \(1, 3\).* Fill"):
        scaled(column(1, 2), later)


@pytest.mark.parametrize("odd", [NAN, np.inf, -np.inf, 1e300, -1e300, 2.0**70])
@pytest.mark.parametrize("form", ["array", "picture", "table"])
def test_rows_that_cannot_be_predicted_are_told_and_the_others_can(odd: float, form: str) -> None:
    X = np.arange(16.0).reshape(4, 4)
    later = X.copy()
    later[1, 2] = odd
    if form == "picture":
        X, later = X.reshape(4, 2, 2), later.reshape(4, 2, 2)
    elif form == "table":
        X, later = pd.DataFrame(X), pd.DataFrame(later)
    features = Features.of(X)
    unusable = features.unusable_rows(later)
    assert unusable.tolist() == [False, True, False, False]
    assert len(features.rows(later[~unusable])) == 3
    with pytest.raises(InputError, match=r"in 1 rows \(1\)"):
        features.rows(later)


def test_gaps_that_training_knew_are_no_reason_to_leave_a_row_out() -> None:
    features = Features.of(TABLE)
    later = TABLE.assign(member=pd.array([True, None, False, True], dtype="boolean"))
    assert features.unusable_rows(TABLE).tolist() == [False] * 4
    assert features.unusable_rows(later).tolist() == [False, True, False, False]


def test_training_rows_that_span_more_than_a_float64_are_refused() -> None:
    with pytest.raises(InputError, match=r"spans more than a float64 can hold .*: 1\)"):
        Features.of(np.array([[0.0, 1e308], [1.0, -1e308]]))


DATES = pd.to_datetime(pd.Series(["2020-01-01", "2021-06-01"]))


@pytest.mark.parametrize("dates", [DATES, DATES.dt.tz_localize("UTC"), DATES - DATES[0]])
def test_dates_are_refused_in_training_and_later(dates: pd.Series) -> None:
    with pytest.raises(InputError, match=r"Column 'c' holds dates or times.* Drop it, or replace"):
        Features.of(pd.DataFrame({"c": dates}))
    with pytest.raises(InputError, match="Column 'c'"):
        scaled(column(1, 2), pd.DataFrame({"c": dates}))


def test_infinity_is_refused_by_name_and_row_in_training_and_later() -> None:
    for X, later in ((column(1, np.inf), None), (column(1, 2), column(3, -np.inf))):
        with pytest.raises(InputError, match=r"Column 'c' is infinite in 1 rows \(1\)"):
            scaled(X, later)


@pytest.mark.parametrize("dtype", [float, object, "string", "Int64", "category"])
def test_a_column_without_any_value_is_refused(dtype: Any) -> None:
    with pytest.raises(InputError, match=r"Column 'c' has no value in any row. Drop it"):
        Features.of(column(None, None, dtype=dtype))


def test_words_in_place_of_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"Column 'c' held numbers in training.* Convert"):
        scaled(column(1, 2), column("x", "y"))


@pytest.mark.parametrize("X", [np.eye(3), np.ones((2, 2, 2)), TABLE])
def test_rows_of_another_shape_are_refused(X: Any) -> None:
    with pytest.raises(InputError, match=r"shape \(2,\).* fitted with .* same form"):
        Features.of(X).rows(np.zeros((1, 2)))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="'c'"):
        Features.of(pd.DataFrame([[1, 2], [3, 4]], columns=["c", "c"]))


INPUTS = {
    "table": TABLE,
    "array": np.arange(6.0).reshape(3, 2),
    "columns without gaps": TABLE[["member"]],
    "columns named by numbers": pd.DataFrame([[1, NAN, "a"], [3, 4, "b"], [1, 2, "é"]]),
}


@pytest.mark.parametrize("X", INPUTS.values(), ids=INPUTS.keys())
def test_the_input_is_never_modified(X: Any) -> None:
    before = copy.deepcopy(X)
    scaled(X)
    pd.testing.assert_frame_equal(pd.DataFrame(X), pd.DataFrame(before))


def test_an_array_that_cannot_be_written_is_read() -> None:
    X = np.arange(6.0).reshape(3, 2)
    X.flags.writeable = False
    assert scaled(X) == [[0, 0], [0.5, 0.5], [1, 1]]


@pytest.mark.parametrize("X", [*INPUTS.values(), np.arange(8).reshape(2, 2, 2)])
def test_json_gives_back_equal_features(X: Any) -> None:
    features = Features.of(X)
    again = Features.from_json(json.loads(json.dumps(asdict(features))))
    assert again == features
    assert again.rows(X).pool.equal(features.rows(X).pool)


def test_numbers_as_text_are_refused_with_what_is_odd_in_them() -> None:
    ages = pd.DataFrame({"age": ["31", "42", "?", "55"]})
    with pytest.raises(InputError, match=r"'age' holds numbers as text, but for '\?'.*to_numeric"):
        Features.of(ages)
    assert Features.of(ages.astype("category")).columns[0] == "age is 31"


def test_a_column_that_names_rows_is_refused() -> None:
    names = pd.DataFrame({"id": [f"row-{number}" for number in range(60)]})
    with pytest.raises(InputError, match=r"'id' has 60 different words in 60 rows.* Drop it"):
        Features.of(names)
    assert len(Features.of(names.astype("category")).columns) == 60


def test_lists_in_cells_are_refused() -> None:
    with pytest.raises(InputError, match="'tags' holds lists"):
        Features.of(pd.DataFrame({"tags": [["a"], ["a", "b"]]}))


def test_truth_values_as_objects_are_numbers() -> None:
    table = pd.DataFrame({"c": pd.Series([False, None, True], dtype=object)})
    assert scaled(table) == [[0, 0], [0.5, 1], [1, 0]]
