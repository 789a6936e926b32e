"""Long tables and exports of labelling tools: read unchanged, and given back with predictions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from robustpll import Candidates, InputError, Table, Votes, read_table
from robustpll.cli import app
from robustpll.tables.exports import ExportFile
from robustpll.tables.source import Reading

Write = Callable[..., Path]


def task(number: int, *annotations: Any, **data: Any) -> dict[str, Any]:
    """A task as Label Studio exports it; an annotation is (annotator, choices)."""
    return {
        "id": number,
        "annotations": [
            {
                "id": 10 * number,
                "completed_by": who,
                "result": [choice(names)] if isinstance(names, list) else names["result"],
                "was_cancelled": False,
                "ground_truth": False,
                "created_at": "2024-06-23T00:00:01.036300Z",
                "lead_time": 4.3,
                "result_count": 1,
                "task": number,
            }
            | ({} if isinstance(names, list) else names)
            for who, names in annotations
        ],
        "file_upload": "x.json",
        "drafts": [],
        "predictions": [],
        "data": data,
        "meta": {},
        "project": 1,
        "inner_id": number,
    }


def choice(names: list[str], question: str = "animal", **value: Any) -> dict[str, Any]:
    return {
        "value": {"choices": names, **value},
        "id": "gew3t9fgkg",
        "from_name": question,
        "to_name": "photo",
        "type": "choices",
        "origin": "manual",
    }


EVE = {"id": 3, "email": "eve@x.org", "first_name": "", "last_name": ""}
TASKS = [
    task(7, (1, ["cat"]), (EVE, ["cat", "dog"]), weight=4.5, town="Rome", tags=["a"]),
    task(8, (1, ["dog"]), (EVE, {"was_cancelled": True, "result": []}), weight=30, town=None),
    task(9, (EVE, ["dog"]), weight=None, town="Bonn", tags=None),
]
RECORDS = [
    {
        "id": "r1",
        "fields": {"town": "Rome"},
        "metadata": {"weight": 4.5},
        "suggestions": {"tone": {"value": "calm", "score": None, "agent": None}},
        "responses": {
            "animal": [
                {"value": "cat", "user_id": "1", "status": "submitted"},
                {"value": ["cat", "dog"], "user_id": "eve@x.org", "status": "submitted"},
            ]
        },
        "vectors": {},
        "status": "completed",
        "_server_id": "d757be49",
    },
    {
        "id": "r2",
        "fields": {"town": None},
        "metadata": {"weight": 30},
        "suggestions": [{"question_name": "animal", "value": "cat", "score": 0.5, "agent": "old"}],
        "responses": [
            {"user_id": "1", "status": "submitted", "values": {"animal": {"value": "dog"}}},
            {"user_id": "eve@x.org", "status": "draft", "values": {"animal": {"value": "cat"}}},
        ],
    },
    {
        "id": "r3",
        "fields": {"town": "Bonn"},
        "metadata": {"weight": None},
        "responses": [{"question_name": "animal", "value": "dog", "user_id": "eve@x.org"}],
    },
]
ROWS = [
    {"id": 1, "text": "-", "weight": 4.5, "town": "Rome", "label": ["cat"], "username": "1"},
    {"id": 1, "text": "-", "weight": 4.5, "town": "Rome", "label": ["cat", "dog"],
     "username": "eve@x.org"},
    {"id": 2, "text": "-", "weight": 30, "town": None, "label": ["dog"], "username": "1"},
    {"id": 2, "text": "-", "weight": 30, "town": None, "label": [], "username": "eve@x.org"},
    {"id": 3, "text": "-", "weight": None, "town": "Bonn", "label": ["dog"],
     "username": "eve@x.org", "Comments": []},
]  # fmt: skip


def lines(records: list[Any]) -> str:
    return "".join(f"{json.dumps(record)}\n" for record in records)


EXPORTS = {
    "label studio.json": json.dumps(TASKS),
    "argilla.json": json.dumps(RECORDS, indent=2),
    "doccano.jsonl": lines(ROWS),
    "tasks.jsonl": lines(TASKS),
}


@pytest.mark.parametrize("name", EXPORTS)
def test_exports_of_all_tools_are_one_table(write: Write, name: str) -> None:
    table = read_table(write(EXPORTS[name], name), ignore=["text"] if "doc" in name else ())
    assert isinstance(table.y, Votes)
    assert table.features["weight"].tolist() == pytest.approx([4.5, 30, np.nan], nan_ok=True)
    assert table.features["town"].isna().tolist() == [False, True, False]
    assert {*table.features} == {"weight", "town"}
    assert table.annotators == ("1", "eve@x.org")
    assert table.y.codes()[0].tolist() == [[0, -1], [1, -1], [-1, 1]]
    assert Candidates.of(table.y).prior.tolist() == [[0.75, 0.25], [0, 1], [0, 1]]


def test_old_forms_of_doccano(write: Write) -> None:
    old = [
        {"id": 5, "x": 1.5, "text": "-", "annotations": [{"label": 2, "user": 1, "id": 4}]},
        {"id": 6, "x": 2.5, "text": "-", "annotations": [{"label": 3, "user": 1, "id": 5}]},
    ]
    table = read_table(write(lines(old), "old.jsonl"), ignore="text")
    assert Candidates.of(table.y).sets() == [{"2"}, {"3"}]
    other = [{"doc_id": n, "meta": {"x": n / 2}, "labels": ["ab"[n]]} for n in (0, 1)]
    table = read_table(write(lines(other), "older.jsonl"), ignore="doc_id")
    assert table.features["x"].tolist() == [0.0, 0.5]


def test_a_question_is_chosen_and_must_be_a_choice_of_classes(write: Write) -> None:
    box = {"from_name": "box", "type": "rectanglelabels", "value": {"x": 1, "rectanglelabels": []}}
    tasks = [
        task(n, (1, {"result": [box, choice(["ab"[n]]), choice(["z"], "part", start=3)]}), x=n / 2)
        for n in (0, 1)
    ]
    path = write(json.dumps(tasks), "export.json")
    with pytest.raises(InputError, match=r"several questions .*'box', 'animal', 'part'.*question"):
        read_table(path)
    table = read_table(path, question="animal")
    assert Candidates.of(table.y).sets() == [{"a"}, {"b"}]
    with pytest.raises(InputError, match=r"question='color': .* no answers to it"):
        read_table(path, question="color")
    for question in ("box", "part"):
        with pytest.raises(InputError, match=f"record 0: '{question}' holds .* not a choice"):
            read_table(path, question=question)
    for value in (3, [{"label": "a", "start": 0}], {"rank": 1}):
        records = [{"id": "1", "fields": {"x": 1}, "responses": {"q": [{"value": value}]}}]
        with pytest.raises(InputError, match="'q' holds"):
            read_table(write(json.dumps(records), "argilla.json"))
    spans = [{"id": 1, "text": "-", "label": [[0, 3, "PER"]]}]
    with pytest.raises(InputError, match="'label' holds spans"):
        read_table(write(lines(spans), "spans.jsonl"))


def test_two_annotations_of_one_annotator_need_a_rule(write: Write) -> None:
    tasks = [task(1, (1, ["a"]), (1, ["b", "c"]), x=0.5), task(2, (1, ["b"]), x=1.5)]
    path = write(json.dumps(tasks), "export.json")
    with pytest.raises(InputError, match=r"about item '1'.*duplicates='last'"):
        read_table(path)
    for rule, first in (("last", {"b", "c"}), ("set", {"a", "b", "c"})):
        table = read_table(path, duplicates=rule)  # type: ignore[arg-type]
        assert Candidates.of(table.y, classes=[*"abcd"]).sets()[0] == first


def test_records_are_one_item_only_if_they_have_the_same_content(write: Write) -> None:
    records = [record | {"id": None} for record in RECORDS]
    assert len(read_table(write(json.dumps(records), "argilla.json"))) == len(records)
    tasks = [task(1, (1, ["cat"]), weight=1), task(1, (2, ["dog"]), weight=2)]
    with pytest.raises(InputError, match="several records '1' have the same id, but not the same"):
        read_table(write(json.dumps(tasks), "tasks.json"))


def test_nan_in_an_export_is_a_gap(write: Write) -> None:
    tasks = [
        task(n, (1, ["cat", "dog"]), weight=weight) for n, weight in enumerate([np.nan, 1.5, 2.5])
    ]
    table = read_table(write(json.dumps(tasks), "tasks.json"))
    np.testing.assert_array_equal(table.features["weight"], [np.nan, 1.5, 2.5])


DEEP = "[" * 100_000 + "]" * 100_000
BROKEN = {
    "nothing": ("", "must hold tasks or records"),
    "no JSON": ("{]", "is not JSON"),
    "cut": (EXPORTS["label studio.json"][:-9], "is not JSON"),
    "deep": (DEEP, "nested too deeply|must hold"),
    "deep data": ('[{"data": {"x": ' + DEEP + "}}]", "nested too deeply"),
    "long number": ('[{"data": {"x": ' + "9" * 5000 + "}}]", "is not JSON"),
    "bytes": (b"\xff\xfe[]", "is not JSON"),
    "numbers": ("[1, 2]", "must hold tasks or records"),
    "an object": ('{"a": 1}', "is no export of Label Studio"),
    "two tools": (json.dumps([TASKS[0], RECORDS[0]]), "not of Label Studio: records 1"),
    "surrogate in a class": (json.dumps([task(1, (1, ["\ud800"]), x=1)]), "not Unicode"),
    "surrogate": ('[{"data": {"x": "\\ud800"}}]', "not Unicode"),
    "clash": ('[{"data": {"answer: bob": 1}}]', "Rename it"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_files_that_are_no_exports_are_refused(write: Write, text: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_table(write(text, "export.json"))


ODD: list[Any] = [
    {"annotations": 7},
    {"annotations": [None, 3, {"result": {}}]},
    {"annotations": [{"result": [{"value": 3, "from_name": ["q"], "type": {}}]}]},
    {"annotations": [{"completed_by": [], "result": [{"type": "choices", "from_name": None}]}]},
    {"predictions": "x", "id": {"a": 1}},
    {"data": {"x": 10**400, "y": 10**30, "z": [], "w": True}},
]


@pytest.mark.parametrize("odd", ODD)
def test_parts_of_a_wrong_type_harm_nothing(write: Write, odd: Any) -> None:
    tasks = [*TASKS, task(10, (1, ["cat"]), x=1, y=2, w=False) | odd]
    path = write(json.dumps(tasks), "export.json")
    try:
        table = read_table(path, unanswered="all classes", on_bad_rows="skip")
    except InputError:
        return
    assert isinstance(table, Table)
    assert {*np.unique(table.rows)} <= {0, 1, 2, 3}


@pytest.mark.parametrize("name", EXPORTS)
def test_damaged_exports_are_read_or_refused(write: Write, name: str) -> None:
    random, text = np.random.default_rng(0), EXPORTS[name]
    parts = [
        "null",
        "[]",
        "{}",
        "1e999",
        "-1",
        '"x"',
        "true",
        '"\\ud800"',
        "[[]]",
        ",",
        '{"id": 1}',
    ]
    for _ in range(60):
        start, stop = np.sort(random.integers(0, len(text), 2))
        stop = min(stop, start + random.integers(0, 30))
        damaged = text[:start] + str(random.choice(parts)) + text[stop:]
        try:
            table = read_table(write(damaged, name), ignore=(), on_bad_rows="skip")
        except InputError:
            continue
        assert len(table) > 0


@pytest.mark.parametrize("name", EXPORTS)
def test_values_of_any_type_are_read_or_refused(write: Write, name: str) -> None:
    random = np.random.default_rng(1)
    values: list[Any] = [None, [], {}, 10**400, -1.5, "x", True, [[]], [None], {"a": [1]}, [{}]]

    def changed(value: Any) -> Any:
        if random.random() < 0.03:
            return values[random.integers(len(values))]
        if isinstance(value, dict):
            return {key: changed(one) for key, one in value.items()}
        return [*map(changed, value)] if isinstance(value, list) else value

    records = {"doccano.jsonl": ROWS, "argilla.json": RECORDS}.get(name, TASKS)
    for _ in range(60):
        path = write(lines([*map(changed, records)]), "any.jsonl")
        try:
            read_table(path, on_bad_rows="skip", unanswered="all classes", duplicates="set")
            ExportFile(path, Reading(question="q")).with_predictions(
                pd.DataFrame({"label": ["a"] * 5, "probability": ["0.5"] * 5}), "m"
            )
        except InputError:
            continue


def test_an_export_that_is_too_large_is_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustpll.tables.exports.LARGEST", 100)
    with pytest.raises(InputError, match="more than 100 bytes"):
        read_table(write(EXPORTS["argilla.json"], "argilla.json"))


def test_predictions_are_given_back_in_the_same_format(write: Write) -> None:
    rows = pd.DataFrame({"label": ["cat", "", "dog"], "probability": ["0.75", "", "1"]})
    given = {
        name: json.loads(text) if name.endswith(".json") else [*map(json.loads, text.splitlines())]
        for name, content in EXPORTS.items()
        if (
            text := ExportFile(write(content, name), Reading()).with_predictions(rows, "m").decode()
        )
    }
    first, second, third = given["label studio.json"]
    assert first | {"predictions": []} == TASKS[0]
    assert second == TASKS[1]
    (prediction,) = third["predictions"]
    assert prediction["model_version"], prediction["score"] == ("m", 1.0)
    (result,) = prediction["result"]
    expected = {"from_name": "animal", "to_name": "photo", "type": "choices"}
    assert result == expected | {"value": {"choices": ["dog"]}}
    first, second, third = given["argilla.json"]
    assert first["suggestions"]["animal"] == {"value": "cat", "score": 0.75, "agent": "m"}
    assert first["suggestions"]["tone"]["value"] == "calm"
    assert second == RECORDS[1]
    assert third["suggestions"] == {"animal": {"value": "dog", "score": 1.0, "agent": "m"}}
    assert [row["label"] for row in given["doccano.jsonl"]] == [
        ["cat"], ["cat"], ["dog"], [], ["dog"]
    ]  # fmt: skip


def test_unlabelled_records_need_the_name_of_the_question(write: Write) -> None:
    path = write('[{"fields": {"x": 1}}]', "new.json")
    rows = pd.DataFrame({"label": ["cat"], "probability": ["1"]})
    with pytest.raises(InputError, match=r"has no answers\. Pass the name"):
        ExportFile(path, Reading()).with_predictions(rows, "m")
    text = ExportFile(path, Reading(question="animal")).with_predictions(rows, "m")
    assert json.loads(text)[0]["suggestions"]["animal"]["value"] == "cat"
    assert read_table(path).y is None


# Long tables

FEATURES = pd.DataFrame({"id": [1, 2, 3], "x": [0.5, 1.5, 2.5]})
LONG = pd.DataFrame(
    {
        "id": [2, 1, 1, 3],
        "who": ["bob", "ann", "bob", "ann"],
        "what": ["dog", "cat", '["cat", "dog"]', '{"not": "dog"}'],
    }
)
COLUMNS: dict[str, Any] = {"item": "id", "annotator": "who", "label": "what"}


def test_a_long_table_beside_the_features(write: Write) -> None:
    files = write(FEATURES.to_csv(index=False)), write(LONG.to_csv(index=False), "answers.csv")
    for source, answers in ((FEATURES, LONG), files):
        table = read_table(source, answers=answers, **COLUMNS)
        assert [*table.features] == ["x"]
        assert table.annotators == ("bob", "ann")
        assert Candidates.of(table.y).prior.tolist() == [[0.75, 0.25], [0, 1], [1, 0]]
    sure = read_table(
        FEATURES, answers=LONG.assign(p=[0.5, 1, None, None]), confidence="p", **COLUMNS
    )
    assert Candidates.of(sure.y).prior.tolist() == [[0.75, 0.25], [0.5, 0.5], [1, 0]]
    some = read_table(FEATURES, answers=LONG[:3], unanswered="all classes", **COLUMNS)
    assert Candidates.of(some.y).prior[2].tolist() == [0.5, 0.5]
    export = read_table(FEATURES.assign(id=[7, 8, 9]), item="id",
                        answers=write(EXPORTS["label studio.json"], "ls.json"))  # fmt: skip
    assert Candidates.of(export.y).prior.tolist() == [[0.75, 0.25], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("features", "long", "options", "message"),
    [
        (FEATURES, LONG.assign(id=[1, 2, 4, 5]), {}, r"2 items not in the table \(4, 5\)"),
        (FEATURES, LONG.assign(id=[1, 2, 3, None]), {}, "row 3: column 'id': '' is empty"),
        (FEATURES, LONG[:3], {}, "names no class"),
        (FEATURES.assign(id=1), LONG, {}, "that of another row, in 3 rows"),
        (FEATURES.assign(id=[1, 2, None]), LONG, {}, "'id' has no name, .* in 1 row"),
        (FEATURES, LONG, {"label": None}, "pass its column `label`"),
        (FEATURES, LONG, {"label": "wath"}, "no column 'wath'. There is 'what'"),
        (FEATURES, LONG.rename(columns={"id": "row"}), {}, "one name in both files: rename it"),
        (FEATURES.rename(columns={"id": "row"}), LONG, {}, "one name in both files: rename it"),
        (FEATURES, LONG, {"item": None}, "belong together"),
        (FEATURES, LONG, {"candidates": "x"}, "pass only one"),
        (FEATURES, LONG, {"duplicates": "no"}, "duplicates='no'"),
        (FEATURES, LONG.assign(what='["cat"'), {}, "begins like JSON"),
        (FEATURES, LONG.assign(what='{"cat": 0.5, "dog": 0.4}'), {}, "begins like JSON"),
        (FEATURES, LONG.assign(what='{"cat": 50}'), {}, "begins like JSON"),
        (FEATURES, LONG.assign(what="[[1]]"), {}, "begins like JSON"),
        (FEATURES, LONG.assign(p="much"), {"confidence": "p"}, "rows that do not parse"),
    ],
)
def test_mistakes_in_long_tables_are_refused(
    features: pd.DataFrame, long: pd.DataFrame, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_table(features, **({"answers": long} | COLUMNS | options))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": [2, "", 1, ""]}, "line 3: column 'id': '' is empty.*line 5: column 'id'"),
        ({"who": ["bob", "ann", "", "ann"]}, "line 4: column 'who': '' is empty"),
        (
            {"p": [0.5, 0, 1, 80]},
            r"line 3: column 'p': '0\.0' is not .*line 5: column 'p': '80\.0'",
        ),
        ({"who": "bob", "p": ""}, "line 3: column 'what': 'cat' differs.*line 4: .*'last'"),
        ({"who": "ann", "what": "cat"}, "line 3: column 'what': 'cat' differs.*line 4"),
    ],
)
def test_faults_of_a_file_of_answers_have_the_file_and_the_line(
    write: Write, changed: dict[str, Any], message: str
) -> None:
    path = write(LONG.assign(p=[0.5, 1, 0.8, 0.7]).assign(**changed).to_csv(index=False), "a.csv")
    with pytest.raises(InputError, match=f"`answers`: .*a\\.csv has .*{message}"):
        read_table(FEATURES, answers=path, confidence="p", **COLUMNS)


def test_an_answer_that_cannot_tell_is_no_class_and_needs_no_confidence() -> None:
    said = pd.DataFrame({"id": [1, 1, 2, 3], "who": [*"uvuu"], "what": ["cat", "hm", "dog", "cat"]})
    for confidences in ([1, 0.4, 1, 1], [1, 0, 1, 1], [1, None, 1, 1]):
        answers = said.assign(p=confidences)
        table = read_table(FEATURES, answers=answers, confidence="p", unsure="hm", **COLUMNS)
        assert Candidates.of(table.y).prior.tolist() == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("sign", [".", ","])
@pytest.mark.parametrize("format_of_table", [(",", "."), (";", ","), ("|", ",")])
def test_table_and_answers_may_have_different_delimiters_and_decimal_signs(
    write: Write, mark: str, sign: str, format_of_table: tuple[str, str]
) -> None:
    answers = LONG.assign(what=["dog", "cat", "dog", "cat"], p=[0.5, 1, 0.8, 0.7])
    delimiter, decimal = format_of_table
    table = read_table(
        write(FEATURES.to_csv(index=False, sep=delimiter, decimal=decimal)),
        answers=write(answers.to_csv(index=False, sep=mark, decimal=sign), "a.csv"),
        delimiter=delimiter,
        decimal=decimal,
        confidence="p",
        **COLUMNS,
    )
    assert table.features["x"].tolist() == [0.5, 1.5, 2.5]
    expected = read_table(FEATURES, answers=answers, confidence="p", **COLUMNS)
    assert Candidates.of(table.y) == Candidates.of(expected.y)


@pytest.mark.parametrize("option", ["annotator", "label", "confidence"])
def test_columns_of_answers_need_the_answers(option: str) -> None:
    with pytest.raises(InputError, match=f"`{option}` is a column of `answers`"):
        read_table(FEATURES.assign(seen="a|b"), candidates="seen", **{option: "x"})


def test_names_are_changed_in_every_form_of_labels() -> None:
    rename = {"Kat": "cat", "?": None}
    x = [0.5, 1.5, 2.5]
    truth = ["CAT", "dog", "?"]
    forms: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"c": ["cat|Kat", "dog|?", "Cat"]}, {"candidates": "c"}),
        ({"is cat": [1, 0, 0], "is Kat": [1, 0, 0], "is dog": [0, 1, 0], "is ?": [0, 1, 0],
          "is Cat": [0, 0, 1]}, {"indicators": "is "}),
        ({"by u": ["Kat", "dog", "Cat"], "by v": ['["cat", "Kat"]', "?", None]}, {"votes": "by "}),
    ]  # fmt: skip
    for columns, form in forms:
        frame = pd.DataFrame({"x": x, "t": truth, **columns})
        table = read_table(frame, **form, rename=rename, fold_case=True, truth="t")
        assert Candidates.of(table.y).sets() == [{"cat"}, {"dog"}, {"cat"}]
        assert table.truth is not None
        assert table.truth.tolist() == ["cat", "dog", None]
        gap = frame.replace({"Cat": "?"}).rename(columns={"is Cat": "is ??"})
        with pytest.raises(InputError, match="names no class"):
            read_table(gap, **form, rename=rename | {"??": None} if "is dog" in frame else rename)
    with pytest.warns(UserWarning, match=r"does not have \(Katz\)"):
        read_table(frame, votes="by ", rename={"Katz": "cat"})


def test_cells_with_answers_may_be_json() -> None:
    cells = ['{"a": 0.75}', '{"a": 0.5, "b": 0.5}', '{"not": ["a"]}', '["a"]', '{"not": "b"}']
    frame = pd.DataFrame({"x": [n + 0.5 for n in range(5)], "by u": cells})
    prior = Candidates.of(read_table(frame, votes="by ").y).prior
    assert prior.tolist() == [[0.75, 0.25], [0.5, 0.5], [0, 1], [1, 0], [1, 0]]


def test_an_answer_that_cannot_tell_is_no_gap() -> None:
    frame = pd.DataFrame(
        {"x": [0.5, 1.5, 2.5], "by u": ["a", "hm", "b"], "by v": ["a", "hm", None]}
    )
    table = read_table(frame, votes="by ", unsure="hm")
    assert Candidates.of(table.y).sets() == [{"a"}, {"a", "b"}, {"b"}]


# The command line


def invoke(*options: Any, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [*map(str, options)])
    assert result.exit_code == code, result.output
    return result


def big_tasks() -> list[Any]:
    random = np.random.default_rng(0)
    return [
        task(
            n, (1, ["cat" if n % 2 else "dog"]), x=float(n % 2 + random.normal() / 9), name=f"n{n}"
        )
        for n in range(60)
    ]


def test_from_an_export_to_predictions_in_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tasks.json").write_text(json.dumps(big_tasks()), encoding="utf-8")
    fit = ("fit", "tasks.json", "--ignore", "name", "--out", "m.pll", "--method", "pl_knn")
    invoke(*fit, "--no-baselines")
    new = [task(n, x=n / 2, name=f"n{n}") for n in range(3)]
    Path("new.json").write_text(json.dumps(new), encoding="utf-8")
    invoke("predict", "m.pll", "new.json", "--out", "done.json")
    tasks = json.loads(Path("done.json").read_text(encoding="utf-8"))
    labels = [one["predictions"][0]["result"][0]["value"]["choices"][0] for one in tasks]
    assert labels[0] == "dog"
    assert labels[-1] == "cat"
    assert tasks[0]["predictions"][0]["result"][0]["from_name"] == "animal"
    result = invoke("predict", "m.pll", "new.json", "--out", "done.json", code=1)
    assert "would be lost" in result.stderr
    invoke("predict", "m.pll", "new.json", "--out", "done.csv", "--keep", "id")
    invoke("predict", "m.pll", "new.json", "--out", "done.jsonl", code=2)
    invoke("clean", "tasks.json", "--ignore", "name", "--out", "out", "--method", "pl_knn")
    assert Path("out/table.csv").read_text(encoding="utf-8-sig").startswith("id,x,name,answer: 1,")
    refused = invoke("fit", "new.json", "--out", "n.pll", code=1)
    assert "no answers to learn from" in refused.stderr


def test_a_long_table_and_new_names_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.linspace(0, 1, 40)
    pd.DataFrame({"id": [f"p{n}" for n in range(40)], "x": x}).to_csv("t.csv", index=False)
    rows = [(f"p{n}", who, "Katze" if n % 2 else "Hund") for n in range(40) for who in ("u", "v")]
    rows[:4] = [("p0", "u", "Katz"), ("p0", "v", "?"), ("p1", "u", "katze"), ("p1", "v", "hm")]
    pd.DataFrame(rows, columns=["id", "who", "what"]).to_csv("a.csv", index=False)
    form = ("t.csv", "--answers", "a.csv", "--item", "id", "--annotator", "who", "--label", "what",
            "--unsure", "hm")  # fmt: skip
    shown = invoke("table", *form, "--propose", "map.csv")
    assert "'Katze' (19 rows), 'katze' (1 row), 'Katz' (1 row) may mean" in shown.stderr
    proposed = Path("map.csv").read_text(encoding="utf-8-sig")
    assert proposed == "from,to\nkatze,Katze\nKatz,Katze\n?,\n"
    assert "5 classes" in shown.stdout
    assert "4 classes" in invoke("table", *form, "--fold-case").stdout
    clean = invoke("table", *form, "--rename", "map.csv")
    assert (clean.stderr, "2 classes" in clean.stdout) == ("", True)
    fit = ("fit", *form, "--rename", "map.csv", "--method", "pl_knn", "--no-baselines")
    assert "2 classes" in invoke(*fit, "--out", "m.pll").stdout
    invoke("table", *form, "--propose", "a.csv", code=1)  # no other file is replaced
    invoke("table", *form, "--votes", "x", code=2)
