"""Every form of y becomes the same candidates, and what cannot be read is refused by row."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    check_cv,
    train_test_split,
)
from sklearn.utils import resample, shuffle

from robustpll import Candidates, InputError, Votes

NAMES = ["bird", "cat", "dog"]
MATRIX = np.array([[0, 1, 0], [0, 1, 1], [1, 1, 1]])
SETS = [{"cat"}, {"cat", "dog"}, {"bird", "cat", "dog"}]
LISTS = [sorted(names) for names in SETS]
FRAME = pd.DataFrame(MATRIX, columns=NAMES)
NAN, GAP = float("nan"), pd.NA

MATRICES: dict[str, Any] = {
    "integers": MATRIX,
    "floats": MATRIX.astype(float),
    "bool": MATRIX.astype(bool),
    "objects": MATRIX.astype(object),
    "csr array": sparse.csr_array(MATRIX),
    "coo array": sparse.coo_array(MATRIX),
    "coo matrix of bool": sparse.coo_matrix(MATRIX.astype(bool)),
}
NAMED: dict[str, Any] = {
    "frame": FRAME,
    "frame of nullable integers": FRAME.astype("Int64"),
    "frame of both": FRAME.astype({"cat": bool}),
    "sets": SETS,
    "lists": LISTS,
    "tuples in another order": [tuple(names[::-1]) for names in LISTS],
    "object array of sets": np.array(SETS, dtype=object),
    "series of sets": pd.Series(SETS, index=[7, 7, 0]),
    "series of arrays": pd.Series([np.array(names) for names in LISTS]),
    "table of pyarrow": pa.Table.from_pandas(FRAME),
    "votes": Votes([["cat"] * 6, ["cat", "dog"] * 3, NAMES * 2]),
    "candidates": Candidates.of(SETS),
}
LABELS: dict[str, tuple[Any, list[Any]]] = {
    "str": (["b", "a", "b"], ["a", "b"]),
    "object": (np.array(["b", "a", "b"], dtype=object), ["a", "b"]),
    "series of str": (pd.Series(["b", "a", "b"], index=[4, 4, 2]), ["a", "b"]),
    "categorical": (pd.Categorical(["b", "a", "b"], categories=["b", "a", "unused"]), ["a", "b"]),
    "int": ([7, 3, 7], [3, 7]),
    "float": (np.array([7.0, 3.0, 7.0]), [3, 7]),
    "nullable": (pd.Series([7, 3, 7], dtype="Int64"), [3, 7]),
    "bool": ([True, False, True], [False, True]),
}
ANSWERS = [["a", "b", None], ["b", "b", "b"], ["b", None, "a"]]
NUMBERS = np.array([[0, 1, -1], [1, 1, 1], [1, -1, 0]])
VOTES: dict[str, Votes] = {
    "lists": Votes(ANSWERS),
    "frame": Votes(pd.DataFrame(ANSWERS)),
    "pandas.NA": Votes(pd.DataFrame(ANSWERS, dtype="string")),
    "NaN": Votes([[NAN if name is None else name for name in row] for row in ANSWERS]),
    "empty string": Votes(np.array([[name or "" for name in row] for row in ANSWERS])),
    "another word": Votes([[name or "?" for name in row] for row in ANSWERS], missing="?"),
    "integers": Votes(NUMBERS, missing=-1),
    "floats": Votes(np.where(NUMBERS < 0, np.nan, NUMBERS)),
    "nullable integers": Votes(pd.DataFrame(NUMBERS, dtype="Int64").replace(-1, GAP)),
}

some_sets = st.lists(st.frozensets(st.integers(0, 5), min_size=1), min_size=1, max_size=20)


def cases(table: dict[str, Any]) -> list[Any]:
    """Named parameters; a tuple is several arguments."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), id=name)
        for name, value in table.items()
    ]


@pytest.mark.parametrize("y", cases(MATRICES) + cases(NAMED))
def test_every_form_gives_the_same_candidates(y: Any) -> None:
    names = {"classes": NAMES} if any(y is matrix for matrix in MATRICES.values()) else {}
    candidates = Candidates.of(y, **names)
    assert candidates == Candidates.of(SETS)
    assert (candidates.matrix.dtype, candidates.prior.dtype) == (np.bool_, np.float32)
    assert not names or Candidates.of(y).classes.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("y", "classes"), cases(LABELS))
def test_a_label_is_the_only_candidate_of_its_row(y: Any, classes: list[Any]) -> None:
    candidates = Candidates.of(y)
    assert candidates.classes.tolist() == classes
    assert candidates.prior.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert (candidates.matrix == candidates.prior).all()


def test_whole_numbers_of_any_type_are_integer_names() -> None:
    for y in ([{3}, {7, 3}], [{3.0}, {7.0, 3.0}], [{np.int8(3)}, {7, 3}]):
        assert Candidates.of(y).sets() == [{3}, {3, 7}]
        assert Candidates.of(y).classes.dtype == np.int64


@pytest.mark.parametrize("votes", cases(VOTES))
def test_shares_of_votes_are_the_prior(votes: Votes) -> None:
    candidates = Candidates.of(votes)
    assert candidates.prior.tolist() == [[0.5, 0.5], [0, 1], [0.5, 0.5]]
    assert (candidates.matrix == (candidates.prior > 0)).all()


def test_an_unanswered_row_may_have_any_class() -> None:
    votes = Votes([["a", "a"], [None, None], ["b", "a"]], unanswered="all classes")
    assert Candidates.of(votes, classes=list("abcd")).prior[1].tolist() == [0.25] * 4


@settings(max_examples=30)
@given(some_sets, st.permutations(range(6)))
def test_sets_become_a_matrix_and_sets_again_in_any_order_of_classes(
    sets: list[frozenset[int]], order: list[int]
) -> None:
    candidates, other = (Candidates.of(sets, classes=names) for names in (range(6), order))
    assert candidates.sets() == other.sets() == sets
    assert candidates.sizes.tolist() == [len(names) for names in sets]
    assert Candidates.of(candidates.matrix) == candidates
    assert Candidates.of(sparse.coo_array(candidates.matrix)) == candidates
    assert ((candidates.prior > 0) == candidates.matrix).all()
    np.testing.assert_allclose(candidates.prior.sum(-1), 1, rtol=1e-6)
    assert np.array_equal(other.matrix, candidates.matrix[:, order])
    assert np.array_equal(other.prior, candidates.prior[:, order])
    assert Candidates.of(candidates, classes=order) == other


def test_columns_follow_their_names_and_further_classes_have_no_candidates() -> None:
    assert Candidates.of(FRAME, classes=NAMES[::-1]).sets() == SETS
    more = Candidates.of(Candidates.of(SETS), classes=["emu", *NAMES])
    assert more == Candidates.of(SETS, classes=["emu", *NAMES])
    assert not more.matrix[:, 0].any()
    assert Candidates.of(more, classes=NAMES) == Candidates.of(SETS)  # no row has an emu


REFUSED: dict[str, tuple[Any, str]] = {
    "None": (None, "y is None: pass candidates"),
    "a str": ("cat", "y is a str.* pass a list"),
    "a set": ({"cat", "dog"}, "y is a set.* pass a list"),
    "a number": (3, r"shape \(\)"),
    "3-d": (np.zeros((2, 2, 2)), r"0/1 matrix of shape \(n, k\).* shape \(2, 2, 2\)"),
    "1-d sparse": (sparse.coo_array(np.array([0, 1, 1])), r"shape \(3,\)"),
    "empty set": ([{"a"}, set(), {"b"}, []], r"no candidate class in 2 rows \(1, 3\).* drop"),
    "empty row": (np.array([[0, 1], [0, 0]]), r"no candidate class in 1 row \(1\)"),
    "NaN in a matrix": (np.array([[0, 1], [NAN, 1]]), r"has nan in 1 row \(1\).* Correct"),
    "gap in a frame": (FRAME.astype("Int64").replace(0, GAP), r"has nan in 2 rows \(0, 1\)"),
    "no 0/1 matrix": (MATRIX + 1, r"has 2 in 3 rows \(0, 1, 2\).* Votes\(y\)"),
    "matrix of names": (np.array([["a", "b"], ["b", "b"]]), r"matrix of names.* Votes\(y\)"),
    "matrix of digits": (MATRIX.astype(str), r"matrix of names.* Votes\(y\)"),
    "0/1 lists": ([[0, 1], [1, 0]], r"lists of 0 and 1.* numpy\.asarray\(y\).* Votes\(y\)"),
    "a name twice": ([["a"], ["b", "b"]], r"names a class twice in 1 row \(1\).* Votes\(y\)"),
    "one label class": (["a", "a"], r"1 class \(a\): at least 2.* classes="),
    "two columns of one name": (FRAME[["cat", "cat"]], "distinct names.*'cat', 'cat'"),
    "sets and labels": ([{"a"}, "b", {"a"}, 3], r"none in 2 rows \(1, 3\).* \{label\}"),
    "sets and gaps": (pd.Series([{"a"}, NAN]), r"none in 1 row \(1\)"),
    "nested lists": ([["a"], [["b"], ["c"]]], r"y holds .*'b'.* but a class name is"),
    "None in a set": ([{"a"}, {"b", None}], r"missing class name in 1 row \(1\).* Leave"),
    "empty name": ([{"cat"}, {"dog", ""}], r"missing class name in 1 row \(1\)"),
    "names of two types": ([{"a"}, {1}], "int, str.* strings, or all integers.* Convert"),
    "labels of two types": (["a", 1], "int, str.* strings, or all integers.* Convert"),
    "fractions in sets": ([{1.5}, {2.0}], "float.* strings, or all integers.* Convert"),
    "label None": (["a", None, "b", None], r"no label in 2 rows \(1, 3\).* Drop"),
    "label NaN": (np.array([1.0, NAN]), r"NaN.* 1 row \(1\).* Drop"),
    "label NA": (pd.Series([1, None, 2], dtype="Int64"), r"NaN.* 1 row \(1\).* Drop"),
    "label inf": (np.array([1.0, np.inf]), r"infinity in 1 row \(1\)"),
    "ragged votes": (
        Votes([["a", "b"], ["a"]]),
        r"too few answers in 1 row \(1\).* one answer or None",
    ),
    "flat votes": (Votes(np.array(["a", "b"])), "shape .n, annotators.* label vector"),
    "votes of one class": (Votes([["a", "a"], ["a", None]]), "at least 2.* classes="),
    "unanswered": (
        Votes([["a", "b"], [None, ""]]),
        r"no answer in 1 row \(1\).* unanswered='all classes'",
    ),
    "odd option": (Votes([["a", "b"]], unanswered="drop"), "'error' or 'all classes'"),  # type: ignore[arg-type]
    "text NaN": (np.array(["cat", NAN, "dog"]), "turned into text"),
    "text of sets": (["{'cat', 'dog'}", "{'cat'}"], "turned into text"),
    "empty label": (["cat", "", "dog"], r"no label in 1 row \(1\)"),
    "long label": (["x" * 10_001, "y"], r"begins with 'x{40}' has 10,001 characters"),
    "many long names": (
        [{"x" * 9000, *map(str, range(10_000))}, {"1"}],
        r"among 10,001 .* Shorten",
    ),
    # numpy drops a NUL at the end of a string, so that two classes would become one
    "NUL in a set": ([{"x\0"}, {"x"}], "holds a NUL character"),
    "NUL as a label": (["\0", "x"], "holds a NUL character"),
    "NUL in votes": (Votes([["x\0", "x"], ["x", None]]), "holds a NUL character"),
    "NUL in a column": (pd.DataFrame({"x\0": [1, 0], "x": [0, 1]}), "holds a NUL character"),
}


@pytest.mark.parametrize(("y", "message"), cases(REFUSED))
def test_what_cannot_be_read_is_refused_by_row_and_with_a_remedy(y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Candidates.of(y)


UNKNOWN = r"unknown classes \(z\) in 1 row \(1\).* classes="
ODD_CLASSES = [["a", "a"], ["a"], [["a", "b"]], "ab", {"a", "b"}, ["a", None], ["a", NAN], ["a", 1]]


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (["a", "z"], ["a", "b"], UNKNOWN),
        ([{"a"}, {"b", "z"}], ["a", "b"], UNKNOWN),
        (Votes([["a", "a"], ["z", None]]), ["a", "b"], UNKNOWN),
        (MATRIX, ["cat", "dog"], "3 columns.* 2 classes"),
        (sparse.csr_array(MATRIX), ["cat", "dog"], "3 columns.* 2 classes"),
        (FRAME, ["cat", "dog"], "unknown classes"),
        *((["a", "a"], classes, "class") for classes in (*ODD_CLASSES, ["a", "y", "y\0"])),
    ],
)
def test_classes_are_two_distinct_names_or_more_and_y_has_no_others(
    y: Any, classes: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Candidates.of(y, classes=classes)


@pytest.mark.parametrize("separator", "|;,")
def test_a_name_made_of_other_names_is_warned_of(separator: str) -> None:
    with pytest.warns(UserWarning, match="made of other class names.* split it"):
        Candidates.of(["cat", "dog", f"cat{separator} dog"])


SETS_AS_TEXT = ["a{0}b a{0}c b{0}c", "a{0}b b{0}a", "a a{0}b b{0}d d", "a{0}b{0}c a{0}c{0}d b{0}d"]
PLAIN = ["Smith{0}John Smith{0}Ann Jones{0}John Jones{0}Ann", "a{0}b b{0}c", "a{0}b c",
         "Rome{0}Italy Bonn{0}Germany Italy", "a{0}x b{0}y c{0}b"]  # fmt: skip


@pytest.mark.parametrize("separator", "|;,")
@pytest.mark.parametrize("text", [*SETS_AS_TEXT, *PLAIN])
def test_names_whose_parts_recur_at_other_places_are_warned_of(text: str, separator: str) -> None:
    names = text.format(separator).split()
    rows: Any
    for rows in (names, pd.Series(names), [{name} for name in names]):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert Candidates.of(rows).classes.tolist() == sorted(names)
        assert len(told) == (text in SETS_AS_TEXT)


SPLIT = cases(
    {
        "candidates": Candidates.of([{"a", "b"}, {"a"}, {"b"}, {"b"}, {"a", "b"}, {"a"}]),
        "votes in lists": Votes([*ANSWERS, *ANSWERS]),
        "votes in a frame": Votes(pd.DataFrame([*ANSWERS, *ANSWERS], index=[3] * 6)),
        "votes with an option": Votes(np.vstack([NUMBERS, NUMBERS]), missing=-1),
    }
)
MASK = [True, False, True, True, False, False]


@pytest.mark.parametrize("y", SPLIT)
@pytest.mark.parametrize(
    "rows", [slice(1, 4), np.array([4, 0, 4]), [5, 2], np.array(MASK), MASK, []]
)
def test_an_index_takes_rows_and_keeps_the_kind(y: Any, rows: Any) -> None:
    part, whole = y[rows], Candidates.of(y)
    assert type(part) is type(y)
    assert Candidates.of(part, classes=whole.classes) == whole[rows]
    for row in (2, -1, np.int64(2)):
        assert y[row].shape == (1, y.shape[1])  # one row stays a row


@pytest.mark.parametrize("y", SPLIT)
def test_scikit_learn_splits_rows_and_candidates_together(y: Any) -> None:
    names = Candidates.of(y).classes
    X_train, X_test, y_train, y_test = train_test_split(np.arange(6), y, random_state=0)
    pairs = [(X_train, y_train), (X_test, y_test)]
    pairs += [draw(np.arange(6), y, random_state=0) for draw in (shuffle, resample)]
    for X, part in pairs:
        assert Candidates.of(part, classes=names) == Candidates.of(y)[X]
    for splitter in (KFold(3), ShuffleSplit(3, random_state=0)):
        for train, test in splitter.split(np.zeros((6, 1)), y):
            assert len(y[train]) + len(y[test]) == len(y) == 6
    # a search may give the number alone
    expected = StratifiedKFold if isinstance(y, Candidates) else KFold
    assert isinstance(check_cv(3, y, classifier=True), expected)


def test_candidates_as_an_array_are_their_matrix_and_do_not_change_with_y() -> None:
    y = MATRIX.astype(bool)
    candidates = Candidates.of(y)
    y[:] = False
    assert candidates == Candidates.of(MATRIX)
    assert np.asarray(candidates).dtype == bool
    assert np.asarray(candidates, dtype=float).tolist() == MATRIX.tolist()
    assert repr(candidates) == "Candidates(3 rows, 3 classes, 2.00 candidates on average)"
    assert repr(candidates[:0]) == "Candidates(0 rows, 3 classes, no candidates on average)"


def test_candidates_differ_by_matrix_names_and_prior() -> None:
    others = (
        Candidates.of([*SETS[:2], {"bird", "cat"}], classes=NAMES),
        Candidates.of(MATRIX),
        Candidates.of(Votes([["cat"] * 4, ["cat", "dog"] * 2, ["cat", *NAMES]])),
        Candidates.of(SETS)[:2],
        MATRIX.astype(bool),
    )
    assert all(Candidates.of(SETS) != other for other in others)


def test_a_table_of_one_column_is_a_label_vector() -> None:
    with pytest.warns(DataConversionWarning, match="one label per row"):
        y = Candidates.of(pd.DataFrame({"label": ["a", "b"]}))
    assert y.sets() == [frozenset({"a"}), frozenset({"b"})]
