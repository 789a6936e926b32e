"""Answers in any form become shares, candidates and a prior; class names may be changed."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustpll import Candidates, InputError, Not, Sure, Unsure, Votes, label_variants
from robustpll.labels.spelling import read_names, renaming
from robustpll.tables.source import safe_csv

NAMES = ["a", "b", "c"]
REST: list[Any] = ["a", "b", "c"]  # rows that name every class


def share(answer: Any) -> list[float]:
    """The prior of a row with this answer, if a, b and c are the classes."""
    votes = Votes([[answer], *([name] for name in NAMES)])
    return Candidates.of(votes).prior[0].round(4).tolist()


@pytest.mark.parametrize(
    ("answer", "prior"),
    [
        ("b", [0, 1, 0]),
        ({"a", "c"}, [0.5, 0, 0.5]),
        (["a", "c"], [0.5, 0, 0.5]),
        (("b",), [0, 1, 0]),
        (np.array(["a", "b"]), [0.5, 0.5, 0]),
        (Not("a"), [0, 0.5, 0.5]),
        (Not("a", "b"), [0, 0, 1]),
        (Sure("a", 0.6), [0.6, 0.2, 0.2]),
        (Sure("a", 1), [1, 0, 0]),
        ({"a": 0.75, "b": 0.25, "c": 0.0}, [0.75, 0.25, 0]),
        ({"a": np.float32(1)}, [1, 0, 0]),
        (Unsure(), [0.3333] * 3),
    ],
)
def test_an_answer_is_spread_over_classes(answer: Any, prior: list[float]) -> None:
    assert share(answer) == pytest.approx(prior)


some_answers = st.one_of(
    st.sampled_from(NAMES),
    st.none(),
    st.frozensets(st.sampled_from(NAMES), min_size=1),
    st.builds(Not, st.sampled_from(NAMES)),
    st.builds(Sure, st.sampled_from(NAMES), st.floats(0.1, 1)),
    st.just(Unsure()),
    st.lists(st.floats(0.1, 1), min_size=3, max_size=3).map(
        lambda p: dict(zip(NAMES, (np.array(p) / sum(p)).tolist(), strict=True))
    ),
)
tables = st.lists(st.tuples(some_answers, some_answers), min_size=1, max_size=8)


@settings(max_examples=100)
@given(tables)
def test_shares_counts_codes_and_candidates_agree(rows: list[Any]) -> None:
    table = [*rows, *([name, None] for name in NAMES)]
    votes = Votes(table, unanswered="all classes")
    shares, names = votes.shares()
    codes, same_names = votes.codes()
    assert names.tolist() == same_names.tolist() == NAMES
    dense = shares.toarray().reshape(len(table), 2, 3)
    np.testing.assert_allclose(dense.sum(1), votes.table()[0], atol=1e-12)
    total = dense.sum(-1)
    assert np.isclose(total, 0).__or__(np.isclose(total, 1)).all()  # an answer counts once
    assert (dense[codes >= 0] == np.eye(3)[codes[codes >= 0]]).all()
    y = Candidates.of(votes)
    says = dense.any((1, 2))
    assert (y.matrix[says] == (dense[says].sum(1) > 0)).all()
    assert y.matrix[~says].all()
    np.testing.assert_allclose(y.prior.sum(-1), 1, rtol=1e-5)
    order = ["c", "a", "d", "b"]
    assert np.array_equal(votes.counts(np.array(order))[:, [1, 3, 0]] > 0, votes.table()[0] > 0)


def test_classes_that_nobody_names_are_left_by_not_and_sure() -> None:
    y = Candidates.of(Votes([[Not("a")], [Sure("a", 0.7)], ["a"]]), classes=[*"abcd"])
    assert y.prior.round(3).tolist() == [
        pytest.approx(row, abs=1e-3)
        for row in ([0, 1 / 3, 1 / 3, 1 / 3], [0.7, 0.1, 0.1, 0.1], [1, 0, 0, 0])
    ]
    with pytest.raises(InputError, match=r"about 'a', 'b' leaves no other class.*classes="):
        Candidates.of(Votes([[Not("a", "b")]]))


def test_someone_who_cannot_tell_has_answered() -> None:
    votes = Votes([["a", "?"], ["?", "?"], ["b", "a"]], unsure="?")
    assert votes.codes()[0].tolist() == [[0, -1], [-1, -1], [1, 0]]
    assert Candidates.of(votes).prior[1].tolist() == [0.5, 0.5]
    with pytest.raises(InputError, match="no answer in 1 row"):
        Votes([["a", "b"], [None, None]], unsure="?").codes()
    numbers = Votes(np.array([[0, 9], [1, -1]]), missing=-1, unsure=9)
    assert numbers.codes()[0].tolist() == [[0, -1], [1, -1]]


def test_answers_that_are_never_certain_are_sets_without_annotators() -> None:
    assert Candidates.of(Votes([[{"a", "b"}], [{"b", "c"}]])).answers is None
    assert Candidates.of(Votes([[{"a", "b"}], ["b"]])).answers is not None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Not, "excludes no class"),
        (lambda: Not(["a"]), "class name is a string"),
        (lambda: Sure("a", 0), "confidence must be a number above 0"),
        (lambda: Sure("a", 1.5), "at most 1"),
        (lambda: Sure("a", float("nan")), "at most 1"),
        (lambda: Sure(["a"], 0.5), "class name is a string"),
        (lambda: share({"a": 0.5, "b": 0.6}), "with the sum 1"),
        (lambda: share({"a": -0.5, "b": 1.5}), "from 0 to 1"),
        (lambda: share({"a": "much"}), "from 0 to 1"),
        (lambda: share({"a", None}), r"missing class name in 1 row \(0\)"),
        (lambda: share([["a"]]), "class name is a string"),
        (lambda: share({"a", 3}), "int, str"),
    ],
)
def test_answers_that_cannot_be_read_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@given(st.permutations(range(6)))
def test_a_long_table_is_the_wide_one_in_any_order(order: list[int]) -> None:
    long = [("x", "ann", "a"), ("x", "bob", "b"), ("y", "bob", "b"), ("z", "ann", "c"),
            ("z", "bob", None), ("y", "eve", {"a", "c"})]  # fmt: skip
    items, people, labels = zip(*(long[i] for i in order), strict=True)
    votes = Votes.long(items, people, labels)
    assert votes.items.tolist() == [*dict.fromkeys(items)]
    assert votes.annotators == (*dict.fromkeys(people),)
    wide = pd.DataFrame(
        {"ann": ["a", None, "c"], "bob": ["b", "b", None], "eve": [None, {"a", "c"}, None]},
        index=[*"xyz"],
    )
    wide = wide.loc[votes.items, [*votes.annotators]]
    assert Candidates.of(votes) == Candidates.of(Votes(wide))
    assert np.array_equal(votes.codes()[0], Votes(wide).codes()[0])
    assert votes[[1]].items.tolist() == [votes.items[1]]


def test_two_answers_of_one_annotator_are_refused_or_joined_by_request() -> None:
    long: Any = (["x", "x", "y", "x"], ["ann"] * 4, ["a", "b", "c", "b"])
    with pytest.raises(InputError, match=r"'ann' answers 'a' and 'b' about item 'x'.*'last'"):
        Votes.long(*long)
    assert Votes.long(*long, duplicates="last").codes()[0].tolist() == [[0], [1]]
    y = Candidates.of(Votes.long(*long, duplicates="set"))
    assert y.sets() == [{"a", "b"}, {"c"}]
    assert Votes.long([1, 1], ["ann"] * 2, ["a", "a"]).shape == (1, 1)
    arrays = Votes.long([1, 2, 2], [*"uvu"], ["a", np.array(["a", "b"]), ["c"]])
    assert Candidates.of(arrays).sets() == [{"a"}, {"a", "b", "c"}]
    for odd in (Not("a"), {"a": 0.5, "b": 0.5}, Unsure()):
        with pytest.raises(InputError, match="Delete one"):
            Votes.long([1, 1], ["u", "u"], ["a", odd], duplicates="set")
    with pytest.raises(InputError, match="duplicates='first'"):
        Votes.long(*long, duplicates="first")  # type: ignore[arg-type]


def test_confidences_of_a_long_table() -> None:
    votes = Votes.long([1, 2, 3], [*"uvu"], [*"aba"], [0.5, np.nan, 1.0])
    assert Candidates.of(votes).prior.tolist() == [[0.5, 0.5], [0, 1], [1, 0]]
    for confidences in ([0.5, 50, 1], [0, 1, 1]):
        with pytest.raises(InputError, match=r"confidence .* in 1 row .*percentages"):
            Votes.long([1, 2, 3], [*"uvu"], [*"aba"], confidences)
    with pytest.raises(InputError, match="'set' and confidences"):
        Votes.long([1], ["u"], ["a"], [0.5], duplicates="set")
    with pytest.raises(InputError, match="equal lengths"):
        Votes.long([1, 2], ["u"], ["a"])
    with pytest.raises(InputError, match="no item or annotator in 1 row"):
        Votes.long([1, None], ["u", "v"], ["a", "b"])


def test_a_confidence_is_ignored_where_an_answer_names_no_class() -> None:
    long: Any = (["x", "x", "y", "y"], [*"uvuv"], ["a", "hm", "b", "?"], [1, 0.5, 1, 0])
    votes = Votes.long(*long, unsure="hm", missing="?")
    assert votes.named_in() == {"a": 1, "b": 1}
    assert Candidates.of(votes).prior.tolist() == [[1, 0], [0, 1]]


UNLABELLED: list[Any] = [
    ["a", None, "b"],
    ["a", "", "b"],
    ["a", float("nan"), "b"],
    [{"a"}, set(), {"b"}],
    [{"a"}, None, {"b"}],
    pd.Series(["a", pd.NA, "b"]),
]


@pytest.mark.parametrize("y", UNLABELLED)
def test_rows_without_labels_take_part_by_request(y: Any) -> None:
    with pytest.raises(InputError):
        Candidates.of(y)
    candidates = Candidates.of(y, unanswered="all classes")
    assert candidates.prior.tolist() == [[1, 0], [0.5, 0.5], [0, 1]]
    more = Candidates.of(y, unanswered="all classes", classes=[*"abcd"])
    assert more.prior[1].tolist() == [0.25] * 4


def test_a_number_may_mean_no_label() -> None:
    y = np.array([-1, 2, 7])
    assert Candidates.of(y).classes.tolist() == [-1, 2, 7]
    assert Candidates.of(y, missing=-1, unanswered="all classes").classes.tolist() == [2, 7]
    with pytest.raises(InputError, match=r"no label in 1 row \(0\).*unanswered='all classes'"):
        Candidates.of(y, missing=-1)
    with pytest.raises(InputError, match="'error' or 'all classes'"):
        Candidates.of(y, unanswered="drop")  # type: ignore[arg-type]
    unlabelled = Candidates.of([None, None], unanswered="all classes", classes=["a", "b"])
    assert unlabelled.matrix.all()


MAP = {"A": "a", "?": None}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A", "a"),
        ("?", None),
        ({"A", "a"}, "a"),
        ({"A", "?"}, "a"),
        ({"A", "b"}, {"a", "b"}),
        (Not("A"), Not("a")),
        (Not("?"), None),
        (Sure("A", 0.5), Sure("a", 0.5)),
        ({"A": 0.25, "a": 0.25, "b": 0.5}, {"a": 0.5, "b": 0.5}),
        ({"A": 0.25, "?": 0.75}, "a"),
        (Unsure(), Unsure()),
        (None, None),
    ],
)
@pytest.mark.filterwarnings("ignore:mapping names")
def test_names_in_all_forms_of_answers_may_be_changed(before: Any, after: Any) -> None:
    rows = [[name, None] for name in "abc"]
    table = pd.DataFrame([["a", before], *rows], columns=["u", "v"])
    new = Votes(table).renamed(MAP)
    assert Candidates.of(new) == Candidates.of(Votes([["a", after], *rows]))
    assert new.annotators == ("u", "v")


def test_a_new_name_for_no_answer_is_warned_of_and_other_mappings_are_refused() -> None:
    votes = Votes([["a", Not("b")], [{"c", "a"}, -1], ["d", "?"]], missing=-1, unsure="?")
    with pytest.warns(UserWarning, match=r"nobody answered \('zzz'\)"):
        votes.renamed({"zzz": "a", "a": "b", "b": "c", "c": "d", "d": "a", -1: "a", "?": None})
    odd: Any
    for odd in ("a", 3, None, ["a"]):
        with pytest.raises(InputError, match=r"mapping=.* must be a dict"):
            votes.renamed(odd)
    assert votes.renamed(pd.Series({"d": "a"})).answers[2, 0] == "a"


def test_variants_are_proposed_and_nothing_is_merged() -> None:
    votes = Votes([["Cat ", "cat"], ["cat", Not("Cat ")], ["dog", "n/a"]])
    variants = label_variants(votes)
    assert variants.groups == ({"cat": 2, "Cat ": 1},)
    assert variants.mapping == {"Cat ": "cat", "n/a": None}
    assert votes.codes()[1].tolist() == ["Cat ", "cat", "dog", "n/a"]
    assert not label_variants(votes.renamed(variants.mapping))
    assert label_variants(Candidates.of(["x", "X"])).mapping == {"x": "X"}
    assert label_variants([{"x", "X"}, frozenset({"x"}), ["y"], "X"]).groups == ({"X": 2, "x": 2},)
    assert not label_variants([1, 2, None, 1])
    frame = pd.DataFrame({"ann": ["Cat ", "cat", None], "bob": ["cat", "dog", "n/a"]})
    assert label_variants(frame) == label_variants(frame.to_numpy().ravel().tolist()) == variants


@given(st.dictionaries(st.text(max_size=4), st.integers(1, 9), max_size=8))
def test_folding_keeps_the_most_frequent_form_and_is_final(counts: dict[str, int]) -> None:
    fold = renaming({}, counts)
    for name, count in counts.items():
        new = fold(name)
        assert new is None or fold(new) == new
        assert not name or counts[new] >= count


def test_a_file_of_names_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"

    def read(text: str) -> dict[Any, Any]:
        path.write_text(text, encoding="utf-8")
        return read_names(path)

    assert read("from,to\nCat,cat\n?,\n'=x,x\n") == {"Cat": "cat", "?": None, "=x": "x"}
    assert read("\ufefffrom,to\nb,b\na,b\n") == {"b": "b", "a": "b"}
    odd = ["=x", "'=x", "--", "＝x", "\tx", "'x", "a,b", 'a"b', "\nx"]
    frame = pd.DataFrame({"from": odd, "to": [*map(str, range(len(odd)))]})
    assert [*read(safe_csv(frame, index=False))] == odd
    assert read_names(None) == {}
    for text, message in (
        ("old,new\na,b\n", "columns from and to"),
        ("from,to\na,b\na,c\n", "'a' twice"),
        ("from,to\na,b\nb,c\n", "'b', which is renamed, too"),
        ("from,to\na\n", "columns from and to"),
        ('from,to\n"a,b\n', "columns from and to"),
    ):
        with pytest.raises(InputError, match=message):
            read(text)
    with pytest.raises(InputError, match="columns from and to"):
        read_names(tmp_path / "absent.csv")


def test_rows_of_zeros_get_all_classes_if_asked() -> None:
    matrix = np.array([[1, 0], [0, 1], [0, 0]])
    for y in (matrix, pd.DataFrame(matrix, columns=["a", "b"])):
        candidates = Candidates.of(y, unanswered="all classes")
        np.testing.assert_array_equal(candidates.prior, [[1, 0], [0, 1], [0.5, 0.5]])
        with pytest.raises(InputError, match="no candidate class"):
            Candidates.of(y)


def test_the_same_names_as_text_and_as_numbers_are_told_apart() -> None:
    with pytest.raises(InputError, match="as text, but the classes are numbers"):
        Candidates.of(["0", "1"], classes=[0, 1])
